"""Buckets of ``PackedMaps`` as stored: one read, one entry added, or many read at once.

Most buckets are used as bytes: an entry is appended to the others, and those of all keys of a batch
are read as columns.  ``state/packed_state.py`` describes the layout.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray


_HEAD: Final = struct.Struct("<BII")
_HEAD_TYPE: Final = np.dtype([("level", "u1"), ("total", "<u4"), ("count", "<u4")])
_NOTHING: Final = _HEAD.pack(0, 0, 0)
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
    """Return whether a bucket has an entry of that name; None: to know it, it has to be split."""
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


def grown(
    stored: Sequence[bytes | None], added: NDArray[np.int64], names: pa.Array, values: pa.Array
) -> list[bytes]:
    """Return the only buckets of maps with more entries, all at once; their names are new.

    Args:
        stored: the buckets, None of no entries.
        added: how many entries come to each, at least one.
        names: of all new entries, bucket by bucket; ``binary`` or ``large_binary``.
        values: of these.
    """
    parts = [_NOTHING if each is None else each for each in stored]
    count = len(parts)
    sizes = np.fromiter(map(len, parts), np.int64, count)
    data = b"".join(parts)
    ends = np.cumsum(sizes)
    begins = ends - sizes
    counts = numbers_at(np.frombuffer(data, np.uint8), begins + 5, "<u4")
    behind_head = begins + _HEAD.size
    content = behind_head + 8 * counts
    split = content + _name_bytes(data, behind_head, counts, ends)
    edges = np.stack([begins, behind_head, behind_head + 4 * counts, content, split], axis=1)
    old = _cut(data, np.append(edges.reshape(-1), len(data)))
    heads = np.zeros(count, _HEAD_TYPE)
    heads["count"] = heads["total"] = counts + added
    firsts = np.append(0, np.cumsum(added))
    new = [_cut(heads.tobytes(), _HEAD.size * np.arange(count + 1))]
    for column in (names, values):
        lengths = pc.binary_length(column).to_numpy().astype("<u4")
        new.append(_cut(lengths.tobytes(), 4 * firsts))
        new.append(
            _cut(_bytes_of(column), np.append(0, np.cumsum(lengths, dtype=np.int64))[firsts])
        )
    pieces = pa.concat_arrays([old, *new])
    each = np.arange(count)
    # The head, then lengths of names and of values, names, values: the old ones, then the new.
    heads_, name_lengths, names_, value_lengths, values_ = (
        5 * count + number * count + each for number in range(5)
    )
    order = [heads_, 5 * each + 1, name_lengths, 5 * each + 2, value_lengths]
    order += [5 * each + 3, names_, 5 * each + 4, values_]
    whole = pieces.take(pa.array(np.stack(order, axis=1).reshape(-1)))
    offsets = np.frombuffer(whole.buffers()[1], np.int64)[:: len(order)]
    found: list[bytes] = pa.Array.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(offsets.copy()), whole.buffers()[2]]
    ).to_pylist()
    return found


def _name_bytes(
    data: bytes, begins: NDArray[np.int64], counts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many bytes the names of each bucket have; their lengths begin at ``begins``."""
    edges = np.stack([begins, begins + 4 * counts], axis=1).reshape(-1)
    cut = _cut(data, np.append(edges, ends[-1:]))
    lengths = cut.take(pa.array(2 * np.arange(len(counts))))
    numbers = np.frombuffer(_bytes_of(lengths), "<u4")
    sums = np.append(0, np.cumsum(numbers, dtype=np.int64))
    behind = np.cumsum(counts)
    found: NDArray[np.int64] = sums[behind] - sums[behind - counts]
    return found


def _cut(data: bytes | pa.Buffer, edges: NDArray[np.int64]) -> pa.Array:
    """Bytes as a column of the pieces between these edges."""
    offsets = pa.py_buffer(np.ascontiguousarray(edges, dtype=np.int64))
    content = pa.py_buffer(data)
    return pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, [None, offsets, content])


def _bytes_of(column: pa.Array) -> pa.Buffer:
    """All values of a binary column without nulls, one behind the other."""
    kind = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, kind)[column.offset : column.offset + len(column) + 1]
    if data is None:
        return pa.py_buffer(b"")
    return data.slice(int(edges[0]), int(edges[-1] - edges[0]))
