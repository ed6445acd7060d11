"""The PostgreSQL sink with a commit table: exactly-once where nothing can be prepared.

What it is: for servers with ``max_prepared_transactions = 0``, and for epochs that shall be visible
at once, over all subtasks.  A task COPYs its rows into a staging table beside the target, tries to
insert them (in a subtransaction that is rolled back, so that a refused row fails the epoch and not
the commit) and commits the staging.  The committer moves the rows of all subtasks into the table
and notes them, in one transaction (``connectors/commit_protocols/commit_notes.py``).  With a key it
upserts.

Rows are staged in the server rather than in files: they cross the network once, the move is one
statement there, and workers and driver need to share nothing but the server.  The staging table is
``<table>_millstream``; orphans in it are deleted at the start and after each epoch.

What it is not: as cheap as prepared transactions: each row is written three times.

Read next: ``connectors/commit_protocols/commit_notes.py``, ``connectors/postgres/upsert.py``.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, cast

from millstream.connectors.commit_protocols.commit_notes import (
    CommitNotes,
    NotedCommitter,
    NotedPart,
    as_part,
)
from millstream.connectors.commit_protocols.table_rows import (
    columns_of_batch,
    identifier,
    table_parts,
)
from millstream.connectors.postgres.names import generation_of, output_name, output_prefix
from millstream.connectors.postgres.sessions import RunSessions
from millstream.connectors.postgres.table import (
    STAGING,
    CommitterConnection,
    PostgresTable,
    copy_rows,
    exclusive,
    make_commit_table,
    place_of,
)
from millstream.connectors.postgres.upsert import merge_statement, require_key
from millstream.contracts.sink import Committer, Sink, SinkWriter
from millstream.errors import PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.connectors.postgres.table import Session
    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import Committable, CommitterContext, WriterContext
    from millstream.types.typeinfo import TypeInformation

__all__ = ["PostgresCommitTableSink"]


class PostgresCommitTableSink(Sink):
    """Inserts or upserts by a staging table; made by ``PostgresSink.commit_table``.

    Args:
        table: where to.
        key: columns with a unique constraint, to upsert by; empty: rows are inserted.
        check_rows: try the rows in the tasks.
    """

    def __init__(self, table: PostgresTable, key: Sequence[str], *, check_rows: bool) -> None:
        self.table = table
        self.key = list(key)
        self.check_rows = check_rows

    @property
    def staging(self) -> str:
        """The staging table in SQL."""
        return self.table.staging

    def describe(self) -> str:
        """The kind of sink, and its table."""
        return f"{type(self).__name__} {self.table.table}"

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
        with self.table.session("at submit") as session:
            self.table.validate(session)
            if self.key:
                require_key(session, self.table, self.key)
            self.make_tables(session)

    def validate_input(self, type_info: TypeInformation) -> None:
        """Check that the table has the columns of the records; raises SinkError if not."""
        with self.table.session("at submit") as session:
            self.table.match_type(session, type_info, self.key)

    def validate_parallelism(self, parallelism: int) -> None:
        """Check that the server can hold a connection per subtask; raises SinkError."""
        with self.table.session("at submit") as session:
            self.table.require_connections(session, parallelism)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer to the staging table."""
        return _StagingWriter(self, context)

    def create_committer(self) -> Committer:
        """The committer, which moves the rows."""
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
                f"CREATE TABLE IF NOT EXISTS {self.staging} AS"  # noqa: S608 - a quoted name
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
            f"INSERT INTO {self.table.quoted} ({names}) SELECT {names} FROM {self.staging}"  # noqa: S608
            " WHERE millstream_part = $1 ORDER BY millstream_seq"
        )


class _StagingWriter(SinkWriter):
    def __init__(self, sink: PostgresCommitTableSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._place = place_of(context)
        self._run = RunSessions.of(context)
        self._part = output_name(context, uuid.uuid4().hex[:12])
        self._session: Session | None = None
        self._columns: dict[str, str] = {}

    def write(self, batch: Batch) -> None:
        rows, table = columns_of_batch(batch), self._sink.table
        if self._session is None:
            self._session = table.connect(self._place, self._run.name(f"s{self._context.subtask}"))
            with table.errors(self._place):
                self._begin(self._session, rows.column_names)
        with table.errors(self._place, rows):
            copy_rows(self._session, self._sink.staging, self._columns, rows)

    def _begin(self, session: Session, given: Sequence[str]) -> None:
        self._sink.make_tables(session)
        self._columns = self._sink.table.match(session, given)
        self._sink.table.require_key(self._columns, self._sink.key)
        session.execute("BEGIN")
        session.execute("SELECT set_config('millstream.part', $1, true)", (self._part,))

    def prepare_commit(self) -> Sequence[Committable]:
        if self._session is None:
            return []
        context, columns = self._context, list(self._columns)
        with self._sink.table.errors(self._place):
            if self._sink.check_rows:
                self._session.execute("SAVEPOINT trial")
                self._session.execute(self._sink.move_statement(columns), (self._part,))
                self._session.execute("ROLLBACK TO SAVEPOINT trial")
            self._session.execute("COMMIT")
        names = {"job": context.job_id, "sink": context.sink_uid, "part": self._part}
        return [{**names, "columns": columns}]

    def close(self) -> None:
        if self._session is not None:
            self._session.close()  # rolls back what is not committed


class _Transaction:
    """An open transaction of the committer."""

    def __init__(self, sink: PostgresCommitTableSink, session: Session) -> None:
        self._sink = sink
        self._session = session
        self.notes = CommitNotes(session.execute, numbered=True)

    def insert(self, part: NotedPart) -> None:
        columns = cast("list[str]", cast("dict[str, object]", part)["columns"])
        name = part["part"]
        self._session.execute(self._sink.move_statement(columns), (name,))
        staged = self._session.execute(
            f"DELETE FROM {self._sink.staging} WHERE millstream_part = $1",  # noqa: S608
            (name,),
        ).rowcount
        if not staged:  # a part without rows is never staged
            message = (
                f"sink {part['sink']}: output of a published epoch is lost: {self._sink.staging}"
                f" has no rows of {name}, and there is no note of it; nothing but this sink may"
                " delete rows there"
            )
            raise PermanentSinkError(message)


class _StagingCommitter(NotedCommitter):
    def __init__(self, sink: PostgresCommitTableSink) -> None:
        self._sink = sink
        self.target = sink.table.target
        self._connection = CommitterConnection(sink.table, sink.make_tables)

    def open(self, context: CommitterContext) -> None:
        self._connection.open(context)

    @contextlib.contextmanager
    def transaction(self, sink_uid: str) -> Iterator[_Transaction]:
        place = f"sink {sink_uid}, in the commit"
        name = f"{self._sink.staging} {sink_uid}"
        with self._connection.use(place) as session, exclusive(session, name):
            yield _Transaction(self._sink, session)

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        """Delete staged rows of this sink and job that ``keep`` does not name."""
        prefix = output_prefix(job_id, sink_uid)
        kept = {as_part(item)["part"] for item in keep}
        query = (
            f"SELECT DISTINCT millstream_part FROM {self._sink.staging}"  # noqa: S608
            " WHERE starts_with(millstream_part, $1)"
        )
        with self._connection.use(f"sink {sink_uid}, dropping orphans") as session:
            names = [name for (name,) in session.execute(query, (prefix,)).fetchall()]
            orphans = [n for n in names if n not in kept and generation_of(n, prefix) <= generation]
            if orphans:
                session.execute(
                    f"DELETE FROM {self._sink.staging} WHERE millstream_part = ANY($1::text[])",  # noqa: S608
                    (orphans,),
                )

    def close(self) -> None:
        self._connection.close()
