"""Resolve function calls, casts and field accesses against built-in and catalog functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.errors import MillstreamError, ProgramError
from millstream.expressions import resolution
from millstream.expressions.functions.definition import (
    FunctionDefinition,
    FunctionKind,
    Nullability,
)
from millstream.expressions.functions.registry import built_in_functions, find_function
from millstream.expressions.nodes import InputReference, Literal
from millstream.expressions.resolution import cast as implicit_cast
from millstream.expressions.resolution import no_signature, resolve_call, resolve_definition
from millstream.runtime.columnar.aggregate_kernels import SUPPORTED_AGGREGATES
from millstream.sql.parser.nodes import BinaryOperation, Name, Query
from millstream.sql.parser.nodes import Expression as SyntaxExpression
from millstream.types import logical_types as lt
from millstream.types.type_derivation import (
    needs_no_cast,
    supports_explicit_cast,
    supports_implicit_cast,
)
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.scope import BindingContext
    from millstream.sql.catalog.objects import CatalogFunction
    from millstream.sql.parser.nodes import Node
    from millstream.sql.planner.logical import LogicalNode


class InlineCall(SyntaxExpression):
    """A function with its arguments."""

    definition: FunctionDefinition
    arguments: tuple[SyntaxExpression, ...]
    #: Of an aggregate: whether values that were there already count for nothing.
    distinct: bool = False
    #: Of an aggregate: the name of its window.
    over: Name | None = None


class InlineOperation(BinaryOperation):
    """An operator of the Table API: a call of the function of ``OPERATOR_FUNCTIONS``.

    Where the left side of ``+`` is text, the right side is appended to it.
    """


#: As Flink's Table API calls them; a temporary system function of the name hides the operator.
OPERATOR_FUNCTIONS: Final = {
    "=": "equals",
    "<>": "notEquals",
    "<": "lessThan",
    "<=": "lessThanOrEqual",
    ">": "greaterThan",
    ">=": "greaterThanOrEqual",
    "+": "plus",
    "-": "minus",
    "*": "times",
    "/": "divide",
    "%": "mod",
    "AND": "and",
    "OR": "or",
}


def called(node: Any) -> str:
    """The name of the function that a call calls, for errors."""
    return node.definition.name if isinstance(node, InlineCall) else node.name.last.upper()


class InlinePlan(Query):
    """A table of the program as a query; compared by identity, as its plan is."""

    plan: LogicalNode


_OF_DAY: Final = frozenset({"HOUR", "MINUTE", "SECOND", "MILLISECOND"})
_MONTHS: Final = frozenset({"YEAR", "QUARTER", "MONTH", "DECADE", "CENTURY", "MILLENNIUM"})
_FINEST: Final = frozenset({"MICROSECOND", "NANOSECOND"})
_NUMBERS: Final = frozenset({"EPOCH", "DOW", "DOY", "ISODOW"})
_SHA2: Final = frozenset({224, 256, 384, 512})
_ADDED: Final = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", *_OF_DAY})


def check_constants(function: str, arguments: Sequence[Expression]) -> None:
    """Refuse constants that a function does not go with.

    Args:
        function: the name of the built-in function.
        arguments: of the call, which has a signature.

    Raises:
        ProgramError: a unit is none of a type, or an index is negative.
    """
    units = [
        each.value
        for each in arguments
        if isinstance(each, Literal) and isinstance(each.type, lt.SymbolType)
    ]
    if function == "EXTRACT" and units:
        _check_part(str(units[0]), arguments[1])
    elif function in {"CEIL", "FLOOR"} and units and units[0] in _NUMBERS:
        message = f"{function}: nothing can be rounded to {units[0]}, which is a number."
        raise ProgramError(message)
    elif function == "TIMESTAMPADD" and units and units[0] not in _ADDED:
        message = f"TIMESTAMPADD: {units[0]} cannot be added; take one of {_listed(_ADDED)}."
        raise ProgramError(message)
    elif function == "SHA2" and isinstance(arguments[1], Literal):
        bits = arguments[1].value
        if bits is not None and bits not in _SHA2:
            message = f"SHA2: there are 224, 256, 384 and 512 bits, not {bits}."
            raise ProgramError(message)
    elif function == "ELT" and isinstance(arguments[0], Literal):
        index = arguments[0].value
        if isinstance(index, int) and index < 0:
            message = f"ELT: the index begins at 1; {index} is no index."
            raise ProgramError(message)


def _check_part(unit: str, operand: Expression) -> None:
    root = operand.type.root
    wrong = False
    if root is TypeRoot.DATE:
        wrong = unit in _FINEST
    elif root is TypeRoot.TIME_WITHOUT_TIME_ZONE:
        wrong = unit not in _OF_DAY
    elif root is TypeRoot.INTERVAL_YEAR_MONTH:
        wrong = unit not in _MONTHS
    if wrong:
        shown = operand.type.as_summary_string()
        message = f"EXTRACT: unit {unit} can not be applied to {shown}."
        raise ProgramError(message)


def _listed(units: frozenset[str]) -> str:
    return ", ".join(sorted(units))


#: Functions that number the rows of a window; only with OVER.
RANKS: Final = frozenset({"ROW_NUMBER", "RANK", "DENSE_RANK"})
#: The functions that have no frame, and no meaning without OVER.
OVER_ONLY: Final = RANKS | {"LAG", "LEAD", "NTILE", "CUME_DIST", "PERCENT_RANK"}
#: Those whose arguments are cast to what they take.
_CASTING: Final = frozenset({"PERCENTILE", "BITMAP_BUILD_AGG", "BITMAP_BUILD_CARDINALITY_AGG"})


def plain_type(kind: lt.LogicalType) -> lt.LogicalType:
    """The type without being a time attribute."""
    if getattr(kind, "is_time_attribute", False):
        return kind.with_parameters(kind=lt.TimestampKind.REGULAR)
    return kind


#: What the operators of tables compute, by all of its names.
AGGREGATES: Final = {
    name: definition
    for name, definition in built_in_functions().items()
    # COUNT(DISTINCT ...) stands for the roughly counted ones.
    if (definition.name in SUPPORTED_AGGREGATES and definition.kind is FunctionKind.AGGREGATE)
    or definition.name == "APPROX_COUNT_DISTINCT"
}


def aggregate_arguments(name: str, types: Sequence[lt.LogicalType]) -> Sequence[lt.LogicalType]:
    """The types that the arguments of an aggregate are cast to; the same, but for some.

    Args:
        name: in capitals.
        types: of the arguments, which it takes.
    """
    if name not in _CASTING:
        return types
    plain = tuple(plain_type(kind) for kind in types)
    found = (each.match(plain) for each in AGGREGATES[name].signatures)
    return next(each for each in found if each is not None)


def aggregate_type(
    name: str, types: Sequence[lt.LogicalType], *, grouped: bool, filtered: bool
) -> tuple[str, lt.LogicalType]:
    """The function's own name and the type of its result.

    Args:
        name: in capitals.
        types: of the arguments.
        grouped: whether each group has at least one row.
        filtered: whether FILTER may leave none.

    Raises:
        ProgramError: it does not take these.
    """
    plain = tuple(plain_type(kind) for kind in types)
    definition = AGGREGATES[name]
    for candidate in definition.signatures:
        taken = candidate.match(plain)
        if taken is not None and (taken == plain or definition.name in _CASTING):
            found = candidate.result_type(plain, ())
            may_be_empty = not grouped or filtered
            if may_be_empty and candidate.nullability is not Nullability.NEVER:
                found = found.with_nullability(True)  # noqa: FBT003
            return definition.name, found
    raise no_signature(definition, plain)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A column whose position is not known yet."""

    #: key, call, grouping, or over.
    kind: str
    index: int
    type: lt.LogicalType

    def __str__(self) -> str:
        """For people who debug."""
        return f"${self.kind}{self.index}"


class Inputs:
    """Expressions that are to be columns of a projection below an aggregate: each once."""

    def __init__(self) -> None:
        self.expressions: list[Expression] = []
        self.names: list[str] = []

    def add(self, expression: Expression, name: str | None = None) -> int:
        """The position of the column that holds the expression."""
        for position, known in enumerate(self.expressions):
            if known == expression:
                return position
        self.expressions.append(expression)
        if name is None:
            plain = isinstance(expression, InputReference)
            name = expression.name if plain else f"$f{len(self.names)}"  # type: ignore[union-attr]
        self.names.append(name)
        return len(self.expressions) - 1


#: Functions that are called by their name alone.
NILADIC: Final = frozenset(
    {
        "CURRENT_DATE",
        "CURRENT_TIME",
        "CURRENT_TIMESTAMP",
        "LOCALTIME",
        "LOCALTIMESTAMP",
        "CURRENT_ROW_TIMESTAMP",
        "PI",
        "E",
    }
)
#: Functions that the grammar calls, not their name: a function of a user hides them in backticks
#: alone.  The other forms with keywords (``SUBSTRING(s FROM 2)``) go by the name.
_BY_GRAMMAR: Final = frozenset(
    {
        "CEIL",
        "EXTRACT",
        "FLOOR",
        "POSITION",
        "TIMESTAMPADD",
        "TIMESTAMPDIFF",
        "TRANSLATE",
        "TRIM",
    }
)
#: What the parser calls otherwise than the registry.
_NAMES: Final = {"MINUS": "-"}


class Binds(Protocol):
    """The part of the binder of expressions that clauses of calls use."""

    context: BindingContext

    def bind(self, node: Any) -> Expression:
        """The bound expression of a node."""

    def bind_all(self, found: Sequence[Any]) -> list[Expression]:
        """Several."""

    def json_argument(self, node: Any) -> Expression:
        """A value in a JSON constructor, which may be JSON(...)."""

    def call(self, node: Any, function: str, *arguments: Expression) -> Expression:
        """A call of a built-in function."""


def resolve(function: str, arguments: Sequence[Expression]) -> Expression:
    """A call of a built-in function; ProgramError lists the signatures that exist."""
    found = resolve_call(_NAMES.get(function, function), *arguments)
    check_constants(function, arguments)
    return found


def is_known(name: str) -> bool:
    """Return whether there is a built-in scalar function of that name, or an aggregate."""
    return find_function(name) is not None


def is_aggregate(name: str) -> bool:
    """Return whether it is a built-in aggregate."""
    return name in AGGREGATES


def names() -> list[str]:
    """All built-in functions, for suggestions."""
    return list(built_in_functions())


def cast(operand: Expression, target: lt.LogicalType, *, safe: bool = False) -> Expression:
    """CAST, or TRY_CAST.

    Raises:
        ProgramError: there is no such cast.
    """
    name = "TRY_CAST" if safe else "CAST"
    if not supports_explicit_cast(operand.type, target):
        shown = operand.type.as_summary_string(), target.as_summary_string()
        message = f"{name} from {shown[0]} to {shown[1]} is not possible."
        raise ProgramError(message)
    from millstream.expressions.nodes import Call

    nullable = True if safe else operand.type.is_nullable
    wanted = target.with_nullability(nullable)
    if isinstance(operand, Literal) and operand.value is None:
        return Literal(None, wanted)
    if operand.type == wanted:
        return operand
    return Call(name, (operand,), wanted)


def coerced(operand: Expression, target: lt.LogicalType) -> Expression | None:
    """The operand as a value of another type, by an implicit cast; None if there is none.

    Whether the target takes NULL is not looked at: sinks check that row by row.
    """
    wanted = target.with_nullability(operand.type.is_nullable)
    if operand.type == wanted or needs_no_cast(operand.type, wanted):
        return operand if operand.type == wanted else implicit_cast(operand, wanted)
    if not supports_implicit_cast(operand.type, wanted):
        return None
    return implicit_cast(operand, wanted)


def field(operand: Expression, position: int) -> Expression:
    """A field of a row."""
    from millstream.expressions.nodes import Call

    row: lt.RowType = operand.type  # type: ignore[assignment]
    found = row.fields[position]
    kind = found.type.with_nullability(found.type.is_nullable or operand.type.is_nullable)
    number = Literal(position, lt.IntType(nullable=False))
    return Call("GET", (operand, number), kind)


def user_function(context: BindingContext, node: Any) -> CatalogFunction | None:
    """Return the user's function that a call by name resolves to; None: built-in, or unknown.

    A simple name is looked up as in Flink: temporary system functions, built-in functions,
    temporary functions of the current database, permanent ones.  A name with a database before it
    is looked up there, temporary functions first.
    """
    names = node.name.names
    if len(names) > 1:
        return context.catalogs.find_function(names)
    word = names[0].upper()
    if word in _BY_GRAMMAR and not node.name.parts[0].quoted:
        return None
    system = context.catalogs.system_function(word)
    if system is not None or is_known(word):
        return system
    return context.catalogs.find_function(names)


def user_call(
    context: BindingContext,
    node: Node,
    function: CatalogFunction,
    arguments: Sequence[Expression],
    *,
    table: bool = False,
) -> Expression:
    """A call of a function of the user.

    Raises:
        ValidationError: it is no scalar function, or the arguments do not fit.
    """
    definition = user_definition(context, node, function)
    return inline_call(context, node, definition, arguments, table=table)


def user_definition(
    context: BindingContext, node: Node, function: CatalogFunction
) -> FunctionDefinition:
    """Return what a function of a catalog is.

    Raises:
        ValidationError: it is not in Python, cannot be imported, or is no function for tables.
    """
    definition = function.implementation
    if function.language != "PYTHON":
        message = (
            f"Function {definition} is in {function.language}, and only functions in Python can be "
            "called; alter it to name a function made by udf()."
        )
        raise context.error(node, message)
    if isinstance(definition, str):
        definition = _imported(context, node, definition)
    definition = getattr(definition, "definition", definition)
    if not isinstance(definition, FunctionDefinition):
        message = f"{function.implementation!r} is no function made by udf()."
        raise context.error(node, message)
    return definition


def user_name(definition: FunctionDefinition) -> str:
    """Return the name of a user's function in plans, which no built-in function has."""
    taken = is_aggregate(definition.name.upper()) or definition.name in built_in_functions()
    return f"{definition.name}$user" if taken else definition.name


def aggregate_of(context: BindingContext, node: Any) -> FunctionDefinition | None:
    """The aggregate function of a user that a call calls; None: it calls something else."""
    found: FunctionDefinition | None = None
    if isinstance(node, InlineCall):
        found = node.definition
    else:
        function = user_function(context, node)
        found = None if function is None else user_definition(context, node, function)
    return found if found is not None and found.kind is FunctionKind.AGGREGATE else None


def inline_call(
    context: BindingContext,
    node: Node,
    definition: FunctionDefinition,
    arguments: Sequence[Expression],
    *,
    table: bool = False,
) -> Expression:
    """A call of a function of the user that is at hand.

    Raises:
        ValidationError: it is of another kind, or the arguments do not fit.
    """
    if definition.kind is FunctionKind.AGGREGATE:
        raise context.error(node, f"Aggregate {definition.name} cannot stand here.")
    if (definition.kind is FunctionKind.TABLE) != table:
        what = "no table function" if table else "a table function: LATERAL TABLE(...) takes it"
        raise context.error(node, f"{definition.name} is {what}.")
    # To the evaluator a table function is one that gives an array.
    definition = replace(definition, kind=FunctionKind.SCALAR, name=user_name(definition))
    try:
        return resolve_definition(definition, arguments, user=True)
    except ProgramError as error:
        raise context.error(node, str(error)) from error


def _imported(context: BindingContext, node: Node, path: str) -> object:
    """Return what ``CREATE FUNCTION ... AS 'module.name'`` names."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"There is no function '{path}': {error}."
        raise context.error(node, message) from error


def _called(binder: Binds, node: Any, call: Callable[[], Expression]) -> Expression:
    try:
        return call()
    except MillstreamError as error:
        raise binder.context.error(node, str(error)) from error


def _kind(behaviour: Any, default: str) -> str:
    return default if behaviour is None else behaviour.kind


def _default(binder: Binds, behaviour: Any, node: Any) -> Expression | None:
    if behaviour is None or behaviour.default is None:
        return None
    found = binder.bind(behaviour.default)
    target = node.returning or lt.VarCharType()
    if target.is_a(TypeFamily.CHARACTER_STRING) or supports_implicit_cast(found.type, target):
        return found
    one, other = found.type.as_summary_string(), target.as_summary_string()
    raise binder.context.error(behaviour.default, f"The default is {one} and must be {other}.")


def json_exists(binder: Binds, node: Any) -> Expression:
    """``JSON_EXISTS``, with what it gives for an error."""
    operand, path = binder.bind(node.operand), binder.bind(node.path)
    on_error = _kind(node.on_error, "FALSE")
    return _called(binder, node, lambda: resolution.json_exists(operand, path, on_error))


def json_value(binder: Binds, node: Any) -> Expression:
    """``JSON_VALUE`` with RETURNING, ON EMPTY and ON ERROR."""
    operand, path = binder.bind(node.operand), binder.bind(node.path)
    empty, error = node.on_empty, node.on_error
    defaults = _default(binder, empty, node), _default(binder, error, node)
    return _called(
        binder,
        node,
        lambda: resolution.json_value(
            operand,
            path,
            returning=node.returning,
            on_empty=_kind(empty, "NULL"),
            default_on_empty=defaults[0],
            on_error=_kind(error, "NULL"),
            default_on_error=defaults[1],
        ),
    )


def json_query(binder: Binds, node: Any) -> Expression:
    """``JSON_QUERY`` with RETURNING, a wrapper, ON EMPTY and ON ERROR."""
    operand, path = binder.bind(node.operand), binder.bind(node.path)
    return _called(
        binder,
        node,
        lambda: resolution.json_query(
            operand,
            path,
            returning=node.returning,
            wrapper=node.wrapper or "WITHOUT",
            on_empty=_kind(node.on_empty, "NULL"),
            on_error=_kind(node.on_error, "NULL"),
        ),
    )


def json_object(binder: Binds, node: Any) -> Expression:
    """``JSON_OBJECT``."""
    pairs = [(binder.bind(key), binder.json_argument(value)) for key, value in node.entries]
    on_null = "ABSENT" if node.absent_on_null else "NULL"
    return _called(binder, node, lambda: resolution.json_object(pairs, on_null))


def json_array(binder: Binds, node: Any) -> Expression:
    """``JSON_ARRAY``."""
    values = [binder.json_argument(each) for each in node.elements]
    on_null = "NULL" if node.absent_on_null is False else "ABSENT"
    return _called(binder, node, lambda: resolution.json_array(values, on_null))
