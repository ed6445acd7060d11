"""The PostgreSQL sink with prepared transactions: two-phase commit, with the server's own means.

What it is: a task COPYs its epoch's rows into the table within a transaction, adds a note to the
commit table, and says ``PREPARE TRANSACTION``: every constraint is checked, the rows survive a
crash of the server, and nobody sees them.  The committer says ``COMMIT PREPARED``.  For each
committable it finds one of:

1. Its note is there: an earlier try committed it and could not say so.
2. A *later* epoch is noted, or a part of this one that the manifest does not name: this run has
   been overtaken, or goes by an older copy of the checkpoint directory.  SinkError, also if the
   transaction is there: its rows are in the table already.  (In mode AT_LEAST_ONCE other parts of
   this epoch are of runs that died before they published: case 3.)
3. The prepared transaction is there: it is committed, and with it the note.
4. It is gone and no note is there: somebody else rolled it back.  SinkError says so.  Millstream
   rolls back only what no manifest names, so this can never happen by its doing.

The name of a transaction tells job, sink, generation, epoch, subtask and attempt; at the start and
after each epoch those of this job and sink that no manifest names are rolled back, unless they are
of a newer generation.

What it is not: atomic over subtasks: each has its transaction, and they are committed one after the
other.  ``postgres_commit_table.py`` shows an epoch at once.

A lost attempt that is prepared holds its locks until it is rolled back.  Where the table has a
unique constraint, the next attempt waits for them up to ``lock_timeout``; then the epoch fails, the
run starts again and rolls it back.

Read next: ``connectors/postgres/table.py``, ``connectors/commit_protocols/commit_notes.py``.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

from millstream.connectors.commit_protocols.commit_notes import (
    CommitNotes,
    NotedEpoch,
    NotedPart,
    as_part,
)
from millstream.connectors.commit_protocols.table_rows import columns_of_batch
from millstream.connectors.postgres.names import generation_of, output_name, output_prefix
from millstream.connectors.postgres.sessions import RunSessions
from millstream.connectors.postgres.table import (
    CommitterConnection,
    PostgresTable,
    copy_rows,
    make_commit_table,
    place_of,
)
from millstream.connectors.postgres.waiting import driver
from millstream.contracts.sink import Committer, Sink, SinkWriter
from millstream.crash_points import crash_point
from millstream.errors import PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.connectors.postgres.table import Session
    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import (
        CommitRequest,
        Committable,
        CommitterContext,
        WriterContext,
    )
    from millstream.types.typeinfo import TypeInformation

__all__ = ["PostgresTwoPhaseSink"]


class PostgresTwoPhaseSink(Sink):
    """Inserts by prepared transactions; made by ``PostgresSink.two_phase``.

    Args:
        table: where to.
    """

    def __init__(self, table: PostgresTable) -> None:
        self.table = table

    def describe(self) -> str:
        """The kind of sink, and its table."""
        return f"{type(self).__name__} {self.table.table}"

    def validate(self) -> None:
        """Check server, table and columns.

        Raises:
            SinkError: one of them cannot be used.
        """
        with self.table.session("at submit") as session:
            self._require_transactions(session, 1)
            self.table.validate(session)
            make_commit_table(session)

    def validate_input(self, type_info: TypeInformation) -> None:
        """Check that the table has the columns of the records; raises SinkError if not."""
        with self.table.session("at submit") as session:
            self.table.match_type(session, type_info)

    def validate_parallelism(self, parallelism: int) -> None:
        """Check that the server can hold a connection and two prepared transactions per subtask.

        Raises:
            SinkError: it cannot.
        """
        with self.table.session("at submit") as session:
            self.table.require_connections(session, parallelism)
            self._require_transactions(session, parallelism)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer with a transaction of its own."""
        return _TwoPhaseWriter(self.table, context)

    def create_committer(self) -> Committer:
        """The committer, which says COMMIT PREPARED."""
        return _TwoPhaseCommitter(self.table)

    def _require_transactions(self, session: Session, parallelism: int) -> None:
        row = session.execute("SHOW max_prepared_transactions").fetchone()
        allowed, needed = int(row[0]) if row else 0, 2 * parallelism
        if allowed < needed:
            message = (
                f"{self.table.target}: max_prepared_transactions of the server is {allowed}; a sink"
                f" with parallelism {parallelism} needs at least {needed}, for those of an epoch"
                " and those that a failed try left. Set it in postgresql.conf and restart the"
                " server, or use PostgresSink.commit_table, which needs none"
            )
            raise SinkError(message)


class _TwoPhaseWriter(SinkWriter):
    def __init__(self, table: PostgresTable, context: WriterContext) -> None:
        self._table = table
        self._context = context
        self._place = place_of(context)
        self._run = RunSessions.of(context)
        self._session: Session | None = None
        self._columns: dict[str, str] = {}

    def write(self, batch: Batch) -> None:
        rows = columns_of_batch(batch)
        if self._session is None:
            self._session = self._table.connect(
                self._place, self._run.name(f"s{self._context.subtask}")
            )
            with self._table.errors(self._place):
                self._columns = self._table.match(self._session, rows.column_names)
                self._session.execute("BEGIN")
        with self._table.errors(self._place, rows):
            copy_rows(self._session, self._table.quoted, self._columns, rows)

    def prepare_commit(self) -> Sequence[Committable]:
        if self._session is None:
            return []
        context = self._context
        name = output_name(context, uuid.uuid4().hex[:12])
        part = NotedPart(job=context.job_id, sink=context.sink_uid, part=name)
        crash_point("prepared.prepare.before")
        with self._table.errors(self._place):
            CommitNotes(self._session.execute, numbered=True).add(part, context.epoch)
            self._session.execute(f"PREPARE TRANSACTION '{name}'")
        crash_point("prepared.prepare.after")
        return [part]

    def close(self) -> None:
        if self._session is not None:
            self._session.close()  # rolls back what is not prepared


class _TwoPhaseCommitter(Committer):
    def __init__(self, table: PostgresTable) -> None:
        self._table = table
        self.target = table.target
        self._connection = CommitterConnection(table, make_commit_table)

    def open(self, context: CommitterContext) -> None:
        self._connection.open(context)

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Commit the prepared transactions that are not committed yet.

        Raises:
            SinkError: the server cannot be reached, or one of the cases above.
        """
        parts = [(as_part(request.committable), request.epoch) for request in requests]
        if not parts:
            return
        job, sink = parts[0][0]["job"], parts[0][0]["sink"]
        with self._connection.use(f"sink {sink}, in the commit") as session:
            notes = CommitNotes(session.execute, numbered=True)
            noted = NotedEpoch(notes.read(job, sink), requests)
            for part, epoch in parts:
                if not noted.holds(part, epoch):
                    crash_point("prepared.commit.before")
                    self._commit(session, part, epoch, requests)
                    crash_point("prepared.commit.after")
            notes.forget(job, sink, max(epoch for _, epoch in parts))

    def _commit(
        self, session: Session, part: NotedPart, epoch: int, requests: Sequence[CommitRequest]
    ) -> None:
        try:
            session.execute(f"COMMIT PREPARED '{part['part']}'")
        except driver().errors.UndefinedObject:  # or another run committed it since we looked
            noted = CommitNotes(session.execute, numbered=True).read(part["job"], part["sink"])
            if NotedEpoch(noted, requests).holds(part, epoch):
                return
            message = (
                f"sink {part['sink']}: output of published epoch {epoch} is lost: the prepared"
                f" transaction {part['part']} is gone and {self._table.target} has no note of it;"
                " nobody else may roll back transactions of that name"
            )
            raise PermanentSinkError(message) from None

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        """Roll back prepared transactions of this sink and job that ``keep`` does not name."""
        prefix = output_prefix(job_id, sink_uid)
        kept = {as_part(item)["part"] for item in keep}
        query = (
            "SELECT gid FROM pg_prepared_xacts"
            " WHERE database = current_database() AND starts_with(gid, $1)"
        )
        with self._connection.use(f"sink {sink_uid}, dropping orphans") as session:
            for (name,) in session.execute(query, (prefix,)).fetchall():
                if name not in kept and generation_of(name, prefix) <= generation:
                    # Another run may have been faster.
                    with contextlib.suppress(driver().errors.UndefinedObject):
                        session.execute(f"ROLLBACK PREPARED '{name}'")

    def close(self) -> None:
        self._connection.close()
