"""Handles on one entry: a list, a map, an accumulator that is stored as one value.

What it is: what state by key and namespace is used through, where a namespace (a window) holds
little of each state.

What it is not: where the entry is; that is ``state/namespaced_state.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from millstream.errors import ProgramError
from millstream.functions.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millstream.functions.handles import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.functions.descriptors import AggregateFunctionLike, StateDescriptor

__all__ = ["Entry", "handle_of"]


class Entry(Protocol):
    """Where the handle of one state keeps what it holds; None stands for nothing."""

    def read(self) -> Any:
        """Return what is there."""

    def write(self, value: object) -> None:
        """Replace what is there."""


def handle_of(entry: Entry, descriptor: StateDescriptor) -> State:
    """Return the handle of the kind that ``descriptor`` describes, on ``entry``.

    Raises:
        ProgramError: there is no such kind.
    """
    if isinstance(descriptor, ValueStateDescriptor):
        return _Value(entry)
    if isinstance(descriptor, ListStateDescriptor):
        return _List(entry)
    if isinstance(descriptor, MapStateDescriptor):
        return _Map(entry)
    if isinstance(descriptor, ReducingStateDescriptor):
        return _Reducing(entry, descriptor.reduce)
    if isinstance(descriptor, AggregatingStateDescriptor):
        return _Aggregating(entry, descriptor.aggregate)
    message = f"{descriptor!r} is not a state descriptor"
    raise ProgramError(message)


class _Value(ValueState[Any]):
    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def value(self) -> Any:
        return self._entry.read()

    def update(self, value: Any) -> None:
        self._entry.write(value)

    def clear(self) -> None:
        self._entry.write(None)


class _List(ListState[Any]):
    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def get(self) -> Iterable[Any]:
        return list(self._entry.read() or ())

    def add(self, value: Any) -> None:
        self._entry.write([*self.get(), value])

    def add_all(self, values: Sequence[Any]) -> None:
        self._entry.write([*self.get(), *values])

    def update(self, values: Sequence[Any]) -> None:
        self._entry.write(list(values) or None)

    def clear(self) -> None:
        self._entry.write(None)


class _Map(MapState[Any, Any]):
    """Entries are pairs in a list, so that map keys need not be hashable."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def items(self) -> list[tuple[Any, Any]]:
        return list(self._entry.read() or ())

    def get(self, key: Any) -> Any:
        return next((value for known, value in self.items() if known == key), None)

    def put(self, key: Any, value: Any) -> None:
        self._entry.write([*(pair for pair in self.items() if pair[0] != key), (key, value)])

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._entry.write([pair for pair in self.items() if pair[0] != key] or None)

    def contains(self, key: Any) -> bool:
        return any(known == key for known, _ in self.items())

    def is_empty(self) -> bool:
        return not self.items()

    def clear(self) -> None:
        self._entry.write(None)


class _Reducing(ReducingState[Any]):
    def __init__(self, entry: Entry, reduce: Any) -> None:
        self._entry = entry
        self._reduce = reduce

    def get(self) -> Any:
        return self._entry.read()

    def add(self, value: Any) -> None:
        so_far = self._entry.read()
        self._entry.write(value if so_far is None else self._reduce(so_far, value))

    def clear(self) -> None:
        self._entry.write(None)


class _Aggregating(AggregatingState[Any, Any]):
    def __init__(self, entry: Entry, function: AggregateFunctionLike) -> None:
        self._entry = entry
        self._function = function

    def get(self) -> Any:
        so_far = self._entry.read()
        return None if so_far is None else self._function.get_result(so_far)

    def add(self, value: Any) -> None:
        so_far = self._entry.read()
        if so_far is None:
            so_far = self._function.create_accumulator()
        self._entry.write(self._function.add(value, so_far))

    def clear(self) -> None:
        self._entry.write(None)
