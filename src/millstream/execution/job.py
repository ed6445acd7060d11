"""A job: the graph, directories, id and checkpoint settings, the same in all its runs.

Making one claims the checkpoint directory, and compares the program with the checkpoints there.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import zipfile
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.commit import (
    CommitCounts,
    CommitRetry,
    PendingCommits,
    delete_checkpoints,
)
from millstream.checkpoint.coordinator import Coordinator
from millstream.checkpoint.job_directories import JobDirectories, JobIdentity
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.model import OperatorRecord, blocks_of, digest_of
from millstream.checkpoint.program import labels, require_fit, stored_max_parallelism
from millstream.checkpoint.savepoint import Origin, require_no_savepoint
from millstream.checkpoint.storages import open_storage_of
from millstream.configuration import options
from millstream.configuration.options import CheckpointingMode
from millstream.contracts.operator import refusal_of, sections_of
from millstream.contracts.sink import Sink
from millstream.directories import run_directory
from millstream.errors import FencedError, IncompatibleProgramError, MillstreamError
from millstream.execution.monitor import start_of
from millstream.execution.savepoints import Savepoints, claims, delete_claimed, starting_point
from millstream.graph.job_files import JobFiles, job_files_of
from millstream.graph.validation import edge_names
from millstream.logs import LogSettings
from millstream.state.canonical.restore import restore_canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.checkpoint.model import Manifest
    from millstream.checkpoint.savepoint import StartingPoint
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.operator import OperatorFactory, StateSection
    from millstream.execution.monitor import JobStart
    from millstream.graph.job_files import JobFile
    from millstream.graph.model import JobGraph, StreamNode


_LOG: Final = logging.getLogger("millstream")
#: The earliest that a zip archive can say: the digest must not depend on times.
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
_LOCAL_NAME: Final = ".files"


def ship_files(graph: JobGraph, storage: CheckpointStorage, local_root: Path) -> JobFiles:
    """Send what a job's options name.

    Nothing is deleted: a run that has not been taken over yet may still need what it has sent.

    Raises:
        ConfigurationError: a file is not there.
        DirectoryError: it cannot be written to the storage.
    """
    files = tuple(_shipped(file, storage) for file in job_files_of(graph.configuration))
    store_options = graph.files.store_options
    if not files:
        return JobFiles(store_options=store_options)
    return JobFiles(files, str(local_root / _LOCAL_NAME), storage, store_options)


def delete_older_files(files: JobFiles, storage: CheckpointStorage) -> None:
    """Delete what older runs have sent and this one does not need."""
    needed = {file.blob for file in files.files}
    storage.delete([name for name in storage.list_names("files") if name not in needed])


def _shipped(file: JobFile, storage: CheckpointStorage) -> JobFile:
    with tempfile.TemporaryDirectory(prefix="ship-", dir=run_directory().path) as directory:
        # A copy: what the digest says must not change while it is sent.
        content = Path(directory) / "content"
        if file.directory:
            _pack(Path(file.path), content)
        else:
            shutil.copyfile(file.path, content)
        shipped = replace(file, digest=digest_of(blocks_of(content))[1])
        if not storage.exists(shipped.blob):
            storage.upload(content, shipped.blob)
    return shipped


def _pack(directory: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(_below(directory, frozenset())):
            name = str(path.relative_to(directory))
            if path.is_dir():
                packed.writestr(zipfile.ZipInfo(f"{name}/", _NO_TIME), b"")
                continue
            entry = zipfile.ZipInfo(name, _NO_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (path.stat().st_mode & 0o777) << 16
            packed.writestr(entry, path.read_bytes())


def _below(directory: Path, above: frozenset[Path]) -> Iterator[Path]:
    """Files and directories in a directory; links are followed, but not in circles."""
    real = directory.resolve()
    if real in above:
        return
    for path in directory.iterdir():
        if path.name != "__pycache__":
            yield path
            if path.is_dir():
                yield from _below(path, above | {real})


def claim_directory(
    storage: CheckpointStorage, graph: JobGraph
) -> tuple[str, Manifest | None, StartingPoint | None]:
    """Take a checkpoint directory for a job, or check that the job can continue in it.

    Returns:
        The job's id, the newest checkpoint (None if there is none), and the savepoint that the job
        starts from if it has none of its own.

    Raises:
        ForeignCheckpointError: the directory belongs to another job.
        IncompatibleProgramError: the program does not fit the newest checkpoint, or the savepoint.
        UnknownFormatError, CorruptCheckpointError: the directory cannot be read.
        CheckpointError: there is nothing to start from, or it is not clear what.
    """
    last, start = _found(storage, graph)
    return JobIdentity.claim(storage, graph.job_name, program_of(graph)), last, start


def _found(
    storage: CheckpointStorage | None, graph: JobGraph
) -> tuple[Manifest | None, StartingPoint | None]:
    """The newest checkpoint in a directory, or what the job starts from, which the program fits."""
    last = None
    if storage is not None:
        require_no_savepoint(storage)
        identity = JobIdentity.load(storage)
        if identity is not None:
            identity.require_name(graph.job_name, storage.location)
            last = ManifestLog(storage).latest()
        fit(graph, storage, last)
    start = starting_point(graph, storage, last)
    if start is not None:
        fit(graph, start.storage, start.manifest)
    return last, start


def fit(graph: JobGraph, storage: CheckpointStorage, last: Manifest | None) -> None:
    """Let a job resume from a checkpoint: take the number of key groups over from it.

    Args:
        graph: the job; operators whose max parallelism the program leaves open get that of their
            state, if it is enough for their parallelism.  Keys of others are hashed again.
        storage: the checkpoint directory.
        last: the checkpoint; None if there is none.

    Raises:
        IncompatibleProgramError: the program would not find what the checkpoint holds.
    """
    if last is None:
        return
    stored = last.program
    require_fit(
        storage.location,
        last,
        stored,
        program_of(graph),
        ignore_unclaimed=graph.configuration.get(options.IGNORE_UNCLAIMED_STATE),
        refusal=partial(_refusal, {node.uid: node.factory for node in graph.nodes.values()}),
    )
    _require_edges(graph, storage.location, last)
    for number, node in graph.nodes.items():
        groups = stored_max_parallelism(last, node.uid)
        if groups is None or node.max_parallelism_is_set or node.parallelism > groups:
            continue
        if groups != node.max_parallelism:
            graph.nodes[number] = replace(node, max_parallelism=groups)


def describe_start(
    graph: JobGraph,
    storage: CheckpointStorage | None,
    last: Manifest | None,
    *,
    origin: Origin | None = None,
) -> JobStart:
    """Describe how a run of a job starts: from ``last``, which it fits, or from scratch.

    Args:
        graph: the job.
        storage: the checkpoint directory; None: one that is deleted at the end of the job.
        last: the checkpoint; None if there is none.
        origin: the savepoint that the job starts from, or has started from.
    """
    start = start_of(
        graph.job_name,
        "" if storage is None else storage.location,
        last,
        {} if last is None else last.program,
        program_of(graph),
    )
    if origin is None or last is None:
        return start
    begins = last.epoch == origin.checkpoint_id
    return replace(start, savepoint=str(origin), starts_from_savepoint=begins)


def planned_start(graph: JobGraph) -> list[str]:
    """Return how a run of a job would start now, some lines of text; nothing is written.

    Raises:
        CheckpointError: it would be refused.
        DirectoryError: the checkpoint directory cannot be read.
    """
    configuration = graph.configuration
    directory = configuration.get(options.CHECKPOINTS_DIRECTORY)
    storage = (
        open_storage_of(configuration, directory, graph.files.store_options) if directory else None
    )
    last, start = _found(storage, graph)
    if start is not None:
        return describe_start(graph, storage, start.manifest, origin=start.origin).lines()
    origin = None if storage is None else Origin.load(storage)
    return describe_start(graph, storage, last, origin=origin).lines()


def _require_edges(graph: JobGraph, where: str, last: Manifest) -> None:
    """Check that the program has a place for what is in flight in a checkpoint.

    Cases, of an edge with frames in flight:

    1. It still leads from task to task, or within one after an exchange -> they are processed
       first of all, at whatever parallelism.
    2. It is gone -> refused, or dropped, as state is, with
       ``execution.state-recovery.ignore-unclaimed-state``.
    3. It lies within a task that reads a source now -> refused: time is kept there per split, and
       what is in flight is of none.
    """
    levels = {
        name: graph.level(edge.target)
        for edge, name in zip(graph.edges, edge_names(graph).values(), strict=True)
    }
    ignores = graph.configuration.get(options.IGNORE_UNCLAIMED_STATE)
    for name in dict.fromkeys(name for frames in last.in_flight for name in frames.edges):
        if levels.get(name, 0 if not ignores else 1) > 0:
            continue
        gone = "is not in the program" if name not in levels else "lies within one task now"
        message = (
            f"the program does not fit checkpoint {last.epoch} in {where}: records are in flight in"
            f" it from {_title(last, name.source)} to {_title(last, name.target)}, and that edge"
            f" {gone}. Run the job with the program and the parallelism that it had, and stop it:"
            " nothing is in flight in the checkpoint that stop() makes. Nothing in the directory"
            " was changed."
        )
        raise IncompatibleProgramError(message)


def _title(last: Manifest, uid: str) -> str:
    return (last.program.get(uid) or OperatorRecord(uid, "operator")).title


def _refusal(
    factories: Mapping[str, OperatorFactory | None], uid: str, stored: StateSection
) -> str | None:
    return refusal_of(factories[uid], stored)


def program_of(graph: JobGraph) -> dict[str, OperatorRecord]:
    """The operators of a job as a manifest records them, by uid."""
    return {node.uid: _record(graph, node) for node in graph.nodes.values()}


def _record(graph: JobGraph, node: StreamNode) -> OperatorRecord:
    name = "" if node.source is None else type(node.source).__name__
    if node.sink is not None:
        name = node.sink.connector
    return OperatorRecord(
        uid=node.uid,
        kind=node.kind,
        name=node.name,
        location=node.location,
        has_own_uid=node.has_own_uid,
        connector="DataFrame" if node.spark_index is not None else name,
        commits=node.sink is not None
        and type(node.sink).create_committer is not Sink.create_committer,
        inputs=tuple(graph.nodes[edge.source].uid for edge in graph.inputs(node.id)),
        sections=tuple(sections_of(node.factory)),
        details=node.details,
        max_parallelism=node.max_parallelism,
        parallelism=node.parallelism,
        ignores_unclaimed=graph.configuration.get(options.IGNORE_UNCLAIMED_STATE),
    )


def operators_without_uid(graph: JobGraph) -> list[str]:
    """Describe operators whose state is found by their place in the program, with their lines."""
    return [
        f"{each.title}: {'its position' if each.kind == 'source' else 'its state'} is found by its"
        " place in the program, so it is lost if what it reads changes: add .uid('a-name')"
        for each in program_of(graph).values()
        if not (each.has_own_uid or each.details)
        and (each.sections or each.commits or each.kind == "source")
    ]


def warn_of_missing_uids(graph: JobGraph) -> None:
    """Warn of operators without uid if the job has checkpoints from which it can be upgraded."""
    if graph.batch_mode or not graph.configuration.get(options.CHECKPOINTS_DIRECTORY):
        return
    for each in operators_without_uid(graph):
        _LOG.warning("%s", each)


class Job:
    """The parts of a job that are fixed when it is submitted.

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
        self.directories = directories or JobDirectories.of(
            configuration, graph.files.store_options
        )
        #: Without a checkpoint directory the job is exactly-once for as long as this process
        #: lives; the temporary one is deleted at the end.
        self.temporary = self.directories.temporary
        wanted = configuration.get(options.CHECKPOINT_FSYNC) if fsync is None else fsync
        self.fsync = wanted and not self.temporary
        self.state_backend = state_backend or configuration.get(options.STATE_BACKEND)
        self.storage = self.directories.storage
        self.job_id, last, self._starting = claim_directory(self.storage, graph)
        start = self._starting
        #: What it starts from, or has started from in an earlier run; None: from scratch.
        self.origin = Origin.load(self.storage) if start is None else start.origin
        #: The savepoint that is deleted once there is a checkpoint after it.
        self._claimed = self.origin if claims(configuration) else None
        #: How the last run has started; before the first one, how that will.
        self.start = self.describe_start(last if start is None else start.manifest)
        graph.logging = LogSettings.of(graph.configuration, self.job_id, graph.job_name)
        self.savepoints = Savepoints(self.storage, self.job_id, graph)
        #: What people are shown of operators, by uid.
        self.labels = labels(program_of(graph))
        self.local_root = local_root or self.directories.local / self.job_id
        self._ship()
        #: By uid of the sink.
        self.commit_counts: defaultdict[str, CommitCounts] = defaultdict(CommitCounts)
        self._retry = retry or CommitRetry.exponential(
            configuration.get(options.COMMIT_RETRY_INITIAL),
            configuration.get(options.COMMIT_RETRY_MAXIMUM),
            configuration.get(options.COMMIT_RETRY_ATTEMPTS),
        )

    def describe_start(self, last: Manifest | None) -> JobStart:
        """Describe how a run of it starts from a checkpoint; None: from scratch."""
        return describe_start(
            self.graph, None if self.temporary else self.storage, last, origin=self.origin
        )

    @property
    def begin(self) -> Callable[[], Manifest] | None:
        """Brings the checkpoint that it starts from into its directory; None: from scratch."""
        return None if self._starting is None else self._begin

    def _begin(self) -> Manifest:
        if self._starting is None:
            message = "the job starts from scratch"
            raise RuntimeError(message)
        backend = self.state_backend
        return self._starting.begin(
            self.storage,
            self.job_id,
            lambda saved, storage: restore_canonical(saved, storage, backend),
        )

    def checkpoint_committed(self, coordinator: Coordinator, manifest: Manifest) -> None:
        """Begin the savepoints that a checkpoint is, and drop the one that it supersedes."""
        self.savepoints.committed(coordinator, manifest)
        self.drop_claimed(manifest)

    def drop_claimed(self, manifest: Manifest) -> None:
        """Delete the savepoint that the job has claimed, if a later checkpoint is committed."""
        claimed = self._claimed
        if claimed is not None and manifest.epoch > claimed.checkpoint_id:
            self._claimed = None
            delete_claimed(claimed, self.graph.configuration)

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
        graph.files = ship_files(graph, self.storage, self.local_root)

    def new_coordinator(
        self,
        on_pending: Callable[[PendingCommits], None] = lambda _: None,
        *,
        tasks_at_work: bool = False,
    ) -> Coordinator:
        """A coordinator for one run."""
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
            commit_counts=self.commit_counts,
            tasks_at_work=tasks_at_work,
            requests=self.graph.files.store_options.access.requests,
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
            finished: the input is over, or the job has stopped after a last checkpoint, and all
                is committed.
            cancelled: somebody has cancelled the job.
            stopped: somebody has asked it to stop after a last checkpoint.
            last: of the last run that has taken the job over; None if none has.
        """
        if self.temporary:
            if not finished:
                self._settle(self.new_coordinator(), None)
            shutil.rmtree(self.local_root, ignore_errors=True)
            shutil.rmtree(self.storage.location, ignore_errors=True)
        elif last is None:
            return  # what is there is of others
        elif self.discards(last, finished=finished, cancelled=cancelled, stopped=stopped):
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

    def discards(
        self, last: Coordinator, *, finished: bool, cancelled: bool = False, stopped: bool = False
    ) -> bool:
        """Return whether the checkpoints are deleted at an end; arguments as of ``clean_up``."""
        # Who stops a job is told where the checkpoint is: it is as a savepoint.
        if finished and stopped and _can_continue(last):
            return False
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


def _can_continue(last: Coordinator) -> bool:
    """Return whether the last checkpoint is none of the end of the input."""
    return last.last is None or not last.last.final
