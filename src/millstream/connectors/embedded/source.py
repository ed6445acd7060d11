"""Rows of a table of an SQLite or DuckDB file: bounded, in the order of their row ids.

What it is: the rows that are there when the job starts.  The offset is the row id, so that a task
reads ``rowid >= start AND rowid < stop``: at every reading the same, as long as nobody changes the
table.
What it is not: a snapshot, nor for what has no row ids (views, SQLite's WITHOUT ROWID).
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.connectors.commit_protocols.commit_table import (
    identifier,
    quoted_parts,
    table_parts,
)
from millstream.connectors.embedded.sqlite import column_of, quoted_table, read_only
from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split
from millstream.errors import SourceError
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.source import KnownSplits
    from millstream.types.types import TypeInformation


class _EmbeddedSource(Source):
    """What both share.

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


class SqliteSource(_EmbeddedSource):
    """Rows of an SQLite database; arguments as above."""

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


class DuckDbSource(_EmbeddedSource):
    """Rows of a DuckDB database; arguments as above."""

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
