"""Built-in aggregates row by row, as one AggregateFunction.

Windows that are not vectorized (custom triggers, evictors, dynamic gaps) use them, with the results
of the vectorized form.  ``RowAggregates.elements`` turns a batch into elements (timestamp, one
value per aggregate; None: does not count), which the window holds and ``add`` takes; ``get_result``
returns one result per aggregate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import Batch
from millstream.functions.functions import AggregateFunction
from millstream.runtime.columnar import aggregates as built_in
from millstream.runtime.columnar.aggregates import SKETCH_K, Grouping
from millstream.runtime.columnar.partial_aggregates import TIME, PartialAggregates
from millstream.runtime.columnar.row_groups import KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.contracts.operator import OperatorContext
    from millstream.types.types import TypeInformation


#: A timestamp, and one value per aggregate.
Element: TypeAlias = tuple[Any, ...]

_WRAP: Final = 2**64
_HALF: Final = 2**63


def _itself(accumulator: Any) -> Any:
    """Return an accumulator that is its result as well."""
    return accumulator


def _one_column(accumulator: Any) -> list[Any]:
    """Return the partial columns of an accumulator that is the value of the only one."""
    return [accumulator]


@dataclass(frozen=True)
class RowAggregate:
    """One aggregate; accumulators are plain, picklable values."""

    #: Makes an accumulator of nothing.
    create: Callable[[], Any]
    #: Adds a value (never None) of some time; the accumulator may be changed in place.
    add: Callable[[Any, Any, int], Any]
    #: Puts two accumulators into one; what is in the first came first.
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any] = _itself
    #: Make values of partial columns of an accumulator, and an accumulator of these.
    to_columns: Callable[[Any], Sequence[Any]] = _one_column
    from_columns: Callable[[Sequence[Any]], Any] = itemgetter(0)


class RowAggregates(AggregateFunction):
    """Several built-in aggregates over one stream."""

    def __init__(self, aggregates: built_in.Aggregates) -> None:
        named = built_in.named_aggregates(aggregates)
        self.names = list(named)
        self._partials = PartialAggregates(named)
        self._rows = [_row_form(each) for each in named.values()]

    def elements(self, batch: Batch, context: OperatorContext) -> list[Element]:
        """Return one element per record: its timestamp and the value for each aggregate.

        Raises:
            UserFunctionError: a record has no such field, or a filter raised.
        """
        columns: list[Sequence[Any]] = [batch.timestamp_list]
        columns.extend(
            [True] * len(batch) if column is None else column.to_pylist()
            for column in self._partials.sources(batch, context)
        )
        return list(zip(*columns, strict=True))

    def from_partials(self, row: Mapping[str, Any]) -> list[Any]:
        """Return the accumulator of a row of partial columns, which shares nothing with it."""
        found = []
        for (_, columns), each in zip(self._partials.slots, self._rows, strict=True):
            found.append(each.from_columns([row[name] for name in columns]))
        return found

    def to_partials(
        self, accumulators: Sequence[list[Any]], types: Mapping[str, pa.DataType]
    ) -> dict[str, pa.Array]:
        """Return the partial columns of accumulators, of these types where they are known."""
        found: dict[str, pa.Array] = {}
        for position, (_, columns) in enumerate(self._partials.slots):
            row = self._rows[position]
            values = [row.to_columns(accumulator[position]) for accumulator in accumulators]
            for name, column in zip(columns, zip(*values, strict=True), strict=True):
                array = pa.array(column, types.get(name))
                found[name] = array.cast(pa.int64()) if pa.types.is_null(array.type) else array
        return found

    def partial_types(self, kind: TypeInformation, context: OperatorContext) -> pa.Schema:
        """Return the types of the partial columns of records of this type; those that have one."""
        if kind.arrow_schema is None:
            return pa.schema([])
        batch = Batch(kind, arrow=kind.to_arrow([]), timestamps=[])
        none = pa.array([], pa.int64())
        raw = pa.table({KEY: none, TIME: none, **self._partials.inputs(batch, context)})
        return self._partials.make(raw, [KEY]).schema

    def create_accumulator(self) -> list[Any]:
        return [row.create() for row in self._rows]

    def add(self, value: Element, accumulator: list[Any]) -> list[Any]:
        timestamp = value[0]
        for position, row in enumerate(self._rows):
            field = value[position + 1]
            if field is not None:
                accumulator[position] = row.add(accumulator[position], field, timestamp)
        return accumulator

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        return [
            row.merge(one, other) for row, one, other in zip(self._rows, acc_a, acc_b, strict=True)
        ]

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return [row.result(each) for row, each in zip(self._rows, accumulator, strict=True)]


def _plus(one: Any, other: Any) -> Any:
    total = one + other
    # Arrow's integers are 64 bits wide.
    return (total + _HALF) % _WRAP - _HALF if isinstance(total, int) else total


def _best(choose: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    """Return the least or the greatest value; NaN is neither."""
    if _is_nan(one) or _is_nan(other):
        return other if _is_nan(one) else one
    return choose(one, other)


def _distinct(value: object) -> object:
    """A value in a set: there is one NaN, which as an object would equal only itself."""
    return "nan" if _is_nan(value) else (value,)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _folding(fold: Callable[[Any, Any], Any], **more: Any) -> RowAggregate:
    """An aggregate of values two by two; None is nothing yet."""

    def merge(one: Any, other: Any) -> Any:
        if one is None or other is None:
            return other if one is None else one
        return fold(one, other)

    return RowAggregate(
        lambda: None,
        lambda so_far, value, _time: value if so_far is None else fold(so_far, value),
        merge,
        **more,
    )


def _as_number(total: Any) -> Any:
    """A sum of truth values, of which a single one is kept as it is."""
    return int(total) if isinstance(total, bool) else total


def _average(pair: tuple[Any, int]) -> float | None:
    total, count = pair
    return None if total is None else float(total) / count


_TOTAL: Final = _folding(_plus)
_AVERAGE: Final = RowAggregate(
    lambda: (None, 0),
    lambda pair, value, time: (_TOTAL.add(pair[0], value, time), pair[1] + 1),
    lambda one, other: (_TOTAL.merge(one[0], other[0]), one[1] + other[1]),
    _average,
    lambda pair: pair,
    tuple,
)


def _pick(one: tuple[int, Any], other: tuple[int, Any], *, last: bool) -> tuple[int, Any]:
    """The first value by time, or the last; of equal times the first, or last, to come."""
    if last:
        return one if one[0] > other[0] else other
    return other if other[0] < one[0] else one


def _edge(*, last: bool) -> RowAggregate:
    picked = _folding(
        partial(_pick, last=last),
        result=lambda pair: None if pair is None else pair[1],
        to_columns=lambda pair: (None, None) if pair is None else pair,
        from_columns=lambda values: None if values[0] is None else tuple(values),
    )
    return replace(picked, add=lambda pair, value, time: picked.merge(pair, (time, value)))


def _with(collection: Any, add: Callable[[Any], object], item: Any) -> Any:
    add(item)
    return collection


_DISTINCT: Final = RowAggregate(
    set,
    lambda seen, value, _time: _with(seen, seen.add, _distinct(value)),
    lambda one, other: one | other,
    len,
    lambda seen: [[math.nan if each == "nan" else each[0] for each in seen]],
    lambda values: set(map(_distinct, values[0] or ())),
)
_COLLECTED: Final = RowAggregate(
    list,
    lambda pairs, value, time: _with(pairs, pairs.append, (time, value)),
    lambda one, other: one + other,
    lambda pairs: [value for _, value in sorted(pairs, key=itemgetter(0))],
    lambda pairs: ([time for time, _ in pairs], [value for _, value in pairs]),
    lambda values: list(zip(values[0] or (), values[1] or (), strict=True)),
)


class _Quantiles:
    """Numbers as they came, up to 200 of them, and a sketch of the others, serialized."""

    def __init__(self, aggregate: built_in.Quantiles) -> None:
        self._aggregate = aggregate

    def add(self, accumulator: Any, value: Any, _time: int) -> Any:
        number = float(value)
        if not math.isfinite(number):
            return accumulator
        accumulator[0].append(number)
        return self._whole([accumulator]) if len(accumulator[0]) > SKETCH_K else accumulator

    def merge(self, one: Any, other: Any) -> Any:
        if one[1] is other[1] is None and len(one[0]) + len(other[0]) <= SKETCH_K:
            return [*one[0], *other[0]], None
        return self._whole([one, other])

    def result(self, accumulator: Any) -> Any:
        return self._aggregate.finish(_columns([self.to_columns(accumulator)]))[0].as_py()

    def to_columns(self, accumulator: Any) -> Any:
        numbers, sketch = accumulator
        return accumulator if sketch is None or not numbers else self._whole([accumulator])

    def _whole(self, accumulators: list[Any]) -> Any:
        """All accumulators in one; numbers go into the sketch if there is one, or too many."""
        count = len(accumulators)
        grouping = Grouping(np.arange(count), np.array([0, count]))
        merged = self._aggregate.merge(_columns(accumulators), grouping)
        numbers, sketch = (column[0].as_py() for column in merged)
        return numbers, sketch


def _columns(accumulators: list[Any]) -> list[pa.Array]:
    numbers, sketches = zip(*accumulators, strict=True)
    return [
        pa.array(numbers, pa.large_list(pa.float64())),
        pa.array(sketches, pa.large_binary()),
    ]


def _quantiles(aggregate: built_in.Quantiles) -> RowAggregate:
    made = _Quantiles(aggregate)
    return RowAggregate(
        lambda: ([], None),
        made.add,
        made.merge,
        made.result,
        made.to_columns,
        lambda values: (list(values[0] or ()), values[1]),
    )


_MAKE: Final[dict[type, Callable[[Any], RowAggregate]]] = {
    built_in.Count: lambda _: RowAggregate(lambda: 0, lambda n, _value, _time: n + 1, add),
    built_in.Sum: lambda _: _folding(
        _plus, result=_as_number, to_columns=lambda total: [_as_number(total)]
    ),
    built_in.Min: lambda _: _folding(partial(_best, min)),
    built_in.Max: lambda _: _folding(partial(_best, max)),
    built_in.Avg: lambda _: _AVERAGE,
    built_in.First: lambda _: _edge(last=False),
    built_in.Last: lambda _: _edge(last=True),
    built_in.CountDistinct: lambda _: _DISTINCT,
    built_in.Collect: lambda _: _COLLECTED,
    built_in.Quantile: _quantiles,
    built_in.Quantiles: _quantiles,
}


def _row_form(aggregate: built_in.BuiltInAggregate) -> RowAggregate:
    return _MAKE[type(aggregate)](aggregate)
