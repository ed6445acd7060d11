"""Which panes have state, which windows are due, and which panes are over.

What it is: the part of the built-in window operator that does not look at records.  A window fires
when the watermark reaches its last timestamp, if one of its panes has records.  A pane is dropped
when the watermark reaches the last timestamp of its last window + the allowed lateness.

What it is not: the content of panes (``chunks.py``).

Read next: ``runtime/operators/windows/columnar.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from millstream.runtime.operators.windows.panes import Panes

__all__ = ["PaneClock"]

_NEVER: Final = MAX_TIMESTAMP + 1


class PaneClock:
    """The watermark and the panes that have state."""

    __slots__ = ("_lateness", "_next", "_open", "_panes", "watermark")

    def __init__(self, panes: Panes, allowed_lateness: int) -> None:
        """Take the arithmetic and the allowed lateness in milliseconds."""
        self._panes = panes
        self._lateness = allowed_lateness
        self.watermark = MIN_TIMESTAMP
        self._open: set[int] = set()
        #: Invariant: nothing fires and nothing is over before the watermark reaches it.
        self._next = _NEVER

    def restore(self, watermark: int, panes: Iterable[int]) -> None:
        """Start an epoch with the panes that have state."""
        self.watermark = watermark
        self._open = set(panes)
        self._next = self._earliest(self.present)

    @property
    def present(self) -> NDArray[np.int64]:
        """The panes that have state, ascending."""
        return np.array(sorted(self._open), dtype=np.int64)

    @property
    def last_fired(self) -> int:
        """The last window that the watermark has passed."""
        return _clamped(self._panes.passed(self.watermark))

    @property
    def last_closed(self) -> int:
        """The last window that is over: for it, every record is late."""
        return _clamped(self._panes.passed(self.horizon))

    @property
    def horizon(self) -> int:
        """Windows whose last timestamp is not above this are over."""
        if self.watermark == MAX_TIMESTAMP:
            return MAX_TIMESTAMP
        return max(self.watermark - self._lateness, MIN_TIMESTAMP)

    def open(self, panes: list[int]) -> None:
        """Note that these panes have state."""
        fresh = [pane for pane in panes if pane not in self._open]
        if fresh:
            self._open.update(fresh)
            self._next = min(self._next, self._earliest(np.array(fresh, dtype=np.int64)))

    def advance(self, watermark: int) -> tuple[NDArray[np.int64], list[int]]:
        """Advance; return the windows that fire and the panes that are over, in order of time.

        The results of the windows are to be taken before the panes are dropped.
        """
        before = self.last_fired
        self.watermark = watermark
        if watermark < self._next:
            return np.zeros(0, dtype=np.int64), []
        panes = self.present
        lasts = self._panes.last_windows(panes)
        windows = self._union(
            np.maximum(self._panes.first_windows(panes), before + 1),
            np.minimum(lasts, self.last_fired),
        )
        over = lasts <= self.last_closed
        dropped: list[int] = panes[over].tolist()
        self._open.difference_update(dropped)
        self._next = self._earliest(panes[~over])
        return windows, dropped

    def _earliest(self, panes: NDArray[np.int64]) -> int:
        """Return the watermark at which the first of these panes has something to do."""
        if not len(panes):
            return _NEVER
        lasts = self._panes.last_windows(panes)
        over = int(self._panes.max_timestamps(lasts.min())) + self._lateness
        firing = np.maximum(self._panes.first_windows(panes), self.last_fired + 1)
        firing = firing[firing <= lasts]
        if not len(firing):
            return min(over, MAX_TIMESTAMP)
        return min(over, MAX_TIMESTAMP, int(self._panes.max_timestamps(firing.min())))

    @staticmethod
    def _union(lows: NDArray[np.int64], highs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers in any of the ranges; both ends of the ranges grow."""
        some = lows <= highs
        lows, highs = lows[some], highs[some]
        if not len(lows):
            return np.zeros(0, dtype=np.int64)
        lows = np.maximum(lows, np.concatenate((lows[:1], highs[:-1] + 1)))
        lengths = np.maximum(highs - lows + 1, 0)
        ends = np.cumsum(lengths)
        found: NDArray[np.int64] = np.arange(ends[-1]) + np.repeat(lows - (ends - lengths), lengths)
        return found


def _clamped(window: int) -> int:
    return max(MIN_TIMESTAMP, min(window, MAX_TIMESTAMP - 1))
