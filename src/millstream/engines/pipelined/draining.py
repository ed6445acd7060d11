"""When the last checkpoint may follow the end of all sources: at once, or when links are empty.

What it is: the last checkpoint is aligned, so it waits for all that was read and is not processed.
Where barriers do not overtake, so would any other, and it follows at once.  Where they do,
checkpoints go on as before until one has nothing in flight that was triggered behind the end of the
sources: then nothing is left to wait for.  A job is not to wait for an interval where its links are
long empty, so others come between: each as long behind the one before as that was behind the end.

What it is not: a part of a stop with draining, whose last checkpoint follows at once.

Read next: ``engines/pipelined/run_loop.py``.
"""

from __future__ import annotations

import math

__all__ = ["Draining"]


class Draining:
    """What is on its way behind the end of all sources.

    Args:
        overtakes: whether barriers overtake records.
    """

    def __init__(self, *, overtakes: bool) -> None:
        self._overtakes = overtakes
        #: The first checkpoint that was triggered behind the end of the sources.
        self._first: int | None = None
        self._is_empty = False
        #: Monotonic seconds: since when the sources are over, and when the next is due; infinite:
        #: not ahead of its interval.
        self._began = 0.0
        self._due = math.inf

    @property
    def is_done(self) -> bool:
        """Whether the sources are over, and the last checkpoint may be triggered."""
        return self._first is not None and (self._is_empty or not self._overtakes)

    def is_due(self, now: float) -> bool:
        """Whether a checkpoint is to be triggered ahead of its interval.

        Args:
            now: monotonic seconds.
        """
        return now >= self._due

    def triggered(self) -> None:
        """Take that one is under way.  If it fails, the next comes as it would have without it."""
        self._due = math.inf

    def look(self, coming: int, now: float, *, is_over: bool) -> None:
        """Take whether the sources are over; they are not again where a region begins anew.

        Args:
            coming: the number of the next checkpoint.
            now: monotonic seconds.
            is_over: whether all that is to be read was.
        """
        if not is_over:
            self._first, self._is_empty, self._due = None, False, math.inf
        elif self._first is None:
            self._first, self._began, self._due = coming, now, now

    def committed(self, epoch: int, now: float, *, in_flight: bool) -> None:
        """Take a checkpoint, and whether something was in flight in it.

        Args:
            epoch: its number.
            now: monotonic seconds.
            in_flight: whether something was.
        """
        if self._first is not None and epoch >= self._first:
            self._is_empty = not in_flight
            self._due = now + (now - self._began)
