"""The PostgreSQL sink with a commit table: exactly-once where nothing can be prepared.

It serves servers with ``max_prepared_transactions = 0``, and epochs that must become visible at
once, over all subtasks.  A task COPYs its rows into a staging table beside the target, tries to
insert them (in a subtransaction that is rolled back, so that a refused row fails the epoch and not
the commit) and commits the staging.  The committer moves the rows of all subtasks into the table
and enters them, in one transaction (``connectors/commit_protocols/commit_table.py``).  With a key
it upserts.

Rows are staged in the server rather than in files: they cross the network once, the move is one
statement there, and workers and driver need to share nothing but the server.  The staging table is
``<table>_millstream``; orphans in it are deleted at the start and after each epoch.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from millstream.connectors.commit_protocols.commit_table import (
    CommitTable,
    CommitTableCommitter,
    OutputPart,
    identifier,
    table_parts,
)
from millstream.connectors.output_names import OutputNames
from millstream.connectors.postgres.table import STAGING
from millstream.connectors.postgres.table_sink import (
    TableCommitter,
    TableSink,
    TableWriter,
    exclusive,
    make_commit_table,
    merge_statement,
)
from millstream.errors import PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.connectors.postgres.table import PostgresTable, Session
    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import Committable, Committer, SinkWriter, WriterContext


class PostgresCommitTableSink(TableSink):
    """Inserts or upserts by a staging table; made by ``PostgresSink.commit_table``.

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
