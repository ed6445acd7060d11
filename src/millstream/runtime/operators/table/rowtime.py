"""Rowtime: rows get the timestamps that a column of theirs says.

What it is: what stands before operators of streams that go by timestamps, not by a column; and the
pieces of an interval join of tables on the operator of streams: keys of rows, pairs of rows.
What it is not: a maker of watermarks.

Read next: ``runtime/operators/interval_join.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import TypeMismatchError
from millstream.functions.co_functions import ProcessJoinFunction
from millstream.runtime.operators.table.base import TableOperator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator

__all__ = ["PairRows", "RowKey", "RowtimeFactory"]


@dataclass(frozen=True)
class RowKey:
    """The key of a row: some of its fields; None of it must be NULL."""

    columns: tuple[int, ...]

    def __call__(self, row: Any) -> tuple[object, ...]:
        """The key of a row."""
        return tuple(row[column] for column in self.columns)


class PairRows(ProcessJoinFunction):
    """Gives the fields of both rows."""

    def process_element(
        self, left: Any, right: Any, ctx: ProcessJoinFunction.Context
    ) -> Iterator[object]:
        del ctx
        yield (*left, *right)


@dataclass(frozen=True)
class RowtimeFactory:
    """Makes rowtime operators.

    Args:
        column: the timestamps.
        keys: columns of which none is NULL in rows that go on.
    """

    column: int
    keys: tuple[int, ...]
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return RowtimeOperator(self)


class RowtimeOperator(TableOperator):
    """Sets timestamps, in milliseconds."""

    def __init__(self, plan: RowtimeFactory) -> None:
        super().__init__()
        self._plan = plan

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        self.records_in += len(batch)
        for key in self._plan.keys:
            valid = batch.arrow.column(key).is_valid()
            if not pc.all(valid).as_py():
                batch = batch.filter(valid.to_pylist())
        if not len(batch):
            return
        column = batch.arrow.column(self._plan.column)
        if column.null_count:
            message = "RowTime field should not be null, please convert it to a non-null value."
            raise TypeMismatchError(message)
        millis = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
        self.records_out += len(batch)
        self.output.emit(batch.with_timestamps(millis.to_numpy()))
