"""Lists of packed rows as one value of state.

What it is: the count, the lengths, 4 bytes each and little-endian, and the rows.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["packed_list", "unpacked_list"]

_COUNT: Final = struct.Struct("<I")
_SHORT: Final = 8


def packed_list(rows: Sequence[bytes]) -> bytes:
    """Return the rows as one value."""
    count = len(rows)
    if count <= _SHORT:  # numpy takes longer to begin with
        return struct.pack(f"<{count + 1}I", count, *map(len, rows)) + b"".join(rows)
    lengths = np.fromiter(map(len, rows), "<u4", count)
    return b"".join([_COUNT.pack(count), lengths.tobytes(), *rows])


def unpacked_list(packed: bytes) -> list[bytes]:
    """Return the rows of a value."""
    (count,) = _COUNT.unpack_from(packed)
    lengths = struct.unpack_from(f"<{count}I", packed, _COUNT.size)
    rows, at = [], _COUNT.size * (count + 1)
    for length in lengths:
        rows.append(packed[at : at + length])
        at += length
    return rows
