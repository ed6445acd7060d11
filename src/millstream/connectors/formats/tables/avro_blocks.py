"""Avro records of flat tables, many messages at once.

What it is: the binary form read field by field of all messages side by side, by numpy: where each
message stands is an array, which moves on as far as its value is long.  If a message is anything
but a record of the table, there is no answer, and all are read one by one by ``fastavro``.
What it is not: a reader of arrays, maps and rows.

Read next: ``connectors/formats/tables/avro_rows.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.connectors.formats.tables.codec import arrow_schema
from millstream.connectors.formats.tables.texts import INTEGER_BITS
from millstream.types.logical_types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from millstream.types.logical_types import LogicalType, RowType

    Integers = NDArray[np.int64]

__all__ = ["AvroBlocks"]

#: Fewer messages are read sooner one by one.
_FEW: Final = 64
_LONG_BYTES: Final = 10
_SHIFT: Final = 7
_WORD: Final = 8
_WHOLE: Final = (TinyIntType, SmallIntType, IntType, BigIntType)
_TIMES: Final = (DateType, TimeType, TimestampType, LocalZonedTimestampType)


class _OddError(Exception):
    """A message is not what is read here."""


class AvroBlocks:
    """Reads blocks of messages.

    Args:
        row: the table.
    """

    def __init__(self, row: RowType) -> None:
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
        except (_OddError, pa.ArrowException, OverflowError):
            return None
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Block:
    """Messages behind each other, and how far each was read."""

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
            raise _OddError

    def require_ends(self) -> None:
        """Raise unless all of each message was read."""
        if (self._at != self._ends).any():
            raise _OddError

    def longs(self, places: Integers) -> Integers:
        """The next whole number of some messages."""
        found = np.zeros(len(places), np.uint64)
        going = np.arange(len(places))
        for step in range(_LONG_BYTES):
            at = self._at[places[going]]
            if (at >= self._ends[places[going]]).any():
                raise _OddError
            byte = self.bytes[at]
            if step == _LONG_BYTES - 1 and (byte > 1).any():
                raise _OddError
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
            raise _OddError
        begins = self._at[places]
        if (sizes > self._ends[places] - begins).any():
            raise _OddError
        self._at[places] += sizes
        return begins


def _column(block: _Block, kind: LogicalType, arrow: pa.DataType) -> pa.Array:
    places: Integers = np.arange(len(block))
    if kind.is_nullable:
        branch = block.longs(places)
        if ((branch != 0) & (branch != 1)).any():
            raise _OddError
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


def _whole(block: _Block, places: Integers, kind: LogicalType, arrow: pa.DataType) -> pa.Array:
    values = block.longs(places)
    least = -(1 << (INTEGER_BITS[type(kind)] - 1))
    if len(values) and (values.min() < least or values.max() > -(least + 1)):
        raise _OddError
    return _filled(block, places, values).cast(arrow)


def _time(block: _Block, places: Integers, kind: LogicalType, arrow: pa.DataType) -> pa.Array:
    del kind
    width = pa.int32() if arrow.bit_width < pa.int64().bit_width else pa.int64()
    return _filled(block, places, block.longs(places)).cast(width).view(arrow)


def _fixed(block: _Block, places: Integers, dtype: str) -> pa.Array:
    size = np.dtype(dtype).itemsize
    begins = block.skipped(places, np.full(len(places), size))
    raw = block.bytes[begins[:, None] + np.arange(size)]
    return _filled(block, places, np.ascontiguousarray(raw).view(dtype).reshape(-1))


def _real(block: _Block, places: Integers, kind: LogicalType, arrow: pa.DataType) -> pa.Array:
    del arrow
    return _fixed(block, places, "<f4" if isinstance(kind, FloatType) else "<f8")


def _boolean(block: _Block, places: Integers, kind: LogicalType, arrow: pa.DataType) -> pa.Array:
    del kind
    values = block.bytes[block.skipped(places, np.ones(len(places), np.int64))]
    if (values > 1).any():
        raise _OddError
    return _filled(block, places, values.astype(np.bool_)).cast(arrow)


def _sized(block: _Block, places: Integers) -> tuple[Integers, Integers]:
    """Where bytes begin, and how many they are."""
    sizes = block.longs(places)
    return block.skipped(places, sizes), sizes


def _text(block: _Block, places: Integers, kind: LogicalType, arrow: pa.DataType) -> pa.Array:
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


def _decimal(block: _Block, places: Integers, kind: LogicalType, arrow: pa.DataType) -> pa.Array:
    assert isinstance(kind, DecimalType)  # noqa: S101 - of the table below
    begins, sizes = _sized(block, places)
    if len(sizes) and (sizes.max() > _WORD or sizes.min() < 1):
        raise _OddError
    values = np.where(block.bytes[begins] > 0x7F, -1, 0).astype(np.int64)  # noqa: PLR2004 - the sign
    for step in range(int(sizes.max(initial=0))):
        more = sizes > step
        values[more] = (values[more] << 8) | block.bytes[begins[more] + step]
    most = min(10**kind.precision - 1, 2**63 - 1)
    if len(values) and (values.max() > most or values.min() < -most):
        raise _OddError
    words = np.zeros((len(block), 2), np.int64)
    words[places] = np.stack([values, values >> 63], axis=1)
    there = pa.array(~_others(block, places)).buffers()[1]
    return pa.Array.from_buffers(arrow, len(block), [there, pa.py_buffer(words)])


_READ: Final[dict[type, Callable[[_Block, Integers, Any, pa.DataType], pa.Array]]] = {
    **dict.fromkeys(_WHOLE, _whole),
    **dict.fromkeys(_TIMES, _time),
    **dict.fromkeys((FloatType, DoubleType), _real),
    **dict.fromkeys((CharType, VarCharType, BinaryType, VarBinaryType), _text),
    BooleanType: _boolean,
    DecimalType: _decimal,
}
