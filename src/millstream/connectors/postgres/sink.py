"""PostgreSQL sinks: ``PostgresSink`` makes them; by two-phase commit, or by a commit table."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

import pyarrow as pa

from millstream.connectors.commit_protocols.commit_table import (
    CommitTable,
    CommitTableCommitter,
    CommittedEpoch,
    OutputPart,
    as_part,
    commit_missing,
    identifier,
    table_parts,
)
from millstream.connectors.output_names import OutputNames
from millstream.connectors.postgres.sessions import driver
from millstream.connectors.postgres.table import STAGING, PostgresTable, server_of
from millstream.connectors.postgres.table_sink import (
    PostgresUpsertSink,
    TableCommitter,
    TableSink,
    TableWriter,
    exclusive,
    make_commit_table,
    merge_statement,
)
from millstream.connectors.transaction_timeouts import overlapping_epochs
from millstream.crash_points import crash_point
from millstream.errors import PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.connectors.postgres.table import Session
    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import (
        CommitRequest,
        Committable,
        Committer,
        SinkWriter,
        WriterContext,
    )
    from millstream.types.types import TypeInformation


class TableSettings(TypedDict, total=False):
    """Settings that all sinks of ``PostgresSink`` have, beside server and table."""

    #: The table's columns in the order of the records' fields; None: found by name.
    columns: Sequence[str] | None
    #: The type of the records, so that columns are compared at submit already.
    type_info: TypeInformation | None
    #: Seconds to wait for a lock that another transaction holds (30).
    lock_timeout: float
    #: Seconds to wait for the server's answer to a statement (300).  Then the connection is given
    #: up: the epoch fails, or its commit is tried again.
    timeout: float


class PostgresSink:
    """Makes sinks that write to a table of a PostgreSQL server, which must exist.

    What the methods have in common:

    - ``conninfo``: as libpq takes it, "postgresql://user@host/database" or "host=... dbname=...".
      Passwords are better kept in ``~/.pgpass`` or ``PGPASSWORD`` than in the program.
    - ``table``: "table" or "schema.table".
    - ``key``: columns with a unique constraint.
    - ``check_rows``: try the rows before the epoch is published.  False saves a third of the work;
      a row that the table refuses then fails the commit, the job ends after three tries, and
      continues when the table takes the row.
    - ``settings``: see ``TableSettings``.

    They raise SinkError if psycopg is not installed, or ``conninfo`` is not a connection string.
    """

    @staticmethod
    def two_phase(
        conninfo: str, table: str, **settings: Unpack[TableSettings]
    ) -> PostgresTwoPhaseSink:
        """Exactly-once by prepared transactions; the server must allow them."""
        return PostgresTwoPhaseSink(_table(conninfo, table, settings))

    @staticmethod
    def commit_table(
        conninfo: str,
        table: str,
        *,
        key: Sequence[str] = (),
        check_rows: bool = True,
        **settings: Unpack[TableSettings],
    ) -> PostgresCommitTableSink:
        """Exactly-once by a commit table; epochs are visible at once, over all subtasks.

        With a key rows are merged by it, without one they are inserted.
        """
        where = _table(conninfo, table, settings)
        return PostgresCommitTableSink(where, key, check_rows=check_rows)

    @staticmethod
    def changes(
        conninfo: str,
        table: str,
        *,
        key: Sequence[str],
        check_rows: bool = True,
        **settings: Unpack[TableSettings],
    ) -> PostgresChangesSink:
        """A changelog, exactly-once by a commit table: rows are merged and deleted by key."""
        return PostgresChangesSink(_table(conninfo, table, settings), key, check_rows=check_rows)

    @staticmethod
    def upsert(
        conninfo: str,
        table: str,
        *,
        key: Sequence[str],
        epoch_column: str | None = None,
        **settings: Unpack[TableSettings],
    ) -> PostgresUpsertSink:
        """Idempotent by key: the cheapest, with rows visible before the checkpoint is complete.

        ``epoch_column`` is a BIGINT column for the epoch of each row, which fences overtaken runs.
        """
        return PostgresUpsertSink(_table(conninfo, table, settings), key, epoch_column)


def _table(conninfo: str, table: str, settings: TableSettings) -> PostgresTable:
    driver()
    server_of(conninfo)
    return PostgresTable(conninfo, table, **settings)


# -- two-phase commit ------------------------------------------------------------------------------


class PostgresTwoPhaseSink(TableSink):
    """Inserts by prepared transactions; made by ``PostgresSink.two_phase``.

    A task COPYs its epoch's rows into the table within a transaction, adds its entry to the commit
    table, and runs ``PREPARE TRANSACTION``: every constraint is checked, the rows survive a crash
    of the server, and nobody sees them.  The committer runs ``COMMIT PREPARED``.  For each
    committable it finds one of:

    1. Its entry exists: an earlier try committed it and could not report it.
    2. A *later* epoch is entered, or a part of this one that the manifest does not name: this run
       is fenced, or uses an older copy of the checkpoint directory.  SinkError, also if the
       transaction exists: its rows are in the table already.  (In mode AT_LEAST_ONCE other parts of
       this epoch are of runs that died before they published: case 3.)
    3. The prepared transaction exists: it is committed, and with it the entry.
    4. It is gone and no entry exists: somebody else rolled it back.  SinkError reports it.
       Millstream rolls back only what no manifest names, so this can never happen by its doing.

    The name of a transaction has job, sink, generation, epoch, subtask and attempt; at the start
    and after each epoch those of this job and sink that no manifest names are rolled back, unless
    they are of a newer generation.  With long-running tasks, those of the next epochs are open or
    prepared while this one is committed: the server keeps as many as there are checkpoints in
    flight, and one more.

    A lost attempt that is prepared holds its locks until it is rolled back.  Where the table has a
    unique constraint, the next attempt waits for them up to ``lock_timeout``; then the epoch fails,
    the run restarts and rolls it back.

    Args:
        table: where to.
    """

    def __init__(self, table: PostgresTable) -> None:
        super().__init__(table)
        self._overlapping = 1

    def check(self, session: Session) -> None:
        """Check the server's settings as well, and make the commit table."""
        self._require_transactions(session, 1)
        super().check(session)
        make_commit_table(session)

    def validate_configuration(self, configuration: Configuration) -> None:
        """Take how many epochs overlap; ``validate_parallelism`` comes next."""
        self._overlapping = overlapping_epochs(configuration)

    def validate_parallelism(self, parallelism: int) -> None:
        """Check that the server can hold a connection and the transactions of each subtask.

        Those are one for each epoch that may be prepared, and one that a failed try left.

        Raises:
            SinkError: it cannot.
        """
        super().validate_parallelism(parallelism)
        with self.table.session("at submit") as session:
            self._require_transactions(session, parallelism)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer with a transaction of its own."""
        return _TwoPhaseWriter(self, context, self.table.quoted)

    def create_committer(self) -> Committer:
        """Return the committer, which runs COMMIT PREPARED."""
        return _TwoPhaseCommitter(self.table)

    def _require_transactions(self, session: Session, parallelism: int) -> None:
        row = session.execute("SHOW max_prepared_transactions").fetchone()
        allowed, needed = int(row[0]) if row else 0, (self._overlapping + 1) * parallelism
        if allowed < needed:
            epochs = (
                "a checkpoint" if self._overlapping == 1 else f"{self._overlapping} checkpoints"
            )
            message = (
                f"{self.table.target}: max_prepared_transactions of the server is {allowed}; a sink"
                f" with parallelism {parallelism} needs at least {needed}, for those of {epochs}"
                " and those that a failed try left. Set it in postgresql.conf and restart the"
                " server, or use PostgresSink.commit_table, which needs none"
            )
            raise SinkError(message)


class _TwoPhaseWriter(TableWriter):
    def begin(self, session: Session) -> None:
        session.execute("BEGIN")

    def finish(self, session: Session) -> Sequence[Committable]:
        context = self.context
        name = OutputNames.of(context).of_part(context)
        part = OutputPart(job=context.job_id, sink=context.sink_uid, part=name)
        crash_point("prepared.prepare.before")
        CommitTable(session.execute, numbered=True).add(part, context.epoch)
        session.execute(f"PREPARE TRANSACTION '{name}'")
        crash_point("prepared.prepare.after")
        return [part]


class _TwoPhaseCommitter(TableCommitter):
    def prepare(self, session: Session) -> None:
        make_commit_table(session)

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Commit the prepared transactions that are not committed yet.

        Raises:
            SinkError: the server cannot be reached, or one of the cases above.
        """
        if not requests:
            return
        with self.use(f"sink {as_part(requests[0].committable)['sink']}, in the commit") as session:

            def commit(part: OutputPart, epoch: int) -> None:
                crash_point("prepared.commit.before")
                self._commit(session, part, epoch, requests)
                crash_point("prepared.commit.after")

            commit_missing(CommitTable(session.execute, numbered=True), requests, commit)

    def _commit(
        self, session: Session, part: OutputPart, epoch: int, requests: Sequence[CommitRequest]
    ) -> None:
        try:
            session.execute(f"COMMIT PREPARED '{part['part']}'")
        except driver().errors.UndefinedObject:  # or another run committed it since we looked
            held = CommitTable(session.execute, numbered=True).read(part["job"], part["sink"])
            if CommittedEpoch(held, requests).holds(part, epoch):
                return
            message = (
                f"sink {part['sink']}: output of published checkpoint {epoch} is lost: the prepared"
                f" transaction {part['part']} is gone and {self.table.target} has no entry of it;"
                " nobody else may roll back transactions of that name"
            )
            raise PermanentSinkError(message) from None

    def left_on_server(self, session: Session, owner: str) -> Sequence[str]:
        query = (
            "SELECT gid FROM pg_prepared_xacts"
            " WHERE database = current_database() AND starts_with(gid, $1)"
        )
        return [name for (name,) in session.execute(query, (owner,)).fetchall()]

    def drop_orphans(self, session: Session, names: Sequence[str]) -> None:
        for name in names:
            # Another run may have been faster.
            with contextlib.suppress(driver().errors.UndefinedObject):
                session.execute(f"ROLLBACK PREPARED '{name}'")


# -- commit table ----------------------------------------------------------------------------------


class PostgresCommitTableSink(TableSink):
    """Inserts or upserts by a staging table; made by ``PostgresSink.commit_table``.

    It serves servers with ``max_prepared_transactions = 0``, and epochs that must become visible at
    once, over all subtasks.  A task COPYs its rows into a staging table beside the target, tries to
    insert them (in a subtransaction that is rolled back, so that a refused row fails the epoch and
    not the commit) and commits the staging.  The committer moves the rows of all subtasks into the
    table and enters them, in one transaction (``connectors/commit_protocols/commit_table.py``).

    Rows are staged in the server rather than in files: they cross the network once, the move is one
    statement there, and workers and driver need to share nothing but the server.  The staging table
    is ``<table>_millstream``; orphans in it are deleted at the start and after each epoch.

    Args:
        table: where to.
        key: columns with a unique constraint, to upsert by; empty: rows are inserted.
        check_rows: try the rows in the tasks.
    """

    def __init__(self, table: PostgresTable, key: Sequence[str], *, check_rows: bool) -> None:
        super().__init__(table, key)
        self.check_rows = check_rows

    @property
    def staging(self) -> str:
        """The staging table in SQL."""
        return self.table.staging

    def validate(self) -> None:
        """Check table, columns and key, and make the staging and commit tables.

        Raises:
            SinkError: one of them cannot be used.
        """
        longest = 63 - len(STAGING)
        if len(table_parts(self.table.table)[-1].encode()) > longest:
            # The server would cut it, down to the name of the table itself.
            message = (
                f"{self.table.target}: the name is too long for a staging table beside it; it may"
                f" have {longest} bytes. Rename the table, or use PostgresSink.two_phase"
            )
            raise SinkError(message)
        super().validate()

    def check(self, session: Session) -> None:
        """Make the staging and commit tables, too."""
        super().check(session)
        self.make_tables(session)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer to the staging table."""
        return _StagingWriter(self, context)

    def create_committer(self) -> Committer:
        return _StagingCommitter(self)

    def make_tables(self, session: Session) -> None:
        """Make the staging and the commit table if they are missing."""
        make_commit_table(session)
        found = session.execute("SELECT to_regclass($1)", (self.staging,)).fetchone()
        if found is not None and found[0] is not None:
            return
        index = identifier(f"{table_parts(self.table.table)[-1]}{STAGING}_part")
        with exclusive(session, self.staging):
            if not self.table.column_types(session):
                self.table.match(session, [])
            session.execute(
                f"CREATE TABLE IF NOT EXISTS {self.staging} AS"
                f" SELECT * FROM {self.table.quoted} WITH NO DATA"
            )
            session.execute(
                f"ALTER TABLE {self.staging} ADD IF NOT EXISTS millstream_part TEXT NOT NULL,"
                " ADD IF NOT EXISTS millstream_seq BIGINT GENERATED ALWAYS AS IDENTITY"
            )
            # The part is the same for all rows of a writer: set once, not sent with each row.
            session.execute(
                f"ALTER TABLE {self.staging} ALTER millstream_part"
                " SET DEFAULT current_setting('millstream.part')"
            )
            session.execute(
                f"CREATE INDEX IF NOT EXISTS {index} ON {self.staging} (millstream_part)"
            )

    def move_statement(self, columns: Sequence[str]) -> str:
        """The statement that copies the rows of a part (its parameter) into the table."""
        if self.key:
            return merge_statement(
                self.table.quoted,
                self.staging,
                columns,
                self.key,
                order="millstream_seq",
                where="millstream_part = $1",
            )
        names = ", ".join(map(identifier, columns))
        return (
            f"INSERT INTO {self.table.quoted} ({names}) SELECT {names} FROM {self.staging}"
            " WHERE millstream_part = $1 ORDER BY millstream_seq"
        )


class _StagingWriter(TableWriter):
    """Copies rows into the staging table, and tries them."""

    def __init__(self, sink: PostgresCommitTableSink, context: WriterContext) -> None:
        super().__init__(sink, context, sink.staging)
        self._staging = sink
        self._part = OutputNames.of(context).of_part(context)

    def prepare(self, session: Session) -> None:
        self._staging.make_tables(session)

    def begin(self, session: Session) -> None:
        session.execute("BEGIN")
        session.execute("SELECT set_config('millstream.part', $1, true)", (self._part,))

    def finish(self, session: Session) -> Sequence[Committable]:
        columns = list(self.columns)
        if self._staging.check_rows:
            session.execute("SAVEPOINT trial")
            session.execute(self._staging.move_statement(columns), (self._part,))
            session.execute("ROLLBACK TO SAVEPOINT trial")
        session.execute("COMMIT")
        names = {"job": self.context.job_id, "sink": self.context.sink_uid, "part": self._part}
        return [{**names, "columns": columns}]


class _Transaction:
    """An open transaction of the committer."""

    def __init__(self, sink: PostgresCommitTableSink, session: Session) -> None:
        self._sink = sink
        self._session = session
        self.commits = CommitTable(session.execute, numbered=True)

    def insert(self, part: OutputPart) -> None:
        columns = cast("list[str]", cast("dict[str, object]", part)["columns"])
        name = part["part"]
        self._session.execute(self._sink.move_statement(columns), (name,))
        staged = self._session.execute(
            f"DELETE FROM {self._sink.staging} WHERE millstream_part = $1",
            (name,),
        ).rowcount
        if not staged:  # a part without rows is never staged
            message = (
                f"sink {part['sink']}: output of a published checkpoint is lost:"
                f" {self._sink.staging}"
                f" has no rows of {name}, nor has the commit table an entry of it; nothing but this"
                " sink may delete rows there"
            )
            raise PermanentSinkError(message)


class _StagingCommitter(TableCommitter, CommitTableCommitter):
    def __init__(self, sink: PostgresCommitTableSink) -> None:
        super().__init__(sink.table)
        self._sink = sink

    def prepare(self, session: Session) -> None:
        self._sink.make_tables(session)

    @contextlib.contextmanager
    def transaction(self, sink_uid: str) -> Iterator[_Transaction]:
        lock = f"{self._sink.staging} {sink_uid}"
        with self.use(f"sink {sink_uid}, in the commit") as session, exclusive(session, lock):
            yield _Transaction(self._sink, session)

    def left_on_server(self, session: Session, owner: str) -> Sequence[str]:
        query = (
            f"SELECT DISTINCT millstream_part FROM {self._sink.staging}"
            " WHERE starts_with(millstream_part, $1)"
        )
        return [name for (name,) in session.execute(query, (owner,)).fetchall()]

    def drop_orphans(self, session: Session, names: Sequence[str]) -> None:
        if names:
            session.execute(
                f"DELETE FROM {self._sink.staging} WHERE millstream_part = ANY($1::text[])",
                (list(names),),
            )


# -- changelogs by key -----------------------------------------------------------------------------


#: The column of the staging table that marks deletions.
_GONE = "millstream_gone"


class PostgresChangesSink(PostgresCommitTableSink):
    """Merges, and deletes, rows by key; arguments as of ``PostgresCommitTableSink``.

    Rows are staged with whether they are deleted; at the commit the last of each key counts.  If
    changes of a key come from several subtasks, key the stream by it.
    """

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer to the staging table."""
        return _ChangesWriter(self, context)

    def make_tables(self, session: Session) -> None:
        super().make_tables(session)
        found = session.execute(
            "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = $2",
            (self.staging, _GONE),
        ).fetchone()
        if found is None:
            session.execute(
                f"ALTER TABLE {self.staging} ADD IF NOT EXISTS {_GONE} BOOLEAN NOT NULL"
                " DEFAULT false"
            )

    def move_statement(self, columns: Sequence[str]) -> str:
        """One statement: what is last of each key is deleted or merged."""
        keys = ", ".join(map(identifier, self.key))
        names = ", ".join(map(identifier, columns))
        same = " AND ".join(f"target.{identifier(k)} = last.{identifier(k)}" for k in self.key)
        others = [identifier(name) for name in columns if name not in self.key]
        changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
        action = f"UPDATE SET {changes}" if changes else "NOTHING"
        return (
            f"WITH last AS (SELECT DISTINCT ON ({keys}) {names}, {_GONE} FROM {self.staging}"
            f" WHERE millstream_part = $1 ORDER BY {keys}, millstream_seq DESC),"
            f" gone AS (DELETE FROM {self.table.quoted} AS target USING last"
            f" WHERE last.{_GONE} AND {same})"
            f" INSERT INTO {self.table.quoted} AS target ({names}) SELECT {names} FROM last"
            f" WHERE NOT {_GONE} ORDER BY {keys} ON CONFLICT ({keys}) DO {action}"
        )


class _ChangesWriter(_StagingWriter):
    def rows_of(self, batch: Batch) -> pa.Table:
        return pa.Table.from_batches([batch.arrow])

    def beside(self, batch: Batch) -> Mapping[str, tuple[str, pa.Array]]:
        kinds = batch.row_kinds
        if kinds is None:
            return {}
        return {_GONE: ("boolean", pa.array((kinds & 1).astype(bool)))}
