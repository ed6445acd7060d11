"""User-defined functions of SQL and the Table API: PyFlink's ``pyflink.table.udf``."""

from __future__ import annotations

import datetime as dt
import inspect
import typing
from abc import ABC, abstractmethod
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

from millstream.errors import ArgumentValueError, ProgramError
from millstream.expressions.user_functions import FunctionContext as FunctionContext
from millstream.expressions.user_functions import definition_of, table_definition_of
from millstream.table.aggregate_functions import AggregateFunction as AggregateFunction
from millstream.table.aggregate_functions import (
    FunctionWrapper,
    check_func_type,
    checked_function,
    decorator_of,
    is_deterministic,
    type_of,
    types_of,
)
from millstream.table.aggregate_functions import (
    ImperativeAggregateFunction as ImperativeAggregateFunction,
)
from millstream.table.aggregate_functions import TableAggregateFunction as TableAggregateFunction
from millstream.table.aggregate_functions import (
    UserDefinedAggregateFunctionWrapper as UserDefinedAggregateFunctionWrapper,
)
from millstream.table.aggregate_functions import UserDefinedFunction as UserDefinedFunction
from millstream.table.aggregate_functions import udaf as udaf
from millstream.table.aggregate_functions import udtaf as udtaf
from millstream.types.logical_types import (
    BigIntType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LogicalType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class ScalarFunction(UserDefinedFunction, ABC):
    """A function from values to a value."""

    @abstractmethod
    def eval(self, *args: Any) -> Any:
        """The result for the arguments of one row (of a column, if it is made for columns)."""


class AsyncScalarFunction(UserDefinedFunction, ABC):
    """A function that waits: ten of its calls may wait at a time, in the order of their rows."""

    @abstractmethod
    async def eval(self, *args: Any) -> Any:
        """The result for the arguments of one row."""


class TableFunction(UserDefinedFunction, ABC):
    """A function from values to rows."""

    @abstractmethod
    def eval(self, *args: Any) -> Any:
        """The rows for the arguments of one row: an iterable, or a generator; None is none."""


_ANNOTATED: Final[dict[object, LogicalType]] = {
    int: BigIntType(),
    str: VarCharType(),
    float: DoubleType(),
    bool: BooleanType(),
    bytes: VarBinaryType(),
    Decimal: DecimalType(38, 18),
    dt.date: DateType(),
    dt.time: TimeType(6),
    dt.datetime: TimestampType(6),
}

_Function: TypeAlias = "Callable[..., Any] | ScalarFunction | AsyncScalarFunction | type"


#: PyFlink's name of what ``udf`` and its sisters make.
UserDefinedFunctionWrapper = FunctionWrapper


class UserDefinedScalarFunctionWrapper(FunctionWrapper):
    """A scalar function with its types, made by ``udf``."""


class UserDefinedAsyncScalarFunctionWrapper(UserDefinedScalarFunctionWrapper):
    """An async scalar function with its types, made by ``udf``."""


def _annotated_result(function: Any, name: str) -> LogicalType:
    code = getattr(function, "eval", function)
    try:
        annotation = typing.get_type_hints(code).get("return")
    except (NameError, TypeError):
        annotation = None
    options = [each for each in typing.get_args(annotation) if each is not type(None)]
    found = _ANNOTATED.get(options[0] if len(options) == 1 else annotation)
    if found is None:
        message = f"udf {name}: set result_type, or annotate what it returns with a plain type"
        raise ProgramError(message)
    return found


@overload
def udf(
    f: None = None,
    input_types: Sequence[LogicalType | str] | LogicalType | str | None = None,
    result_type: LogicalType | str | None = None,
    deterministic: bool | None = None,  # noqa: FBT001 - PyFlink's
    name: str | None = None,
    func_type: str = "general",
) -> Callable[[_Function], UserDefinedScalarFunctionWrapper]: ...


@overload
def udf(
    f: _Function,
    input_types: Sequence[LogicalType | str] | LogicalType | str | None = None,
    result_type: LogicalType | str | None = None,
    deterministic: bool | None = None,  # noqa: FBT001 - PyFlink's
    name: str | None = None,
    func_type: str = "general",
) -> UserDefinedScalarFunctionWrapper: ...


def udf(
    f: _Function | None = None,
    input_types: Sequence[LogicalType | str] | LogicalType | str | None = None,
    result_type: LogicalType | str | None = None,
    deterministic: bool | None = None,  # noqa: FBT001 - PyFlink's
    name: str | None = None,
    func_type: str = "general",
) -> Any:
    """Make a scalar function of SQL and the Table API.

    Args:
        f: a Python function, which may be async, or an object or class with ``eval``; None: a
            decorator is given.
        input_types: the types of the arguments; None: arguments are taken as they are.
        result_type: the type of the result; None: from the annotation of what it returns.
        deterministic: whether equal arguments give equal results; None: as ``is_deterministic``
            of the object says, else True.
        name: for plans and errors; None: that of the function.
        func_type: ``general`` (one row at a time), ``pandas`` (Series) or, beyond PyFlink,
            ``arrow`` (pyarrow.Array).

    Returns:
        The function, to be called on expressions or registered; or a decorator.

    Raises:
        ArgumentTypeError: it is no function, or a type is none.
        ArgumentValueError: there is no such ``func_type``, or not for async functions.
        ProgramError: the result has no type.
    """
    check_func_type(func_type, ("general", "pandas"), "arrow")
    if f is None:
        return decorator_of(udf, locals())
    function = checked_function(f)
    code = getattr(function, "eval", function)
    shown = name or str(getattr(function, "__name__", type(function).__name__))
    if inspect.iscoroutinefunction(code):
        func_type = _kind_of_async(func_type)
    definition = definition_of(
        shown,
        function,
        _annotated_result(function, shown) if result_type is None else type_of(result_type),
        input_types=types_of(input_types),
        deterministic=is_deterministic(function, deterministic),
        kind=func_type,
    )
    if func_type == "async":
        return UserDefinedAsyncScalarFunctionWrapper(function, definition)
    return UserDefinedScalarFunctionWrapper(function, definition)


def _kind_of_async(func_type: str) -> str:
    if func_type != "general":
        message = (
            f"Async scalar functions do not support {func_type} func_type. Please use "
            "func_type='general' (default) for async functions."
        )
        raise ArgumentValueError(message)
    return "async"


def registered(function: Any) -> FunctionWrapper:
    """Return what is registered for a function that a program gives under a name.

    Args:
        function: what ``udf`` and its sisters make; or an object or class of AggregateFunction or
            TableAggregateFunction, which say their types; or a function whose result is annotated.

    Raises:
        ProgramError: nobody says the type of its result.
    """
    if isinstance(function, FunctionWrapper):
        return function
    kind = function if inspect.isclass(function) else type(function)
    if issubclass(kind, TableAggregateFunction):
        wrapper: FunctionWrapper = udtaf(function)
    elif issubclass(kind, ImperativeAggregateFunction):
        wrapper = udaf(function)
    elif issubclass(kind, TableFunction):
        wrapper = udtf(function)
    else:
        wrapper = udf(function)
    return wrapper


class UserDefinedTableFunctionWrapper(FunctionWrapper):
    """A table function with its types, made by ``udtf``."""


_TableFunction: TypeAlias = "Callable[..., Any] | TableFunction | type"


@overload
def udtf(
    f: None = None,
    input_types: Sequence[LogicalType | str] | LogicalType | str | None = None,
    result_types: Sequence[LogicalType | str] | LogicalType | str | None = None,
    deterministic: bool | None = None,  # noqa: FBT001 - PyFlink's
    name: str | None = None,
) -> Callable[[_TableFunction], UserDefinedTableFunctionWrapper]: ...


@overload
def udtf(
    f: _TableFunction,
    input_types: Sequence[LogicalType | str] | LogicalType | str | None = None,
    result_types: Sequence[LogicalType | str] | LogicalType | str | None = None,
    deterministic: bool | None = None,  # noqa: FBT001 - PyFlink's
    name: str | None = None,
) -> UserDefinedTableFunctionWrapper: ...


def udtf(
    f: _TableFunction | None = None,
    input_types: Sequence[LogicalType | str] | LogicalType | str | None = None,
    result_types: Sequence[LogicalType | str] | LogicalType | str | None = None,
    deterministic: bool | None = None,  # noqa: FBT001 - PyFlink's
    name: str | None = None,
) -> Any:
    """Make a table function of SQL: ``CROSS JOIN LATERAL TABLE(f(x)) AS t(a, b)``.

    Args:
        f: a Python function or generator, or an object or class with ``eval``; None: a decorator
            is given.
        input_types: the types of the arguments; None: arguments are taken as they are.
        result_types: the types of the columns; a row of one column is a ROW type's fields.
        deterministic: whether equal arguments give equal rows; None: as ``is_deterministic`` of
            the object says, else True.
        name: for plans and errors; None: that of the function.

    Returns:
        The function, to be registered; or a decorator.

    Raises:
        ProgramError: there are no ``result_types``.
    """
    if f is None:
        return decorator_of(udtf, locals())
    function = checked_function(f)
    shown = name or str(getattr(function, "__name__", type(function).__name__))
    columns = types_of(result_types, "result_type")
    if not columns:
        message = f"udtf {shown}: set result_types"
        raise ProgramError(message)
    names = None
    if len(columns) == 1 and isinstance(columns[0], RowType):
        names, columns = columns[0].names, list(columns[0].children)
    definition = table_definition_of(
        shown,
        function,
        columns,
        names=names,
        input_types=types_of(input_types),
        deterministic=is_deterministic(function, deterministic),
    )
    return UserDefinedTableFunctionWrapper(function, definition)
