"""The PostgreSQL sink that upserts by key: idempotent, with nothing prepared.

What it is: a task COPYs its epoch's rows into a temporary table and, at the end of the epoch (where
tasks go on: within milliseconds), merges them into the table by ``INSERT ... ON CONFLICT DO
UPDATE``, in one transaction; of rows with the same key the last counts.  Written again after a
failure, the rows change nothing.

``epoch_column`` fences: the table keeps run and epoch that wrote each row, in one number
(``fence_of``), and a run that has been overtaken cannot replace what a newer one, or a later epoch,
wrote; it gets a SinkError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.commit_protocols.commit_table import identifier
from millstream.connectors.postgres.sessions import RunSessions
from millstream.connectors.postgres.table_sink import TableSink, TableWriter
from millstream.contracts.sink import SinkKind, SinkWriter
from millstream.crash_points import crash_point
from millstream.errors import PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.connectors.postgres.table import PostgresTable, Session
    from millstream.contracts.sink import Committable, WriterContext


_ROWS = "millstream_rows"


class PostgresUpsertSink(TableSink):
    """Inserts or updates by key; made by ``PostgresSink.upsert``.

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
            message = f"{self.table.target} has no epoch column {self.epoch_column!r}"
            raise SinkError(message)
        if found not in {"bigint", "numeric"}:
            message = (
                f"the epoch column {self.epoch_column!r} of {self.table.target} is {found},"
                " which is too small for run and epoch: make it a BIGINT (ALTER TABLE ... ALTER"
                f" COLUMN {identifier(self.epoch_column)} TYPE bigint)"
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
                " written by a later epoch: a newer run has taken over, or the table is of another"
                f" job. For a new job, set the column {self._upsert.epoch_column!r} to NULL first"
            )
            raise PermanentSinkError(message)
