"""INTERSECT and EXCEPT of queries.

What it is: without ALL, joins: rows of the left that are, or are not, on the right too, each once.
With ALL, as Flink plans it: how often each row is on either side is counted, and the row comes as
often as that says.  NULL equals NULL in both.
What it is not: UNION, and the types of columns (``sql/binder/queries.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.sql.binder import calls
from millstream.sql.binder.aggregates import aggregate_type, plain_type
from millstream.sql.planner.logical import (
    AggregateCall,
    AggregateNode,
    CorrelateNode,
    DistinctNode,
    FilterNode,
    JoinNode,
    JoinType,
    ProjectNode,
    UnionNode,
    references,
    row_of,
)
from millstream.types.logical_types import BigIntType, IntType, MultisetType

if TYPE_CHECKING:
    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.logical import LogicalNode

__all__ = ["counted", "distinct"]

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
