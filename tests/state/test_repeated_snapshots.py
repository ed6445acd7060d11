"""Stores that stay open through many snapshots, against a dictionary."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from millstream.testing.memory_store import MemoryStore

if TYPE_CHECKING:
    from tests.state.conftest import World

    from millstream.contracts.key_value_store import KeyValueStore, StateHandle

EVERYTHING = (b"", b"\xff" * 8)
KEYS = [b"K%03d" % number for number in range(200)]


def change(store: KeyValueStore, model: dict[bytes, bytes], chance: random.Random) -> None:
    """Write, delete and delete a range, in both."""
    for _ in range(chance.randrange(4)):
        puts = {chance.choice(KEYS): chance.randbytes(chance.randrange(40)) for _ in range(20)}
        deletes = chance.sample(KEYS, 5)
        store.write(puts.items(), deletes)
        for key in deletes:
            model.pop(key, None)
        model.update(puts)
    if chance.random() < 0.3:
        start, stop = sorted(chance.sample(KEYS, 2))
        store.delete_range(start, stop)
        for key in [key for key in model if start <= key < stop]:
            del model[key]


@pytest.mark.parametrize("seed", range(3))
def test_oracle_every_snapshot_is_what_was_written_before_it(world: World, seed: int) -> None:
    chance = random.Random(seed)
    model: dict[bytes, bytes] = {}
    taken: list[tuple[StateHandle, dict[bytes, bytes]]] = []
    store = world.open()
    for turn in range(40):
        change(store, model, chance)
        assert dict(store.scan(*EVERYTHING)) == model
        if chance.random() < 0.5:
            taken.append((store.snapshot(), dict(model)))
        if turn % 13 == 12:  # closed and opened on any of them, as behind a failure
            store.close()
            handle, held = chance.choice(taken)
            world.handles, model = [handle], dict(held)
            if chance.random() < 0.5:
                world.lose_local_copies()
            store = world.open()
    store.close()
    for handle, held in taken:
        world.handles = [handle]
        restored = world.open()
        assert dict(restored.scan(*EVERYTHING)) == held
        restored.close()


@pytest.mark.parametrize("seed", range(3))
def test_oracle_the_store_of_the_harness(seed: int) -> None:
    chance = random.Random(seed)
    model: dict[bytes, bytes] = {}
    store = MemoryStore()
    taken = []
    for _ in range(40):
        change(store, model, chance)
        taken.append((store.snapshot(), dict(model)))
    assert all(store.restored(handle).entries == held for handle, held in taken)


def test_a_snapshot_uploads_what_the_one_before_it_did_not_have(world: World) -> None:
    # All of it each time; or a data file, and RocksDB's list of files.
    expected = 1 if world.backend == "hashmap" else 2
    store = world.open()
    seen: set[str] = set()
    for number in range(4):
        store.write([(b"K%d" % number, b"")])
        files = {file["remote"] for file in store.snapshot()["files"]}
        assert len(files - seen) == expected
        seen |= files
    store.close()
    assert set(world.storage.list_names("state")) == seen


def test_old_local_copies_go_while_the_store_is_open(world: World) -> None:
    store = world.open()
    for number in range(6):
        store.write([(b"K%d" % number, b"")])
        store.snapshot()
    copies = [path for path in world.local.glob("op/0/*") if not path.name.startswith("work-")]
    assert len(copies) == 2
    store.close()
