"""SQLite: its sink, source and lookup."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.commit_protocols.commit_table import (
    identifier,
    quoted_parts,
    table_parts,
)
from millstream.connectors.embedded.database import (
    EmbeddedDatabase,
    EmbeddedLookup,
    EmbeddedSession,
    EmbeddedSink,
    EmbeddedSource,
    delete_text,
    last_rows,
    merge_text,
)
from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.connectors.formats.json_format import json_column
from millstream.contracts.lookup import FoundRows, LookupReader
from millstream.types.columns import values_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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


class _SqliteDatabase(EmbeddedDatabase):
    def parts(self, table: str) -> list[str]:
        return _parts(table)

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


class SqliteSink(EmbeddedSink):
    """Inserts into a table of an SQLite database, or merges changes by key, exactly once.

    ::

        SqliteSink("results.db", "counts")

    Arguments as of ``EmbeddedSink``.  The database should be in WAL mode, so that readers do not
    wait.
    """

    kind_of_database = _SqliteDatabase


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


def _parts(table: str) -> list[str]:
    """The parts of a table's name: a file has one schema, so other dots are part of the name."""
    found = table_parts(table)
    return found if found[0] == "main" or table.startswith('"') else [table]


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


def _columns(rows: list[tuple[Any, ...]], read: EmbeddedSource | EmbeddedLookup) -> list[pa.Array]:
    """Rows as columns; raises SourceError for a value that does not fit."""
    columns = zip(*rows, strict=True) if rows else [()] * len(read.schema)
    try:
        return [column_of(list(v), field) for v, field in zip(columns, read.schema, strict=True)]
    except ValueError as error:
        raise read.failed(error) from error


class SqliteSource(EmbeddedSource):
    """Rows of an SQLite database; arguments as of ``EmbeddedSource``."""

    @property
    def quoted(self) -> str:
        return quoted_parts(_parts(self.table))

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


@dataclass(frozen=True)
class SqliteLookup(EmbeddedLookup):
    """A table or view of an SQLite database.

    A prepared statement is run per key, in one transaction, so that all keys of a batch are
    answered as of one moment.
    """

    def open(self) -> LookupReader:
        return _SqliteReader(self)


class _SqliteReader(LookupReader):
    def __init__(self, source: SqliteLookup) -> None:
        self._source = source
        columns = ", ".join(map(identifier, source.schema.names))
        wanted = " AND ".join(f"{identifier(name)} = ?" for name in source.keys)
        self._query = f"SELECT {columns} FROM {quoted_parts(_parts(source.table))} WHERE {wanted}"
        try:
            uri = read_only(source.path)
            self._connection = sqlite3.connect(uri, uri=True, timeout=60.0, isolation_level=None)
        except sqlite3.Error as error:
            raise self._source.failed(error) from error

    def lookup(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        del now
        columns = [sqlite_values(keys.column(name)) for name in self._source.keys]
        found: list[tuple[Any, ...]] = []
        numbers: list[int] = []
        try:
            self._connection.execute("BEGIN")
            try:
                for number, key in enumerate(zip(*columns, strict=True)):
                    rows = self._connection.execute(self._query, key).fetchall()
                    found += rows
                    numbers += [number] * len(rows)
            finally:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._source.failed(error) from error
        table = pa.Table.from_arrays(_columns(found, self._source), schema=self._source.schema)
        return FoundRows(np.array(numbers, dtype=np.int64), table)

    def close(self) -> None:
        self._connection.close()
