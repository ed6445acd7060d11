"""Reading the state of a checkpoint, without the program that wrote it.

What it is: the sections that a store says it has (``state/registry.py``), and the entries of each,
decoded: key, window or map key or time, value; and operator state, by name.  State files are copied
into a temporary directory; nothing in the checkpoint is touched, so it may be used while the job
runs.

What it is not: what operators use, nor fast.

Read next: ``state/readable.py``, ``cli/checkpoints_command.py``, which prints it.
"""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.contracts.operator import OperatorStateKind
from millstream.errors import StateError
from millstream.state.backend import open_store
from millstream.state.chunks import KEY, counted_rows, decoded_chunk, fragment_runs
from millstream.state.operator_state_files import StateReader
from millstream.state.packed_buckets import decoded_bucket
from millstream.state.readable import readable_key, readable_value, readable_window
from millstream.state.redistribution import own_states
from millstream.state.registry import Section, read_sections
from millstream.state.rewriting import key_and_rest, timed_key_and_rest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.checkpoint.model import Manifest
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import KeyValueStore, StateHandle

__all__ = ["OperatorState", "StateEntry", "StoredSection", "open_state"]

_TIME_AT: Final = 3
_TIME_SIZE: Final = 8
_SIGN: Final = 2**63
#: Letter, number, time, form of key, epoch and attempt of a chunk; of fragments one byte more.
_CHUNK_NAME: Final = {"panes": 24, "session fragments": 25}
_BATCH: Final = 1024


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One entry of a section, for people."""

    key: object
    value: object
    #: What it is kept under beside the key: window, map key...; None if there is nothing.
    namespace: object = None
    #: Milliseconds: of a timer, or the last of a window or pane.
    time: int | None = None


@dataclass(frozen=True, slots=True)
class StoredSection:
    """A section of an operator, over all its subtasks."""

    section: Section
    entries: int
    #: Of names and values.
    size: int


class OperatorState:
    """The state of one operator of a checkpoint."""

    def __init__(
        self,
        uid: str,
        stores: list[tuple[KeyValueStore, StateHandle]],
        states: list[tuple[int, dict[str, Sequence[bytes]]]],
        described: dict[str, Section],
    ) -> None:
        """Take the stores of its subtasks, and their operator states; ``open_state`` makes them."""
        self.uid = uid
        self._stores = stores
        #: Subtask, and the elements of its states.
        self._states = states
        self._described = described
        # The key groups of all subtasks together are all there are.
        self._max_parallelism = max((handle["key_groups"][1] for _, handle in stores), default=0)

    def sections(self) -> list[StoredSection]:
        """Every section in order of name, then every operator state."""
        found: dict[str, StoredSection] = {}
        for store, _ in self._stores:
            for section in read_sections(store):
                count = size = 0
                for name, value in _scan(store, section):
                    count += 1
                    size += len(name) + len(value)
                before = found.get(section.name)
                if before is not None:
                    count, size = count + before.entries, size + before.size
                found[section.name] = StoredSection(section, count, size)
        sections = [found[name] for name in sorted(found)]
        for state, section in sorted(self._described.items()):
            sizes = [len(element) for _, element in self._elements(state)]
            sections.append(StoredSection(section, len(sizes), sum(sizes)))
        return sections

    def _elements(self, name: str) -> Iterator[tuple[int, bytes]]:
        """Subtask and element; of broadcast state, which is the same in all, those of one."""
        for subtask, states in self._states:
            if name in states:
                yield from ((subtask, element) for element in states[name])
                if self._described[name].kind == OperatorStateKind.BROADCAST.label:
                    return

    def entries(self, name: str) -> Iterator[StateEntry]:
        """The entries of the section of this name, subtask by subtask, in the order of the store.

        Raises:
            StateError: an entry cannot be read.
        """
        for store, handle in self._stores:
            for section in read_sections(store):
                if section.name == name:
                    first, stop = handle["key_groups"]
                    yield from _entries(store, section, (self._max_parallelism, (first, stop)))
        for subtask, element in self._elements(name):
            value = readable_value(element)
            if self._described[name].kind == OperatorStateKind.BROADCAST.label:
                yield StateEntry(*value)
            else:
                yield StateEntry(None, value, namespace=subtask)


@contextlib.contextmanager
def open_state(storage: CheckpointStorage, manifest: Manifest, uid: str) -> Iterator[OperatorState]:
    """Read the state of an operator of a checkpoint.

    Args:
        storage: the checkpoint directory.
        manifest: the checkpoint.
        uid: of the operator; one without state has no sections.

    Raises:
        CorruptCheckpointError: a file of the checkpoint is missing or damaged.
    """
    acks = manifest.operators.get(uid, [])
    handles = [ack.state for ack in acks if ack.state is not None]
    read = StateReader(storage)
    states: list[tuple[int, dict[str, Sequence[bytes]]]] = []
    described: dict[str, Section] = {}
    for ack in acks:
        own = own_states(ack.operator_states)
        states.append((ack.subtask, {name: read(part) for name, (part,) in own.items()}))
        for name, state in ack.operator_states.items():
            described[name] = Section(name, -1, state.kind.label, "S", "", "pickle", state.type)
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-state-")))
        stores = []
        for number, handle in enumerate(handles):
            first, stop = handle["key_groups"]
            store = open_store(
                handle["backend"],
                storage,
                uid,
                number,
                (first, stop),
                [handle],
                f"read-{number}",
                root,
            )
            stack.callback(store.close)
            stores.append((store, handle))
        yield OperatorState(uid, stores, states, described)


def _scan(store: KeyValueStore, section: Section) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a section as they are stored, in order."""
    index = section.index.to_bytes(2, "big")
    after = (section.index + 1).to_bytes(2, "big") if section.index < 0xFFFF else b"\xff\xff\xff"  # noqa: PLR2004
    letter = section.letter.encode()
    if section.letter != "K":
        yield from store.scan(letter + index, letter + after)
        return
    position = b"K"
    while True:  # group by group: the number of the section stands behind it
        entry = next(iter(store.scan(position, b"L")), None)
        if entry is None:
            return
        group = entry[0][:3]
        yield from store.scan(group + index, group + after)
        position = b"K" + (int.from_bytes(group[1:], "big") + 1).to_bytes(2, "big")


def _entries(
    store: KeyValueStore, section: Section, groups: tuple[int, tuple[int, int]]
) -> Iterator[StateEntry]:
    if section.letter == "C":
        yield from _chunk_entries(store, section, groups)
        return
    entries = _scan(store, section)
    while batch := list(islice(entries, _BATCH)):
        for name, value in batch:
            yield _entry(section, name, value)


def _entry(section: Section, name: bytes, value: bytes) -> StateEntry:
    timed = section.letter == "T"
    key, rest = timed_key_and_rest(name) if timed else key_and_rest(name)
    time = _time_of(name) if timed else None
    return StateEntry(readable_key(key), _value(section, value), _namespace(section, rest), time)


def _time_of(name: bytes) -> int:
    return int.from_bytes(name[_TIME_AT : _TIME_AT + _TIME_SIZE], "big") - _SIGN


def _namespace(section: Section, rest: bytes) -> object:
    """What stands behind the key."""
    if not rest:
        return None
    if section.namespace == "map key":
        return readable_key(rest)
    if section.namespace == "bucket":
        return int.from_bytes(rest, "big")
    if section.namespace in ("number", "sequence"):
        return int.from_bytes(rest[:8], "big")  # the epoch, or the number of the chunk
    if section.namespace == "timer":
        rest = rest.removeprefix(b"w")  # timers of windows
    window, behind = readable_window(rest)
    return (window, int.from_bytes(behind, "big")) if behind else window


def _value(section: Section, stored: bytes) -> object:
    if section.format == "":
        return None
    if section.format == "packed":
        return stored
    if section.format == "packed map":
        return decoded_bucket(stored)[2]
    value = readable_value(stored)
    if section.format == "pickled windows":
        return [
            (readable_window(window)[0], [readable_window(each)[0] for each in states])
            for window, states in value
        ]
    return value


def _chunk_entries(
    store: KeyValueStore, section: Section, groups: tuple[int, tuple[int, int]]
) -> Iterator[StateEntry]:
    """The rows of columnar chunks, those of other subtasks and those taken out left away."""
    length = _CHUNK_NAME[section.kind]
    if section.kind == "session fragments":
        for _, table, alive, _ in fragment_runs(_scan(store, section), length, groups):
            yield from (_fragment(row) for row in counted_rows(table, alive))
        return
    for name, value in _scan(store, section):
        for row in counted_rows(*decoded_chunk(name, length, value, groups)):
            yield StateEntry(_key(row), row, None, _time_of(name))


def _key(row: dict[str, Any]) -> object:
    """Take the key out of a row."""
    key = row.pop(KEY)
    return readable_key(key) if isinstance(key, bytes) else key


def _fragment(row: dict[str, Any]) -> StateEntry:
    key = _key(row)
    try:
        bounds = (row.pop("window_start"), row.pop("window_end"))
    except KeyError as error:
        message = f"a session fragment of key {key!r} has no {error}"
        raise StateError(message) from error
    return StateEntry(key, row, bounds)
