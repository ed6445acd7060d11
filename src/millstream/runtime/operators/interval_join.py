"""The interval join of keyed streams, as Flink's IntervalJoinOperator.

A left record at ``t`` matches every right record from ``t + lower`` to ``t + upper``; each side is
kept until no record that is still on time can match it.

Each side is a map per key from a *slice* of time to the records in it, in order of time.  A slice
is half as long as the interval, so a record reads at most four slices, whose names are known in
advance: a whole batch reads what it needs of both sides in two multi-gets.  A slice has one timer,
which removes it when its last record is over.  Records in it that are over before that are
skipped, so they are never observable.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort_right
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, cast

import numpy as np

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.contracts.operator import FUNCTION_STATES, StateSection
from millstream.errors import ProgramError
from millstream.functions.descriptors import MapStateDescriptor
from millstream.functions.functions import ProcessJoinFunction
from millstream.runtime.operators.base import (
    LONGEST_BATCH,
    Collector,
    KeyedOperator,
    KeyExtractor,
)
from millstream.runtime.user_code import bound_method, user_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, RestoreContext
    from millstream.state.key_codec import KeyTypes
    from millstream.state.list_state import KeyedMapState


#: (timestamp, record), with a third part if the watermark had reached just that timestamp before.
_Entry: TypeAlias = "tuple[int, Any] | tuple[int, Any, bool]"
_timestamp: Final = itemgetter(0)
_SLICES_PER_INTERVAL: Final = 2
_LEFT, _RIGHT = 0, 1


class _Context(ProcessJoinFunction.Context):
    """One object reused for all pairs of an operator."""

    __slots__ = ("left", "right")

    def __init__(self) -> None:
        self.left = self.right = MIN_TIMESTAMP

    def get_left_timestamp(self) -> int:
        return self.left

    def get_right_timestamp(self) -> int:
        return self.right

    def get_timestamp(self) -> int:
        return max(self.left, self.right)


class _Side:
    """One input: its keys, its bounds and its buffer."""

    def __init__(
        self,
        name: str,
        selector: Any,
        lower: int,
        upper: int,
        late_tag: str | None,
        key_types: KeyTypes,
    ) -> None:
        self.name = name
        self.extractor = KeyExtractor(selector, key_types)
        #: A record at t matches records of the other side in ``[t + lower, t + upper]``.
        self.lower = lower
        self.upper = upper
        self.late_tag = late_tag
        self.buffer: KeyedMapState
        #: How long a record is kept after its own timestamp.
        self.kept = max(upper, 0)


class IntervalJoinOperator(KeyedOperator):
    """Joins two keyed streams within an interval of time."""

    counted: ClassVar[Mapping[str, str]] = {
        **KeyedOperator.counted,
        "numLateRecordsDropped": "late_dropped",
    }

    def __init__(
        self,
        function: Any,
        key_selectors: tuple[Any, Any],
        bounds: tuple[int, int],
        late_tags: tuple[str | None, str | None],
    ) -> None:
        """Take what the API collected; the bounds are inclusive, in milliseconds."""
        super().__init__(function, key_selectors[_LEFT])
        lower, upper = bounds
        self._sides = (
            _Side("left", key_selectors[_LEFT], lower, upper, late_tags[_LEFT], self.key_types),
            _Side(
                "right", key_selectors[_RIGHT], -upper, -lower, late_tags[_RIGHT], self.key_types
            ),
        )
        self._slice = _slice_of(bounds)
        self._process = bound_method(self.function, "process_element")
        self._context = _Context()
        self._collector = Collector(self, self.emit)
        self.watermark = MIN_TIMESTAMP
        self.late_dropped = 0

    def user_functions(self) -> Iterable[object]:
        functions = [each for side in self._sides for each in side.extractor.functions]
        return (self.function, *functions)

    def open(self) -> None:
        """Make the buffers, then open the function."""
        for side in self._sides:
            state = self.keyed_state.get_map_state(MapStateDescriptor(f"\0join.{side.name}"))
            side.buffer = cast("KeyedMapState", state)
        super().open()

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self.watermark = restored.watermark

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Keep the records of one side and join them to what is kept of the other."""
        self.records_in += len(batch)
        side, other = self._sides[input_index], self._sides[1 - input_index]
        batch = self._on_time(batch, side)
        if not len(batch):
            return
        keys = side.extractor.keys(batch, self.context)
        self._prefetch(side, other, keys, batch)
        self._join(side, other, keys, batch, is_left=input_index == _LEFT)
        self._collector.flush()

    def process_watermark(self, watermark: int) -> None:
        """Remove what is over, then pass the watermark on."""
        self.watermark = watermark
        set_key = self.keyed_state.set_current_key
        for _, key, namespace in self.keyed_state.timers.advance_event_time(watermark):
            set_key(key)
            time_slice = int.from_bytes(namespace[1:], "big", signed=True)
            self._sides[namespace[0]].buffer.remove(time_slice)
        self.output.emit_watermark(watermark)

    def _on_time(self, batch: Batch, side: _Side) -> Batch:
        """The records that are not late; the others go to the side output or are counted.

        Raises:
            ProgramError: a record has no timestamp.
        """
        timestamps = batch.timestamp_array
        if len(batch) and int(timestamps.min()) == MIN_TIMESTAMP:
            message = (
                f"operator {self.context.name!r} ({self.context.location}): a record without a "
                f"timestamp reached the {side.name} side of an interval join; give its source a "
                "WatermarkStrategy with a timestamp assigner, or call "
                "assign_timestamps_and_watermarks()"
            )
            raise ProgramError(message)
        is_late = timestamps < self.watermark
        late = np.flatnonzero(is_late)
        if not len(late):
            return batch
        if side.late_tag is None:
            self.late_dropped += len(late)
        else:
            self.output.emit_side(side.late_tag, batch.take(late))
        return batch.take(np.flatnonzero(~is_late))

    def _prefetch(self, side: _Side, other: _Side, keys: list[Any], batch: Batch) -> None:
        """Read the slices of both sides that the batch is going to touch, in one go each."""
        short = self.prefetch(keys)
        stamps = batch.timestamp_array
        own = stamps // self._slice
        first, last = (stamps + side.lower) // self._slice, (stamps + side.upper) // self._slice
        written = {
            (of, time_slice): key
            for of, time_slice, key in zip(short, own.tolist(), keys, strict=True)
        }
        read = {
            (of, time_slice): key
            for of, start, stop, key in zip(short, first.tolist(), last.tolist(), keys, strict=True)
            for time_slice in range(start, stop + 1)
        }
        for buffer, wanted in ((side.buffer, written), (other.buffer, read)):
            buffer.prefetch_entries([(key, time_slice) for (_, time_slice), key in wanted.items()])

    def _join(
        self, side: _Side, other: _Side, keys: list[Any], batch: Batch, *, is_left: bool
    ) -> None:
        set_key, length = self.keyed_state.set_current_key, self._slice
        get, lower, upper = other.buffer.get, side.lower, side.upper
        for key, value, stamp in zip(keys, batch.values, batch.timestamp_list, strict=True):
            set_key(key)
            # Kept before it is joined, and joined to the other side only: each pair is found once,
            # by whichever of the two comes later.
            self._keep(side, key, value, stamp)
            at_watermark = stamp == self.watermark
            first = stamp + lower
            if at_watermark and lower < 0:
                first += 1  # the other's record there was over when the watermark came
            for time_slice in range(first // length, (stamp + upper) // length + 1):
                entries: list[_Entry] | None = get(time_slice)
                if not entries:
                    continue
                start = bisect_left(entries, first, key=_timestamp)
                stop = bisect_right(entries, stamp + upper, lo=start, key=_timestamp)
                found: Iterable[_Entry] = entries[start:stop]
                if at_watermark and lower == 0:
                    # Over as well, but for those that came after the watermark.
                    found = [each for each in found if each[0] > stamp or len(each) > 2]  # noqa: PLR2004
                if found:
                    self._emit_pairs(value, stamp, found, is_left=is_left)

    def _keep(self, side: _Side, key: Any, value: Any, stamp: int) -> None:
        """Put a record into its slice."""
        time_slice = stamp // self._slice
        entries: list[_Entry] | None = side.buffer.get(time_slice)
        if entries is None:
            entries = []
            # One timer per slice, not per record; it goes when the last record that could be in it
            # is over.
            end = (time_slice + 1) * self._slice - 1 + side.kept
            namespace = bytes([self._sides.index(side)]) + time_slice.to_bytes(
                8, "big", signed=True
            )
            self.keyed_state.timers.register_event_time(key, namespace, end)
        entry: _Entry = (stamp, value, True) if stamp == self.watermark else (stamp, value)
        if entries and stamp < entries[-1][0]:
            insort_right(entries, entry, key=_timestamp)
        else:
            entries.append(entry)
        side.buffer.put(time_slice, entries)

    def _emit_pairs(
        self,
        value: Any,
        stamp: int,
        found: Iterable[_Entry],
        *,
        is_left: bool,
    ) -> None:
        """Call the function for a record and each of those it matches."""
        process, context, collector = self._process, self._context, self._collector
        left = right = value
        for entry in found:
            if is_left:
                right, context.left, context.right = entry[1], stamp, entry[0]
            else:
                left, context.left, context.right = entry[1], entry[0], stamp
            try:
                result = process(left, right, context)
                if result is not None:
                    collector.collect(result, max(stamp, entry[0]))
            except Exception as error:
                key = self.keyed_state.current_key
                raise user_error(
                    self.context, error, (left, right), doing="joining", key=key
                ) from error
        if len(collector.values) >= LONGEST_BATCH:
            collector.flush()


def _slice_of(bounds: tuple[int, int]) -> int:
    """Return the length of a slice of time in milliseconds, by which records are found."""
    lower, upper = bounds
    return max(1, (upper - lower + 1) // _SLICES_PER_INTERVAL)


@dataclass
class IntervalJoinFactory:
    """Factory of interval join operators."""

    function: Any
    #: Of the left and of the right side.
    key_selectors: tuple[Any, Any]
    #: Inclusive, in milliseconds.
    bounds: tuple[int, int]
    #: Tags of the side outputs for late records of the left and of the right side.
    late_tags: tuple[str | None, str | None] = (None, None)
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        details = {"slices of": f"{_slice_of(self.bounds)} ms"}
        joined = StateSection("records to be joined", "by key, then slice of time", details=details)
        return [joined, FUNCTION_STATES]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return IntervalJoinOperator(self.function, self.key_selectors, self.bounds, self.late_tags)
