"""The format ``avro`` of files: Avro's container files as tables.

Columns are found by the names of fields in the file's own schema; a field that a file lacks is NULL
where it may be.  Files are written with the schema that Flink derives.
"""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.formats.avro_files import AvroBlocks
from millstream.connectors.formats.file_format import row_type_of
from millstream.connectors.formats.file_writers import BulkWriter, BulkWriterFactory
from millstream.connectors.formats.tables.avro_rows import avro_records, avro_schema_of
from millstream.connectors.formats.tables.codec import arrow_schema
from millstream.contracts.source import SourceBatch
from millstream.errors import PermanentSinkError, SourceError, ValidationError
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.contracts.batch import Batch
    from millstream.contracts.source import Split
    from millstream.types.types import TypeInformation


_INTEGERS: Final = ("int",)
_TEXTS: Final = ("string", "bytes", "enum")
_BYTES: Final = ("bytes", "string", "fixed")
#: Which types of Avro's a column takes, as Avro promotes them.
_TAKEN: Final[dict[type, tuple[str, ...]]] = {
    lt.BooleanType: ("boolean",),
    lt.TinyIntType: _INTEGERS,
    lt.SmallIntType: _INTEGERS,
    lt.IntType: _INTEGERS,
    lt.BigIntType: ("int", "long"),
    lt.FloatType: ("int", "long", "float"),
    lt.DoubleType: ("int", "long", "float", "double"),
    lt.CharType: _TEXTS,
    lt.VarCharType: _TEXTS,
    lt.BinaryType: _BYTES,
    lt.VarBinaryType: _BYTES,
    lt.DateType: ("int",),
    lt.TimeType: ("int", "long"),
    lt.TimestampType: ("long",),
    lt.LocalZonedTimestampType: ("long",),
    lt.DecimalType: ("bytes", "fixed"),
}
_TIMESTAMPS: Final = (
    None,
    "timestamp-millis",
    "timestamp-micros",
    "local-timestamp-millis",
    "local-timestamp-micros",
)
#: Which logical types a column takes; all others take none.
_LOGICAL: Final[dict[type, tuple[str | None, ...]]] = {
    lt.CharType: (None, "uuid"),
    lt.VarCharType: (None, "uuid"),
    lt.DateType: (None, "date"),
    lt.TimeType: (None, "time-millis", "time-micros"),
    lt.TimestampType: _TIMESTAMPS,
    lt.LocalZonedTimestampType: _TIMESTAMPS,
    lt.DecimalType: (None, "decimal"),
}
_MILLIS: Final = 3
_MICROS: Final = 6
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of no zone, as local timestamps
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


class AvroTableFormat(AvroBlocks):
    """Rows of Avro's container files; offsets are numbers of records.

    Args:
        row: the columns.
        legacy: whether TIMESTAMP is written as instants in milliseconds alone.

    Raises:
        ValidationError: Avro holds no values of a column's type.
    """

    def __init__(self, row: lt.RowType, *, legacy: bool = True) -> None:
        avro_schema_of(row, legacy=legacy)
        self.row = row
        self._schema = arrow_schema(row)

    @property
    def produced_type(self) -> TypeInformation:
        return row_type_of(self._schema)

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        readers = [(each.name, _reader(each.type)) for each in self.row.fields]
        for batch in super().read(split, start, stop):
            records: Any = batch.values
            try:
                arrays = [
                    pa.array([read(record.get(name)) for record in records], field.type)
                    for (name, read), field in zip(readers, self._schema, strict=True)
                ]
                self._check_nulls(arrays)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                message = f"{split.properties['path']!r} has values that do not fit: {error}"
                raise SourceError(message) from error
            yield SourceBatch(
                arrow=pa.RecordBatch.from_arrays(arrays, schema=self._schema),
                position=batch.position,
                positions=batch.positions,
            )

    def _check_nulls(self, arrays: list[pa.Array]) -> None:
        for column, array in zip(self.row.fields, arrays, strict=True):
            if array.null_count and not column.type.is_nullable:
                message = f"NULL in column '{column.name}', which is NOT NULL"
                raise ValueError(message)

    def check_written(self, path: str, schema: Any) -> None:
        """Refuse a file whose records do not fit; raises SourceError."""
        known: dict[str, Any] = {}
        if not isinstance(schema, dict) or schema.get("type") != "record":
            message = f"{path!r}: its Avro schema is not that of records"
            raise SourceError(message)
        _collect(schema, known)
        for wrong in _misfits(schema, self.row, "", known):
            message = f"{path!r} does not fit the table: {wrong}"
            raise SourceError(message)


def _collect(schema: Any, known: dict[str, Any]) -> None:
    """The named types of a schema, which may stand in it by their names."""
    if isinstance(schema, list):
        for each in schema:
            _collect(each, known)
    elif isinstance(schema, dict):
        if "name" in schema:
            known[schema["name"]] = schema
        for each in schema.get("fields", ()):
            _collect(each["type"], known)
        for part in ("items", "values"):
            _collect(schema.get(part), known)
        if isinstance(schema.get("type"), dict | list):
            _collect(schema["type"], known)


def _misfits(schema: Any, kind: lt.LogicalType, name: str, known: dict[str, Any]) -> Iterator[str]:
    """What does not fit in values of a schema that are to be of a type."""
    where = f"column '{name}' {kind.as_summary_string()}" if name else "the record"
    branches = schema if isinstance(schema, list) else [schema]
    others = [each for each in branches if each != "null"]
    if not others:
        return  # nothing but null
    if len(others) > 1:
        yield f"{where} is a union of several types in Avro"
        return
    found = _resolved(others[0], known)
    avro = found["type"]
    if isinstance(kind, lt.RowType):
        yield from _record_misfits(found, kind, name, known)
    elif isinstance(kind, lt.ArrayType | lt.MapType | lt.MultisetType):
        part = "items" if isinstance(kind, lt.ArrayType) else "values"
        if part not in found:
            yield f"{where} is {avro} in Avro"
        else:
            yield from _misfits(found[part], _part(kind), f"{name}[]", known)
    else:
        logical = found.get("logicalType")
        if avro not in _TAKEN.get(type(kind), ()):
            yield f"{where} is {avro} in Avro"
        elif logical not in _LOGICAL.get(type(kind), (None,)):
            yield f"{where} is {logical} in Avro"


def _part(kind: lt.ArrayType | lt.MapType | lt.MultisetType) -> lt.LogicalType:
    if isinstance(kind, lt.ArrayType):
        return kind.element
    return kind.value if isinstance(kind, lt.MapType) else lt.IntType(nullable=False)


def _resolved(schema: Any, known: dict[str, Any]) -> dict[str, Any]:
    """A schema as a dict, whatever way it is written."""
    while True:
        if isinstance(schema, str):
            if schema not in known:
                return {"type": schema}
            schema = known[schema]
        elif isinstance(schema["type"], dict):
            schema = schema["type"]
        else:
            return dict(schema)


def _record_misfits(
    schema: dict[str, Any], kind: lt.RowType, name: str, known: dict[str, Any]
) -> Iterator[str]:
    if schema["type"] not in {"record", "error"}:
        yield f"column '{name}' {kind.as_summary_string()} is {schema['type']} in Avro"
        return
    fields = {each["name"]: each["type"] for each in schema["fields"]}
    for each in kind.fields:
        inner = f"{name}.{each.name}" if name else each.name
        if each.name in fields:
            yield from _misfits(fields[each.name], each.type, inner, known)
        elif not each.type.is_nullable:
            yield f"it lacks column '{inner}', which is NOT NULL"


# -- values -----------------------------------------------------------------------------------


def _reader(kind: lt.LogicalType) -> Callable[[Any], Any]:
    """What makes a value for pyarrow of one that fastavro gives by the file's schema."""
    plain = _plain_reader(kind)
    return lambda value: None if value is None else plain(value)


def _plain_reader(kind: lt.LogicalType) -> Callable[[Any], Any]:  # noqa: PLR0911 - a table
    if isinstance(kind, lt.DecimalType):
        scale = -kind.scale
        return lambda value: (
            value
            if isinstance(value, Decimal)
            else Decimal(int.from_bytes(value, "big", signed=True)).scaleb(scale)
        )
    if isinstance(kind, lt.TimestampType | lt.LocalZonedTimestampType):
        return _instant_reader(kind.precision)
    if isinstance(kind, lt.TimeType):
        return _time_reader(kind.precision)
    if isinstance(kind, lt.CharType | lt.VarCharType):
        return lambda value: value.decode() if isinstance(value, bytes) else str(value)
    if isinstance(kind, lt.BinaryType | lt.VarBinaryType):
        return lambda value: value.encode() if isinstance(value, str) else value
    if isinstance(kind, lt.ArrayType):
        element = _reader(kind.element)
        return lambda value: [element(each) for each in value]
    if isinstance(kind, lt.MapType | lt.MultisetType):
        item = _reader(_part(kind))
        return lambda value: [(key, item(each)) for key, each in value.items()]
    if isinstance(kind, lt.RowType):
        fields = [(each.name, _reader(each.type)) for each in kind.fields]
        return lambda value: {name: read(value.get(name)) for name, read in fields}
    return lambda value: value


def _instant_reader(precision: int) -> Callable[[Any], int]:
    """Whole numbers in the unit of the column; times are cut to it, numbers are in Flink's."""
    divisor, factor = (1000, 1) if precision <= _MILLIS else (1, 1)
    if precision > _MICROS:
        factor = 1000
    scale = 1000 if precision <= _MILLIS else 1

    def read(value: Any) -> int:
        if isinstance(value, dt.datetime):
            epoch = _EPOCH if value.tzinfo is None else _EPOCH_UTC
            micros = (value - epoch) // _MICROSECOND
        else:
            micros = value * scale
        return int(micros // divisor * factor)

    return read


def _time_reader(precision: int) -> Callable[[Any], int]:
    divisor = 1000 if precision <= _MILLIS else 1

    def read(value: Any) -> int:
        if isinstance(value, dt.time):
            seconds = value.hour * 3600 + value.minute * 60 + value.second
            micros = seconds * 1_000_000 + value.microsecond
        else:
            micros = value * 1000
        return int(micros // divisor)

    return read


# -- writing ----------------------------------------------------------------------------------


class AvroTableWriterFactory(BulkWriterFactory):
    """Avro's container files of rows.

    Args:
        row: the columns.
        codec: "null", "deflate", "snappy", ...
        legacy: whether TIMESTAMP is written as instants in milliseconds alone.

    Raises:
        ValidationError: Avro holds no values of a column's type, or there is no such codec here.
    """

    extension = ".avro"

    def __init__(self, row: lt.RowType, codec: str = "deflate", *, legacy: bool = True) -> None:
        from fastavro.write import Writer

        self.row = row
        self.codec = codec
        self.schema = avro_schema_of(row, legacy=legacy)
        try:
            Writer(io.BytesIO(), self.schema, codec).flush()
        except ValueError as error:
            message = f"'avro.codec' = '{codec}': {error}"
            raise ValidationError(message) from error

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        del type_info
        return _AvroTableWriter(stream, self)


class _AvroTableWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], factory: AvroTableWriterFactory) -> None:
        from fastavro.write import Writer

        self._row = factory.row
        self._writer: Any = Writer(stream, factory.schema, factory.codec)

    def write(self, batch: Batch) -> None:
        record: object = None
        try:
            for record in avro_records(self._row, batch.arrow):
                self._writer.write(record)
        except (ValueError, TypeError, OverflowError) as error:
            message = f"record {record!r:.200} cannot be written as Avro: {error}"
            raise PermanentSinkError(message) from error

    def finish(self) -> None:
        self._writer.flush()
