"""Rows of the snapshot of a table, and of the transactions after it, as a changelog."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.connectors.formats.row_format import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from millstream.connectors.postgres.pgoutput import (
    Begin,
    Commit,
    Relation,
    RowChange,
    Truncate,
    UnchangedToast,
    parse,
    to_columns,
)
from millstream.contracts.source import SourceBatch
from millstream.errors import SourceError
from millstream.types.row import with_kind_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.connectors.postgres.pgoutput import Message, Value
    from millstream.connectors.postgres.replication import ReplicatedTable

#: What is known of each row beside its columns, under the names of Flink CDC.
METADATA: Final = {
    "database_name": pa.string(),
    "schema_name": pa.string(),
    "table_name": pa.string(),
    "op_ts": pa.timestamp("ms", "UTC"),
}
_CYCLE: Final = 1 << 32


@dataclass(frozen=True)
class VisibleTransactions:
    """The transactions whose changes a snapshot has, as ``pg_current_snapshot`` shows them.

    Invariant: a transaction of which the snapshot has changes was committed before ``until``, so
    that its number, which comes again after four billion others, is compared only up to there.
    """

    text: str
    until: int
    _first: int = field(init=False)
    _next: int = field(init=False)
    _running: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        first, after, running = self.text.split(":")
        object.__setattr__(self, "_first", int(first))
        object.__setattr__(self, "_next", int(after))
        object.__setattr__(self, "_running", frozenset(map(int, filter(None, running.split(",")))))

    def has(self, begun: Begin) -> bool:
        """Return whether the snapshot has the changes of a transaction."""
        if begun.commit_lsn >= self.until:
            return False
        distance = (self._next - begun.xid) % _CYCLE
        number = self._next - (distance if distance < _CYCLE // 2 else distance - _CYCLE)
        return number < self._first or (number < self._next and number not in self._running)


@dataclass(frozen=True)
class ChangelogLayout:
    """The columns of a changelog, and its change types.

    Args:
        schema: the columns of the table that are read.
        metadata: keys of ``METADATA`` that follow them, and the names of their columns.
        key: the primary key; an update that changes it is a deletion and an insert.
        upsert: whether rows before updates are left out.
        database: its name.
        skips_truncate: whether TRUNCATE is passed over.
    """

    schema: pa.Schema
    metadata: Mapping[str, str]
    key: tuple[str, ...]
    upsert: bool
    database: str
    skips_truncate: bool = False

    @property
    def whole(self) -> pa.Schema:
        """All columns."""
        more = [pa.field(name, METADATA[key]) for key, name in self.metadata.items()]
        return pa.schema([*self.schema, *more])

    def batch(
        self,
        table: ReplicatedTable,
        rows: Sequence[Sequence[bytes | str | None]],
        times: Sequence[int] | None = None,
        kinds: Sequence[int] | None = None,
    ) -> SourceBatch:
        """Make a batch of rows; without times and kinds they are of the snapshot.

        Raises:
            MalformedRecordError: a value is not one of its column's type.
        """
        columns = to_columns(rows, self.schema, str(table))
        said = {
            "database_name": self.database,
            "schema_name": table.schema,
            "table_name": table.table,
        }
        for key in self.metadata:
            values = (times or [0] * len(rows)) if key == "op_ts" else [said[key]] * len(rows)
            columns.append(pa.array(values, pa.int64() if key == "op_ts" else METADATA[key]))
        columns = [each.cast(kind.type) for each, kind in zip(columns, self.whole, strict=True)]
        made = pa.RecordBatch.from_arrays(columns, schema=self.whole)
        if kinds is not None and any(kinds):
            made = with_kind_column(made, np.array(kinds, np.int8))
        return SourceBatch(arrow=made)


class TransactionReader:
    """Collects the rows of whole transactions from messages of ``pgoutput``.

    Args:
        table: the table.
        layout: of the changelog.
        types: column -> oid of its type, when the job began to read the table.
        limits: the first position and the one after the last, of the commit records of the
            transactions that are read.  As the server counts, for a position may lie in a record.
        snapshot: the transactions of the snapshot, which are passed over; None: there is none.
    """

    def __init__(
        self,
        table: ReplicatedTable,
        layout: ChangelogLayout,
        types: Mapping[str, int],
        limits: tuple[int, int | None],
        snapshot: VisibleTransactions | None,
    ) -> None:
        self._table = table
        self._layout = layout
        self._types = types
        self._start, self._stop = limits
        self._snapshot = snapshot
        #: The table's number, and the place of each column in a row as it is sent now.
        self._oid: int | None = None
        self._places: list[int] = []
        self._key_places: list[int] = []
        self._begun: Begin | None = None
        self._skips = False
        #: Of complete transactions, then of the one that has begun.
        self._rows: list[list[bytes | str | None]] = []
        self._kinds: list[int] = []
        self._times: list[int] = []
        self._complete = 0
        #: Where the last complete transaction ends; 0: there was none.
        self.end = 0

    @property
    def is_within(self) -> bool:
        """Return whether a transaction has begun of which the end is to come."""
        return self._begun is not None

    def add(self, content: bytes) -> None:
        """Take a message.

        Raises:
            SourceError: the table changed in a way that cannot be followed.
        """
        message = parse(content)
        if isinstance(message, Begin):
            self._begun = message
            is_early = message.commit_lsn < self._start
            is_late = self._stop is not None and message.commit_lsn >= self._stop
            in_snapshot = self._snapshot is not None and self._snapshot.has(message)
            self._skips = is_early or is_late or in_snapshot
        elif isinstance(message, Commit):
            self._begun = None
            self._complete, self.end = len(self._rows), message.end_lsn
        elif message is not None:
            self._within(message)

    def take(self) -> SourceBatch | None:
        """The rows of complete transactions; None: there are none."""
        count, self._complete = self._complete, 0
        if not count:
            return None
        rows, times, kinds = self._rows[:count], self._times[:count], self._kinds[:count]
        for each in (self._rows, self._times, self._kinds):
            del each[:count]
        return self._layout.batch(self._table, rows, times, kinds)

    def _within(self, message: Message) -> None:
        if isinstance(message, Relation):
            self._describe(message)
        elif isinstance(message, RowChange) and message.oid == self._oid and not self._skips:
            self._change(message)
        elif isinstance(message, Truncate) and self._oid in message.oids and not self._skips:
            if self._layout.skips_truncate:
                return
            error = (
                f"{self._table}: TRUNCATE deleted all rows, which a changelog cannot say row by"
                " row. Start the job from scratch with a new slot; use DELETE in future, or set"
                " 'debezium.skipped.operations' = 't' to keep the rows that were read"
            )
            raise SourceError(error)

    def _describe(self, relation: Relation) -> None:
        table = self._table
        if (relation.schema, relation.table) != (table.schema, table.table):
            if relation.oid == self._oid:
                message = (
                    f"{table} was renamed to {relation.schema}.{relation.table}: name it back, or"
                    " start a new job with the new name"
                )
                raise SourceError(message)
            return
        self._oid = relation.oid
        for name in self._layout.schema.names:
            now, before = relation.columns.get(name), self._types.get(name)
            if now is None or now != before:
                what = "was dropped or renamed" if now is None else "has another type now"
                if before is None:
                    what = "was added after the job began to read the table"
                message = (
                    f"{table}: column {name!r} {what}, so that its changes cannot be read any"
                    " more. Undo that, or start the job from scratch with a table that is declared"
                    " as it is now, and a new slot"
                )
                raise SourceError(message)
        names = list(relation.columns)
        self._places = [names.index(name) for name in self._layout.schema.names]
        self._key_places = [names.index(name) for name in self._layout.key if name in names]

    def _change(self, change: RowChange) -> None:
        old, new = change.old, change.new
        if change.kind == "I":
            self._emit(INSERT, new, None)
        elif change.kind == "D":
            self._emit(DELETE, old, None)
        elif old is not None and self._moves(old, new, is_key=change.is_key):
            self._emit(DELETE, old, None)
            self._emit(INSERT, new, old)
        else:
            if not self._layout.upsert:
                self._emit(UPDATE_BEFORE, old, None)
            self._emit(UPDATE_AFTER, new, old)

    def _moves(
        self, old: tuple[Value, ...], new: tuple[Value, ...] | None, *, is_key: bool
    ) -> bool:
        """Return whether an update changes the key."""
        if is_key or new is None:
            return is_key
        return any(
            old[at] != new[at] for at in self._key_places if not isinstance(new[at], UnchangedToast)
        )

    def _emit(
        self, kind: int, row: tuple[Value, ...] | None, other: tuple[Value, ...] | None
    ) -> None:
        if row is None:
            message = (
                f"{self._table}: a change came without the row before it, because the replica"
                " identity was changed: run ALTER TABLE ... REPLICA IDENTITY FULL, and start the"
                " job from scratch"
            )
            raise SourceError(message)
        values: list[bytes | str | None] = []
        for place, name in zip(self._places, self._layout.schema.names, strict=True):
            value = row[place]
            if isinstance(value, UnchangedToast):
                value = None if other is None else other[place]
                if other is None or isinstance(value, UnchangedToast) or self._is_key_only(other):
                    self._refuse_unchanged(name)
            values.append(None if isinstance(value, UnchangedToast) else value)
        self._rows.append(values)
        self._kinds.append(kind)
        self._times.append(0 if self._begun is None else self._begun.time)

    def _is_key_only(self, row: tuple[Value, ...]) -> bool:
        keys = set(self._key_places)
        return all(value is None for at, value in enumerate(row) if at not in keys)

    def _refuse_unchanged(self, name: str) -> None:
        message = (
            f"{self._table}: an update did not touch the large value of column {name!r}, so that"
            " the server did not send it: run ALTER TABLE ... REPLICA IDENTITY FULL, and start the"
            " job from scratch, or do not read the column"
        )
        raise SourceError(message)
