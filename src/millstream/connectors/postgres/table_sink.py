"""The base of PostgreSQL sinks (checks at submit, COPY, the committer's connection), and upsert.

A subclass defines where a writer copies to, and what it does at the first record (``begin``) and at
the end of the epoch (``finish``); its committer defines what a lost attempt leaves and how that is
dropped.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from millstream.connectors.commit_protocols.commit_table import (
    COMMIT_TABLE,
    CommitTable,
    as_part,
    columns_of_batch,
    identifier,
)
from millstream.connectors.output_names import OutputNames
from millstream.connectors.postgres.sessions import RunSessions, driver, limit_waiting
from millstream.connectors.postgres.table import copy_rows, error_text
from millstream.contracts.sink import Committer, Sink, SinkKind, SinkWriter
from millstream.crash_points import crash_point
from millstream.errors import MillstreamError, PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from millstream.connectors.postgres.table import PostgresTable, Session
    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import Committable, CommitterContext, WriterContext
    from millstream.types.types import TypeInformation


#: What to do when the table refuses rows that cannot be changed any more.
_IN_THE_WAY: Final = "Change the table, or the row in it that is in the way"


class TableSink(Sink):
    """A sink that writes to a table.

    Args:
        table: where to.
        key: columns with a unique constraint, to upsert by; empty: rows are inserted.
    """

    def __init__(self, table: PostgresTable, key: Sequence[str] = ()) -> None:
        self.table = table
        self.key = list(key)
        #: Sessions that no writer has, by name; of this process.
        self._idle: dict[str, Session] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_idle": {}}

    def take_session(self, location: str, name: str) -> Session:
        """The session of a writer: that of the epoch before, unless it was cut meanwhile.

        Args:
            location: who connects, for messages.
            name: how the server calls it.

        Raises:
            SinkError: the server cannot be reached, or refuses.
        """
        session = self._idle.pop(name, None)
        if session is not None and _is_alive(session):
            return session
        return self.table.connect(location, name)

    def give_back(self, name: str, session: Session) -> None:
        """Keep a session for the next epoch, or close it if something was left undone in it."""
        idle = session.info.transaction_status == driver().pq.TransactionStatus.IDLE
        if idle and not session.closed and name not in self._idle:
            self._idle[name] = session
        else:
            session.close()

    def close(self) -> None:
        """Close the sessions that are kept."""
        while self._idle:
            self._idle.popitem()[1].close()

    def describe(self) -> str:
        """The kind of sink, and its table."""
        return f"{type(self).__name__} {self.table.table}"

    def validate(self) -> None:
        """Check server, table, columns and key; make the tables that the sink needs.

        Raises:
            SinkError: one of them cannot be used.
        """
        with self.table.session("at submit") as session:
            self.check(session)

    def check(self, session: Session) -> None:
        """What ``validate`` checks, with a session."""
        self.table.validate(session)
        if self.key:
            self._require_unique_key(session)

    def validate_input(self, type_info: TypeInformation) -> None:
        """Check that the table has the columns of the records; raises SinkError if not."""
        with self.table.session("at submit") as session:
            self.table.match_type(session, type_info, self.key)

    def validate_parallelism(self, parallelism: int) -> None:
        """Check that the server can hold a connection per subtask; raises SinkError."""
        with self.table.session("at submit") as session:
            self.table.require_connections(session, parallelism)

    def _require_unique_key(self, session: Session) -> None:
        """Let the server check that a unique constraint fits the key; raises SinkError if not."""
        names = ", ".join(map(identifier, self.key))
        try:
            session.execute(
                f"EXPLAIN INSERT INTO {self.table.quoted} DEFAULT VALUES"
                f" ON CONFLICT ({names}) DO NOTHING"
            )
        except driver().errors.InvalidColumnReference as error:
            message = (
                f"{self.table.target}: {error_text(error)}: it needs one on exactly"
                f" key={self.key}. CREATE UNIQUE INDEX ON {self.table.quoted} ({names}), or correct"
                " the key"
            )
            raise SinkError(message) from error


class TableWriter(SinkWriter):
    """Copies an epoch's rows into a table, within one transaction of its own.

    Args:
        sink: whose writer it is.
        context: of the attempt.
        into: the table to copy to, in SQL.
    """

    def __init__(self, sink: TableSink, context: WriterContext, into: str) -> None:
        self.context = context
        self.columns: Mapping[str, str] = {}
        self._sink = sink
        self._into = into
        self._session: Session | None = None
        self._name = ""
        self._begun = False
        #: What was begun was not aborted, nor has it failed.
        self._is_whole = False

    @abstractmethod
    def begin(self, session: Session) -> None:
        """Begin the transaction; the columns are known."""

    @abstractmethod
    def finish(self, session: Session) -> Sequence[Committable]:
        """End it, so that the rows survive this process."""

    def prepare(self, session: Session) -> None:
        """Prepare a new session, before the table is looked at."""

    def rows_of(self, batch: Batch) -> pa.Table:
        """The rows to write; raises SinkError for those that cannot be."""
        return columns_of_batch(batch)

    def beside(self, batch: Batch) -> Mapping[str, tuple[str, pa.Array]]:
        """Columns of the table copied to that the target does not have: name -> type, values."""
        del batch
        return {}

    def write(self, batch: Batch) -> None:
        """Copy rows; the first ones connect, if there is no session of an epoch before."""
        rows, table, location = self.rows_of(batch), self._sink.table, self.context.location
        if self._session is None:
            self._name = RunSessions.of(self.context).name(f"s{self.context.subtask}")
            self._session = self._sink.take_session(location, self._name)
            with table.errors(location):
                self.prepare(self._session)
                self.columns = table.match(self._session, rows.column_names)
                table.require_key(self.columns, self._sink.key)
        if not self._begun:
            with table.errors(location):
                self.begin(self._session)
            self._begun = True
        copied, types = rows, dict(self.columns)
        for name, (kind, column) in self.beside(batch).items():
            copied, types[name] = copied.append_column(name, column), kind
        with table.errors(location, rows):
            copy_rows(self._session, self._into, types, copied)

    def prepare_commit(self) -> Sequence[Committable]:
        """End the transaction, if there were rows since the last one."""
        if self._session is None or not self._begun:
            return []
        with self._sink.table.errors(self.context.location):
            self._begun = self._is_whole = False
            made = self.finish(self._session)
        self._is_whole = True
        return made

    def close(self) -> None:
        """Let the next writer have the session, or close it: the server rolls back what is open."""
        session, self._session = self._session, None
        if session is None:
            return
        if self._is_whole and not self._begun:
            self._sink.give_back(self._name, session)
        else:
            session.close()


class TableCommitter(Committer):
    """A committer with a connection that it keeps between epochs.

    Args:
        table: what it writes.
    """

    def __init__(self, table: PostgresTable) -> None:
        self.table = table
        self.target = table.target
        self._session: Session | None = None
        #: Seconds that one use may take, over all its statements.
        self._timeout = table.timeout
        self._run: RunSessions | None = None

    @abstractmethod
    def prepare(self, session: Session) -> None:
        """Make what is needed on the server; run on each new connection."""

    @abstractmethod
    def left_on_server(self, session: Session, owner: str) -> Sequence[str]:
        """The names of all pre-committed output whose names begin so."""

    @abstractmethod
    def drop_orphans(self, session: Session, names: Sequence[str]) -> None:
        """Drop pre-committed output; what is gone already is no error."""

    def open(self, context: CommitterContext) -> None:
        """Belong to a run: its sessions are named by it, and those of older ones are ended.

        A try is given up before the coordinator does so.
        """
        self._timeout = context.timeout
        self._run = RunSessions.of(context)

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        owner = OutputNames(job_id, sink_uid).on_server
        kept = {as_part(item)["part"] for item in keep}
        with self.use(f"sink {sink_uid}, dropping orphans") as session:
            left = self.left_on_server(session, owner)
            self.drop_orphans(session, OutputNames.orphans(left, kept, generation, owner))

    @contextlib.contextmanager
    def use(self, location: str) -> Iterator[Session]:
        """The connection, made again if it was cut meanwhile; errors become SinkError.

        A use that takes too long is cut off from the server.  What it had sent may be done by
        the server all the same, later.  That changes nothing: a transaction is prepared once and
        its name is never used again, and the commit table is locked by who looks into it.  Its
        own transaction is rolled back by the server when it stays idle as long.
        """
        end = time.monotonic() + self._timeout
        with self.table.errors(location, advice=_IN_THE_WAY):
            try:
                if self._session is not None:
                    limit_waiting(self._session, self.table.timeout, end)
                if self._session is None or not self._is_alive(self._session):
                    self._session = self._connect(location, end)
                elif self._run is not None:
                    # At every use: an older run may have come back since the last one.
                    self._run.end_older(self._session)
                yield self._session
            except driver().Error:
                self.close()
                raise

    def close(self) -> None:
        """Close it, if it is open."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _connect(self, location: str, end: float) -> Session:
        name = {} if self._run is None else {"name": self._run.name("commit")}
        session = self.table.connect(location, **name)
        try:
            limit_waiting(session, self.table.timeout, end)
            # Before the preparation, which may need a lock that an older session holds.
            if self._run is not None:
                self._run.end_older(session)
            idle = int(self._timeout * 1000)
            # An error for a lock must name its holder, and not that time is over.
            lock = int(min(self.table.lock_timeout, self._timeout / 2) * 1000)
            session.execute(
                f"SET idle_in_transaction_session_timeout = {idle}; SET lock_timeout = {lock}"
            )
            self.prepare(session)
        except BaseException:
            session.close()
            raise
        return session

    def _is_alive(self, session: Session) -> bool:
        if _is_alive(session):
            return True
        self.close()
        return False


def _is_alive(session: Session) -> bool:
    """Return whether a session was not cut while nothing was under way; it is closed if it was."""
    try:
        session.execute("SELECT 1")
    except driver().OperationalError:
        session.close()
        return False
    return True


def make_commit_table(session: Session) -> None:
    """Make the commit table; two that make it at a time are put in order."""
    found = session.execute("SELECT to_regclass($1)", (COMMIT_TABLE,)).fetchone()
    if found is None or found[0] is None:
        with exclusive(session, COMMIT_TABLE):
            session.execute(CommitTable.CREATE)


@contextlib.contextmanager
def exclusive(session: Session, name: str) -> Iterator[None]:
    """A transaction that excludes others with the same name."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
    session.execute("BEGIN")
    try:
        session.execute("SELECT pg_advisory_xact_lock($1)", (number,))
        yield
        session.execute("COMMIT")
    except (driver().Error, MillstreamError):
        # A connection that is gone has rolled back by itself.
        with contextlib.suppress(driver().Error):
            session.execute("ROLLBACK")
        raise


# -- upsert ----------------------------------------------------------------------------------------


_ROWS = "millstream_rows"


class PostgresUpsertSink(TableSink):
    """Inserts or updates by key; made by ``PostgresSink.upsert``.

    A task COPYs its epoch's rows into a temporary table and, at the end of the epoch (within
    milliseconds, if tasks are long-running), merges them into the table by ``INSERT ... ON CONFLICT
    DO UPDATE``, in one transaction; of rows with the same key the last counts.  Written again after
    a failure, the rows change nothing.

    ``epoch_column`` fences: the table keeps run and epoch that wrote each row, in one number
    (``fence_of``), and a fenced run cannot replace what a newer one, or a later epoch, wrote.

    Args:
        table: where to.
        key: columns with a unique constraint.
        epoch_column: a BIGINT column for run and epoch of each row; None: no fencing.
    """

    kind = SinkKind.IDEMPOTENT

    def __init__(self, table: PostgresTable, key: Sequence[str], epoch_column: str | None) -> None:
        if not key:
            message = "an upsert needs a key: the columns of a unique constraint"
            raise SinkError(message)
        super().__init__(table, key)
        self.epoch_column = epoch_column

    def check(self, session: Session) -> None:
        super().check(session)
        known = self.table.column_types(session)
        if self.epoch_column is None:
            return
        found = known.get(self.epoch_column)
        if found is None:
            message = f"{self.table.target} has no column {self.epoch_column!r}"
            raise SinkError(message)
        if found not in {"bigint", "numeric"}:
            message = (
                f"the column {self.epoch_column!r} of {self.table.target} is {found},"
                " which is too small for run and checkpoint: make it a BIGINT (ALTER TABLE ..."
                f" ALTER COLUMN {identifier(self.epoch_column)} TYPE bigint)"
            )
            raise SinkError(message)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer with a transaction of its own."""
        return _UpsertWriter(self, context)


def merge_statement(
    table: str,
    rows: str,
    columns: Sequence[str],
    key: Sequence[str],
    *,
    order: str,
    where: str = "true",
    fence: tuple[str, int] | None = None,
) -> str:
    """The statement that merges rows into a table; the last row of a key counts.

    Rows are sorted by key, so that two tasks lock rows in the same order.

    Args:
        table: in SQL.
        rows: the table they come from, in SQL.
        columns: names, the same in both.
        key: names of the key's columns.
        order: the column of ``rows`` that counts them.
        where: which rows.
        fence: the fencing column and its value, if there is one.
    """
    names, keys = [identifier(name) for name in columns], ", ".join(map(identifier, key))
    values = list(names)
    condition = ""
    if fence is not None:
        column = identifier(fence[0])
        names, values = [*names, column], [*values, str(fence[1])]
        condition = f" WHERE target.{column} IS NULL OR target.{column} <= EXCLUDED.{column}"
    changes = [f"{name} = EXCLUDED.{name}" for name in names if name not in map(identifier, key)]
    action = f"UPDATE SET {', '.join(changes)}{condition}" if changes else "NOTHING"
    return (
        f"INSERT INTO {table} AS target ({', '.join(names)})"
        f" SELECT DISTINCT ON ({keys}) {', '.join(values)} FROM {rows} WHERE {where}"
        f" ORDER BY {keys}, {order} DESC ON CONFLICT ({keys}) DO {action}"
    )


class _UpsertWriter(TableWriter):
    def __init__(self, sink: PostgresUpsertSink, context: WriterContext) -> None:
        super().__init__(sink, context, _ROWS)
        self._upsert = sink
        self._has_rows_table = False

    def prepare(self, session: Session) -> None:
        # There is no committer to do it: what an older writer has merged would hold up this one.
        RunSessions.of(self.context).end_older(session)

    def begin(self, session: Session) -> None:
        names = ", ".join(map(identifier, self.columns))
        session.execute("BEGIN")
        if self._has_rows_table:
            return
        # That of an epoch before may have other columns than the table has now.
        session.execute(f"DROP TABLE IF EXISTS pg_temp.{_ROWS}")
        session.execute(
            f"CREATE TEMPORARY TABLE {_ROWS} ON COMMIT DELETE ROWS AS"
            f" SELECT {names} FROM {self._upsert.table.quoted} WITH NO DATA"
        )
        session.execute(
            f"ALTER TABLE {_ROWS} ADD millstream_seq BIGINT GENERATED ALWAYS AS IDENTITY"
        )
        self._has_rows_table = True

    def flush(self) -> None:
        """Merge what has come, and commit: written again after a failure, it changes nothing."""
        self.prepare_commit()

    def finish(self, session: Session) -> Sequence[Committable]:
        sink = self._upsert
        fence = None if sink.epoch_column is None else (sink.epoch_column, self.context.fence)
        statement = merge_statement(
            sink.table.quoted,
            _ROWS,
            list(self.columns),
            sink.key,
            order="millstream_seq",
            fence=fence,
        )
        merged = session.execute(statement).rowcount
        if fence is not None:
            self._require_all(session, merged)
        crash_point("upsert.commit.before")
        session.execute("COMMIT")
        crash_point("upsert.commit.after")
        return []

    def _require_all(self, session: Session, merged: int) -> None:
        keys = ", ".join(map(identifier, self._upsert.key))
        row = session.execute(
            f"SELECT count(*) FROM (SELECT DISTINCT {keys} FROM {_ROWS}) AS k"
        ).fetchone()
        wanted = int(row[0]) if row else 0
        if merged < wanted:
            target = self._upsert.table.target
            message = (
                f"{self.context.location}: {wanted - merged} rows of {target} were"
                " written by a later checkpoint: a newer run has taken over, or the table is of"
                " another"
                f" job. For a new job, set the column {self._upsert.epoch_column!r} to NULL first"
            )
            raise PermanentSinkError(message)
