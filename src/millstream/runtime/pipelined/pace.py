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
#: Records of the first piece: what they cost is not known.
_FIRST_PIECE: Final = 4
#: A piece is at most so many times as long as the one before.
_GROWTH: Final = 8
#: A piece twice as long is tried first; so many times as long where that was worth it.
_FIRST_STEP: Final = 2
_STEP: Final = 8
#: Comparisons that must agree, for all else may be noise.
_AGREE: Final = 2
#: A piece is of the length that is tried if it has so large a part of it.
_WHOLE: Final = 0.75
#: So many others on end, and it is not waited for any more.
_MISSED: Final = 8
#: Pieces that take so many times what is expected: it is not what it was.
_OTHER: Final = 3
#: What is tried takes at most one in so many seconds of work, and is tried not before so many.
_SELDOM: Final = 20
_REST: Final = 10.0


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


class _Trial:
    """Compares what a record takes in pieces of two lengths, by turns.

    Args:
        short: records.
        long: records.
        agree: how many comparisons must say that the long ones are worth their length.
        each: seconds that a record took in a short piece; 0: not known.
        is_down: whether it is the long ones that are usual.
    """

    def __init__(
        self, short: int, long: int, agree: int, each: float = 0.0, *, is_down: bool = False
    ) -> None:
        self.short = short
        self.long = long
        self.is_down = is_down
        self._agree = agree
        #: Seconds that a record took in the last short piece; 0: a short one is next.
        self._each = each
        self._wins = self._losses = 0
        #: Pieces on end that were shorter than was tried, and the longest of them.
        self._missed = self._longest = 0
        #: There are no pieces of these lengths.
        self.is_stuck = False
        #: That it has taken.
        self.seconds = 0.0

    @property
    def limit(self) -> int:
        """Records of the next piece."""
        return self.long if self._each else self.short

    def fed(self, records: int, seconds: float) -> bool | None:
        """Take a piece; returns whether long ones are worth it, None if it is not decided."""
        self.seconds += seconds
        if records < _WHOLE * self.limit:
            self._miss(records)
            return None
        self._missed = self._longest = 0
        each = seconds / records
        if not self._each:
            self._each = each
            return None
        # Where the beginning of a piece takes as long as its records, half is lost: enough.
        if each < (1 + self.short / self.long) / 2 * self._each:
            self._wins += 1
        else:
            self._losses += 1
        self._each = 0.0
        if self._wins >= self._agree:
            return True
        return False if self._losses >= _AGREE else None

    def _miss(self, records: int) -> None:
        self._missed += 1
        self._longest = max(self._longest, records)
        if self._missed < _MISSED:
            return
        if self._each and self._longest > self.short:
            self.long = self._longest  # batches are no longer
            self._missed = self._longest = 0
        else:
            self.is_stuck = True


class PiecePace:
    """How many records of a batch are processed before something else may come.

    As few as make a fixed time of work, but for operators to which a batch is dear whatever its
    length (a model that is called once per batch, say): with short ones they would do little else
    than to begin.  That is found by trying pieces of other lengths now and then; a trial that does
    not come out well twice changes nothing, and one in twenty seconds of work goes to trials.

    Args:
        most: records in a piece.
        seconds: that a piece should take.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self.limit = min(most, _FIRST_PIECE)
        #: Shorter pieces are not worth it.
        self._least = 1
        self._trial: _Trial | None = None
        #: Seconds of work until the next trial.
        self._rest = 0.0
        #: Records and seconds of a piece when the last trial began, or was decided.
        self._known = (1, 0.0)
        #: Pieces on end that took far longer than that.
        self._others = 0

    def fed(self, records: int, seconds: float) -> None:
        """Take how long the operators had with a piece."""
        if not records:
            return
        # A clock may not move in a piece.
        seconds = max(seconds, 1e-9)
        self._rest -= seconds
        if self._is_other(records, seconds):
            self._trial, self._least, self._others = None, 1, 0
        if self._trial is None:
            self._follow(records, seconds)
        else:
            self._try(self._trial, records, seconds)

    def _is_other(self, records: int, seconds: float) -> bool:
        """Whether what is known of pieces does not hold any more."""
        if self._trial is None and self._least == 1:
            return False  # nothing is held on to
        length, known = self._known
        expected = max(known, self._seconds) * max(1.0, records / length)
        self._others = self._others + 1 if seconds > _OTHER * expected else 0
        return self._others >= _AGREE

    def _follow(self, records: int, seconds: float) -> None:
        """Set the limit by what a record takes."""
        wanted = int(records * self._seconds / seconds)
        before = self.limit
        if seconds > 2 * self._seconds:
            self.limit = max(self._least, min(self.limit, wanted))
        elif seconds < self._seconds / 2 and 2 * records >= self.limit:
            # A few records that were quick say nothing of many.
            self.limit = max(self.limit, min(self._most, _GROWTH * self.limit, wanted))
        if self.limit == before and self._rest <= 0 and records >= _WHOLE * before:
            self._begin_trial(records, seconds)

    def _begin_trial(self, records: int, seconds: float) -> None:
        self._known = records, seconds
        if 1 < self._least == self.limit:
            short = max(1, self.limit // _STEP)
            self._begin(_Trial(short, self.limit, _AGREE, is_down=True))
        elif seconds >= self._seconds / 2:
            self._begin_longer(_FIRST_STEP, _AGREE)

    def _begin_longer(self, step: int, agree: int, each: float = 0.0) -> None:
        long = min(self._most, step * self.limit)
        if long > self.limit:
            self._begin(_Trial(self.limit, long, agree, each))
        else:
            self._trial, self._rest = None, _REST

    def _begin(self, trial: _Trial) -> None:
        self._trial, self.limit = trial, trial.limit

    def _try(self, trial: _Trial, records: int, seconds: float) -> None:
        worth = trial.fed(records, seconds)
        if trial.is_stuck:
            self._end(trial)
        elif worth is None:
            self.limit = trial.limit
        elif worth:
            self._least = self.limit = trial.long
            self._known = records, seconds
            if trial.is_down:
                self._begin_longer(_STEP, _AGREE)
            elif seconds < self._seconds / 2:
                self._trial, self._least = None, 1  # it may be longer in any case
            else:
                self._begin_longer(_STEP, 1, seconds / records)
        else:
            self._end(trial)
            if trial.is_down:
                self._least = 1
                self._follow(records, seconds)

    def _end(self, trial: _Trial) -> None:
        self._trial = None
        self.limit = trial.long if trial.is_down else trial.short
        self._rest = max(_REST, _SELDOM * trial.seconds)
