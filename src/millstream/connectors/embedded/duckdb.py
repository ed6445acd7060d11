"""The DuckDB sink: exactly-once rows in a table of a database file, without a server.

What it is: ``DuckDbSink``.  Batches go into DuckDB as Arrow tables, without Python values.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.commit_protocols.commit_table import identifier
from millstream.connectors.embedded.sink import (
    GONE,
    EmbeddedDatabase,
    EmbeddedSession,
    EmbeddedSink,
    database_path,
    merge_text,
)
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.types.types import TypeInformation


#: Seconds between two attempts to open a file that another process has open.
_POLL: Final = 0.02
#: The column that says in which order changes came.
_NUMBER: Final = "millstream_number"


class DuckDbSink(EmbeddedSink):
    """Inserts into a table of a DuckDB database, or merges changes by key, exactly once.

    ::

        DuckDbSink("results.duckdb", "counts")

    Args:
        path: the database file, on a local file system that driver and workers share.
        table: an existing table.
        columns: its columns in the order of the records' fields; None: found by name.
        key: columns with a primary key or unique index: records are changes, which are merged and
            deleted by them; None: records are inserted.
        type_info: the type of the records, so that columns are compared at submit already.
        check_rows: try the rows before the epoch is published (see ``EmbeddedSink``).
        timeout: seconds to wait for other processes to close the file.
        fsync: False trades survival of a machine crash for speed.

    Raises:
        SinkError: the package duckdb is not installed.
    """

    def __init__(
        self,
        path: str | Path,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        key: Sequence[str] | None = None,
        type_info: TypeInformation | None = None,
        check_rows: bool = True,
        timeout: float = 60.0,
        fsync: bool = True,
    ) -> None:
        try:
            importlib.import_module("duckdb")
        except ImportError as error:
            message = "DuckDbSink needs the package duckdb: pip install 'millstream[duckdb]'"
            raise SinkError(message) from error
        super().__init__(
            _DuckDatabase(database_path(path), timeout),
            table,
            columns=columns,
            key=key or (),
            type_info=type_info,
            check_rows=check_rows,
            fsync=fsync,
        )


class _DuckDatabase(EmbeddedDatabase):
    @property
    def errors(self) -> tuple[type[Exception], ...]:
        import duckdb

        return (duckdb.Error,)

    def refuses(self, error: Exception) -> bool:
        import duckdb

        transient = (
            duckdb.IOException,
            duckdb.ConnectionException,
            duckdb.OutOfMemoryException,
            duckdb.TransactionException,
            duckdb.InterruptException,
        )
        return isinstance(error, duckdb.Error) and not isinstance(error, transient)

    def open(self) -> EmbeddedSession:
        import duckdb

        limit = time.monotonic() + self.timeout
        while True:
            try:
                connection = duckdb.connect(str(self.path))
            except (duckdb.IOException, duckdb.ConnectionException):
                # Another process, or this one with other settings, has the file open.
                if time.monotonic() > limit:
                    raise
                time.sleep(_POLL)
            else:
                connection.execute("BEGIN")
                return _DuckSession(connection)


class _DuckSession(EmbeddedSession):
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> Any:
        return self._connection.execute(statement, parameters or None)

    def columns(self, table: Sequence[str]) -> list[str]:
        *schema, name = table
        query = (
            "SELECT column_name FROM duckdb_columns() WHERE database_name = current_database()"
            " AND schema_name = ? AND table_name = ? ORDER BY column_index"
        )
        found = self.execute(query, (schema[-1] if schema else "main", name)).fetchall()
        return [column for (column,) in found]

    def insert(self, table: str, columns: Sequence[str], rows: pa.Table) -> None:
        names = ", ".join(map(identifier, columns))
        self._connection.register("millstream_rows", rows)
        self._connection.execute(f"INSERT INTO {table} ({names}) SELECT * FROM millstream_rows")
        self._connection.unregister("millstream_rows")

    def merge(self, table: str, columns: Sequence[str], key: Sequence[str], rows: pa.Table) -> None:
        names, keys = (", ".join(map(identifier, each)) for each in (columns, key))
        numbered = rows.append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
        last = (
            f"(SELECT * FROM millstream_rows QUALIFY row_number() OVER (PARTITION BY {keys}"
            f" ORDER BY {_NUMBER} DESC) = 1)"
        )
        merged = f"SELECT {names} FROM {last} WHERE NOT {GONE} ORDER BY {_NUMBER}"
        self._connection.register("millstream_rows", numbered)
        self._connection.execute(
            f"DELETE FROM {table} WHERE ({keys}) IN (SELECT ({keys}) FROM {last} WHERE {GONE})"
        )
        self._connection.execute(merge_text(table, columns, key, merged))
        self._connection.unregister("millstream_rows")

    def close(self) -> None:
        self._connection.close()  # rolls back
