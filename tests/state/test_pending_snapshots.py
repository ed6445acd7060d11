"""Snapshots in two steps: another thread finishes what was prepared, while the store goes on."""

from __future__ import annotations

import queue
import random
import threading
from typing import TYPE_CHECKING

import pytest
from tests.state.conftest import World
from tests.state.test_repeated_snapshots import EVERYTHING, change

from millstream.checkpoint.local_storage import LocalStorage
from millstream.crash_points import arm
from millstream.state.backends.rocksdb import RocksDBStore
from millstream.state.local_copies import upload_files
from millstream.testing.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.contracts.key_value_store import PendingSnapshot, StateHandle

DEADLINE = 60.0


class Uploader:
    """A thread that finishes or abandons snapshots, in the order in which they come."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._wanted: queue.SimpleQueue[tuple[int, PendingSnapshot] | None] = queue.SimpleQueue()
        self.finished: dict[int, StateHandle] = {}
        self.abandoned: list[int] = []
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            for number, pending in iter(self._wanted.get, None):
                if self._chance.random() < 0.2:
                    pending.abandon()
                    self.abandoned.append(number)
                else:
                    self.finished[number] = pending.finish()
        except BaseException as error:
            self.failure = error
            raise

    def add(self, number: int, pending: PendingSnapshot) -> None:
        self._wanted.put((number, pending))

    def close(self) -> None:
        self._wanted.put(None)
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        assert self.failure is None


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(4))
def test_oracle_a_snapshot_is_what_was_written_before_it_was_prepared(
    world: World, seed: int
) -> None:
    chance = random.Random(seed)
    model: dict[bytes, bytes] = {}
    held: list[dict[bytes, bytes]] = []
    store = world.open()
    uploader = Uploader(seed)
    for _ in range(60):
        change(store, model, chance)
        if chance.random() < 0.6:
            held.append(dict(model))
            uploader.add(len(held) - 1, store.prepare_snapshot())
        assert dict(store.scan(*EVERYTHING)) == model
    if chance.random() < 0.5:  # the store may be closed ahead of the last ones
        store.close()
    uploader.close()
    store.close()
    assert len(uploader.finished) > 10
    assert uploader.abandoned
    world.lose_local_copies()
    check(world, uploader.finished, held)


def check(world: World, finished: dict[int, StateHandle], held: list[dict[bytes, bytes]]) -> None:
    for number, handle in finished.items():
        world.handles = [handle]
        restored = world.open()
        assert dict(restored.scan(*EVERYTHING)) == held[number]
        restored.close()


def test_a_store_goes_on_from_a_local_copy_of_any_snapshot(world: World) -> None:
    """Those that wait for being finished are not taken for old ones, which are removed."""
    store = world.open()
    held: list[dict[bytes, bytes]] = []
    pending = []
    for number in range(6):
        store.write([(b"K%d" % number, b"x")])
        held.append(dict(store.scan(*EVERYTHING)))
        pending.append(store.prepare_snapshot())
    for number, each in enumerate(pending):
        finished = {number: each.finish()}
        check(world, finished, held)
    store.close()


@pytest.fixture
def slow(world: World) -> Iterator[threading.Event]:
    """Let uploads wait for the event."""
    may_upload = threading.Event()

    class Slow(LocalStorage):
        def upload(self, local: Path, name: str) -> None:
            assert may_upload.wait(DEADLINE)
            super().upload(local, name)

    world.storage = Slow(world.root / "checkpoint", fsync=False)
    yield may_upload
    may_upload.set()


def test_nothing_waits_for_an_upload(world: World, slow: threading.Event) -> None:
    store = world.open()
    uploader = Uploader(seed=1)  # which abandons none of the first four
    held: list[dict[bytes, bytes]] = []
    for number in range(4):
        store.write([(b"K%d" % number, b"x")])
        held.append(dict(store.scan(*EVERYTHING)))
        uploader.add(number, store.prepare_snapshot())
    assert not uploader.finished
    slow.set()
    uploader.close()
    store.close()
    assert len(uploader.finished) + len(uploader.abandoned) == 4
    check(world, uploader.finished, held)


def test_only_writes_wait_while_files_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, "rocksdb")
    store = world.open()
    store.write([(b"K1", b"x")])
    may_keep, has_written = threading.Event(), threading.Event()
    keep = RocksDBStore.keep_files

    def slowly(self: RocksDBStore, identity: str, *, wait: bool) -> None:
        assert may_keep.wait(DEADLINE)
        keep(self, identity, wait=wait)

    monkeypatch.setattr(RocksDBStore, "keep_files", slowly)
    pending = store.prepare_snapshot()
    assert store.is_busy
    assert store.get(b"K1") == b"x"
    assert dict(store.scan(*EVERYTHING)) == {b"K1": b"x"}

    def write() -> None:
        store.write([(b"K1", b"y")])
        has_written.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert not has_written.is_set()
    may_keep.set()
    writer.join(DEADLINE)
    assert has_written.is_set()
    assert RocksDBStore.is_busy.__get__(store) is False
    handle = pending.finish()
    store.close()
    check(world, {0: handle}, [{b"K1": b"x"}])


def test_an_abandoned_snapshot_leaves_nothing(world: World) -> None:
    store = world.open()
    store.write([(b"K1", b"x")])
    store.prepare_snapshot().abandon()
    assert not local_copies(world)
    assert not list(world.storage.list_names("state"))
    store.write([(b"K2", b"x")])
    handle = store.snapshot()
    store.close()
    check(world, {0: handle}, [{b"K1": b"x", b"K2": b"x"}])


def local_copies(world: World) -> list[Path]:
    return [path for path in world.local.glob("op/0/*") if not path.name.startswith("work-")]


def test_older_copies_go_when_a_snapshot_is_acknowledged(tmp_path: Path) -> None:
    """Whoever waits for ``finish`` does not wait for that; the one before the last stays."""
    world = World(tmp_path, "rocksdb")
    store = world.open()
    counts = []
    for number in range(4):
        store.write([(b"K1", b"%d" % number)])
        pending = store.prepare_snapshot()
        handle = pending.finish()
        counts.append(len(local_copies(world)))
        pending.tidy()
        counts.append(len(local_copies(world)))
    store.close()
    assert counts == [1, 1, 2, 2, 3, 2, 3, 2]
    check(world, {0: handle}, [{b"K1": b"3"}])


class _Disk(LocalStorage):
    """Refuses a file, while others are being written."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.begun: list[str] = []
        self.written: list[str] = []
        self.has_refused = threading.Event()

    def upload(self, local: Path, name: str) -> None:
        if local.name == "0":
            self.has_refused.set()
            message = "no room"
            raise OSError(message)
        self.begun.append(name)
        assert self.has_refused.wait(DEADLINE)
        super().upload(local, name)
        self.written.append(name)


def test_nothing_is_uploaded_any_more_when_that_has_failed(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(10)]
    for path in paths:
        path.write_text(path.name)
    storage = _Disk(tmp_path / "storage")
    with pytest.raises(OSError, match="no room"):
        upload_files(storage, paths, "op", "s")
    assert sorted(storage.begun) == sorted(storage.written)
    made = upload_files(storage, paths[1:], "op", "t")
    assert list(made) == [path.name for path in paths[1:]]
    assert all(file["remote"] == f"state/op/t-{name}" for name, file in made.items())


def test_a_snapshot_builds_on_one_finished_since_it_was_prepared(tmp_path: Path) -> None:
    world = World(tmp_path, "rocksdb")
    store = world.open()
    store.write([(b"K1", b"x")])
    first = store.prepare_snapshot()
    store.write([(b"K2", b"x")])
    second = store.prepare_snapshot()
    names = [{file["remote"] for file in each.finish()["files"]} for each in (first, second)]
    store.close()
    # The first file is shared, beside it are a new one and RocksDB's list of files.
    assert [len(each) for each in names] == [2, 3]
    assert len(names[0] & names[1]) == 1


def test_level_0_is_bounded_by_the_second_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction that lags behind holds the next checkpoint back, and no write."""
    store = World(tmp_path, "rocksdb").open()
    assert isinstance(store, RocksDBStore)
    pending = []
    store._database.set_options({"disable_auto_compactions": "true"})
    for number in range(20):
        store.write([(b"K%03d" % each, b"%d" % number) for each in range(100)])
        pending.append(store.prepare_snapshot())
    store.write([])  # waits until all files are kept
    assert store._number("rocksdb.num-files-at-level0") == 20
    waited = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        store._database.set_options({"disable_auto_compactions": "false"})
        threading.Event().wait(seconds)

    monkeypatch.setattr("millstream.state.backends.rocksdb.time.sleep", sleep)
    pending[0].finish()
    assert waited
    assert store._number("rocksdb.num-files-at-level0") <= 12
    for each in pending[1:]:
        each.abandon()
    store.close()


@pytest.mark.parametrize(
    "point",
    ["state.flush.before", "state.flush.after", "state.upload.before", "state.upload.after"],
)
def test_both_steps_pass_the_crash_points_of_a_snapshot(world: World, point: str) -> None:
    class Killed(BaseException):
        """As a kill, which no code can catch."""

    def kill(_: str) -> None:
        raise Killed

    store = world.open()
    store.write([(b"K1", b"x")])
    world.handles = [store.snapshot()]
    store.write([(b"K1", b"y")])
    arm(point, kill)
    try:
        with pytest.raises(Killed):
            store.prepare_snapshot().finish()
    finally:
        arm("")
    # Whoever comes next goes on from the snapshot before it.
    check(world, {0: world.handles[0]}, [{b"K1": b"x"}])
    store.close()


def test_a_failed_upload_is_told_and_can_be_abandoned(world: World) -> None:
    class Full(LocalStorage):
        def upload(self, local: Path, name: str) -> None:
            raise OSError(28, "No space left on device", str(local), None, name)

    whole = world.storage
    world.storage = Full(world.root / "checkpoint", fsync=False)
    store = world.open()
    store.write([(b"K1", b"x")])
    pending = store.prepare_snapshot()
    with pytest.raises(OSError, match="No space"):
        pending.finish()
    pending.abandon()
    assert not local_copies(world)
    store.close()
    world.storage = whole


@pytest.mark.parametrize("seed", range(2))
def test_oracle_the_store_of_the_harness(seed: int) -> None:
    chance = random.Random(seed)
    model: dict[bytes, bytes] = {}
    store = MemoryStore()
    taken: list[tuple[PendingSnapshot, dict[bytes, bytes]]] = []
    for _ in range(20):
        change(store, model, chance)
        taken.append((store.prepare_snapshot(), dict(model)))
    for pending, expected in taken:
        assert store.restored(pending.finish()).entries == expected
