"""Window functions: adding elements, evaluating windows, and the contexts for user code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.errors import ProgramError
from millstream.functions.functions import KeyedStateStore, ProcessWindowFunction, WindowFunction
from millstream.functions.triggers import Evictor, Trigger
from millstream.functions.window import TimeWindow
from millstream.runtime.user_code import (
    NO_RECORD,
    USUAL_RESULTS,
    StateAccess,
    bound_method,
    check_records,
    user_error,
)
from millstream.state.namespaced_state import ABSENT, NamespacedStates
from millstream.types.output_tag import OutputTag
from millstream.types.row import row_class
from millstream.types.time import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream.contracts.operator import OperatorContext
    from millstream.functions.descriptors import StateDescriptor
    from millstream.functions.handles import State
    from millstream.functions.metric_group import MetricGroup
    from millstream.functions.window import Window
    from millstream.runtime.columnar.aggregates import Aggregates
    from millstream.runtime.operators.base import Collector
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState
    from millstream.types.types import TypeInformation


#: Output columns that every built-in window result begins with.
LEADING_COLUMNS: Final = ("key", "window_start", "window_end")


@dataclass
class ReduceSpec:
    """A ReduceFunction or callable, and what is made of its result."""

    function: Any
    window_function: Any = None


@dataclass
class AggregateSpec:
    """An AggregateFunction, and what is made of its result."""

    function: Any
    window_function: Any = None


@dataclass
class ApplySpec:
    """A WindowFunction or callable of (key, window, elements)."""

    function: Any


@dataclass
class ProcessSpec:
    """A ProcessWindowFunction or callable of (key, context, elements)."""

    function: Any


@dataclass
class BuiltInSpec:
    """Built-in aggregates: a dict of name to aggregate, or a list of them."""

    aggregates: Aggregates
    #: Of the records: elements that an evictor left are made columns again, for filters.
    input_type: TypeInformation | None = None


WindowComputation = ReduceSpec | AggregateSpec | ApplySpec | ProcessSpec | BuiltInSpec


@dataclass
class DeclaredWindows:
    """The windows of a program: assigner, trigger, evictor, lateness."""

    assigner: Any
    spec: WindowComputation
    key_selector: Any
    #: Milliseconds.
    allowed_lateness: int = 0
    late_tag: OutputTag | str | None = None
    #: None: the assigner's default.
    trigger: Any = None
    evictor: Any = None

    @property
    def chosen_trigger(self) -> Any:
        """The trigger that runs."""
        return self.trigger or self.assigner.get_default_trigger(None)

    @property
    def late_tag_id(self) -> str | None:
        """The name of the side output of late records."""
        tag = getattr(self.late_tag, "tag_id", self.late_tag)
        return None if tag is None else str(tag)


class WindowHost(Protocol):
    """The part of an operator that the context of a window function uses."""

    context: OperatorContext
    keyed_state: KeyedState
    #: Milliseconds.
    processing_time: int

    @property
    def watermark(self) -> int:
        """The operator's event time, in milliseconds."""

    def window_state(self, window: Any) -> KeyedStateStore:
        """Return state of the current key and ``window``."""


class WindowContext(ProcessWindowFunction.Context["Window"]):
    """One object reused for all evaluations of an operator."""

    def __init__(self, operator: WindowHost) -> None:
        """Take the time and state of ``operator``."""
        self._operator = operator
        self.current_window: Window | None = None

    def window(self) -> Window:
        assert self.current_window is not None  # noqa: S101 - set before user code runs
        return self.current_window

    def current_processing_time(self) -> int:
        return self._operator.processing_time

    def current_watermark(self) -> int:
        return self._operator.watermark

    def window_state(self) -> KeyedStateStore:
        return self._operator.window_state(self.window())

    def global_state(self) -> KeyedStateStore:
        return StateAccess(self._operator.keyed_state)


class _Evaluation:
    """A window function: apply or process."""

    def __init__(self, function: Any, operator: WindowHost, *, process: bool) -> None:
        self._operator = operator
        self._context = WindowContext(operator)
        self._process = process
        self._call = bound_method(function, "process" if process else "apply")
        #: Whether ``clear`` is the user's own.
        self.clear: Callable[[Any], None] | None = None
        if (
            isinstance(function, ProcessWindowFunction)
            and type(function).clear is not ProcessWindowFunction.clear
        ):
            self.clear = function.clear

    def evaluate_all(
        self,
        content: Iterable[tuple[Any, Any]],
        window: Window,
        finish: Callable[[Any], Any] | None,
        collector: Collector,
    ) -> None:
        """Evaluate the window for each key; ``finish`` makes the one element of an accumulator."""
        call, context, is_process = self._call, self._context, self._process
        set_key = self._operator.keyed_state.set_current_key
        timestamp = window.max_timestamp()
        append = collector.values.append
        context.current_window = window
        key: object = NO_RECORD
        try:
            for key, accumulated in content:
                elements = accumulated if finish is None else [finish(accumulated)]
                if is_process:
                    set_key(key)
                    result = call(key, context, elements)
                else:
                    result = call(key, window, elements)
                if result is None:
                    continue
                if result.__class__ not in USUAL_RESULTS:
                    check_records(result, self._operator.context)
                # A generator reads the context while it runs: it ends before the next key.
                for item in result:  # as Collector.collect, in place: this is a hot loop
                    if item.__class__ is tuple and item and item[0].__class__ is OutputTag:
                        collector.side(item, timestamp)
                    else:
                        append(item)
        except Exception as error:
            raise user_error(
                self._operator.context, error, doing=f"evaluating {window}", key=key
            ) from error
        collector.stamp(timestamp)

    def evaluate(self, key: Any, window: Window, elements: Iterable[Any]) -> Any:
        """Evaluate the window for the current key; the caller uses up what comes at once."""
        if not self._process:
            return self._call(key, window, elements)
        self._context.current_window = window
        return self._call(key, self._context, elements)

    def run_clear(self, key: Any, window: Window) -> None:
        if self.clear is not None:
            self._operator.keyed_state.set_current_key(key)
            self._context.current_window = window
            self.clear(self._context)


class WindowLogic(ABC):
    """Adds elements and evaluates windows."""

    #: Whether the state is the list of elements.
    lists = False

    def __init__(
        self, operator: WindowHost, functions: list[object], evaluation: _Evaluation | None
    ) -> None:
        self.functions = functions
        self._operator = operator
        self._evaluation = evaluation

    @property
    def plain(self) -> bool:
        """Return whether there is one result per key and no window function."""
        return self._evaluation is None

    @property
    def clears(self) -> bool:
        """Return whether ``clear`` has to be called per key."""
        return self._evaluation is not None and self._evaluation.clear is not None

    @abstractmethod
    def add_all(
        self, accumulators: dict[CacheKey, Any], keys: list[CacheKey], values: Iterator[Any]
    ) -> None:
        """Add each value to the accumulator of its key."""

    def fold(self, so_far: Any, value: Any) -> Any:
        """Return the accumulator ``so_far`` (or ABSENT) with ``value`` added."""
        message = f"{type(self).__name__} has no accumulator for {value!r} to go into {so_far!r}"
        raise NotImplementedError(message)

    def merge(self, one: Any, other: Any) -> Any:
        """Return two accumulators as one."""
        message = f"{type(self).__name__} cannot merge {one!r} and {other!r}"
        raise NotImplementedError(message)

    def finish(self, accumulated: Any) -> Any:
        """Return the result of an accumulator."""
        return accumulated

    def of_nothing(self) -> Any:
        """Return the accumulator of no elements, ABSENT if there is no such thing."""
        return ABSENT

    def evaluate(self, key: Any, window: Window, accumulated: Any) -> Any:
        """Call the window function for the current key; returns what it returns."""
        assert self._evaluation is not None  # noqa: S101 - the caller reads plain
        elements = accumulated if self.lists else [self.finish(accumulated)]
        return self._evaluation.evaluate(key, window, elements)

    def evaluate_all(
        self, content: Iterable[tuple[Any, Any]], window: Window, collector: Collector
    ) -> None:
        """Collect the results of a window for each key and accumulator (or list).

        Raises:
            UserFunctionError: the user's code raised; names key and window.
        """
        if self._evaluation is not None:
            finish = None if self.lists else self.finish
            self._evaluation.evaluate_all(content, window, finish, collector)
            return
        finish, append = self.finish, collector.values.append
        key: object = NO_RECORD
        try:
            for key, accumulated in content:  # noqa: B007 - the error names it
                append(finish(accumulated))
        except Exception as error:
            raise user_error(
                self._operator.context, error, doing=f"evaluating {window}", key=key
            ) from error
        collector.stamp(window.max_timestamp())

    def clear(self, key: Any, window: Window) -> None:
        """Call the window function's ``clear``."""
        assert self._evaluation is not None  # noqa: S101 - the caller reads clears
        self._evaluation.run_clear(key, window)


class _Reducing(WindowLogic):
    def __init__(self, spec: ReduceSpec, operator: WindowHost) -> None:
        super().__init__(operator, *_with_window_function(spec, operator))
        self._reduce = bound_method(spec.function, "reduce")

    def add_all(
        self, accumulators: dict[CacheKey, Any], keys: list[CacheKey], values: Iterator[Any]
    ) -> None:
        get, reduce = accumulators.get, self._reduce
        for key, value in zip(keys, values, strict=False):
            so_far = get(key, ABSENT)
            accumulators[key] = value if so_far is ABSENT else reduce(so_far, value)

    def fold(self, so_far: Any, value: Any) -> Any:
        return value if so_far is ABSENT else self._reduce(so_far, value)

    def merge(self, one: Any, other: Any) -> Any:
        return self._reduce(one, other)


class _Aggregating(WindowLogic):
    def __init__(self, spec: AggregateSpec, operator: WindowHost) -> None:
        super().__init__(operator, *_with_window_function(spec, operator))
        self._create = spec.function.create_accumulator
        self._add = spec.function.add
        self._get_result = spec.function.get_result
        self._merge = spec.function.merge

    def add_all(
        self, accumulators: dict[CacheKey, Any], keys: list[CacheKey], values: Iterator[Any]
    ) -> None:
        create, add = self._create, self._add
        for key in set(keys).difference(accumulators):
            accumulators[key] = create()
        for key, value in zip(keys, values, strict=False):
            accumulators[key] = add(value, accumulators[key])

    def fold(self, so_far: Any, value: Any) -> Any:
        return self._add(value, self._create() if so_far is ABSENT else so_far)

    def merge(self, one: Any, other: Any) -> Any:
        return self._merge(one, other)

    def of_nothing(self) -> Any:
        return self._create()

    def finish(self, accumulated: Any) -> Any:
        return self._get_result(accumulated)


class _Collecting(WindowLogic):
    lists = True

    def add_all(
        self, accumulators: dict[CacheKey, Any], keys: list[CacheKey], values: Iterator[Any]
    ) -> None:
        get = accumulators.get
        for key, value in zip(keys, values, strict=False):
            elements = get(key)
            if elements is None:
                accumulators[key] = [value]
            else:
                elements.append(value)


def make_logic(spec: WindowComputation, operator: WindowHost) -> WindowLogic:
    """Return the logic for a specification.

    Raises:
        ProgramError: there is no such kind of window function.
    """
    if isinstance(spec, ReduceSpec):
        return _Reducing(spec, operator)
    if isinstance(spec, AggregateSpec):
        return _Aggregating(spec, operator)
    if isinstance(spec, (ApplySpec, ProcessSpec)):
        process = isinstance(spec, ProcessSpec)
        evaluation = _Evaluation(spec.function, operator, process=process)
        return _Collecting(operator, [spec.function], evaluation)
    message = f"unknown kind of window function: {type(spec).__name__}"
    raise ProgramError(message)


def _with_window_function(
    spec: ReduceSpec | AggregateSpec, operator: WindowHost
) -> tuple[list[object], _Evaluation | None]:
    function = spec.window_function
    if function is None:
        return [spec.function], None
    process = not isinstance(function, WindowFunction) and hasattr(function, "process")
    return [spec.function, function], _Evaluation(function, operator, process=process)


class AsRow(WindowFunction[Any, Any, Any, Any]):
    """Results of built-in aggregates as ROW(key, window_start, window_end, ...)."""

    def __init__(self, names: list[str]) -> None:
        self._row = row_class((*LEADING_COLUMNS, *names))

    def apply(self, key: Any, window: Any, inputs: Iterable[list[Any]]) -> list[Any]:
        """Return one row; windows without start and end have nulls there."""
        bounds = (window.start, window.end) if isinstance(window, TimeWindow) else (None, None)
        return [self._row((key, *bounds, *results)) for results in inputs]


#: What the namespace of a window's timers begins with.
WINDOW_TIMERS: Final = b"w"


# -- the context of triggers and evictors ---


class WindowTriggerContext(Trigger.OnMergeContext, Evictor.EvictorContext):
    """Implements PyFlink's TriggerContext, OnMergeContext and Flink's EvictorContext."""

    def __init__(self, keyed: KeyedState, metrics: MetricGroup) -> None:
        self._keyed = keyed
        self._timers = keyed.timers
        self._metrics = metrics
        self.states = NamespacedStates(keyed, "windows.trigger")
        self.watermark = MIN_TIMESTAMP
        self.processing_time = 0
        #: Set while the end of the keys (BATCH mode) fires all timers: new ones are ignored.
        self.is_ending = False
        #: The namespaces of the windows that became the current one, in ``on_merge``.
        self.merged: Sequence[bytes] = ()
        #: (key, window) whose timers the operator need not register again.
        self.registered: set[tuple[CacheKey, bytes]] = set()
        self._namespace = b""

    def set_window(self, key: CacheKey, namespace: bytes) -> None:
        """Let the context speak of a window of the current key."""
        self.states.slot = (key, namespace)
        self._namespace = WINDOW_TIMERS + namespace

    def get_current_processing_time(self) -> int:
        return self.processing_time

    def get_metric_group(self) -> MetricGroup:
        return self._metrics

    def get_current_watermark(self) -> int:
        return self.watermark

    def register_processing_time_timer(self, time: int) -> None:
        if not self.is_ending:
            self._timers.register_processing_time(
                self._keyed.current_key, self._namespace, _within_long(time)
            )

    def register_event_time_timer(self, time: int) -> None:
        if not self.is_ending:
            self._timers.register_event_time(
                self._keyed.current_key, self._namespace, _within_long(time)
            )

    def delete_processing_time_timer(self, time: int) -> None:
        self.registered.discard(self.states.slot)
        self._timers.delete_processing_time(
            self._keyed.current_key, self._namespace, _within_long(time)
        )

    def delete_event_time_timer(self, time: int) -> None:
        self.registered.discard(self.states.slot)
        self._timers.delete_event_time(self._keyed.current_key, self._namespace, _within_long(time))

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> State:
        return self.states.handle_of(state_descriptor)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Merge the state of the merged windows into the current one."""
        self.states.merge(state_descriptor, self.merged)


def _within_long(time: int) -> int:
    return min(max(time, MIN_TIMESTAMP), MAX_TIMESTAMP)
