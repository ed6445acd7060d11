"""Avro's container files, and Parquet files by an Avro schema: records are dicts, as in PyFlink.

What it is: a reader that cuts at the file's own blocks, and writers.
What it is not: messages of one record each (``connectors/formats/message_formats.py``).

Read next: ``connectors/formats/file_format.py``, ``connectors/files/file_writers.py``.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from millstream.connectors.files.file_writers import (
    BulkWriter,
    BulkWriterFactory,
    ParquetWriterFactory,
    named_values,
)
from millstream.connectors.files.source import FileSource
from millstream.connectors.formats.avro_types import AvroSchema, GenericRecordAvroTypeInfo
from millstream.connectors.formats.file_format import (
    BATCH_SIZE,
    BulkFormat,
    StreamFormat,
    open_file,
    split_path,
)
from millstream.connectors.formats.parquet_format import ParquetFormat
from millstream.connectors.formats.schema import row_type_of
from millstream.contracts.batch import Batch
from millstream.contracts.source import SourceBatch
from millstream.errors import PermanentSinkError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.source import Split
    from millstream.types.types import TypeInformation

__all__ = [
    "AvroBlocks",
    "AvroFormat",
    "AvroInputFormat",
    "AvroParquetFormat",
    "AvroParquetWriterFactory",
    "AvroWriterFactory",
]


class AvroBlocks(BulkFormat):
    """Avro's container files, cut at the file's own blocks; offsets are numbers of records."""

    tells_positions = True
    #: What records are read as; None: as the file's own schema says.
    read_as: Any = None

    def properties(self, path: str, size: int) -> dict[str, object]:
        """The ends of the file's blocks, in records, and where they begin, in bytes."""
        ends: list[int] = []
        places: list[int] = []
        with open_file(path) as file:
            for block in self._blocks(path, file):
                ends.append((ends[-1] if ends else 0) + block.num_records)
                places.append(block.offset)
        end = ends[-1] if ends else 0
        return {"path": path, "size": size, "end": end, "blocks": ends, "places": places}

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        """The end of a block near the limit, or of the first one behind ``start``."""
        ends = _numbers(split, "blocks")
        near = bisect_right(ends, start + limit) - 1
        first = bisect_right(ends, start)
        return min(ends[max(near, first)], end) if first < len(ends) else end

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        if start >= stop:
            return
        path, ends = split_path(split), _numbers(split, "blocks")
        first = bisect_right(ends, start)
        position = ends[first - 1] if first else 0
        with open_file(path) as file:
            blocks = self._blocks(path, file)
            file.seek(_numbers(split, "places")[first])
            records = (record for block in blocks for record in block)
            try:
                wanted = islice(records, start - position, stop - position)
                while values := list(islice(wanted, BATCH_SIZE)):
                    behind = range(start + 1, start + len(values) + 1)
                    start += len(values)
                    yield SourceBatch(values=values, position=start, positions=behind)
            except (EOFError, ValueError, IndexError, KeyError, TypeError) as error:
                message = f"{path!r} cannot be read as the Avro schema says: {error!r}"
                raise SourceError(message) from error

    def _blocks(self, path: str, file: Any) -> Any:
        import fastavro

        try:
            blocks = fastavro.block_reader(file, self.read_as)
        except (EOFError, ValueError, IndexError) as error:
            message = f"{path!r} is not an Avro file, or is incomplete: {error}"
            raise SourceError(message) from error
        self.check_written(path, blocks.writer_schema)
        return blocks

    def check_written(self, path: str, schema: Any) -> None:
        """Look at a file's own schema; raises SourceError if its records are not those wanted."""


class AvroFormat(AvroBlocks):
    """Records of Avro's container files; offsets are numbers of records.

    Args:
        schema: what the records are read as; the file's own schema says how they were written.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema
        self.read_as = schema.parsed

    @property
    def produced_type(self) -> TypeInformation:
        return GenericRecordAvroTypeInfo(self.schema)


def _numbers(split: Split, name: str) -> list[int]:
    found = split.properties[name]
    return [int(number) for number in found] if isinstance(found, list | tuple) else []


class AvroInputFormat:
    """PyFlink's way to read Avro files: ``env.create_input(AvroInputFormat(path, schema))``.

    Args:
        path: a file or directory.
        schema: of its records.
    """

    def __init__(self, path: str, schema: AvroSchema) -> None:
        self._path = str(path)
        self._schema = schema

    def get_produced_type(self) -> GenericRecordAvroTypeInfo:
        """Dicts of the schema."""
        return GenericRecordAvroTypeInfo(self._schema)

    def create_source(self) -> FileSource:
        """The source that reads the files."""
        return FileSource(AvroFormat(self._schema), (self._path,))


class AvroWriterFactory(BulkWriterFactory):
    """Avro's container files.

    Args:
        schema: of the records.
        codec: "null", "deflate", ...: what fastavro knows.
    """

    extension = ".avro"

    def __init__(self, schema: AvroSchema, codec: str = "null") -> None:
        self.schema = schema
        self.codec = codec

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        del type_info
        return _AvroWriter(stream, self)


class _AvroWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], factory: AvroWriterFactory) -> None:
        from fastavro.write import Writer

        self._writer: Any = Writer(stream, factory.schema.parsed, factory.codec)

    def write(self, batch: Batch) -> None:
        value: object = None
        try:
            for value in batch.values:
                self._writer.write(named_values(value))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            message = f"record {value!r:.200} does not fit the Avro schema: {error}"
            raise PermanentSinkError(message) from error

    def finish(self) -> None:
        self._writer.flush()


class AvroParquetFormat(StreamFormat):
    """Records of Parquet files, as dicts of an Avro schema.

    Args:
        schema: its fields are the columns that are read.
    """

    tells_positions = True

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema
        self._parquet = ParquetFormat(row_type_of(schema.columns))

    @property
    def produced_type(self) -> TypeInformation:
        return GenericRecordAvroTypeInfo(self.schema)

    def properties(self, path: str, size: int) -> dict[str, object]:
        return self._parquet.properties(path, size)

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        return self._parquet.next_stop(split, start, limit, end)

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        for batch in self._parquet.read(split, start, stop):
            if batch.arrow is not None:
                yield SourceBatch(
                    values=batch.arrow.to_pylist(maps_as_pydicts="strict"),
                    position=batch.position,
                    positions=batch.positions,
                )


class AvroParquetWriterFactory(BulkWriterFactory):
    """Parquet files whose columns are the fields of an Avro schema."""

    extension = ".parquet"

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        del type_info
        return _AvroParquetWriter(stream, self.schema.columns)


class _AvroParquetWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], columns: pa.Schema) -> None:
        self._columns = columns
        self._type = row_type_of(columns)
        self._writer = ParquetWriterFactory().create(stream, self._type)

    def write(self, batch: Batch) -> None:
        records = [named_values(value) for value in batch.values]
        try:
            columns = pa.RecordBatch.from_pylist(records, schema=self._columns)
        except (pa.ArrowException, ValueError, TypeError) as error:
            message = f"records do not fit the Avro schema: {error}"
            raise PermanentSinkError(message) from error
        self._writer.write(Batch(self._type, arrow=self._type.conform(columns)))

    def finish(self) -> None:
        self._writer.finish()

    def abandon(self) -> None:
        self._writer.abandon()
