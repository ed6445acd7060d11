"""The windows of a store, one by one, in whichever layout they are.

What it is: what a window operator reads when it goes on from windows that another kind of operator
kept: (key, window, content).  A store may be large: its entries are read in steps, but for the rows
of panes whose windows are open.

What it is not: what is done with them (``adoption.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import StateError
from millstream.functions.window import TimeWindow
from millstream.runtime.columnar.row_aggregates import RowAggregates
from millstream.runtime.operators.windows.clock import (
    ACCUMULATOR_INDEX,
    CHUNK_INDEX,
    SESSION_INDEX,
    TimeSection,
)
from millstream.runtime.operators.windows.contents import chunk_names
from millstream.runtime.operators.windows.panes import Panes
from millstream.runtime.operators.windows.sections import (
    ALIGNED,
    ELEMENTS,
    FRAGMENTS,
    KEYED,
    PANES,
    TIMED_ELEMENTS,
)
from millstream.state.chunks import KEY, counted_rows, decoded_chunk, fragment_runs
from millstream.state.key_context import KeyContext
from millstream.state.namespaced_state import ABSENT
from millstream.state.rewriting import (
    key_and_rest,
    scan_in_steps,
    scan_state,
    timed_key_and_rest,
)
from millstream.state.serializers import loads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.operator import StateSection
    from millstream.functions.windows import FixedWindows
    from millstream.runtime.operators.windows.specs import WindowSpec
    from millstream.state.key_codec import CacheKey
    from millstream.state.window_codec import WindowCodec

__all__ = ["StoredWindow", "StoredWindows"]

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
        """Whether content is a list of elements."""
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
        """Whether the windows are kept by key and merge."""
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
        """What is kept of state windows; ``head`` is the name of any state of the key."""
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
