"""Operations on Arrow arrays that pyarrow lacks: decimals as integers, lengths, sizes, times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import UserFunctionError
from millstream.expressions.casts import sized_bytes, text_of_length
from millstream.types.logical_types import BinaryType, CharType, VarBinaryType, VarCharType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.types.logical_types import LogicalType, RowType


_FITS: Final = 2**62


def integers_of(column: pa.Array) -> NDArray[Any]:
    """Return the digits of decimals as integers, 0 where null; int64 if all fit, else objects."""
    data = np.frombuffer(column.buffers()[1], np.int64)
    halves = data[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)
    low, high = halves[:, 0], halves[:, 1]
    nulls = None
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        low, high = np.where(nulls, 0, low), np.where(nulls, 0, high)
    if bool(((low >> 63) == high).all()):
        return low.copy()
    whole: NDArray[Any] = high.astype(object) * 2**64 + low.view(np.uint64).astype(object)
    return whole


def decimals_of(integers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return integers as the digits of decimals; null where they have more digits than the type."""
    bound = 10**kind.precision
    if integers.dtype != object:
        halves = np.stack([integers, integers >> 63], axis=1).astype(np.int64, copy=False)
        overflows = np.abs(integers) >= bound if bound < _FITS else None
        return _from_halves(np.ascontiguousarray(halves), kind, overflows)
    overflows = np.array([not -bound < each < bound for each in integers], dtype=np.bool_)
    kept = np.where(overflows, 0, integers)
    data = b"".join([each.to_bytes(16, "little", signed=True) for each in map(int, kept)])
    return _from_halves(np.frombuffer(data, np.int64), kind, overflows)


def _from_halves(
    halves: NDArray[np.int64], kind: pa.DataType, nulls: NDArray[np.bool_] | None
) -> pa.Array:
    validity = None
    if nulls is not None and nulls.any():
        validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    count = halves.size // 2
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(halves)])


def divided_half_up(
    dividends: NDArray[Any], divisors: NDArray[np.int64], digits: int
) -> NDArray[Any]:
    """Return quotients with so many more digits than the dividends, rounded half away from zero.

    Args:
        dividends: integers.
        divisors: positive integers.
        digits: how many digits more (or fewer, if negative) the quotients are to have.
    """
    factor = 10 ** abs(digits)
    if dividends.dtype != object:
        largest = int(np.abs(dividends).max(initial=0)), int(divisors.max(initial=1))
        if 2 * max(largest) * factor >= _FITS:
            dividends = dividends.astype(object)
    if dividends.dtype == object:
        divisors = divisors.astype(object)
    sizes = np.abs(dividends)
    sizes, divisors = (sizes * factor, divisors) if digits >= 0 else (sizes, divisors * factor)
    quotients = (2 * sizes + divisors) // (2 * divisors)
    signed: NDArray[Any] = np.where(dividends < 0, -quotients, quotients)
    return signed


def limited(table: RowType) -> tuple[tuple[int, LogicalType], ...]:
    """The positions and types of the columns of a length."""
    unlimited = {VarCharType().length, VarBinaryType().length}
    return tuple(
        (position, each.type)
        for position, each in enumerate(table.fields)
        if isinstance(each.type, CharType | VarCharType | BinaryType | VarBinaryType)
        and each.type.length not in unlimited
    )


def of_length(column: pa.Array, kind: LogicalType) -> pa.Array:
    """Values cut to the length of a type, and CHAR and BINARY filled up with blanks and zeros."""
    if isinstance(kind, CharType | VarCharType):
        return text_of_length(column, kind)
    assert isinstance(kind, BinaryType | VarBinaryType)  # noqa: S101 - there are no others
    sized = sized_bytes(kind)
    values = column.to_pylist()
    return pa.array([None if each is None else sized(each) for each in values], column.type)


#: Bytes of the values without a fixed width, in one batch.
MOST_BYTES: Final = 128 << 20


def byte_runs(
    *parts: tuple[Sequence[pa.Array], NDArray[np.int64]],
) -> Iterator[slice]:
    """Yield runs of rows, each of at least one row, with no more bytes than a batch may have.

    Args:
        parts: columns, and of which of their rows the rows are made; below 0: of none.
    """
    count = len(parts[0][1])
    sizes: NDArray[np.int64] | None = None
    for columns, positions in parts:
        found = _row_sizes(columns)
        if found is None or not len(found) or int(found.max()) * count <= MOST_BYTES // len(parts):
            continue
        taken = np.where(positions < 0, 0, found[positions])
        sizes = taken if sizes is None else sizes + taken
    if sizes is None:
        if count:
            yield slice(0, count)
        return
    yield from runs_of(sizes)


def runs_of(sizes: NDArray[np.int64], most: int | None = None) -> Iterator[slice]:
    """Yield runs of rows whose sizes add up to at most ``most``, each of at least one row.

    None: as many bytes as a batch may have.
    """
    most = MOST_BYTES if most is None else most
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(start, stop)
        start = stop


def _row_sizes(columns: Sequence[pa.Array]) -> NDArray[np.int64] | None:
    """The bytes of each row in columns without a fixed width; None: there are none."""
    found: NDArray[np.int64] | None = None
    for column in columns:
        sizes = _sizes(column)
        if sizes is not None:
            found = sizes if found is None else found + sizes
    return found


def _sizes(column: pa.Array) -> NDArray[np.int64] | None:
    """The bytes of each value; None: all have the same."""
    kind, types = column.type, pa.types
    if types.is_string(kind) or types.is_binary(kind):
        offsets = np.frombuffer(column.buffers()[1], np.int32)
        return np.diff(offsets[column.offset : column.offset + len(column) + 1]).astype(np.int64)
    if types.is_struct(kind):
        return _row_sizes([column.field(index) for index in range(kind.num_fields)])
    if types.is_map(kind):
        return _of_lists(column, [column.keys, column.items])
    if types.is_list(kind):
        return _of_lists(column, [column.values])
    return None


def _of_lists(column: pa.Array, children: list[pa.Array]) -> NDArray[np.int64]:
    offsets = column.offsets.to_numpy().astype(np.int64)
    width = sum(_width(child.type) for child in children)
    found: NDArray[np.int64] = np.diff(offsets) * width
    sizes = _row_sizes(children)
    if sizes is not None:
        ends = np.concatenate([[0], np.cumsum(sizes)])
        found = found + ends[offsets[1:]] - ends[offsets[:-1]]
    return found


def _width(kind: pa.DataType) -> int:
    return kind.bit_width // 8 + 1 if pa.types.is_primitive(kind) else 4


#: Of a millisecond, by the unit of a column.
_PARTS: Final = {"s": 1, "ms": 1, "us": 1_000, "ns": 1_000_000}


def milliseconds_of(column: pa.Array, name: str) -> NDArray[np.int64]:
    """Return a column of TIMESTAMP in milliseconds since 1970, cut towards the past.

    Raises:
        UserFunctionError: a value is NULL; ``name`` says whose.
    """
    if column.null_count:
        message = f"{name}: the time attribute of a row is NULL"
        raise UserFunctionError(message)
    numbers: NDArray[np.int64] = column.view(pa.int64()).to_numpy()
    unit = column.type.unit
    if unit == "s":
        return numbers * 1_000
    return numbers // _PARTS[unit]


def timestamps_of(milliseconds: NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """Return milliseconds as a column of that type of TIMESTAMP."""
    return (
        pa.array(milliseconds, pa.int64())
        .view(pa.timestamp("ms"))
        .cast(pa.timestamp(kind.unit))
        .view(kind)
    )


def changed_rows(after: pa.Array, before: pa.Array) -> NDArray[np.bool_]:
    """Return where two columns of one type and length differ."""
    kind = after.type
    if pa.types.is_nested(kind):
        pairs = zip(after.to_pylist(), before.to_pylist(), strict=True)
        return np.fromiter((one != other for one, other in pairs), np.bool_, len(after))
    differ = pc.not_equal(after, before)
    if differ.null_count:
        differ = pc.if_else(
            pc.or_(after.is_null(), before.is_null()),
            pc.not_equal(after.is_null(), before.is_null()),
            differ,
        )
    found: NDArray[np.bool_] = differ.to_numpy(zero_copy_only=False)
    return found
