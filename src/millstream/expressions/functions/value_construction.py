"""Constructors and access of Flink's reference: ROW, ARRAY, MAP, a field of a row.

What it is: one table entry per function.  ``(a, b)`` is ROW(a, b); ``row.field`` is GET(row,
'field').

Read next: ``expressions/functions/collection.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError
from millstream.expressions.functions.collection_types import pairs_signature
from millstream.expressions.functions.definition import FunctionGroup, NullBehaviour
from millstream.expressions.functions.signatures import (
    Nullability,
    any_type,
    character,
    common_of,
    integer,
    row,
    signature,
)
from millstream.types.logical_types import ArrayType, RowField, RowType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.functions.definition import CallInfo
    from millstream.types.logical_types import LogicalType

__all__ = ["functions"]

functions = FunctionGroup("value construction")

_NEVER: Final = Nullability.NEVER


def _row_type(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    del constants
    return RowType(tuple(RowField(f"EXPR${at}", type_) for at, type_ in enumerate(types)))


def _row_kernel(info: CallInfo, *columns: Any) -> Any:
    if not columns:
        return NotImplemented
    arrays = [
        pa.repeat(column, info.rows) if isinstance(column, pa.Scalar) else column
        for column in columns
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(info.result_type.to_arrow()))


@functions.scalar(
    "ROW",
    signatures=(
        signature(any_type(), result=_row_type, repeats=True, optional=1, nullability=_NEVER),
    ),
    nulls=NullBehaviour.CALLED,
    kernel=_row_kernel,
    can_fail=False,
    syntax="ROW(value1, value2, ...), (value1, value2, ...)",
    examples=(("ROW(1, 'a')", "(1, a)"),),
)
def row_of(*values: Any) -> tuple[Any, ...]:
    """A row of values; its fields are called EXPR$0, EXPR$1 and so on."""
    return values


def _array_type(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    return ArrayType(common_of()(types, constants))


@functions.scalar(
    "ARRAY",
    signatures=(
        signature(any_type(), result=_array_type, repeats=True, common=True, nullability=_NEVER),
    ),
    nulls=NullBehaviour.CALLED,
    can_fail=False,
    syntax="ARRAY[value1, value2, ...]",
    examples=(("ARRAY[1, 2, NULL]", "[1, 2, NULL]"),),
)
def array_of_values(*values: Any) -> tuple[Any, ...]:
    """An array of values, of their common type."""
    return values


@functions.scalar(
    "MAP",
    signatures=(pairs_signature(),),
    nulls=NullBehaviour.CALLED,
    syntax="MAP[key1, value1, key2, value2, ...]",
    examples=(("MAP['a', 1, 'b', 2]", "{a=1, b=2}"),),
)
def map_of_pairs(*values: Any) -> dict[Any, Any]:
    """A map of keys and values in turns; of equal keys the last one counts."""
    return dict(zip(values[::2], values[1::2], strict=True))


def _position(type_: LogicalType, field: object) -> int:
    assert isinstance(type_, RowType), "the signature asks for a row"  # noqa: S101
    if isinstance(field, int) and 0 <= field < len(type_):
        return field
    if isinstance(field, str) and field in type_.names:
        return type_.index_of(field)
    message = f"{type_.as_summary_string()} has no field {field!r}"
    raise ProgramError(message)


def _field_type(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    type_ = types[0]
    position = _position(type_, constants[1])
    found = list(type_.children)[position]
    return found.with_nullability(found.nullable or type_.nullable)


def _field_kernel(info: CallInfo, rows: Any, field: Any) -> Any:
    del field
    if not isinstance(rows, pa.Array):
        return NotImplemented
    return pc.struct_field(rows, [_position(info.argument_types[0], info.constants[1])])


@functions.scalar(
    "GET",
    signatures=(
        signature(row(), character("name"), result=_field_type, nullability=Nullability.RULE),
        signature(row(), integer("position"), result=_field_type, nullability=Nullability.RULE),
    ),
    kernel=_field_kernel,
    contextual=True,
    can_fail=False,
    syntax="row.field",
    examples=(("ROW(1, 'a').EXPR$1", "a"),),
)
def get(info: CallInfo, values: tuple[Any, ...], field: str | int) -> Any:
    """The field of a row of a name, or at a position, from 0; both must be constants."""
    return values[_position(info.argument_types[0], field)]
