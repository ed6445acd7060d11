"""Physical nodes of rows that have their windows already: joins and rankings.

What it is: further nodes as those of ``sql/planner/physical.py``; each gives a window when it is
over.
What it is not: the rules that make them (``sql/planner/windowed_rows.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.sql.planner.physical import PhysicalNode, TwoInputs
from millstream.sql.planner.texts import length_text, ranked_text

if TYPE_CHECKING:
    from millstream.sql.planner.logical import SortKey
    from millstream.types.logical_types import RowType

__all__ = ["WindowJoin", "WindowRank", "WindowSpec"]


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
