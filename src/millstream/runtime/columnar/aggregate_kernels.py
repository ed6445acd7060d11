"""Aggregate functions of SQL by name, and the kernels that process rows one by one, in Python.

LISTAGG, ARRAY_AGG and COLLECT keep their values as state; so do FIRST_VALUE and LAST_VALUE of rows
that may be retracted.  MIN and MAX of such rows count their values in a map per key, which is read
in parts.  User-defined functions are such kernels, too.
"""

from __future__ import annotations

import math
import weakref
from abc import abstractmethod
from bisect import bisect_left, insort
from dataclasses import dataclass
from functools import partial
from operator import iand, ior, ixor
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
from pyroaring import BitMap

from millstream.errors import ProgramError, UserFunctionError
from millstream.expressions.json_path import serialise
from millstream.expressions.user_functions import AGGREGATE_METHODS, FunctionContext, to_pandas
from millstream.runtime.columnar.changelog_aggregates import (
    Average,
    Count,
    Edge,
    Extreme,
    Kernel,
    NumericExtreme,
    Rows,
    SingleValue,
    Sum,
    SumOrZero,
    Variance,
)
from millstream.state.key_codec import decode_key, encode_key
from millstream.types.bitmaps import bitmap_bytes, bitmap_of_bytes, unsigned
from millstream.types.external_values import from_external, to_external
from millstream.types.logical_types import ArrayType
from millstream.types.pickling import dumps, loads
from millstream.types.row import Row
from millstream.types.values import column_of, values_of_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.expressions.user_functions import UserAggregate
    from millstream.functions.functions import RuntimeContext
    from millstream.runtime.columnar.changelog_aggregates import Scan, Segments
    from millstream.state.packed_state import PackedMap, PackedMaps
    from millstream.types.logical_types import LogicalType


# -- kernels of rows one by one ---


class RowKernel(Kernel):
    """A kernel with one Python value per key, which each row changes; state is one column."""

    fresh: tuple[Any, ...] = ([],)

    def __init__(self, state: pa.DataType, result: pa.DataType) -> None:
        self._result = result
        self.fields = [state]

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
        """Add a row or retract it; ``row`` is what ``lift`` has made of it."""

    @abstractmethod
    def result_of(self, value: Any) -> Any:
        """Return the result, which may not change with the value afterwards."""

    def run(self, lifted: list[Any], scan: Scan) -> tuple[pa.Array, list[pa.Array]]:
        changes, results, states = lifted[0], [], []
        segments, last_only = scan.segments, scan.last_only
        stored = map(self.decoded, scan.initial[0].to_pylist())
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
        return self.column(results), [pa.array(states, self.fields[0])]

    def results(self, states: list[pa.Array]) -> pa.Array:
        return self.column([self.result_of(self.decoded(each)) for each in states[0].to_pylist()])

    def column(self, results: list[Any]) -> pa.Array:
        """Return results as a column."""
        return pa.array(results, self._result)


class _ListKernel(RowKernel):
    """A kernel whose state is the list of its values, in the order in which they came."""

    def __init__(self, element: pa.DataType, result: pa.DataType, *, keeps_nulls: bool) -> None:
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
            retract_value(value, row)


def retract_value(kept: list[Any], value: Any) -> None:
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
    """FIRST_VALUE or LAST_VALUE of rows that may be retracted."""

    def __init__(self, kind: pa.DataType, *, is_last: bool) -> None:
        super().__init__(kind, kind, keeps_nulls=False)
        self._at = -1 if is_last else 0

    def result_of(self, kept: list[Any]) -> Any:
        return kept[self._at] if kept else None


class ListAgg(_ListKernel):
    """LISTAGG: the strings one after another, null of none."""

    fresh = ([], ",")

    def __init__(self, result: pa.DataType) -> None:
        super().__init__(pa.string(), result, keeps_nulls=False)
        #: With the separator, which is the same for all rows.
        self.fields = [pa.list_(pa.string()), pa.string()]

    def lift(self, rows: Rows) -> list[Any]:
        separators = rows.arguments[1].to_pylist() if len(rows.arguments) > 1 else []
        return [*super().lift(rows), separators]

    def result_of(self, kept: list[Any]) -> Any:
        return self._separator.join(kept) if kept else None

    def run(self, lifted: list[Any], scan: Scan) -> tuple[pa.Array, list[pa.Array]]:
        self._separator = lifted[1][0] if lifted[1] else ","
        found, states = super().run(lifted[:1], scan)
        separators = pa.array([self._separator] * len(scan.segments), pa.string())
        return found, [*states, separators]

    def results(self, states: list[pa.Array]) -> pa.Array:
        kept = zip(*(column.to_pylist() for column in states), strict=True)
        joined = [separator.join(each) if each else None for each, separator in kept]
        return pa.array(joined, self._result)


class Collect(_ListKernel):
    """COLLECT: a multiset of the values that are not null."""

    def __init__(self, result: pa.DataType) -> None:
        super().__init__(result.key_type, result, keeps_nulls=False)
        self.fields = [result]

    def decoded(self, stored: Any) -> Any:
        return {encode_key(value): (value, count) for value, count in stored}

    def encoded(self, value: Any) -> Any:
        return list(value.values())

    def add(self, value: Any, weight: int, row: Any) -> None:
        name = encode_key(row)
        count = value.get(name, (row, 0))[1] + weight
        if count:
            value[name] = (row, count)
        else:
            value.pop(name, None)

    def result_of(self, value: Any) -> Any:
        return list(value.values())

    def results(self, states: list[pa.Array]) -> pa.Array:
        return states[0]


class CountedExtreme(Kernel):
    """MIN or MAX of rows that may be retracted: how often each value is there is kept."""

    fresh = (None,)
    keeps_values: ClassVar[bool] = True

    def __init__(self, kind: pa.DataType, *, is_max: bool) -> None:
        self._kind, self._is_max = kind, is_max
        self.fields = [kind]

    def lift(self, rows: Rows) -> list[Any]:
        column = rows.arguments[0]
        found = [
            value if counted else None
            for value, counted in zip(_comparable(column), rows.counted.tolist(), strict=True)
        ]
        return [found, rows.weights.tolist()]

    def run(self, lifted: list[Any], scan: Scan) -> tuple[pa.Array, list[pa.Array]]:
        segments, last_only, values = scan.segments, scan.last_only, scan.values
        if values is None:
            message = "MIN and MAX over retractions need a map to count values in"
            raise RuntimeError(message)
        found, weights = lifted
        names = [None if value is None else encode_key(value) for value in found]
        self._fetch(names, segments, values)
        results: list[Any] = []
        states: list[Any] = []
        before = _comparable(scan.initial[0])
        for number, key in enumerate(segments.keys):
            counted = values.map_of(key)
            if segments.is_fresh[number] and len(counted):
                counted.clear()
            complete = partial(values.fetch_all, [key])
            best = _RunningExtreme(before[number], counted, complete, is_max=self._is_max)
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


class _RunningExtreme:
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
        #: All values there are, in order; made when the best was retracted.
        self._ordered: list[Any] | None = None

    def change(self, value: Any, name: bytes, weight: int) -> None:
        """Add a value, or retract it."""
        before, count = self._counted.count_entry(name, weight)
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


_NULL: Final = "null"


class JsonArrayAgg(RowKernel):
    """JSON_ARRAYAGG: values as they come."""

    def __init__(self, result: pa.DataType, *, absent: bool) -> None:
        super().__init__(pa.list_(pa.string()), result)
        self._absent = absent

    def add(self, value: Any, weight: int, row: tuple[Any, ...]) -> None:
        text = row[0]
        if text is None:
            if self._absent:
                return
            text = _NULL
        if weight > 0:
            value.append(text)
        elif text in value:
            value.remove(text)

    def result_of(self, value: Any) -> Any:
        return f"[{','.join(value)}]"


class JsonObjectAgg(RowKernel):
    """JSON_OBJECTAGG: a key comes once; keys are in order, as in all JSON that is written."""

    def __init__(self, result: pa.DataType, *, absent: bool) -> None:
        pair = pa.struct([("key", pa.string()), ("text", pa.string())])
        super().__init__(pa.list_(pair), result)
        self._absent = absent

    def decoded(self, stored: Any) -> Any:
        return {each["key"]: each["text"] for each in stored}

    def encoded(self, value: Any) -> Any:
        return [{"key": key, "text": text} for key, text in value.items()]

    def add(self, value: Any, weight: int, row: tuple[Any, ...]) -> None:
        key, text = row
        if key is None:
            message = "JSON_OBJECTAGG: a key is NULL, which no key of JSON is"
            raise UserFunctionError(message)
        if text is None and self._absent:
            return
        if weight < 0:
            value.pop(key, None)
        elif key in value:
            message = (
                f"Key '{key}' is already present. Duplicate keys are not allowed in "
                "JSON_OBJECTAGG. Please ensure that keys are unique."
            )
            raise UserFunctionError(message)
        else:
            value[key] = _NULL if text is None else text

    def result_of(self, value: Any) -> Any:
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{serialise(key)}:{value[key]}" for key in keys) + "}"


@dataclass(slots=True)
class _Counts:
    """How often each number is there, and which shares are asked for."""

    counts: dict[float, int]
    shares: list[float] | None


class Percentile(RowKernel):
    """PERCENTILE: exact, with linear interpolation between two neighbours."""

    fresh = ({"numbers": [], "shares": None},)

    def __init__(self, result: pa.DataType) -> None:
        number = pa.struct([("value", pa.float64()), ("count", pa.int64())])
        parts = [("numbers", pa.list_(number)), ("shares", pa.list_(pa.float64()))]
        super().__init__(pa.struct(parts), result)
        self._is_list = pa.types.is_list(result)

    def decoded(self, stored: Any) -> Any:
        counts = {each["value"]: each["count"] for each in stored["numbers"]}
        return _Counts(counts, stored["shares"])

    def encoded(self, value: Any) -> Any:
        numbers = [{"value": each, "count": count} for each, count in value.counts.items()]
        return {"numbers": numbers, "shares": value.shares}

    def add(self, value: Any, weight: int, row: tuple[Any, ...]) -> None:
        number, shares = row[:2]
        if value.shares is None:  # those of all rows are the same
            value.shares = _checked(shares if self._is_list else [shares])
        often = row[2] if len(row) > 2 else 1  # noqa: PLR2004 - with a frequency
        if number is None or often is None or often <= 0:
            return
        key = float(number)
        count = value.counts.get(key, 0) + weight * often
        if count:
            value.counts[key] = count
        else:
            value.counts.pop(key, None)

    def result_of(self, value: Any) -> Any:
        there = [(key, count) for key, count in value.counts.items() if count > 0]
        if not there or not value.shares:
            return None
        there.sort(key=lambda each: (math.isnan(each[0]), each[0]))
        found = [_at(there, share) for share in value.shares]
        return found if self._is_list else found[0]


def _checked(shares: Iterable[float | None] | None) -> list[float]:
    found = []
    for share in shares or ():
        if share is None or not 0.0 <= share <= 1.0:
            message = f"Percentage of PERCENTILE should be between [0.0, 1.0], but was '{share}'."
            raise UserFunctionError(message)
        found.append(share)
    return found


def _at(there: list[tuple[float, int]], share: float) -> float:
    """The number at a share of all, which are in order."""
    total = sum(count for _, count in there)
    position = share * (total - 1) + 1
    lower, higher = math.floor(position), math.ceil(position)
    at, before = 0, there[0][1]
    while before < lower:
        at += 1
        before += there[at][1]
    if before >= higher:
        return there[at][0]
    return (higher - position) * there[at][0] + (position - lower) * there[at + 1][0]


class Lag(RowKernel):
    """LAG: the value so many rows before this one; of OVER alone, over rows that only come."""

    fresh = ({"values": [], "offset": 0, "default": None},)

    def __init__(self, kind: pa.DataType) -> None:
        kept = [("values", pa.list_(kind)), ("offset", pa.int32()), ("default", kind)]
        super().__init__(pa.struct(kept), kind)

    def add(self, value: Any, weight: int, row: tuple[Any, ...]) -> None:
        del weight  # of rows that are never retracted
        value["offset"], value["default"] = row[1], row[2]
        kept = value["values"]
        kept.append(row[0])
        del kept[: -row[1] - 1]

    def result_of(self, value: Any) -> Any:
        kept, offset = value["values"], value["offset"]
        return kept[-offset - 1] if len(kept) > offset else value["default"]


class BitmapCounts:
    """How often each integer is there: bit by bit, as bitmaps."""

    __slots__ = ("planes",)

    def __init__(self, planes: list[BitMap]) -> None:
        """Take the bitmaps, which are changed.

        Args:
            planes: of the bits of the counts, the lowest first; the last is of their signs.
        """
        self.planes = planes or [BitMap()]

    def add(self, bitmap: BitMap) -> None:
        """Count each integer of a bitmap once more."""
        self._step(bitmap, lambda plane, carry: plane & carry)

    def retract(self, bitmap: BitMap) -> None:
        """Count each integer of a bitmap once less."""
        self._step(bitmap, lambda plane, borrow: borrow - plane)

    def _step(self, bitmap: BitMap, rest: Callable[[BitMap, BitMap], BitMap]) -> None:
        planes = self.planes
        planes.append(BitMap(planes[-1]))  # one more bit, so that no sign is lost
        for plane in planes:
            if not bitmap:
                break
            following = rest(plane, bitmap)
            plane.symmetric_difference_update(bitmap)
            bitmap = following
        while len(planes) > 1 and planes[-1] == planes[-2]:
            planes.pop()

    def positive(self) -> BitMap:
        """The integers that are there at least once."""
        return BitMap.union(BitMap(), *self.planes[:-1]) - self.planes[-1]

    def equal_to(self, count: int) -> BitMap:
        """The integers that are there just so often; ``count`` is above zero."""
        *bits, sign = self.planes
        if count.bit_length() > len(bits):
            return BitMap()
        found = BitMap(bits[count.bit_length() - 1])
        for number, plane in enumerate(bits):
            if count >> number & 1:
                found &= plane
            else:
                found -= plane
        return found - sign


@dataclass(slots=True)
class _Bitmaps:
    """Bitmaps of a key: how many came, and all in one or their ``BitmapCounts``."""

    count: int
    bitmaps: list[BitMap]


class BitmapKernel(RowKernel):
    """BITMAP_BUILD_AGG of integers; BITMAP_AND_AGG, BITMAP_OR_AGG, BITMAP_XOR_AGG of bitmaps.

    NULL is left out; the result is NULL only if there is nothing else.  Where rows may be retracted
    integers are counted, but for XOR, which retracts a bitmap as it adds it.

    Args:
        operation: BUILD, AND, OR or XOR.
        result: the type: bytes, or a number for the cardinality.
        retracts: whether rows may be retracted.
    """

    fresh = ({"count": 0, "bitmaps": []},)

    def __init__(self, operation: str, result: pa.DataType, *, retracts: bool) -> None:
        state = pa.struct([("count", pa.int64()), ("bitmaps", pa.list_(pa.binary()))])
        super().__init__(state, result)
        self._operation = operation
        in_place: dict[str, Callable[[Any, Any], Any]] = {"AND": iand, "XOR": ixor}
        self._combine = in_place.get(operation, ior)
        self._counts = retracts and operation != "XOR"
        self._is_cardinality = pa.types.is_integer(result)

    def decoded(self, stored: Any) -> Any:
        return _Bitmaps(stored["count"], [bitmap_of_bytes(each) for each in stored["bitmaps"]])

    def encoded(self, value: Any) -> Any:
        return {"count": value.count, "bitmaps": [bitmap_bytes(each) for each in value.bitmaps]}

    def add(self, value: Any, weight: int, row: Any) -> None:
        given = row[0]
        if given is None:
            return
        value.count += weight
        builds = self._operation == "BUILD"
        bitmap = BitMap((unsigned(given),)) if builds else bitmap_of_bytes(given)
        if self._counts:
            counts = BitmapCounts(value.bitmaps)
            change = counts.add if weight > 0 else counts.retract
            change(bitmap)
            value.bitmaps = counts.planes
        elif value.bitmaps:
            value.bitmaps[0] = self._combine(value.bitmaps[0], bitmap)
        else:
            value.bitmaps = [bitmap]

    def result_of(self, value: Any) -> Any:
        found = self._bitmap(value)
        if found is None:
            return None
        return len(found) if self._is_cardinality else bitmap_bytes(found)

    def _bitmap(self, value: Any) -> BitMap | None:
        builds = self._operation == "BUILD"
        if not value.bitmaps or (value.count <= 0 and not builds):
            return None
        found: BitMap = value.bitmaps[0]
        if self._counts:
            counts = BitmapCounts(value.bitmaps)
            is_and = self._operation == "AND"
            found = counts.equal_to(value.count) if is_and else counts.positive()
        return found or None if builds else found


# -- functions of users ---


def check_user_aggregate(aggregate: UserAggregate, *, retracts: bool, merges: bool) -> None:
    """Refuse a function that lacks what it is wanted for.

    Args:
        aggregate: the function.
        retracts: whether rows may be retracted.
        merges: whether accumulators are put together.

    Raises:
        ProgramError: it has no ``retract``, or no ``merge``.
    """
    if retracts and not aggregate.retracts:
        message = f"{aggregate.name} aggregates rows that are retracted, so it needs retract()"
        raise ProgramError(message)
    if merges and not aggregate.merges:
        message = f"{aggregate.name} aggregates session windows, which join: it needs merge()"
        raise ProgramError(message)


def user_kernel(
    aggregate: UserAggregate, arguments: Sequence[LogicalType], result: LogicalType
) -> UserKernel:
    """Make the kernel of a function.

    Args:
        aggregate: the function.
        arguments: types of its arguments.
        result: type of its result.
    """
    made = _PandasKernel if aggregate.kind == "pandas" else UserKernel
    return made(aggregate, arguments, result)


class UserKernel(RowKernel):
    """An object with ``create_accumulator``, ``accumulate`` and ``get_value``."""

    fresh = (None,)

    def __init__(
        self, aggregate: UserAggregate, arguments: Sequence[LogicalType], result: LogicalType
    ) -> None:
        super().__init__(pa.binary(), result.to_arrow())
        self.is_partial = aggregate.merges
        self._aggregate = aggregate
        self._types = arguments
        self._type = result
        self._external = [to_external(each) for each in arguments]
        self._internal = from_external(result)
        self._opened: Any = None
        #: Of the task; set before the function is opened.
        self.runtime: RuntimeContext | None = None

    # -- the function ----------------------------------------------------------------------------

    @property
    def function(self) -> Any:
        """The function, opened before its first use."""
        if self._opened is None:
            self._opened = self._aggregate.function
            open_ = getattr(self._opened, "open", None)
            if open_ is not None:
                open_(FunctionContext(self._aggregate.job_parameters, self.runtime))
            close = getattr(self._opened, "close", None)
            if close is not None:
                # A kernel has no end of its own: it is there as long as its operator.
                weakref.finalize(self, close)
        return self._opened

    def create(self) -> Any:
        """An accumulator of no rows."""
        return self.function.create_accumulator()

    def change(self, accumulator: Any, weight: int, values: tuple[Any, ...]) -> None:
        """Add a row or retract it."""
        external = [make(value) for make, value in zip(self._external, values, strict=True)]
        method = self.function.accumulate if weight > 0 else self.function.retract
        method(accumulator, *external)

    def merge(self, accumulator: Any, others: list[Any]) -> None:
        """Put other accumulators into one."""
        self.function.merge(accumulator, others)

    def value(self, accumulator: Any) -> Any:
        """The result of an accumulator, as tables have it."""
        if not self._aggregate.gives_rows:
            return self._internal(self.function.get_value(accumulator))
        rows = self.function.emit_value(accumulator) or ()
        assert isinstance(self._type, ArrayType)  # noqa: S101 - made so
        return self._internal(
            [row if isinstance(row, tuple | list | Row) else (row,) for row in rows]
        )

    # -- the kernel ------------------------------------------------------------------------------

    def lift(self, rows: Rows) -> list[Any]:
        columns = [
            values_of_column(column, kind)
            for column, kind in zip(rows.arguments, self._types, strict=True)
        ]
        values = zip(*columns, strict=True) if columns else iter([()] * len(rows.weights))
        weights = zip(rows.counted.tolist(), rows.weights.tolist(), strict=True)
        return [
            [
                (weight, value) if counted else None
                for (counted, weight), value in zip(weights, values, strict=True)
            ]
        ]

    def run(self, lifted: list[Any], scan: Scan) -> tuple[pa.Array, list[pa.Array]]:
        steps = lifted[0]
        if isinstance(steps, pa.Array):  # accumulators, which are merged
            steps = [None if each is None else (0, each) for each in steps.to_pylist()]
        return super().run([steps], scan)

    def decoded(self, stored: Any) -> Any:
        return self.create() if stored is None else loads(stored)

    def encoded(self, value: Any) -> Any:
        return dumps(value)

    def add(self, value: Any, weight: int, row: Any) -> None:
        if weight:
            self._guarded(self.change, value, weight, row)
        else:
            self._guarded(self.merge, value, [loads(row)])

    def result_of(self, value: Any) -> Any:
        return self._guarded(self.value, value)

    def _guarded(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:
            message = f"aggregate function {self._aggregate.name}: {type(error).__name__}: {error}"
            raise UserFunctionError(message) from error

    def results(self, states: list[pa.Array]) -> pa.Array:
        found = [
            None if kept is None else self._guarded(self.value, loads(kept))
            for kept in states[0].to_pylist()
        ]
        return self.column(found)

    def column(self, results: list[Any]) -> pa.Array:
        return column_of(results, self._type)


class _PandasKernel(UserKernel):
    """A function of Series, and of DataFrames of rows; what is kept is all rows.

    An AggregateFunction is given them all at once, and an accumulator of its own for each result.
    """

    def _called(self, series: list[Any]) -> Any:
        function = self.function
        if not all(hasattr(function, each) for each in AGGREGATE_METHODS):
            return getattr(function, "eval", function)(*series)
        accumulator = function.create_accumulator()
        function.accumulate(accumulator, *series)
        return function.get_value(accumulator)

    def create(self) -> Any:
        return []

    def change(self, accumulator: Any, weight: int, values: tuple[Any, ...]) -> None:
        if weight > 0:
            accumulator.append(values)
        else:
            retract_value(accumulator, values)

    def merge(self, accumulator: Any, others: list[Any]) -> None:
        for each in others:
            accumulator.extend(each)

    def value(self, accumulator: Any) -> Any:
        columns = zip(*accumulator, strict=True) if accumulator else [()] * len(self._types)
        series = [
            to_pandas(column_of(list(column), kind), kind, is_whole=self._aggregate.is_whole)
            for column, kind in zip(columns, self._types, strict=True)
        ]
        found = self._called(series)
        item = getattr(found, "item", None)
        value = found if item is None else item()
        # Pandas' NaN of no values is NULL, as where functions of Series are scalar.
        return None if isinstance(value, float) and math.isnan(value) else self._internal(value)


# -- functions by name ---


@dataclass(frozen=True)
class _Call:
    """The facts by which the kernel of an aggregate is chosen."""

    arguments: Sequence[pa.DataType]
    result: pa.DataType
    retracts: bool
    ignore_nulls: bool


def _extreme(call: _Call, *, is_max: bool) -> Kernel:
    kind = call.arguments[0]
    if call.retracts:
        return CountedExtreme(kind, is_max=is_max)
    types = pa.types
    if types.is_primitive(kind) and not types.is_decimal(kind) and not types.is_boolean(kind):
        return NumericExtreme(kind, is_max=is_max)
    return Extreme(kind, is_max=is_max)


def _edge(call: _Call, *, is_last: bool) -> Kernel:
    made = KeptEdge if call.retracts else Edge
    return made(call.arguments[0], is_last=is_last)


def _variance(call: _Call, *, sample: bool, root: bool) -> Kernel:
    return Variance(call.result, sample=sample, root=root)


def _array(call: _Call) -> Kernel:
    return ArrayAgg(call.arguments[0], call.result, keeps_nulls=not call.ignore_nulls)


def _bitmaps(call: _Call, *, operation: str) -> Kernel:
    return BitmapKernel(operation, call.result, retracts=call.retracts)


_MAKERS: Final[dict[str, Callable[[_Call], Kernel]]] = {
    "COUNT": lambda call: Count(call.result),
    "SUM": lambda call: Sum(call.arguments[0], call.result),
    "$SUM0": lambda call: SumOrZero(call.arguments[0], call.result),
    "AVG": lambda call: Average(call.arguments[0], call.result),
    "MIN": partial(_extreme, is_max=False),
    "MAX": partial(_extreme, is_max=True),
    "BOOL_AND": partial(_extreme, is_max=False),
    "BOOL_OR": partial(_extreme, is_max=True),
    "FIRST_VALUE": partial(_edge, is_last=False),
    "LAST_VALUE": partial(_edge, is_last=True),
    "STDDEV_POP": partial(_variance, sample=False, root=True),
    "STDDEV_SAMP": partial(_variance, sample=True, root=True),
    "VAR_POP": partial(_variance, sample=False, root=False),
    "VAR_SAMP": partial(_variance, sample=True, root=False),
    "LISTAGG": lambda call: ListAgg(call.result),
    "COLLECT": lambda call: Collect(call.result),
    "ARRAY_AGG": _array,
    "PERCENTILE": lambda call: Percentile(call.result),
    "JSON_ARRAYAGG_NULL_ON_NULL": lambda call: JsonArrayAgg(call.result, absent=False),
    "JSON_ARRAYAGG_ABSENT_ON_NULL": lambda call: JsonArrayAgg(call.result, absent=True),
    "JSON_OBJECTAGG_NULL_ON_NULL": lambda call: JsonObjectAgg(call.result, absent=False),
    "JSON_OBJECTAGG_ABSENT_ON_NULL": lambda call: JsonObjectAgg(call.result, absent=True),
    "LAG": lambda call: Lag(call.result),
    **{
        f"BITMAP_{operation}{cardinality}_AGG": partial(_bitmaps, operation=operation)
        for operation in ("BUILD", "AND", "OR", "XOR")
        for cardinality in ("", "_CARDINALITY")
    },
    "SINGLE_VALUE": lambda call: SingleValue(call.arguments[0]),
}
SUPPORTED_AGGREGATES: Final = frozenset(_MAKERS)


def make_kernel(
    function: str,
    arguments: Sequence[pa.DataType],
    result: pa.DataType,
    *,
    retracts: bool,
    ignore_nulls: bool = False,
) -> Kernel:
    """Make the kernel of an aggregate.

    Args:
        function: its name, in capitals.
        arguments: types of its arguments.
        result: type of its result.
        retracts: whether rows may be retracted.
        ignore_nulls: ARRAY_AGG: whether nulls are left out.

    Raises:
        ProgramError: there is no such aggregate.
    """
    maker = _MAKERS.get(function)
    if maker is None:
        known = ", ".join(sorted(SUPPORTED_AGGREGATES))
        message = f"there is no aggregate {function}; there are {known}"
        raise ProgramError(message)
    return maker(_Call(arguments, result, retracts, ignore_nulls))
