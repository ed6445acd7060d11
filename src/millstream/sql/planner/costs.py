"""Estimated costs of plans: what EXPLAIN ESTIMATED_COST shows.

What it is: how many rows each node is thought to give, and what it and all below it cost, by the
defaults of Flink's planner for tables of which no statistics are known, and by the number of rows
where a catalog has been told; the figures of simple plans are Flink's own.  A shape of plan costs
what it costs whatever the tables hold: the figures compare plans, they foretell nothing.
What it is not: used by the planner, which goes by rules alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import conjuncts
from millstream.sql.planner.logical import JoinType
from millstream.sql.planner.physical_sorts import TemporalSort
from millstream.types import logical_types as lt
from millstream.types.text_values import double_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import LogicalType

__all__ = ["Cost", "cost_text", "estimate"]

#: Rows of a table.
_TABLE: Final = 1.0e8
#: Of a row: writing it for others and reading it again, hashing a key, saying where it goes.
_SERIALISED, _HASHED, _SENT = 160.0, 8.0, 1.0
#: Of a comparison in a sort.
_COMPARED: Final = 4.0
#: What a join itself is thought to cost, whatever it joins.
_JOINED: Final = 200.0
#: What part of the rows a condition lets through.
_EQUAL, _COMPARISON, _NOT_NULL, _ANY_CONDITION = 0.15, 0.5, 0.9, 0.25
#: What part of the rows of a partition is in a Top-N.
_RANKED: Final = 0.1
#: Elements of an array, entries of a map.
_ELEMENTS: Final = 16

#: Bytes of a value.
_WIDTHS: Final[dict[type[LogicalType], int]] = {
    lt.BooleanType: 1,
    lt.TinyIntType: 1,
    lt.SmallIntType: 2,
    lt.IntType: 4,
    lt.FloatType: 4,
    lt.BigIntType: 8,
    lt.DoubleType: 8,
    lt.BinaryType: 16,
    lt.VarBinaryType: 16,
}
_OTHER_WIDTH: Final = 12
_SELECTIVITIES: Final[dict[str, float]] = {
    "=": _EQUAL,
    "<>": _COMPARISON,
    "<": _COMPARISON,
    "<=": _COMPARISON,
    ">": _COMPARISON,
    ">=": _COMPARISON,
    "IS NOT NULL": _NOT_NULL,
}


@dataclass(frozen=True)
class Cost:
    """What a node and all below it cost; in no unit."""

    rows: float = 0.0
    cpu: float = 0.0
    io: float = 0.0
    network: float = 0.0
    memory: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        mine, others = (
            [getattr(each, field.name) for field in fields(Cost)] for each in (self, other)
        )
        return Cost(*(one + two for one, two in zip(mine, others, strict=True)))


def cost_text(node: PhysicalNode, known: dict[int, tuple[float, Cost]]) -> str:
    """``rowcount = ..., cumulative cost = {...}`` of a node, as Flink writes it.

    Args:
        node: of a plan.
        known: what was estimated of the plan's nodes so far, by ``id``; it is added to.
    """
    rows, cost = estimate(node, known)
    parts = [f"{double_text(getattr(cost, each.name))} {each.name}" for each in fields(Cost)]
    return f"rowcount = {double_text(rows)}, cumulative cost = {{{', '.join(parts)}}}"


def estimate(node: PhysicalNode, known: dict[int, tuple[float, Cost]]) -> tuple[float, Cost]:
    """How many rows a node gives, and the cost of it and of all that EXPLAIN shows below it."""
    if id(node) in known:
        return known[id(node)]
    below = [estimate(each, known) for each in node.shown_inputs]
    rows = _rows(node, [count for count, _ in below])
    cost = _own_cost(node, rows, below[0][0] if below else rows)
    for _, each in below:
        cost += each
    known[id(node)] = rows, cost
    return rows, cost


# -- rows ----------------------------------------------------------------------------------------


def _rows(node: Any, below: list[float]) -> float:
    if isinstance(node, physical.TwoInputs):
        return _joined_rows(node, *below)
    for kind, count in _ROWS.items():
        if isinstance(node, kind):
            return count(node, sum(below))
    if isinstance(node, physical.TableSourceScan) and node.known_rows is not None:
        return max(float(node.known_rows), 1.0)
    return sum(below) if below else _TABLE


def _ranked_rows(node: physical.Rank, below: float) -> float:
    if node.partition:
        return below * _RANKED
    return min(float(node.end - node.start + 1), below)


def _joined_rows(node: physical.TwoInputs, left: float, right: float) -> float:
    part = _EQUAL ** len(node.left_keys) * _selectivity(node.condition)
    matched = (left + right) * part if node.left_keys else left * right * part
    if node.join.left_only:
        return left
    if node.join is JoinType.LEFT:
        return max(matched, left)
    if node.join is JoinType.RIGHT:
        return max(matched, right)
    if node.join is JoinType.FULL:
        return max(matched, left) + max(matched, right) - matched
    return matched


def _selectivity(condition: Expression | None) -> float:
    """What part of the rows meets a condition."""
    if condition is None:
        return 1.0
    part = 1.0
    for each in conjuncts(condition):
        name = each.function if isinstance(each, Call) else ""
        part *= _SELECTIVITIES.get(name, _ANY_CONDITION)
    return part


# -- costs ---------------------------------------------------------------------------------------


def _own_cost(node: Any, rows: float, below: float) -> Cost:
    """The cost of a node by itself; ``rows`` that it gives, ``below`` that it takes."""
    if not node.inputs:
        is_table = not isinstance(node, physical.ValuesScan)
        return Cost(rows, rows, rows * _width(node.row)) if is_table else Cost(rows, 1.0)
    if isinstance(node, physical.Calc):
        computed = [
            each for each in node.projections if not isinstance(each, InputReference | Literal)
        ]
        return Cost(rows, rows * len(computed))
    if isinstance(node, physical.Exchange):
        moved = _HASHED * len(node.keys) if node.keys else _SENT
        return Cost(below, below * (_SERIALISED + moved), network=below * _width(node.row))
    if isinstance(node, physical.Join):
        return Cost(_JOINED, _JOINED)
    most = max(rows, below)
    if isinstance(node, TemporalSort) or (isinstance(node, physical.Rank) and not node.partition):
        return Cost(rows, _COMPARED * most * math.log(max(most, 1.0)) * len(node.order))
    return Cost(most, most)


def _width(kind: LogicalType) -> int:
    """Bytes of a value, as estimated."""
    if isinstance(kind, lt.RowType):
        return sum(_width(each) for each in kind.children)
    if isinstance(kind, lt.ArrayType | lt.MapType | lt.MultisetType):
        return _ELEMENTS * sum(_width(each) for each in kind.children)
    if isinstance(kind, lt.CharType):
        return kind.length
    return _WIDTHS.get(type(kind), _OTHER_WIDTH)


#: Rows of nodes that do not give as many as they take.
_ROWS: Final[dict[type[PhysicalNode], Callable[[Any, float], float]]] = {
    physical.ValuesScan: lambda node, _: float(len(node.rows)),
    physical.Calc: lambda node, below: below * _selectivity(node.condition),
    physical.Expand: lambda node, below: below * len(node.sets),
    physical.Rank: _ranked_rows,
    physical.Deduplicate: lambda _, below: below * _RANKED,
    physical.Limit: lambda node, below: min(float(node.limit), below),
}
