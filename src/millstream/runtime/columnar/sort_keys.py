"""Sort keys: values as bytes that are in the order of the values.

What it is: what Top-N and OVER order rows by, made of whole columns.  Bytes of one row are never a
prefix of those of another, so something may stand behind them.

Layout, per column: a byte that says where nulls stand (0 or 2; 1 for a value); then integers,
dates and times big-endian with the sign bit turned, floats the same by their bits, decimals as 16
bytes; strings and bytes with 0 as 0 255 and two zeros at the end.  Of descending columns the bytes
of values are inverted.

What it is not: for nested types, which have no order.

Read next: ``runtime/operators/table/top_n.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["sort_keys"]


class _SortColumn(Protocol):
    @property
    def index(self) -> int: ...

    @property
    def descending(self) -> bool: ...

    @property
    def has_nulls_first(self) -> bool: ...


def sort_keys(columns: Sequence[pa.Array], order: Sequence[_SortColumn]) -> list[bytes]:
    """Return the sort key of each row.

    Args:
        columns: of the rows.
        order: which of them count, and how.

    Raises:
        ProgramError: values of a column have no order.
    """
    parts: list[pa.Array] = []
    for each in order:
        column = columns[each.index]
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            parts += _varying(column, each)
        else:
            parts.append(_fixed(column, each))
    if len(parts) == 1:
        single: list[bytes] = parts[0].to_pylist()
        return single
    joined: list[bytes] = pc.binary_join_element_wise(*parts, b"").to_pylist()
    return joined


def _marks(column: pa.Array, how: _SortColumn) -> NDArray[np.uint8]:
    marks = np.ones(len(column), dtype=np.uint8)
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        marks[nulls] = 0 if how.has_nulls_first else 2
    return marks


def _fixed(column: pa.Array, how: _SortColumn) -> pa.Array:
    data = _ordered_bytes(column)
    if how.descending:
        data = ~data
    marks = _marks(column, how)
    data[marks != 1] = 0
    whole = np.concatenate([marks[:, None], data], axis=1)
    return _binary(np.ascontiguousarray(whole))


def _binary(data: NDArray[np.uint8]) -> pa.Array:
    count, width = data.shape
    ends = pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), count, [None, ends, pa.py_buffer(data)])


def _ordered_bytes(column: pa.Array) -> NDArray[np.uint8]:
    """The values, big-endian, as unsigned numbers in their order; anything where null."""
    types, kind = pa.types, column.type
    if types.is_boolean(kind):
        bits: NDArray[np.uint8] = column.cast(pa.uint8()).fill_null(0).to_numpy()
        return bits[:, None].copy()
    if types.is_decimal(kind):
        raw = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, 16)
        data = raw[column.offset : column.offset + len(column), ::-1].copy()
        data[:, 0] ^= 0x80
        return data
    if not types.is_primitive(kind):
        message = f"values of type {kind} have no order"
        raise ProgramError(message)
    width = kind.bit_width // 8
    if types.is_floating(kind):
        return _ordered_floats(column, width)
    plain = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}[width]
    numbers = np.frombuffer(column.buffers()[1], plain)
    numbers = numbers[column.offset : column.offset + len(column)]
    data = numbers.astype(f">i{width}").view(np.uint8).reshape(-1, width).copy()
    data[:, 0] ^= 0x80
    return data


def _ordered_floats(column: pa.Array, width: int) -> NDArray[np.uint8]:
    numbers = column.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # there is one zero
    numbers = np.where(np.isnan(numbers), np.nan, numbers).astype(f"<f{width}")
    bits = numbers.view(f"<u{width}")
    sign = bits >> (8 * width - 1)
    turned = np.where(sign == 1, ~bits, bits | (1 << (8 * width - 1)))
    return turned.astype(f">u{width}").view(np.uint8).reshape(-1, width).copy()


def _varying(column: pa.Array, how: _SortColumn) -> list[pa.Array]:
    marks = _marks(column, how)
    values = column.cast(pa.binary()).fill_null(b"")
    if _has_zeros(values):
        escaped: list[Any] = [value.replace(b"\0", b"\0\xff") for value in values.to_pylist()]
        values = pa.array(escaped, pa.binary())
    end = b"\0\0"
    if how.descending:
        values, end = _inverted(values), b"\xff\xff"
    ends = pa.array([end], pa.binary()).take(pa.array(np.zeros(len(column), np.int64)))
    return [_binary(marks[:, None]), values, ends]


def _bytes_of(values: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return bounds, content[bounds[0] : bounds[-1]]


def _has_zeros(values: pa.Array) -> bool:
    return bool(len(values)) and not bool(_bytes_of(values)[1].all())


def _inverted(values: pa.Array) -> pa.Array:
    if not len(values):
        return values
    bounds, content = _bytes_of(values)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(bounds - bounds[0])), pa.py_buffer(~content)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)
