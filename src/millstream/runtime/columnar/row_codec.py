"""Rows as bytes: what state keeps of rows, packed and unpacked for whole columns at once.

What it is: one ``bytes`` per row, equal for equal rows, so that rows can be keys of state and be
compared without being read.

Layout: the nulls, a bit per column, lowest first; then the columns of fixed width, little-endian as
Arrow has them, zero where null; then the lengths of the others, 4 bytes each; then these.  Lists,
maps and rows within rows are written as ``state/key_codec.py`` writes keys.

What it is not: versioned; the sections of state that hold packed rows say their columns.

Read next: ``state/packed_state.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.state.key_codec import decode_key, encode_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["RowCodec"]

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

    # Packing.

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
            _binary(head.view(np.uint8), self._head.itemsize, count), *parts, b""
        ).to_pylist()
        return whole

    def _pack_nulls(self, columns: Sequence[pa.Array], head: NDArray[Any]) -> None:
        for index, column in enumerate(columns):
            if column.null_count:
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                head["nulls"][:, index >> 3] |= nulls.astype(np.uint8) << (index & 7)

    # Unpacking.

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


def _binary(data: NDArray[np.uint8], width: int, count: int) -> pa.Array:
    """Bytes of equal length as a column."""
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
