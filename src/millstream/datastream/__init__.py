"""The DataStream API with PyFlink's names.

Read next: ``datastream/environment.py``, ``datastream/data_stream.py``.
"""

from millstream import facade
from millstream.configuration.execution_config import RuntimeExecutionMode as RuntimeExecutionMode
from millstream.configuration.options import CheckpointingMode as CheckpointingMode
from millstream.configuration.resources import MemorySize as MemorySize
from millstream.configuration.resources import SlotSharingGroup as SlotSharingGroup
from millstream.configuration.restart_strategies import RestartStrategies as RestartStrategies
from millstream.datastream.async_data_stream import AsyncDataStream as AsyncDataStream
from millstream.datastream.broadcast_stream import (
    BroadcastConnectedStream as BroadcastConnectedStream,
)
from millstream.datastream.broadcast_stream import BroadcastStream as BroadcastStream
from millstream.datastream.checkpoint_config import CheckpointConfig as CheckpointConfig
from millstream.datastream.checkpoint_storage import *
from millstream.datastream.collecting import CloseableIterator as CloseableIterator
from millstream.datastream.connected_streams import ConnectedStreams as ConnectedStreams
from millstream.datastream.data_stream import DataStream as DataStream
from millstream.datastream.data_stream import DataStreamSink as DataStreamSink
from millstream.datastream.environment import (
    StreamExecutionEnvironment as StreamExecutionEnvironment,
)
from millstream.datastream.externalized_checkpoint_retention import *
from millstream.datastream.functions import *
from millstream.datastream.interval_join import IntervalJoin as IntervalJoin
from millstream.datastream.interval_join import IntervalJoined as IntervalJoined
from millstream.datastream.keyed_stream import KeyedStream as KeyedStream
from millstream.datastream.state_backend import *
from millstream.datastream.window import *
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
