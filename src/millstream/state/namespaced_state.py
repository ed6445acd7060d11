"""State by key and namespace: values that a trigger or a window function keeps per window.

Values are in memory under key and namespace (the bytes of a window), read from the store by one
multi-get per batch where the keys are known beforehand.

Layout: ``K`` entries with the namespace after the key; the value is pickled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream.errors import ProgramError
from millstream.functions.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from millstream.functions.handles import ListState, MapState, State, ValueState
from millstream.state.key_codec import CacheKey
from millstream.state.value_state import CachedValues, HandleStore, hold_to_types, on_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.state.keyed import KeyedState


_KINDS: Final = (
    ValueStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    AggregatingStateDescriptor,
)


def handle_of(value: ValueState[Any], descriptor: StateDescriptor) -> State:
    """Return the handle of the kind that ``descriptor`` describes, kept as one value.

    Raises:
        ProgramError: there is no such kind.
    """
    if not isinstance(descriptor, _KINDS):
        message = f"{descriptor!r} is not a state descriptor"
        raise ProgramError(message)
    if isinstance(descriptor, ListStateDescriptor):
        return _List(value)
    if isinstance(descriptor, MapStateDescriptor):
        return _Map(value)
    return on_value(value, descriptor)


class _List(ListState[Any]):
    def __init__(self, value: ValueState[Any]) -> None:
        self._value = value

    def get(self) -> Iterable[Any]:
        return list(self._value.value() or ())

    def add(self, value: Any) -> None:
        self._value.update([*self.get(), value])

    def add_all(self, values: Sequence[Any]) -> None:
        self._value.update([*self.get(), *values])

    def update(self, values: Sequence[Any]) -> None:
        self._value.update(list(values) or None)

    def clear(self) -> None:
        self._value.clear()


class _Map(MapState[Any, Any]):
    """Entries are pairs in a list, so that map keys need not be hashable."""

    def __init__(self, value: ValueState[Any]) -> None:
        self._value = value

    def items(self) -> list[tuple[Any, Any]]:
        return list(self._value.value() or ())

    def get(self, key: Any) -> Any:
        return next((value for known, value in self.items() if known == key), None)

    def put(self, key: Any, value: Any) -> None:
        self._value.update([*(pair for pair in self.items() if pair[0] != key), (key, value)])

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._value.update([pair for pair in self.items() if pair[0] != key] or None)

    def contains(self, key: Any) -> bool:
        return any(known == key for known, _ in self.items())

    def is_empty(self) -> bool:
        return not self.items()

    def clear(self) -> None:
        self._value.clear()


#: Stands for "there is no such value" (None may be one).
ABSENT: Final = object()
#: Where a value is: the key as ``cache_key`` gives it, and the namespace.
Slot: TypeAlias = tuple[CacheKey, bytes]


class _Namespaced(StateDescriptor):
    kind = "namespaced"


class NamespacedValues(CachedValues[Slot]):
    """One value per key and namespace."""

    __slots__ = ()

    absent = ABSENT

    def __init__(self, keyed: KeyedState, name: str) -> None:
        """Keep the values under the state name ``name``."""
        super().__init__(keyed, _Namespaced(name))

    def get(self, slot: Slot) -> Any:
        """Return the value, ABSENT if there is none."""
        try:
            return self.cache[slot]
        except KeyError:
            return self.read(slot)

    def put(self, slot: Slot, value: object) -> None:
        """Set the value; ABSENT removes it."""
        self.cache[slot] = value
        self.dirty.add(slot)

    def prefetch(self, keys: set[CacheKey]) -> None:
        """Nothing: the namespaces that are wanted are not known."""

    def prefetch_slots(self, slots: Iterable[Slot]) -> None:
        """Read the values at ``slots`` that are not in memory, in one go."""
        self.fetch(slots)

    def names(self, keys: list[Slot]) -> list[bytes]:
        heads = self.keyed.store_keys(self.index, [key for key, _ in keys])
        return [head + namespace for head, (_, namespace) in zip(heads, keys, strict=True)]


class _SlotValue(ValueState[Any]):
    """The value at the slot that a ``NamespacedStates`` is at."""

    __slots__ = ("_states", "values")

    def __init__(self, states: NamespacedStates, values: NamespacedValues) -> None:
        self._states = states
        self.values = values

    def value(self) -> Any:
        found = self.values.get(self._states.slot)
        return None if found is ABSENT else found

    def update(self, value: Any) -> None:
        self.values.put(self._states.slot, ABSENT if value is None else value)

    def clear(self) -> None:
        self.values.put(self._states.slot, ABSENT)


class NamespacedStates(HandleStore):
    """Handles to states of the current slot; ``slot`` is set by the operator.

    One handle serves all slots: like Flink's, it speaks of the window that is being processed.
    """

    def __init__(self, keyed: KeyedState, prefix: str) -> None:
        """Keep the states in ``keyed``, apart from those with another ``prefix``."""
        self._keyed = keyed
        self._prefix = prefix
        self._handles: dict[str, tuple[StateDescriptor, State, NamespacedValues]] = {}
        self.slot: Slot = (b"", b"")

    def handle_of(self, descriptor: StateDescriptor) -> State:
        """Return the handle of a state; the same one for the same name.

        Raises:
            ProgramError: the name is taken by another kind of state.
        """
        return self._known(descriptor)[1]

    def _known(
        self, descriptor: StateDescriptor
    ) -> tuple[StateDescriptor, State, NamespacedValues]:
        known = self._handles.get(descriptor.name)
        if known is not None:
            if known[0].kind != descriptor.kind:
                message = (
                    f"state {descriptor.name!r} is declared twice, as {known[0].kind} and as "
                    f"{descriptor.kind} state; give one of them another name"
                )
                raise ProgramError(message)
            return known
        name = f"\0{self._prefix}:{descriptor.kind}:{descriptor.name}"
        values = NamespacedValues(self._keyed, name)
        self._keyed.add_state(values)
        handle = hold_to_types(handle_of(_SlotValue(self, values), descriptor), descriptor)
        known = (descriptor, handle, values)
        self._handles[descriptor.name] = known
        return known

    def prefetch_slots(self, slots: Sequence[Slot]) -> None:
        """Read all states at ``slots``, one multi-get per state."""
        for _descriptor, _handle, values in self._handles.values():
            values.prefetch_slots(slots)

    def merge(self, descriptor: StateDescriptor, sources: Sequence[bytes]) -> None:
        """Merge the state of the current key at namespaces ``sources`` into that at ``slot``.

        Raises:
            ProgramError: a value or map cannot be merged.
        """
        values = self._known(descriptor)[2]
        merge = _merger(descriptor)
        key, target = self.slot
        merged: Any = ABSENT
        for namespace in [target, *(each for each in sources if each != target)]:
            part = values.get((key, namespace))
            if part is ABSENT:
                continue
            merged = part if merged is ABSENT else merge(merged, part)
            if namespace != target:
                values.put((key, namespace), ABSENT)
        if merged is not ABSENT:
            values.put(self.slot, merged)


def _merger(descriptor: Any) -> Any:
    if descriptor.kind == "list":
        return lambda one, other: [*one, *other]
    if descriptor.kind == "reducing":
        return descriptor.reduce
    if descriptor.kind == "aggregating":
        return descriptor.get_agg_function().merge
    message = (
        f"merge_partitioned_state() cannot merge {descriptor.kind} state {descriptor.name!r}; "
        "use list, reducing or aggregating state"
    )
    raise ProgramError(message)
