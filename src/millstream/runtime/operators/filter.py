"""The filter operator: keeps the records for which the function is true.

What it is: a filter that keeps columns columnar: the user's function sees Python values, but an
Arrow batch is filtered as such, so that it need not be built again for the next exchange.

What it is not: vectorised.  ``map_batches`` is.

Read next: ``runtime/operators/process.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.runtime.operators.base import FunctionOperator
from millstream.runtime.user_code import bound_method, index_reached, user_error

if TYPE_CHECKING:
    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator

__all__ = ["FilterFactory", "FilterOperator"]


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
    """Makes filter operators."""

    function: Any
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return FilterOperator(self.function)
