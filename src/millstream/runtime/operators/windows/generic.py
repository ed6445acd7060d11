"""Windows that are kept by key: any assigner, trigger and evictor, record by record.

Flink's WindowOperator and EvictingWindowOperator.  An element is added to each of its windows that
is not late; the trigger, called after every element and at every timer, decides when a window is
evaluated and purged; a cleanup timer ends the window.  Windows of merging assigners (sessions) are
merged with their content, and the trigger's state and timers with them.

Per batch, the keys are extracted and what is stored of their windows is read at once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from itertools import islice, repeat
from operator import is_not
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from millstream.contracts.batch import MAX_TIMESTAMP, Batch
from millstream.errors import ProgramError
from millstream.functions.triggers import EventTimeTrigger, TimestampedValue, Trigger, TriggerResult
from millstream.functions.window import TimeWindow
from millstream.functions.window_assigners import MergingWindowAssigner
from millstream.runtime.columnar.row_aggregates import RowAggregates
from millstream.runtime.operators.base import LONGEST_BATCH, Collector, KeyedOperator
from millstream.runtime.operators.windows.assignment import Assignment, WindowEntry
from millstream.runtime.operators.windows.contents import (
    Accumulators,
    Contents,
    Elements,
    MergingSets,
    Session,
    SessionSets,
    end_of,
    start_of,
)
from millstream.runtime.operators.windows.logic import (
    WINDOW_TIMERS,
    AggregateSpec,
    AsRow,
    BuiltInSpec,
    WindowTriggerContext,
    make_logic,
)
from millstream.runtime.operators.windows.state_migration import KEYED, Migration, window_section
from millstream.runtime.user_code import NO_RECORD, USUAL_RESULTS, check_records, user_error
from millstream.state.key_codec import uncache_key
from millstream.state.namespaced_state import ABSENT, NamespacedStates
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from millstream.contracts.operator import Checkpoint, OperatorSnapshot, RestoreContext
    from millstream.runtime.operators.windows.assignment import StateWindows
    from millstream.runtime.operators.windows.logic import DeclaredWindows
    from millstream.state.key_codec import CacheKey
    from millstream.state.namespaced_state import Slot
    from millstream.types.types import TypeInformation


#: With more accumulators or elements than this in memory they are written to the store.
MOST_IN_MEMORY: Final = 250_000
#: Elements of up to so many are not read again when a window with an evictor fires again.
_MOST_REWRITTEN: Final = 10_000


class GeneralWindowOperator(KeyedOperator):
    """Windows of any kind with a user-written function."""

    counted: ClassVar[Mapping[str, str]] = {
        **KeyedOperator.counted,
        "numLateRecordsDropped": "late_dropped",
    }

    layout: ClassVar[str] = KEYED
    #: Whether a session that grows gets a timer of its new end; what is stored depends on it.
    moves_timers: ClassVar[bool] = True

    def __init__(self, declared: DeclaredWindows) -> None:
        """Take what the API collected; the lateness is in milliseconds."""
        parts = (declared.assigner, declared.spec, declared.chosen_trigger, declared.evictor)
        super().__init__(parts, declared.key_selector)  # copies them
        self._assigner, spec, self._trigger, self._evictor = self.function
        self.section = window_section(declared, type(self))
        self.declared = replace(declared, assigner=self._assigner, spec=spec)
        self._lateness = allowed_lateness = declared.allowed_lateness
        self._late_tag = declared.late_tag_id
        self._event_time = bool(self._assigner.is_event_time())
        self._merging = isinstance(self._assigner, MergingWindowAssigner)
        self._fires_by_watermark = type(self._trigger) is EventTimeTrigger
        self._one_timer = self._fires_by_watermark and self._event_time and not allowed_lateness
        #: Set for built-in aggregates, which are computed row by row here.
        self._rows: RowAggregates | None = None
        self._input_type: TypeInformation = Types.PICKLED_BYTE_ARRAY()
        if isinstance(spec, BuiltInSpec):
            self._rows = RowAggregates(spec.aggregates)
            self._input_type = spec.input_type or self._input_type
            spec = AggregateSpec(self._rows, AsRow(self._rows.names))
        self._logic = make_logic(spec, self)
        self._collector = Collector(self, self.emit)
        self.processing_time = 0
        self.late_dropped = 0
        #: The record that is being added, as triggers see it.
        self._record: Any = None

    def user_functions(self) -> Iterable[object]:
        return (*self._logic.functions, *self.extractor.functions)

    def open(self) -> None:
        """Make the states, then open the functions."""
        keyed = self.keyed_state
        keyed.record(self.section)
        self._context = WindowTriggerContext(keyed, self.runtime_context.get_metrics_group())
        self._window_states = NamespacedStates(keyed, "windows.function")
        self._assignment = Assignment(self._assigner, self._lateness, keyed, self.runtime_context)
        self._elements: Elements | None = None
        self.make_contents()
        super().open()

    def make_contents(self) -> None:
        """Make the states of windows; once, in ``open``."""
        keyed, logic = self.keyed_state, self._logic
        #: Where content is kept.
        self.contents: Contents
        if logic.lists or self._evictor is not None:
            self.contents = self._elements = Elements(keyed, timestamps=self._evictor is not None)
        else:
            self.contents = Accumulators(keyed, logic.fold, logic.merge)
        self._sets = self.make_sets() if self._merging else None

    def make_sets(self) -> MergingSets | None:
        """Make the state of which windows are in flight; once, in ``open``."""
        assignment = self._assignment
        sets = MergingSets(self.keyed_state, assignment.codec, sessions=assignment.merges_sessions)
        self.keyed_state.add_state(sets)
        return sets

    @property
    def watermark(self) -> int:
        """The operator's event time, in milliseconds."""
        return self._context.watermark

    def window_state(self, window: Any) -> NamespacedStates:
        """Return state of the current key and ``window``.

        Raises:
            ProgramError: windows may be merged, and the state could not be.
        """
        if self._merging:
            message = (
                f"operator {self.context.name!r} ({self.context.location}): per-window state is "
                "not allowed when windows may be merged; use global_state()"
            )
            raise ProgramError(message)
        entry = self._assignment.entry_of(window)
        self._window_states.slot = (self.keyed_state.cache_key, entry.namespace)
        return self._window_states

    # -- the life of an epoch --------------------------------------------------------------

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        context = self._context
        context.registered.clear()
        context.watermark = restored.watermark
        self.processing_time = context.processing_time = restored.processing_time
        self._assignment.begin_epoch(restored.processing_time)
        context.is_ending = False
        migration = Migration.of(self, restored.watermark)
        if migration is not None:
            migration.adopt_keyed(self, self._logic.fold)

    def process_processing_time(self, now: int) -> None:
        """Fire the processing-time timers that are due; in BATCH mode they wait for the end."""
        super().process_processing_time(now)
        self.processing_time = self._context.processing_time = now
        self._assignment.begin_epoch(now)
        if not self.context.batch_mode:
            self._fire_processing_time(now)

    def process_watermark(self, watermark: int) -> None:
        """Fire the timers that are due, in order of time, then pass the watermark on.

        At the end of the keys (BATCH mode) those of processing time follow, as in
        ``runtime/operators/process.py``.
        """
        self._context.watermark = watermark
        self._context.is_ending = self.is_end_of_keys(watermark)
        timers = self.keyed_state.timers.advance_event_time(watermark)
        self._fire(timers, self._trigger.on_event_time, ends=self._event_time)
        if self._context.is_ending:
            self._fire_processing_time(MAX_TIMESTAMP)
        self.output.emit_watermark(watermark)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        if checkpoint.next_attempt is None:
            self._context.registered.clear()
        return super().snapshot(checkpoint)

    def spill(self) -> None:
        """Write state to the store if there is much of it in memory."""
        # Accumulators that stay after snapshots are bounded with all other keyed state.
        stays = self._elements is None and self.keyed_state.is_used_behind_snapshots
        if self.contents.cached > MOST_IN_MEMORY and not stays:
            self.keyed_state.flush()
        if len(self._context.registered) > MOST_IN_MEMORY:
            self._context.registered.clear()

    # -- windows of another operator ---------------------------------------------------------

    def adopt(self, key: CacheKey, window: Any, content: Any) -> None:
        """Take over a window of another layout; nothing is evaluated."""
        states = self.place_new(key, window)
        if content is not ABSENT:
            self.contents.put(key, states, content)
        self.take_over(key, window, states, restart=True)
        self.spill()

    def place_new(self, key: CacheKey, window: Any) -> StateWindows:
        """Let a window be in flight; return where its content belongs."""
        entry = self._assignment.entry_of(window)
        if self._sets is not None:
            self._sets.of(key).insert(window, entry.states)
            self._sets.touch(key)
        return entry.states

    def take_over(self, key: CacheKey, window: Any, states: StateWindows, *, restart: bool) -> None:
        """End a window that is over; else register its timers; see ``state_migration.py``."""
        self.keyed_state.set_current_key(uncache_key(key))
        entry = self._assignment.entry_of(window)
        if self._is_late(entry):
            self._clear_all(key, entry, states)
            return
        self._context.set_window(key, entry.namespace)
        if restart:
            self._trigger.on_restore(window, self._context)
        if not self._one_timer:
            self._register_cleanup(entry)

    # -- elements --------------------------------------------------------------------------

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        if not len(batch):
            return
        keys = self.extractor.keys(batch, self.context)
        self.records_in += len(keys)
        keyed = self.keyed_state
        keyed.prefetch(keys)
        self._assignment.check_timestamps(self, batch)
        assigned = self._assignment.assign(batch, keys, self.context)
        late: list[int] = []
        add = self._add_to_fixed if self._sets is None else self._add_to_merging
        if self._sets is None:
            self._prefetch(keys, assigned)
        else:
            self._prefetch_merging(keys)
        set_key, watermark, lateness = keyed.set_current_key, self.watermark, self._lateness
        records = batch.values
        items: Sequence[Any] = records
        if self._rows is not None and self._evictor is None:
            items = self._rows.elements(batch, self.context)
        value: Any = NO_RECORD
        try:
            for index, (key, value, item, timestamp, entries) in enumerate(
                zip(keys, records, items, batch.timestamp_list, assigned, strict=True)
            ):
                set_key(key)
                self._record = value
                if (
                    not add(keyed.cache_key, item, timestamp, entries)
                    and self._event_time
                    and timestamp + lateness <= watermark
                ):
                    late.append(index)
        except Exception as error:
            raise user_error(
                self.context, error, value, doing="adding to a window the", key=keyed.current_key
            ) from error
        self._collector.flush()
        if late:
            self._drop(batch, late)
        self.spill()

    def _drop(self, batch: Batch, late: list[int]) -> None:
        if self._late_tag is None:
            self.late_dropped += len(late)
        else:
            self.output.emit_side(self._late_tag, batch.take(np.array(late, dtype=np.int64)))

    def _prefetch(self, keys: list[Any], assigned: Sequence[Sequence[WindowEntry]]) -> None:
        shorten = self._assignment.cache_keys(keys)
        slots = list(
            {
                (key, entry.namespace)
                for key, entries in zip(shorten, assigned, strict=True)
                for entry in entries
            }
        )
        self.contents.prefetch_slots(slots)
        self._context.states.prefetch_slots(slots)

    def _prefetch_merging(self, keys: list[Any]) -> None:
        """Read what is stored of the windows in flight, unless a key has very many."""
        assert self._sets is not None  # noqa: S101 - the caller looks
        state_slots: list[Slot] = []
        slots: list[Slot] = []
        encode = self._assignment.codec.encode
        for key in set(self._assignment.cache_keys(keys)):
            windows = self._sets.of(key).windows
            if len(windows) > LONGEST_BATCH // 1024:
                continue
            for window, states in windows.items():
                slots.append((key, encode(window)))
                state_slots.extend(zip(repeat(key), states))
        self.contents.prefetch_slots(state_slots)
        self._context.states.prefetch_slots(slots)

    def _add_to_fixed(
        self, key: CacheKey, value: Any, timestamp: int, entries: Iterable[WindowEntry]
    ) -> bool:
        """Add to windows that do not merge; return whether any took the element."""
        taken = False
        for entry in entries:
            if self._is_late(entry):
                continue
            taken = True
            self._add(key, entry, entry.states, value, timestamp)
        return taken

    def _add_to_merging(
        self, key: CacheKey, value: Any, timestamp: int, entries: Iterable[WindowEntry]
    ) -> bool:
        """Add to windows after merging them; return whether any took the element."""
        sets = self._sets
        assert sets is not None  # noqa: S101 - the caller looks
        windows = sets.of(key)
        taken = False
        for new in entries:
            if new.window in windows.windows:
                entry = new
            else:
                actual = windows.add(
                    new.window, self._assigner, self._assignment.codec, self._merge
                )
                entry = self._assignment.entry_of(actual)
                sets.touch(key)
            if self._is_late(entry):
                windows.retire(entry.window)
                continue
            taken = True
            self._add(key, entry, windows.windows[entry.window], value, timestamp)
        return taken

    def _is_late(self, entry: WindowEntry) -> bool:
        """Return whether the window's state is gone."""
        return self._event_time and entry.cleanup_time <= self._context.watermark

    def _add(
        self, key: CacheKey, entry: WindowEntry, states: StateWindows, value: Any, timestamp: int
    ) -> None:
        """Add an element to one window and ask the trigger."""
        self.contents.add(key, states, value, timestamp)
        context = self._context
        slot = (key, entry.namespace)
        is_registered = slot in context.registered
        if self._fires_by_watermark and entry.max_timestamp > context.watermark and is_registered:
            return  # the trigger would register the timer that is there
        context.set_window(key, entry.namespace)
        result = self._trigger.on_element(self._record, timestamp, entry.window, context)
        if result is not TriggerResult.CONTINUE:
            self._act(result, key, entry, states)
        if not is_registered or slot not in context.registered:
            if not self._one_timer:
                self._register_cleanup(entry)
            context.registered.add(slot)

    def _register_cleanup(self, entry: WindowEntry) -> None:
        if entry.cleanup_time == MAX_TIMESTAMP:
            return  # never
        if self._event_time:
            self._context.register_event_time_timer(entry.cleanup_time)
        else:
            self._context.register_processing_time_timer(entry.cleanup_time)

    def _delete_cleanup(self, entry: WindowEntry) -> None:
        if entry.cleanup_time == MAX_TIMESTAMP:
            return
        if self._event_time:
            self._context.delete_event_time_timer(entry.cleanup_time)
        else:
            self._context.delete_processing_time_timer(entry.cleanup_time)

    def _merge(self, result: Any, merged: list[Any], states: list[StateWindows]) -> StateWindows:
        """Make one window of several; those not told of had no content yet.

        Raises:
            ProgramError: the result is over already.
        """
        assignment, context = self._assignment, self._context
        entry = assignment.entry_of(result)
        now = self.watermark if self._event_time else self.processing_time
        if (entry.cleanup_time if self._event_time else entry.max_timestamp) <= now:
            message = (
                f"merging {merged} made {result}, which is over already (it is {now}): a window "
                "must not end earlier by merging"
            )
            raise ProgramError(message)
        key = self.keyed_state.cache_key
        parts = [assignment.entry_of(window) for window in merged]
        context.set_window(key, entry.namespace)
        context.merged = [part.namespace for part in parts]
        self._trigger.on_merge(result, context)
        if self._one_timer and entry.max_timestamp > context.watermark:
            context.registered.add((key, entry.namespace))
        for window, part in zip(merged, parts, strict=True):
            context.set_window(key, part.namespace)
            self._trigger.clear(window, context)
            if not self._one_timer:
                self._delete_cleanup(part)
        return self.contents.merge(key, states)

    # -- timers ----------------------------------------------------------------------------

    def _fire_processing_time(self, now: int) -> None:
        timers = self.keyed_state.timers.advance_processing_time(now)
        self._fire(timers, self._trigger.on_processing_time, ends=not self._event_time)

    def _fire(
        self,
        timers: Iterator[tuple[int, Any, bytes]],
        call: Callable[[int, Any, Trigger.TriggerContext], TriggerResult],
        *,
        ends: bool,
    ) -> None:
        """Ask the trigger for each timer; ``ends`` if windows end by this kind of time."""
        for time, key, namespace in timers:
            self.keyed_state.set_current_key(key)
            short = self.keyed_state.cache_key
            entry = self._assignment.entry_at(namespace.removeprefix(WINDOW_TIMERS))
            states = self._states_of(short, entry)
            if states is None:
                continue  # a timer that the trigger left, of a window that was merged
            self._context.set_window(short, entry.namespace)
            try:
                result = call(time, entry.window, self._context)
                if result is not TriggerResult.CONTINUE:
                    self._act(result, short, entry, states)
                if ends and time == entry.cleanup_time:
                    self._clear_all(short, entry, states)
            except Exception as error:
                doing = f"running the timer for {time} of {entry.window}"
                raise user_error(self.context, error, doing=doing, key=key) from error
            if len(self._collector.values) >= LONGEST_BATCH:
                self._collector.flush()
            self.spill()
        self._collector.flush()

    def _states_of(self, key: CacheKey, entry: WindowEntry) -> StateWindows | None:
        """Return where the window's content is; None if the window is not in flight."""
        if self._sets is None:
            return entry.states
        return self._sets.of(key).windows.get(entry.window)

    def _clear_all(self, key: CacheKey, entry: WindowEntry, states: StateWindows) -> None:
        """End a window."""
        self.contents.clear(key, states)
        context = self._context
        context.set_window(key, entry.namespace)
        self._trigger.clear(entry.window, context)
        if self._logic.clears:
            self._logic.clear(self.keyed_state.current_key, entry.window)
        if self._sets is not None:
            self._sets.of(key).retire(entry.window)
            self._sets.touch(key)
        context.registered.discard((key, entry.namespace))

    # -- evaluation ------------------------------------------------------------------------

    def _act(
        self, result: TriggerResult, key: CacheKey, entry: WindowEntry, states: StateWindows
    ) -> None:
        """Do what the trigger said."""
        if result.is_fire():
            if self._evictor is not None:
                self._evaluate_evicting(key, entry, states)
            else:
                content = self.contents.get(key, states)
                if content is not ABSENT:
                    self._emit_result(entry, content)
                    self.contents.emitted(key, states)
        if result.is_purge():
            self.contents.clear(key, states)

    def _emit_result(self, entry: WindowEntry, content: Any) -> None:
        """Evaluate the window and collect what comes of it."""
        logic, collector, timestamp = self._logic, self._collector, entry.max_timestamp
        if logic.plain:
            collector.values.append(logic.finish(content))
            collector.timestamps.append(timestamp)
            return
        result = logic.evaluate(self.keyed_state.current_key, entry.window, content)
        if result is None:
            return
        if result.__class__ not in USUAL_RESULTS:
            check_records(result, self.context)
        items = iter(result)
        while part := list(islice(items, LONGEST_BATCH)):
            collector.collect(part, timestamp)
            if len(collector.values) >= LONGEST_BATCH:
                collector.flush()

    def _evaluate_evicting(self, key: CacheKey, entry: WindowEntry, states: StateWindows) -> None:
        """Evict, evaluate, evict; what is left is the content from then on."""
        assert self._elements is not None  # noqa: S101 - there is an evictor
        stored = self._elements.get_list(key, states)
        if not stored:
            return
        elements = list(map(TimestampedValue._make, stored))
        del stored
        before = list(elements)
        window, context = entry.window, self._context
        self._evictor.evict_before(elements, len(elements), window, context)
        self._emit_evicted(entry, elements)
        self._context.set_window(key, entry.namespace)
        self._evictor.evict_after(elements, len(elements), window, context)
        changed = len(before) != len(elements) or any(map(is_not, before, elements))
        if changed or len(elements) <= _MOST_REWRITTEN:
            self._elements.put(key, states, list(map(tuple, elements)))

    def _emit_evicted(self, entry: WindowEntry, elements: list[TimestampedValue]) -> None:
        logic = self._logic
        values: list[Any] = [element[0] for element in elements]
        if self._rows is not None:
            times = [element[1] for element in elements]
            batch = Batch(self._input_type, values=values, timestamps=times)
            values = self._rows.elements(batch, self.context) if values else []
        if logic.lists:
            self._emit_result(entry, values)
            return
        accumulator = logic.of_nothing()
        for value in values:
            accumulator = logic.fold(accumulator, value)
        if accumulator is not ABSENT:
            self._emit_result(entry, accumulator)


#: So many sessions are evaluated after their content was read in one go.
_RUN = 4096
#: The content of a key with more sessions in flight is not read ahead.
_MOST_PREFETCHED = 64


class SessionWindowOperator(GeneralWindowOperator):
    """Event-time sessions that fire by the watermark alone: no lateness, the default trigger.

    Nothing fires then while elements are added, so a session is extended in place.  A session that
    grows keeps its timer: when that fires, the session that the timer's window lies in is looked
    up, and a timer for its current end is registered.
    Invariant: each session in flight has a timer for a window within it, so not after its end.
    """

    moves_timers: ClassVar[bool] = False

    def make_sets(self) -> MergingSets | None:
        """Keep sessions that grow in place instead."""
        position = -1 if self._elements is not None else 0
        self._sessions = SessionSets(self.keyed_state, self._assignment.codec, position)
        self.keyed_state.add_state(self._sessions)
        return None

    def place_new(self, key: CacheKey, window: Any) -> StateWindows:
        states = (self._assignment.codec.encode(window),)
        self._sessions.insert(key, window.start, window.end, states)
        return states

    def take_over(self, key: CacheKey, window: Any, states: StateWindows, *, restart: bool) -> None:
        self.keyed_state.set_current_key(uncache_key(key))
        session = next(each for each in self._sessions.of(key) if each.states == states)
        if min(session.end - 1, MAX_TIMESTAMP) > self.watermark:
            if restart:
                self._register(self.keyed_state.current_key, session)
            return
        self.contents.clear(key, states)
        self._sessions.of(key).remove(session)
        self._sessions.dirty.add(key)
        if self._logic.clears:
            self._logic.clear(self.keyed_state.current_key, window)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        if not len(batch):
            return
        keys = self.extractor.keys(batch, self.context)
        self.records_in += len(keys)
        self.keyed_state.prefetch(keys)
        self._assignment.check_timestamps(self, batch)
        starts, ends = self._assignment.session_bounds(batch, keys, self.context)
        short = self._assignment.cache_keys(keys)
        self._prefetch_content(set(short))
        items: Sequence[Any] = batch.values
        if self._rows is not None and self._evictor is None:
            items = self._rows.elements(batch, self.context)
        late = self._add_all(batch, keys, short, items, (starts, ends))
        if late:
            self._drop(batch, late)
        self.spill()

    def _prefetch_content(self, keys: set[CacheKey]) -> None:
        if self._elements is not None:
            return  # they are only appended to
        of = self._sessions.of
        self.contents.prefetch_slots(
            [
                session.slot
                for sessions in map(of, keys)
                if len(sessions) <= _MOST_PREFETCHED
                for session in sessions
            ]
        )

    def _add_all(
        self,
        batch: Batch,
        keys: list[Any],
        short: list[CacheKey],
        items: Sequence[Any],
        bounds: tuple[list[int], list[int]],
    ) -> list[int]:
        """Add each record to its session; return the positions of those that are late."""
        keyed, dirty = self.keyed_state, self._sessions.dirty
        of, place, add = self._sessions.of, self._place, self.contents.adder()
        times: Sequence[int] = batch.timestamp_list
        late: list[int] = []
        index = 0
        try:
            for index, (key, of_key, item, time, start, end) in enumerate(
                zip(keys, short, items, times, *bounds, strict=True)
            ):
                keyed.current_key = key
                keyed.cache_key = of_key
                sessions = of(of_key)
                # Mostly there is but one session, which the element extends.
                session = sessions[0] if len(sessions) == 1 else None
                if session is not None and start <= session.end and end >= session.start:
                    if end > session.end:
                        session.end = end
                        dirty.add(of_key)
                    if start < session.start:
                        session.start = start
                        dirty.add(of_key)
                else:
                    session = place(of_key, sessions, start, end)
                    if session is None:
                        late.append(index)
                        continue
                add(session.slot, item, time)
        except Exception as error:
            value = batch.values[index]
            raise user_error(
                self.context, error, value, doing="adding to a window the", key=keyed.current_key
            ) from error
        return late

    def _place(
        self, key: CacheKey, sessions: list[Session], start: int, end: int
    ) -> Session | None:
        """Return the session of an element, made or merged; None if the element is late."""
        first = bisect_left(sessions, start, key=end_of)
        last = bisect_right(sessions, end, key=start_of)
        touched = sessions[first:last]
        if not touched:
            if min(end - 1, MAX_TIMESTAMP) <= self.watermark:
                return None
            namespace = self._assignment.codec.encode(TimeWindow(start, end))
            session = self._sessions.make(key, start, end, (namespace,))
            self._register(self.keyed_state.current_key, session)
        else:
            states = touched[0].states
            if len(touched) > 1:
                states = self.contents.merge(key, [each.states for each in touched])
            session = self._sessions.make(
                key, min(start, touched[0].start), max(end, touched[-1].end), states
            )
        sessions[first:last] = [session]
        self._sessions.dirty.add(key)
        return session

    def _register(self, key: Any, session: Session) -> None:
        """Register the timer for the end that a session has now."""
        window = TimeWindow(session.start, session.end)
        namespace = WINDOW_TIMERS + self._assignment.codec.encode(window)
        time = min(session.end - 1, MAX_TIMESTAMP)
        self.keyed_state.timers.register_event_time(key, namespace, time)

    def process_watermark(self, watermark: int) -> None:
        """Fire the sessions that are over, in order of their ends, then pass the watermark on."""
        self._context.watermark = watermark
        timers = self.keyed_state.timers
        due: list[tuple[Any, CacheKey, Session]] = []
        for time, key, _ in timers.advance_event_time(watermark):
            self.keyed_state.set_current_key(key)
            short = self.keyed_state.cache_key
            sessions = self._sessions.of(short)
            at = bisect_left(sessions, time + 1, key=end_of)
            if at == len(sessions) or sessions[at].start > time:
                continue  # it was merged into one that has fired
            session = sessions[at]
            if session.end - 1 > time < MAX_TIMESTAMP:
                self._register(key, session)  # it has grown
                continue
            del sessions[at]
            self._sessions.dirty.add(short)
            due.append((key, short, session))
            if len(due) >= _RUN:
                self._evaluate_all(due)
                due = []
        self._evaluate_all(due)
        self._collector.flush()
        self.output.emit_watermark(watermark)

    def _evaluate_all(self, due: list[tuple[Any, CacheKey, Session]]) -> None:
        """Evaluate sessions that are over and throw their content away."""
        contents, collector = self.contents, self._collector
        contents.prefetch_slots(
            [(short, name) for _, short, session in due for name in session.states]
        )
        for key, short, session in due:
            self.keyed_state.set_current_key(key)
            window = TimeWindow(session.start, session.end)
            try:
                self._evaluate_session(short, window, session)
                if self._logic.clears:
                    self._logic.clear(key, window)
            except Exception as error:
                doing = f"running the timer for {session.end - 1} of {window}"
                raise user_error(self.context, error, doing=doing, key=key) from error
            if len(collector.values) >= LONGEST_BATCH:
                collector.flush()
        self.spill()

    def _evaluate_session(self, key: CacheKey, window: TimeWindow, session: Session) -> None:
        if window.max_timestamp() <= MAX_TIMESTAMP:  # one that ends after all time never fires
            entry = self._assignment.new_entry(window)
            if self._evictor is not None:
                self._context.set_window(key, entry.namespace)
                self._evaluate_evicting(key, entry, session.states)
            else:
                content = self.contents.get(key, session.states)
                if content is not ABSENT:
                    self._emit_result(entry, content)
        self.contents.clear(key, session.states)
