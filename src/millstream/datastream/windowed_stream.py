"""WindowedStream: the records of each key, gathered in windows.

What it is: what ``KeyedStream.window`` returns; one of ``reduce``, ``aggregate``, ``apply`` and
``process`` makes a stream of it again.

What it is not: the windows themselves (``functions/windows.py``) or their state.  Which operator
runs them is decided in ``runtime/operators/windows/aligned.py`` (``WindowFactory``).

Read next: ``datastream/all_windowed_stream.py``, ``runtime/operators/windows/aligned.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

from millstream.datastream.built_in_types import built_in_output_type
from millstream.datastream.processing_time import windows_need_processing_time
from millstream.datastream.stream_words import raise_missing
from millstream.datastream.type_choice import choose_output_type, method_of, require
from millstream.errors import ProgramError
from millstream.functions.evictors import Evictor
from millstream.functions.functions import (
    AggregateFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from millstream.functions.triggers import Trigger
from millstream.functions.windows import (
    FixedEventTimeWindows,
    MergingWindowAssigner,
    WindowAssigner,
)
from millstream.runtime.columnar.aggregates import BuiltInAggregate, named_aggregates
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
from millstream.types.time import milliseconds_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.contracts.operator import OperatorFactory
    from millstream.datastream.data_stream import DataStream
    from millstream.datastream.environment import StreamExecutionEnvironment
    from millstream.datastream.keyed_stream import KeyedStream
    from millstream.runtime.columnar.aggregates import Aggregates
    from millstream.runtime.operators.windows.logic import WindowSpec
    from millstream.types.output_tag import OutputTag
    from millstream.types.time import DurationLike
    from millstream.types.types import TypeInformation

    AnyWindowFunction: TypeAlias = (
        WindowFunction[Any, Any, Any, Any] | ProcessWindowFunction[Any, Any, Any, Any]
    )

__all__ = ["WindowedStream"]


class WindowedStream:
    """A keyed stream with a window assigner."""

    def __init__(
        self,
        keyed_stream: KeyedStream,
        window_assigner: WindowAssigner[Any, Any],
        *,
        non_parallel: bool = False,
    ) -> None:
        """Made by ``KeyedStream.window``; ``non_parallel`` by ``DataStream.window_all``."""
        require_assigner(window_assigner)
        self._stream = keyed_stream
        self._assigner = window_assigner
        self._allowed_lateness = 0
        self._late_tag: OutputTag | None = None
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any, Any] | None = None
        self._non_parallel = non_parallel

    def __repr__(self) -> str:
        """The assigner and the stream."""
        return f"<WindowedStream {self.assigner_text} of {self._stream!r}>"

    def __getattr__(self, name: str) -> NoReturn:
        """Say which method was meant."""
        raise_missing(self, name)

    @property
    def assigner_text(self) -> str:
        """The assigner, as the name of the operator shows it."""
        return _describe(self._assigner)

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream belongs to."""
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """The type of the records that go into the windows."""
        return self._stream.get_type()

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Say when windows fire, instead of by the assigner's default trigger.

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

        All elements of the windows are kept then, and reduce and aggregate functions computed anew
        at every firing.

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
            window_function: gets the result, with key and window at hand.
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
            window_function: gets the result, with key and window at hand.
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
        """Evaluate each window over all its records, with time and state at hand.

        Args:
            process_window_function: its ``process`` yields records.
            output_type: the type of the new records.
        """
        function = process_window_function
        require(function, (ProcessWindowFunction,), "process", plain=False)
        chosen = choose_output_type(output_type, function.process, unwrap=True)
        return self._evaluated(ProcessSpec(function), chosen, {"function": function})

    def _built_in(
        self,
        aggregates: Any,
        window_function: object,
        output_type: TypeInformation | None,
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

    def _factory(self, spec: WindowSpec) -> WindowFactory:
        """What makes the operators of these windows."""
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
        spec: WindowSpec,
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

    def _check_merging(self, trigger: Trigger[Any, Any]) -> None:
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            message = (
                f"windows of {_describe(self._assigner)} may be merged, which {trigger!r} does not "
                "support (can_merge() is False); take another trigger, or give it can_merge() and "
                "on_merge()"
            )
            raise ProgramError(message)


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
