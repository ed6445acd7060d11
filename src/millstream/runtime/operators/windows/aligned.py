"""Tumbling and sliding event-time windows with user functions, and their accumulators.

Flink's semantics: a record is added to each of its windows; a window fires for all keys when the
watermark reaches its largest timestamp, which is also the timestamp of its results; within the
allowed lateness a late record fires its window again at once; later records go to the late side
output or are counted.

A batch is cut by window, because windows do not depend on each other; each part is then added in
one tight loop.
"""

from __future__ import annotations

from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from millstream.runtime.operators.base import LONGEST_BATCH
from millstream.runtime.operators.windows.assignment import (
    WindowClock,
    check_timestamps,
    drop_late,
)
from millstream.runtime.operators.windows.contents import AlignedContents
from millstream.runtime.operators.windows.generic import MOST_IN_MEMORY, GeneralWindowOperator
from millstream.runtime.operators.windows.state_migration import ALIGNED
from millstream.runtime.user_code import user_error
from millstream.state.key_codec import uncache_key
from millstream.state.namespaced_state import ABSENT
from millstream.state.serializers import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import RestoreContext
    from millstream.functions.window_assigners import FixedEventTimeWindows
    from millstream.state.key_codec import CacheKey


#: Keys of a window that are evaluated before results are sent on.
_KEYS_AT_ONCE: Final = 8192


class AlignedWindowOperator(GeneralWindowOperator):
    """Tumbling and sliding windows that fire by the watermark alone, for all keys at once."""

    layout: ClassVar[str] = ALIGNED

    def make_contents(self) -> None:
        """Keep content by window, then key, and no timers."""
        content = self.section.details["content"]
        self._aligned = AlignedContents(self.keyed_state, content, lists=self._logic.lists)
        self._clock = WindowClock(self._lateness)

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._clock.restore(restored.watermark, self._aligned.begin_epoch())

    def adopt(self, key: CacheKey, window: Any, content: Any) -> None:
        """Take over a window of another layout; what is over ends with the next watermark."""
        if content is not ABSENT:
            self._aligned.put(key, window.max_timestamp(), content)
        if self._aligned.cached > MOST_IN_MEMORY:
            self.keyed_state.flush()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        count = len(batch)
        if not count:
            return
        self.records_in += count
        timestamps = batch.timestamp_array
        check_timestamps(self, timestamps)
        cache_keys = self.keyed_state.cache_keys(self.extractor.keys(batch, self.context))
        if self.keyed_state.is_used_behind_snapshots:
            self.keyed_state.make_room(count)
        values = batch.values
        accepted: NDArray[np.bool_] | None = None
        for window, positions in pieces(self._assigner, timestamps):
            if self._clock.is_late(window):
                continue
            if isinstance(positions, slice):
                self._add_all(window, cache_keys, values)
                return  # all records are in this one window
            picked = positions.tolist()
            self._add_all(window, [cache_keys[i] for i in picked], [values[i] for i in picked])
            if accepted is None:
                accepted = np.zeros(count, dtype=np.bool_)
            accepted[positions] = True
        late = np.arange(count) if accepted is None else np.flatnonzero(~accepted)
        if len(late):
            horizon = self.watermark - self._lateness
            self.late_dropped += drop_late(self, batch, late, horizon, self._late_tag)

    def process_watermark(self, watermark: int) -> None:
        """Fire and clean up the windows that are due, then pass the watermark on."""
        self._context.watermark = watermark
        for window, is_firing in self._clock.advance(watermark):
            if is_firing:
                self._fire_window(window, self._aligned.content(window))
                self._collector.flush()
            else:
                self._clean_up(window)
        self.output.emit_watermark(watermark)

    def _add_all(self, window: int, keys: list[CacheKey], values: list[Any]) -> None:
        self._clock.open(window)
        accumulators = self._aligned.change(window, keys)
        if self._clock.has_fired(window):
            self._add_and_fire(window, accumulators, keys, values)
            return
        position = len(keys)  # the logic's iterator tells how far it came
        iterator = iter(values)
        try:
            self._logic.add_all(accumulators, keys, iterator)
        except Exception as error:
            position -= length_hint(iterator) + 1
            if position < 0:  # none was taken yet
                raise user_error(
                    self.context, error, doing="making an accumulator for a window"
                ) from error
            raise self._failed(error, values[position], keys[position]) from error

    def _add_and_fire(
        self,
        window: int,
        accumulators: dict[CacheKey, Any],
        keys: list[CacheKey],
        values: list[Any],
    ) -> None:
        """Late but allowed: every record fires its window again.

        The accumulator is copied first: what was emitted from it may not be sent yet.
        """
        for key, value in zip(keys, values, strict=True):
            so_far = accumulators.get(key, ABSENT)
            if so_far is not ABSENT and not self._logic.lists:
                accumulators[key] = loads(dumps(so_far))
            try:
                self._logic.add_all(accumulators, [key], iter([value]))
            except Exception as error:
                raise self._failed(error, value, key) from error
            content = self._aligned.one(window, key)
            self._fire_window(window, [(uncache_key(key), content)])
        self._collector.flush()

    def _fire_window(self, window: int, content: Iterable[tuple[Any, Any]]) -> None:
        """Evaluate the window for each (key, accumulator or list)."""
        time_window = self._assigner.window_of_end(window)
        rest = iter(content)
        while some := list(islice(rest, _KEYS_AT_ONCE)):
            self._logic.evaluate_all(some, time_window, self._collector)
            if len(self._collector.values) >= LONGEST_BATCH:
                self._collector.flush()

    def _clean_up(self, window: int) -> None:
        if self._logic.clears:
            time_window = self._assigner.window_of_end(window)
            for key, _accumulated in self._aligned.content(window):
                try:
                    self._logic.clear(key, time_window)
                except Exception as error:
                    raise user_error(
                        self.context, error, doing=f"clearing {time_window}", key=key
                    ) from error
        self._aligned.drop(window)

    def _failed(self, error: Exception, value: object, key: CacheKey) -> Exception:
        return user_error(
            self.context, error, value, doing="adding to a window the", key=uncache_key(key)
        )


def pieces(
    assigner: FixedEventTimeWindows, timestamps: NDArray[np.int64]
) -> Iterator[tuple[int, slice | NDArray[np.int64]]]:
    """Cut a batch by window, in order of time: (largest timestamp, positions in the batch).

    A slice means: all records, and there is no other window.
    """
    starts = assigner.last_starts(timestamps)
    last = assigner.size - 1
    positions = np.arange(len(starts))
    if assigner.slide != assigner.size:
        steps = np.arange(assigner.overlap)[:, None] * assigner.slide
        shifted = starts - steps
        inside = shifted + assigner.size > timestamps
        positions = np.broadcast_to(positions, shifted.shape)[inside]
        starts = shifted[inside]
    elif bool((starts == starts[0]).all()):
        yield int(starts[0]) + last, slice(None)
        return
    if not len(starts):
        return
    order = np.argsort(starts, kind="stable")
    ordered = starts[order]
    bounds = np.flatnonzero(np.diff(ordered)) + 1
    firsts = [0, *bounds.tolist()]
    for first, part in zip(firsts, np.split(positions[order], bounds), strict=True):
        part.sort()  # of a window, those of a later step come first
        yield int(ordered[first]) + last, part
