"""The logical types whose values are bytes with a meaning: BITMAP.

What it is: Flink's type for sets of integers of 32 bits.  A column holds the bytes that
``types/bitmaps.py`` writes, one form for each set, so that equal values are equal bytes: they can
be keys, be compared, and be kept in state like any BYTES.

What it is not: the bytes (``types/bitmaps.py``), or the functions
(``expressions/functions/bitmap.py``).

Read next: ``types/bitmaps.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millstream.types.logical_types import LogicalType
from millstream.types.type_roots import TypeRoot

__all__ = ["BitmapType", "has_extension"]


@dataclass(frozen=True)
class BitmapType(LogicalType):
    """A set of integers of 32 bits, compressed."""

    root = TypeRoot.BITMAP

    def to_arrow(self) -> pa.DataType:
        return pa.binary()


def has_extension(type_: LogicalType) -> bool:
    """Whether values of the type are such bytes, or hold some."""
    return isinstance(type_, BitmapType) or any(map(has_extension, type_.children))
