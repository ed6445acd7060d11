"""Row patterns of MATCH_RECOGNIZE, and the automaton that finds the matches of a key."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import UserFunctionError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence


@dataclass(frozen=True, slots=True)
class PatternVariable:
    """A variable of a pattern with its quantifier."""

    name: str
    minimum: int = 1
    #: None: without end.
    maximum: int | None = 1
    #: Whether it is left only at a row that does not meet its condition.
    greedy: bool = False

    def __str__(self) -> str:
        """As in the text of the pattern."""
        low, high = self.minimum, self.maximum
        if (low, high) == (1, 1):
            return self.name
        signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
        sign = signs.get((low, high))
        if sign is None:
            sign = f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"
        is_plain = self.greedy or low == high or (low, high) == (0, 1)
        return f"{self.name}{sign}{'' if is_plain else '?'}"


class SkipTo(Enum):
    """Where matching continues after a match."""

    PAST_LAST_ROW = "PAST LAST ROW"
    NEXT_ROW = "TO NEXT ROW"
    FIRST = "TO FIRST"
    LAST = "TO LAST"


@dataclass(frozen=True, slots=True)
class RowPattern:
    """The pattern to look for: variables one after another."""

    variables: tuple[PatternVariable, ...]
    skip: SkipTo = SkipTo.NEXT_ROW
    #: The position of the variable of FIRST and LAST.
    target: int | None = None
    #: Milliseconds.
    within: int | None = None

    def __str__(self) -> str:
        """The text of the pattern."""
        return " ".join(map(str, self.variables))

    @property
    def skip_text(self) -> str:
        """``SKIP TO LAST a``."""
        name = "" if self.target is None else f" {self.variables[self.target].name}"
        return f"SKIP {self.skip.value}{name}"


class Partial(NamedTuple):
    """A match in progress, or one that waits: where it begins, and rows per variable."""

    start: int
    #: Of the variables up to the one that it is at.
    counts: tuple[int, ...]


#: The first row of the match that the next row begins: later than every row.
NO_ROW: Final = 2**32 - 1
_NEXT: Final = Partial(NO_ROW, ())


class Match(NamedTuple):
    """A match that is given."""

    start: int
    counts: tuple[int, ...]
    #: When it was certain, in milliseconds: the time of a row, or the end of WITHIN.
    time: int


class ConditionRequest(NamedTuple):
    """Whether the last row of these matches the condition of the last variable."""

    start: int
    #: Rows per variable, as if it did.
    counts: tuple[int, ...]


class _Queue:
    """A priority queue of partial matches by first row, with the order of equals of Java's.

    Which of several matches that begin with one row is emitted follows from where Flink's two
    priority queues happen to have them, so the steps of ``java.util.PriorityQueue`` (Java 17) are
    part of the semantics of reluctant quantifiers.  An array that is stored and read again is the
    same queue.
    """

    __slots__ = ("array",)

    def __init__(self, found: Iterable[Partial] = ()) -> None:
        #: Invariant: no element begins before its parent, the one at ``(position - 1) // 2``.
        self.array = list(found)

    def add(self, made: Partial) -> None:
        array, at = self.array, len(self.array)
        array.append(made)
        while at:
            parent = (at - 1) // 2
            if made.start >= array[parent].start:
                break
            array[at] = array[parent]
            at = parent
        array[at] = made

    def pop(self) -> Partial:
        """Remove one that begins first."""
        first, last = self.array[0], self.array.pop()
        if self.array:
            self._sift_down(0, last)
        return first

    def keep(self, from_row: int) -> None:
        """Remove what begins before a row."""
        kept = [each for each in self.array if each.start >= from_row]
        if len(kept) < len(self.array):
            self.array = kept
            for at in range(len(kept) // 2 - 1, -1, -1):
                self._sift_down(at, kept[at])

    def _sift_down(self, at: int, made: Partial) -> None:
        array, size = self.array, len(self.array)
        while at < size // 2:
            child = 2 * at + 1
            if child + 1 < size and array[child].start > array[child + 1].start:
                child += 1
            if made.start <= array[child].start:
                break
            array[at] = array[child]
            at = child
        array[at] = made


class Matching:
    """The matches of one key: Flink's NFA with strict contiguity, as data and one generator.

    A partial match has all rows from its first to the newest, so it is the number of that first row
    and how many rows each variable has, in the pattern's order.  Wherever a condition decides, the
    walk yields a ``ConditionRequest`` and continues with the answer, so that those of many keys can
    be evaluated together.

    - A row begins a match, beside the partial ones, and each of these takes every transition that
      conditions allow.  A greedy variable is only left at a row that does not meet its condition,
      even if it can have no more rows; ``A?`` is both taken and left out.
    - A match is emitted when no partial match began before it; what AFTER MATCH skips is forgotten.
    - A match that waits for one that began before it does not end the partial matches of its own
      first row: these can also be completed meanwhile.  Of all that begin with one row the first
      of the queue is emitted (``_Queue``), which need not be the shortest.
    - WITHIN: the last row comes less than that time after the first.

    Invariant: ``partials`` has exactly one element without a first row, for the next row.
    """

    def __init__(
        self,
        pattern: RowPattern,
        times: Sequence[int],
        partials: Sequence[Partial] = (),
        completed: Sequence[Partial] = (),
    ) -> None:
        """Take where it stands.

        Args:
            pattern: what to look for.
            times: of the rows, in order, in milliseconds: those that ``partials`` and ``completed``
                begin with and all after, then the new ones.
            partials: matches in progress.
            completed: matches that wait for what began before them.
        """
        self._pattern = pattern
        self._variables = pattern.variables
        self._times = times
        self._partials = _Queue(partials)
        if _NEXT not in self._partials.array:
            self._partials.add(_NEXT)
        self._completed = _Queue(completed)
        self.found: list[Match] = []

    @property
    def partials(self) -> list[Partial]:
        """Matches in progress, in the order of their queue."""
        return self._partials.array

    @property
    def completed(self) -> list[Partial]:
        """Matches that wait for what began before them, in the order of their queue."""
        return self._completed.array

    def walk(self, first: int, until: int | None = None) -> Generator[ConditionRequest, bool, None]:
        """Take the rows from ``first`` on; then time is ``until``.

        Raises:
            UserFunctionError: AFTER MATCH skips to a variable without rows, or to the first row.
        """
        for row in range(first, len(self._times)):
            now = self._times[row]
            self._expire(now)
            yield from self._take(row)
            self._give(now)
        if until is not None:
            self._expire(until)

    def trimmed(self) -> int:
        """Forget rows that nothing needs.

        Returns:
            How many: what is left is numbered from the first that stays.
        """
        gone = min(each.array[0].start for each in (self._partials, self._completed) if each.array)
        gone = min(gone, len(self._times))
        for queue in (self._partials, self._completed):
            queue.array = [
                each if each.start == NO_ROW else Partial(each.start - gone, each.counts)
                for each in queue.array
            ]
        return gone

    # Rows.

    def _take(self, row: int) -> Generator[ConditionRequest, bool, None]:
        """Go on with a row from all that is in progress, and begin with it."""
        going, whole = _Queue(), _Queue()
        for partial in self._partials.array:
            start = row if partial.start == NO_ROW else partial.start
            for counts in (yield from self._transitions(Partial(start, partial.counts))):
                made = Partial(start, counts)
                if self._can_continue(counts):
                    going.add(made)
                if self._is_whole(counts):
                    whole.add(made)
            if partial.start == NO_ROW:
                going.add(_NEXT)
        self._partials = going
        for made in whole.array:
            self._completed.add(made)

    def _transitions(
        self, partial: Partial
    ) -> Generator[ConditionRequest, bool, list[tuple[int, ...]]]:
        """Return how rows are counted with the newest, for each variable that it can be of."""
        counts = partial.counts or (0,)
        found: list[tuple[int, ...]] = []
        while True:
            variable = self._variables[len(counts) - 1]
            taken = counts[-1]
            may_take = variable.maximum is None or taken < variable.maximum
            takes = False
            if may_take or variable.greedy:
                with_row = (*counts[:-1], taken + 1)
                takes = yield ConditionRequest(partial.start, with_row)
                if takes and may_take:
                    found.append(with_row)
            is_left = taken >= variable.minimum and not (variable.greedy and takes)
            if not is_left or len(counts) == len(self._variables):
                return found
            counts = (*counts, 0)

    def _is_whole(self, counts: tuple[int, ...]) -> bool:
        """Return whether no variable needs another row."""
        variable, rest = self._variables[len(counts) - 1], self._variables[len(counts) :]
        if variable.greedy and rest:
            return False  # it is not left at the row that it has just taken
        return counts[-1] >= variable.minimum and not any(each.minimum for each in rest)

    def _can_continue(self, counts: tuple[int, ...]) -> bool:
        """Return whether a variable may have another row."""
        is_last = len(counts) == len(self._variables)
        return not (is_last and counts[-1] == self._variables[-1].maximum)

    # Time and matches.

    def _expire(self, now: int) -> None:
        """Forget what has begun too long ago, which matches may have waited for."""
        within = self._pattern.within
        if within is None:
            return
        started = {each.start for each in self.partials if each.start != NO_ROW}
        expired = sorted(start for start in started if now - self._times[start] >= within)
        if not expired:
            return
        before, self._partials = self.partials, _Queue()
        for each in before:
            if each.start not in expired:
                self._partials.add(each)
        while expired:
            begun = self._times[expired.pop(0)]
            self._give(begun + within, expired)

    def _give(self, now: int, expired: list[int] | None = None) -> None:
        """Emit the matches that nothing before them holds up.

        Args:
            now: the time at which they are certain.
            expired: first rows that hold them up a little longer; those that AFTER MATCH skips are
                removed.
        """
        while self.completed:
            earliest = self.completed[0]
            if earliest.start > min([self.partials[0].start, *(expired or ())]):
                return
            self._completed.pop()
            from_row = self._next_start(earliest)
            for queue in (self._partials, self._completed):
                queue.keep(from_row)
            if expired:
                expired[:] = [start for start in expired if start >= from_row]
            self.found.append(Match(earliest.start, earliest.counts, now))

    def _next_start(self, match: Partial) -> int:
        """The first row that a match after this one may begin with."""
        skip, target = self._pattern.skip, self._pattern.target
        if skip is SkipTo.PAST_LAST_ROW:
            return match.start + sum(match.counts)
        if skip is SkipTo.NEXT_ROW or target is None:
            return match.start + 1
        of_target = match.counts[target] if target < len(match.counts) else 0
        if not of_target:
            name = self._variables[target].name
            message = f"Could not skip to {name}. No such element in the found match."
            raise UserFunctionError(message)
        at = match.start + sum(match.counts[:target])
        at += of_target - 1 if skip is SkipTo.LAST else 0
        if at == match.start:
            message = "Could not skip to first element of a match."
            raise UserFunctionError(message)
        return at
