"""Rows with their times as one value of state.

What it is: what joins by time keep per key and side: the times, a mark per row, the rows packed.

What it is not: for many rows per key: they are written as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.runtime.operators.table.row_lists import packed_list, unpacked_list

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TimedRows"]

_TIME: Final = np.dtype("<i8")


@dataclass(slots=True)
class TimedRows:
    """Rows of one key, in some order."""

    times: NDArray[np.int64]
    #: What else is known of each row, a byte.
    marks: NDArray[np.uint8]
    rows: list[bytes]

    @classmethod
    def decoded(cls, stored: bytes | None) -> TimedRows:
        """Return what ``encoded`` has made; None: no rows."""
        if stored is None:
            return cls(np.empty(0, np.int64), np.empty(0, np.uint8), [])
        times, marks, *rows = unpacked_list(stored)
        return cls(
            np.frombuffer(times, _TIME).astype(np.int64),
            np.frombuffer(marks, np.uint8).copy(),
            rows,
        )

    def encoded(self) -> bytes | None:
        """Return what is to be stored; None of no rows."""
        if not self.rows:
            return None
        return packed_list([self.times.astype(_TIME).tobytes(), self.marks.tobytes(), *self.rows])

    def __len__(self) -> int:
        return len(self.rows)

    def added(
        self, times: NDArray[np.int64], marks: NDArray[np.uint8], rows: list[bytes]
    ) -> TimedRows:
        """Return these rows and more behind them."""
        return TimedRows(
            np.concatenate([self.times, times]),
            np.concatenate([self.marks, marks]),
            [*self.rows, *rows],
        )

    def chosen(self, mask: NDArray[np.bool_]) -> TimedRows:
        """Return the rows for which ``mask`` is true."""
        if mask.all():
            return self
        rows = list(compress(self.rows, mask.tolist()))
        return TimedRows(self.times[mask], self.marks[mask], rows)
