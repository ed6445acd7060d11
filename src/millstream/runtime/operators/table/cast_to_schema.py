"""Conform: the columns of a stream brought into the types of a table, or of a sink.

What it is: what stands between a connector and the operators of tables: a source's columns are
found by name and cast, a sink's are cast to what it takes, after a check of NOT NULL.
What it is not: CAST of SQL, which is an expression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.errors import TypeMismatchError
from millstream.runtime.columnar.array_utils import of_length
from millstream.runtime.operators.table.base import TableOperator

if TYPE_CHECKING:
    import numpy as np

    from millstream.contracts.operator import Operator
    from millstream.errors import MillstreamError
    from millstream.types.logical_types import LogicalType


@dataclass(frozen=True)
class ConformFactory:
    """Makes conform operators.

    Args:
        columns: for each column of the output, the name of the input's; None: by position.
        not_null: positions of output columns that must not hold NULL.
        drop: whether a row that breaks that is dropped instead of failing.
        table: how errors name the table.
        lengths: columns of a length, to which values are cut and filled up.
        with_time: whether a further column, after the others, has the timestamps of the records.
        time_column: the column of the input that becomes the timestamps; empty: they stay.
    """

    columns: tuple[str, ...] | None = None
    not_null: tuple[int, ...] = ()
    drop: bool = False
    table: str = ""
    with_time: bool = False
    time_column: str = ""
    lengths: tuple[tuple[int, LogicalType], ...] = ()
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return ConformOperator(self)


class ConformOperator(TableOperator):
    """Casts columns; kinds and timestamps stay."""

    def __init__(self, plan: ConformFactory) -> None:
        """Take the plan."""
        super().__init__()
        self._plan = plan

    def process_rows(self, batch: Batch) -> None:
        if self._plan.not_null:
            batch = self._checked(batch)
        self.records_out += len(batch)
        arrow = batch.arrow
        wanted = self.context.output_type.arrow_schema
        assert wanted is not None  # noqa: S101 - tables have columns
        read = list(wanted)[: len(wanted) - self._plan.with_time]
        columns = [self._cast(arrow, position, field) for position, field in enumerate(read)]
        for position, kind in self._plan.lengths:
            columns[position] = of_length(columns[position], kind)
        if self._plan.with_time:
            columns.append(self._times(batch, wanted.field(len(read)).type))
        made = pa.RecordBatch.from_arrays(columns, schema=wanted)
        times = batch.raw_timestamps
        if self._plan.time_column:
            times = self._times_in(arrow.column(self._plan.time_column))
        self.output.emit(
            Batch(self.context.output_type, arrow=made, timestamps=times, row_kinds=batch.row_kinds)
        )

    def _times_in(self, column: pa.Array) -> np.ndarray:
        if column.null_count:
            message = (
                f"Column '{self._plan.time_column}' of {self._plan.table} becomes the timestamp of "
                "its row and is NULL in one; filter such rows before."
            )
            raise TypeMismatchError(message)
        milliseconds = pa.timestamp("ms", column.type.tz)
        times: np.ndarray = column.cast(milliseconds, safe=False).cast(pa.int64()).to_numpy()
        return times

    def _times(self, batch: Batch, kind: pa.DataType) -> pa.Array:
        times = batch.raw_timestamps
        if times is None or (len(times) and min(times) == MIN_TIMESTAMP):
            message = (
                f"Could not find timestamp in a record of {self._plan.table}. Make sure that "
                "timestamps have been assigned before, as by assign_timestamps_and_watermarks()."
            )
            raise TypeMismatchError(message)
        return pa.array(times, pa.int64()).cast(pa.timestamp("ms", kind.tz)).cast(kind)

    def _cast(self, arrow: pa.RecordBatch, position: int, field: pa.Field) -> pa.Array:
        names = self._plan.columns
        column = arrow.column(position if names is None else names[position])
        if pa.types.is_dictionary(column.type) and column.type != field.type:
            column = column.dictionary_decode()
        owner = self._plan.table or self.context.name
        return conformed(column, field, owner, TypeMismatchError)

    def _checked(self, batch: Batch) -> Batch:
        arrow = batch.arrow
        for position in self._plan.not_null:
            column = arrow.column(position)
            if not column.null_count:
                continue
            if self._plan.drop:
                mask = column.is_valid()
                return self._checked(batch.filter(mask.to_pylist()))
            name = arrow.schema.names[position]
            row = arrow.filter(column.is_null()).slice(0, 1).to_pylist()[0]
            message = (
                f"Column '{name}' of {self._plan.table} is NOT NULL, however, a null value is "
                f"being written into it by the row {row}. You can set "
                "'table.exec.sink.not-null-enforcer'='DROP' to suppress this exception and drop "
                "such records silently."
            )
            raise TypeMismatchError(message)
        return batch


def conformed(
    column: pa.Array, wanted: pa.Field, owner: str, refuse: type[MillstreamError]
) -> pa.Array:
    """A column in the type of a field.

    Raises:
        MillstreamError: it does not fit: a ``refuse``, which says whose it is.
    """
    if column.type == wanted.type:
        return column
    try:
        return _converted(column, wanted.type)
    except pa.ArrowException as error:
        message = (
            f"column '{wanted.name}' of {owner} is {column.type} and does not fit {wanted.type}: "
            f"{error}"
        )
        raise refuse(message) from error


def _converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A cast that cuts digits of seconds, as a reader of TIMESTAMP(3) does, and nothing else."""
    is_time = pa.types.is_temporal(column.type) and pa.types.is_temporal(wanted)
    stamps = pa.types.is_timestamp(column.type) and pa.types.is_timestamp(wanted)
    if stamps and (column.type.tz is None) != (wanted.tz is None):
        # A reader's time without a zone is one of UTC.
        column = column.cast(pa.timestamp(column.type.unit, tz=wanted.tz))
    return column.cast(wanted, safe=not is_time)
