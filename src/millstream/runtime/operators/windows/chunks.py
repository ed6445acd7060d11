"""Slices of windows with built-in aggregates, and their state as Arrow chunks.

Tables of key and partial columns are buffered in memory, over ``C`` entries of the store to which
every checkpoint adds one chunk per slice that changed.  Every sixteenth checkpoint merges the
chunks of a changed slice into one, so that their number stays small.  Entries are ordered by the
last timestamp of the slice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.errors import StateError
from millstream.runtime.columnar.partial_aggregates import TIME, PartialAggregates, concatenated
from millstream.runtime.columnar.row_groups import KEY, key_columns
from millstream.runtime.operators.windows.contents import SnapshotState
from millstream.state.chunks import decoded_chunk, encoded_chunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext
    from millstream.functions.window_assigners import FixedEventTimeWindows
    from millstream.runtime.columnar.aggregates import BuiltInAggregate
    from millstream.runtime.operators.base import KeyExtractor
    from millstream.state.key_context import Puts
    from millstream.state.keyed import KeyedState


class Panes:
    """Panes and windows by number; all times are milliseconds.

    Window ``k`` begins at ``offset + k * slide`` with pane ``k * per_slide`` and has ``per_window``
    panes.  Where windows leave gaps, every odd pane is a gap and belongs to no window.
    """

    __slots__ = ("_offset", "_rest", "_size", "_slide", "per_slide", "per_window")

    def __init__(self, assigner: FixedEventTimeWindows) -> None:
        self._size, self._slide, self._offset = assigner.size, assigner.slide, assigner.offset
        self._rest = self._size % self._slide
        #: Panes from the start of one window to that of the next.
        self.per_slide = 2 if self._rest else 1
        self.per_window = self._size // self._slide * self.per_slide + (1 if self._rest else 0)

    # Panes.

    def numbers(self, timestamps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the pane of each timestamp."""
        whole, rest = np.divmod(timestamps - self._offset, self._slide)
        if not self._rest:
            return whole
        return whole * 2 + (rest >= self._rest)

    def starts(self, panes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first timestamp of each pane."""
        if not self._rest:
            return panes * self._slide + self._offset
        return (panes >> 1) * self._slide + (panes & 1) * self._rest + self._offset

    def last_timestamp(self, pane: int) -> int:
        """Return the last timestamp of the pane."""
        pane += 1
        if not self._rest:
            return pane * self._slide + self._offset - 1
        return (pane >> 1) * self._slide + (pane & 1) * self._rest + self._offset - 1

    def of_timestamp(self, timestamp: int) -> int:
        """Return the pane that the timestamp is in."""
        whole, rest = divmod(timestamp - self._offset, self._slide)
        return whole * 2 + (rest >= self._rest) if self._rest else whole

    # Windows.

    def first_windows(self, panes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first window that each pane belongs to."""
        found: NDArray[np.int64] = -((self.per_window - 1 - panes) // self.per_slide)
        return found

    def last_windows(self, panes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the last window that each pane belongs to; of a gap, one before the first."""
        found: NDArray[np.int64] = panes // self.per_slide
        return found

    def window_starts(self, windows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first timestamp of each window."""
        return windows * self._slide + self._offset

    def max_timestamps(self, windows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the last timestamp of each window."""
        return windows * self._slide + (self._offset + self._size - 1)

    def windows_of_max(self, timestamps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the windows with these last timestamps."""
        return (timestamps - (self._offset + self._size - 1)) // self._slide

    def window_end(self, window: int) -> int:
        """Return the first timestamp after a window."""
        return window * self._slide + self._offset + self._size

    def passed(self, watermark: int) -> int:
        """Return the last window whose last timestamp the watermark has reached."""
        return (watermark - self._offset - self._size + 1) // self._slide


START: Final = "window_start"
END: Final = "window_end"
FLUSH: Final = "__flush"
POSITION: Final = "__position"

_PANE: Final = "__pane"


class Partials(PartialAggregates):
    """Turns batches into raw tables of keys and panes, and merges partials pane by pane."""

    def __init__(
        self,
        panes: Panes | None,
        aggregates: dict[str, BuiltInAggregate],
        extractor: KeyExtractor,
    ) -> None:
        """Take what the window was declared with; None: windows that are not cut into panes."""
        super().__init__(aggregates)
        self._panes = panes
        self._extractor = extractor
        #: Those of the key selector, to be opened.
        self.functions = extractor.functions

    def raw(self, batch: Batch, context: OperatorContext) -> list[pa.Table]:
        """Return tables of key, pane start, time and the fields that are aggregated.

        Without panes there are time and position in the batch.
        Most batches give one table; keys of several types give one per form of the key column.
        Records that fall between windows are left out.
        """
        timestamps = batch.timestamp_array
        columns: dict[str, pa.Array] = {}
        inside: NDArray[np.bool_] | None = None
        if self._panes is not None:
            panes = self._panes.numbers(timestamps)
            columns[START] = pa.array(self._panes.starts(panes))
            if self._panes.per_window < self._panes.per_slide:
                inside = self._panes.last_windows(panes) >= self._panes.first_windows(panes)
        else:
            columns[POSITION] = pa.array(np.arange(len(batch)))
            columns[TIME] = pa.array(timestamps)
        columns |= self.inputs(batch, context)
        tables = []
        for positions, keys in key_columns(self._extractor, batch, context):
            table = (
                pa.table({KEY: keys, **columns})
                if (positions is None)
                else pa.table({name: c.take(positions) for name, c in columns.items()}).add_column(
                    0, KEY, keys
                )
            )
            if inside is not None:
                kept = inside if positions is None else inside[positions.to_numpy()]
                table = table.filter(pa.array(kept))
            tables.append(table)
        return tables

    def merge_pane(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge tables of key and partial columns, all of one pane, in the order they came.

        No table has a key twice.
        """
        if len(tables) == 1:
            return tables[0]
        return self.merge(concatenated(tables), [KEY])

    def merge_panes(self, panes: dict[int, list[pa.Table]]) -> dict[int, pa.Table]:
        """Merge the tables of many panes at once, as ``merge_pane`` does one by one."""
        merged = {pane: tables[0] for pane, tables in panes.items() if len(tables) == 1}
        others = {pane: tables for pane, tables in panes.items() if len(tables) > 1}
        if not others:
            return merged
        counts = [sum(table.num_rows for table in tables) for tables in others.values()]
        table = concatenated([table for tables in others.values() for table in tables])
        numbers = pa.array(np.repeat(np.arange(len(others)), counts))
        table = self.merge(table.append_column(_PANE, numbers), [_PANE, KEY])
        found = table.column(_PANE).to_numpy()
        table = table.drop_columns([_PANE]).take(pa.array(np.argsort(found, kind="stable")))
        ends = np.cumsum(np.bincount(found, minlength=len(others))).tolist()
        for pane, start, end in zip(others, [0, *ends], ends, strict=False):
            merged[pane] = table.slice(start, end - start)
        return merged


_MOST_TABLES: Final = 64
_MERGE_CHUNKS: Final = 16
_FORMS: Final = {pa.int64(): b"i", pa.string(): b"s", pa.binary(): b"b"}


class WindowChunks(SnapshotState):
    """Partial tables by pane and form of key."""

    def __init__(self, keyed: KeyedState, content: str, partials: Partials, panes: Panes) -> None:
        """Keep chunks in ``keyed``; take how to merge them, and the panes."""
        super().__init__(keyed, "\0windows.panes", "panes", content)
        self._partials = partials
        self._panes = panes
        self._added: dict[int, dict[bytes, list[pa.Table]]] = {}
        self._loaded: dict[int, dict[bytes, list[pa.Table]]] = {}
        self._stored: set[int] = set()

    def begin_epoch(self) -> set[int]:
        """Return the panes that have state in the store, which was restored."""
        self.forget()
        times = self.section(b"C").times(self.keyed.store)
        self._stored = {self._panes.of_timestamp(time) for time in times}
        return self._stored

    def forget(self) -> None:
        self._added, self._loaded = {}, {}

    def add(self, pane: int, table: pa.Table) -> None:
        """Add partials of one form of key to the pane.

        Raises:
            StateError: the keys have no known form.
        """
        tables = self._added.setdefault(pane, {}).setdefault(form_of(table), [])
        tables.append(table)
        if len(tables) >= _MOST_TABLES:
            tables[:] = [self._partials.merge_pane(tables)]

    def parts(self, pane: int, form: bytes) -> list[pa.Table]:
        """Return the tables of the pane with this form of key, as they came."""
        stored = self._read(pane).get(form, []) if pane in self._stored else []
        return stored + self._added.get(pane, {}).get(form, [])

    def forms(self, panes: Iterable[int]) -> dict[bytes, list[int]]:
        """Return which of the panes have which forms of key."""
        forms: dict[bytes, list[int]] = {}
        for pane in panes:
            stored = self._read(pane) if pane in self._stored else {}
            for form in sorted(stored.keys() | self._added.get(pane, {}).keys()):
                forms.setdefault(form, []).append(pane)
        return forms

    def drop(self, pane: int) -> None:
        """Forget the pane."""
        self._added.pop(pane, None)
        self._loaded.pop(pane, None)
        if pane in self._stored:
            self._stored.discard(pane)
            self.keyed.store.delete_range(*self._range(pane))

    def flush(self, puts: Puts, deletes: list[bytes]) -> None:
        """Write what was added, as one chunk per pane and form of key."""
        del deletes
        chunk = self.keyed.next_chunk
        merges = int.from_bytes(chunk, "big") % _MERGE_CHUNKS == 0
        forms: dict[bytes, dict[int, list[pa.Table]]] = {}
        for pane, added in self._added.items():
            tables = added
            if merges and pane in self._stored:
                tables = {form: self.parts(pane, form) for form in self.forms([pane])}
                self.keyed.store.delete_range(*self._range(pane))
                self._loaded[pane] = {}
            elif pane not in self._stored:
                self._loaded[pane] = {}
            for form, parts in tables.items():
                forms.setdefault(form, {})[pane] = parts
        ours = (self.keyed.max_parallelism, self.keyed.key_groups)
        for form, panes in forms.items():
            for pane, table in self._partials.merge_panes(panes).items():
                puts.append((self._range(pane)[0] + form + chunk, encoded_chunk(table, *ours)))
                self._stored.add(pane)
                if pane in self._loaded:  # else it is read as a whole when it is wanted
                    self._loaded[pane].setdefault(form, []).append(table)
        self._added = {}

    @property
    def weight(self) -> int:  # type: ignore[override] # of what was read
        tables = (each for forms in self._loaded.values() for each in forms.values())
        return sum(table.nbytes for each in tables for table in each)

    def age(self) -> dict[Any, Any]:
        gone, self._loaded = self._loaded, {}
        return gone

    def _range(self, pane: int) -> tuple[bytes, bytes]:
        time = self._panes.last_timestamp(pane)
        section = self.section(b"C")
        return section.prefix(time), section.after(time)

    def _read(self, pane: int) -> dict[bytes, list[pa.Table]]:
        if pane in self._loaded:
            return self._loaded[pane]
        ours = (self.keyed.max_parallelism, self.keyed.key_groups)
        begin, end = self._range(pane)
        # As this class wrote the key; each change of parallelism added a range after it.
        length = len(begin) + 9
        forms: dict[bytes, list[pa.Table]] = {}
        for name, stored in self.keyed.store.scan(begin, end):
            table, counts = decoded_chunk(name, length, stored, ours)
            if counts is not None:
                table = table.filter(pa.array(counts, pa.bool_()))
            if table.num_rows:
                forms.setdefault(name[len(begin) :][:1], []).append(table)
        self._loaded[pane] = forms
        return forms


def form_of(table: pa.Table) -> bytes:
    """Return the letter that stands for the type of the key column.

    Raises:
        StateError: partials have no keys of this type.
    """
    form = _FORMS.get(table.schema.field(KEY).type)
    if form is None:
        message = f"partial aggregates have keys of type {table.schema.field(KEY).type}"
        raise StateError(message)
    return form
