"""Packed rows and maps of them: what is in memory, in the store, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.state.keyed import KeyedState
from millstream.state.packed_buckets import decoded_bucket, grown, joined_bucket
from millstream.state.packed_state import PackedMaps, PackedValues, append_groups, enter_groups
from millstream.state.registry import read_sections
from millstream.testing.memory_store import MemoryStore

_CHANGES = ["put", "append", "append some", "enter", "enter some", "remove", "clear"]
keys = st.sampled_from([1, 2, "a", b"t\0", b"n"])
names = st.binary(max_size=3)
steps = st.lists(
    st.tuples(
        st.sampled_from([*_CHANGES, "flush", "restore", "age"]),
        keys,
        names,
    ),
    max_size=60,
)


def keyed_of(store: MemoryStore) -> tuple[KeyedState, PackedMaps, PackedValues]:
    keyed = KeyedState(128, (0, 128))
    maps, values = PackedMaps(keyed, "maps"), PackedValues(keyed, "values")
    keyed.begin_epoch(store, 0)
    return keyed, maps, values


@examples(60)
@given(plan=steps, most=st.sampled_from([1, 2, 128]))
def test_agree_with_dictionaries(plan: list[tuple[str, Any, bytes]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millstream.state.packed_state._MOST_PER_BUCKET", most)
        store = MemoryStore()
        keyed, maps, values = keyed_of(store)
        expected: dict[Any, dict[bytes, bytes]] = {}
        for number, (step, key, name) in enumerate(plan):
            content = str(number).encode()
            if step == "flush":
                keyed.flush()
            elif step == "age":
                keyed.flush()
                maps.age()
                values.age()
            elif step == "restore":
                keyed.flush()
                store = store.copy()
                keyed, maps, values = keyed_of(store)
            else:
                _change(maps, step, key, name, content)
                wanted = expected.setdefault(key, {})
                _change_dictionary(wanted, step, name, content)
                values.put_all([key], [content if step == "put" else None])
                assert values.get_all([key, 99]) == [content if step == "put" else None, None]
            for each, entries in expected.items():
                maps.fetch_all([each])
                assert dict(maps.map_of(each).items()) == entries
                assert len(maps.map_of(each)) == len(entries)


def _change(maps: PackedMaps, step: str, key: Any, name: bytes, content: bytes) -> None:
    if step == "clear":
        maps.fetch_all([key])
        maps.map_of(key).clear()
    elif step == "append":
        maps.fetch_entries_of([key], np.zeros(1, np.int64), [name])
        if not maps.append(key, name, content):
            maps.map_of(key).put(name, content)
    elif step == "append some":
        names = [name, name + b"x", b"", name][: len(content) + 1]
        rows = np.zeros(len(names), np.int64)
        maps.fetch_entries_of([key], rows, names)
        for row in append_groups(maps, [key], rows, names, [content] * len(names)):
            maps.map_of(key).put(names[row], content)
    elif step == "enter some":
        both = [name, name + b"x"]
        maps.fetch_entries_of([key], np.zeros(2, np.int64), both)
        before = [maps.map_of(key).get(each) is None for each in both] if len(name) == 1 else None
        new = enter_groups(maps, [key], np.array([2]), both, content)
        assert before is None or new.tolist() == before
    elif step == "enter":
        both = [name, name + b"x"]
        maps.fetch_entries_of([key], np.zeros(2, np.int64), both)
        maps.enter(key, both, content)
    else:
        maps.fetch_entries([(key, name)])
        found = maps.map_of(key)
        if step == "put":
            found.put(name, content)
        else:
            found.remove(name)
    maps.changed([key])


def _change_dictionary(wanted: dict[bytes, bytes], step: str, name: bytes, content: bytes) -> None:
    if step in ("put", "append"):
        wanted[name] = content
    elif step == "append some":
        wanted.update(dict.fromkeys([name, name + b"x", b"", name][: len(content) + 1], content))
    elif step in ("enter", "enter some"):
        for each in (name, name + b"x"):
            wanted.setdefault(each, content)
    elif step == "remove":
        wanted.pop(name, None)
    else:
        wanted.clear()


entries = st.lists(st.tuples(names, st.binary(max_size=9)), max_size=4)


@examples(60)
@given(buckets=st.lists(st.tuples(entries, entries), min_size=1, max_size=5))
def test_buckets_grow_all_at_once(
    buckets: list[tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]],
) -> None:
    def joined(entries: list[tuple[bytes, bytes]]) -> bytes:
        return joined_bucket([name for name, _ in entries], [value for _, value in entries])

    stored = [joined(before) if before else None for before, _ in buckets]
    new = [entry for _, added in buckets for entry in added]
    names = pa.array([name for name, _ in new], pa.binary())
    values = pa.array([b"", *(value for _, value in new)], pa.large_binary())[1:]
    found = grown(stored, np.array([len(added) for _, added in buckets]), names, values)
    assert found == [joined(before + added) for before, added in buckets]


def test_one_entry_of_a_large_map_reads_one_bucket() -> None:
    store = MemoryStore()
    keyed, maps, _ = keyed_of(store)
    maps.fetch([1])
    for number in range(10_000):
        maps.map_of(1).put(b"%d" % number, b"x")
    maps.changed([1])
    keyed.flush()
    assert len([name for name in store.entries if name.startswith(b"K")]) == 128
    _, maps, _ = keyed_of(store)
    maps.fetch_entries([(1, b"77")])
    assert maps.map_of(1).get(b"77") == b"x"
    assert len(maps.map_of(1)) == 10_000
    assert sum(map(maps.map_of(1).has_bucket, range(128))) <= 2


def test_the_store_says_what_they_are() -> None:
    store = MemoryStore()
    keyed, maps, values = keyed_of(store)
    values.put_all([1], [b"row"])
    maps.fetch([1])
    maps.map_of(1).put(b"a", b"b")
    maps.changed([1])
    keyed.flush()
    assert {each.name: (each.kind, each.format) for each in read_sections(store)} == {
        "maps": ("packed map", "packed map"),
        "values": ("packed", "packed"),
    }
    (bucket,) = [value for name, value in store.entries.items() if name.endswith(b"\0\0\0\0")]
    assert decoded_bucket(bucket) == (0, 1, {b"a": b"b"})
