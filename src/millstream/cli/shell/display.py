"""Results of queries for people: a table that is kept up to date, or changes as they come.

What it is: the three modes of Flink's client.  ``table`` applies the changes and shows the rows
that are left, on a terminal while the query runs; ``changelog`` writes one line per change, its
kind first; ``tableau`` writes the same in a frame.

What it is not: ``TableResult.print``, which is ``tableau``.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millstream.table.texts import cell_text
from millstream.types.row import RowKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.table import TableResult
    from millstream.types.logical_types import LogicalType

__all__ = ["MODES", "Display", "Rows"]

#: How results can be shown.
MODES: Final = ("table", "changelog", "tableau")
#: Times per second that a table on a terminal is drawn again.
_REFRESHES: Final = 4
#: Lines of a terminal that rows do not get: frame, heading, count, prompt.
_FRAME_LINES: Final = 7
_ADDED: Final = frozenset({RowKind.INSERT, RowKind.UPDATE_AFTER})


class Rows:
    """The rows of a table, by its changes; equal rows count."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], int] = {}
        self.changes = 0

    def apply(self, kind: RowKind, row: tuple[str, ...]) -> None:
        """Add a row or take one away.

        Args:
            kind: What happens to it.
            row: The texts of its values.
        """
        self.changes += 1
        count = self._counts.get(row, 0) + (1 if kind in _ADDED else -1)
        if count:
            self._counts[row] = count
        else:
            self._counts.pop(row, None)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        for row, count in list(self._counts.items()):
            for _ in range(count):
                yield row


class Display:
    """Shows the result of a query in one of the modes."""

    def __init__(self, console: Console, mode: str) -> None:
        """Take where to show it and how.

        Args:
            console: Where it goes.
            mode: One of MODES.
        """
        self._console = console
        self._mode = mode

    def show(self, result: TableResult) -> None:
        """Show rows until the query ends; an interrupt cancels it.

        Args:
            result: What the query gave.

        Raises:
            JobError: the query failed.
            KeyboardInterrupt: it was stopped; what was there by then has been shown.
        """
        if self._mode == "tableau":
            result.print()
        elif self._mode == "changelog":
            self._show_changes(result)
        else:
            self._show_table(result)

    def _show_changes(self, result: TableResult) -> None:
        schema = result.get_resolved_schema()
        names = [column.name for column in schema.columns]
        types = [column.type for column in schema.columns]
        self._write(" | ".join(["op", *names]))
        rows: Any
        with result.collect() as rows:
            for row in rows:
                self._write(" | ".join([str(row.get_row_kind()), *_cells(row, types)]))

    def _show_table(self, result: TableResult) -> None:
        schema = result.get_resolved_schema()
        names = [column.name for column in schema.columns]
        types = [column.type for column in schema.columns]
        kept = Rows()
        is_whole = False
        try:
            with result.collect() as rows:
                if self._console.is_terminal:
                    with Live(
                        console=self._console,
                        refresh_per_second=_REFRESHES,
                        transient=True,
                        get_renderable=lambda: self._page(names, kept),
                    ):
                        _apply(kept, rows, types)
                else:
                    _apply(kept, rows, types)
            is_whole = True
        finally:
            self._final(names, kept, is_whole=is_whole)

    def _page(self, names: Sequence[str], rows: Rows) -> Group:
        """The last rows that fit onto the terminal."""
        every = list(rows)
        height = max(1, self._console.height - _FRAME_LINES)
        count = f"{_rows(len(every))} after {rows.changes} changes; Ctrl-C stops the query"
        return Group(_framed(names, every[-height:]), Text(count))

    def _final(self, names: Sequence[str], rows: Rows, *, is_whole: bool) -> None:
        """What there is at the end; of a query that was stopped or has failed it is not the set."""
        every = list(rows)
        if not every:
            self._write("Empty set" if is_whole else "No rows so far")
            return
        # As wide as its cells: what is cut here is lost in a file.
        wide = Console(file=io.StringIO(), width=_UNLIMITED, color_system=None)
        with wide.capture() as captured:
            wide.print(_framed(names, every))
        self._write(captured.get().rstrip("\n"))
        self._write(f"{_rows(len(every))} {'in set' if is_whole else 'so far'}")

    def _write(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


#: Columns: no table is that wide.
_UNLIMITED: Final = 10_000


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _apply(kept: Rows, rows: Any, types: Sequence[LogicalType]) -> None:
    for row in rows:
        kept.apply(row.get_row_kind(), _cells(row, types))


def _cells(row: Any, types: Sequence[LogicalType]) -> tuple[str, ...]:
    return tuple(cell_text(value, type_) for value, type_ in zip(row, types, strict=True))


def _framed(names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=box.ASCII2, show_lines=False)
    for name in names:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
