"""The current key, and the key layout that state handles and timers share."""

from __future__ import annotations

import contextlib
import operator
import struct
from abc import ABC, abstractmethod
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, cast

import numpy as np

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.errors import StateError
from millstream.state.key_codec import (
    INT,
    INT_TAG,
    cache_key,
    decode_key,
    encode_key,
    key_group_of_cache_key,
    key_groups_of_ints,
)
from millstream.state.registry import SWEPT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.state.key_codec import CacheKey


#: How many entries are looked at for each that is written, and at each snapshot.
_PER_WRITE: Final = 2
AT_SNAPSHOTS: Final = 1_000
#: And between two batches in one go: half a millisecond.
SLICE: Final = 500
#: So many are looked at in one go, and so many times what a batch has of keys: each begins with a
#: search.
_AT_ONCE: Final = 2_000
_PER_KEY: Final = 4
#: Between two rounds passes the shortest time to live, divided by this, at least.
_ROUNDS: Final = 8
_FIRST: Final = b"K"
_STOP: Final = b"L"
_INDEX_AT: Final = 3
_LENGTH_AT: Final = 5
_KEY_AT: Final = 9
_LENGTH: Final = struct.Struct(">I")
_INDEX: Final = struct.Struct(">H")
_NEVER: Final = 2**63 - 1


class ExpiredEntry(NamedTuple):
    """What was found in the store: by then it may have been rewritten."""

    key: CacheKey
    #: What stands behind the key in its name.
    rest: bytes


class Expiring(ABC):
    """A state whose entries expire so many milliseconds after they were written."""

    #: Whether it expires by event time.
    by_event_time: bool = False

    def __init__(self, state: Any, ttl: int) -> None:
        self._state = state
        self.ttl = ttl

    @property
    def index(self) -> int:
        """The number of the state in the store."""
        return int(self._state.index)

    @abstractmethod
    def written(self, rest: bytes, content: bytes) -> int | None:
        """Return when the oldest of what an entry holds was written; None: it does not say."""

    @abstractmethod
    def drop(self, entries: list[ExpiredEntry], until: int) -> int:
        """Remove what was written at ``until`` or before; returns when the oldest left was."""


class _Keyed(Protocol):
    """The keyed state that is looked through; ``KeyContext`` is."""

    def expiry_time(self) -> int: ...

    @property
    def event_time(self) -> int: ...

    @property
    def store(self) -> KeyValueStore: ...

    def decode_cache_key(self, encoded: bytes) -> CacheKey: ...


class ExpiredState:
    """Looks for what has expired in one store, some at a time."""

    __slots__ = (
        "_begun",
        "_cursor",
        "_is_whole",
        "_keyed",
        "_oldest",
        "_owed",
        "_states",
        "_stored",
        "_wait",
        "left_out",
    )

    def __init__(self, keyed: _Keyed) -> None:
        self._keyed = keyed
        self._states: list[Expiring] = []
        #: States of which nothing that has expired is to be in a snapshot.
        self.left_out: list[Expiring] = []
        self.forget()

    def expired_of(
        self, state: Expiring, entries: Iterable[tuple[bytes, bytes]], now: int
    ) -> Iterator[ExpiredEntry]:
        """Yield those entries of a state of which at least a part has expired."""
        for name, content in entries:
            end = _KEY_AT + int(_LENGTH.unpack_from(name, _LENGTH_AT)[0])
            written = state.written(name[end:], content)
            if written is not None and written + state.ttl <= now:
                yield ExpiredEntry(self._keyed.decode_cache_key(name[_KEY_AT:end]), name[end:])

    def watch(self, state: Expiring) -> None:
        """Look at the entries of a state."""
        self._states.append(state)

    def forget(self) -> None:
        """Begin with another store, at its first entry."""
        self._cursor = self._stored = _FIRST
        #: Entries that have not been looked at, for what was processed.
        self._owed = 0
        #: When there may be something to find.
        self._wait = 0
        #: Of the round: when it began, whether at the first entry, and when the next is worth it.
        self._begun: int | None = None
        self._is_whole = True
        self._oldest = _NEVER

    def flush(self, puts: list[tuple[bytes, bytes]]) -> None:
        """Have the store say where to go on, if that is elsewhere now."""
        if self._cursor != self._stored:
            puts.append((SWEPT, self._cursor))
            self._stored = self._cursor

    def go_on(self, cursor: bytes) -> None:
        """Go on from where the store says, unless that is known."""
        self._stored = cursor
        if self._begun is None and not self._wait:
            self._cursor = cursor

    def wrote(self, entries: int) -> None:
        """Note that so many entries were written."""
        self._owed += _PER_WRITE * entries

    def look_some(self, keys: int) -> None:
        """Look at some of the entries that are owed, ahead of a batch of so many keys."""
        if self._states and self._owed >= _AT_ONCE:
            self._look(min(self._owed, max(_AT_ONCE, _PER_KEY * keys)))

    def look_between(self) -> bool:
        """Look at a slice of what is owed, between two batches; whether it was owed."""
        return bool(self._states) and self._owed >= SLICE and self._look(SLICE)

    def look(self, *, at_all: bool) -> bool:
        """Look at some entries ahead of a snapshot.

        Args:
            at_all: whether at all that are owed, too, for nobody looks behind the snapshot.  Of
                a task that lives on it would be a pause: of 60,000 entries one of 70 ms.  There it
                is what is too little to be looked at between batches.

        Returns:
            Whether there may be something to write.
        """
        most = AT_SNAPSHOTS + (self._owed if at_all else min(self._owed, SLICE))
        return bool(self._states) and self._look(most)

    def _look(self, most: int) -> bool:
        """Look at so many entries; whether it was time to."""
        now = self._keyed.expiry_time()
        if now < self._wait:
            self._owed = 0
            return False
        self._owed = max(0, self._owed - most)
        if self._begun is None:
            self._begun, self._oldest = now, _NEVER
            self._is_whole = self._cursor == _FIRST
        by_index = {state.index: state for state in self._states}
        times = {
            state.index: self._keyed.event_time if state.by_event_time else now
            for state in self._states
        }
        found: dict[int, list[ExpiredEntry]] = {}
        name, looked = b"", 0
        for name, content in islice(self._keyed.store.scan(self._cursor, _STOP), most):
            looked += 1
            index = int(_INDEX.unpack_from(name, _INDEX_AT)[0])
            state = by_index.get(index)
            if state is None:
                continue
            end = _KEY_AT + int(_LENGTH.unpack_from(name, _LENGTH_AT)[0])
            written = state.written(name[end:], content)
            if written is None:
                continue
            if written + state.ttl <= times[index]:
                key = self._keyed.decode_cache_key(name[_KEY_AT:end])
                found.setdefault(index, []).append(ExpiredEntry(key, name[end:]))
            else:
                self._oldest = min(self._oldest, written + state.ttl)
        for index, some in found.items():
            state = by_index[index]
            left = state.drop(some, times[index] - state.ttl)
            self._oldest = min(self._oldest, left + state.ttl)
        if looked == most:
            self._cursor = name + b"\0"
        else:
            self._finish()
        return True

    def _finish(self) -> None:
        """Wait until the next round is worth it."""
        begun = self._begun or 0
        shortest = min(state.ttl for state in self._states)
        if any(state.by_event_time for state in self._states):
            self._wait = 0  # the watermark may be anywhere by then
        elif self._is_whole:
            # What has been written since the round began lives on for the shortest time at least.
            due = min(self._oldest, begun + shortest)
            self._wait = max(due, begun + shortest // _ROUNDS)
        self._cursor, self._begun = _FIRST, None


#: Entries that are to be written.
Puts: TypeAlias = list[tuple[bytes, bytes]]

_HEAD: Final = struct.Struct(">BHHI")
#: The head, and a key that is an integer, as ``encode_key`` writes it.
_INT_KEY: Final = np.dtype(
    [
        ("tag", "u1"),
        ("group", ">u2"),
        ("index", ">u2"),
        ("size", ">u4"),
        ("type", "u1"),
        ("key", ">i8"),
    ]
)
_INT_KEY_AND_NUMBER: Final = np.dtype([("head", _INT_KEY), ("number", ">u4")])
_GROUP_AND_LENGTH: Final = struct.Struct(">HI")
_GROUP: Final = struct.Struct(">BHH")
_TAG: Final = 0x4B  # "K"


def following(prefix: bytes) -> bytes:
    """The first name behind all that begin with ``prefix``."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,))


def head_of_key(group: int, index: int, encoded: bytes) -> bytes:
    """What the names of all entries of a state and a key begin with.

    Args:
        group: the key group.
        index: the number of the state.
        encoded: the key.
    """
    return _HEAD.pack(_TAG, group, index, len(encoded)) + encoded


def heads_of_keys(groups: Sequence[int], index: int, encoded: Sequence[bytes]) -> list[bytes]:
    """``head_of_key`` of each of some keys of a state."""
    pack = _HEAD.pack
    return [
        pack(_TAG, group, index, len(key)) + key for group, key in zip(groups, encoded, strict=True)
    ]


def head_of_name(name: bytes) -> bytes:
    """The name of an entry up to its key, that included."""
    (*_, length) = _HEAD.unpack_from(name)
    return name[: _HEAD.size + length]


def key_of_head(head: bytes) -> object:
    """The key in what ``head_of_name`` gives."""
    return decode_key(head[_HEAD.size :])


class KeyContext(ABC):
    """The current key, the store of the running epoch, and the names within it.

    ``current_key`` is the key as the operator gave it; ``cache_key`` is what handles look it up by.
    """

    __slots__ = (
        "_encoded",
        "_encoded_of",
        "_flushes",
        "_store",
        "cache_key",
        "clock",
        "current_key",
        "event_time",
        "expired",
        "max_parallelism",
        "processing_time",
        "timestamp",
    )

    def __init__(self, max_parallelism: int) -> None:
        self.max_parallelism = max_parallelism
        self.current_key: object = None
        self.cache_key: CacheKey = b""
        #: Milliseconds; what time to live is measured by where there is no clock.
        self.processing_time = 0
        #: Tells the time while records are processed, in milliseconds.
        self.clock: Callable[[], int] | None = None
        #: The watermark, or the time of the event-time timer that fires.
        self.event_time = MIN_TIMESTAMP
        #: Tells the event timestamp of what is processed, in milliseconds; MIN_TIMESTAMP if it has
        #: none.  None: the operator does not know it.
        self.timestamp: Callable[[], int] | None = None
        self._store: KeyValueStore | None = None
        #: What looks for state that has expired.
        self.expired = ExpiredState(self)
        self._flushes = 0
        #: The last key whose timer form was asked for.
        self._encoded_of: CacheKey | None = None
        self._encoded = b""

    @property
    def store(self) -> KeyValueStore:
        """The store of the running epoch.

        Raises:
            StateError: no epoch is running: state was used in ``open`` or ``close``.
        """
        if self._store is None:
            message = (
                "keyed state has no current key here; use it in process_element, on_timer or"
                " similar, not in open or close"
            )
            raise StateError(message)
        return self._store

    def expiry_time(self) -> int:
        """Return the time by which state expires: that of the access to it, as in Flink.

        The processing time of an epoch stands still: records that follow each other closely may lie
        in two epochs, of which the second begins long after the first.
        """
        if self.clock is None:
            return self.processing_time
        return max(self.processing_time, self.clock())

    def access_time(self) -> int:
        """Return the event time of an access to state: no earlier than the watermark."""
        timestamp = MIN_TIMESTAMP if self.timestamp is None else self.timestamp()
        return max(timestamp, self.event_time)

    def set_current_key(self, key: object) -> None:
        """Let the handles speak of ``key``, which must lie in this subtask's key groups."""
        self.current_key = key
        kind = type(key)
        if kind is int or kind is str:
            self.cache_key = key  # type: ignore[assignment]
        else:
            self.cache_key = cache_key(key)

    @staticmethod
    def cache_keys(keys: list[Any]) -> list[CacheKey]:
        """What each of some keys is looked up by in memory."""
        if {int, str}.issuperset(map(type, keys)):
            return keys
        return list(map(cache_key, keys))

    def store_key(self, index: int, key: CacheKey) -> bytes:
        """The store's name for state number ``index`` of ``key``."""
        group = key_group_of_cache_key(key, self.max_parallelism)
        encoded = key if type(key) is bytes else encode_key(key)
        # As ``head_of_key``, without its call for each key.
        return _HEAD.pack(_TAG, group, index, len(encoded)) + encoded

    def store_keys(self, index: int, keys: list[CacheKey]) -> list[bytes]:
        """``store_key`` of many keys at once."""
        numbers = as_ints(keys)
        if numbers is not None:
            groups = key_groups_of_ints(numbers, self.max_parallelism)
            return _names_of_ints(groups, index, numbers, None)
        return [self.store_key(index, key) for key in keys]

    def names_of_numbers(
        self, index: int, numbers: NDArray[np.int64]
    ) -> tuple[list[int], list[bytes]]:
        """Keys that are numbers, in the order of their names in the store, and these.

        Args:
            index: of the state.
            numbers: the keys.
        """
        # Unsigned numbers have the order of the names of a key group.
        numbers = np.sort(numbers.view(np.uint64)).view(np.int64)
        groups = key_groups_of_ints(numbers, self.max_parallelism)
        order = np.argsort(groups.astype(np.uint16), kind="stable")  # of 16 bits, in linear time
        ordered = numbers[order]
        return ordered.tolist(), _names_of_ints(groups[order], index, ordered, None)

    def sorted_keys(
        self, index: int, keys: list[CacheKey], number: int
    ) -> tuple[list[CacheKey], list[bytes]]:
        """The keys in the order of their names in the store, and these, a number behind each."""
        numbers = as_ints(keys)
        if numbers is not None:
            groups = key_groups_of_ints(numbers, self.max_parallelism)
            order = np.lexsort((numbers.view(np.uint64), groups))
            ordered = numbers[order]
            return ordered.tolist(), _names_of_ints(groups[order], index, ordered, number)
        end = number.to_bytes(4, "big")
        heads = self.store_keys(index, keys)
        pairs = sorted(
            zip([head + end for head in heads], keys, strict=True), key=operator.itemgetter(0)
        )
        return [key for _, key in pairs], [name for name, _ in pairs]

    def timer_key(self, key: CacheKey) -> bytes:
        """Key group, length and bytes of ``key``, as they stand in the name of a timer."""
        if key == self._encoded_of and type(key) is type(self._encoded_of):
            return self._encoded
        group = key_group_of_cache_key(key, self.max_parallelism)
        encoded = key if type(key) is bytes else encode_key(key)
        self._encoded = _GROUP_AND_LENGTH.pack(group, len(encoded)) + encoded
        self._encoded_of = key
        return self._encoded

    @staticmethod
    def decode_cache_key(encoded: bytes) -> CacheKey:
        """What the key with these bytes is looked up by in memory."""
        return cast("CacheKey", decode_key(encoded)) if encoded[:1] in b"iIs" else encoded

    def scan_prefix(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries of the store whose names begin with ``prefix``, in order."""
        return self.store.scan(prefix, following(prefix))

    @staticmethod
    def names_of_group(group: int, index: int) -> tuple[bytes, bytes]:
        """First name of a key group's entries of state number ``index``, and the first behind."""
        start = _GROUP.pack(_TAG, group, index)
        return start, following(start)

    @property
    def next_chunk(self) -> bytes:
        """The number of the list chunks that the next flush writes, in 8 bytes."""
        return (self._flushes + 1).to_bytes(8, "big")

    # What the keyed state adds.

    @property
    @abstractmethod
    def has_states(self) -> bool:
        """Return whether there is anything that ``prefetch`` could read."""

    @abstractmethod
    def prefetch(self, keys: list[object]) -> list[CacheKey]:
        """Read the values of ``keys`` in one go per state, for those not in memory yet.

        Returns:
            What each of them is looked up by, as ``cache_keys`` does.
        """

    @abstractmethod
    def write_through(self, puts: Puts, deletes: list[bytes]) -> None:
        """Write entries of states and timers, and what the store must know of these."""

    @abstractmethod
    def assign_index(self, name: str, kind: str) -> int:
        """The number of the state called ``name``; a new one if the store does not know it."""


def as_ints(keys: list[CacheKey]) -> NDArray[np.int64] | None:
    """The keys, if all are numbers of 64 bits."""
    if keys and set(map(type, keys)) == {int}:
        with contextlib.suppress(OverflowError):
            return np.array(keys, dtype=np.int64)
    return None


def _names_of_ints(
    groups: NDArray[np.int32], index: int, keys: NDArray[np.int64], number: int | None
) -> list[bytes]:
    """The store's names for a state of keys that are integers, a number behind each if given."""
    names = np.empty(len(keys), _INT_KEY_AND_NUMBER)
    head = names["head"]
    head["tag"], head["group"], head["index"] = _TAG, groups, index
    head["size"], head["type"], head["key"] = INT.size, INT_TAG, keys
    if number is None:
        head = np.ascontiguousarray(head)
        plain: list[bytes] = head.view(f"V{_INT_KEY.itemsize}").tolist()
        return plain
    names["number"] = number
    numbered: list[bytes] = names.view(f"V{_INT_KEY_AND_NUMBER.itemsize}").tolist()
    return numbered
