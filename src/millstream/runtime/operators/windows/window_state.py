"""State of one key and window: what ``context.window_state()`` gives to a ProcessWindowFunction.

What it is: each state is an entry, named by the window, of a map state of the key, so that it
is checkpointed, restored and moved between subtasks like any other keyed state.

What it is not: cleared by itself; the user's ``clear`` does that, as in Flink.

Read next: ``state/map_state.py``.
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
from millstream.functions.functions import KeyedStateStore
from millstream.functions.handles import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)
from millstream.state.typed_state import hold_to_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.functions.descriptors import AggregateFunctionLike, StateDescriptor
    from millstream.functions.window import TimeWindow
    from millstream.state.keyed import KeyedState

__all__ = ["Entry", "WindowStateStore", "handle_of"]


class Entry(Protocol):
    """Where the handle of one state keeps what it holds; None stands for nothing."""

    def read(self) -> Any:  # noqa: ANN401 - whatever the user keeps
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


class WindowStateStore(KeyedStateStore):
    """Makes handles for the current key and one window."""

    def __init__(self, keyed: KeyedState, window: TimeWindow) -> None:
        """Take the keyed state and the window."""
        self._keyed = keyed
        self._window = window

    def _entry(self, descriptor: StateDescriptor) -> _Entry:
        name = f"window:{descriptor.kind}:{descriptor.name}"
        states = self._keyed.get_map_state(MapStateDescriptor(name))
        return _Entry(states, (self._window.start, self._window.end))

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Return the handle of a single value."""
        return hold_to_types(_Value(self._entry(state_descriptor)), state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the handle of a list."""
        return hold_to_types(_List(self._entry(state_descriptor)), state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return the handle of a map."""
        return hold_to_types(_Map(self._entry(state_descriptor)), state_descriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return the handle of a reduced value."""
        return hold_to_types(
            _Reducing(self._entry(state_descriptor), state_descriptor.reduce), state_descriptor
        )

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """Return the handle of an accumulator."""
        return _Aggregating(self._entry(state_descriptor), state_descriptor.aggregate)


class _Entry:
    """One entry of a map state; None stands for nothing."""

    def __init__(self, states: MapState[Any, Any], window: tuple[int, int]) -> None:
        self._states = states
        self._window = window

    def read(self) -> Any:  # noqa: ANN401 - whatever the user keeps
        return self._states.get(self._window)

    def write(self, value: object) -> None:
        if value is None:
            self._states.remove(self._window)
        else:
            self._states.put(self._window, value)


class _Value(ValueState[Any]):
    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def value(self) -> Any:  # noqa: ANN401
        return self._entry.read()

    def update(self, value: Any) -> None:  # noqa: ANN401
        self._entry.write(value)

    def clear(self) -> None:
        self._entry.write(None)


class _List(ListState[Any]):
    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def get(self) -> Iterable[Any]:
        return list(self._entry.read() or ())

    def add(self, value: Any) -> None:  # noqa: ANN401
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

    def get(self, key: Any) -> Any:  # noqa: ANN401
        return next((value for known, value in self.items() if known == key), None)

    def put(self, key: Any, value: Any) -> None:  # noqa: ANN401
        self._entry.write([*(pair for pair in self.items() if pair[0] != key), (key, value)])

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:  # noqa: ANN401
        self._entry.write([pair for pair in self.items() if pair[0] != key] or None)

    def contains(self, key: Any) -> bool:  # noqa: ANN401
        return any(known == key for known, _ in self.items())

    def is_empty(self) -> bool:
        return not self.items()

    def clear(self) -> None:
        self._entry.write(None)


class _Reducing(ReducingState[Any]):
    def __init__(self, entry: Entry, reduce: Any) -> None:  # noqa: ANN401
        self._entry = entry
        self._reduce = reduce

    def get(self) -> Any:  # noqa: ANN401
        return self._entry.read()

    def add(self, value: Any) -> None:  # noqa: ANN401
        so_far = self._entry.read()
        self._entry.write(value if so_far is None else self._reduce(so_far, value))

    def clear(self) -> None:
        self._entry.write(None)


class _Aggregating(AggregatingState[Any, Any]):
    def __init__(self, entry: Entry, function: AggregateFunctionLike) -> None:
        self._entry = entry
        self._function = function

    def get(self) -> Any:  # noqa: ANN401
        so_far = self._entry.read()
        return None if so_far is None else self._function.get_result(so_far)

    def add(self, value: Any) -> None:  # noqa: ANN401
        so_far = self._entry.read()
        if so_far is None:
            so_far = self._function.create_accumulator()
        self._entry.write(self._function.add(value, so_far))

    def clear(self) -> None:
        self._entry.write(None)
