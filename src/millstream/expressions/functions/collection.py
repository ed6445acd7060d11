"""Collection functions of Flink's reference: arrays and maps.

NULL equals NULL and NaN equals NaN; NaN sorts above all other numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
    array,
    boolean,
    character,
    common_of,
    integer,
    map_of_any,
    root,
    same_as,
    signature,
)
from millstream.types.bitmaps import VariantType
from millstream.types.logical_types import ArrayType, MapType, RowField, RowType
from millstream.types.type_derivation import common_type, supports_implicit_cast
from millstream.types.type_information import as_key
from millstream.types.type_roots import TypeRoot
from millstream.types.variants import variant_element, variant_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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
        if keys is None or values is None:
            return None
        return tuple(
            (values if at % _PAIR else keys).with_nullability(type_.is_nullable)
            for at, type_ in enumerate(types)
        )


def _inner(type_: LogicalType) -> LogicalType:
    assert isinstance(type_, ArrayType), "the signature asks for an array"  # noqa: S101
    return type_.element


def element_signature(
    container: Argument,
    name: str,
    *,
    result: LogicalType | ResultRule,
    nullability: Nullability = Nullability.ARGUMENTS,
) -> Signature:
    """A function of an array (or map) and an element (or key) of it."""
    plain = signature(container, any_type(name), result=result, nullability=nullability)
    return _ElementSignature(plain.arguments, plain.result, nullability=nullability)


def pairs_signature() -> Signature:
    """MAP[key, value, ...]."""
    plain = signature(any_type("key"), any_type("value"), result=map_of, repeats=True)
    return _PairsSignature(
        plain.arguments, plain.result, repeats=True, nullability=Nullability.NEVER
    )


def element_of(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    """The element type of the first argument."""
    del constants
    return _inner(types[0])


def of_key_or_index(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    """What ``container[...]`` is: an element of an array, a value of a map."""
    del constants
    return types[0].value if isinstance(types[0], MapType) else _inner(types[0])


def array_of(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    """An array of the first argument's elements and of those given one by one."""
    del constants
    common = common_type([_inner(types[0]), types[1]])
    assert common is not None, "the signature casts the second to the first"  # noqa: S101
    nullable = types[0].is_nullable
    return ArrayType(common).with_nullability(nullable)


def map_of(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    """The map of keys and values in turns."""
    del constants
    keys, values = common_type(list(types[::2])), common_type(list(types[1::2]))
    assert keys is not None, "the signature finds a common type"  # noqa: S101
    assert values is not None, "the signature finds a common type"  # noqa: S101
    return MapType(keys, values)


def entries_of(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    """ARRAY<ROW<key, value>> of a map."""
    del constants
    type_ = types[0]
    assert isinstance(type_, MapType), "the signature asks for a map"  # noqa: S101
    return ArrayType(RowType((RowField("key", type_.key), RowField("value", type_.value))))


functions = FunctionGroup("collection")

_ALWAYS: Final = Nullability.ALWAYS
_ARRAY: Final = array()
_VARIANT: Final = root("variant", TypeRoot.VARIANT)


def _key(value: Any) -> Any:
    """What an element is found by in a set."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN", None
    if isinstance(value, dict):
        return frozenset((_key(key), _key(inner)) for key, inner in value.items())
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    return value


def _order(value: Any) -> Any:
    """What elements are sorted by."""
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


@functions.scalar(
    "CARDINALITY",
    signatures=(
        signature(root("array", TypeRoot.ARRAY), result=INT),
        signature(root("map", TypeRoot.MAP, TypeRoot.MULTISET), result=INT),
    ),
    kernel=_cardinality_kernel,
    can_fail=False,
    examples=(("CARDINALITY(ARRAY[1, 2, NULL])", "3"), ("CARDINALITY(MAP['a', 1])", "1")),
)
def cardinality(collection: Any) -> int:
    """How many elements an array, or entries a map, has."""
    return len(collection)


def _positive_index(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    index = constants[1]
    if isinstance(index, int) and index < 1:
        message = f"the index of an array begins at 1, not {index}"
        raise ProgramError(message)
    return of_key_or_index(types, constants)


@functions.scalar(
    "AT",
    aliases=("ITEM",),
    signatures=(
        signature(
            root("array", TypeRoot.ARRAY),
            integer("index"),
            result=_positive_index,
            nullability=_ALWAYS,
        ),
        element_signature(
            root("map", TypeRoot.MAP), "key", result=of_key_or_index, nullability=_ALWAYS
        ),
        signature(_VARIANT, integer("index"), result=VariantType(), nullability=_ALWAYS),
        signature(_VARIANT, character("field"), result=VariantType(), nullability=_ALWAYS),
    ),
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
    signatures=(signature(_ARRAY, result=element_of, nullability=_ALWAYS),),
    examples=(("ELEMENT(ARRAY[1])", "1"),),
)
def element(values: tuple[Any, ...]) -> Any:
    """The only element of an array; NULL if it is empty; fails if there are more."""
    if len(values) > 1:
        message = "ELEMENT: the array has more than one element"
        raise ValueError(message)
    return values[0] if values else None


# -- arrays and one element -------------------------------------------------------------------


def _as_array(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    del constants
    return types[0]


def _nullable_as_array(result: LogicalType) -> Callable[..., LogicalType]:
    def rule(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
        del constants
        return result.with_nullability(types[0].is_nullable)

    return rule


def _with_element(result: Any, nullability: Nullability = Nullability.RULE) -> tuple[Signature]:
    return (element_signature(_ARRAY, "element", result=result, nullability=nullability),)


@functions.scalar(
    "ARRAY_APPEND",
    signatures=_with_element(array_of),
    nulls=NullBehaviour.CALLED,
    can_fail=False,
    examples=(("ARRAY_APPEND(ARRAY[1, 2], 3)", "[1, 2, 3]"),),
)
def array_append(values: tuple[Any, ...] | None, new: Any) -> tuple[Any, ...] | None:
    """An array with an element, which may be NULL, after the others."""
    return None if values is None else (*values, new)


@functions.scalar(
    "ARRAY_PREPEND",
    signatures=_with_element(array_of),
    nulls=NullBehaviour.CALLED,
    can_fail=False,
    examples=(("ARRAY_PREPEND(ARRAY[1, 2], 0)", "[0, 1, 2]"),),
)
def array_prepend(values: tuple[Any, ...] | None, new: Any) -> tuple[Any, ...] | None:
    """An array with an element, which may be NULL, before the others."""
    return None if values is None else (new, *values)


@functions.scalar(
    "ARRAY_CONTAINS",
    signatures=_with_element(_nullable_as_array(BOOLEAN)),
    nulls=NullBehaviour.CALLED,
    can_fail=False,
    examples=(
        ("ARRAY_CONTAINS(ARRAY[1, 2], 2)", "TRUE"),
        ("ARRAY_CONTAINS(ARRAY[1, NULL], CAST(NULL AS INT))", "TRUE"),
    ),
)
def array_contains(values: tuple[Any, ...] | None, wanted: Any) -> bool | None:
    """Whether an array has an element, which may be NULL."""
    if values is None:
        return None
    key = _key(wanted)
    return any(_key(value) == key for value in values)


@functions.scalar(
    "ARRAY_POSITION",
    signatures=_with_element(INT, Nullability.ARGUMENTS),
    can_fail=False,
    examples=(("ARRAY_POSITION(ARRAY['a', 'b'], 'b')", "2"), ("ARRAY_POSITION(ARRAY[1], 2)", "0")),
)
def array_position(values: tuple[Any, ...], wanted: Any) -> int:
    """Where an element first occurs in an array, from 1; 0 if it does not."""
    key = _key(wanted)
    return next((at for at, value in enumerate(values, 1) if _key(value) == key), 0)


@functions.scalar(
    "ARRAY_REMOVE",
    signatures=_with_element(_as_array),
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


@functions.scalar(
    "ARRAY_DISTINCT",
    signatures=(signature(_ARRAY, result=same_as(0)),),
    can_fail=False,
    examples=(("ARRAY_DISTINCT(ARRAY[1, 2, 1])", "[1, 2]"),),
)
def array_distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """An array with each element once, in the order in which they first occur."""
    return _first_ones(values)


@functions.scalar(
    "ARRAY_REVERSE",
    signatures=(signature(_ARRAY, result=same_as(0)),),
    can_fail=False,
    examples=(("ARRAY_REVERSE(ARRAY[1, 2, 3])", "[3, 2, 1]"),),
)
def array_reverse(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The elements of an array from the last to the first."""
    return values[::-1]


@functions.scalar(
    "ARRAY_SLICE",
    signatures=(
        signature(_ARRAY, integer("start"), integer("end"), result=same_as(0), optional=1),
    ),
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
    signatures=(
        signature(
            _ARRAY, boolean("ascending"), boolean("null_first"), result=same_as(0), optional=2
        ),
    ),
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
    signatures=(signature(_ARRAY, result=element_of, nullability=_ALWAYS),),
    examples=(("ARRAY_MAX(ARRAY[1, NULL, 3])", "3"),),
)
def array_max(values: tuple[Any, ...]) -> Any:
    """The greatest element that is not NULL; NULL if there is none."""
    return max((value for value in values if value is not None), key=_order, default=None)


@functions.scalar(
    "ARRAY_MIN",
    signatures=(signature(_ARRAY, result=element_of, nullability=_ALWAYS),),
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
    signatures=(
        signature(
            _STRING_ARRAY,
            character("delimiter"),
            character("null_replacement"),
            result=STRING,
            optional=1,
        ),
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


def _two_arrays() -> tuple[Signature]:
    return (signature(array("array1"), array("array2"), result=common_of(), common=True),)


@functions.scalar(
    "ARRAY_UNION",
    signatures=_two_arrays(),
    can_fail=False,
    examples=(("ARRAY_UNION(ARRAY[1, 2, 2], ARRAY[3, 1])", "[1, 2, 3]"),),
)
def array_union(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    """What is in one of two arrays, each element once."""
    return _first_ones(first + second)


@functions.scalar(
    "ARRAY_INTERSECT",
    signatures=_two_arrays(),
    can_fail=False,
    examples=(("ARRAY_INTERSECT(ARRAY[1, 1, 2, 3], ARRAY[3, 1])", "[1, 3]"),),
)
def array_intersect(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    """What is in both of two arrays, each element once, in the order of the first."""
    others = set(map(_key, second))
    return _first_ones(value for value in first if _key(value) in others)


@functions.scalar(
    "ARRAY_EXCEPT",
    signatures=_two_arrays(),
    can_fail=False,
    examples=(("ARRAY_EXCEPT(ARRAY[1, 2, 2, 3, 1], ARRAY[2])", "[1, 3]"),),
)
def array_except(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    """What is in the first of two arrays and not in the second, each element once."""
    others = set(map(_key, second))
    return _first_ones(value for value in first if _key(value) not in others)


@functions.scalar(
    "ARRAY_CONCAT",
    signatures=(signature(_ARRAY, result=common_of(), repeats=True, common=True),),
    can_fail=False,
    syntax="ARRAY_CONCAT(array1, array2, ...)",
    examples=(("ARRAY_CONCAT(ARRAY[1], ARRAY[2], ARRAY[1])", "[1, 2, 1]"),),
)
def array_concat(*arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """The elements of all arrays, concatenated."""
    return tuple(value for values in arrays for value in values)


# -- maps --------------------------------------------------------------------------------------


def _map_array(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    del constants
    type_ = types[0]
    return ArrayType(type_.key) if isinstance(type_, MapType) else type_


def _value_array(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    del constants
    type_ = types[0]
    return ArrayType(type_.value) if isinstance(type_, MapType) else type_


@functions.scalar(
    "MAP_KEYS",
    signatures=(signature(map_of_any(), result=_map_array),),
    can_fail=False,
    examples=(("MAP_KEYS(MAP['a', 1, 'b', 2])", "[a, b]"),),
)
def map_keys(mapping: dict[Any, Any]) -> tuple[Any, ...]:
    """The keys of a map; no order is promised."""
    return tuple(mapping)


@functions.scalar(
    "MAP_VALUES",
    signatures=(signature(map_of_any(), result=_value_array),),
    can_fail=False,
    examples=(("MAP_VALUES(MAP['a', 1, 'b', 2])", "[1, 2]"),),
)
def map_values(mapping: dict[Any, Any]) -> tuple[Any, ...]:
    """The values of a map; no order is promised."""
    return tuple(mapping.values())


@functions.scalar(
    "MAP_ENTRIES",
    signatures=(signature(map_of_any(), result=entries_of),),
    can_fail=False,
    examples=(("CARDINALITY(MAP_ENTRIES(MAP['a', 1, 'b', 2]))", "2"),),
)
def map_entries(mapping: dict[Any, Any]) -> tuple[Any, ...]:
    """The entries of a map as rows of key and value; no order is promised."""
    return tuple(mapping.items())


@functions.scalar(
    "MAP_UNION",
    signatures=(signature(map_of_any(), result=common_of(), repeats=True, common=True),),
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


def _mapped_arrays(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    return MapType(element_of(types[:1], constants), element_of(types[1:], constants))


@functions.scalar(
    "MAP_FROM_ARRAYS",
    signatures=(signature(array("keys"), array("values"), result=_mapped_arrays),),
    examples=(("MAP_FROM_ARRAYS(ARRAY['a', 'b'], ARRAY[1, 2])['b']", "2"),),
)
def map_from_arrays(keys: tuple[Any, ...], values: tuple[Any, ...]) -> dict[Any, Any]:
    """A map of keys and values, which must be as many; of equal keys the last one counts."""
    if len(keys) != len(values):
        message = f"MAP_FROM_ARRAYS: {len(keys)} keys and {len(values)} values"
        raise ValueError(message)
    return dict(zip(map(as_key, keys), values, strict=True))
