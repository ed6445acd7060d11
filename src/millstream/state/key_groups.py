"""Key groups: which part of the keyed state a key belongs to, and which subtask holds it.

What it is: a hash of keys that is the same in every process and on every machine, for single keys
and for whole Arrow columns, and the ranges of key groups per subtask, as in Flink.

What it is not: a place for state.  Key groups only say where state goes.

Read next: ``state/keyed.py``.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.state.key_codec import cache_key, decode_key, encode_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.state.key_codec import CacheKey

__all__ = [
    "decode_key",
    "encode_key",
    "key_group",
    "key_group_of_cache_key",
    "key_group_range",
    "key_groups_of_array",
    "key_groups_of_ints",
    "subtask_of",
]

_MASK: Final = 2**64 - 1
_FIRST_FACTOR: Final = 0xFF51AFD7ED558CCD
_SECOND_FACTOR: Final = 0xC4CEB9FE1A85EC53
_SHIFT: Final = np.uint64(33)
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1


def key_group(key: object, max_parallelism: int) -> int:
    """The key group of ``key``, in ``range(max_parallelism)``."""
    return key_group_of_cache_key(cache_key(key), max_parallelism)


def key_group_of_cache_key(key: CacheKey, max_parallelism: int) -> int:
    """The key group of a key in the form that ``cache_key`` gives."""
    if type(key) is int:
        if _SMALLEST <= key <= _LARGEST:
            mixed = key & _MASK
            mixed = (mixed ^ (mixed >> 33)) * _FIRST_FACTOR & _MASK
            mixed = (mixed ^ (mixed >> 33)) * _SECOND_FACTOR & _MASK
            return (mixed ^ (mixed >> 33)) % max_parallelism
        return zlib.crc32(encode_key(key)) % max_parallelism
    encoded = key if type(key) is bytes else encode_key(key)
    return zlib.crc32(encoded) % max_parallelism


def key_groups_of_ints(keys: NDArray[np.int64], max_parallelism: int) -> NDArray[np.int32]:
    """The key groups of an array of 64-bit integers; agrees with ``key_group``."""
    mixed = keys.astype(np.int64, copy=False).view(np.uint64)
    mixed = (mixed ^ (mixed >> _SHIFT)) * np.uint64(_FIRST_FACTOR)
    mixed = (mixed ^ (mixed >> _SHIFT)) * np.uint64(_SECOND_FACTOR)
    mixed = mixed ^ (mixed >> _SHIFT)
    return (mixed % np.uint64(max_parallelism)).astype(np.int32)


def key_groups_of_array(
    keys: pa.Array | pa.ChunkedArray, max_parallelism: int
) -> NDArray[np.int32]:
    """The key groups of a column of scalars; agrees with ``key_group`` of ``keys.to_pylist()``."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    kind = keys.type
    if pa.types.is_integer(kind) and keys.null_count == 0 and kind != pa.uint64():
        return key_groups_of_ints(keys.to_numpy(zero_copy_only=False), max_parallelism)
    if not pa.types.is_dictionary(kind):
        try:
            keys = keys.dictionary_encode("encode")
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # nested: one by one
            groups = [key_group(key, max_parallelism) for key in keys.to_pylist()]
            return np.array(groups, dtype=np.int32)
    groups = [key_group(key, max_parallelism) for key in keys.dictionary.to_pylist()]
    if keys.null_count:  # a dictionary that was given has its nulls among the indices
        groups.append(key_group(None, max_parallelism))
        keys = keys.indices.fill_null(len(groups) - 1)
    else:
        keys = keys.indices
    found: NDArray[np.int32] = np.array(groups, dtype=np.int32)[keys.to_numpy(zero_copy_only=False)]
    return found


def subtask_of(group: int, max_parallelism: int, parallelism: int) -> int:
    """The subtask that holds key group ``group``."""
    return group * parallelism // max_parallelism


def key_group_range(subtask: int, max_parallelism: int, parallelism: int) -> tuple[int, int]:
    """The first key group of ``subtask`` and the last one + 1."""
    first = -(-subtask * max_parallelism // parallelism)
    stop = -(-(subtask + 1) * max_parallelism // parallelism)
    return first, stop
