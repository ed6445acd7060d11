"""The physical node of batch mode: the rows that are there at the end, in order.

What it is: a further node as those of ``sql/planner/physical.py``.
What it is not: the rules that put it into plans (``sql/planner/batch.py``,
``sql/planner/ranks.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.sql.planner.physical import PhysicalNode
from millstream.sql.planner.texts import order_text

if TYPE_CHECKING:
    from millstream.sql.planner.logical import SortKey

__all__ = ["FinalRows"]


@dataclass(eq=False, kw_only=True)
class FinalRows(PhysicalNode):
    """The rows that are there when the input is over, once each, as inserts."""

    order: tuple[SortKey, ...] = ()
    offset: int = 0
    kind: ClassVar[str] = "FinalRows"

    @property
    def shown_kind(self) -> str:
        return "Sort" if self.order else self.kind

    def details(self) -> str:
        parts = []
        if self.order:
            parts.append(f"orderBy=[{order_text(self.row, self.order)}]")
        if self.offset:
            parts.append(f"offset=[{self.offset}]")
        return ", ".join([*parts, f"select=[{self.fields_text()}]"])
