"""The window operator for user-written functions.

What it is: tumbling and sliding event-time windows with Flink's semantics: a record is added to
each of its windows; a window fires for all keys when the watermark reaches its largest timestamp,
which is also the timestamp of its results; within the allowed lateness a late record fires its
window again at once; what comes later goes to the late side output or is counted.

What it is not: vectorised.  Built-in aggregates are (``columnar.py``).

A batch is cut by window, because windows do not see each other; then each piece is added in one
tight loop.

Read next: ``runtime/operators/windows/clock.py``, ``runtime/operators/windows/accumulators.py``.
"""

from __future__ import annotations

import time
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from millstream.runtime.operators.base import LONGEST_BATCH, Collector
from millstream.runtime.operators.keyed import PLAIN_KEY_TYPES, KeyedOperator, store_of
from millstream.runtime.operators.windows.accumulators import WindowAccumulators
from millstream.runtime.operators.windows.adoption import Adoption, stored_section
from millstream.runtime.operators.windows.clock import WindowClock
from millstream.runtime.operators.windows.late import check_timestamps, drop_late
from millstream.runtime.operators.windows.logic import make_logic
from millstream.runtime.operators.windows.sections import aligned_section
from millstream.runtime.user_code import user_error
from millstream.state import keyed
from millstream.state.key_codec import cache_key, uncache_key
from millstream.state.namespaced_state import ABSENT, NamespacedStates
from millstream.state.serializers import dumps, loads
from millstream.state.window_codec import WindowCodec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        Checkpoint,
        OperatorSnapshot,
        RestoreContext,
        StateSection,
    )
    from millstream.functions.window import TimeWindow
    from millstream.functions.windows import FixedEventTimeWindows
    from millstream.runtime.operators.windows.specs import WindowSpec
    from millstream.state.key_codec import CacheKey

__all__ = [
    "WindowOperator",
]

#: Accumulators that are written ahead of a snapshot in one go.
_WRITTEN_AT_ONCE: Final = 500
#: Keys of a window that are evaluated before results are sent on.
_KEYS_AT_ONCE: Final = 8192


class WindowOperator(KeyedOperator):
    """Windows with a reduce, aggregate, window or process-window function."""

    counted: ClassVar[Mapping[str, str]] = {
        **KeyedOperator.counted,
        "numLateRecordsDropped": "late_dropped",
    }

    def __init__(
        self,
        assigner: FixedEventTimeWindows,
        spec: WindowSpec,
        key_selector: Any,
        allowed_lateness: int = 0,
        late_tag: str | None = None,
    ) -> None:
        """Take what the API collected; the lateness is in milliseconds."""
        super().__init__(spec, key_selector)  # copies the functions within the spec
        self.section = aligned_section(assigner, spec)
        self._spec: WindowSpec = self.function
        self._assigner = assigner
        self._lateness = allowed_lateness
        self._late_tag = late_tag
        self._clock = WindowClock(allowed_lateness)
        self._logic = make_logic(self.function, self)
        self._collector = Collector(self, self.emit)
        self.late_dropped = 0

    def user_functions(self) -> Iterable[object]:
        return (*self._logic.functions, *self.extractor.functions)

    def open(self) -> None:
        """Make the state, then open the functions."""
        self._accumulators = WindowAccumulators(
            self.context.max_parallelism, self.section, lists=self._logic.lists
        )
        self._window_states = NamespacedStates(self.keyed_state, "windows.function")
        self._codec = WindowCodec()
        super().open()

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._store = store_of(restored)
        stored = stored_section(self._store, self.section)
        if stored is not None:
            self._adopt(stored, restored.watermark)
        windows = self._accumulators.begin_epoch(self._store, restored.epoch, restored.attempt)
        self._clock.restore(restored.watermark, windows)
        self.processing_time = restored.processing_time

    def _adopt(self, stored: StateSection, watermark: int) -> None:
        """Keep the windows that another operator kept."""
        store, own, context, fold = self._store, self.section, self.context, self._logic.fold
        declared = (self._assigner, self._spec)
        adoption = Adoption(stored, own, store, watermark, declared, context, fold)
        accumulators = self._accumulators
        accumulators.begin_epoch(self._store, 0, "")  # nothing written from now on has these names
        for number, (key, window, content) in enumerate(adoption.windows()):
            if content is not ABSENT:
                accumulators.change(window.max_timestamp(), [key])[key] = content
            if number % _KEYS_AT_ONCE == 0:
                accumulators.flush()
                accumulators.forget()
        accumulators.flush()
        if stored.layout == self.section.layout:
            accumulators.drop_lists(self._store)
        else:
            adoption.source.drop()
        adoption.drop_timers()
        adoption.drop_states("\0windows.trigger:")
        adoption.finish(self.section)

    def process_processing_time(self, now: int) -> None:
        super().process_processing_time(now)
        self.processing_time = now

    @property
    def watermark(self) -> int:
        """The operator's event time, in milliseconds."""
        return self._clock.watermark

    def window_state(self, window: TimeWindow) -> NamespacedStates:
        """Return state of the current key and ``window``."""
        self._window_states.slot = (self.keyed_state.cache_key, self._codec.encode(window))
        return self._window_states

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        count = len(batch)
        if not count:
            return
        self.records_in += count
        timestamps = batch.timestamp_array
        check_timestamps(self, timestamps)
        keys = self.extractor.keys(batch, self.context)
        cache_keys: list[CacheKey] = (
            keys if set(map(type, keys)) <= PLAIN_KEY_TYPES else list(map(cache_key, keys))
        )
        values = batch.values
        accepted: NDArray[np.bool_] | None = None
        for window, positions in pieces(self._assigner, timestamps):
            if self._clock.is_late(window):
                continue
            if isinstance(positions, slice):
                self._add(window, cache_keys, values)
                return  # all records are in this one window
            picked = positions.tolist()
            self._add(window, [cache_keys[i] for i in picked], [values[i] for i in picked])
            if accepted is None:
                accepted = np.zeros(count, dtype=np.bool_)
            accepted[positions] = True
        late = np.arange(count) if accepted is None else np.flatnonzero(~accepted)
        if len(late):
            self._late(batch, late)

    def process_watermark(self, watermark: int) -> None:
        """Fire and clean up the windows that are due, then pass the watermark on."""
        for window, is_firing in self._clock.advance(watermark):
            if is_firing:
                self._fire(window, self._accumulators.content(window))
                self._collector.flush()
            else:
                self._clean_up(window)
        self.output.emit_watermark(watermark)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        """Write the state through; go on in entries that the next epoch writes."""
        self._accumulators.flush()
        if checkpoint.next_attempt is not None:
            self._accumulators.go_on(checkpoint.epoch + 1, checkpoint.next_attempt)
        else:
            self._accumulators.forget()
        return super().snapshot(checkpoint)

    def write_some(self, deadline: float) -> bool:
        """Write accumulators that have changed, then the states of the function."""
        accumulators = self._accumulators
        while accumulators.unwritten > keyed.MOST_UNWRITTEN and not self._store.is_busy:
            accumulators.flush_some(_WRITTEN_AT_ONCE)
            if time.monotonic() >= deadline:
                return True
        return super().write_some(deadline)

    def _bound_memory(self) -> None:
        """Keep what is in memory behind snapshots within what there is for it."""
        state = self.keyed_state
        if state.is_used_behind_snapshots and self._accumulators.weight > state.share:
            self._accumulators.age()

    def _add(self, window: int, keys: list[CacheKey], values: list[Any]) -> None:
        self._clock.open(window)
        self._bound_memory()
        accumulators = self._accumulators.change(window, keys)
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
            content = self._accumulators.one(window, key)
            self._fire(window, [(uncache_key(key), content)])
        self._collector.flush()

    def _fire(self, window: int, content: Iterable[tuple[Any, Any]]) -> None:
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
            for key, _accumulated in self._accumulators.content(window):
                try:
                    self._logic.clear(key, time_window)
                except Exception as error:
                    raise user_error(
                        self.context, error, doing=f"clearing {time_window}", key=key
                    ) from error
        self._accumulators.drop(window)

    def _late(self, batch: Batch, positions: NDArray[np.int64]) -> None:
        self.late_dropped += drop_late(
            self, batch, positions, self.watermark - self._lateness, self._late_tag
        )

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
    if assigner.slide == assigner.size:
        first = int(starts[0])
        if bool((starts == first).all()):
            yield first + last, slice(None)
            return
        yield from ((start + last, found) for start, found in _groups(starts, None))
        return
    found: list[tuple[int, NDArray[np.int64]]] = []
    for step in range(assigner.overlap):
        shifted = starts - step * assigner.slide
        inside = np.flatnonzero(shifted + assigner.size > timestamps)
        found.extend(_groups(shifted[inside], inside))
    by_window: dict[int, list[NDArray[np.int64]]] = {}
    for start, positions in found:
        by_window.setdefault(start + last, []).append(positions)
    for window in sorted(by_window):
        parts = by_window[window]
        yield window, parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))


def _groups(
    starts: NDArray[np.int64], positions: NDArray[np.int64] | None
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Positions of equal values, in order of value, each in order of the batch."""
    if not len(starts):
        return
    order = np.argsort(starts, kind="stable")
    ordered = starts[order]
    bounds = np.flatnonzero(np.diff(ordered)) + 1
    if positions is not None:
        order = positions[order]
    firsts = [0, *bounds.tolist()]
    for first, part in zip(firsts, np.split(order, bounds), strict=True):
        yield int(ordered[first]), part
