"""Kernels of aggregate functions over changelogs, and running sums over segments of rows.

A kernel *lifts* rows into increments and *runs* over the segments of a batch from their state; both
are columns.  Where increments can be added up before an exchange, they are partial aggregates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import UserFunctionError
from millstream.runtime.columnar.array_utils import decimals_of, divided_half_up, integers_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.state.packed_state import PackedMaps, Place


#: Segments that are longer are gone through one by one, the others all at once row by row.
_LONG: Final = 64


@dataclass(frozen=True)
class Segments:
    """Segment ``s`` has the rows ``[starts[s], starts[s] + counts[s])``; none is empty."""

    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    #: The key of each segment.
    keys: Sequence[Place]
    #: Whether a segment continues from nothing.
    is_fresh: NDArray[np.bool_]

    @classmethod
    def from_nothing(
        cls,
        starts: NDArray[np.int64],
        counts: NDArray[np.int64],
        keys: Sequence[Place] | None = None,
    ) -> Segments:
        """Return segments that all begin with nothing; None: their numbers are their keys."""
        numbers = range(len(starts)) if keys is None else keys
        return cls(starts, counts, numbers, np.ones(len(starts), dtype=np.bool_))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def rows(self) -> int:
        """Return how many rows all segments have."""
        return int(self.counts.sum())

    @cached_property
    def segment_of(self) -> NDArray[np.int64]:
        """The segment of each row."""
        return np.repeat(np.arange(len(self.starts)), self.counts)

    @property
    def lasts(self) -> NDArray[np.int64]:
        """The last row of each segment."""
        return self.starts + self.counts - 1


def running_sum(values: NDArray[Any], segments: Segments, initial: NDArray[Any]) -> NDArray[Any]:
    """Return the sum up to and with each row; exact integers, wrapping around as Java's."""
    sums: NDArray[Any] = np.cumsum(values, dtype=values.dtype)
    base = initial - (sums[segments.starts] - values[segments.starts])
    sums += np.repeat(base, segments.counts)
    return sums


def running(
    function: np.ufunc, values: NDArray[Any], segments: Segments, initial: NDArray[Any]
) -> NDArray[Any]:
    """Return ``function`` applied row by row, from left to right, beginning with ``initial``."""
    result = values.copy()
    starts, counts = segments.starts, segments.counts
    result[starts] = function(initial, values[starts])
    long = counts > _LONG
    for start, count in zip(starts[long].tolist(), counts[long].tolist(), strict=True):
        part = result[start : start + count]
        function.accumulate(part, out=part)
    short = np.flatnonzero(~long)
    short = short[np.argsort(-counts[short], kind="stable")]
    at, left = starts[short], counts[short]
    for step in range(1, int(left.max(initial=0))):
        active = int(np.searchsorted(-left, -step, side="left"))  # those with more rows
        rows = at[:active] + step
        result[rows] = function(result[rows - 1], values[rows])
    return result


def running_last(
    chosen: NDArray[np.bool_], segments: Segments, *, first: bool = False
) -> NDArray[np.int64]:
    """Return the last chosen row up to and with each row, or the first; -1: none in its segment."""
    count = len(chosen)
    rows = np.arange(count)
    begins = np.repeat(segments.starts, segments.counts)
    if not first:
        found = np.maximum.accumulate(np.where(chosen, rows, -1))
        return np.where(found >= begins, found, -1)
    before: NDArray[np.int64] = np.cumsum(chosen) - chosen
    is_first = chosen & (before == before[begins])
    return running_last(is_first, segments)


def surviving_counts(
    weights: NDArray[np.int64], segments: Segments, initial: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Count the rows that a key has after each change, where none can be taken from nothing.

    Args:
        weights: +1 or -1 per row.
        segments: the rows of each key.
        initial: how many rows each key had.

    Returns:
        The counts, and which rows took nothing away because there was nothing.
    """
    sums = running_sum(weights, segments, initial)
    lowest = running(np.minimum, np.minimum(sums, 0), segments, np.zeros(len(segments), np.int64))
    before: NDArray[np.int64] = np.roll(lowest, 1)
    before[segments.starts] = 0
    return sums - lowest, lowest < before


def sorted_ranks(values: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Return the rank of each value, -1 for null, and the distinct values by rank."""
    is_boolean = pa.types.is_boolean(values.type)
    if is_boolean:
        values = values.cast(pa.int8())
    encoded = values.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank_of = np.empty(len(order) + 1, dtype=np.int64)
    rank_of[order] = np.arange(len(order))
    rank_of[-1] = -1
    ranks = rank_of[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    by_rank = encoded.dictionary.take(pa.array(order))
    return ranks, by_rank.cast(pa.bool_()) if is_boolean else by_rank


_LARGEST: Final = 2**62


@dataclass(frozen=True)
class Rows:
    """The rows of all segments of a batch, in their order, as an aggregate reads them."""

    arguments: Sequence[pa.Array]
    #: Rows that count: not filtered out, and not seen before by a DISTINCT aggregate.
    counted: NDArray[np.bool_]
    #: +1, or -1 for a row that is taken away.
    weights: NDArray[np.int64]


@dataclass(frozen=True)
class Scan:
    """How an aggregate goes over the rows of a batch."""

    segments: Segments
    #: The state that each segment continues from.
    initial: list[pa.Array]
    #: Whether only the results after segments are wanted.
    last_only: bool
    #: The maps of ``keeps_values``.
    values: PackedMaps | None = None


class Kernel(ABC):
    """One aggregate.

    Contract:
      1. ``run`` gives the same for any cut of a sequence of rows into batches.  (tests)
      2. ``initial`` of a fresh segment is ``fresh``, a column of one value each.  (operator)
    """

    #: Whether partial aggregates can be made of the increments.
    is_partial: bool = False
    #: Whether there is a map per key that it keeps values in.
    keeps_values: ClassVar[bool] = False

    #: Types of the columns of its state.
    fields: list[pa.DataType]
    #: The state of no rows, as Python values.
    fresh: tuple[Any, ...]

    @abstractmethod
    def lift(self, rows: Rows) -> list[Any]:
        """Return the increments of rows, in a form that ``run`` takes."""

    @abstractmethod
    def run(self, lifted: list[Any], scan: Scan) -> tuple[pa.Array, list[pa.Array]]:
        """Add increments up.

        Args:
            lifted: one increment per row, or one partial state.
            scan: which rows belong together, and what is known and wanted of them.

        Returns:
            The result after each row (or segment), and the state after each segment.
        """

    @abstractmethod
    def results(self, states: list[pa.Array]) -> pa.Array:
        """Return the results of states."""


class SteppedKernel(Kernel):
    """A kernel whose state is known after every row."""

    @abstractmethod
    def states(self, lifted: list[Any], scan: Scan) -> list[pa.Array]:
        """Return the columns of the state after each row."""

    def run(self, lifted: list[Any], scan: Scan) -> tuple[pa.Array, list[pa.Array]]:
        states = self.states(lifted, scan)
        lasts = pa.array(scan.segments.lasts)
        last = [column.take(lasts) for column in states]
        return self.results(last if scan.last_only else states), last


def is_true(column: pa.Array) -> NDArray[np.bool_]:
    """Return which values are true; null is not."""
    filled = column.fill_null(False) if column.null_count else column  # noqa: FBT003
    found: NDArray[np.bool_] = filled.to_numpy(zero_copy_only=False)
    return found


def _valid(column: pa.Array) -> NDArray[np.bool_]:
    if not column.null_count:
        return np.ones(len(column), dtype=np.bool_)
    found: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _numbers(column: pa.Array, kind: Any) -> NDArray[Any]:
    """The values, 0 where null."""
    if column.null_count:
        column = column.fill_null(pa.scalar(0, pa.int8()).cast(column.type))
    found: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found.astype(kind, copy=False)


def column_of_numbers(
    numbers: NDArray[Any], kind: pa.DataType, nulls: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return numbers as a column, wrapped around where an integer type is too small for them."""
    mask = None if nulls is None or not nulls.any() else nulls
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        numbers = numbers.astype(kind.to_pandas_dtype(), copy=False)
    return pa.array(numbers, kind, mask=mask)


def _int_column(numbers: NDArray[Any]) -> pa.Array:
    return pa.array(np.ascontiguousarray(numbers), pa.int64())


def _running_counts(steps: pa.Array, scan: Scan, at: int) -> pa.Array:
    """Return the sums of integers after each row, from the column ``at`` of the state."""
    initial = scan.initial[at].to_numpy()
    return _int_column(running_sum(steps.to_numpy(), scan.segments, initial))


class Count(SteppedKernel):
    """COUNT of rows, or of values that are not null."""

    fresh = (0,)
    is_partial = True

    def __init__(self, result: pa.DataType) -> None:
        self._result = result
        self.fields = [pa.int64()]

    def lift(self, rows: Rows) -> list[Any]:
        counted = rows.counted
        for column in rows.arguments:
            counted = counted & _valid(column)
        return [_int_column(np.where(counted, rows.weights, 0))]

    def states(self, lifted: list[Any], scan: Scan) -> list[pa.Array]:
        return [_running_counts(lifted[0], scan, 0)]

    def results(self, states: list[pa.Array]) -> pa.Array:
        return states[0].cast(self._result)


class Sum(SteppedKernel):
    """SUM; null of no values.  Integers wrap around, decimals that overflow are null."""

    fresh = (0, 0)
    is_partial = True

    def __init__(self, argument: pa.DataType, result: pa.DataType) -> None:
        self._result = result
        self._total = self._type_of_total(argument)
        self.fields = [self._total, pa.int64()]

    def _type_of_total(self, argument: pa.DataType) -> pa.DataType:
        if pa.types.is_decimal(argument):
            return pa.decimal128(38, argument.scale)
        return argument if pa.types.is_floating(argument) else pa.int64()

    def lift(self, rows: Rows) -> list[Any]:
        (column,) = rows.arguments
        counts = np.where(rows.counted & _valid(column), rows.weights, 0)
        if pa.types.is_decimal(self._total):
            total = decimals_of(integers_of(column) * counts, self._total)
        elif pa.types.is_floating(self._total):
            numbers = _numbers(column, self._total.to_pandas_dtype())
            # Not by multiplication: what is not counted may be infinite.
            total = np.where(counts == 0, 0, np.where(counts < 0, -numbers, numbers))
            total = pa.array(total.astype(numbers.dtype, copy=False))
        else:
            total = _int_column(_numbers(column, np.int64) * counts)
        return [total, _int_column(counts)]

    def states(self, lifted: list[Any], scan: Scan) -> list[pa.Array]:
        totals = self._totals(lifted[0], scan.segments, scan.initial[0])
        return [totals, _running_counts(lifted[1], scan, 1)]

    def _totals(self, increments: pa.Array, segments: Segments, initial: pa.Array) -> pa.Array:
        if pa.types.is_floating(self._total):  # in order: their sums depend on it
            kind = self._total.to_pandas_dtype()
            sums = running(np.add, _numbers(increments, kind), segments, _numbers(initial, kind))
            return pa.array(sums, self._total)
        if pa.types.is_decimal(self._total):
            return decimals_of(*_decimal_sums(increments, segments, initial))
        return _int_column(running_sum(increments.to_numpy(), segments, initial.to_numpy()))

    def results(self, states: list[pa.Array]) -> pa.Array:
        total, counts = states
        nothing = counts.to_numpy() == 0
        if pa.types.is_decimal(self._total):
            kept = total if total.type == self._result else total.cast(self._result)
            return _nulled(kept, nothing)
        return column_of_numbers(total.to_numpy(), self._result, nothing)


def _decimal_sums(
    increments: pa.Array, segments: Segments, initial: pa.Array
) -> tuple[NDArray[Any], pa.DataType]:
    steps, base = integers_of(increments), integers_of(initial)
    if object not in (steps.dtype, base.dtype):
        bound = int(np.abs(steps).max(initial=0)) * (len(steps) + 1)
        if bound + int(np.abs(base).max(initial=0)) < _LARGEST:
            return running_sum(steps, segments, base), increments.type
    return running_sum(steps.astype(object), segments, base.astype(object)), increments.type


def _nulled(column: pa.Array, nulls: NDArray[np.bool_]) -> pa.Array:
    if not nulls.any():
        return column
    return pc.if_else(pa.array(nulls), pa.scalar(None, column.type), column)


class SumOrZero(Sum):
    """$SUM0: what is no sum is 0."""

    def results(self, states: list[pa.Array]) -> pa.Array:
        found = super().results(states)
        zero = Decimal() if pa.types.is_decimal(found.type) else 0
        return found.fill_null(pa.scalar(zero, found.type))


class Average(Sum):
    """AVG: of integers an integer, cut towards zero; of decimals rounded half up."""

    def _type_of_total(self, argument: pa.DataType) -> pa.DataType:
        if pa.types.is_floating(argument):
            return pa.float64()
        return super()._type_of_total(argument)

    def results(self, states: list[pa.Array]) -> pa.Array:
        total, counts = states
        count = counts.to_numpy()
        nothing = count == 0
        divisor = np.where(nothing, 1, count)
        if pa.types.is_decimal(self._total):
            shift = self._result.scale - self._total.scale
            quotients = divided_half_up(integers_of(total), divisor, shift)
            return _nulled(decimals_of(quotients, self._result), nothing | ~_valid(total))
        totals = total.to_numpy()
        if pa.types.is_floating(self._total):
            return column_of_numbers(totals / divisor, self._result, nothing)
        return column_of_numbers(_cut_division(totals, divisor), self._result, nothing)


def _cut_division(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integer division towards zero, as Java's."""
    down: NDArray[np.int64] = left // right
    down += (left % right != 0) & ((left < 0) != (right < 0))
    return down


class _OneValue(SteppedKernel):
    """Keeps one value of rows that are only added, which is the result; null of no rows."""

    fresh = (None,)
    is_partial = True

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self.fields = [kind]

    def lift(self, rows: Rows) -> list[Any]:
        (column,) = rows.arguments
        return [_nulled(column, ~rows.counted)]

    def results(self, states: list[pa.Array]) -> pa.Array:
        return states[0]


class Extreme(_OneValue):
    """MIN or MAX of rows that are only added."""

    def __init__(self, kind: pa.DataType, *, is_max: bool) -> None:
        super().__init__(kind)
        self._is_max = is_max

    def states(self, lifted: list[Any], scan: Scan) -> list[pa.Array]:
        ranks, by_rank = sorted_ranks(pa.concat_arrays([scan.initial[0], lifted[0]]))
        if not self._is_max:  # the largest of the reversed ranks
            ranks = np.where(ranks < 0, -1, len(by_rank) - 1 - ranks)
            by_rank = by_rank.take(pa.array(np.arange(len(by_rank) - 1, -1, -1)))
        count = len(scan.segments)
        best = running(np.maximum, ranks[count:], scan.segments, ranks[:count])
        return [by_rank.take(pa.array(best, mask=best < 0))]


class NumericExtreme(Extreme):
    """MIN or MAX of numbers, dates and times."""

    def states(self, lifted: list[Any], scan: Scan) -> list[pa.Array]:
        segments, initial = scan.segments, scan.initial[0]
        plain = _plain_type(self._kind)
        worst = _worst(plain.to_pandas_dtype(), is_max=self._is_max)
        steps, base = (
            column.view(plain).fill_null(worst).to_numpy(zero_copy_only=False)
            for column in (lifted[0], initial)
        )
        # fmax and fmin: NaN is no larger than anything.
        best = running(np.fmax if self._is_max else np.fmin, steps, segments, base)
        nulls = None
        if lifted[0].null_count or initial.null_count:
            has = (_valid(each).astype(np.int64) for each in (lifted[0], initial))
            nulls = running_sum(next(has), segments, next(has)) == 0
        return [pa.array(best, plain, mask=nulls).view(self._kind)]


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()  # noqa: PLR2004 - bits
    return kind


def _worst(kind: Any, *, is_max: bool) -> Any:
    """Return what any value is better than."""
    if np.issubdtype(kind, np.floating):
        return kind(-np.inf if is_max else np.inf)
    limits = np.iinfo(kind)
    return limits.min if is_max else limits.max


class Edge(_OneValue):
    """FIRST_VALUE or LAST_VALUE of rows that are only added; nulls are passed over, as in Flink."""

    def __init__(self, kind: pa.DataType, *, is_last: bool) -> None:
        super().__init__(kind)
        self._is_last = is_last

    def states(self, lifted: list[Any], scan: Scan) -> list[pa.Array]:
        segments, initial = scan.segments, scan.initial[0]
        found = running_last(_valid(lifted[0]), segments, first=not self._is_last)
        pool = pa.concat_arrays([lifted[0], initial])
        of_segment = len(lifted[0]) + segments.segment_of
        if self._is_last:
            chosen = np.where(found >= 0, found, of_segment)
        else:
            had = _valid(initial)[segments.segment_of]
            chosen = np.where(had | (found < 0), of_segment, found)
        return [pool.take(pa.array(chosen))]


class Variance(SteppedKernel):
    """STDDEV_POP, STDDEV_SAMP, VAR_POP and VAR_SAMP, by sums of values and of squares, as Flink's.

    Of floats they are floats; all else is computed in doubles and then cut to the result's type.
    """

    fresh = (0.0, 0.0, 0)
    is_partial = True

    def __init__(self, result: pa.DataType, *, sample: bool, root: bool) -> None:
        self._result, self._sample, self._root = result, sample, root
        self.fields = [pa.float64(), pa.float64(), pa.int64()]

    def lift(self, rows: Rows) -> list[Any]:
        (column,) = rows.arguments
        counts = np.where(rows.counted & _valid(column), rows.weights, 0)
        numbers = _numbers(column.cast(pa.float64()), np.float64)
        numbers = np.where(counts == 0, 0.0, numbers)
        squares = numbers * numbers
        signs = np.where(counts < 0, -1.0, 1.0)
        return [pa.array(numbers * signs), pa.array(squares * signs), _int_column(counts)]

    def states(self, lifted: list[Any], scan: Scan) -> list[pa.Array]:
        pairs = zip(lifted[:2], scan.initial, strict=False)
        sums = [
            pa.array(running(np.add, steps.to_numpy(), scan.segments, initial.to_numpy()))
            for steps, initial in pairs
        ]
        return [*sums, _running_counts(lifted[2], scan, 2)]

    def results(self, states: list[pa.Array]) -> pa.Array:
        total, squares, count = (column.to_numpy() for column in states)
        divisor = count - 1 if self._sample else count
        nothing = divisor <= 0
        safe = np.where(nothing, 1, divisor)
        found = (squares - total * total / np.where(count == 0, 1, count)) / safe
        found = np.maximum(found, 0.0)  # rounding may leave it a little below
        if self._root:
            found = np.sqrt(found)
        if pa.types.is_floating(self._result):
            return column_of_numbers(found, self._result, nothing)
        cut = np.where(nothing, 0.0, found)
        if pa.types.is_decimal(self._result):
            digits = np.round(cut * 10.0**self._result.scale).astype(np.int64)
            return _nulled(decimals_of(digits, self._result), nothing)
        return column_of_numbers(np.trunc(cut).astype(np.int64), self._result, nothing)


class SingleValue(SteppedKernel):
    """SINGLE_VALUE, which scalar sub-queries become: the value of the one row that there is."""

    fresh = (None, 0)

    def __init__(self, kind: pa.DataType) -> None:
        self.fields = [kind, pa.int64()]

    def lift(self, rows: Rows) -> list[Any]:
        return [rows.arguments[0], _int_column(np.where(rows.counted, rows.weights, 0))]

    def states(self, lifted: list[Any], scan: Scan) -> list[pa.Array]:
        segments = scan.segments
        added = lifted[1].to_numpy() > 0
        counts = _running_counts(lifted[1], scan, 1).to_numpy()
        if counts.max(initial=0) > 1:
            message = "a scalar sub-query gives more than one row"
            raise UserFunctionError(message)
        found = running_last(added, segments)
        pool = pa.concat_arrays([lifted[0], scan.initial[0]])
        chosen = np.where(found >= 0, found, len(added) + segments.segment_of)
        return [_nulled(pool.take(pa.array(chosen)), counts <= 0), _int_column(counts)]

    def results(self, states: list[pa.Array]) -> pa.Array:
        return states[0]
