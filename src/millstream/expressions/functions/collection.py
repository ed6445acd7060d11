"""Collection functions of Flink's reference; constructors and fields of rows, arrays and maps.

NULL equals NULL and NaN equals NaN; NaN sorts above all other numbers.  ``row.field`` is
GET(row, 'field').
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError
from millstream.expressions.functions.definition import (
    BOOLEAN,
    INT,
    STRING,
    Argument,
    FunctionGroup,
    Nullability,
    NullBehaviour,
    Signature,
    any_type,
    common_of,
    of_first,
    root,
    same_as,
    signature,
)
from millstream.types.bitmaps import VariantType
from millstream.types.columns import as_key
from millstream.types.logical_types import ArrayType, MapType, NullType, RowField, RowType
from millstream.types.structured_types import StructuredType, is_class_name
from millstream.types.type_derivation import common_type, supports_implicit_cast
from millstream.types.type_roots import TypeRoot
from millstream.types.variants import variant_element, variant_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.expressions.functions.definition import CallInfo, ResultRule
    from millstream.types.logical_types import LogicalType


_PAIR: Final = 2
_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})


@dataclass(frozen=True)
class _ElementSignature(Signature):
    """The second argument is an element of the first, or a key of it."""

    def match(self, types: Sequence[LogicalType]) -> tuple[LogicalType, ...] | None:
        wanted = super().match(types)
        if wanted is None:
            return None
        container, given = wanted[:_PAIR]
        inner = container.key if isinstance(container, MapType) else _inner(container)
        target = inner.with_nullability(given.is_nullable)
        if isinstance(container, MapType) and given.root.families == inner.root.families:
            # Keys of another length or width are looked up as they are.
            target = given if given.root in _TEXTS else target
        if not supports_implicit_cast(given, target):
            return None
        return (container, target, *wanted[_PAIR:])


@dataclass(frozen=True)
class _PairsSignature(Signature):
    """Keys and values in turns."""

    def match(self, types: Sequence[LogicalType]) -> tuple[LogicalType, ...] | None:
        if len(types) < _PAIR or len(types) % _PAIR:
            return None
        keys, values = common_type(list(types[::2])), common_type(list(types[1::2]))
        if all(isinstance(each, NullType) for each in types[1::2]):
            values = keys  # as in Flink, which takes the first type that it knows
        if keys is None or values is None:
            return None
        return tuple(
            (values if at % _PAIR else keys).with_nullability(type_.is_nullable)
            for at, type_ in enumerate(types)
        )


def _inner(type_: LogicalType) -> LogicalType:
    assert isinstance(type_, ArrayType), "the signature asks for an array"  # noqa: S101
    return type_.element


def _map_type(type_: LogicalType) -> MapType:
    assert isinstance(type_, MapType), "the signature asks for a map"  # noqa: S101
    return type_


def _of_key_or_index(types: Sequence[LogicalType], _: Sequence[object]) -> LogicalType:
    """Return what ``container[...]`` is: an element of an array, a value of a map."""
    return types[0].value if isinstance(types[0], MapType) else _inner(types[0])


def _array_of(types: Sequence[LogicalType], _: Sequence[object]) -> LogicalType:
    """An array of the first argument's elements and of those given one by one."""
    common = common_type([_inner(types[0]), types[1]])
    assert common is not None, "the signature casts the second to the first"  # noqa: S101
    nullable = any(each.is_nullable for each in types)
    return ArrayType(common).with_nullability(nullable)


def _map_of(types: Sequence[LogicalType], _: Sequence[object]) -> LogicalType:
    """The map of keys and values in turns."""
    keys, values = common_type(list(types[::2])), common_type(list(types[1::2]))
    assert keys is not None, "the signature finds a common type"  # noqa: S101
    assert values is not None, "the signature finds a common type"  # noqa: S101
    return MapType(keys, values)


def _entries_of(type_: LogicalType) -> LogicalType:
    """ARRAY<ROW<key, value>> of a map."""
    names = ("key", "value")
    return ArrayType(RowType([*map(RowField, names, _map_type(type_).children)]))


functions = FunctionGroup("collection")

_ALWAYS: Final = Nullability.ALWAYS
_ELEMENT: Final = of_first(_inner)


def _key(value: Any) -> Any:
    """Return what an element is found by in a set."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN", None
    if isinstance(value, dict):
        return frozenset((_key(key), _key(inner)) for key, inner in value.items())
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    return value


def _order(value: Any) -> Any:
    """Return what elements are sorted by."""
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value
    return value


def _first_ones(values: Iterable[Any]) -> tuple[Any, ...]:
    found: dict[Any, Any] = {}
    for value in values:
        found.setdefault(_key(value), value)
    return tuple(found.values())


# -- size and access --------------------------------------------------------------------------


def _cardinality_kernel(info: CallInfo, column: Any) -> Any:
    if isinstance(info.argument_types[0], ArrayType):
        return pc.cast(pc.list_value_length(column), pa.int32())
    return NotImplemented


functions.total(
    "CARDINALITY",
    "How many elements an array, or entries a map, has.",
    len,
    signature(root("array", TypeRoot.ARRAY), result=INT),
    signature(root("map", TypeRoot.MAP, TypeRoot.MULTISET), result=INT),
    kernel=_cardinality_kernel,
    examples=(("CARDINALITY(ARRAY[1, 2, NULL])", "3"), ("CARDINALITY(MAP['a', 1])", "1")),
)


def _positive_index(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    index = constants[1]
    if isinstance(index, int) and index < 1:
        message = f"the index of an array begins at 1, not {index}"
        raise ProgramError(message)
    return _of_key_or_index(types, constants)


@functions.scalar(
    "AT",
    signature(
        root("array", TypeRoot.ARRAY), "integer index", result=_positive_index, nullability=_ALWAYS
    ),
    signature(
        root("map", TypeRoot.MAP),
        "any key",
        result=_of_key_or_index,
        nullability=_ALWAYS,
        kind=_ElementSignature,
    ),
    signature("variant, integer index", result=VariantType(), nullability=_ALWAYS),
    signature("variant, string field", result=VariantType(), nullability=_ALWAYS),
    aliases=("ITEM",),
    syntax="array[index], map[key], variant[index], variant[field]",
    examples=(
        ("ARRAY['a', 'b'][2]", "b"),
        ("ARRAY['a', 'b'][3]", "NULL"),
        ("MAP['a', 1, 'b', 2]['b']", "2"),
    ),
)
def item(collection: Any, at: Any) -> Any:
    """The element of an array at an index, from 1, or the value of a map at a key; else NULL.

    Of a variant it is the element of its array or the field of its object, and fails if it is none.
    """
    if isinstance(collection, bytes):
        get = variant_field if isinstance(at, str) else variant_element
        return get(collection, at)
    if isinstance(collection, dict):
        return collection.get(as_key(at))
    return collection[at - 1] if 1 <= at <= len(collection) else None


@functions.scalar(
    "ELEMENT",
    signature("array", result=_ELEMENT, nullability=_ALWAYS),
    examples=(("ELEMENT(ARRAY[1])", "1"),),
)
def element(values: tuple[Any, ...]) -> Any:
    """The only element of an array; NULL if it is empty; fails if there are more."""
    if len(values) > 1:
        message = "ELEMENT: the array has more than one element"
        raise ValueError(message)
    return values[0] if values else None


# -- arrays and one element -------------------------------------------------------------------


def _with_element(result: Any, nullability: Nullability = Nullability.RULE) -> Signature:
    return signature(
        "array, any element", result=result, nullability=nullability, kind=_ElementSignature
    )


functions.total(
    "ARRAY_APPEND",
    "An array with an element, which may be NULL, after the others.",
    lambda values, new: None if values is None else (*values, new),
    _with_element(_array_of),
    nulls=NullBehaviour.CALLED,
    examples=(("ARRAY_APPEND(ARRAY[1, 2], 3)", "[1, 2, 3]"),),
)
functions.total(
    "ARRAY_PREPEND",
    "An array with an element, which may be NULL, before the others.",
    lambda values, new: None if values is None else (new, *values),
    _with_element(_array_of),
    nulls=NullBehaviour.CALLED,
    examples=(("ARRAY_PREPEND(ARRAY[1, 2], 0)", "[0, 1, 2]"),),
)


@functions.scalar(
    "ARRAY_CONTAINS",
    _with_element(of_first(lambda type_: BOOLEAN.with_nullability(type_.is_nullable))),
    nulls=NullBehaviour.CALLED,
    can_fail=False,
    examples=(
        ("ARRAY_CONTAINS(ARRAY[1, 2], 2)", "TRUE"),
        ("ARRAY_CONTAINS(ARRAY[1, NULL], CAST(NULL AS INT))", "TRUE"),
    ),
)
def array_contains(values: tuple[Any, ...] | None, wanted: Any) -> bool | None:
    """Return whether an array has an element, which may be NULL."""
    if values is None:
        return None
    key = _key(wanted)
    return any(_key(value) == key for value in values)


@functions.scalar(
    "ARRAY_POSITION",
    _with_element(INT, Nullability.ARGUMENTS),
    can_fail=False,
    examples=(("ARRAY_POSITION(ARRAY['a', 'b'], 'b')", "2"), ("ARRAY_POSITION(ARRAY[1], 2)", "0")),
)
def array_position(values: tuple[Any, ...], wanted: Any) -> int:
    """Where an element first occurs in an array, from 1; 0 if it does not."""
    key = _key(wanted)
    return next((at for at, value in enumerate(values, 1) if _key(value) == key), 0)


@functions.scalar(
    "ARRAY_REMOVE",
    _with_element(same_as(0)),
    nulls=NullBehaviour.CALLED,
    can_fail=False,
    examples=(("ARRAY_REMOVE(ARRAY[1, 2, 2, 3], 2)", "[1, 3]"),),
)
def array_remove(values: tuple[Any, ...] | None, wanted: Any) -> tuple[Any, ...] | None:
    """An array without any element equal to one, which may be NULL."""
    if values is None:
        return None
    key = _key(wanted)
    return tuple(value for value in values if _key(value) != key)


# -- arrays ------------------------------------------------------------------------------------


functions.total(
    "ARRAY_DISTINCT",
    "An array with each element once, in the order in which they first occur.",
    _first_ones,
    signature("array", result=same_as(0)),
    examples=(("ARRAY_DISTINCT(ARRAY[1, 2, 1])", "[1, 2]"),),
)
functions.total(
    "ARRAY_REVERSE",
    "The elements of an array from the last to the first.",
    lambda values: values[::-1],
    signature("array", result=same_as(0)),
    examples=(("ARRAY_REVERSE(ARRAY[1, 2, 3])", "[3, 2, 1]"),),
)


@functions.scalar(
    "ARRAY_SLICE",
    signature("array, integer start[, integer end]", result=same_as(0)),
    can_fail=False,
    syntax="ARRAY_SLICE(array, start[, end])",
    examples=(
        ("ARRAY_SLICE(ARRAY[1, 2, 3, 4], 2, 3)", "[2, 3]"),
        ("ARRAY_SLICE(ARRAY[1, 2, 3, 4], -2)", "[3, 4]"),
    ),
)
def array_slice(values: tuple[Any, ...], start: int, end: int | None = None) -> tuple[Any, ...]:
    """The elements from one position to another, both included; to the last if no end is given.

    Positions begin at 1, 0 is as 1, and negative ones count from the end.
    """
    length = len(values)
    first = start if start > 0 else (start + length + 1 if start else 1)
    last = length if end is None else (end if end > 0 else (end + length + 1 if end else 1))
    return values[max(first, 1) - 1 : max(last, 0)]


@functions.scalar(
    "ARRAY_SORT",
    signature("array[, boolean ascending, boolean null_first]", result=same_as(0)),
    syntax="ARRAY_SORT(array[, ascending[, null_first]])",
    examples=(
        ("ARRAY_SORT(ARRAY[3, 1, 2])", "[1, 2, 3]"),
        ("ARRAY_SORT(ARRAY[3, NULL, 1], FALSE)", "[3, 1, NULL]"),
    ),
)
def array_sort(
    values: tuple[Any, ...],
    ascending: bool = True,  # noqa: FBT001, FBT002 - arguments of SQL have no names
    null_first: bool | None = None,  # noqa: FBT001 - as above
) -> tuple[Any, ...]:
    """The elements in order, ascending by default.

    NULLs come first in ascending and last in descending order by default.
    """
    there = sorted(
        (value for value in values if value is not None), key=_order, reverse=not ascending
    )
    nulls = [None] * (len(values) - len(there))
    first = ascending if null_first is None else null_first
    return tuple(nulls + there if first else there + nulls)


@functions.scalar(
    "ARRAY_MAX",
    signature("array", result=_ELEMENT, nullability=_ALWAYS),
    examples=(("ARRAY_MAX(ARRAY[1, NULL, 3])", "3"),),
)
def array_max(values: tuple[Any, ...]) -> Any:
    """The greatest element that is not NULL; NULL if there is none."""
    return max((value for value in values if value is not None), key=_order, default=None)


@functions.scalar(
    "ARRAY_MIN",
    signature("array", result=_ELEMENT, nullability=_ALWAYS),
    examples=(("ARRAY_MIN(ARRAY['b', 'a'])", "a"),),
)
def array_min(values: tuple[Any, ...]) -> Any:
    """The least element that is not NULL; NULL if there is none."""
    return min((value for value in values if value is not None), key=_order, default=None)


_STRING_ARRAY: Final = Argument(
    "array",
    lambda type_: (
        type_
        if isinstance(type_, ArrayType)
        and type_.element.root in {TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.NULL}
        else None
    ),
    "ARRAY<STRING>",
)


@functions.scalar(
    "ARRAY_JOIN",
    signature(
        _STRING_ARRAY, "string delimiter, string null_replacement", result=STRING, optional=1
    ),
    can_fail=False,
    syntax="ARRAY_JOIN(array, delimiter[, null_replacement])",
    examples=(
        ("ARRAY_JOIN(ARRAY['a', NULL, 'b'], ',')", "a,b"),
        ("ARRAY_JOIN(ARRAY['a', NULL, 'b'], ',', 'x')", "a,x,b"),
    ),
)
def array_join(
    values: tuple[str | None, ...], delimiter: str, null_replacement: str | None = None
) -> str:
    """The strings of an array in one, with a delimiter between them.

    NULLs are left out, or replaced if a replacement is given.
    """
    texts = (null_replacement if value is None else value for value in values)
    return delimiter.join(text for text in texts if text is not None)


# -- several arrays ----------------------------------------------------------------------------


_TWO_ARRAYS: Final = signature("array array1, array array2", result=common_of(), common=True)


functions.total(
    "ARRAY_UNION",
    "What is in one of two arrays, each element once.",
    lambda first, second: _first_ones(first + second),
    _TWO_ARRAYS,
    examples=(("ARRAY_UNION(ARRAY[1, 2, 2], ARRAY[3, 1])", "[1, 2, 3]"),),
)


@functions.scalar(
    "ARRAY_INTERSECT",
    _TWO_ARRAYS,
    can_fail=False,
    examples=(("ARRAY_INTERSECT(ARRAY[1, 1, 2, 3], ARRAY[3, 1])", "[1, 3]"),),
)
def array_intersect(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what is in both of two arrays, each element once, in the order of the first."""
    others = set(map(_key, second))
    return _first_ones(value for value in first if _key(value) in others)


@functions.scalar(
    "ARRAY_EXCEPT",
    _TWO_ARRAYS,
    can_fail=False,
    examples=(("ARRAY_EXCEPT(ARRAY[1, 2, 2, 3, 1], ARRAY[2])", "[1, 3]"),),
)
def array_except(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what is in the first of two arrays and not in the second, each element once."""
    others = set(map(_key, second))
    return _first_ones(value for value in first if _key(value) not in others)


functions.total(
    "ARRAY_CONCAT",
    "The elements of all arrays, concatenated.",
    lambda *arrays: tuple(value for values in arrays for value in values),
    signature("array...", result=common_of(), common=True),
    syntax="ARRAY_CONCAT(array1, array2, ...)",
    examples=(("ARRAY_CONCAT(ARRAY[1], ARRAY[2], ARRAY[1])", "[1, 2, 1]"),),
)


# -- maps --------------------------------------------------------------------------------------


functions.total(
    "MAP_KEYS",
    "The keys of a map; no order is promised.",
    tuple,
    signature("map", result=of_first(lambda type_: ArrayType(_map_type(type_).key))),
    examples=(("MAP_KEYS(MAP['a', 1, 'b', 2])", "[a, b]"),),
)
functions.total(
    "MAP_VALUES",
    "The values of a map; no order is promised.",
    lambda mapping: tuple(mapping.values()),
    signature("map", result=of_first(lambda type_: ArrayType(_map_type(type_).value))),
    examples=(("MAP_VALUES(MAP['a', 1, 'b', 2])", "[1, 2]"),),
)
functions.total(
    "MAP_ENTRIES",
    "The entries of a map as rows of key and value; no order is promised.",
    lambda mapping: tuple(mapping.items()),
    signature("map", result=of_first(_entries_of)),
    examples=(("CARDINALITY(MAP_ENTRIES(MAP['a', 1, 'b', 2]))", "2"),),
)


@functions.scalar(
    "MAP_UNION",
    signature("map...", result=common_of(), common=True),
    can_fail=False,
    syntax="MAP_UNION(map1, map2, ...)",
    examples=(("MAP_UNION(MAP['a', 1], MAP['a', 2, 'c', 3])['a']", "2"),),
)
def map_union(*maps: dict[Any, Any]) -> dict[Any, Any]:
    """The entries of all maps; of equal keys that of the last map counts."""
    merged: dict[Any, Any] = {}
    for mapping in maps:
        merged.update(mapping)
    return merged


@functions.scalar(
    "MAP_FROM_ARRAYS",
    signature(
        "array keys, array values",
        result=lambda types, _: MapType(_inner(types[0]), _inner(types[1])),
    ),
    examples=(("MAP_FROM_ARRAYS(ARRAY['a', 'b'], ARRAY[1, 2])['b']", "2"),),
)
def map_from_arrays(keys: tuple[Any, ...], values: tuple[Any, ...]) -> dict[Any, Any]:
    """A map of keys and values, which must be as many; of equal keys the last one counts."""
    if len(keys) != len(values):
        message = f"MAP_FROM_ARRAYS: {len(keys)} keys and {len(values)} values"
        raise ValueError(message)
    return dict(zip(map(as_key, keys), values, strict=True))


construction: Final = FunctionGroup("value construction")

_NEVER: Final = Nullability.NEVER


def _row_type(types: Sequence[LogicalType], _: Sequence[object]) -> LogicalType:
    return RowType(tuple(RowField(f"EXPR${at}", type_) for at, type_ in enumerate(types)))


def _row_kernel(info: CallInfo, *columns: Any) -> Any:
    if not columns:
        return NotImplemented
    arrays = [
        pa.repeat(column, info.rows) if isinstance(column, pa.Scalar) else column
        for column in columns
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(info.result_type.to_arrow()))


construction.total(
    "ROW",
    "A row of values; its fields are called EXPR$0, EXPR$1 and so on.",
    lambda *values: values,
    signature("[any...]", result=_row_type, nullability=_NEVER),
    nulls=NullBehaviour.CALLED,
    kernel=_row_kernel,
    syntax="ROW(value1, value2, ...), (value1, value2, ...)",
    examples=(("ROW(1, 'a')", "(1, a)"),),
)


def _array_type(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    return ArrayType(common_of()(types, constants))


construction.total(
    "ARRAY",
    "An array of values, of their common type.",
    lambda *values: values,
    signature("any...", result=_array_type, common=True, nullability=_NEVER),
    nulls=NullBehaviour.CALLED,
    syntax="ARRAY[value1, value2, ...]",
    examples=(("ARRAY[1, 2, NULL]", "[1, 2, NULL]"),),
)


@construction.scalar(
    "MAP",
    signature("any key, any...", result=_map_of, nullability=_NEVER, kind=_PairsSignature),
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


@construction.scalar(
    "OBJECT_OF",
    _object_signature(_object_type),
    nulls=NullBehaviour.CALLED,
    kernel=_object_kernel,
    can_fail=False,
    syntax="OBJECT_OF('module.Class', 'name1', value1, 'name2', value2, ...)",
    examples=(("OBJECT_OF('app.User', 'name', 'Bob', 'age', 42)", "(name=Bob, age=42)"),),
)
def object_of(_: str, *pairs: Any) -> tuple[Any, ...]:
    """An object of a structured type.

    In Python it is one of that class if that is a dataclass of these fields that can be imported,
    and a row with names otherwise.
    """
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


@construction.scalar(
    "OBJECT_UPDATE",
    _object_signature(_updated_type),
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


def _field_kernel(info: CallInfo, rows: Any, _: Any) -> Any:
    if not isinstance(rows, pa.Array):
        return NotImplemented
    return pc.struct_field(rows, [_position(info.argument_types[0], info.constants[1])])


@construction.scalar(
    "GET",
    signature("row, string name", result=_field_type, nullability=Nullability.RULE),
    signature("row, integer position", result=_field_type, nullability=Nullability.RULE),
    kernel=_field_kernel,
    contextual=True,
    can_fail=False,
    syntax="row.field",
    examples=(("ROW(1, 'a').EXPR$1", "a"),),
)
def get(info: CallInfo, values: tuple[Any, ...], field: str | int) -> Any:
    """The field of a row of a name, or at a position, from 0; both must be constants."""
    return values[_position(info.argument_types[0], field)]
