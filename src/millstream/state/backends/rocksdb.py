"""The ``rocksdb`` backend: state larger than memory, uploaded incrementally.

An embedded RocksDB (package ``rocksdict``) is opened on a copy of the last snapshot made of hard
links.  Its own snapshots are hard links again, made after a flush; only files that the previous one
did not have are uploaded.  There is no write-ahead log: until a snapshot, what was written belongs
to this attempt alone.

A snapshot's files are the data files (``*.sst``) and one ``MANIFEST-*``; RocksDB's ``CURRENT`` is
rewritten from the name of the latter.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from rocksdict import (
    Checkpoint,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from millstream.contracts.key_value_store import KeyValueStore, PendingSnapshot, StateHandle
from millstream.crash_points import crash_point
from millstream.directories import PRIVATE_DIRECTORY
from millstream.errors import (
    CorruptCheckpointError,
    DirectoryError,
    LocalCopyError,
    MillstreamError,
    StateStoreError,
)
from millstream.state.backends.rocksdb_tuning import MOST_LEVEL_0, RocksDBOptions
from millstream.state.local_copies import upload_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import StateFile
    from millstream.state.backends.place import StorePlace
    from millstream.state.local_copies import LocalCopies


_MEBIBYTE: Final = 1 << 20
_BATCH: Final = 10_000
#: ``get_many`` of a good part of all entries reads them all in order: from this many keys on, if
#: that reads at most so many times more, and entries are no longer than this many bytes on average.
#: Measured in CPU time over 0.1 and 1 million entries of 12 and 200 bytes (and in part over 4
#: million), the two ways cross at 3 to 4 for keys that are there and at 2 to 3 for keys that are
#: not: these cost least one by one, for Bloom filters answer for most of them.
_SCAN_FROM: Final = 1_000
_SCAN_FACTOR: Final = 3
_SCAN_ENTRY: Final = 512
#: Compaction runs beside the epochs, and what it has not finished when the store is closed is lost.
#: So a snapshot waits for it (one of a store that stays open when it is finished, in another thread
#: than writes), with more files than this on level 0 or more bytes than that to be
#: moved between the other levels, until there are no more.  Subtasks begin to wait at up to so many
#: files less, so that they do not wait at once.
_MOST_PENDING: Final = 48 * _MEBIBYTE
_SPREAD: Final = 5
_LONGEST_WAIT: Final = 30.0
#: What RocksDB says where a file is not what it wrote, or is gone, or the disk cannot read it.
_SIGNS_OF_DAMAGE: Final = ("Corruption", "No such file or directory", "Input/output error")


#: Properties that are metrics; none of them takes longer than to read a number.
ROCKSDB_GAUGES: Final = (
    "cur-size-all-mem-tables",
    "estimate-table-readers-mem",
    "block-cache-usage",
    "block-cache-pinned-usage",
    "block-cache-capacity",
    "estimate-num-keys",
    "total-sst-files-size",
    "num-running-compactions",
    "num-running-flushes",
    "estimate-pending-compaction-bytes",
)


class RocksDBStore(KeyValueStore):
    """An ordered map of bytes in a RocksDB."""

    def __init__(
        self,
        directory: Path,
        storage: CheckpointStorage,
        uid: str,
        key_groups: tuple[int, int],
        copies: LocalCopies,
        base: StateHandle | None = None,
        options: RocksDBOptions | None = None,
    ) -> None:
        """Open the database in ``directory``, which ``close`` removes.

        Args:
            directory: empty, or with the files of ``base``.
            storage: where the snapshot goes.
            uid: of the operator.
            key_groups: ``[first, stop)`` of the subtask.
            copies: the local directories of the subtask.
            base: the snapshot whose files are in the directory and in the storage.
            options: of RocksDB; None: the defaults.

        Raises:
            LocalCopyError: files of ``base`` are damaged here; the local copies were dropped.
            CorruptCheckpointError: they are damaged in the storage as well.
            DirectoryError: the directory cannot be written to.
            StateStoreError: RocksDB cannot open them for another reason.
        """
        self._directory = directory
        self._storage = storage
        self._uid = uid
        self._key_groups = key_groups
        self._copies = copies
        self._base = base
        #: Ids of the snapshot this store began from and of the last one it made.
        self.restored_from = None if base is None else base["id"]
        self.snapshot_made: str | None = None
        #: Held to close the database, and by another thread that looks at it.
        self._life = threading.Lock()
        #: What prepares the last snapshot; None: nothing keeps writes waiting.
        self._keeping: _Keeping | None = None
        try:
            with copies.explained():
                if base is not None:
                    _write_current(directory, base)
                self._database: Any = Rdict(str(directory), (options or RocksDBOptions()).make())
        except DirectoryError:
            copies.close_work(directory)
            raise
        except Exception as error:  # rocksdict raises nothing more precise
            failure = self._failure(error, "open the restored state")
            copies.close_work(directory)
            raise failure from error
        write_options: Any = WriteOptions()  # its stub takes the property for a method
        write_options.disable_wal = True
        self._write_options = write_options
        self._database.set_write_options(self._write_options)

    def get(self, key: bytes) -> bytes | None:
        """The value at ``key``, None if there is none.

        Raises:
            StateStoreError: RocksDB cannot read; as for all reads.
        """
        try:
            value: bytes | None = self._database.get(key)
        except Exception as error:
            raise self._failure(error, "read") from error
        return value

    @contextlib.contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Wait until writes are allowed; raise our errors."""
        self._settle()
        with self._explained(what):
            yield

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Raise our errors: writes also fail for what compaction has met beside them."""
        try:
            with self._copies.explained():
                yield
        except MillstreamError:
            raise
        except Exception as error:
            raise self._failure(error, what) from error

    def _failure(self, error: Exception, what: str) -> StateStoreError | CorruptCheckpointError:
        """The error to raise for one of RocksDB's."""
        if any(sign in str(error) for sign in _SIGNS_OF_DAMAGE):
            return self._copies.judge(self._directory, self._base, self._storage, error)
        return StateStoreError(f"{self._copies.owner}: RocksDB cannot {what}: {error}")

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if len(keys) >= _SCAN_FROM and self._is_worth_a_scan(len(keys)):
            wanted = set(keys)
            entries = self.scan(min(wanted), max(wanted) + b"\0")
            found = {key: value for key, value in entries if key in wanted}
            return list(map(found.get, keys))
        if not keys:
            return []
        ordered = sorted(keys)  # neighbours share blocks
        try:
            values = dict(zip(ordered, self._database.get(ordered), strict=True))
        except Exception as error:
            raise self._failure(error, "read") from error
        return list(map(values.get, keys))

    def _is_worth_a_scan(self, wanted: int) -> bool:
        """Return whether reading everything is cheaper than reading ``wanted`` single keys."""
        total = self._number("rocksdb.estimate-num-keys")
        # None: the store is empty, or full of deletions, which a scan would have to pass.
        if not 0 < total <= wanted * _SCAN_FACTOR:
            return False
        size = self._number("rocksdb.estimate-live-data-size")
        size += self._number("rocksdb.cur-size-all-mem-tables")
        return size <= max(total, wanted) * _SCAN_ENTRY

    def _number(self, name: str) -> int:
        return int(self._database.property_int_value(name) or 0)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Delete ``deletes``, then put ``puts``.

        Raises:
            DirectoryError: the disk is full.
        """
        with self._writing("write"):
            self._write(puts, deletes)

    def _write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        batch = WriteBatch(raw_mode=True)
        pending = 0
        for key in deletes:
            batch.delete(key)
            pending += 1
            if pending == _BATCH:
                self._database.write(batch, self._write_options)
                batch, pending = WriteBatch(raw_mode=True), 0
        put = batch.put
        for key, value in puts:
            put(key, value)
            pending += 1
            if pending == _BATCH:
                self._database.write(batch, self._write_options)
                batch, pending = WriteBatch(raw_mode=True), 0
                put = batch.put
        if pending:
            self._database.write(batch, self._write_options)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        if start < stop:
            with self._writing("delete"):
                self._database.delete_range(start, stop, self._write_options)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        if start >= stop:
            return
        # RocksDB points into ``options`` and ``stop``: they must outlive the iterator.
        options = ReadOptions()
        options.set_iterate_upper_bound(stop)
        try:
            entries = self._database.iter(options)
            entries.seek(start)
            valid, key, value, step = entries.valid, entries.key, entries.value, entries.next
            while valid():
                yield key(), value()
                step()
            # A block that cannot be read looks like the end; only the status tells them apart.
            entries.status()
        except Exception as error:
            raise self._failure(error, "read") from error

    def prepare_snapshot(self) -> PendingSnapshot:
        """Begin to flush, in a thread; whatever is to be written waits until the files are kept.

        Reads do not wait.  RocksDB has no name for what is flushed before later writes come in, so
        the files could not be told apart from newer ones.
        """
        self._settle()
        identity = uuid.uuid4().hex
        crash_point("state.flush.before")
        self._keeping = _Keeping(self, identity)
        self._keeping.start()
        return _Pending(self, self._copies, self._keeping)

    def published(self, identity: str) -> None:
        self._copies.published = identity

    @property
    def is_busy(self) -> bool:
        """Return whether a write would have to wait for a snapshot that is being prepared."""
        return self._keeping is not None and self._keeping.is_alive()

    def _settle(self) -> None:
        """Wait until no snapshot is being prepared; what has failed, its ``finish`` tells."""
        if self._keeping is not None:
            self._keeping.join()
            self._keeping = None

    def snapshot(self) -> StateHandle:
        """Wait for compaction, of which the snapshot then has what it made, and take it.

        Raises:
            StateStoreError: RocksDB cannot write, or not read what is to be compacted.
            DirectoryError: the disk is full.
        """
        self._settle()
        identity = uuid.uuid4().hex
        crash_point("state.flush.before")
        self.keep_files(identity, wait=True)
        before = self.base
        handle = self.finish(identity)
        self.tidy(before, identity)
        return handle

    def keep_files(self, identity: str, *, wait: bool) -> None:
        """Flush, and make hard links of all files, for the snapshot of that name.

        Args:
            identity: of the snapshot.
            wait: for compaction, for the store is about to be closed, and what is not finished
                then is lost.

        Raises:
            StateStoreError: RocksDB cannot write, or not read what is to be compacted.
            DirectoryError: the disk is full.
        """
        target = self._copies.snapshot(identity)
        with self._explained("write its snapshot"):
            self._database.flush()
            if wait:
                self._wait_for_compaction()
            if not self._link_files(target):
                Checkpoint(self._database).create_checkpoint(str(target))
            # Now, for local copies are told old from new by the time of their last change.
            for path in target.iterdir():
                if not path.name.endswith(".sst") and not path.name.startswith("MANIFEST-"):
                    path.unlink()  # options and an empty log: not needed to open it
        crash_point("state.flush.after")

    def _link_files(self, target: Path) -> bool:
        """Make the hard links as RocksDB would, but without waiting for the disk.

        A local copy is not durable, so none of the five times that RocksDB waits for the disk there
        is of use.  It changes nothing but by compaction now, and never without adding to its
        MANIFEST, or beginning another: where that stays the one that it was, and as long, the files
        that are linked are those of it.

        Returns:
            Whether it is made; False: compaction has something to do, or had meanwhile.
        """
        if self._number("rocksdb.num-running-compactions") or self._number(
            "rocksdb.compaction-pending"
        ):
            return False
        target.mkdir(PRIVATE_DIRECTORY)
        # Compaction, begun while it was asked for, has replaced a file; the MANIFEST at any moment.
        with contextlib.suppress(FileNotFoundError):
            current = (self._directory / "CURRENT").read_text().strip()
            manifest = self._directory / current
            size = manifest.stat().st_size
            for file in self._database.live_files():
                name = str(file["name"]).strip("/")
                (target / name).hardlink_to(self._directory / name)
            shutil.copyfile(manifest, target / current)
            same = (self._directory / "CURRENT").read_text().strip() == current
            if same and manifest.stat().st_size == (target / current).stat().st_size == size:
                return True
        shutil.rmtree(target)
        return False

    def finish(self, identity: str) -> StateHandle:
        """Upload what is new in a local copy; the second step of a snapshot."""
        handle = StateHandle(
            backend="rocksdb",
            id=identity,
            key_groups=self._key_groups,
            files=self._upload(self._copies.snapshot(identity), identity),
        )
        crash_point("state.upload.after")
        self.snapshot_made = identity
        # What comes next is written on top of this.  RocksDB never changes a data file, nor gives
        # its name to another one, so those that it still has then need not be uploaded again.
        self._base = handle
        return handle

    @property
    def base(self) -> str | None:
        """The id of the snapshot that the next one is made on top of."""
        return None if self._base is None else self._base["id"]

    def tidy(self, before: str | None, identity: str) -> None:
        """Remove local copies behind a snapshot; the third step of it.

        The local copy before this one stays: who fails from here on may go back to it.
        """
        self._copies.clean_up(before, identity)

    def _upload(self, directory: Path, identity: str) -> list[StateFile]:
        old = {} if self._base is None else {file["local"]: file for file in self._base["files"]}
        paths = sorted(directory.iterdir())
        new = [each for each in paths if not (each.name.endswith(".sst") and each.name in old)]
        made = upload_files(self._storage, new, self._uid, identity)
        return [made[each.name] if each.name in made else old[each.name] for each in paths]

    def catch_up(self) -> None:
        """Wait until compaction has left little to do; any thread may."""
        self._wait_for_compaction()

    def _wait_for_compaction(self) -> None:
        deadline = time.monotonic() + _LONGEST_WAIT
        while self._is_behind() and time.monotonic() < deadline:
            time.sleep(0.005)

    def _is_behind(self) -> bool:
        """Return whether compaction has much to do, and is at it."""
        most = MOST_LEVEL_0 - self._key_groups[0] % _SPREAD
        with self._life:
            if self._database is None:
                return False
            return (
                self._number("rocksdb.num-files-at-level0") > most
                or self._number("rocksdb.estimate-pending-compaction-bytes") > _MOST_PENDING
            ) and (
                self._number("rocksdb.compaction-pending") > 0
                or self._number("rocksdb.num-running-compactions") > 0
            )

    def gauges(self) -> dict[str, float]:
        """Return properties of RocksDB under the names that Flink's metrics of it have."""
        with self._life:
            if self._database is None:
                return {}
            return {f"rocksdb.{each}": self._number(f"rocksdb.{each}") for each in ROCKSDB_GAUGES}

    def close(self) -> None:
        self._settle()
        with self._life:
            database, self._database = self._database, None
        if database is not None:
            database.close()
            self._copies.close_work(self._directory)


class _Keeping(threading.Thread):
    """Flushes a RocksDB and keeps its files, beside the thread that reads it.

    No thread of a pool, for one that waits for a turn would keep writes waiting.
    """

    def __init__(self, store: RocksDBStore, identity: str) -> None:
        super().__init__(name=f"flush-{identity}", daemon=True)
        self._store = store
        self.identity = identity
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._store.keep_files(self.identity, wait=False)
        except BaseException as error:  # noqa: BLE001 - raised by whoever finishes the snapshot
            self.failure = error


class _Pending(PendingSnapshot):
    """A snapshot of a RocksDB whose files are kept, or about to be, but not uploaded yet."""

    def __init__(self, store: RocksDBStore, copies: LocalCopies, keeping: _Keeping) -> None:
        self._store = store
        self._copies = copies
        self._keeping = keeping
        self._before: str | None = None

    def finish(self) -> StateHandle:
        """Upload what is new.

        Each flush makes a file on level 0.  Before another checkpoint can come, compaction has to
        have caught up: held back here nothing stands still, in RocksDB's own way every write does.

        Raises:
            StateStoreError: RocksDB cannot write, or not read what is to be compacted.
            DirectoryError: the disk is full.
            OSError: the storage cannot be written to.
        """
        self._keeping.join()
        if self._keeping.failure is not None:
            raise self._keeping.failure
        self._before = self._store.base
        handle = self._store.finish(self._keeping.identity)
        self._store.catch_up()
        return handle

    def tidy(self) -> None:
        """Remove local copies that are older than the one before."""
        self._store.tidy(self._before, self._keeping.identity)

    def abandon(self) -> None:
        """Remove the local copy."""
        self._keeping.join()
        self._copies.remove_snapshot(self._keeping.identity)


def _write_current(directory: Path, base: StateHandle) -> None:
    manifests = [file["local"] for file in base["files"] if file["local"].startswith("MANIFEST-")]
    (directory / "CURRENT").write_text(f"{manifests[0]}\n")


def open_rocksdb(place: StorePlace, handle: StateHandle | None) -> RocksDBStore:
    """Open a store in RocksDB."""
    copies = place.copies
    shared = (place.storage, place.uid, place.key_groups, copies)
    options = RocksDBOptions.of(place.configuration)
    if handle is None:
        return RocksDBStore(copies.open_work(place.attempt), *shared, options=options)
    try:
        return RocksDBStore(
            copies.link_work(place.attempt, handle, place.storage), *shared, handle, options
        )
    except LocalCopyError:  # it was dropped: once more, with the checkpoint's files
        return RocksDBStore(
            copies.link_work(place.attempt, handle, place.storage), *shared, handle, options
        )
