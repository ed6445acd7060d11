"""Table functions joined to the rows of a table: calls as right sides of lateral joins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.expressions.functions.definition import FunctionDefinition, FunctionKind
from millstream.expressions.user_functions import one_row_definition, user_aggregate
from millstream.sql.binder.calls import InlineCall, user_definition, user_function
from millstream.sql.parser import nodes
from millstream.table.expression import Expression
from millstream.types.logical_types import ArrayType, RowType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.binder.scope import BindingContext
    from millstream.types.logical_types import LogicalType


#: The column of what an aggregate function gives, before it has names.
RESULT: Final = "$result"


def column_named(name: str, columns: Sequence[str]) -> Expression:
    """A column of a table that is asked for as an attribute.

    Raises:
        AttributeError: there is none of that name.
    """
    if name not in columns:
        message = f"The current table has no column named '{name}', it has: {', '.join(columns)}"
        raise AttributeError(message)
    return Expression(nodes.identifier(name))


def lateral(call: Any) -> Any:
    """The relation of a table function's call.

    Raises:
        ProgramError: it is no call.
    """
    node = getattr(call, "node", None)
    if not isinstance(node, nodes.FunctionCall | InlineCall):
        message = "a lateral join takes a call of a table function: split(col('a')).alias('b')"
        raise ProgramError(message)
    function = nodes.TableFunction(node, lateral=True)  # type: ignore[arg-type] # no name
    if not call.names:
        return function
    columns = tuple(nodes.Name(each) for each in call.names)
    return nodes.AliasedRelation(function, nodes.Name("$lateral"), columns)


def with_definition(function: Any, context: BindingContext) -> Any:
    """Return a call of a registered function by its name as one of the function itself.

    Anything else stays as it is, calls of built-in functions among it.

    Raises:
        ValidationError: the function cannot be called.
    """
    node = getattr(function, "node", None)
    if not isinstance(node, nodes.FunctionCall):
        return function
    found = user_function(context, node)
    if found is None:
        return function
    definition = user_definition(context, node, found)
    return Expression(InlineCall(definition, node.arguments, node.distinct), *function.names)


def rows_of(function: Any, row: RowType) -> Expression:
    """A call of a table function; of a function alone, on the whole row."""
    if isinstance(function, Expression):
        return function
    definition = _definition(function, FunctionKind.TABLE, "this takes what udtf() makes")
    return Expression(InlineCall(definition, (_whole(row),)), *function.names)


def one_row_of(function: Any, row: RowType) -> Expression:
    """A call of a scalar function that gives rows, as one of a table function."""
    if isinstance(function, Expression):
        node = function.node
        if not isinstance(node, InlineCall):
            message = "map() takes a call of what udf() makes"
            raise ProgramError(message)
        made = InlineCall(one_row_definition(node.definition), node.arguments)
        return Expression(made, *function.names)
    definition = _definition(function, FunctionKind.SCALAR, "map() takes what udf() makes")
    made = InlineCall(one_row_definition(definition, is_whole=True), (_whole(row),))
    return Expression(made, *function.names)


def _definition(function: Any, kind: FunctionKind, what: str) -> FunctionDefinition:
    found = getattr(function, "definition", None)
    if not isinstance(found, FunctionDefinition) or found.kind is not kind:
        raise ProgramError(what)
    return found


def _whole(row: RowType) -> nodes.Cast:
    """The columns as one row, with their names."""
    columns = tuple(nodes.identifier(name) for name in row.names)
    return nodes.Cast(nodes.RowConstructor(columns), row)


def result_names(call: Expression) -> list[str]:
    """The names of the columns that a function gives by itself.

    Raises:
        ProgramError: the call says nothing of them.
    """
    definition = getattr(call.node, "definition", None)
    if definition is None:
        message = "flat_map() of a function by its name needs alias() with names of the columns"
        raise ProgramError(message)
    (signature,) = definition.signatures
    return list(_row(signature.result((), ())).names)


def _row(kind: LogicalType | Any) -> RowType:
    element = kind.element if isinstance(kind, ArrayType) else kind
    if not isinstance(element, RowType):
        message = f"a function of rows gives {element}"
        raise ProgramError(message)
    return element


# -- aggregates ------------------------------------------------------------------------------------


def aggregate_of(function: Any, row: RowType, *, rows: bool = False) -> Expression:
    """A call of an aggregate function; of a function alone, on the whole row.

    Raises:
        ProgramError: it is none, or gives a value where rows are wanted, or the other way round.
    """
    word = "flat_aggregate() takes what udtaf() makes" if rows else "aggregate() takes what udaf()"
    if isinstance(function, Expression):
        definition: Any = getattr(function.node, "definition", None)
        if isinstance(function.node, nodes.FunctionCall) and not rows:
            return function
    else:
        definition = getattr(function, "definition", None)
    made = definition is not None and definition.kind is FunctionKind.AGGREGATE
    if not made or user_aggregate(definition).gives_rows is not rows:
        raise ProgramError(word)
    if isinstance(function, Expression):
        return function
    taking = replace(definition, reference=replace(user_aggregate(definition), is_whole=True))
    return Expression(InlineCall(taking, (_whole(row),)), *function.names)


def result_items(row: RowType, call: Expression) -> tuple[nodes.SelectItem, ...]:
    """The keys, and the result of an aggregate function: a column, or those of a row.

    Raises:
        ProgramError: there are more or fewer names than columns.
    """
    kind = row.fields[-1].type
    result = nodes.identifier(RESULT)
    values: list[Any] = [result]
    own = ["f0"]
    if isinstance(kind, RowType):
        own = list(kind.names)
        values = [nodes.FieldAccess(result, nodes.Name(name)) for name in own]
    names = _names(call, own)
    keys = [nodes.SelectItem(nodes.identifier(each), nodes.Name(each)) for each in row.names[:-1]]
    results = [
        nodes.SelectItem(value, nodes.Name(name)) for value, name in zip(values, names, strict=True)
    ]
    return (*keys, *results)


def unnested(row: RowType, call: Expression) -> Any:
    """The query of keys and rows over keys and arrays of rows."""
    names = _names(call, list(_row(row.fields[-1].type).names))
    keys = [nodes.identifier(each) for each in row.names[:-1]]
    items = tuple(
        nodes.SelectItem(each, nodes.Name(each.last))
        for each in (*keys, *(nodes.identifier(name) for name in names))
    )
    rows = nodes.AliasedRelation(
        nodes.Unnest((nodes.identifier(RESULT),)),
        nodes.Name("$rows"),
        tuple(nodes.Name(name) for name in names),
    )
    return lambda source: nodes.Select(
        items=items, source=nodes.Join(source, rows, nodes.JoinKind.CROSS)
    )


def _names(call: Expression, own: list[str]) -> list[str]:
    names = list(call.names) or own
    if len(names) != len(own):
        message = f"the function gives {len(own)} columns, not {len(names)}: {', '.join(names)}"
        raise ProgramError(message)
    return names
