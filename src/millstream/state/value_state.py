"""Value, reducing and aggregating state: one stored value per key.

What it is: the implementations of three handles over one cache of Python objects.  Reading and
writing cost a dictionary look-up each; the store is asked only for keys that were neither
prefetched nor used before.

What it is not: thread-safe.  A task is one thread.

Read next: ``state/keyed.py``, which prefetches and flushes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.functions.handles import AggregatingState, ReducingState, ValueState
from millstream.state.cached_values import CachedValues
from millstream.state.key_codec import CacheKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.functions.descriptors import (
        AggregatingStateDescriptor,
        ReducingStateDescriptor,
    )
    from millstream.state.key_context import KeyContext

__all__ = ["KeyedAggregatingState", "KeyedReducingState", "KeyedValueState", "SingleValue"]


#: How many values stay in memory between epochs, and of which types.
_MOST_KEPT: Final = 200_000
_PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})


class SingleValue(CachedValues[CacheKey]):
    """The cache of one state: cache key -> value, None where the store has none."""

    __slots__ = ()

    def load(self) -> Any:
        """Read the value of the current key, which is not in the cache."""
        return self.read(self.keyed.cache_key)

    def put(self, value: object) -> None:
        """Set the value of the current key; None removes it."""
        key = self.keyed.cache_key
        self.cache[key] = value
        self.dirty.add(key)

    def end_epoch(self) -> None:
        """Forget all but a few plain values."""
        # Values that nobody can change in place stay what the store holds, so the next epoch need
        # not read them again if it goes on from this one's snapshot.
        if len(self.cache) > _MOST_KEPT or not _PLAIN.issuperset(map(type, self.cache.values())):
            self.cache.clear()


class KeyedValueState(SingleValue, ValueState[Any]):
    """One value per key."""

    __slots__ = ()

    def value(self) -> Any:
        try:
            return self.cache[self.keyed.cache_key]
        except KeyError:
            return self.load()

    def update(self, value: Any) -> None:
        key = self.keyed.cache_key
        self.cache[key] = value
        self.dirty.add(key)

    def checked_update(
        self, fits: Callable[[Any], bool], refuse: Callable[[Any], None]
    ) -> Callable[[Any], None]:
        """``update`` for values that are checked first, in one call: it is in the hot loop.

        Args:
            fits: whether a value may be written.
            refuse: raises for one that does not fit, if it really does not.
        """
        keyed, add = self.keyed, self.dirty.add  # which stay the same objects

        def update(value: Any) -> None:
            if not fits(value):
                refuse(value)
            key = keyed.cache_key
            self.cache[key] = value
            add(key)

        return update

    def clear(self) -> None:
        """Remove the value of the current key."""
        self.put(None)


class KeyedReducingState(SingleValue, ReducingState[Any]):
    """One value per key, into which each added value is reduced."""

    __slots__ = ("_reduce",)

    def __init__(self, keyed: KeyContext, descriptor: ReducingStateDescriptor) -> None:
        super().__init__(keyed, descriptor)
        self._reduce = descriptor.reduce

    def get(self) -> Any:
        """Return the reduced value, None if nothing was added."""
        try:
            return self.cache[self.keyed.cache_key]
        except KeyError:
            return self.load()

    def add(self, value: Any) -> None:
        current = self.get()
        self.put(value if current is None else self._reduce(current, value))

    def clear(self) -> None:
        """Remove the value of the current key."""
        self.put(None)

    def add_all(self, values: Iterable[Any]) -> None:
        """Reduce several values into the state."""
        for value in values:
            self.add(value)


class KeyedAggregatingState(SingleValue, AggregatingState[Any, Any]):
    """One accumulator per key."""

    __slots__ = ("_function",)

    def __init__(self, keyed: KeyContext, descriptor: AggregatingStateDescriptor) -> None:
        super().__init__(keyed, descriptor)
        self._function = descriptor.aggregate

    def accumulator(self) -> Any:
        """Return the accumulator of the current key, None if nothing was added."""
        try:
            return self.cache[self.keyed.cache_key]
        except KeyError:
            return self.load()

    def get(self) -> Any:
        """Return the result of the accumulator, None if nothing was added."""
        accumulator = self.accumulator()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        accumulator = self.accumulator()
        function = self._function
        if accumulator is None:
            accumulator = function.create_accumulator()
        self.put(function.add(value, accumulator))

    def clear(self) -> None:
        """Remove the accumulator of the current key."""
        self.put(None)
