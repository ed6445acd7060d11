"""Sub-queries that name columns of the query around them, as joins.

What it is: conditions on outer columns are taken out of a plan, up to where they become the
condition of a join.  What they compare goes up with them: through projections; as keys, through
groups, DISTINCT and the first rows of an order; through sub-queries of the sub-query by equalities.
What it is not: a general unnesting; a correlation elsewhere stays, and is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.expressions.nodes import Call, InputReference, Literal, transform, walk
from millstream.sql.binder import calls
from millstream.sql.binder.scope import OuterReference
from millstream.sql.planner.logical import (
    AggregateCall,
    AggregateNode,
    DistinctNode,
    FilterNode,
    JoinNode,
    JoinType,
    LimitNode,
    OverCall,
    OverNode,
    ProjectNode,
    references,
    row_of,
)
from millstream.types.logical_types import BigIntType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.queries import QueryBinder
    from millstream.sql.parser.expression_nodes import Node
    from millstream.sql.planner.logical import LogicalNode


def all_of(conditions: Sequence[Expression]) -> Expression | None:
    """The conditions, connected by AND."""
    found: Expression | None = None
    for each in conditions:
        found = each if found is None else calls.resolve("AND", [found, each])
    return found


def from_inside(column: OuterReference) -> InputReference | OuterReference:
    """A column that a sub-query names, as the query around that names it."""
    if column.level > 1:
        return replace(column, level=column.level - 1)
    return InputReference(column.index, column.name, column.type)


def joined(expression: Expression, width: int) -> Expression:
    """A condition over the sub-query's columns and outer ones, as one over the join's."""

    def change(each: Any) -> Any:
        if isinstance(each, OuterReference):
            return from_inside(each)
        if isinstance(each, InputReference):
            return InputReference(each.index + width, each.name, each.type)
        return each

    return transform(expression, change)


def is_outer(expression: Expression) -> bool:
    """Whether an expression names columns of a query around."""
    return any(isinstance(each, OuterReference) for each in walk(expression))


def mentions_outer(plan: LogicalNode) -> bool:
    """Whether a plan names columns of a query around."""
    own: list[Expression] = []
    if isinstance(plan, ProjectNode):
        own += plan.expressions
    elif isinstance(plan, FilterNode | JoinNode) and plan.condition is not None:
        own.append(plan.condition)
    return any(map(is_outer, own)) or any(map(mentions_outer, plan.inputs))


def pulled(
    queries: QueryBinder, plan: LogicalNode, node: Node
) -> tuple[LogicalNode, list[Expression]]:
    """The plan without conditions on outer columns, and these over its columns.

    The columns of the plan stay in front; there may be others behind them.

    Raises:
        ValidationError: it names outer columns elsewhere.
    """
    if isinstance(plan, AggregateNode):
        # If it has no keys, the callers know of its row over nothing: none comes out of the join.
        below, found = _pull(plan.input)
        plan, found = _pull_aggregate(plan, below, found) if found else (plan, found)
    else:
        plan, found = _pull(plan)
    if mentions_outer(plan):
        message = (
            "A sub-query can name columns of the query around it only in its WHERE and ON, and "
            "below an aggregate, DISTINCT or LIMIT only in equalities of what it has with what the "
            "query around has; a sub-query of its own only so, and not below NOT, nor below an "
            "aggregate of all rows that is not its last step."
        )
        raise queries.context.error(node, message)
    return plan, found


def _pull(plan: LogicalNode) -> tuple[LogicalNode, list[Expression]]:
    if isinstance(plan, FilterNode):
        below, found = _pull(plan.input)
        kept, own = _sorted(plan.condition)
        if kept is None:
            return below, [*found, *own]
        return FilterNode(row=below.row, input=below, condition=kept), [*found, *own]
    if isinstance(plan, JoinNode):
        return _pull_join(plan)
    change = _PULLED.get(type(plan))
    if change is None or (isinstance(plan, AggregateNode) and not plan.keys):
        return plan, []
    below, found = _pull(plan.inputs[0])
    return change(plan, below, found) if found else (plan, found)


def _sorted(condition: Expression | None) -> tuple[Expression | None, list[Expression]]:
    """What a condition says of the sub-query alone, and the parts on outer columns."""
    parts = [] if condition is None else list(_conjuncts(condition))
    kept = all_of([each for each in parts if not is_outer(each)])
    return kept, [each for each in parts if is_outer(each)]


def _conjuncts(expression: Expression) -> list[Expression]:
    if isinstance(expression, Call) and expression.function == "AND":
        return [part for each in expression.arguments for part in _conjuncts(each)]
    return [expression]


def _inner_columns(found: Sequence[Expression]) -> list[InputReference]:
    columns = [each for part in found for each in walk(part) if isinstance(each, InputReference)]
    return list(dict.fromkeys(columns))


def _moved(expression: Expression, places: dict[int, int]) -> Expression:
    def change(each: Any) -> Any:
        if isinstance(each, InputReference):
            return replace(each, index=places[each.index])
        return each

    return transform(expression, change)


# -- joins ---------------------------------------------------------------------------------------


def _pull_join(plan: JoinNode) -> tuple[LogicalNode, list[Expression]]:
    kept, own = _sorted(plan.condition)
    if plan.kind is JoinType.INNER and own:
        return replace(plan, condition=kept), own
    if plan.kind is JoinType.SEMI and own:
        return _pull_semi(plan)
    if own or not (plan.kind.left_only or plan.kind is JoinType.LEFT):
        return plan, []
    # A sub-query of its own: rows of the left may as well be filtered behind it.
    below, found = _pull(plan.left)
    if found and len(below.row) == len(plan.left.row):
        return replace(plan, left=below), found
    return plan, []


def _pull_semi(plan: JoinNode) -> tuple[LogicalNode, list[Expression]]:
    """A sub-query of the sub-query that names the query around both, as an inner join.

    Its rows are those of different values of what is compared: where all are equalities, a row of
    the left meets at most one of them for each row of the query around.
    """
    assert plan.condition is not None  # noqa: S101 - it has outer columns
    width = len(plan.left.row)
    parts = _conjuncts(plan.condition)
    sides = [_of_right(each, width) for each in parts]
    if None in sides:
        return plan, []
    left, found = _pull(plan.left)
    columns = list(references(left.row))[:width]
    values: list[Expression] = []
    conditions = []
    for part, side in zip(parts, sides, strict=True):
        assert side is not None and isinstance(part, Call)  # noqa: S101, PT018 - checked above
        own, value = side
        if value not in values:
            values.append(value)
        place = len(left.row) + values.index(value)
        arguments = list(part.arguments)
        arguments[own] = InputReference(place, f"$s{place}", value.type)
        conditions.append(replace(part, arguments=tuple(arguments)))
    names = [f"$s{len(left.row) + number}" for number in range(len(values))]
    of_right = row_of(names, [each.type for each in values])
    distinct = DistinctNode(
        row=of_right, input=ProjectNode(row=of_right, input=plan.right, expressions=tuple(values))
    )
    assert len(columns) == width  # noqa: S101 - the columns of the left stay in front
    row = row_of([*left.row.names, *names], [*left.row.children, *of_right.children])
    kept = all_of([each for each in conditions if not is_outer(each)])
    made = JoinNode(row=row, left=left, right=distinct, kind=JoinType.INNER, condition=kept)
    return made, [*found, *(each for each in conditions if is_outer(each))]


def _of_right(condition: Expression, width: int) -> tuple[int, Expression] | None:
    """Which argument of an equality is of the right of a join alone, and that as its expression."""
    if not isinstance(condition, Call) or condition.function != "=":
        return None
    for own in (0, 1):
        value, other = condition.arguments[own], condition.arguments[1 - own]
        columns = [each.index for each in walk(value) if isinstance(each, InputReference)]
        others = [each.index for each in walk(other) if isinstance(each, InputReference)]
        if columns and min(columns) >= width and not is_outer(value):
            if any(each >= width for each in others):
                return None
            return own, _moved(value, {each: each - width for each in columns})
    return None


# -- projections, groups, first rows -------------------------------------------------------------


def _pull_project(
    plan: Any, below: LogicalNode, found: list[Expression]
) -> tuple[LogicalNode, list[Expression]]:
    expressions, names = list(plan.expressions), list(plan.row.names)
    places: dict[int, int] = {}
    for column in _inner_columns(found):
        if column not in expressions:
            expressions.append(column)
            names.append(column.name)
        places[column.index] = expressions.index(column)
    row = row_of(names, [each.type for each in expressions])
    made = ProjectNode(row=row, input=below, expressions=tuple(expressions))
    return made, [_moved(each, places) for each in found]


def _pull_distinct(
    plan: Any, below: LogicalNode, found: list[Expression]
) -> tuple[LogicalNode, list[Expression]]:
    width = len(plan.row)
    valued = _with_values(below, found)
    if valued is None:  # a row may come several times, which joins must not mind
        return replace(plan, row=below.row, input=below), found
    # What is compared, not what it is made of: several columns may make one value.
    below, places = valued
    kept = [*range(width), *dict.fromkeys(at for _, _, at in places if at >= width)]
    shown = [references(below.row)[at] for at in kept]
    row = row_of([each.name for each in shown], [each.type for each in shown])
    made = ProjectNode(row=row, input=below, expressions=tuple(shown))
    columns = references(row)
    return replace(plan, row=row, input=made), [
        _with_argument(condition, own, columns[kept.index(at)]) for condition, own, at in places
    ]


def has_repeated(plan: LogicalNode, found: Sequence[Expression]) -> bool:
    """Whether rows come several times where conditions were pulled out of DISTINCT."""
    while isinstance(plan, ProjectNode | FilterNode):
        plan = plan.input
    return isinstance(plan, DistinctNode) and any(_sides(each) is None for each in found)


def _sides(condition: Expression) -> tuple[int, Expression] | None:
    """Which argument of an equality is of the sub-query alone, and that; None: it is another."""
    if not isinstance(condition, Call) or condition.function != "=":
        return None
    outer = [is_outer(each) for each in condition.arguments]
    if outer == [True, True]:
        return None
    own = outer.index(False)
    other = condition.arguments[1 - own]
    if any(isinstance(each, InputReference) for each in walk(other)):
        return None
    return own, condition.arguments[own]


def _with_values(
    below: LogicalNode, found: Sequence[Expression]
) -> tuple[LogicalNode, list[tuple[Call, int, int]]] | None:
    """The plan with columns of what is equal to outer values, and for each condition which it is.

    None: a condition is no such equality.
    """
    columns: list[Expression] = list(references(below.row))
    names = list(below.row.names)
    places = []
    for each in found:
        sides = _sides(each)
        if sides is None or not isinstance(each, Call):
            return None
        own, value = sides
        if value not in columns:
            columns.append(value)
            names.append(f"$k{len(columns)}")
        places.append((each, own, columns.index(value)))
    if len(columns) > len(below.row):
        wide = row_of(names, [each.type for each in columns])
        below = ProjectNode(row=wide, input=below, expressions=tuple(columns))
    return below, places


def _with_argument(condition: Call, own: int, value: Expression) -> Expression:
    arguments = list(condition.arguments)
    arguments[own] = value
    return replace(condition, arguments=tuple(arguments))


def _pull_aggregate(
    plan: Any, below: LogicalNode, found: list[Expression]
) -> tuple[LogicalNode, list[Expression]]:
    """Group by the correlated values too; the columns of the plan stay in front."""
    valued = None if plan.sets is not None or plan.groupings else _with_values(below, found)
    if valued is None:
        return plan, []  # left where it is, and so refused
    below, places = valued
    keys = [*plan.keys, *dict.fromkeys(at for _, _, at in places if at not in plan.keys)]
    key_fields = [below.row.fields[key] for key in keys]
    row = row_of(
        [*(each.name for each in key_fields), *plan.row.names[len(plan.keys) :]],
        [*(each.type for each in key_fields), *(call.type for call in plan.calls)],
    )
    grouped = AggregateNode(row=row, input=below, keys=tuple(keys), calls=plan.calls)
    count = len(plan.keys)
    order = [*range(count), *range(len(keys), len(row)), *range(count, len(keys))]
    shown = [references(row)[index] for index in order]
    made = ProjectNode(
        row=row_of([each.name for each in shown], [each.type for each in shown]),
        input=grouped,
        expressions=tuple(shown),
    )
    columns = references(made.row)
    return made, [
        _with_argument(condition, own, columns[order.index(keys.index(at))])
        for condition, own, at in places
    ]


def _pull_limit(
    plan: Any, below: LogicalNode, found: list[Expression]
) -> tuple[LogicalNode, list[Expression]]:
    """The first rows for each of the correlated values, by their number."""
    valued = _with_values(below, found) if plan.order and plan.limit else None
    if valued is None:
        return plan, []
    below, places = valued
    number = BigIntType(nullable=False)
    call = OverCall(AggregateCall("ROW_NUMBER", (), number), is_rows=False, preceding=None)
    partition = tuple(dict.fromkeys(at for _, _, at in places))
    row = row_of([*below.row.names, "$n"], [*below.row.children, number])
    numbered = OverNode(row=row, input=below, partition=partition, order=plan.order, calls=(call,))
    column = references(row)[-1]
    last = Literal(plan.offset + plan.limit, number)
    conditions = [calls.resolve("<=", [column, last])]
    if plan.offset:
        conditions.append(calls.resolve(">", [column, Literal(plan.offset, number)]))
    condition = all_of(conditions)
    assert condition is not None  # noqa: S101 - there is one at least
    first = FilterNode(row=row, input=numbered, condition=condition)
    columns = references(below.row)
    made = ProjectNode(row=below.row, input=first, expressions=tuple(columns))
    return made, [_with_argument(each, own, columns[at]) for each, own, at in places]


_PULLED: Any = {
    ProjectNode: _pull_project,
    DistinctNode: _pull_distinct,
    AggregateNode: _pull_aggregate,
    LimitNode: _pull_limit,
}
