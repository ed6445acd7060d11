"""Map, filter, flat-map and map-batches operators."""

from __future__ import annotations

from dataclasses import dataclass
from types import GeneratorType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import Batch
from millstream.errors import ProgramError, TypeMismatchError
from millstream.runtime.operators.base import FunctionOperator
from millstream.runtime.user_code import (
    NO_RECORD,
    USUAL_RESULTS,
    bound_method,
    check_records,
    index_reached,
    user_error,
)
from millstream.types.row import ROW_KIND_COLUMN, with_kind_column, without_kind_column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from millstream.contracts.operator import Operator


class MapOperator(FunctionOperator):
    """Applies a MapFunction or callable to every record."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._map = bound_method(self.function, "map")

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        values = batch.values
        iterator = iter(values)
        try:
            mapped = list(map(self._map, iterator))
        except Exception as error:
            record = values[index_reached(iterator, values)]
            raise user_error(self.context, error, record) from error
        self.records_in += len(values)
        if mapped and isinstance(mapped[0], GeneratorType):
            message = (
                "map() made a generator of the record, not a record; to make several of one, use "
                "flat_map()"
            )
            raise user_error(self.context, ProgramError(message), values[0])
        self.emit(Batch(self.context.output_type, values=mapped, timestamps=batch.raw_timestamps))


@dataclass
class MapFactory:
    """Factory of map operators."""

    function: Any
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return MapOperator(self.function)


class FilterOperator(FunctionOperator):
    """Applies a FilterFunction or callable to every record."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._filter = bound_method(self.function, "filter")

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        values = batch.values
        self.records_in += len(values)
        iterator = iter(values)
        try:
            mask = list(map(bool, map(self._filter, iterator)))
        except Exception as error:
            record = values[index_reached(iterator, values)]
            raise user_error(self.context, error, record) from error
        if all(mask):
            self.emit(batch)
        elif any(mask):
            self.emit(batch.filter(mask))


@dataclass
class FilterFactory:
    """Factory of filter operators."""

    function: Any
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return FilterOperator(self.function)


class FlatMapOperator(FunctionOperator):
    """Applies a FlatMapFunction or callable to every record."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._flat_map = bound_method(self.function, "flat_map")

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        self.records_in += len(batch)
        if batch.raw_timestamps is None:
            self._without_timestamps(batch)
        else:
            self._with_timestamps(batch)

    def _without_timestamps(self, batch: Batch) -> None:
        out: list[object] = []
        extend, flat_map = out.extend, self._flat_map
        value: object = NO_RECORD
        try:
            for value in batch.values:
                result = flat_map(value)
                if result is None:
                    continue
                if result.__class__ not in USUAL_RESULTS:
                    check_records(result, self.context)
                extend(result)
        except Exception as error:
            raise user_error(self.context, error, value) from error
        self.emit(Batch(self.context.output_type, values=out))

    def _with_timestamps(self, batch: Batch) -> None:
        out: list[object] = []
        timestamps: list[int] = []
        append, append_timestamp, flat_map = out.append, timestamps.append, self._flat_map
        value: object = NO_RECORD
        try:
            for value, timestamp in zip(batch.values, batch.timestamp_list, strict=True):
                result = flat_map(value)
                if result is None:
                    continue
                if result.__class__ not in USUAL_RESULTS:
                    check_records(result, self.context)
                for item in result:
                    append(item)
                    append_timestamp(timestamp)
        except Exception as error:
            raise user_error(self.context, error, value) from error
        self.emit(Batch(self.context.output_type, values=out, timestamps=timestamps))


@dataclass
class FlatMapFactory:
    """Factory of flat-map operators."""

    function: Any
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return FlatMapOperator(self.function)


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
            f"{result.num_rows} without the column {ROW_KIND_COLUMN} that marks them; keep it"
        )
        raise TypeMismatchError(message)

    def _typed(self, result: pa.RecordBatch, timestamps: Any) -> Batch:
        declared = self.context.output_type
        schema = declared.arrow_schema
        if schema is None:
            from millstream.types.types import from_arrow_schema

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
    """Factory of map-batches operators."""

    function: Any
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return MapBatchesOperator(self.function)
