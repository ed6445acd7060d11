"""Takes single protections away, to show that tests notice.

What it is: one switch per protection that exactly-once results rest on.  ``remove(protection)``
replaces the code of it in this process and those forked from it, for good::

    remove(Protection.FENCING)
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from millstream.checkpoint import coordinator
from millstream.checkpoint.coordinator import Coordinator
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog, encode
from millstream.checkpoint.model import MANIFEST
from millstream.connectors.commit_protocols import staged_values as write_ahead_sink
from millstream.connectors.commit_protocols.commit_table import CommitTable
from millstream.connectors.files.pending_files import PendingFile
from millstream.connectors.kafka.producers import PooledProducer
from millstream.connectors.kafka.transactions import TransactionControl
from millstream.connectors.postgres.sessions import RunSessions
from millstream.state import local_copies
from millstream.state.local_copies import LocalCopies

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.checkpoint.model import Manifest
    from millstream.contracts.sink import Committable, CommitterContext

__all__ = ["Protection", "remove"]


class Protection(Enum):
    """What keeps results exactly-once."""

    #: A run that a newer one has taken over cannot publish.
    FENCING = "fencing"
    #: Of two writers of one version of the manifest log one loses.
    PUT_IF_ABSENT = "put-if-absent"
    #: What is committed is recognised when it is committed again.
    COMMIT_MARKER = "commit marker"
    #: Output that no manifest names is dropped.
    ORPHAN_ABORT = "orphan abort"
    #: Output is out of the process before the task acknowledges.
    PRE_COMMIT_FLUSH = "pre-commit flush"
    #: What an older run holds in PostgreSQL is taken from it.
    SESSION_END = "end of older sessions"
    #: Local copies of state are compared with the checkpoint, and dropped if they differ.
    LOCAL_CHECK = "check of local copies"
    #: A transaction that is given up ends by a new epoch of its producer.
    FENCING_ABORT = "fencing abort"
    #: While tasks write the next epochs, only output of older runs is dropped.
    ABORT_BOUND = "bound of aborts"


def remove(protection: Protection) -> None:
    """Take a protection away, in this process and those forked from it."""
    _REMOVALS[protection]()


def _put(owner: object, name: str, replacement: object) -> None:
    getattr(owner, name)  # a name that is gone would remove nothing
    setattr(owner, name, replacement)


def _remove_fencing() -> None:
    def publish(log: ManifestLog, manifest: Manifest, _: int | None = 0) -> int:
        """Take the next free version, whoever wrote the one before."""
        own = replace(manifest, generation=log.generation)
        while True:
            version = log.versions()[-1] + 1
            content, _checksum = encode(version, log.generation, MANIFEST.write(own))
            if log._storage.put_if_absent(log.name(version), content):
                return version

    _put(ManifestLog, "publish", publish)
    _put(ManifestLog, "check_fence", lambda _: None)
    _put(ManifestLog, "is_fenced", lambda _: False)


def _remove_put_if_absent() -> None:
    def put(storage: LocalStorage, name: str, content: bytes) -> bool:
        storage.write(name, content)
        return True

    _put(LocalStorage, "put_if_absent", put)


def _remove_commit_marker() -> None:
    committer = write_ahead_sink._WriteAheadCommitter
    opened = committer.open

    def open_forgetful(self: Any, context: CommitterContext) -> None:
        opened(self, context)
        _put(self._marker, "is_checkpoint_committed", lambda *_: False)

    _put(committer, "open", open_forgetful)
    _put(CommitTable, "read", lambda *_: {})
    _put(TransactionControl, "newest_marker", lambda *_: (-1, None))


def _remove_orphan_abort() -> None:
    _put(coordinator, "abort_orphans", lambda *_: None)


def _remove_flush() -> None:
    unflushed: list[PendingFile] = []  # what nobody holds would be closed, and so be flushed

    def seal(file: PendingFile) -> Committable:
        unflushed.append(file)
        return {"pending": str(file.path.relative_to(file.base)), "final": file.final}

    _put(PendingFile, "seal", seal)
    _put(PooledProducer, "flush", lambda _: None)


def _remove_session_end() -> None:
    _put(RunSessions, "end_older", lambda *_: None)


def _remove_local_check() -> None:
    _put(local_copies, "damage_of", lambda *_, **__: None)
    _put(LocalCopies, "drop", lambda *_: None)


def _remove_fencing_abort() -> None:
    def abort(producer: PooledProducer) -> None:
        """By EndTxn, which overtakes records that are on their way."""
        with contextlib.suppress(Exception):
            producer.client.purge()
            producer.client.abort_transaction(producer.patience)

    _put(PooledProducer, "abort", abort)


def _remove_abort_bound() -> None:
    complete = Coordinator.complete_epoch

    def complete_and_drop(self: Coordinator, *arguments: Any) -> Manifest:
        manifest = complete(self, *arguments)
        self._abort_orphans(manifest, self._log.generation)
        return manifest

    _put(Coordinator, "complete_epoch", complete_and_drop)


_REMOVALS: Final[dict[Protection, Callable[[], None]]] = {
    Protection.FENCING: _remove_fencing,
    Protection.PUT_IF_ABSENT: _remove_put_if_absent,
    Protection.COMMIT_MARKER: _remove_commit_marker,
    Protection.ORPHAN_ABORT: _remove_orphan_abort,
    Protection.PRE_COMMIT_FLUSH: _remove_flush,
    Protection.SESSION_END: _remove_session_end,
    Protection.LOCAL_CHECK: _remove_local_check,
    Protection.FENCING_ABORT: _remove_fencing_abort,
    Protection.ABORT_BOUND: _remove_abort_bound,
}
