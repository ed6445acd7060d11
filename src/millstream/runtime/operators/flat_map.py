"""The flat-map operator: one record in, any number out.

What it is: a loop over the batch; what the function yields or returns carries the timestamp of
the record it was made from.

What it is not: a way to side outputs.  ``process`` is.

Read next: ``runtime/operators/filter.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.contracts.batch import Batch
from millstream.runtime.operators.base import FunctionOperator
from millstream.runtime.user_code import (
    NO_RECORD,
    USUAL_RESULTS,
    bound_method,
    check_records,
    user_error,
)

if TYPE_CHECKING:
    from millstream.contracts.operator import Operator

__all__ = ["FlatMapFactory", "FlatMapOperator"]


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
    """Makes flat-map operators."""

    function: Any
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return FlatMapOperator(self.function)
