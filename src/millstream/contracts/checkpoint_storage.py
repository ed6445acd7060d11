"""The storage contract: names with "/" in them, relative to the checkpoint directory.

There is no append, no rename seen by others, no locking: all coordination rests on put-if-absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from millstream.errors import DirectoryError


class CheckpointStorage(Protocol):
    """Durable named blobs.

    Contract:
      1. A write that returned survives a crash of the machine.  (backend)
      2. A reader sees a whole blob or none.  (backend, test kit)
      3. Of concurrent ``put_if_absent`` on one name exactly one returns True.  (test kit)
      4. Picklable: workers get a copy.  (test kit)
    """

    @property
    def location(self) -> str:
        """Where it is, for messages and for Spark: an absolute path or a URI."""

    @property
    def poll_interval(self) -> float:
        """Seconds between two looks for what others write: each may cost money."""

    @property
    def pack_below(self) -> int:
        """Bytes up to which state files of a task are packed into one blob; 0: none is."""

    def bind(self, job_id: str) -> None:
        """Take names for those of this job, if that makes a difference."""

    def check(self) -> None:
        """Judge the place before anything is read; nothing is written.

        Raises:
            DirectoryError: it cannot be used.
            ConfigurationError: the key to verify with cannot be used.
        """

    def probe(self) -> None:
        """Make sure that blobs can be written now, and that put-if-absent is one.

        Raises:
            DirectoryError: they cannot, for the reason that it says.
        """

    def is_there(self) -> bool:
        """Return whether the place exists."""

    def gone(self) -> DirectoryError:
        """Return the error for a place that was used and is not there any more."""

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Create ``name``; False, and nothing written, if it exists."""

    def write(self, name: str, content: bytes) -> None:
        """Create or replace ``name``."""

    def read(self, name: str) -> bytes:
        """The content; raises FileNotFoundError, and SignatureError if it is not to be trusted."""

    def upload(self, local: Path, name: str) -> None:
        """Make ``name`` from a local file that will never change (a hard link will do)."""

    def download(self, name: str, local: Path) -> None:
        """Make the local file from ``name``, never to be changed; raises FileNotFoundError."""

    def local_file(self, name: str, *, keep: bool = False) -> AbstractContextManager[Path]:
        """A local file with the content, for as long as it is entered; nobody may change it.

        Args:
            name: of the blob.
            keep: this process reads it once more: the next ``local_file`` or ``download`` need not
                bring it again.

        Raises:
            FileNotFoundError: there is no such blob.
        """

    def directory(self, name: str) -> Path | None:
        """Make a directory for somebody who writes files there himself; None: it can have none."""

    def exists(self, name: str) -> bool:
        """Return whether there is such a blob."""

    def list_names(self, prefix: str) -> Iterator[str]:
        """All names below the directory ``prefix``, sorted."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete; names that do not exist are passed over."""

    def remove_empty(self, directories: Iterable[str]) -> None:
        """Remove these directories and the place itself, where nothing is in them."""
