"""The binder of queries: SELECT, VALUES, set operations, WITH, ORDER BY and LIMIT.

What it is: from a query of the parser to the logical plan.
What it is not: what stands in FROM (``sql/binder/relations.py``) or the parts of one SELECT
(``sql/binder/selects.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.sql.binder import calls
from millstream.sql.binder.calls import InlinePlan, aggregate_type, plain_type
from millstream.sql.binder.expressions import ExpressionBinder, is_time_attribute, typed_literal
from millstream.sql.binder.names import repeated_name
from millstream.sql.binder.scope import NameProblem, Scope
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import (
    AggregateCall,
    AggregateNode,
    CorrelateNode,
    DistinctNode,
    FilterNode,
    JoinNode,
    JoinType,
    LimitNode,
    ProjectNode,
    SortKey,
    UnionNode,
    ValuesNode,
    references,
    row_of,
)
from millstream.types.logical_types import BigIntType, IntType, MultisetType, NullType
from millstream.types.type_derivation import common_type
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.binder.hints import StateTtls
    from millstream.sql.binder.scope import BindingContext
    from millstream.sql.parser.expression_nodes import Node, Query
    from millstream.sql.planner.logical import LogicalNode
    from millstream.types.logical_types import LogicalType


_COUNT: Final = BigIntType(nullable=False)
_ELEMENT: Final = IntType(nullable=False)


def distinct(left: LogicalNode, right: LogicalNode, *, intersect: bool) -> LogicalNode:
    """INTERSECT, or EXCEPT: rows of the left that are (not) on the right too, each once.

    Args:
        left: a query.
        right: another of the same types.
        intersect: whether the row is to be there.
    """
    width = len(left.row)
    condition: Expression | None = None
    for one, other in zip(references(left.row), references(right.row), strict=True):
        moved = InputReference(other.index + width, other.name, other.type)
        same = calls.resolve("IS NOT DISTINCT FROM", [one, moved])
        condition = same if condition is None else calls.resolve("AND", [condition, same])
    kind = JoinType.SEMI if intersect else JoinType.ANTI
    join = JoinNode(row=left.row, left=left, right=right, kind=kind, condition=condition)
    return DistinctNode(row=left.row, input=join)


def counted(left: LogicalNode, right: LogicalNode, *, intersect: bool) -> LogicalNode:
    """INTERSECT ALL: as often as on the side that has fewer; EXCEPT ALL: what the left has more.

    Args:
        left: a query.
        right: another of the same types.
        intersect: whether it is INTERSECT.
    """
    members = (_marked(left, 1, 0), _marked(right, 0, 1))
    width = len(left.row)
    names = [*left.row.names, "$left", "$right"]
    types = [
        plain_type(one).with_nullability(one.is_nullable or other.is_nullable)
        for one, other in zip(left.row.children, right.row.children, strict=True)
    ]
    row = row_of(names, [*types, _COUNT, _COUNT])
    function, kind = aggregate_type("SUM", [_COUNT], grouped=True, filtered=False)
    sums = tuple(AggregateCall(function, (width + side,), kind) for side in (0, 1))
    grouped = AggregateNode(
        row=row_of(names, [*types, kind, kind]),
        input=UnionNode(row=row, members=members),
        keys=tuple(range(width)),
        calls=sums,
    )
    columns = references(grouped.row)
    often = calls.resolve("LEAST" if intersect else "-", columns[width:])
    is_there = calls.resolve(">", [often, Literal(0, _COUNT)])
    kept = FilterNode(row=grouped.row, input=grouped, condition=is_there)
    repeated = _repeated(kept, often)
    shown = tuple(references(repeated.row)[:width])
    result = row_of(left.row.names, types)
    return ProjectNode(row=result, input=repeated, expressions=shown)


def _marked(plan: LogicalNode, left: int, right: int) -> LogicalNode:
    """Rows with one for the side that they are of."""
    columns = references(plan.row)
    marks = (Literal(left, _COUNT), Literal(right, _COUNT))
    names = [*plan.row.names, "$left", "$right"]
    row = row_of(names, [*(each.type for each in columns), _COUNT, _COUNT])
    return ProjectNode(row=row, input=plan, expressions=(*columns, *marks))


def _repeated(plan: LogicalNode, often: Expression) -> LogicalNode:
    """Each row as often as a number says: once per element of a multiset of so many."""
    number = calls.cast(often, _ELEMENT)
    elements = Call("MAP", (Literal(0, _ELEMENT), number), MultisetType(_ELEMENT, nullable=False))
    row = row_of([*plan.row.names, "$element"], [*plan.row.children, _ELEMENT])
    return CorrelateNode(
        row=row,
        input=plan,
        function="$REPLICATE_ROWS",
        arguments=(elements,),
        kind=JoinType.INNER,
    )


#: As in Flink, and those that it orders item by item, which this release does not.
_UNORDERED: Final = frozenset(
    {
        TypeRoot.ARRAY,
        TypeRoot.BITMAP,
        TypeRoot.MAP,
        TypeRoot.MULTISET,
        TypeRoot.ROW,
        TypeRoot.VARIANT,
    }
)


def check_orderable(context: BindingContext, node: Node, kind: LogicalType) -> None:
    """Refuse to order by values of a type that has no order.

    Args:
        context: of the statement.
        node: what it orders by.
        kind: the type of that.

    Raises:
        ValidationError: its values have no order.
    """
    if kind.root in _UNORDERED:
        text = kind.as_summary_string()
        message = f"ORDER BY does not go by {text}: its values have no order."
        raise context.error(node, message)


@dataclass(frozen=True)
class Parts:
    """The binders of what queries are made of; ``sql/binder/binding.py`` has them."""

    #: Of SELECT with the items of ORDER BY: the plan, and the columns to sort by.
    select: Callable[[QueryBinder, Any, Sequence[Any]], tuple[LogicalNode, list[SortKey]]]
    #: Of what stands in FROM.
    relation: Callable[[QueryBinder, Any], tuple[LogicalNode, Scope]]


class QueryBinder:
    """Binds queries; one for each query with its own names of WITH."""

    def __init__(
        self,
        context: BindingContext,
        parts: Parts,
        tables: Mapping[str, LogicalNode] | None = None,
        outer: Scope | None = None,
    ) -> None:
        """Take the surroundings.

        Args:
            context: of the statement.
            parts: the binders of what queries are made of.
            tables: what WITH has named.
            outer: the scope of the query around this one.
        """
        self.context = context
        self._parts = parts
        self.tables = dict(tables or {})
        self.outer = outer
        #: Of the SELECT whose FROM is bound just now.
        self.state_ttls: StateTtls | None = None

    def bind(self, query: Query) -> LogicalNode:
        """The plan of a query.

        Raises:
            ValidationError: it makes no sense; says where.
        """
        handler = _QUERIES.get(type(query))
        if handler is None:
            raise self.context.error(query, f"{type(query).__name__} is not in this release.")
        return handler(self, query)

    def nested(self, outer: Scope | None) -> QueryBinder:
        """The binder of a sub-query, which sees the same names of WITH."""
        return QueryBinder(self.context, self._parts, self.tables, outer)

    def other(self, text: str, view: tuple[str, ...]) -> QueryBinder:
        """The binder of the query of a view, which has a text of its own."""
        views = (*self.context.views, view)
        return QueryBinder(replace(self.context, text=text, views=views), self._parts)

    def relation(self, node: Any) -> tuple[LogicalNode, Scope]:
        """The plan of what stands in FROM, and the names over it."""
        return self._parts.relation(self, node)

    # -- kinds of queries ------------------------------------------------------------------------

    def _select(self, node: Any) -> LogicalNode:
        return self._parts.select(self, node, ())[0]

    def _with(self, node: Any) -> LogicalNode:
        inner = self.nested(self.outer)
        known: set[str] = set()
        for each in node.tables:
            if each.name.value in known:
                message = f"'{each.name.value}' stands twice in WITH."
                raise self.context.error(each.name, message)
            known.add(each.name.value)
            plan = inner.bind(each.query)
            twice = None if each.columns else repeated_name(each.query)
            if twice is not None:
                message = f"'{each.name.value}' has two columns '{twice}' and no column list."
                raise self.context.error(each.name, message)
            if each.columns:
                plan = self.renamed(plan, [name.value for name in each.columns], each)
            inner.tables[each.name.value] = plan
        return inner.bind(node.query)

    def renamed(self, plan: LogicalNode, names: Sequence[str], node: Node) -> LogicalNode:
        """The plan with other names of its columns.

        Raises:
            ValidationError: there are more or fewer names than columns.
        """
        if len(names) != len(plan.row):
            message = f"{len(names)} names for {len(plan.row)} columns."
            raise self.context.error(node, message)
        row = row_of(names, plan.row.children)
        return ProjectNode(row=row, input=plan, expressions=tuple(references(plan.row)))

    def _table(self, node: Any) -> LogicalNode:
        return self.relation(nodes.TableReference(node.name, position=node.position))[0]

    def _inline(self, node: Any) -> LogicalNode:
        return node.plan  # type: ignore[no-any-return]

    def _values(self, node: Any) -> LogicalNode:
        binder = ExpressionBinder(self.context, Scope(row_of([], []), outer=self.outer))
        rows = [binder.bind_all(each.fields) for each in node.rows]
        width = len(rows[0])
        for each, bound in zip(node.rows, rows, strict=True):
            if len(bound) != width:
                message = f"All rows of VALUES must have {width} columns; this has {len(bound)}."
                raise self.context.error(each, message)
        types = [
            self._common([row[column] for row in rows], node.rows[0].fields[column])
            for column in range(width)
        ]
        names = [f"EXPR${column}" for column in range(width)]
        return self._values_of(rows, names, types)

    def _common(self, found: Sequence[Expression], node: Node) -> LogicalType:
        kind = common_type([each.type for each in found])
        if kind is None and all(isinstance(each.type, NullType) for each in found):
            return NullType()
        if kind is None:
            shown = ", ".join(dict.fromkeys(each.type.as_summary_string() for each in found))
            message = f"Values of one column have no type in common: {shown}."
            raise self.context.error(node, message)
        return kind

    def _values_of(
        self, rows: list[list[Expression]], names: list[str], types: list[LogicalType]
    ) -> LogicalNode:
        row = row_of(names, types)
        cast = [
            [
                each if isinstance(kind, NullType) else _constant(each, kind)
                for each, kind in zip(bound, types, strict=True)
            ]
            for bound in rows
        ]
        if all(isinstance(each, Literal) for bound in cast for each in bound):
            constants = tuple(
                tuple(each.value for each in bound if isinstance(each, Literal)) for bound in cast
            )
            return ValuesNode(row=row, rows=constants)
        members = tuple(
            ProjectNode(row=row, input=one_row(), expressions=tuple(bound)) for bound in cast
        )
        return members[0] if len(members) == 1 else UnionNode(row=row, members=members)

    # -- set operations --------------------------------------------------------------------------

    def _set_operation(self, node: Any) -> LogicalNode:
        left, right = self.bind(node.left), self.bind(node.right)
        if len(left.row) != len(right.row):
            message = (
                f"{node.operator} needs as many columns on both sides; there are "
                f"{len(left.row)} and {len(right.row)}."
            )
            raise self.context.error(node, message)
        types = []
        for one, other in zip(left.row.fields, right.row.fields, strict=True):
            kind = common_type([one.type, other.type])
            if kind is None:
                message = (
                    f"Column '{one.name}' of {node.operator} is {one.type} on the left and "
                    f"{other.type} on the right."
                )
                raise self.context.error(node, message)
            is_union = node.all and node.operator is nodes.SetOperator.UNION
            types.append(_united(kind, one.type, other.type) if is_union else kind)
        left, right = cast_columns(left, types), cast_columns(right, types)
        row = row_of(left.row.names, types)
        if node.operator is nodes.SetOperator.UNION:
            members = (*_members(left), *_members(right)) if node.all else (left, right)
            union = UnionNode(row=row, members=members)
            return union if node.all else DistinctNode(row=row, input=union)
        intersect = node.operator is nodes.SetOperator.INTERSECT
        combined = counted if node.all else distinct
        return combined(left, right, intersect=intersect)

    # -- order -----------------------------------------------------------------------------------

    def _ordered(self, node: Any) -> LogicalNode:
        limit, offset = self._count(node.limit, "LIMIT"), self._count(node.offset, "OFFSET")
        if isinstance(node.query, nodes.Select) and node.order_by:
            plan, keys = self._parts.select(self, node.query, node.order_by)
            width = len(plan.row) - _hidden(plan)
        else:
            plan = self.bind(node.query)
            keys = self._sort_keys(plan, node.order_by)
            width = len(plan.row)
        for item, key in zip(node.order_by, keys, strict=True):
            check_orderable(self.context, item.expression, plan.row.children[key.column])
        if keys or limit is not None or offset:
            plan = LimitNode(
                row=plan.row, input=plan, order=tuple(keys), offset=offset or 0, limit=limit
            )
        if width < len(plan.row):
            row = row_of(plan.row.names[:width], plan.row.children[:width])
            shown = tuple(references(plan.row)[:width])
            return ProjectNode(row=row, input=plan, expressions=shown)
        return plan

    def _sort_keys(self, plan: LogicalNode, items: Sequence[Any]) -> list[SortKey]:
        scope = Scope.of(plan.row)
        keys = []
        for item in items:
            if not isinstance(item.expression, nodes.Identifier):
                message = "ORDER BY behind a set operation takes columns of its result."
                raise self.context.error(item.expression, message)
            try:
                found = scope.find(item.expression.names).expression
            except NameProblem as problem:
                raise self.context.error(item.expression, str(problem)) from None
            keys.append(sort_key(found.index, item))  # type: ignore[union-attr]
        return keys

    def _count(self, node: Node | None, word: str) -> int | None:
        if node is None:
            return None
        if isinstance(node, nodes.Literal) and isinstance(node.value, int) and node.value >= 0:
            return int(node.value)
        raise self.context.error(node, f"{word} takes a whole number that is not negative.")


def _united(kind: LogicalType, one: LogicalType, other: LogicalType) -> LogicalType:
    """The type of a column of UNION ALL: a time attribute if it is the same on both sides."""
    left, right = (each.with_nullability(kind.is_nullable) for each in (one, other))
    return left if is_time_attribute(left) and left == right else kind


def _members(plan: LogicalNode) -> tuple[LogicalNode, ...]:
    return plan.members if isinstance(plan, UnionNode) else (plan,)


def _hidden(plan: LogicalNode) -> int:
    """How many columns are only there to sort by; their names begin with ``$sort``."""
    return sum(name.startswith("$sort") for name in plan.row.names)


def sort_key(column: int, item: Any) -> SortKey:
    """A column to sort by; NULL is the smallest value, as in Flink."""
    nulls_first = item.nulls_first
    if nulls_first is None:
        nulls_first = not item.descending
    return SortKey(column, item.descending, nulls_first)


def _constant(expression: Expression, kind: LogicalType) -> Expression:
    """A value of VALUES as one of the column's type."""
    if isinstance(expression, Literal):
        typed = typed_literal(expression, kind)
        if typed is not None:
            return typed
    return calls.coerced(expression, kind) or expression


def one_row() -> ValuesNode:
    """One row, of which nothing is known: what SELECT without FROM reads."""
    return ValuesNode(row=row_of(["ZERO"], [IntType(nullable=False)]), rows=((0,),))


def cast_columns(plan: LogicalNode, types: Sequence[LogicalType]) -> LogicalNode:
    """The plan with its columns cast; itself if they have these types."""
    if [*plan.row.children] == [*types]:
        return plan
    expressions = tuple(
        calls.coerced(each, kind) or each
        for each, kind in zip(references(plan.row), types, strict=True)
    )
    # A column that is never NULL may be one that can be in what reads it.
    row = row_of(plan.row.names, [each.type for each in expressions])
    return ProjectNode(row=row, input=plan, expressions=expressions)


_QUERIES: Final[dict[type, Callable[[QueryBinder, Any], LogicalNode]]] = {
    nodes.Select: QueryBinder._select,  # noqa: SLF001 - the table of this class
    nodes.WithQuery: QueryBinder._with,  # noqa: SLF001
    nodes.TableQuery: QueryBinder._table,  # noqa: SLF001
    InlinePlan: QueryBinder._inline,  # noqa: SLF001
    nodes.Values: QueryBinder._values,  # noqa: SLF001
    nodes.SetOperation: QueryBinder._set_operation,  # noqa: SLF001
    nodes.OrderedQuery: QueryBinder._ordered,  # noqa: SLF001
}
