"""Reads tables of a lakehouse: a version as it is, or each further one as it comes.

A data file is a split, and so is, without records, each version that was looked at: which versions
are known tells where to continue after a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.connectors.formats.file_format import rows_of_columns
from millstream.connectors.formats.parquet_format import batches_in_range
from millstream.contracts.source import Boundedness, RangeCursor, Source, Split
from millstream.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.connectors.lakehouse.table import LakehouseTable, TableReader
    from millstream.contracts.source import KnownSplits, SourceBatch, SplitCursor
    from millstream.types.time import Duration
    from millstream.types.types import TypeInformation


class LakehouseSource(Source):
    """Rows of a table.

    Args:
        table: the table.
        schema: the columns to read; None: all of the version.
        version: which one to read, or to begin with; None: the newest when the job starts.
        discovery_interval: look for new versions this often, and never end; None: read one.
    """

    offsets_are_records = True

    def __init__(
        self,
        table: LakehouseTable,
        *,
        schema: pa.Schema | None = None,
        version: int | None = None,
        discovery_interval: Duration | None = None,
    ) -> None:
        self.table = table
        self.version = version
        self.interval = None if discovery_interval is None else discovery_interval.to_milliseconds()
        self._schema = schema

    def __str__(self) -> str:
        return self.table.target

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read."""
        if self._schema is None:
            with self._explained():
                self._schema = plain(self.table.reader().schema(self.version))
        return self._schema

    @property
    def boundedness(self) -> Boundedness:
        if self.interval is None:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return rows_of_columns(self.schema)

    @property
    def discovery_interval(self) -> float:
        return self.interval or 0

    def validate(self) -> None:
        """Check that the table is there and has the columns; raises SourceError."""
        with self._explained():
            if not self.table.exists():
                message = f"there is no {self.table.target}; correct the name or path"
                raise SourceError(message)
            known = self.table.reader().schema(self.version)
        missing = [name for name in self.schema.names if name not in known.names]
        if missing:
            message = f"{self.table.target} has no column {missing[0]!r}; it has {known.names}"
            raise SourceError(message)

    def discover(self, known: KnownSplits) -> list[Split]:
        """The files of the version, then those that each further one has added."""
        if known and self.interval is None:
            return []
        with self._explained():
            reader = self.table.reader()
            newest = reader.newest()
            if newest is None:
                return []
            if not known:
                first = newest if self.version is None else self.version
                return [*_splits(reader.files(first)), _marker(first)]
            return [
                split
                for version in self._unknown(reader, newest, known)
                for split in (*_splits(reader.added(version)), _marker(version))
            ]

    def _unknown(self, reader: TableReader, newest: int, known: KnownSplits) -> list[int]:
        """The versions after the last that is known, the oldest first."""
        found: list[int] = []
        at: int | None = newest
        while at is not None and _marker(at).id not in known:
            found.append(at)
            at = reader.before(at)
        if at is None:
            message = (
                f"{self.table.target}: the versions after the last one that was read are not all"
                " there any more (expired, or the table was created again). Start from scratch,"
                " and keep versions for longer than the job may be down"
            )
            raise SourceError(message)
        return found[::-1]

    def end_offset(self, split: Split) -> int:
        return int(str(split.properties["end"]))

    def is_final(self, split: Split) -> bool:
        del split
        return True

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        if start >= stop:
            return
        with self._explained():
            rows = self.table.reader().rows(split.properties, self.schema)
            yield from batches_in_range(rows, 0, start, stop)

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        """Read a file to its end in one go."""
        return RangeCursor(self, split, position, whole=True)

    def _explained(self) -> Any:
        return self.table.explained("reading", SourceError)


def _splits(files: Sequence[dict[str, object]]) -> list[Split]:
    return [
        Split(str(file["path"]), file) for file in sorted(files, key=lambda each: str(each["path"]))
    ]


def _marker(version: int) -> Split:
    return Split(f"version {version}", {"end": 0})


def plain(schema: pa.Schema) -> pa.Schema:
    """A schema without metadata and 64-bit offsets, as records have columns."""
    return pa.schema([pa.field(each.name, _plain(each.type), each.nullable) for each in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type), kind.value_field.nullable))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _plain(each.type), each.nullable) for each in kind])
    return kind


def as_columns(batch: pa.RecordBatch, schema: pa.Schema, target: str) -> pa.RecordBatch:
    """A batch with exactly these columns; those that it lacks are NULL.

    Raises:
        SourceError: a column cannot be read as its type.
    """
    columns = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        try:
            columns.append(batch.column(at).cast(field.type))
        except (pa.ArrowException, ValueError) as error:
            message = f"{target}: column {field.name!r} cannot be read as {field.type}: {error}"
            raise SourceError(message) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)
