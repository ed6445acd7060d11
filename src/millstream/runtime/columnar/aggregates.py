"""Built-in aggregates, computed on Arrow columns.

What it is: what users write instead of an AggregateFunction when one of these is enough, as in
``windowed.aggregate({"n": Count(), "total": Sum("value")})``.  They are computed per batch before
the exchange where possible and merged behind it; no Python code runs per record or key.

What it is not: window logic (``runtime/operators/windows/columnar.py``), or the row by row form of
the same aggregates (``runtime/columnar/row_aggregates.py``).

Nulls are left out, as in SQL: the sum, minimum, maximum or average of nothing but nulls is null.
``where`` leaves out records in the same way: what it does not select counts as null.
Sums of integers are 64 bits wide and wrap around beyond that; sums of floating-point numbers
depend, in the last digits, on the order of additions.

Read next: ``runtime/columnar/partial_aggregates.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError
from millstream.runtime.columnar import grouped_kernels as over

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from millstream.runtime.columnar.grouped_kernels import Grouping

__all__ = [
    "Aggregates",
    "Avg",
    "BuiltInAggregate",
    "Collect",
    "Count",
    "CountDistinct",
    "First",
    "KernelAggregate",
    "Last",
    "Max",
    "Min",
    "Predicate",
    "Quantile",
    "Quantiles",
    "Sum",
    "named_aggregates",
]

#: What selects records: an Arrow expression such as ``pc.field("value") > 3``, or a callable that
#: gets a record batch and returns one boolean per record.
Predicate: TypeAlias = pc.Expression | Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True)
class BuiltInAggregate:
    """One aggregate over one field.

    ``partials`` are pyarrow's names of the grouped aggregations that make its partial columns from
    records; ``merges`` of those that merge partial columns.  ``finish`` makes the result of them.
    """

    #: Name or position of the field; None: the record itself (a stream of scalars).
    field: str | int | None = None
    #: Selects the records that count; None: all of them.
    where: Predicate | None = dataclass_field(default=None, compare=False, kw_only=True)

    partials: ClassVar[tuple[str, ...]] = ()
    merges: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Check the predicate.

        Raises:
            ProgramError: it is neither an expression nor callable.
        """
        predicate: object = self.where
        if predicate is None or isinstance(predicate, pc.Expression) or callable(predicate):
            return
        message = (
            f"the where of {type(self).__name__} must be a pyarrow expression such as "
            f'pc.field("value") > 3, or a callable of a record batch, not {predicate!r}'
        )
        raise ProgramError(message)

    def filter(self, predicate: Predicate) -> Self:
        """Return the same aggregate over the records that ``predicate`` selects only.

        Args:
            predicate: as ``where``.  An earlier one holds as well.

        Raises:
            ProgramError: it is neither an expression nor callable.
        """
        if self.where is None:
            return replace(self, where=predicate)
        if isinstance(self.where, pc.Expression) and isinstance(predicate, pc.Expression):
            return replace(self, where=self.where & predicate)
        message = (
            f"{type(self).__name__} has a filter already, and one of both is a callable; put both "
            "conditions into one callable"
        )
        raise ProgramError(message)

    @property
    def needs_column(self) -> bool:
        """Whether it looks at a field at all."""
        return True

    @property
    def width(self) -> int:
        """How many partial columns it has."""
        return len(self.merges)

    @property
    def default_name(self) -> str:
        """Name of the output column where the user gives none: ``sum_value``."""
        name = _snake(type(self).__name__)
        return name if self.field is None else f"{name}_{self.field}"

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.Array | pa.ChunkedArray:
        """Return the result column of the merged partial columns."""
        return columns[0]


@dataclass(frozen=True)
class Count(BuiltInAggregate):
    """How many records; with a field, how many where it is not null."""

    merges: ClassVar[tuple[str, ...]] = ("sum",)

    @property
    def needs_column(self) -> bool:
        return self.field is not None

    @property
    def partials(self) -> tuple[str, ...]:  # type: ignore[override] # depends on the field
        """Return the grouped aggregation: all records, or those that are not null."""
        return ("count_all",) if self.field is None and self.where is None else ("count",)


@dataclass(frozen=True)
class Sum(BuiltInAggregate):
    """The sum of a field."""

    partials: ClassVar[tuple[str, ...]] = ("sum",)
    merges: ClassVar[tuple[str, ...]] = ("sum",)


@dataclass(frozen=True)
class Min(BuiltInAggregate):
    """The smallest value of a field."""

    partials: ClassVar[tuple[str, ...]] = ("min",)
    merges: ClassVar[tuple[str, ...]] = ("min",)


@dataclass(frozen=True)
class Max(BuiltInAggregate):
    """The largest value of a field."""

    partials: ClassVar[tuple[str, ...]] = ("max",)
    merges: ClassVar[tuple[str, ...]] = ("max",)


@dataclass(frozen=True)
class Avg(BuiltInAggregate):
    """The mean of a field, as a floating-point number."""

    partials: ClassVar[tuple[str, ...]] = ("sum", "count")
    merges: ClassVar[tuple[str, ...]] = ("sum", "sum")

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        """Return sum / count; null where there is no value."""
        total, count = columns
        return pc.divide(total.cast(pa.float64()), count.cast(pa.float64()))


@dataclass(frozen=True)
class KernelAggregate(BuiltInAggregate, ABC):
    """An aggregate that Arrow has no grouped aggregation for; see ``grouped_kernels.py``."""

    @abstractmethod
    def make(
        self, values: pa.Array, times: NDArray[np.int64], grouping: Grouping
    ) -> list[pa.Array]:
        """Return the partial columns of records."""

    @abstractmethod
    def merge(self, columns: Sequence[pa.Array], grouping: Grouping) -> list[pa.Array]:
        """Return the partial columns of partial columns."""


@dataclass(frozen=True)
class First(KernelAggregate):
    """The value with the smallest timestamp; of equal timestamps the one that came first."""

    @property
    def width(self) -> int:
        return 2

    def make(
        self, values: pa.Array, times: NDArray[np.int64], grouping: Grouping
    ) -> list[pa.Array]:
        return over.pick_by_time(values, times, grouping, last=False)

    def merge(self, columns: Sequence[pa.Array], grouping: Grouping) -> list[pa.Array]:
        return over.pick_merged(columns, grouping, last=False)

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        return columns[1]


@dataclass(frozen=True)
class Last(First):
    """The value with the greatest timestamp; of equal timestamps the one that came last."""

    def make(
        self, values: pa.Array, times: NDArray[np.int64], grouping: Grouping
    ) -> list[pa.Array]:
        return over.pick_by_time(values, times, grouping, last=True)

    def merge(self, columns: Sequence[pa.Array], grouping: Grouping) -> list[pa.Array]:
        return over.pick_merged(columns, grouping, last=True)


@dataclass(frozen=True)
class CountDistinct(KernelAggregate):
    """How many different values; exact, so every one of them is kept until the window is over."""

    @property
    def width(self) -> int:
        return 1

    def make(
        self, values: pa.Array, times: NDArray[np.int64], grouping: Grouping
    ) -> list[pa.Array]:
        del times
        return over.distinct(values, grouping)

    def merge(self, columns: Sequence[pa.Array], grouping: Grouping) -> list[pa.Array]:
        return over.distinct_merged(columns, grouping)

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        return pc.list_value_length(columns[0])


@dataclass(frozen=True)
class Collect(KernelAggregate):
    """The list of all values, in order of time; of equal timestamps as they came."""

    @property
    def width(self) -> int:
        return 2

    def make(
        self, values: pa.Array, times: NDArray[np.int64], grouping: Grouping
    ) -> list[pa.Array]:
        """Return lists of times and values."""
        return over.collect(values, times, grouping)

    def merge(self, columns: Sequence[pa.Array], grouping: Grouping) -> list[pa.Array]:
        """Return lists of times and values."""
        return over.collect_merged(columns, grouping)

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.Array:
        """Return the values in order of time."""
        return over.collected([over.one_array(column) for column in columns])


@dataclass(frozen=True)
class Quantiles(KernelAggregate):
    """Several quantiles of a field, as a list, by a KLL sketch: the median is ``ranks=[0.5]``.

    The result for rank ``q`` is the smallest value that a share ``q`` of the values does not
    exceed; exact up to 200 values and within 1.3 % of the rank beyond.  Infinite values and NaN
    are left out.  Needs the package ``datasketches``.
    """

    ranks: Sequence[float] = (0.25, 0.5, 0.75)

    def __post_init__(self) -> None:
        """Check the ranks.

        Raises:
            ProgramError: there is none, or one is not between 0 and 1.
            ConfigurationError: the package is missing.
        """
        super().__post_init__()
        if not self.ranks or not all(0 <= rank <= 1 for rank in self.ranks):
            message = f"ranks of quantiles are numbers from 0 to 1, not {self.ranks!r}"
            raise ProgramError(message)
        over.sketch_module()

    @property
    def width(self) -> int:
        """The numbers, or a sketch of them."""
        return 2

    def make(
        self, values: pa.Array, times: NDArray[np.int64], grouping: Grouping
    ) -> list[pa.Array]:
        del times
        return over.quantile_lists(values, grouping)

    def merge(self, columns: Sequence[pa.Array], grouping: Grouping) -> list[pa.Array]:
        return over.sketch_merged(columns, grouping)

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.Array:
        """Return one list per row, null where there is no value."""
        found = over.quantiles([over.one_array(column) for column in columns], self.ranks)
        return over.zipped(found)


@dataclass(frozen=True)
class Quantile(Quantiles):
    """One quantile of a field, as a number; as ``Quantiles``."""

    ranks: Sequence[float] = dataclass_field(default=(), init=False, repr=False)
    rank: float = 0.5

    def __post_init__(self) -> None:
        """Check the rank.

        Raises:
            ProgramError: it is not between 0 and 1.
            ConfigurationError: the package is missing.
        """
        object.__setattr__(self, "ranks", (self.rank,))
        super().__post_init__()

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.Array:
        """Return the quantile, null where there is no value."""
        return over.quantiles([over.one_array(column) for column in columns], self.ranks)[0]


#: What ``aggregate`` takes beside an AggregateFunction.
Aggregates: TypeAlias = (
    Mapping[str, BuiltInAggregate] | Sequence[BuiltInAggregate] | BuiltInAggregate
)


def named_aggregates(
    aggregates: Aggregates, taken: Sequence[str] = ()
) -> dict[str, BuiltInAggregate]:
    """Return the aggregates by the names of their output columns.

    Args:
        aggregates: as the user gave them.
        taken: names of other columns of the output.

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
            message = f"{aggregate!r} is not a built-in aggregate such as Count() or Sum(field)"
            raise ProgramError(message)
        if name in taken:
            message = f"an aggregate cannot be named {name!r}: that column is there already"
            raise ProgramError(message)
    if not named:
        message = "aggregate() needs at least one built-in aggregate"
        raise ProgramError(message)
    return named


def _snake(name: str) -> str:
    """``CountDistinct`` -> ``count_distinct``."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
