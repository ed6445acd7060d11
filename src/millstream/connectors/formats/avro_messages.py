"""Avro records in messages: read one by one by fastavro, and plain ones by column, all at once.

A message is the bare record of its schema.  That of rows of logical types is derived as Flink does:
fields by position, a union with null where a column is nullable, times as numbers, decimals as
bytes.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.connectors.formats.avro_format import (
    arrow_schema_of_avro,
    avro_records,
    avro_schema_of,
    parsed_avro_schema,
    value_reader,
)
from millstream.connectors.formats.file_format import columns_of, type_of_schema
from millstream.connectors.formats.row_format import (
    INSERT,
    RowDecoder,
    RowEncoder,
    arrow_schema,
    named_values,
)
from millstream.connectors.formats.texts import INTEGER_BITS
from millstream.contracts.serialization import DeserializationSchema, SerializationSchema
from millstream.types import logical_types as lt
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.connectors.formats.file_format import SchemaLike
    from millstream.types.types import TypeInformation

    Integers = NDArray[np.int64]


def decoded(message: bytes, schema: Any, owner: str, reader: Any = None) -> dict[str, Any]:
    """Return the one Avro record that a message holds in its binary form.

    Args:
        message: its bytes.
        schema: as ``parsed_avro_schema`` gives it.
        owner: whose schema it is, for the error.
        reader: the schema that the record is converted to; None: none.

    Raises:
        ValueError: it is none, or bytes follow it.
    """
    import fastavro
    from fastavro.read import SchemaResolutionError

    stream = io.BytesIO(message)
    try:
        record: Any = fastavro.schemaless_reader(stream, schema, reader)
    except SchemaResolutionError as error:
        reason = f"the schema of its writer does not fit the reader's schema: {error}"
        raise ValueError(reason) from error
    except (EOFError, IndexError, KeyError, StopIteration, TypeError) as error:
        reason = f"it is not an Avro record of the {owner}: {error!r}"
        raise ValueError(reason) from error
    if stream.read(1):
        reason = "it has bytes after the Avro record"
        raise ValueError(reason)
    return dict(record)


class AvroRowDeserializationSchema(DeserializationSchema):
    """Messages that hold one Avro record each, in its binary form.

    Args:
        avro_schema_string: the schema, as JSON.
        type_info: the row type; None takes that of the schema.  A schema with fields that no row
            type describes (unions of several types, records within themselves, UUIDs) gives
            dicts of an untyped stream then.
    """

    def __init__(self, avro_schema_string: str, type_info: SchemaLike | None = None) -> None:
        self._parsed: Any = parsed_avro_schema(avro_schema_string)
        given = arrow_schema_of_avro(self._parsed) if type_info is None else type_info
        self._type = None if given is None else type_of_schema(given)

    @property
    def produced_type(self) -> TypeInformation:
        """The row type, if there is one, else untyped."""
        return self._type or Types.PICKLED_BYTE_ARRAY()

    def deserialize(self, message: bytes) -> object:
        record = self._decode(message)
        if self._type is None:
            return record
        columns = columns_of(self._type)
        batch = pa.RecordBatch.from_pylist([record], schema=columns)
        return self._type.from_arrow(batch)[0]

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        if self._type is None:
            return None
        try:
            records = list(map(self._decode, messages))
            return pa.RecordBatch.from_pylist(records, schema=columns_of(self._type))
        except (ValueError, TypeError, pa.ArrowException):
            return None

    def _decode(self, message: bytes) -> dict[str, Any]:
        return decoded(message, self._parsed, "schema")


class AvroRowSerializationSchema(SerializationSchema):
    """Records in Avro's binary form; ``avro_schema_string`` is the schema, as JSON.

    Values go into the schema's fields by name; those of rows without names by position.
    """

    def __init__(self, avro_schema_string: str) -> None:
        self._parsed: Any = parsed_avro_schema(avro_schema_string)
        self._fields: list[str] = [each["name"] for each in self._parsed["fields"]]

    def serialize(self, element: object) -> bytes:
        """One record; raises ValueError if it does not fit the schema."""
        import fastavro

        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, self._parsed, self._record(element))
        return stream.getvalue()

    def _record(self, element: object) -> Mapping[str, object]:
        record = named_values(element)
        if self._fields[: len(record)] == list(record):
            return record
        if list(record) != [f"f{index}" for index in range(len(record))]:
            return record
        if len(record) != len(self._fields):
            reason = f"it has {len(record)} fields, the Avro schema {len(self._fields)}"
            raise ValueError(reason)
        return dict(zip(self._fields, record.values(), strict=True))


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
        self._schema = avro_schema_of(row, legacy=legacy, logical=False)
        self._fields: list[tuple[str, Callable[[Any], Any]]] | None = None
        self._blocks = MessageBlocks(row)

    def columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        return self._blocks.read(messages)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made of closures."""
        return self.__dict__ | {"_fields": None}

    def decode(self, message: bytes | None) -> list[tuple[int, Sequence[Any]]]:
        if message is None:
            return []
        if self._fields is None:
            self._fields = [(each.name, value_reader(each.type)) for each in self.row.fields]
        record = decoded(message, self._schema, "table")
        return [(INSERT, [read(record[name]) for name, read in self._fields])]


class AvroRowEncoder(RowEncoder):
    """One record per message; arguments as of the decoder."""

    def __init__(self, row: lt.RowType, *, legacy: bool = True) -> None:
        super().__init__(row)
        self._schema = avro_schema_of(row, legacy=legacy, logical=False)

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


# -- many messages at once -------------------------------------------------------------------------


#: Fewer messages are read sooner one by one.
_FEW: Final = 64
_LONG_BYTES: Final = 10
_SHIFT: Final = 7
_WORD: Final = 8
_WHOLE: Final = (lt.TinyIntType, lt.SmallIntType, lt.IntType, lt.BigIntType)
_TIMES: Final = (lt.DateType, lt.TimeType, lt.TimestampType, lt.LocalZonedTimestampType)


class _UnreadableError(Exception):
    """A message is not what is read here."""


class MessageBlocks:
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
