"""Partial aggregates: records grouped by key and pane, merged, and finished, all in Arrow.

What it is: the computation shared by the combiner before the exchange and the built-in window
operator behind it.  A *pane* is the longest interval that no window edge cuts: the window itself
for tumbling windows, the greatest common divisor of size and slide for sliding ones.

What it is not: time or storage (``combiner.py``, ``builtin_window.py``).

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

from millstream.common.composite_types import CompositeTypeInfo
from millstream.common.field_access import column_of
from millstream.runtime.user_code import user_error
from millstream.state.key_codec import cache_key, decode_key
from millstream.state.key_groups import key_group_of_cache_key, key_groups_of_array

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from millstream.runtime.aggregates import BuiltInAggregate
    from millstream.runtime.batch import Batch
    from millstream.runtime.operator import OperatorContext
    from millstream.runtime.operators.keyed import KeyExtractor
    from millstream.runtime.windows import FixedEventTimeWindows

__all__ = [
    "KEY",
    "RECORDS",
    "START",
    "Partials",
    "is_partial",
    "key_groups_of_partials",
    "keys_from_column",
]

KEY: Final = "key"
START: Final = "window_start"
RECORDS: Final = "__records"

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
        assigner: FixedEventTimeWindows,
        aggregates: dict[str, BuiltInAggregate],
        extractor: KeyExtractor,
    ) -> None:
        """Take what the window was declared with."""
        self._assigner = assigner
        self.aggregates = aggregates
        self._extractor = extractor
        used = (each.field for each in aggregates.values() if each.needs_column)
        #: Field -> name of its column in raw tables.
        self._fields = {field: f"c{i}" for i, field in enumerate(dict.fromkeys(used))}
        #: Name that pyarrow gives a grouped column -> how it is made; and the names in order.
        self._make: dict[str, tuple[Any, str]] = {"count_all": ([], "count_all")}
        self._made: list[str] = ["count_all"]
        self._merge: list[tuple[str, str]] = []
        for aggregate in aggregates.values():
            for function, merge in zip(aggregate.partials, aggregate.merges, strict=True):
                column = self._fields[aggregate.field] if aggregate.needs_column else None
                made = function if column is None else f"{column}_{function}"
                self._make[made] = ([] if column is None else column, function)
                self._made.append(made)
                self._merge.append((f"p{len(self._merge)}", merge))

    @property
    def columns(self) -> list[str]:
        """The names of the partial columns."""
        return [name for name, _ in self._merge]

    # From records to partials.

    def raw(self, batch: Batch, context: OperatorContext) -> list[pa.Table]:
        """Return tables of key, pane start and the fields that are aggregated.

        Most batches give one table; keys of several types give one per form of the key column.
        """
        timestamps = batch.timestamp_array
        starts = self._assigner.pane_starts(timestamps)
        columns = {START: pa.array(starts)}
        for field, name in self._fields.items():
            columns[name] = self._column(batch, field, context)
        inside: NDArray[np.int64] | None = None
        if self._assigner.slide > self._assigner.size:  # records may fall between windows
            last = self._assigner.last_starts(timestamps)
            inside = np.flatnonzero(last + self._assigner.size > timestamps)
        tables = []
        for positions, keys in self._keys(batch, context):
            table = pa.table({KEY: pa.nulls(len(batch)) if keys is None else keys, **columns}) if (
                positions is None
            ) else pa.table({name: c.take(positions) for name, c in columns.items()}).add_column(
                0, KEY, keys
            )  # fmt: skip
            if inside is not None:
                kept = inside if positions is None else np.flatnonzero(
                    np.isin(positions.to_numpy(), inside)
                )  # fmt: skip
                table = table.take(pa.array(kept))
            tables.append(table)
        return tables

    def make(self, raw: pa.Table) -> pa.Table:
        """Group a raw table by key and pane."""
        how = list(self._make.values())
        grouped = raw.group_by([KEY, START], use_threads=False).aggregate(how)
        columns = [grouped.column(name) for name in (KEY, START, *self._made)]
        return pa.table(columns, names=[KEY, START, RECORDS, *self.columns])

    # Merging.

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge tables of key, window start and partial columns."""
        table = concatenated(tables)
        grouped = table.group_by([KEY, START], use_threads=False).aggregate(self._merge)
        merged = [grouped.column(f"{name}_{how}") for name, how in self._merge]
        return pa.table(
            [grouped.column(KEY), grouped.column(START), *merged],
            names=[KEY, START, *self.columns],
        )

    def merge_window(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge tables of key and partial columns, all of one window."""
        table = concatenated(tables)
        grouped = table.group_by(KEY, use_threads=False).aggregate(self._merge)
        merged = [grouped.column(f"{name}_{how}") for name, how in self._merge]
        return pa.table([grouped.column(KEY), *merged], names=[KEY, *self.columns])

    def finish(self, merged: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Return the result columns of merged partials."""
        results: dict[str, pa.ChunkedArray] = {}
        position = 0
        for name, aggregate in self.aggregates.items():
            count = len(aggregate.merges)
            columns = [merged.column(f"p{position + i}") for i in range(count)]
            result = aggregate.finish(columns)
            if pa.types.is_unsigned_integer(result.type):
                result = result.cast(pa.int64())  # sums of booleans; Python has no unsigned int
            results[name] = result
            position += count
        return results

    def windows_of(self, partials: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (row, start of a window) for every window that each pane belongs to."""
        assigner = self._assigner
        panes = partials.column(START).to_numpy()
        last = assigner.last_starts(panes)
        if assigner.overlap == 1:
            return np.arange(len(panes)), last
        rows, starts = [], []
        for step in range(assigner.overlap):
            shifted = last - step * assigner.slide
            inside = np.flatnonzero(shifted + assigner.size > panes)
            rows.append(inside)
            starts.append(shifted[inside])
        return np.concatenate(rows), np.concatenate(starts)

    # Columns.

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
