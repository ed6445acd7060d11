"""The DataStream API with PyFlink's names.

Read next: ``datastream/environment.py``, ``datastream/data_stream.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.configuration.execution_config import RuntimeExecutionMode
from millstream.configuration.options import CheckpointingMode
from millstream.configuration.resources import MemorySize, SlotSharingGroup
from millstream.configuration.restart_strategies import RestartStrategies
from millstream.configuration.state_backends import (
    CheckpointStorage,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    PredefinedOptions,
    StateBackend,
)
from millstream.datastream.async_data_stream import AsyncDataStream
from millstream.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
from millstream.datastream.checkpoint_config import CheckpointConfig
from millstream.datastream.collecting import CloseableIterator
from millstream.datastream.connected_streams import ConnectedStreams
from millstream.datastream.data_stream import DataStream, DataStreamSink
from millstream.datastream.environment import StreamExecutionEnvironment
from millstream.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatJoinFunction,
    FlatMapFunction,
    Function,
    JoinFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    TimeDomain,
    TimerService,
    WindowFunction,
)
from millstream.datastream.interval_join import IntervalJoin, IntervalJoined
from millstream.datastream.keyed_stream import KeyedStream
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    CountWindow,
    DeltaEvictor,
    DeltaTrigger,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EndOfStreamTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindow,
    GlobalWindows,
    MergingWindowAssigner,
    NeverTrigger,
    ProcessingTimeoutTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimestampedValue,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
    WindowAssigner,
)
from millstream.datastream.windowed_join import CoGroupedStreams, JoinedStreams
from millstream.datastream.windowed_stream import AllWindowedStream, WindowedStream
from millstream.execution.job_client import JobClient, JobExecutionResult, JobStatus
from millstream.not_offered import refuse_name
from millstream.types.composite_types import TaggedUnion
from millstream.types.output_tag import OutputTag

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AllWindowedStream",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoGroupedStreams",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountSlidingWindowAssigner",
    "CountTrigger",
    "CountTumblingWindowAssigner",
    "CountWindow",
    "DataStream",
    "DataStreamSink",
    "DeltaEvictor",
    "DeltaTrigger",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EmbeddedRocksDBStateBackend",
    "EndOfStreamTrigger",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "Function",
    "GlobalWindow",
    "GlobalWindows",
    "HashMapStateBackend",
    "IntervalJoin",
    "IntervalJoined",
    "JobClient",
    "JobExecutionResult",
    "JobManagerCheckpointStorage",
    "JobStatus",
    "JoinFunction",
    "JoinedStreams",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "MemorySize",
    "MergingWindowAssigner",
    "NeverTrigger",
    "OutputTag",
    "Partitioner",
    "PredefinedOptions",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "ProcessingTimeoutTrigger",
    "PurgingTrigger",
    "ReduceFunction",
    "RestartStrategies",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SessionWindowTimeGapExtractor",
    "SinkFunction",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "SlotSharingGroup",
    "SourceFunction",
    "StateBackend",
    "StreamExecutionEnvironment",
    "TaggedUnion",
    "TimeDomain",
    "TimeEvictor",
    "TimeWindow",
    "TimerService",
    "TimestampedValue",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Say what to take in place of a name that PyFlink has here."""
        refuse_name(__name__, name)
