"""User-defined aggregate functions: PyFlink's ``udaf`` and ``udtaf`` and their base classes."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from copy import copy
from typing import TYPE_CHECKING, Any, NoReturn, Self

from millstream.errors import ArgumentTypeError, ArgumentValueError, ProgramError
from millstream.expressions.user_functions import (
    AGGREGATE_METHODS,
    UserAggregate,
    aggregate_definition_of,
)
from millstream.sql.binder.calls import InlineCall
from millstream.sql.parser.parser import parse_type
from millstream.table.expression import Expression, as_node
from millstream.types.logical_types import ArrayType, LogicalType, MapType, RowField, RowType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.expressions.user_functions import FunctionContext
    from millstream.table.types import DataType


class FunctionWrapper:
    """A function with its types, made by ``udf``, ``udtf``, ``udaf`` or ``udtaf``.

    Args:
        function: the user's.
        definition: what is bound for it.
    """

    #: Of its columns, where it is called on whole rows.
    names: tuple[str, ...] = ()

    def __init__(self, function: Any, definition: FunctionDefinition) -> None:
        self._function = function
        self.definition = definition
        # PyFlink's names for them, which programs read.
        self._name = definition.name
        self._deterministic = definition.deterministic
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any) -> Expression:
        """A call on expressions and plain values."""
        return Expression(InlineCall(self.definition, tuple(map(as_node, args))))

    def alias(self, *alias_names: str) -> Self:
        """The same with names of its columns, for whole rows: ``flat_map(f.alias("a"))``.

        Args:
            alias_names: the names.
        """
        made = copy(self)
        made.names = alias_names
        return made


class UserDefinedFunction:
    """A function of a user that keeps something, from ``open`` to ``close``."""

    def open(self, function_context: FunctionContext) -> None:
        """Get ready: called once wherever the function runs, before the first row."""

    def close(self) -> None:
        """Clean up: called when the operator is gone."""

    def is_deterministic(self) -> bool:
        """Return whether equal arguments always give equal results."""
        return True


def decorator_of(make: Callable[..., Any], arguments: dict[str, Any]) -> Callable[[Any], Any]:
    """Return a decorator that calls ``udf`` or another maker with its arguments but ``f``."""
    return functools.partial(make, **{name: arguments[name] for name in arguments if name != "f"})


def checked_function(given: Any, methods: Sequence[str] = ("eval",)) -> Any:
    """Return the function of a user, or an instance of the class of one.

    Args:
        given: a callable, an object with the methods, or a class of such objects.
        methods: what an object that cannot be called needs.

    Raises:
        ArgumentTypeError: it is none of them.
    """
    has_methods = all(hasattr(given, each) for each in methods)
    function = given() if inspect.isclass(given) and has_methods else given
    if not has_methods and (inspect.isclass(given) or not callable(given)):
        message = (
            "Invalid function: not a function or callable (__call__ is not defined): "
            f"{type(given)}; an object needs {', '.join(methods)}"
        )
        raise ArgumentTypeError(message)
    return function


def is_deterministic(function: Any, given: bool | None) -> bool:  # noqa: FBT001 - PyFlink's
    """Return whether equal arguments give equal results.

    Args:
        function: the user's.
        given: as the program says; None: as ``is_deterministic`` of the function says.

    Raises:
        ArgumentValueError: the program and the function contradict each other.
    """
    says = getattr(function, "is_deterministic", None)
    if says is None:
        return given is not False
    own = bool(says())
    if given is not None and given != own and isinstance(function, UserDefinedFunction):
        message = (
            f"Inconsistent deterministic: {given} and {own}; is_deterministic() of "
            f"{type(function).__name__} returns the latter"
        )
        raise ArgumentValueError(message)
    return own if given is None else given


def check_func_type(given: str, known: Sequence[str], *more: str) -> None:
    """Refuse a ``func_type`` that does not exist.

    Args:
        given: as the program says.
        known: those of PyFlink.
        more: those that only Millstream has.

    Raises:
        ArgumentValueError: it is none of them.
    """
    if given not in (*known, *more):
        which = f"one of '{', '.join(known)}'" if len(known) > 1 else f"'{known[0]}'"
        message = f"The func_type must be {which}, got {given}."
        if more:
            message += f" Beyond PyFlink's, '{', '.join(more)}' is known."
        raise ArgumentValueError(message)


def type_of(given: Any, what: str = "returnType") -> LogicalType:
    """Return a type, of which the text as in SQL may be given.

    Args:
        given: the type.
        what: it is, for errors.

    Raises:
        ArgumentTypeError: it is neither.
    """
    if isinstance(given, LogicalType):
        return given
    if not isinstance(given, str):
        message = f"Invalid {what}: {what} should be DataType or str but is {given}"
        raise ArgumentTypeError(message)
    return parse_type(given)


def types_of(
    given: Sequence[LogicalType | str] | LogicalType | str | None, what: str = "input_type"
) -> list[LogicalType] | None:
    """Several types, or one; None: nothing is said."""
    if given is None:
        return None
    if isinstance(given, LogicalType | str):
        given = [given]
    return [type_of(each, what) for each in given]


def _missing(method: Callable[..., Any]) -> Any:
    """A method that a function may leave out, until it is needed."""
    method.is_missing = True  # type: ignore[attr-defined]
    return method


class ImperativeAggregateFunction(UserDefinedFunction, ABC):
    """An aggregate function with an accumulator, which rows change."""

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
        message = f"{type(self).__name__}: set result_type, or define get_result_type()"
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
    """An aggregate function with its types, made by ``udaf`` or ``udtaf``."""


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
        return decorator_of(udaf, locals())
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
    return _wrapped(aggregate, kind, input_types)


def _wrapped(
    aggregate: UserAggregate, result: LogicalType, input_types: Any
) -> UserDefinedAggregateFunctionWrapper:
    definition = aggregate_definition_of(aggregate, result, input_types=types_of(input_types))
    return UserDefinedAggregateFunctionWrapper(aggregate.function, definition)


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
        return decorator_of(udtaf, locals())
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
    return _wrapped(aggregate, ArrayType(row.not_null()), input_types)


def _checked(f: Any, word: str, wanted: Sequence[str], *, pandas: bool = False) -> Any:
    function = f() if inspect.isclass(f) else f
    missing = [each for each in wanted if not hasattr(function, each)]
    if missing and not (pandas and callable(getattr(function, "eval", function))):
        more = ", or a function of Series" if pandas else ""
        message = (
            "Invalid function: not a function or callable (__call__ is not defined): "
            f"{type(f)}; {word} takes an object with {', '.join(wanted)}{more}, and {f!r} has no "
            f"{missing[0]}"
        )
        raise ArgumentTypeError(message)
    return function


def _result_type(function: Any, given: LogicalType | str | None, owner: str) -> LogicalType:
    if given is None:
        says = getattr(function, "get_result_type", None)
        if says is None:
            message = f"{owner}: set result_type"
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
