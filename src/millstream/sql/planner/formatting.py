"""Formatting of columns, aggregates, orders and expressions in EXPLAIN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.runtime.operators.table.specs import AggregateCall
    from millstream.sql.planner.logical import OverCall, SortKey
    from millstream.types.logical_types import RowType


_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


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


def partial_name(call: AggregateCall, number: int) -> str:
    """Return what the partial aggregate of a call is called: ``sum$0``."""
    return f"{call.function.lower()}${number}"


def order_text(row: RowType, order: Iterable[SortKey]) -> str:
    """``a ASC, b DESC``."""
    return ", ".join(
        f"{row.names[each.column]} {'DESC' if each.descending else 'ASC'}" for each in order
    )


class _Ranked(Protocol):
    """The text that both kinds of ``ROW_NUMBER`` share."""

    function: str
    start: int
    end: int
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]

    def fields_text(self) -> str: ...


def ranked_text(rank: _Ranked, below: RowType) -> str:
    """What both kinds of ``ROW_NUMBER`` say of their rows: which, of whom, in which order."""
    parts = [
        f"rankType=[{rank.function}]",
        f"rankRange=[rankStart={rank.start}, rankEnd={rank.end}]",
    ]
    if rank.partition:
        parts.append(f"partitionBy=[{columns_text(below, rank.partition)}]")
    parts.append(f"orderBy=[{order_text(below, rank.order)}]")
    parts.append(f"select=[{rank.fields_text()}]")
    return ", ".join(parts)


def right_name(left: RowType, right: RowType, column: int) -> str:
    """The name of a column of the right behind those of the left."""
    from millstream.sql.planner.logical import unique_names

    return unique_names([*left.names, *right.names])[len(left) + column]


def window_text(
    kind: str,
    row: RowType,
    time: int,
    size: int,
    step: int | None,
    offset: int,
    keys: Sequence[int] = (),
) -> str:
    """``TUMBLE(time_col=[ts], size=[5 min])``; ``keys`` are of SESSION."""
    parts = [f"time_col=[{row.names[time]}]"]
    if kind == "SESSION":
        parts.append(f"gap=[{length_text(size)}]")
    elif kind == "HOP":
        parts += [f"size=[{length_text(size)}]", f"slide=[{length_text(step or 0)}]"]
    elif kind == "CUMULATE":
        parts += [f"max_size=[{length_text(size)}]", f"step=[{length_text(step or 0)}]"]
    else:
        parts.append(f"size=[{length_text(size)}]")
    if offset:
        parts.append(f"offset=[{length_text(offset)}]")
    if keys:
        parts.append(f"partition keys=[{columns_text(row, keys)}]")
    return f"{kind}({', '.join(parts)})"


def length_text(millis: int) -> str:
    """Milliseconds in the largest unit that fits."""
    for size, unit in _UNITS:
        if millis % size == 0 and millis:
            return f"{millis // size} {unit}"
    return f"{millis} ms"


def lengths_text(*lengths: int | None) -> str:
    """Those of some lengths that there are, each behind a comma."""
    return "".join(f", {length_text(each)}" for each in lengths if each)


def frame_text(call: OverCall) -> str:
    """The frame of a call over rows, as SQL writes it."""
    unit = "ROWS" if call.is_rows else "RANGE"
    before, behind = call.preceding, call.following
    start = "UNBOUNDED PRECEDING" if before is None else f"{before} PRECEDING"
    if before is not None and before < 0:
        start = f"{-before} FOLLOWING"
    end = "CURRENT ROW"
    if behind is None:
        end = "UNBOUNDED FOLLOWING"
    elif behind:
        end = f"{behind} FOLLOWING" if behind > 0 else f"{-behind} PRECEDING"
    return f"{unit} BETWEEN {start} AND {end}"
