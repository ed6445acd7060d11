"""Calls: from the words of the parser to functions of the registry.

What it is: the one place where the binder makes calls: of built-in functions, casts, fields of
rows, functions of users, JSON functions with their clauses.
What it is not: the functions (``expressions/functions/``), nor aggregates
(``sql/binder/aggregates.py``).
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.errors import ProgramError
from millstream.expressions.functions.definition import FunctionDefinition, FunctionKind
from millstream.expressions.functions.registry import built_in_functions, find_function
from millstream.expressions.nodes import Literal
from millstream.expressions.resolution import cast as implicit_cast
from millstream.expressions.resolution import resolve_call, resolve_definition
from millstream.sql.binder.aggregates import AGGREGATES
from millstream.sql.binder.constant_checks import check_constants
from millstream.sql.binder.inline_calls import InlineCall
from millstream.types.logical_types import IntType
from millstream.types.type_derivation import (
    needs_no_cast,
    supports_explicit_cast,
    supports_implicit_cast,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.context import BindingContext
    from millstream.sql.catalog.objects import CatalogFunction
    from millstream.sql.parser.syntax import Node
    from millstream.types.logical_types import LogicalType, RowType

__all__ = [
    "NILADIC",
    "aggregate_of",
    "cast",
    "coerced",
    "field",
    "inline_call",
    "is_aggregate",
    "is_known",
    "names",
    "resolve",
    "user_call",
    "user_definition",
    "user_function",
    "user_name",
]

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
    """What clauses of calls need of the binder of expressions."""

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
    """Whether there is a built-in scalar function of that name, or an aggregate."""
    return find_function(name) is not None


def is_aggregate(name: str) -> bool:
    """Whether it is a built-in aggregate."""
    return name in AGGREGATES


def names() -> list[str]:
    """All built-in functions, for suggestions."""
    return list(built_in_functions())


def cast(operand: Expression, target: LogicalType, *, safe: bool = False) -> Expression:
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


def coerced(operand: Expression, target: LogicalType) -> Expression | None:
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

    row: RowType = operand.type  # type: ignore[assignment]
    found = row.fields[position]
    kind = found.type.with_nullability(found.type.is_nullable or operand.type.is_nullable)
    number = Literal(position, IntType(nullable=False))
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
    """What a function of a catalog is.

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
    """What ``CREATE FUNCTION ... AS 'module.name'`` names."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"There is no function '{path}': {error}."
        raise context.error(node, message) from error
