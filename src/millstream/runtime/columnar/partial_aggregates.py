"""Partial aggregates: records grouped by any columns, merged, and finished, all in Arrow.

What it is: the computation of built-in aggregates over tables, in steps that can be apart in time
and place: ``inputs`` takes the fields out of batches, ``make`` groups records to partials,
``merge`` groups partials again, ``finish`` makes the results.  A table of partials has the columns
that it is grouped by, ``__records`` (how many records went in; merging leaves it out) and ``p0``,
``p1``, ...

What it is not: windows, time or storage.  What is grouped by is the caller's: key and pane
(``runtime/operators/windows/partials.py``), a session, or the columns of a GROUP BY.

Read next: ``runtime/columnar/aggregates.py``, ``runtime/columnar/key_columns.py``.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.runtime.columnar.aggregates import KernelAggregate
from millstream.runtime.columnar.grouped_kernels import Grouping, one_array
from millstream.runtime.columnar.predicates import selected
from millstream.runtime.user_code import user_error
from millstream.types.composite_types import CompositeTypeInfo
from millstream.types.field_access import column_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext
    from millstream.runtime.columnar.aggregates import BuiltInAggregate

__all__ = ["RECORDS", "TIME", "PartialAggregates", "concatenated", "is_partial"]

#: Column of partials: how many records went in.
RECORDS: Final = "__records"
#: Column of inputs: the records' timestamps.
TIME: Final = "__time"

_ROW: Final = "__number"
#: Stands for the record as a whole, where only a predicate is looked at.
_RECORD: Final = object()
_NO_SEGMENTS: Final = Grouping(np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64))


def is_partial(batch: Batch) -> bool:
    """Whether the batch comes from a combiner."""
    return batch.is_columnar and RECORDS in batch.arrow.schema.names


class PartialAggregates:
    """Several aggregates over one stream, planned together: each field is taken once."""

    def __init__(self, aggregates: Mapping[str, BuiltInAggregate]) -> None:
        """Take the aggregates by the names of their result columns."""
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
