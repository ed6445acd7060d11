"""MATCH_RECOGNIZE: the operator that runs the automaton of a row pattern for all keys.

The rows of each key are processed in order by its automaton (``row_patterns.Matching``).  By event
time they wait until the watermark has passed them.  Conditions that read only the row itself are
evaluated for whole columns in advance; others are requested by the automata, and those of all keys
are evaluated together.

State, per key: the rows that wait; the rows from the first of a partial match on, and these
matches: where each begins and how many rows its variables have.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.contracts.operator import StateSection
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import Filter, compile_filter, compile_projection
from millstream.expressions.nodes import InputReference, transform, walk
from millstream.runtime.columnar.array_utils import milliseconds_of, timestamps_of
from millstream.runtime.columnar.changelog_aggregates import Segments
from millstream.runtime.columnar.row_codec import RowCodec, sort_keys
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.aggregate_calls import Aggregates, SortedRows
from millstream.runtime.operators.table.base import LateRowsOperator
from millstream.runtime.operators.table.row_buffers import WaitingRows, packed_list, unpacked_list
from millstream.runtime.operators.table.row_patterns import NO_ROW, Matching, Partial
from millstream.runtime.operators.table.specs import AggregateCall, columns_text
from millstream.state.key_codec import cache_key, uncache_key
from millstream.state.packed_state import PackedValues
from millstream.types.logical_types import RowType

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, OperatorContext, Output
    from millstream.expressions.nodes import Expression
    from millstream.runtime.operators.table.row_patterns import (
        ConditionRequest,
        Match,
        RowPattern,
    )
    from millstream.runtime.operators.table.specs import SortColumn
    from millstream.state.key_codec import CacheKey
    from millstream.types.logical_types import LogicalType


# -- expressions over the rows of matches ---


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
        (nothing,) = self._aggregates.of_nothing()
        kept = [(start, count) for start, count in found if count]
        if not kept:
            return nothing.take(pa.array([0] * len(spans), pa.int64()))
        picked = np.concatenate([np.arange(start, start + count) for start, count in kept])
        rows = pool.take(pa.array(picked))
        arguments = self._arguments.evaluate(rows, context)
        columns = pa.RecordBatch.from_arrays(arguments, schema=self._schema)
        order, weights = np.arange(len(picked)), np.ones(len(picked), dtype=np.int64)
        counts = np.array([count for _, count in kept], dtype=np.int64)
        segments = Segments.from_nothing(np.cumsum(counts) - counts, counts)
        initial = self._aggregates.initial(len(kept))
        taken = SortedRows(columns, order, weights)
        _, after, _ = self._aggregates.run(taken, segments, initial, last_only=True)
        has_rows = np.array([count > 0 for _, count in found])
        # After the results of those with rows: that of no rows.
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


# -- the operator ---

_HEAD: Final = struct.Struct("<III")
_TIME: Final = np.dtype("<i8")
_COUNT: Final = np.dtype("<u4")


@dataclass(frozen=True)
class MatchFactory:
    """MATCH_RECOGNIZE with one row per match: gives the key columns, then the measures.

    Rows are in the order of a time attribute.
    """

    input_type: RowType
    keys: tuple[int, ...]
    pattern: RowPattern
    #: Per variable of the pattern, over ``slots``; None: every row matches it.
    conditions: tuple[Expression | None, ...]
    #: Over ``slots``.
    measures: tuple[Expression, ...]
    slots: tuple[Slot, ...]
    #: The column of the time attribute; None: processing time.
    rowtime: int | None
    #: How rows of one time are ordered; none: as they come.
    order: tuple[SortColumn, ...] = ()
    evaluation: EvaluationContext = field(default_factory=EvaluationContext)
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {"columns": columns_text(self.input_type), "pattern": str(self.pattern)}
        return [StateSection("matches", "packed rows and matches by key", details=details)]

    @property
    def waits_for_watermarks(self) -> bool:
        """Return whether rows are given by event time."""
        return self.rowtime is not None

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return MatchOperator(self)


class MatchOperator(LateRowsOperator):
    """Keeps the matches in progress of every key."""

    def __init__(self, plan: MatchFactory) -> None:
        super().__init__(plan.state_sections()[0])
        self._plan = plan
        self._codec = RowCodec(plan.input_type.to_arrow_schema())
        self._conditions = [
            _condition(each, number, plan) for number, each in enumerate(plan.conditions)
        ]
        self._measures = SlotExpressions(plan.measures, plan.slots)

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._waiting = WaitingRows(self.keyed_state, self._codec, self._plan.keys)
        self._matches = PackedValues(self.keyed_state, "\0matches")

    # Time.

    def process_rows(self, batch: Batch) -> None:
        self.refuse_updates(batch, "MATCH_RECOGNIZE")
        arrow, rowtime = batch.arrow, self._plan.rowtime
        if rowtime is not None:
            times = milliseconds_of(arrow.column(rowtime), self.label)
            self.late += self._waiting.add_on_time(arrow, times, times <= self._watermark)
            return
        groups = group_rows([arrow.column(index) for index in self._plan.keys], len(batch))
        mine = [groups.rows(number).tolist() for number in range(len(groups))]
        times = np.full(len(batch), self.processing_time, dtype=np.int64)
        self._advance(groups.keys, arrow, times, mine, self.processing_time)

    def process_watermark(self, watermark: int) -> None:
        """Take the rows that the watermark has passed."""
        self._watermark = watermark
        if self._plan.rowtime is not None:
            fired = self.keyed_state.timers.advance_event_time(watermark)
            keys = list(dict.fromkeys(cache_key(key) for _, key, _ in fired))
            if keys:
                arrow, times, counts = self._waiting.take_columns(keys, watermark)
                self._advance(keys, arrow, times, self._in_order(arrow, times, counts), watermark)
        super().process_watermark(watermark)

    def _in_order(
        self, arrow: pa.RecordBatch, times: NDArray[np.int64], counts: list[int]
    ) -> list[list[int]]:
        """The rows of each key in order of time, then in that of the query, then of arrival."""
        known = times.tolist()
        order = self._plan.order
        names = sort_keys(arrow.columns, order) if order else [b""] * len(known)
        found, start = [], 0
        for count in counts:
            mine = range(start, start + count)
            found.append(sorted(mine, key=lambda row: (known[row], names[row])))
            start += count
        return found

    def process_processing_time(self, now: int) -> None:
        super().process_processing_time(now)
        if self._plan.rowtime is None:
            fired = self.keyed_state.timers.advance_processing_time(now)
            keys = list(dict.fromkeys(cache_key(key) for _, key, _ in fired))
            if keys:
                self.keyed_state.make_room(len(keys))
                empty = pa.RecordBatch.from_arrays(self._codec.unpack([]), self._codec.schema.names)
                self._advance(keys, empty, np.empty(0, np.int64), [[] for _ in keys], now)

    # Matches.

    def _advance(
        self,
        keys: list[CacheKey],
        arrow: pa.RecordBatch,
        times: NDArray[np.int64],
        mine: list[list[int]],
        until: int,
    ) -> None:
        """Take new rows of keys in this order; then time is ``until``."""
        self.keyed_state.make_room(len(keys))
        pool, states = self._pooled(self._matches.get_all(keys), arrow, times, mine)
        matchings = [
            Matching(self._plan.pattern, each.times, each.partials, each.completed)
            for each in states
        ]
        starts = [each.start for each in states]
        context = self._plan.evaluation.at(
            self.processing_time, None if self._watermark == MIN_TIMESTAMP else self._watermark
        )
        runs = [
            matching.walk(each.kept, until)
            for matching, each in zip(matchings, states, strict=True)
        ]
        with self.evaluating():
            _AutomatonRuns(self._conditions, pool, starts, context).run(runs)
        self._emit(pool, starts, [each.found for each in matchings], context)
        self._keep(keys, pool, states, matchings)

    def _pooled(
        self,
        stored: Sequence[bytes | None],
        arrow: pa.RecordBatch,
        times: NDArray[np.int64],
        mine: list[list[int]],
    ) -> tuple[pa.RecordBatch, list[_KeyState]]:
        """The rows of all keys, those that are kept before the new ones; and how keys stand."""
        states = [_KeyState.decoded(each) for each in stored]
        old = self._codec.unpack(list(chain.from_iterable(each.rows for each in states)))
        first_new = len(old[0]) if old else 0
        known = times.tolist()
        order: list[int] = []
        at = 0
        for state, rows in zip(states, mine, strict=True):
            state.start = len(order)
            order += range(at, at + state.kept)
            order += [first_new + row for row in rows]
            at += state.kept
            state.times += [known[row] for row in rows]
        both = [pa.concat_arrays([one, new]) for one, new in zip(old, arrow.columns, strict=True)]
        pool = pa.RecordBatch.from_arrays(both, schema=self._codec.schema)
        return pool.take(pa.array(order, pa.int64())), states

    def _emit(
        self, pool: pa.RecordBatch, starts: list[int], found: list[list[Match]], context: Any
    ) -> None:
        spans = [
            Span(base + match.start, match.counts, match.time)
            for base, matches in zip(starts, found, strict=True)
            for match in matches
        ]
        if not spans:
            return
        spans.sort(key=lambda span: span.time)
        rows = pa.array([span.start for span in spans], pa.int64())
        keys = [pool.column(index).take(rows) for index in self._plan.keys]
        with self.evaluating():
            measures = self._measures.evaluate(pool, spans, context)
        self.emit_columns([*keys, *measures])

    def _keep(
        self,
        keys: list[CacheKey],
        pool: pa.RecordBatch,
        states: list[_KeyState],
        matchings: list[Matching],
    ) -> None:
        """Write what is in progress, and have time look after it."""
        kept: list[int] = []
        for key, state, matching in zip(keys, states, matchings, strict=True):
            self._register(key, state, matching)
            gone = matching.trimmed()
            kept += range(state.start + gone, state.start + len(state.times))
            state.times = state.times[gone:]
            state.partials, state.completed = matching.partials, matching.completed
        rows = self._codec.pack(pool.take(pa.array(kept, pa.int64())).columns)
        made, at = [], 0
        for state in states:
            count = len(state.times)
            made.append(state.encoded(rows[at : at + count]))
            at += count
        self._matches.put_all(keys, made)

    def _register(self, key: CacheKey, state: _KeyState, matching: Matching) -> None:
        within = self._plan.pattern.within
        if within is None:
            return
        timers = self.keyed_state.timers
        by_event_time = self._plan.rowtime is not None
        register = timers.register_event_time if by_event_time else timers.register_processing_time
        started = {each.start for each in matching.partials} - {NO_ROW}
        begun = {start for start in started if start >= state.kept}
        for time in {state.times[start] for start in begun}:
            register(uncache_key(key), b"", time + within)


@dataclass(slots=True)
class _KeyState:
    """The state of a key, and where its rows are in a pool."""

    times: list[int] = field(default_factory=list)
    partials: list[Partial] = field(default_factory=list)
    completed: list[Partial] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    #: How many rows were kept; new ones come after them.
    kept: int = 0
    start: int = 0

    @classmethod
    def decoded(cls, stored: bytes | None) -> _KeyState:
        """Return what ``encoded`` has made."""
        if stored is None:
            return cls()
        head, *rows = unpacked_list(stored)
        count, going, waiting = _HEAD.unpack_from(head)
        times = np.frombuffer(head, _TIME, count, _HEAD.size).tolist()
        numbers = np.frombuffer(head, _COUNT, -1, _HEAD.size + _TIME.itemsize * count).tolist()
        found, at = [], 0
        for _ in range(going + waiting):
            start, length = numbers[at : at + 2]
            found.append(Partial(start, tuple(numbers[at + 2 : at + 2 + length])))
            at += 2 + length
        return cls(times, found[:going], found[going:], rows, count)

    def encoded(self, rows: list[bytes]) -> bytes | None:
        """Return it as one value: the head with times and counts, and the rows; None: nothing."""
        if not rows:
            return None
        numbers: list[int] = []
        for start, counts in (*self.partials, *self.completed):
            numbers += [start, len(counts), *counts]
        head = _HEAD.pack(len(rows), len(self.partials), len(self.completed))
        head += np.array(self.times, _TIME).tobytes() + np.array(numbers, _COUNT).tobytes()
        return packed_list([head, *rows])


class _AutomatonRuns:
    """The automata of several keys, and what they ask."""

    def __init__(
        self,
        conditions: list[Filter | SlotExpressions | None],
        pool: pa.RecordBatch,
        starts: list[int],
        context: Any,
    ) -> None:
        self._conditions = conditions
        self._pool = pool
        self._starts = starts
        self._context = context
        #: Per variable what is known of each row of the pool; None: it is pending for.
        self._known: list[list[bool] | None] = []
        for each in conditions:
            if each is None:
                self._known.append([True] * pool.num_rows)
            elif isinstance(each, Filter):
                self._known.append(each.evaluate(pool, context).to_pylist())
            else:
                self._known.append(None)

    def run(self, runs: Sequence[Generator[ConditionRequest, bool, None]]) -> None:
        """Go through all rows of all keys."""
        pending = {number: next(walk, None) for number, walk in enumerate(runs)}
        while True:
            open_ = {
                number: found
                for number, request in pending.items()
                if (found := self._open(number, runs[number], request)) is not None
            }
            if not open_:
                return
            answers = self._evaluate(open_)
            pending = {number: _send(runs[number], answers[number]) for number in open_}

    def _open(
        self,
        number: int,
        walk: Generator[ConditionRequest, bool, None],
        request: ConditionRequest | None,
    ) -> ConditionRequest | None:
        """The next request of a walk that only expressions answer; None: it has ended."""
        start = self._starts[number]
        while request is not None:
            known = self._known[len(request.counts) - 1]
            if known is None:
                return request
            request = _send(walk, known[start + request.start + sum(request.counts) - 1])
        return None

    def _evaluate(self, pending: dict[int, ConditionRequest]) -> dict[int, bool]:
        by_variable: dict[int, list[int]] = defaultdict(list)
        for number, request in pending.items():
            by_variable[len(request.counts) - 1].append(number)
        answers: dict[int, bool] = {}
        for variable, numbers in by_variable.items():
            spans = [
                Span(self._starts[each] + pending[each].start, pending[each].counts)
                for each in numbers
            ]
            condition = self._conditions[variable]
            assert isinstance(condition, SlotExpressions)  # noqa: S101 - else it is known
            (values,) = condition.evaluate(self._pool, spans, self._context)
            answers.update(zip(numbers, (v is True for v in values.to_pylist()), strict=True))
        return answers


def _send(walk: Generator[ConditionRequest, bool, None], answer: object) -> ConditionRequest | None:
    """Return what a walk asks after an answer; None: it has ended."""
    try:
        return walk.send(bool(answer))
    except StopIteration:
        return None


def _condition(
    expression: Expression | None, variable: int, plan: MatchFactory
) -> Filter | SlotExpressions | None:
    """A condition, compiled: over rows if it reads the row alone and may be evaluated for any."""
    if expression is None:
        return None
    used = [plan.slots[each.index] for each in walk(expression) if isinstance(each, InputReference)]
    if all(_is_of_the_row(slot, variable) for slot in used):

        def of_row(each: Any) -> Any:
            if isinstance(each, InputReference):
                slot: Any = plan.slots[each.index]
                return replace(each, index=slot.column)
            return each

        found = compile_filter(transform(expression, of_row))
        if found.is_total:
            return found
    return SlotExpressions([expression], plan.slots)


def _is_of_the_row(slot: object, variable: int) -> bool:
    return (
        isinstance(slot, Navigation)
        and not slot.first
        and not slot.offset
        and slot.variable in {None, variable}
    )
