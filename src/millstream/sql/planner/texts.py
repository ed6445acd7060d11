"""Texts of plans: columns, aggregates, orders and expressions as EXPLAIN shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.logical import AggregateCall, SortKey
    from millstream.types.logical_types import RowType

__all__ = ["aggregate_text", "columns_text", "expression_text", "order_text"]


def columns_text(row: RowType, columns: Iterable[int]) -> str:
    """The names of some columns."""
    return ", ".join(row.names[column] for column in columns)


def expression_text(expression: Expression) -> str:
    """An expression in Flink's style."""
    return str(expression)


def aggregate_text(call: AggregateCall, row: RowType, suffix: str) -> str:
    """``COUNT_RETRACT(DISTINCT a) FILTER b``."""
    inside = columns_text(row, call.arguments) or "*"
    distinct = "DISTINCT " if call.distinct else ""
    condition = "" if call.filter is None else f" FILTER {row.names[call.filter]}"
    return f"{call.function}{suffix}({distinct}{inside}){condition}"


def order_text(row: RowType, order: Iterable[SortKey]) -> str:
    """``a ASC, b DESC``."""
    return ", ".join(
        f"{row.names[each.column]} {'DESC' if each.descending else 'ASC'}" for each in order
    )
