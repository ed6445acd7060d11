"""User function classes under PyFlink's import path."""

from millstream.functions.async_functions import AsyncFunction as AsyncFunction
from millstream.functions.async_functions import AsyncFunctionDescriptor as AsyncFunctionDescriptor
from millstream.functions.async_functions import AsyncRetryPredicate as AsyncRetryPredicate
from millstream.functions.async_functions import AsyncRetryStrategy as AsyncRetryStrategy
from millstream.functions.checkpointed import CheckpointedFunction as CheckpointedFunction
from millstream.functions.checkpointed import CheckpointListener as CheckpointListener
from millstream.functions.checkpointed import (
    FunctionInitializationContext as FunctionInitializationContext,
)
from millstream.functions.checkpointed import FunctionSnapshotContext as FunctionSnapshotContext
from millstream.functions.checkpointed import OperatorStateStore as OperatorStateStore
from millstream.functions.functions import AggregateFunction as AggregateFunction
from millstream.functions.functions import AllWindowFunction as AllWindowFunction
from millstream.functions.functions import (
    BaseBroadcastProcessFunction as BaseBroadcastProcessFunction,
)
from millstream.functions.functions import BroadcastProcessFunction as BroadcastProcessFunction
from millstream.functions.functions import CoFlatMapFunction as CoFlatMapFunction
from millstream.functions.functions import CoGroupFunction as CoGroupFunction
from millstream.functions.functions import CoMapFunction as CoMapFunction
from millstream.functions.functions import CoProcessFunction as CoProcessFunction
from millstream.functions.functions import FilterFunction as FilterFunction
from millstream.functions.functions import FlatJoinFunction as FlatJoinFunction
from millstream.functions.functions import FlatMapFunction as FlatMapFunction
from millstream.functions.functions import Function as Function
from millstream.functions.functions import JoinFunction as JoinFunction
from millstream.functions.functions import (
    KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
)
from millstream.functions.functions import KeyedCoProcessFunction as KeyedCoProcessFunction
from millstream.functions.functions import KeyedProcessFunction as KeyedProcessFunction
from millstream.functions.functions import KeyedStateStore as KeyedStateStore
from millstream.functions.functions import KeySelector as KeySelector
from millstream.functions.functions import MapFunction as MapFunction
from millstream.functions.functions import Partitioner as Partitioner
from millstream.functions.functions import ProcessAllWindowFunction as ProcessAllWindowFunction
from millstream.functions.functions import ProcessFunction as ProcessFunction
from millstream.functions.functions import ProcessJoinFunction as ProcessJoinFunction
from millstream.functions.functions import ProcessWindowFunction as ProcessWindowFunction
from millstream.functions.functions import ReduceFunction as ReduceFunction
from millstream.functions.functions import RuntimeContext as RuntimeContext
from millstream.functions.functions import SinkFunction as SinkFunction
from millstream.functions.functions import SourceFunction as SourceFunction
from millstream.functions.functions import TimeDomain as TimeDomain
from millstream.functions.functions import TimerService as TimerService
from millstream.functions.functions import WindowFunction as WindowFunction
