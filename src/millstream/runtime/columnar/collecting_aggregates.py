"""Aggregates that keep all their values: those of SQL that give them, or that take some back.

What it is: kernels that go through the rows of a key one by one, in Python.  LISTAGG, ARRAY_AGG and
COLLECT have their values in their state; so have FIRST_VALUE and LAST_VALUE of rows that may be
taken back.  MIN and MAX of such rows count their values in a map per key, which is read in parts.

What it is not: quick where a key has very many values: lists are written as a whole.

Read next: ``runtime/columnar/changelog_aggregates.py``, ``state/packed_state.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, insort
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from millstream.runtime.columnar.changelog_aggregates import Kernel, Rows
from millstream.state.key_codec import decode_key, encode_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.runtime.columnar.segments import Segments
    from millstream.state.packed_state import PackedMap, PackedMaps

__all__ = ["ArrayAgg", "Collect", "CountedExtreme", "KeptEdge", "ListAgg", "RowKernel", "take_back"]

_WIDTH = 8


class RowKernel(Kernel):
    """A kernel with one Python value per key, which each row changes; state is one column."""

    def __init__(self, state: pa.DataType, result: pa.DataType) -> None:
        """Take the types of the state and of the result."""
        self._result = result
        self.fields = [state]

    @property
    def fresh(self) -> list[Any]:
        return [[]]

    def lift(self, rows: Rows) -> list[Any]:
        arguments = [each.to_pylist() for each in rows.arguments]
        values = zip(*arguments, strict=True)
        counted = zip(rows.counted.tolist(), rows.weights.tolist(), values, strict=True)
        return [[(weight, row) if counts else None for counts, weight, row in counted]]

    def decoded(self, stored: Any) -> Any:
        """Return the value of what is stored; it may be changed."""
        return stored

    def encoded(self, value: Any) -> Any:
        """Return what is stored of a value."""
        return value

    @abstractmethod
    def add(self, value: Any, weight: int, row: Any) -> None:
        """Add a row, or take it back; it is what ``lift`` has made of it."""

    @abstractmethod
    def result_of(self, value: Any) -> Any:
        """Return the result, which may not change with the value afterwards."""

    def run(
        self,
        lifted: list[Any],
        segments: Segments,
        initial: list[pa.Array],
        *,
        last_only: bool,
        values: PackedMaps | None,
    ) -> tuple[pa.Array, list[pa.Array]]:
        del values
        changes, results, states = lifted[0], [], []
        stored = map(self.decoded, initial[0].to_pylist())
        bounds = zip(segments.starts.tolist(), segments.counts.tolist(), stored, strict=True)
        for start, count, value in bounds:
            for change in changes[start : start + count]:
                if change is not None:
                    self.add(value, *change)
                if not last_only:
                    results.append(self.result_of(value))
            if last_only:
                results.append(self.result_of(value))
            states.append(self.encoded(value))
        return pa.array(results, self._result), [pa.array(states, self.fields[0])]

    def results(self, states: list[pa.Array]) -> pa.Array:
        found = (self.result_of(self.decoded(each)) for each in states[0].to_pylist())
        return pa.array(found, self._result)


class _ListKernel(RowKernel):
    """A kernel whose state is the list of its values, in the order in which they came."""

    def __init__(self, element: pa.DataType, result: pa.DataType, *, keeps_nulls: bool) -> None:
        """Take the types of the values and of the result, and whether nulls are values."""
        super().__init__(pa.list_(element), result)
        self._keeps_nulls = keeps_nulls

    def lift(self, rows: Rows) -> list[Any]:
        values = rows.arguments[0].to_pylist()
        weights = rows.weights.tolist()
        changes = [
            (weight, value) if counted and (value is not None or self._keeps_nulls) else None
            for counted, weight, value in zip(rows.counted.tolist(), weights, values, strict=True)
        ]
        return [changes]

    def add(self, value: list[Any], weight: int, row: Any) -> None:
        if weight > 0:
            value.append(row)
        else:
            take_back(value, row)


def take_back(kept: list[Any], value: Any) -> None:
    """Remove the first that equals a value, if there is one, as in Java: a NaN equals another."""
    if value in kept:
        kept.remove(value)
        return
    shown = repr(value)
    if "nan" in shown:
        place = next((at for at, each in enumerate(kept) if repr(each) == shown), None)
        if place is not None:
            del kept[place]


class ArrayAgg(_ListKernel):
    """ARRAY_AGG: an array of the values, null of none."""

    def result_of(self, kept: list[Any]) -> Any:
        return list(kept) or None


class KeptEdge(_ListKernel):
    """FIRST_VALUE or LAST_VALUE of rows that may be taken back."""

    def __init__(self, kind: pa.DataType, *, is_last: bool) -> None:
        """Take the type of the values."""
        super().__init__(kind, kind, keeps_nulls=False)
        self._at = -1 if is_last else 0

    def result_of(self, kept: list[Any]) -> Any:
        return kept[self._at] if kept else None


class ListAgg(_ListKernel):
    """LISTAGG: the strings one behind the other, null of none."""

    def __init__(self, result: pa.DataType) -> None:
        """Take the type of the result."""
        super().__init__(pa.string(), result, keeps_nulls=False)
        #: With the separator, which is the same for all rows.
        self.fields = [pa.list_(pa.string()), pa.string()]

    @property
    def fresh(self) -> list[Any]:
        return [[], ","]

    def lift(self, rows: Rows) -> list[Any]:
        separators = rows.arguments[1].to_pylist() if len(rows.arguments) > 1 else []
        return [*super().lift(rows), separators]

    def result_of(self, kept: list[Any]) -> Any:
        return self._separator.join(kept) if kept else None

    def run(
        self,
        lifted: list[Any],
        segments: Segments,
        initial: list[pa.Array],
        *,
        last_only: bool,
        values: PackedMaps | None,
    ) -> tuple[pa.Array, list[pa.Array]]:
        self._separator = lifted[1][0] if lifted[1] else ","
        found, states = super().run(
            lifted[:1], segments, initial[:1], last_only=last_only, values=values
        )
        return found, [*states, pa.array([self._separator] * len(segments), pa.string())]

    def results(self, states: list[pa.Array]) -> pa.Array:
        kept = zip(*(column.to_pylist() for column in states), strict=True)
        joined = [separator.join(each) if each else None for each, separator in kept]
        return pa.array(joined, self._result)


class Collect(Kernel):
    """COLLECT: a multiset of the values that are not null."""

    def __init__(self, result: pa.DataType) -> None:
        """Take the type of the result."""
        self.fields = [result]

    @property
    def fresh(self) -> list[Any]:
        return [[]]

    def lift(self, rows: Rows) -> list[Any]:
        return [rows.arguments[0].to_pylist(), rows.counted.tolist(), rows.weights.tolist()]

    def run(
        self,
        lifted: list[Any],
        segments: Segments,
        initial: list[pa.Array],
        *,
        last_only: bool,
        values: PackedMaps | None,
    ) -> tuple[pa.Array, list[pa.Array]]:
        del values
        found, counted, weights = lifted
        results: list[Any] = []
        states: list[Any] = []
        kept = (dict(self._named(pairs)) for pairs in initial[0].to_pylist())
        bounds = zip(segments.starts.tolist(), segments.counts.tolist(), kept, strict=True)
        for start, count, multiset in bounds:
            for row in range(start, start + count):
                if counted[row] and found[row] is not None:
                    _count(multiset, found[row], weights[row])
                if not last_only:
                    results.append(list(multiset.values()))
            states.append(list(multiset.values()))
        kind = self.fields[0]
        made = pa.array(states, kind)
        return made if last_only else pa.array(results, kind), [made]

    @staticmethod
    def _named(pairs: list[tuple[Any, int]]) -> list[tuple[bytes, tuple[Any, int]]]:
        return [(encode_key(value), (value, count)) for value, count in pairs]

    def results(self, states: list[pa.Array]) -> pa.Array:
        return states[0]


def _count(multiset: dict[bytes, tuple[Any, int]], value: Any, weight: int) -> None:
    name = encode_key(value)
    count = multiset.get(name, (value, 0))[1] + weight
    if count:
        multiset[name] = (value, count)
    else:
        multiset.pop(name, None)


class CountedExtreme(Kernel):
    """MIN or MAX of rows that may be taken back: how often each value is there is kept."""

    keeps_values: ClassVar[bool] = True

    def __init__(self, kind: pa.DataType, *, is_max: bool) -> None:
        """Take the type of the values."""
        self._kind, self._is_max = kind, is_max
        self.fields = [kind]

    @property
    def fresh(self) -> list[Any]:
        return [None]

    def lift(self, rows: Rows) -> list[Any]:
        column = rows.arguments[0]
        found = [
            value if counted else None
            for value, counted in zip(_comparable(column), rows.counted.tolist(), strict=True)
        ]
        return [found, rows.weights.tolist()]

    def run(
        self,
        lifted: list[Any],
        segments: Segments,
        initial: list[pa.Array],
        *,
        last_only: bool,
        values: PackedMaps | None,
    ) -> tuple[pa.Array, list[pa.Array]]:
        if values is None:
            message = "MIN and MAX over retractions need a map to count values in"
            raise RuntimeError(message)
        found, weights = lifted
        names = [None if value is None else encode_key(value) for value in found]
        self._fetch(names, segments, values)
        results: list[Any] = []
        states: list[Any] = []
        before = _comparable(initial[0])
        for number, key in enumerate(segments.keys):
            counted = values.map_of(key)
            if segments.is_fresh[number] and len(counted):
                counted.clear()
            complete = partial(values.fetch_all, [key])
            best = _Best(before[number], counted, complete, is_max=self._is_max)
            start = int(segments.starts[number])
            for row in range(start, start + int(segments.counts[number])):
                name = names[row]
                if name is not None:
                    best.change(found[row], name, weights[row])
                if not last_only:
                    results.append(best.value)
            states.append(best.value)
        values.changed(dict.fromkeys(segments.keys))
        made = self._column(states)
        return made if last_only else self._column(results), [made]

    def _fetch(self, names: list[bytes | None], segments: Segments, values: PackedMaps) -> None:
        values.fetch(segments.keys)
        segment_of = segments.segment_of.tolist()
        keys = segments.keys
        values.fetch_entries(
            (keys[segment_of[row]], name) for row, name in enumerate(names) if name is not None
        )
        values.fetch_all(
            key for key, fresh in zip(keys, segments.is_fresh.tolist(), strict=True) if fresh
        )

    def _column(self, found: list[Any]) -> pa.Array:
        if pa.types.is_temporal(self._kind):
            width = self._kind.bit_width
            return pa.array(found, pa.int32() if width == 32 else pa.int64()).view(self._kind)  # noqa: PLR2004
        return pa.array(found, self._kind)

    def results(self, states: list[pa.Array]) -> pa.Array:
        return states[0]


def _comparable(column: pa.Array) -> list[Any]:
    """The values; dates and times as integers, which have an order and no lack of digits."""
    if pa.types.is_temporal(column.type):
        width = column.type.bit_width
        column = column.view(pa.int32() if width == 32 else pa.int64())  # noqa: PLR2004 - bits
    found: list[Any] = column.to_pylist()
    return found


class _Best:
    """The least or greatest value of one key while rows come and go."""

    def __init__(
        self,
        value: Any,
        counted: PackedMap,
        complete: Callable[[], None],
        *,
        is_max: bool,
    ) -> None:
        self.value = value
        self._counted = counted
        self._at = -1 if is_max else 0
        self._is_max = is_max
        self._complete = complete
        #: All values there are, in order; made when the best was taken back.
        self._ordered: list[Any] | None = None

    def change(self, value: Any, name: bytes, weight: int) -> None:
        """Add a value, or take it back."""
        stored = self._counted.get(name)
        before = 0 if stored is None else int.from_bytes(stored, "little", signed=True)
        count = before + weight
        if count:
            self._counted.put(name, count.to_bytes(_WIDTH, "little", signed=True))
        else:
            self._counted.remove(name)
        if count == 1 and before == 0:
            self._came(value)
        elif count == 0 and before == 1:
            self._went(value)

    def _came(self, value: Any) -> None:
        if self._ordered is not None:
            insort(self._ordered, value)
        best = self.value
        if best is None or (value > best if self._is_max else value < best):
            self.value = value

    def _went(self, value: Any) -> None:
        if self._ordered is not None:
            del self._ordered[bisect_left(self._ordered, value)]
        if value != self.value:
            return
        if self._ordered is None:
            self._complete()
            self._ordered = sorted(
                decode_key(name)
                for name, count in self._counted.items()
                if int.from_bytes(count, "little", signed=True) > 0
            )
        self.value = self._ordered[self._at] if self._ordered else None
