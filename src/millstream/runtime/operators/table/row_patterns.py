"""Patterns of rows: the automaton of MATCH_RECOGNIZE, for the rows of one key.

What it is: Flink's semantics (its NFA with strict contiguity), as data and one generator.  A match
in the making has all rows from its first to the newest, so it is no more than the number of that
first row and how many rows each variable has, in the pattern's order.  Wherever a condition decides
the walk asks (``Question``) and goes on with the answer, so that those of many keys can be
evaluated together.

- A row begins a match of its own, beside those that are in the making, and each of these goes every
  way that conditions allow.  A greedy variable is only left at a row that does not meet its
  condition, even if it can have no more rows; ``A?`` is both taken and left out.
- The first way that gets to the end is the match of its first row; of several at one row it is
  that which prefers earlier variables.
- A match is given when nothing that began before it is in the making; what AFTER MATCH skips is
  forgotten.
- WITHIN: the last row comes less than that time after the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from millstream.errors import UserFunctionError
from millstream.expressions.evaluator import compile_projection
from millstream.expressions.nodes import InputReference, transform, walk
from millstream.runtime.columnar.array_utils import timestamps_of
from millstream.runtime.columnar.changelog_aggregates import Segments
from millstream.runtime.operators.table.aggregate_calls import Aggregates, SortedRows
from millstream.runtime.operators.table.specs import AggregateCall
from millstream.types.logical_types import RowType

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from millstream.expressions.context import EvaluationContext
    from millstream.expressions.nodes import Expression
    from millstream.types.logical_types import LogicalType


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
    """Where matching goes on behind a match."""

    PAST_LAST_ROW = "PAST LAST ROW"
    NEXT_ROW = "TO NEXT ROW"
    FIRST = "TO FIRST"
    LAST = "TO LAST"


@dataclass(frozen=True, slots=True)
class RowPattern:
    """What to look for: variables one behind the other."""

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
    """A match in the making, or one that waits: where it begins, and rows per variable."""

    start: int
    #: Of the variables up to the one that it is at; none: it has no row yet.
    counts: tuple[int, ...]


class Match(NamedTuple):
    """A match that is given."""

    start: int
    counts: tuple[int, ...]
    #: When it was certain, in milliseconds: the time of a row, or the end of WITHIN.
    time: int


class Question(NamedTuple):
    """Whether the last row of these meets the condition of the last variable."""

    start: int
    #: Rows per variable, as if it did.
    counts: tuple[int, ...]


class Matching:
    """The matches of one key.

    Invariant: ``partials`` and ``completed`` are in the order of their first rows, those of one row
    in that of preference.
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
                begin with and all behind, then the new ones.
            partials: matches in the making.
            completed: matches that wait for what began before them.
        """
        self._pattern = pattern
        self._variables = pattern.variables
        self._times = times
        self.partials = list(partials)
        self.completed = list(completed)
        self.found: list[Match] = []

    def walk(self, first: int, until: int | None = None) -> Generator[Question, bool, None]:
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
        starts = [each[0].start for each in (self.partials, self.completed) if each]
        gone = min(starts, default=len(self._times))
        self.partials = [Partial(start - gone, counts) for start, counts in self.partials]
        self.completed = [Partial(start - gone, counts) for start, counts in self.completed]
        return gone

    # Rows.

    def _take(self, row: int) -> Generator[Question, bool, None]:
        """Go on with a row from all that is in the making, and begin with it."""
        going: list[Partial] = []
        done: set[int] = set()
        for partial in (*self.partials, Partial(row, ())):
            for counts in (yield from self._ways(partial)):
                if partial.start in done:
                    break
                made = Partial(partial.start, counts)
                if self._is_whole(counts):
                    self.completed.append(made)
                    done.add(partial.start)
                else:
                    going.append(made)
        # What begins with the same row as a match goes with it, whether that is given or skipped.
        self.partials = [each for each in going if each.start not in done]
        self.completed.sort(key=lambda each: each.start)

    def _ways(self, partial: Partial) -> Generator[Question, bool, list[tuple[int, ...]]]:
        """How rows are counted with the newest, for each variable that it can be of."""
        counts = partial.counts or (0,)
        found: list[tuple[int, ...]] = []
        while True:
            variable = self._variables[len(counts) - 1]
            taken = counts[-1]
            may_take = variable.maximum is None or taken < variable.maximum
            takes = False
            if may_take or variable.greedy:
                with_row = (*counts[:-1], taken + 1)
                takes = yield Question(partial.start, with_row)
                if takes and may_take:
                    found.append(with_row)
            is_left = taken >= variable.minimum and not (variable.greedy and takes)
            if not is_left or len(counts) == len(self._variables):
                return found
            counts = (*counts, 0)

    def _is_whole(self, counts: tuple[int, ...]) -> bool:
        """Whether no variable needs another row."""
        rest = self._variables[len(counts) :]
        enough = counts[-1] >= self._variables[len(counts) - 1].minimum
        return enough and not any(each.minimum for each in rest)

    # Time and matches.

    def _expire(self, now: int) -> None:
        """Forget what has begun too long ago, which matches may have waited for."""
        within = self._pattern.within
        if within is None:
            return
        while self.partials and now - (begun := self._times[self.partials[0].start]) >= within:
            oldest = self.partials[0].start
            self.partials = [each for each in self.partials if each.start != oldest]
            self._give(begun + within)

    def _give(self, now: int) -> None:
        """Give the matches that nothing before them holds up."""
        while self.completed:
            earliest = self.completed[0]
            if self.partials and self.partials[0].start < earliest.start:
                return
            self.completed.pop(0)
            from_row = self._next_start(earliest)
            self.partials = [each for each in self.partials if each.start >= from_row]
            self.completed = [each for each in self.completed if each.start >= from_row]
            self.found.append(Match(earliest.start, earliest.counts, now))

    def _next_start(self, match: Partial) -> int:
        """The first row that a match behind this one may begin with."""
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


@dataclass(frozen=True, slots=True)
class Navigation:
    """A column of one row of a match; NULL where it has no such row."""

    column: int
    #: The position of the variable; None: of all.
    variable: int | None
    #: Counted from the first row of the variable, or backwards from the last.
    first: bool
    offset: int
    type: LogicalType


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregate over rows of a match."""

    function: str
    #: Over the columns of the input.
    arguments: tuple[Expression, ...]
    #: The position of the variable; None: all rows.
    variable: int | None
    type: LogicalType


@dataclass(frozen=True, slots=True)
class MatchTime:
    """When the match was certain."""

    type: LogicalType


Slot: TypeAlias = Navigation | Aggregation | MatchTime


class Span(NamedTuple):
    """A match among the rows of a pool."""

    start: int
    #: Rows per variable.
    counts: tuple[int, ...]
    time: int = 0

    def rows(self, variable: int | None) -> tuple[int, int]:
        """The first row of a variable, and how many it has."""
        if variable is None:
            return self.start, sum(self.counts)
        count = self.counts[variable] if variable < len(self.counts) else 0
        return self.start + sum(self.counts[:variable]), count


class SlotExpressions:
    """Expressions over slots, compiled together."""

    def __init__(self, expressions: Sequence[Expression], slots: Sequence[Slot]) -> None:
        """Compile them.

        Args:
            expressions: what to compute.
            slots: what their references mean, by position.
        """
        used = sorted(
            {
                each.index
                for root in expressions
                for each in walk(root)
                if isinstance(each, InputReference)
            }
        )
        place = {slot: position for position, slot in enumerate(used)}

        def placed(each: Expression) -> Expression:
            if isinstance(each, InputReference):
                return replace(each, index=place[each.index])
            return each

        self._slots = [_computed(slots[index]) for index in used]
        self._projection = compile_projection([transform(each, placed) for each in expressions])

    def evaluate(
        self, pool: pa.RecordBatch, spans: Sequence[Span], context: EvaluationContext
    ) -> list[pa.Array]:
        """One column per expression, with a value for each match.

        Raises:
            ExpressionError: an expression fails for a match.
        """
        columns = [slot.values(pool, spans, context) for slot in self._slots]
        # The last column says how many rows there are, whatever the expressions read.
        columns.append(pa.nulls(len(spans)))
        batch = pa.RecordBatch.from_arrays(columns, [f"s{i}" for i in range(len(columns))])
        return self._projection.evaluate(batch, context)


class _Navigated:
    def __init__(self, slot: Navigation) -> None:
        self._slot = slot

    def values(
        self, pool: pa.RecordBatch, spans: Sequence[Span], context: EvaluationContext
    ) -> pa.Array:
        del context
        slot = self._slot
        rows: list[int | None] = []
        for span in spans:
            start, count = span.rows(slot.variable)
            at = start + (slot.offset if slot.first else count - 1 - slot.offset)
            rows.append(at if slot.offset < count else None)
        return pool.column(slot.column).take(pa.array(rows, pa.int64()))


class _Aggregated:
    def __init__(self, slot: Aggregation) -> None:
        self._slot = slot
        row = RowType.of(**{f"a{i}": each.type for i, each in enumerate(slot.arguments)})
        self._schema = row.to_arrow_schema()
        call = AggregateCall(slot.function, tuple(range(len(slot.arguments))), slot.type)
        self._aggregates = Aggregates([call], row, retracts=False)
        self._arguments = compile_projection(slot.arguments)

    def values(
        self, pool: pa.RecordBatch, spans: Sequence[Span], context: EvaluationContext
    ) -> pa.Array:
        found = [span.rows(self._slot.variable) for span in spans]
        fresh = self._aggregates.fresh
        nothing = self._aggregates.kernels[0].results(fresh)
        kept = [(start, count) for start, count in found if count]
        if not kept:
            return nothing.take(pa.array([0] * len(spans), pa.int64()))
        picked = np.concatenate([np.arange(start, start + count) for start, count in kept])
        rows = pool.take(pa.array(picked))
        arguments = self._arguments.evaluate(rows, context)
        columns = pa.RecordBatch.from_arrays(arguments, schema=self._schema)
        order, weights = np.arange(len(picked)), np.ones(len(picked), dtype=np.int64)
        counts = np.array([count for _, count in kept], dtype=np.int64)
        names = list(range(len(kept)))
        is_fresh = np.ones(len(kept), np.bool_)
        segments = Segments(np.cumsum(counts) - counts, counts, names, is_fresh)
        zeros = pa.array(np.zeros(len(kept), np.int64))
        initial = [column.take(zeros) for column in fresh]
        taken = SortedRows(columns, order, weights)
        _, after, _ = self._aggregates.run(taken, segments, initial, last_only=True)
        has_rows = np.array([count > 0 for _, count in found])
        # Behind the results of those with rows: that of no rows.
        place = np.where(has_rows, np.cumsum(has_rows) - 1, len(kept))
        return pa.concat_arrays([after[0], nothing]).take(pa.array(place))


class _Timed:
    def __init__(self, slot: MatchTime) -> None:
        self._type = slot.type.to_arrow()

    def values(
        self, pool: pa.RecordBatch, spans: Sequence[Span], context: EvaluationContext
    ) -> pa.Array:
        del pool, context
        times = np.array([span.time for span in spans], dtype=np.int64)
        return timestamps_of(times, self._type)


def _computed(slot: Slot) -> _Navigated | _Aggregated | _Timed:
    if isinstance(slot, Navigation):
        return _Navigated(slot)
    return _Aggregated(slot) if isinstance(slot, Aggregation) else _Timed(slot)
