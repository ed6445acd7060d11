"""Buckets of packed maps as the store has them: one read, one entry added, or many read at once.

What it is: the layout of ``PackedMaps`` (``state/packed_state.py``), which tells it.  A map with
few entries is one bucket; most are used as the bytes that they are: an entry is put behind the
others, and those of all keys of a batch are read as columns.

What it is not: a dictionary; what is changed otherwise becomes a ``PackedMap``.

Read next: ``state/packed_state.py``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

__all__ = [
    "Entries",
    "appended",
    "count_of",
    "decoded_bucket",
    "encoded_bucket",
    "extended",
    "has_name",
    "joined_bucket",
    "numbers_at",
    "only_value",
    "split_bucket",
]

_HEAD: Final = struct.Struct("<BII")
_LENGTH: Final = struct.Struct("<I")
#: A bucket with one entry: its head, and the lengths of name and value.
_ONE: Final = struct.Struct("<BIIII")
_TWO: Final = struct.Struct("<BIIIIII")
#: Up to so many entries are packed one by one.
_FEW: Final = 32


def encoded_bucket(level: int, total: int, bucket: dict[bytes, bytes]) -> bytes:
    """Return doublings, entries of all buckets, and the entries of this one as bytes."""
    return joined_bucket(bucket, bucket.values(), level, total)


def joined_bucket(
    names: Collection[bytes], values: Collection[bytes], level: int = 0, total: int = -1
) -> bytes:
    """Return the bucket of these names and values; by default it is the only one."""
    count = len(names)
    total = count if total < 0 else total
    if count <= _FEW:  # numpy takes longer to begin with
        head = struct.pack(
            f"<BII{2 * count}I", level, total, count, *map(len, names), *map(len, values)
        )
    else:
        lengths = np.fromiter(chain(map(len, names), map(len, values)), "<u4", 2 * count)
        head = _HEAD.pack(level, total, count) + lengths.tobytes()
    return b"".join([head, *names, *values])


def split_bucket(stored: bytes) -> tuple[int, int, list[bytes], list[bytes]]:
    """Return doublings, entries of all buckets, and the names and values of this one."""
    level, total, count = _HEAD.unpack_from(stored)
    at = _HEAD.size + 8 * count
    if count > 1:
        first, last = stored[_HEAD.size : _HEAD.size + 4], stored[at - 4 : at]
        if stored[_HEAD.size : at] == first * count + last * count:
            (name,), (value,) = _LENGTH.unpack(first), _LENGTH.unpack(last)
            if name and value:
                behind = at + count * name
                names = [stored[begin : begin + name] for begin in range(at, behind, name)]
                ends = range(behind, behind + count * value, value)
                return level, total, names, [stored[begin : begin + value] for begin in ends]
    lengths = struct.unpack_from(f"<{2 * count}I", stored, _HEAD.size)
    parts = []
    for length in lengths:
        parts.append(stored[at : at + length])
        at += length
    return level, total, parts[:count], parts[count:]


def has_name(stored: bytes, name: bytes) -> bool | None:
    """Whether a bucket has an entry of that name; None: to know it, it has to be split."""
    if name not in stored:
        return False
    _, _, count = _HEAD.unpack_from(stored)
    width = len(name)
    begin = _HEAD.size + 4 * count
    if not width or stored[_HEAD.size : begin] != _LENGTH.pack(width) * count:
        return None
    begin += 4 * count
    at = stored.find(name, begin, begin + count * width)
    if at < 0:
        return False
    return True if (at - begin) % width == 0 else None


def decoded_bucket(stored: bytes) -> tuple[int, int, dict[bytes, bytes]]:
    """Return doublings, entries of all buckets, and the entries of this one."""
    level, total, names, values = split_bucket(stored)
    return level, total, dict(zip(names, values, strict=True))


def count_of(stored: bytes) -> int:
    """Return how many entries a bucket has."""
    count: int = _LENGTH.unpack_from(stored, 5)[0]
    return count


def appended(stored: bytes | None, name: bytes, value: bytes) -> bytes:
    """Return the only bucket of a map with one entry more, whose name was not there."""
    if stored is None:
        return _ONE.pack(0, 1, 1, len(name), len(value)) + name + value
    _, _, count = _HEAD.unpack_from(stored)
    if count == 1:
        _, _, _, one, other = _ONE.unpack_from(stored)
        names = _ONE.size + one
        head = _TWO.pack(0, 2, 2, one, len(name), other, len(value))
        return b"".join([head, stored[_ONE.size : names], name, stored[names:], value])
    begin = _HEAD.size
    names = begin + 8 * count
    values = names + sum(struct.unpack_from(f"<{count}I", stored, begin))
    parts = [
        _HEAD.pack(0, count + 1, count + 1),
        stored[begin : begin + 4 * count],
        _LENGTH.pack(len(name)),
        stored[begin + 4 * count : names],
        _LENGTH.pack(len(value)),
        stored[names:values],
        name,
        stored[values:],
        value,
    ]
    return b"".join(parts)


def extended(stored: bytes | None, added: Sequence[bytes], value: bytes) -> bytes:
    """Return the only bucket of a map with more entries of one value, whose names are new."""
    if len(added) == 1:
        return appended(stored, added[0], value)
    names, values = ([], []) if stored is None else split_bucket(stored)[2:]
    return joined_bucket([*names, *added], [*values, *([value] * len(added))])


def only_value(stored: bytes, name: bytes) -> bytes | None:
    """Return the value of the only entry of a map, None if it has others, or another name."""
    level, total, count, length = struct.unpack_from("<BIII", stored)
    if count != 1 or total != 1 or level or length != len(name):
        return None
    end = _ONE.size + length
    return stored[end:] if stored[_ONE.size : end] == name else None


@dataclass(frozen=True)
class Entries:
    """The entries of many buckets, in order: where their names and values are in ``data``."""

    data: NDArray[np.uint8]
    #: How many entries each bucket has.
    counts: NDArray[np.int64]
    #: Where each bucket begins.
    begins: NDArray[np.int64]
    #: Per entry: its bucket, and where its name and its value begin and how long they are.
    bucket: NDArray[np.int64]
    names: NDArray[np.int64]
    name_lengths: NDArray[np.int64]
    values: NDArray[np.int64]
    value_lengths: NDArray[np.int64]

    @classmethod
    def of(cls, stored: Sequence[bytes]) -> Entries:
        """Read buckets."""
        count = len(stored)
        data = np.frombuffer(b"".join(stored), np.uint8)
        sizes = np.fromiter(map(len, stored), np.int64, count)
        begins = np.cumsum(sizes) - sizes
        counts = numbers_at(data, begins + 5, "<u4")
        bucket = np.repeat(np.arange(count), counts)
        firsts = np.cumsum(counts) - counts
        within = np.arange(len(bucket)) - firsts[bucket]
        at = begins[bucket] + _HEAD.size + 4 * within
        name_lengths = numbers_at(data, at, "<u4")
        value_lengths = numbers_at(data, at + 4 * counts[bucket], "<u4")
        name_ends = np.concatenate([[0], np.cumsum(name_lengths)])
        value_ends = np.concatenate([[0], np.cumsum(value_lengths)])
        all_names = name_ends[firsts + counts] - name_ends[firsts]
        content = begins + _HEAD.size + 8 * counts
        names = (content - name_ends[firsts])[bucket] + name_ends[:-1]
        values = (content + all_names - value_ends[firsts])[bucket] + value_ends[:-1]
        return cls(data, counts, begins, bucket, names, name_lengths, values, value_lengths)

    def name(self, entry: int) -> bytes:
        """Return the name of an entry."""
        at = self.names[entry]
        return self.data[at : at + self.name_lengths[entry]].tobytes()


def numbers_at(data: NDArray[np.uint8], at: NDArray[np.int64], kind: str) -> NDArray[np.int64]:
    """Return numbers that stand anywhere in ``data``."""
    width = np.dtype(kind).itemsize
    found: NDArray[np.int64] = (
        data[at[:, None] + np.arange(width)].reshape(-1).view(kind).astype(np.int64)
    )
    return found
