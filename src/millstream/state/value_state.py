"""Value, reducing and aggregating state: one stored value per key.

What it is: the implementations of three handles over one cache of Python objects.  Reading and
writing cost a dictionary look-up each; the store is asked only for keys that were neither
prefetched nor used before.

What it is not: thread-safe.  A task is one thread.

Read next: ``state/keyed.py``, which prefetches and flushes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from millstream.functions.handles import AggregatingState, ReducingState, ValueState
from millstream.state.cached_values import CachedValues
from millstream.state.changed_numbers import ChangedNumbers
from millstream.state.key_codec import CacheKey
from millstream.state.serializers import dumps_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from millstream.functions.descriptors import (
        AggregatingStateDescriptor,
        ReducingStateDescriptor,
        StateDescriptor,
    )
    from millstream.state.key_context import KeyContext, Puts

__all__ = ["KeyedAggregatingState", "KeyedReducingState", "KeyedValueState", "SingleValue"]


#: How many values stay in memory between epochs, and of which types.
_MOST_KEPT: Final = 200_000
_PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})


class SingleValue(CachedValues[CacheKey]):
    """The cache of one state: cache key -> value, None where the store has none.

    Invariant: a key whose value in ``cache`` differs from the store's is in ``dirty`` or, if it is
    a number of 64 bits, in ``numbers``.
    """

    __slots__ = ("numbers",)

    def __init__(self, keyed: KeyContext, descriptor: StateDescriptor) -> None:
        super().__init__(keyed, descriptor)
        self.numbers = ChangedNumbers()

    def load(self) -> Any:
        """Read the value of the current key, which is not in the cache."""
        return self.read(self.keyed.cache_key)

    def put(self, value: object) -> None:
        """Set the value of the current key; None removes it."""
        key = self.keyed.cache_key
        self.cache[key] = value
        if key.__class__ is int:
            try:
                self.numbers.note(key)
            except OverflowError:
                self.dirty.add(key)
        else:
            self.dirty.add(key)

    @property
    def changes(self) -> int:
        return len(self.dirty) + self.numbers.roughly

    def changed_among(self, keys: list[CacheKey]) -> int:
        others = super().changed_among(keys)
        return others + self.numbers.count([key for key in keys if type(key) is int])

    def prefetch(self, keys: set[CacheKey]) -> None:
        self.numbers.keep_short()
        super().prefetch(keys)

    def flush(self, puts: Puts, deletes: list[bytes]) -> None:
        others = list(self.dirty)
        self.watch([*others, *self.numbers.some()])
        self.dirty.clear()
        self._add(others, puts, deletes)
        self._add_numbers(self.numbers.take(), puts, deletes)

    def flush_some(self, most: int, puts: Puts, deletes: list[bytes]) -> None:
        numbers = self.numbers.take(most)
        if len(numbers):
            self._add_numbers(numbers, puts, deletes)
        else:
            super().flush_some(most, puts, deletes)

    def _add_numbers(self, numbers: NDArray[np.int64], puts: Puts, deletes: list[bytes]) -> None:
        """``_add`` of keys that are numbers, in the order of their names in the store."""
        if not len(numbers):
            return
        keys, names = self.keyed.names_of_numbers(self.index, numbers)
        values = [*map(self.cache.__getitem__, keys)]
        if type(None) in set(map(type, values)):  # ``None in`` asks values: arrays do not say
            self._add(cast("list[CacheKey]", keys), puts, deletes)
            return
        contents = dumps_all(values)
        self.measure(contents)
        puts.extend(zip(names, contents, strict=True))

    def forget(self) -> None:
        super().forget()
        self.numbers.clear()

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
        self.put(value)

    def checked_update(
        self, fits: Callable[[Any], bool], refuse: Callable[[Any], None]
    ) -> Callable[[Any], None]:
        """``update`` for values that are checked first, in one call: it is in the hot loop.

        Args:
            fits: whether a value may be written.
            refuse: raises for one that does not fit, if it really does not.
        """
        # These stay the same objects.
        keyed, note, add = self.keyed, self.numbers.note, self.dirty.add

        def update(value: Any) -> None:
            if not fits(value):
                refuse(value)
            key = keyed.cache_key
            self.cache[key] = value
            if key.__class__ is int:
                try:
                    note(key)
                except OverflowError:
                    add(key)
            else:
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
