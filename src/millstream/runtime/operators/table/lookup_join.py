"""FOR SYSTEM_TIME AS OF processing time: each row with the rows of a table outside, as it is now.

What it is: Flink's LookupJoin.  The different keys of a batch are asked for at once, or by several
connections side by side; rows keep their order, unless inserts need not, and their kinds.  What
was taken back is looked up again: if the table has changed meanwhile, another row is taken back
than was given, as in Flink.

What it is not: with state.  A cache is empty after a restore.

Read next: ``contracts/lookup.py``, ``runtime/operators/table/lookup_cache.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError, SourceError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_expression, compile_filter
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.table.base import TableOperator
from millstream.runtime.operators.table.conform import conformed
from millstream.runtime.operators.table.join_pairs import JoinPairs
from millstream.runtime.operators.table.lookup_asking import Asker, AskerPool, Asking
from millstream.runtime.operators.table.lookup_cache import LookupCache
from millstream.runtime.operators.table.specs import JoinKind, JoinSide

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.lookup import FoundRows, LookupCaching, LookupSource
    from millstream.contracts.operator import (
        Operator,
        OperatorContext,
        Output,
    )
    from millstream.expressions.nodes import Expression
    from millstream.types.logical_types import RowType

__all__ = ["LookupJoinFactory", "LookupJoinOperator"]


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
