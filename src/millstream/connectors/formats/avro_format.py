"""Avro: its schemas, values and container files; and Parquet files by an Avro schema.

Records are dicts of a schema that is given, as in PyFlink, or rows of logical types with the schema
that Flink derives of them.  In files of rows columns are found by the names of fields in the file's
own schema; a field that a file lacks is NULL where it may be.
"""

from __future__ import annotations

import datetime as dt
import io
import json
from bisect import bisect_right
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.formats.file_format import (
    BATCH_SIZE,
    BulkFormat,
    BulkWriter,
    BulkWriterFactory,
    StreamFormat,
    open_file,
    row_type_of,
    split_path,
)
from millstream.connectors.formats.parquet_format import ParquetFormat, ParquetWriterFactory
from millstream.connectors.formats.row_format import arrow_schema, named_values
from millstream.connectors.formats.texts import EXACT, INTEGER_BITS, integer
from millstream.contracts.batch import Batch
from millstream.contracts.source import SourceBatch
from millstream.errors import ConfigurationError, PermanentSinkError, SourceError, ValidationError
from millstream.types import logical_types as lt
from millstream.types.type_information import PickledBytesTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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
_TIMES: Final[dict[str, pa.DataType]] = {
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
        if logical not in _TIMES:
            raise _NoCounterpartError
        return _TIMES[logical]
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


# -- schemas of rows -------------------------------------------------------------------------------


_PLAIN: Final[dict[type, str]] = {
    lt.BooleanType: "boolean",
    lt.TinyIntType: "int",
    lt.SmallIntType: "int",
    lt.IntType: "int",
    lt.BigIntType: "long",
    lt.FloatType: "float",
    lt.DoubleType: "double",
    lt.CharType: "string",
    lt.VarCharType: "string",
    lt.BinaryType: "bytes",
    lt.VarBinaryType: "bytes",
    lt.DateType: "int",
}
_MILLIS: Final = 3
_MICROS: Final = 6


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


def avro_schema_of(
    row: lt.RowType, *, legacy: bool, logical: bool = True, name: str = "record"
) -> Any:
    """The schema of rows, as fastavro wants it.

    Args:
        row: the rows.
        name: of the record.
        legacy: whether TIMESTAMP is written as instants in milliseconds alone.
        logical: whether logical types are named, and absent fields are NULL: for files, which
            others read.

    Raises:
        ValidationError: Avro holds no values of a type.
    """
    return parsed_avro_schema(
        json.dumps(avro_json_of(row, legacy=legacy, logical=logical, name=name))
    )


def avro_json_of(row: lt.RowType, *, legacy: bool, logical: bool = True, name: str) -> Any:
    """The schema of rows as JSON has it; arguments and errors as of ``avro_schema_of``."""
    try:
        return _schema(row, name, legacy=legacy, logical=logical)
    except ValidationError as error:
        message = f"the format 'avro': {error}"
        raise ValidationError(message) from error


def _schema(kind: lt.LogicalType, name: str, *, legacy: bool, logical: bool) -> Any:
    """The schema of a type.

    Raises:
        ValidationError: Avro holds no values of it.
    """

    def part(of: lt.LogicalType, name: str = name) -> Any:
        made = _schema(of, name, legacy=legacy, logical=logical)
        return ["null", made] if of.is_nullable else made

    if isinstance(kind, lt.RowType):
        fields = [
            {
                "name": each.name,
                "type": part(each.type, f"{name}_{each.name}"),
                **({"default": None} if logical and each.type.is_nullable else {}),
            }
            for each in kind.fields
        ]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(kind, lt.ArrayType):
        return {"type": "array", "items": part(kind.element)}
    if isinstance(kind, lt.MapType | lt.MultisetType):
        key = kind.key if isinstance(kind, lt.MapType) else kind.element
        if not isinstance(key, lt.CharType | lt.VarCharType):
            shown = kind.not_null().as_summary_string()
            message = f"Avro format doesn't support non-string as key type of map: {shown}"
            raise ValidationError(message)
        return {"type": "map", "values": part(_part(kind))}
    plain, named = _leaf(kind.not_null(), legacy=legacy)
    return {"type": plain, **named} if logical and named else plain


def _leaf(kind: lt.LogicalType, *, legacy: bool) -> tuple[str, dict[str, object]]:
    """The type of what has no parts, and what a schema says of its logical type."""
    if isinstance(kind, lt.DecimalType):
        sizes = {"precision": kind.precision, "scale": kind.scale}
        return "bytes", {"logicalType": "decimal", **sizes}
    if isinstance(kind, lt.DateType):
        return "int", {"logicalType": "date"}
    if isinstance(kind, lt.TimeType):
        if kind.precision > _MILLIS:
            message = (
                f"Avro does not support TIME type with precision: {kind.precision}, it only "
                "supports precision less than 3."
            )
            raise ValidationError(message)
        return "int", {"logicalType": "time-millis"}
    if isinstance(kind, lt.TimestampType | lt.LocalZonedTimestampType):
        return "long", {"logicalType": _instant(kind, legacy=legacy)}
    if type(kind) not in _PLAIN:
        message = f"Unsupported to derive Schema for type: {kind.as_summary_string()}"
        raise ValidationError(message)
    return _PLAIN[type(kind)], {}


def _instant(kind: lt.TimestampType | lt.LocalZonedTimestampType, *, legacy: bool) -> str:
    most = _MILLIS if legacy else _MICROS
    is_zoned = isinstance(kind, lt.LocalZonedTimestampType)
    if kind.precision > most or (legacy and is_zoned):
        hint = (
            " (set the option 'timestamp_mapping.legacy' of the format to 'false')"
            if legacy
            else ""
        )
        message = f"Avro does not support {kind.as_summary_string()}{hint}."
        raise ValidationError(message)
    name = "timestamp-millis" if kind.precision <= _MILLIS else "timestamp-micros"
    return name if legacy or is_zoned else f"local-{name}"


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


def misfit(schema: Any, row: lt.RowType) -> str | None:
    """Return why records of a schema are no rows of a table; None: they are.

    Args:
        schema: that of the writer, parsed or not.
        row: the table; it reads fields by their names.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return "the Avro schema is not that of records"
    known: dict[str, Any] = {}
    _collect(schema, known)
    return next(_misfits(schema, row, "", known), None)


def _misfits(schema: Any, kind: lt.LogicalType, name: str, known: dict[str, Any]) -> Iterator[str]:
    """Yield what does not fit in values of a schema that are to be of a type."""
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


# -- values of rows --------------------------------------------------------------------------------


_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of no zone, as the column's values
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def value_reader(kind: lt.LogicalType) -> Callable[[Any], Any]:
    """Return what makes a value for pyarrow of one that fastavro gives.

    Times are numbers, and decimals bytes, where the schema names no logical types.
    """
    plain = _plain_reader(kind)
    return lambda value: None if value is None else plain(value)


def _plain_reader(kind: lt.LogicalType) -> Callable[[Any], Any]:  # noqa: PLR0911 - a table
    if isinstance(kind, lt.DecimalType):
        return lambda value: value if isinstance(value, Decimal) else _decimal(value, kind)
    if isinstance(kind, lt.TinyIntType | lt.SmallIntType):
        # Avro has no whole numbers of fewer bits than 32.
        bits = INTEGER_BITS[type(kind)]
        return lambda value: integer(str(value), bits)
    if isinstance(kind, lt.TimestampType | lt.LocalZonedTimestampType):
        return _instant_reader(kind.precision)
    if isinstance(kind, lt.TimeType):
        return _time_reader(kind.precision)
    if isinstance(kind, lt.CharType | lt.VarCharType):
        return lambda value: value.decode() if isinstance(value, bytes) else str(value)
    if isinstance(kind, lt.BinaryType | lt.VarBinaryType):
        return lambda value: value.encode() if isinstance(value, str) else value
    if isinstance(kind, lt.ArrayType):
        element = value_reader(kind.element)
        return lambda value: [element(each) for each in value]
    if isinstance(kind, lt.MapType | lt.MultisetType):
        item = value_reader(_part(kind))
        return lambda value: [(key, item(each)) for key, each in value.items()]
    if isinstance(kind, lt.RowType):
        fields = [(each.name, value_reader(each.type)) for each in kind.fields]
        return lambda value: {name: read(value.get(name)) for name, read in fields}
    return lambda value: value


def _decimal(digits: bytes, kind: lt.DecimalType) -> Decimal:
    number = int.from_bytes(digits, "big", signed=True)
    found = Decimal(number).scaleb(-kind.scale, EXACT)
    if len(str(abs(number))) > kind.precision:
        message = f"{found:f} does not fit {kind.as_summary_string()}"
        raise ValueError(message)
    return found


def _instant_reader(precision: int) -> Callable[[Any], int]:
    """Whole numbers in the unit of the column; times are cut to it, numbers are in Flink's."""
    divisor = 1000 if precision <= _MILLIS else 1
    factor = 1000 if precision > _MICROS else 1

    def read(value: Any) -> int:
        if not isinstance(value, dt.datetime):
            return int(value * factor)
        epoch = _EPOCH if value.tzinfo is None else _EPOCH_UTC
        return (value - epoch) // _MICROSECOND // divisor * factor

    return read


def _time_reader(precision: int) -> Callable[[Any], int]:
    divisor, factor = (1000, 1) if precision <= _MILLIS else (1, 1000)

    def read(value: Any) -> int:
        if not isinstance(value, dt.time):
            return int(value * factor)
        seconds = value.hour * 3600 + value.minute * 60 + value.second
        return (seconds * 1_000_000 + value.microsecond) // divisor

    return read


def _writer(kind: lt.LogicalType) -> Callable[[Any], Any]:
    """Return what makes a value to be written of one of pyarrow's."""
    plain = _plain_writer(kind)
    return lambda value: None if value is None else plain(value)


def _plain_writer(kind: lt.LogicalType) -> Callable[[Any], Any]:  # noqa: PLR0911 - a table
    if isinstance(kind, lt.DecimalType):
        scale = kind.scale
        return lambda value: _bytes_of(int(value.scaleb(scale, EXACT)))
    if isinstance(kind, lt.DateType):
        return lambda value: (value - _EPOCH.date()).days
    if isinstance(kind, lt.TimeType):
        return lambda value: (
            (value.hour * 3600 + value.minute * 60 + value.second) * 1000
            + value.microsecond // 1000
        )
    if isinstance(kind, lt.TimestampType | lt.LocalZonedTimestampType):
        unit = _MICROSECOND * 1000 if kind.precision <= _MILLIS else _MICROSECOND
        epoch = _EPOCH if isinstance(kind, lt.TimestampType) else _EPOCH_UTC
        return lambda value: (value - epoch) // unit
    if isinstance(kind, lt.ArrayType):
        element = _writer(kind.element)
        return lambda value: [element(each) for each in value]
    if isinstance(kind, lt.MapType | lt.MultisetType):
        item = _writer(_part(kind))
        return lambda value: {key: item(each) for key, each in value}
    if isinstance(kind, lt.RowType):
        fields = [(each.name, _writer(each.type)) for each in kind.fields]
        return lambda value: {name: write(value[name]) for name, write in fields}
    return lambda value: value


def _bytes_of(number: int) -> bytes:
    """Two's complement in as few bytes as hold it, as Java's BigInteger."""
    bits = number.bit_length() if number >= 0 else (-number - 1).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def avro_records(row: lt.RowType, columns: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Rows as records to be written."""
    names = row.names
    writers = [_writer(each.type) for each in row.fields]
    values = [columns.column(index).to_pylist() for index in range(len(names))]
    for cells in zip(*values, strict=True):
        yield {name: write(cell) for name, write, cell in zip(names, writers, cells, strict=True)}


# -- container files -------------------------------------------------------------------------------


class AvroBlocks(BulkFormat):
    """Avro's container files, cut at the file's own blocks; offsets are numbers of records."""

    tells_positions = True
    #: What records are read as; None: as the file's own schema says.
    read_as: Any = None

    def properties(self, path: str, size: int) -> dict[str, object]:
        """The ends of the file's blocks, in records, and where they begin, in bytes."""
        ends: list[int] = []
        places: list[int] = []
        with open_file(path, self.stores) as file:
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
        with open_file(path, self.stores) as file:
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
        readers = [(each.name, value_reader(each.type)) for each in self.row.fields]
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
        wrong = misfit(schema, self.row)
        if wrong is not None:
            message = f"{path!r} does not fit the table: {wrong}"
            raise SourceError(message)


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
        self.parsed = schema.parsed
        self.codec = codec

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        from fastavro.write import Writer

        del type_info
        return _AvroWriter(Writer(stream, self.parsed, self.codec), self.records)

    def records(self, batch: Batch) -> Iterable[dict[str, Any]]:
        """The records as fastavro takes them."""
        return map(named_values, batch.values)


class AvroTableWriterFactory(AvroWriterFactory):
    """Avro's container files of rows.

    Args:
        row: the columns.
        codec: "null", "deflate", "snappy", ...
        legacy: whether TIMESTAMP is written as instants in milliseconds alone.

    Raises:
        ValidationError: Avro holds no values of a column's type, or there is no such codec here.
    """

    def __init__(self, row: lt.RowType, codec: str = "deflate", *, legacy: bool = True) -> None:
        self.row = row
        self.parsed = avro_schema_of(row, legacy=legacy)
        self.codec = codec
        try:
            self.create(io.BytesIO(), row_type_of(arrow_schema(row))).finish()
        except ValueError as error:
            message = f"'avro.codec' = '{codec}': {error}"
            raise ValidationError(message) from error

    def records(self, batch: Batch) -> Iterable[dict[str, Any]]:
        return avro_records(self.row, batch.arrow)


class _AvroWriter(BulkWriter):
    def __init__(self, writer: Any, records: Callable[[Batch], Iterable[dict[str, Any]]]) -> None:
        self._writer = writer
        self._records = records

    def write(self, batch: Batch) -> None:
        record: object = None
        try:
            for record in self._records(batch):
                self._writer.write(record)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            message = f"record {record!r:.200} does not fit the Avro schema: {error}"
            raise PermanentSinkError(message) from error

    def finish(self) -> None:
        self._writer.flush()


# -- Parquet by an Avro schema ---------------------------------------------------------------------


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
