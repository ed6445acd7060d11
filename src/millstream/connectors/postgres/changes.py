"""Changes of rows by key into a PostgreSQL table, exactly once.

What it is: ``PostgresCommitTableSink`` for changelogs.  Rows are staged with whether they are gone;
at the commit the last of each key counts: it is merged into the table, or deleted from it.
What it is not: for streams in which a key comes from several subtasks: key the stream by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.connectors.commit_protocols.commit_table import identifier
from millstream.connectors.postgres.commit_table import PostgresCommitTableSink, StagingWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.connectors.postgres.table import Session
    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import SinkWriter, WriterContext


_GONE = "millstream_gone"


class PostgresChangesSink(PostgresCommitTableSink):
    """Merges, and deletes, rows by key; arguments as of ``PostgresCommitTableSink``."""

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
