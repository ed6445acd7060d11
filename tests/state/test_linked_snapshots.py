"""Snapshots of a RocksDB whose files are linked beside its compaction: each is what was written."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import rocksdict

from millstream.checkpoint.local_storage import LocalStorage
from millstream.state.backend import open_store
from millstream.state.backends import rocksdb, rocksdb_tuning
from millstream.state.backends.rocksdb import RocksDBStore

if TYPE_CHECKING:
    from millstream.contracts.key_value_store import KeyValueStore, StateHandle


def opened(directory: Path, name: str, handles: list[StateHandle]) -> KeyValueStore:
    """A store of another machine: it has no local copies."""
    return open_store(
        *("rocksdb", LocalStorage(directory / "storage", fsync=False), "count", 0, (0, 128)),
        *(handles, "attempt", directory / name, False),
    )


def content(directory: Path, name: str, handle: StateHandle) -> dict[bytes, bytes]:
    store = opened(directory, name, [handle])
    found = dict(store.scan(b"", b"\xff"))
    store.close()
    return found


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each snapshot, whether its files were linked."""
    done: list[bool] = []
    link = RocksDBStore._link_files

    def note(self: RocksDBStore, target: Path) -> bool:
        done.append(link(self, target))
        return done[-1]

    monkeypatch.setattr(RocksDBStore, "_link_files", note)
    return done


def test_oracle_snapshots_beside_compaction(tmp_path: Path, linked: list[bool]) -> None:
    """Every few flushes compaction replaces files, while snapshots are prepared and read."""
    chance = random.Random(20_261_122)
    store = opened(tmp_path, "writer", [])
    expected: dict[bytes, bytes] = {}
    taken: list[tuple[StateHandle, dict[bytes, bytes]]] = []
    for number in range(40):
        keys = [b"%05d" % chance.randrange(3000) for _ in range(chance.choice([5, 400]))]
        gone = [key for key in expected if chance.random() < 0.02]
        store.write([(key, b"%d" % number * 20) for key in keys], gone)
        for key in gone:
            expected.pop(key)
        expected.update(dict.fromkeys(keys, b"%d" % number * 20))
        pending = store.prepare_snapshot()
        taken.append((pending.finish(), dict(expected)))
    store.close()
    for index in (0, 1, *range(5, 40, 6), 38, 39):
        handle, wanted = taken[index]
        assert content(tmp_path, f"reader-{index}", handle) == wanted
    assert linked.count(True) >= 10
    assert len(linked) == 40


def test_files_that_change_meanwhile_are_left_to_rocksdb(
    tmp_path: Path, linked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread compacts between the list of the files and the copy of their MANIFEST."""
    store: Any = opened(tmp_path, "writer", [])
    copy = rocksdb.shutil.copyfile  # type: ignore[attr-defined]
    compacts = threading.Event()

    def copied(source: Path, target: Path) -> object:
        if compacts.is_set():
            compacts.clear()
            store._database.compact_range(None, None)
        return copy(source, target)

    monkeypatch.setattr(rocksdb.shutil, "copyfile", copied)  # type: ignore[attr-defined]
    store.write([(b"a", b"1"), (b"b", b"1")])
    store.prepare_snapshot().finish()
    store.write([(b"a", b"2"), (b"c", b"2")])
    compacts.set()
    handle = store.prepare_snapshot().finish()
    assert linked == [True, False]
    assert not compacts.is_set()
    store.close()
    assert content(tmp_path, "reader", handle) == {b"a": b"2", b"b": b"1", b"c": b"2"}


def test_a_file_that_is_gone_is_left_to_rocksdb(
    tmp_path: Path, linked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = opened(tmp_path, "writer", [])
    database = store._database

    class Replaced:
        """Names a file that compaction has replaced since."""

        def __getattr__(self, name: str) -> Any:
            return getattr(database, name)

        def live_files(self) -> list[dict[str, str]]:
            return [*database.live_files(), {"name": "/999999.sst"}]

    real = rocksdict.Checkpoint
    monkeypatch.setattr(rocksdb, "Checkpoint", lambda _: real(database))
    store._database = Replaced()
    store.write([(b"a", b"1")])
    handle = store.prepare_snapshot().finish()
    assert linked == [False]
    store._database = database
    store.close()
    assert content(tmp_path, "reader", handle) == {b"a": b"1"}


def test_a_manifest_that_begins_anew_meanwhile_is_left_to_rocksdb(
    tmp_path: Path, linked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction may begin between the two questions whether it is at work."""
    store: Any = opened(tmp_path, "writer", [])
    store.write([(b"a", b"1")])
    current = Path.read_text
    names = ["MANIFEST-000001"]  # gone since the store was opened

    def read_text(path: Path) -> str:
        return names.pop() if names and path.name == "CURRENT" else current(path)

    monkeypatch.setattr(Path, "read_text", read_text)
    handle = store.prepare_snapshot().finish()
    assert (names, linked) == ([], [False])
    store.close()
    assert content(tmp_path, "reader", handle) == {b"a": b"1"}


def test_what_lists_the_files_does_not_grow_with_the_number_of_snapshots(
    tmp_path: Path, linked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job takes a million snapshots, and each has all of the MANIFEST."""
    monkeypatch.setattr(rocksdb_tuning, "_MANIFEST", 4096)
    store = opened(tmp_path, "writer", [])
    names: set[str] = set()
    for number in range(60):
        store.write([(b"a", b"%d" % number)])
        handle = store.prepare_snapshot().finish()
        (listing,) = (file for file in handle["files"] if file["local"].startswith("MANIFEST-"))
        # What is added by one snapshot, and by compaction behind it, may come on top.
        assert listing["size"] < 4096 + 2048
        names.add(listing["local"])
        if number % 10 == 0 or len(names) == 2:
            assert content(tmp_path, f"reader-{number}", handle) == {b"a": b"%d" % number}
    store.close()
    assert len(names) > 1
    assert linked.count(True) > 30
