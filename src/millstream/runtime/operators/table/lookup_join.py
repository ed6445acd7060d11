"""FOR SYSTEM_TIME AS OF processing time: lookups in an external table, as Flink's LookupJoin.

The distinct keys of a batch are looked up at once, or concurrently over several connections; rows
keep their order (inserts may opt out) and their RowKinds.  A retraction is looked up again: if the
table has changed meanwhile, another row is retracted than was emitted, as in Flink.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.lookup import FoundRows
from millstream.errors import ProgramError, SourceError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_expression, compile_filter
from millstream.object_stores import OpensStores
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.base import TableOperator
from millstream.runtime.operators.table.calc import conformed
from millstream.runtime.operators.table.join import JoinPairs, JoinParameters
from millstream.runtime.operators.table.specs import JoinKind, JoinSide

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.lookup import LookupCaching, LookupReader, LookupSource
    from millstream.contracts.operator import Operator, OperatorContext, Output
    from millstream.expressions.nodes import Expression
    from millstream.object_stores import StoreAccess
    from millstream.types.logical_types import RowType


#: Connections of one task at most.
_MOST_THREADS: Final = 4
#: Seconds between two reads how long requests are in flight.
_POLL_SECONDS: Final = 0.05


# -- connections and cache ---


@dataclass(frozen=True)
class LookupPolicy:
    """How a table is asked; times in milliseconds."""

    #: How often a request that fails is asked again.
    max_retries: int = 3
    #: How long to wait before that; longer by as much before each other time.
    retry_delay: int = 1000
    #: How often keys without rows are asked for again, and how long to wait before each time.
    miss_attempts: int = 0
    miss_delay: int = 0
    #: Keys that are in flight at a time; 0: requests are asked one after another.
    capacity: int = 0
    #: Whether rows may come in the order of answers.
    unordered: bool = False
    #: How long a request may take, with all that is asked again.
    timeout: int = 180_000


class LookupConnection:
    """One connection.

    Args:
        source: what is asked.
        asking: how.
        where: the operator and the table, for errors.
    """

    def __init__(self, source: LookupSource, asking: LookupPolicy, where: str) -> None:
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


class _Request:
    """Some keys on their way."""

    def __init__(self, keys: pa.RecordBatch, places: NDArray[np.int64], now: int) -> None:
        self.keys = keys
        #: Where the keys stand among all that are asked for.
        self.places = places
        self.now = now
        #: When it was begun to be asked, in seconds of the monotonic clock.
        self.begun: float | None = None
        self.answer: Future[FoundRows] = Future()


class LookupConnectionPool:
    """Some connections, each in a thread; arguments as of ``LookupConnection``."""

    def __init__(self, source: LookupSource, asking: LookupPolicy, where: str) -> None:
        self._made = source, asking, where
        self._asking = asking
        self._where = where
        self._waiting: SimpleQueue[_Request | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    @property
    def _count(self) -> int:
        return min(_MOST_THREADS, self._asking.capacity)

    def ask(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        """The rows of all keys.

        Raises:
            SourceError: a request failed as often as it may, or took too long.
        """
        parts = list(self.answers(keys, now))
        return _together([found for _, found in parts], [places for places, _ in parts])

    def answers(
        self, keys: pa.RecordBatch, now: int
    ) -> Iterator[tuple[NDArray[np.int64], FoundRows]]:
        """The answers as they come: which keys, by position, and their rows.

        Raises:
            SourceError: a request failed as often as it may, or took too long.
        """
        size = max(1, min(self._asking.capacity // self._count, -(-keys.num_rows // self._count)))
        requests = {}
        for begin in range(0, keys.num_rows, size):
            part = keys.slice(begin, size)
            request = _Request(part, np.arange(begin, begin + part.num_rows), now)
            requests[request.answer] = request
        self._start()
        for request in requests.values():
            self._waiting.put(request)
        try:
            while requests:
                for answer in self._next(requests):
                    yield requests.pop(answer).places, answer.result()
        finally:
            for answer in requests:  # nobody wants them any more
                answer.cancel()

    def _next(self, requests: dict[Future[FoundRows], _Request]) -> set[Future[FoundRows]]:
        while True:
            done, _ = wait(requests, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            if done:
                return done
            limit = time.monotonic() - self._asking.timeout / 1000
            for request in requests.values():
                if request.begun is not None and request.begun < limit:
                    message = f"{self._where}: no answer within {self._asking.timeout} ms"
                    raise SourceError(message)

    def _start(self) -> None:
        while len(self._threads) < self._count:
            # What is in flight when the process ends is not waited for.
            thread = threading.Thread(target=self._work, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        connection = LookupConnection(*self._made)
        waiting = self._waiting
        while (request := waiting.get()) is not None:
            if not request.answer.set_running_or_notify_cancel():
                continue
            request.begun = time.monotonic()
            try:
                found = connection.ask(request.keys, request.now)
            except BaseException as error:  # noqa: BLE001 - who waits for it raises it
                request.answer.set_exception(error)
            else:
                request.answer.set_result(found)
        connection.close()

    def close(self) -> None:
        """End the threads; one that hangs in a request is left after."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(timeout=1)
        self._threads = []


def _together(
    parts: list[FoundRows], places: list[NDArray[np.int64] | None] | list[NDArray[np.int64]]
) -> FoundRows:
    """Answers to several requests as one; ``places`` of the keys of each, None: as they are."""
    keys = [
        found.keys if where is None else where[found.keys]
        for found, where in zip(parts, places, strict=True)
    ]
    rows = pa.concat_tables([found.rows for found in parts], promote_options="permissive")
    return FoundRows(np.concatenate(keys), rows)


class LookupCache:
    """Packed rows by packed key."""

    def __init__(self, caching: LookupCaching) -> None:
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


# -- the operator ---


@dataclass(frozen=True)
class LookupJoinFactory(OpensStores):
    """Factory of lookup joins.  They emit the left columns, then projections of the rows found."""

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
    asking: LookupPolicy = field(default_factory=LookupPolicy)
    evaluation: EvaluationContext = field(default_factory=EvaluationContext)
    keyed: ClassVar[bool] = False

    def opened_with(self, stores: StoreAccess) -> LookupJoinFactory:
        return replace(self, source=self.source.opened_with(stores))

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
        self._pairs = JoinPairs(
            JoinParameters(
                plan.left_type,
                plan.right_type,
                plan.kind,
                JoinSide(plan.keys),
                JoinSide(()),
                (True,) * len(plan.keys),
                condition=plan.condition,
                evaluation=plan.evaluation,
            ),
            self,
        )
        self._projections = [compile_expression(each) for each in plan.projections]
        condition = plan.table_condition
        self._condition = None if condition is None else compile_filter(condition)
        self._table_schema = plan.table_type.to_arrow_schema()
        self._key_schema = pa.schema([self._table_schema.field(name) for name in plan.names])
        self._key_codec = RowCodec(self._key_schema)
        self._codec = RowCodec(plan.right_type.to_arrow_schema())
        self._cache = None if plan.caching is None else LookupCache(plan.caching)
        self._connection: LookupConnection | None = None
        self._pool: LookupConnectionPool | None = None
        self.lookups = 0

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        plan = self._plan
        where = f"operator {context.name!r}: looking up {plan.table}"
        if plan.asking.capacity:
            self._pool = LookupConnectionPool(plan.source, plan.asking, where)
        else:
            self._connection = LookupConnection(plan.source, plan.asking, where)

    def close(self) -> None:
        super().close()
        for each in (self._connection, self._pool):
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
        self._emit_matched(arrow, kinds, sizes, columns, groups.group_of_row)

    def _emit_as_found(
        self,
        pool: LookupConnectionPool,
        arrow: pa.RecordBatch,
        keys: pa.RecordBatch,
        wanted: NDArray[np.bool_],
        group_of_row: NDArray[np.int64],
    ) -> None:
        """Emit the rows of each response when it arrives; first those without a lookup."""
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
        """Emit the rows of some groups."""
        position = np.full(int(group_of_row.max()) + 1, -1, dtype=np.int64)
        position[groups] = np.arange(len(groups))
        part = position[group_of_row]
        is_part = part >= 0
        if is_part.any():
            sizes = np.bincount(position[numbers], minlength=len(groups)).astype(np.int64)
            rows = arrow.filter(pa.array(is_part))
            self._emit_matched(rows, None, sizes, columns, part[is_part])

    def _emit_matched(
        self,
        arrow: pa.RecordBatch,
        kinds: NDArray[np.int8] | None,
        sizes: NDArray[np.int64],
        columns: list[pa.Array],
        group_of_row: NDArray[np.int64],
    ) -> None:
        first, second = self._matched(arrow, sizes, columns, group_of_row)
        for run, made in self._pairs.joined(arrow.columns, columns, first, second, 0):
            self.emit_columns(made, None if kinds is None else kinds[first[run]])

    def _matched(
        self,
        arrow: pa.RecordBatch,
        sizes: NDArray[np.int64],
        columns: list[pa.Array],
        group_of_row: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The pairs, in order of the rows; -1 for one that matches nothing and is kept."""
        ones, twos = [], []
        for one, two in self._pairs.candidates(sizes, group_of_row):
            holds = self._pairs.holds(arrow.columns, columns, one, two, 0, self.processing_time)
            ones.append(one[holds])
            twos.append(two[holds])
        first, second = np.concatenate(ones), np.concatenate(twos)
        if self._plan.kind is JoinKind.LEFT:
            is_unmatched = np.ones(arrow.num_rows, dtype=np.bool_)
            is_unmatched[first] = False
            unmatched = np.flatnonzero(is_unmatched)
            first = np.concatenate([first, unmatched])
            second = np.concatenate([second, np.full(len(unmatched), -1, dtype=np.int64)])
            order = np.argsort(first, kind="stable")
            first, second = first[order], second[order]
        return first, second

    # Answers.

    def _found(
        self, keys: pa.RecordBatch, wanted: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], list[pa.Array]]:
        """Return how many rows each key has, and their columns, key by key."""
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
        connection = self._pool or self._connection
        assert connection is not None  # noqa: S101 - of setup
        found = connection.ask(keys.take(pa.array(asked)), self.processing_time)
        return self._computed(found, asked)

    def _computed(
        self, found: FoundRows, asked: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], list[pa.Array]]:
        """Return what an answer says of keys: as ``_ask``."""
        order = np.argsort(found.keys, kind="stable")
        numbers = asked[found.keys[order]]
        table = found.rows.take(pa.array(order))
        arrays = [self._column(table, each) for each in self._table_schema]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._table_schema)
        context = self._plan.evaluation.at(self.processing_time)
        if self._condition is not None and rows.num_rows:
            with self.evaluating():
                mask = self._condition.evaluate(rows, context)
            rows, numbers = rows.filter(mask), numbers[mask.to_numpy(zero_copy_only=False)]
        if not rows.num_rows:
            return np.empty(0, dtype=np.int64), self._codec.unpack([])
        with self.evaluating():
            return numbers, [each.evaluate(rows, context) for each in self._projections]

    def _column(self, table: pa.Table, wanted: pa.Field) -> pa.Array:
        column = table.column(wanted.name).combine_chunks()
        return conformed(column, wanted, self._plan.table, SourceError)
