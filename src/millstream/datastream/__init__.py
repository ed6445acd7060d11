"""The DataStream API with PyFlink's names.

Read next: ``datastream/environment.py``, ``datastream/data_stream.py``.
"""

from millstream import facade
from millstream.configuration.execution_config import RuntimeExecutionMode as RuntimeExecutionMode
from millstream.configuration.options import CheckpointingMode as CheckpointingMode
from millstream.configuration.resources import MemorySize as MemorySize
from millstream.configuration.resources import SlotSharingGroup as SlotSharingGroup
from millstream.configuration.restart_strategies import RestartStrategies as RestartStrategies
from millstream.configuration.state_backends import CheckpointStorage as CheckpointStorage
from millstream.configuration.state_backends import (
    EmbeddedRocksDBStateBackend as EmbeddedRocksDBStateBackend,
)
from millstream.configuration.state_backends import (
    ExternalizedCheckpointRetention as ExternalizedCheckpointRetention,
)
from millstream.configuration.state_backends import (
    FileSystemCheckpointStorage as FileSystemCheckpointStorage,
)
from millstream.configuration.state_backends import HashMapStateBackend as HashMapStateBackend
from millstream.configuration.state_backends import (
    JobManagerCheckpointStorage as JobManagerCheckpointStorage,
)
from millstream.configuration.state_backends import PredefinedOptions as PredefinedOptions
from millstream.configuration.state_backends import StateBackend as StateBackend
from millstream.datastream.async_data_stream import AsyncDataStream as AsyncDataStream
from millstream.datastream.broadcast_stream import (
    BroadcastConnectedStream as BroadcastConnectedStream,
)
from millstream.datastream.broadcast_stream import BroadcastStream as BroadcastStream
from millstream.datastream.checkpoint_config import CheckpointConfig as CheckpointConfig
from millstream.datastream.collecting import CloseableIterator as CloseableIterator
from millstream.datastream.connected_streams import ConnectedStreams as ConnectedStreams
from millstream.datastream.data_stream import DataStream as DataStream
from millstream.datastream.data_stream import DataStreamSink as DataStreamSink
from millstream.datastream.environment import (
    StreamExecutionEnvironment as StreamExecutionEnvironment,
)
from millstream.datastream.functions import AggregateFunction as AggregateFunction
from millstream.datastream.functions import AllWindowFunction as AllWindowFunction
from millstream.datastream.functions import AsyncFunction as AsyncFunction
from millstream.datastream.functions import AsyncRetryPredicate as AsyncRetryPredicate
from millstream.datastream.functions import AsyncRetryStrategy as AsyncRetryStrategy
from millstream.datastream.functions import BroadcastProcessFunction as BroadcastProcessFunction
from millstream.datastream.functions import CoFlatMapFunction as CoFlatMapFunction
from millstream.datastream.functions import CoGroupFunction as CoGroupFunction
from millstream.datastream.functions import CoMapFunction as CoMapFunction
from millstream.datastream.functions import CoProcessFunction as CoProcessFunction
from millstream.datastream.functions import FilterFunction as FilterFunction
from millstream.datastream.functions import FlatJoinFunction as FlatJoinFunction
from millstream.datastream.functions import FlatMapFunction as FlatMapFunction
from millstream.datastream.functions import Function as Function
from millstream.datastream.functions import JoinFunction as JoinFunction
from millstream.datastream.functions import (
    KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
)
from millstream.datastream.functions import KeyedCoProcessFunction as KeyedCoProcessFunction
from millstream.datastream.functions import KeyedProcessFunction as KeyedProcessFunction
from millstream.datastream.functions import KeySelector as KeySelector
from millstream.datastream.functions import MapFunction as MapFunction
from millstream.datastream.functions import Partitioner as Partitioner
from millstream.datastream.functions import ProcessAllWindowFunction as ProcessAllWindowFunction
from millstream.datastream.functions import ProcessFunction as ProcessFunction
from millstream.datastream.functions import ProcessJoinFunction as ProcessJoinFunction
from millstream.datastream.functions import ProcessWindowFunction as ProcessWindowFunction
from millstream.datastream.functions import ReduceFunction as ReduceFunction
from millstream.datastream.functions import RuntimeContext as RuntimeContext
from millstream.datastream.functions import SinkFunction as SinkFunction
from millstream.datastream.functions import SourceFunction as SourceFunction
from millstream.datastream.functions import TimeDomain as TimeDomain
from millstream.datastream.functions import TimerService as TimerService
from millstream.datastream.functions import WindowFunction as WindowFunction
from millstream.datastream.interval_join import IntervalJoin as IntervalJoin
from millstream.datastream.interval_join import IntervalJoined as IntervalJoined
from millstream.datastream.keyed_stream import KeyedStream as KeyedStream
from millstream.datastream.window import ContinuousEventTimeTrigger as ContinuousEventTimeTrigger
from millstream.datastream.window import (
    ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
)
from millstream.datastream.window import CountEvictor as CountEvictor
from millstream.datastream.window import CountSlidingWindowAssigner as CountSlidingWindowAssigner
from millstream.datastream.window import CountTrigger as CountTrigger
from millstream.datastream.window import CountTumblingWindowAssigner as CountTumblingWindowAssigner
from millstream.datastream.window import CountWindow as CountWindow
from millstream.datastream.window import DeltaEvictor as DeltaEvictor
from millstream.datastream.window import DeltaTrigger as DeltaTrigger
from millstream.datastream.window import (
    DynamicEventTimeSessionWindows as DynamicEventTimeSessionWindows,
)
from millstream.datastream.window import (
    DynamicProcessingTimeSessionWindows as DynamicProcessingTimeSessionWindows,
)
from millstream.datastream.window import EndOfStreamTrigger as EndOfStreamTrigger
from millstream.datastream.window import EventTimeSessionWindows as EventTimeSessionWindows
from millstream.datastream.window import EventTimeTrigger as EventTimeTrigger
from millstream.datastream.window import Evictor as Evictor
from millstream.datastream.window import GlobalWindow as GlobalWindow
from millstream.datastream.window import GlobalWindows as GlobalWindows
from millstream.datastream.window import MergingWindowAssigner as MergingWindowAssigner
from millstream.datastream.window import NeverTrigger as NeverTrigger
from millstream.datastream.window import ProcessingTimeoutTrigger as ProcessingTimeoutTrigger
from millstream.datastream.window import (
    ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
)
from millstream.datastream.window import ProcessingTimeTrigger as ProcessingTimeTrigger
from millstream.datastream.window import PurgingTrigger as PurgingTrigger
from millstream.datastream.window import (
    SessionWindowTimeGapExtractor as SessionWindowTimeGapExtractor,
)
from millstream.datastream.window import SlidingEventTimeWindows as SlidingEventTimeWindows
from millstream.datastream.window import (
    SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
)
from millstream.datastream.window import TimeEvictor as TimeEvictor
from millstream.datastream.window import TimestampedValue as TimestampedValue
from millstream.datastream.window import TimeWindow as TimeWindow
from millstream.datastream.window import Trigger as Trigger
from millstream.datastream.window import TriggerResult as TriggerResult
from millstream.datastream.window import TumblingEventTimeWindows as TumblingEventTimeWindows
from millstream.datastream.window import (
    TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
)
from millstream.datastream.window import Window as Window
from millstream.datastream.window import WindowAssigner as WindowAssigner
from millstream.datastream.windowed_join import CoGroupedStreams as CoGroupedStreams
from millstream.datastream.windowed_join import JoinedStreams as JoinedStreams
from millstream.datastream.windowed_stream import AllWindowedStream as AllWindowedStream
from millstream.datastream.windowed_stream import WindowedStream as WindowedStream
from millstream.execution.job_client import JobClient as JobClient
from millstream.execution.job_client import JobExecutionResult as JobExecutionResult
from millstream.execution.job_client import JobStatus as JobStatus
from millstream.types.composite_types import TaggedUnion as TaggedUnion
from millstream.types.output_tag import OutputTag as OutputTag

facade.complete(__name__)
