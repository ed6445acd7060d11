r"""Keyed state of one operator subtask: the current key, its handles, its timers.

At the start of a micro-batch it is given a store restored to the previous checkpoint; user
functions then work on Python objects in memory; ``flush`` writes what changed.

Where tasks end with their micro-batch, it also forgets it, so memory is bounded by what a
micro-batch touches; up to 200,000 numbers and strings per state stay in memory, for the next one in
this worker to use if it continues from the very snapshot that this one made.  In long-running
tasks, state in use stays in memory after snapshots, in two generations (``state/value_state.py``),
up to a number of bytes; changes are written gradually between snapshots (``write_some``), so these
are short.

Facts about the store itself, under ``M``: its states (``state/registry.py``); ``\0format``, the
version of this layout; ``\0chunk``, the counter that numbers list chunks; ``\0swept``, the position
up to which the background has removed expired state.
"""

from __future__ import annotations

import json
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast
from weakref import WeakSet

from millstream.errors import ProgramError, StateError, UnknownFormatError
from millstream.functions.descriptors import ListStateDescriptor, MapStateDescriptor
from millstream.state.key_context import KeyContext, following, head_of_name, key_of_head
from millstream.state.list_state import KeyedListState, KeyedMapState
from millstream.state.migration import entry_conversion, migrate
from millstream.state.registry import (
    CHUNK_COUNTER,
    EVENT_TIME,
    META,
    SECTION_RECORD,
    STORE_FORMAT,
    SWEPT,
    codec_for,
    declared_parts,
    description_of,
    format_of,
    metadata_of,
    new_metadata,
    section_record,
    variants,
)
from millstream.state.rescale import scan_state
from millstream.state.serializers import MISSING_CLASS_ADVICE
from millstream.state.timers import InternalTimers
from millstream.state.ttl import TtlListState, TtlMapState, TtlValueState
from millstream.state.value_state import (
    CachedValues,
    HandleStore,
    KeyedValueState,
    hold_to_types,
    on_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.operator import StateSection
    from millstream.functions.descriptors import StateDescriptor
    from millstream.functions.handles import State
    from millstream.state.key_codec import CacheKey
    from millstream.state.key_context import Puts
    from millstream.state.value_codec import ValueCodec


#: Version of the layout of everything in a store.  Version 1 had pickled values only, which are
#: read by the codecs of typed ones.
STATE_FORMAT: Final = 2
_READ_FORMATS: Final = (None, 1, STATE_FORMAT)
#: With more objects than this in memory, ``prefetch`` flushes first.
MOST_CACHED: Final = 1_000_000

#: What may be in memory behind snapshots where nobody says, in bytes.
MOST_BYTES: Final = 256 << 20
#: Up to so many changed entries wait for the snapshot: it is quick with them.
MOST_UNWRITTEN: Final = 2_000
#: Entries that are written, or dropped, in one go; between two of them batches are processed.
_PORTION: Final = 500

#: What the names of states begin with that operators keep for themselves.
_OWN: Final = "\0"


class _Stored(Protocol):
    """What every implementation of a handle has for the flush."""

    descriptor: StateDescriptor
    index: int

    @property
    def cached(self) -> int: ...

    @property
    def weight(self) -> int: ...

    @property
    def unwritten(self) -> int: ...

    def prefetch(self, keys: set[CacheKey]) -> None: ...

    def flush(self, puts: Puts, deletes: list[bytes]) -> None: ...

    def flush_some(self, most: int, puts: Puts, deletes: list[bytes]) -> None: ...

    def age(self) -> dict[Any, Any]: ...

    def end_epoch(self) -> None: ...

    def forget(self) -> None: ...


_S = TypeVar("_S", bound=_Stored)

#: Those of this process whose tasks live on: they share the memory that there is.
_sharing: Final[WeakSet[KeyedState]] = WeakSet()


class KeyedState(KeyContext, HandleStore):
    """Handles, timers and the current key of one operator subtask.

    ``current_key`` is the key as the operator gave it; ``cache_key`` is what handles look it up by.
    """

    __slots__ = (
        "_aged",
        "_codecs",
        "_forms",
        "_gone",
        "_handles",
        "_is_recorded",
        "_known_names",
        "_metadata",
        "_new_metadata",
        "_next_index",
        "_record",
        "_states",
        "is_used_behind_snapshots",
        "key_groups",
        "most_bytes",
        "timers",
    )

    def __init__(self, max_parallelism: int, key_groups: tuple[int, int]) -> None:
        """Keep state for the key groups ``[first, stop)`` out of ``max_parallelism``."""
        super().__init__(max_parallelism)
        self.key_groups = key_groups
        self._states: dict[str, _Stored] = {}
        self._handles: dict[str, State] = {}
        #: What the store says of its states: name -> {"index", "kind", "ttl"}.
        self._metadata: dict[str, dict[str, object]] = {}
        self._new_metadata: dict[str, dict[str, object]] = {}
        self._next_index = 0
        #: Of the states that the program declares: the metadata, and the codec of some metadata.
        self._forms: dict[str, dict[str, object]] = {}
        self._codecs: dict[str, tuple[dict[str, object], ValueCodec]] = {}
        #: What the operator says of what it keeps, and whether the store says so.
        self._record: tuple[bytes, bytes] | None = None
        self._is_recorded = True
        #: Whether keys are processed on the store behind its snapshots: then what is in memory may
        #: be newer than the last of them.
        self.is_used_behind_snapshots = False
        #: What may be in memory of this process behind snapshots, in bytes, roughly.
        self.most_bytes = MOST_BYTES
        #: The bytes of the older generations of all states, roughly.
        self._aged = 0
        #: What is no longer used, to be dropped bit by bit.
        self._gone: list[dict[Any, Any]] = []
        self.timers = InternalTimers(self)

    # The life of an epoch.

    def begin_epoch(
        self,
        store: KeyValueStore,
        processing_time: int | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """Work on ``store`` from now on.

        Args:
            store: restored to the end of the previous epoch.
            processing_time: milliseconds, for time to live; left out, the system clock's.
            clock: what time it is at any moment of the epoch, in milliseconds; None: the time is
                ``processing_time`` until another one is set.

        Raises:
            StateError: a state was kept under the same name as another kind.
            UnknownFormatError: the store was written in another layout.
        """
        made = getattr(self._store, "snapshot_made", None)
        goes_on = made is not None and getattr(store, "restored_from", None) == made
        goes_on = goes_on and not self.is_used_behind_snapshots
        self.live_on(False)  # noqa: FBT003
        _sharing.add(self)
        self._store = store
        self._encoded_of = None
        self.processing_time = (
            time.time_ns() // 1_000_000 if processing_time is None else processing_time
        )
        self.clock = clock
        if not goes_on:  # what is in memory is not what the store holds
            self._forget()
            self.expired.forget()
        self._read_metadata(store)
        for state in self._states.values():
            self._bind(state)
        for queue in (self.timers.event, self.timers.processing):
            meta = self._metadata.get(queue.name)
            queue.begin_epoch(-1 if meta is None else cast("int", meta["index"]))

    def _forget(self) -> None:
        self._gone.clear()
        self._aged = 0
        for state in self._states.values():
            state.forget()

    def _read_metadata(self, store: KeyValueStore) -> None:
        self._metadata = {}
        self._new_metadata = {}
        self._flushes = 0
        version = None
        self._is_recorded = self._record is None
        for name, content in store.scan(META, b"N"):
            if name == STORE_FORMAT:
                version = int(content)
            elif name == CHUNK_COUNTER:
                self._flushes = int.from_bytes(content, "big")
            elif name == SWEPT:
                self.expired.go_on(content)
            elif name.startswith(SECTION_RECORD):
                self._is_recorded = self._is_recorded or (name, content) == self._record
            else:
                self._metadata[name[1:].decode()] = json.loads(content)
        if version not in _READ_FORMATS:
            message = (
                f"the state was written in format version {version}; this release reads"
                f" versions 1 to {STATE_FORMAT}"
            )
            raise UnknownFormatError(message)
        self._known_names = frozenset(self._metadata)
        taken = [cast("int", meta["index"]) for meta in self._metadata.values()]
        self._next_index = max(taken, default=-1) + 1

    def flush(self) -> None:
        """Write what changed to the store, and drop of what is in memory what is too much.

        Where the task ends with the epoch, that is all but a few plain values.
        """
        self._write_changes()
        if self.expired.look(at_all=not self.is_used_behind_snapshots):
            self._write_changes()
        if not self.is_used_behind_snapshots:
            for state in self._states.values():
                state.end_epoch()
        elif self._is_full():
            self._age()

    def drop_expired(self) -> None:
        """Remove what has expired of states that are to be in snapshots without it, and flush."""
        if not self.expired.left_out:
            return
        self._write_changes()
        for state in self.expired.left_out:
            now = self.event_time if state.by_event_time else self.expiry_time()
            entries = scan_state(self.store, state.index, self.key_groups)
            found = self.expired.expired_of(state, entries, now)
            while some := list(islice(found, _PORTION)):
                state.drop(some, now - state.ttl)
                self._write_changes()

    def _write_changes(self) -> None:
        puts: Puts = []
        deletes: list[bytes] = []
        for state in self._states.values():
            state.flush(puts, deletes)
        self.timers.event.flush(puts, deletes)
        self.timers.processing.flush(puts, deletes)
        self.expired.flush(puts)
        self.write_through(puts, deletes)

    def write_some(self, deadline: float) -> bool:
        """Write some of what changed, in small portions; see ``Operator.write_some``.

        Behind that some of what has expired is removed, which counts as changed again.

        A small number of changes is left: they cost a snapshot little, and keys that change all the
        time are not written again and again.
        """
        while self._gone:
            self._drop_some()
            if time.monotonic() >= deadline:
                return True
        if self.store.is_busy:  # behind a snapshot, where little has changed since
            return False
        for do_some in (self._write_timers, self._write_states, self.expired.look_between):
            while do_some():
                if time.monotonic() >= deadline:
                    return True
        return False

    def _write_timers(self) -> bool:
        """Write a portion of new timers if there are many; whether there were."""
        for queue in (self.timers.event, self.timers.processing):
            if queue.unwritten > MOST_UNWRITTEN:
                puts: Puts = []
                queue.flush_some(_PORTION, puts)
                if puts:
                    self.write_through(sorted(puts), [])
                    return True
        return False

    def _write_states(self) -> bool:
        """Write a portion of changed state if there is much; whether there was."""
        states = self._states.values()
        if sum(state.unwritten for state in states) <= MOST_UNWRITTEN:
            return False
        puts: Puts = []
        deletes: list[bytes] = []
        largest = max(states, key=lambda state: state.unwritten)
        largest.flush_some(_PORTION, puts, deletes)
        puts.sort()  # which a store takes in several times faster
        self.write_through(puts, deletes)
        return True

    def live_on(self, lives: bool) -> None:  # noqa: FBT001 - a status
        """Say whether keys are processed behind the snapshot that is to be taken."""
        self.is_used_behind_snapshots = lives
        if lives:
            _sharing.add(self)
        else:
            _sharing.discard(self)

    @property
    def _cached(self) -> int:
        """How many objects states have in memory."""
        return sum(state.cached for state in self._states.values())

    @property
    def _young(self) -> int:
        """How many bytes the younger generations of all states take, roughly."""
        return sum(state.weight for state in list(self._states.values()))

    @property
    def objects_size(self) -> int:
        """How many bytes the Python objects of all states take, roughly; from any thread."""
        return self._young + self._aged

    def _is_full(self, generations: int = 2) -> bool:
        """Return whether the younger generation takes its part of what there is for all."""
        return self._young * generations > self.share

    @property
    def share(self) -> int:
        """How many bytes one operator may have in memory."""
        return self.most_bytes // max(1, len(_sharing))

    def _make_room(self) -> None:
        """Write what states have changed, and age."""
        self.flush_states()
        self._age()

    def flush_states(self) -> None:
        """Write what states have changed; timers stay as they are: some may be firing."""
        puts: Puts = []
        deletes: list[bytes] = []
        for state in self._states.values():
            state.flush(puts, deletes)
        self.write_through(puts, deletes)

    def _age(self) -> None:
        """Drop what was not used of late; all that changed is written."""
        self._aged = self._young
        for state in self._states.values():
            gone = state.age()
            if gone:
                self._gone.append(gone)

    def _drop_some(self) -> None:
        """Let go of some entries: millions of them at once would be a pause."""
        gone = self._gone[-1]
        take = gone.popitem
        for _ in range(min(len(gone), _PORTION)):
            take()
        if not gone:
            self._gone.pop()

    def write_through(self, puts: Puts, deletes: list[bytes]) -> None:
        if not puts and not deletes:
            return
        for name, meta in self._new_metadata.items():
            puts.append((META + name.encode(), json.dumps(meta).encode()))
        self._new_metadata.clear()
        if not self._is_recorded and self._record is not None:
            puts.append(self._record)
            self._is_recorded = True
        self._flushes += 1
        puts.append((CHUNK_COUNTER, self._flushes.to_bytes(8, "big")))
        self.expired.wrote(len(puts))
        puts.append((STORE_FORMAT, str(STATE_FORMAT).encode()))
        self.store.write(puts, deletes)

    def record(self, section: StateSection) -> None:
        """Let the store say, from the next flush on, what the operator keeps in it."""
        self._record = section_record(section)

    @property
    def has_states(self) -> bool:
        return bool(self._states)

    @property
    def names(self) -> list[str]:
        """Of the states that were made so far."""
        return [name for name in self._handles if not name.startswith(_OWN)]

    def handle(self, name: str) -> State | None:
        """The handle of a state that was made; None if there is none of that name."""
        return self._handles.get(name)

    def prefetch(self, keys: list[object]) -> list[CacheKey]:
        short = self.cache_keys(keys)
        wanted = set(short)
        self.make_room(len(wanted))
        try:
            for state in self._states.values():
                state.prefetch(wanted)
        except (AttributeError, ImportError) as error:  # from unpickling
            message = (
                f"state holds values of a class that the program does not have ({error});"
                f" {MISSING_CLASS_ADVICE}"
            )
            raise StateError(message) from error
        return short

    def keys_of(self, descriptor: StateDescriptor) -> Iterator[object]:
        """Yield each key that has a state, once, as the current key; in no order of use to people.

        State of the current key may be changed meanwhile; a key that gets its first state on the
        way may be left out.

        Raises:
            ProgramError: the name is taken by another kind of state.
        """
        self.handle_of(descriptor)
        self.flush_states()  # what was changed since the last snapshot
        index = self._states[descriptor.name].index
        for group in range(*self.key_groups):
            start, stop = self.names_of_group(group, index)
            while portion := self._stored_keys(start, stop):
                start = following(portion[-1])
                keys = list(map(key_of_head, portion))
                self.prefetch(keys)
                for key in keys:
                    self.set_current_key(key)
                    yield key

    def entries_of(self, state: _Stored) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Yield all entries of a state in the order of the store, few of them in memory at a time.

        Returns:
            What the names of a key's entries begin with, the rest of the name, and the content.
            Nothing may be written before the last one.
        """
        self.flush_states()
        for group in range(*self.key_groups):
            for name, content in self.store.scan(*self.names_of_group(group, state.index)):
                head = head_of_name(name)
                yield head, name[len(head) :], content

    def clear_entries(self, state: _Stored) -> None:
        """Remove all entries of a state."""
        state.forget()
        for group in range(*self.key_groups):
            self.store.delete_range(*self.names_of_group(group, state.index))

    def _stored_keys(self, start: bytes, stop: bytes) -> list[bytes]:
        """What the names of entries begin with, once for each of the first keys."""
        found: list[bytes] = []
        for name, _ in self.store.scan(start, stop):
            head = head_of_name(name)
            if not found or found[-1] != head:
                if len(found) == _PORTION:
                    break
                found.append(head)
        return found

    def make_room(self, count: int) -> None:
        """Drop some of what is in memory if there is much: so many keys are to be read."""
        if self.is_used_behind_snapshots:
            if self._gone:
                self._drop_some()
            if self._is_full():
                self._make_room()
        elif self._is_full(generations=1) or self._cached + count > MOST_CACHED:
            self.flush_states()
            self._forget()
        self.expired.look_some(count)

    # States.

    def assign_index(self, name: str, kind: str) -> int:
        """The number of the state called ``name``; a new one if the store does not know it.

        Args:
            name: of the state.
            kind: of the state.

        Raises:
            StateError: the store has this name for another kind of state.
        """
        return self._assign(name, new_metadata(0, kind))

    def _assign(self, name: str, wanted: dict[str, object]) -> int:
        """The number of a state with this metadata; the store's, if it knows the state."""
        meta = self._metadata.get(name)
        if meta is None:
            meta = {**wanted, "index": self._next_index}
            self._next_index += 1
            self._metadata[name] = self._new_metadata[name] = meta
        elif meta["kind"] != wanted["kind"]:
            message = (
                f"state {name!r} was kept as {meta['kind']} state and is now declared as"
                f" {wanted['kind']} state; give the new state another name"
            )
            raise StateError(message)
        return cast("int", meta["index"])

    def _bind(self, state: _Stored) -> None:
        descriptor = state.descriptor
        name, wanted = descriptor.name, self._form_of(descriptor)
        state.index = self._assign(name, wanted)
        for each in [name, *variants(self._metadata, name)]:
            self._adopt(descriptor, each, wanted)
        if isinstance(state, CachedValues | KeyedListState | KeyedMapState):
            state.codec = self._codec_of(descriptor)

    def _form_of(self, descriptor: StateDescriptor) -> dict[str, object]:
        """The metadata of a state as the program declares it."""
        made = self._forms.get(descriptor.name)
        if made is None:
            made = metadata_of(descriptor)
            made["format"] = format_of(made, codec_for(made, descriptor.type_info))
            self._forms[descriptor.name] = made
        return made

    def _codec_of(self, descriptor: StateDescriptor) -> ValueCodec:
        """The codec of a state that has a number."""
        meta = self._metadata[descriptor.name]
        known = self._codecs.get(descriptor.name)
        if known is None or known[0] != meta:
            known = self._codecs[descriptor.name] = (meta, codec_for(meta, descriptor.type_info))
        return known[1]

    def _adopt(self, descriptor: StateDescriptor, stored: str, wanted: dict[str, object]) -> None:
        """Have what the store keeps under a name in the form that the program declares.

        Args:
            descriptor: of the state.
            stored: its name, or that of a variant, which is gone afterwards.
            wanted: the metadata of the state as the program declares it.

        Raises:
            StateError: values cannot be converted.
        """
        name, meta = descriptor.name, self._metadata[stored]
        target = {**self._metadata[name], **declared_parts(wanted)}
        if target == meta:
            return
        by_event_time = target.get("ttl_time") == EVENT_TIME
        now = self.event_time if by_event_time else self.expiry_time()
        convert = entry_conversion(descriptor, meta, target, now)
        self._metadata[name] = self._new_metadata[name] = target
        if convert is not None or stored != name:
            numbers = (cast("int", meta["index"]), cast("int", target["index"]))
            migrate(self.store, numbers, self.key_groups, name, convert or _as_it_is)
            # What describes the entries is written with them, whatever follows.
            puts = [(META + name.encode(), json.dumps(target).encode())]
            self.store.write(puts, [META + stored.encode()] if stored != name else [])
        if stored != name:
            del self._metadata[stored]

    def renamed(self) -> list[tuple[str, str, str]]:
        """States that look renamed: (name in the store, new name, kind and type).

        The store has a state that the function does not declare, and the function one that the
        store does not have, both of one kind and type.  What is stored would be lost to it.
        """
        gone = {name: meta for name, meta in self._metadata.items() if name not in self._states}
        fresh = {name: meta for name, meta in self._new_metadata.items() if name in self._states}
        return [
            (old, new, description_of(meta))
            for old, meta in gone.items()
            for new, other in fresh.items()
            if not old.startswith(_OWN)
            and new not in self._known_names
            and (meta["kind"], meta["ttl"]) == (other["kind"], other["ttl"])
            and (meta.get("type") == other.get("type") or None in (meta.get("type"), other["type"]))
        ]

    def described(self) -> dict[str, str]:
        """Kind and type of each state of the user that the store has, by name, for people."""
        return {
            name: description_of(meta)
            for name, meta in sorted(self._metadata.items())
            if not name.startswith(_OWN)
        }

    def unused(self) -> list[str]:
        """Return the states of the user that the store has and the function did not ask for."""
        return [name for name in self.described() if name not in self._states]

    def _register(self, state: _S) -> _S:
        self._states[state.descriptor.name] = state
        if self._store is not None:
            self._bind(state)
        return state

    def add_state(self, state: _Stored) -> None:
        """Let an operator's own state be flushed, restored and moved with that of the user."""
        self._register(state)

    def _known(self, descriptor: StateDescriptor) -> State | None:
        """The handle already made under this name.

        Raises:
            ProgramError: it is of another kind.
        """
        state = self._states.get(descriptor.name)
        if state is None:
            return None
        if state.descriptor.kind != descriptor.kind:
            message = (
                f"state {descriptor.name!r} is declared twice, as {state.descriptor.kind} and as"
                f" {descriptor.kind} state; names must be unique within an operator"
            )
            raise ProgramError(message)
        return self._handles[descriptor.name]

    def handle_of(self, descriptor: StateDescriptor) -> State:
        known = self._known(descriptor)
        if known is None:
            known = hold_to_types(self._make(descriptor), descriptor)
            self._handles[descriptor.name] = known
        return known

    def _make(self, descriptor: StateDescriptor) -> State:
        ttl = descriptor.ttl_config
        if isinstance(descriptor, ListStateDescriptor):
            elements = self._register(KeyedListState(self, descriptor))
            return elements if ttl is None else TtlListState(self, elements, ttl)
        if isinstance(descriptor, MapStateDescriptor):
            entries = self._register(KeyedMapState(self, descriptor))
            return entries if ttl is None else TtlMapState(self, entries, ttl)
        value = self._register(KeyedValueState(self, descriptor))
        return on_value(value if ttl is None else TtlValueState(self, value, ttl), descriptor)


def _as_it_is(content: bytes) -> bytes:
    return content
