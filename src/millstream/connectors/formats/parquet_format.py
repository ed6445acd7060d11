"""Parquet files as rows; offsets are row numbers.

Only the row groups that overlap ``[start, stop)`` are read, and cuts are moved to row group ends
where one is near, since rows before the start of a read within its row group are decoded in vain.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.connectors.formats.file_format import (
    BATCH_SIZE,
    BulkFormat,
    BulkWriter,
    BulkWriterFactory,
    SchemaFormat,
    columns_of,
    is_local,
    open_file,
    row_type_of,
    split_path,
    type_of_schema,
)
from millstream.connectors.formats.row_format import table_of_values
from millstream.contracts.source import SourceBatch
from millstream.errors import PermanentSinkError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.connectors.formats.file_format import SchemaLike
    from millstream.contracts.batch import Batch
    from millstream.contracts.source import Split
    from millstream.types.types import TypeInformation


#: Bytes of each column that are read at a time from a local file: the first record of a row group
#: does not wait for all of it.  Other file systems are asked for whole columns side by side.
BUFFER_SIZE: Final = 4 << 20


class ParquetFormat(SchemaFormat, BulkFormat):
    """Rows of Parquet files.

    Args:
        schema: the columns to read, by name; None takes all of the first file.
        batch_size: records per batch.
    """

    tells_positions = True

    def __init__(self, schema: SchemaLike | None = None, batch_size: int = BATCH_SIZE) -> None:
        self.batch_size = batch_size
        self.type_info = None if schema is None else type_of_schema(schema)

    def prepare(self, path: str) -> None:
        """Take the schema from the file."""
        if self.type_info is None:
            with open_file(path, self.stores) as file:
                self.type_info = row_type_of(_plain(_parquet(path, file).schema_arrow))

    def properties(self, path: str, size: int) -> dict[str, object]:
        """The ends of the row groups, from the file's footer."""
        with open_file(path, self.stores) as file:
            metadata = _parquet(path, file).metadata
            ends: list[int] = []
            for group in range(metadata.num_row_groups):
                rows = metadata.row_group(group).num_rows
                ends.append((ends[-1] if ends else 0) + rows)
        return {"path": path, "size": size, "end": ends[-1] if ends else 0, "row_groups": ends}

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        """The end of a row group within half and twice the limit, else exactly the limit."""
        limit = max(limit, 1)
        target = start + limit
        near = [cut for cut in _group_ends(split) if start + limit // 2 < cut <= target + limit]
        if near:
            target = min(near, key=lambda cut: abs(cut - target))
        return min(max(target, start + 1), end)

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        path, ends = split_path(split), _group_ends(split)
        schema = columns_of(self.produced_type)
        starts = [0, *ends[:-1]]
        groups = [i for i, end in enumerate(ends) if starts[i] < stop and end > start]
        if not groups or start >= stop:
            return
        with open_file(path, self.stores) as file:
            parquet = _parquet(path, file)
            if parquet.metadata.num_rows != split.properties["end"]:
                message = f"{path!r} changed after it was discovered; a file must stay as it is"
                raise SourceError(message)
            missing = [n for n in schema.names if n not in parquet.schema_arrow.names]
            if missing:
                message = f"{path!r} lacks the columns {', '.join(missing)}"
                raise SourceError(message)
            batches = parquet.iter_batches(
                self.batch_size, row_groups=groups, columns=schema.names, use_threads=False
            )
            fitting = (_fit(path, batch, schema) for batch in batches)
            yield from batches_in_range(fitting, starts[groups[0]], start, stop)


def batches_in_range(
    batches: Iterable[pa.RecordBatch], position: int, start: int, stop: int
) -> Iterator[SourceBatch]:
    """The rows of ``[start, stop)`` among batches that follow each other.

    Args:
        batches: of one split, in order.
        position: of the first row of the first batch.
        start: of the range.
        stop: of the range; batches behind it are not asked for.
    """
    for batch in batches:
        first, last = max(start - position, 0), min(stop - position, batch.num_rows)
        position += batch.num_rows
        if first >= last:
            # Decoded in vain, as cuts within row groups are; nobody waits for all of it.
            yield SourceBatch(values=[], position=start)
        else:
            part = batch.slice(first, last - first)
            behind = min(position, stop)
            yield SourceBatch(
                arrow=part,
                position=behind,
                positions=range(behind - part.num_rows + 1, behind + 1),
            )
        if position >= stop:
            return


def _group_ends(split: Split) -> list[int]:
    ends = split.properties["row_groups"]
    return [int(end) for end in ends] if isinstance(ends, list | tuple) else []


def _parquet(path: str, file: Any) -> pq.ParquetFile:
    try:
        if is_local(path):
            return pq.ParquetFile(file, buffer_size=BUFFER_SIZE, pre_buffer=False)
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        message = f"{path!r} is not a Parquet file, or is incomplete: {error}"
        raise SourceError(message) from error


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema without dictionary encoding and metadata."""
    fields = []
    for column in schema:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        fields.append(pa.field(column.name, kind, column.nullable))
    return pa.schema(fields)


def _fit(path: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns and types of ``schema``."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for column in schema:
        array = batch.column(batch.schema.get_field_index(column.name))
        try:
            # Nanoseconds are cut to what Python's datetime has; nothing else may lose anything.
            safe = not pa.types.is_timestamp(array.type)
            columns.append(
                array if array.type == column.type else array.cast(column.type, safe=safe)
            )
        except (pa.ArrowException, ValueError) as error:
            message = f"{path!r}: column {column.name!r} cannot be read as {column.type}: {error}"
            raise SourceError(message) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


#: A Parquet row group is written when it has so many rows or bytes: until then they are in memory.
ROW_GROUP_ROWS: Final = 131_072
ROW_GROUP_BYTES: Final = 16 << 20


class ParquetWriterFactory(BulkWriterFactory):
    """Parquet files.

    Records of an untyped stream are kept in memory until the file is finished, since the columns
    and their types are those of all values together.

    Args:
        compression: "snappy", "zstd", "gzip", "lz4" or "none".
    """

    extension = ".parquet"

    def __init__(self, compression: str = "snappy") -> None:
        self.compression = compression

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        schema = type_info.arrow_schema
        if schema is None:
            return _ParquetRowWriter(stream, self.compression)
        return _ParquetColumnWriter(stream, self.compression, schema)


class RowGroupWriter:
    """Writes a Parquet file with row groups of many rows, but not too many bytes.

    Invariant: fewer than ``ROW_GROUP_ROWS`` rows wait, and fewer than ``ROW_GROUP_BYTES``.

    Args:
        stream: of the file.
        compression: as for ``ParquetWriterFactory``.
        schema: of the file.
    """

    def __init__(self, stream: IO[bytes], compression: str, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(stream, schema, compression=compression)
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        #: Of the rows that wait for their row group.
        self.waiting_bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows, whose columns are those of the file."""
        self._waiting.append(rows)
        self._rows += rows.num_rows
        self.waiting_bytes += rows.nbytes
        if self._rows >= ROW_GROUP_ROWS or self.waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._rows, self.waiting_bytes = [], 0, 0

    def finish(self) -> None:
        """Write what waits, and the footer."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Close without the rows that wait; else the footer is written on collection."""
        self._writer.close()


class _ParquetColumnWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], compression: str, schema: pa.Schema) -> None:
        self._writer = RowGroupWriter(stream, compression, schema)
        self._schema = schema

    def write(self, batch: Batch) -> None:
        arrow = batch.arrow
        self._writer.write(arrow if arrow.schema.equals(self._schema) else arrow.cast(self._schema))

    def finish(self) -> None:
        self._writer.finish()

    def abandon(self) -> None:
        self._writer.abandon()


class _ParquetRowWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], compression: str) -> None:
        self._stream = stream
        self._compression = compression
        self._values: list[object] = []

    def write(self, batch: Batch) -> None:
        self._values.extend(batch.values)

    def finish(self) -> None:
        table = table_of_values(self._values)
        pq.write_table(table, self._stream, compression=self._compression)


class OrcWriterFactory(BulkWriterFactory):
    """ORC files.

    Records of an untyped stream are kept in memory until the file is finished, as for Parquet.

    Args:
        compression: "uncompressed", "zlib", "snappy", "lz4" or "zstd".
    """

    extension = ".orc"

    def __init__(self, compression: str = "zlib") -> None:
        self.compression = compression

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        return _OrcWriter(stream, self.compression, type_info.arrow_schema)


class _OrcWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], compression: str, schema: pa.Schema | None) -> None:
        from pyarrow import orc  # loaded where it is used: 10 ms

        self._writer = orc.ORCWriter(stream, compression=compression)
        self._schema = schema
        self._values: list[object] = []
        self._wrote = False

    def write(self, batch: Batch) -> None:
        if self._schema is None:
            self._values.extend(batch.values)
            return
        self._append(pa.Table.from_batches([batch.arrow.cast(self._schema)]))

    def _append(self, table: pa.Table) -> None:
        try:
            self._writer.write(table)
        except pa.ArrowException as error:
            message = f"ORC cannot hold columns {table.schema}: {error}"
            raise PermanentSinkError(message) from error
        self._wrote = True

    def finish(self) -> None:
        if self._values:
            self._append(table_of_values(self._values))
        elif not self._wrote and self._schema is not None:
            self._append(self._schema.empty_table())
        self._writer.close()

    def abandon(self) -> None:
        self._writer.close()
