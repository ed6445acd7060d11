"""Damaged local copies of state, whose checkpoint is whole: noticed, dropped, restored."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.damage import WAYS, damage_file

from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.model import difference, digest_of
from millstream.errors import CorruptCheckpointError, DirectoryError, LocalCopyError
from millstream.state import local_copies
from millstream.state.local_copies import forget_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tests.state.conftest import World

    from millstream.contracts.key_value_store import KeyValueStore, StateFile

ENTRIES = {b"K%05d" % number: b"%d" % (number * number) for number in range(5_000)}
EVERYTHING = (b"", b"\xff" * 8)

READS: dict[str, Callable[[KeyValueStore], object]] = {
    "get": lambda store: [store.get(key) for key in ENTRIES],
    "get_many": lambda store: store.get_many(list(ENTRIES)[::7]),
    "scan": lambda store: list(store.scan(*EVERYTHING)),
    "get_many by a scan": lambda store: store.get_many(list(ENTRIES)),
}


class CopyingStorage(LocalStorage):
    """As on another disk: nothing is shared by hard links."""

    def upload(self, local: Path, name: str) -> None:
        """Copy."""
        self.write(name, local.read_bytes())

    def download(self, name: str, local: Path) -> None:
        """Copy."""
        local.write_bytes(self.read(name))


@dataclass
class Copy:
    """The local copy of a snapshot that holds ``ENTRIES``."""

    world: World

    @property
    def directory(self) -> Path:
        return self.world.local / "op" / "0" / self.world.handles[0]["id"]

    def data_file(self) -> Path:
        """The largest."""
        return max(self.directory.iterdir(), key=lambda path: path.stat().st_size)

    def check(self) -> None:
        """What is read is right."""
        store = self.world.open()
        assert dict(store.scan(*EVERYTHING)) == ENTRIES
        assert store.get_many(list(ENTRIES)) == list(ENTRIES.values())
        store.close()

    def as_in_another_process(self) -> None:
        """Files that are here were written by another one."""
        forget_files()


@pytest.fixture
def copy(world: World) -> Copy:
    world.storage = CopyingStorage(world.root / "checkpoint", fsync=False)
    store = world.open()
    store.write(ENTRIES.items())
    world.handles = [store.snapshot()]
    store.close()
    return Copy(world)


def flip_on_the_medium(path: Path) -> None:
    """Change a byte so that the file system does not know of it."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("known", [False, True], ids=["another's", "own"])
@pytest.mark.parametrize("how", WAYS)
def test_a_damaged_copy_is_restored(
    how: str, known: bool, copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    if not known:
        copy.as_in_another_process()
    damage_file(copy.data_file(), how)
    copy.check()
    copy.check()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "operator op, subtask 0: the local copy" in caplog.text


@pytest.mark.parametrize("how", WAYS)
def test_a_damaged_manifest_of_rocksdb_is_restored(how: str, copy: Copy) -> None:
    for path in copy.directory.glob("MANIFEST-*"):
        damage_file(path, how)
    copy.as_in_another_process()
    copy.check()


def test_a_link_to_elsewhere_is_not_followed(copy: Copy, tmp_path: Path) -> None:
    path = copy.data_file()
    shutil.move(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    copy.check()
    assert not copy.data_file().is_symlink()


def test_a_copy_of_another_subtask_is_checked(copy: Copy) -> None:
    elsewhere = copy.world.local / "op" / "1" / copy.directory.name
    elsewhere.parent.mkdir()
    shutil.move(copy.directory, elsewhere)
    for path in elsewhere.iterdir():
        damage_file(path, "flipped")
    copy.check()
    assert not elsewhere.exists()


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("backend", ["rocksdb"])
def test_damage_behind_the_back_ends_the_epoch_once(
    copy: Copy, read: Callable[[KeyValueStore], object]
) -> None:
    """RocksDB's block checksums find what the file system does not know of."""
    flip_on_the_medium(copy.data_file())
    store = copy.world.open()
    with pytest.raises(LocalCopyError, match=r"operator op, subtask 0: .* run again"):
        read(store)
    store.close()
    copy.check()


WRITES: dict[str, Callable[[KeyValueStore], object]] = {
    "write": lambda store: store.write([(b"Knew", b"")]),
    "delete_range": lambda store: store.delete_range(b"K", b"L"),
    "snapshot": lambda store: store.snapshot(),
}


class CompactionMetDamage:
    """A database whose compaction has met a block that it cannot read: nothing can be written."""

    def __init__(self, database: Any, path: Path) -> None:
        self._database = database
        self._path = path

    def close(self) -> None:
        self._database.close()

    def fail(self, *_: object) -> None:
        message = f"Corruption: block checksum mismatch: type = 4 in {self._path} offset 0"
        raise Exception(message)  # noqa: TRY002 - as rocksdict does

    write = delete_range = flush = fail


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("backend", ["rocksdb"])
def test_damage_that_compaction_meets_is_ours_to_tell(
    copy: Copy, write: Callable[[KeyValueStore], object]
) -> None:
    flip_on_the_medium(copy.data_file())
    store: Any = copy.world.open()
    store._database = CompactionMetDamage(store._database, copy.data_file())
    with pytest.raises(LocalCopyError, match="operator op, subtask 0"):
        write(store)
    store.close()
    copy.check()


def test_a_file_without_checksums_is_read_through_each_time(copy: Copy, backend: str) -> None:
    if backend == "hashmap":
        flip_on_the_medium(copy.data_file())
    else:  # RocksDB reads all of its MANIFEST when it opens, and finds it itself
        for path in copy.directory.glob("MANIFEST-*"):
            flip_on_the_medium(path)
    copy.check()


@pytest.mark.parametrize("at", ["open", "read"])
@pytest.mark.parametrize("backend", ["rocksdb"])
def test_a_checkpoint_that_is_damaged_itself_is_final(copy: Copy, at: str) -> None:
    """Written damaged: its digests are right, and no copy of it is better."""
    (handle,) = copy.world.handles
    start = "MANIFEST-" if at == "open" else "0"
    file = next(file for file in handle["files"] if file["local"].startswith(start))
    content = bytearray(copy.world.storage.read(file["remote"]))
    content[len(content) // 3] ^= 1
    copy.world.storage.write(file["remote"], bytes(content))
    file["digest"] = digest_of([bytes(content)])[1]
    copy.world.lose_local_copies()
    expected = rf"operator op, subtask 0: .*{file['remote']}.* checkpoints .* verify"
    with pytest.raises(CorruptCheckpointError, match=expected):
        copy.check()


def test_a_missing_file_of_the_checkpoint_names_the_operator(copy: Copy) -> None:
    name = copy.world.handles[0]["files"][0]["remote"]
    copy.world.storage.delete([name])
    damage_file(copy.data_file(), "truncated")
    with pytest.raises(CorruptCheckpointError, match=f"operator op, subtask 0: .*{name} is miss"):
        copy.world.open()


def test_what_this_process_wrote_is_not_read_again(
    copy: Copy, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    compared: list[StateFile] = []

    def counted(blocks: Iterable[bytes], file: StateFile) -> str | None:
        compared.append(file)
        return difference(blocks, file)

    monkeypatch.setattr(local_copies, "difference", counted)

    def epoch() -> int:
        compared.clear()
        store = copy.world.open()
        store.write([(b"Knew", b"")])
        copy.world.handles = [store.snapshot()]
        store.close()
        return len(compared)

    once = len(copy.world.handles[0]["files"])
    in_any_case = 1 if backend == "hashmap" else 0
    assert [epoch() for _ in range(3)] == [in_any_case] * 3
    copy.as_in_another_process()
    assert epoch() >= once
    assert epoch() == in_any_case


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_directories_are_the_owners_alone(copy: Copy) -> None:
    places = [copy.world.local, copy.world.local / "op", copy.world.local / "op" / "0"]
    for place in places:
        place.chmod(0o775)
    copy.check()
    assert [place.stat().st_mode & 0o777 for place in places] == [0o700] * 3


def test_a_directory_that_everybody_may_write_to_is_not_entered(copy: Copy) -> None:
    copy.world.local.chmod(0o777)
    with pytest.raises(DirectoryError, match="writable by everybody"):
        copy.world.open()


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_symbolic_link_is_not_entered(copy: Copy, level: int, tmp_path: Path) -> None:
    place = [copy.world.local, copy.world.local / "op", copy.world.local / "op" / "0"][level]
    shutil.move(place, tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DirectoryError, match="symbolic link"):
        copy.world.open()


def test_a_directory_of_somebody_else_is_not_entered(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    somebody = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: somebody)
    with pytest.raises(DirectoryError, match="belongs to"):
        copy.world.open()
