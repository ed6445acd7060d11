"""Built-in aggregates: Count, Sum, Min, Max, Avg, computed on Arrow columns.

What it is: what users write instead of an AggregateFunction when one of these is enough, as in
``windowed.aggregate({"n": Count(), "total": Sum("value")})``.  They are computed per batch before
the exchange and merged behind it; no Python code runs per record or key.

What it is not: window logic (``runtime/operators/builtin_window.py``).

Nulls are left out, as in SQL: the sum, minimum, maximum or average of nothing but nulls is null.
Sums of integers are 64 bits wide and wrap around beyond that; sums of floating-point numbers
depend, in the last digits, on the order of additions.

Read next: ``runtime/operators/window_partials.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError

__all__ = [
    "Aggregates",
    "Avg",
    "BuiltInAggregate",
    "Count",
    "Max",
    "Min",
    "Sum",
    "named_aggregates",
]

#: Output columns that every built-in window result begins with.
LEADING_COLUMNS = ("key", "window_start", "window_end")


@dataclass(frozen=True)
class BuiltInAggregate(ABC):
    """One aggregate over one field.

    ``partials`` are pyarrow's names of the grouped aggregations that make its partial columns from
    records; ``merges`` of those that merge partial columns.  ``finish`` makes the result of them.
    """

    #: Name or position of the field; None: the record itself (a stream of scalars).
    field: str | int | None = None

    partials: ClassVar[tuple[str, ...]] = ()
    merges: ClassVar[tuple[str, ...]] = ()

    @property
    def needs_column(self) -> bool:
        """Whether it looks at a field at all."""
        return True

    @property
    def default_name(self) -> str:
        """Name of the output column where the user gives none: ``sum_value``."""
        name = type(self).__name__.lower()
        return name if self.field is None else f"{name}_{self.field}"

    @abstractmethod
    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        """Return the result column of the merged partial columns."""


@dataclass(frozen=True)
class Count(BuiltInAggregate):
    """How many records; with a field, how many where it is not null."""

    merges: ClassVar[tuple[str, ...]] = ("sum",)

    @property
    def needs_column(self) -> bool:
        """Whether it looks at a field at all."""
        return self.field is not None

    @property
    def partials(self) -> tuple[str, ...]:  # type: ignore[override] # depends on the field
        """Return the grouped aggregation: all records, or those that are not null."""
        return ("count_all",) if self.field is None else ("count",)

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        """Return the count."""
        return columns[0]


@dataclass(frozen=True)
class Sum(BuiltInAggregate):
    """The sum of a field."""

    partials: ClassVar[tuple[str, ...]] = ("sum",)
    merges: ClassVar[tuple[str, ...]] = ("sum",)

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        """Return the sum."""
        return columns[0]


@dataclass(frozen=True)
class Min(BuiltInAggregate):
    """The smallest value of a field."""

    partials: ClassVar[tuple[str, ...]] = ("min",)
    merges: ClassVar[tuple[str, ...]] = ("min",)

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        """Return the minimum."""
        return columns[0]


@dataclass(frozen=True)
class Max(BuiltInAggregate):
    """The largest value of a field."""

    partials: ClassVar[tuple[str, ...]] = ("max",)
    merges: ClassVar[tuple[str, ...]] = ("max",)

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        """Return the maximum."""
        return columns[0]


@dataclass(frozen=True)
class Avg(BuiltInAggregate):
    """The mean of a field, as a floating-point number."""

    partials: ClassVar[tuple[str, ...]] = ("sum", "count")
    merges: ClassVar[tuple[str, ...]] = ("sum", "sum")

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        """Return sum / count; null where there is no value."""
        total, count = columns
        return pc.divide(total.cast(pa.float64()), count.cast(pa.float64()))


#: What ``aggregate`` takes beside an AggregateFunction.
Aggregates: TypeAlias = (
    Mapping[str, BuiltInAggregate] | Sequence[BuiltInAggregate] | BuiltInAggregate
)


def named_aggregates(aggregates: Aggregates) -> dict[str, BuiltInAggregate]:
    """Return the aggregates by the names of their output columns.

    Raises:
        ProgramError: something is not a built-in aggregate, or a name is taken.
    """
    if isinstance(aggregates, BuiltInAggregate):
        aggregates = [aggregates]
    named: dict[str, BuiltInAggregate] = {}
    if isinstance(aggregates, Mapping):
        named.update(aggregates)
    else:
        for each in aggregates:
            name = getattr(each, "default_name", "")
            named[name if name not in named else f"{name}_{len(named)}"] = each
    given: dict[str, object] = dict(named)
    for name, aggregate in given.items():
        if not isinstance(aggregate, BuiltInAggregate):
            message = f"{aggregate!r} is not a built-in aggregate (Count, Sum, Min, Max, Avg)"
            raise ProgramError(message)
        if name in LEADING_COLUMNS:
            message = f"an aggregate cannot be named {name!r}: that column is there already"
            raise ProgramError(message)
    if not named:
        message = "aggregate() needs at least one built-in aggregate"
        raise ProgramError(message)
    return named
