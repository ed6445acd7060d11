"""ListView and MapView: lists and maps in the accumulators of aggregate functions.

A view is read and written with its accumulator as a whole; it has no state entries of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class DataView(ABC):
    """A collection in an accumulator."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all."""


class ListView(DataView, Generic[T]):
    """A list in an accumulator."""

    def __init__(self) -> None:
        """Make an empty one."""
        self._list: list[T] = []

    def get(self) -> Iterable[T]:
        """All values."""
        return self._list

    def add(self, value: T) -> None:
        """Add a value at the end.

        Raises:
            TypeError: it is None.
        """
        if value is None:
            message = "a ListView takes no None"
            raise TypeError(message)
        self._list.append(value)

    def add_all(self, values: Iterable[T]) -> None:
        """Add values at the end."""
        for each in values:
            self.add(each)

    def clear(self) -> None:
        """Remove all."""
        self._list = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListView) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self._list))

    def __iter__(self) -> Iterator[T]:
        return iter(self._list)


class _Removing(Generic[T]):
    """Keys of a map, or keys and values, from which iterators remove, as PyFlink's do."""

    def __init__(
        self, entries: dict[Any, Any], view: Iterable[T], key_of: Callable[[T], Any]
    ) -> None:
        self._entries = entries
        self._view = view
        self._key_of = key_of

    def __iter__(self) -> _RemovingIterator[T]:
        return _RemovingIterator(self._entries, list(self._view), self._key_of)


class _RemovingIterator(Generic[T]):
    """Goes over a copy, so that the map may change meanwhile."""

    def __init__(self, entries: dict[Any, Any], items: list[T], key_of: Callable[[T], Any]) -> None:
        self._entries = entries
        self._items = iter(items)
        self._key_of = key_of
        self._last: list[T] = []

    def __iter__(self) -> _RemovingIterator[T]:
        return self

    def __next__(self) -> T:
        self._last = [next(self._items)]
        return self._last[0]

    def remove(self) -> None:
        """Remove the entry that was given last.

        Raises:
            ValueError: none was, or it is removed.
        """
        if not self._last:
            message = "there is no entry to remove: call next() before each remove()"
            raise ValueError(message)
        self._entries.pop(self._key_of(self._last.pop()), None)


class MapView(DataView, Generic[K, V]):
    """A map in an accumulator."""

    def __init__(self) -> None:
        """Make an empty one."""
        self._dict: dict[K, V] = {}

    def get(self, key: K) -> V:
        """The value of a key.

        Raises:
            KeyError: there is none.
        """
        return self._dict[key]

    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""
        self._dict[key] = value

    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set the values of keys."""
        self._dict.update(dict_value)

    def remove(self, key: K) -> None:
        """Remove a key.

        Raises:
            KeyError: it is not there.
        """
        del self._dict[key]

    def contains(self, key: K) -> bool:
        """Return whether a key is there."""
        return key in self._dict

    def items(self) -> Iterable[tuple[K, V]]:
        """Return keys and values; ``remove()`` of an iterator over them removes the last one."""
        return _Removing(self._dict, self._dict.items(), lambda item: item[0])

    def keys(self) -> Iterable[K]:
        """Return the keys; ``remove()`` of an iterator over them removes the last one."""
        return _Removing(self._dict, self._dict.keys(), lambda key: key)

    def values(self) -> Iterable[V]:
        """The values."""
        return self._dict.values()

    def is_empty(self) -> bool:
        """Return whether there is nothing."""
        return not self._dict

    def clear(self) -> None:
        """Remove all."""
        self._dict = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapView) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment] # it changes

    def __getitem__(self, key: K) -> V:
        return self.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self._dict)
