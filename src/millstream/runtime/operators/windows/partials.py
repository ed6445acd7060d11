"""Partial aggregates: records grouped by key and pane, merged, and finished, all in Arrow.

What it is: the computation shared by the combiner before the exchange and the built-in window
operators behind it.  What a *pane* is says ``runtime/operators/windows/panes.py``.

What it is not: time or storage (``combiner.py``, ``builtin_window.py``).

The partials of a combiner also have ``__flush``, which changes where the next flush begins: the
exchange may put several into one batch, and only within a flush no key has a pane twice.

A partial table has the columns ``key``, ``window_start`` (start of the pane), ``__records`` (how
many records went in) and ``p0``, ``p1``, ...: the partial columns of all aggregates.  The key
column is int64 or string where keys are such values and binary otherwise: then it holds keys
encoded by ``state/key_codec.py``.  The same key always has the same form, so that one table never
holds what belongs to another.

Read next: ``runtime/operators/combiner.py``.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.runtime.columnar.aggregates import SegmentAggregate
from millstream.runtime.columnar.grouped_kernels import Segments, one_array
from millstream.runtime.columnar.predicates import selected
from millstream.runtime.user_code import user_error
from millstream.state.key_codec import cache_key, decode_key
from millstream.state.key_groups import key_group_of_cache_key, key_groups_of_array
from millstream.types.composite_types import CompositeTypeInfo
from millstream.types.field_access import column_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext
    from millstream.runtime.columnar.aggregates import BuiltInAggregate
    from millstream.runtime.operators.keyed import KeyExtractor
    from millstream.runtime.operators.windows.panes import Panes

__all__ = [
    "FLUSH",
    "KEY",
    "POSITION",
    "RECORDS",
    "START",
    "TIME",
    "Partials",
    "concatenated",
    "is_partial",
    "key_groups_of_partials",
    "keys_from_column",
]

KEY: Final = "key"
START: Final = "window_start"
RECORDS: Final = "__records"
FLUSH: Final = "__flush"
TIME: Final = "__time"
POSITION: Final = "__position"

_ROW: Final = "__number"
_PANE: Final = "__pane"
#: Stands for the record as a whole, where only a predicate is looked at.
_RECORD: Final = object()
_NO_SEGMENTS: Final = Segments(np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64))

_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1


def is_partial(batch: Batch) -> bool:
    """Whether the batch comes from a combiner."""
    return batch.is_columnar and RECORDS in batch.arrow.schema.names


def key_groups_of_partials(keys: pa.Array, max_parallelism: int) -> NDArray[np.int32]:
    """Return the key group of each row, from the key column of partials."""
    if pa.types.is_binary(keys.type):
        groups = [key_group_of_cache_key(key, max_parallelism) for key in keys.to_pylist()]
        return np.array(groups, dtype=np.int32)
    return key_groups_of_array(keys, max_parallelism)


def keys_from_column(keys: pa.Array) -> list[Any]:
    """Return the keys of partials as Python values."""
    values: list[Any] = keys.to_pylist()
    return [decode_key(key) for key in values] if pa.types.is_binary(keys.type) else values


class Partials:
    """Turns batches into raw tables, raw tables into partials, and merges those."""

    def __init__(
        self,
        panes: Panes | None,
        aggregates: dict[str, BuiltInAggregate],
        extractor: KeyExtractor,
    ) -> None:
        """Take what the window was declared with; None: windows that are not cut into panes."""
        self._panes = panes
        self.aggregates = aggregates
        self._extractor = extractor
        #: (field, identity of the predicate) -> (name of its column in raw tables, an aggregate).
        self._sources: dict[tuple[object, int], tuple[str, BuiltInAggregate]] = {}
        #: Name that pyarrow gives a grouped column -> how it is made.
        self._make: dict[str, tuple[Any, str]] = {"count_all": ([], "count_all")}
        #: Per aggregate the names of its grouped columns, or the name of its source column.
        self._made: list[tuple[list[str], str]] = []
        self._merge: list[tuple[str, str]] = []
        self._slots: list[tuple[BuiltInAggregate, list[str]]] = []
        for aggregate in aggregates.values():
            self._plan(aggregate)
        #: Whether an aggregate needs the rows of each group.
        self.has_segments = any(isinstance(a, SegmentAggregate) for a in aggregates.values())

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
    def columns(self) -> list[str]:
        """The names of the partial columns."""
        return [name for _, names in self._slots for name in names]

    @property
    def native(self) -> list[tuple[str, str]]:
        """Partial columns that pyarrow merges by itself, and by which function."""
        return self._merge

    # From records to partials.

    def raw(self, batch: Batch, context: OperatorContext) -> list[pa.Table]:
        """Return tables of key, pane start, time and the fields that are aggregated.

        Without panes there are time and position in the batch.
        Most batches give one table; keys of several types give one per form of the key column.
        Records that fall between windows are left out.
        """
        timestamps = batch.timestamp_array
        columns: dict[str, pa.Array] = {}
        inside: NDArray[np.bool_] | None = None
        if self._panes is not None:
            panes = self._panes.numbers(timestamps)
            columns[START] = pa.array(self._panes.starts(panes))
            if self._panes.per_window < self._panes.per_slide:
                inside = self._panes.last_windows(panes) >= self._panes.first_windows(panes)
        if self._panes is None:
            columns[POSITION] = pa.array(np.arange(len(batch)))
        if self._panes is None or self.has_segments:
            columns[TIME] = pa.array(timestamps)
        for name, aggregate in self._sources.values():
            columns[name] = self._source(batch, aggregate, context)
        tables = []
        for positions, keys in self._keys(batch, context):
            table = pa.table({KEY: keys, **columns}) if (
                positions is None
            ) else pa.table({name: c.take(positions) for name, c in columns.items()}).add_column(
                0, KEY, keys
            )  # fmt: skip
            if inside is not None:
                kept = inside if positions is None else inside[positions.to_numpy()]
                table = table.filter(pa.array(kept))
            tables.append(table)
        return tables

    def sources(self, batch: Batch, context: OperatorContext) -> list[pa.Array | None]:
        """Return, per aggregate, the values that count: of the others, null.

        None stands for every record (``Count()``).
        """
        by_name = {
            name: self._source(batch, aggregate, context)
            for name, aggregate in self._sources.values()
        }
        return [by_name.get(source) for _, source in self._made]

    def make(self, raw: pa.Table, by: Sequence[str] = (KEY, START)) -> pa.Table:
        """Group a raw table."""
        grouped, segments = self._group(raw, by, list(self._make.values()))
        columns = [grouped.column(name) for name in (*by, "count_all")]
        for (aggregate, _), (made, source) in zip(self._slots, self._made, strict=True):
            if isinstance(aggregate, SegmentAggregate):
                times = raw.column(TIME).to_numpy()
                columns.extend(aggregate.make(one_array(raw.column(source)), times, segments))
            else:
                columns.extend(grouped.column(name) for name in made)
        return pa.table(columns, names=[*by, RECORDS, *self.columns])

    # Merging.

    def merge(self, table: pa.Table, by: Sequence[str]) -> pa.Table:
        """Merge the rows that agree in ``by``; the result is in no particular order.

        Partial columns that the table lacks are left out.
        """
        given = frozenset(table.column_names)
        merges = {name: how for name, how in self._merge if name in given}
        grouped, segments = self._group(table, by, list(merges.items()))
        merged = {name: grouped.column(name) for name in by}
        for aggregate, names in self._slots:
            if not isinstance(aggregate, SegmentAggregate):
                for name in merges.keys() & names:
                    merged[name] = grouped.column(f"{name}_{merges[name]}")
            elif names[0] in given:
                parts = [one_array(table.column(name)) for name in names]
                merged.update(zip(names, aggregate.merge(parts, segments), strict=True))
        ordered = [*by, *(name for name in self.columns if name in given)]
        return pa.table([merged[name] for name in ordered], names=ordered)

    def merge_pane(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge tables of key and partial columns, all of one pane, in the order they came.

        No table has a key twice.
        """
        if len(tables) == 1:
            return tables[0]
        return self.merge(concatenated(tables), [KEY])

    def merge_panes(self, panes: dict[int, list[pa.Table]]) -> dict[int, pa.Table]:
        """Merge the tables of many panes at once, as ``merge_pane`` does one by one."""
        merged = {pane: tables[0] for pane, tables in panes.items() if len(tables) == 1}
        others = {pane: tables for pane, tables in panes.items() if len(tables) > 1}
        if not others:
            return merged
        counts = [sum(table.num_rows for table in tables) for tables in others.values()]
        table = concatenated([table for tables in others.values() for table in tables])
        numbers = pa.array(np.repeat(np.arange(len(others)), counts))
        table = self.merge(table.append_column(_PANE, numbers), [_PANE, KEY])
        found = table.column(_PANE).to_numpy()
        table = table.drop_columns([_PANE]).take(pa.array(np.argsort(found, kind="stable")))
        ends = np.cumsum(np.bincount(found, minlength=len(others))).tolist()
        for pane, start, end in zip(others, [0, *ends], ends, strict=False):
            merged[pane] = table.slice(start, end - start)
        return merged

    def _group(
        self, table: pa.Table, by: Sequence[str], how: list[tuple[Any, str]]
    ) -> tuple[pa.Table, Segments]:
        if not self.has_segments:
            return table.group_by(by, use_threads=False).aggregate(how), _NO_SEGMENTS
        table = table.append_column(_ROW, pa.array(np.arange(table.num_rows)))
        grouped = table.group_by(by, use_threads=False).aggregate([*how, (_ROW, "list")])
        rows = one_array(grouped.column(f"{_ROW}_list"))
        offsets = np.concatenate(([0], np.cumsum(pc.list_value_length(rows).to_numpy())))
        return grouped, Segments(rows.flatten().to_numpy(), offsets)

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

    def _keys(
        self, batch: Batch, context: OperatorContext
    ) -> list[tuple[pa.Array | None, pa.Array]]:
        """(positions, keys) per form of the key column; positions None: all records."""
        column = self._extractor.column(batch)
        if column is not None and column.null_count == 0:
            if pa.types.is_integer(column.type) and column.type != pa.uint64():
                return [(None, column.cast(pa.int64()))]
            if pa.types.is_string(column.type):
                return [(None, column)]
        keys = self._extractor.keys(batch, context)
        kinds = set(map(type, keys))
        if kinds == {str}:
            return [(None, pa.array(keys, pa.string()))]
        if kinds == {int}:
            try:
                return [(None, pa.array(keys, pa.int64()))]
            except (OverflowError, pa.ArrowInvalid):
                pass
        return _mixed_keys(keys)


def _mixed_keys(keys: list[Any]) -> list[tuple[pa.Array | None, pa.Array]]:
    """Keys of several types, apart by the form of their column."""
    forms: dict[pa.DataType, tuple[list[int], list[Any]]] = {}
    for position, key in enumerate(map(cache_key, keys)):
        value: object = key
        if type(key) is int and _SMALLEST <= key <= _LARGEST:
            form = pa.int64()
        elif type(key) is str:
            form = pa.string()
        else:
            from millstream.state.key_codec import encode_key

            form, value = pa.binary(), key if type(key) is bytes else encode_key(key)
        positions, values = forms.setdefault(form, ([], []))
        positions.append(position)
        values.append(value)
    if len(forms) == 1:
        form, (_, values) = next(iter(forms.items()))
        return [(None, pa.array(values, form))]
    return [
        (pa.array(positions), pa.array(values, form)) for form, (positions, values) in forms.items()
    ]


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
