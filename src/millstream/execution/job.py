"""A job: what is fixed when it is submitted, and stays so over all its runs.

What it is: the graph, its directories, its id, and how a run is to write checkpoints.  Making one
claims the checkpoint directory, and compares the program with what lies there.

What it is not: a run (``execution/run.py``), nor what restarts runs (``execution/driver.py``).

Read next: ``execution/run.py``.
"""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.cleanup import delete_checkpoints
from millstream.checkpoint.commit import CommitRetry, PendingCommits
from millstream.checkpoint.coordinator import Coordinator
from millstream.checkpoint.job_directories import JobDirectories
from millstream.checkpoint.program import labels
from millstream.configuration import options
from millstream.configuration.checkpointing_mode import CheckpointingMode
from millstream.errors import FencedError, MillstreamError
from millstream.execution.restored_program import claim_directory, describe_start, program_of
from millstream.execution.ship_files import ship_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.graph.model import JobGraph

__all__ = ["Job"]

_LOG: Final = logging.getLogger("millstream")


class Job:
    """What is fixed when a job is submitted.

    Args:
        graph: the job; takes over from the checkpoint what the program leaves open.
        directories: where it keeps things, if not where its options say.
        local_root: where its tasks keep local copies of state; a directory of its own among the
            local ones unless given.
        fsync: whether what is published is flushed to disk; as the options say unless given.
        state_backend: where state lives while a task runs; as the options say unless given.
        retry: how a failed commit is tried again; as the options say unless given.

    Raises:
        ForeignCheckpointError: the checkpoint directory belongs to another job.
        IncompatibleProgramError: the program does not fit the newest checkpoint.
        UnknownFormatError, CorruptCheckpointError: the directory cannot be read.
    """

    def __init__(
        self,
        graph: JobGraph,
        directories: JobDirectories | None = None,
        *,
        local_root: Path | None = None,
        fsync: bool | None = None,
        state_backend: str | None = None,
        retry: CommitRetry | None = None,
    ) -> None:
        configuration = graph.configuration
        self.graph = graph
        self.directories = directories or JobDirectories.of(configuration)
        #: Without a checkpoint directory the job is exactly-once for as long as this process
        #: lives; the temporary one is deleted at the end.
        self.temporary = self.directories.temporary
        wanted = configuration.get(options.CHECKPOINT_FSYNC) if fsync is None else fsync
        self.fsync = wanted and not self.temporary
        self.state_backend = state_backend or configuration.get(options.STATE_BACKEND)
        self.storage = self.directories.storage
        self.job_id, last = claim_directory(self.storage, graph)
        #: How the last run has started; before the first one, how that will.
        self.start = describe_start(graph, self.storage, last, temporary=self.temporary)
        #: What people are shown of operators, by uid.
        self.labels = labels(program_of(graph))
        self.local_root = local_root or self.directories.local / self.job_id
        self._ship()
        self._retry = retry or CommitRetry.exponential(
            configuration.get(options.COMMIT_RETRY_INITIAL),
            configuration.get(options.COMMIT_RETRY_MAXIMUM),
            configuration.get(options.COMMIT_RETRY_ATTEMPTS),
        )

    @property
    def interval(self) -> int:
        """The shortest time between the starts of two epochs, in milliseconds."""
        return self.graph.configuration.get(options.CHECKPOINTING_INTERVAL) or 0

    def ship_missing(self) -> None:
        """Send files of the program again that an older run, not yet taken over, has dropped.

        Raises:
            ConfigurationError: a file is not there any more.
            DirectoryError: it cannot be written to the storage.
        """
        if not all(self.storage.exists(file.blob) for file in self.graph.files.files):
            self._ship()

    def _ship(self) -> None:
        graph = self.graph
        graph.files = ship_files(graph.configuration, self.storage, self.local_root)

    def new_coordinator(
        self,
        on_pending: Callable[[PendingCommits], None] = lambda _: None,
        *,
        tasks_at_work: bool = False,
    ) -> Coordinator:
        """A coordinator for one run.

        Args:
            on_pending: as for ManifestCommit.
            tasks_at_work: whether tasks go on from epoch to epoch.
        """
        configuration = self.graph.configuration
        committers = {}
        for node in self.graph.nodes.values():
            committer = None if node.sink is None else node.sink.create_committer()
            if committer is not None:
                committers[node.uid] = committer
        return Coordinator(
            self.storage,
            self.job_id,
            committers,
            configuration.get(options.NUM_RETAINED),
            mode=CheckpointingMode[configuration.get(options.CHECKPOINTING_MODE)],
            retry=self._retry,
            commit_timeout=configuration.get(options.COMMIT_TIMEOUT) / 1000,
            labels=self.labels,
            on_pending=on_pending,
            tasks_at_work=tasks_at_work,
        )

    def clean_up(
        self,
        *,
        finished: bool,
        cancelled: bool = False,
        stopped: bool = False,
        last: Coordinator | None = None,
    ) -> None:
        """Delete what nobody needs after the end; nothing, if a newer run has the job.

        Args:
            finished: the input is over, or the job has stopped behind a last checkpoint, and all
                is committed.
            cancelled: somebody has cancelled the job.
            stopped: somebody has asked it to stop behind a last checkpoint.
            last: of the last run that has taken the job over; None if none has.
        """
        if self.temporary:
            if not finished:
                self._settle(self.new_coordinator(), None)
            shutil.rmtree(self.local_root, ignore_errors=True)
            shutil.rmtree(self.storage.location, ignore_errors=True)
        elif last is None:
            return  # what is there is of others
        elif self._discards(cancelled=cancelled) and not (
            # Who stops a job is told where the checkpoint is: it is as a savepoint.
            finished and stopped and _can_go_on(last)
        ):
            self._discard(last, finished=finished)
        elif finished and not last.is_fenced():
            shutil.rmtree(self.local_root, ignore_errors=True)

    def _discard(self, last: Coordinator, *, finished: bool) -> None:
        """Delete checkpoints and local copies, unless a newer run has them by then."""
        if not finished:
            settling = self.new_coordinator()
            if not self._settle(settling, last.generation):
                return
            last = settling
        name = self.graph.job_name
        if not delete_checkpoints(self.storage, last.is_fenced):
            _LOG.info("a newer run has taken job %r over: its checkpoints stay", name)
            return
        shutil.rmtree(self.local_root, ignore_errors=True)
        _LOG.info("the checkpoints of job %r are deleted", name)

    def _discards(self, *, cancelled: bool) -> bool:
        """Whether the options have the checkpoints deleted at such an end."""
        retention = self.graph.configuration.get(options.CHECKPOINT_RETENTION)
        return retention == "NO_EXTERNALIZED_CHECKPOINTS" or (
            cancelled and retention == "DELETE_ON_CANCELLATION"
        )

    def _settle(self, coordinator: Coordinator, after: int | None) -> bool:
        """Commit what is published, drop the rest: no run can follow that would do so.

        A transaction that is left prepared holds its locks for ever.  What fails here must not
        hide what the job failed of.

        Args:
            coordinator: takes the job over once more; closed here.
            after: the generation that this job began last.

        Returns:
            Whether nothing is left to be committed; False, too, if a newer run has the job, which
            sees to it.
        """
        name = self.graph.job_name
        try:
            coordinator.open(after)
            coordinator.recover()
        except FencedError as error:
            _LOG.info("the checkpoints of job %r stay: %s", name, error)
            return False
        except (MillstreamError, OSError):
            _LOG.warning("job %r may leave output pre-committed", name, exc_info=True)
            return False
        else:
            return True
        finally:
            coordinator.close()


def _can_go_on(last: Coordinator) -> bool:
    """Whether the last checkpoint is none of the end of the input."""
    return last.last is None or not last.last.final
