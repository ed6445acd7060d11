"""Savepoints of a job: who has asked for one, which checkpoint it is, and what a job starts from.

A savepoint is a copy of a checkpoint that the job takes in any case, or earlier than it would: one
that is aligned, published and committed.  So the job never falls back behind a savepoint, and all
output before it is committed by the job that took it.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.requests import Answer, Request, new_requests
from millstream.checkpoint.savepoint import (
    NATIVE,
    Origin,
    SavepointFormat,
    SavepointFormatType,
    SavepointSettings,
    StartingPoint,
    checkpoint_identity,
    delete_savepoint,
    new_directory,
    read_sources,
    write_savepoint,
)
from millstream.checkpoint.storages import open_storage_of
from millstream.configuration import options
from millstream.configuration.options import CheckpointingMode
from millstream.crash_points import crash_point
from millstream.directories import DirectoryUse, probe
from millstream.errors import (
    CheckpointError,
    ConfigurationError,
    JobError,
    MillstreamError,
    ProgramError,
)
from millstream.object_stores import StoreOptions, is_object_store
from millstream.state.canonical.write import CANONICAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.checkpoint.coordinator import Coordinator
    from millstream.checkpoint.model import Manifest
    from millstream.configuration.configuration import Configuration
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.graph.model import JobGraph


_LOG: Final = logging.getLogger("millstream")
_SAVEPOINTS: Final = DirectoryUse("savepoint directory", options.SAVEPOINT_DIRECTORY.key)
#: How often a savepoint is begun again because the run whose checkpoint it was has ended.
_MOST_TRIES: Final = 3


def savepoint_format(kind: SavepointFormatType) -> SavepointFormat:
    """How savepoints of a format are written."""
    return NATIVE if kind is SavepointFormatType.NATIVE else CANONICAL


def settings_of(configuration: Configuration) -> SavepointSettings:
    """How savepoints are signed and flushed, as a job's options say."""
    return SavepointSettings(
        configuration.get(options.CHECKPOINT_HMAC_KEY_FILE),
        configuration.get(options.CHECKPOINT_FSYNC),
        StoreOptions.of(configuration),
    )


def require_savepoints(graph: JobGraph, directory: str | None) -> str:
    """The directory in which a savepoint of a job is to be made.

    Args:
        graph: the job.
        directory: as it was given; None: the one that the options name.

    Raises:
        ProgramError: none is named, or the job can have no savepoints.
        ConfigurationError: it is at a place that is not supported.
        DirectoryError: it cannot be written to.
    """
    configuration = graph.configuration
    found = directory or configuration.get(options.SAVEPOINT_DIRECTORY)
    name = graph.job_name
    if not found:
        message = (
            f"no directory for a savepoint of job {name!r}: give one, or set"
            f" {options.SAVEPOINT_DIRECTORY.key}"
        )
        raise ProgramError(message)
    if CheckpointingMode[configuration.get(options.CHECKPOINTING_MODE)] is CheckpointingMode.NONE:
        message = (
            f"job {name!r} has no savepoints: with {options.CHECKPOINTING_MODE.key} NONE no"
            " checkpoint has state"
        )
        raise ProgramError(message)
    frames = [node for node in graph.nodes.values() if node.spark_index is not None]
    if frames:
        message = (
            f"job {name!r} has no savepoints: how far {frames[0].name!r} ({frames[0].location}), a"
            " Spark DataFrame, is read stands in Spark's own log alone"
        )
        raise ProgramError(message)
    storage = open_storage_of(configuration, found)
    if is_object_store(found):
        storage.probe()
    else:
        probe(_SAVEPOINTS, Path(storage.location))
    return storage.location


def starting_point(
    graph: JobGraph, storage: CheckpointStorage | None, last: Manifest | None
) -> StartingPoint | None:
    """Return what a job starts from; None: from its own checkpoints, or from scratch.

    Cases (whether a path is given, and what the checkpoint directory of the job has):

    1. A path, no checkpoint -> that is what it starts from, whoever was to begin here before.
    2. A path, checkpoints of a job that has started from there -> it goes on from those: a driver
       that is started again with the same options does not fall back.  The savepoint may be gone.
    3. A path, and the newest checkpoint is the very one of it -> as 2: the job was stopped with it.
    4. A path, other checkpoints -> refused: they or the savepoint would be passed over.
    5. No path, but a run was to start from a savepoint and has not come to it -> refused: it would
       start from scratch.
    6. No path -> None.

    Args:
        graph: the job.
        storage: its checkpoint directory; None: a temporary one.
        last: its newest checkpoint.

    Raises:
        CheckpointError: case 4 or 5, or there is nothing to start from.
        CorruptCheckpointError, UnknownFormatError, SignatureError: it cannot be used.
        ConfigurationError: it cannot be claimed.
    """
    configuration = graph.configuration
    path = configuration.get(options.SAVEPOINT_PATH)
    origin = None if storage is None else Origin.load(storage)
    where = "" if storage is None else storage.location
    if not path:
        if origin is not None and last is None:
            message = (
                f"the job in {where} was to start from {origin} and has not come to it;"
                f" without {options.SAVEPOINT_PATH.key} it would start from scratch. Set that, or"
                " use an empty directory"
            )
            raise CheckpointError(message)
        return None
    if origin is not None and last is not None and not _is_another(origin, graph, path):
        return None
    start = StartingPoint.open(path, settings_of(configuration))
    if last is not None:
        if checkpoint_identity(last) == checkpoint_identity(start.manifest):
            return None
        message = (
            f"the job is to start from {start.origin}, but {where} has other"
            f" checkpoints, up to {last.epoch}, which do not come from there. To start from the"
            f" savepoint, use an empty {options.CHECKPOINTS_DIRECTORY.key}; to continue from the"
            f" checkpoints of the job, leave {options.SAVEPOINT_PATH.key} out"
        )
        raise CheckpointError(message)
    if claims(configuration) and not start.is_savepoint:
        message = (
            f"{options.CLAIM_MODE.key} is CLAIM, but {start.storage.location} is the checkpoint"
            " directory of a job, which owns it. Take NO_CLAIM, or continue in that directory with"
            f" {options.CHECKPOINTS_DIRECTORY.key}"
        )
        raise ConfigurationError(message)
    start.verify()
    return start


def _is_another(origin: Origin, graph: JobGraph, path: str) -> bool:
    """Return whether the savepoint at a path is known to be another than a job has started from."""
    settings = settings_of(graph.configuration)
    try:
        found = StartingPoint.open(path, settings).origin
    except CheckpointError:
        # It may be deleted once the job has checkpoints; what is at another path is judged there.
        return origin.path != settings.storage(path).location
    return found.savepoint_id != origin.savepoint_id


def claims(configuration: Configuration) -> bool:
    """Return whether the job owns the savepoint that it starts from."""
    return configuration.get(options.CLAIM_MODE) == "CLAIM"


def delete_claimed(origin: Origin, configuration: Configuration) -> None:
    """Delete the savepoint that a job has claimed and does not need any more.

    That it fails is logged: the job does not depend on it.
    """
    storage = settings_of(configuration).storage(origin.path)
    crash_point("savepoint.delete.before")
    try:
        if JobIdentity.load(storage) is not None:
            delete_savepoint(storage, origin.savepoint_id)
    except (MillstreamError, OSError) as error:
        _LOG.warning("the savepoint %s, which the job owns, is not deleted: %s", origin, error)
    else:
        crash_point("savepoint.delete.after")


class SavepointRequest:
    """A savepoint that somebody waits for."""

    def __init__(
        self, directory: str, kind: SavepointFormatType = SavepointFormatType.CANONICAL
    ) -> None:
        """Ask for one below a directory, in a format."""
        self.directory = directory
        self.kind = kind
        #: The checkpoint that it is to be; None: none yet.
        self.epoch: int | None = None
        self.tries = 0
        self._ended = threading.Event()
        self._path = ""
        self._error: BaseException | None = None

    def result(self) -> str:
        """Wait for it.

        Returns:
            Its directory.

        Raises:
            Exception: what kept it from being made.
        """
        # Waking up now and then lets the main thread take a keyboard interrupt.
        while not self._ended.wait(0.2):
            pass
        if self._error is not None:
            raise self._error
        return self._path

    @property
    def is_over(self) -> bool:
        """Return whether it is there, or will not come."""
        return self._ended.is_set()

    def complete(self, path: str) -> None:
        """Note where it is."""
        self._path = path
        self._ended.set()

    def fail(self, error: BaseException) -> None:
        """Note why it will not come."""
        if not self._ended.is_set():
            self._error = error
            self._ended.set()


class Savepoints:
    """The savepoints of one job, over its restarts.

    Contract:
      1. ``begun`` is called for each checkpoint with nothing in flight, before any task can
         acknowledge it; ``committed`` when one is committed, before older ones are deleted; from
         one thread each.  (engines, coordinator)
      2. A request that was made before ``begun`` is of that checkpoint or a later one.  (here)

    Args:
        storage: of the job's checkpoints.
        job_id: of the job.
        graph: the job.
    """

    def __init__(self, storage: CheckpointStorage, job_id: str, graph: JobGraph) -> None:
        self._storage = storage
        self._job_id = job_id
        self._graph = graph
        self._lock = threading.Lock()
        self._requests: list[SavepointRequest] = []
        self._writers: list[threading.Thread] = []
        self._is_closed = False
        #: Told the checkpoint, the directory and the format of each that is complete.
        self.on_written: Callable[[int, str, str], None] = lambda *_: None

    def ask(
        self,
        directory: str | None,
        kind: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> SavepointRequest:
        """Ask for a savepoint of the running job, in a format.

        Raises:
            ProgramError: there can be none, or no directory is named.
        """
        request = SavepointRequest(require_savepoints(self._graph, directory), kind)
        with self._lock:
            if self._is_closed:
                request.fail(self._ended("has ended"))
                return request
            self._requests.append(request)
        return request

    @property
    def is_wanted(self) -> bool:
        """Return whether a checkpoint is to be taken for a savepoint."""
        # Asked in each turn of a loop: without the lock while there is nothing.
        if not self._requests:
            return False
        with self._lock:
            return any(each.epoch is None for each in self._requests)

    def begun(self, epoch: int) -> None:
        """A checkpoint begins that has nothing in flight."""
        if self._requests:
            with self._lock:
                for each in self._requests:
                    each.epoch = epoch if each.epoch is None else each.epoch

    def given_up(self, epochs: Iterable[int] | None = None, reason: str = "") -> None:
        """Checkpoints will not be published.

        Args:
            epochs: which; None: all of a run that has ended.  Those who wait get the next.
            reason: why, if the savepoints are to fail with them.
        """
        gone = None if epochs is None else set(epochs)
        for each in self._taken(lambda request: gone is None or request.epoch in gone, keep=True):
            each.epoch = None
            if reason:
                self._drop(each)
                each.fail(CheckpointError(f"there is no savepoint: {reason}"))

    def is_for_savepoint(self, epoch: int) -> bool:
        """Return whether somebody waits for this checkpoint."""
        with self._lock:
            return any(each.epoch == epoch for each in self._requests)

    def committed(self, coordinator: Coordinator, manifest: Manifest) -> None:
        """A checkpoint is committed: begin to copy it, for those who wait for it.

        Args:
            coordinator: keeps its files meanwhile.
            manifest: the checkpoint.
        """
        if not self._requests:
            return
        for request in self._taken(lambda each: each.epoch == manifest.epoch):
            release = coordinator.hold(manifest)
            try:
                splits = read_sources(self._storage)
            except Exception as error:  # noqa: BLE001 - the job goes on
                release()
                request.fail(error)
                continue
            writer = threading.Thread(
                target=self._write,
                args=(request, manifest, splits, release),
                name="millstream-savepoint",
                daemon=True,
            )
            with self._lock:
                self._writers = [each for each in self._writers if each.is_alive()] + [writer]
            writer.start()

    def stopped(self, request: SavepointRequest, last: Manifest | None, *, drains: bool) -> None:
        """The job has stopped with a last checkpoint, which is to be a savepoint.

        Args:
            request: as it was asked for.
            last: the checkpoint; None if there is none.
            drains: whether the end of the input was to come first.
        """
        if last is None or (last.final and not drains):
            request.fail(
                self._ended(
                    "stopped before its first checkpoint"
                    if last is None
                    else "had come to the end of its input before it could stop"
                )
            )
            return
        try:
            request.complete(self._written(request, last, read_sources(self._storage)))
        except Exception as error:  # noqa: BLE001 - the job has stopped well
            request.fail(error)

    def close(self, how: str) -> None:
        """Wait for what is being written; nothing else comes.

        Args:
            how: the end of the job, for those who wait.
        """
        with self._lock:
            self._is_closed = True
            writers = list(self._writers)
        for each in writers:
            each.join()
        for request in self._taken(lambda _: True):
            request.fail(self._ended(how))

    def _taken(
        self, wanted: Callable[[SavepointRequest], bool], *, keep: bool = False
    ) -> list[SavepointRequest]:
        with self._lock:
            found = [each for each in self._requests if wanted(each)]
            if not keep:
                self._requests = [each for each in self._requests if each not in found]
        return found

    def _drop(self, request: SavepointRequest) -> None:
        with self._lock:
            self._requests.remove(request)

    def _write(
        self,
        request: SavepointRequest,
        manifest: Manifest,
        splits: Mapping[str, bytes],
        release: Callable[[], None],
    ) -> None:
        try:
            request.complete(self._written(request, manifest, splits))
        except FileNotFoundError as error:
            self._again(request, error)
        except Exception as error:  # noqa: BLE001 - the job goes on
            _LOG.warning("a savepoint of job %r failed: %s", self._graph.job_name, error)
            request.fail(error)
        finally:
            release()

    def _again(self, request: SavepointRequest, error: FileNotFoundError) -> None:
        """The run has ended meanwhile, and the next one has deleted files: take another one."""
        request.tries += 1
        with self._lock:
            if request.tries < _MOST_TRIES and not self._is_closed:
                request.epoch = None
                self._requests.append(request)
                return
        message = f"a state file of checkpoint {request.epoch} is missing: {error}"
        request.fail(CheckpointError(message))

    def _written(
        self, request: SavepointRequest, manifest: Manifest, splits: Mapping[str, bytes]
    ) -> str:
        directory = new_directory(request.directory, self._job_id)
        target = settings_of(self._graph.configuration).storage(directory)
        identity = JobIdentity(self._job_id, self._graph.job_name, manifest.program)
        path = write_savepoint(
            target, identity, manifest, self._storage, splits, savepoint_format(request.kind)
        )
        _LOG.info(
            "savepoint of job %r at checkpoint %d: %s",
            *(self._graph.job_name, manifest.epoch, path),
            extra={"checkpoint_id": manifest.epoch},
        )
        self.on_written(manifest.epoch, path, request.kind.name)
        return path

    def _ended(self, how: str) -> JobError:
        return JobError(f"there is no savepoint: job {self._graph.job_name!r} {how}")


class RequestWatch:
    """Hears who asks for a savepoint or an end through the checkpoint directory, while a job runs.

    Args:
        storage: the checkpoint directory.
        is_owner: whether this driver has the job, and not a newer one.
        trigger: takes a savepoint below a directory, in a format; returns its path.
        stop: stops the job with a savepoint; given the directory, whether to drain, and the format.
        cancel: cancels the job.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        is_owner: Callable[[], bool],
        trigger: Callable[[str | None, SavepointFormatType], str],
        stop: Callable[[str | None, bool, SavepointFormatType], str],
        cancel: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._is_owner = is_owner
        self._trigger = trigger
        self._stop = stop
        self._cancel = cancel

    def run(self, ended: threading.Event) -> None:
        """Look until the job has ended."""
        interval = self._storage.poll_interval
        while not ended.wait(interval):
            try:
                self._look()
            except (MillstreamError, OSError) as error:
                _LOG.warning("a request for a savepoint is not heard: %s", error)
                ended.wait(10 * interval)

    def _look(self) -> None:
        for request in new_requests(self._storage):
            if not self._is_owner():
                return
            request.reply(self._storage, Answer("accepted"))
            # The process does not end before the answer is written.
            threading.Thread(
                target=self._handle, args=(request,), name="millstream-request"
            ).start()

    def _handle(self, request: Request) -> None:
        try:
            kind = SavepointFormatType(request.format)
            if request.cancel:
                self._cancel()
                path = self._storage.location
            elif request.stop:
                path = self._stop(request.directory, request.drain, kind)
            else:
                path = self._trigger(request.directory, kind)
            answer = Answer("done", path)
        except Exception as error:  # noqa: BLE001 - told to who has asked
            answer = Answer("failed", error=str(error) or repr(error))
        try:
            request.reply(self._storage, answer)
        except (MillstreamError, OSError) as error:
            _LOG.warning("the answer to a request for a savepoint is not written: %s", error)
