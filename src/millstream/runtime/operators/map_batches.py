"""The map-batches operator: a function from Arrow record batch to Arrow record batch.

What it is: the way to run vectorised code (pyarrow, DuckDB, Polars, a model) on a stream without
making Python objects of its records.

What it is not: aware of where batches begin and end: their size may change from run to run, so
the function must give the same records however the stream is cut.

Read next: ``contracts/batch.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import Batch
from millstream.errors import TypeMismatchError
from millstream.runtime.operators.base import FunctionOperator
from millstream.runtime.user_code import bound_method, user_error
from millstream.types.row_kinds import ROW_KIND_COLUMN, with_kind_column, without_kind_column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from millstream.contracts.operator import Operator

__all__ = ["MapBatchesFactory", "MapBatchesOperator"]


class MapBatchesOperator(FunctionOperator):
    """Applies a callable to every batch.

    The function returns a record batch or table, an iterable of them, or None.  Records keep
    their timestamps where a batch comes back as long as it went in; otherwise the function may
    return ``(batch, timestamps)``, else the new records have none.  The kinds of a changelog are in
    the column ``$row_kind``, which the function may leave out as long as no record comes or goes.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._map = bound_method(self.function, "map")

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        self.records_in += len(batch)
        if not len(batch):
            return
        arrow = batch.arrow
        if batch.row_kinds is not None:
            arrow = with_kind_column(arrow, batch.row_kinds)
        try:
            results = list(_each(self._map(arrow)))
        except Exception as error:
            doing = f"processing a batch of {len(batch)} records"
            raise user_error(self.context, error, doing=doing) from error
        for result in results:
            self._emit_result(batch, result)

    def _emit_result(self, batch: Batch, result: object) -> None:
        timestamps: Any = None
        if isinstance(result, tuple):
            result, given = result
            timestamps = np.asarray(given, dtype=np.int64)
        if isinstance(result, pa.Table):
            tables = result.combine_chunks().to_batches()
            result = tables[0] if tables else pa.RecordBatch.from_pylist([], result.schema)
        if not isinstance(result, pa.RecordBatch):
            message = (
                f"operator {self.context.name!r} ({self.context.location}): map_batches must "
                f"return a pyarrow RecordBatch or Table, got {type(result).__name__}"
            )
            raise TypeMismatchError(message)
        if timestamps is None and result.num_rows == len(batch):
            timestamps = batch.raw_timestamps
        if timestamps is not None and len(timestamps) != result.num_rows:
            message = f"{len(timestamps)} timestamps for {result.num_rows} records of map_batches"
            raise TypeMismatchError(message)
        if result.num_rows:
            kinds = self._kinds(batch, result)
            made = self._typed(without_kind_column(result)[0], timestamps)
            self.emit(made if kinds is None else made.with_row_kinds(kinds))

    def _kinds(self, batch: Batch, result: pa.RecordBatch) -> NDArray[np.int8] | None:
        if batch.row_kinds is None or ROW_KIND_COLUMN in result.schema.names:
            return without_kind_column(result)[1]
        # Not by position: a function that sorts would have the wrong record deleted.
        message = (
            f"operator {self.context.name!r} ({self.context.location}): some of the {len(batch)} "
            f"records are updates or deletions, and the function of map_batches returned "
            f"{result.num_rows} without the column {ROW_KIND_COLUMN} that says which; keep it"
        )
        raise TypeMismatchError(message)

    def _typed(self, result: pa.RecordBatch, timestamps: Any) -> Batch:
        declared = self.context.output_type
        schema = declared.arrow_schema
        if schema is None:
            from millstream.types.typeinfo import from_arrow_schema

            found = from_arrow_schema(result.schema, result.schema.names)
            return Batch(found, arrow=result, timestamps=timestamps)
        if result.schema.equals(schema):
            return Batch(declared, arrow=result, timestamps=timestamps)
        try:
            return Batch(declared, arrow=_cast(result, schema), timestamps=timestamps)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, ValueError) as error:
            message = (
                f"operator {self.context.name!r} ({self.context.location}): the batch does not "
                f"fit output_type {declared}: {error}"
            )
            raise TypeMismatchError(message) from error


def _each(result: object) -> Iterable[object]:
    if result is None:
        return ()
    if isinstance(result, (pa.RecordBatch, pa.Table, tuple)):
        return (result,)
    return result  # type: ignore[return-value] # an iterable, or an error that names the type


def _cast(result: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Columns by name if all are there, else by position."""
    if len(schema) != result.num_columns:
        message = f"{result.num_columns} columns instead of {len(schema)}"
        raise ValueError(message)
    names = set(result.schema.names)
    by_name = all(name in names for name in schema.names)
    columns = [
        (result.column(field.name) if by_name else result.column(index)).cast(field.type)
        for index, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass
class MapBatchesFactory:
    """Makes map-batches operators."""

    function: Any
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return MapBatchesOperator(self.function)
