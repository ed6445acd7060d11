"""Physical nodes of windows: aggregates, and joins and rankings of rows that have their windows.

What it is: further nodes as those of ``sql/planner/physical.py``; each gives a window when it is
over.
What it is not: the rules that make them (``sql/planner/windows.py``, ``windowed_rows.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.sql.planner.physical import PhysicalNode, TwoInputs, TwoPhaseAggregate
from millstream.sql.planner.texts import (
    aggregate_text,
    length_text,
    partial_name,
    ranked_text,
    window_text,
)

if TYPE_CHECKING:
    from millstream.sql.planner.logical import AggregateCall, SortKey
    from millstream.types.logical_types import RowType

__all__ = ["LocalWindowAggregate", "WindowAggregate", "WindowJoin", "WindowRank", "WindowSpec"]


@dataclass(frozen=True)
class WindowSpec:
    """How windows lie, and by what time; lengths in milliseconds."""

    kind: str
    size: int
    step: int | None
    offset: int
    is_rowtime: bool
    #: Whether they go by the clock of the session's time zone.
    has_zone: bool

    def text(self, row: RowType, start: int, end: int) -> str:
        """Windows that are columns of a row, as Flink writes them."""
        parts = [f"win_start=[{row.names[start]}]", f"win_end=[{row.names[end]}]"]
        words = {"HOP": ("size", "slide"), "CUMULATE": ("max_size", "step"), "SESSION": ("gap", "")}
        size, step = words.get(self.kind, ("size", ""))
        parts.append(f"{size}=[{length_text(self.size)}]")
        if step:
            parts.append(f"{step}=[{length_text(self.step or 0)}]")
        if self.offset:
            parts.append(f"offset=[{length_text(self.offset)}]")
        return f"{self.kind}({', '.join(parts)})"


@dataclass(eq=False, kw_only=True)
class WindowAggregate(TwoPhaseAggregate):
    """Aggregates per window and key, given when it is over: keys, aggregates, properties."""

    window: str
    time: int
    size: int
    step: int | None
    offset: int
    calls: tuple[AggregateCall, ...]
    #: window_start, window_end, window_time behind the aggregates, in this order.
    properties: tuple[str, ...]
    #: Whether the input has the windows' columns already: (start, end).
    attached: tuple[int, int] | None = None
    is_rowtime: bool = True
    kind: ClassVar[str] = "WindowAggregate"

    def local(self) -> PhysicalNode:
        return LocalWindowAggregate(row=self.input.row, inputs=self.input.inputs, aggregate=self)

    def window_text(self) -> str:
        """The window by the columns of the input, as Flink writes it."""
        below = self.input.row
        if self.attached is None:
            return window_text(self.window, below, self.time, self.size, self.step, self.offset)
        start, end = (below.names[each] for each in self.attached)
        return f"{self.window}(win_start=[{start}], win_end=[{end}])"

    def details(self) -> str:
        below = self.input.row
        shown = [below.names[key] for key in self.keys]
        names = self.row.names[len(self.keys) :]
        calls = [aggregate_text(call, below, "") for call in self.calls]
        window = self.window_text()
        if self.two_phase:
            calls = [
                f"{call.function}({partial_name(call, at)})" for at, call in enumerate(self.calls)
            ]
            if self.attached is None:
                time = f"time_col=[{below.names[self.time]}]"
                window = window.replace(time, "slice_end=[$slice_end]", 1)
            else:
                window = f"{self.window}(win_end=[$window_end])"
        shown += [f"{call} AS {name}" for call, name in zip(calls, names, strict=False)]
        shown += [
            f"{each} AS {name}"
            for each, name in zip(self.properties, names[len(self.calls) :], strict=True)
        ]
        return f"{self.group_text}window=[{window}], select=[{', '.join(shown)}]"


@dataclass(eq=False, kw_only=True)
class LocalWindowAggregate(PhysicalNode):
    """The aggregates of the slices of each batch by itself, ahead of the exchange.

    It is only shown: what it does is a part of the aggregate that it belongs to.
    """

    aggregate: WindowAggregate
    kind: ClassVar[str] = "LocalWindowAggregate"

    def details(self) -> str:
        whole = self.aggregate
        shown = [self.row.names[key] for key in whole.keys]
        shown += [
            f"{aggregate_text(call, self.row, '')} AS {partial_name(call, number)}"
            for number, call in enumerate(whole.calls)
        ]
        end = "$slice_end" if whole.attached is None else "$window_end"
        shown.append(f"slice_end('w$) AS {end}")
        window = whole.window_text()
        return f"{whole.group_text}window=[{window}], select=[{', '.join(shown)}]"


@dataclass(eq=False, kw_only=True)
class WindowJoin(TwoInputs):
    """Pairs of rows of one window."""

    spec: WindowSpec
    #: window_start and window_end of either side.
    left_window: tuple[int, int]
    right_window: tuple[int, int]
    kind: ClassVar[str] = "WindowJoin"

    def details(self) -> str:
        left, right = (each.row for each in self.inputs)
        return (
            f"leftWindow=[{self.spec.text(left, *self.left_window)}], "
            f"rightWindow=[{self.spec.text(right, *self.right_window)}], "
            f"joinType=[{self.join.value}], where=[{self.where()}], select=[{self.fields_text()}]"
        )


@dataclass(eq=False, kw_only=True)
class WindowRank(PhysicalNode):
    """The rows of each partition and window whose number is in a range."""

    spec: WindowSpec
    window: tuple[int, int]
    function: str
    #: Beside the window.
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    start: int
    end: int
    outputs_rank: bool
    kind: ClassVar[str] = "WindowRank"

    def details(self) -> str:
        below = self.input.row
        return f"window=[{self.spec.text(below, *self.window)}], {ranked_text(self, below)}"
