"""Lookup of rows of a DuckDB database: one query per batch of keys, which are a table of it.

The file is open only during the query, read-only: an open database locks out its writers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.connectors.commit_protocols.commit_table import identifier, table_parts
from millstream.contracts.lookup import FoundRows, LookupReader, LookupSource, some_fields
from millstream.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection


_NUMBER = "millstream_key"


@dataclass(frozen=True)
class DuckDbLookup(LookupSource):
    """A table or view of a database file.

    Args:
        path: of the file.
        table: its name.
        schema: the columns to read.
        keys: names of those that rows are found by.
    """

    path: str
    table: str
    schema: pa.Schema
    keys: tuple[str, ...]

    def open(self) -> LookupReader:
        return _DuckReader(self)

    def with_columns(self, names: Collection[str]) -> LookupSource:
        return replace(self, schema=some_fields(self.schema, names))


class _DuckReader(LookupReader):
    def __init__(self, source: DuckDbLookup) -> None:
        self._source = source
        columns = ", ".join(f"t.{identifier(name)}" for name in source.schema.names)
        same = " AND ".join(f"t.{identifier(name)} = k.{identifier(name)}" for name in source.keys)
        table = ".".join(map(identifier, table_parts(source.table)))
        self._query = (
            f"SELECT k.{_NUMBER}, {columns} FROM millstream_keys AS k JOIN {table} AS t ON {same}"
        )

    def lookup(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        import duckdb

        del now
        numbers = pa.array(np.arange(keys.num_rows))
        asked = pa.Table.from_batches([keys]).append_column(_NUMBER, numbers)
        try:
            with duckdb.connect(self._source.path, read_only=True) as connection:
                connection.register("millstream_keys", asked)
                found = connection.sql(self._query).to_arrow_table()
        except duckdb.Error as error:
            message = f"table {self._source.table} of {self._source.path}: {error}"
            raise SourceError(message) from error
        numbered = found.column(0).to_numpy().astype(np.int64)
        return FoundRows(numbered, found.select(range(1, found.num_columns)))

    def close(self) -> None:
        """Nothing is open."""
