"""Aggregate functions of users: PyFlink's ``udaf`` and ``udtaf``, and the classes for them.

What it is: words; ``pyflink.table.udf`` has them too, and so has ``table/udf.py``.
What it is not: the computation (``runtime/columnar/user_kernel.py``).

Read next: ``expressions/user_aggregates.py``.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn

from millstream.errors import ProgramError
from millstream.expressions.user_aggregates import UserAggregate, aggregate_definition_of
from millstream.table.function_types import FunctionWrapper, UserDefinedFunction, type_of, types_of
from millstream.types.logical_types import ArrayType, RowField, RowType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.table.types import DataType
    from millstream.types.logical_types import LogicalType

__all__ = [
    "AggregateFunction",
    "ImperativeAggregateFunction",
    "TableAggregateFunction",
    "UserDefinedAggregateFunctionWrapper",
    "udaf",
    "udtaf",
]


def _missing(method: Callable[..., Any]) -> Any:
    """A method that a function may leave out, until it is needed."""
    method.is_missing = True  # type: ignore[attr-defined]
    return method


class ImperativeAggregateFunction(UserDefinedFunction, ABC):
    """What aggregates have in common: an accumulator, which rows change."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """An accumulator of no rows; it is changed in place."""

    @abstractmethod
    def accumulate(self, accumulator: Any, *args: Any) -> None:
        """Add a row to the accumulator."""

    @_missing
    def retract(self, accumulator: Any, *args: Any) -> NoReturn:
        """Take a row back: needed where the input has updates.

        Raises:
            ProgramError: the function has no such method.
        """
        del accumulator, args
        message = f"{type(self).__name__} has no retract()"
        raise ProgramError(message)

    @_missing
    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> NoReturn:
        """Put other accumulators into one: needed for session windows.

        Raises:
            ProgramError: the function has no such method.
        """
        del accumulator, accumulators
        message = f"{type(self).__name__} has no merge()"
        raise ProgramError(message)

    def get_result_type(self) -> DataType | str:
        """The type of the result, unless ``udaf`` says it.

        Raises:
            ProgramError: nobody says it.
        """
        message = f"{type(self).__name__}: say result_type, or have get_result_type()"
        raise ProgramError(message)

    def get_accumulator_type(self) -> DataType | str:
        """The type of the accumulator, which nobody needs: it is pickled.

        Raises:
            ProgramError: nobody says it.
        """
        message = f"{type(self).__name__} has no get_accumulator_type()"
        raise ProgramError(message)


class AggregateFunction(ImperativeAggregateFunction):
    """A function from rows to a value."""

    @abstractmethod
    def get_value(self, accumulator: Any) -> Any:
        """The result of an accumulator."""


class TableAggregateFunction(ImperativeAggregateFunction):
    """A function from rows to rows."""

    @abstractmethod
    def emit_value(self, accumulator: Any) -> Iterable[Any]:
        """The rows of an accumulator: an iterable, or a generator."""


class UserDefinedAggregateFunctionWrapper(FunctionWrapper):
    """What ``udaf`` and ``udtaf`` make: an aggregate function with its types."""


def udaf(
    f: Any = None,
    input_types: Sequence[LogicalType | str] | LogicalType | str | None = None,
    result_type: LogicalType | str | None = None,
    accumulator_type: LogicalType | str | None = None,
    deterministic: bool | None = None,  # noqa: FBT001 - PyFlink's
    name: str | None = None,
    func_type: str = "general",
) -> Any:
    """Make an aggregate function of SQL and the Table API.

    Args:
        f: an AggregateFunction, or a class of them; a function of Series, if ``func_type`` is
            ``pandas``; None: a decorator is given.
        input_types: the types of the arguments; None: arguments are taken as they are.
        result_type: the type of the result; None: what ``get_result_type`` says.
        accumulator_type: taken; accumulators are pickled, so any will do.
        deterministic: whether equal rows give equal results; None: as ``is_deterministic`` says.
        name: for plans and errors; None: that of the function.
        func_type: ``general`` (one row at a time) or ``pandas`` (all rows, as Series).

    Returns:
        The function, to be called on expressions or registered; or a decorator.

    Raises:
        ProgramError: it is no aggregate function, or its result has no type.
    """
    del accumulator_type
    if f is None:
        return functools.partial(
            udaf,
            input_types=input_types,
            result_type=result_type,
            deterministic=deterministic,
            name=name,
            func_type=func_type,
        )
    if func_type not in {"general", "pandas"}:
        message = f"func_type is general or pandas, not {func_type!r}"
        raise ProgramError(message)
    wanted = ("create_accumulator", "accumulate", "get_value") if func_type == "general" else ()
    function = _checked(f, "udaf", wanted)
    kind = function.get_result_type() if result_type is None and wanted else result_type
    if kind is None:
        message = f"udaf {_name(function, name)}: say result_type"
        raise ProgramError(message)
    aggregate = UserAggregate(
        _name(function, name),
        function,
        func_type,
        gives_rows=False,
        deterministic=_deterministic(function, deterministic),
    )
    definition = aggregate_definition_of(
        aggregate, type_of(kind), input_types=types_of(input_types)
    )
    return UserDefinedAggregateFunctionWrapper(function, definition)


def udtaf(
    f: Any = None,
    input_types: Sequence[LogicalType | str] | LogicalType | str | None = None,
    result_type: LogicalType | str | None = None,
    accumulator_type: LogicalType | str | None = None,
    deterministic: bool | None = None,  # noqa: FBT001 - PyFlink's
    name: str | None = None,
    func_type: str = "general",
) -> Any:
    """Make an aggregate function that gives rows, for ``flat_aggregate`` of the Table API.

    Args:
        f: a TableAggregateFunction, or a class of them; None: a decorator is given.
        input_types: the types of the arguments; None: arguments are taken as they are.
        result_type: the type of the rows; None: what ``get_result_type`` says.
        accumulator_type: taken; accumulators are pickled, so any will do.
        deterministic: whether equal rows give equal results; None: as ``is_deterministic`` says.
        name: for plans and errors; None: that of the function.
        func_type: ``general``.

    Returns:
        The function, to be called on expressions; or a decorator.

    Raises:
        ProgramError: it is no such function, or its result has no type.
    """
    del accumulator_type
    if f is None:
        return functools.partial(
            udtaf,
            input_types=input_types,
            result_type=result_type,
            deterministic=deterministic,
            name=name,
            func_type=func_type,
        )
    if func_type != "general":
        message = f"func_type of udtaf is general, not {func_type!r}"
        raise ProgramError(message)
    function = _checked(f, "udtaf", ("create_accumulator", "accumulate", "emit_value"))
    row = type_of(function.get_result_type() if result_type is None else result_type)
    if not isinstance(row, RowType):
        row = RowType((RowField("f0", row),))
    aggregate = UserAggregate(
        _name(function, name),
        function,
        func_type,
        gives_rows=True,
        deterministic=_deterministic(function, deterministic),
    )
    element = row.with_nullability(False)  # noqa: FBT003
    definition = aggregate_definition_of(
        aggregate, ArrayType(element), input_types=types_of(input_types)
    )
    return UserDefinedAggregateFunctionWrapper(function, definition)


def _checked(f: Any, word: str, wanted: Sequence[str]) -> Any:
    function = f() if inspect.isclass(f) else f
    missing = [each for each in wanted if not hasattr(function, each)]
    if missing:
        message = f"{word} takes an object with {', '.join(wanted)}; {f!r} has no {missing[0]}"
        raise ProgramError(message)
    if not wanted and not callable(getattr(function, "eval", function)):
        message = f"{word} of pandas takes a function of Series, not {f!r}"
        raise ProgramError(message)
    return function


def _name(function: Any, name: str | None) -> str:
    return name or str(getattr(function, "__name__", type(function).__name__))


def _deterministic(function: Any, given: bool | None) -> bool:  # noqa: FBT001 - PyFlink's
    says = getattr(function, "is_deterministic", None)
    if given is None and says is not None:
        return bool(says())
    return given is not False
