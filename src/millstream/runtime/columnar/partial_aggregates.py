"""Partial aggregates: records grouped by any columns, merged and finished in Arrow.

The steps may be apart in time and place: ``inputs`` takes the fields out of batches, ``make``
groups records to partials, ``merge`` groups partials again, ``finish`` makes the results.  A table
of partials has the columns that it is grouped by, ``__records`` (how many records went in; merging
leaves it out) and ``p0``, ``p1``, ...
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.runtime.columnar.aggregates import Grouping, KernelAggregate, one_array, selected
from millstream.runtime.user_code import user_error
from millstream.types.composite_types import CompositeTypeInfo
from millstream.types.field_access import column_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext
    from millstream.runtime.columnar.aggregates import BuiltInAggregate


#: Column of partials: how many records went in.
RECORDS: Final = "__records"
#: Column of inputs: the records' timestamps.
TIME: Final = "__time"

_ROW: Final = "__number"
#: Stands for the record as a whole, where only a predicate is checked.
_RECORD: Final = object()
_NO_SEGMENTS: Final = Grouping(np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64))


def is_partial(batch: Batch) -> bool:
    """Return whether the batch comes from a combiner."""
    return batch.is_columnar and RECORDS in batch.arrow.schema.names


class PartialAggregates:
    """Several aggregates over one stream, planned together: each field is taken once."""

    def __init__(self, aggregates: Mapping[str, BuiltInAggregate]) -> None:
        self.aggregates = dict(aggregates)
        #: (field, identity of the predicate) -> (name of its input column, an aggregate).
        self._sources: dict[tuple[object, int], tuple[str, BuiltInAggregate]] = {}
        #: Name that pyarrow gives a grouped column -> how it is made.
        self._make: dict[str, tuple[Any, str]] = {"count_all": ([], "count_all")}
        #: Per aggregate the names of its grouped columns, or the name of its source column.
        self._made: list[tuple[list[str], str]] = []
        self._merge: list[tuple[str, str]] = []
        self._slots: list[tuple[BuiltInAggregate, list[str]]] = []
        for aggregate in self.aggregates.values():
            self._plan(aggregate)
        #: Whether an aggregate needs the rows of each group, and their TIME.
        self.has_kernels = any(isinstance(a, KernelAggregate) for a in self.aggregates.values())

    def _plan(self, aggregate: BuiltInAggregate) -> None:
        first = sum(len(names) for _, names in self._slots)
        names = [f"p{first + i}" for i in range(aggregate.width)]
        self._slots.append((aggregate, names))
        source = ""
        if aggregate.needs_column or aggregate.where is not None:
            identity = (aggregate.field if aggregate.needs_column else _RECORD, id(aggregate.where))
            fresh = (f"c{len(self._sources)}", aggregate)
            source = self._sources.setdefault(identity, fresh)[0]
        made = []
        for name, function, merge in zip(names, aggregate.partials, aggregate.merges, strict=False):
            made.append(f"{source}_{function}" if source else function)
            self._make[made[-1]] = (source or [], function)
            self._merge.append((name, merge))
        self._made.append((made, source))

    @property
    def slots(self) -> list[tuple[BuiltInAggregate, list[str]]]:
        """Each aggregate and the names of its partial columns."""
        return self._slots

    @property
    def columns(self) -> list[str]:
        """The names of the partial columns."""
        return [name for _, names in self._slots for name in names]

    @property
    def native(self) -> list[tuple[str, str]]:
        """Partial columns that pyarrow merges by itself, and by which function."""
        return self._merge

    # From records to partials.

    def inputs(self, batch: Batch, context: OperatorContext) -> dict[str, pa.Array]:
        """Return the columns that ``make`` reads beside those that it groups by.

        Args:
            batch: the records.
            context: the operator that messages name.

        Raises:
            UserFunctionError: a record has no such field, or a filter raised.
        """
        columns: dict[str, pa.Array] = {}
        if self.has_kernels:
            columns[TIME] = pa.array(batch.timestamp_array)
        for name, aggregate in self._sources.values():
            columns[name] = self._source(batch, aggregate, context)
        return columns

    def sources(self, batch: Batch, context: OperatorContext) -> list[pa.Array | None]:
        """Return, per aggregate, the values that count: of the others, null.

        None stands for every record (``Count()``).
        """
        by_name = {
            name: self._source(batch, aggregate, context)
            for name, aggregate in self._sources.values()
        }
        return [by_name.get(source) for _, source in self._made]

    def make(self, raw: pa.Table, by: Sequence[str]) -> pa.Table:
        """Group records to partials.

        Args:
            raw: what ``inputs`` returned, and the columns to group by.
            by: names of these, at least one (a constant one groups everything); none of them
                begins with two underscores.
        """
        grouped, grouping = self._group(raw, by, list(self._make.values()))
        columns = [grouped.column(name) for name in (*by, "count_all")]
        for (aggregate, _), (made, source) in zip(self._slots, self._made, strict=True):
            if isinstance(aggregate, KernelAggregate):
                times = raw.column(TIME).to_numpy()
                columns.extend(aggregate.make(one_array(raw.column(source)), times, grouping))
            else:
                columns.extend(grouped.column(name) for name in made)
        return pa.table(columns, names=[*by, RECORDS, *self.columns])

    # Merging.

    def merge(self, table: pa.Table, by: Sequence[str]) -> pa.Table:
        """Merge the rows that agree in ``by``; the result is in no particular order.

        Rows further up count as earlier ones.  Partial columns that the table lacks are left out,
        and so is every other column.

        Args:
            table: partials.
            by: names of the columns to group by.
        """
        given = frozenset(table.column_names)
        merges = {name: how for name, how in self._merge if name in given}
        grouped, grouping = self._group(table, by, list(merges.items()))
        merged = {name: grouped.column(name) for name in by}
        for aggregate, names in self._slots:
            if not isinstance(aggregate, KernelAggregate):
                for name in merges.keys() & names:
                    merged[name] = grouped.column(f"{name}_{merges[name]}")
            elif names[0] in given:
                parts = [one_array(table.column(name)) for name in names]
                merged.update(zip(names, aggregate.merge(parts, grouping), strict=True))
        ordered = [*by, *(name for name in self.columns if name in given)]
        return pa.table([merged[name] for name in ordered], names=ordered)

    def _group(
        self, table: pa.Table, by: Sequence[str], how: list[tuple[Any, str]]
    ) -> tuple[pa.Table, Grouping]:
        if not self.has_kernels:
            return table.group_by(by, use_threads=False).aggregate(how), _NO_SEGMENTS
        table = table.append_column(_ROW, pa.array(np.arange(table.num_rows)))
        grouped = table.group_by(by, use_threads=False).aggregate([*how, (_ROW, "list")])
        rows = one_array(grouped.column(f"{_ROW}_list"))
        offsets = np.concatenate(([0], np.cumsum(pc.list_value_length(rows).to_numpy())))
        return grouped, Grouping(rows.flatten().to_numpy(), offsets)

    def finish(self, merged: pa.Table) -> dict[str, pa.Array]:
        """Return the result columns of merged partials."""
        results: dict[str, pa.Array] = {}
        for name, (aggregate, columns) in zip(self.aggregates, self._slots, strict=True):
            result = one_array(aggregate.finish([merged.column(each) for each in columns]))
            if pa.types.is_unsigned_integer(result.type):
                result = result.cast(pa.int64())  # sums of booleans; Python has no unsigned int
            results[name] = result
        return results

    # Columns.

    def _source(
        self, batch: Batch, aggregate: BuiltInAggregate, context: OperatorContext
    ) -> pa.Array:
        """Return the field's column, null where the aggregate's filter leaves the record out."""
        if aggregate.needs_column:
            column = self._column(batch, aggregate.field, context)
        else:
            column = pa.array(np.ones(len(batch), dtype=np.bool_))
        if aggregate.where is None:
            return column
        try:
            mask = selected(aggregate.where, batch.arrow)
        except Exception as error:
            doing = f"evaluating the filter of the built-in aggregate {aggregate.default_name}"
            raise user_error(context, error, doing=f"{doing} on a batch") from error
        return pc.if_else(mask, column, pa.scalar(None, column.type))

    def _column(self, batch: Batch, field: str | int | None, context: OperatorContext) -> pa.Array:
        kind = batch.type_info
        if field in (0, "f0") and not isinstance(kind, CompositeTypeInfo):
            scalars = kind.arrow_schema is not None or not _has_fields(batch.values)
            field = None if scalars else field
        if batch.is_columnar:
            position = 0 if field is None else column_of(kind, field)
            if position is not None and (field is not None or batch.arrow.num_columns == 1):
                return _summable(batch.arrow.column(position))
        values = batch.values
        try:
            if field is not None and values:
                values = list(map(_getter(values[0], field), values))
            return _summable(pa.array(values))
        except (pa.ArrowException, AttributeError, LookupError, TypeError, ValueError) as error:
            doing = f"reading field {field!r} of a batch for a built-in aggregate"
            raise user_error(context, error, values[0], doing=doing) from error


def _has_fields(values: list[object]) -> bool:
    return bool(values) and not isinstance(values[0], (int, float, str))


def _getter(record: object, field: str | int) -> Callable[[Any], Any]:
    if isinstance(field, int) or isinstance(record, dict):
        return itemgetter(field)
    return attrgetter(field)


def _summable(column: pa.Array) -> pa.Array:
    """Columns that are all null get a type that can be summed."""
    return column.cast(pa.int64()) if pa.types.is_null(column.type) else column


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """One table of all; columns that differ in type get the wider one."""
    if len(tables) == 1:
        return tables[0]
    first = tables[0].schema
    if all(table.schema.equals(first) for table in tables):
        return pa.concat_tables(tables)
    return pa.concat_tables(tables, promote_options="permissive")


#: Column of the tables that a matrix is made of: where each line goes.
POSITION: Final = "__position"

_PAIR: Final = "__pair"
_FUNCTIONS: Final[dict[str, Any]] = {"sum": np.add, "min": np.fmin, "max": np.fmax}


class RowPool:
    """Partials that are combined by ``PartialAggregates.merge``, at fixed positions."""

    def __init__(self, partials: PartialAggregates) -> None:
        self._partials = partials
        self._tables: list[pa.Table] = []
        self._starts: list[int] = []
        self._length = 0

    def add(self, table: pa.Table) -> int:
        """Append a table; return the position of its first line."""
        first = self._length
        if table.num_rows or not self._tables:
            self._starts.append(first)
            self._tables.append(table)
            self._length += table.num_rows
        return first

    def take(self, positions: NDArray[np.int64]) -> pa.Table:
        """Return the lines at these positions."""
        if not len(positions):
            return self._tables[0].slice(0, 0)
        tables = np.searchsorted(np.array(self._starts), positions, side="right") - 1
        used = np.unique(tables).tolist()
        parts = []
        for number in used:
            within = positions[tables == number] - self._starts[number]
            parts.append(self._tables[number].take(pa.array(within)))
        if len(parts) == 1:
            return parts[0]
        back = np.empty(len(positions), dtype=np.int64)
        back[np.argsort(tables, kind="stable")] = np.arange(len(positions))
        return concatenated(parts).combine_chunks().take(pa.array(back))

    def merge(self, earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.int64]:
        """Combine positions pairwise; -1 stands for nothing."""
        result = np.where(earlier >= 0, earlier, later)
        both = np.flatnonzero((earlier >= 0) & (later >= 0))
        if len(both):
            positions = np.stack((earlier.flat[both], later.flat[both]), axis=1).reshape(-1)
            lines = self.take(positions)
            pairs = pa.array(np.repeat(np.arange(len(both)), 2))
            merged = self._partials.merge(lines.append_column(_PAIR, pairs), [_PAIR])
            first = self.add(merged.drop_columns([_PAIR]))
            result.flat[both[merged.column(_PAIR).to_numpy()]] = np.arange(first, first + len(both))
        return result


@dataclass
class _Numbers:
    """One partial column of numbers."""

    function: Any
    values: NDArray[Any]
    #: Where there is a value; None: wherever the key is present.
    valid: NDArray[np.bool_] | None
    type: pa.DataType

    def map(self, change: Callable[[NDArray[Any], Any], NDArray[Any]]) -> _Numbers:
        """Apply ``change(matrix, what stands for nothing)`` to values and validity."""
        values = change(self.values, _identity(self.function, self.values.dtype))
        valid = None if self.valid is None else change(self.valid, False)  # noqa: FBT003
        return _Numbers(self.function, values, valid, self.type)


class PartialMatrix:
    """Partials by (row, key)."""

    def __init__(
        self,
        present: NDArray[np.bool_],
        numbers: dict[str, _Numbers],
        positions: NDArray[np.int64] | None,
        pool: RowPool,
    ) -> None:
        """Take the matrices; ``positions`` is None where no aggregate uses the pool."""
        self.present = present
        self._numbers = numbers
        self._positions = positions
        self._pool = pool

    @staticmethod
    def make(
        partials: PartialAggregates, table: pa.Table, rows: int, keys: int, pool: RowPool
    ) -> PartialMatrix:
        """Lay out a table with the column POSITION (row * keys + key) and all partial columns.

        Args:
            partials: says how columns are merged.
            table: no two lines have the same position.
            rows: the number of rows.
            keys: the number of columns of the matrices.
            pool: where partials go that are not numbers.
        """
        at = table.column(POSITION).to_numpy()
        spread = partial(_spread, (rows, keys), at)
        numbers: dict[str, _Numbers] = {}
        for name, merge in partials.native:
            column = one_array(table.column(name))
            values = _as_numbers(column)
            if values is None:
                continue
            function, valid = _FUNCTIONS[merge], None
            nothing = _identity(function, values.dtype)
            if column.null_count:
                some = column.is_valid().to_numpy(zero_copy_only=False)
                values = np.where(some, values, nothing)
                valid = spread(some, nothing=False)
            numbers[name] = _Numbers(function, spread(values, nothing=nothing), valid, column.type)
        positions = None
        others = [name for name in partials.columns if name not in numbers]
        if others:
            first = pool.add(table.select(others))
            positions = spread(np.arange(first, first + table.num_rows), nothing=-1)
        present = spread(np.ones(table.num_rows, dtype=np.bool_), nothing=False)
        return PartialMatrix(present, numbers, positions, pool)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and keys."""
        rows, keys = self.present.shape
        return rows, keys

    def rows(self, rows: NDArray[np.int64] | slice) -> PartialMatrix:
        """Return some of the rows."""
        return self._map(lambda matrix, _nothing: matrix[rows])

    def padded(self, keys: int) -> PartialMatrix:
        """Return the same with more keys, none of them present."""
        missing = keys - self.shape[1]
        if not missing:
            return self

        def pad(matrix: NDArray[Any], nothing: Any) -> NDArray[Any]:
            return np.pad(matrix, ((0, 0), (0, missing)), constant_values=nothing)

        return self._map(pad)

    def _map(self, change: Callable[[NDArray[Any], Any], NDArray[Any]]) -> PartialMatrix:
        positions = None if self._positions is None else change(self._positions, -1)
        numbers = {name: each.map(change) for name, each in self._numbers.items()}
        return PartialMatrix(change(self.present, False), numbers, positions, self._pool)  # noqa: FBT003

    def followed_by(self, later: PartialMatrix) -> PartialMatrix:
        """Combine entry by entry with rows that are later in time; both have the same shape."""
        numbers = self._both(later, lambda function, one, two: function(one, two))
        positions = None
        if self._positions is not None and later._positions is not None:
            positions = self._pool.merge(self._positions, later._positions)
        return PartialMatrix(self.present | later.present, numbers, positions, self._pool)

    def above(self, other: PartialMatrix) -> PartialMatrix:
        """Return these rows and those of ``other`` below; both have the same keys."""
        numbers = self._both(other, lambda _, one, two: np.concatenate((one, two)))
        positions = None
        if self._positions is not None and other._positions is not None:
            positions = np.concatenate((self._positions, other._positions))
        present = np.concatenate((self.present, other.present))
        return PartialMatrix(present, numbers, positions, self._pool)

    def _both(
        self,
        other: PartialMatrix,
        join: Callable[[Any, NDArray[Any], NDArray[Any]], NDArray[Any]],
    ) -> dict[str, _Numbers]:
        """Join the numbers of both by ``join(function, mine, theirs)``."""
        numbers = {}
        for name, mine in self._numbers.items():
            theirs = other._numbers[name]
            valid = None
            if mine.valid is not None or theirs.valid is not None:
                valid = join(np.logical_or, self._valid(mine), other._valid(theirs))
            values = join(mine.function, self._floats(mine, theirs), other._floats(theirs, mine))
            kind = mine.type if mine.type == theirs.type else pa.from_numpy_dtype(values.dtype)
            numbers[name] = _Numbers(mine.function, values, valid, kind)
        return numbers

    def accumulated(self, *, backwards: bool) -> PartialMatrix:
        """Combine each row with all before it; with all after it if ``backwards``."""
        step = slice(None, None, -1 if backwards else 1)
        numbers = {}
        for name, each in self._numbers.items():
            values = each.function.accumulate(each.values[step], axis=0)[step]
            valid = None
            if each.valid is not None:
                valid = np.logical_or.accumulate(each.valid[step], axis=0)[step]
            numbers[name] = _Numbers(each.function, values, valid, each.type)
        positions = self._positions
        if positions is not None:
            positions = positions.copy()
            for row in range(1, len(positions)):
                if backwards:
                    positions[~row] = self._pool.merge(positions[~row], positions[-row])
                else:
                    positions[row] = self._pool.merge(positions[row - 1], positions[row])
        present = np.logical_or.accumulate(self.present[step], axis=0)[step]
        return PartialMatrix(present, numbers, positions, self._pool)

    def lines(self, names: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Table]:
        """Return row, key and partial columns of all entries that are present, row by row."""
        rows, keys = np.nonzero(self.present)
        others = None if self._positions is None else self._pool.take(self._positions[rows, keys])
        columns = []
        for name in names:
            each = self._numbers.get(name)
            if each is None:
                columns.append(others.column(name) if others is not None else None)
                continue
            missing = None if each.valid is None else ~each.valid[rows, keys]
            found = pa.array(each.values[rows, keys], mask=missing)
            columns.append(_back(found, each.type))
        return rows, keys, pa.table(columns, names=names)

    def _valid(self, numbers: _Numbers) -> NDArray[np.bool_]:
        return self.present if numbers.valid is None else numbers.valid

    def _floats(self, numbers: _Numbers, other: _Numbers) -> NDArray[Any]:
        """Integers beside floats become floats, so that nothing stands for nothing as there."""
        values = numbers.values
        if values.dtype.kind == "f" or other.values.dtype.kind != "f":
            return values
        nothing = _identity(numbers.function, other.values.dtype)
        return np.where(self._valid(numbers), values, nothing)


def _spread(
    shape: tuple[int, int], at: NDArray[np.int64], values: NDArray[Any], *, nothing: Any
) -> NDArray[Any]:
    """Return a matrix with ``values`` at these positions and ``nothing`` elsewhere."""
    flat = np.full(shape[0] * shape[1], nothing, dtype=values.dtype)
    flat[at] = values
    return flat.reshape(shape)


def _identity(function: Any, dtype: np.dtype[Any]) -> Any:
    """Return what changes nothing; NaN is passed over by fmin and fmax."""
    if function is np.add:
        return 0
    if dtype.kind == "f":
        return np.nan
    return np.iinfo(dtype).max if function is np.fmin else np.iinfo(dtype).min


def _as_numbers(column: pa.Array) -> NDArray[Any] | None:
    """Return the column as numbers (what is null is any number); None if it has none."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        column = column.view(pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        return None
    if column.null_count:
        column = column.fill_null(0)
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _back(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    if numbers.type == kind:
        return numbers
    if pa.types.is_temporal(kind):
        return numbers.view(kind)
    return numbers.cast(kind)
