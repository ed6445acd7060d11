"""The current key, and the names that the store has for what is kept of it.

What it is: what the handles of states and the timers need to know of the keyed state they belong
to; ``KeyedState`` is one.
What it is not: the states themselves (``state/keyed.py``).
"""

from __future__ import annotations

import contextlib
import operator
import struct
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from millstream.errors import StateError
from millstream.state.expired import ExpiredState
from millstream.state.key_codec import INT, INT_TAG, cache_key, decode_key, encode_key
from millstream.state.key_groups import key_group_of_cache_key, key_groups_of_ints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.state.key_codec import CacheKey

__all__ = ["KeyContext", "Puts"]

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
_TAG: Final = 0x4B  # "K"


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
        "expired",
        "max_parallelism",
        "processing_time",
    )

    def __init__(self, max_parallelism: int) -> None:
        """Have no key and no store yet."""
        self.max_parallelism = max_parallelism
        self.current_key: object = None
        self.cache_key: CacheKey = b""
        #: Milliseconds; what time to live is measured by where there is no clock.
        self.processing_time = 0
        #: Tells the time while records are processed, in milliseconds.
        self.clock: Callable[[], int] | None = None
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
        return _HEAD.pack(_TAG, group, index, len(encoded)) + encoded

    def store_keys(self, index: int, keys: list[CacheKey]) -> list[bytes]:
        """``store_key`` of many keys at once."""
        numbers = _as_ints(keys)
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
            numbers: the keys, in the order of unsigned numbers, which is that of the names of a
                key group.
        """
        groups = key_groups_of_ints(numbers, self.max_parallelism)
        order = np.argsort(groups.astype(np.uint16), kind="stable")  # of 16 bits, in linear time
        ordered = numbers[order]
        return ordered.tolist(), _names_of_ints(groups[order], index, ordered, None)

    def sorted_keys(
        self, index: int, keys: list[CacheKey], number: int
    ) -> tuple[list[CacheKey], list[bytes]]:
        """The keys in the order of their names in the store, and these, a number behind each."""
        numbers = _as_ints(keys)
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
        stripped = prefix.rstrip(b"\xff")
        return self.store.scan(prefix, stripped[:-1] + bytes((stripped[-1] + 1,)))

    @property
    def next_chunk(self) -> bytes:
        """The number of the list chunks that the next flush writes, in 8 bytes."""
        return (self._flushes + 1).to_bytes(8, "big")

    # What the keyed state adds.

    @property
    @abstractmethod
    def has_states(self) -> bool:
        """Whether there is anything that ``prefetch`` could read."""

    @abstractmethod
    def prefetch(self, keys: list[object]) -> None:
        """Read the values of ``keys`` in one go per state, for those not in memory yet."""

    @abstractmethod
    def write_through(self, puts: Puts, deletes: list[bytes]) -> None:
        """Write entries of states and timers, and what the store must know of these."""

    @abstractmethod
    def assign_index(
        self, name: str, kind: str, *, ttl: bool = False, declared: str | None = None
    ) -> int:
        """The number of the state called ``name``; a new one if the store does not know it."""


def _as_ints(keys: list[CacheKey]) -> NDArray[np.int64] | None:
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
