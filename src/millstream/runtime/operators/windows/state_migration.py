"""What a store says of windows, and their conversion where another program has stored them.

A restored operator asks for a ``Migration``.  If the windows are not stored as it would have
written them, they are read one by one, their content is converted to what the operator keeps, and
stored where it keeps it; timers and the state of the trigger are created again where they differ.
All this happens once, before anything is processed: from the next snapshot on the store describes
what it then holds.
"""

from __future__ import annotations

from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import Batch
from millstream.contracts.operator import StateSection
from millstream.errors import StateError
from millstream.functions.triggers import CountEvictor, DeltaEvictor, PurgingTrigger
from millstream.functions.window import TimeWindow
from millstream.functions.window_assigners import (
    FixedWindows,
    GlobalWindows,
    MergingWindowAssigner,
    merges_sessions,
)
from millstream.runtime.columnar.aggregates import Collect, First, Last, named_aggregates
from millstream.runtime.columnar.row_aggregates import RowAggregates
from millstream.runtime.operators.windows.assignment import TimeSection, cut
from millstream.runtime.operators.windows.chunks import Panes
from millstream.runtime.operators.windows.contents import chunk_names
from millstream.runtime.operators.windows.logic import (
    WINDOW_TIMERS,
    AggregateSpec,
    BuiltInSpec,
    ReduceSpec,
)
from millstream.runtime.user_code import user_error
from millstream.state.chunks import KEY, counted_rows, decoded_chunk, fragment_runs
from millstream.state.key_codec import WindowCodec, encode_key, uncache_key
from millstream.state.key_context import KeyContext
from millstream.state.namespaced_state import ABSENT
from millstream.state.registry import META, read_sections, section_record, stored_record
from millstream.state.rescale import key_and_rest, scan_in_steps, scan_state, timed_key_and_rest
from millstream.state.serializers import load_stored
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.contracts.operator import OperatorContext
    from millstream.runtime.columnar.aggregates import BuiltInAggregate
    from millstream.runtime.operators.windows.assignment import StateWindows
    from millstream.runtime.operators.windows.contents import Contents
    from millstream.runtime.operators.windows.logic import DeclaredWindows, WindowComputation
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState


#: The name of the section.
SECTION: Final = "windows"
#: Layouts.
ALIGNED: Final = "by window, then key"
PANES: Final = "panes of partial aggregates"
FRAGMENTS: Final = "session fragments of partial aggregates"
KEYED: Final = "by key, then window"
#: Layouts of built-in aggregates.
COLUMNAR: Final = (PANES, FRAGMENTS)
#: Contents, beside those of built-in aggregates, which are named.
ELEMENTS: Final = "elements"
TIMED_ELEMENTS: Final = "elements with timestamps"
REDUCED: Final = "reduced values"
ACCUMULATED: Final = "accumulators of an AggregateFunction"


# -- what is declared ---


class _Layout(Protocol):
    """What an operator says of the windows that it keeps."""

    layout: ClassVar[str]
    #: Whether a session that grows gets a timer of its new end.  Where it keeps the old one, an
    #: operator that does not expect that would never fire it.
    moves_timers: ClassVar[bool]


def window_section(declared: DeclaredWindows, operator: type[_Layout]) -> StateSection:
    """Return what an operator keeps of windows."""
    assigner, spec, layout = declared.assigner, declared.spec, operator.layout
    content = TIMED_ELEMENTS if declared.evictor is not None else _content(spec)
    details = {"windows": _family(assigner), "content": content}
    # Of windows that overlap, a pane says nothing of which of them are over.
    if layout == KEYED or (layout == PANES and assigner.slide < assigner.size):
        details["lateness"] = f"{declared.allowed_lateness} ms"
    if layout == KEYED:
        details["trigger"] = _timers_of(declared.chosen_trigger)
        if merges_sessions(assigner):
            moved = "of the session's end" if operator.moves_timers else "of any window within it"
            details["timers"] = moved
    return StateSection(SECTION, layout, details=details)


def _family(assigner: Any) -> str:
    """Return what kind of windows these are; sessions with another gap are found beside others.

    Those of another grid have no place in what is stored, or lack the records before the change.
    """
    time = "event" if assigner.is_event_time() else "processing"
    if isinstance(assigner, FixedWindows):
        offset = assigner.offset % assigner.slide
        behind = f", {offset} ms behind the full one" if offset else ""
        return f"{assigner.size} ms of {time} time, one every {assigner.slide} ms{behind}"
    if isinstance(assigner, GlobalWindows):
        return "global"
    if merges_sessions(assigner):
        return f"sessions, {time} time"
    merging = ", merging" if isinstance(assigner, MergingWindowAssigner) else ""
    return f"of {type(assigner).__name__}{merging}, {time} time"


def _timers_of(trigger: Any) -> str:
    """The trigger whose timers and state are stored; purging has none of its own."""
    while isinstance(trigger, PurgingTrigger):
        trigger = trigger.nested_trigger
    return type(trigger).__name__


def _content(spec: WindowComputation) -> str:
    if isinstance(spec, ReduceSpec):
        return REDUCED
    if isinstance(spec, AggregateSpec):
        return ACCUMULATED
    if isinstance(spec, BuiltInSpec):
        return ", ".join(map(_aggregate, named_aggregates(spec.aggregates).values()))
    return ELEMENTS


def _aggregate(aggregate: BuiltInAggregate) -> str:
    """``Sum('delay')``; the name of the output column and a filter are no part of what is kept."""
    field = "" if aggregate.field is None else repr(aggregate.field)
    return f"{type(aggregate).__name__}({field})"


def trigger_of(section: StateSection) -> str:
    """The trigger whose timers and state a section has."""
    return section.details.get("trigger", "EventTimeTrigger")


# -- what can be continued with ---

#: Evictors that read no timestamp, and no subclasses of them.
_TIMELESS: Final = (CountEvictor, DeltaEvictor)


def refusal_of(declared: DeclaredWindows, own: StateSection, stored: StateSection) -> str | None:
    """Return why the windows of ``stored`` cannot be continued with; None if they can."""
    if stored.name != SECTION or stored.version != own.version:
        return ""
    if stored == own:
        return None
    if stored.details["windows"] != own.details["windows"]:
        return "these are other windows"
    return _content_refusal(declared, stored, own) or _trigger_refusal(declared, stored, own)


def _content_refusal(
    declared: DeclaredWindows, stored: StateSection, own: StateSection
) -> str | None:
    if own.layout == PANES != stored.layout and declared.assigner.slide < declared.assigner.size:
        return "windows that overlap cannot be cut into panes"
    old, new = stored.details["content"], own.details["content"]
    if old in (new, TIMED_ELEMENTS):
        return None
    if old != ELEMENTS:
        return f"of {old}, {new} cannot be made"
    looking = _reads_time(declared)
    if looking is None:
        return None
    return f"the elements are stored without timestamps, which {looking} looks at"


def _trigger_refusal(
    declared: DeclaredWindows, stored: StateSection, own: StateSection
) -> str | None:
    before, after = trigger_of(stored), trigger_of(own)
    if own.layout != KEYED or before == after or declared.chosen_trigger.can_restore():
        return None
    return (
        f"{after} cannot take windows over from {before}: give it a method on_restore(window, ctx)"
    )


def _reads_time(declared: DeclaredWindows) -> str | None:
    """The evictor or built-in aggregate that reads the timestamps of elements, if there is one."""
    if declared.evictor is not None:
        kind = type(declared.evictor)
        return None if kind in _TIMELESS else kind.__name__
    if not isinstance(declared.spec, BuiltInSpec):
        return None
    kinds = map(type, named_aggregates(declared.spec.aggregates).values())
    return next((each.__name__ for each in kinds if each in (First, Last, Collect)), None)


# -- what is stored ---


#: Key, window, and an accumulator, a list of elements, or ABSENT where nothing is left of it.
StoredWindow = tuple["CacheKey", Any, Any]

#: Bytes in the names of chunks and of runs.
_PANE_NAME: Final = 20
_FRAGMENT_NAME: Final = 13
_ALIGNED: Final = "\0windows.aligned"
_ALIGNED_ELEMENTS: Final = "\0windows.aligned elements"
_PANES: Final = "\0windows.panes"
_FRAGMENTS: Final = "\0windows.fragments"
_SETS: Final = "\0windows.merging"
_ACCUMULATORS: Final = "\0windows.accumulators"
_HEADERS: Final = "\0windows.chunks"
_CHUNKS: Final = "\0windows.elements"
_TRIGGER: Final = "\0windows.trigger:"
_ALL: Final = frozenset(
    [_ALIGNED, _ALIGNED_ELEMENTS, _PANES, _FRAGMENTS, _SETS, _ACCUMULATORS, _HEADERS, _CHUNKS]
)
#: Rows that become one table.
_ROWS: Final = 4096


def _holds_elements(section: StateSection) -> bool:
    return section.details["content"] in (ELEMENTS, TIMED_ELEMENTS)


def _names_of(section: StateSection) -> set[str]:
    """Return the names of the states of windows; not of those of triggers and functions."""
    elements = _holds_elements(section)
    return {
        ALIGNED: {_ALIGNED_ELEMENTS if elements else _ALIGNED},
        PANES: {_PANES},
        FRAGMENTS: {_FRAGMENTS},
        KEYED: {_SETS, _HEADERS, _CHUNKS} if elements else {_SETS, _ACCUMULATORS},
    }[section.layout]


class Migration:
    """The windows of a store, as an operator wants them."""

    def __init__(self, host: Host, stored: StateSection, watermark: int) -> None:
        """Take an operator and what is stored; ``of`` makes it."""
        self._declared, self._own, self._context = host.declared, host.section, host.context
        self._store = host.keyed_state.store
        self.stored = stored
        self._watermark = watermark
        #: Max parallelism, and the key groups of the subtask.
        self._groups = (host.keyed_state.max_parallelism, host.keyed_state.key_groups)
        self._codec = WindowCodec(host.declared.assigner.get_window_serializer())
        self._sections = {section.name: section for section in read_sections(self._store)}
        spec = host.declared.spec
        self._rows: RowAggregates | None = None
        self._input_type = Types.PICKLED_BYTE_ARRAY()
        if isinstance(spec, BuiltInSpec):
            self._rows = RowAggregates(spec.aggregates)
            self._input_type = spec.input_type or self._input_type
        #: Puts an element into an accumulator.
        self._fold: Callable[[Any, Any], Any] = self._fold_row

    @classmethod
    def of(cls, host: Host, watermark: int) -> Migration | None:
        """Return what an operator, which was restored, has to convert; None if there is nothing."""
        stored = stored_record(host.keyed_state.store, SECTION)
        if stored is None or stored == host.section:
            return None
        return cls(host, stored, watermark)

    # Dropping.

    def drop(self, names: set[str] | frozenset[str]) -> None:
        """Remove all entries of some states, and what the store says of them."""
        for name in names & self._sections.keys():
            section = self._sections[name]
            if section.letter != "K":
                everything = TimeSection(section.letter.encode(), section.index).everything()
                self._store.delete_range(*everything)
                continue
            for group in range(*self._groups[1]):
                prefix = b"K" + group.to_bytes(2, "big")
                start, stop = (
                    prefix + number.to_bytes(2, "big")
                    for number in (section.index, section.index + 1)
                )
                self._store.delete_range(start, stop)

    def drop_triggers(self) -> None:
        """Remove the state of triggers, and timers: there are no others than those of windows."""
        self.drop(
            {
                name
                for name, section in self._sections.items()
                if section.kind == "timers" or name.startswith(_TRIGGER)
            }
        )

    def finish(self) -> None:
        """Let the store say what it holds now: also one that holds nothing, for stores are merged.

        Functions keep what they have; built-in aggregates have none.
        """
        own = _names_of(self._own)
        others = set(self._sections) if self._own.layout in COLUMNAR else set(_ALL)
        gone = (others - own) & self._sections.keys()
        self.drop(gone)
        self._store.write([section_record(self._own)], [META + name.encode() for name in gone])

    # Converting.

    @property
    def _converts(self) -> bool:
        """Return whether content is not as it is wanted."""
        return self.stored.details["content"] != self._own.details["content"]

    def _converted(self, key: CacheKey, window: Any, content: Any) -> Any:
        """Return content as it is wanted.

        Raises:
            UserFunctionError: the function raised; names key and window.
        """
        if content is ABSENT or not self._converts:
            return content
        new = self._own.details["content"]
        if new == TIMED_ELEMENTS:
            return [(value, window.max_timestamp()) for value in content]
        timed = self.stored.details["content"] == TIMED_ELEMENTS
        values = [value for value, _ in content] if timed else content
        if new == ELEMENTS:
            return values
        accumulator: Any = ABSENT
        try:
            if self._rows is not None:
                last = window.max_timestamp()
                times = [time for _, time in content] if timed else [last] * len(values)
                batch = Batch(self._input_type, values=values, timestamps=times)
                values = self._rows.elements(batch, self._context)
            for value in values:
                accumulator = self._fold(accumulator, value)
        except Exception as error:
            doing = f"making what is kept of {window} of its stored elements"
            raise user_error(self._context, error, doing=doing, key=uncache_key(key)) from error
        return accumulator

    def _fold_row(self, so_far: Any, value: Any) -> Any:
        rows = self._aggregates
        return rows.add(value, rows.create_accumulator() if so_far is ABSENT else so_far)

    @property
    def _aggregates(self) -> RowAggregates:
        assert self._rows is not None  # noqa: S101 - the content is theirs
        return self._rows

    # Into columns.

    def tables(self, start: str, end: str) -> Iterator[pa.Table]:
        """Yield windows as tables of keys, bounds and partial columns, of one form of key each.

        Raises:
            StateError: a session has no content and has not fired: it could not be kept.
        """
        rows = self._aggregates
        types = {
            each.name: each.type for each in rows.partial_types(self._input_type, self._context)
        }
        filled = iter(self._filled())
        while part := list(islice(filled, _ROWS)):
            by_form: dict[type, list[StoredWindow]] = {}
            for each in part:
                by_form.setdefault(_form(each[0]), []).append(each)
            for some in by_form.values():
                columns = rows.to_partials([content for _, _, content in some], types)
                starts = pa.array([window.start for _, window, _ in some], pa.int64())
                ends = pa.array([window.end for _, window, _ in some], pa.int64())
                yield pa.table({KEY: _keys(some), start: starts, end: ends, **columns})

    def _filled(self) -> Iterator[StoredWindow]:
        """Yield windows with content; of sessions all that are open or have fired."""
        for key, window, stored in self._windows():
            content = self._converted(key, window, stored)
            if content is ABSENT:
                if self._own.layout == PANES:
                    continue
                if window.max_timestamp() > self._watermark:
                    context = self._context
                    message = (
                        f"operator {context.name!r} ({context.location}): in its section"
                        f" {SECTION!r} the session {window} of key {uncache_key(key)!r} is open and"
                        " its content was purged, which fragments cannot express. Keep the trigger"
                        " until it is over"
                    )
                    raise StateError(message)
                content = self._aggregates.create_accumulator()
            yield key, window, content

    # Into windows that are kept with user functions.

    def adopt_keyed(self, host: KeyedWindows, fold: Callable[[Any, Any], Any]) -> None:
        """Make the windows of the store those of ``host``; ``fold`` makes its accumulators."""
        if self._rows is None:
            self._fold = fold
        if self.stored.layout == self._own.layout == KEYED:
            self._adopt_in_place(host)
        else:
            self.drop_triggers()
            for key, window, content in self._windows():
                host.adopt(key, window, self._converted(key, window, content))
        host.keyed_state.flush()
        self.finish()

    def _adopt_in_place(self, host: KeyedWindows) -> None:
        old, new, keyed = self.stored, self._own, host.keyed_state
        restart = trigger_of(old) != trigger_of(new) or (
            old.details.get("timers") != new.details.get("timers")
        )
        # What was purged has timers only.  All are known before any is registered or removed.
        waiting = set() if _SETS in self._sections else set(self._with_timers())
        if self._converts:
            for key, head, window, states in self._in_flight():
                content = self._content_of(head, states)
                if content is not ABSENT:
                    host.contents.put(key, states, self._converted(key, window, content))
                host.spill()
            keyed.flush()
        if restart:
            self.drop_triggers()
            for queue in (keyed.timers.event, keyed.timers.processing):
                queue.begin_epoch(queue.index)
        for key, _, window, states in self._in_flight():
            waiting.discard((key, states[0]))
            host.take_over(key, window, states, restart=restart)
            host.spill()
        for key, namespace in waiting:
            host.take_over(key, self._codec.decode(namespace), (namespace,), restart=restart)

    def _with_timers(self) -> Iterator[tuple[CacheKey, bytes]]:
        """Key and window of every timer."""
        for section in self._sections.values():
            if section.kind == "timers":
                timers = TimeSection(b"T", section.index).everything()
                for name, _ in scan_in_steps(self._store, *timers):
                    encoded, rest = timed_key_and_rest(name)
                    if rest.startswith(WINDOW_TIMERS):
                        yield (
                            KeyContext.decode_cache_key(encoded),
                            rest.removeprefix(WINDOW_TIMERS),
                        )

    # Reading.

    def _windows(self) -> Iterator[StoredWindow]:
        """Yield every window, its content as it is stored; of one key and window there is one."""
        read = {
            ALIGNED: self._read_aligned,
            PANES: self._read_panes,
            FRAGMENTS: self._read_fragments,
            KEYED: self._read_keyed,
        }
        return read[self.stored.layout]()

    def _scan(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a state that are ordered by time."""
        section = self._sections.get(name)
        if section is not None:
            ordered = TimeSection(section.letter.encode(), section.index)
            yield from scan_in_steps(self._store, *ordered.everything())

    def _read_aligned(self) -> Iterator[StoredWindow]:
        (name,) = _names_of(self.stored)
        size = self._declared.assigner.size
        entries = (
            (TimeSection.time_of(name), timed_key_and_rest(name)[0], content)
            for name, content in self._scan(name)
        )
        for (last, encoded), parts in groupby(entries, lambda entry: entry[:2]):
            contents = [load_stored(content) for _, _, content in parts]
            key, window = (
                KeyContext.decode_cache_key(encoded),
                TimeWindow(last - size + 1, last + 1),
            )
            elements = _holds_elements(self.stored)
            yield key, window, list(chain.from_iterable(contents)) if elements else contents[0]

    def _read_panes(self) -> Iterator[StoredWindow]:
        """Of each window all its panes; those over by the lateness of what is stored are gone."""
        rows, assigner = self._aggregates, self._declared.assigner
        panes = Panes(assigner)
        lateness = int(self.stored.details.get("lateness", "0 ms").partition(" ")[0])
        pending: dict[int, dict[CacheKey, list[Any]]] = {}

        def taken(before: float) -> Iterator[StoredWindow]:
            for number in sorted(each for each in pending if each < before):
                end = panes.window_end(number)
                for key, accumulator in pending.pop(number).items():
                    yield key, TimeWindow(end - assigner.size, end), accumulator

        for name, value in self._scan(_PANES):
            pane = panes.of_timestamp(TimeSection.time_of(name))
            first = -((panes.per_window - 1 - pane) // panes.per_slide)
            yield from taken(first)
            for row in counted_rows(*decoded_chunk(name, _PANE_NAME, value, self._groups)):
                for number in range(first, pane // panes.per_slide + 1):
                    over = panes.window_end(number) - 1 + lateness <= self._watermark
                    if panes.per_window > 1 and over:
                        continue
                    content = pending.setdefault(number, {})
                    made = rows.from_partials(row)
                    so_far = content.get(row[KEY])
                    content[row[KEY]] = made if so_far is None else rows.merge(so_far, made)
        yield from taken(float("inf"))

    def _read_fragments(self) -> Iterator[StoredWindow]:
        """Of each session all its fragments, which overlap or touch."""
        by_key: dict[CacheKey, list[tuple[int, int, list[Any]]]] = {}
        runs = fragment_runs(self._scan(_FRAGMENTS), _FRAGMENT_NAME, self._groups)
        for _, table, alive, _ in runs:
            for row in counted_rows(table, alive):
                content = self._aggregates.from_partials(row)
                found = (row["window_start"], row["window_end"], content)
                by_key.setdefault(row[KEY], []).append(found)
        for key, fragments in by_key.items():
            starts, ends = (np.array([each[at] for each in fragments]) for at in (0, 1))
            sessions = cut(np.zeros(len(fragments), dtype=np.int64), starts, ends)
            contents: list[Any] = [ABSENT] * len(sessions)
            # They are merged as they are given: oldest first.
            for at, (_, _, content) in zip(sessions.of.tolist(), fragments, strict=True):
                so_far = contents[at]
                merged = (
                    self._aggregates.merge(so_far, content) if so_far is not ABSENT else content
                )
                contents[at] = merged
            bounds = (sessions.starts.tolist(), sessions.ends.tolist())
            for start, end, content in zip(*bounds, contents, strict=True):
                yield key, TimeWindow(start, end), content

    def _read_keyed(self) -> Iterator[StoredWindow]:
        for key, head, window, states in self._in_flight():
            yield key, window, self._content_of(head, states)

    def _in_flight(self) -> Iterator[tuple[CacheKey, bytes, Any, StateWindows]]:
        """Yield (key, the name of a state of it, window, state windows) of all that have content.

        Where windows merge, of all that there are.
        """
        merges = _SETS in self._sections
        content = _HEADERS if _holds_elements(self.stored) else _ACCUMULATORS
        section = self._sections.get(_SETS if merges else content)
        if section is None:
            return
        for name, value in scan_state(self._store, section.index, self._groups[1]):
            encoded, namespace = key_and_rest(name)
            key, head = KeyContext.decode_cache_key(encoded), name[: len(name) - len(namespace)]
            if not merges:
                yield key, head, self._codec.decode(namespace), (namespace,)
                continue
            for window, states in load_stored(value):
                yield key, head, self._codec.decode(window), states

    def _content_of(self, head: bytes, states: StateWindows) -> Any:
        """Return what is kept of state windows; ``head`` is the name of any state of the key."""
        if not _holds_elements(self.stored):
            stored = self._get(_ACCUMULATORS, head, states[0])
            return ABSENT if stored is None else load_stored(stored)
        elements: list[Any] = []
        for namespace in states:
            header = self._get(_HEADERS, head, namespace)
            if header is None:
                continue
            for name in chunk_names(self._name(_CHUNKS, head, namespace), load_stored(header)[0]):
                stored = self._store.get(name)
                if stored is None:
                    message = f"a chunk of the elements of window {namespace!r} is missing"
                    raise StateError(message)
                elements.extend(load_stored(stored))
        return elements or ABSENT

    def _name(self, state: str, head: bytes, namespace: bytes) -> bytes:
        return head[:3] + self._sections[state].index.to_bytes(2, "big") + head[5:] + namespace

    def _get(self, state: str, head: bytes, namespace: bytes) -> bytes | None:
        known = state in self._sections
        return self._store.get(self._name(state, head, namespace)) if known else None


def _form(key: object) -> type:
    """The type of the column that a key is in: those beyond 64 bits are in that of bytes."""
    return bytes if isinstance(key, int) and not -(2**63) <= key < 2**63 else type(key)


def _keys(windows: list[StoredWindow]) -> pa.Array:
    keys = [key for key, _, _ in windows]
    kind = _form(keys[0])
    if kind is int:
        return pa.array(keys, pa.int64())
    if kind is str:
        return pa.array(keys, pa.string())
    encoded = [key if isinstance(key, bytes) else encode_key(key) for key in keys]
    return pa.array(encoded, pa.binary())


class Host(Protocol):
    """An operator of windows."""

    declared: DeclaredWindows
    section: StateSection
    context: OperatorContext
    keyed_state: KeyedState


class KeyedWindows(Host, Protocol):
    """What an operator with user functions has for it."""

    contents: Contents

    def adopt(self, key: CacheKey, window: Any, content: Any) -> None:
        """Take over a window of another layout; nothing is evaluated."""

    def take_over(self, key: CacheKey, window: Any, states: StateWindows, *, restart: bool) -> None:
        """End a window that is over; else register its timers, those of the trigger if ``restart``.

        Nothing is evaluated.
        """

    def spill(self) -> None:
        """Write state to the store if there is much of it in memory."""
