"""Aggregates: which there are, and their types.

What it is: a table of aggregates with the types of their results, and what binders of groups share.
What it is not: the computation (``runtime/operators/table/``).

Read next: ``sql/binder/grouping.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from millstream.errors import ProgramError
from millstream.expressions.nodes import InputReference
from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    LogicalType,
    MultisetType,
    TimestampKind,
    VarCharType,
)
from millstream.types.type_derivation import average_type, sum_type
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.nodes import Expression

__all__ = ["AGGREGATES", "RANKS", "Inputs", "Placeholder", "aggregate_type", "plain_type"]

#: Functions that number the rows of a window; only with OVER.
RANKS: Final = frozenset({"ROW_NUMBER", "RANK", "DENSE_RANK"})
_ALIASES: Final = {
    "STDDEV": "STDDEV_SAMP",
    "VARIANCE": "VAR_SAMP",
    "SUM0": "$SUM0",
}


def plain_type(kind: LogicalType) -> LogicalType:
    """The type without being a time attribute."""
    if getattr(kind, "is_time_attribute", False):
        return replace(kind, kind=TimestampKind.REGULAR)  # type: ignore[call-arg]
    return kind


def _numeric(name: str, types: Sequence[LogicalType]) -> LogicalType:
    if len(types) != 1 or not types[0].is_a(TypeFamily.NUMERIC):
        raise _refused(name, types, "(NUMERIC)")
    return types[0]


def _refused(name: str, types: Sequence[LogicalType], *forms: str) -> ProgramError:
    given = ", ".join(kind.as_summary_string() for kind in types)
    lines = "\n".join(f"    {name}{form}" for form in forms)
    return ProgramError(f"{name} does not take ({given}); it takes\n{lines}")


def _sum(name: str, types: Sequence[LogicalType]) -> LogicalType:
    return sum_type(_numeric(name, types))


def _average(name: str, types: Sequence[LogicalType]) -> LogicalType:
    return average_type(_numeric(name, types))


def _deviation(name: str, types: Sequence[LogicalType]) -> LogicalType:
    return average_type(_numeric(name, types))


def _count(name: str, types: Sequence[LogicalType]) -> LogicalType:
    del name, types
    return BigIntType(nullable=False)


def _same(name: str, types: Sequence[LogicalType]) -> LogicalType:
    if len(types) != 1:
        raise _refused(name, types, "(ANY)")
    return types[0]


def _comparable(name: str, types: Sequence[LogicalType]) -> LogicalType:
    unordered = {TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.ROW, TypeRoot.ARRAY, TypeRoot.RAW}
    if len(types) != 1 or types[0].root in unordered:
        raise _refused(name, types, "(COMPARABLE)")
    return types[0]


def _listagg(name: str, types: Sequence[LogicalType]) -> LogicalType:
    strings = all(kind.is_a(TypeFamily.CHARACTER_STRING) for kind in types)
    if not 1 <= len(types) <= 2 or not strings:  # noqa: PLR2004 - the two forms below
        forms = "(CHARACTER_STRING)", "(CHARACTER_STRING, CHARACTER_STRING)"
        raise _refused(name, types, *forms)
    return VarCharType()


def _collect(name: str, types: Sequence[LogicalType]) -> LogicalType:
    return MultisetType(_same(name, types), nullable=False)


def _array(name: str, types: Sequence[LogicalType]) -> LogicalType:
    return ArrayType(_same(name, types))


def _boolean(name: str, types: Sequence[LogicalType]) -> LogicalType:
    if len(types) != 1 or types[0].root is not TypeRoot.BOOLEAN:
        raise _refused(name, types, "(BOOLEAN)")
    return types[0]


#: Name -> the type of its result.
AGGREGATES: Final[dict[str, Callable[[str, Sequence[LogicalType]], LogicalType]]] = {
    "COUNT": _count,
    "SUM": _sum,
    "$SUM0": _sum,
    "AVG": _average,
    "MIN": _comparable,
    "MAX": _comparable,
    "STDDEV_POP": _deviation,
    "STDDEV_SAMP": _deviation,
    "STDDEV": _deviation,
    "VAR_POP": _deviation,
    "VAR_SAMP": _deviation,
    "VARIANCE": _deviation,
    "FIRST_VALUE": _same,
    "LAST_VALUE": _same,
    "LISTAGG": _listagg,
    "COLLECT": _collect,
    "ARRAY_AGG": _array,
    "SINGLE_VALUE": _same,
    "APPROX_COUNT_DISTINCT": _count,
    "BOOL_AND": _boolean,
    "BOOL_OR": _boolean,
}
#: These are never NULL.
_NEVER_NULL: Final = frozenset({"COUNT", "$SUM0", "COLLECT", "APPROX_COUNT_DISTINCT"})


def aggregate_type(
    name: str, types: Sequence[LogicalType], *, grouped: bool, filtered: bool
) -> tuple[str, LogicalType]:
    """The function's own name and the type of its result.

    Args:
        name: in capitals.
        types: of the arguments.
        grouped: whether each group has at least one row.
        filtered: whether FILTER may leave none.

    Raises:
        ProgramError: it does not take these.
    """
    plain = [plain_type(kind) for kind in types]
    found = AGGREGATES[name](name, plain)
    function = _ALIASES.get(name, name)
    if function in _NEVER_NULL:
        return function, found.with_nullability(False)  # noqa: FBT003
    may_be_empty = not grouped or filtered or function.endswith("_SAMP")
    return function, found.with_nullability(found.nullable or may_be_empty)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A column whose position is not known yet."""

    #: key, call, grouping, or over.
    kind: str
    index: int
    type: LogicalType

    def __str__(self) -> str:
        """For people who debug."""
        return f"${self.kind}{self.index}"


class Inputs:
    """Expressions that are to be columns of a projection below an aggregate: each once."""

    def __init__(self) -> None:
        self.expressions: list[Expression] = []
        self.names: list[str] = []

    def add(self, expression: Expression, name: str | None = None) -> int:
        """The position of the column that holds the expression."""
        for position, known in enumerate(self.expressions):
            if known == expression:
                return position
        self.expressions.append(expression)
        if name is None:
            plain = isinstance(expression, InputReference)
            name = expression.name if plain else f"$f{len(self.names)}"  # type: ignore[union-attr]
        self.names.append(name)
        return len(self.expressions) - 1
