"""SESSION windows: rows of a key that are no further apart than a gap.

Rows are put into sessions one by one, as they come: a row opens one, makes one longer, or joins
several.  A row is late if the session that it makes is over.  An aggregation keeps an accumulator
per session if those of sessions that join can be put together, else the rows; so does the table
function, which gives the rows of a session when it is over.

State: per key the sessions that are not over: their starts and ends, and the accumulator of each or
the numbers of its chunks of rows; a timer per session.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.operator import StateSection
from millstream.runtime.columnar.array_utils import runs_of
from millstream.runtime.columnar.changelog_aggregates import Segments
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.columnar.table_windows import WindowKind
from millstream.runtime.operators.table.aggregate_calls import (
    Aggregates,
    SortedRows,
    can_be_partial,
)
from millstream.runtime.operators.table.base import weights_of_kinds
from millstream.runtime.operators.table.row_buffers import packed_list, unpacked_list
from millstream.runtime.operators.table.specs import columns_text
from millstream.runtime.operators.table.window_aggregate import (
    WindowAggregateOperator,
    WindowAggregateParameters,
    WindowedAggregateOperator,
    WindowedOperator,
)
from millstream.runtime.operators.table.window_function import KeyedWindowParameters, window_columns
from millstream.state.key_codec import cache_key, uncache_key
from millstream.state.packed_state import PackedValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.operator import Operator, OperatorContext, Output
    from millstream.runtime.columnar.table_windows import TableWindow
    from millstream.state.key_codec import CacheKey
    from millstream.types.logical_types import RowType


@dataclass(frozen=True)
class SessionFunctionFactory(KeyedWindowParameters):
    """SESSION by itself.  Gives each row when its session is over, columns as of the others.

    Rows keep their kinds: a session of a changelog is of all changes.
    """

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [session_rows_section(self.input_type, self.window)]

    @property
    def waits_for_watermarks(self) -> bool:
        """Whether rows are given by event time."""
        return self.is_rowtime

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return SessionFunctionOperator(self)


@dataclass(frozen=True)
class WindowAggregateFactory(WindowAggregateParameters):
    """GROUP BY a window and keys, or sessions of keys."""

    @property
    def _is_session(self) -> bool:
        return self.window.kind is WindowKind.SESSION and self.attached is None

    @property
    def _keeps_rows(self) -> bool:
        """Whether accumulators of sessions that join cannot be put together."""
        return self._is_session and (
            any(call.goes_by_arrival for call in self.aggregates)
            or not can_be_partial(self.aggregates, self.input_type, retracts=self.retracts)
        )

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        if self._keeps_rows:
            return [session_rows_section(self.input_type, self.window)]
        return super().state_sections()

    @property
    def waits_for_watermarks(self) -> bool:
        """Whether rows are given by event time."""
        return self.is_rowtime

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        if self._keeps_rows:
            return SessionRowsAggregateOperator(self)
        return SessionAggregateOperator(self) if self._is_session else WindowAggregateOperator(self)


def session_rows_section(input_type: RowType, window: TableWindow) -> StateSection:
    """Return what operators keep that have the rows of sessions."""
    details = {"columns": columns_text(input_type), "windows": str(window)}
    return StateSection("sessions", "packed rows by key and session", details=details)


_BOUNDS: Final = struct.Struct("<qq")


@dataclass(slots=True)
class _Session:
    """A session of one key."""

    start: int
    end: int
    #: Accumulators, or chunks, of the sessions that it was made of.
    states: list[bytes] = field(default_factory=list)
    #: Of the batch.
    rows: list[int] = field(default_factory=list)


class SessionWindowOperator(WindowedOperator):
    """Keeps the sessions of every key.

    A row opens a session, makes one longer, or joins several.
    """

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._sessions = PackedValues(self.keyed_state, "\0sessions")

    @abstractmethod
    def keep(
        self,
        arrow: pa.RecordBatch,
        kinds: NDArray[np.int8],
        keys: list[CacheKey],
        sessions: list[list[_Session]],
    ) -> None:
        """Put the new rows of the sessions of keys into their ``states``."""

    @abstractmethod
    def parts_of(self, packed: bytes) -> list[bytes]:
        """Return the ``states`` of a session, which are stored one after the other."""

    @abstractmethod
    def give_sessions(self, over: list[tuple[CacheKey, _Session]]) -> None:
        """Give sessions that are over, and forget what is kept of them."""

    def take(
        self, arrow: pa.RecordBatch, kinds: NDArray[np.int8], times: NDArray[np.int64]
    ) -> None:
        columns = [arrow.column(index) for index in self._windows.keys]
        groups = group_rows(columns, arrow.num_rows)
        self.keyed_state.make_room(len(groups))
        stored = self._sessions.get_all(groups.keys)
        at = times.tolist()
        sessions = [self._decoded(each) for each in stored]
        for row, group in enumerate(groups.group_of_row.tolist()):
            if not self._join(sessions[group], row, at[row]):
                self.late += 1
        self.keep(arrow, kinds, groups.keys, sessions)
        self._sessions.put_all(groups.keys, map(_encoded, sessions))
        for key, mine in zip(groups.keys, sessions, strict=True):
            known = uncache_key(key)
            for each in mine:
                if each.rows:
                    (time,) = self.fires_at(np.array([each.end])).tolist()
                    self.register(known, _BOUNDS.pack(each.start, each.end), time)

    def _join(self, sessions: list[_Session], row: int, time: int) -> bool:
        """Put a row into a session; False if that is over."""
        made = _Session(time, time + self._windows.window.size, rows=[row])
        met = [each for each in sessions if each.start <= made.end and each.end >= made.start]
        for each in met:
            made.start, made.end = min(made.start, each.start), max(made.end, each.end)
        if self.is_over(np.array([made.end]))[0]:
            return False
        for each in met:
            sessions.remove(each)
            made.states += each.states
            made.rows += each.rows
        made.rows.sort()
        sessions.append(made)
        return True

    def fire(self, fired: list[tuple[int, object, bytes]]) -> None:
        names = [(cache_key(key), *_BOUNDS.unpack(window)) for _, key, window in fired]
        keys = list(dict.fromkeys(key for key, _, _ in names))
        self.keyed_state.make_room(len(keys))
        stored = self._sessions.get_all(keys)
        of_key = dict(zip(keys, map(self._decoded, stored), strict=True))
        over: list[tuple[CacheKey, _Session]] = []
        for key, start, end in names:
            mine = of_key[key]
            found = next((each for each in mine if (each.start, each.end) == (start, end)), None)
            if found is not None:  # else it has become longer
                mine.remove(found)
                over.append((key, found))
        self._sessions.put_all(keys, [_encoded(of_key[key]) for key in keys])
        if over:
            self.give_sessions(over)

    def _decoded(self, stored: bytes | None) -> list[_Session]:
        found = []
        for row in () if stored is None else unpacked_list(stored):
            start, end = _BOUNDS.unpack_from(row)
            found.append(_Session(start, end, self.parts_of(row[_BOUNDS.size :])))
        return found


def _encoded(sessions: list[_Session]) -> bytes | None:
    if not sessions:
        return None
    return packed_list(
        [_BOUNDS.pack(each.start, each.end) + b"".join(each.states) for each in sessions]
    )


class SessionAggregateOperator(SessionWindowOperator, WindowedAggregateOperator):
    """Keeps an accumulator per session: all aggregates can be put together of partial ones."""

    def parts_of(self, packed: bytes) -> list[bytes]:
        return [packed]

    def keep(
        self,
        arrow: pa.RecordBatch,
        kinds: NDArray[np.int8],
        keys: list[CacheKey],
        sessions: list[list[_Session]],
    ) -> None:
        """Give each session that has new rows one accumulator of all."""
        changed = [
            (key, each)
            for key, mine in zip(keys, sessions, strict=True)
            for each in mine
            if each.rows
        ]
        if not changed:
            return
        weights = weights_of_kinds(kinds)
        base = self._merged([each for _, each in changed])
        rows = np.array([row for _, each in changed for row in each.rows], dtype=np.int64)
        counts = np.array([len(each.rows) for _, each in changed], dtype=np.int64)
        starts = np.cumsum(counts) - counts
        segments = Segments(
            starts, counts, [key for key, _ in changed], np.zeros(len(changed), np.bool_)
        )
        in_order = SortedRows(arrow, rows, weights[rows])
        _, _, states = self.aggregates.run(in_order, segments, base[1:], last_only=True)
        total = base[0].to_numpy() + np.add.reduceat(weights[rows], starts)
        packed = self.codec.pack([pa.array(total), *states])
        for (_, each), row in zip(changed, packed, strict=True):
            each.states = [row]

    def _merged(self, sessions: list[_Session]) -> list[pa.Array]:
        """Put the accumulators together of which sessions are made."""
        parts = [each.states or [self.fresh] for each in sessions]
        columns = self.codec.unpack([row for rows in parts for row in rows])
        counts = np.array([len(rows) for rows in parts], dtype=np.int64)
        if (counts == 1).all():
            return columns
        starts = np.cumsum(counts) - counts
        lifted = self.aggregates.parts_of(columns[1:])
        states = self.aggregates.added_up(lifted, Segments.from_nothing(starts, counts))
        return [pa.array(np.add.reduceat(columns[0].to_numpy(), starts)), *states]

    def give_sessions(self, over: list[tuple[CacheKey, _Session]]) -> None:
        columns = self.codec.unpack([each.states[0] for _, each in over])
        starts, ends = _bounds(over)
        has_rows = columns[0].to_numpy() != 0
        self.give([key for key, _ in over], starts, ends, columns[1:], has_rows)


def _bounds(over: list[tuple[CacheKey, _Session]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    starts = np.array([each.start for _, each in over], dtype=np.int64)
    return starts, np.array([each.end for _, each in over], dtype=np.int64)


#: The number of a chunk: later ones are of rows that came later.
_CHUNK: Final = struct.Struct(">Q")
#: What stands before the row of a change.
_KINDS: Final = tuple(bytes([kind]) for kind in range(4))
#: So many sessions are read at once.
_AT_ONCE: Final = 1_000


class SessionRowsOperator(SessionWindowOperator):
    """Keeps the rows of sessions: the rows of a batch are a chunk, and sessions list their chunks.

    So sessions that join or become longer leave the rows that they have where they are.
    """

    def __init__(self, section: StateSection, plan: KeyedWindowParameters) -> None:
        super().__init__(section, plan)
        self.codec = RowCodec(plan.input_type.to_arrow_schema())

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._chunks = PackedValues(self.keyed_state, "\0session rows")

    @abstractmethod
    def give_rows(self, over: list[tuple[CacheKey, _Session]], rows: list[list[bytes]]) -> None:
        """Give sessions that are over, with their changes: the kind, then the packed row."""

    def parts_of(self, packed: bytes) -> list[bytes]:
        size = _CHUNK.size
        return [packed[at : at + size] for at in range(0, len(packed), size)]

    def keep(
        self,
        arrow: pa.RecordBatch,
        kinds: NDArray[np.int8],
        keys: list[CacheKey],
        sessions: list[list[_Session]],
    ) -> None:
        rows = self.codec.pack(arrow.columns)
        packed = [_KINDS[kind] + row for kind, row in zip(kinds.tolist(), rows, strict=True)]
        slots, chunks = [], []
        for key, mine in zip(keys, sessions, strict=True):
            last = max((name for each in mine for name in each.states), default=None)
            number = 0 if last is None else _CHUNK.unpack(last)[0] + 1
            for each in mine:
                if each.rows:
                    name = _CHUNK.pack(number)
                    number += 1
                    each.states.append(name)
                    slots.append((key, name))
                    chunks.append(packed_list([packed[row] for row in each.rows]))
        self._chunks.put_all(slots, chunks)

    def give_sessions(self, over: list[tuple[CacheKey, _Session]]) -> None:
        for start in range(0, len(over), _AT_ONCE):
            some = over[start : start + _AT_ONCE]
            slots = [(key, name) for key, each in some for name in sorted(each.states)]
            self.keyed_state.make_room(len(slots))
            chunks = iter(self._chunks.get_all(slots))
            rows = [
                [
                    row
                    for chunk in islice(chunks, len(each.states))
                    if chunk
                    for row in unpacked_list(chunk)
                ]
                for _, each in some
            ]
            self._chunks.put_all(slots, [None] * len(slots))
            self.give_rows(some, rows)


class SessionFunctionOperator(SessionRowsOperator):
    """Gives the rows of sessions with the columns of their windows."""

    def __init__(self, plan: SessionFunctionFactory) -> None:
        """Take the gap, and the columns of keys and time."""
        super().__init__(plan.state_sections()[0], plan)

    def give_rows(self, over: list[tuple[CacheKey, _Session]], rows: list[list[bytes]]) -> None:
        counts = np.array([len(each) for each in rows], dtype=np.int64)
        starts, ends = (np.repeat(each, counts) for each in _bounds(over))
        packed = list(chain.from_iterable(rows))
        for run in runs_of(np.fromiter(map(len, packed), np.int64, len(packed))):
            columns = self.codec.unpack([row[1:] for row in packed[run]])
            made = window_columns(starts[run], ends[run], self.clock, self.time_type)
            kinds = np.array([row[0] for row in packed[run]], dtype=np.int8)
            self.emit_columns([*columns, *made.values()], kinds if kinds.any() else None)


class SessionRowsAggregateOperator(SessionRowsOperator):
    """Computes aggregates that cannot be put together of partial ones when a session is over.

    That are DISTINCT, lists, FIRST_VALUE, LAST_VALUE, and MIN and MAX of updates.
    """

    def __init__(self, plan: WindowAggregateParameters) -> None:
        """Take the windows, and what to compute of each."""
        super().__init__(plan.state_sections()[0], plan)
        self._plan = plan
        self._aggregates = Aggregates(plan.aggregates, plan.input_type, retracts=False)

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._aggregates.open_functions(self.runtime_context)

    def give_rows(self, over: list[tuple[CacheKey, _Session]], rows: list[list[bytes]]) -> None:
        left = list(map(_rows_left, rows))
        chosen = np.flatnonzero([bool(each) for each in left])
        if not len(chosen):
            return
        starts, ends = _bounds(over)
        keys = self.key_columns([key for key, _ in over], chosen)
        made = window_columns(starts[chosen], ends[chosen], self.clock, self.time_type)
        results = self._results([left[number] for number in chosen.tolist()])
        self.emit_columns([*keys, *results, *(made[name] for name in self._plan.properties)])

    def _results(self, sessions: list[list[bytes]]) -> list[pa.Array]:
        """Compute the aggregates of sessions, each of which has rows."""
        columns = self.codec.unpack(list(chain.from_iterable(sessions)))
        arrow = pa.RecordBatch.from_arrays(columns, schema=self._plan.input_type.to_arrow_schema())
        counts = np.array([len(each) for each in sessions], dtype=np.int64)
        starts = np.cumsum(counts) - counts
        segments = Segments.from_nothing(starts, counts)
        order = np.arange(arrow.num_rows)
        rows = SortedRows(arrow, order, np.ones(len(order), dtype=np.int64))
        return self._aggregates.run_from_scratch(rows, segments, last_only=True)


def _rows_left(changes: list[bytes]) -> list[bytes]:
    """Return the rows that were added and not retracted; of equal ones the last is retracted."""
    if not any(each[0] for each in changes):
        return [each[1:] for each in changes]
    found: list[bytes | None] = []
    places: dict[bytes, list[int]] = {}
    for each in changes:
        row, mine = each[1:], places.setdefault(each[1:], [])
        if not each[0] & 1:
            mine.append(len(found))
            found.append(row)
        elif mine:  # else what it retracts was late
            found[mine.pop()] = None
    return [row for row in found if row is not None]
