"""The aggregate calls of one table operator: arguments, FILTER, DISTINCT, and packed state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa

from millstream.runtime.columnar.aggregate_kernels import UserKernel, make_kernel, user_kernel
from millstream.runtime.columnar.changelog_aggregates import Rows, Scan, Segments, is_true
from millstream.runtime.columnar.row_groups import codes_of, combined_codes, encoded_keys
from millstream.state.packed_state import PackedMaps, enter_groups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.functions.functions import RuntimeContext
    from millstream.runtime.columnar.changelog_aggregates import Kernel
    from millstream.runtime.operators.table.specs import AggregateCall
    from millstream.state.keyed import KeyedState
    from millstream.state.packed_state import PackedMap, Place
    from millstream.types.logical_types import RowType


#: What DISTINCT aggregates have seen: values of arguments, where a filter holds.
_Seen: TypeAlias = "tuple[tuple[int, ...], int | None]"
#: Aggregates for which DISTINCT changes nothing.
_ALWAYS_DISTINCT: Final = frozenset({"MIN", "MAX"})
#: A count of one.
_ONCE: Final = (1).to_bytes(8, "little")


@dataclass(frozen=True)
class SortedRows:
    """The rows of a batch, brought into the order of their segments."""

    columns: pa.RecordBatch
    #: Positions in the batch.
    order: NDArray[np.int64]
    #: +1 or -1.
    weights: NDArray[np.int64]

    def column(self, index: int) -> pa.Array:
        """Return a column in that order."""
        return self.columns.column(index).take(pa.array(self.order))


def is_distinct(call: AggregateCall) -> bool:
    """Return whether values that were there already change nothing."""
    always = call.user is None and call.function in _ALWAYS_DISTINCT
    return call.distinct and not always


def is_partial_call(call: AggregateCall) -> bool:
    """Return whether its rows may be aggregated apart from others, if its kernel can."""
    return not is_distinct(call)


def _kernel(
    call: AggregateCall, row: RowType, types: list[pa.DataType], *, retracts: bool
) -> Kernel:
    if call.user is not None:
        return user_kernel(call.user, [row.children[i] for i in call.arguments], call.type)
    return make_kernel(
        call.function,
        types,
        call.type.to_arrow(),
        retracts=retracts,
        ignore_nulls=call.ignore_nulls,
    )


class Aggregates:
    """The aggregates of an operator."""

    def __init__(
        self, calls: Sequence[AggregateCall], input_type: RowType, *, retracts: bool
    ) -> None:
        """Make the kernels.

        Raises:
            ProgramError: there is no such aggregate.
        """
        self.calls = calls
        self._retracts = retracts
        types = [field.type for field in input_type.to_arrow_schema()]
        self.kernels: list[Kernel] = [
            _kernel(call, input_type, [types[index] for index in call.arguments], retracts=retracts)
            for call in calls
        ]
        self.fields = [
            pa.field(f"{number}.{part}", kind)
            for number, kernel in enumerate(self.kernels)
            for part, kind in enumerate(kernel.fields)
        ]
        #: What has been seen, per arguments and filter of DISTINCT aggregates.
        self._seen: dict[_Seen, PackedMaps] = {}
        self._values: dict[int, PackedMaps] = {}

    def open(self, keyed: KeyedState, runtime: RuntimeContext | None = None) -> None:
        """Register the maps that DISTINCT, MIN and MAX need beside the packed row.

        Args:
            keyed: where they are registered.
            runtime: of the task, for user functions.
        """
        self.open_functions(runtime)
        for number, (call, kernel) in enumerate(zip(self.calls, self.kernels, strict=True)):
            if kernel.keeps_values:
                name = f"\0values {number} {call.function} {call.arguments} {call.filter}"
                self._values[number] = PackedMaps(keyed, name)
            if is_distinct(call):
                at = (call.arguments, call.filter)
                if at not in self._seen:
                    self._seen[at] = PackedMaps(keyed, f"\0distinct {at}")

    def open_functions(self, runtime: RuntimeContext | None) -> None:
        """Pass the task to user functions; all that ``run_from_scratch`` needs."""
        for kernel in self.kernels:
            if isinstance(kernel, UserKernel):
                kernel.runtime = runtime

    @property
    def fresh(self) -> list[pa.Array]:
        """The state of no rows, as columns of one value each."""
        values = [value for kernel in self.kernels for value in kernel.fresh]
        return [
            pa.array([value], field.type) for value, field in zip(values, self.fields, strict=True)
        ]

    def run(
        self,
        rows: SortedRows,
        segments: Segments,
        initial: list[pa.Array],
        *,
        last_only: bool,
    ) -> tuple[list[pa.Array], list[pa.Array], list[pa.Array]]:
        """Add rows up.

        Returns:
            Results before the segments, results after each row (or segment), and the
            columns of state after each segment.
        """
        masks = {at: self._first_seen(maps, at, rows, segments) for at, maps in self._seen.items()}
        return self.add_up(self._lifted(rows, masks), segments, initial, last_only=last_only)

    def partial(self, rows: SortedRows, starts: NDArray[np.int64]) -> list[pa.Array]:
        """Return the columns of state of runs of rows, each by itself; none may be DISTINCT.

        Args:
            rows: of all runs.
            starts: where each run begins; each row may be one.
        """
        lifted = self._lifted(rows, {})
        if len(starts) == len(rows.order):  # what one row adds is a partial aggregate
            return [column for increments in lifted for column in increments]
        counts = np.diff(np.append(starts, len(rows.order)))
        return self.added_up(lifted, Segments.from_nothing(starts, counts))

    def added_up(self, lifted: list[list[pa.Array]], segments: Segments) -> list[pa.Array]:
        """Return the columns of state after each segment, all of which begin with nothing."""
        return self.add_up(lifted, segments, self.initial(len(segments)), last_only=True)[2]

    def initial(self, count: int) -> list[pa.Array]:
        """Return the state of no rows for so many segments."""
        nothing = pa.array(np.zeros(count, np.int64))
        return [column.take(nothing) for column in self.fresh]

    def parts_of(self, columns: Sequence[pa.Array]) -> list[list[pa.Array]]:
        """Return columns of state as ``add_up`` takes them: those of each aggregate together."""
        found, at = [], 0
        for kernel in self.kernels:
            found.append(list(columns[at : at + len(kernel.fields)]))
            at += len(kernel.fields)
        return found

    def _lifted(
        self, rows: SortedRows, masks: Mapping[_Seen, NDArray[np.bool_]]
    ) -> list[list[pa.Array]]:
        """The increments of rows; ``masks`` are of DISTINCT aggregates."""
        columns: dict[int, pa.Array] = {}
        lifted = []
        for call, kernel in zip(self.calls, self.kernels, strict=True):
            for index in call.arguments:
                if index not in columns:
                    columns[index] = rows.column(index)
            if is_distinct(call):
                counted = masks[call.arguments, call.filter]
            else:
                counted = self._filtered(call.filter, rows)
            arguments = [columns[index] for index in call.arguments]
            lifted.append(kernel.lift(Rows(arguments, counted, rows.weights)))
        return lifted

    def add_up(
        self,
        lifted: list[list[pa.Array]],
        segments: Segments,
        initial: list[pa.Array],
        *,
        last_only: bool,
    ) -> tuple[list[pa.Array], list[pa.Array], list[pa.Array]]:
        """``run`` of increments that are there already, one list of columns per aggregate."""
        before, after, states = [], [], []
        each = zip(self.kernels, lifted, self.parts_of(initial), strict=True)
        for number, (kernel, increments, base) in enumerate(each):
            before.append(kernel.results(base))
            scan = Scan(segments, base, last_only, self._values.get(number))
            found, last = kernel.run(increments, scan)
            after.append(found)
            states.extend(last)
        return before, after, states

    def results(self, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the results of columns of state."""
        parts = zip(self.kernels, self.parts_of(states), strict=True)
        return [kernel.results(part) for kernel, part in parts]

    def of_nothing(self) -> list[pa.Array]:
        """Return the results over no rows, as columns of one value each."""
        return self.results(self.fresh)

    def run_from_scratch(
        self, rows: SortedRows, segments: Segments, *, last_only: bool = False
    ) -> list[pa.Array]:
        """Results after each row (or segment) of segments that begin with nothing.

        No state is kept.
        """
        masks = {}
        for arguments, condition in {
            (call.arguments, call.filter) for call in self.calls if is_distinct(call)
        }:
            columns = [rows.column(index) for index in arguments]
            counted = self._filtered(condition, rows)
            masks[arguments, condition] = _firsts(columns, counted, segments)
        lifted, initial = self._lifted(rows, masks), self.initial(len(segments))
        return self.add_up(lifted, segments, initial, last_only=last_only)[1]

    @staticmethod
    def _filtered(index: int | None, rows: SortedRows) -> NDArray[np.bool_]:
        if index is None:
            return np.ones(len(rows.order), dtype=np.bool_)
        return is_true(rows.column(index))

    def _first_seen(
        self, maps: PackedMaps, at: _Seen, rows: SortedRows, segments: Segments
    ) -> NDArray[np.bool_]:
        """Return which rows bring a value that was not there, or take the last of one away."""
        arguments, condition = at
        counted = self._filtered(condition, rows)
        columns = [rows.column(index) for index in arguments]
        distinct = list(dict.fromkeys(segments.keys))
        if self._retracts or len(distinct) < len(segments):
            changes = self._count(maps, columns, counted, rows.weights, segments)
        else:
            changes = _enter(maps, columns, counted, segments)
        maps.changed(distinct)
        return changes

    def _count(
        self,
        maps: PackedMaps,
        columns: list[pa.Array],
        counted: NDArray[np.bool_],
        of_rows: NDArray[np.int64],
        segments: Segments,
    ) -> NDArray[np.bool_]:
        """Count values; which rows made one come or go."""
        names = encoded_keys(columns)
        keys, fresh = segments.keys, segments.is_fresh.tolist()
        taken = np.flatnonzero(counted).tolist()
        of_row = segments.segment_of.tolist()
        of_taken = [keys[of_row[row]] for row in taken]
        distinct = list(dict.fromkeys(keys))
        number_of = {key: number for number, key in enumerate(distinct)}
        numbers = np.fromiter(map(number_of.__getitem__, of_taken), np.int64, len(of_taken))
        maps.fetch_entries_of(distinct, numbers, [names[row] for row in taken])
        maps.fetch_all([key for key, new in zip(keys, fresh, strict=True) if new])
        changes = np.zeros(len(counted), dtype=np.bool_)
        weights = of_rows.tolist()
        entered = -1
        for row, key in zip(taken, of_taken, strict=True):
            while entered < of_row[row]:  # what a fresh segment finds is of rows that are gone
                entered += 1
                if fresh[entered]:
                    _empty(maps, keys[entered])
            changes[row] = self._has_changed(maps.map_of(key), names[row], weights[row])
        for segment in range(entered + 1, len(keys)):
            if fresh[segment]:
                _empty(maps, keys[segment])
        return changes

    def _has_changed(self, seen: PackedMap, name: bytes, weight: int) -> bool:
        """Count a value; whether it came or went."""
        if not self._retracts and seen.get(name) is not None:
            return False
        return seen.count_entry(name, weight) in ((0, 1), (1, 0))

    def forget(self, keys: Sequence[Place]) -> None:
        """Remove what is kept beside the packed row, of keys that have no rows any more."""
        for maps in (*self._seen.values(), *self._values.values()):
            maps.fetch_all(keys)
            for key in keys:
                _empty(maps, key)
            maps.changed(keys)


def _firsts(
    columns: list[pa.Array], counted: NDArray[np.bool_], segments: Segments
) -> NDArray[np.bool_]:
    """Return which rows that count bring values that their segment has not had yet."""
    parts = [codes_of(column) for column in columns]
    codes, bound = combined_codes([part for part, _ in parts], [len(each) for _, each in parts])
    both, _ = combined_codes([segments.segment_of, codes], [len(segments), max(bound, 1)])
    taken = np.flatnonzero(counted)
    _, firsts = np.unique(both[taken], return_index=True)
    found = np.zeros(len(counted), dtype=np.bool_)
    found[taken[firsts]] = True
    return found


def _enter(
    maps: PackedMaps, columns: list[pa.Array], counted: NDArray[np.bool_], segments: Segments
) -> NDArray[np.bool_]:
    """Note values that nobody retracts; which rows brought one that was not there."""
    firsts = np.flatnonzero(_firsts(columns, counted, segments))
    picked = pa.array(firsts)
    names = encoded_keys([column.take(picked) for column in columns])
    keys = segments.keys
    of_first = segments.segment_of[firsts]
    maps.fetch_entries_of(keys, of_first, names)
    fresh = np.flatnonzero(segments.is_fresh).tolist()
    maps.fetch_all([keys[segment] for segment in fresh])
    for segment in fresh:  # what it finds is of rows that have expired
        _empty(maps, keys[segment])
    changes = np.zeros(len(counted), dtype=np.bool_)
    begins = np.flatnonzero(np.append([True], of_first[1:] != of_first[:-1])[: len(of_first)])
    if len(begins):
        counts = np.diff(np.append(begins, len(firsts)))
        of_names = [keys[segment] for segment in of_first[begins].tolist()]
        changes[firsts] = enter_groups(maps, of_names, counts, names, _ONCE)
    return changes


def _empty(maps: PackedMaps, key: Place) -> None:
    """Let a map that was fetched have no entries."""
    stored = maps.only_bucket(key)
    if type(stored) is bytes:
        maps.set_only_bucket(key, None)
    elif stored is not None:
        seen = maps.map_of(key)
        if len(seen):
            seen.clear()


def can_be_partial(calls: Sequence[AggregateCall], input_type: RowType, *, retracts: bool) -> bool:
    """Return whether partial aggregates can be made of all calls, ahead of the exchange."""
    made = Aggregates(calls, input_type, retracts=retracts)
    return all(kernel.is_partial for kernel in made.kernels) and all(map(is_partial_call, calls))


def partial_fields(
    calls: Sequence[AggregateCall], input_type: RowType, *, retracts: bool
) -> list[pa.Field]:
    """The columns that a local aggregate gives after the keys."""
    made = Aggregates(calls, input_type, retracts=retracts)
    return [pa.field("rows", pa.int64()), *made.fields]
