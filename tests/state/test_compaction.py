"""What one epoch may have to wait for: compaction that rewrites a part, not all there is."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from tests.state.conftest import World

from millstream.state.backends.rocksdb import RocksDBStore

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.key_value_store import StateFile

MEBIBYTE = 1 << 20
ENTRIES = 40_000
LENGTH = 1_000
EPOCHS = 30
DEADLINE = 60.0


def key(number: int) -> bytes:
    return b"K%07d" % number


def test_no_epoch_rewrites_all_of_the_state(tmp_path: Path) -> None:
    """Data files that an epoch makes are what it flushed, and what was compacted."""
    chance = random.Random(1)
    world = World(tmp_path, "rocksdb")
    store = world.open()
    store.write((key(number), chance.randbytes(LENGTH)) for number in range(ENTRIES))
    world.handles = [store.snapshot()]
    store.close()
    settle(world)
    made = [epoch(world, chance) for _ in range(EPOCHS)]
    assert size_of(world.handles[0]["files"]) > 35 * MEBIBYTE
    assert MEBIBYTE / 2 < max(made) < 20 * MEBIBYTE, made
    assert len(world.handles[0]["files"]) < 40


def settle(world: World) -> None:
    """Let the compaction be done that the filling has left."""
    store = world.open()
    assert isinstance(store, RocksDBStore)
    limit = time.monotonic() + DEADLINE
    while store._number("rocksdb.compaction-pending") or store._number(
        "rocksdb.num-running-compactions"
    ):
        assert time.monotonic() < limit
        time.sleep(0.01)
    world.handles = [store.snapshot()]
    store.close()


def epoch(world: World, chance: random.Random) -> int:
    """Change some entries everywhere; the bytes of new data files."""
    before = {file["remote"] for file in world.handles[0]["files"]}
    store = world.open()
    store.write((key(chance.randrange(ENTRIES)), chance.randbytes(LENGTH)) for _ in range(50))
    world.handles = [store.snapshot()]
    store.close()
    return size_of([file for file in world.handles[0]["files"] if file["remote"] not in before])


def size_of(files: list[StateFile]) -> int:
    return sum(file["size"] for file in files)
