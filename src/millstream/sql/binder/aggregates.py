"""Aggregates: which of them queries can have, and the types of their results.

What it is: what the definitions (``expressions/functions/aggregate.py``) say of those that there
are operators for, and what binders of groups share.
What it is not: the computation (``runtime/operators/table/``).

Read next: ``sql/binder/grouping.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.expressions.functions.definition import FunctionKind
from millstream.expressions.functions.registry import built_in_functions
from millstream.expressions.functions.signatures import Nullability
from millstream.expressions.nodes import InputReference
from millstream.expressions.resolution import no_signature
from millstream.runtime.columnar.aggregate_kernels import SUPPORTED_AGGREGATES
from millstream.types.logical_types import LogicalType, TimestampKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression

__all__ = [
    "AGGREGATES",
    "OVER_ONLY",
    "RANKS",
    "Inputs",
    "Placeholder",
    "aggregate_arguments",
    "aggregate_type",
    "plain_type",
]

#: Functions that number the rows of a window; only with OVER.
RANKS: Final = frozenset({"ROW_NUMBER", "RANK", "DENSE_RANK"})
#: The functions that have no frame, and no meaning without OVER.
OVER_ONLY: Final = RANKS | {"LAG", "LEAD", "NTILE", "CUME_DIST", "PERCENT_RANK"}
#: Those whose arguments are cast to what they take.
_CASTING: Final = frozenset({"PERCENTILE", "BITMAP_BUILD_AGG", "BITMAP_BUILD_CARDINALITY_AGG"})


def plain_type(kind: LogicalType) -> LogicalType:
    """The type without being a time attribute."""
    if getattr(kind, "is_time_attribute", False):
        return kind.with_parameters(kind=TimestampKind.REGULAR)
    return kind


#: What the operators of tables compute, by all of its names.
AGGREGATES: Final = {
    name: definition
    for name, definition in built_in_functions().items()
    # COUNT(DISTINCT ...) stands for the roughly counted ones.
    if (definition.name in SUPPORTED_AGGREGATES and definition.kind is FunctionKind.AGGREGATE)
    or definition.name == "APPROX_COUNT_DISTINCT"
}


def aggregate_arguments(name: str, types: Sequence[LogicalType]) -> Sequence[LogicalType]:
    """The types that the arguments of an aggregate are cast to; the same, but for some.

    Args:
        name: in capitals.
        types: of the arguments, which it takes.
    """
    if name not in _CASTING:
        return types
    plain = tuple(plain_type(kind) for kind in types)
    found = (each.match(plain) for each in AGGREGATES[name].signatures)
    return next(each for each in found if each is not None)


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
    plain = tuple(plain_type(kind) for kind in types)
    definition = AGGREGATES[name]
    for candidate in definition.signatures:
        taken = candidate.match(plain)
        if taken is not None and (taken == plain or definition.name in _CASTING):
            found = candidate.result_type(plain, ())
            may_be_empty = not grouped or filtered
            if may_be_empty and candidate.nullability is not Nullability.NEVER:
                found = found.with_nullability(True)  # noqa: FBT003
            return definition.name, found
    raise no_signature(definition, plain)


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
