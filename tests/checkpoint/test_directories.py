"""Directories that cannot be used: full, read-only, not directories, gone, in reach of others."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.small_disk import SmallDisk, may_mount

from millstream import directories
from millstream.checkpoint import JobIdentity, LocalStorage
from millstream.checkpoint.job_directories import JobDirectories, check_directories
from millstream.common import Configuration
from millstream.directories import LOCAL_STATE, default_local_directory, directory_error
from millstream.errors import DirectoryError
from millstream.state.backend import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.contracts.key_value_store import StateHandle


def storage_in(path: Path) -> LocalStorage:
    storage = LocalStorage(path, fsync=False)
    storage.write("job.json", b"{}")
    return storage


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], None]:
    """Let the operating system refuse, from now on, to make files and links below ``tmp_path``."""

    def refuse(number: int) -> None:
        for name in ("open", "link", "mkdir", "replace", "unlink"):
            monkeypatch.setattr(os, name, refusing(getattr(os, name), number, tmp_path))

    return refuse


def refusing(real: Callable[..., object], number: int, root: Path) -> Callable[..., object]:
    def call(path: object, *arguments: object, **options: object) -> object:
        reading = real.__name__ == "open" and not int(str(arguments[0])) & os.O_CREAT
        if str(path).startswith(str(root)) and not reading:
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *arguments, **options)

    return call


REASONS = {
    errno.ENOSPC: r"is full \(.* of .* are free\)\. Free space there, or set",
    errno.EDQUOT: r"is full \(the disk quota of",
    errno.EROFS: r"is on a read-only file system\. Mount it writable, or set",
    errno.EACCES: r"may not be written by .* belongs to .*, mode 0700\. Change",
    errno.EIO: r"cannot be used: Input/output error",
}


@pytest.mark.parametrize("number", REASONS, ids=errno.errorcode.get)
def test_each_write_says_which_directory_and_what_to_do(
    tmp_path: Path, refuse: Callable[[int], None], number: int
) -> None:
    storage = storage_in(tmp_path / "checkpoints")
    local = tmp_path / "local"
    local.write_bytes(b"x")
    refuse(number)
    steps: list[Callable[[], object]] = [
        lambda: storage.write("a", b""),
        lambda: storage.put_if_absent("b", b""),
        lambda: storage.upload(local, "state/u/c"),
        lambda: storage.delete(["job.json"]),
        storage.probe,
    ]
    for step in steps:
        with pytest.raises(DirectoryError, match=REASONS[number]) as caught:
            step()
        assert f"the checkpoint directory {storage.location} " in str(caught.value)
        assert "execution.checkpointing.dir" in str(caught.value)
    assert storage.read("job.json") == b"{}"


def test_what_is_missing_is_no_matter_of_the_directory(tmp_path: Path) -> None:
    storage = storage_in(tmp_path / "checkpoints")
    with pytest.raises(FileNotFoundError):
        storage.read("none")
    with pytest.raises(FileNotFoundError):
        storage.download("none", tmp_path / "local")


def test_a_file_in_the_place_of_the_directory_or_of_a_parent(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    for place in (file, file / "below", file / "far" / "below"):
        storage = LocalStorage(place)
        for step in (storage.probe, lambda: storage.write("x", b"")):  # noqa: B023 - called at once
            with pytest.raises(DirectoryError, match=f"{file} is a file, not a directory"):
                step()
        with pytest.raises(DirectoryError, match="not a directory"):
            JobIdentity.claim(storage, "job", {})


def test_a_parent_that_is_missing_is_made(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "a" / "b")
    storage.probe()
    assert list(storage.list_names("")) == []


def test_a_directory_that_disappears_is_not_made_again(tmp_path: Path) -> None:
    """A job would begin anew in it, and write all of its output once more."""
    storage = storage_in(tmp_path / "checkpoints")
    in_worker: LocalStorage = pickle.loads(pickle.dumps(storage))
    shutil.rmtree(storage.location)
    for each in (storage, in_worker):
        for step in (
            lambda: each.write("x", b""),  # noqa: B023 - called at once
            lambda: each.read("job.json"),  # noqa: B023
            lambda: list(each.list_names("log")),  # noqa: B023
        ):
            with pytest.raises(DirectoryError, match="has disappeared while it was in use"):
                step()
        assert not Path(each.location).exists()


def test_a_run_does_not_begin_in_another_directory(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "checkpoints", fsync=False)
    job_id = JobIdentity.claim(storage, "job", {})
    JobIdentity.require(storage, job_id)
    (tmp_path / "checkpoints" / "job.json").unlink()
    with pytest.raises(DirectoryError, match="disappeared"):
        JobIdentity.require(storage, job_id)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_everything_is_made_for_the_owner_only(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        storage = LocalStorage(tmp_path / "new" / "checkpoints", fsync=False)
        storage.probe()
        storage.put_if_absent("log/1", b"")
        storage.write("sinks/a/b", b"")
        storage.directory("spark")
        for backend in ("hashmap", "rocksdb"):
            store = open_store(
                backend, storage, backend, 0, (0, 8), [], "attempt", tmp_path / "local"
            )
            store.write([(b"K", b"v")])
            handle = store.snapshot()
            store.close()
            open_store(
                backend, storage, backend, 0, (0, 8), [handle], "a", tmp_path / "second"
            ).close()
    finally:
        os.umask(before)
    for root in ("new", "local", "second"):
        assert stat.S_IMODE((tmp_path / root).stat().st_mode) == 0o700
    for path in (tmp_path / "new").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def configured(tmp_path: Path, **settings: str) -> Configuration:
    configuration = Configuration()
    places = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "millstream.local-directory": str(tmp_path / "local"),
    }
    for key, value in {**places, **settings}.items():
        configuration.set_string(key, value)
    return configuration


@pytest.mark.parametrize("name", ["checkpoints", "local"])
def test_directories_in_reach_of_others_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    configuration = configured(tmp_path)
    check_directories(configuration)
    directory = tmp_path / name
    directory.chmod(0o777)
    with pytest.raises(DirectoryError, match=rf"{directory} is writable by everybody \(mode 0777"):
        check_directories(configuration)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        for mode, word in ((0o750, "read"), (0o770, "changed")):
            caplog.clear()
            directories._warned.clear()
            directory.chmod(mode)
            check_directories(configuration)
            (record,) = caplog.records
            assert f"{directory} can be {word} by other users" in record.getMessage()
            assert f"chmod -R go-rwx {directory}" in record.getMessage()
    directory.chmod(0o700)


@pytest.mark.parametrize("name", ["checkpoints", "local"])
def test_a_directory_that_all_users_share_is_not_to_be_closed_to_them(
    tmp_path: Path, name: str
) -> None:
    configuration = configured(tmp_path)
    check_directories(configuration)
    directory = tmp_path / name
    directory.chmod(0o1777)
    with pytest.raises(DirectoryError, match=r"shared by all users.*mode 1777") as caught:
        check_directories(configuration)
    own = re.search(rf"to a private directory in it, such as ({directory}/\S+):", str(caught.value))
    assert own is not None
    assert "chmod" not in str(caught.value)
    assert "chown" not in str(caught.value)
    # What it advises works.
    key = "execution.checkpointing.dir" if name == "checkpoints" else "millstream.local-directory"
    configuration.set_string(key, own[1])
    check_directories(configuration)
    directory.chmod(0o700)


def test_tasks_judge_the_local_directory_before_they_load_from_it(tmp_path: Path) -> None:
    place = tmp_path / "local"
    place.mkdir()
    place.chmod(0o777)
    storage = storage_in(tmp_path / "checkpoints")
    with pytest.raises(DirectoryError, match=f"local state directory {place} is writable by"):
        open_store("hashmap", storage, "u", 0, (0, 8), [], "attempt", place)


@pytest.mark.parametrize("name", ["checkpoints", "local"])
def test_directories_of_somebody_else_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    directory = tmp_path / name
    directory.mkdir(mode=0o700)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 12_345)
    if mine == 0:  # what belongs to root is taken
        os.chown(directory, 4_321, -1)
    with pytest.raises(DirectoryError, match=f"{directory} belongs to .*, and this process runs"):
        check_directories(configured(tmp_path))


def test_the_temporary_directory_is_looked_at_and_local_state_has_one_per_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert default_local_directory() == tmp_path / f"millstream-{os.geteuid()}"
    monkeypatch.setattr(tempfile, "tempdir", str(file))
    with pytest.raises(DirectoryError, match=f"temporary directory {file} .*TMPDIR"):
        check_directories(configured(tmp_path))


def test_no_temporary_directory_at_all(tmp_path: Path) -> None:
    program = (
        "import sys, tempfile\n"
        f"tempfile._candidate_tempdir_list = lambda: [{str(tmp_path / 'nowhere')!r}]\n"
        "from millstream.checkpoint.job_directories import check_directories\n"
        "from millstream.common import Configuration\n"
        "from millstream.errors import DirectoryError\n"
        "try: check_directories(Configuration())\n"
        "except DirectoryError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
    )
    assert "no temporary directory: No usable" in done.stdout
    assert "TMPDIR" in done.stdout


def test_what_the_jvm_says_in_words(tmp_path: Path, refuse: Callable[[int], None]) -> None:
    of_job = JobDirectories.of(configured(tmp_path))
    spark = RuntimeError("java.io.IOException: No space left on device")
    assert of_job.failure(spark) is None, "there is room again"
    assert of_job.failure(ValueError("other")) is None
    refuse(errno.ENOSPC)
    found = of_job.failure(spark)
    assert isinstance(found, DirectoryError)
    assert f"checkpoint directory {tmp_path / 'checkpoints'} is full" in str(found)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if not may_mount(tmp_path):
        pytest.skip("only root may mount a small file system")
    small = SmallDisk(tmp_path / "disk", "8m")
    yield small
    small.close()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_local_state_on_a_full_disk(tmp_path: Path, disk: SmallDisk, backend: str) -> None:
    """Neither a bare error nor damage: the checkpoint is whole."""
    storage = storage_in(tmp_path / "checkpoints")
    place = disk.path / "local"

    def store_and_snapshot(handles: list[StateHandle], attempt: str) -> StateHandle:
        store = open_store(backend, storage, "u", 0, (0, 8), handles, attempt, place)
        try:
            store.write([(b"K%d" % n, os.urandom(100)) for n in range(100)])
            return store.snapshot()
        finally:
            store.close()

    before = store_and_snapshot([], "1")
    disk.fill()
    for base in ([], [before]):
        with pytest.raises(DirectoryError, match=f"the local state directory {place} is full"):
            store_and_snapshot(base, "2")
    disk.free()
    store_and_snapshot([before], "3")


def test_the_checkpoint_directory_on_a_full_or_read_only_disk(disk: SmallDisk) -> None:
    storage = storage_in(disk.path / "checkpoints")
    disk.fill()
    with pytest.raises(DirectoryError, match=r"is full \(0 B of 8 MiB are free\)"):
        storage.put_if_absent("log/1", b"x" * 5000)
    assert list(storage.list_names("")) == ["job.json"]
    disk.free()
    assert storage.put_if_absent("log/1", b"x" * 5000)
    disk.make_read_only()
    with pytest.raises(DirectoryError, match="read-only"):
        storage.write("log/2", b"")
    with pytest.raises(DirectoryError, match="read-only"):
        storage.probe()
    disk.make_writable()
    storage.probe()


def test_errors_name_what_is_in_the_way(tmp_path: Path) -> None:
    error = NotADirectoryError(errno.ENOTDIR, "Not a directory", str(tmp_path))
    assert "a file is where a directory should be" in str(
        directory_error(LOCAL_STATE, tmp_path, error)
    )
