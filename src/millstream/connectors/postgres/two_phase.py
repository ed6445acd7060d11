"""The PostgreSQL sink with prepared transactions: two-phase commit, with the server's own means.

What it is: a task COPYs its epoch's rows into the table within a transaction, adds its entry to the
commit table, and says ``PREPARE TRANSACTION``: every constraint is checked, the rows survive a
crash of the server, and nobody sees them.  The committer says ``COMMIT PREPARED``.  For each
committable it finds one of:

1. Its entry is there: an earlier try committed it and could not say so.
2. A *later* epoch is entered, or a part of this one that the manifest does not name: this run has
   been overtaken, or goes by an older copy of the checkpoint directory.  SinkError, also if the
   transaction is there: its rows are in the table already.  (In mode AT_LEAST_ONCE other parts of
   this epoch are of runs that died before they published: case 3.)
3. The prepared transaction is there: it is committed, and with it the entry.
4. It is gone and no entry is there: somebody else rolled it back.  SinkError says so.  Millstream
   rolls back only what no manifest names, so this can never happen by its doing.

The name of a transaction tells job, sink, generation, epoch, subtask and attempt; at the start and
after each epoch those of this job and sink that no manifest names are rolled back, unless they are
of a newer generation.  Where tasks go on, those of the next epochs are open or prepared while this
one is committed: the server keeps as many as there are checkpoints in flight, and one more.

A lost attempt that is prepared holds its locks until it is rolled back.  Where the table has a
unique constraint, the next attempt waits for them up to ``lock_timeout``; then the epoch fails, the
run starts again and rolls it back.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from millstream.connectors.commit_protocols.commit_table import (
    CommitTable,
    CommittedEpoch,
    OutputPart,
    as_part,
)
from millstream.connectors.outage import overlapping_epochs
from millstream.connectors.output_names import OutputNames
from millstream.connectors.postgres.table_sink import (
    TableCommitter,
    TableSink,
    TableWriter,
    make_commit_table,
)
from millstream.connectors.postgres.waiting import driver
from millstream.crash_points import crash_point
from millstream.errors import PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.connectors.postgres.table import PostgresTable, Session
    from millstream.contracts.sink import (
        CommitRequest,
        Committable,
        Committer,
        SinkWriter,
        WriterContext,
    )


class PostgresTwoPhaseSink(TableSink):
    """Inserts by prepared transactions; made by ``PostgresSink.two_phase``.

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
        """The committer, which says COMMIT PREPARED."""
        return _TwoPhaseCommitter(self.table)

    def _require_transactions(self, session: Session, parallelism: int) -> None:
        row = session.execute("SHOW max_prepared_transactions").fetchone()
        allowed, needed = int(row[0]) if row else 0, (self._overlapping + 1) * parallelism
        if allowed < needed:
            epochs = "an epoch" if self._overlapping == 1 else f"{self._overlapping} epochs"
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
                f"sink {part['sink']}: output of published epoch {epoch} is lost: the prepared"
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
