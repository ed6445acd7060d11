"""Built-in aggregates of DataStream windows, computed on Arrow columns.

Programs pass them instead of an AggregateFunction, as in ``windowed.aggregate({"n": Count(),
"total": Sum("value")})``.  They are aggregated per batch before the exchange where possible and
merged after it; no Python code runs per record or key.

Nulls are left out, as in SQL: the sum, minimum, maximum or average of nothing but nulls is null.
``where`` leaves out records in the same way: a record that it does not select counts as null. Sums
of integers are 64 bits wide and wrap around; the last digits of sums of floating-point numbers
depend on the order of additions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ConfigurationError, ProgramError

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Accuracy of the sketches: ranks are off by 1.3 % at most, in 99 of 100 cases.  So many values are
#: kept as they are, so that the quantiles of few values are exact.
SKETCH_K: Final = 200


@dataclass(frozen=True)
class Grouping:
    """Rows by group: ``g`` has the rows ``order[offsets[g]:offsets[g + 1]]``, as they came."""

    order: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @property
    def count(self) -> int:
        """Return how many groups there are; a group may be without rows."""
        return len(self.offsets) - 1

    def groups(self) -> NDArray[np.int64]:
        """Return the group of each entry of ``order``."""
        return np.repeat(np.arange(self.count), np.diff(self.offsets))


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        combined = combined.chunk(0) if combined.num_chunks else pa.array([], combined.type)
    return combined


def _without_nulls(
    values: pa.Array, grouping: Grouping
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows that have a value, in order of their group, and their groups."""
    order, groups = grouping.order, grouping.groups()
    if not values.null_count:
        return order, groups
    kept = values.is_valid().to_numpy(zero_copy_only=False)[order]
    return order[kept], groups[kept]


# -- first and last ---


def pick_by_time(
    values: pa.Array, times: NDArray[np.int64], grouping: Grouping, *, last: bool
) -> list[pa.Array]:
    """Return time and value of the first or last value of each group.

    Values that are null do not count.  Of equal times the first, or last, to come does.
    """
    order, groups = _without_nulls(values, grouping)
    by_time = np.lexsort((times[order], groups))  # stable, so equal times stay as they came
    order, groups = order[by_time], groups[by_time]
    bounds = np.searchsorted(groups, np.arange(grouping.count + 1))
    found = bounds[1:] - 1 if last else bounds[:-1]
    if len(groups):
        within = np.clip(found, 0, len(groups) - 1)
        missing = groups[within] != np.arange(grouping.count)
        rows = pa.array(order[within], mask=missing)
    else:
        rows = pa.nulls(grouping.count, pa.int64())
    return [pa.array(times).take(rows), values.take(rows)]


# -- distinct values and lists ---


def _distinct(values: pa.Array, groups: NDArray[np.int64], count: int) -> list[pa.Array]:
    """Return, per group, the list of its distinct values; null is none of them."""
    if pa.types.is_floating(values.type):  # there is one zero and one NaN
        values = pc.if_else(pc.is_nan(values), np.nan, pc.add(values, 0.0)).cast(values.type)
    table = pa.table({"group": groups, "value": values})
    if values.null_count:
        table = table.filter(values.is_valid())
    pairs = table.group_by(["group", "value"], use_threads=False).aggregate([])
    found = pairs.column("group").to_numpy()
    order = np.argsort(found, kind="stable")  # Arrow gives groups in no particular order
    taken = one_array(pairs.column("value")).take(pa.array(order))
    return [_lists(taken, found[order], count)]


def _lengths(lists: pa.Array) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    return lengths


def _lists(values: pa.Array, groups: NDArray[np.int64], count: int) -> pa.Array:
    """Cut values, in order of their group, into one list per group."""
    offsets = np.searchsorted(groups, np.arange(count + 1))
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)


def _concatenated_lists(columns: Sequence[pa.Array], grouping: Grouping) -> list[pa.Array]:
    """Return, per group, the concatenation of its lists."""
    merged = []
    for column in columns:
        lists = column.take(pa.array(grouping.order))
        groups = np.repeat(grouping.groups(), _lengths(lists))
        merged.append(_lists(lists.flatten(), groups, grouping.count))
    return merged


# -- quantiles ---


def sketch_module() -> Any:
    """Return the package that has the sketches.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        import datasketches
    except ImportError as error:
        message = (
            "Quantile and Quantiles need the package datasketches; install it with "
            "pip install 'millstream[sketches]', on the workers too"
        )
        raise ConfigurationError(message) from error
    return datasketches


def _quantile_lists(values: pa.Array, grouping: Grouping) -> list[pa.Array]:
    """Return, per group, its numbers or, if they are many, a sketch of them."""
    numbers = values.cast(pa.float64()).take(pa.array(grouping.order))
    groups = grouping.groups()
    kept = pc.is_finite(numbers).fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
    if not kept.all():
        numbers, groups = numbers.filter(pa.array(kept)), groups[kept]
    lists = _lists(numbers, groups, grouping.count)
    return _sketched(lists, [None] * grouping.count)


def _merged_sketches(columns: Sequence[pa.Array], grouping: Grouping) -> list[pa.Array]:
    """Merge what ``_quantile_lists`` returned."""
    lists, sketches = columns
    (merged,) = _concatenated_lists([lists], grouping)
    merged_sketches: list[Any] = [None] * grouping.count
    if sketches.null_count < len(sketches):
        found = sketches.take(pa.array(grouping.order))
        where = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        kind = sketch_module().kll_doubles_sketch
        for group, row in zip(grouping.groups()[where].tolist(), where.tolist(), strict=True):
            sketch = kind.deserialize(found[row].as_py())
            before = merged_sketches[group]
            if before is None:
                merged_sketches[group] = sketch
            else:
                before.merge(sketch)
    return _sketched(merged, merged_sketches)


def _sketched(lists: pa.Array, sketches: list[Any]) -> list[pa.Array]:
    """Put lists that are long, or have a sketch beside them, into a sketch."""
    lengths = _lengths(lists)
    has_sketch = np.array([each is not None for each in sketches], dtype=np.bool_)
    into = np.flatnonzero((lengths > SKETCH_K) | (has_sketch & (lengths > 0)))
    encoded: list[bytes | None] = [None] * len(sketches)
    if len(into):
        numbers = lists.flatten().to_numpy()
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        kind = sketch_module().kll_doubles_sketch
        for row in into.tolist():
            sketch = sketches[row] = sketches[row] or kind(SKETCH_K)
            sketch.update(numbers[offsets[row] : offsets[row + 1]].copy())  # writable
        keep = np.ones(len(sketches), dtype=np.bool_)
        keep[into] = False
        kept = np.repeat(keep, lengths)
        groups = np.repeat(np.arange(len(sketches)), lengths)[kept]
        lists = _lists(pa.array(numbers[kept]), groups, len(sketches))
    for row in np.flatnonzero([each is not None for each in sketches]).tolist():
        encoded[row] = sketches[row].serialize()
    return [lists, pa.array(encoded, pa.large_binary())]


def quantiles(columns: Sequence[pa.Array], ranks: Sequence[float]) -> list[pa.Array]:
    """Return one column per rank: the smallest value that so large a share does not exceed."""
    lists, sketches = columns
    lengths = _lengths(lists)
    groups = np.repeat(np.arange(len(lists)), lengths)
    numbers = lists.flatten().to_numpy()
    numbers = numbers[np.lexsort((numbers, groups))]
    starts = np.concatenate(([0], np.cumsum(lengths)))[:-1]
    found = np.zeros((len(ranks), len(lists)))
    some = lengths > 0
    for number, rank in enumerate(ranks):
        nth = np.clip(np.ceil(rank * lengths[some]).astype(np.int64) - 1, 0, None)
        found[number, some] = numbers[starts[some] + nth]
    if sketches.null_count < len(sketches):
        kind = sketch_module().kll_doubles_sketch
        for row in np.flatnonzero(sketches.is_valid().to_numpy(zero_copy_only=False)).tolist():
            sketch = kind.deserialize(sketches[row].as_py())
            found[:, row] = [sketch.get_quantile(rank, True) for rank in ranks]  # noqa: FBT003
            some[row] = True
    return [pa.array(each, mask=~some) for each in found]


def zipped(columns: Sequence[pa.Array]) -> pa.Array:
    """Return one list per row of the columns' values; null where the first is null."""
    rows, width = len(columns[0]), len(columns)
    numbers = np.stack([column.fill_null(0.0).to_numpy() for column in columns], axis=1)
    missing = columns[0].is_null().to_numpy(zero_copy_only=False)
    lengths = np.where(missing, 0, width)
    offsets = pa.array(
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int32),
        mask=np.concatenate((missing, [False])),
    )
    flat = pa.array(numbers[~missing].reshape(-1)) if rows else pa.array([], pa.float64())
    return pa.ListArray.from_arrays(offsets, flat)


# -- the aggregates of programs ---

#: Selects records: an Arrow expression such as ``pc.field("value") > 3``, or a callable that
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
    #: How many partial columns it has where pyarrow does not merge them.
    columns: ClassVar[int] = 0

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
        """Return whether it reads a field at all."""
        return True

    @property
    def width(self) -> int:
        """Return how many partial columns it has."""
        return len(self.merges) or self.columns

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
    """An aggregate that Arrow has no grouped aggregation for."""

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

    columns: ClassVar[int] = 2
    last: ClassVar[bool] = False

    def make(
        self, values: pa.Array, times: NDArray[np.int64], grouping: Grouping
    ) -> list[pa.Array]:
        return pick_by_time(values, times, grouping, last=self.last)

    def merge(self, columns: Sequence[pa.Array], grouping: Grouping) -> list[pa.Array]:
        times, values = columns
        known: NDArray[np.int64] = times.fill_null(0).to_numpy(zero_copy_only=False)
        return pick_by_time(values, known, grouping, last=self.last)

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        return columns[1]


@dataclass(frozen=True)
class Last(First):
    """The value with the greatest timestamp; of equal timestamps the one that came last."""

    last: ClassVar[bool] = True


@dataclass(frozen=True)
class CountDistinct(KernelAggregate):
    """How many different values; exact, so every one of them is kept until the window is over."""

    columns: ClassVar[int] = 1

    def make(
        self, values: pa.Array, times: NDArray[np.int64], grouping: Grouping
    ) -> list[pa.Array]:
        del times
        return _distinct(values.take(pa.array(grouping.order)), grouping.groups(), grouping.count)

    def merge(self, columns: Sequence[pa.Array], grouping: Grouping) -> list[pa.Array]:
        lists = columns[0].take(pa.array(grouping.order))
        groups = np.repeat(grouping.groups(), _lengths(lists))
        return _distinct(lists.flatten(), groups, grouping.count)

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        return pc.list_value_length(columns[0])


@dataclass(frozen=True)
class Collect(KernelAggregate):
    """The list of all values, in order of time; of equal timestamps as they came."""

    columns: ClassVar[int] = 2

    def make(
        self, values: pa.Array, times: NDArray[np.int64], grouping: Grouping
    ) -> list[pa.Array]:
        """Return the lists of times and of values as they came, without nulls."""
        order, groups = _without_nulls(values, grouping)
        stamps, taken = pa.array(times[order]), values.take(pa.array(order))
        return [_lists(each, groups, grouping.count) for each in (stamps, taken)]

    def merge(self, columns: Sequence[pa.Array], grouping: Grouping) -> list[pa.Array]:
        return _concatenated_lists(columns, grouping)

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.Array:
        """Return the values in order of time; of equal times as they came."""
        times, values = map(one_array, columns)
        groups = np.repeat(np.arange(len(values)), _lengths(values))
        order = np.lexsort((times.flatten().to_numpy(), groups))
        lists = _lists(values.flatten().take(pa.array(order)), groups, len(values))
        return lists.cast(pa.list_(values.type.value_type))


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
        sketch_module()

    #: The numbers, or a sketch of them.
    columns: ClassVar[int] = 2

    def make(
        self, values: pa.Array, times: NDArray[np.int64], grouping: Grouping
    ) -> list[pa.Array]:
        del times
        return _quantile_lists(values, grouping)

    def merge(self, columns: Sequence[pa.Array], grouping: Grouping) -> list[pa.Array]:
        return _merged_sketches(columns, grouping)

    def finish(self, columns: Sequence[pa.ChunkedArray]) -> pa.Array:
        """Return one list per row, null where there is no value."""
        found = quantiles([one_array(column) for column in columns], self.ranks)
        return zipped(found)


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
        return quantiles([one_array(column) for column in columns], self.ranks)[0]


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


def selected(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return one boolean per record; a null counts as False for whoever takes it as a mask.

    Args:
        predicate: an Arrow expression over the columns, or a callable that gets the batch.
        batch: the records.

    Raises:
        TypeError: the result is not boolean.
        ValueError: it has another length than the batch.
    """
    if isinstance(predicate, pc.Expression):
        # Not at the top: it imports pandas, for most of a second, and few programs come here.
        from pyarrow import acero

        table = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
        project = acero.ProjectNodeOptions([predicate], ["selected"])
        plan = acero.Declaration.from_sequence(
            [acero.Declaration("table_source", table), acero.Declaration("project", project)]
        )
        found = plan.to_table(use_threads=False).column("selected")
    else:
        found = predicate(batch)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    if not isinstance(found, pa.Array):
        found = pa.array(np.asarray(found))
    if not pa.types.is_boolean(found.type):
        message = f"the predicate must give booleans, not {found.type}"
        raise TypeError(message)
    if len(found) != batch.num_rows:
        message = f"the predicate gave {len(found)} booleans for {batch.num_rows} records"
        raise ValueError(message)
    return found.fill_null(False)  # noqa: FBT003 - the value to fill with
