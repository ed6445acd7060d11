"""PostgreSQL sinks: ``PostgresSink`` makes them, and two-phase commit."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypedDict, Unpack

from millstream.connectors.commit_protocols.commit_table import (
    CommitTable,
    CommittedEpoch,
    OutputPart,
    as_part,
)
from millstream.connectors.outage import overlapping_epochs
from millstream.connectors.output_names import OutputNames
from millstream.connectors.postgres.commit_table import PostgresChangesSink, PostgresCommitTableSink
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
    from collections.abc import Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.connectors.postgres.table import Session
    from millstream.contracts.sink import (
        CommitRequest,
        Committable,
        Committer,
        SinkWriter,
        WriterContext,
    )
    from millstream.types.types import TypeInformation


class TableSettings(TypedDict, total=False):
    """What all sinks of ``PostgresSink`` have in common, beside server and table."""

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
    columns = settings.get("columns")
    return PostgresTable(
        conninfo,
        table,
        None if columns is None else tuple(columns),
        settings.get("type_info"),
        lock_timeout=settings.get("lock_timeout", 30.0),
        timeout=settings.get("timeout", 300.0),
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
