"""Restoring state that was written at another parallelism, max parallelism or backend.

The key groups of a subtask are copied from the stores that held them; states may be numbered
differently in each store, so they are matched by name.  With another max parallelism, the key group
of each entry is computed again from the bytes of its key (``Rehash``).

A ``C`` entry mixes key groups, so its copy records which of them count: the source's range (first
and stop, 2 bytes each) is added to the end of its key, one more at each change of parallelism, and
at a change of max parallelism ``_OUT_OF`` and the number of key groups that the ranges before it
are out of.  Readers of such entries ask ``chunk_key_groups`` which rows to take; without it, 1 -> 3
-> 2 subtasks would count rows twice.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from math import gcd
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.contracts.operator import OperatorStateKind, StatePart
from millstream.errors import StateError
from millstream.state.key_codec import key_group_of_encoded
from millstream.state.registry import is_section, ttl_time_of, variant_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.operator import OperatorStateHandle


_BATCH: Final = 10_000
_TWO: Final = struct.Struct(">H")
_RANGE: Final = struct.Struct(">HH")
#: Where the key group stands in a ``T`` key.
_TIME_GROUP_AT: Final = 11


#: No range begins here: there are 32768 key groups at most.
_OUT_OF: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class Rehash:
    """Another max parallelism than the one of a checkpoint: all keys are hashed again."""

    #: Number of key groups in the checkpoint.
    before: int
    now: int

    def sources(self, groups: tuple[int, int]) -> frozenset[int]:
        """Return the key groups of the checkpoint that may hold keys of ``groups``."""
        # Hashes are reduced by modulo: what two numbers have in common stays of the remainder.
        common = gcd(self.before, self.now)
        remainders = {group % common for group in range(*groups)}
        return frozenset(each for each in range(self.before) if each % common in remainders)


def chunk_key_groups(
    key: bytes, length: int, ours: tuple[int, tuple[int, int]]
) -> list[tuple[int, tuple[int, int]]]:
    """Return the key groups that count in the ``C`` entry at ``key``.

    Args:
        key: the whole key in the store.
        length: of the key as its owner wrote it.
        ours: max parallelism of the operator, and key groups ``[first, stop)`` of the subtask.

    Returns:
        A max parallelism and ``[first, stop)``, for each max parallelism that there was: a row
        counts if its key is in the key groups of all of them.
    """
    found = []
    first, stop = 0, _OUT_OF
    for low, high in _RANGE.iter_unpack(key[length:]):
        if low == _OUT_OF:
            found.append((high, (first, stop)))
            first, stop = 0, _OUT_OF
        else:
            first, stop = max(first, low), min(stop, high)
    number, (low, high) = ours
    return [*found, (number, (max(first, low), min(stop, high)))]


def copy_key_groups(
    source: KeyValueStore,
    source_groups: tuple[int, int],
    target: KeyValueStore,
    target_groups: tuple[int, int],
    rehash: Rehash | None = None,
) -> None:
    """Copy what ``source`` holds of ``target_groups`` into ``target``.

    Args:
        source: the store of a subtask of the checkpoint.
        source_groups: ``[first, stop)`` that it holds.
        target: the store that is restored.
        target_groups: ``[first, stop)`` of its subtask.
        rehash: the numbers of key groups that both are out of; None: one number.

    Raises:
        StateError: the stores have states of one name and different kinds.
    """
    numbers = _merge_metadata(source, target)
    if rehash is None:
        entries = _entries(source, target_groups, source_groups, numbers)
    else:
        entries = _rehashed(source, target_groups, source_groups, numbers, rehash)
    while batch := list(islice(entries, _BATCH)):
        target.write(batch)


def _entries(
    source: KeyValueStore,
    target_groups: tuple[int, int],
    source_groups: tuple[int, int],
    numbers: dict[bytes, bytes],
) -> Iterator[tuple[bytes, bytes]]:
    groups = (max(source_groups[0], target_groups[0]), min(source_groups[1], target_groups[1]))
    first, stop = (b"K" + _TWO.pack(group) for group in groups)
    for key, value in source.scan(first, stop):
        number = key[3:5]
        yield key[:3] + numbers.get(number, number) + key[5:], value
    for key, value in source.scan(b"T", b"U"):
        if groups[0] <= _TWO.unpack_from(key, _TIME_GROUP_AT)[0] < groups[1]:
            number = key[1:3]
            yield b"T" + numbers.get(number, number) + key[3:], value
    yield from _chunks(source, numbers, _RANGE.pack(*source_groups))


def _rehashed(
    source: KeyValueStore,
    target_groups: tuple[int, int],
    source_groups: tuple[int, int],
    numbers: dict[bytes, bytes],
    rehash: Rehash,
) -> Iterator[tuple[bytes, bytes]]:
    wanted = rehash.sources(target_groups).intersection(range(*source_groups))
    target_first, target_stop = target_groups
    for old in sorted(wanted):
        for name, value in source.scan(b"K" + _TWO.pack(old), b"K" + _TWO.pack(old + 1)):
            group = key_group_of_encoded(key_and_rest(name)[0], rehash.now)
            if target_first <= group < target_stop:
                number = name[3:5]
                yield b"K" + _TWO.pack(group) + numbers.get(number, number) + name[5:], value
    for name, value in source.scan(b"T", b"U"):
        if _TWO.unpack_from(name, _TIME_GROUP_AT)[0] not in wanted:
            continue
        group = key_group_of_encoded(timed_key_and_rest(name)[0], rehash.now)
        if target_first <= group < target_stop:
            number = numbers.get(name[1:3], name[1:3])
            time = name[3:_TIME_GROUP_AT]
            yield b"T" + number + time + _TWO.pack(group) + name[_TIMED_LENGTH_AT:], value
    if wanted:
        suffix = _RANGE.pack(*source_groups) + _RANGE.pack(_OUT_OF, rehash.before)
        yield from _chunks(source, numbers, suffix)


def _chunks(
    source: KeyValueStore, numbers: dict[bytes, bytes], suffix: bytes
) -> Iterator[tuple[bytes, bytes]]:
    for key, value in source.scan(b"C", b"D"):
        number = key[1:3]
        yield b"C" + numbers.get(number, number) + key[3:] + suffix, value


def _metadata(store: KeyValueStore) -> dict[bytes, bytes]:
    return dict(store.scan(b"M", b"N"))


def _merge_metadata(source: KeyValueStore, target: KeyValueStore) -> dict[bytes, bytes]:
    """Make every state of ``source`` known to ``target``.

    Returns:
        State number in the source -> in the target, where they differ.
    """
    known, puts, numbers = _metadata(target), [], {}
    states = {name: json.loads(meta) for name, meta in known.items() if is_section(name)}
    free = max((state["index"] for state in states.values()), default=-1) + 1
    for name, meta in _metadata(source).items():
        if not is_section(name):  # the version, a record, or the counter: the highest counts
            if meta > known.get(name, b""):
                puts.append((name, meta))
            continue
        state = json.loads(meta)
        old = state["index"]
        if name in states and states[name]["kind"] != state["kind"]:
            message = (
                f"state {name[1:].decode()!r} has different kinds in the subtasks of the"
                f" checkpoint: {states[name]} and {state}"
            )
            raise StateError(message)
        name = name_in(states, name, state)  # noqa: PLW2901 - in the target
        if name in states:
            new = states[name]["index"]
        else:
            taken = {each["index"] for each in states.values()}
            new = free if old in taken else old
            states[name] = state = {**state, "index": new}
            free = max(free, new + 1)
            puts.append((name, json.dumps(state).encode()))
        if new != old:
            numbers[_TWO.pack(old)] = _TWO.pack(new)
    target.write(puts)
    return numbers


def name_in(states: Mapping[bytes, dict[str, Any]], name: bytes, state: dict[str, Any]) -> bytes:
    """The name under which a state of this form is, or is to be: its own or that of a variant.

    Subtasks that had not asked for a state when the checkpoint was made have it as an earlier
    program declared it.
    """
    candidates = chain([name], (variant_name(name, number) for number in count(1)))
    form = _form_of(state)
    return next(each for each in candidates if each not in states or _form_of(states[each]) == form)


def _form_of(state: dict[str, Any]) -> dict[str, Any]:
    """What the metadata of a state say of its form; what is unknown may be missing."""
    form = {name: part for name, part in state.items() if part is not None}
    return {**form, "index": None, "ttl_ms": None, "ttl_time": ttl_time_of(state)}


def drop_other_key_groups(
    store: KeyValueStore, source_groups: tuple[int, int], groups: tuple[int, int]
) -> None:
    """Remove what ``store`` holds of key groups outside ``groups``, and mark its ``C`` entries."""
    first, stop = (b"K" + _TWO.pack(group) for group in groups)
    store.delete_range(b"K", first)
    store.delete_range(stop, b"L")
    foreign = [
        key
        for key, _ in store.scan(b"T", b"U")
        if not groups[0] <= _TWO.unpack_from(key, _TIME_GROUP_AT)[0] < groups[1]
    ]
    chunks = list(store.scan(b"C", b"D"))
    suffix = _RANGE.pack(*source_groups)
    store.write(
        [(key + suffix, value) for key, value in chunks], foreign + [key for key, _ in chunks]
    )


#: Name -> the parts that one subtask is given.
Parts = dict[str, list[StatePart]]


def own_states(states: Mapping[str, OperatorStateHandle]) -> Parts:
    """What a subtask goes on with that was not restored: its own."""
    return {name: [StatePart.whole(handle)] for name, handle in states.items()}


def redistribute(old: Sequence[Mapping[str, OperatorStateHandle]], parallelism: int) -> list[Parts]:
    """What each subtask is given."""
    found: list[Parts] = [{} for _ in range(parallelism)]
    start = 0
    for name in sorted({name for states in old for name in states}):
        # A name has one kind: the store refuses another one.
        handles = [states[name] for states in old if name in states]
        kind = handles[0].kind
        if kind is OperatorStateKind.UNION:
            own = [handle for handle in handles if not handle.is_copy] or handles[:1]
            for parts in found:
                parts[name] = [StatePart.whole(replace(handle, is_copy=True)) for handle in own]
        elif kind is OperatorStateKind.BROADCAST:
            copies = [states.get(name) for states in old]
            for subtask, parts in enumerate(found):
                copy = copies[subtask] if parallelism == len(old) else None
                parts[name] = [StatePart.whole(copy or handles[subtask % len(handles)])]
        elif parallelism == len(old):
            for states, parts in zip(old, found, strict=True):
                if name in states:
                    parts[name] = [StatePart.whole(states[name])]
        else:
            start = _deal(name, handles, start, found)
    return found


def _deal(name: str, handles: Sequence[OperatorStateHandle], start: int, found: list[Parts]) -> int:
    """Deal out the elements of a list from subtask ``start`` on; returns where the next begins."""
    parallelism = len(found)
    share, rest = divmod(sum(handle.count for handle in handles), parallelism)
    position = first = 0
    for turn in range(parallelism):
        wanted = share + (turn < rest)
        parts: list[StatePart] = []
        while wanted:
            handle = handles[position]
            taken = min(wanted, handle.count - first)
            if taken:
                parts.append(StatePart(handle, first, first + taken))
            wanted -= taken
            first += taken
            if first == handle.count:
                position, first = position + 1, 0
        if parts:
            found[(start + turn) % parallelism][name] = parts
    return (start + rest) % parallelism


_STEP: Final = 4096
#: Where the length of the key and the key stand in names of ``K`` and of ``T`` entries.
_LENGTH_AT: Final = 5
_KEY_AT: Final = 9
_TIMED_LENGTH_AT: Final = 13
_TIMED_KEY_AT: Final = 17


def scan_in_steps(store: KeyValueStore, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of ``[start, stop)``; between two of them other ones may be written."""
    while True:
        entries = list(islice(store.scan(start, stop), _STEP))
        yield from entries
        if len(entries) < _STEP:
            return
        start = entries[-1][0] + b"\0"


def scan_state(
    store: KeyValueStore, index: int, key_groups: tuple[int, int]
) -> Iterator[tuple[bytes, bytes]]:
    """The ``K`` entries of the state of this number, in steps."""
    for group in range(*key_groups):
        prefix = b"K" + group.to_bytes(2, "big")
        start, stop = (prefix + number.to_bytes(2, "big") for number in (index, index + 1))
        yield from scan_in_steps(store, start, stop)


def key_and_rest(name: bytes) -> tuple[bytes, bytes]:
    """The encoded key in the name of a ``K`` entry, and what stands behind it."""
    end = _KEY_AT + int.from_bytes(name[_LENGTH_AT:_KEY_AT], "big")
    return name[_KEY_AT:end], name[end:]


def timed_key_and_rest(name: bytes) -> tuple[bytes, bytes]:
    """The encoded key in the name of a ``T`` entry, and what stands behind it."""
    end = _TIMED_KEY_AT + int.from_bytes(name[_TIMED_LENGTH_AT:_TIMED_KEY_AT], "big")
    return name[_TIMED_KEY_AT:end], name[end:]


def keys_and_rests(names: Sequence[bytes], *, timed: bool) -> tuple[list[bytes], list[bytes]]:
    """The encoded keys in the names of some ``K`` or ``T`` entries, and what stands behind them."""
    before, at = (_TIMED_LENGTH_AT, _TIMED_KEY_AT) if timed else (_LENGTH_AT, _KEY_AT)
    sizes = np.frombuffer(b"".join([name[before:at] for name in names]), ">u4")
    stops = at + sizes.astype(np.int64)
    if (stops == np.fromiter(map(len, names), np.int64, len(names))).all():
        return [name[at:] for name in names], [b""] * len(names)
    places = stops.tolist()
    keys = [name[at:stop] for name, stop in zip(names, places, strict=True)]
    return keys, [name[stop:] for name, stop in zip(names, places, strict=True)]
