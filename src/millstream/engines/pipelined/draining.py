"""When the last checkpoint may follow the end of all sources: at once, or when links are empty.

What it is: the last checkpoint is aligned, so it waits for all that was read and is not processed.
Where barriers do not overtake, so would any other, and it follows at once.  Where they do,
checkpoints go on as before until one has nothing in flight that was triggered behind the end of the
sources: then nothing is left to wait for.  A job is not to wait for an interval where its links are
long empty, so others come between: each as long behind the one before as that was behind the end.
Timers may make records for ever: if what is in flight becomes no less, the last follows, too.

What it is not: a part of a stop with draining, whose last checkpoint follows at once.

Read next: ``engines/pipelined/run_loop.py``.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Draining"]

#: So many checkpoints in a row that have no less in flight than one before them.
_MOST_IN_VAIN: Final = 10


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
        #: (stage, negative, and its bytes in flight), those ahead of others first, at the least.
        #: What is processed goes to stages behind, so that this becomes less, however much that is.
        self._least: list[tuple[int, int]] | None = None
        self._in_vain = 0
        #: Monotonic seconds: since when the sources are over, and when the next is due; infinite:
        #: not ahead of its interval.
        self._began = 0.0
        self._due = math.inf

    @property
    def is_done(self) -> bool:
        """Whether the sources are over, and the last checkpoint may be triggered."""
        ends = self._is_empty or self._in_vain >= _MOST_IN_VAIN or not self._overtakes
        return self._first is not None and ends

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
            self._least, self._in_vain = None, 0

    def committed(self, epoch: int, now: float, in_flight: Iterable[tuple[int, int]]) -> None:
        """Take a checkpoint, and what was in flight in it.

        Args:
            epoch: its number.
            now: monotonic seconds.
            in_flight: stages, numbered so that inputs come first, and bytes on their way into them.
        """
        if self._first is None or epoch < self._first:
            return
        sizes: Counter[int] = Counter()
        for stage, size in in_flight:
            sizes[-stage] += size
        left = sorted(sizes.items(), reverse=True)
        self._is_empty = not left
        self._due = now + (now - self._began)
        if self._least is None or left < self._least:
            self._least, self._in_vain = left, 0
        else:
            self._in_vain += 1
