"""AllWindowedStream: the records of a stream without keys, gathered in windows.

What it is: what ``DataStream.window_all`` returns: the windows of a stream whose records all have
one key, so that a single subtask has them all.

What it is not: parallel.  ``key_by().window()`` is.

Read next: ``datastream/windowed_stream.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

from millstream.datastream.adapters import Wrapper
from millstream.datastream.stream_words import raise_missing
from millstream.datastream.type_choice import choose_output_type, method_of, require
from millstream.datastream.windowed_stream import WindowedStream, require_assigner
from millstream.functions.functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from millstream.runtime.columnar.aggregates import BuiltInAggregate
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.datastream.data_stream import DataStream
    from millstream.datastream.environment import StreamExecutionEnvironment
    from millstream.functions.evictors import Evictor
    from millstream.functions.triggers import Trigger
    from millstream.functions.windows import WindowAssigner
    from millstream.runtime.columnar.aggregates import Aggregates
    from millstream.types.output_tag import OutputTag
    from millstream.types.time import DurationLike
    from millstream.types.types import TypeInformation

    AnyAllWindowFunction: TypeAlias = (
        AllWindowFunction[Any, Any, Any] | ProcessAllWindowFunction[Any, Any, Any]
    )

__all__ = ["AllWindowedStream"]


class AllWindowedStream:
    """A stream with a window assigner, without keys."""

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        """Made by ``DataStream.window_all``."""
        require_assigner(window_assigner)
        self._input = data_stream
        keyed = data_stream.key_by(_one_key, key_type=Types.LONG())
        self._windowed = WindowedStream(keyed, window_assigner, non_parallel=True)

    def __repr__(self) -> str:
        """The assigner and the stream."""
        return f"<AllWindowedStream {self._windowed.assigner_text} of {self._input!r}>"

    def __getattr__(self, name: str) -> NoReturn:
        """Say which method was meant."""
        raise_missing(self, name)

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream belongs to."""
        return self._input.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """The type of the records that go into the windows."""
        return self._windowed.get_input_type()

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Say when windows fire; as ``WindowedStream.trigger``."""
        self._windowed.trigger(trigger)
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Remove elements when windows fire; as ``WindowedStream.evictor``."""
        self._windowed.evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: DurationLike) -> Self:
        """Keep windows longer; as ``WindowedStream.allowed_lateness``."""
        self._windowed.allowed_lateness(time_ms)
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send records that come too late to a side output instead of dropping them."""
        self._windowed.side_output_late_data(output_tag)
        return self

    def reduce(
        self,
        reduce_function: Callable[..., object] | ReduceFunction,
        window_function: AnyAllWindowFunction | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Fold the records of each window as they come; as ``WindowedStream.reduce``."""
        function, chosen = _keyed(window_function, output_type, "reduce")
        return self._windowed.reduce(reduce_function, function, chosen)

    def aggregate(
        self,
        aggregate_function: AggregateFunction | Aggregates,
        *more: object,
        window_function: AnyAllWindowFunction | None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Fold the records of each window into an accumulator; as ``WindowedStream.aggregate``.

        The rows of built-in aggregates have the key 0.
        """
        if isinstance(aggregate_function, BuiltInAggregate | Mapping | Sequence):
            return self._windowed.aggregate(aggregate_function, *more, output_type=output_type)
        names = ("window_function", "accumulator_type", "output_type")
        given: dict[str, Any] = dict(zip(names, more, strict=False))
        function, chosen = _keyed(
            window_function or given.get("window_function"),
            output_type or given.get("output_type"),
            "aggregate",
        )
        return self._windowed.aggregate(
            aggregate_function,
            window_function=function,
            accumulator_type=accumulator_type,
            output_type=chosen,
        )

    def apply(
        self,
        window_function: AllWindowFunction[Any, Any, Any] | Callable[..., object],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Evaluate each window over all its records.

        Args:
            window_function: (window, records) -> iterable of records.
            output_type: the type of the new records.
        """
        require(window_function, (AllWindowFunction,), "apply")
        method = method_of(window_function, "apply")
        chosen = choose_output_type(output_type, method, unwrap=True)
        return self._windowed.apply(_Apply(window_function), chosen)

    def process(
        self,
        process_window_function: ProcessAllWindowFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Evaluate each window over all its records, with time and state at hand.

        Args:
            process_window_function: its ``process`` yields records.
            output_type: the type of the new records.
        """
        function = process_window_function
        require(function, (ProcessAllWindowFunction,), "process", plain=False)
        chosen = choose_output_type(output_type, function.process, unwrap=True)
        return self._windowed.process(_process(function), chosen)


class _Apply(Wrapper, WindowFunction[Any, Any, Any, Any]):
    """Leaves out the key."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._apply = method_of(function, "apply")

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Any:
        del key
        return self._apply(window, inputs)


class _Process(Wrapper, ProcessWindowFunction[Any, Any, Any, Any]):
    """Leaves out the key."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        del key
        return self.wrapped.process(context, elements)


class _ProcessAndClear(_Process):
    """Has a ``clear`` only if the user's function has one: calling it costs a look at each key."""

    def clear(self, context: Any) -> None:
        self.wrapped.clear(context)


def _process(function: ProcessAllWindowFunction[Any, Any, Any]) -> _Process:
    clears = type(function).clear is not ProcessAllWindowFunction.clear
    return _ProcessAndClear(function) if clears else _Process(function)


def _keyed(
    function: object, output_type: TypeInformation | None, method: str
) -> tuple[Any, TypeInformation | None]:
    """The window function with a key, and its type."""
    if function is None:
        return None, output_type
    require(function, (AllWindowFunction, ProcessAllWindowFunction), method, plain=False)
    if isinstance(function, ProcessAllWindowFunction):
        chosen = choose_output_type(output_type, function.process, unwrap=True)
        return _process(function), chosen
    return _Apply(function), choose_output_type(
        output_type, method_of(function, "apply"), unwrap=True
    )


def _one_key(record: object) -> int:
    del record
    return 0
