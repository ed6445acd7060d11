"""Rows and sort keys as bytes, packed and unpacked for whole columns at once.

Equal rows have equal bytes, so that rows can be keys of state and compared without being decoded.

Layout of a row: the nulls, a bit per column, lowest first; the columns of fixed width,
little-endian as in Arrow, zero where null; the lengths of the others, 4 bytes each; then these.
Lists, maps and nested rows are written as ``state/key_codec.py`` writes keys.  The bytes of sort
keys are in the order of the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError
from millstream.state.key_codec import decode_key, encode_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_OFFSETS_END: Final = 2**31 - 1


def _fixed_width(kind: pa.DataType) -> int:
    """The bytes of a value as it is packed; 0: it differs from value to value."""
    types = pa.types
    if types.is_boolean(kind):
        return 1
    if types.is_decimal(kind) or types.is_primitive(kind):
        return int(kind.bit_width) // 8
    return 0


class RowCodec:
    """Packs and unpacks rows of certain columns."""

    def __init__(self, schema: pa.Schema) -> None:
        """Take the columns; all rows that come are to have just these types."""
        self.schema = schema
        self._fixed = [(i, _fixed_width(f.type)) for i, f in enumerate(schema)]
        self._fixed = [(index, width) for index, width in self._fixed if width]
        fixed = {index for index, _ in self._fixed}
        self._varying = [index for index in range(len(schema)) if index not in fixed]
        self._null_bytes = (len(schema) + 7) // 8
        fields: list[tuple[str, Any]] = [("nulls", (np.uint8, self._null_bytes))]
        fields += [(f"c{index}", f"V{width}") for index, width in self._fixed]
        if self._varying:
            fields.append(("lengths", ("<i4", len(self._varying))))
        self._head = np.dtype(fields)
        #: Where the first column begins, if it is of fixed width.
        self.first_at = self._null_bytes

    # -- packing ---

    def pack(self, columns: Sequence[pa.Array]) -> list[bytes]:
        """The rows of these columns."""
        count = len(columns[0]) if columns else 0
        if not count:
            return []
        head = np.zeros(count, self._head)
        self._pack_nulls(columns, head)
        for index, width in self._fixed:
            head[f"c{index}"] = _fixed_values(columns[index], width)
        if not self._varying:
            packed: list[bytes] = head.view(f"V{self._head.itemsize}").tolist()
            return packed
        parts = [_varying_values(columns[index]) for index in self._varying]
        lengths = [pc.binary_length(part).to_numpy() for part in parts]
        head["lengths"] = np.stack(lengths, axis=1)
        whole: list[bytes] = pc.binary_join_element_wise(
            _binary(head.view(np.uint8).reshape(count, -1)), *parts, b""
        ).to_pylist()
        return whole

    def _pack_nulls(self, columns: Sequence[pa.Array], head: NDArray[Any]) -> None:
        for index, column in enumerate(columns):
            if column.null_count:
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                head["nulls"][:, index >> 3] |= nulls.astype(np.uint8) << (index & 7)

    # -- unpacking ---

    def unpack(self, rows: Sequence[bytes]) -> list[pa.Array]:
        """The columns of rows."""
        count = len(rows)
        if not count:
            return [pa.array([], field.type) for field in self.schema]
        data = np.frombuffer(b"".join(rows), np.uint8)
        if not self._varying:
            return self._unpacked(data, data.view(self._head), None)
        lengths = np.fromiter(map(len, rows), np.int64, count)
        return self.unpack_at(data, np.cumsum(lengths) - lengths)

    def unpack_at(self, data: NDArray[np.uint8], begins: NDArray[np.int64]) -> list[pa.Array]:
        """The columns of rows that begin anywhere in ``data``."""
        if not len(begins):
            return self.unpack(())
        size = self._head.itemsize
        head = data[begins[:, None] + np.arange(size)].reshape(-1).view(self._head)
        return self._unpacked(data, head, begins if self._varying else None)

    def _unpacked(
        self, data: NDArray[np.uint8], head: NDArray[Any], begins: NDArray[np.int64] | None
    ) -> list[pa.Array]:
        nulls = self._unpack_nulls(head)
        arrays: dict[int, pa.Array] = {}
        for index, _ in self._fixed:
            kind = self.schema.field(index).type
            arrays[index] = _fixed_array(head[f"c{index}"], kind, nulls[index])
        if begins is not None:
            self._unpack_varying(data, begins + self._head.itemsize, head["lengths"], nulls, arrays)
        return [arrays[index] for index in range(len(self.schema))]

    def _unpack_nulls(self, head: NDArray[Any]) -> list[NDArray[np.bool_] | None]:
        bits = head["nulls"]
        seen = np.bitwise_or.reduce(bits, axis=0).tolist()
        return [
            (bits[:, index >> 3] >> (index & 7) & 1).astype(np.bool_)
            if seen[index >> 3] >> (index & 7) & 1
            else None
            for index in range(len(self.schema))
        ]

    def _unpack_varying(
        self,
        data: NDArray[np.uint8],
        begins: NDArray[np.int64],
        lengths: NDArray[np.int32],
        nulls: list[NDArray[np.bool_] | None],
        arrays: dict[int, pa.Array],
    ) -> None:
        for number, index in enumerate(self._varying):
            length = lengths[:, number].astype(np.int64)
            offsets = np.concatenate([[0], np.cumsum(length)])
            if offsets[-1] > _OFFSETS_END:
                message = f"{offsets[-1]} bytes of rows in one batch; the most is {_OFFSETS_END}"
                raise OverflowError(message)
            content = data[np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], length)]
            arrays[index] = _varying_array(
                content, offsets, self.schema.field(index).type, nulls[index]
            )
            begins = begins + length


def _binary(data: NDArray[np.uint8]) -> pa.Array:
    """Return rows of bytes as a column."""
    count, width = data.shape
    offsets = pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(data)])


def _fixed_values(column: pa.Array, width: int) -> NDArray[Any]:
    """The values as raw bytes, zero where null."""
    if pa.types.is_boolean(column.type):
        filled = column.fill_null(False) if column.null_count else column  # noqa: FBT003
        bits: NDArray[Any] = filled.to_numpy(zero_copy_only=False)
        return bits.view("V1")
    raw = np.frombuffer(column.buffers()[1], np.uint8)
    values = raw[column.offset * width : (column.offset + len(column)) * width].view(f"V{width}")
    if not column.null_count:
        return values
    present: NDArray[Any] = np.zeros(len(column), f"V{width}")
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    present[valid] = values[valid]
    return present


def _fixed_array(values: NDArray[Any], kind: pa.DataType, nulls: NDArray[np.bool_] | None) -> Any:
    count = len(values)
    if pa.types.is_boolean(kind):
        return pa.array(np.ascontiguousarray(values).view(np.bool_), mask=nulls)
    data = pa.py_buffer(np.ascontiguousarray(values).view(np.uint8))
    return pa.Array.from_buffers(kind, count, [_validity(nulls), data])


def _validity(nulls: NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))


def _varying_values(column: pa.Array) -> pa.Array:
    """The values as bytes, empty where null."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.binary())
    elif not pa.types.is_binary(kind):
        values = column.to_pylist()
        packed = [None if value is None else encode_key(value) for value in values]
        column = pa.array(packed, pa.binary())
    return column.fill_null(b"") if column.null_count else column


def _varying_array(
    content: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    kind: pa.DataType,
    nulls: NDArray[np.bool_] | None,
) -> pa.Array:
    ends = pa.py_buffer(offsets.astype(np.int32))
    plain = kind if pa.types.is_string(kind) else pa.binary()
    buffers = [_validity(nulls), ends, pa.py_buffer(content)]
    column = pa.Array.from_buffers(plain, len(offsets) - 1, buffers)
    if plain == kind:
        return column
    values = [None if value is None else decode_key(value) for value in column.to_pylist()]
    return pa.array(values, kind)


# -- sort keys ---


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
