"""The contract of contracts/key_value_store.py, for both backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.contracts.key_value_store import StateHandle
from millstream.errors import ConfigurationError, CorruptCheckpointError, UnknownFormatError
from millstream.state.backends.rocksdb import RocksDBStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.state.conftest import World

EVERYTHING = (b"", b"\xff" * 8)


def test_reads_see_writes(world: World) -> None:
    store = world.open()
    store.write([(b"Ka", b"1"), (b"Kb", b"2"), (b"Kc", b"")])
    store.write([(b"Kb", b"3")], [b"Ka", b"Kb", b"missing"])
    assert store.get(b"Ka") is None
    assert store.get_many([b"Kc", b"Ka", b"Kb"]) == [b"", None, b"3"]
    assert list(store.scan(*EVERYTHING)) == [(b"Kb", b"3"), (b"Kc", b"")]
    assert list(store.scan(b"Kb", b"Kc")) == [(b"Kb", b"3")]
    assert list(store.scan(b"Kc", b"Kb")) == []
    store.delete_range(b"Kb", b"Kc")
    assert list(store.scan(*EVERYTHING)) == [(b"Kc", b"")]
    assert store.get_many([]) == []
    store.close()


def test_a_large_part_of_the_store_is_read_right(world: World) -> None:
    store = world.open()
    store.write((b"K%05d" % i, b"%d" % i) for i in range(0, 10_000, 2))
    wanted = [b"K%05d" % i for i in range(4_999, 0, -1)]
    expected = [None if i % 2 else b"%d" % i for i in range(4_999, 0, -1)]
    assert store.get_many(wanted) == expected
    store.close()


def test_snapshots_are_restored_from_storage_alone(world: World) -> None:
    for number in range(6):
        store = world.open()
        store.write([(b"K%d" % number, b"x" * 100)])
        world.handles = [store.snapshot()]
        store.close()
        if number % 2:
            world.lose_local_copies()
    store = world.open()
    assert [key for key, _ in store.scan(*EVERYTHING)] == [b"K%d" % i for i in range(6)]
    store.close()


def test_only_new_files_are_uploaded(world: World) -> None:
    if world.backend == "hashmap":
        pytest.skip("a hashmap snapshot is one file")
    uploaded: set[str] = set()
    for number in range(3):
        store = world.open()
        store.write([(b"K%d" % number, b"")])
        world.handles = [store.snapshot()]
        store.close()
        names = {file["remote"] for file in world.handles[0]["files"]}
        assert len(names - uploaded) == 2  # one data file, one manifest
        uploaded |= names
    assert set(world.storage.list_names("state")) == uploaded


def test_two_attempts_do_not_see_each_other(world: World) -> None:
    first = world.open()
    first.write([(b"Ka", b"0")])
    world.handles = [first.snapshot()]
    first.close()
    left, right = world.open(attempt="1"), world.open(attempt="1")
    left.write([(b"Ka", b"left")])
    right.write([(b"Kb", b"right")])
    assert list(right.scan(*EVERYTHING)) == [(b"Ka", b"0"), (b"Kb", b"right")]
    handles = [left.snapshot(), right.snapshot()]
    left.close()
    right.close()
    for handle, expected in zip(
        handles, ([(b"Ka", b"left")], [(b"Ka", b"0"), (b"Kb", b"right")]), strict=True
    ):
        world.handles = [handle]
        for _ in range(2):
            store = world.open()
            assert list(store.scan(*EVERYTHING)) == expected
            store.close()
            world.lose_local_copies()


def test_an_attempt_that_fails_leaves_nothing(world: World) -> None:
    store = world.open()
    store.write([(b"Ka", b"1")])
    world.handles = [store.snapshot()]
    store.close()
    failed = world.open()
    failed.write([(b"Ka", b"2")])
    failed.close()
    store = world.open()
    assert store.get(b"Ka") == b"1"
    store.close()
    if world.local.exists():
        assert not list(world.local.rglob("work-*"))


def test_old_local_copies_go(world: World) -> None:
    for number in range(5):
        store = world.open()
        store.write([(b"K", b"%d" % number)])
        world.handles = [store.snapshot()]
        store.close()
    assert len(list((world.local / "op" / "0").iterdir())) <= 2


def damage(world: World, how: str) -> None:
    names = [file["remote"] for file in world.handles[0]["files"]]
    name = next((name for name in names if name.endswith(".sst")), names[0])
    content = bytearray(world.storage.read(name))
    if how == "missing":
        world.storage.delete([name])
        return
    if how == "flipped":
        content[len(content) // 2] ^= 1
    else:
        del content[-1:]
    world.storage.write(name, bytes(content))


@pytest.mark.parametrize("how", ["missing", "flipped", "short"])
def test_damage_is_noticed(world: World, how: str) -> None:
    store = world.open()
    store.write([(b"K%d" % i, b"x" * 100) for i in range(100)])
    world.handles = [store.snapshot()]
    store.close()
    world.lose_local_copies()
    damage(world, how)
    with pytest.raises(CorruptCheckpointError, match="state/op/"):
        world.open()
    assert not list(world.local.rglob("work-*"))


def test_an_incomplete_local_copy_is_not_used(world: World) -> None:
    store = world.open()
    store.write([(b"Ka", b"1")])
    world.handles = [store.snapshot()]
    store.close()
    for path in (world.local / "op" / "0" / world.handles[0]["id"]).iterdir():
        path.unlink()
        break
    store = world.open()
    assert store.get(b"Ka") == b"1"
    store.close()


def test_unknown_backends_are_refused(world: World) -> None:
    handle = StateHandle(backend="heap", id="x", key_groups=(0, 128), files=[])
    world.handles = [handle]
    with pytest.raises(UnknownFormatError, match="heap"):
        world.open()
    world.handles, world.backend = [], "heap"
    with pytest.raises(
        ConfigurationError, match="no state backend 'heap'; there are hashmap, rocksdb"
    ):
        world.open()


def test_a_checkpoint_moves_to_the_other_backend(world: World) -> None:
    store = world.open()
    store.write([(b"K\0\1rest", b"1"), (b"M\0format", b"1")])
    world.handles = [store.snapshot()]
    store.close()
    world.backend = {"hashmap": "rocksdb", "rocksdb": "hashmap"}[world.backend]
    store = world.open()
    assert store.get(b"K\0\1rest") == b"1"
    store.close()


def test_many_small_epochs_do_not_pile_up_files(tmp_path: Path, world: World) -> None:
    if world.backend == "hashmap":
        pytest.skip("one file")
    for number in range(40):
        store = world.open()
        assert isinstance(store, RocksDBStore)
        store.write([(b"K%d" % (number % 7), b"x")])
        world.handles = [store.snapshot()]
        store.close()
    assert len(world.handles[0]["files"]) < 20


KEYS = st.binary(min_size=0, max_size=3).map(lambda rest: b"K\0\1" + rest)
OPERATIONS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.binary(max_size=4)),
    st.tuples(st.just("delete"), KEYS, st.none()),
    st.tuples(st.just("range"), KEYS, KEYS),
    st.tuples(st.just("snapshot"), st.booleans(), st.none()),
)


@examples(20)
@given(st.lists(OPERATIONS, max_size=40))
def test_oracle_random_operations(world: World, operations: list[tuple[str, bytes, bytes]]) -> None:
    world.start_afresh()
    model: dict[bytes, bytes] = {}
    store = world.open()
    for name, first, second in operations:
        if name == "put":
            store.write([(first, second)])
            model[first] = second
        elif name == "delete":
            store.write([], [first])
            model.pop(first, None)
        elif name == "range":
            store.delete_range(first, second)
            model = {key: value for key, value in model.items() if not first <= key < second}
        else:
            world.handles = [store.snapshot()]
            store.close()
            if first:
                world.lose_local_copies()
            store = world.open()
        assert list(store.scan(*EVERYTHING)) == sorted(model.items())
    wanted = [*model, b"K\0\1none"]
    assert store.get_many(wanted) == [model.get(key) for key in wanted]
    store.close()
