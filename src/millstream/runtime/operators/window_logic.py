"""What a window does with its elements: one small class per kind of function.

What it is: adding elements to accumulators in a tight loop, and evaluating a window.

What it is not: time or storage (``window.py``).

Read next: ``runtime/operators/window_state.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from millstream.common.functions import KeyedStateStore, ProcessWindowFunction, WindowFunction
from millstream.common.output_tag import OutputTag
from millstream.errors import ProgramError
from millstream.runtime.function_context import StateAccess
from millstream.runtime.operators.window_accumulators import MISSING
from millstream.runtime.operators.window_specs import (
    AggregateSpec,
    ApplySpec,
    ProcessSpec,
    ReduceSpec,
)
from millstream.runtime.operators.window_state import WindowStateStore
from millstream.runtime.user_code import NO_RECORD, bound_method, user_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.runtime.operators.base import Collector
    from millstream.runtime.operators.window import WindowOperator
    from millstream.runtime.operators.window_specs import WindowSpec
    from millstream.runtime.windows import TimeWindow
    from millstream.state.key_codec import CacheKey

__all__ = ["WindowContext", "WindowLogic", "make_logic"]


class WindowContext(ProcessWindowFunction.Context["TimeWindow"]):
    """One object reused for all evaluations of an operator."""

    def __init__(self, operator: WindowOperator) -> None:
        """Take the time and state of ``operator``."""
        self._operator = operator
        self.current_window: TimeWindow | None = None

    def window(self) -> TimeWindow:
        """Return the window that is evaluated."""
        assert self.current_window is not None  # noqa: S101 - set before user code runs
        return self.current_window

    def current_processing_time(self) -> int:
        """Return the processing time in milliseconds."""
        return self._operator.processing_time

    def current_watermark(self) -> int:
        """Return the event time that the operator has reached."""
        return self._operator.watermark

    def window_state(self) -> KeyedStateStore:
        """Return state of this key and window."""
        return WindowStateStore(self._operator.keyed_state, self.window())

    def global_state(self) -> KeyedStateStore:
        """Return state of this key over all windows."""
        return StateAccess(self._operator.keyed_state)


class _Evaluation:
    """A window function: apply or process."""

    def __init__(self, function: Any, operator: WindowOperator, *, process: bool) -> None:  # noqa: ANN401
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
        window: TimeWindow,
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
                # A generator looks at the context while it runs: it ends before the next key.
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

    def run_clear(self, key: Any, window: TimeWindow) -> None:  # noqa: ANN401 - the user's key
        if self.clear is not None:
            self._operator.keyed_state.set_current_key(key)
            self._context.current_window = window
            self.clear(self._context)


class WindowLogic(ABC):
    """Adds elements and evaluates windows."""

    #: Whether the state is the list of elements.
    lists = False

    def __init__(
        self, operator: WindowOperator, functions: list[object], evaluation: _Evaluation | None
    ) -> None:
        """Take what is to be opened, and the window function if there is one."""
        self.functions = functions
        self._operator = operator
        self._evaluation = evaluation

    @property
    def clears(self) -> bool:
        """Whether ``clear`` has to be called per key."""
        return self._evaluation is not None and self._evaluation.clear is not None

    @abstractmethod
    def add_all(
        self, accumulators: dict[CacheKey, Any], keys: list[CacheKey], values: Iterator[Any]
    ) -> None:
        """Add each value to the accumulator of its key."""

    def finish(self, accumulated: Any) -> Any:  # noqa: ANN401 - the user's accumulator
        """Return the result of an accumulator."""
        return accumulated

    def evaluate_all(
        self, content: Iterable[tuple[Any, Any]], window: TimeWindow, collector: Collector
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

    def clear(self, key: Any, window: TimeWindow) -> None:  # noqa: ANN401 - the user's key
        """Call the window function's ``clear``."""
        assert self._evaluation is not None  # noqa: S101 - the caller looks at clears
        self._evaluation.run_clear(key, window)


class _Reducing(WindowLogic):
    def __init__(self, spec: ReduceSpec, operator: WindowOperator) -> None:
        super().__init__(operator, *_with_window_function(spec, operator))
        self._reduce = bound_method(spec.function, "reduce")

    def add_all(
        self, accumulators: dict[CacheKey, Any], keys: list[CacheKey], values: Iterator[Any]
    ) -> None:
        get, reduce = accumulators.get, self._reduce
        for key, value in zip(keys, values, strict=False):
            so_far = get(key, MISSING)
            accumulators[key] = value if so_far is MISSING else reduce(so_far, value)


class _Aggregating(WindowLogic):
    def __init__(self, spec: AggregateSpec, operator: WindowOperator) -> None:
        super().__init__(operator, *_with_window_function(spec, operator))
        self._create = spec.function.create_accumulator
        self._add = spec.function.add
        self._get_result = spec.function.get_result

    def add_all(
        self, accumulators: dict[CacheKey, Any], keys: list[CacheKey], values: Iterator[Any]
    ) -> None:
        create, add = self._create, self._add
        for key in set(keys).difference(accumulators):
            accumulators[key] = create()
        for key, value in zip(keys, values, strict=False):
            accumulators[key] = add(value, accumulators[key])

    def finish(self, accumulated: Any) -> Any:  # noqa: ANN401 - the user's accumulator
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


def make_logic(spec: WindowSpec, operator: WindowOperator) -> WindowLogic:
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
    spec: ReduceSpec | AggregateSpec, operator: WindowOperator
) -> tuple[list[object], _Evaluation | None]:
    function = spec.window_function
    if function is None:
        return [spec.function], None
    process = not isinstance(function, WindowFunction) and hasattr(function, "process")
    return [spec.function, function], _Evaluation(function, operator, process=process)
