"""FOR SYSTEM_TIME AS OF processing time: each row with the rows of a table outside, as it is now.

What it is: Flink's LookupJoin.  The different keys of a batch are asked for at once, or by several
connections side by side; rows keep their order, unless inserts need not, and their kinds.  What
was taken back is looked up again: if the table has changed meanwhile, another row is taken back
than was given, as in Flink.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.lookup import FoundRows
from millstream.errors import ProgramError, SourceError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_expression, compile_filter
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.base import TableOperator
from millstream.runtime.operators.table.cast_to_schema import conformed
from millstream.runtime.operators.table.join import JoinPairs
from millstream.runtime.operators.table.specs import JoinKind, JoinSide

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.lookup import LookupCaching, LookupReader, LookupSource
    from millstream.contracts.operator import Operator, OperatorContext, Output
    from millstream.expressions.nodes import Expression
    from millstream.types.logical_types import RowType


#: Connections of one task at most.
_MOST_THREADS: Final = 4
#: Seconds between two looks at how long questions are under way.
_LOOK: Final = 0.05


@dataclass(frozen=True)
class Asking:
    """How a table is asked; times in milliseconds."""

    #: How often a question that fails is asked again.
    max_retries: int = 3
    #: How long to wait before that; longer by as much before each other time.
    retry_delay: int = 1000
    #: How often keys without rows are asked for again, and how long to wait before each time.
    miss_attempts: int = 0
    miss_delay: int = 0
    #: Keys that are under way at a time; 0: questions are asked one behind the other.
    capacity: int = 0
    #: Whether rows may come in the order of answers.
    unordered: bool = False
    #: How long a question may take, with all that is asked again.
    timeout: int = 180_000


class Asker:
    """One connection.

    Args:
        source: what is asked.
        asking: how.
        where: the operator and the table, for errors.
    """

    def __init__(self, source: LookupSource, asking: Asking, where: str) -> None:
        self._source = source
        self._asking = asking
        self._where = where
        self._reader: LookupReader | None = None

    def ask(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        """The rows of some keys.

        Raises:
            SourceError: it failed as often as it may.
        """
        found = self._answer(keys, now)
        for attempt in range(1, self._asking.miss_attempts + 1):
            missing = np.setdiff1d(np.arange(keys.num_rows), found.keys)
            if not len(missing):
                break
            time.sleep(self._asking.miss_delay / 1000)
            later = now + attempt * self._asking.miss_delay
            more = self._answer(keys.take(pa.array(missing)), later)
            if len(more.keys):
                found = _together([found, more], [None, missing])
        return found

    def _answer(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        attempt = 0
        while True:
            try:
                if self._reader is None:
                    self._reader = self._source.open()
                return self._reader.lookup(keys, now)
            except SourceError as error:
                self.close()
                attempt += 1
                if attempt > self._asking.max_retries:
                    message = f"{self._where}: {error}"
                    raise SourceError(message) from error
                time.sleep(self._asking.retry_delay * attempt / 1000)

    def close(self) -> None:
        """Let go of the connection."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


class _Question:
    """Some keys on their way."""

    def __init__(self, keys: pa.RecordBatch, places: NDArray[np.int64], now: int) -> None:
        self.keys = keys
        #: Where the keys stand among all that are asked for.
        self.places = places
        self.now = now
        #: When it was begun to be asked, in seconds of the monotonic clock.
        self.begun: float | None = None
        self.answer: Future[FoundRows] = Future()


class AskerPool:
    """Some connections, each in a thread; arguments as of ``Asker``."""

    def __init__(self, source: LookupSource, asking: Asking, where: str) -> None:
        self._made = source, asking, where
        self._asking = asking
        self._where = where
        self._waiting: SimpleQueue[_Question | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    @property
    def _count(self) -> int:
        return min(_MOST_THREADS, self._asking.capacity)

    def ask(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        """The rows of all keys.

        Raises:
            SourceError: a question failed as often as it may, or took too long.
        """
        parts = list(self.answers(keys, now))
        return _together([found for _, found in parts], [places for places, _ in parts])

    def answers(
        self, keys: pa.RecordBatch, now: int
    ) -> Iterator[tuple[NDArray[np.int64], FoundRows]]:
        """The answers as they come: which keys, by position, and their rows.

        Raises:
            SourceError: a question failed as often as it may, or took too long.
        """
        size = max(1, min(self._asking.capacity // self._count, -(-keys.num_rows // self._count)))
        questions = {}
        for begin in range(0, keys.num_rows, size):
            part = keys.slice(begin, size)
            question = _Question(part, np.arange(begin, begin + part.num_rows), now)
            questions[question.answer] = question
        self._start()
        for question in questions.values():
            self._waiting.put(question)
        try:
            while questions:
                for answer in self._next(questions):
                    yield questions.pop(answer).places, answer.result()
        finally:
            for answer in questions:  # nobody wants them any more
                answer.cancel()

    def _next(self, questions: dict[Future[FoundRows], _Question]) -> set[Future[FoundRows]]:
        while True:
            done, _ = wait(questions, timeout=_LOOK, return_when=FIRST_COMPLETED)
            if done:
                return done
            limit = time.monotonic() - self._asking.timeout / 1000
            for question in questions.values():
                if question.begun is not None and question.begun < limit:
                    message = f"{self._where}: no answer within {self._asking.timeout} ms"
                    raise SourceError(message)

    def _start(self) -> None:
        while len(self._threads) < self._count:
            # What is under way when the process ends is not waited for.
            thread = threading.Thread(target=self._work, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        asker = Asker(*self._made)
        waiting = self._waiting
        while (question := waiting.get()) is not None:
            if not question.answer.set_running_or_notify_cancel():
                continue
            question.begun = time.monotonic()
            try:
                found = asker.ask(question.keys, question.now)
            except BaseException as error:  # noqa: BLE001 - who waits for it raises it
                question.answer.set_exception(error)
            else:
                question.answer.set_result(found)
        asker.close()

    def close(self) -> None:
        """End the threads; one that hangs in a question is left behind."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(timeout=1)
        self._threads = []


def _together(
    parts: list[FoundRows], places: list[NDArray[np.int64] | None] | list[NDArray[np.int64]]
) -> FoundRows:
    """Answers to several questions as one; ``places`` of the keys of each, None: as they are."""
    keys = [
        found.keys if where is None else where[found.keys]
        for found, where in zip(parts, places, strict=True)
    ]
    rows = pa.concat_tables([found.rows for found in parts], promote_options="permissive")
    return FoundRows(np.concatenate(keys), rows)


class LookupCache:
    """Packed rows by packed key."""

    def __init__(self, caching: LookupCaching) -> None:
        """Take the limits."""
        self._caching = caching
        #: Key -> when it was written and used, and its rows; the one used last is at the end.
        self._kept: OrderedDict[bytes, tuple[int, int, list[bytes]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes, now: int) -> list[bytes] | None:
        """The rows of a key; None: they are to be asked for."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        written, used, rows = kept
        caching = self._caching
        if _is_over(written, caching.expire_after_write, now) or _is_over(
            used, caching.expire_after_access, now
        ):
            del self._kept[key]
            return None
        self._kept[key] = (written, now, rows)
        self._kept.move_to_end(key)
        return rows

    def put(self, key: bytes, rows: list[bytes], now: int) -> None:
        """Keep an answer."""
        if not rows and not self._caching.missing_keys:
            return
        self._kept[key] = (now, now, rows)
        self._kept.move_to_end(key)
        most = self._caching.max_rows
        while most is not None and len(self._kept) > most:
            self._kept.popitem(last=False)


def _is_over(since: int, length: int | None, now: int) -> bool:
    return length is not None and now - since >= length


@dataclass(frozen=True)
class LookupJoinFactory:
    """Makes lookup joins.  They give the left columns, then the projections of what is found."""

    left_type: RowType
    #: The columns that the source gives.
    table_type: RowType
    right_type: RowType
    #: INNER or LEFT.
    kind: JoinKind
    source: LookupSource
    #: How errors name the table.
    table: str
    #: Names of the columns that rows are found by, and the columns of the left with their values.
    names: tuple[str, ...]
    keys: tuple[int, ...]
    #: Over the columns of the table.
    projections: tuple[Expression, ...]
    table_condition: Expression | None = None
    #: Over the left columns and the projections.
    condition: Expression | None = None
    caching: LookupCaching | None = None
    asking: Asking = field(default_factory=Asking)
    evaluation: EvaluationContext = field(default_factory=EvaluationContext)
    keyed: ClassVar[bool] = False

    @property
    def left(self) -> JoinSide:
        """The side that asks."""
        return JoinSide(self.keys)

    @property
    def right(self) -> JoinSide:
        """The table."""
        return JoinSide(())

    @property
    def filter_nulls(self) -> tuple[bool, ...]:
        """NULL equals nothing."""
        return (True,) * len(self.keys)

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return LookupJoinOperator(self)


class LookupJoinOperator(TableOperator):
    """Asks for the rows of each batch."""

    counted: ClassVar[Mapping[str, str]] = {
        **TableOperator.counted,
        "numLookups": "lookups",
    }

    def __init__(self, plan: LookupJoinFactory) -> None:
        """Compile what is done with the rows that are found.

        Raises:
            ProgramError: neither an inner nor a left join.
        """
        super().__init__()
        if plan.kind not in (JoinKind.INNER, JoinKind.LEFT):
            message = f"a lookup join is inner or left, not {plan.kind.value}"
            raise ProgramError(message)
        self._plan = plan
        self.concurrency = max(1, plan.asking.capacity)
        self._pairs = JoinPairs(plan)
        self._projections = [compile_expression(each) for each in plan.projections]
        condition = plan.table_condition
        self._condition = None if condition is None else compile_filter(condition)
        self._table_schema = plan.table_type.to_arrow_schema()
        self._key_schema = pa.schema([self._table_schema.field(name) for name in plan.names])
        self._key_codec = RowCodec(self._key_schema)
        self._codec = RowCodec(plan.right_type.to_arrow_schema())
        self._cache = None if plan.caching is None else LookupCache(plan.caching)
        self._asker: Asker | None = None
        self._pool: AskerPool | None = None
        self.lookups = 0

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        plan = self._plan
        where = f"operator {context.name!r}: looking up {plan.table}"
        if plan.asking.capacity:
            self._pool = AskerPool(plan.source, plan.asking, where)
        else:
            self._asker = Asker(plan.source, plan.asking, where)

    def close(self) -> None:
        super().close()
        for each in (self._asker, self._pool):
            if each is not None:
                each.close()

    # Rows.

    def process_rows(self, batch: Batch) -> None:
        arrow, plan = batch.arrow, self._plan
        groups = group_rows([arrow.column(index) for index in plan.keys], len(batch))
        firsts = pa.array(groups.first_rows)
        keys = pa.RecordBatch.from_arrays(
            [arrow.column(index).take(firsts) for index in plan.keys], schema=self._key_schema
        )
        wanted = self._pairs.may_match(arrow, groups, 0)
        pool, kinds = self._pool, batch.row_kinds
        if pool and plan.asking.unordered and self._cache is None and kinds is None:
            self._emit_as_found(pool, arrow, keys, wanted, groups.group_of_row)
            return
        sizes, columns = self._found(keys, wanted)
        self._emit_met(arrow, kinds, sizes, columns, groups.group_of_row)

    def _emit_as_found(
        self,
        pool: AskerPool,
        arrow: pa.RecordBatch,
        keys: pa.RecordBatch,
        wanted: NDArray[np.bool_],
        group_of_row: NDArray[np.int64],
    ) -> None:
        """Give the rows of each answer when it comes; first those that nothing is asked for."""
        asked = np.flatnonzero(wanted)
        self.lookups += len(asked)
        nothing = np.empty(0, dtype=np.int64), self._codec.unpack([])
        self._emit_part(arrow, np.flatnonzero(~wanted), group_of_row, *nothing)
        if len(asked):
            for places, found in pool.answers(keys.take(pa.array(asked)), self.processing_time):
                numbers, columns = self._computed(found, asked[places])
                self._emit_part(arrow, asked[places], group_of_row, numbers, columns)

    def _emit_part(
        self,
        arrow: pa.RecordBatch,
        groups: NDArray[np.int64],
        group_of_row: NDArray[np.int64],
        numbers: NDArray[np.int64],
        columns: list[pa.Array],
    ) -> None:
        """Give the rows of some groups."""
        position = np.full(int(group_of_row.max()) + 1, -1, dtype=np.int64)
        position[groups] = np.arange(len(groups))
        part = position[group_of_row]
        is_part = part >= 0
        if is_part.any():
            sizes = np.bincount(position[numbers], minlength=len(groups)).astype(np.int64)
            rows = arrow.filter(pa.array(is_part))
            self._emit_met(rows, None, sizes, columns, part[is_part])

    def _emit_met(
        self,
        arrow: pa.RecordBatch,
        kinds: NDArray[np.int8] | None,
        sizes: NDArray[np.int64],
        columns: list[pa.Array],
        group_of_row: NDArray[np.int64],
    ) -> None:
        first, second = self._met(arrow, sizes, columns, group_of_row)
        for run, made in self._pairs.joined(arrow.columns, columns, first, second, 0):
            self.emit_columns(made, None if kinds is None else kinds[first[run]])

    def _met(
        self,
        arrow: pa.RecordBatch,
        sizes: NDArray[np.int64],
        columns: list[pa.Array],
        group_of_row: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The pairs, in order of the rows; -1 for one that meets nothing and is kept."""
        ones, twos = [], []
        for one, two in self._pairs.candidates(sizes, group_of_row):
            holds = self._pairs.holds(arrow.columns, columns, one, two, 0, self.processing_time)
            ones.append(one[holds])
            twos.append(two[holds])
        first, second = np.concatenate(ones), np.concatenate(twos)
        if self._plan.kind is JoinKind.LEFT:
            alone = np.ones(arrow.num_rows, dtype=np.bool_)
            alone[first] = False
            lonely = np.flatnonzero(alone)
            first = np.concatenate([first, lonely])
            second = np.concatenate([second, np.full(len(lonely), -1, dtype=np.int64)])
            order = np.argsort(first, kind="stable")
            first, second = first[order], second[order]
        return first, second

    # Answers.

    def _found(
        self, keys: pa.RecordBatch, wanted: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], list[pa.Array]]:
        """How many rows each key has, and their columns, those of one key behind the other."""
        if self._cache is None:
            numbers, columns = self._ask(keys, np.flatnonzero(wanted))
            return np.bincount(numbers, minlength=len(wanted)).astype(np.int64), columns
        return self._through_cache(self._cache, keys, wanted)

    def _through_cache(
        self, cache: LookupCache, keys: pa.RecordBatch, wanted: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], list[pa.Array]]:
        now = self.processing_time
        names = self._key_codec.pack(keys.columns)
        rows: list[list[bytes] | None] = [
            cache.get(name, now) if may_match else []
            for name, may_match in zip(names, wanted.tolist(), strict=True)
        ]
        missing = [number for number, each in enumerate(rows) if each is None]
        if missing:
            numbers, columns = self._ask(keys, np.array(missing, dtype=np.int64))
            packed = iter(self._codec.pack(columns))
            counts = np.bincount(numbers, minlength=len(rows))
            for number in missing:
                answer = [next(packed) for _ in range(int(counts[number]))]
                rows[number] = answer
                cache.put(names[number], answer, now)
        answers = [each or [] for each in rows]
        sizes = np.array([len(each) for each in answers], dtype=np.int64)
        return sizes, self._codec.unpack([row for each in answers for row in each])

    def _ask(
        self, keys: pa.RecordBatch, asked: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], list[pa.Array]]:
        """The rows of some keys in order of the keys: number of the key, and the projections."""
        if not len(asked):
            return np.empty(0, dtype=np.int64), self._codec.unpack([])
        self.lookups += len(asked)
        asker = self._pool or self._asker
        assert asker is not None  # noqa: S101 - of setup
        found = asker.ask(keys.take(pa.array(asked)), self.processing_time)
        return self._computed(found, asked)

    def _computed(
        self, found: FoundRows, asked: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], list[pa.Array]]:
        """What an answer says of keys: as ``_ask``."""
        order = np.argsort(found.keys, kind="stable")
        numbers = asked[found.keys[order]]
        table = found.rows.take(pa.array(order))
        arrays = [self._column(table, each) for each in self._table_schema]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._table_schema)
        context = self._plan.evaluation.at(self.processing_time)
        if self._condition is not None and rows.num_rows:
            mask = self._condition.evaluate(rows, context)
            rows, numbers = rows.filter(mask), numbers[mask.to_numpy(zero_copy_only=False)]
        if not rows.num_rows:
            return np.empty(0, dtype=np.int64), self._codec.unpack([])
        return numbers, [each.evaluate(rows, context) for each in self._projections]

    def _column(self, table: pa.Table, wanted: pa.Field) -> pa.Array:
        column = table.column(wanted.name).combine_chunks()
        return conformed(column, wanted, self._plan.table, SourceError)
