"""Aggregate functions of users: what a call of one carries to where it is computed.

What it is: ``aggregate_definition_of``, from an object with ``create_accumulator``, ``accumulate``
and ``get_value`` (or a function of pandas' Series) to a ``FunctionDefinition``, whose reference is
a ``UserAggregate``.  A table aggregate gives several rows: to the plan it gives an array of rows,
which is unnested.
What it is not: the computation (``runtime/columnar/aggregate_kernels.py``), or the words of PyFlink
(``table/udf.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.functions.definition import (
    FunctionDefinition,
    FunctionKind,
    NullBehaviour,
)
from millstream.expressions.user_functions import user_signature

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.types.logical_types import LogicalType

__all__ = ["AGGREGATE_METHODS", "UserAggregate", "aggregate_definition_of", "user_aggregate"]

#: What an object that aggregates to a value needs.
AGGREGATE_METHODS: Final = ("create_accumulator", "accumulate", "get_value")


@dataclass(frozen=True, eq=False)
class UserAggregate:
    """An aggregate function of a user; compared by identity."""

    name: str
    #: With ``AGGREGATE_METHODS``; of kind pandas these take Series, or it is a function of Series.
    function: Any
    #: general or pandas.
    kind: str
    #: Whether it gives several rows.
    gives_rows: bool
    deterministic: bool
    #: Whether its argument is all columns of a table.
    is_whole: bool = False
    #: Of the job, for ``open``.
    job_parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def retracts(self) -> bool:
        """Whether rows can be taken back from it."""
        return self.kind == "pandas" or _has_own(self.function, "retract")

    @property
    def merges(self) -> bool:
        """Whether two accumulators can be put together."""
        return self.kind == "pandas" or _has_own(self.function, "merge")


def _has_own(function: object, name: str) -> bool:
    """Whether a class has said what a method does that the base class refuses."""
    found = getattr(type(function), name, None)
    return found is not None and not getattr(found, "is_missing", False)


def aggregate_definition_of(
    aggregate: UserAggregate,
    result_type: LogicalType,
    *,
    input_types: Sequence[LogicalType] | None = None,
) -> FunctionDefinition:
    """The table entry of a user's aggregate function.

    Args:
        aggregate: the function.
        result_type: the type of its results; an array of rows, if it gives rows.
        input_types: what arguments are cast to; None: any number of any types.
    """
    return FunctionDefinition(
        aggregate.name,
        "user",
        FunctionKind.AGGREGATE,
        signatures=(user_signature(input_types, result_type),),
        nulls=NullBehaviour.CALLED,
        reference=aggregate,  # type: ignore[arg-type] # never called by the evaluator
        deterministic=aggregate.deterministic,
    )


def user_aggregate(definition: FunctionDefinition) -> UserAggregate:
    """The function of an entry that ``aggregate_definition_of`` has made."""
    found: Any = definition.reference
    assert isinstance(found, UserAggregate)  # noqa: S101 - its only maker
    return found
