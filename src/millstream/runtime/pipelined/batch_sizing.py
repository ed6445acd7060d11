"""Batch sizes that follow the cost of batches: a fixed part per call and a part per record.

Short batches keep latency low, and long ones spread the fixed cost of a call (a model, a pandas
function, a poll) over many records.  ``BatchSizer`` learns both parts from the batches themselves::

    cost(n) = fixed + per_record * n

A batch should take the target time, unless the fixed cost exceeds it: then it should be so long
that the fixed cost is a small part of it.  The limit is an upper bound: a batch never waits for
records that have not come.

Interference only makes a batch slower, never faster.  So one batch that is far slower than those
before it changes little, several in a row change the estimate, and one that is faster does at once.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from typing import Final

#: Records of the first batch: what they cost is not known.
_FIRST: Final = 4
#: A batch is at most so many times as long as the longest one whose cost is known.
_GROWTH: Final = 8
#: The same where it is longer than the target, for the sake of the fixed cost.
_CAREFUL_GROWTH: Final = 4
#: The records of a batch should take so many times the fixed cost, but for so many seconds at most;
#: always as long as the fixed cost itself.
_SHARE: Final = 3.0
_LONGEST: Final = 1.0
#: One observation counts for so much of what batches of a length take.
_NEWS: Final = 0.25
#: A batch that takes so many times what was expected, or so small a part: something is different.
_OTHER: Final = 3.0
#: Costs of other lengths hold for so many batches at first, and at last for so many seconds of work
#: if that is longer.
_HOLDS: Final = 10.0
_HOLDS_BATCHES: Final = 20
#: Lengths must differ by this factor to tell the fixed cost.
_SPAN: Final = 2.0
#: A length that differs by more than this from the model (a logarithm) is tried again until it was
#: seen so many times: one slow spell must not be taken for a fixed cost.
_MISFIT: Final = 0.3
_CONFIRMED: Final = 3
#: A batch is as long as it may be if it has so large a part of its limit.
_WHOLE: Final = 0.75
#: Of the longest batch lately, what is left after one more.
_DECAY: Final = 31 / 32
#: Polls of a source: one counts for so much.
_POLL_NEWS: Final = 0.125
#: A clock may not move during a batch.
_SHORTEST: Final = 1e-9


@dataclass(slots=True)
class _Cost:
    """The time that batches of about one length have taken."""

    records: float
    seconds: float
    #: Seconds of work, of the sizer, when one was observed last.
    observed: float
    count: int = 1

    def add(self, records: int, seconds: float, now: float) -> None:
        """Take one more batch."""
        # Faster than before is certain; slower may be the machine.
        news = 2 * _NEWS if seconds * self.records < self.seconds * records else _NEWS
        self.records += news * (records - self.records)
        self.seconds += news * (seconds - self.seconds)
        self.observed = now
        self.count += 1


class BatchSizer:
    """Says how many records a batch may have.

    Invariant: the limit shrinks only after a batch that took too long, and grows only after one
    that was about as long as the limit.  A few cheap records say nothing about many.

    Args:
        most: records in a batch.
        seconds: that a batch should take.
        least: records that the operators process at the same time, so that fewer take as long.
    """

    def __init__(self, most: int, seconds: float, least: int = 1) -> None:
        self._most = most
        self._target = seconds
        self._least = min(most, least)
        #: Records that the next batch may have.
        self.limit = min(most, max(_FIRST, least))
        #: By power of two of the length.
        self._costs: dict[int, _Cost] = {}
        #: Seconds of a call, as known last.
        self._fixed = 0.0
        #: How often another length was tried since costs have changed.
        self._trials = 0
        #: Seconds of work so far.
        self._work = 0.0
        #: Batches in a row that took far longer than expected.
        self._outliers = 0
        #: The limit to return to after a batch that was shortened to learn its cost.
        self._resume: int | None = None
        #: Records from which on a longer batch saves little; None: not known.
        self._enough: int | None = None
        #: Records of the longest batch lately.
        self._longest = 0.0
        #: Seconds that a poll takes, about.
        self._polling = 0.0

    @property
    def wanted(self) -> int:
        """Records for which it is worth putting several short batches together."""
        if self._enough is None or self._resume is not None:
            return self.limit
        return min(self.limit, max(self._least, self._enough))

    @property
    def is_costly(self) -> bool:
        """Return whether a call costs more than its records in the target time."""
        return self._least > 1 or self._resume is not None or self._fixed > self._target / 2

    def polled(self, seconds: float) -> None:
        """Take the time of a poll that found records: batches are not shorter than that."""
        self._polling += _POLL_NEWS * (seconds - self._polling)

    def processed(self, records: int, seconds: float) -> None:
        """Take the time that the operators had with a batch, and set the next limit.

        Args:
            records: in the batch.
            seconds: of work, without the time in which the thread waited for a processor.
        """
        if not records:
            return
        seconds = max(seconds, _SHORTEST)
        self._work += seconds
        self._longest = max(records, _DECAY * self._longest)
        before = self.limit
        if self._resume is not None and records <= self.limit:
            self.limit, self._resume = self._resume, None
        if self._is_outlier(records, seconds):
            self.limit = max(self._least, min(self.limit, records) // 2)
            return
        self._observe(records, seconds)
        self._follow(records, seconds, before)

    # -- what is known -------------------------------------------------------------------------

    def _is_outlier(self, records: int, seconds: float) -> bool:
        """Whether the batch was so slow that it says nothing; other lengths count no more if not.

        Two outliers in a row, or a batch that was far faster, mean that costs have changed.
        """
        known = self._costs.get(_power(records))
        if known is None:
            return False
        expected = known.seconds * max(1.0, records / known.records)
        if seconds > _OTHER * max(expected, self._target):
            self._outliers += 1
            if self._outliers == 1 and known.count > 1:
                return True
            self._forget()
        elif _OTHER * seconds < expected:
            self._forget()
        self._outliers = 0
        return False

    def _forget(self) -> None:
        """Costs have changed."""
        self._costs.clear()
        self._fixed, self._trials, self._enough = 0.0, 0, None

    def _observe(self, records: int, seconds: float) -> None:
        power, now = _power(records), self._work
        known = self._costs.get(power)
        if known is None:
            self._costs[power] = _Cost(records, seconds, now)
        else:
            known.add(records, seconds, now)
        # Soon again after a change, when little is known; then ever more seldom.
        batches = _HOLDS_BATCHES * seconds
        holds = max(batches, min(_HOLDS, batches * 2.0 ** min(self._trials, 40)))
        for other, cost in list(self._costs.items()):
            if now - cost.observed > holds:
                del self._costs[other]

    @property
    def _knows_fixed(self) -> bool:
        """Return whether the lengths that are known differ enough."""
        lengths = [cost.records for cost in self._costs.values()]
        return max(lengths) >= _SPAN * min(lengths)

    def _fit(self) -> tuple[float, float]:
        """Seconds of a call and of a record: least squares of relative errors, none negative."""
        if not self._knows_fixed:
            # What was known of it before holds until another length is tried.
            last = max(self._costs.values(), key=lambda cost: cost.observed)
            fixed = min(self._fixed, last.seconds / 2)
            return fixed, (last.seconds - fixed) / last.records
        one = n = nn = t = nt = 0.0
        for cost in self._costs.values():
            weight = min(cost.count, 4) / cost.seconds**2
            one += weight
            n += weight * cost.records
            nn += weight * cost.records**2
            t += weight * cost.seconds
            nt += weight * cost.records * cost.seconds
        # Lengths differ, so this is not zero.
        each = (one * nt - n * t) / (one * nn - n * n)
        fixed = (t - each * n) / one
        if each < 0:
            fixed, each = t / one, 0.0
        elif fixed < 0:
            fixed, each = 0.0, nt / nn
        self._fixed = fixed
        return fixed, each

    def _doubtful(self, fixed: float, each: float) -> int | None:
        """The length that fits the model least, if it was seen too seldom to be believed."""
        worst, found = _MISFIT, None
        for cost in self._costs.values():
            misfit = abs(math.log((fixed + each * cost.records) / cost.seconds))
            if cost.count < _CONFIRMED and misfit > worst:
                worst, found = misfit, int(cost.records)
        return found

    # -- the limit -----------------------------------------------------------------------------

    def _follow(self, records: int, seconds: float, limit: int) -> None:
        """Set the limit by what is known."""
        is_whole = records >= _WHOLE * limit
        if not is_whole and seconds <= self._target / 2 and self._enough is not None:
            return  # a few records that were quick
        fixed, each = self._fit()
        if seconds > _OTHER * (fixed + each * records):
            # Records have become dear: what others of them took says nothing.
            self._forget()
            self._observe(records, seconds)
            fixed, each = self._fit()
        goal = max(self._target, self._polling, fixed + max(fixed, min(_SHARE * fixed, _LONGEST)))
        wanted = self._most if goal - fixed >= each * self._most else int((goal - fixed) / each)
        wanted = max(self._least, wanted)
        if self._knows_fixed:
            self._enough = int(min(self._most, _SHARE * fixed / max(each, _SHORTEST)))
        before = self.limit
        if seconds > 2 * goal:
            self.limit = min(self.limit, wanted)
        elif seconds < goal / 2 and is_whole:
            longest = max(cost.records for cost in self._costs.values())
            growth = _GROWTH if seconds < self._target / 2 else _CAREFUL_GROWTH
            self.limit = max(self.limit, min(self._most, wanted, int(growth * longest)))
        if seconds > self._target / 2 and self.limit == before:
            self._learn_fixed(records, fixed, each)

    def _learn_fixed(self, records: int, fixed: float, each: float) -> None:
        """Let one batch be of another length if that is needed to know the fixed cost."""
        if not self._knows_fixed:
            if records < _WHOLE * min(self.limit, self._longest):
                return  # batches of other lengths come by themselves
            self._trials += 1
            longer = min(self._most, 2 * records)
            other = records // _CAREFUL_GROWTH if records > self._least else longer
        else:
            doubtful = self._doubtful(fixed, each)
            if doubtful is None:
                return
            other = doubtful
        self._resume, self.limit = self.limit, max(self._least, other)


def _power(records: int) -> int:
    return records.bit_length()


_STATISTICS: Final = "/proc/thread-self/schedstat"
_MOST_BYTES: Final = 128


class WorkClock:
    """Tells seconds of work of the thread that makes it; only that thread may ask.

    Where the system does not say how long a thread waits, it is a monotonic clock.
    """

    def __init__(self) -> None:
        self._file = -1
        try:
            self._file = os.open(_STATISTICS, os.O_RDONLY | os.O_CLOEXEC)
            self.waited()
        except (OSError, ValueError, IndexError):  # another system, or one that does not count
            self.close()

    def seconds(self) -> float:
        """Return seconds since some moment, without those in which the thread was not run."""
        before = self.waited()
        while True:
            now, waited = time.monotonic(), self.waited()
            if waited == before:
                return now - waited
            before = waited  # it was not run between the two

    def waited(self) -> float:
        """Return seconds that the thread has waited for a processor."""
        if self._file < 0:
            return 0.0
        return int(os.pread(self._file, _MOST_BYTES, 0).split()[1]) * 1e-9

    def close(self) -> None:
        """Close the file; the clock continues as a monotonic one."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
