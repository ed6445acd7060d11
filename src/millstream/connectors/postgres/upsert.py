"""The PostgreSQL sink that upserts by key: idempotent, with nothing prepared.

What it is: a task COPYs its epoch's rows into a temporary table and, at the end of the epoch,
merges them into the table by ``INSERT ... ON CONFLICT DO UPDATE``, in one transaction; of rows with
the same key the last counts.  Written again after a failure, the rows change nothing.

What it is not: invisible before the checkpoint is complete.  After a failure a reader may see, for
as long as the recovery takes, rows of an epoch that is then repeated: newer than the other results,
never wrong once the epoch is done.  Whoever must not see that takes
``PostgresSink.commit_table(..., key=[...])``.

``epoch_column`` fences: the table keeps the epoch that wrote each row, and a run that has been
overtaken cannot replace what a later epoch wrote; it gets a SinkError.

Read next: ``connectors/postgres/table.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.commit_protocols.table_rows import columns_of_batch, identifier
from millstream.connectors.postgres.sessions import RunSessions
from millstream.connectors.postgres.table import (
    PostgresTable,
    copy_rows,
    driver,
    error_text,
    place_of,
)
from millstream.contracts.sink import Sink, SinkKind, SinkWriter
from millstream.crash_points import crash_point
from millstream.errors import PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.connectors.postgres.table import Session
    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import Committable, WriterContext
    from millstream.types.typeinfo import TypeInformation

__all__ = ["PostgresUpsertSink", "merge_statement", "require_key"]

_ROWS = "millstream_rows"


class PostgresUpsertSink(Sink):
    """Inserts or updates by key; made by ``PostgresSink.upsert``.

    Args:
        table: where to.
        key: columns with a unique constraint.
        epoch_column: a BIGINT column for the epoch of each row; None: no fencing.
    """

    kind = SinkKind.IDEMPOTENT

    def __init__(self, table: PostgresTable, key: Sequence[str], epoch_column: str | None) -> None:
        if not key:
            message = "an upsert needs a key: the columns of a unique constraint"
            raise SinkError(message)
        self.table = table
        self.key = list(key)
        self.epoch_column = epoch_column

    def describe(self) -> str:
        """The kind of sink, and its table."""
        return f"{type(self).__name__} {self.table.table}"

    def validate(self) -> None:
        """Check table, columns and key.

        Raises:
            SinkError: one of them cannot be used.
        """
        with self.table.session("at submit") as session:
            self.table.validate(session)
            require_key(session, self.table, self.key)
            known = self.table.column_types(session)
            if self.epoch_column is not None and self.epoch_column not in known:
                message = f"{self.table.target} has no epoch column {self.epoch_column!r}"
                raise SinkError(message)

    def validate_input(self, type_info: TypeInformation) -> None:
        """Check that the table has the columns of the records; raises SinkError if not."""
        with self.table.session("at submit") as session:
            self.table.match_type(session, type_info, self.key)

    def validate_parallelism(self, parallelism: int) -> None:
        """Check that the server can hold a connection per subtask; raises SinkError."""
        with self.table.session("at submit") as session:
            self.table.require_connections(session, parallelism)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer with a transaction of its own."""
        return _UpsertWriter(self, context)


def require_key(session: Session, table: PostgresTable, key: Sequence[str]) -> None:
    """Let the server check that a unique constraint fits ``key``; raises SinkError if not."""
    names = ", ".join(map(identifier, key))
    try:
        session.execute(
            f"EXPLAIN INSERT INTO {table.quoted} DEFAULT VALUES"  # noqa: S608 - quoted names
            f" ON CONFLICT ({names}) DO NOTHING"
        )
    except driver().errors.InvalidColumnReference as error:
        message = (
            f"{table.target}: {error_text(error)}: it needs one on exactly key={list(key)}. CREATE"
            f" UNIQUE INDEX ON {table.quoted} ({names}), or correct the key"
        )
        raise SinkError(message) from error


def merge_statement(
    table: str,
    rows: str,
    columns: Sequence[str],
    key: Sequence[str],
    *,
    order: str,
    where: str = "true",
    epoch: tuple[str, int] | None = None,
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
        epoch: the fencing column and the epoch, if there is one.
    """
    names, keys = [identifier(name) for name in columns], ", ".join(map(identifier, key))
    values = list(names)
    condition = ""
    if epoch is not None:
        column = identifier(epoch[0])
        names, values = [*names, column], [*values, str(epoch[1])]
        condition = f" WHERE target.{column} IS NULL OR target.{column} <= EXCLUDED.{column}"
    changes = [f"{name} = EXCLUDED.{name}" for name in names if name not in map(identifier, key)]
    action = f"UPDATE SET {', '.join(changes)}{condition}" if changes else "NOTHING"
    return (
        f"INSERT INTO {table} AS target ({', '.join(names)})"  # noqa: S608 - quoted names
        f" SELECT DISTINCT ON ({keys}) {', '.join(values)} FROM {rows} WHERE {where}"
        f" ORDER BY {keys}, {order} DESC ON CONFLICT ({keys}) DO {action}"
    )


class _UpsertWriter(SinkWriter):
    def __init__(self, sink: PostgresUpsertSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._place = place_of(context)
        self._run = RunSessions.of(context)
        self._session: Session | None = None
        self._columns: Mapping[str, str] = {}

    def write(self, batch: Batch) -> None:
        rows, table = columns_of_batch(batch), self._sink.table
        if self._session is None:
            self._session = table.connect(self._place, self._run.name(f"s{self._context.subtask}"))
            with table.errors(self._place):
                self._begin(self._session, rows.column_names)
        with table.errors(self._place, rows):
            copy_rows(self._session, _ROWS, self._columns, rows)

    def _begin(self, session: Session, given: Sequence[str]) -> None:
        table = self._sink.table
        # There is no committer to do it: what an older writer has merged would hold up this one.
        self._run.end_older(session)
        self._columns = table.match(session, given)
        table.require_key(self._columns, self._sink.key)
        names = ", ".join(map(identifier, self._columns))
        session.execute("BEGIN")
        session.execute(
            f"CREATE TEMPORARY TABLE {_ROWS} ON COMMIT DROP AS"  # noqa: S608 - quoted names
            f" SELECT {names} FROM {table.quoted} WITH NO DATA"
        )
        session.execute(
            f"ALTER TABLE {_ROWS} ADD millstream_seq BIGINT GENERATED ALWAYS AS IDENTITY"
        )

    def prepare_commit(self) -> Sequence[Committable]:
        if self._session is None:
            return []
        sink, epoch = self._sink, self._context.epoch
        fence = None if sink.epoch_column is None else (sink.epoch_column, epoch)
        statement = merge_statement(
            sink.table.quoted,
            _ROWS,
            list(self._columns),
            sink.key,
            order="millstream_seq",
            epoch=fence,
        )
        with sink.table.errors(self._place):
            merged = self._session.execute(statement).rowcount
            if fence is not None:
                self._require_all(self._session, merged)
            crash_point("upsert.commit.before")
            self._session.execute("COMMIT")
            crash_point("upsert.commit.after")
        return []

    def _require_all(self, session: Session, merged: int) -> None:
        keys = ", ".join(map(identifier, self._sink.key))
        row = session.execute(
            f"SELECT count(*) FROM (SELECT DISTINCT {keys} FROM {_ROWS}) AS k"  # noqa: S608
        ).fetchone()
        wanted = int(row[0]) if row else 0
        if merged < wanted:
            message = (
                f"{self._place}: {wanted - merged} rows of {self._sink.table.target} were written"
                f" by a later epoch: a newer run has taken over, or the table is of another job."
                f" For a new job, set the column {self._sink.epoch_column!r} to NULL first"
            )
            raise PermanentSinkError(message)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()  # rolls back what is not committed
