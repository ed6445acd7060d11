"""Event-time sessions with a user function that fire by the watermark alone.

The general window operator for the common case of sessions: the default trigger and no allowed
lateness.  Nothing fires then while elements are added, so a session is extended in place.

A session that grows keeps its timer: when that fires, the session that the timer's window lies in
is looked up, and a timer for its current end is registered.
Invariant: each session in flight has a timer for a window within it, so not after its end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.functions.window import TimeWindow
from millstream.runtime.operators.base import LONGEST_BATCH
from millstream.runtime.operators.windows.contents import MergingSetsDescriptor
from millstream.runtime.operators.windows.generic import GeneralWindowOperator
from millstream.runtime.operators.windows.logic import WINDOW_TIMERS
from millstream.runtime.user_code import user_error
from millstream.state.key_codec import uncache_key
from millstream.state.namespaced_state import ABSENT
from millstream.state.serializers import dumps, loads
from millstream.state.value_state import CachedValues
from millstream.types.time import MAX_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.batch import Batch
    from millstream.runtime.operators.windows.contents import MergingSets, StateWindows
    from millstream.state.key_codec import CacheKey, WindowCodec
    from millstream.state.keyed import KeyedState
    from millstream.state.namespaced_state import Slot


#: The sets of up to so many keys stay in memory for the next epoch.
_MOST_KEPT = 100_000


class Session:
    """A session in flight; its end is that of a window, excluded, in milliseconds."""

    __slots__ = ("end", "slot", "start", "states")

    def __init__(self, start: int, end: int, states: StateWindows, slot: Slot) -> None:
        self.start = start
        self.end = end
        self.states = states
        self.slot = slot


class SessionSets(CachedValues["CacheKey"]):
    """The sessions of all keys: a state like those of the user.

    Invariant: the sessions of a key are in order of time; no two of them overlap or touch.
    Callers add to ``dirty`` the keys whose sessions they change, which ``of`` gave them.
    """

    __slots__ = ("_codec", "_position")

    def __init__(self, keyed: KeyedState, codec: WindowCodec, position: int) -> None:
        """Keep the sets in ``keyed``; elements go to the state window at ``position``."""
        super().__init__(keyed, MergingSetsDescriptor("\0windows.merging"))
        self._codec = codec
        self._position = position

    def of(self, key: CacheKey) -> list[Session]:
        """Return the sessions of a key."""
        found: list[Session] | None = self.cache.get(key)
        return self.read(key) if found is None else found

    def make(self, key: CacheKey, start: int, end: int, states: StateWindows) -> Session:
        """Return a session that is not in the set yet."""
        return Session(start, end, states, (key, states[self._position]))

    def insert(self, key: CacheKey, start: int, end: int, states: StateWindows) -> None:
        """Let a session be in flight that touches no other."""
        sessions = self.of(key)
        at = bisect_left(sessions, start, key=lambda each: each.start)
        sessions.insert(at, self.make(key, start, end, states))
        self.dirty.add(key)

    def end_epoch(self) -> None:
        """Forget everything if it is much."""
        if len(self.cache) > _MOST_KEPT:
            self.cache.clear()

    def encoded(self, value: list[Session]) -> bytes:
        encode = self._codec.encode
        entries = [(encode(TimeWindow(each.start, each.end)), each.states) for each in value]
        return dumps(entries) if entries else b""

    def decoded(self, key: CacheKey, stored: bytes | None) -> list[Session]:
        if stored is None:
            return []
        decode = self._codec.decode
        windows = sorted((decode(window), states) for window, states in loads(stored))
        return [self.make(key, window.start, window.end, states) for window, states in windows]


#: So many sessions are evaluated after their content was read in one go.
_RUN = 4096
#: The content of a key with more sessions in flight is not read ahead.
_MOST_PREFETCHED = 64


class SessionWindowOperator(GeneralWindowOperator):
    """Event-time sessions that end with the watermark."""

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
        self._contents.clear(key, states)
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
        self._contents.prefetch_slots(
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
        of, place, add = self._sessions.of, self._place, self._contents.adder()
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
        first = bisect_left(sessions, start, key=_end)
        last = bisect_right(sessions, end, key=_start)
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
                states = self._contents.merge(key, [each.states for each in touched])
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
            at = bisect_left(sessions, time + 1, key=_end)
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
        contents, collector = self._contents, self._collector
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
                content = self._contents.get(key, session.states)
                if content is not ABSENT:
                    self._emit_result(entry, content)
        self._contents.clear(key, session.states)


def _start(session: Session) -> int:
    return session.start


def _end(session: Session) -> int:
    return session.end
