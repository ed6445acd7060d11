"""Built-in aggregates row by row, as one AggregateFunction.

Windows that are not vectorized (custom triggers, evictors, dynamic gaps) use them, with the results
of the vectorized form.  ``RowAggregates.elements`` turns a batch into elements (timestamp, one
value per aggregate; None: does not count), which the window holds and ``add`` takes; ``get_result``
returns one result per aggregate.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from millstream.contracts.batch import Batch
from millstream.functions.functions import AggregateFunction
from millstream.runtime.columnar import aggregates as built_in
from millstream.runtime.columnar.aggregates import SKETCH_K, quantiles, sketch_module, zipped
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


class RowAggregate(ABC):
    """One aggregate; accumulators are plain, picklable values."""

    @abstractmethod
    def create(self) -> Any:
        """Return an accumulator of nothing."""

    @abstractmethod
    def add(self, accumulator: Any, value: Any, timestamp: int) -> Any:
        """Return the accumulator with a value (never None) added; it may be changed in place."""

    @abstractmethod
    def merge(self, one: Any, other: Any) -> Any:
        """Return both in one; what is in ``one`` came first."""

    @abstractmethod
    def result(self, accumulator: Any) -> Any:
        """Return the result."""

    def to_columns(self, accumulator: Any) -> Sequence[Any]:
        """Return the values of its partial columns that say the same."""
        return [accumulator]

    def from_columns(self, values: Sequence[Any]) -> Any:
        """Return the accumulator that says the same as the partial columns of a row."""
        return values[0]


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


class _Count(RowAggregate):
    def create(self) -> int:
        return 0

    def add(self, accumulator: int, value: object, timestamp: int) -> int:
        del value, timestamp
        return accumulator + 1

    def merge(self, one: int, other: int) -> int:
        return one + other

    def result(self, accumulator: int) -> int:
        return accumulator


class _Fold(RowAggregate):
    """Folds values two by two; None is nothing yet."""

    def __init__(self, fold: Callable[[Any, Any], Any]) -> None:
        self._fold = fold

    def create(self) -> None:
        return None

    def add(self, accumulator: Any, value: Any, timestamp: int) -> Any:
        del timestamp
        return value if accumulator is None else self._fold(accumulator, value)

    def merge(self, one: Any, other: Any) -> Any:
        if one is None or other is None:
            return other if one is None else one
        return self._fold(one, other)

    def result(self, accumulator: Any) -> Any:
        return (
            int(accumulator)
            if isinstance(accumulator, bool) and self._fold is _plus
            else accumulator
        )


class _Sum(_Fold):
    """Of truth values too, of which a single one is kept as it is."""

    def __init__(self) -> None:
        super().__init__(_plus)

    def to_columns(self, accumulator: Any) -> Sequence[Any]:
        return [int(accumulator) if isinstance(accumulator, bool) else accumulator]


class _Avg(RowAggregate):
    def create(self) -> tuple[Any, int]:
        return None, 0

    def add(self, accumulator: tuple[Any, int], value: Any, timestamp: int) -> tuple[Any, int]:
        del timestamp
        total, count = accumulator
        return (value if total is None else _plus(total, value)), count + 1

    def merge(self, one: tuple[Any, int], other: tuple[Any, int]) -> tuple[Any, int]:
        if one[0] is None or other[0] is None:
            return other if one[0] is None else one
        return _plus(one[0], other[0]), one[1] + other[1]

    def to_columns(self, accumulator: tuple[Any, int]) -> Sequence[Any]:
        return accumulator

    def from_columns(self, values: Sequence[Any]) -> tuple[Any, int]:
        return values[0], values[1]

    def result(self, accumulator: tuple[Any, int]) -> float | None:
        total, count = accumulator
        return None if total is None else float(total) / count


class _Pick(RowAggregate):
    """The first value by time, or the last; None is nothing yet."""

    def __init__(self, *, last: bool) -> None:
        self._last = last

    def create(self) -> None:
        return None

    def add(self, accumulator: Any, value: Any, timestamp: int) -> Any:
        return self.merge(accumulator, (timestamp, value))

    def merge(self, one: Any, other: Any) -> Any:
        if one is None or other is None:
            return other if one is None else one
        if self._last:
            return one if one[0] > other[0] else other
        return other if other[0] < one[0] else one

    def result(self, accumulator: Any) -> Any:
        return None if accumulator is None else accumulator[1]

    def to_columns(self, accumulator: Any) -> Sequence[Any]:
        return (None, None) if accumulator is None else accumulator

    def from_columns(self, values: Sequence[Any]) -> Any:
        return None if values[0] is None else (values[0], values[1])


class _Distinct(RowAggregate):
    def create(self) -> set[Any]:
        return set()

    def add(self, accumulator: set[Any], value: Any, timestamp: int) -> set[Any]:
        del timestamp
        accumulator.add(_distinct(value))
        return accumulator

    def merge(self, one: set[Any], other: set[Any]) -> set[Any]:
        return one | other

    def to_columns(self, accumulator: set[Any]) -> Sequence[Any]:
        return [[math.nan if each == "nan" else each[0] for each in accumulator]]

    def from_columns(self, values: Sequence[Any]) -> set[Any]:
        return set(map(_distinct, values[0] or ()))

    def result(self, accumulator: set[Any]) -> int:
        return len(accumulator)


class _Collect(RowAggregate):
    def create(self) -> list[Any]:
        return []

    def add(self, accumulator: list[Any], value: Any, timestamp: int) -> list[Any]:
        accumulator.append((timestamp, value))
        return accumulator

    def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
        return one + other

    def to_columns(self, accumulator: list[Any]) -> Sequence[Any]:
        return [time for time, _ in accumulator], [value for _, value in accumulator]

    def from_columns(self, values: Sequence[Any]) -> list[Any]:
        return list(zip(values[0] or (), values[1] or (), strict=True))

    def result(self, accumulator: list[Any]) -> list[Any]:
        return [value for _, value in sorted(accumulator, key=lambda pair: pair[0])]


class _Quantiles(RowAggregate):
    """Numbers as they came, up to 200 of them, and a sketch of the others, serialized."""

    def __init__(self, aggregate: built_in.Quantiles) -> None:
        self._ranks = list(aggregate.ranks)
        self._single = isinstance(aggregate, built_in.Quantile)

    def create(self) -> tuple[list[float], bytes | None]:
        return [], None

    def add(self, accumulator: Any, value: Any, timestamp: int) -> Any:
        del timestamp
        number = float(value)
        if not math.isfinite(number):
            return accumulator
        accumulator[0].append(number)
        return self._shortened(accumulator)

    def merge(self, one: Any, other: Any) -> Any:
        numbers, sketch = [*one[0], *other[0]], one[1] or other[1]
        if one[1] is not None and other[1] is not None:
            kind = sketch_module().kll_doubles_sketch
            both = kind.deserialize(one[1])
            both.merge(kind.deserialize(other[1]))
            sketch = both.serialize()
        return self._shortened((numbers, sketch))

    def result(self, accumulator: Any) -> Any:
        numbers, sketch = accumulator
        if sketch is not None and numbers:
            sketch = self._sketch(numbers, sketch)
            numbers = []
        columns = [pa.array([numbers], pa.list_(pa.float64())), pa.array([sketch], pa.binary())]
        found = quantiles(columns, self._ranks)
        return found[0][0].as_py() if self._single else zipped(found)[0].as_py()

    def to_columns(self, accumulator: Any) -> Sequence[Any]:
        numbers, sketch = accumulator
        return accumulator if sketch is None or not numbers else ([], self._sketch(numbers, sketch))

    def from_columns(self, values: Sequence[Any]) -> Any:
        return list(values[0] or ()), values[1]

    def _shortened(self, accumulator: Any) -> Any:
        numbers, sketch = accumulator
        if len(numbers) <= SKETCH_K:
            return accumulator
        return [], self._sketch(numbers, sketch)

    @staticmethod
    def _sketch(numbers: list[float], sketch: bytes | None) -> bytes:
        import numpy as np

        kind = sketch_module().kll_doubles_sketch
        made = kind(SKETCH_K) if sketch is None else kind.deserialize(sketch)
        made.update(np.array(numbers))
        encoded: bytes = made.serialize()
        return encoded


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


_MAKE: Final[dict[type, Callable[[Any], RowAggregate]]] = {
    built_in.Count: lambda _: _Count(),
    built_in.Sum: lambda _: _Sum(),
    built_in.Min: lambda _: _Fold(partial(_best, min)),
    built_in.Max: lambda _: _Fold(partial(_best, max)),
    built_in.Avg: lambda _: _Avg(),
    built_in.First: lambda _: _Pick(last=False),
    built_in.Last: lambda _: _Pick(last=True),
    built_in.CountDistinct: lambda _: _Distinct(),
    built_in.Collect: lambda _: _Collect(),
    built_in.Quantile: _Quantiles,
    built_in.Quantiles: _Quantiles,
}


def _row_form(aggregate: built_in.BuiltInAggregate) -> RowAggregate:
    return _MAKE[type(aggregate)](aggregate)
