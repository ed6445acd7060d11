"""Windows of rows: how they lie, and which columns of a row have them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.sql.planner.formatting import length_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.types.logical_types import RowType


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


@dataclass(frozen=True)
class WindowColumns:
    """Where a row has its window; each may stand in several columns."""

    spec: WindowSpec | None
    starts: frozenset[int]
    ends: frozenset[int]
    times: frozenset[int] = frozenset()
    #: Of sessions, where each key of theirs stands; None: a projection has lost one.
    partition: tuple[frozenset[int], ...] | None = ()

    def moved(self, places: Mapping[int, Sequence[int]]) -> WindowColumns | None:
        """The same behind a projection; None if it has lost the window."""

        def behind(columns: frozenset[int]) -> frozenset[int]:
            return frozenset(place for each in columns for place in places.get(each, ()))

        partition = tuple(map(behind, self.partition or ()))
        made = replace(
            self,
            starts=behind(self.starts),
            ends=behind(self.ends),
            times=behind(self.times),
            partition=partition if self.partition is not None and all(partition) else None,
        )
        return made if made.starts and made.ends else None

    def shifted(self, by: int) -> WindowColumns:
        """The same with its columns further to the right."""
        one, other, third, *keys = (
            frozenset(each + by for each in columns)
            for columns in (self.starts, self.ends, self.times, *(self.partition or ()))
        )
        partition = None if self.partition is None else tuple(keys)
        return replace(self, starts=one, ends=other, times=third, partition=partition)

    def with_all(self, other: WindowColumns) -> WindowColumns:
        """The columns of both."""
        return replace(
            self,
            starts=self.starts | other.starts,
            ends=self.ends | other.ends,
            times=self.times | other.times,
        )

    def are_grouped_by(self, columns: set[int], *, exactly: bool = False) -> bool:
        """Return whether rows with one value of these columns and one window are of one session.

        Sessions of several keys may have the same bounds.  Other windows always are.

        Args:
            columns: of the group, without those of the window.
            exactly: whether the group must not be smaller than the session.
        """
        if self.spec is None or self.spec.kind != "SESSION":
            return True
        if self.partition is None or not all(each & columns for each in self.partition):
            return False
        return not exactly or columns <= frozenset().union(*self.partition)


def columns_after(
    width: int, spec: WindowSpec | None, partition: Sequence[int] = ()
) -> WindowColumns:
    """The columns of windows behind a row of so many."""
    start, end, time = (frozenset({width + number}) for number in range(3))
    return WindowColumns(spec, start, end, time, tuple(frozenset({each}) for each in partition))
