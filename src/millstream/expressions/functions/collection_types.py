"""Signatures of functions over arrays and maps, whose arguments depend on each other.

What it is: an element given beside an array is cast to the array's element type; keys and values of
a constructor each get their common type.

Read next: ``expressions/functions/collection.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.expressions.functions.signatures import (
    Nullability,
    Signature,
    any_type,
    signature,
)
from millstream.types.logical_types import ArrayType, MapType, RowField, RowType
from millstream.types.type_derivation import common_type, supports_implicit_cast
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.functions.signatures import Argument, ResultRule
    from millstream.types.logical_types import LogicalType

__all__ = [
    "array_of",
    "element_of",
    "element_signature",
    "entries_of",
    "map_of",
    "of_key_or_index",
    "pairs_signature",
]

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
