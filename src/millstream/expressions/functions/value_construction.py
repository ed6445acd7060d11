"""Constructors and access: ROW, ARRAY, MAP; ``row.field`` is GET(row, 'field')."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError
from millstream.expressions.functions.collection import pairs_signature
from millstream.expressions.functions.definition import (
    FunctionGroup,
    Nullability,
    NullBehaviour,
    Signature,
    any_type,
    character,
    common_of,
    integer,
    row,
    signature,
)
from millstream.types.logical_types import ArrayType, RowField, RowType
from millstream.types.structured_types import StructuredType, is_class_name
from millstream.types.type_information import as_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.functions.definition import CallInfo, ResultRule
    from millstream.types.logical_types import LogicalType


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
    return dict(zip(map(as_key, values[::2]), values[1::2], strict=True))


def _pairs(
    types: Sequence[LogicalType], constants: Sequence[object]
) -> list[tuple[str, LogicalType]]:
    """Fields and their types behind the first argument.

    Raises:
        ProgramError: a field is no text of the statement, or is named twice.
    """
    found: dict[str, LogicalType] = {}
    for at in range(1, len(types), 2):
        name = constants[at]
        if not isinstance(name, str):
            message = (
                f"The field key at position {at + 1} must be a non-nullable character string "
                "literal."
            )
            raise ProgramError(message)
        if name in found:
            message = f"The field name '{name}' at position {at + 1} is repeated."
            raise ProgramError(message)
        found[name] = types[at + 1]
    return list(found.items())


def _object_type(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    name = constants[0]
    if not isinstance(name, str):
        message = (
            "The first argument must be a non-nullable character string literal representing the "
            "class name."
        )
        raise ProgramError(message)
    if not is_class_name(name):
        message = f"Invalid class name '{name}'. It must be identifiers with dots between them."
        raise ProgramError(message)
    fields = tuple(RowField(*pair) for pair in _pairs(types, constants))
    return StructuredType(fields, class_name=name)


def _object_kernel(info: CallInfo, *columns: Any) -> Any:
    return _row_kernel(info, *columns[2::2])


@dataclass(frozen=True)
class _ObjectSignature(Signature):
    """Names and values in turns behind one argument."""

    def match(self, types: Sequence[LogicalType]) -> tuple[LogicalType, ...] | None:
        return super().match(types) if len(types) % 2 else None


def _object_signature(result: ResultRule) -> Signature:
    return _ObjectSignature(
        (any_type("class or object"), any_type("name or value")),
        result,
        repeats=True,
        optional=1,
        nullability=Nullability.ALWAYS,
    )


@functions.scalar(
    "OBJECT_OF",
    signatures=(_object_signature(_object_type),),
    nulls=NullBehaviour.CALLED,
    kernel=_object_kernel,
    can_fail=False,
    syntax="OBJECT_OF('module.Class', 'name1', value1, 'name2', value2, ...)",
    examples=(("OBJECT_OF('app.User', 'name', 'Bob', 'age', 42)", "(name=Bob, age=42)"),),
)
def object_of(class_name: str, *pairs: Any) -> tuple[Any, ...]:
    """An object of a structured type.

    In Python it is one of that class if that is a dataclass of these fields that can be imported,
    and a row with names otherwise.
    """
    del class_name
    return pairs[1::2]


def _updated_type(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    type_ = types[0]
    if not isinstance(type_, StructuredType):
        message = (
            f"The first argument must be a structured type, but was {type_.as_summary_string()}."
        )
        raise ProgramError(message)
    made = dict(_pairs(types, constants))
    for at, name in enumerate(made):
        if name not in type_.names:
            message = (
                f"The field name '{name}' at position {2 * at + 2} is not part of the structured "
                f"type attributes. Available attributes: [{', '.join(type_.names)}]."
            )
            raise ProgramError(message)
    fields = tuple(replace(each, data_type=made.get(each.name, each.type)) for each in type_)
    return type_.with_parameters(members=fields)


@functions.scalar(
    "OBJECT_UPDATE",
    signatures=(_object_signature(_updated_type),),
    nulls=NullBehaviour.CALLED,
    contextual=True,
    can_fail=False,
    syntax="OBJECT_UPDATE(object, 'name1', value1, 'name2', value2, ...)",
    examples=(
        (
            "OBJECT_UPDATE(OBJECT_OF('app.User', 'name', 'Bob', 'age', 42), 'age', 43)",
            "(name=Bob, age=43)",
        ),
    ),
)
def object_update(info: CallInfo, values: tuple[Any, ...] | None, *pairs: Any) -> Any:
    """The object with other values of some fields; their types are those of the values."""
    if values is None:
        return None
    type_ = info.argument_types[0]
    assert isinstance(type_, StructuredType), "the signature asks for one"  # noqa: S101
    made = dict(zip(type_.names, values, strict=True))
    made.update(zip(pairs[::2], pairs[1::2], strict=True))
    return tuple(made.values())


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
    return found.with_nullability(found.is_nullable or type_.is_nullable)


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
