"""Flink's format ``avro`` of messages: Avro records as rows of logical types, and back.

A message is the bare record of the schema that Flink derives from a table: fields by position, a
union with null where a column is nullable, times as numbers, decimals as bytes.
"""

from __future__ import annotations

import datetime as dt
import io
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.connectors.formats.avro_files import decoded_record, parsed_avro_schema
from millstream.connectors.formats.tables.codec import INSERT, RowDecoder, RowEncoder, arrow_schema
from millstream.connectors.formats.tables.texts import EXACT, INTEGER_BITS, integer
from millstream.errors import ValidationError
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


#: Fewer messages are read sooner one by one.
_FEW: Final = 64
_LONG_BYTES: Final = 10
_SHIFT: Final = 7
_WORD: Final = 8
_WHOLE: Final = (lt.TinyIntType, lt.SmallIntType, lt.IntType, lt.BigIntType)
_TIMES: Final = (lt.DateType, lt.TimeType, lt.TimestampType, lt.LocalZonedTimestampType)


class _UnreadableError(Exception):
    """A message is not what is read here."""


class _MessageBlocks:
    """Reads blocks of messages.

    Args:
        row: the table.
    """

    def __init__(self, row: lt.RowType) -> None:
        self._row, self._schema = row, arrow_schema(row)
        self.reads = bool(row.fields) and all(type(each) in _READ for each in row.children)

    def read(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """A row per message; None: they are to be read one by one."""
        if not self.reads or len(messages) < _FEW:
            return None
        block = _Block(messages)
        try:
            arrays = [
                _column(block, each.type, field.type)
                for each, field in zip(self._row.fields, self._schema, strict=True)
            ]
            block.require_ends()
        except (_UnreadableError, pa.ArrowException, OverflowError):
            return None
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Block:
    """Concatenated messages, and how far each was read."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        # Behind the last are zeros, so that looking too far is seen by ``_check``.
        self.bytes = np.frombuffer(b"".join([*messages, bytes(_LONG_BYTES)]), np.uint8)
        sizes = np.fromiter(map(len, messages), np.int64, len(messages))
        self._ends = np.cumsum(sizes)
        self._at = self._ends - sizes

    def __len__(self) -> int:
        return len(self._at)

    def _check(self) -> None:
        if (self._at > self._ends).any():
            raise _UnreadableError

    def require_ends(self) -> None:
        """Raise unless all of each message was read."""
        if (self._at != self._ends).any():
            raise _UnreadableError

    def longs(self, places: Integers) -> Integers:
        """The next whole number of some messages."""
        found = np.zeros(len(places), np.uint64)
        going = np.arange(len(places))
        for step in range(_LONG_BYTES):
            at = self._at[places[going]]
            if (at >= self._ends[places[going]]).any():
                raise _UnreadableError
            byte = self.bytes[at]
            if step == _LONG_BYTES - 1 and (byte > 1).any():
                raise _UnreadableError
            part = (byte & 0x7F).astype(np.uint64) << np.uint64(_SHIFT * step)
            found[going] |= part
            self._at[places[going]] += 1
            going = going[byte >= 0x80]  # noqa: PLR2004 - the bit that says that more come
            if not len(going):
                break
        half = (found >> np.uint64(1)).astype(np.int64)
        return half ^ -(found & np.uint64(1)).astype(np.int64)

    def skipped(self, places: Integers, sizes: Integers) -> Integers:
        """Where the next bytes of some messages begin; they are read then."""
        if len(sizes) and (sizes < 0).any():
            raise _UnreadableError
        begins = self._at[places]
        if (sizes > self._ends[places] - begins).any():
            raise _UnreadableError
        self._at[places] += sizes
        return begins


def _column(block: _Block, kind: lt.LogicalType, arrow: pa.DataType) -> pa.Array:
    places: Integers = np.arange(len(block))
    if kind.is_nullable:
        branch = block.longs(places)
        if ((branch != 0) & (branch != 1)).any():
            raise _UnreadableError
        places = np.flatnonzero(branch)
    return _READ[type(kind)](block, places, kind, arrow)


def _filled(block: _Block, places: Integers, values: NDArray[Any]) -> pa.Array:
    """The values at their places, NULL at all others."""
    if len(places) == len(block):
        return pa.array(values)
    every = np.zeros(len(block), values.dtype)
    every[places] = values
    return pa.array(every, mask=_others(block, places))


def _others(block: _Block, places: Integers) -> NDArray[np.bool_]:
    others = np.ones(len(block), np.bool_)
    others[places] = False
    return others


def _whole(block: _Block, places: Integers, kind: lt.LogicalType, arrow: pa.DataType) -> pa.Array:
    values = block.longs(places)
    least = -(1 << (INTEGER_BITS[type(kind)] - 1))
    if len(values) and (values.min() < least or values.max() > -(least + 1)):
        raise _UnreadableError
    return _filled(block, places, values).cast(arrow)


def _time(block: _Block, places: Integers, kind: lt.LogicalType, arrow: pa.DataType) -> pa.Array:
    del kind
    width = pa.int32() if arrow.bit_width < pa.int64().bit_width else pa.int64()
    return _filled(block, places, block.longs(places)).cast(width).view(arrow)


def _fixed(block: _Block, places: Integers, dtype: str) -> pa.Array:
    size = np.dtype(dtype).itemsize
    begins = block.skipped(places, np.full(len(places), size))
    raw = block.bytes[begins[:, None] + np.arange(size)]
    return _filled(block, places, np.ascontiguousarray(raw).view(dtype).reshape(-1))


def _real(block: _Block, places: Integers, kind: lt.LogicalType, arrow: pa.DataType) -> pa.Array:
    del arrow
    return _fixed(block, places, "<f4" if isinstance(kind, lt.FloatType) else "<f8")


def _boolean(block: _Block, places: Integers, kind: lt.LogicalType, arrow: pa.DataType) -> pa.Array:
    del kind
    values = block.bytes[block.skipped(places, np.ones(len(places), np.int64))]
    if (values > 1).any():
        raise _UnreadableError
    return _filled(block, places, values.astype(np.bool_)).cast(arrow)


def _sized(block: _Block, places: Integers) -> tuple[Integers, Integers]:
    """Where bytes begin, and how many they are."""
    sizes = block.longs(places)
    return block.skipped(places, sizes), sizes


def _text(block: _Block, places: Integers, kind: lt.LogicalType, arrow: pa.DataType) -> pa.Array:
    del kind
    begins, sizes = _sized(block, places)
    every = np.zeros(len(block) + 1, np.int64)
    every[places + 1] = sizes
    offsets = np.cumsum(every)
    moved = np.repeat(begins - offsets[places], sizes)
    data = block.bytes[moved + np.arange(len(moved))]
    there = None
    if len(places) < len(block):
        there = pa.array(~_others(block, places)).buffers()[1]
    buffers = [there, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    made = pa.Array.from_buffers(arrow, len(block), buffers)
    made.validate(full=True)  # texts are UTF-8
    return made


def _decimal_column(
    block: _Block, places: Integers, kind: lt.LogicalType, arrow: pa.DataType
) -> pa.Array:
    assert isinstance(kind, lt.DecimalType)  # noqa: S101 - of the table below
    begins, sizes = _sized(block, places)
    if len(sizes) and (sizes.max() > _WORD or sizes.min() < 1):
        raise _UnreadableError
    values = np.where(block.bytes[begins] > 0x7F, -1, 0).astype(np.int64)  # noqa: PLR2004 - the sign
    for step in range(int(sizes.max(initial=0))):
        more = sizes > step
        values[more] = (values[more] << 8) | block.bytes[begins[more] + step]
    most = min(10**kind.precision - 1, 2**63 - 1)
    if len(values) and (values.max() > most or values.min() < -most):
        raise _UnreadableError
    words = np.zeros((len(block), 2), np.int64)
    words[places] = np.stack([values, values >> 63], axis=1)
    there = pa.array(~_others(block, places)).buffers()[1]
    return pa.Array.from_buffers(arrow, len(block), [there, pa.py_buffer(words)])


_READ: Final[dict[type, Callable[[_Block, Integers, Any, pa.DataType], pa.Array]]] = {
    **dict.fromkeys(_WHOLE, _whole),
    **dict.fromkeys(_TIMES, _time),
    **dict.fromkeys((lt.FloatType, lt.DoubleType), _real),
    **dict.fromkeys((lt.CharType, lt.VarCharType, lt.BinaryType, lt.VarBinaryType), _text),
    lt.BooleanType: _boolean,
    lt.DecimalType: _decimal_column,
}


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
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of no zone, as the column's values
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class _Naming:
    """How schemas are derived."""

    #: Whether TIMESTAMP is written as instants in milliseconds alone.
    legacy: bool
    #: Whether logical types are named, and absent fields are NULL: for files, which others read.
    logical: bool = False


def avro_schema_of(row: lt.RowType, *, legacy: bool) -> Any:
    """The schema of a file of rows, as fastavro wants it, with the names of logical types.

    Args:
        row: the rows.
        legacy: whether TIMESTAMP is written as instants in milliseconds alone.

    Raises:
        ValidationError: Avro holds no values of a type.
    """
    return _root(row, _Naming(legacy, logical=True))


def _nullable_schema(kind: lt.LogicalType, name: str, naming: _Naming) -> Any:
    """The schema of a type.

    Raises:
        ValidationError: Avro holds no values of it.
    """
    made = _schema(kind.with_nullability(False), name, naming)  # noqa: FBT003
    return ["null", made] if kind.is_nullable else made


def _schema(kind: lt.LogicalType, name: str, naming: _Naming) -> Any:
    if isinstance(kind, lt.RowType):
        fields = [
            {
                "name": each.name,
                "type": _nullable_schema(each.type, f"{name}_{each.name}", naming),
                **({"default": None} if naming.logical and each.type.is_nullable else {}),
            }
            for each in kind.fields
        ]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(kind, lt.ArrayType):
        return {"type": "array", "items": _nullable_schema(kind.element, name, naming)}
    if isinstance(kind, lt.MapType | lt.MultisetType):
        key = kind.key if isinstance(kind, lt.MapType) else kind.element
        if not isinstance(key, lt.CharType | lt.VarCharType):
            shown = kind.as_summary_string()
            message = f"Avro format doesn't support non-string as key type of map: {shown}"
            raise ValidationError(message)
        value = kind.value if isinstance(kind, lt.MapType) else lt.IntType(nullable=False)
        return {"type": "map", "values": _nullable_schema(value, name, naming)}
    plain, logical = _leaf(kind, legacy=naming.legacy)
    return {"type": plain, **logical} if naming.logical and logical else plain


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
        hint = " (set 'avro.timestamp_mapping.legacy' = 'false')" if legacy else ""
        message = f"Avro does not support {kind.as_summary_string()}{hint}."
        raise ValidationError(message)
    name = "timestamp-millis" if kind.precision <= _MILLIS else "timestamp-micros"
    return name if legacy or is_zoned else f"local-{name}"


def _root(row: lt.RowType, naming: _Naming) -> Any:
    import json

    try:
        schema = _schema(row, "record", naming)
    except ValidationError as error:
        message = f"the format 'avro': {error}"
        raise ValidationError(message) from error
    return parsed_avro_schema(json.dumps(schema))


def _reader(kind: lt.LogicalType) -> Callable[[Any], Any]:
    """What makes a value for pyarrow of one that was read."""
    plain = _plain_reader(kind)
    return lambda value: None if value is None else plain(value)


def _plain_reader(  # noqa: PLR0911 - a table
    kind: lt.LogicalType,
) -> Callable[[Any], Any]:
    if isinstance(kind, lt.DecimalType):
        return lambda value: _decimal(int.from_bytes(value, "big", signed=True), kind)
    if isinstance(kind, lt.TinyIntType | lt.SmallIntType):
        # Avro has no whole numbers of fewer bits than 32.
        bits = INTEGER_BITS[type(kind)]
        return lambda value: integer(str(value), bits)
    if isinstance(kind, lt.ArrayType):
        element = _reader(kind.element)
        return lambda value: [element(each) for each in value]
    if isinstance(kind, lt.MapType):
        item = _reader(kind.value)
        return lambda value: [(key, item(each)) for key, each in value.items()]
    if isinstance(kind, lt.MultisetType):
        return lambda value: list(value.items())
    if isinstance(kind, lt.RowType):
        fields = [(each.name, _reader(each.type)) for each in kind.fields]
        return lambda value: {name: read(value[name]) for name, read in fields}
    return lambda value: value


def _decimal(digits: int, kind: lt.DecimalType) -> Decimal:
    found = Decimal(digits).scaleb(-kind.scale, EXACT)
    if len(str(abs(digits))) > kind.precision:
        message = f"{found:f} does not fit {kind.as_summary_string()}"
        raise ValueError(message)
    return found


def _writer(kind: lt.LogicalType) -> Callable[[Any], Any]:
    """What makes a value to be written of one of pyarrow's."""
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
        unit = (
            dt.timedelta(milliseconds=1)
            if kind.precision <= _MILLIS
            else dt.timedelta(microseconds=1)
        )
        epoch = _EPOCH if isinstance(kind, lt.TimestampType) else _EPOCH_UTC
        return lambda value: (value - epoch) // unit
    if isinstance(kind, lt.ArrayType):
        element = _writer(kind.element)
        return lambda value: [element(each) for each in value]
    if isinstance(kind, lt.MapType):
        item = _writer(kind.value)
        return lambda value: {key: item(each) for key, each in value}
    if isinstance(kind, lt.MultisetType):
        return dict
    if isinstance(kind, lt.RowType):
        fields = [(each.name, _writer(each.type)) for each in kind.fields]
        return lambda value: {name: write(value[name]) for name, write in fields}
    return lambda value: value


def _bytes_of(number: int) -> bytes:
    """Two's complement in as few bytes as hold it, as Java's BigInteger."""
    bits = number.bit_length() if number >= 0 else (-number - 1).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


class AvroRowDecoder(RowDecoder):
    """One record per message.

    Args:
        row: the table.
        legacy: whether TIMESTAMP is written as instants in milliseconds alone.

    Raises:
        ValidationError: Avro holds no values of a column's type.
    """

    def __init__(self, row: lt.RowType, *, legacy: bool = True) -> None:
        super().__init__(row)
        self._schema = _root(row, _Naming(legacy))
        self._fields: list[tuple[str, Callable[[Any], Any]]] | None = None
        self._blocks = _MessageBlocks(row)

    def columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        return self._blocks.read(messages)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made of closures."""
        return self.__dict__ | {"_fields": None}

    def decode(self, message: bytes | None) -> list[tuple[int, Sequence[Any]]]:
        if message is None:
            return []
        if self._fields is None:
            self._fields = [(each.name, _reader(each.type)) for each in self.row.fields]
        record = decoded_record(message, self._schema, "table")
        return [(INSERT, [read(record[name]) for name, read in self._fields])]


class AvroRowEncoder(RowEncoder):
    """One record per message; arguments as of the decoder."""

    def __init__(self, row: lt.RowType, *, legacy: bool = True) -> None:
        super().__init__(row)
        self._schema = _root(row, _Naming(legacy))

    def encode(
        self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None
    ) -> Sequence[bytes | None]:
        import fastavro

        del kinds
        made: list[bytes | None] = []
        for record in avro_records(self.row, columns):
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, self._schema, record)
            made.append(stream.getvalue())
        return made


def avro_records(row: lt.RowType, columns: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Rows as records to be written."""
    names = row.names
    writers = [_writer(each.type) for each in row.fields]
    values = [columns.column(index).to_pylist() for index in range(len(names))]
    for cells in zip(*values, strict=True):
        yield {name: write(cell) for name, write, cell in zip(names, writers, cells, strict=True)}
