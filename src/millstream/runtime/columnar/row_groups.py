"""Rows of a batch grouped by key, and the names of keys in state.

A key is looked up by what ``cache_key`` (``state/key_codec.py``) makes of its value, or of the
tuple of its values where it has several columns, so state can be read without the program.  Dates,
times and intervals count as the integers that their columns hold.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.state.chunks import KEY, key_groups_of_column
from millstream.state.key_codec import (
    INT_TAG,
    cache_key,
    decode_key,
    encode_key,
    key_group_of_cache_key,
    key_groups_of_ints,
    uncache_key,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext
    from millstream.runtime.operators.base import KeyExtractor
    from millstream.state.key_codec import CacheKey

__all__ = [
    "KEY",
    "RowGroups",
    "codes_of",
    "columns_of_keys",
    "combined_codes",
    "encoded_keys",
    "group_codes",
    "group_rows",
    "groups_of_codes",
    "key_columns",
    "key_groups_of_column",
    "key_groups_of_rows",
    "key_values",
    "keys_from_column",
    "stable_order",
]


_LENGTH: Final = struct.Struct(">I")
#: Codes below this are sorted by counting.
_SMALL: Final = 1 << 16
_MOST_CODES: Final = 1 << 62
#: Of columns that are keyed by the integers they hold.
_INTEGERS: Final = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The rows of a batch by key; group ``g`` has ``order[starts[g]:starts[g] + counts[g]]``.

    Within a group rows are as they came; groups are in the order of their first rows.
    """

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    #: What each group's key is looked up by.
    keys: list[CacheKey]

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, group: int) -> NDArray[np.int64]:
        """Return the rows of a group."""
        start = int(self.starts[group])
        return self.order[start : start + int(self.counts[group])]

    @property
    def first_rows(self) -> NDArray[np.int64]:
        """The first row of each group."""
        return self.order[self.starts]

    @property
    def group_of_sorted(self) -> NDArray[np.int64]:
        """The group of each row, in the order of ``order``."""
        return np.repeat(np.arange(len(self.keys)), self.counts)

    @property
    def group_of_row(self) -> NDArray[np.int64]:
        """The group of each row, as rows came."""
        found = np.empty(len(self.order), dtype=np.int64)
        found[self.order] = self.group_of_sorted
        return found


def group_rows(columns: Sequence[pa.Array], count: int) -> RowGroups:
    """Group rows by key columns.

    Args:
        columns: the key; none: all rows have the same.
        count: number of rows, at least one.
    """
    if not columns:
        order = np.arange(count)
        first, every = np.zeros(1, dtype=np.int64), np.array([count])
        return RowGroups(order, first, every, [encode_key(())])
    parts = [codes_of(column) for column in columns]
    codes, distinct = combined_codes([part for part, _ in parts], [len(each) for _, each in parts])
    order, starts, counts = groups_of_codes(codes, distinct)
    # In the order of their first rows: a dictionary's codes are so already, combined ones are not.
    if len(columns) > 1:
        order, starts, counts = _by_first_row(order, starts, counts)
    firsts = order[starts]
    keys = _names([(part[firsts], values) for part, values in parts])
    return RowGroups(order, starts, counts, keys)


def group_codes(
    parts: Sequence[tuple[NDArray[np.int64], int]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Group rows by codes of columns, without a name for each group.

    Args:
        parts: per column the code of each row and how many codes there are, at least one column.

    Returns:
        The order of rows, first position and number of rows per group; groups are in the order of
        their first rows.
    """
    codes, bound = combined_codes([part for part, _ in parts], [size for _, size in parts])
    if bound > _SMALL**2:  # too many for sorting by counting; hashing is quicker than comparing
        found = pa.array(codes).dictionary_encode()
        codes, bound = found.indices.to_numpy().astype(np.int64), len(found.dictionary)
    return _by_first_row(*groups_of_codes(codes, bound))


def _by_first_row(
    order: NDArray[np.int64], starts: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    sequence = np.argsort(order[starts])
    starts, counts = starts[sequence], counts[sequence]
    begins = np.cumsum(counts) - counts
    moved = np.arange(len(order)) + np.repeat(starts - begins, counts)
    return order[moved], begins, counts


def codes_of(column: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Number the values of a column in the order in which they come; null is a value.

    Returns:
        The number of each row's value, and the values.
    """
    column = _as_keyed(column)
    if pa.types.is_nested(column.type):
        return _codes_of_nested(column)
    encoded = column.dictionary_encode("encode")
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary


def _codes_of_nested(column: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    known: dict[bytes, int] = {}
    firsts: list[int] = []
    codes = np.empty(len(column), dtype=np.int64)
    for position, value in enumerate(column.to_pylist()):
        name = encode_key(value)
        code = known.setdefault(name, len(known))
        if code == len(firsts):
            firsts.append(position)
        codes[position] = code
    return codes, column.take(pa.array(firsts, pa.int64()))


def _as_keyed(column: pa.Array) -> pa.Array:
    """The column with dates, times and intervals as the integers that they are."""
    kind = column.type
    if pa.types.is_temporal(kind):
        return column.view(_INTEGERS[kind.bit_width])
    if pa.types.is_dictionary(kind):
        return _as_keyed(column.dictionary_decode())
    return column


def combined_codes(
    parts: Sequence[NDArray[np.int64]], sizes: Sequence[int]
) -> tuple[NDArray[np.int64], int]:
    """Number combinations of codes.

    Args:
        parts: codes of each column.
        sizes: how many codes each column has.

    Returns:
        A code per row, and a bound above all of them.
    """
    codes, bound = parts[0], sizes[0]
    for part, size in zip(parts[1:], sizes[1:], strict=True):
        if bound > _MOST_CODES // max(size, 1):
            _, codes = np.unique(codes, return_inverse=True)
            bound = int(codes.max(initial=-1)) + 1
        codes, bound = codes * size + part, bound * size
    return codes, bound


def groups_of_codes(
    codes: NDArray[np.int64], bound: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Bring equal codes together: order of rows, first position and number of rows per code."""
    order = stable_order(codes, bound)
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    counts = np.diff(np.append(starts, len(codes)))
    return order, starts, counts


def stable_order(codes: NDArray[np.int64], bound: int) -> NDArray[np.int64]:
    """``argsort`` that keeps the order of equal codes; ``bound`` is above all of them."""
    if bound <= _SMALL:  # numpy counts 16 bits, several times faster than it sorts 64
        return codes.astype(np.uint16).argsort(kind="stable")
    if bound <= _SMALL**2:
        order = (codes & (_SMALL - 1)).astype(np.uint16).argsort(kind="stable")
        high = (codes >> 16).astype(np.uint16)
        return order[high[order].argsort(kind="stable")]
    return codes.argsort(kind="stable")


def key_values(values: pa.Array) -> list[Any]:
    """The values of a key column as Python values that can be encoded."""
    if pa.types.is_integer(values.type) and not values.null_count:
        plain: list[Any] = values.to_numpy().tolist()
        return plain
    found: list[Any] = values.to_pylist()
    return found


def _names(parts: list[tuple[NDArray[np.int64], pa.Array]]) -> list[CacheKey]:
    """Return what keys are looked up by.

    Args:
        parts: per column the code of each key, and the values of the codes.
    """
    if len(parts) == 1:
        codes, values = parts[0]
        return [cache_key(value) for value in key_values(values.take(pa.array(codes)))]
    columns: list[list[bytes]] = []
    for codes, values in parts:
        encoded = [encode_key(value) for value in key_values(values)]
        packed = [_LENGTH.pack(len(each)) + each for each in encoded]
        columns.append([packed[code] for code in codes.tolist()])
    return [b"t" + b"".join(key) for key in zip(*columns, strict=True)]


def encoded_keys(columns: Sequence[pa.Array]) -> list[bytes]:
    """Return ``encode_key`` of the value of each row, or of the tuple of several columns."""
    if len(columns) == 1:
        column = columns[0]
        if not column.null_count:
            if pa.types.is_integer(column.type):
                packed = np.empty(len(column), np.dtype([("tag", "u1"), ("value", ">i8")]))
                packed["tag"], packed["value"] = INT_TAG, column.to_numpy()
                found: list[bytes] = packed.view(f"V{packed.dtype.itemsize}").tolist()
                return found
            if pa.types.is_string(column.type):
                parts = (pa.scalar(b"s"), column.cast(pa.binary()), pa.scalar(b""))
                texts: list[bytes] = pc.binary_join_element_wise(*parts).to_pylist()
                return texts
        return [encode_key(value) for value in column.to_pylist()]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return [encode_key(row) for row in rows]


def columns_of_keys(keys: Sequence[CacheKey], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the key columns of keys as ``group_rows`` names them."""
    values: list[Any] = [uncache_key(key) for key in keys]
    parts = [values]
    if len(kinds) != 1:
        parts = [[value[at] for value in values] for at in range(len(kinds))]
    columns = []
    for part, kind in zip(parts, kinds, strict=True):
        if pa.types.is_temporal(kind):
            columns.append(pa.array(part, _INTEGERS[kind.bit_width]).view(kind))
        else:
            columns.append(pa.array(part, kind))
    return columns


def key_groups_of_rows(
    columns: Sequence[pa.Array], count: int, max_parallelism: int
) -> NDArray[np.int64]:
    """The key group of each row; the one under which its key's state is kept."""
    if len(columns) == 1:
        column = _as_keyed(columns[0])
        if pa.types.is_integer(column.type) and not column.null_count:
            numbers = column.to_numpy().astype(np.int64)
            return key_groups_of_ints(numbers, max_parallelism).astype(np.int64)
    if not count:
        return np.empty(0, dtype=np.int64)
    groups = group_rows(columns, count)
    of_key = [key_group_of_cache_key(key, max_parallelism) for key in groups.keys]
    return np.array(of_key, dtype=np.int64)[groups.group_of_row]


_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1


def keys_from_column(keys: pa.Array) -> list[Any]:
    """Return the keys of a key column as Python values."""
    values: list[Any] = keys.to_pylist()
    return [decode_key(key) for key in values] if pa.types.is_binary(keys.type) else values


def key_columns(
    extractor: KeyExtractor, batch: Batch, context: OperatorContext
) -> list[tuple[pa.Array | None, pa.Array]]:
    """Return (positions, keys) per form of the key column; positions None: all records.

    Args:
        extractor: takes the keys out of the batch.
        batch: the records.
        context: the operator that messages name.

    Raises:
        UserFunctionError: the key selector raised.
    """
    column = extractor.column(batch)
    if column is not None and column.null_count == 0:
        if pa.types.is_integer(column.type) and column.type != pa.uint64():
            return [(None, column.cast(pa.int64()))]
        if pa.types.is_string(column.type):
            return [(None, column)]
    keys = extractor.keys(batch, context)
    kinds = set(map(type, keys))
    if kinds == {str}:
        return [(None, pa.array(keys, pa.string()))]
    if kinds == {int}:
        try:
            return [(None, pa.array(keys, pa.int64()))]
        except (OverflowError, pa.ArrowInvalid):
            pass
    return _mixed_keys(keys)


def _mixed_keys(keys: list[Any]) -> list[tuple[pa.Array | None, pa.Array]]:
    """Keys of several types, apart by the form of their column."""
    forms: dict[pa.DataType, tuple[list[int], list[Any]]] = {}
    for position, key in enumerate(map(cache_key, keys)):
        value: object = key
        if type(key) is int and _SMALLEST <= key <= _LARGEST:
            form = pa.int64()
        elif type(key) is str:
            form = pa.string()
        else:
            form, value = pa.binary(), key if type(key) is bytes else encode_key(key)
        positions, values = forms.setdefault(form, ([], []))
        positions.append(position)
        values.append(value)
    if len(forms) == 1:
        form, (_, values) = next(iter(forms.items()))
        return [(None, pa.array(values, form))]
    return [
        (pa.array(positions), pa.array(values, form)) for form, (positions, values) in forms.items()
    ]
