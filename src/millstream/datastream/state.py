"""State descriptors and handles under PyFlink's import path."""

from millstream.functions.checkpointed import OperatorStateStore as OperatorStateStore
from millstream.functions.descriptors import (
    AggregatingStateDescriptor as AggregatingStateDescriptor,
)
from millstream.functions.descriptors import ListStateDescriptor as ListStateDescriptor
from millstream.functions.descriptors import MapStateDescriptor as MapStateDescriptor
from millstream.functions.descriptors import ReducingStateDescriptor as ReducingStateDescriptor
from millstream.functions.descriptors import StateDescriptor as StateDescriptor
from millstream.functions.descriptors import StateTtlConfig as StateTtlConfig
from millstream.functions.descriptors import ValueStateDescriptor as ValueStateDescriptor
from millstream.functions.handles import AggregatingState as AggregatingState
from millstream.functions.handles import AppendingState as AppendingState
from millstream.functions.handles import BroadcastState as BroadcastState
from millstream.functions.handles import ListState as ListState
from millstream.functions.handles import MapState as MapState
from millstream.functions.handles import MergingState as MergingState
from millstream.functions.handles import ReadOnlyBroadcastState as ReadOnlyBroadcastState
from millstream.functions.handles import ReducingState as ReducingState
from millstream.functions.handles import State as State
from millstream.functions.handles import ValueState as ValueState
