"""Evaluation context: time zone, clock and job parameters, one record per batch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.functions.functions import RuntimeContext


@dataclass(frozen=True)
class AsyncCalls:
    """How asynchronous scalar functions of users are called: ``table.exec.async-scalar.*``."""

    concurrency: int = 10
    #: Milliseconds for a row, with all attempts.
    timeout: int = 180_000
    #: How often a call that raises is repeated, and milliseconds before each repetition.
    retries: int = 3
    retry_delay: int = 100


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """Time, zone and options that the expressions of one batch are evaluated with.

    Args:
        time_zone: the session's time zone (``table.local-time-zone``), a name or an offset such
            as ``GMT+02:00``.
        processing_time: milliseconds since 1970: PROCTIME(), and CURRENT_TIMESTAMP of a stream.
        query_start_time: milliseconds since 1970 at which the query began: CURRENT_TIMESTAMP in
            batch mode; None: as ``processing_time``.
        current_watermark: milliseconds since 1970, None as long as there is none.
        job_parameters: ``pipeline.global-job-parameters``.
        async_calls: how asynchronous functions of users are called.
        runtime: of the task, for functions of users; None where expressions do not know it.
    """

    time_zone: str = "UTC"
    processing_time: int = 0
    query_start_time: int | None = None
    current_watermark: int | None = None
    job_parameters: Mapping[str, str] = field(default_factory=dict)
    async_calls: AsyncCalls = field(default_factory=AsyncCalls)
    runtime: RuntimeContext | None = None

    def at(self, processing_time: int, current_watermark: int | None = None) -> EvaluationContext:
        """The same for a batch that is processed at that time, milliseconds since 1970."""
        return replace(self, processing_time=processing_time, current_watermark=current_watermark)

    @property
    def now(self) -> int:
        """Milliseconds since 1970 as CURRENT_TIMESTAMP gives it."""
        start = self.query_start_time
        return self.processing_time if start is None else start


_BOOL: Final = pa.bool_()


class Frame:
    """Columns of some rows, and what was already computed on them."""

    __slots__ = ("_columns", "_outer", "_selection", "context", "memo", "rows")

    def __init__(
        self,
        columns: list[pa.Array | None],
        rows: int,
        context: EvaluationContext,
        outer: Frame | None = None,
        selection: pa.Array | None = None,
    ) -> None:
        """Take the columns, or where they come from.

        Args:
            columns: the available ones; None for what ``outer`` has to give.
            rows: how many rows the frame has.
            context: what the expressions are evaluated with.
            outer: the frame that this one selects rows of.
            selection: which: a mask without nulls, or positions (int64).
        """
        self._columns = columns
        self._outer = outer
        self._selection = selection
        self.rows = rows
        self.context = context
        #: Results of expressions that occur more than once, by their node.
        self.memo: dict[Any, Any] = {}

    def column(self, index: int) -> pa.Array:
        """The column at that position."""
        found = self._columns[index]
        if found is None:
            assert self._outer is not None  # noqa: S101 - the constructor's contract
            found = self.select_from(self._outer.column(index))
            self._columns[index] = found
        return found

    def select_from(self, column: pa.Array) -> pa.Array:
        """The rows of a column of the outer frame that this frame selects."""
        selection = self._selection
        if selection is None:
            return column
        if selection.type == _BOOL:
            return column.filter(selection)
        return column.take(selection)

    def filter(self, mask: pa.Array, rows: int) -> Frame:
        """The rows for which the mask is true.

        Args:
            mask: a boolean per row, no nulls.
            rows: how many of them are true.
        """
        return Frame([None] * len(self._columns), rows, self.context, self, mask)

    def take(self, positions: pa.Array) -> Frame:
        """The rows at these positions (int64), in that order."""
        return Frame([None] * len(self._columns), len(positions), self.context, self, positions)


def batch_frame(batch: pa.RecordBatch, context: EvaluationContext) -> Frame:
    """All rows of a batch."""
    return Frame(batch.columns, batch.num_rows, context)
