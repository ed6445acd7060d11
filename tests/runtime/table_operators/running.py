"""Runs operators of tables in the harness, beside the model.

What it is: changes of Python values in, changes of Python values out, over batches cut anywhere and
snapshots in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import Batch
from millstream.testing import OperatorHarness
from millstream.types.composite_types import RowTypeInfo
from millstream.types.type_information import ArrowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.runtime.table_operators.model import Change

    from millstream.contracts.operator import OperatorFactory
    from millstream.types.logical_types import LogicalType, RowType

__all__ = ["TableHarness", "batch_of", "changes_in", "type_info"]


def type_info(types: Iterable[pa.DataType]) -> RowTypeInfo:
    return RowTypeInfo([ArrowTypeInfo(kind) for kind in types])


def batch_of(changes: Sequence[Change], row_type: RowType) -> Batch:
    schema = row_type.to_arrow_schema()
    columns = [
        pa.array([row[index] for _, row in changes], field.type)
        for index, field in enumerate(schema)
    ]
    kinds = np.array([kind for kind, _ in changes], dtype=np.int8)
    arrow = pa.RecordBatch.from_arrays(columns, schema=schema)
    info = type_info(field.type for field in schema)
    return Batch(info, arrow=arrow.rename_columns(info.get_field_names()), row_kinds=kinds)


def changes_in(batch: Batch) -> list[Change]:
    columns = [column.to_pylist() for column in batch.arrow.columns]
    kinds = [0] * len(batch) if batch.row_kinds is None else batch.row_kinds.tolist()
    return list(zip(kinds, zip(*columns, strict=True), strict=True))


class TableHarness(OperatorHarness):
    """The harness with changes for records."""

    def __init__(
        self,
        factory: OperatorFactory,
        input_type: RowType,
        output: Sequence[LogicalType | pa.DataType],
        **options: Any,
    ) -> None:
        self.row_types = [input_type]
        kinds = [each if isinstance(each, pa.DataType) else each.to_arrow() for each in output]
        super().__init__(factory, output_type=type_info(kinds), **options)

    def feed(self, changes: Sequence[Change], input_index: int = 0) -> list[Change]:
        """Process changes as one batch; returns what comes out."""
        before = len(self.batches)
        if changes:
            row_type = self.row_types[min(input_index, len(self.row_types) - 1)]
            self.process_batch(batch_of(changes, row_type), input_index)
        return [change for batch in self.batches[before:] for change in changes_in(batch)]

    @property
    def changes(self) -> list[Change]:
        """Everything that came out so far."""
        return [change for batch in self.batches for change in changes_in(batch)]
