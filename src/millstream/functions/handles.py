"""PyFlink's state handles: user functions read and write the state of the current key by them.

A handle is made once, usually in ``open``; its key is that of the current record or timer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    IN = TypeVar("IN", default=Any)
    OUT = TypeVar("OUT", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")
    K = TypeVar("K")
    V = TypeVar("V")
    IN = TypeVar("IN")
    OUT = TypeVar("OUT")


def _refuse_value(self: State, *_: object) -> NoReturn:
    kind, use = _kind_of(self)
    message = f"this is a {kind}, a handle and no value: {use}"
    raise TypeError(message)


def _kind_of(state: State) -> tuple[str, str]:
    """Return the kind of a handle, and how it is read and written."""
    for kind in type(state).__mro__:
        if kind.__name__ in _USE:
            return kind.__name__, _USE[kind.__name__]
    return "state", "call its methods"


_MAP: Final = (
    "read it with state.get(key) or state.items(), and write it with state.put(key, value)"
)
_USE: Final = {
    "ValueState": "read it with state.value() and write it with state.update(value), as in"
    " state.update((state.value() or 0) + 1)",
    "ListState": "read it with list(state.get()), and write it with state.add(value) or"
    " state.update(values)",
    "MapState": _MAP,
    "BroadcastState": _MAP,
    "ReadOnlyBroadcastState": "read it with state.get(key) or state.items()",
    "ReducingState": "read it with state.get() and write it with state.add(value)",
    "AggregatingState": "read it with state.get() and write it with state.add(value)",
}


class State(ABC):
    """The methods of all state handles.

    A handle that is taken for the value is refused with the methods to call.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers shall still refuse it
        __add__ = __radd__ = __iadd__ = __sub__ = __rsub__ = __isub__ = _refuse_value
        __mul__ = __rmul__ = __imul__ = __truediv__ = __rtruediv__ = __itruediv__ = _refuse_value
        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __or__ = __ior__ = _refuse_value
        __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __abs__ = _refuse_value
        __int__ = __float__ = __index__ = _refuse_value

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse a method of another kind of state, with those that there are."""
            if name.startswith("_"):
                raise AttributeError(name)
            kind, use = _kind_of(self)
            message = f"a {kind} has no {name!r}: {use}"
            raise AttributeError(message)

    @abstractmethod
    def clear(self) -> None:
        """Remove what is kept for the current key."""


class ValueState(State, Generic[T]):
    """One value per key."""

    __slots__ = ()

    @abstractmethod
    def value(self) -> T:
        """Return the value of the current key, None if it has none."""

    @abstractmethod
    def update(self, value: T) -> None:
        """Set the value of the current key; None removes it."""


class AppendingState(State, Generic[IN, OUT]):
    """A state that values are added to."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> OUT:
        """Return what was made of the values, None (of a list: nothing) if there are none."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value."""


class MergingState(AppendingState[IN, OUT]):
    """Appending state of which two can become one, as windows that merge need it."""

    __slots__ = ()


class ListState(MergingState[T, "Iterable[T]"], Generic[T]):
    """One list per key, to which adding costs nothing however long it is.

    ``get`` returns the elements in the order in which they were added.
    """

    __slots__ = ()

    @abstractmethod
    def add_all(self, values: Sequence[T]) -> None:
        """Add elements at the end."""

    @abstractmethod
    def update(self, values: Sequence[T]) -> None:
        """Replace all elements."""

    def __iter__(self) -> Iterator[T]:
        """Iterate over the elements."""
        return iter(self.get())


class _ReadableMap(State, Generic[K, V]):
    """A map whose entries are read one by one."""

    __slots__ = ()

    @abstractmethod
    def get(self, key: K) -> V:
        """Return the value of a map key, None if there is none."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Return whether the map key is there."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Return all entries."""

    def is_empty(self) -> bool:
        """Return whether there is no entry."""
        return not any(True for _ in self.items())

    def keys(self) -> Iterable[K]:
        """Return all map keys."""
        return [key for key, _ in self.items()]

    def values(self) -> Iterable[V]:
        """Return all values."""
        return [value for _, value in self.items()]

    def __getitem__(self, key: K) -> V:
        """Return the value of a map key, None if there is none."""
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        """Return whether the map key is there."""
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        """Iterate over the map keys."""
        return iter(self.keys())


class _WritableMap(_ReadableMap[K, V]):
    """A map whose entries are read and written one by one."""

    __slots__ = ()

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of a map key."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V]) -> None:
        """Set several."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove a map key, if it is there."""

    def __setitem__(self, key: K, value: V) -> None:
        """Set the value of a map key."""
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        """Remove a map key, if it is there."""
        self.remove(key)


class MapState(_WritableMap[K, V]):
    """One map per key, whose entries are read and written one by one.

    Iteration is in the order of the encoded map keys: for integers of one sign and for strings
    that is their own order, and it is the same after a restart.
    """

    __slots__ = ()


class ReadOnlyBroadcastState(_ReadableMap[K, V]):
    """A map that is the same in every subtask, to be read.

    What it returns must not be changed.  Entries are in the order in which keys were first put.
    """

    __slots__ = ()


class BroadcastState(ReadOnlyBroadcastState[K, V], _WritableMap[K, V]):
    """A map that is the same in every subtask, because each makes the same changes.

    A value that is changed in place has to be put again.
    """

    __slots__ = ()


class ReducingState(MergingState[T, T], Generic[T]):
    """One value per key, into which each added value is reduced."""

    __slots__ = ()


class AggregatingState(MergingState[IN, OUT]):
    """One accumulator per key, to which each added value is added; ``get`` returns its result."""

    __slots__ = ()
