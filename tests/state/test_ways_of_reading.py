"""Which way ``get_many`` of the RocksDB store takes: all entries in order, or key by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.state.conftest import World

from millstream.state.backends.rocksdb import RocksDBStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEYS = 20_000


class Scans:
    """Counts the entries that scans read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries = 0
        scan = RocksDBStore.scan

        def counted(
            store: RocksDBStore, start: bytes, stop: bytes
        ) -> Iterator[tuple[bytes, bytes]]:
            for entry in scan(store, start, stop):
                self.entries += 1
                yield entry

        monkeypatch.setattr(RocksDBStore, "scan", counted)


def key(number: int) -> bytes:
    return b"K%07d" % number


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, "rocksdb")
    store = made.open()
    store.write((key(2 * number), b"%d" % number) for number in range(KEYS))
    made.handles = [store.snapshot()]
    store.close()
    return made


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize(
    ("wanted", "scanned"), [(KEYS // 10, False), (KEYS // 5, False), (KEYS // 2, True)]
)
def test_a_store_that_is_opened_anew_knows_how_much_it_holds(
    wanted: int, scanned: bool, missing: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all of it is small enough to be read at once."""
    scans = Scans(monkeypatch)
    numbers = range(0, KEYS, KEYS // wanted)
    store = world.open()
    values = store.get_many([key(2 * number + missing) for number in numbers])
    store.close()
    assert values == [None if missing else b"%d" % number for number in numbers]
    if scanned:
        assert KEYS * 0.9 < scans.entries <= KEYS
    else:
        assert scans.entries == 0


def test_a_store_full_of_deletions_is_not_scanned(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = world.open()
    store.write([], [key(2 * number) for number in range(KEYS)])
    world.handles = [store.snapshot()]
    store.close()
    scans = Scans(monkeypatch)
    store = world.open()
    assert store.get_many([key(2 * number) for number in range(2_000)]) == [None] * 2_000
    store.close()
    assert scans.entries == 0
