"""The physical node of rows in the order of a time attribute.

What it is: a further node as those of ``sql/planner/physical.py``.
What it is not: the rule that makes it (``sql/planner/ranks.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.sql.planner.physical import PhysicalNode
from millstream.sql.planner.texts import order_text

if TYPE_CHECKING:
    from millstream.sql.planner.logical import SortKey

__all__ = ["TemporalSort"]


@dataclass(eq=False, kw_only=True)
class TemporalSort(PhysicalNode):
    """Rows that are only added, in order of event time, then of other columns."""

    order: tuple[SortKey, ...]
    kind: ClassVar[str] = "TemporalSort"

    def details(self) -> str:
        return f"orderBy=[{order_text(self.row, self.order)}]"
