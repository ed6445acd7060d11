"""The aggregates of bitmaps: BITMAP_BUILD_AGG, BITMAP_AND_AGG, BITMAP_OR_AGG, BITMAP_XOR_AGG.

What it is: kernels that go through the rows of a key one by one; the work of a row is done on whole
bitmaps.  Each comes twice: for the bitmap, and for its cardinality (``BITMAP_OR_CARDINALITY_AGG``).

State is how many bitmaps there are, and bitmaps: one where nothing is taken back.  Where rows are
taken back, it has to be known how often each integer is there (but for XOR, which undoes itself).
These counts lie across the bitmaps: the first holds the integers whose count has the lowest bit
set, the second those with the next bit, the last those whose count is negative, as in two's
complement.  So a bitmap is added to the counts of all its integers by a few operations on whole
bitmaps, however many integers it has.

What it is not: the bytes of bitmaps (``types/bitmaps.py``).

Read next: ``runtime/columnar/collecting_aggregates.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyroaring import BitMap

from millstream.runtime.columnar.collecting_aggregates import RowKernel
from millstream.types.bitmaps import bitmap_bytes, bitmap_of_bytes, unsigned

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BITMAP_KERNELS", "BitmapCounts", "BitmapKernel"]


class BitmapCounts:
    """How often each integer is there: bit by bit, as bitmaps."""

    __slots__ = ("planes",)

    def __init__(self, planes: list[BitMap]) -> None:
        """Take the bitmaps, which are changed.

        Args:
            planes: of the bits of the counts, the lowest first; the last is of their signs.
        """
        self.planes = planes or [BitMap()]

    def add(self, bitmap: BitMap) -> None:
        """Count each integer of a bitmap once more."""
        self._step(bitmap, lambda plane, carry: plane & carry)

    def take_back(self, bitmap: BitMap) -> None:
        """Count each integer of a bitmap once less."""
        self._step(bitmap, lambda plane, borrow: borrow - plane)

    def _step(self, bitmap: BitMap, rest: Callable[[BitMap, BitMap], BitMap]) -> None:
        planes = self.planes
        planes.append(BitMap(planes[-1]))  # one more bit, so that no sign is lost
        for plane in planes:
            if not bitmap:
                break
            following = rest(plane, bitmap)
            plane.symmetric_difference_update(bitmap)
            bitmap = following
        while len(planes) > 1 and planes[-1] == planes[-2]:
            planes.pop()

    def positive(self) -> BitMap:
        """The integers that are there at least once."""
        return BitMap.union(BitMap(), *self.planes[:-1]) - self.planes[-1]

    def equal_to(self, count: int) -> BitMap:
        """The integers that are there just so often; ``count`` is above zero."""
        *bits, sign = self.planes
        if count.bit_length() > len(bits):
            return BitMap()
        found = BitMap(bits[count.bit_length() - 1])
        for number, plane in enumerate(bits):
            if count >> number & 1:
                found &= plane
            else:
                found -= plane
        return found - sign


class _Bitmaps:
    """What is kept of a key."""

    __slots__ = ("bitmaps", "count")

    def __init__(self, count: int, bitmaps: list[BitMap]) -> None:
        self.count = count
        self.bitmaps = bitmaps


class BitmapKernel(RowKernel):
    """What the aggregates of bitmaps have in common; they leave out NULL."""

    def __init__(self, result: pa.DataType, *, retracts: bool) -> None:
        """Take the type of the result (bytes, or a number for the cardinality).

        Args:
            result: the type.
            retracts: whether rows may be taken back.
        """
        state = pa.struct([("count", pa.int64()), ("bitmaps", pa.list_(pa.binary()))])
        super().__init__(state, result)
        self._retracts = retracts
        self._is_cardinality = pa.types.is_integer(result)

    @property
    def fresh(self) -> list[Any]:
        return [{"count": 0, "bitmaps": []}]

    def decoded(self, stored: Any) -> Any:
        return _Bitmaps(stored["count"], [bitmap_of_bytes(each) for each in stored["bitmaps"]])

    def encoded(self, value: Any) -> Any:
        return {"count": value.count, "bitmaps": [bitmap_bytes(each) for each in value.bitmaps]}

    def add(self, value: Any, weight: int, row: Any) -> None:
        given = row[0]
        if given is None:
            return
        value.count += weight
        self.change(value, weight, self.bitmap_of(given))

    def bitmap_of(self, given: Any) -> BitMap:
        """Return the bitmap of an argument."""
        return bitmap_of_bytes(given)

    @abstractmethod
    def change(self, value: Any, weight: int, bitmap: BitMap) -> None:
        """Add a bitmap, or take it back; ``value.count`` is with it already."""

    @abstractmethod
    def bitmap(self, value: Any) -> BitMap | None:
        """Return the result; None: NULL."""

    def result_of(self, value: Any) -> Any:
        found = self.bitmap(value)
        if found is None:
            return None
        return len(found) if self._is_cardinality else bitmap_bytes(found)

    @staticmethod
    def counted(value: Any, weight: int, bitmap: BitMap) -> None:
        """Count the integers of a bitmap."""
        counts = BitmapCounts(value.bitmaps)
        if weight > 0:
            counts.add(bitmap)
        else:
            counts.take_back(bitmap)
        value.bitmaps = counts.planes


class BitmapOr(BitmapKernel):
    """BITMAP_OR_AGG: NULL only if there is no bitmap."""

    def change(self, value: Any, weight: int, bitmap: BitMap) -> None:
        if self._retracts:
            self.counted(value, weight, bitmap)
        elif value.bitmaps:
            value.bitmaps[0] |= bitmap
        else:
            value.bitmaps = [bitmap]

    def bitmap(self, value: Any) -> BitMap | None:
        if value.count <= 0:
            return None
        return BitmapCounts(value.bitmaps).positive() if self._retracts else value.bitmaps[0]


class BitmapBuild(BitmapOr):
    """BITMAP_BUILD_AGG, of integers: NULL if there is none."""

    def bitmap_of(self, given: Any) -> BitMap:
        return BitMap((unsigned(given),))

    def bitmap(self, value: Any) -> BitMap | None:
        if not value.bitmaps:
            return None
        found = BitmapCounts(value.bitmaps).positive() if self._retracts else value.bitmaps[0]
        return found or None


class BitmapAnd(BitmapKernel):
    """BITMAP_AND_AGG: NULL only if there is no bitmap."""

    def change(self, value: Any, weight: int, bitmap: BitMap) -> None:
        if self._retracts:
            self.counted(value, weight, bitmap)
        elif value.bitmaps:
            value.bitmaps[0] &= bitmap
        else:
            value.bitmaps = [bitmap]

    def bitmap(self, value: Any) -> BitMap | None:
        if value.count <= 0:
            return None
        if self._retracts:
            return BitmapCounts(value.bitmaps).equal_to(value.count)
        found: BitMap = value.bitmaps[0]
        return found


class BitmapXor(BitmapKernel):
    """BITMAP_XOR_AGG, which takes a bitmap back as it adds it: NULL only if there is none."""

    def change(self, value: Any, weight: int, bitmap: BitMap) -> None:
        del weight
        if value.bitmaps:
            value.bitmaps[0] ^= bitmap
        else:
            value.bitmaps = [bitmap]

    def bitmap(self, value: Any) -> BitMap | None:
        return value.bitmaps[0] if value.count > 0 else None


#: By the word in the name of the function.
BITMAP_KERNELS: Final[dict[str, type[BitmapKernel]]] = {
    "BUILD": BitmapBuild,
    "AND": BitmapAnd,
    "OR": BitmapOr,
    "XOR": BitmapXor,
}
