"""Operators of DataStream programs and the factories that the job graph holds.

Read next: ``runtime/operators/stateless.py``, then ``runtime/operators/process.py`` and
``runtime/operators/windows/aligned.py``.
"""

from __future__ import annotations

from millstream.runtime.operators.async_factory import AsyncWaitFactory
from millstream.runtime.operators.combiner import CombinerFactory
from millstream.runtime.operators.interval_join import IntervalJoinFactory
from millstream.runtime.operators.keyed_reduce import KeyedAggregateFactory, KeyedReduceFactory
from millstream.runtime.operators.process import (
    BroadcastProcessFactory,
    CoProcessFactory,
    KeyedBroadcastProcessFactory,
    KeyedCoProcessFactory,
    KeyedProcessFactory,
    ProcessFactory,
)
from millstream.runtime.operators.sink import SinkFactory
from millstream.runtime.operators.stateless import (
    FilterFactory,
    FlatMapFactory,
    MapBatchesFactory,
    MapFactory,
)
from millstream.runtime.operators.tagged_inputs import TaggedInputsFactory, TaggedKeySelector
from millstream.runtime.operators.timestamps_watermarks import TimestampsWatermarksFactory
from millstream.runtime.operators.windows.logic import (
    AggregateSpec,
    ApplySpec,
    BuiltInSpec,
    ProcessSpec,
    ReduceSpec,
)
from millstream.runtime.operators.windows.window_factory import WindowFactory

__all__ = [
    "AggregateSpec",
    "ApplySpec",
    "AsyncWaitFactory",
    "BroadcastProcessFactory",
    "BuiltInSpec",
    "CoProcessFactory",
    "CombinerFactory",
    "FilterFactory",
    "FlatMapFactory",
    "IntervalJoinFactory",
    "KeyedAggregateFactory",
    "KeyedBroadcastProcessFactory",
    "KeyedCoProcessFactory",
    "KeyedProcessFactory",
    "KeyedReduceFactory",
    "MapBatchesFactory",
    "MapFactory",
    "ProcessFactory",
    "ProcessSpec",
    "ReduceSpec",
    "SinkFactory",
    "TaggedInputsFactory",
    "TaggedKeySelector",
    "TimestampsWatermarksFactory",
    "WindowFactory",
]
