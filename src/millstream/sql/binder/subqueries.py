"""Sub-queries as joins: scalar sub-queries, IN, EXISTS and quantified comparisons.

A sub-query in WHERE becomes a semi or anti join.  Elsewhere it becomes a plan of one row, or one
row per set of correlated values, that is joined to the outer query; its value is an expression over
the joined columns.  IN and ``> ANY`` count the rows to compare with, so that they are UNKNOWN where
SQL requires it.

Decorrelation: conditions on outer columns are taken out of the sub-query's plan, up to where they
become the condition of a join.  The columns that they compare are added to the plan on the way:
through projections; as keys, through groups, DISTINCT and Top-N; through nested sub-queries by
equalities.  A correlation in any other place is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.nodes import Call, InputReference, Literal, transform, walk
from millstream.runtime.operators.table.specs import AggregateCall
from millstream.sql.binder import calls
from millstream.sql.binder.calls import Placeholder, aggregate_type, plain_type
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.scope import OuterReference
from millstream.sql.parser import nodes
from millstream.sql.planner import logical as lp
from millstream.sql.planner import physical as pp
from millstream.sql.planner.calcs import conjuncts, moved, substituted
from millstream.types.logical_types import BigIntType, BooleanType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.queries import QueryBinder
    from millstream.sql.binder.scope import Scope
    from millstream.sql.parser.nodes import Node


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
    """Return whether an expression names columns of a query around."""
    return any(isinstance(each, OuterReference) for each in walk(expression))


def mentions_outer(plan: lp.LogicalNode) -> bool:
    """Return whether a plan names columns of a query around."""
    own: list[Expression] = []
    if isinstance(plan, lp.ProjectNode):
        own += plan.expressions
    elif isinstance(plan, lp.FilterNode | lp.JoinNode) and plan.condition is not None:
        own.append(plan.condition)
    return any(map(is_outer, own)) or any(map(mentions_outer, plan.inputs))


def pulled(
    queries: QueryBinder, plan: lp.LogicalNode, node: Node
) -> tuple[lp.LogicalNode, list[Expression]]:
    """The plan without conditions on outer columns, and these over its columns.

    The columns of the plan stay in front; there may be others behind them.

    Raises:
        ValidationError: it names outer columns elsewhere.
    """
    if isinstance(plan, lp.AggregateNode):
        # If it has no keys, the callers know of its row over nothing: none comes out of the join.
        below, found = _pull(plan.input)
        plan, found = _pull_aggregate(plan, below, found) if found else (plan, found)
    else:
        plan, found = _pull(plan)
    if mentions_outer(plan):
        message = (
            "A sub-query can name columns of the query around it only in its WHERE and ON, and "
            "below an aggregate, DISTINCT or LIMIT only in equalities of what it has with what the "
            "query around has; a separate sub-query only so, and not below NOT, nor below an "
            "aggregate of all rows that is not its last step."
        )
        raise queries.context.error(node, message)
    return plan, found


def _pull(plan: lp.LogicalNode) -> tuple[lp.LogicalNode, list[Expression]]:
    if isinstance(plan, lp.FilterNode):
        below, found = _pull(plan.input)
        kept, own = _sorted(plan.condition)
        if kept is None:
            return below, [*found, *own]
        return lp.FilterNode(row=below.row, input=below, condition=kept), [*found, *own]
    if isinstance(plan, lp.JoinNode):
        return _pull_join(plan)
    change = _PULLED.get(type(plan))
    if change is None or (isinstance(plan, lp.AggregateNode) and not plan.keys):
        return plan, []
    below, found = _pull(plan.inputs[0])
    return change(plan, below, found) if found else (plan, found)


def _sorted(condition: Expression | None) -> tuple[Expression | None, list[Expression]]:
    """Return what a condition says of the sub-query alone, and the parts on outer columns."""
    parts = conjuncts(condition)
    kept = all_of([each for each in parts if not is_outer(each)])
    return kept, [each for each in parts if is_outer(each)]


def _inner_columns(found: Sequence[Expression]) -> list[InputReference]:
    columns = [each for part in found for each in walk(part) if isinstance(each, InputReference)]
    return list(dict.fromkeys(columns))


# -- joins ---------------------------------------------------------------------------------------


def _pull_join(plan: lp.JoinNode) -> tuple[lp.LogicalNode, list[Expression]]:
    kept, own = _sorted(plan.condition)
    if plan.kind is lp.JoinType.INNER and own:
        return replace(plan, condition=kept), own
    if plan.kind is lp.JoinType.SEMI and own:
        return _pull_semi(plan)
    if own or not (plan.kind.left_only or plan.kind is lp.JoinType.LEFT):
        return plan, []
    # A sub-query of its own: rows of the left may as well be filtered behind it.
    below, found = _pull(plan.left)
    if found and len(below.row) == len(plan.left.row):
        return replace(plan, left=below), found
    return plan, []


def _pull_semi(plan: lp.JoinNode) -> tuple[lp.LogicalNode, list[Expression]]:
    """A sub-query of the sub-query that names the query around both, as an inner join.

    Its rows are those of different values of what is compared: where all are equalities, a row of
    the left meets at most one of them for each row of the query around.
    """
    assert plan.condition is not None  # noqa: S101 - it has outer columns
    width = len(plan.left.row)
    parts = conjuncts(plan.condition)
    sides = [_of_right(each, width) for each in parts]
    if None in sides:
        return plan, []
    left, found = _pull(plan.left)
    columns = list(lp.references(left.row))[:width]
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
    of_right = lp.row_of(names, [each.type for each in values])
    distinct = lp.DistinctNode(
        row=of_right,
        input=lp.ProjectNode(row=of_right, input=plan.right, expressions=tuple(values)),
    )
    assert len(columns) == width  # noqa: S101 - the columns of the left stay in front
    row = lp.row_of([*left.row.names, *names], [*left.row.children, *of_right.children])
    kept = all_of([each for each in conditions if not is_outer(each)])
    made = lp.JoinNode(row=row, left=left, right=distinct, kind=lp.JoinType.INNER, condition=kept)
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
            return own, moved(value, -width)
    return None


# -- projections, groups, first rows -------------------------------------------------------------


def _pull_project(
    plan: Any, below: lp.LogicalNode, found: list[Expression]
) -> tuple[lp.LogicalNode, list[Expression]]:
    expressions, names = list(plan.expressions), list(plan.row.names)
    places: dict[int, int] = {}
    for column in _inner_columns(found):
        if column not in expressions:
            expressions.append(column)
            names.append(column.name)
        places[column.index] = expressions.index(column)
    made = lp.project(below, expressions, names)
    return made, [pp.with_columns(each, places.__getitem__) for each in found]


def _pull_distinct(
    plan: Any, below: lp.LogicalNode, found: list[Expression]
) -> tuple[lp.LogicalNode, list[Expression]]:
    width = len(plan.row)
    valued = _with_values(below, found)
    if valued is None:  # a row may come several times, which joins must not mind
        return replace(plan, row=below.row, input=below), found
    # What is compared, not what it is made of: several columns may make one value.
    below, places = valued
    kept = [*range(width), *dict.fromkeys(at for _, _, at in places if at >= width)]
    shown = [lp.references(below.row)[at] for at in kept]
    made = lp.project(below, shown, [each.name for each in shown])
    columns = lp.references(made.row)
    return replace(plan, row=made.row, input=made), [
        _with_argument(condition, own, columns[kept.index(at)]) for condition, own, at in places
    ]


def has_repeated(plan: lp.LogicalNode, found: Sequence[Expression]) -> bool:
    """Return whether rows come several times where conditions were pulled out of DISTINCT."""
    while isinstance(plan, lp.ProjectNode | lp.FilterNode):
        plan = plan.input
    return isinstance(plan, lp.DistinctNode) and any(_sides(each) is None for each in found)


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
    below: lp.LogicalNode, found: Sequence[Expression]
) -> tuple[lp.LogicalNode, list[tuple[Call, int, int]]] | None:
    """The plan with columns of what is equal to outer values, and for each condition which it is.

    None: a condition is no such equality.
    """
    columns: list[Expression] = list(lp.references(below.row))
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
        below = lp.project(below, columns, names)
    return below, places


def _with_argument(condition: Call, own: int, value: Expression) -> Expression:
    arguments = list(condition.arguments)
    arguments[own] = value
    return replace(condition, arguments=tuple(arguments))


def _pull_aggregate(
    plan: Any, below: lp.LogicalNode, found: list[Expression]
) -> tuple[lp.LogicalNode, list[Expression]]:
    """Group by the correlated values too; the columns of the plan stay in front."""
    valued = None if plan.sets is not None or plan.groupings else _with_values(below, found)
    if valued is None:
        return plan, []  # left where it is, and so refused
    below, places = valued
    keys = [*plan.keys, *dict.fromkeys(at for _, _, at in places if at not in plan.keys)]
    key_fields = [below.row.fields[key] for key in keys]
    row = lp.row_of(
        [*(each.name for each in key_fields), *plan.row.names[len(plan.keys) :]],
        [*(each.type for each in key_fields), *(call.type for call in plan.calls)],
    )
    grouped = lp.AggregateNode(row=row, input=below, keys=tuple(keys), calls=plan.calls)
    count = len(plan.keys)
    order = [*range(count), *range(len(keys), len(row)), *range(count, len(keys))]
    shown = [lp.references(row)[index] for index in order]
    made = lp.project(grouped, shown, [each.name for each in shown])
    columns = lp.references(made.row)
    return made, [
        _with_argument(condition, own, columns[order.index(keys.index(at))])
        for condition, own, at in places
    ]


def _pull_limit(
    plan: Any, below: lp.LogicalNode, found: list[Expression]
) -> tuple[lp.LogicalNode, list[Expression]]:
    """The first rows for each of the correlated values, by their number."""
    valued = _with_values(below, found) if plan.order and plan.limit else None
    if valued is None:
        return plan, []
    below, places = valued
    number = BigIntType(nullable=False)
    call = lp.OverCall(AggregateCall("ROW_NUMBER", (), number), is_rows=False, preceding=None)
    partition = tuple(dict.fromkeys(at for _, _, at in places))
    row = lp.row_of([*below.row.names, "$n"], [*below.row.children, number])
    numbered = lp.OverNode(
        row=row, input=below, partition=partition, order=plan.order, calls=(call,)
    )
    column = lp.references(row)[-1]
    last = Literal(plan.offset + plan.limit, number)
    conditions = [calls.resolve("<=", [column, last])]
    if plan.offset:
        conditions.append(calls.resolve(">", [column, Literal(plan.offset, number)]))
    condition = all_of(conditions)
    assert condition is not None  # noqa: S101 - there is one at least
    first = lp.FilterNode(row=row, input=numbered, condition=condition)
    columns = lp.references(below.row)
    made = lp.ProjectNode(row=below.row, input=first, expressions=tuple(columns))
    return made, [_with_argument(each, own, columns[at]) for each, own, at in places]


_PULLED: Any = {
    lp.ProjectNode: _pull_project,
    lp.DistinctNode: _pull_distinct,
    lp.AggregateNode: _pull_aggregate,
    lp.LimitNode: _pull_limit,
}


_COUNT: Final = BigIntType(nullable=False)
#: What an ANY compares with, if one value is enough to know: of all that are there.
_EXTREMES: Final = {">": ("MIN",), ">=": ("MIN",), "<": ("MAX",), "<=": ("MAX",)}
_NEGATED: Final = {"=": "<>", "<>": "=", "!=": "=", ">": "<=", "<": ">=", ">=": "<", "<=": ">"}


@dataclass(frozen=True)
class SubqueryValue:
    """A sub-query as columns that are joined, and what it is worth by them.

    In the value and the conditions a column that is joined is a `Placeholder` ``inner``, counted
    over all plans; an `OuterReference` is a column of the query around, or of one further out.
    """

    #: Plans, and what of them goes with a row of the query around; None: all.
    joins: tuple[tuple[lp.LogicalNode, Expression | None], ...]
    value: Expression


def subquery_value(
    queries: QueryBinder, binder: ExpressionBinder, scope: Scope, node: Any
) -> SubqueryValue:
    """Return what a sub-query is worth.

    Args:
        queries: of the query around.
        binder: of what is compared with the sub-query.
        scope: of the query around.
        node: a scalar sub-query, IN, EXISTS or a quantified comparison.

    Raises:
        ValidationError: it cannot be had as joins; says where.
    """
    value = _Value(queries, binder, scope, node)
    if isinstance(node, nodes.ScalarQuery):
        return value.scalar(node.query)
    if isinstance(node, nodes.Exists):
        return value.exists(node.query)
    if isinstance(node, nodes.InQuery):
        return value.in_query(node.operand, node.query, negated=node.negated)
    return value.quantified(node)


def beside(
    plan: lp.LogicalNode, inner: lp.LogicalNode, condition: Expression | None = None
) -> lp.LogicalNode:
    """The rows of a plan with what there is of another behind their columns."""
    types = [each.with_nullability(True) for each in inner.row.children]  # noqa: FBT003
    row = lp.row_of([*plan.row.names, *inner.row.names], [*plan.row.children, *types])
    return lp.JoinNode(row=row, left=plan, right=inner, kind=lp.JoinType.LEFT, condition=condition)


def is_row_of_outer(plan: lp.LogicalNode) -> bool:
    """Whether a plan is a correlated aggregate of all rows: a row for each of the query around."""
    return mentions_outer(plan) and _is_group_of_all(plan)


def is_one_row(plan: lp.LogicalNode) -> bool:
    """Return whether a plan is an aggregate of all rows that is always there: it has no HAVING."""
    return _is_group_of_all(plan, always=True)


def _is_group_of_all(plan: lp.LogicalNode, *, always: bool = False) -> bool:
    """Return whether a plan is an aggregate without keys: one row, or none if HAVING says so.

    Args:
        plan: of a sub-query.
        always: one with HAVING is none.
    """
    while isinstance(plan, lp.ProjectNode) or (isinstance(plan, lp.FilterNode) and not always):
        plan = plan.input
    return isinstance(plan, lp.AggregateNode) and not plan.keys and plan.sets is None


def bound_sub_query(queries: QueryBinder, scope: Scope, query: Any) -> lp.LogicalNode:
    """The plan of a sub-query, without DISTINCT and LIMIT of the one row of an aggregate."""
    return _simplified(queries.nested(scope).bind(query))


def _simplified(plan: lp.LogicalNode) -> lp.LogicalNode:
    if isinstance(plan, lp.ProjectNode | lp.FilterNode):
        return replace(plan, input=_simplified(plan.input))
    is_first = isinstance(plan, lp.LimitNode) and not plan.offset and plan.limit != 0
    if is_first or isinstance(plan, lp.DistinctNode):
        below = _simplified(plan.inputs[0])
        return below if _is_group_of_all(below) else plan
    return plan


def row_values(
    queries: QueryBinder, bound: lp.LogicalNode, node: Any
) -> tuple[tuple[lp.LogicalNode, Expression | None], list[Expression], Expression | None]:
    """A correlated aggregate of all rows: its join, its columns, and when there is the row.

    Where it finds none, the aggregates are those of no rows, and columns are made of them.

    Raises:
        ValidationError: it is correlated by other things than equalities.
    """
    values: list[Expression] = list(lp.references(bound.row))
    conditions: list[Expression] = []
    below: Any = bound
    while not isinstance(below, lp.AggregateNode):
        if isinstance(below, lp.FilterNode):
            conditions.append(below.condition)
        else:
            values = [substituted(each, below.expressions) for each in values]
            conditions = [substituted(each, below.expressions) for each in conditions]
        below = below.input
    inner, found = pulled(queries, below, node)
    columns: list[Expression] = []
    for index, call in enumerate(below.calls):
        column = _inner(index, call.type.with_nullability(True))  # noqa: FBT003
        if call.function == "COUNT":
            columns.append(calls.resolve("COALESCE", [column, Literal(0, call.type)]))
        elif call.type.is_nullable:
            columns.append(column)
        else:
            message = f"{call.function} in a correlated sub-query is not in this release."
            raise queries.context.error(node, message)
    present = all_of([substituted(each, columns) for each in conditions])
    join = (inner, _condition(found))
    return join, [substituted(each, columns) for each in values], present


def _inner(index: int, kind: Any) -> Expression:
    return Placeholder("inner", index, kind)  # type: ignore[return-value]


def _condition(found: Sequence[Expression]) -> Expression | None:
    """Conditions over a plan that is joined, with placeholders of its columns."""

    def change(each: Any) -> Any:
        return _inner(each.index, each.type) if isinstance(each, InputReference) else each

    return all_of([transform(each, change) for each in found])


class _Value:
    def __init__(
        self, queries: QueryBinder, binder: ExpressionBinder, scope: Scope, node: Any
    ) -> None:
        self._queries = queries
        self._context = queries.context
        self._binder = binder
        self._scope = scope
        self._node = node

    def _bound(self, query: Any) -> lp.LogicalNode:
        return bound_sub_query(self._queries, self._scope, query)

    def _one_column(self, query: Any, what: str = "A sub-query as a value") -> lp.LogicalNode:
        bound = self._bound(query)
        if len(bound.row) != 1:
            message = f"{what} has one column; this has {len(bound.row)}."
            raise self._context.error(self._node, message)
        return bound

    # -- kinds -----------------------------------------------------------------------------------

    def scalar(self, query: Any) -> SubqueryValue:
        return self._scalar(self._one_column(query))

    def _scalar(self, bound: lp.LogicalNode) -> SubqueryValue:
        if not mentions_outer(bound):
            row = bound if is_one_row(bound) else _single(bound)
            kind = row.row.children[0].with_nullability(True)  # noqa: FBT003
            return SubqueryValue(((row, None),), _inner(0, kind))
        if not _is_group_of_all(bound):
            bound = _single(bound)
        join, (value,), present = row_values(self._queries, bound, self._node)
        if present is not None:
            missing = Literal(None, value.type.with_nullability(True))  # noqa: FBT003
            value = self._call("CASE", present, value, missing)
        return SubqueryValue((join,), value)

    def exists(self, query: Any) -> SubqueryValue:
        bound = self._bound(query)
        if is_one_row(bound):
            return SubqueryValue((), _boolean(True))  # noqa: FBT003
        if is_row_of_outer(bound):
            join, _, present = row_values(self._queries, bound, self._node)
            assert present is not None  # noqa: S101 - it has HAVING
            return SubqueryValue((join,), self._call("IS TRUE", present))
        inner = _grouped(bound, [AggregateCall("COUNT", (), _COUNT)])
        join, (count,), _ = row_values(self._queries, inner, self._node)
        return SubqueryValue((join,), self._call(">", count, Literal(0, _COUNT)))

    def in_query(self, operand: Any, query: Any, *, negated: bool) -> SubqueryValue:
        if isinstance(operand, nodes.RowConstructor):
            message = (
                "IN of several columns with a sub-query can stand only in WHERE, connected by AND."
            )
            raise self._context.error(self._node, message)
        found = self._is_in(self._operand(operand), self._one_column(query, "IN with a sub-query"))
        if negated:
            found = SubqueryValue(found.joins, self._call("NOT", found.value))
        return found

    def quantified(self, node: Any) -> SubqueryValue:
        if isinstance(node.left, nodes.RowConstructor):
            message = "ANY, SOME and ALL compare one value; = ANY of several is IN."
            raise self._context.error(node, message)
        operand = self._operand(node.left)
        bound = self._one_column(node.right, f"{node.quantifier} with a sub-query")
        if node.quantifier == "ANY":
            return self._any(node.operator, operand, bound)
        # All are so if there is none that is not.
        found = self._any(_NEGATED[node.operator], operand, bound)
        return SubqueryValue(found.joins, self._call("NOT", found.value))

    # -- comparisons -----------------------------------------------------------------------------

    def _operand(self, node: Any) -> Expression:
        bound = self._binder.bind(node)
        parts: Iterator[Any] = walk(bound)
        if any(isinstance(each, Placeholder) and each.kind == "over" for each in parts):
            message = "OVER cannot be compared with a sub-query; compute it in a query below."
            raise self._context.error(self._node, message)
        return bound

    def _compared_with_row(
        self, operator: str, operand: Expression, bound: lp.LogicalNode
    ) -> SubqueryValue:
        """A comparison with the one row of a correlated aggregate, if that is there."""
        join, (value,), present = row_values(self._queries, bound, self._node)
        same = self._call(operator, operand, value)
        if present is not None:
            same = self._call("CASE", present, same, _boolean(False))  # noqa: FBT003
        return SubqueryValue((join,), same)

    def _any(self, operator: str, operand: Expression, bound: lp.LogicalNode) -> SubqueryValue:
        if operator == "=":
            return self._is_in(operand, bound)
        if is_row_of_outer(bound):
            return self._compared_with_row(operator, operand, bound)
        extremes = _EXTREMES.get(operator, ("MIN", "MAX"))
        join, values = self._counted(bound, extremes)
        compared = [self._call(operator, operand, each) for each in values[2:]]
        true = compared[0] if len(compared) == 1 else self._call("OR", *compared)
        return SubqueryValue((join,), self._known(true, operand, values))

    def _is_in(self, operand: Expression, bound: lp.LogicalNode) -> SubqueryValue:
        if is_row_of_outer(bound):
            return self._compared_with_row("=", operand, bound)
        counted, values = self._counted(bound, ())
        column = lp.references(bound.row)[0]
        same: Any = self._call("=", operand, column)
        if same.arguments[1] != column:
            # Values that are the same for the comparison are to be one.
            bound = _projected(bound, same.arguments[1])
        kind = bound.row.children[0]
        groups = _grouped(bound, [AggregateCall("COUNT", (), _COUNT)], keys=(0,))
        inner, found = pulled(self._queries, groups, self._node)
        width = len(counted[0].row)
        condition = self._call("=", operand, _inner(0, kind))
        conditions = [each for each in (condition, _condition(found)) if each is not None]
        shifted = _shifted(all_of(conditions), width)
        there = _inner(width + 1, _COUNT.with_nullability(True))  # noqa: FBT003
        true = self._call("IS NOT NULL", there)
        return SubqueryValue((counted, (inner, shifted)), self._known(true, operand, values))

    def _counted(
        self, bound: lp.LogicalNode, extremes: Sequence[str]
    ) -> tuple[tuple[lp.LogicalNode, Expression | None], list[Expression]]:
        """A join with how many rows there are, how many values, and some of the values."""
        kind = plain_type(bound.row.children[0])
        aggregates = [AggregateCall("COUNT", (), _COUNT), AggregateCall("COUNT", (0,), _COUNT)]
        for each in extremes:
            name, result = aggregate_type(each, [kind], grouped=False, filtered=False)
            aggregates.append(AggregateCall(name, (0,), result))
        join, values, _ = row_values(self._queries, _grouped(bound, aggregates), self._node)
        return join, values

    def _known(
        self, true: Expression, operand: Expression, values: Sequence[Expression]
    ) -> Expression:
        """True if it is; else unknown if something is NULL and there is something at all."""
        rows, known = values[:2]
        unknown = self._call("IS NULL", operand)
        unknown = self._call("OR", unknown, self._call(">", rows, known))
        false = _boolean(False)  # noqa: FBT003
        return self._call(
            "CASE",
            self._call("=", rows, Literal(0, _COUNT)),
            false,
            true,
            _boolean(True),  # noqa: FBT003
            unknown,
            Literal(None, BooleanType()),
            false,
        )

    def _call(self, function: str, *arguments: Expression) -> Expression:
        return self._binder.call(self._node, function, *arguments)


def _boolean(value: bool) -> Expression:  # noqa: FBT001
    return Literal(value, BooleanType(nullable=False))


def _shifted(condition: Expression | None, by: int) -> Expression | None:
    """A condition whose plan is joined behind others."""

    def change(each: Any) -> Any:
        if isinstance(each, Placeholder) and each.kind == "inner":
            return _inner(each.index + by, each.type)
        return each

    return None if condition is None else transform(condition, change)


def _projected(plan: lp.LogicalNode, expression: Expression) -> lp.LogicalNode:
    return lp.project(plan, [expression], plan.row.names[:1])


def _grouped(
    plan: lp.LogicalNode, aggregates: Sequence[AggregateCall], keys: tuple[int, ...] = ()
) -> lp.LogicalNode:
    names = [plan.row.names[key] for key in keys]
    names += [f"EXPR${number}" for number in range(len(aggregates))]
    types = [plan.row.children[key] for key in keys]
    row = lp.row_of(names, [*types, *(each.type for each in aggregates)])
    return lp.AggregateNode(row=row, input=plan, keys=keys, calls=tuple(aggregates))


def _single(plan: lp.LogicalNode) -> lp.LogicalNode:
    kind = plan.row.children[0].with_nullability(True)  # noqa: FBT003
    call = AggregateCall("SINGLE_VALUE", (0,), kind)
    return lp.AggregateNode(
        row=lp.row_of(plan.row.names, [kind]), input=plan, keys=(), calls=(call,)
    )


def is_predicate(node: Node) -> bool:
    """Return whether it is IN, EXISTS, ``= ANY`` or ``<> ALL`` with a sub-query, or NOT of that."""
    if isinstance(node, nodes.UnaryOperation) and node.operator == "NOT":
        return is_predicate(node.operand)
    return isinstance(node, nodes.InQuery | nodes.Exists) or _as_in(node) is not None


def _as_in(node: Any) -> nodes.InQuery | None:
    """``= ANY`` and ``<> ALL`` as IN and NOT IN."""
    if not isinstance(node, nodes.QuantifiedComparison) or isinstance(node.right, tuple):
        return None
    if (node.operator, node.quantifier) == ("=", "ANY"):
        return nodes.InQuery(node.left, node.right, position=node.position)
    if node.operator in {"<>", "!="} and node.quantifier == "ALL":
        return nodes.InQuery(node.left, node.right, negated=True, position=node.position)
    return None


def filtered(
    queries: QueryBinder, plan: lp.LogicalNode, scope: Scope, node: Any
) -> lp.LogicalNode | None:
    """The rows of a plan for which IN or EXISTS is true; None: it is no join, but a value."""
    negated = False
    while isinstance(node, nodes.UnaryOperation):
        negated = not negated
        node = node.operand
    node = _as_in(node) or node
    bound = bound_sub_query(queries, scope, node.query)
    if isinstance(node, nodes.InQuery) and len(_parts(node.operand)) != len(bound.row):
        count, columns = len(_parts(node.operand)), len(bound.row)
        message = f"IN compares {count} values with {columns} columns."
        raise queries.context.error(node, message)
    if isinstance(node, nodes.Exists) and is_one_row(bound):
        return _never(plan) if negated else plan  # an aggregate of no rows is a row too
    if is_row_of_outer(bound):
        return None
    inner, found = pulled(queries, bound, node)
    width = len(plan.row)
    conditions = [joined(each, width) for each in found]
    if isinstance(node, nodes.InQuery):
        negated = negated != node.negated
        conditions = [*_in(queries, plan, scope, node, inner, negated=negated), *conditions]
    kind = lp.JoinType.ANTI if negated else lp.JoinType.SEMI
    return lp.JoinNode(
        row=plan.row, left=plan, right=inner, kind=kind, condition=all_of(conditions)
    )


def _in(
    queries: QueryBinder,
    plan: lp.LogicalNode,
    scope: Scope,
    node: Any,
    inner: lp.LogicalNode,
    *,
    negated: bool,
) -> list[Expression]:
    binder = ExpressionBinder(queries.context, scope)
    operand = node.operand
    parts = _parts(operand)
    found = []
    for column, part in enumerate(parts):
        field = inner.row.fields[column]
        other = InputReference(column + len(plan.row), field.name, field.type)
        same = binder.call(node, "=", binder.bind(part), other)
        if negated and same.type.is_nullable:
            # NOT IN is true where no comparison is true or unknown.
            same = calls.resolve("IS NOT FALSE", [same])
        found.append(same)
    return found


def _parts(operand: Any) -> tuple[Any, ...]:
    """The values that IN compares."""
    return operand.fields if isinstance(operand, nodes.RowConstructor) else (operand,)


def _never(plan: lp.LogicalNode) -> lp.LogicalNode:
    condition = Literal(False, BooleanType(nullable=False))  # noqa: FBT003
    return lp.FilterNode(row=plan.row, input=plan, condition=condition)


def with_value(plan: lp.LogicalNode, value: SubqueryValue) -> tuple[lp.LogicalNode, Expression]:
    """The plan with the columns of a sub-query behind its own, and what that is worth."""
    width = len(plan.row)

    def change(each: Any) -> Any:
        if isinstance(each, OuterReference):
            return from_inside(each)
        if isinstance(each, Placeholder) and each.kind == "inner":
            return InputReference(width + each.index, f"$q{each.index}", each.type)
        return each

    for inner, condition in value.joins:
        plan = beside(plan, inner, None if condition is None else transform(condition, change))
    return plan, transform(value.value, change)
