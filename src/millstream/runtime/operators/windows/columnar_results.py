"""The results of built-in aggregates as batches of the declared type.

What it is: the base of the window operators for built-in aggregates: it puts key, window and the
finished aggregates together.

What it is not: windows or state (``columnar.py``, ``columnar_sessions.py``).

Read next: ``runtime/operators/windows/columnar.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from millstream.contracts.batch import Batch
from millstream.errors import TypeMismatchError
from millstream.runtime.columnar.aggregates import one_array
from millstream.runtime.columnar.row_groups import KEY, keys_from_column
from millstream.runtime.operators.base import FunctionOperator
from millstream.state.key_types import KeyTypes
from millstream.types.columns import ColumnMismatchError
from millstream.types.composite_types import CompositeTypeInfo
from millstream.types.pickling import short_repr
from millstream.types.row import row_class
from millstream.types.typeinfo import from_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from millstream.contracts.operator import Checkpoint, OperatorSnapshot
    from millstream.runtime.operators.windows.partials import Partials
    from millstream.types.typeinfo import TypeInformation

__all__ = ["BuiltInOperator"]


class BuiltInOperator(FunctionOperator):
    """A keyed operator that emits ROW(key, window_start, window_end, ...)."""

    counted: ClassVar[Mapping[str, str]] = {
        **FunctionOperator.counted,
        "numLateRecordsDropped": "late_dropped",
    }

    keyed = True

    def __init__(self, partials: Partials) -> None:
        """Take how to finish partial aggregates."""
        super().__init__(None)
        self._partials = partials
        self.key_types = KeyTypes()
        self.late_dropped = 0

    def user_functions(self) -> Iterable[object]:
        return self._partials.functions

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        """Tell the types of the keys."""
        snapshot = super().snapshot(checkpoint)
        snapshot.key_types = self.key_types.take()
        return snapshot

    def emit_results(
        self, merged: pa.Table, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        """Emit one result per line of key and merged partials.

        Args:
            merged: the lines.
            starts: the first timestamp of each line's window.
            ends: the last timestamp of each line's window + 1.
        """
        columns = {
            KEY: one_array(merged.column(KEY)),
            "window_start": pa.array(starts),
            "window_end": pa.array(ends),
            **self._partials.finish(merged),
        }
        self.emit(self._typed(columns, ends - 1))

    def _typed(self, columns: dict[str, pa.Array], timestamps: NDArray[np.int64]) -> Batch:
        declared = self.context.output_type
        keys = one_array(columns[KEY])
        columns[KEY] = keys
        if isinstance(declared, CompositeTypeInfo):
            key_type = declared.get_field_types()[0]
            if pa.types.is_binary(keys.type) or key_type.arrow_schema is None:
                columns[KEY] = self._declared_keys(key_type, keys)
            arrow = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
            return Batch(declared, arrow=declared.conform(arrow), timestamps=timestamps)
        if not pa.types.is_binary(keys.type):
            arrow = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
            return Batch(from_arrow_schema(arrow.schema), arrow=arrow, timestamps=timestamps)
        make = row_class(tuple(columns))
        lists = [keys_from_column(keys)]
        lists.extend(column.to_pylist() for name, column in columns.items() if name != KEY)
        values: list[object] = list(map(make, zip(*lists, strict=True)))
        return Batch(declared, values=values, timestamps=timestamps)

    def _declared_keys(self, key_type: TypeInformation, keys: pa.Array) -> pa.Array:
        """Keys of a type that has to be made value by value: tuples, or untyped keys."""
        try:
            return key_type.column_to_arrow(keys_from_column(keys))
        except ColumnMismatchError as mismatch:
            message = (
                f"operator {self.context.name!r} ({self.context.location}): key "
                f"{short_repr(mismatch.value)} is not of the declared type {key_type}"
            )
            raise TypeMismatchError(message) from mismatch
