"""Restoring state that was written at another parallelism, or by another backend.

What it is: copying the key groups of a subtask out of the stores that held them.  States may be
numbered differently in each store, so numbers are brought into line by name.
What it is not: needed for a restart at the same parallelism.

A ``C`` entry mixes key groups, so its copy says which of them count: the source's range
(first and stop, 2 bytes each) is added to the end of its key, one more at each change of
parallelism.  Whoever reads such entries asks ``chunk_key_groups`` which rows to take; without it,
1 -> 3 -> 2 subtasks would count rows twice.

Read next: ``state/backend.py``.
"""

from __future__ import annotations

import json
import struct
from itertools import islice
from typing import TYPE_CHECKING, Final

from millstream.errors import StateError
from millstream.state.registry import FIRST_FIXED, is_section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.key_value_store import KeyValueStore

__all__ = ["chunk_key_groups", "copy_key_groups", "drop_other_key_groups"]

_BATCH: Final = 10_000
_TWO: Final = struct.Struct(">H")
_RANGE: Final = struct.Struct(">HH")
#: Where the key group stands in a ``T`` key.
_TIME_GROUP_AT: Final = 11


def chunk_key_groups(key: bytes, length: int, key_groups: tuple[int, int]) -> tuple[int, int]:
    """Which key groups count in the ``C`` entry at ``key``.

    Args:
        key: the whole key in the store.
        length: of the key as its owner wrote it.
        key_groups: ``[first, stop)`` of the subtask.

    Returns:
        ``[first, stop)``; rows of other key groups are to be left out.
    """
    first, stop = key_groups
    for low, high in _RANGE.iter_unpack(key[length:]):
        first, stop = max(first, low), min(stop, high)
    return first, stop


def copy_key_groups(
    source: KeyValueStore,
    source_groups: tuple[int, int],
    target: KeyValueStore,
    target_groups: tuple[int, int],
) -> None:
    """Copy what ``source`` holds of ``target_groups`` into ``target``.

    Raises:
        StateError: the stores have states of one name and different kinds.
    """
    numbers = _merge_metadata(source, target)
    groups = (
        max(source_groups[0], target_groups[0]),
        min(source_groups[1], target_groups[1]),
    )
    entries = _entries(source, groups, source_groups, numbers)
    while batch := list(islice(entries, _BATCH)):
        target.write(batch)


def _entries(
    source: KeyValueStore,
    groups: tuple[int, int],
    source_groups: tuple[int, int],
    numbers: dict[bytes, bytes],
) -> Iterator[tuple[bytes, bytes]]:
    first, stop = (b"K" + _TWO.pack(group) for group in groups)
    for key, value in source.scan(first, stop):
        number = key[3:5]
        yield key[:3] + numbers.get(number, number) + key[5:], value
    for key, value in source.scan(b"T", b"U"):
        if groups[0] <= _TWO.unpack_from(key, _TIME_GROUP_AT)[0] < groups[1]:
            number = key[1:3]
            yield b"T" + numbers.get(number, number) + key[3:], value
    suffix = _RANGE.pack(*source_groups)
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
    counted = [state["index"] for state in states.values() if state["index"] < FIRST_FIXED]
    free = max(counted, default=-1) + 1
    for name, meta in _metadata(source).items():
        if not is_section(name):  # the version, a record, or the counter: the highest counts
            if meta > known.get(name, b""):
                puts.append((name, meta))
            continue
        state = json.loads(meta)
        old = state["index"]
        if name in states:
            if (states[name]["kind"], states[name]["ttl"]) != (state["kind"], state["ttl"]):
                message = (
                    f"state {name[1:].decode()!r} has different kinds in the subtasks of the"
                    f" checkpoint: {states[name]} and {state}"
                )
                raise StateError(message)
            new = states[name]["index"]
        else:
            taken = {each["index"] for each in states.values()}
            new = free if old in taken and old < FIRST_FIXED else old
            states[name] = state = {**state, "index": new}
            if new < FIRST_FIXED:
                free = max(free, new + 1)
            puts.append((name, json.dumps(state).encode()))
        if new != old:
            numbers[_TWO.pack(old)] = _TWO.pack(new)
    target.write(puts)
    return numbers


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
        [(key + suffix, value) for key, value in chunks],
        foreign + [key for key, _ in chunks],
    )
