"""Display of query results: Flink's modes ``table``, ``changelog`` and ``tableau``."""

from __future__ import annotations

import heapq
import io
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millstream.types.row import RowKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.cli.shell.executor import StatementResult


#: How results can be shown.
MODES: Final = ("table", "changelog", "tableau")
#: Times per second that a table on a terminal is drawn again.
_REFRESHES: Final = 4
#: Lines of a terminal that rows do not get: frame, heading, count, prompt.
_FRAME_LINES: Final = 7
#: What the frame adds to each column: a line and two spaces.
_FRAME: Final = 3
#: Characters that a column of a table on a terminal has at least, if its values are as long.
_LEAST: Final = 6
_ADDED: Final = frozenset({RowKind.INSERT, RowKind.UPDATE_AFTER})


class Rows:
    """The rows of a table, by its changes.

    Equal rows count.  An update takes the place of the row that it retracts, so that rows of
    a screen stay where they are.
    """

    def __init__(self) -> None:
        #: Place -> row.  Places only grow: a new row is the last.
        self._rows: dict[int, tuple[str, ...]] = {}
        self._places: dict[tuple[str, ...], list[int]] = {}
        #: Places of retracted rows whose updates are still to come.
        self._vacated: deque[int] = deque()
        #: Rows that were retracted before they came, and how often.
        self._missing: Counter[tuple[str, ...]] = Counter()
        self._next = 0
        self.changes = 0

    def apply(self, kind: RowKind, row: tuple[str, ...]) -> None:
        """Add a row or retract one.

        Args:
            kind: What happens to it.
            row: The texts of its values.
        """
        self.changes += 1
        if kind in _ADDED:
            self._add(row, is_update=kind is RowKind.UPDATE_AFTER)
        else:
            self._retract(row, is_update=kind is RowKind.UPDATE_BEFORE)

    def _add(self, row: tuple[str, ...], *, is_update: bool) -> None:
        if self._missing.get(row):
            self._missing[row] -= 1
            return
        if is_update and self._vacated:
            place = self._vacated.popleft()
        else:
            place = self._next
            self._next += 1
        self._rows[place] = row
        self._places.setdefault(row, []).append(place)

    def _retract(self, row: tuple[str, ...], *, is_update: bool) -> None:
        places = self._places.get(row)
        if not places:
            self._missing[row] += 1
            return
        place = places.pop()
        if not places:
            del self._places[row]
        del self._rows[place]
        if is_update:
            self._vacated.append(place)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self.last(len(self._rows)))

    def last(self, count: int) -> list[tuple[str, ...]]:
        """Return the last rows, in the order of their places."""
        # One copy in one step: the screen is drawn by another thread.
        every = list(self._rows.items())
        return [row for _, row in sorted(heapq.nlargest(count, every, key=_place))]


def _place(item: tuple[int, tuple[str, ...]]) -> int:
    return item[0]


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

    def show(self, result: StatementResult) -> None:
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

    def _show_changes(self, result: StatementResult) -> None:
        schema = result.get_resolved_schema()
        names = [column.name for column in schema.columns]
        self._write(" | ".join(["op", *names]))
        with result.collect_texts() as rows:
            for kind, texts in rows:
                self._write(" | ".join([str(kind), *texts]))

    def _show_table(self, result: StatementResult) -> None:
        schema = result.get_resolved_schema()
        names = [column.name for column in schema.columns]
        kept = Rows()
        is_whole = False
        try:
            with result.collect_texts() as rows:
                if self._console.is_terminal:
                    with Live(
                        console=self._console,
                        refresh_per_second=_REFRESHES,
                        transient=True,
                        get_renderable=lambda: self._page(names, kept),
                    ):
                        _apply(kept, rows)
                else:
                    _apply(kept, rows)
            is_whole = True
        finally:
            self._final(names, kept, is_whole=is_whole)

    def _page(self, names: Sequence[str], rows: Rows) -> Group:
        """The last rows that fit onto the terminal."""
        height = max(1, self._console.height - _FRAME_LINES)
        shown = rows.last(height)
        table, hidden = _fitted(names, shown, self._console.width)
        count = f"{_rows(len(rows))} after {rows.changes} changes; Ctrl-C stops the query"
        if len(rows) > len(shown):
            count += f"; the last {len(shown)} are shown"
        if hidden:
            count += f"; no room for {hidden} column{'' if hidden == 1 else 's'}"
        return Group(table, Text(count))

    def _final(self, names: Sequence[str], rows: Rows, *, is_whole: bool) -> None:
        """What there is at the end; of a query that was stopped or has failed it is not the set."""
        every = list(rows)
        if not every:
            self._write("Empty set" if is_whole else "No rows so far")
            return
        self._write_table(names, every)
        self._write(f"{_rows(len(every))} {'in set' if is_whole else 'so far'}")

    def show_statement(self, result: StatementResult) -> None:
        """Show what a statement gave that is no query: SHOW, DESCRIBE, OK."""
        names = [column.name for column in result.get_resolved_schema().columns]
        if not self._console.is_terminal or len(names) == 1 or result.get_job_client() is not None:
            result.print()
            return
        with result.collect_texts() as rows:
            every = [texts for _, texts in rows]
        if not every:
            self._write("Empty set")
            return
        self._write_table(names, every)
        self._write(f"{_rows(len(every))} in set")

    def _write_table(self, names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
        """Write rows in a frame; on a terminal that is too narrow, a line for each value."""
        width = _width_of(_naturals(names, rows))
        if self._console.is_terminal and width > self._console.width and len(names) > 1:
            label = max(map(cell_len, names))
            for number, row in enumerate(rows, 1):
                self._write(f"-- row {number} --")
                for name, value in zip(names, row, strict=True):
                    self._write(f"{name}{' ' * (label - cell_len(name))} | {value}")
            return
        # As wide as its cells: what is cut here is lost in a file.
        wide = Console(file=io.StringIO(), width=width, color_system=None)
        with wide.capture() as captured:
            wide.print(_framed(names, rows))
        self._write(captured.get().rstrip("\n"))

    def _write(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _apply(kept: Rows, rows: Any) -> None:
    for kind, texts in rows:
        kept.apply(kind, texts)


def _naturals(names: Sequence[str], rows: Iterable[tuple[str, ...]]) -> list[int]:
    """The widths that columns need, in cells of a terminal."""
    widths = [cell_len(name) for name in names]
    for row in rows:
        for index, value in enumerate(row):
            widths[index] = max(widths[index], *map(cell_len, value.split("\n")))
    return widths


def _width_of(columns: Sequence[int]) -> int:
    """The width of a table with its frame."""
    return sum(columns) + _FRAME * len(columns) + 1


def _fitted(names: Sequence[str], rows: Sequence[tuple[str, ...]], width: int) -> tuple[Table, int]:
    """A table that is no wider than the terminal, and the number of columns left out.

    Narrow columns keep their width, wide ones share what is left.  Columns for which not even
    a few characters are left are left out, the last first.
    """
    naturals = _naturals(names, rows)
    least = [min(each, _LEAST) for each in naturals]
    count = len(names)
    while count > 1 and _width_of(least[:count]) > width:
        count -= 1
    naturals = naturals[:count]
    room = max(width - _width_of([0] * count), 1)
    share = max(naturals)
    while share > 1 and sum(min(each, share) for each in naturals) > room:
        share -= 1
    widths = [min(each, share) for each in naturals]
    # What the even shares leave over goes to the cut columns, from the left.
    left = room - sum(widths)
    for index, natural in enumerate(naturals):
        if left > 0 and widths[index] < natural:
            widths[index], left = widths[index] + 1, left - 1
    return _framed(names[:count], [row[:count] for row in rows], widths), len(names) - count


def _framed(
    names: Sequence[str], rows: Sequence[tuple[str, ...]], widths: Sequence[int] | None = None
) -> Table:
    table = Table(box=box.ASCII2, show_lines=False)
    for index, name in enumerate(names):
        width = None if widths is None else widths[index]
        table.add_column(
            Text(name), justify="right", no_wrap=True, overflow="ellipsis", width=width
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table
