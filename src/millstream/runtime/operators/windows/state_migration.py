"""Conversion of windows that another window operator has stored.

A restored operator calls ``stored_section`` to read what is in its store.  If that is not as it
would have written it, the windows are read one by one, their content is converted to what the
operator keeps, and stored where it keeps it; timers and the state of the trigger are created again
where they differ.  All this happens once, before anything is processed: from the next snapshot on
the store describes what it then holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from millstream.contracts.batch import Batch
from millstream.contracts.operator import StateSection
from millstream.errors import StateError
from millstream.functions.triggers import CountEvictor, DeltaEvictor, PurgingTrigger
from millstream.functions.window import TimeWindow
from millstream.functions.windows import (
    FixedEventTimeWindows,
    FixedWindows,
    GlobalWindows,
    MergingWindowAssigner,
    merges_sessions,
)
from millstream.runtime.columnar.aggregates import Collect, First, Last, named_aggregates
from millstream.runtime.columnar.row_aggregates import RowAggregates
from millstream.runtime.operators.windows.assignment import (
    ACCUMULATOR_INDEX,
    CHUNK_INDEX,
    SESSION_INDEX,
    TimeSection,
)
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
from millstream.state.key_codec import WindowCodec, encode_key, key_group_range, uncache_key
from millstream.state.key_context import KeyContext
from millstream.state.namespaced_state import ABSENT
from millstream.state.registry import META, read_sections, section_record, stored_record
from millstream.state.rescale import key_and_rest, scan_in_steps, scan_state, timed_key_and_rest
from millstream.state.serializers import loads
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.operator import OperatorContext
    from millstream.runtime.columnar.aggregates import Aggregates, BuiltInAggregate
    from millstream.runtime.operators.windows.contents import Contents, StateWindows
    from millstream.runtime.operators.windows.logic import WindowSpec
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState
    from millstream.state.registry import Section


#: The name of the section.
SECTION: Final = "windows"
#: Layouts.
ALIGNED: Final = "by window, then key"
PANES: Final = "panes of partial aggregates"
FRAGMENTS: Final = "session fragments of partial aggregates"
KEYED: Final = "by key, then window"
#: Contents, beside those of built-in aggregates, which are named.
ELEMENTS: Final = "elements"
TIMED_ELEMENTS: Final = "elements with timestamps"
REDUCED: Final = "reduced values"
ACCUMULATED: Final = "accumulators of an AggregateFunction"


def aligned_section(assigner: FixedEventTimeWindows, spec: WindowSpec) -> StateSection:
    """Of windows that all keys share, with the user's function."""
    details = {"windows": _grid(assigner), "content": _content(spec)}
    return StateSection(SECTION, ALIGNED, details=details)


def panes_section(
    assigner: FixedEventTimeWindows, spec: BuiltInSpec, lateness: int
) -> StateSection:
    """Of windows that all keys share, with built-in aggregates."""
    details = {"windows": _grid(assigner), "content": _aggregates(spec.aggregates)}
    # Of windows that overlap, a pane says nothing of which of them are over.
    if assigner.slide < assigner.size:
        details["lateness"] = _length(lateness)
    return StateSection(SECTION, PANES, details=details)


def fragments_section(spec: BuiltInSpec) -> StateSection:
    """Of sessions with built-in aggregates."""
    details = {"windows": "event-time sessions", "content": _aggregates(spec.aggregates)}
    return StateSection(SECTION, FRAGMENTS, details=details)


def keyed_section(
    assigner: object,
    spec: WindowSpec,
    trigger: object,
    *,
    lateness: int,
    has_evictor: bool,
    moves_timers: bool,
) -> StateSection:
    """Of windows of any kind, kept key by key.

    Args:
        assigner: of windows.
        spec: the function.
        trigger: the one that runs; what is stored has the timers that it wanted.
        lateness: how long windows are kept after their end; their timers are then.
        has_evictor: then elements are kept, with their timestamps, whatever the function.
        moves_timers: whether a session that grows gets a timer of its new end.  Where it keeps the
            old one, an operator that does not expect that would never fire it.
    """
    details = {
        "windows": _family(assigner),
        "content": TIMED_ELEMENTS if has_evictor else _content(spec),
        "trigger": _timers_of(trigger),
        "lateness": _length(lateness),
    }
    if merges_sessions(assigner):
        details["timers"] = "of the session's end" if moves_timers else "of any window within it"
    return StateSection(SECTION, KEYED, details=details)


def _length(lateness: int) -> str:
    return f"{lateness} ms"


def _grid(assigner: FixedWindows) -> str:
    """Return where windows begin and end.

    Those of another grid have no place in what is stored, or lack the records before the change.
    """
    offset = assigner.offset % assigner.slide
    behind = f", {offset} ms behind the full one" if offset else ""
    time = "event" if assigner.is_event_time() else "processing"
    return f"{assigner.size} ms of {time} time, one every {assigner.slide} ms{behind}"


def _family(assigner: Any) -> str:
    """Return what kind of windows these are; sessions with another gap are found beside others."""
    if isinstance(assigner, FixedWindows):
        return _grid(assigner)
    if merges_sessions(assigner):
        kind = "sessions"
    elif isinstance(assigner, GlobalWindows):
        return "global"
    else:
        merging = ", merging" if isinstance(assigner, MergingWindowAssigner) else ""
        kind = f"of {type(assigner).__name__}{merging}"
    return f"{kind}, {'event' if assigner.is_event_time() else 'processing'} time"


def _timers_of(trigger: Any) -> str:
    """The trigger whose timers and state are stored; purging has none of its own."""
    while isinstance(trigger, PurgingTrigger):
        trigger = trigger.nested_trigger
    return type(trigger).__name__


def _content(spec: WindowSpec) -> str:
    if isinstance(spec, ReduceSpec):
        return REDUCED
    if isinstance(spec, AggregateSpec):
        return ACCUMULATED
    if isinstance(spec, BuiltInSpec):
        return _aggregates(spec.aggregates)
    return ELEMENTS


def _aggregates(aggregates: Aggregates) -> str:
    return ", ".join(map(_aggregate, named_aggregates(aggregates).values()))


def _aggregate(aggregate: BuiltInAggregate) -> str:
    """``Sum('delay')``; the name of the output column and a filter are no part of what is kept."""
    field = "" if aggregate.field is None else repr(aggregate.field)
    return f"{type(aggregate).__name__}({field})"


#: The trigger of the layouts that have no other.
_ON_TIME: Final = "EventTimeTrigger"
#: Evictors that read no timestamp, and no subclasses of them.
_TIMELESS: Final = (CountEvictor, DeltaEvictor)


def trigger_of(section: StateSection) -> str:
    """The trigger whose timers and state a section has."""
    return section.details.get("trigger", _ON_TIME)


@dataclass(frozen=True, slots=True)
class WindowsAsDeclared:
    """What a program declares, as far as it decides what it can continue with."""

    section: StateSection
    assigner: Any
    spec: WindowSpec
    trigger: Any
    evictor: Any

    def refusal(self, stored: StateSection) -> str | None:
        """Why the windows of ``stored`` cannot be continued with; None if they can."""
        if stored.name != SECTION or stored.version != self.section.version:
            return ""
        if stored == self.section:
            return None
        if _windows(stored) != _windows(self.section):
            return "these are other windows"
        return self._content_refusal(stored) or self._trigger_refusal(stored)

    def _content_refusal(self, stored: StateSection) -> str | None:
        old, new = stored.details["content"], self.section.details["content"]
        if self.section.layout == PANES != stored.layout and self._overlap:
            return "windows that overlap cannot be cut into panes"
        if old in (new, TIMED_ELEMENTS):
            return None
        if old != ELEMENTS:
            return f"of {old}, {new} cannot be made"
        if new == TIMED_ELEMENTS:
            looking = None if type(self.evictor) in _TIMELESS else type(self.evictor).__name__
        else:
            looking = self._looks_at_time()
        if looking is None:
            return None
        return f"the elements are stored without timestamps, which {looking} looks at"

    def _looks_at_time(self) -> str | None:
        """The built-in aggregate that needs the timestamps of elements, if there is one."""
        if not isinstance(self.spec, BuiltInSpec):
            return None
        kinds = map(type, named_aggregates(self.spec.aggregates).values())
        return next((each.__name__ for each in kinds if each in (First, Last, Collect)), None)

    def _trigger_refusal(self, stored: StateSection) -> str | None:
        if self.section.layout != KEYED or trigger_of(stored) == trigger_of(self.section):
            return None
        if self.trigger.can_restore():
            return None
        return (
            f"{trigger_of(self.section)} cannot take windows over from {trigger_of(stored)}: give"
            " it a method on_restore(window, ctx)"
        )

    @property
    def _overlap(self) -> bool:
        return isinstance(self.assigner, FixedWindows) and self.assigner.slide < self.assigner.size


def _windows(section: StateSection) -> str:
    """Return what windows these are; fragments are of one kind of sessions."""
    windows = section.details["windows"]
    return "sessions, event time" if section.layout == FRAGMENTS else windows


#: Key, window, and an accumulator, a list of elements, or ABSENT where nothing is left of it.
StoredWindow = tuple["CacheKey", Any, Any]

_PANE_NAME: Final = 24
_FRAGMENT_NAME: Final = 25
_SETS: Final = "\0windows.merging"
_ACCUMULATORS: Final = "\0windows.accumulators"
_HEADERS: Final = "\0windows.chunks"
_CHUNKS: Final = "\0windows.elements"


_SECTIONS: Final = {
    ALIGNED: TimeSection(b"T", ACCUMULATOR_INDEX),
    PANES: TimeSection(b"C", CHUNK_INDEX),
    FRAGMENTS: TimeSection(b"C", SESSION_INDEX),
}


@dataclass(frozen=True, slots=True)
class StoredWindows:
    """The windows of one store."""

    stored: StateSection
    store: KeyValueStore
    #: Max parallelism, and the key groups of the subtask.
    groups: tuple[int, tuple[int, int]]
    watermark: int
    assigner: Any
    spec: WindowSpec
    codec: WindowCodec
    #: The number of a state by its name, where the store has it.
    indices: dict[str, int]

    def __iter__(self) -> Iterator[StoredWindow]:
        """Yield every window; of one key and window there is one."""
        read = {
            ALIGNED: self._aligned,
            PANES: self._panes,
            FRAGMENTS: self._fragments,
            KEYED: self._keyed,
        }
        return read[self.stored.layout]()

    @property
    def holds_elements(self) -> bool:
        """Return whether content is a list of elements."""
        return self.stored.details["content"] in (ELEMENTS, TIMED_ELEMENTS)

    def drop(self) -> None:
        """Remove the content; what functions keep by themselves stays."""
        if self.stored.layout == KEYED:
            for name in (_ACCUMULATORS, _HEADERS, _CHUNKS):
                self.drop_state(name)
            return
        section = _SECTIONS[self.stored.layout]
        self.store.delete_range(*section.everything())

    def drop_elements(self) -> None:
        """Remove the elements of windows that are kept by key."""
        for name in (_HEADERS, _CHUNKS):
            self.drop_state(name)

    @property
    def merges(self) -> bool:
        """Return whether the windows are kept by key and merge."""
        return self.stored.layout == KEYED and _SETS in self.indices

    def drop_state(self, name: str) -> None:
        """Remove all of a state that is kept by key."""
        index = self.indices.get(name)
        if index is None:
            return
        for group in range(*self.groups[1]):
            prefix = b"K" + group.to_bytes(2, "big")
            start, stop = (prefix + number.to_bytes(2, "big") for number in (index, index + 1))
            self.store.delete_range(start, stop)

    # -- windows that all keys share -----------------------------------------------------------

    def _aligned(self) -> Iterator[StoredWindow]:
        section = _SECTIONS[ALIGNED]
        size = self.assigner.size
        before: bytes | None = None
        elements: list[Any] = []
        window: Any = None
        key: CacheKey = 0
        for name, value in scan_in_steps(self.store, *section.everything()):
            encoded, rest = timed_key_and_rest(name)
            head = name.removesuffix(rest)
            if head != before:
                if before is not None and self.holds_elements:
                    yield key, window, elements
                before, elements = head, []
                key = KeyContext.decode_cache_key(encoded)
                last = section.time_of(name)
                window = TimeWindow(last - size + 1, last + 1)
            if self.holds_elements:
                elements.extend(loads(value))
            else:
                yield key, window, loads(value)
        if before is not None and self.holds_elements:
            yield key, window, elements

    def _panes(self) -> Iterator[StoredWindow]:
        """Of each window all its panes; those over by the lateness of what is stored are gone."""
        rows = _rows_of(self.spec)
        assigner: FixedWindows = self.assigner
        panes = Panes(assigner)  # type: ignore[arg-type] # only such have panes
        lateness = int(self.stored.details.get("lateness", "0 ms").partition(" ")[0])
        section = _SECTIONS[PANES]
        pending: dict[int, dict[CacheKey, list[Any]]] = {}
        for name, value in scan_in_steps(self.store, *section.everything()):
            pane = panes.of_timestamp(section.time_of(name))
            first = -((panes.per_window - 1 - pane) // panes.per_slide)
            for number in sorted(each for each in pending if each < first):
                yield from _of_window(panes, assigner, number, pending.pop(number))
            for row in counted_rows(*decoded_chunk(name, _PANE_NAME, value, self.groups)):
                for number in range(first, pane // panes.per_slide + 1):
                    end = panes.window_end(number)
                    if panes.per_window > 1 and end - 1 + lateness <= self.watermark:
                        continue
                    content = pending.setdefault(number, {})
                    made = rows.from_partials(row)
                    so_far = content.get(row[KEY])
                    content[row[KEY]] = made if so_far is None else rows.merge(so_far, made)
        for number in sorted(pending):
            yield from _of_window(panes, assigner, number, pending[number])

    # -- sessions ------------------------------------------------------------------------------

    def _fragments(self) -> Iterator[StoredWindow]:
        """Of each session all its fragments, which overlap or touch."""
        rows = _rows_of(self.spec)
        section = _SECTIONS[FRAGMENTS]
        stored = scan_in_steps(self.store, *section.everything())
        by_key: dict[CacheKey, list[tuple[int, int, list[Any]]]] = {}
        for _, table, alive, _ in fragment_runs(stored, _FRAGMENT_NAME, self.groups):
            for row in counted_rows(table, alive):
                found = (row["window_start"], row["window_end"], rows.from_partials(row))
                by_key.setdefault(row[KEY], []).append(found)
        for key, fragments in by_key.items():
            for start, end, content in _joined(fragments, rows):
                yield key, TimeWindow(start, end), content

    # -- windows kept key by key ---------------------------------------------------------------

    def _keyed(self) -> Iterator[StoredWindow]:
        for key, encoded, window, states in self.in_flight():
            yield key, window, self.content(encoded, states)

    def in_flight(self) -> Iterator[tuple[CacheKey, bytes, Any, tuple[bytes, ...]]]:
        """Yield (key, its bytes in names, window, state windows) of all that have content.

        Where windows merge, of all that there are.
        """
        sets = self.indices.get(_SETS)
        if sets is not None:
            for name, value in scan_state(self.store, sets, self.groups[1]):
                encoded, _ = key_and_rest(name)
                key = KeyContext.decode_cache_key(encoded)
                for window, states in loads(value):
                    yield key, name, self.codec.decode(window), states
            return
        content = self.indices.get(_HEADERS if self.holds_elements else _ACCUMULATORS)
        if content is None:
            return
        for name, _ in scan_state(self.store, content, self.groups[1]):
            encoded, namespace = key_and_rest(name)
            key, head = KeyContext.decode_cache_key(encoded), name[: len(name) - len(namespace)]
            yield key, head, self.codec.decode(namespace), (namespace,)

    def content(self, head: bytes, states: tuple[bytes, ...]) -> Any:
        """Return what is kept of state windows; ``head`` is the name of any state of the key."""
        if not self.holds_elements:
            stored = self._get(_ACCUMULATORS, head, states[0])
            return ABSENT if stored is None else loads(stored)
        elements: list[Any] = []
        for namespace in states:
            header = self._get(_HEADERS, head, namespace)
            if header is None:
                continue
            prefix = self._name(_CHUNKS, head, namespace)
            for name in chunk_names(prefix, loads(header)[0]):
                stored = self.store.get(name)
                if stored is None:
                    message = f"a chunk of the elements of window {namespace!r} is missing"
                    raise StateError(message)
                elements.extend(loads(stored))
        return elements or ABSENT

    def _name(self, state: str, head: bytes, namespace: bytes) -> bytes:
        return head[:3] + self.indices[state].to_bytes(2, "big") + head[5:] + namespace

    def _get(self, state: str, head: bytes, namespace: bytes) -> bytes | None:
        return (
            None
            if state not in self.indices
            else self.store.get(self._name(state, head, namespace))
        )


def _rows_of(spec: WindowSpec) -> RowAggregates:
    return RowAggregates(spec.aggregates)  # type: ignore[union-attr] # the content is theirs


def _of_window(
    panes: Panes, assigner: FixedWindows, number: int, content: dict[CacheKey, list[Any]]
) -> Iterator[StoredWindow]:
    end = panes.window_end(number)
    for key, accumulator in content.items():
        yield key, TimeWindow(end - assigner.size, end), accumulator


def _joined(
    fragments: list[tuple[int, int, list[Any]]], rows: RowAggregates
) -> Iterator[tuple[int, int, list[Any]]]:
    """Sessions of the fragments of a key, which are given oldest first; so they are merged."""
    order = sorted(range(len(fragments)), key=lambda number: fragments[number][0])
    group: list[int] = []
    end = 0
    for number in [*order, -1]:
        if group and (number < 0 or fragments[number][0] > end):
            parts = [fragments[each] for each in sorted(group)]
            content = parts[0][2]
            for part in parts[1:]:
                content = rows.merge(content, part[2])
            yield min(part[0] for part in parts), end, content
            group, end = [], 0
        if number >= 0:
            end = max(end, fragments[number][1]) if group else fragments[number][1]
            group.append(number)


#: Rows that become one table.
_ROWS: Final = 4096
#: States that only windows kept by key have.
_OF_KEYED: Final = ("\0windows.accumulators", "\0windows.chunks", "\0windows.trigger:")
#: Sections of one layout only, by kind.
_LAYOUTS: Final = {
    "accumulators of windows": ALIGNED,
    "elements of windows": ALIGNED,
    "panes": PANES,
    "session fragments": FRAGMENTS,
    "window elements": KEYED,
    "merging windows": KEYED,
}


def stored_section(store: KeyValueStore, own: StateSection) -> StateSection | None:
    """Return what is in the store if an operator has to convert it; None if it need not.

    Args:
        store: as it was restored.
        own: what the operator would write.
    """
    found = stored_record(store, SECTION)
    return None if found == own else found


class _Convert:
    """Makes of stored content what a function keeps."""

    def __init__(
        self,
        stored: StateSection,
        own: StateSection,
        spec: WindowSpec,
        context: OperatorContext,
        fold: Callable[[Any, Any], Any] | None,
    ) -> None:
        self._old = stored.details["content"]
        self._new = own.details["content"]
        self._context = context
        self._fold = fold or self._fold_row
        self._rows: RowAggregates | None = None
        self._input_type = Types.PICKLED_BYTE_ARRAY()
        if isinstance(spec, BuiltInSpec):
            self._rows = RowAggregates(spec.aggregates)
            self._input_type = spec.input_type or self._input_type

    @property
    def is_needed(self) -> bool:
        """Return whether content is not as it is wanted."""
        return self._old != self._new

    def __call__(self, key: CacheKey, window: Any, content: Any) -> Any:
        """Return the content as it is wanted.

        Raises:
            UserFunctionError: the function raised; names key and window.
        """
        if content is ABSENT or not self.is_needed:
            return content
        if self._new == TIMED_ELEMENTS:
            return [(value, window.max_timestamp()) for value in content]
        timed = self._old == TIMED_ELEMENTS
        values = [value for value, _ in content] if timed else content
        if self._new == ELEMENTS:
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
        rows = self._rows
        assert rows is not None  # noqa: S101 - only operators of built-in aggregates give no fold
        return rows.add(value, rows.create_accumulator() if so_far is ABSENT else so_far)


def partial_types(
    rows: RowAggregates, spec: BuiltInSpec, context: OperatorContext
) -> dict[str, pa.DataType]:
    """The types that the partial columns of a program have, as far as they are known."""
    if spec.input_type is None:
        return {}
    return {each.name: each.type for each in rows.partial_types(spec.input_type, context)}


class Adoption:
    """The windows of a store, as an operator wants them."""

    def __init__(
        self,
        stored: StateSection,
        own: StateSection,
        store: KeyValueStore,
        watermark: int,
        declared: tuple[Any, WindowSpec],
        context: OperatorContext,
        fold: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """Take what is stored and what is wanted.

        Args:
            stored: what the store holds.
            own: what the operator keeps.
            store: as it was restored.
            watermark: of the operator, in milliseconds.
            declared: assigner and function of the program.
            context: of the operator.
            fold: puts an element into an accumulator; None: that of built-in aggregates.
        """
        assigner, spec = declared
        groups = key_group_range(context.subtask, context.max_parallelism, context.parallelism)
        self.stored = stored
        self.store = store
        self.convert = _Convert(stored, own, spec, context, fold)
        self.sections = read_sections(store)
        self.source = StoredWindows(
            stored,
            store,
            (context.max_parallelism, groups),
            watermark,
            assigner,
            spec,
            WindowCodec(assigner.get_window_serializer()),
            {section.name: section.index for section in self.sections},
        )

    def windows(self) -> Iterator[StoredWindow]:
        """Every window, its content as it is wanted."""
        for key, window, content in self.source:
            yield key, window, self.convert(key, window, content)

    def drop_timers(self) -> None:
        """Remove all timers: window operators have none but those of windows."""
        for section in self.sections:
            if section.kind == "timers":
                self.store.delete_range(*TimeSection(b"T", section.index).everything())

    def drop_states(self, prefix: str) -> None:
        """Remove all of the states whose names begin so."""
        for section in self.sections:
            if section.letter == "K" and section.name.startswith(prefix):
                self.source.drop_state(section.name)

    def finish(self, own: StateSection) -> None:
        """Let the store say what it holds now: also one that holds nothing, for stores are merged.

        What only the other operator has checked is taken off the list.
        """
        gone = [
            META + section.name.encode()
            for section in self.sections
            if own.layout != self.stored.layout and not _is_of(own.layout, section)
        ]
        self.store.write([section_record(own)], gone)


def _is_of(layout: str, section: Section) -> bool:
    """Return whether windows of a layout may have such a section."""
    if _LAYOUTS.get(section.kind, layout) != layout:
        return False
    return layout == KEYED or not section.name.startswith(_OF_KEYED)


def pane_tables(
    windows: Iterable[StoredWindow], rows: RowAggregates, types: Mapping[str, pa.DataType]
) -> Iterator[tuple[int, pa.Table]]:
    """Windows that do not overlap as (last timestamp, table of keys and partial columns)."""
    filled = (each for each in windows if each[2] is not ABSENT)
    for part in _in_parts(filled):
        by_window: dict[tuple[int, type], list[StoredWindow]] = {}
        for each in part:
            by_window.setdefault((each[1].max_timestamp(), _form(each[0])), []).append(each)
        for (last, _), some in by_window.items():
            columns = rows.to_partials([content for _, _, content in some], types)
            yield last, pa.table({KEY: _keys(some), **columns})


def fragment_tables(
    windows: Iterable[StoredWindow],
    rows: RowAggregates,
    types: Mapping[str, pa.DataType],
    watermark: int,
    bounds: tuple[str, str],
    context: OperatorContext,
) -> Iterator[pa.Table]:
    """Sessions as tables of keys, bounds and partial columns.

    Raises:
        StateError: a session has no content and has not fired: it could not be kept.
    """
    for part in _in_parts(windows):
        by_form: dict[type, list[StoredWindow]] = {}
        for key, window, content in part:
            kept = content
            if content is ABSENT:
                if window.max_timestamp() > watermark:
                    message = (
                        f"operator {context.name!r} ({context.location}): in its section"
                        f" {SECTION!r} the session {window} of key {uncache_key(key)!r} is open and"
                        " its content was purged, which fragments cannot express. Keep the trigger"
                        " until it is over"
                    )
                    raise StateError(message)
                kept = rows.create_accumulator()
            by_form.setdefault(_form(key), []).append((key, window, kept))
        for some in by_form.values():
            columns = rows.to_partials([content for _, _, content in some], types)
            starts = pa.array([window.start for _, window, _ in some], pa.int64())
            ends = pa.array([window.end for _, window, _ in some], pa.int64())
            yield pa.table({KEY: _keys(some), bounds[0]: starts, bounds[1]: ends, **columns})


def _in_parts(windows: Iterable[StoredWindow]) -> Iterator[list[StoredWindow]]:
    rest = iter(windows)
    while part := list(islice(rest, _ROWS)):
        yield part


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


class KeyedWindows(Protocol):
    """What an operator has for it."""

    keyed_state: KeyedState
    section: StateSection

    @property
    def contents(self) -> Contents:
        """Return where content is kept."""

    def place_new(self, key: CacheKey, window: Any) -> StateWindows:
        """Let a window be in flight; return where its content belongs."""

    def take_over(self, key: CacheKey, window: Any, states: StateWindows, *, restart: bool) -> None:
        """End a window that is over; else register its timers, those of the trigger if ``restart``.

        Nothing is evaluated.
        """

    def spill(self) -> None:
        """Write state to the store if there is much of it in memory."""


def adopt_windows(host: KeyedWindows, adoption: Adoption) -> None:
    """Make the windows of a store those of ``host``."""
    if adoption.stored.layout == KEYED:
        _adopt_keyed(host, adoption)
    else:
        for key, window, content in adoption.windows():
            states = host.place_new(key, window)
            if content is not ABSENT:
                host.contents.put(key, states, content)
            host.take_over(key, window, states, restart=True)
            host.spill()
        host.keyed_state.flush()
        adoption.source.drop()
    adoption.finish(host.section)


def _adopt_keyed(host: KeyedWindows, adoption: Adoption) -> None:
    old, new = adoption.stored, host.section
    restart = trigger_of(old) != trigger_of(new) or old.details.get("timers") != new.details.get(
        "timers"
    )
    source, keyed = adoption.source, host.keyed_state
    # What was purged has timers only.  All are known before any is registered or removed.
    merging = source.merges
    waiting = set() if merging else set(_with_timers(adoption))
    if adoption.convert.is_needed:
        for key, head, window, states in source.in_flight():
            content = source.content(head, states)
            if content is not ABSENT:
                host.contents.put(key, states, adoption.convert(key, window, content))
            host.spill()
        keyed.flush()
    if restart:
        adoption.drop_timers()
        adoption.drop_states("\0windows.trigger:")
        for queue in (keyed.timers.event, keyed.timers.processing):
            queue.begin_epoch(queue.index)
    for key, _, window, states in source.in_flight():
        waiting.discard((key, states[0]))
        host.take_over(key, window, states, restart=restart)
        host.spill()
    for key, namespace in waiting:
        window = source.codec.decode(namespace)
        host.take_over(key, window, (namespace,), restart=restart)
    keyed.flush()
    if adoption.convert.is_needed and not new.details["content"].startswith("elements"):
        source.drop_elements()


def _with_timers(adoption: Adoption) -> Iterator[tuple[CacheKey, bytes]]:
    """Key and window of every timer."""
    for section in adoption.sections:
        if section.kind != "timers":
            continue
        timers = TimeSection(b"T", section.index).everything()
        for name, _ in scan_in_steps(adoption.store, *timers):
            encoded, rest = timed_key_and_rest(name)
            if rest.startswith(WINDOW_TIMERS):
                yield KeyContext.decode_cache_key(encoded), rest.removeprefix(WINDOW_TIMERS)
