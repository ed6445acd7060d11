"""Time to live: handles that store each value with its last access and hide expired ones.

Expired state is removed when it is read, by its key or in the background.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.errors import ProgramError, StateError
from millstream.functions.descriptors import StateTtlConfig
from millstream.functions.handles import ListState, MapState, ValueState
from millstream.state.key_codec import decode_key
from millstream.state.key_context import Expiring
from millstream.state.registry import is_by_event_time
from millstream.state.serializers import unpickler
from millstream.state.value_codec import oldest_time, time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.state.key_context import ExpiredEntry, KeyContext
    from millstream.state.list_state import KeyedListState, KeyedMapState
    from millstream.state.value_state import KeyedValueState


_NEVER: Final = 2**62
#: From reading values of classes that the program does not have any more.  Such values stay: who
#: asks for them is told, and a job goes on that nobody asks.
_UNREADABLE: Final = (AttributeError, ImportError, StateError)


class _Expiry:
    """When values expire; they are kept as (time of last access, value)."""

    __slots__ = ("_access_time", "_keyed", "_length", "_now", "on_read", "return_expired")

    def __init__(self, keyed: KeyContext, name: str, config: StateTtlConfig) -> None:
        self._keyed = keyed
        self._now: Callable[[], int] = keyed.expiry_time
        self._access_time = self._now
        if is_by_event_time(config):
            self._now, self._access_time = self._event_time, self._time_of_record
            if keyed.timestamp is None:
                message = (
                    f"state {name!r} expires by event time, which keyed process functions have;"
                    " use one, or let the state expire by processing time"
                )
                raise ProgramError(message)
        self._length = config.get_ttl().to_milliseconds()
        self.on_read = config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
        self.return_expired = (
            config.get_state_visibility()
            is StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
        )

    def _event_time(self) -> int:
        return self._keyed.event_time

    def _time_of_record(self) -> int:
        time = self._keyed.access_time()
        if time == MIN_TIMESTAMP:
            message = (
                "state that expires by event time is used for a record without a timestamp, before"
                " the first watermark; give the source a watermark strategy with timestamps"
            )
            raise StateError(message)
        return time

    def is_over(self, kept: tuple[int, Any]) -> bool:
        """Return whether what was kept has expired."""
        return kept[0] + self._length <= self._now()

    def stamp(self, value: object) -> tuple[int, Any]:
        """``value`` as it is kept from now on."""
        return self._access_time(), value


_Inner: TypeAlias = "KeyedValueState | KeyedListState | KeyedMapState"


class _Expiring(Expiring):
    """What the background needs to know of plain values."""

    def __init__(self, keyed: KeyContext, inner: _Inner, config: StateTtlConfig) -> None:
        super().__init__(inner, config.get_ttl().to_milliseconds())
        self.by_event_time = is_by_event_time(config)
        self.keyed = keyed

    def written(self, rest: bytes, content: bytes) -> int | None:
        del rest
        try:
            return self._oldest(content)
        except _UNREADABLE:
            return None

    def _oldest(self, content: bytes) -> int | None:
        return time_of(content, unpickler())

    def drop(self, entries: list[ExpiredEntry], until: int) -> int:
        keyed = self.keyed
        before = keyed.cache_key
        oldest = _NEVER
        for entry in entries:
            keyed.cache_key = entry.key
            oldest = min(oldest, self._drop(entry.rest, until))
        keyed.cache_key = before
        return oldest

    def _drop(self, rest: bytes, until: int) -> int:
        """Remove what is over of the current key; returns when the oldest left was written."""
        del rest
        try:
            kept = self._state.value()
        except _UNREADABLE:
            return _NEVER
        if kept is not None and kept[0] <= until:
            self._state.clear()
        return _NEVER


class _ExpiringElements(_Expiring):
    """Lists, of which some elements may be over."""

    def _oldest(self, content: bytes) -> int | None:
        return oldest_time(content, unpickler())

    def _drop(self, rest: bytes, until: int) -> int:
        del rest
        try:
            kept = self._state.get()
        except _UNREADABLE:  # in another chunk
            return _NEVER
        alive = [each for each in kept if each[0] > until]
        if len(alive) < len(kept):
            self._state.update(alive)
        return min([time for time, _ in alive], default=_NEVER)


class _ExpiringMapEntries(_Expiring):
    """Maps, whose entries are found one by one."""

    def _drop(self, rest: bytes, until: int) -> int:
        try:
            name = decode_key(rest)
            kept = self._state.get(name)
        except _UNREADABLE:
            return _NEVER
        if kept is not None and kept[0] <= until:
            self._state.remove(name)
        return _NEVER


def _watch(expiring: _Expiring, config: StateTtlConfig) -> None:
    """Have what is over removed in the background, unless the program does not want that."""
    strategies = config.get_cleanup_strategies()
    if strategies.is_cleanup_in_background():
        expiring.keyed.expired.watch(expiring)
    if strategies.in_full_snapshot():
        expiring.keyed.expired.left_out.append(expiring)


class TtlValueState(ValueState[Any]):
    """A value that expires."""

    __slots__ = ("_expiry", "_inner")

    def __init__(self, keyed: KeyContext, inner: KeyedValueState, config: StateTtlConfig) -> None:
        self._inner = inner
        self._expiry = _Expiry(keyed, inner.descriptor.name, config)
        _watch(_Expiring(keyed, inner, config), config)

    def value(self) -> Any:
        """Return the value of the current key, None if it has none or it has expired."""
        kept = self._inner.value()
        if kept is None:
            return None
        if self._expiry.is_over(kept):
            self._inner.clear()
            return kept[1] if self._expiry.return_expired else None
        if self._expiry.on_read:
            self._inner.update(self._expiry.stamp(kept[1]))
        return kept[1]

    def update(self, value: Any) -> None:
        self._inner.update(None if value is None else self._expiry.stamp(value))

    def clear(self) -> None:
        """Remove the value of the current key."""
        self._inner.clear()


class TtlListState(ListState[Any]):
    """A list whose elements expire one by one."""

    __slots__ = ("_expiry", "_inner")

    def __init__(self, keyed: KeyContext, inner: KeyedListState, config: StateTtlConfig) -> None:
        self._inner = inner
        self._expiry = _Expiry(keyed, inner.descriptor.name, config)
        _watch(_ExpiringElements(keyed, inner, config), config)

    def get(self) -> list[Any]:
        """Return the elements that have not expired."""
        kept = list(self._inner.get())
        expiry = self._expiry
        alive = [each for each in kept if not expiry.is_over(each)]
        if expiry.on_read and alive:
            self._inner.update([expiry.stamp(value) for _, value in alive])
        elif len(alive) < len(kept):
            self._inner.update(alive)
        return [value for _, value in (kept if expiry.return_expired else alive)]

    def add(self, value: Any) -> None:
        """Add an element at the end."""
        self._inner.add(self._expiry.stamp(value))

    def add_all(self, values: Sequence[Any]) -> None:
        self._inner.add_all([self._expiry.stamp(value) for value in values])

    def update(self, values: Sequence[Any]) -> None:
        self._inner.update([self._expiry.stamp(value) for value in values])

    def clear(self) -> None:
        self._inner.clear()


class TtlMapState(MapState[Any, Any]):
    """A map whose entries expire one by one."""

    __slots__ = ("_expiry", "_inner")

    def __init__(self, keyed: KeyContext, inner: KeyedMapState, config: StateTtlConfig) -> None:
        self._inner = inner
        self._expiry = _Expiry(keyed, inner.descriptor.name, config)
        _watch(_ExpiringMapEntries(keyed, inner, config), config)

    def _read(self, key: Any, kept: tuple[int, Any] | None) -> tuple[Any] | None:
        """The value in a tuple, None if there is none; removes or stamps the entry."""
        if kept is None:
            return None
        if self._expiry.is_over(kept):
            self._inner.remove(key)
            return (kept[1],) if self._expiry.return_expired else None
        if self._expiry.on_read:
            self._inner.put(key, self._expiry.stamp(kept[1]))
        return (kept[1],)

    def get(self, key: Any) -> Any:
        """Return the value of a map key, None if there is none or it has expired."""
        found = self._read(key, self._inner.get(key))
        return None if found is None else found[0]

    def put(self, key: Any, value: Any) -> None:
        self._inner.put(key, self._expiry.stamp(value))

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._inner.remove(key)

    def contains(self, key: Any) -> bool:
        """Return whether the map key is there and has not expired."""
        return self._read(key, self._inner.get(key)) is not None

    def items(self) -> list[tuple[Any, Any]]:
        """Return the entries that have not expired."""
        found = [(key, self._read(key, kept)) for key, kept in list(self._inner.items())]
        return [(key, value[0]) for key, value in found if value is not None]

    def is_empty(self) -> bool:
        """Return whether there is no entry that has not expired."""
        return not self.items()

    def clear(self) -> None:
        self._inner.clear()
