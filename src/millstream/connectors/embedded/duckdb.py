"""DuckDB: its sink, source and lookup."""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.connectors.commit_protocols.commit_table import (
    identifier,
    quoted_parts,
    table_parts,
)
from millstream.connectors.embedded.database import (
    GONE,
    EmbeddedDatabase,
    EmbeddedLookup,
    EmbeddedSession,
    EmbeddedSink,
    EmbeddedSource,
    merge_text,
)
from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.contracts.lookup import FoundRows, LookupReader
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


#: Seconds between two attempts to open a file that another process has open.
_POLL: Final = 0.02
#: The column that says in which order changes came.
_NUMBER: Final = "millstream_number"


class _DuckDatabase(EmbeddedDatabase):
    def __init__(self, path: Path, timeout: float, *, fsync: bool) -> None:
        try:
            importlib.import_module("duckdb")
        except ImportError as error:
            message = "DuckDbSink needs the package duckdb: pip install 'millstream[duckdb]'"
            raise SinkError(message) from error
        super().__init__(path, timeout, fsync=fsync)

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


class DuckDbSink(EmbeddedSink):
    """Inserts into a table of a DuckDB database, or merges changes by key, exactly once.

    ::

        DuckDbSink("results.duckdb", "counts")

    Arguments as of ``EmbeddedSink``.

    Raises:
        SinkError: the package duckdb is not installed.
    """

    kind_of_database = _DuckDatabase


class DuckDbSource(EmbeddedSource):
    """Rows of a DuckDB database; arguments as of ``EmbeddedSource``."""

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        import duckdb

        try:
            with duckdb.connect(self.path, read_only=True) as connection:
                found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
        except duckdb.Error as error:
            raise self.failed(error) from error
        return found

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        import duckdb

        # The file is let go of at once: while it is open nobody can write to it.
        try:
            with duckdb.connect(self.path, read_only=True) as connection:
                found = connection.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise self.failed(error) from error
        try:
            table = found.cast(self.schema)
        except (pa.ArrowException, ValueError) as error:
            raise self.failed(error) from error
        yield from table.combine_chunks().to_batches(max_chunksize=BATCH_SIZE)


_KEY: Final = "millstream_key"


@dataclass(frozen=True)
class DuckDbLookup(EmbeddedLookup):
    """A table or view of a DuckDB database, joined with the keys of a batch by one query."""

    def open(self) -> LookupReader:
        return _DuckReader(self)


class _DuckReader(LookupReader):
    def __init__(self, source: DuckDbLookup) -> None:
        self._source = source
        columns = ", ".join(f"t.{identifier(name)}" for name in source.schema.names)
        same = " AND ".join(f"t.{identifier(name)} = k.{identifier(name)}" for name in source.keys)
        table = quoted_parts(table_parts(source.table))
        self._query = (
            f"SELECT k.{_KEY}, {columns} FROM millstream_keys AS k JOIN {table} AS t ON {same}"
        )

    def lookup(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        import duckdb

        del now
        numbers = pa.array(np.arange(keys.num_rows))
        asked = pa.Table.from_batches([keys]).append_column(_KEY, numbers)
        try:
            with duckdb.connect(self._source.path, read_only=True) as connection:
                connection.register("millstream_keys", asked)
                found = connection.sql(self._query).to_arrow_table()
        except duckdb.Error as error:
            raise self._source.failed(error) from error
        numbered = found.column(0).to_numpy().astype(np.int64)
        return FoundRows(numbered, found.select(range(1, found.num_columns)))

    def close(self) -> None:
        """Nothing is open."""
