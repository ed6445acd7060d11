"""Avro's container files, and Parquet files by an Avro schema: records are dicts, as in PyFlink."""

from __future__ import annotations

import io
import json
from bisect import bisect_right
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.formats.file_format import (
    BATCH_SIZE,
    BulkFormat,
    StreamFormat,
    open_file,
    row_type_of,
    split_path,
)
from millstream.connectors.formats.file_writers import (
    BulkWriter,
    BulkWriterFactory,
    ParquetWriterFactory,
    named_values,
)
from millstream.connectors.formats.parquet_format import ParquetFormat
from millstream.contracts.batch import Batch
from millstream.contracts.source import SourceBatch
from millstream.errors import ConfigurationError, PermanentSinkError, SourceError
from millstream.types.type_information import PickledBytesTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.source import Split
    from millstream.types.types import TypeInformation


_PRIMITIVE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
#: What fastavro gives dates and times as: instants have the zone UTC.
_LOGICAL: Final[dict[str, pa.DataType]] = {
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_MAX_PRECISION: Final = 38


class _NoCounterpartError(Exception):
    """Arrow cannot say it."""


def arrow_schema_of_avro(record: dict[str, Any]) -> pa.Schema | None:
    """The fields of an Avro record.

    Args:
        record: the schema, as ``fastavro.parse_schema`` gives it.

    Returns:
        None: a field has no counterpart in Arrow, or there are no fields.
    """
    try:
        fields = list(_type_of(record, {}))
    except _NoCounterpartError:
        return None
    return pa.schema(fields) if fields else None


def _type_of(avro: Any, known: dict[str, pa.DataType]) -> pa.DataType:
    """The type; ``known`` has the named ones that are complete."""
    if isinstance(avro, list):
        others = [branch for branch in avro if branch != "null"]
        if len(others) != 1:
            raise _NoCounterpartError
        return _type_of(others[0], known)
    if isinstance(avro, str):
        found = _PRIMITIVE.get(avro) or known.get(avro)
        if found is None:
            raise _NoCounterpartError
        return found
    made = _complex(avro, known)
    if "name" in avro:
        known[avro["name"]] = made
    return made


def _complex(avro: dict[str, Any], known: dict[str, pa.DataType]) -> pa.DataType:
    kind, logical = avro["type"], avro.get("logicalType")
    if logical == "decimal":
        if avro["precision"] > _MAX_PRECISION:
            raise _NoCounterpartError
        return pa.decimal128(avro["precision"], avro.get("scale", 0))
    if logical is not None:
        if logical not in _LOGICAL:
            raise _NoCounterpartError
        return _LOGICAL[logical]
    if kind == "record":
        return pa.struct([(each["name"], _type_of(each["type"], known)) for each in avro["fields"]])
    if kind == "array":
        return pa.list_(_type_of(avro["items"], known))
    if kind == "map":
        return pa.map_(pa.string(), _type_of(avro["values"], known))
    return _type_of(kind, known)


def parsed_avro_schema(text: str) -> Any:
    """A schema of records as fastavro wants it.

    Raises:
        ConfigurationError: it is none, or fastavro is not installed.
    """
    try:
        import fastavro
    except ImportError as error:
        message = "Avro needs the package fastavro: pip install 'millstream[kafka]'"
        raise ConfigurationError(message) from error
    try:
        schema: Any = json.loads(text)
        parsed: Any = fastavro.parse_schema(schema)
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        message = f"this is not an Avro schema: {error}"
        raise ConfigurationError(message) from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        message = "the Avro schema must be that of a record"
        raise ConfigurationError(message)
    return parsed


def decoded_record(message: bytes, schema: Any, owner: str) -> dict[str, Any]:
    """Return the one Avro record that a message holds in its binary form.

    Args:
        message: its bytes.
        schema: as ``parsed_avro_schema`` gives it.
        owner: whose schema it is, for the error.

    Raises:
        ValueError: it is none, or bytes follow it.
    """
    import fastavro

    stream = io.BytesIO(message)
    try:
        record: Any = fastavro.schemaless_reader(stream, schema, None)
    except (EOFError, IndexError, KeyError, StopIteration, TypeError) as error:
        reason = f"it is not an Avro record of the {owner}: {error!r}"
        raise ValueError(reason) from error
    if stream.read(1):
        reason = "it has bytes after the Avro record"
        raise ValueError(reason)
    return dict(record)


class AvroSchema:
    """An Avro schema, as PyFlink's; made by ``parse_string`` or ``parse_file``.

    Args:
        json_schema: the schema of a record, as JSON.

    Raises:
        ConfigurationError: it is none.
    """

    def __init__(self, json_schema: str) -> None:
        self._text = json_schema
        #: The schema as fastavro wants it.
        self.parsed = parsed_avro_schema(json_schema)

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """The schema that a text holds; raises ConfigurationError if it is none."""
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """The schema that a file holds; raises ConfigurationError if it cannot be read."""
        try:
            return AvroSchema(Path(file_path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            message = f"the Avro schema {file_path} cannot be read: {error}"
            raise ConfigurationError(message) from error

    @property
    def columns(self) -> pa.Schema:
        """The Arrow columns of the records.

        Raises:
            ConfigurationError: a field has no counterpart in Arrow.
        """
        columns = arrow_schema_of_avro(self.parsed)
        if columns is None:
            message = "the Avro schema has fields that no column can hold, or none at all"
            raise ConfigurationError(message)
        return columns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and json.loads(self._text) == json.loads(other._text)

    def __hash__(self) -> int:
        return hash(json.dumps(json.loads(self._text), sort_keys=True))

    def __str__(self) -> str:
        return json.dumps(json.loads(self._text), separators=(",", ":"))


class GenericRecordAvroTypeInfo(PickledBytesTypeInfo):
    """Records of an Avro schema, which are dicts in Python; they travel pickled.

    Args:
        schema: of the records.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema

    def __str__(self) -> str:
        return f"GenericRecordAvroTypeInfo({self.schema})"


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
        """The end of a block near the limit, or of the first one after ``start``."""
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
                message = f"{path!r} cannot be read by the Avro schema: {error!r}"
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
