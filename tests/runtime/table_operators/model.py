"""A record-at-a-time interpreter of changelogs, written for being right.

What it is: for each operator of ``runtime/operators/table/`` a class that takes one change after
another, ``(kind, row)``, and returns the changes that it gives.  It follows what Flink's classes
do, keeps everything in lists and dictionaries, and shares no code with the operators.
"""

from __future__ import annotations

from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

__all__ = ["UA", "UB", "Aggregate", "Change", "D", "GroupAggregate", "I", "Row", "materialised"]

I, UB, UA, D = range(4)  # noqa: E741 - as in +I

Row = tuple[Any, ...]
Change = tuple[int, Row]


def is_add(kind: int) -> bool:
    return kind in (I, UA)


def hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(hashable(each) for each in value)
    if isinstance(value, dict):
        return tuple(sorted((name, hashable(each)) for name, each in value.items()))
    return value


def weights(changes: list[Change]) -> Counter[Row]:
    """How often each row is there after all changes."""
    found: Counter[Row] = Counter()
    for kind, row in changes:
        found[hashable(list(row))] += 1 if is_add(kind) else -1
    return found


def materialised(changes: list[Change], key: tuple[int, ...] | None = None) -> Counter[Row]:
    """The table after all changes; with a key, +U (and +I) replaces what its key had."""
    if key is None:
        found = weights(changes)
        assert all(count >= 0 for count in found.values()), found
        return +found
    table: dict[Any, Row] = {}
    for kind, row in changes:
        at = hashable([row[index] for index in key])
        if is_add(kind):
            table[at] = row
        elif kind == D:
            table.pop(at)
    return Counter(hashable(list(row)) for row in table.values())


class Aggregate:
    """One aggregate of the values that are there, in the order in which they came."""

    def __init__(
        self,
        function: str,
        argument: int | None = None,
        *,
        condition: int | None = None,
        distinct: bool = False,
        digits: int = 0,
        bits: int = 64,
        separator: str = ",",
    ) -> None:
        self.function = function
        self.argument = argument
        self.condition = condition
        self.distinct = distinct
        #: Of a decimal average.
        self.digits = digits
        self.bits = bits
        self.separator = separator

    def value_of(self, row: Row) -> tuple[bool, Any]:
        """Whether a row counts, and what of it."""
        if self.condition is not None and not row[self.condition]:
            return False, None
        return True, None if self.argument is None else row[self.argument]

    def result(self, values: list[Any]) -> Any:
        """Of the values that are there; one taken back was the first that equalled it."""
        if self.argument is None:
            return len(values)
        if self.function != "ARRAY_AGG":
            values = [value for value in values if value is not None]
        if self.distinct:
            values = list({hashable(value): value for value in values}.values())
        return getattr(self, "_" + self.function.lower())(list(values))

    def _wrapped(self, number: Any) -> Any:
        if not isinstance(number, int):
            return number
        half = 1 << (self.bits - 1)
        return (number + half) % (2 * half) - half

    def _count(self, values: list[Any]) -> Any:
        return len(values)

    def _sum(self, values: list[Any]) -> Any:
        return self._wrapped(sum(values)) if values else None

    def _avg(self, values: list[Any]) -> Any:
        if not values:
            return None
        total = sum(values)
        if isinstance(total, Decimal):
            quantum = Decimal(1).scaleb(-self.digits)
            return (total / len(values)).quantize(quantum, ROUND_HALF_UP)
        if isinstance(total, float):
            return total / len(values)
        return abs(total) // len(values) * (1 if total >= 0 else -1)

    def _min(self, values: list[Any]) -> Any:
        return min(values, default=None)

    def _max(self, values: list[Any]) -> Any:
        return max(values, default=None)

    def _first_value(self, values: list[Any]) -> Any:
        return values[0] if values else None

    def _last_value(self, values: list[Any]) -> Any:
        return values[-1] if values else None

    def _listagg(self, values: list[Any]) -> Any:
        return self.separator.join(values) if values else None

    def _array_agg(self, values: list[Any]) -> Any:
        return values or None

    def _collect(self, values: list[Any]) -> Any:
        return sorted(Counter(values).items())

    def _var_pop(self, values: list[Any]) -> Any:
        if not values:
            return None
        mean = sum(values) / len(values)
        return sum((value - mean) ** 2 for value in values) / len(values)

    def _var_samp(self, values: list[Any]) -> Any:
        if len(values) < 2:
            return None
        return self._var_pop(values) * len(values) / (len(values) - 1)

    def _stddev_pop(self, values: list[Any]) -> Any:
        found = self._var_pop(values)
        return None if found is None else found**0.5

    def _stddev_samp(self, values: list[Any]) -> Any:
        found = self._var_samp(values)
        return None if found is None else found**0.5


class GroupAggregate:
    """Flink's GroupAggFunction."""

    def __init__(
        self, keys: tuple[int, ...], aggregates: list[Aggregate], *, update_before: bool = True
    ) -> None:
        self.keys = keys
        self.aggregates = aggregates
        self.update_before = update_before
        #: How many rows a key has, and the values of each aggregate.
        self.rows: dict[Row, int] = {}
        self.values: dict[Row, list[list[Any]]] = {}
        self.ttl = 0
        self.now = 0
        self.written: dict[Row, int] = {}

    def process(self, kind: int, row: Row) -> list[Change]:
        key = tuple(row[index] for index in self.keys)
        if self.ttl and key in self.rows and self.written[key] + self.ttl <= self.now:
            del self.rows[key]
        if key not in self.rows and not is_add(kind):
            return []
        is_first = key not in self.rows
        if is_first:
            self.rows[key], self.values[key] = 0, [[] for _ in self.aggregates]
        before = self._result(key)
        self.rows[key] += 1 if is_add(kind) else -1
        for aggregate, values in zip(self.aggregates, self.values[key], strict=True):
            counts, value = aggregate.value_of(row)
            if counts and is_add(kind):
                values.append(value)
            elif counts:
                values.remove(value)
        after = self._result(key)
        self.written[key] = self.now
        if not self.rows[key]:
            del self.rows[key]
            return [(D, before)]
        if is_first:
            return [(I, after)]
        if before == after and not self.ttl:
            return []
        return ([(UB, before)] if self.update_before else []) + [(UA, after)]

    def _result(self, key: Row) -> Row:
        pairs = zip(self.aggregates, self.values[key], strict=True)
        return (*key, *(aggregate.result(values) for aggregate, values in pairs))


class Deduplicate:
    """One row per key, by Flink's DeduplicateFunctionHelper."""

    def __init__(
        self,
        keys: tuple[int, ...],
        *,
        keep_last: bool,
        rowtime: int | None = None,
        update_before: bool = True,
        generate_insert: bool = True,
    ) -> None:
        self.keys = keys
        self.keep_last = keep_last
        self.rowtime = rowtime
        self.update_before = update_before
        self.generate_insert = generate_insert
        self.kept: dict[Row, Row] = {}

    def process(self, kind: int, row: Row) -> list[Change]:
        key = tuple(row[index] for index in self.keys)
        before = self.kept.get(key)
        if not is_add(kind):
            return [] if self.kept.pop(key, None) is None else [(D, before or ())]
        if before is not None and not self._replaces(before, row):
            return []
        self.kept[key] = row
        if before is None:
            return [(I if self.update_before or self.generate_insert else UA, row)]
        return ([(UB, before)] if self.update_before else []) + [(UA, row)]

    def _replaces(self, before: Row, row: Row) -> bool:
        if self.rowtime is None:
            return self.keep_last and before != row
        if self.keep_last:
            return bool(before[self.rowtime] <= row[self.rowtime])
        return bool(row[self.rowtime] < before[self.rowtime])


class SinkMaterializer:
    """Flink's SinkUpsertMaterializer."""

    def __init__(self, keys: tuple[int, ...], upsert_key: tuple[int, ...] | None) -> None:
        self.keys = keys
        self.upsert_key = upsert_key
        self.rows: dict[Row, list[Row]] = {}

    def _name(self, row: Row) -> Row:
        return row if not self.upsert_key else tuple(row[index] for index in self.upsert_key)

    def process(self, kind: int, row: Row) -> list[Change]:
        rows = self.rows.setdefault(tuple(row[index] for index in self.keys), [])
        at = next((i for i, each in enumerate(rows) if self._name(each) == self._name(row)), None)
        if is_add(kind):
            out = [(UA if rows else I, row)]
            if self.upsert_key and at is not None:
                rows[at] = row
            else:
                rows.append(row)
            return out
        if at is None:
            return []
        was_last = at == len(rows) - 1
        del rows[at]
        if not rows:
            return [(D, row)]
        return [(UA, rows[-1])] if was_last else []


class TopN:
    """The rows of a key in order; changes by number, or rows that come and go."""

    def __init__(
        self,
        keys: tuple[int, ...],
        order: list[tuple[int, bool]],
        start: int,
        end: int,
        *,
        output_rank: bool,
        update_before: bool = True,
    ) -> None:
        self.keys = keys
        self.order = order
        self.start = start
        self.end = end
        self.output_rank = output_rank
        self.update_before = update_before
        self.by_number = output_rank or start > 1
        self.rows: dict[Row, list[Row]] = {}

    def place(self, row: Row) -> tuple[Any, ...]:
        """What rows are compared by; null is the lowest."""
        parts = []
        for index, descending in self.order:
            value = row[index]
            rank = (0, 0) if value is None else (1, value)
            parts.append((-rank[0], -rank[1]) if descending else rank)
        return tuple(parts)

    def change(self, kind: int, row: Row, number: int) -> list[Change]:
        if not self.start <= number <= self.end or (kind == UB and not self.update_before):
            return []
        return [(kind, (*row, number) if self.output_rank else row)]

    def process(self, kind: int, row: Row) -> list[Change]:
        key = tuple(row[index] for index in self.keys)
        before = self.rows.setdefault(key, [])
        after = list(before)
        if is_add(kind):
            after = sorted([*before, row], key=self.place)
        elif row in before:
            after.remove(row)
        self.rows[key] = after
        at = next(
            (
                number
                for number, (one, other) in enumerate(zip(before, after, strict=False))
                if one is not other
            ),
            min(len(before), len(after)),
        )
        return self._numbers(before, after, at) if self.by_number else self._rows(before, after)

    def _numbers(self, before: list[Row], after: list[Row], at: int) -> list[Change]:
        out = []
        for number in range(at, min(len(before), len(after))):
            out += self.change(UB, before[number], number + 1)
            out += self.change(UA, after[number], number + 1)
        if len(after) > len(before):
            out += self.change(I, after[-1], len(after))
        elif len(after) < len(before):
            out += self.change(D, before[-1], len(before))
        return out

    def _rows(self, before: list[Row], after: list[Row]) -> list[Change]:
        one, other = before[: self.end], after[: self.end]
        gone = [(D, row) for row in one if all(row is not each for each in other)]
        came = [(I, row) for row in other if all(row is not each for each in one)]
        return gone + came


class TopNOfUpdates(TopN):
    """Rows with a key; what falls out of the first END is forgotten."""

    def __init__(self, row_key: tuple[int, ...], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.row_key = row_key

    def process(self, kind: int, row: Row) -> list[Change]:
        key = tuple(row[index] for index in self.keys)
        rows = self.rows.setdefault(key, [])
        name = [row[index] for index in self.row_key]
        found = [each for each in rows if [each[index] for index in self.row_key] == name]
        if not found:
            if len(rows) >= self.end and self.place(row) >= self.place(rows[self.end - 1]):
                return []
            out = super().process(kind, row)
            self.rows[key] = self.rows[key][: self.end]
            return out
        old = found[0]
        was = next(i for i, each in enumerate(rows) if each is old)
        if self.place(row) == self.place(old):
            rows[was] = row
            now = was
        else:
            rest = [each for each in rows if each is not old]
            self.rows[key] = after = sorted([*rest, row], key=self.place)
            now = next(i for i, each in enumerate(after) if each is row)
        if not self.by_number:
            return self.change(UB, old, 1) + self.change(UA, row, 1)
        out = []
        after = self.rows[key]
        for number in range(now, was):
            out += self.change(UB, rows[number], number + 1)
            out += self.change(UB, old, was + 1) if number == now else []
            out += self.change(UA, after[number], number + 1)
        out += self.change(UB, old, was + 1) if now == was else []
        return out + self.change(UA, after[was], was + 1)


class Join:
    """Flink's regular joins.  The order of the pairs of one row is not defined: it is sorted."""

    def __init__(
        self,
        kind: str,
        keys: tuple[tuple[int, ...], tuple[int, ...]],
        widths: tuple[int, int],
        condition: Any = None,
        *,
        null_equals_null: bool = False,
    ) -> None:
        self.kind = kind
        self.keys = keys
        self.widths = widths
        self.condition = condition
        self.null_equals_null = null_equals_null
        self.rows: tuple[list[Row], list[Row]] = ([], [])

    def matches(self, left: Row, right: Row) -> bool:
        one = [left[index] for index in self.keys[0]]
        other = [right[index] for index in self.keys[1]]
        if one != other or (None in one and not self.null_equals_null):
            return False
        return self.condition is None or bool(self.condition(left, right))

    def met(self, side: int, row: Row) -> list[Row]:
        """The rows of the other side that this one matches, as often as they are there."""
        pairs = [(row, each) if side == 0 else (each, row) for each in self.rows[1 - side]]
        return [pair[1 - side] for pair in pairs if self.matches(*pair)]

    def process(self, side: int, kind: int, row: Row) -> list[Change]:
        found = self.met(side, row)
        counts = {hashable(list(each)): len(self.met(1 - side, each)) for each in found}
        own = self.rows[side]
        if is_add(kind):
            own.append(row)
        else:
            own.remove(row)
        if self.kind in ("semi", "anti"):
            return self._half(side, kind, row, found, counts)
        return self._pairs(side, kind, row, found, counts)

    def _half(
        self, side: int, kind: int, row: Row, found: list[Row], counts: dict[Row, int]
    ) -> list[Change]:
        is_anti = self.kind == "anti"
        if side == 0:
            return [(kind, row)] if bool(found) is not is_anti else []
        edge = 0 if is_add(kind) else 1
        if is_anti:
            kind = D if is_add(kind) else I
        return sorted(
            ((kind, each) for each in found if counts[hashable(list(each))] == edge), key=repr
        )

    def _pairs(
        self, side: int, kind: int, row: Row, found: list[Row], counts: dict[Row, int]
    ) -> list[Change]:
        outer = {"left": (True, False), "right": (False, True), "full": (True, True)}.get(
            self.kind, (False, False)
        )
        adds = is_add(kind)
        if any(outer):
            if outer[side] or adds:
                kind = I if adds else D
            if outer[side] and not found:
                return [(kind, self._joined(side, row, None))]
        out: list[Change] = []
        for each in found:
            if outer[1 - side] and counts[hashable(list(each))] == (0 if adds else 1):
                out.append((D if adds else I, self._joined(1 - side, each, None)))
            out.append((kind, self._joined(side, row, each)))
        return sorted(out, key=repr)

    def _joined(self, side: int, row: Row, other: Row | None) -> Row:
        padded = (None,) * self.widths[1 - side] if other is None else other
        return (*row, *padded) if side == 0 else (*padded, *row)
