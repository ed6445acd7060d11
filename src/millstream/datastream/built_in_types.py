"""The type of what built-in window aggregates give.

What it is: ROW(key, window_start, window_end, one field per aggregate), with the types that
Arrow's aggregations have on the fields they read.

What it is not: the aggregation (``runtime/columnar/aggregates.py``).

Read next: ``datastream/windowed_stream.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.datastream.type_choice import check_field
from millstream.errors import ProgramError
from millstream.runtime.columnar.aggregates import (
    Avg,
    BuiltInAggregate,
    Collect,
    Count,
    CountDistinct,
    Quantile,
    Quantiles,
    Sum,
)
from millstream.runtime.operators.windows.logic import LEADING_COLUMNS
from millstream.types.composite_types import CompositeTypeInfo
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.types.types import TypeInformation

__all__ = ["built_in_output_type"]


def built_in_output_type(
    input_type: TypeInformation,
    key_type: TypeInformation,
    aggregates: Mapping[str, BuiltInAggregate],
) -> TypeInformation:
    """The ROW type of the results.

    Args:
        input_type: the type of the records in the windows.
        key_type: the type of their keys; untyped keys are pickled.
        aggregates: by the name of their field in the result.

    Raises:
        ProgramError: a field does not exist, or the records have no fields.
    """
    for each in aggregates.values():
        _check_filter(input_type, each)
    types = [_result_type(input_type, each) for each in aggregates.values()]
    leading = [key_type, Types.LONG(), Types.LONG()]
    return Types.ROW_NAMED([*LEADING_COLUMNS, *aggregates], [*leading, *types])


def _check_filter(input_type: TypeInformation, aggregate: BuiltInAggregate) -> None:
    if aggregate.where is not None and input_type.arrow_schema is None:
        message = (
            f"the filter of {aggregate} needs columns, but the stream is untyped; give the "
            "operator before the window an output_type"
        )
        raise ProgramError(message)


def _result_type(input_type: TypeInformation, aggregate: BuiltInAggregate) -> TypeInformation:
    if not aggregate.needs_column:
        return Types.LONG()
    field_type = _field_type(input_type, aggregate)
    result = _FIXED.get(type(aggregate), field_type)
    if isinstance(aggregate, Collect):
        result = Types.LIST(field_type)
    elif isinstance(aggregate, Sum):
        result = _sum_type(field_type)
    return result


#: Types of results that do not depend on the type of the field.
_FIXED: dict[type[BuiltInAggregate], TypeInformation] = {
    Avg: Types.DOUBLE(),
    Count: Types.LONG(),
    CountDistinct: Types.LONG(),
    Quantile: Types.DOUBLE(),
    Quantiles: Types.LIST(Types.DOUBLE()),
}


def _sum_type(field_type: TypeInformation) -> TypeInformation:
    if field_type in (Types.FLOAT(), Types.DOUBLE()):
        return Types.DOUBLE()
    if field_type in (Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.BOOLEAN()):
        return Types.LONG()
    return field_type


def _field_type(input_type: TypeInformation, aggregate: BuiltInAggregate) -> TypeInformation:
    field = aggregate.field
    if input_type.arrow_schema is None:
        message = (
            f"{aggregate} needs columns, but the stream is untyped; give the operator before "
            "the window an output_type"
        )
        raise ProgramError(message)
    if not isinstance(input_type, CompositeTypeInfo):
        if field not in (None, 0, "f0"):
            message = f"{aggregate}: the records are of type {input_type} and have no fields"
            raise ProgramError(message)
        return input_type
    if field is None:
        message = f"{aggregate} needs the name or position of a field of {input_type}"
        raise ProgramError(message)
    check_field(field, input_type)
    names, types = input_type.get_field_names(), input_type.get_field_types()
    return types[names.index(field) if isinstance(field, str) else field]
