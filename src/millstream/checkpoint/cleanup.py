"""Step 5 of an epoch: checkpoints that are no longer kept, and files that nothing names.

What it is: a count of how many kept manifests name each file, kept up to date as manifests come
and go, so that an epoch costs no listing.  Files that no manifest ever named (uploads of attempts
that lost or of runs that died) are found by listing, at recovery and every so many epochs.

**When an unnamed file may be deleted.**  A task that still runs may have just uploaded it for a
manifest to come.  So it is deleted only

* at recovery, if it was listed *before* this run opened the log.  Whoever uploaded it belongs to
  an older run.  If that run published it, the manifest was there when this run opened, and
  names it; if not, it never will be.  A still newer run cannot have uploaded it.
* later, if it was unnamed at two sweeps in a row, and a checkpoint was published between them that
  was begun after the first.  That it was published says that no newer run had begun, so the file,
  which the first sweep has seen, is none of a newer run's.  That it was begun after the first sweep
  says that every task of this run has acknowledged it since, and with it all that the task had
  uploaded or was uploading at the first sweep:

  - Where tasks end with each epoch, those that ran at the first sweep are over.
  - Where they go on, several checkpoints may have been in flight at the first sweep, some of them
    with uploads that take long.  A task uploads in order: what it had begun before the barrier of a
    checkpoint has ended when it acknowledges that one (``KeyValueStore``, contract 5).  So the file
    was uploaded whole, or never will be.  If the store still needs it, the checkpoint names it,
    also if it was uploaded for one that has failed.  If not, no later one does (contract 6).

**When a file of an old checkpoint is deleted.**  As soon as no kept manifest names it, also while
later checkpoints are in flight: by contract 6 they name it only if the newest manifest does.

What can never happen: a file is deleted that a manifest names or will name.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.commit import COMMITTED, PENDING_FILE
from millstream.checkpoint.local_storage import TEMPORARY_DIRECTORY
from millstream.checkpoint.manifest_log import LOG_DIRECTORY
from millstream.checkpoint.signature import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.checkpoint.manifest_log import ManifestLog
    from millstream.checkpoint.model import Manifest
    from millstream.contracts.checkpoint_storage import CheckpointStorage


#: Epochs (numbers of checkpoints) between two listings of the storage.
SWEEP_INTERVAL: Final = 64
#: Where files may lie that nothing names.
_SWEPT: Final = ("state", TEMPORARY_DIRECTORY)


def state_names(manifest: Manifest) -> set[str]:
    """The names of all state files that ``manifest`` needs."""
    return {file["remote"] for file in manifest.files()}


class Cleaner:
    """Keeps the newest ``retained`` checkpoints and what they name."""

    def __init__(
        self,
        storage: CheckpointStorage,
        log: ManifestLog,
        retained: int,
        sweep_interval: int = SWEEP_INTERVAL,
    ) -> None:
        """Clean ``storage``; nothing is read or deleted yet."""
        self._storage = storage
        self._log = log
        self._retained = retained
        self._sweep_interval = sweep_interval
        #: (version, names) of each kept manifest, oldest first.
        self._kept: deque[tuple[int, set[str]]] = deque()
        self._references: Counter[str] = Counter()
        #: Unnamed at the last sweep.
        self._suspects: set[str] = set()
        #: The last that was published at the last sweep.  Numbers of those that were given up,
        #: which leave files behind, count as well.
        self._swept = -1
        #: The last checkpoint that was begun, set by whatever thread begins it; the last that is
        #: published; and the later of them at the last sweep.
        self._begun = self._published = -1
        self._begun_at_sweep = -1
        #: Whether the last ``published`` looked for files that nothing names.
        self.has_swept = False

    def look_before_open(self) -> None:
        """List the storage; to be called before this run opens the log."""
        self._suspects = set(self._list())

    def recovered(self, kept: Iterable[tuple[int, Manifest]]) -> None:
        """Take over what the log holds, then delete what is named by nothing.

        Args:
            kept: version and manifest of each checkpoint in the log, oldest first.
        """
        for version, manifest in kept:
            self._add(version, state_names(manifest))
            self._published = manifest.epoch
        # What is too old goes when the next one is published: till then the newest says that it is
        # a checkpoint.
        self._log.keep(version for version, _ in self._kept)
        self._sweep()

    def oldest_beside_next(self) -> int | None:
        """The oldest version that is kept when one more is published; None: only that one is."""
        beside = self._retained - 1
        if not beside or not self._kept:
            return None
        return self._kept[max(0, len(self._kept) - beside)][0]

    def begun(self, epoch: int) -> None:
        """Take note that tasks may upload files for a checkpoint; they may go on meanwhile."""
        self._begun = epoch

    def published(self, version: int, manifest: Manifest) -> None:
        """Count a new manifest in, and delete what is not needed any more."""
        self._add(version, state_names(manifest))
        self._retire()
        self._published = manifest.epoch
        due = manifest.epoch - self._swept >= self._sweep_interval
        self.has_swept = due and manifest.epoch > self._begun_at_sweep
        if self.has_swept:
            self._sweep()

    def _add(self, version: int, names: set[str]) -> None:
        self._kept.append((version, names))
        self._references.update(names)

    def _retire(self) -> None:
        unneeded: list[str] = []
        while len(self._kept) > self._retained:
            _, names = self._kept.popleft()
            self._references.subtract(names)
            for name in names:
                if self._references[name] <= 0:
                    del self._references[name]
                    unneeded.append(name)
        # The manifest first: at a crash in between, files are left that nothing names, not a
        # manifest whose files are gone.  One that others lie on stays, but is no checkpoint.
        self._log.keep(version for version, _ in self._kept)
        if unneeded:
            self._storage.delete(sorted(unneeded))

    def _sweep(self) -> None:
        unnamed = {name for name in self._list() if name not in self._references}
        self._storage.delete(sorted(unnamed & self._suspects))
        self._suspects = unnamed - self._suspects
        self._swept = self._published
        # Behind the listing, and with those that begin meanwhile: what they upload may be in it.
        self._begun_at_sweep = max(self._begun, self._published)

    def _list(self) -> Iterable[str]:
        for directory in _SWEPT:
            yield from self._storage.list_names(directory)


#: State, splits of sources, what sinks wait with, files of the program, counts of running tasks.
_DIRECTORIES: Final = ("state", "sources", "sinks", "files", "counts", TEMPORARY_DIRECTORY)
#: The engine's own logs.
_ENGINE: Final = "spark"


def delete_checkpoints(storage: CheckpointStorage, is_fenced: Callable[[], bool]) -> bool:
    """Delete all that a job keeps; files that are not its own stay.

    Args:
        storage: of a job of which no run is left, and nothing to be committed.
        is_fenced: whether a newer run has taken the job over.

    Returns:
        Whether all is deleted; False if a newer run was met, which keeps what it needs.

    Raises:
        DirectoryError: something cannot be deleted.
    """
    others = [name for directory in _DIRECTORIES for name in storage.list_names(directory)]
    log = list(storage.list_names(LOG_DIRECTORY))
    if is_fenced():
        return False
    # Oldest first: newer manifests say only what has changed since older ones.
    storage.delete(log)
    if next(iter(storage.list_names(LOG_DIRECTORY)), None) is not None:
        return False
    storage.delete([IDENTITY])
    storage.delete(storage.list_names(_ENGINE))
    storage.delete([COMMITTED, PENDING_FILE, *others])
    for directory in (*_DIRECTORIES, _ENGINE, LOG_DIRECTORY):
        _remove_empty(Path(storage.location) / directory)
    with contextlib.suppress(OSError):
        Path(storage.location).rmdir()  # unless somebody keeps something of his own there
    return True


def _remove_empty(directory: Path) -> None:
    """Remove the directories in it and itself, but those in which somebody has begun anew."""
    for each, _, _ in os.walk(directory, topdown=False):
        with contextlib.suppress(OSError):
            Path(each).rmdir()
