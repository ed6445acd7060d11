"""MATCH_RECOGNIZE: rows of each key that follow a pattern, one row per match.

What it is: rows in order of time go through the automaton of the pattern
(``runtime/operators/table/row_patterns.py``).  By event time they wait until the watermark has
passed them; late rows are dropped.  By processing time they are taken as they come.  A condition
that reads the row alone is evaluated for all rows at once; the others are asked for by the
automata, and those of all keys are evaluated together.

State, per key: the rows that wait; the rows from the first of a match in the making on, and these
matches: where each begins and how many rows its variables have.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.expressions.evaluator import Filter, compile_filter
from millstream.expressions.nodes import InputReference, transform, walk
from millstream.runtime.columnar.array_utils import milliseconds_of
from millstream.runtime.columnar.row_codec import RowCodec, sort_keys
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.base import LateRowsOperator
from millstream.runtime.operators.table.row_buffers import WaitingRows, packed_list, unpacked_list
from millstream.runtime.operators.table.row_patterns import (
    Match,
    Matching,
    Navigation,
    Partial,
    SlotExpressions,
    Span,
)
from millstream.state.key_codec import cache_key, uncache_key
from millstream.state.packed_state import PackedValues

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        Checkpoint,
        OperatorContext,
        OperatorSnapshot,
        Output,
    )
    from millstream.expressions.nodes import Expression
    from millstream.runtime.operators.table.plans import MatchPlan
    from millstream.runtime.operators.table.row_patterns import Question
    from millstream.state.key_codec import CacheKey


_HEAD: Final = struct.Struct("<III")
_TIME: Final = np.dtype("<i8")
_COUNT: Final = np.dtype("<u4")


class MatchOperator(LateRowsOperator):
    """Keeps the matches in the making of every key."""

    def __init__(self, plan: MatchPlan) -> None:
        """Compile conditions and measures."""
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
            self.late += self._waiting.add(arrow, times, times <= self._watermark)
            return
        groups = group_rows([arrow.column(index) for index in self._plan.keys], len(batch))
        ends = groups.starts + groups.counts
        mine = [
            groups.order[start:end].tolist()
            for start, end in zip(groups.starts.tolist(), ends.tolist(), strict=True)
        ]
        times = np.full(len(batch), self.processing_time, dtype=np.int64)
        self._advance(groups.keys, arrow, times, mine, self.processing_time)

    def process_watermark(self, watermark: int) -> None:
        """Take the rows that the watermark has passed."""
        self._watermark = watermark
        if self._plan.rowtime is not None:
            fired = self.keyed_state.timers.advance_event_time(watermark)
            keys = list(dict.fromkeys(cache_key(key) for _, key, _ in fired))
            if keys:
                arrow, times, counts = self._waiting.take(keys, watermark)
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

    def due(self) -> int | None:
        return self.keyed_state.timers.processing.next_time()

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
        walks = [
            matching.walk(each.kept, until)
            for matching, each in zip(matchings, states, strict=True)
        ]
        _Walks(self._conditions, pool, starts, context).run(walks)
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
        self.emit_columns([*keys, *self._measures.evaluate(pool, spans, context)])

    def _keep(
        self,
        keys: list[CacheKey],
        pool: pa.RecordBatch,
        states: list[_KeyState],
        matchings: list[Matching],
    ) -> None:
        """Write what is in the making, and have time look after it."""
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
        begun = {each.start for each in matching.partials if each.start >= state.kept}
        for time in {state.times[start] for start in begun}:
            register(uncache_key(key), b"", time + within)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        due = self.due()
        snapshot = super().snapshot(checkpoint)
        snapshot.next_due = due
        return snapshot


@dataclass(slots=True)
class _KeyState:
    """What is kept of a key, and where its rows are in a pool."""

    times: list[int] = field(default_factory=list)
    partials: list[Partial] = field(default_factory=list)
    completed: list[Partial] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    #: How many rows were kept; new ones come behind them.
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


class _Walks:
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
        #: Per variable what is known of each row of the pool; None: it is asked for.
        self._known: list[list[bool] | None] = []
        for each in conditions:
            if each is None:
                self._known.append([True] * pool.num_rows)
            elif isinstance(each, Filter):
                self._known.append(each.evaluate(pool, context).to_pylist())
            else:
                self._known.append(None)

    def run(self, walks: Sequence[Generator[Question, bool, None]]) -> None:
        """Go through all rows of all keys."""
        asked = {number: next(walk, None) for number, walk in enumerate(walks)}
        while True:
            open_ = {
                number: found
                for number, question in asked.items()
                if (found := self._open(number, walks[number], question)) is not None
            }
            if not open_:
                return
            answers = self._answers(open_)
            asked = {number: _sent(walks[number], answers[number]) for number in open_}

    def _open(
        self, number: int, walk: Generator[Question, bool, None], question: Question | None
    ) -> Question | None:
        """The next question of a walk that only expressions answer; None: it has ended."""
        start = self._starts[number]
        while question is not None:
            known = self._known[len(question.counts) - 1]
            if known is None:
                return question
            question = _sent(walk, known[start + question.start + sum(question.counts) - 1])
        return None

    def _answers(self, asked: dict[int, Question]) -> dict[int, bool]:
        by_variable: dict[int, list[int]] = defaultdict(list)
        for number, question in asked.items():
            by_variable[len(question.counts) - 1].append(number)
        answers: dict[int, bool] = {}
        for variable, numbers in by_variable.items():
            spans = [
                Span(self._starts[each] + asked[each].start, asked[each].counts) for each in numbers
            ]
            condition = self._conditions[variable]
            assert isinstance(condition, SlotExpressions)  # noqa: S101 - else it is known
            (values,) = condition.evaluate(self._pool, spans, self._context)
            answers.update(zip(numbers, (v is True for v in values.to_pylist()), strict=True))
        return answers


def _sent(walk: Generator[Question, bool, None], answer: object) -> Question | None:
    """What a walk asks behind an answer; None: it has ended."""
    try:
        return walk.send(bool(answer))
    except StopIteration:
        return None


def _condition(
    expression: Expression | None, variable: int, plan: MatchPlan
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
