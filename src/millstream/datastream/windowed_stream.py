"""WindowedStream and AllWindowedStream: records gathered in windows, by key or all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

from millstream.datastream.adapters import Wrapper
from millstream.datastream.named_operator import raise_missing
from millstream.datastream.processing_time import windows_need_processing_time
from millstream.datastream.type_choice import check_field, choose_output_type, method_of, require
from millstream.errors import ProgramError
from millstream.functions.functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from millstream.functions.triggers import Evictor, Trigger
from millstream.functions.window_assigners import (
    FixedEventTimeWindows,
    MergingWindowAssigner,
    WindowAssigner,
)
from millstream.runtime.columnar.aggregates import (
    Avg,
    BuiltInAggregate,
    Collect,
    Count,
    CountDistinct,
    Quantile,
    Quantiles,
    Sum,
    named_aggregates,
)
from millstream.runtime.operators import (
    AggregateSpec,
    ApplySpec,
    BuiltInSpec,
    CombinerFactory,
    ProcessSpec,
    ReduceSpec,
    WindowFactory,
)
from millstream.runtime.operators.windows.logic import LEADING_COLUMNS
from millstream.types.composite_types import CompositeTypeInfo
from millstream.types.time import milliseconds_of
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.contracts.operator import OperatorFactory
    from millstream.datastream.data_stream import DataStream
    from millstream.datastream.environment import StreamExecutionEnvironment
    from millstream.datastream.keyed_stream import KeyedStream
    from millstream.runtime.columnar.aggregates import Aggregates
    from millstream.runtime.operators.windows.logic import WindowComputation
    from millstream.types.output_tag import OutputTag
    from millstream.types.time import DurationLike
    from millstream.types.types import TypeInformation

    AnyWindowFunction: TypeAlias = (
        WindowFunction[Any, Any, Any, Any] | ProcessWindowFunction[Any, Any, Any, Any]
    )

    AnyAllWindowFunction: TypeAlias = (
        AllWindowFunction[Any, Any, Any] | ProcessAllWindowFunction[Any, Any, Any]
    )


def built_in_output_type(
    input_type: TypeInformation,
    key_type: TypeInformation,
    aggregates: Mapping[str, BuiltInAggregate],
) -> TypeInformation:
    """The ROW type of the results.

    Args:
        input_type: the type of the records in the windows.
        key_type: the type of their keys; untyped keys are pickled.
        aggregates: by the name of their field in the result.

    Raises:
        ProgramError: a field does not exist, or the records have no fields.
    """
    for each in aggregates.values():
        _check_filter(input_type, each)
    types = [_result_type(input_type, each) for each in aggregates.values()]
    leading = [key_type, Types.LONG(), Types.LONG()]
    return Types.ROW_NAMED([*LEADING_COLUMNS, *aggregates], [*leading, *types])


def _check_filter(input_type: TypeInformation, aggregate: BuiltInAggregate) -> None:
    if aggregate.where is not None and input_type.arrow_schema is None:
        message = (
            f"the filter of {aggregate} needs columns, but the stream is untyped; give the "
            "operator before the window an output_type"
        )
        raise ProgramError(message)


def _result_type(input_type: TypeInformation, aggregate: BuiltInAggregate) -> TypeInformation:
    if not aggregate.needs_column:
        return Types.LONG()
    field_type = _field_type(input_type, aggregate)
    result = _FIXED.get(type(aggregate), field_type)
    if isinstance(aggregate, Collect):
        result = Types.LIST(field_type)
    elif isinstance(aggregate, Sum):
        result = _sum_type(field_type)
    return result


#: Types of results that do not depend on the type of the field.
_FIXED: dict[type[BuiltInAggregate], TypeInformation] = {
    Avg: Types.DOUBLE(),
    Count: Types.LONG(),
    CountDistinct: Types.LONG(),
    Quantile: Types.DOUBLE(),
    Quantiles: Types.LIST(Types.DOUBLE()),
}


def _sum_type(field_type: TypeInformation) -> TypeInformation:
    if field_type in (Types.FLOAT(), Types.DOUBLE()):
        return Types.DOUBLE()
    if field_type in (Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.BOOLEAN()):
        return Types.LONG()
    return field_type


def _field_type(input_type: TypeInformation, aggregate: BuiltInAggregate) -> TypeInformation:
    field = aggregate.field
    if input_type.arrow_schema is None:
        message = (
            f"{aggregate} needs columns, but the stream is untyped; give the operator before "
            "the window an output_type"
        )
        raise ProgramError(message)
    if not isinstance(input_type, CompositeTypeInfo):
        if field not in (None, 0, "f0"):
            message = f"{aggregate}: the records are of type {input_type} and have no fields"
            raise ProgramError(message)
        return input_type
    if field is None:
        message = f"{aggregate} needs the name or position of a field of {input_type}"
        raise ProgramError(message)
    check_field(field, input_type)
    names, types = input_type.get_field_names(), input_type.get_field_types()
    return types[names.index(field) if isinstance(field, str) else field]


class WindowSettings:
    """A window assigner, and what programs set of its windows.

    Args:
        window_assigner: says which windows an element is in.

    Raises:
        ProgramError: it is no window assigner.
    """

    def __init__(self, window_assigner: WindowAssigner[Any, Any]) -> None:
        require_assigner(window_assigner)
        self._assigner = window_assigner
        self._allowed_lateness = 0
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any, Any] | None = None

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Set when windows fire, instead of by the assigner's default trigger.

        Raises:
            ProgramError: it is no Trigger, or windows may merge and it cannot.
        """
        given: object = trigger  # what it really is, a type checker notwithstanding
        if not isinstance(given, Trigger):
            message = f"trigger() needs a Trigger such as CountTrigger.of(10), not {given!r}"
            raise ProgramError(message)
        self._check_merging(trigger)
        self._trigger = trigger
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Remove elements before or after the window function sees them.

        All elements of the windows are kept then, and reduce and aggregate functions computed again
        at every firing.  In a join or co-group each element is a TaggedUnion.

        Raises:
            ProgramError: it is no Evictor.
        """
        given: object = evictor
        if not isinstance(given, Evictor):
            message = f"evictor() needs an Evictor such as CountEvictor.of(10), not {given!r}"
            raise ProgramError(message)
        self._evictor = evictor
        return self

    def allowed_lateness(self, time_ms: DurationLike) -> Self:
        """Keep windows that long after the watermark has passed them; late records fire again.

        Args:
            time_ms: milliseconds, or a Duration or Time.

        Raises:
            ProgramError: it is negative.
        """
        lateness = milliseconds_of(time_ms)
        if lateness < 0:
            message = f"the allowed lateness cannot be negative, it is {lateness} ms"
            raise ProgramError(message)
        self._allowed_lateness = lateness
        return self

    def _take(self, settings: WindowSettings) -> Self:
        """Take what is set elsewhere for the same assigner."""
        self._allowed_lateness = settings._allowed_lateness
        self._trigger, self._evictor = settings._trigger, settings._evictor
        return self

    def _check_merging(self, trigger: Trigger[Any, Any]) -> None:
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            message = (
                f"windows of {_describe(self._assigner)} may be merged, which {trigger!r} does not "
                "support (can_merge() is False); take another trigger, or give it can_merge() and "
                "on_merge()"
            )
            raise ProgramError(message)


class WindowedStream(WindowSettings):
    """A keyed stream with a window assigner.

    Args:
        keyed_stream: the stream.
        window_assigner: says which windows a record is in.
        non_parallel: whether all windows are in one subtask, as those of ``window_all``.
    """

    def __init__(
        self,
        keyed_stream: KeyedStream,
        window_assigner: WindowAssigner[Any, Any],
        *,
        non_parallel: bool = False,
    ) -> None:
        super().__init__(window_assigner)
        self._stream = keyed_stream
        #: As messages show it.
        self._source: DataStream = keyed_stream
        self._late_tag: OutputTag | None = None
        self._non_parallel = non_parallel

    def __repr__(self) -> str:
        """The assigner and the stream."""
        return f"<{type(self).__name__} {_describe(self._assigner)} of {self._source!r}>"

    def __getattr__(self, name: str) -> NoReturn:
        """Say which method was meant."""
        raise_missing(self, name)

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to."""
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """Return the type of the records that go into the windows."""
        return self._stream.get_type()

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send records that come too late to a side output instead of dropping them."""
        self._late_tag = output_tag
        return self

    def reduce(
        self,
        reduce_function: Callable[..., object] | ReduceFunction,
        window_function: AnyWindowFunction | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Fold the records of each window as they come.

        Args:
            reduce_function: (so far, new) -> so far.
            window_function: gets the result, with key and window.
            output_type: the type of the new records.
        """
        require(reduce_function, (ReduceFunction,), "reduce")
        code: dict[str, object] = {"function": reduce_function}
        chosen = output_type or self.get_input_type()
        if window_function is not None:
            chosen = _window_output(output_type, window_function, "reduce")
            code["window function"] = window_function
        return self._evaluated(ReduceSpec(reduce_function, window_function), chosen, code)

    def aggregate(
        self,
        aggregate_function: AggregateFunction | Aggregates,
        *more: object,
        window_function: AnyWindowFunction | None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Fold the records of each window into an accumulator as they come.

        Takes PyFlink's arguments, also by position: ``aggregate(function, window_function,
        accumulator_type, output_type)``; or built-in aggregates: ``aggregate(Count(),
        Sum("delay"))`` or, to name the fields of the result, ``aggregate({"n": Count()})``.
        Built-in ones run vectorised and, unless late data goes to a side output, before the
        exchange already; they give ROW(key, window_start, window_end, ...).

        Args:
            aggregate_function: the user's, or the first built-in aggregate, or a dict of them.
            more: the other built-in aggregates, or PyFlink's arguments in their order.
            window_function: gets the result, with key and window.
            accumulator_type: accepted; accumulators are pickled.
            output_type: the type of the new records.
        """
        if isinstance(aggregate_function, BuiltInAggregate):
            return self._built_in([aggregate_function, *more], window_function, output_type)
        if isinstance(aggregate_function, Mapping | Sequence):
            if more:
                return self._built_in([aggregate_function, *more], window_function, output_type)
            return self._built_in(aggregate_function, window_function, output_type)
        del accumulator_type
        require(aggregate_function, (AggregateFunction,), "aggregate", plain=False)
        if isinstance(self._assigner, MergingWindowAssigner) and (
            type(aggregate_function).merge is AggregateFunction.merge
        ):
            message = (
                f"{type(aggregate_function).__name__} has no merge(acc_a, acc_b), which windows of "
                f"{_describe(self._assigner)} need: they may be merged"
            )
            raise ProgramError(message)
        names = ("window_function", "accumulator_type", "output_type")
        given: dict[str, Any] = dict(zip(names, more, strict=False))
        window_function = window_function or given.get("window_function")
        output_type = output_type or given.get("output_type")
        code: dict[str, object] = {"function": aggregate_function}
        if window_function is None:
            chosen = choose_output_type(output_type, aggregate_function.get_result)
        else:
            chosen = _window_output(output_type, window_function, "aggregate")
            code["window function"] = window_function
        return self._evaluated(AggregateSpec(aggregate_function, window_function), chosen, code)

    def apply(
        self,
        window_function: WindowFunction[Any, Any, Any, Any] | Callable[..., object],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Evaluate each window over all its records.

        Args:
            window_function: (key, window, records) -> iterable of records.
            output_type: the type of the new records.
        """
        require(window_function, (WindowFunction,), "apply")
        method = method_of(window_function, "apply")
        chosen = choose_output_type(output_type, method, unwrap=True)
        return self._evaluated(ApplySpec(window_function), chosen, {"function": window_function})

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Evaluate each window over all its records, with time and state.

        Args:
            process_window_function: its ``process`` yields records.
            output_type: the type of the new records.
        """
        function = process_window_function
        require(function, (ProcessWindowFunction,), "process", plain=False)
        chosen = choose_output_type(output_type, function.process, unwrap=True)
        return self._evaluated(ProcessSpec(function), chosen, {"function": function})

    def _built_in(
        self, aggregates: Any, window_function: object, output_type: TypeInformation | None
    ) -> DataStream:
        if window_function is not None:
            message = "built-in aggregates take no window_function; map() their result instead"
            raise ProgramError(message)
        named = named_aggregates(aggregates, LEADING_COLUMNS)
        chosen = output_type or built_in_output_type(
            self.get_input_type(), self._stream.get_key_type(), named
        )
        spec = BuiltInSpec(named, self.get_input_type())
        combiner = None
        assigner = self._assigner
        # Late records that fall between windows must be counted, which partials cannot tell; nor
        # can they tell which record of a session came first.
        panes = isinstance(assigner, FixedEventTimeWindows) and assigner.slide <= assigner.size
        general = self._factory(spec).is_general
        if panes and not general and self._late_tag is None:
            combiner = CombinerFactory(assigner, named, self._stream.key_selector)
        return self._evaluated(spec, chosen, {}, combiner)

    def _factory(self, spec: WindowComputation) -> WindowFactory:
        """Return what makes the operators of these windows."""
        trigger = self._trigger
        if trigger is None:
            # As in Flink, a default trigger that cannot merge fails when windows are merged.
            trigger = self._assigner.get_default_trigger(self._stream.get_execution_environment())
        return WindowFactory(
            self._assigner,
            spec,
            self._stream.key_selector,
            allowed_lateness=self._allowed_lateness,
            late_tag=None if self._late_tag is None else self._late_tag.tag_id,
            trigger=trigger,
            evictor=self._evictor,
        )

    def _evaluated(
        self,
        spec: WindowComputation,
        output_type: TypeInformation,
        user_code: dict[str, object],
        combiner: OperatorFactory | None = None,
    ) -> DataStream:
        factory = self._factory(spec)
        trigger = factory.trigger
        side_types = {}
        if self._late_tag is not None:
            late_type = self._late_tag.type_info or self.get_input_type()
            side_types[self._late_tag.tag_id] = late_type
        code = {**user_code, "window assigner": self._assigner, "trigger": trigger}
        if self._evictor is not None:
            code["evictor"] = self._evictor
        stream = self._stream._operator(  # noqa: SLF001 - streams of one package build each other
            f"Window({_describe(self._assigner)})",
            factory,
            output_type,
            code,
            kind_name="Window",
            combiner=combiner,
            needs_processing_time=windows_need_processing_time(self._assigner, trigger),
            side_types=side_types,
        )
        return stream.force_non_parallel() if self._non_parallel else stream


def require_assigner(assigner: object) -> None:
    """Raise ProgramError unless it is a window assigner."""
    if not isinstance(assigner, WindowAssigner):
        message = (
            "window() needs a window assigner such as TumblingEventTimeWindows.of(...), "
            f"not {assigner!r}"
        )
        raise ProgramError(message)


def _window_output(given: TypeInformation | None, function: object, method: str) -> TypeInformation:
    require(function, (WindowFunction, ProcessWindowFunction), method, plain=False)
    name = "process" if isinstance(function, ProcessWindowFunction) else "apply"
    return choose_output_type(given, method_of(function, name), unwrap=True)


def _describe(assigner: WindowAssigner[Any, Any]) -> str:
    """``TumblingEventTimeWindows(3600000)`` or ``SlidingEventTimeWindows(3600000, 60000)``."""
    name = type(assigner).__name__
    gap = getattr(assigner, "gap", None)
    if isinstance(gap, int):
        return f"{name}({gap})"
    size, slide = getattr(assigner, "size", None), getattr(assigner, "slide", None)
    numbers = [number for number in (size, slide if slide != size else None) if number is not None]
    return f"{name}({', '.join(map(str, numbers))})"


class AllWindowedStream(WindowedStream):
    """A stream with a window assigner, without keys: all records have the key 0."""

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        """Made by ``DataStream.window_all``."""
        require_assigner(window_assigner)
        keyed = data_stream.key_by(_one_key, key_type=Types.LONG())
        super().__init__(keyed, window_assigner, non_parallel=True)
        self._source = data_stream

    def reduce(
        self,
        reduce_function: Callable[..., object] | ReduceFunction,
        window_function: AnyAllWindowFunction | None = None,  # type: ignore[override] # has no key
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Fold the records of each window as they come; as ``WindowedStream.reduce``."""
        function, chosen = _keyed(window_function, output_type, "reduce")
        return super().reduce(reduce_function, function, chosen)

    def aggregate(
        self,
        aggregate_function: AggregateFunction | Aggregates,
        *more: object,
        window_function: AnyAllWindowFunction | None = None,  # type: ignore[override] # has no key
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Fold the records of each window into an accumulator; as ``WindowedStream.aggregate``.

        The rows of built-in aggregates have the key 0.
        """
        if isinstance(aggregate_function, BuiltInAggregate | Mapping | Sequence):
            return super().aggregate(aggregate_function, *more, output_type=output_type)
        names = ("window_function", "accumulator_type", "output_type")
        given: dict[str, Any] = dict(zip(names, more, strict=False))
        function, chosen = _keyed(
            window_function or given.get("window_function"),
            output_type or given.get("output_type"),
            "aggregate",
        )
        return super().aggregate(
            aggregate_function,
            window_function=function,
            accumulator_type=accumulator_type,
            output_type=chosen,
        )

    def apply(
        self,
        window_function: AllWindowFunction[Any, Any, Any] | Callable[..., object],  # type: ignore[override]
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
        return super().apply(_Apply(window_function), chosen)

    def process(
        self,
        process_window_function: ProcessAllWindowFunction[Any, Any, Any],  # type: ignore[override]
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Evaluate each window over all its records, with time and state.

        Args:
            process_window_function: its ``process`` yields records.
            output_type: the type of the new records.
        """
        function = process_window_function
        require(function, (ProcessAllWindowFunction,), "process", plain=False)
        chosen = choose_output_type(output_type, function.process, unwrap=True)
        return super().process(_process(function), chosen)


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
