"""Local directories of one operator subtask: snapshots and working copies.

``local_root/<uid>/<subtask>`` has one directory per snapshot, immutable once made, and one
``work-<attempt>-<process id>`` per running attempt, a copy by hard links that is opened and
changed.  Only what was uploaded is loaded: the directories belong to this user alone, and files
that this process has neither written nor read before are compared with the digests in the
checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import stat
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pyarrow as pa

from millstream.checkpoint.model import blocks_of, difference, digest_of
from millstream.checkpoint.packs import pack_for
from millstream.contracts.key_value_store import StateFile
from millstream.crash_points import crash_point
from millstream.directories import (
    LOCAL_STATE,
    PRIVATE_DIRECTORY,
    directory_error,
    error_in_text,
    explained,
    is_alive,
    make_own,
)
from millstream.errors import (
    CorruptCheckpointError,
    LocalCopyError,
    MillstreamError,
    StateStoreError,
    UnknownFormatError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import StateHandle


#: Files that are looked at longest ago are forgotten first.
_MOST: Final = 100_000

#: (device, inode) -> size, time of change, digest; in the order in which they were looked at.
_known: Final[dict[tuple[int, int], tuple[int, int, str]]] = {}
#: For changes: snapshots are uploaded by a thread of their own.
_changing: Final = threading.Lock()


def remember_file(path: Path, digest: str) -> None:
    """Note that the file at ``path`` has the content with this digest."""
    _remember(path.stat(), digest)


def _remember(found: os.stat_result, digest: str) -> None:
    place = found.st_dev, found.st_ino
    with _changing:
        _known.pop(place, None)
        _known[place] = found.st_size, found.st_mtime_ns, digest
        if len(_known) > _MOST:
            del _known[next(iter(_known))]


def forget_files() -> None:
    """Know nothing any more: something was found to be damaged that was known to be whole."""
    with _changing:
        _known.clear()


def damage_of(directory: Path, handle: StateHandle, *, read_all: bool = False) -> str | None:
    """In what a local copy differs from what was uploaded; None if in nothing."""
    for file in handle["files"]:
        reason = _damage_of_file(directory / file["local"], file, read_all=read_all)
        if reason is not None:
            return f"{file['local']}: {reason}"
    return None


def _damage_of_file(path: Path, file: StateFile, *, read_all: bool) -> str | None:
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return "it is not a file"
        if found.st_size != file["size"]:
            return f"it has {found.st_size} bytes instead of {file['size']}"
        known = found.st_size, found.st_mtime_ns, file["digest"]
        if read_all or _known.get((found.st_dev, found.st_ino)) != known:
            reason = difference(blocks_of(path), file)
            if reason is not None:
                return reason
    except OSError as error:  # it is missing, or the disk cannot read it
        return error.strerror or str(error)
    _remember(found, file["digest"])
    return None


#: Files that are uploaded side by side.
_AT_A_TIME: Final = 4
#: By process: one that was forked has none of the threads.  They stay, for to begin some at every
#: checkpoint takes as long as they work.
_pools: Final[dict[int, ThreadPoolExecutor]] = {}


def directory_name(uid: str) -> str:
    """``uid`` as the name of one directory, also where it holds slashes or dots."""
    return quote(uid, safe="").replace(".", "%2E")


def upload_file(
    storage: CheckpointStorage, path: Path, uid: str, snapshot: str, local: str
) -> StateFile:
    """Put ``path`` into the storage under a name that no other snapshot uses."""
    size, digest = digest_of(blocks_of(path))
    pack = pack_for(storage, size)
    crash_point("state.upload.before")
    if pack is not None:
        remote = pack.add(path.read_bytes(), f"{snapshot}-{local}")
    else:
        remote = f"state/{directory_name(uid)}/{snapshot}-{local}"
        storage.upload(path, remote)
    remember_file(path, digest)
    return StateFile(local=local, remote=remote, size=size, digest=digest)


def upload_files(
    storage: CheckpointStorage, paths: Sequence[Path], uid: str, snapshot: str
) -> dict[str, StateFile]:
    """Put files into the storage, some at a time: each waits for a disk or a network.

    Returns:
        What was made of each, by its name.
    """

    def upload(path: Path) -> StateFile:
        return upload_file(storage, path, uid, snapshot, path.name)

    small = [each for each in paths if pack_for(storage, each.stat().st_size) is not None]
    paths = [*small, *(each for each in paths if each not in small)]
    # What is packed is gathered by this thread.
    here = max(len(small), 1)
    others = [_pool().submit(upload, path) for path in paths[here:]]
    try:
        made = [upload(path) for path in paths[:here]]
        made += [each.result() for each in others]
    finally:
        # Nothing is uploaded any more when this ends, be it with an error.
        for each in others:
            each.cancel()
        wait(others)
    return {path.name: file for path, file in zip(paths, made, strict=True)}


def _pool() -> ThreadPoolExecutor:
    process = os.getpid()
    if process not in _pools:
        _pools.setdefault(process, ThreadPoolExecutor(_AT_A_TIME, "millstream-upload-file"))
    return _pools[process]


def download_snapshot(storage: CheckpointStorage, handle: StateHandle, directory: Path) -> None:
    """Bring every file of ``handle`` into ``directory`` and verify it.

    Raises:
        CorruptCheckpointError: a file is missing or is not what was uploaded.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for file in handle["files"]:
        path = directory / file["local"]
        try:
            storage.download(file["remote"], path)
        except FileNotFoundError as error:
            raise damaged_checkpoint(storage, f"state file {file['remote']} is missing") from error
        reason = difference(blocks_of(path), file)
        if reason is not None:
            raise damaged_checkpoint(storage, f"state file {file['remote']} is corrupt: {reason}")
        remember_file(path, file["digest"])


def stored_table(batch: pa.RecordBatch, directory: str, name: str) -> tuple[StateFile, bytes]:
    """Return what a file with a batch is to be in the checkpoint storage, and its content."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    size, digest = digest_of([content])
    # Named by chance, as all state files: no other attempt, and no other state, writes this one.
    local = f"{uuid.uuid4().hex}-{name}.arrow"
    return StateFile(local=local, remote=f"{directory}/{local}", size=size, digest=digest), content


def read_table(
    storage: CheckpointStorage, file: StateFile, what: str, key: bytes, version: bytes
) -> pa.Table:
    """Read what ``stored_table`` was given.

    Args:
        storage: of the checkpoint.
        file: as ``stored_table`` said.
        what: the table is, for messages.
        key: of its format in the metadata of its schema.
        version: of the format that is known.

    Raises:
        CorruptCheckpointError: the file is missing or is not what was written.
        UnknownFormatError: it was written in another format.
    """
    name = file["remote"]
    try:
        stored = storage.read(name)
    except FileNotFoundError as error:
        raise damaged_checkpoint(storage, f"{name}, {what}, is missing") from error
    reason = difference([stored], file)
    if reason is not None:
        raise damaged_checkpoint(storage, f"{name}, {what}, is corrupt: {reason}")
    table = pa.ipc.open_file(pa.BufferReader(stored)).read_all()
    found = (table.schema.metadata or {}).get(key)
    if found != version:
        message = f"{name}: {what} of format {found!r}; known is {version!r}"
        raise UnknownFormatError(message)
    return table


def damaged_checkpoint(storage: CheckpointStorage, what: str) -> CorruptCheckpointError:
    """Going on from an older checkpoint is no advice: its successors' output is committed."""
    message = (
        f"{storage.location}: {what}. Put the file back from a copy;"
        f" `millstream checkpoints {storage.location} verify` lists all that are missing or damaged"
    )
    return CorruptCheckpointError(message)


_LOG: Final = logging.getLogger("millstream")
#: How RocksDB names a file in its messages.
_FILE: Final = re.compile(r"\b(\d+\.sst|MANIFEST-\d+)\b")
_WORK: Final = "work-"
_DOWNLOAD: Final = "download-"

#: Work directories that this process has open.
_open: Final[set[Path]] = set()


class LocalCopies:
    """The directories of one operator subtask."""

    def __init__(self, local_root: Path, uid: str, subtask: int, name: str = "") -> None:
        """Use ``local_root/<uid>/<subtask>``.

        Raises:
            DirectoryError: a directory belongs to somebody else, or is a symbolic link.
        """
        #: Whose state it is, for messages.
        self.owner = f"operator {name!r} ({uid})" if name else f"operator {uid}"
        self.owner += f", subtask {subtask}"
        self._root = local_root
        self._operator = local_root / directory_name(uid)
        self._directory = self._operator / str(subtask)
        #: Of the last snapshot that is known to be in a published checkpoint, where tasks go on.
        self.published: str | None = None
        with self.explained():
            for path in (local_root, self._operator, self._directory):
                make_own(LOCAL_STATE, path)

    def snapshot(self, identity: str) -> Path:
        """Where the snapshot called ``identity`` is, or is to be."""
        return self._directory / identity

    def new_snapshot(self, identity: str) -> Path:
        """Make the directory for the snapshot called ``identity``.

        Raises:
            DirectoryError: it cannot be made.
        """
        path = self.snapshot(identity)
        with self.explained():
            path.mkdir(PRIVATE_DIRECTORY, parents=True)
        return path

    def remove_snapshot(self, identity: str) -> None:
        """Remove the directory of a snapshot that nobody wants."""
        shutil.rmtree(self.snapshot(identity), ignore_errors=True)

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raise DirectoryError for what the disk refuses, also where RocksDB says so in words."""
        try:
            with explained(LOCAL_STATE, self._root):
                yield
        except (MillstreamError, OSError):
            raise
        except Exception as error:
            refused = error_in_text(str(error))
            if refused is None:
                raise
            raise directory_error(LOCAL_STATE, self._root, refused) from error

    def _directories(self, handle: StateHandle) -> Iterator[Path]:
        """Where copies of ``handle`` may be: of this subtask, then of any of the operator."""
        yield self.snapshot(handle["id"])
        for sibling in sorted(self._operator.iterdir()):
            if sibling != self._directory:
                yield sibling / handle["id"]

    def find(self, handle: StateHandle, *, read_all: bool = False) -> Path | None:
        """A local copy of ``handle`` that is as it was uploaded; damaged ones are dropped.

        Args:
            handle: the snapshot.
            read_all: trust no file for this process has written it.
        """
        for directory in self._directories(handle):
            if not directory.is_dir():
                continue
            damage = damage_of(directory, handle, read_all=read_all)
            if damage is None:
                return directory
            _LOG.warning(
                "%s: the local copy of its state in %s is damaged (%s); it is dropped and restored"
                " from the checkpoint",
                self.owner,
                directory,
                damage,
            )
            self.drop(handle)
        return None

    def drop(self, handle: StateHandle) -> None:
        """Remove every local copy of ``handle``, and trust no other file unread."""
        forget_files()
        for directory in self._directories(handle):
            shutil.rmtree(directory, ignore_errors=True)

    def judge(
        self, work: Path, base: StateHandle | None, storage: CheckpointStorage, error: Exception
    ) -> StateStoreError | CorruptCheckpointError:
        """What to raise where a database met damage; the local copies are dropped.

        Args:
            work: the directory of the database.
            base: the snapshot it was made from.
            storage: has the files of ``base``.
            error: of the database; it names the file, as a rule.

        Returns:
            A CorruptCheckpointError if the files are as they were uploaded, so that those in the
            checkpoint are no better; else a LocalCopyError.
        """
        if base is None:
            return StateStoreError(
                f"{self.owner}: RocksDB finds its own new files damaged: {error}"
            )
        named = set(_FILE.findall(str(error)))
        suspects = [file for file in base["files"] if file["local"] in named]
        is_new = bool(named) and not suspects
        files = suspects or base["files"]
        as_uploaded = damage_of(work, {**base, "files": files}, read_all=True) is None
        self.drop(base)
        if as_uploaded and not is_new:
            names = ", ".join(file["remote"] for file in files)
            text = f"{self.owner}: state was damaged before it was uploaded, in {names}: {error}"
            return damaged_checkpoint(storage, text)
        return LocalCopyError(
            f"{self.owner}: the local copy of its state in {self._directory} is damaged: {error}."
            " It was removed; run again, the job restores it from the checkpoint. If this comes"
            " back, see to the disk or set millstream.local-directory to another one"
        )

    def bring(
        self, handle: StateHandle, storage: CheckpointStorage, *, read_all: bool = False
    ) -> Path:
        """The local copy of ``handle``, downloaded and verified if there is none.

        Raises:
            CorruptCheckpointError: a file in the storage is missing or corrupt.
        """
        found = self.find(handle, read_all=read_all)
        if found is not None:
            return found
        target = self.snapshot(handle["id"])
        temporary = self._directory / f"{_DOWNLOAD}{uuid.uuid4().hex}-{os.getpid()}"
        _open.add(temporary)
        try:
            self._download(handle, storage, temporary)
            if target.exists():  # incomplete, or another attempt was faster
                shutil.rmtree(target, ignore_errors=True)
            try:
                temporary.rename(target)
            except OSError:
                if damage_of(target, handle) is not None:
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            _open.discard(temporary)
        return target

    def _download(self, handle: StateHandle, storage: CheckpointStorage, target: Path) -> None:
        try:
            download_snapshot(storage, handle, target)
        except CorruptCheckpointError as error:
            message = f"{self.owner}: {error}"
            raise CorruptCheckpointError(message) from error

    def open_work(self, attempt: str) -> Path:
        """A new, empty directory for one attempt."""
        unique = uuid.uuid4().hex[:8]
        path = self._directory / f"{_WORK}{directory_name(attempt)}-{unique}-{os.getpid()}"
        with self.explained():
            path.mkdir(PRIVATE_DIRECTORY, parents=True)
        _open.add(path)
        return path

    def link_work(self, attempt: str, handle: StateHandle, storage: CheckpointStorage) -> Path:
        """A directory for one attempt with the files of ``handle`` in it.

        Data files are hard links; the small files that a database changes are copies.
        """
        for last in (False, True):
            source = self.bring(handle, storage)
            work = self.open_work(attempt)
            try:
                with self.explained():
                    for file in handle["files"]:
                        copy = os.link if file["local"].endswith(".sst") else shutil.copyfile
                        copy(source / file["local"], work / file["local"])
            except FileNotFoundError:  # another attempt cleaned up: get it from the storage
                self.close_work(work)
                if last:
                    raise
                continue
            return work
        raise AssertionError

    def close_work(self, path: Path) -> None:
        """Remove the directory of an attempt."""
        shutil.rmtree(path, ignore_errors=True)
        _open.discard(path)

    def clean_up(self, base: str | None, keep: str) -> None:
        """Remove snapshots older than ``base`` and what dead processes left.

        The snapshot the epoch began from stays, for another attempt may still need it, and so
        do younger ones, for they may be those of the attempt that wins, or not finished yet.
        Where tasks go on, all stay from the last one on that is published: who fails goes back to
        that one, however many were made since.
        """
        base = self.published or base
        oldest = _modified(self.snapshot(base or keep))
        for path in self._directory.iterdir():
            name = path.name
            if name in (base, keep) or path in _open:
                continue
            if name.startswith((_WORK, _DOWNLOAD)):
                process = int(name.rpartition("-")[2])
                is_over = process == os.getpid() or not is_alive(process)  # ours are in ``_open``
            else:
                is_over = _modified(path) < oldest
            if is_over:
                shutil.rmtree(path, ignore_errors=True)


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
