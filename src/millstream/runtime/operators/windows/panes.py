"""Panes: the pieces that the edges of windows cut time into.

What it is: the arithmetic of panes and windows of one assigner, both numbered in order of time.
No window edge lies within a pane, so a pane belongs to a window as a whole or not at all, and a
record is kept once, in its pane, however many windows overlap.  There are at most two panes per
slide: windows of 10 s that begin every 4 s are cut where one begins and where one ends, at 0, 2, 4,
6 s..., and for tumbling windows the pane is the window.

What it is not: state (``chunks.py``) or the combination of panes to windows
(``pane_windows.py``).

Read next: ``columnar.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.functions.windows import FixedEventTimeWindows

__all__ = ["Panes"]


class Panes:
    """Panes and windows by number; all times are milliseconds.

    Window ``k`` begins at ``offset + k * slide`` with pane ``k * per_slide`` and has ``per_window``
    panes.  Where windows leave gaps, every odd pane is a gap and belongs to no window.
    """

    __slots__ = ("_offset", "_rest", "_size", "_slide", "per_slide", "per_window")

    def __init__(self, assigner: FixedEventTimeWindows) -> None:
        """Take size, slide and offset of the assigner."""
        self._size, self._slide, self._offset = assigner.size, assigner.slide, assigner.offset
        self._rest = self._size % self._slide
        #: Panes from the start of one window to that of the next.
        self.per_slide = 2 if self._rest else 1
        self.per_window = self._size // self._slide * self.per_slide + (1 if self._rest else 0)

    # Panes.

    def numbers(self, timestamps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the pane of each timestamp."""
        whole, rest = np.divmod(timestamps - self._offset, self._slide)
        if not self._rest:
            return whole
        return whole * 2 + (rest >= self._rest)

    def starts(self, panes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first timestamp of each pane."""
        if not self._rest:
            return panes * self._slide + self._offset
        return (panes >> 1) * self._slide + (panes & 1) * self._rest + self._offset

    def last_timestamp(self, pane: int) -> int:
        """Return the last timestamp of the pane."""
        pane += 1
        if not self._rest:
            return pane * self._slide + self._offset - 1
        return (pane >> 1) * self._slide + (pane & 1) * self._rest + self._offset - 1

    def of_timestamp(self, timestamp: int) -> int:
        """Return the pane that the timestamp is in."""
        whole, rest = divmod(timestamp - self._offset, self._slide)
        return whole * 2 + (rest >= self._rest) if self._rest else whole

    # Windows.

    def first_windows(self, panes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first window that each pane belongs to."""
        found: NDArray[np.int64] = -((self.per_window - 1 - panes) // self.per_slide)
        return found

    def last_windows(self, panes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the last window that each pane belongs to; of a gap, one before the first."""
        found: NDArray[np.int64] = panes // self.per_slide
        return found

    def window_starts(self, windows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first timestamp of each window."""
        return windows * self._slide + self._offset

    def max_timestamps(self, windows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the last timestamp of each window."""
        return windows * self._slide + (self._offset + self._size - 1)

    def window_end(self, window: int) -> int:
        """Return the first timestamp behind a window."""
        return window * self._slide + self._offset + self._size

    def passed(self, watermark: int) -> int:
        """Return the last window whose last timestamp the watermark has reached."""
        return (watermark - self._offset - self._size + 1) // self._slide
