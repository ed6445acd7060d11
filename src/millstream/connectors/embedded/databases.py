"""SQLite and DuckDB: their sinks, and bounded sources in the order of row ids.

A source reads the rows that exist when the job starts.  The offset is the row id, so that a task
reads ``rowid >= start AND rowid < stop``: at every reading the same, as long as nobody changes the
table.  Tables without row ids (views, SQLite's WITHOUT ROWID) cannot be read.
"""

from __future__ import annotations

import contextlib
import importlib
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.commit_protocols.commit_table import (
    identifier,
    quoted_parts,
    table_parts,
)
from millstream.connectors.embedded.sink import (
    GONE,
    EmbeddedDatabase,
    EmbeddedSession,
    EmbeddedSink,
    database_path,
    delete_text,
    last_rows,
    merge_text,
)
from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.connectors.formats.json_format import json_column
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split
from millstream.errors import SinkError, SourceError
from millstream.types.type_information import values_of
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.contracts.source import KnownSplits
    from millstream.types.types import TypeInformation


class _EmbeddedSource(Source):
    """Base of both sources.

    Args:
        path: of the file.
        table: its name.
        schema: the columns to read.
    """

    def __init__(self, path: str, table: str, schema: pa.Schema) -> None:
        self.path = str(Path(path).absolute())
        self.table = table
        self.schema = schema

    def __str__(self) -> str:
        return f"table {self.table!r} of {self.path}"

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        kinds = [ArrowTypeInfo(field.type) for field in self.schema]
        return RowTypeInfo(kinds, list(self.schema.names))

    @property
    def quoted(self) -> str:
        """The table in SQL."""
        return quoted_parts(table_parts(self.table))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query; raises SourceError."""
        raise NotImplementedError

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """The columns of a query; raises SourceError."""
        raise NotImplementedError

    def failed(self, error: Exception) -> SourceError:
        """An error of the database."""
        return SourceError(f"{self}: {error}. Check the file, the table, and its columns")

    def validate(self) -> None:
        """Check file, table and columns; raises SourceError."""
        if not Path(self.path).is_file():
            message = f"{self}: there is no such file; correct the path"
            raise SourceError(message)
        self.rows(f"{self._selected()} WHERE 1 = 0")

    def _selected(self) -> str:
        columns = ", ".join(map(identifier, self.schema.names))
        return f"SELECT {columns} FROM {self.quoted}"

    def discover(self, known: KnownSplits) -> list[Split]:
        """All rows, whose ids are looked up once in the life of the job."""
        if known:
            return []
        ((first, last),) = self.rows(f"SELECT min(rowid), max(rowid) FROM {self.quoted}")
        return [] if first is None else [Split("rows", {"first": first, "end": last + 1})]

    def start_offset(self, split: Split) -> int:
        """The first row id."""
        return int(str(split.properties["first"]))

    def end_offset(self, split: Split) -> int:
        return int(str(split.properties["end"]))

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        """The rows with these ids, in their order."""
        stop = min(stop, self.end_offset(split))
        if start >= stop:
            return
        wanted = f"rowid >= {start} AND rowid <= {stop - 1}"
        for batch in self.batches(f"{self._selected()} WHERE {wanted} ORDER BY rowid"):
            yield SourceBatch(arrow=batch)


# -- SQLite ----------------------------------------------------------------------------------------


#: Primary result codes of what may pass by itself.
_TRANSIENT: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_SCHEMA,
    }
)


class SqliteSink(EmbeddedSink):
    """Inserts into a table of an SQLite database, or merges changes by key, exactly once.

    ::

        SqliteSink("results.db", "counts")

    Args:
        path: the database file, on a local file system that driver and workers share.  It should
            be in WAL mode, so that readers do not wait.
        table: an existing table.
        columns: its columns in the order of the records' fields; None: found by name.
        key: columns with a primary key or unique index: records are changes, which are merged and
            deleted by them; None: records are inserted.
        type_info: the type of the records, so that columns are compared at submit already.
        check_rows: try the rows before the epoch is published (see ``EmbeddedSink``).
        timeout: seconds to wait for other writers.
        fsync: False trades survival of a machine crash for speed.
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
        super().__init__(
            _SqliteDatabase(database_path(path), timeout, fsync=fsync),
            table,
            columns=columns,
            key=key or (),
            type_info=type_info,
            check_rows=check_rows,
            fsync=fsync,
        )


class _SqliteDatabase(EmbeddedDatabase):
    def __init__(self, path: Path, timeout: float, *, fsync: bool) -> None:
        super().__init__(path, timeout)
        self.fsync = fsync

    def parts(self, table: str) -> list[str]:
        # A file has one schema of its own: other dots are part of the name.
        found = table_parts(table)
        return found if found[0] == "main" or table.startswith('"') else [table]

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error, OverflowError)  # the latter: an integer of more than 64 bits

    def refuses(self, error: Exception) -> bool:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:  # a value that has no type in SQLite, say
            return not isinstance(error, sqlite3.OperationalError)
        return code & 0xFF not in _TRANSIENT

    @property
    def locked_files(self) -> list[Path]:
        # In WAL mode the locks are on the file of the shared index.
        return [self.path, self.path.with_name(f"{self.path.name}-shm")]

    def open(self) -> EmbeddedSession:
        # Not created where it is missing: an empty database has no table either.
        uri = f"{self.path.as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=self.timeout, isolation_level=None)
        try:
            if self.fsync:  # the default is the choice of whoever compiled SQLite
                connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            connection.close()
            raise
        return _SqliteSession(connection)


class _SqliteSession(EmbeddedSession):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        return self._connection.execute(statement, parameters)

    def columns(self, table: Sequence[str]) -> list[str]:
        *schema, name = table
        query = "SELECT name FROM pragma_table_info(?, ?)"
        found = self.execute(query, (name, schema[0] if schema else None))
        return [name for (name,) in found]

    def insert(self, table: str, columns: Sequence[str], rows: pa.Table) -> None:
        names, marks = ", ".join(map(identifier, columns)), ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        for batch in rows.to_batches():
            values = zip(*map(sqlite_values, batch.columns), strict=True)
            self._connection.executemany(statement, values)

    def merge(self, table: str, columns: Sequence[str], key: Sequence[str], rows: pa.Table) -> None:
        places = [columns.index(name) for name in key]
        values = (
            row
            for batch in rows.to_batches()
            for row in zip(*map(sqlite_values, batch.columns), strict=True)
        )
        gone, merged = last_rows(values, places)
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(delete_text(table, key), gone)
        merge = merge_text(table, columns, key, f"VALUES ({marks})")
        self._connection.executemany(merge, merged)

    def close(self) -> None:
        self._connection.close()  # rolls back


def sqlite_values(column: pa.Array) -> list[Any]:
    """The values of a column as SQLite stores them."""
    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        return sqlite_values(column.dictionary_decode())
    if types.is_nested(kind):
        return list(json_column(column).to_pylist())
    if types.is_boolean(kind):
        return values_of(column.cast(pa.int8()))
    if types.is_temporal(kind) or types.is_decimal(kind):
        return list(column.cast(pa.string()).to_pylist())
    if types.is_integer(kind) or types.is_floating(kind):
        return values_of(column)
    return list(column.to_pylist())


#: By the unit of a column: digits of a second, and what follows them.
_DIGITS: Final = {
    "s": r"()\.\d+",
    "ms": r"(\.\d{3})\d+",
    "us": r"(\.\d{6})\d+",
    "ns": r"(\.\d{9})\d+",
}


def quoted_table(table: str) -> str:
    """The name of a table, quoted; a file has one schema: other dots are part of the name."""
    parts = table_parts(table)
    is_plain = parts[0] != "main" and not table.startswith('"')
    return quoted_parts([table] if is_plain else parts)


def read_only(path: str) -> str:
    """The address of a database file that is not made where it is missing."""
    return f"{Path(path).absolute().as_uri()}?mode=ro"


def column_of(values: list[Any], field: pa.Field) -> pa.Array:
    """Values of SQLite, which has no booleans, decimals and times, as the sink writes them.

    Raises:
        ValueError: one of them does not fit the type; it names the column.
    """
    kind = field.type
    try:
        if pa.types.is_boolean(kind):
            return pa.array(values, pa.int64()).cast(kind)
        if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
            texts = pa.array([None if each is None else str(each) for each in values], pa.string())
            if pa.types.is_timestamp(kind):
                # Digits that the column does not have are cut, as everywhere.
                texts = pc.replace_substring_regex(texts, _DIGITS[kind.unit], r"\1")
            return texts.cast(kind)
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError) as error:
        message = f"column {field.name!r} does not fit {kind}: {error}"
        raise ValueError(message) from error


class SqliteSource(_EmbeddedSource):
    """Rows of an SQLite database; arguments as of ``_EmbeddedSource``."""

    @property
    def quoted(self) -> str:
        return quoted_table(self.table)

    @contextlib.contextmanager
    def _cursor(self, query: str) -> Iterator[sqlite3.Cursor]:
        uri = read_only(self.path)
        try:
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=60.0)) as connection:
                yield connection.execute(query)
        except sqlite3.Error as error:
            raise self.failed(error) from error

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._cursor(query) as cursor:
            return cursor.fetchall()

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        with self._cursor(query) as cursor:
            while rows := cursor.fetchmany(BATCH_SIZE):
                columns = zip(*rows, strict=True)
                pairs = zip(columns, self.schema, strict=True)
                arrays = [self._column(list(values), field) for values, field in pairs]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, values: list[Any], field: pa.Field) -> pa.Array:
        try:
            return column_of(values, field)
        except ValueError as error:
            raise self.failed(error) from error


# -- DuckDB ----------------------------------------------------------------------------------------


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


class DuckDbSource(_EmbeddedSource):
    """Rows of a DuckDB database; arguments as of ``_EmbeddedSource``."""

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
