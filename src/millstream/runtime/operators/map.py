"""The map operator: one record in, one record out.

What it is: ``list(map(f, values))`` over a batch; timestamps pass through.

What it is not: vectorised.  ``map_batches`` is.

Read next: ``runtime/operators/flat_map.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import GeneratorType
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.contracts.batch import Batch
from millstream.errors import ProgramError
from millstream.runtime.operators.base import FunctionOperator
from millstream.runtime.user_code import bound_method, index_reached, user_error

if TYPE_CHECKING:
    from millstream.contracts.operator import Operator

__all__ = ["MapFactory", "MapOperator"]


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
    """Makes map operators."""

    function: Any
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return MapOperator(self.function)
