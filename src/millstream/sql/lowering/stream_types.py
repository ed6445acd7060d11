"""The types of streams that are tables.

What it is: a logical row as type information, whose columns have exactly the Arrow types that the
logical types say.
What it is not: the types of DataStream programs, to which ``sql/lowering/conversion.py`` converts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.runtime.operators.table.aggregate_calls import partial_fields
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from millstream.runtime.operators.table.plans import (
        LocalGroupAggregatePlan,
        LocalWindowAggregatePlan,
    )
    from millstream.types.logical_types import RowType

__all__ = ["partial_type", "partial_window_type", "stream_type"]


def stream_type(row: RowType) -> RowTypeInfo:
    """The type of a stream of such rows."""
    types = [ArrowTypeInfo(field.type.to_arrow()) for field in row.fields]
    return RowTypeInfo(types, list(row.names))


def partial_type(plan: LocalGroupAggregatePlan) -> RowTypeInfo:
    """The type of a stream of partial aggregates."""
    fields = partial_fields(plan.aggregates, plan.input_type, retracts=plan.retracts)
    return _partial(plan, fields)


def partial_window_type(plan: LocalWindowAggregatePlan) -> RowTypeInfo:
    """The type of a stream of partial aggregates of slices of windows."""
    fields = partial_fields(plan.aggregates, plan.input_type, retracts=False)
    return _partial(plan, [*fields, *(pa.field(name, pa.int64()) for name in ("start", "end"))])


def _partial(
    plan: LocalGroupAggregatePlan | LocalWindowAggregatePlan, fields: list[pa.Field]
) -> RowTypeInfo:
    row = plan.input_type
    kinds = [row.children[key].to_arrow() for key in plan.keys] + [each.type for each in fields]
    names = [f"k{number}" for number in range(len(plan.keys))] + [each.name for each in fields]
    return RowTypeInfo([ArrowTypeInfo(kind) for kind in kinds], names)
