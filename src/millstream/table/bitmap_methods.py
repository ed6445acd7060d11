"""Methods of expressions that are bitmaps, or become some.

What it is: PyFlink's names over functions and aggregates of SQL, whose reference says what they do.
What it is not: the functions (``expressions/functions/bitmap.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.table.expression_nodes import BaseExpression

if TYPE_CHECKING:
    from typing import Self

__all__ = ["BitmapMethods"]


class BitmapMethods(BaseExpression):
    """What can be made of bitmaps, and of what bitmaps are made of."""

    def bitmap_build(self) -> Self:
        """The bitmap of the integers of an array."""
        return self._call("BITMAP_BUILD")

    def bitmap_from_bytes(self) -> Self:
        """The bitmap of bytes in the portable format of Roaring bitmaps."""
        return self._call("BITMAP_FROM_BYTES")

    def bitmap_and(self, bitmap2: Any) -> Self:
        """What is in both."""
        return self._call("BITMAP_AND", bitmap2)

    def bitmap_andnot(self, bitmap2: Any) -> Self:
        """What is not in the other one."""
        return self._call("BITMAP_ANDNOT", bitmap2)

    def bitmap_or(self, bitmap2: Any) -> Self:
        """What is in either."""
        return self._call("BITMAP_OR", bitmap2)

    def bitmap_xor(self, bitmap2: Any) -> Self:
        """What is in just one of the two."""
        return self._call("BITMAP_XOR", bitmap2)

    def bitmap_cardinality(self) -> Self:
        """How many integers it has."""
        return self._call("BITMAP_CARDINALITY")

    def bitmap_to_array(self) -> Self:
        """Its integers as an array."""
        return self._call("BITMAP_TO_ARRAY")

    def bitmap_to_bytes(self) -> Self:
        """Its bytes in the portable format of Roaring bitmaps."""
        return self._call("BITMAP_TO_BYTES")

    def bitmap_to_string(self) -> Self:
        """Its integers as text, without a sign."""
        return self._call("BITMAP_TO_STRING")

    def bitmap_build_agg(self) -> Self:
        """The bitmap of all integers."""
        return self._call("BITMAP_BUILD_AGG")

    def bitmap_build_cardinality_agg(self) -> Self:
        """How many different integers there are."""
        return self._call("BITMAP_BUILD_CARDINALITY_AGG")

    def bitmap_and_agg(self) -> Self:
        """What is in all bitmaps."""
        return self._call("BITMAP_AND_AGG")

    def bitmap_and_cardinality_agg(self) -> Self:
        """How many integers are in all bitmaps."""
        return self._call("BITMAP_AND_CARDINALITY_AGG")

    def bitmap_or_agg(self) -> Self:
        """What is in one of the bitmaps."""
        return self._call("BITMAP_OR_AGG")

    def bitmap_or_cardinality_agg(self) -> Self:
        """How many integers are in one of the bitmaps."""
        return self._call("BITMAP_OR_CARDINALITY_AGG")

    def bitmap_xor_agg(self) -> Self:
        """What is in an odd number of the bitmaps."""
        return self._call("BITMAP_XOR_AGG")

    def bitmap_xor_cardinality_agg(self) -> Self:
        """How many integers are in an odd number of the bitmaps."""
        return self._call("BITMAP_XOR_CARDINALITY_AGG")
