"""Which keys have changed, where keys are numbers: what a state has to write.

What it is: a list of all changes, eight bytes each, which is sorted and rid of repetitions when
somebody asks.  A set costs two to three misses of the processor's cache per change when it has tens
of thousands of keys: a tenth of a microsecond each, of one for all that a short function does.

What it is not: for other keys than numbers of 64 bits; those are in a set.

Read next: ``state/value_state.py``.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["ChangedNumbers"]

#: Up to so many keys are sorted whenever somebody asks how many there are.
_FEW: Final = 4_096
#: So many changes are listed before they are sorted unasked.
_MOST_LISTED: Final = 65_536
_SOME: Final = 200
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1


class ChangedNumbers:
    """Numbers of 64 bits, each once.

    Invariant: what is held is ``_sorted``, in the order of unsigned numbers, without repetitions,
    and ``_listed``, which may repeat itself and what is sorted.
    """

    __slots__ = ("_listed", "_sorted", "note")

    def __init__(self) -> None:
        """Hold nothing."""
        self._listed = array("q")
        self._sorted: NDArray[np.uint64] = np.empty(0, np.uint64)
        #: Adds a number; an OverflowError says that it has more than 64 bits.  Stays the same.
        self.note: Callable[[int], None] = self._listed.append

    @property
    def roughly(self) -> int:
        """How many there are; of many no less than half of them."""
        if len(self._sorted) < _FEW or len(self._listed) >= len(self._sorted):
            self._sort()
        return len(self._sorted)

    def __len__(self) -> int:
        """Return how many there are."""
        self._sort()
        return len(self._sorted)

    def keep_short(self) -> None:
        """Take no more memory than a few times what single numbers would."""
        if len(self._listed) > max(_MOST_LISTED, len(self._sorted)):
            self._sort()

    def some(self) -> list[int]:
        """A few hundred of them, from all over."""
        self._sort()
        step = max(1, len(self._sorted) // _SOME)
        found: list[int] = self._sorted[::step].view(np.int64).tolist()
        return found

    def count(self, numbers: list[int]) -> int:
        """How many of some numbers, of any size, are among these."""
        self._sort()
        fitting = [number for number in numbers if _SMALLEST <= number <= _LARGEST]
        wanted = np.array(fitting, np.int64).view(np.uint64)
        return int(np.isin(wanted, self._sorted).sum())

    def take(self, most: int | None = None) -> NDArray[np.int64]:
        """Remove all or at most so many, in the order of unsigned numbers."""
        if most is None or len(self._sorted) < most:
            self._sort()
        stop = len(self._sorted) if most is None else most
        taken, self._sorted = self._sorted[:stop], self._sorted[stop:]
        return taken.view(np.int64)

    def clear(self) -> None:
        """Remove all."""
        del self._listed[:]
        self._sorted = self._sorted[:0]

    def _sort(self) -> None:
        if not self._listed:
            return
        every = np.concatenate([self._sorted, np.array(self._listed).view(np.uint64)])
        del self._listed[:]  # the list stays the same
        every.sort()
        is_first = np.empty(len(every), np.bool_)
        is_first[0] = True
        np.not_equal(every[1:], every[:-1], out=is_first[1:])
        self._sorted = every[is_first]
