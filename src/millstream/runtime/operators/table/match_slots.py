"""What conditions and measures of MATCH_RECOGNIZE read of the rows of a match.

What it is: slots, each a value of a match: a column of one of its rows (``LAST(A.price, 1)``), an
aggregate over rows of a variable, the match's time.  Expressions refer to slots by position, and
are evaluated for many matches at once.

What it is not: the finding of matches (``row_patterns.py``).

Read next: ``runtime/operators/table/match.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from millstream.expressions.evaluator import compile_projection
from millstream.expressions.nodes import InputReference, transform, walk
from millstream.runtime.columnar.array_utils import timestamps_of
from millstream.runtime.columnar.changelog_aggregates import Segments
from millstream.runtime.operators.table.aggregate_calls import Aggregates, SortedRows
from millstream.runtime.operators.table.specs import AggregateCall
from millstream.types.logical_types import RowType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.context import EvaluationContext
    from millstream.expressions.nodes import Expression
    from millstream.types.logical_types import LogicalType

__all__ = ["Aggregation", "MatchTime", "Navigation", "Slot", "SlotExpressions", "Span"]


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
