"""Lookup of rows of an SQLite database: a prepared statement, run per key in one transaction.

So all keys of a batch are answered as of one moment.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.connectors.commit_protocols.commit_table import identifier
from millstream.connectors.embedded.databases import (
    column_of,
    quoted_table,
    read_only,
    sqlite_values,
)
from millstream.contracts.lookup import FoundRows, LookupReader, LookupSource, some_fields
from millstream.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True)
class SqliteLookup(LookupSource):
    """A table or view of a database file.

    Args:
        path: of the file.
        table: its name.
        schema: the columns to read.
        keys: names of those that rows are found by.
        timeout: how long to wait for a lock, in seconds.
    """

    path: str
    table: str
    schema: pa.Schema
    keys: tuple[str, ...]
    timeout: float = 60.0

    def open(self) -> LookupReader:
        return _SqliteReader(self)

    def with_columns(self, names: Collection[str]) -> LookupSource:
        return replace(self, schema=some_fields(self.schema, names))


class _SqliteReader(LookupReader):
    def __init__(self, source: SqliteLookup) -> None:
        self._source = source
        columns = ", ".join(map(identifier, source.schema.names))
        wanted = " AND ".join(f"{identifier(name)} = ?" for name in source.keys)
        self._query = f"SELECT {columns} FROM {quoted_table(source.table)} WHERE {wanted}"
        try:
            uri = read_only(source.path)
            self._connection = sqlite3.connect(
                uri, uri=True, timeout=source.timeout, isolation_level=None
            )
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> SourceError:
        return SourceError(f"table {self._source.table} of {self._source.path}: {error}")

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
            raise self._failed(error) from error
        by_column = zip(*found, strict=True) if found else [()] * len(self._source.schema)
        pairs = zip(by_column, self._source.schema, strict=True)
        arrays = [self._column(list(values), field) for values, field in pairs]
        return FoundRows(
            np.array(numbers, dtype=np.int64),
            pa.Table.from_arrays(arrays, schema=self._source.schema),
        )

    def _column(self, values: list[Any], field: pa.Field) -> pa.Array:
        try:
            return column_of(values, field)
        except ValueError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        self._connection.close()
