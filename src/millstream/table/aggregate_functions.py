"""Aggregate functions of users: PyFlink's ``udaf`` and ``udtaf``, and the classes for them.

What it is: words; ``pyflink.table.udf`` has them too, and so has ``table/udf.py``.
What it is not: the computation (``runtime/columnar/aggregate_kernels.py``).

Read next: ``expressions/user_aggregates.py``.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn

from millstream.errors import ArgumentTypeError, ProgramError
from millstream.expressions.user_aggregates import (
    AGGREGATE_METHODS,
    UserAggregate,
    aggregate_definition_of,
)
from millstream.table.function_types import (
    FunctionWrapper,
    UserDefinedFunction,
    check_func_type,
    is_deterministic,
    type_of,
    types_of,
)
from millstream.types.logical_types import ArrayType, MapType, RowField, RowType

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

    @_missing
    def get_accumulator_type(self) -> DataType | str:
        """The type of the accumulator, which may be left out: accumulators are pickled.

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
        f: an AggregateFunction, or a class of them; if ``func_type`` is ``pandas``, one whose
            ``accumulate`` takes all rows at once as Series, or a function of Series; None: a
            decorator is given.
        input_types: the types of the arguments; None: arguments are taken as they are.
        result_type: the type of the result; None: what ``get_result_type`` says.
        accumulator_type: checked to be a type; None: what ``get_accumulator_type`` says, if
            anything.  Accumulators are pickled as they are.
        deterministic: whether equal rows give equal results; None: as ``is_deterministic`` says.
        name: for plans and errors; None: that of the function.
        func_type: ``general`` (one row at a time) or ``pandas`` (all rows, as Series).

    Returns:
        The function, to be called on expressions or registered; or a decorator.

    Raises:
        ArgumentTypeError: it is no aggregate function, or a type is none, or a map of pandas.
        ArgumentValueError: there is no such ``func_type``.
        ProgramError: its result has no type.
    """
    check_func_type(func_type, ("general", "pandas"))
    if f is None:
        return functools.partial(
            udaf,
            input_types=input_types,
            result_type=result_type,
            accumulator_type=accumulator_type,
            deterministic=deterministic,
            name=name,
            func_type=func_type,
        )
    function = _checked(f, "udaf", AGGREGATE_METHODS, pandas=func_type == "pandas")
    kind = _result_type(function, result_type, f"udaf {_name(function, name)}")
    _check_accumulator_type(function, accumulator_type)
    if func_type == "pandas" and isinstance(kind, MapType):
        message = (
            "Invalid returnType: Pandas UDAF doesn't support DataType type "
            f"{kind.as_summary_string()} currently"
        )
        raise ArgumentTypeError(message)
    aggregate = UserAggregate(
        _name(function, name),
        function,
        func_type,
        gives_rows=False,
        deterministic=is_deterministic(function, deterministic),
    )
    definition = aggregate_definition_of(aggregate, kind, input_types=types_of(input_types))
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
        accumulator_type: as for ``udaf``.
        deterministic: whether equal rows give equal results; None: as ``is_deterministic`` says.
        name: for plans and errors; None: that of the function.
        func_type: ``general``.

    Returns:
        The function, to be called on expressions; or a decorator.

    Raises:
        ArgumentTypeError: it is no such function, or a type is none.
        ArgumentValueError: there is no such ``func_type``.
        ProgramError: its result has no type.
    """
    check_func_type(func_type, ("general",))
    if f is None:
        return functools.partial(
            udtaf,
            input_types=input_types,
            result_type=result_type,
            accumulator_type=accumulator_type,
            deterministic=deterministic,
            name=name,
            func_type=func_type,
        )
    function = _checked(f, "udtaf", ("create_accumulator", "accumulate", "emit_value"))
    row = _result_type(function, result_type, f"udtaf {_name(function, name)}")
    _check_accumulator_type(function, accumulator_type)
    if not isinstance(row, RowType):
        row = RowType((RowField("f0", row),))
    aggregate = UserAggregate(
        _name(function, name),
        function,
        func_type,
        gives_rows=True,
        deterministic=is_deterministic(function, deterministic),
    )
    element = row.with_nullability(False)  # noqa: FBT003
    definition = aggregate_definition_of(
        aggregate, ArrayType(element), input_types=types_of(input_types)
    )
    return UserDefinedAggregateFunctionWrapper(function, definition)


def _checked(f: Any, word: str, wanted: Sequence[str], *, pandas: bool = False) -> Any:
    function = f() if inspect.isclass(f) else f
    missing = [each for each in wanted if not hasattr(function, each)]
    if missing and not (pandas and callable(getattr(function, "eval", function))):
        more = ", or a function of Series" if pandas else ""
        message = (
            f"Invalid function: {word} takes an object with {', '.join(wanted)}{more}; {f!r} has "
            f"no {missing[0]}"
        )
        raise ArgumentTypeError(message)
    return function


def _result_type(function: Any, given: LogicalType | str | None, owner: str) -> LogicalType:
    if given is None:
        says = getattr(function, "get_result_type", None)
        if says is None:
            message = f"{owner}: say result_type"
            raise ProgramError(message)
        given = says()
    return type_of(given)


def _check_accumulator_type(function: Any, given: LogicalType | str | None) -> None:
    """Refuse what is no type; accumulators are pickled, whatever their type is."""
    says = getattr(function, "get_accumulator_type", None)
    if given is None and says is not None and not getattr(says, "is_missing", False):
        given = says()
    if given is not None:
        type_of(given, "accumulator_type")


def _name(function: Any, name: str | None) -> str:
    return name or str(getattr(function, "__name__", type(function).__name__))
