"""Value, reducing and aggregating state: handles over one cache of Python objects.

The store is read only for keys that were neither prefetched nor used before.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, cast

from millstream.functions.descriptors import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    check_of,
    setter,
    writer,
)
from millstream.functions.functions import KeyedStateStore
from millstream.functions.handles import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from millstream.state.key_codec import CacheKey
from millstream.state.key_context import as_ints
from millstream.state.value_codec import PICKLED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from millstream.functions.descriptors import (
        AggregateFunctionLike,
        ListStateDescriptor,
        MapStateDescriptor,
        StateDescriptor,
        ValueStateDescriptor,
    )
    from millstream.functions.handles import State
    from millstream.state.key_context import KeyContext, Puts


_K = TypeVar("_K")

#: What an entry takes in memory, roughly: for the key and the tables that it is in, and for each
#: byte of its value as it is stored.
_PER_ENTRY: Final = 250
_PER_BYTE: Final = 4
#: So many values of a batch are measured.
_SAMPLES: Final = 32

#: So many entries, or bytes of them, wait for the snapshot where they would change again before it.
_MOST_CHANGING: Final = 30_000
_MOST_CHANGING_BYTES: Final = 1 << 20
#: Of so many keys that a snapshot wrote the next one knows whether they have changed.
_WATCHED: Final = 100
#: If so much of them has, what is written ahead is mostly written for nothing.
_CHANGING: Final = 0.75


class Generations(Generic[_K]):
    """The entries of one state that are in memory.

    Invariant: ``dirty`` holds the keys whose value in ``cache`` differs from the store's, or may.
    Invariant: what is in ``old`` and not in ``cache`` is as the store has it.
    """

    __slots__ = (
        "_changes_again",
        "_measured",
        "_measured_bytes",
        "_watched",
        "cache",
        "dirty",
        "old",
    )

    def __init__(self) -> None:
        self.cache: dict[_K, Any] = {}
        self.old: dict[_K, Any] = {}
        self.dirty: set[_K] = set()
        self._measured = 1
        self._measured_bytes = 0
        #: Some keys that the last snapshot wrote, and whether the one before had most of its own.
        self._watched: list[_K] = []
        self._changes_again = False

    @property
    def cached(self) -> int:
        """How many objects are held in memory."""
        return len(self.cache) + len(self.old)

    @property
    def weight(self) -> int:
        """How many bytes the younger generation takes, roughly."""
        size = _PER_ENTRY + _PER_BYTE * self._measured_bytes // self._measured
        return len(self.cache) * size

    @property
    def unwritten(self) -> int:
        """How many changed entries do not wait for the snapshot if there are many of them."""
        if not self._changes_again:
            return self.changes
        each = max(1, self._measured_bytes // self._measured)
        spared = min(_MOST_CHANGING, _MOST_CHANGING_BYTES // each)
        return max(0, self.changes - spared)

    @property
    def changes(self) -> int:
        """How many entries have changed; of many it may be a part, but half of them at least."""
        return len(self.dirty)

    def changed_among(self, keys: list[_K]) -> int:
        """How many of some keys have changed."""
        return sum(map(self.dirty.__contains__, keys))

    def watch(self, keys: list[_K]) -> None:
        """Take the keys that a snapshot writes; see how many of the last one's are among them.

        Only called while they count as changed.
        """
        if self._watched:
            again = self.changed_among(self._watched)
            self._changes_again = again >= _CHANGING * len(self._watched)
        self._watched = keys[:: max(1, len(keys) // _WATCHED)]

    def measure(self, stored: Sequence[bytes | None]) -> None:
        """Look at some values as they are stored, to know how large entries are.

        Missing ones do not count: most of them are read because they are about to be set.
        """
        some = [len(each) for each in stored[:_SAMPLES] if each is not None]
        self._measured += len(some)
        self._measured_bytes += sum(some)

    def missing(self, keys: Iterable[_K]) -> list[_K]:
        """Return those of ``keys`` that are not in memory; the others are young from now on."""
        cache, old = self.cache, self.old
        if not old:
            if isinstance(keys, set):
                return list(keys.difference(cache))  # which runs no code per key
            return [key for key in keys if key not in cache] if cache else list(keys)
        found: list[_K] = []
        for key in keys:
            if key not in cache:
                if key in old:
                    cache[key] = old[key]
                else:
                    found.append(key)
        return found

    def age(self) -> dict[Any, Any]:
        """Let what is young be old; returns what was old before.  Nothing may be dirty."""
        gone, self.old, self.cache = self.old, self.cache, {}
        return gone

    def prefetch(self, keys: set[CacheKey]) -> None:
        """Read what is kept for ``keys``, in one go; nothing where what is wanted is not known."""

    def flush(self, puts: Puts, deletes: list[bytes]) -> None:
        """Add what is dirty to ``puts`` and ``deletes``."""
        keys = list(self.dirty)
        self.dirty.clear()
        self._add(keys, puts, deletes)

    def flush_some(self, most: int, puts: Puts, deletes: list[bytes]) -> None:
        """``flush`` of at most so many entries."""
        keys = list(islice(self.dirty, most))
        self.dirty.difference_update(keys)
        self._add(keys, puts, deletes)

    def _add(self, keys: list[_K], puts: Puts, deletes: list[bytes]) -> None:
        """Add these keys' values to ``puts`` and ``deletes``."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop everything held in memory."""
        self.cache.clear()
        self.old.clear()
        self.dirty.clear()

    def end_epoch(self) -> None:
        """Forget what the next epoch of a task that ends with each does not need."""
        self.forget()


class CachedValues(Generations[_K]):
    """The values of one state.

    Invariant: ``cache[key]`` is ``absent`` where it is known that there is no value.
    """

    __slots__ = ("codec", "descriptor", "index", "keyed")

    #: Stands for "there is no value".
    absent: ClassVar[Any] = None

    def __init__(self, keyed: KeyContext, descriptor: StateDescriptor) -> None:
        super().__init__()
        self.keyed = keyed
        self.descriptor = descriptor
        #: The state's number in the store, set at the start of every epoch.
        self.index = -1
        #: How values are written; set with the number.
        self.codec = PICKLED

    def names(self, keys: list[_K]) -> list[bytes]:
        """Return the names of values in the store."""
        return self.keyed.store_keys(self.index, cast("list[CacheKey]", keys))

    def decoded(self, key: _K, stored: bytes | None) -> Any:
        """Return the value that is stored under a key."""
        del key
        return self.absent if stored is None else self.codec.decode(stored)

    def encoder(self) -> Callable[[Any], bytes]:
        """Return what makes what is to be stored of a value; empty if nothing is."""
        return self.codec.encode

    def read(self, key: _K) -> Any:
        """Return a value that is not in ``cache``, and have it there."""
        if key in self.old:
            value = self.old[key]
        else:
            value = self.decoded(key, self.keyed.store.get(self.names([key])[0]))
        self.cache[key] = value
        return value

    def prefetch(self, keys: set[CacheKey]) -> None:
        self.fetch(cast("Iterable[_K]", keys))

    def fetch(self, keys: Iterable[_K]) -> None:
        """``prefetch`` of whatever values are looked up by."""
        missing = self.missing(keys)
        if missing:
            stored = self.keyed.store.get_many(self.names(missing))
            self.measure(stored)
            self.cache.update(zip(missing, self.all_decoded(missing, stored), strict=True))

    def all_decoded(self, keys: list[_K], stored: list[bytes | None]) -> Iterable[Any]:
        """``decoded`` of each of some keys."""
        return map(self.decoded, keys, stored)

    def flush(self, puts: Puts, deletes: list[bytes]) -> None:
        keys = list(self.dirty)
        self.watch(keys)
        self.dirty.clear()
        self._add(keys, puts, deletes)

    def _add(self, keys: list[_K], puts: Puts, deletes: list[bytes]) -> None:
        if not keys:
            return
        cache, encode, absent = self.cache, self.encoder(), self.absent
        before = len(puts)
        for name, key in zip(self.names(keys), keys, strict=True):
            value = cache[key]
            content = b"" if value is absent else encode(value)
            if content:
                puts.append((name, content))
            else:
                deletes.append(name)
        self.measure([content for _, content in puts[before : before + 32]])


#: How many values stay in memory between epochs, and of which types.
_MOST_KEPT: Final = 200_000
_PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})


class KeyedValueState(CachedValues[CacheKey], ValueState[Any]):
    """One value per key; None where there is none.

    Invariant: a value that differs from the store's, or may, is in ``changed``, which takes
    precedence over ``cache``: a change is one entry of one table, and so is the next access to it.
    ``changed`` stays the same object.
    """

    __slots__ = ("changed",)

    def __init__(self, keyed: KeyContext, descriptor: StateDescriptor) -> None:
        super().__init__(keyed, descriptor)
        self.changed: dict[CacheKey, Any] = {}

    def value(self) -> Any:
        key = self.keyed.cache_key
        if key in self.changed:
            return self.changed[key]
        try:
            return self.cache[key]
        except KeyError:
            return self.read(key)

    def update(self, value: Any) -> None:
        self.changed[self.keyed.cache_key] = value

    def all_decoded(self, keys: list[CacheKey], stored: list[bytes | None]) -> Iterable[Any]:
        del keys
        if None not in stored:
            return self.codec.decode_all(cast("list[bytes]", stored))
        decode = self.codec.decode
        return [None if each is None else decode(each) for each in stored]

    @property
    def changes(self) -> int:
        return len(self.changed)

    def changed_among(self, keys: list[CacheKey]) -> int:
        return sum(map(self.changed.__contains__, keys))

    def flush(self, puts: Puts, deletes: list[bytes]) -> None:
        keys = list(self.changed)
        self.watch(keys)
        self.cache.update(self.changed)
        self.changed.clear()
        self._add(keys, puts, deletes)

    def flush_some(self, most: int, puts: Puts, deletes: list[bytes]) -> None:
        # From the end: keys that change often come early after a snapshot, and wait for the next.
        take = self.changed.popitem
        some = dict(take() for _ in range(min(most, len(self.changed))))
        self.cache.update(some)
        self._add(list(some), puts, deletes)

    def _add(self, keys: list[CacheKey], puts: Puts, deletes: list[bytes]) -> None:
        numbers = as_ints(keys)
        if numbers is None or not self._add_numbers(numbers, puts):
            super()._add(keys, puts, deletes)

    def _add_numbers(self, numbers: NDArray[np.int64], puts: Puts) -> bool:
        """``_add`` of keys that are numbers, in the order of their names in the store.

        Returns:
            Whether it was done; it is not if there is a value to be deleted.
        """
        keys, names = self.keyed.names_of_numbers(self.index, numbers)
        values = [*map(self.cache.__getitem__, keys)]
        if type(None) in set(map(type, values)):  # ``None in`` asks values: arrays do not say
            return False
        contents = self.codec.encode_all(values)
        self.measure(contents)
        puts.extend(zip(names, contents, strict=True))
        return True

    def forget(self) -> None:
        super().forget()
        self.changed.clear()

    def end_epoch(self) -> None:
        # Values that nobody can change in place stay what the store holds, so the next epoch need
        # not read them again if it goes on from this one's snapshot.
        if len(self.cache) > _MOST_KEPT or not _PLAIN.issuperset(map(type, self.cache.values())):
            self.cache.clear()

    def clear(self) -> None:
        self.update(None)


class _Reducing(ReducingState[Any]):
    """A value into which each added one is reduced."""

    __slots__ = ("_reduce", "_update", "clear", "get")

    get: Callable[[], Any]
    clear: Callable[[], None]

    def __init__(self, value: ValueState[Any], reduce: Callable[[Any, Any], Any]) -> None:
        _set(self, get=value.value, clear=value.clear)
        self._update = value.update
        self._reduce = reduce

    def add(self, value: Any) -> None:
        current = self.get()
        self._update(value if current is None else self._reduce(current, value))


class _Aggregating(AggregatingState[Any, Any]):
    """A value that is an accumulator."""

    __slots__ = ("_accumulator", "_function", "_update", "clear")

    clear: Callable[[], None]

    def __init__(self, value: ValueState[Any], function: AggregateFunctionLike) -> None:
        _set(self, clear=value.clear)
        self._accumulator = value.value
        self._update = value.update
        self._function = function

    def get(self) -> Any:
        accumulator = self._accumulator()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        accumulator = self._accumulator()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self._update(self._function.add(value, accumulator))


def on_value(value: ValueState[Any], descriptor: StateDescriptor) -> State:
    """The handle of a state that is kept as one value: that, or what folds others into it."""
    if isinstance(descriptor, ReducingStateDescriptor):
        return _Reducing(value, descriptor.reduce)
    if isinstance(descriptor, AggregatingStateDescriptor):
        return _Aggregating(value, descriptor.aggregate)
    return value


class HandleStore(KeyedStateStore):
    """A store of state in which one method makes the handles of all kinds."""

    __slots__ = ()

    @abstractmethod
    def handle_of(self, descriptor: StateDescriptor) -> Any:
        """The handle of a state; the same one for the same name."""

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState:
        return cast("ValueState", self.handle_of(state_descriptor))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        return cast("ListState", self.handle_of(state_descriptor))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState:
        return cast("MapState", self.handle_of(state_descriptor))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState:
        return cast("ReducingState", self.handle_of(state_descriptor))

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState:
        return cast("AggregatingState", self.handle_of(state_descriptor))


S = TypeVar("S")


def hold_to_types(handle: S, descriptor: Any) -> S:
    """The handle, or one around it that checks what is written if types were declared."""
    kinds = [descriptor.type_info, getattr(descriptor, "key_type_info", None)]
    wrapper = _WRAPPERS.get(descriptor.kind)
    if wrapper is None or all(check_of(kind, "") is None for kind in kinds):
        return handle
    return cast("S", wrapper(handle, descriptor))


def _set(handle: State, **methods: Callable[..., Any]) -> None:
    """Let methods of the handle be those of the one inside: a call through costs half as much."""
    for name, method in methods.items():
        setattr(handle, name, method)


class _TypedValue(ValueState[Any]):
    """A value that is checked."""

    __slots__ = ("clear", "update", "value")

    def __init__(self, inner: ValueState[Any], descriptor: Any) -> None:
        what = f"state {descriptor.name!r}"
        if isinstance(inner, KeyedValueState):
            update = setter(descriptor.type_info, what, inner.keyed, inner.changed)
        else:
            update = writer(descriptor.type_info, what, inner.update)
        _set(self, value=inner.value, clear=inner.clear, update=update)


class _TypedReducing(ReducingState[Any]):
    """A reduced value; what the function returns is checked by ``descriptor.reduce``."""

    __slots__ = ("add", "clear", "get")

    def __init__(self, inner: ReducingState[Any], descriptor: Any) -> None:
        add = writer(descriptor.type_info, f"state {descriptor.name!r}", inner.add)
        _set(self, get=inner.get, clear=inner.clear, add=add)


class _TypedList(ListState[Any]):
    """A list whose elements are checked."""

    __slots__ = ("_check", "_inner", "add", "clear", "get")

    def __init__(self, inner: ListState[Any], descriptor: Any) -> None:
        self._inner = inner
        what = f"state {descriptor.name!r}, element"
        add = writer(descriptor.type_info, what, inner.add)
        _set(self, get=inner.get, clear=inner.clear, add=add)
        self._check = writer(descriptor.type_info, what)

    def add_all(self, values: Sequence[Any]) -> None:
        values = list(values)
        for value in values:
            self._check(value)
        self._inner.add_all(values)

    def update(self, values: Sequence[Any]) -> None:
        values = list(values)
        for value in values:
            self._check(value)
        self._inner.update(values)


class _TypedMap(MapState[Any, Any]):
    """A map whose keys and values are checked."""

    __slots__ = (
        "_check_key",
        "_check_value",
        "_inner",
        "clear",
        "contains",
        "get",
        "is_empty",
        "items",
        "remove",
    )

    def __init__(self, inner: MapState[Any, Any], descriptor: Any) -> None:
        self._inner = inner
        _set(self, get=inner.get, contains=inner.contains, items=inner.items)
        _set(self, is_empty=inner.is_empty, remove=inner.remove, clear=inner.clear)
        state = f"state {descriptor.name!r}"
        self._check_key = writer(descriptor.key_type_info, f"{state}, map key")
        self._check_value = writer(descriptor.type_info, f"{state}, map value")

    def put(self, key: Any, value: Any) -> None:
        self._check_key(key)
        self._check_value(value)
        self._inner.put(key, value)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)


_WRAPPERS: dict[str, Callable[[Any, Any], State]] = {
    "value": _TypedValue,
    "list": _TypedList,
    "map": _TypedMap,
    "reducing": _TypedReducing,
}
