"""Cursors: reading one split on and on, a few milliseconds at a time.

What it is: what a task that lives on reads a split with, and the cursor of any source: it reads
ranges one after the other, each about as long as a barrier may wait behind it.

What it is not: the choice of what is read.  The driver assigns splits and says how far each can be
read (``execution/split_enumerator.py``).

Read next: ``contracts/source.py``.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.split import SourceBatch, Split

__all__ = [
    "FollowingCursor",
    "GrowingReader",
    "PieceSizer",
    "RangeCursor",
    "RangeReader",
    "SplitCursor",
]

#: Seconds that reading a piece should take.
_PIECE_SECONDS: Final = 0.01
#: One piece changes the size of the next by at most these factors.
_GROW: Final = 8
_SHRINK: Final = 4


class SplitCursor(ABC):
    """Reads one split from a position on.  Used by one thread.

    Contract:
      1. ``poll`` never waits for data; what it has at hand it gives within some milliseconds.
         The first may take longer, to open what it reads.  (``millstream.testing``)
      2. While ``settled``, ``Source.read`` and a new cursor from ``position`` on give exactly
         what this one has not given yet.  (``millstream.testing``)
      3. If it is not settled, it is so again after a few more polls that find something, whatever
         else arrives meanwhile.  (``millstream.testing``)
      4. ``close`` leaves no file, connection or thread of the cursor's own, after errors too.
         (``millstream.testing``)
    """

    #: Everything before it was handed out.
    position: int

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether ``position`` is exact now."""

    @abstractmethod
    def poll(self, most: int) -> SourceBatch | None:
        """The next records, about ``most`` of them at most; None: there are none now.

        Raises:
            SourceError: the split cannot be read.
        """

    @abstractmethod
    def extend(self, end: int, *, final: bool) -> None:
        """Take how far the split can be read.  A cursor begins with an end at its position.

        Args:
            end: the offset.  A cursor that asks the system itself may read on, unless it is final.
            final: the split will not grow any more.
        """

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether all up to the final end was handed out."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything.  Called once, also after ``poll`` has raised."""


class RangeReader(Protocol):
    """The part of a source that reads ranges."""

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        """A good place to stop that is about ``limit`` units behind ``start``."""

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        """The records of ``[start, stop)``."""


class GrowingReader(RangeReader, Protocol):
    """The part of a source that says how far a split can be read."""

    def end_offset(self, split: Split) -> int:
        """Up to where it can be read now."""

    def is_final(self, split: Split) -> bool:
        """Whether that will not change."""


class PieceSizer:
    """How many units of offset take about the time that a piece should take.

    It begins with one unit.  The fastest piece so far tells what beginning a piece costs, and that
    is at most half of one: a source to which it is dear is read in longer ones.
    """

    def __init__(self) -> None:
        self.limit = 1
        self._fixed = math.inf

    def read(self, units: int, seconds: float, records: int, most: int) -> None:
        """Take what a piece was.

        Args:
            units: of offset.
            seconds: that the source was at work on it.
            records: in it.
            most: records in a piece, so that a barrier waits for few batches.
        """
        self._fixed = min(self._fixed, seconds)
        target = max(_PIECE_SECONDS, 2 * self._fixed)
        if 2 * units >= self.limit or seconds > target:
            work = max(seconds - self._fixed, 1e-6)
            wanted = int(min(units, self.limit) * min((target - self._fixed) / work, _GROW))
            self.limit = max(1, self.limit // _SHRINK, min(wanted, self.limit * _GROW))
        if records:
            self.limit = max(1, min(self.limit, units * most // records))


class RangeCursor(SplitCursor):
    """Reads a split by ``Source.read``, piece by piece.

    Args:
        source: reads the ranges.
        split: the split.
        position: where to begin.
        whole: read up to the end that is known in one piece; for a source that opens a file for
            each range, and whose batches have their ``position``.
    """

    def __init__(
        self, source: RangeReader, split: Split, position: int, *, whole: bool = False
    ) -> None:
        self.position = position
        self._source = source
        self._split = split
        self._whole = whole
        self._end = position
        self._final = False
        self._sizer = PieceSizer()
        #: The piece at hand; None between two.
        self._reading: Iterator[SourceBatch] | None = None
        self._start = self._stop = position
        self._seconds = 0.0
        self._records = 0
        #: Read and not handed out.
        self._parts: deque[SourceBatch] = deque()
        self._settled = True
        #: What was read before it is handed out first; then nothing more is.
        self._failure: Exception | None = None

    @property
    def settled(self) -> bool:
        return self._settled

    @property
    def is_over(self) -> bool:
        return self._final and self._reading is None and self.position >= self._end

    def extend(self, end: int, *, final: bool) -> None:
        self._end, self._final = end, final

    def poll(self, most: int) -> SourceBatch | None:
        if not self._parts and not self._fill(most):
            return None
        part = self._parts.popleft()
        if len(part) > most:
            self._parts.appendleft(part.slice(most, len(part)))
            part = part.slice(0, most)
        self._settled = False
        if part.position is not None:
            self._reach(part.position, most)
        elif not self._parts:
            # Whether the piece ends here; if not, this is work done in advance.
            self._look_ahead(most)
        return part

    def _fill(self, most: int) -> bool:
        """Read until there is something to hand out; False if there is nothing now."""
        deadline = time.perf_counter() + _PIECE_SECONDS
        while not self._parts:
            if self._failure is not None:
                raise self._failure
            if self._reading is None:
                # A piece may be without records, where a source has gaps.
                if self.position >= self._end and not self._has_grown():
                    return False
                if time.perf_counter() > deadline or not self._begin():
                    return False
            self._look_ahead(most)
        return True

    def _has_grown(self) -> bool:
        """Whether there is more now than was told."""
        return False

    def _begin(self) -> bool:
        """Begin a piece; False if nothing can be read yet, although the split goes further."""
        begun = time.perf_counter()
        start, stop = self.position, self._end
        if not self._whole:
            stop = self._source.next_stop(self._split, start, self._sizer.limit, stop)
            if stop <= start:
                return False
        self._start, self._stop = start, stop
        self._reading = iter(self._source.read(self._split, start, stop))
        self._seconds, self._records = time.perf_counter() - begun, 0
        return True

    def _look_ahead(self, most: int) -> None:
        """Have the source take one step in the piece at hand."""
        if self._reading is None:
            return
        begun = time.perf_counter()
        try:
            found = next(self._reading, None)
        except Exception as error:  # noqa: BLE001 - raised when all before it is handed out
            self._failure = error
            self._settled = False
            return
        self._seconds += time.perf_counter() - begun
        if found is None:
            self._finish(most)
        else:
            self._records += len(found)
            self._parts.append(found)

    def _reach(self, position: int, most: int) -> None:
        """Take the position that the source says."""
        if position >= self._stop:
            self._finish(most)
        else:
            self.position = position
            self._settled = True

    def _finish(self, most: int) -> None:
        """All of the piece is read, and handed out but for what is being so now."""
        self._sizer.read(self._stop - self._start, self._seconds, self._records, most)
        self.position = self._stop
        self._settled = True
        self._drop()

    def _drop(self) -> None:
        close = getattr(self._reading, "close", None)
        self._reading = None
        if close is not None:
            close()

    def close(self) -> None:
        self._parts.clear()
        self._drop()


class FollowingCursor(RangeCursor):
    """Asks in its task how far the split goes, whenever all is read that was known.

    For what can be asked there within microseconds: a clock, a file.  ``Source.cursors_follow``
    says that a source has such cursors.

    Args:
        source: reads the ranges, and knows the ends.
        split: the split.
        position: where to begin.
    """

    def __init__(self, source: GrowingReader, split: Split, position: int) -> None:
        super().__init__(source, split, position)
        self._growing = source

    def extend(self, end: int, *, final: bool) -> None:
        """Take what the driver says, which may be late."""
        super().extend(max(end, self._end), final=final or self._final)

    def _has_grown(self) -> bool:
        if not self._final:
            # In this order: the end of a split that is final already is its last.
            final = self._growing.is_final(self._split)
            self.extend(self._growing.end_offset(self._split), final=final)
        return self.position < self._end
