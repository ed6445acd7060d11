"""Checkpoint storage in an object store.

An object is written by one request, so a reader sees a whole blob or none.  put-if-absent is a
conditional write; what the store offers is probed when a job is submitted.  Signatures are those of
local directories (``local_storage.py``).
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.local_storage import HmacSeal, NoSeal, Seal, parts_of_name
from millstream.checkpoint.packs import pack_of, place_in_pack
from millstream.directories import LOCAL_STATE, explained, run_directory
from millstream.errors import ObjectStoreError
from millstream.object_stores import ObjectStore, StoreOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_PACKED_BYTES: Final = 1 << 20
#: How often a listing that is older than what was written is repeated.
_LISTINGS: Final = 10
#: 17,000 requests per day.
_POLL_SECONDS: Final = 5.0


class ObjectStorage:
    """Named blobs under a prefix of a bucket."""

    def __init__(
        self, location: str, *, store_options: StoreOptions | None = None, seal: Seal | None = None
    ) -> None:
        """Use a place in an object store; nothing is requested yet.

        Args:
            location: its URI, such as ``s3://bucket/path``.
            store_options: endpoint and credentials, as far as options give them.
            seal: signs and verifies blobs; by default neither is done.

        Raises:
            ConfigurationError: the URI is malformed, or the library is not installed.
        """
        self._store = ObjectStore(location, store_options)
        self._seal: Seal = seal or NoSeal()
        #: What this copy has created and not deleted: a listing without it is an old one.
        self._created: set[str] = set()
        #: Name -> local file with its content, for whoever asks next.
        self._kept: dict[str, Path] = {}
        #: Packs that are not here; one is written before anything names it, so it will not come.
        self._missing_packs: set[str] = set()

    def __getstate__(self) -> dict[str, object]:
        """Return what a worker needs: not what this copy has created and kept."""
        return {**self.__dict__, "_created": set(), "_kept": {}}

    def __repr__(self) -> str:
        return f"ObjectStorage({self.location!r})"

    @property
    def location(self) -> str:
        """The URI, without credentials."""
        return self._store.location

    @property
    def poll_interval(self) -> float:
        """A listing each half second would cost most of what small jobs pay."""
        return _POLL_SECONDS

    @property
    def pack_below(self) -> int:
        """Below this a request takes longer than the bytes."""
        return _PACKED_BYTES

    def bind(self, job_id: str) -> None:
        """Sign and verify for this job, from now on."""
        self._seal.bind(job_id)

    def check(self) -> None:
        """Make sure that the bucket is there and can be listed; nothing is written.

        Raises:
            ObjectStoreError: it cannot.
            ConfigurationError: the key to sign with cannot be used.
        """
        if isinstance(self._seal, HmacSeal):
            self._seal.read_key()
        self._store.check()

    def probe(self) -> None:
        """Make sure that blobs can be written, and that put-if-absent is one.

        Raises:
            ObjectStoreError: they cannot, or it is not.
        """
        self._store.probe()

    def is_there(self) -> bool:
        """Return whether anything is stored at this place."""
        return next(iter(self._store.list_keys(most=1)), None) is not None

    def gone(self) -> ObjectStoreError:
        """Return the error for a place that was used and is empty now."""
        return ObjectStoreError(
            f"the checkpoints in {self.location} have disappeared while they were in use. Put them"
            " back from a copy; the job does not begin again there, for it would start from scratch"
        )

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Create ``name``; False, and nothing written, if it exists."""
        parts_of_name(name)
        created = self._store.put_if_absent(name, self._seal.close(name, content))
        if created:
            self._created.add(name)
        return created

    def write(self, name: str, content: bytes) -> None:
        """Create or replace ``name``."""
        parts_of_name(name)
        self._store.put(name, self._seal.close(name, content))

    def read(self, name: str) -> bytes:
        """The content; raises FileNotFoundError."""
        parts_of_name(name)
        packed = self._packed(name)
        if packed is not None:
            return packed
        return self._seal.open(name, self._store.get(name), self.location)

    def upload(self, local: Path, name: str) -> None:
        """Make ``name`` from a local file that will never change.

        One that exists is replaced: names of uploads are unique, or those of their content.
        """
        parts_of_name(name)
        self._store.put(name, local)

    def download(self, name: str, local: Path) -> None:
        """Make the local file from ``name``, never to be changed; raises FileNotFoundError."""
        parts_of_name(name)
        with explained(LOCAL_STATE, local.parent):
            local.parent.mkdir(parents=True, exist_ok=True)
            local.unlink(missing_ok=True)
            kept = self._kept.pop(name, None)
            if kept is not None:
                shutil.move(kept, local)
                return
            packed = self._packed(name)
            if packed is None:
                self._store.get_to(name, local)
            else:
                with local.open("xb") as file:
                    file.write(packed)

    def _packed(self, name: str) -> bytes | None:
        """Return the content of a state file in a pack; None: it is a blob.

        In a savepoint, and in what was copied from one, it is a blob in spite of its name.
        """
        place = place_in_pack(name)
        if place is None or place[0] in self._missing_packs:
            return None
        try:
            return self._store.get_range(*place)
        except FileNotFoundError:
            self._missing_packs.add(place[0])
            return None

    @contextlib.contextmanager
    def local_file(self, name: str, *, keep: bool = False) -> Iterator[Path]:
        """Bring a blob into a temporary local file; raises FileNotFoundError."""
        parent = run_directory().path
        with tempfile.TemporaryDirectory(prefix="blob-", dir=parent) as directory:
            path = Path(directory) / "content"
            self.download(name, path)
            yield path
            if keep and 2 * path.stat().st_size < shutil.disk_usage(parent).free:
                self._kept[name] = path.rename(parent / f"kept-{uuid.uuid4().hex}")

    def directory(self, name: str) -> Path | None:
        """Return None: there are no directories."""
        parts_of_name(name)
        return None

    def exists(self, name: str) -> bool:
        """Return whether there is such a blob."""
        parts_of_name(name)
        pack = pack_of(name)
        return (pack is not None and self._store.exists(pack)) or self._store.exists(name)

    def list_names(self, prefix: str) -> Iterator[str]:
        """All names below the directory ``prefix``, sorted.

        A job that takes an old listing for the present one continues from an old checkpoint.  So a
        listing must have all that this copy has created, and thus all that was there before.

        Raises:
            ObjectStoreError: the listing stays old.
        """
        below = prefix.strip("/") + "/" if prefix.strip("/") else ""
        for attempt in range(_LISTINGS):
            listed = set(self._store.list_keys(prefix))
            missing = {
                name
                for name in self._created - listed
                if name.startswith(below) and self._is_left(name)
            }
            if not missing:
                return iter(sorted(listed))
            time.sleep(min(0.05 * 2**attempt, 1.0))
        message = (
            f"{self.location}: the store does not list {min(missing)}, which was written before. It"
            " must list what was written (strong consistency); is there a cache before it?"
        )
        raise ObjectStoreError(message)

    def _is_left(self, name: str) -> bool:
        """Return whether what this copy has created is still there; else forget it."""
        if self._store.exists(name):
            return True
        self._created.discard(name)
        return False

    def delete(self, names: Iterable[str]) -> None:
        """Delete; names that do not exist are passed over."""
        deleted = list(names)
        self._created.difference_update(deleted)
        self._store.delete(deleted)

    def remove_empty(self, directories: Iterable[str]) -> None:
        """Do nothing: an object store has no directories."""
