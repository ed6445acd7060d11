"""Bitmaps as bytes: Roaring bitmaps in the portable format that Flink writes too.

A set has **one** form in bytes: each container is a list of runs only if that is smaller than the
list or the bits of its values.  Roaring libraries, Java's as well, leave it to a bitmap's history
which of two equally large forms it has.  The library is loaded by the first bitmap.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.types.logical_types import LogicalType
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyroaring import AbstractBitMap, BitMap, FrozenBitMap


_WORD: Final = 0xFFFFFFFF
_HALF: Final = 1 << 31
#: The first two bytes of a bitmap some of whose containers are runs.
_WITH_RUNS: Final = 0x303B
#: From so many containers on, the positions of the containers stand before them.
_LEAST_WITH_OFFSETS: Final = 4
#: How long the text of a bitmap becomes before it ends in ``...``, as in Java's library.
_TEXT_LIMIT: Final = 0x80000
_MIN_SIZE: Final = 8


def unsigned(value: int) -> int:
    """The number without a sign of the same 32 bits: 4294967295 for -1."""
    return value & _WORD


def signed(value: int) -> int:
    """The INT of the same 32 bits: -1 for 4294967295."""
    return value - (_WORD + 1) if value >= _HALF else value


def is_bitmap(value: Any) -> bool:
    """Return whether a value of a program is a set of pyroaring's, which it then has loaded."""
    library = sys.modules.get("pyroaring")
    return library is not None and isinstance(value, library.AbstractBitMap)


def bitmap_of_values(values: Iterable[int]) -> BitMap:
    """The set of these integers, with or without a sign."""
    from pyroaring import BitMap

    return BitMap(array("I", map(unsigned, values)))


def bitmap_of_bytes(data: bytes) -> BitMap:
    """The set of bytes that ``bitmap_bytes`` has written."""
    from pyroaring import BitMap

    return BitMap.deserialize(data)


def checked_bitmap(data: bytes) -> BitMap:
    """The set of bytes that anybody has written in the portable format.

    Raises:
        ValueError: they are not of that format.
    """
    from pyroaring import BitMap

    if len(data) < _MIN_SIZE:
        message = f"{len(data)} bytes are no bitmap in the portable format of Roaring bitmaps"
        raise ValueError(message)
    try:
        return BitMap.deserialize(data)
    except ValueError as error:
        message = f"these bytes are no bitmap in the portable format of Roaring bitmaps: {error}"
        raise ValueError(message) from error


def frozen_bitmap(data: bytes) -> FrozenBitMap:
    """The set as programs see it: it can be a key, and cannot be changed."""
    from pyroaring import FrozenBitMap

    return FrozenBitMap.deserialize(data)


def bitmap_bytes(bitmap: AbstractBitMap) -> bytes:
    """The bytes of a set, always the same for the same set."""
    from pyroaring import BitMap

    compact = BitMap(bitmap)
    compact.run_optimize()
    data: bytes = compact.serialize()
    loose = list(_loose_runs(data))
    for key in loose:
        chunk = BitMap()
        chunk.add_range(key << 16, (key + 1) << 16)
        values = compact & chunk
        compact.difference_update(values)
        compact.update(values.to_array())
    if loose:
        data = compact.serialize()
    return data


def _loose_runs(data: bytes) -> Iterator[int]:
    """The upper halves of containers that are runs though a list would not be larger."""
    cookie, last = struct.unpack_from("<HH", data)
    if cookie != _WITH_RUNS:
        return
    count = last + 1
    at = 4
    flags = data[at : at + (count + 7) // 8]
    at += len(flags)
    pairs = struct.unpack_from(f"<{2 * count}H", data, at)
    at += 4 * count
    at += 4 * count if count >= _LEAST_WITH_OFFSETS else 0
    for number, (key, less_one) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        cardinality = less_one + 1
        if flags[number >> 3] >> (number & 7) & 1:
            (runs,) = struct.unpack_from("<H", data, at)
            size = 2 + 4 * runs
            if 2 * cardinality <= size:
                yield key
        else:
            size = min(2 * cardinality, 8192)
        at += size


def bitmap_text(bitmap: AbstractBitMap | bytes) -> str:
    """``{1,2,4294967295}``: the numbers without a sign, in order; cut where it gets too long."""
    parts: list[str] = []
    length = 1
    for value in bitmap_of_bytes(bitmap) if isinstance(bitmap, bytes) else bitmap:
        text = str(value)
        if parts and length > _TEXT_LIMIT:
            parts.append("...")
            break
        parts.append(text)
        length += len(text) + 1
    return f"{{{','.join(parts)}}}"


@dataclass(frozen=True, init=False, repr=False)
class BitmapType(LogicalType):
    """A set of integers of 32 bits, compressed."""

    root = TypeRoot.BITMAP

    def to_arrow(self) -> pa.DataType:
        return pa.binary()


@dataclass(frozen=True, init=False, repr=False)
class VariantType(LogicalType):
    """A value that knows its own type, of those that JSON has."""

    root = TypeRoot.VARIANT

    def to_arrow(self) -> pa.DataType:
        return pa.binary()


def has_extension(type_: LogicalType) -> bool:
    """Return whether values of the type are such bytes, or hold some."""
    return isinstance(type_, BitmapType | VariantType) or any(map(has_extension, type_.children))
