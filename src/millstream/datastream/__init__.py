"""The DataStream API, with PyFlink's names: what ``pyflink.datastream`` has.

What it is: what programs import.  What it is not: the runtime (``millstream.runtime``).

Read next: ``datastream/environment.py``, ``datastream/data_stream.py``.
"""

from __future__ import annotations

from millstream.common.output_tag import OutputTag
from millstream.datastream.checkpoint_config import CheckpointConfig
from millstream.datastream.checkpointing_mode import CheckpointingMode, RuntimeExecutionMode
from millstream.datastream.closeable_iterator import CloseableIterator
from millstream.datastream.connected_streams import ConnectedStreams
from millstream.datastream.data_stream import DataStream
from millstream.datastream.data_stream_sink import DataStreamSink
from millstream.datastream.environment import StreamExecutionEnvironment
from millstream.datastream.functions import (
    AggregateFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    TimeDomain,
    TimerService,
    WindowFunction,
)
from millstream.datastream.job_client import JobClient, JobExecutionResult, JobStatus
from millstream.datastream.keyed_stream import KeyedStream
from millstream.datastream.restart_strategies import RestartStrategies
from millstream.datastream.slot_sharing_group import SlotSharingGroup
from millstream.datastream.window import (
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    Window,
    WindowAssigner,
)
from millstream.datastream.windowed_stream import WindowedStream

__all__ = [
    "AggregateFunction",
    "CheckpointConfig",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "JobClient",
    "JobExecutionResult",
    "JobStatus",
    "KeySelector",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "OutputTag",
    "Partitioner",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RestartStrategies",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SlidingEventTimeWindows",
    "SlotSharingGroup",
    "StreamExecutionEnvironment",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "TumblingEventTimeWindows",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
]
