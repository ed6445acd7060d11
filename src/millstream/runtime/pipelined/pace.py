"""How many records make a fixed time of work: what comes meanwhile waits for a batch.

What it is: a limit that follows what batches of one source, or of one edge, have taken.

What it is not: a clock.

Read next: ``runtime/pipelined/splits.py``, ``runtime/pipelined/task.py``.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Pace"]

_FIRST_RECORDS: Final = 1024
#: One poll counts for so much of what polls take.
_NEWS: Final = 0.125


class Pace:
    """How many records make a fixed time of work.

    Batches are not shorter than the polls of a source to which they are dear: it would be read
    record by record, and do little else than to begin.

    Args:
        most: records in a batch.
        seconds: that a batch should take.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self.limit = min(most, _FIRST_RECORDS)
        #: Seconds that a poll takes, about.
        self._polling = 0.0

    def polled(self, seconds: float) -> None:
        """Take how long a poll took that found something."""
        self._polling += _NEWS * (seconds - self._polling)

    def fed(self, records: int, seconds: float) -> None:
        """Take how long the operators had with a batch."""
        target = max(self._seconds, self._polling)
        if seconds > 2 * target:
            self.limit = max(1, min(self.limit, records) // 2)
        elif seconds < target / 2 and 2 * records >= self.limit:
            # A few records that were quick say nothing of many.
            self.limit = min(self._most, 2 * self.limit)
