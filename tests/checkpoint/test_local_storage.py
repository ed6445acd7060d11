"""The storage contract on LocalStorage."""

from __future__ import annotations

import errno
import multiprocessing
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from millstream.checkpoint import LocalStorage
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier as ProcessBarrier
    from pathlib import Path

NAMES = [f"log/{number}" for number in range(40)]


@pytest.fixture(params=[True, False], ids=["fsync", "no fsync"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "a" / "b", fsync=request.param)


def test_nothing_is_created_before_the_first_write(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "new")
    assert not storage.exists("x")
    assert list(storage.list_names("")) == []
    with pytest.raises(FileNotFoundError):
        storage.read("x")
    storage.delete(["x"])
    assert not (tmp_path / "new").exists()


def test_put_if_absent_keeps_the_first(storage: LocalStorage) -> None:
    assert storage.put_if_absent("log/1", b"one")
    assert not storage.put_if_absent("log/1", b"two")
    assert storage.read("log/1") == b"one"
    assert list(storage.list_names("")) == ["log/1"]


def test_write_replaces(storage: LocalStorage) -> None:
    storage.write("x/y", b"one")
    storage.write("x/y", b"two")
    assert storage.read("x/y") == b"two"
    assert storage.exists("x/y")
    assert not storage.exists("x")


def test_list_names_is_sorted_and_below_the_prefix(storage: LocalStorage) -> None:
    for name in ("state/b/2", "state/a/1", "state/c", "stateful/x", "log/1"):
        storage.write(name, b"")
    assert list(storage.list_names("state")) == ["state/a/1", "state/b/2", "state/c"]
    assert list(storage.list_names("state/")) == ["state/a/1", "state/b/2", "state/c"]
    assert list(storage.list_names("nowhere")) == []


def test_uploads_and_downloads_survive_deletion(storage: LocalStorage, tmp_path: Path) -> None:
    local = tmp_path / "local.sst"
    local.write_bytes(b"content")
    storage.upload(local, "state/u/1")
    with pytest.raises(FileExistsError):
        storage.upload(local, "state/u/1")
    local.unlink()
    back = tmp_path / "deep" / "back.sst"
    storage.download("state/u/1", back)
    storage.delete(["state/u/1", "state/u/none"])
    assert back.read_bytes() == b"content"
    with pytest.raises(FileNotFoundError):
        storage.download("state/u/1", back)
    with pytest.raises(FileNotFoundError):
        storage.upload(tmp_path / "none", "state/u/2")
    assert list(storage.list_names("")) == []


@pytest.mark.parametrize("in_kernel", [True, False])
def test_what_damages_a_local_file_spares_the_checkpoint(
    in_kernel: bool, storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flipped byte is written into the file itself: it must be no hard link."""
    if not in_kernel:

        def refuse(*_: object) -> int:
            raise OSError(errno.EXDEV, "Invalid cross-device link")

        monkeypatch.setattr("os.copy_file_range", refuse)
    content = bytes(range(256)) * 10_000
    local, back = tmp_path / "local.sst", tmp_path / "back.sst"
    local.write_bytes(content)
    storage.upload(local, "state/u/1")
    storage.download("state/u/1", back)
    for path in (local, back):
        assert path.read_bytes() == content
        with path.open("r+b") as file:
            file.write(b"damage")
    assert storage.read("state/u/1") == content
    assert list(storage.list_names("")) == ["state/u/1"]


@pytest.mark.parametrize("name", ["../x", "a/../../x", "", "a//b", "./x"])
def test_names_cannot_leave_the_directory(storage: LocalStorage, name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        storage.write(name, b"")


def test_pickles_without_what_it_knows(storage: LocalStorage) -> None:
    storage.write("x", b"1")
    copy = pickle.loads(pickle.dumps(storage))
    assert repr(copy) == repr(storage)
    assert copy.read("x") == b"1"


def test_writes_again_after_a_directory_of_it_was_removed(storage: LocalStorage) -> None:
    storage.write("x/y", b"1")
    shutil.rmtree(f"{storage.location}/x")
    shutil.rmtree(f"{storage.location}/temporary")
    storage.write("x/y", b"2")
    assert storage.read("x/y") == b"2"


def test_uris(tmp_path: Path) -> None:
    assert LocalStorage(f"file://{tmp_path}/a%20b").location == f"{tmp_path}/a b"
    assert LocalStorage(str(tmp_path)).location == str(tmp_path)
    with pytest.raises(ConfigurationError, match="s3://bucket/x"):
        LocalStorage("s3://bucket/x")


def test_one_thread_wins_each_name(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, fsync=False)
    threads = 4
    barrier = Barrier(threads)

    def race(number: int) -> list[bool]:
        barrier.wait()
        return [storage.put_if_absent(name, b"%d" % number) for name in NAMES]

    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(race, range(threads)))
    for index, name in enumerate(NAMES):
        winners = [number for number in range(threads) if results[number][index]]
        assert [b"%d" % number for number in winners] == [storage.read(name)]


def race_in_process(
    storage: LocalStorage, number: int, barrier: ProcessBarrier, results: Path
) -> None:
    barrier.wait()
    won = [name for name in NAMES if storage.put_if_absent(name, b"%d" % number)]
    (results / str(number)).write_text("\n".join(won))


def test_one_process_wins_each_name(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "storage", fsync=False)
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    processes = [
        context.Process(target=race_in_process, args=(storage, number, barrier, tmp_path))
        for number in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    won = {
        name: b"%d" % number
        for number in range(3)
        for name in (tmp_path / str(number)).read_text().split()
    }
    assert won == {name: storage.read(name) for name in NAMES}
