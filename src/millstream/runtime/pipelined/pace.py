"""How many records make a fixed time of work: what comes meanwhile waits for a batch.

What it is: a limit that follows what batches of one source, or of one edge, have taken.

What it is not: a clock.

Read next: ``runtime/pipelined/splits.py``, ``runtime/pipelined/task.py``.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Pace", "PiecePace"]

_FIRST_RECORDS: Final = 1024
#: One poll counts for so much of what polls take.
_NEWS: Final = 0.125
#: A record takes so much more in half a batch if most of what a batch takes is to begin; so much
#: less in a batch twice as long, as long as that is worth its length.
_DEARER: Final = 1.5
_CHEAPER: Final = 0.75
#: Batches until it is tried again whether shorter ones would do.
_SETTLED: Final = 64


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


class PiecePace:
    """How many records of a batch are processed before something else may come.

    As few as make a fixed time of work, but for operators to which a batch is dear whatever its
    length (a model that is called once per batch, say): with short ones they would do little else
    than to begin.

    Args:
        most: records in a piece.
        seconds: that a piece should take.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self.limit = min(most, _FIRST_RECORDS)
        #: Seconds that a record took when the limit was changed last, for it was too much.
        self._each = 0.0
        #: Longer pieces are being tried.
        self._grows = False
        self._settled = 0

    def fed(self, records: int, seconds: float) -> None:
        """Take how long the operators had with a piece."""
        if not records:
            return
        if self._settled:
            self._settled -= 1
        elif self._grows:
            self._try_longer(records, seconds / records)
        elif seconds > 2 * self._seconds:
            self._shorten(records, seconds / records)
        elif seconds < self._seconds / 2 and 2 * records >= self.limit:
            # A few records that were quick say nothing of many.
            self.limit = min(self._most, 2 * self.limit)
            self._each = 0.0

    def _shorten(self, records: int, each: float) -> None:
        self._grows = bool(self._each) and each > _DEARER * self._each
        self._each = each
        if self._grows:
            self.limit = min(self._most, 2 * records)
        else:
            self.limit = max(1, min(self.limit, records) // 2)

    def _try_longer(self, records: int, each: float) -> None:
        if 2 * records < self.limit:
            return
        if each > _CHEAPER * self._each or self.limit == self._most:
            self._grows, self._each, self._settled = False, 0.0, _SETTLED
            return
        self._each = each
        self.limit = min(self._most, 2 * self.limit)
