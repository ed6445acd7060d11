"""PostgreSQL sinks: ``PostgresSink`` makes them; two-phase commit, and changelogs by key."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.connectors.commit_protocols.commit_table import (
    CommitTable,
    CommittedEpoch,
    OutputPart,
    as_part,
    identifier,
)
from millstream.connectors.outage import overlapping_epochs
from millstream.connectors.output_names import OutputNames
from millstream.connectors.postgres.commit_table import PostgresCommitTableSink, StagingWriter
from millstream.connectors.postgres.sessions import driver
from millstream.connectors.postgres.table import PostgresTable, server_of
from millstream.connectors.postgres.table_sink import (
    PostgresUpsertSink,
    TableCommitter,
    TableSink,
    TableWriter,
    make_commit_table,
)
from millstream.crash_points import crash_point
from millstream.errors import PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


class PostgresSink:
    """Makes sinks that write to a table of a PostgreSQL server, which must exist.

    What the methods have in common:

    - ``conninfo``: as libpq takes it, "postgresql://user@host/database" or "host=... dbname=...".
      Passwords are better kept in ``~/.pgpass`` or ``PGPASSWORD`` than in the program.
    - ``table``: "table" or "schema.table".
    - ``columns``: the table's columns in the order of the records' fields; None: found by name.
    - ``type_info``: the type of the records, so that columns are compared at submit already.
    - ``lock_timeout``: seconds to wait for a lock that another transaction holds.
    - ``timeout``: seconds to wait for the server's answer to a statement.  Then the connection is
      given up: the epoch fails, or its commit is tried again.
    """

    @staticmethod
    def two_phase(
        conninfo: str,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        type_info: TypeInformation | None = None,
        lock_timeout: float = 30.0,
        timeout: float = 300.0,
    ) -> PostgresTwoPhaseSink:
        """Exactly-once by prepared transactions; the server must allow them.

        Raises:
            SinkError: psycopg is not installed, or ``conninfo`` is not a connection string.
        """
        return PostgresTwoPhaseSink(
            _table(conninfo, table, columns, type_info, lock_timeout, timeout)
        )

    @staticmethod
    def commit_table(
        conninfo: str,
        table: str,
        *,
        key: Sequence[str] = (),
        check_rows: bool = True,
        columns: Sequence[str] | None = None,
        type_info: TypeInformation | None = None,
        lock_timeout: float = 30.0,
        timeout: float = 300.0,
    ) -> PostgresCommitTableSink:
        """Exactly-once by a commit table; epochs are visible at once, over all subtasks.

        Args:
            conninfo: see the class, as the other arguments.
            table: the table.
            key: columns with a unique constraint, to upsert by; empty: rows are inserted.
            check_rows: try the rows before the epoch is published.  False saves a third of the
                work; a row that the table refuses then fails the commit, the job ends after three
                tries, and continues when the table takes the row.
            columns: the table's columns.
            type_info: the type of the records.
            lock_timeout: seconds.
            timeout: seconds.

        Raises:
            SinkError: psycopg is not installed, or ``conninfo`` is not a connection string.
        """
        where = _table(conninfo, table, columns, type_info, lock_timeout, timeout)
        return PostgresCommitTableSink(where, key, check_rows=check_rows)

    @staticmethod
    def changes(
        conninfo: str,
        table: str,
        *,
        key: Sequence[str],
        check_rows: bool = True,
        columns: Sequence[str] | None = None,
        type_info: TypeInformation | None = None,
        lock_timeout: float = 30.0,
        timeout: float = 300.0,
    ) -> PostgresChangesSink:
        """A changelog, exactly-once by a commit table: rows are merged and deleted by key.

        Args:
            conninfo: see the class, as the other arguments.
            table: the table.
            key: columns with a unique constraint.
            check_rows: as of ``commit_table``.
            columns: the table's columns.
            type_info: the type of the records.
            lock_timeout: seconds.
            timeout: seconds.

        Raises:
            SinkError: psycopg is not installed, or ``conninfo`` is not a connection string.
        """
        where = _table(conninfo, table, columns, type_info, lock_timeout, timeout)
        return PostgresChangesSink(where, key, check_rows=check_rows)

    @staticmethod
    def upsert(
        conninfo: str,
        table: str,
        *,
        key: Sequence[str],
        epoch_column: str | None = None,
        columns: Sequence[str] | None = None,
        type_info: TypeInformation | None = None,
        lock_timeout: float = 30.0,
        timeout: float = 300.0,
    ) -> PostgresUpsertSink:
        """Idempotent by key: the cheapest, with rows visible before the checkpoint is complete.

        Args:
            conninfo: see the class, as the other arguments.
            table: the table.
            key: columns with a unique constraint.
            epoch_column: a BIGINT column for the epoch of each row, which fences overtaken runs.
            columns: the table's columns.
            type_info: the type of the records.
            lock_timeout: seconds.
            timeout: seconds.

        Raises:
            SinkError: psycopg is not installed, or ``conninfo`` is not a connection string.
        """
        where = _table(conninfo, table, columns, type_info, lock_timeout, timeout)
        return PostgresUpsertSink(where, key, epoch_column)


def _table(
    conninfo: str,
    table: str,
    columns: Sequence[str] | None,
    type_info: TypeInformation | None,
    lock_timeout: float,
    timeout: float,
) -> PostgresTable:
    driver()
    server_of(conninfo)
    chosen = None if columns is None else tuple(columns)
    return PostgresTable(
        conninfo, table, chosen, type_info, lock_timeout=lock_timeout, timeout=timeout
    )


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
        parts = [(as_part(request.committable), request.epoch) for request in requests]
        if not parts:
            return
        job, sink = parts[0][0]["job"], parts[0][0]["sink"]
        with self.use(f"sink {sink}, in the commit") as session:
            commits = CommitTable(session.execute, numbered=True)
            held = CommittedEpoch(commits.read(job, sink), requests)
            for part, epoch in parts:
                if not held.holds(part, epoch):
                    crash_point("prepared.commit.before")
                    self._commit(session, part, epoch, requests)
                    crash_point("prepared.commit.after")
            commits.forget([part for part, _ in parts], max(epoch for _, epoch in parts))

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


class _ChangesWriter(StagingWriter):
    def rows_of(self, batch: Batch) -> pa.Table:
        return pa.Table.from_batches([batch.arrow])

    def beside(self, batch: Batch) -> Mapping[str, tuple[str, pa.Array]]:
        kinds = batch.row_kinds
        if kinds is None:
            return {}
        return {_GONE: ("boolean", pa.array((kinds & 1).astype(bool)))}
