"""What expressions are evaluated on: the rows of a batch, or those of them that a branch selects.

What it is: a frame gives columns by position, taken from the frame around it when somebody asks,
so that a branch of a CASE pays for the columns that it reads.

What it is not: a batch (``contracts/batch.py``): it has no kinds, no timestamps.

Read next: ``expressions/evaluation.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from millstream.expressions.context import EvaluationContext

__all__ = ["Frame", "batch_frame"]

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
            columns: those at hand; None for what ``outer`` has to give.
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
