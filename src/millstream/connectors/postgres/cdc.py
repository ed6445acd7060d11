"""Change data capture of a PostgreSQL table: its rows, then every change, exactly once.

A table is one split.  Its offsets are 0, before the snapshot, and then positions in the write-ahead
log.

The snapshot and the stream meet without gap or duplicate:

1. Publication and slot are created if they are missing, and the position ``begin`` is read.
2. All transactions that run then are waited for.  What ended before ``begin`` is visible now.
3. The driver takes a snapshot, exports it for the tasks, and keeps it open.  PostgreSQL says which
   transactions it has.  That and the end of the log, ``until``, go into the split, which is logged.
4. A task reads the snapshot as one step from offset 0 to ``begin``, then the transactions after
   ``begin``, without those up to ``until`` that the snapshot has.

So a checkpoint holds all of the snapshot or nothing of it.  If the driver ends before a checkpoint
holds it, the split is abandoned, and the next run begins another one with a new snapshot.

The slot is confirmed up to the position of the last completed checkpoint, by the task that streams
or, where tasks end with each epoch, by the driver.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.commit_protocols.commit_table import identifier
from millstream.connectors.formats.file_format import BATCH_SIZE, rows_of_columns
from millstream.connectors.postgres.changes import (
    ChangelogLayout,
    TransactionReader,
    VisibleTransactions,
)
from millstream.connectors.postgres.replication import (
    PLUGIN,
    ReplicatedTable,
    ReplicationStream,
    current_lsn,
    lsn_text,
)
from millstream.connectors.postgres.sessions import driver
from millstream.connectors.postgres.source import ARROW_TYPES
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split, SplitCursor
from millstream.errors import ConfigurationError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.connectors.postgres.table import Session
    from millstream.contracts.source import KnownSplits
    from millstream.types.types import TypeInformation


_LOG: Final = logging.getLogger("millstream")
#: Seconds that transactions may run which the snapshot has to wait for.
_LONGEST: Final = 3600.0
_POLL: Final = 0.02
#: Seconds for which a task waits for the server, between two questions how far it is.
_ASK: Final = 0.05
#: Seconds for which a task of an epoch waits for transactions that the server has.
_SILENCE: Final = 600.0


class StartupMode(Enum):
    """Where reading begins, by Flink CDC's names."""

    #: The rows of the table, then its changes.
    INITIAL = "initial"
    #: The rows of the table.
    SNAPSHOT = "snapshot"
    #: The changes from now on.
    LATEST_OFFSET = "latest-offset"
    #: The changes that a slot, which is there, has not confirmed.
    COMMITTED_OFFSET = "committed-offset"


class PostgresCdcSource(Source):
    """The rows and changes of a table as a changelog; made by ``builder()``, or by SQL.

    Args:
        table: the table, its slot and publication.
        layout: of the changelog; None: all columns of the table, looked up when it is needed.
        mode: where to begin.
        upsert: whether rows before updates are left out.
        heartbeat: seconds between two reports to the server.
    """

    initial_limit = 1 << 30
    cursors_follow = True
    side_by_side = True

    def __init__(
        self,
        table: ReplicatedTable,
        layout: ChangelogLayout | None,
        *,
        mode: StartupMode = StartupMode.INITIAL,
        upsert: bool = False,
        heartbeat: float = 30.0,
    ) -> None:
        self.table = table
        self.mode = mode
        self.heartbeat = heartbeat
        self._layout = layout
        self._upsert = upsert
        self._forget()

    def _forget(self) -> None:
        #: Of the driver, for short questions.
        self._session: Session | None = None
        #: Keeps the snapshot that tasks read, which has this name.
        self._holder: Session | None = None
        self._held = ""
        #: Split id -> position in the last completed checkpoint.
        self._positions: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        own: dict[str, Any] = {"_session": None, "_holder": None, "_held": "", "_positions": {}}
        return self.__dict__ | own

    @staticmethod
    def builder() -> PostgresCdcSourceBuilder:
        """Start building."""
        return PostgresCdcSourceBuilder()

    def __str__(self) -> str:
        return f"changes of {self.table}"

    @property
    def boundedness(self) -> Boundedness:
        if self.mode is StartupMode.SNAPSHOT:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def layout(self) -> ChangelogLayout:
        """The columns of the changelog."""
        if self._layout is None:
            with self.table.connect() as session:
                self._layout = described(self.table, session, upsert=self._upsert)
        return self._layout

    @property
    def produced_type(self) -> TypeInformation:
        return rows_of_columns(self.layout.whole)

    def validate(self) -> None:
        """Check the server, the rights and the table.

        Raises:
            SourceError: something is missing; says what to do.
        """
        layout = self.layout
        replicates = self.mode is not StartupMode.SNAPSHOT
        with self.table.connect() as session:
            self.table.check(session, replicates=replicates, needs_old_rows=not layout.upsert)
            known = self.table.columns(session)
        missing = [name for name in layout.schema.names if name not in known]
        if missing:
            message = f"{self.table} has no column {missing[0]!r}; it has {list(known)}"
            raise SourceError(message)

    def drop_slot(self) -> None:
        """Drop slot and publication, when no job needs them any more; raises SourceError."""
        self.table.drop()

    def start(self) -> None:
        self._forget()

    def stop(self) -> None:
        self._release()
        if self._session is not None:
            self._session.close()
        self._forget()

    def _release(self) -> None:
        if self._holder is not None:
            self._holder.close()
        self._holder, self._held = None, ""

    def _asked(self) -> Session:
        if self._session is None or self._session.closed:
            self._session = self.table.connect()
        return self._session

    # -- splits --------------------------------------------------------------------------------

    def discover(self, known: KnownSplits) -> list[Split]:
        """The table, and the table again when its snapshot was lost before it was read."""
        number = 1
        while self._id(number) in known:
            number += 1
        is_first = number == 1
        if not is_first and (self.mode is not StartupMode.INITIAL or self._lives(number - 1)):
            return []
        return [Split(self._id(number), self._begun())]

    def _id(self, number: int) -> str:
        return f"{self.table.schema}.{self.table.table}#{number}"

    def _lives(self, number: int) -> bool:
        name = self._id(number)
        return self._positions.get(name, 0) > 0 or (self._holder is not None)

    def _is_abandoned(self, split: Split) -> bool:
        """Return whether the snapshot of a split was lost before a checkpoint had it."""
        snapshot = split.properties["snapshot"]
        is_read = self._positions.get(split.id, 0) > 0
        return snapshot is not None and not is_read and snapshot != self._held

    def _begun(self) -> dict[str, object]:
        """Fix where reading begins; see the module."""
        table, session = self.table, self._asked()
        columns = table.columns(session)
        nothing: dict[str, object] = {"snapshot": None, "visible": None, "until": 0}
        if self.mode is StartupMode.SNAPSHOT:
            return {"start": 0, "begin": 1, "columns": columns} | nothing
        confirmed = (
            table.confirmed(session)
            if self.mode is StartupMode.COMMITTED_OFFSET
            else table.prepare(session)
        )
        with table.explained():
            begin = max(confirmed, current_lsn(session))
            if self.mode is not StartupMode.INITIAL:
                start = begin if self.mode is StartupMode.LATEST_OFFSET else confirmed
                return {"start": start, "begin": start, "columns": columns} | nothing
            self._wait_for_transactions(session)
            return {"start": 0, "begin": begin, "columns": columns} | self._exported()

    def _wait_for_transactions(self, session: Session) -> None:
        """Wait until all transactions that run now have ended.

        Raises:
            SourceError: one runs for too long; names it.
        """
        after = _number(session, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
        oldest = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text"
        deadline, warned = time.monotonic() + _LONGEST, time.monotonic() + 10
        while _number(session, oldest) < after:
            if time.monotonic() > warned:
                warned = deadline
                _LOG.warning("%s waits for transactions that have begun before it", self)
            if time.monotonic() > deadline:
                message = (
                    f"{self.table}: a transaction has run for more than {_LONGEST:.0f} s, and the"
                    " snapshot has to wait for it: end it (SELECT pid, state, query FROM"
                    " pg_stat_activity WHERE backend_xid IS NOT NULL; SELECT gid FROM"
                    " pg_prepared_xacts)"
                )
                raise SourceError(message)
            time.sleep(_POLL)

    def _exported(self) -> dict[str, object]:
        """Take a snapshot and keep it open for the tasks."""
        self._release()
        holder = self.table.connect()
        try:
            holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # The holder is idle for as long as the snapshot is read.
            holder.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            statement = "SELECT pg_export_snapshot(), pg_current_snapshot()::text"
            name, visible = holder.execute(statement).fetchone() or ("", "")
            until = current_lsn(holder)
        except BaseException:
            holder.close()
            raise
        self._holder, self._held = holder, str(name)
        return {"snapshot": self._held, "visible": str(visible), "until": until}

    def start_offset(self, split: Split) -> int:
        return _property(split, "start")

    def end_offset(self, split: Split) -> int:
        """Up to where the server has written its log."""
        begin = _property(split, "begin")
        if self.mode is StartupMode.SNAPSHOT:
            return begin
        if self._is_abandoned(split):
            return 0
        with self.table.explained():
            row = self._asked().execute("SELECT pg_current_wal_flush_lsn() - '0/0'").fetchone()
        return max(begin, int(row[0]) if row else 0)

    def ends_early(self, split: Split, position: int) -> None:
        end = self.end_offset(split)
        if position <= end:
            return
        message = (
            f"{self.table} was read up to {lsn_text(position)}, but the log of the server ends at"
            f" {lsn_text(end)}: it was restored from a backup, or is another server. Start the job"
            " from scratch, and with a new slot"
        )
        raise SourceError(message)

    def is_final(self, split: Split) -> bool:
        return self.mode is StartupMode.SNAPSHOT or self._is_abandoned(split)

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        """The whole snapshot, then as far as the limit allows."""
        begin = _property(split, "begin")
        return min(begin, end) if start < begin else min(start + limit, end)

    # -- reading -------------------------------------------------------------------------------

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        """The snapshot, if it begins there, and transactions whose commit is in the range."""
        begin = _property(split, "begin")
        if start < begin <= stop:
            yield from self.snapshot_rows(split)
            start = begin
        if start >= stop or self.mode is StartupMode.SNAPSHOT:
            return
        with closing(ReplicationStream(self.table, start, self.heartbeat)) as stream:
            while not stream.open():
                time.sleep(_POLL)
            yield from self._transactions(stream, self.transactions(split, start, stop), stop)

    def _transactions(
        self, stream: ReplicationStream, reader: TransactionReader, stop: int
    ) -> Iterator[SourceBatch]:
        heard = time.monotonic()
        while True:
            for content in stream.receive():
                heard = time.monotonic()
                reader.add(content)
            found = reader.take()
            if found is not None:
                yield found
            if not reader.is_within and max(stream.reached, reader.end) >= stop:
                return
            if time.monotonic() - heard > _SILENCE:
                message = f"{self.table}: the server has sent nothing for {_SILENCE:.0f} s"
                raise SourceError(message)
            stream.wait(_ASK)

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        return ChangesCursor(self, split, position)

    def transactions(self, split: Split, start: int, stop: int | None = None) -> TransactionReader:
        """Make a reader of the transactions whose commit is between two positions."""
        visible, types = split.properties["visible"], split.properties["columns"]
        snapshot = None
        if visible is not None:
            snapshot = VisibleTransactions(str(visible), _property(split, "until"))
        known = dict(types) if isinstance(types, dict) else {}
        return TransactionReader(self.table, self.layout, known, (start, stop), snapshot)

    def snapshot_rows(self, split: Split) -> Iterator[SourceBatch]:
        """The rows of the table; the same at every reading, in the same order.

        Raises:
            SourceError: they cannot be read, or the snapshot is not held any more.
        """
        names = [identifier(name) for name in self.layout.schema.names]
        held = split.properties["snapshot"]
        with self.table.connect() as session, self.table.explained():
            session.execute("SET synchronize_seqscans = off")
            session.execute("SET max_parallel_workers_per_gather = 0")
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if held is not None:
                session.execute(f"SET TRANSACTION SNAPSHOT '{held}'".encode())
            statement = f"COPY (SELECT {', '.join(names)} FROM {self.table.quoted}) TO STDOUT"
            with session.cursor().copy(statement.encode()) as copy:
                rows: list[Sequence[Any]] = []
                for row in copy.rows():
                    rows.append(row)
                    if len(rows) == BATCH_SIZE:
                        yield self.layout.batch(self.table, rows)
                        rows = []
                if rows:
                    yield self.layout.batch(self.table, rows)

    def committed(self, offsets: dict[str, int]) -> None:
        """Let the server forget what a completed checkpoint has, if no task does that."""
        self._positions |= offsets
        newest = max(offsets.values(), default=0)
        if newest <= 1 or self.mode is StartupMode.SNAPSHOT:
            return
        self._release()
        try:
            self.table.advance(self._asked(), newest)
        except SourceError as error:  # the next checkpoint does it
            _LOG.warning("cannot confirm the position of a checkpoint: %s", error)


def _number(session: Session, statement: str) -> int:
    row = session.execute(statement.encode()).fetchone()
    return int(row[0]) if row else 0


def _property(split: Split, name: str) -> int:
    return int(str(split.properties[name]))


class ChangesCursor(SplitCursor):
    """Reads the snapshot, then follows the log with one connection.

    Args:
        source: the source.
        split: the table.
        position: where to begin.
    """

    def __init__(self, source: PostgresCdcSource, split: Split, position: int) -> None:
        self.position = position
        self._source = source
        self._split = split
        self._begin = _property(split, "begin")
        self._is_bounded = source.boundedness is Boundedness.BOUNDED
        self._end = position
        self._final = False
        self._snapshot: Iterator[SourceBatch] | None = None
        #: Of the snapshot, read and not handed out.
        self._next: SourceBatch | None = None
        self._stream: ReplicationStream | None = None
        self._reader: TransactionReader | None = None

    @property
    def settled(self) -> bool:
        """Transactions are handed out whole, the snapshot is not."""
        return self._snapshot is None

    @property
    def is_over(self) -> bool:
        return self._final and self.position >= self._end

    def extend(self, end: int, *, final: bool) -> None:
        self._end, self._final = end, final

    def poll(self, most: int) -> SourceBatch | None:
        if self.position < self._begin:
            return self._poll_snapshot()
        return None if self._is_bounded else self._poll_stream(most)

    def _poll_snapshot(self) -> SourceBatch | None:
        if self._snapshot is None:
            if self._end <= self.position:
                return None  # it is not known yet whether this snapshot is the one to read
            self._snapshot = self._source.snapshot_rows(self._split)
            self._next = next(self._snapshot, None)
        found, self._next = self._next, next(self._snapshot, None)
        if self._next is None:
            self._snapshot = None
            self.position = self._begin
            if found is not None:
                found.position = self._begin
        return found

    def _poll_stream(self, most: int) -> SourceBatch | None:
        source = self._source
        if self._stream is None or self._reader is None:
            self._stream = ReplicationStream(source.table, self.position, source.heartbeat)
            self._reader = source.transactions(self._split, self.position)
        stream, reader = self._stream, self._reader
        if not stream.open():
            return None
        for content in stream.receive():
            reader.add(content)
        del most  # transactions are handed out whole
        end = reader.end if reader.is_within else max(reader.end, stream.reached)
        found = reader.take()
        self.position = max(self.position, end)
        if found is not None:
            found.position = self.position
        return found

    def committed(self, position: int) -> None:
        """Let the server forget what a completed checkpoint has."""
        if self._stream is not None and position >= self._begin:
            self._stream.confirm(position)

    def close(self) -> None:
        if self._snapshot is not None:
            close = getattr(self._snapshot, "close", None)
            if close is not None:
                close()
        if self._stream is not None:
            self._stream.close()


# -- building --------------------------------------------------------------------------------------

_ARROW: Final = {**ARROW_TYPES, "time": pa.time64("us")}
#: What PostgreSQL adds to the number in which precision and scale of a numeric are.
_HEADER: Final = 4
_MOST_DIGITS: Final = 38
_DESCRIBE: Final = (
    "SELECT a.attname, t.typname, a.atttypmod, e.typname,"
    " coalesce(a.attnum = ANY (i.indkey::int2[]), false)"
    " FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
    " LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'"
    " LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary"
    " WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
)


def described(table: ReplicatedTable, session: Session, *, upsert: bool) -> ChangelogLayout:
    """Return all columns of a table with the types that they have there.

    Raises:
        SourceError: there is no such table.
    """
    fields, key = [], []
    with table.explained():
        rows = session.execute(_DESCRIBE, (table.quoted,)).fetchall()
    for name, kind, modifier, element, is_key in rows:
        if element is not None:
            arrow = pa.list_(_arrow(str(element), int(modifier)))
        else:
            arrow = _arrow(str(kind), int(modifier))
        fields.append(pa.field(str(name), arrow))
        if is_key:
            key.append(str(name))
    database = str(table.parameters.get("dbname", ""))
    return ChangelogLayout(pa.schema(fields), {}, tuple(key), upsert, database)


def _arrow(kind: str, modifier: int) -> pa.DataType:
    if kind == "numeric" and modifier >= _HEADER:
        precision, scale = (modifier - _HEADER) >> 16, (modifier - _HEADER) & 0x7FF
        if scale <= precision <= _MOST_DIGITS:
            return pa.decimal128(precision, scale)
    return _ARROW.get(kind, pa.string())


@dataclass(frozen=True)
class CdcSettings:
    """The settings of a source, under the names of Flink CDC's builder."""

    hostname: str = ""
    port: int = 5432
    username: str = ""
    password: str = ""
    database: str = ""
    schema: str = "public"
    table: str = ""
    slot: str = ""
    publication: str = ""
    creates_publication: bool = True

    def __repr__(self) -> str:
        return f"{self.hostname}:{self.port}/{self.database} {self.schema}.{self.table}"

    def replicated(self) -> ReplicatedTable:
        """The table.

        Raises:
            ConfigurationError: a setting is missing.
        """
        needed = {
            "hostname": self.hostname,
            "username": self.username,
            "database": self.database,
            "table": self.table,
            "slot_name": self.slot,
        }
        for name, value in needed.items():
            if not value:
                message = f"a source of changes of PostgreSQL needs {name}(...)"
                raise ConfigurationError(message)
        driver()
        from psycopg.conninfo import make_conninfo

        conninfo = make_conninfo(
            host=self.hostname,
            port=self.port,
            user=self.username,
            dbname=self.database,
            **({"password": self.password} if self.password else {}),
        )
        publication = self.publication or f"{self.slot}_publication"
        return ReplicatedTable(
            conninfo, self.schema, self.table, self.slot, publication, self.creates_publication
        )


class PostgresCdcSourceBuilder:
    """Builds a PostgresCdcSource, with the names of Flink CDC's ``PostgresSourceBuilder``."""

    def __init__(self) -> None:
        self._settings = CdcSettings()
        self._mode = StartupMode.INITIAL
        self._upsert = False
        self._heartbeat = 30.0

    def _with(self, **changes: Any) -> PostgresCdcSourceBuilder:
        self._settings = replace(self._settings, **changes)
        return self

    def hostname(self, hostname: str) -> PostgresCdcSourceBuilder:
        """Set the host of the server."""
        return self._with(hostname=hostname)

    def port(self, port: int) -> PostgresCdcSourceBuilder:
        """Set the port of the server (default: 5432)."""
        return self._with(port=port)

    def database(self, database: str) -> PostgresCdcSourceBuilder:
        """Set the database."""
        return self._with(database=database)

    def schema_list(self, schema: str) -> PostgresCdcSourceBuilder:
        """Set the schema of the table (default: public)."""
        return self._with(schema=schema)

    def table_list(self, table: str) -> PostgresCdcSourceBuilder:
        """Set the table, as "schema.table" or without its schema."""
        schema, dot, name = table.partition(".")
        return self._with(schema=schema, table=name) if dot else self._with(table=table)

    def username(self, username: str) -> PostgresCdcSourceBuilder:
        """Set the user, who needs the attribute REPLICATION."""
        return self._with(username=username)

    def password(self, password: str) -> PostgresCdcSourceBuilder:
        """Set the password."""
        return self._with(password=password)

    def slot_name(self, slot_name: str) -> PostgresCdcSourceBuilder:
        """Set the replication slot, which is of this job alone."""
        return self._with(slot=slot_name)

    def publication_name(self, publication: str) -> PostgresCdcSourceBuilder:
        """Set the publication (default: the slot's name with ``_publication``)."""
        return self._with(publication=publication)

    def decoding_plugin_name(self, name: str) -> PostgresCdcSourceBuilder:
        """Set the output plugin, which is ``pgoutput``; raises ConfigurationError for others."""
        if name != PLUGIN:
            message = f"the output plugin is {PLUGIN!r}, which every server has, not {name!r}"
            raise ConfigurationError(message)
        return self

    def startup_options(self, mode: StartupMode) -> PostgresCdcSourceBuilder:
        """Set where reading begins (default: ``StartupMode.INITIAL``)."""
        self._mode = mode
        return self

    def changelog_mode(self, mode: str) -> PostgresCdcSourceBuilder:
        """Set whether rows before updates are read ("all", the default) or not ("upsert")."""
        if mode not in {"all", "upsert"}:
            message = f"changelog_mode is 'all' or 'upsert', not {mode!r}"
            raise ConfigurationError(message)
        self._upsert = mode == "upsert"
        return self

    def heartbeat_interval(self, seconds: float) -> PostgresCdcSourceBuilder:
        """Set the seconds between two reports to the server (default: 30)."""
        self._heartbeat = seconds
        return self

    def build(self) -> PostgresCdcSource:
        """The source; raises ConfigurationError if something is missing."""
        return PostgresCdcSource(
            self._settings.replicated(),
            None,
            mode=self._mode,
            upsert=self._upsert,
            heartbeat=self._heartbeat,
        )
