"""KeyedStream: the result of ``key_by``, whose operators have state and timers per key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from millstream.datastream.adapters import KeyedFilter, KeyedFlatMap, KeyedMap
from millstream.datastream.data_stream import DataStream
from millstream.datastream.processing_time import may_use_processing_time_timers
from millstream.datastream.type_choice import (
    check_field,
    check_returns,
    check_summable,
    choose_output_type,
    infer_key_type,
    method_of,
    require,
)
from millstream.datastream.windowed_stream import WindowedStream
from millstream.errors import ProgramError
from millstream.functions.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
)
from millstream.functions.window_assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
)
from millstream.runtime.operators import (
    KeyedAggregateFactory,
    KeyedProcessFactory,
    KeyedReduceFactory,
)
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.datastream.environment import StreamExecutionEnvironment
    from millstream.datastream.interval_join import IntervalJoin
    from millstream.functions.functions import KeySelector, Partitioner
    from millstream.functions.window_assigners import WindowAssigner
    from millstream.graph.model import Partitioning
    from millstream.graph.transformation import Transformation
    from millstream.types.types import TypeInformation


class KeyedStream(DataStream):
    """A stream partitioned by key."""

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        transformation: Transformation,
        key_selector: Callable[[object], object],
        key_type: TypeInformation | None,
    ) -> None:
        super().__init__(environment, transformation)
        self._key_selector = key_selector
        self._key_type = key_type or infer_key_type(key_selector, self.get_type())

    def get_key_type(self) -> TypeInformation:
        """The type of the keys; untyped if it is not known."""
        return self._key_type or Types.PICKLED_BYTE_ARRAY()

    def process(
        self,
        func: KeyedProcessFunction,  # type: ignore[override] # as in PyFlink
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """One record in, any number out, with state and timers of the record's key.

        Args:
            func: its ``process_element`` and ``on_timer`` yield records, or ``tag, value`` for
                a side output.
            output_type: the type of the records of the main output.
        """
        require(func, (KeyedProcessFunction,), "process", plain=False)
        chosen = choose_output_type(output_type, func.process_element, unwrap=True)
        return self._keyed_process("KeyedProcess", func, chosen, func)

    def map(
        self, func: Callable[..., object] | MapFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """One record in, one out; a MapFunction may use keyed state."""
        if not isinstance(func, MapFunction):
            return super().map(func, output_type)
        check_returns(func, "map")
        chosen = choose_output_type(output_type, func.map)
        return self._keyed_process("Map", KeyedMap(func), chosen, func)

    def flat_map(
        self,
        func: Callable[..., object] | FlatMapFunction,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """One record in, any number out; a FlatMapFunction may use keyed state."""
        if not isinstance(func, FlatMapFunction):
            return super().flat_map(func, output_type)
        check_returns(func, "flat_map")
        chosen = choose_output_type(output_type, func.flat_map, unwrap=True)
        return self._keyed_process("FlatMap", KeyedFlatMap(func), chosen, func)

    def filter(self, func: Callable[..., object] | FilterFunction) -> DataStream:
        """Keep some records; a FilterFunction may use keyed state."""
        if not isinstance(func, FilterFunction):
            return super().filter(func)
        check_returns(func, "filter")
        return self._keyed_process("Filter", KeyedFilter(func), self.get_type(), func)

    def reduce(
        self,
        func: Callable[..., object] | ReduceFunction,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Fold the records of each key; emits the value so far with every record.

        In batch mode only the final value of each key is emitted.

        Args:
            func: (so far, new) -> so far; all of the stream's type.
            output_type: the type of the result, by default that of the stream.
        """
        require(func, (ReduceFunction,), "reduce")
        method_of(func, "reduce")
        factory = KeyedReduceFactory(func, self._key_selector)
        chosen = output_type or self.get_type()
        return self._operator("Reduce", factory, chosen, {"function": func})

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """Sum a field per key; the other fields are those of the key's first record."""
        return self._aggregate("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """Least value of a field per key; the other fields are those of the first record."""
        return self._aggregate("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """Greatest value of a field per key; the other fields are those of the first record."""
        return self._aggregate("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """Per key the record with the least value of a field; of equals, the first."""
        return self._aggregate("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """Per key the record with the greatest value of a field; of equals, the first."""
        return self._aggregate("max_by", position_to_max_by)

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Gather the records of each key in windows."""
        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Gather every ``size`` records of a key in a window; only full windows fire.

        Args:
            size: records per window.
            slide: a window begins every so many records; 0: when the last one is full.
        """
        if slide == 0:
            return WindowedStream(self, CountTumblingWindowAssigner.of(size))
        return WindowedStream(self, CountSlidingWindowAssigner.of(size, slide))

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Join each record to those of another keyed stream that lie near it in time.

        Args:
            other_stream: the right side; this stream is the left one.

        Raises:
            ProgramError: it is not keyed, or its keys can never equal those of this stream.
        """
        from millstream.datastream.interval_join import IntervalJoin

        return IntervalJoin(self, other_stream)

    @property
    def key_selector(self) -> Callable[[object], object]:
        """Record -> key."""
        return self._key_selector

    def _aggregate(self, kind: str, field: int | str) -> DataStream:
        check_field(field, self.get_type())
        if kind == "sum":
            check_summable(field, self.get_type())
        factory = KeyedAggregateFactory(kind, field, self._key_selector)
        return self._operator(kind, factory, self.get_type(), {})

    def _keyed_process(
        self, name: str, function: KeyedProcessFunction, output_type: TypeInformation, own: object
    ) -> DataStream:
        """A keyed operator around ``function``; ``own`` is what the user gave."""
        return self._operator(
            name,
            KeyedProcessFactory(function, self._key_selector),
            output_type,
            {"function": own},
            needs_processing_time=may_use_processing_time_timers(function),
        )

    # -- what a keyed stream cannot do -----------------------------------------------------

    def _partitioned(self, partitioning: Partitioning) -> NoReturn:
        message = (
            f"the partitioning of a keyed stream cannot be overridden ({partitioning.value}); "
            "partition before key_by(), or after the operator that follows it"
        )
        raise ProgramError(message)

    def partition_custom(
        self,
        partitioner: Callable[[object, int], int] | Partitioner,
        key_selector: Callable[..., object] | KeySelector | str | int,
    ) -> NoReturn:
        """Not possible: a keyed stream is partitioned by its key."""
        del partitioner, key_selector
        message = "the partitioning of a keyed stream cannot be overridden (partition_custom)"
        raise ProgramError(message)
