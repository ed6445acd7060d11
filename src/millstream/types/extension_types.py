"""The logical types whose values are bytes with a meaning: BITMAP and VARIANT.

What it is: Flink's types for sets of integers of 32 bits, and for values of JSON.  A column holds
the bytes that ``types/bitmaps.py`` and ``types/variants.py`` write, one form for each value, so
that equal values are equal bytes: they can be keys, be compared, and be kept in state like BYTES.

What it is not: the bytes, or the functions (``expressions/functions/bitmap.py``,
``expressions/functions/variant.py``).

Read next: ``types/bitmaps.py``, ``types/variants.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millstream.types.logical_types import LogicalType
from millstream.types.type_roots import TypeRoot

__all__ = ["BitmapType", "VariantType", "has_extension"]


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
    """Whether values of the type are such bytes, or hold some."""
    return isinstance(type_, BitmapType | VariantType) or any(map(has_extension, type_.children))
