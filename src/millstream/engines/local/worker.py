"""A worker process: runs the tasks that the driver sends, one at a time.

Stage instances are kept from epoch to epoch.  A thread watches the connection and ends the process
at once when the driver is gone, whatever the task is doing.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import pickle
import select
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import cloudpickle
import numpy as np
import pyarrow as pa

from millstream.runtime.exchange import ACKNOWLEDGEMENT_STAGE, FRAME_SCHEMA
from millstream.runtime.job_files import bring_files, working_directory
from millstream.runtime.last_given import begin_notes, end_careful_mode
from millstream.runtime.stage import StageInstance
from millstream.runtime.task import Task
from millstream.runtime.user_code import exit_error, portable_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path
    from types import FrameType

    from numpy.typing import NDArray

    from millstream.graph.job_files import JobFiles
    from millstream.graph.model import JobGraph
    from millstream.runtime.plan import EpochPlan


class TaskHost:
    """Runs tasks of one job in this process."""

    def __init__(self, graph: bytes, files: JobFiles) -> None:
        self._pickled = graph
        self._files = files
        self._instances: dict[tuple[int, int], StageInstance] = {}
        self._first_epoch: int | None = None

    def bring_files(self) -> None:
        """Bring the files of the job, before plan and graph, which may be of what they hold."""
        bring_files(self._files)

    def run(
        self, plan: EpochPlan, level: int, subtask: int, frames: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Run a task; ``bring_files`` has been called.

        Returns:
            The frames that it makes, and its acknowledgement.
        """
        if self._first_epoch is None:
            self._first_epoch = plan.epoch
        elif plan.epoch != self._first_epoch:
            end_careful_mode()
        key = (level, subtask)
        with working_directory(self._files):
            instance = self._instances.pop(key, None) or self._open(level, subtask)
            # While it runs, the instance is not kept: a failure leaves it unusable.
            yield from _run(instance, plan, frames)
            self._instances[key] = instance

    def holds(self, level: int, subtask: int) -> bool:
        """Return whether an instance of that subtask lives here."""
        return (level, subtask) in self._instances

    def forget(self, level: int, subtask: int) -> None:
        """Close the instance of a subtask, which continues elsewhere."""
        instance = self._instances.pop((level, subtask), None)
        if instance is not None:
            instance.close()

    def close(self) -> None:
        """Close all user functions."""
        with contextlib.ExitStack() as closing:
            while self._instances:
                closing.callback(self._instances.popitem()[1].close)

    def _open(self, level: int, subtask: int) -> StageInstance:
        # A graph of its own for each: the functions of two subtasks share nothing.
        graph: JobGraph = cloudpickle.loads(self._pickled)
        instance = StageInstance(graph, level, subtask)
        instance.open()
        return instance


def _run(
    instance: StageInstance, plan: EpochPlan, frames: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    try:
        yield from Task(instance, plan).run(iter(frames))
    except BaseException:
        # Operators give up what they had begun, while it may still be under way.
        instance.give_up()
        raise


#: Exact order of what a task reads: the channel that lags first, each channel in its order.
_ORDER: Final = ("sequence", "channel", "edge", "watermark")
_NONE: Final = np.zeros(0, dtype=np.int64)


def write_frames(batches: Iterable[pa.RecordBatch], path: Path) -> list[bytes]:
    """Write the frames that a task makes, as it makes them.

    Returns:
        The payloads of its acknowledgements, which go to the driver instead.
    """
    acks: list[bytes] = []
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, FRAME_SCHEMA) as writer:
        for batch in batches:
            found = _payloads_of_acks(batch)
            acks += found
            if len(found) < batch.num_rows:
                writer.write_batch(batch)
    return acks


def _payloads_of_acks(batch: pa.RecordBatch) -> list[bytes]:
    """The acknowledgements among some frames."""
    stages = batch.column("stage").to_numpy()
    (found,) = np.nonzero(stages == ACKNOWLEDGEMENT_STAGE)
    payloads = batch.column("payload")
    return [payloads[int(row)].as_py() for row in found]


class StageFrames:
    """The frames of all producers of a stage, mapped into memory, and which of them a task reads.

    The frames are put in order once for all subtasks: a worker runs several of them, and each task
    would otherwise open the file of each producer, which takes longest where there are many.
    """

    def __init__(self, paths: Sequence[Path], parallelism: int) -> None:
        """Map the files.

        Args:
            paths: of the files.
            parallelism: of the stage.  Frames for later stages go through a task of it, always the
                same one.
        """
        self._batches: list[pa.RecordBatch] = []
        for path in paths:
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            numbers = range(reader.num_record_batches)
            self._batches += [reader.get_batch(number) for number in numbers]
        rows = [np.arange(batch.num_rows) for batch in self._batches]
        origins = [np.full(len(each), number) for number, each in enumerate(rows)]
        targets = self._column("subtask") % parallelism
        order = np.lexsort([*(self._column(name) for name in _ORDER), targets])
        order = order[self._column("stage")[order] != ACKNOWLEDGEMENT_STAGE]
        self._targets = targets[order]
        self._origins = np.concatenate([_NONE, *origins])[order]
        self._rows = np.concatenate([_NONE, *rows])[order]

    def _column(self, name: str) -> NDArray[np.int64]:
        return np.concatenate([_NONE, *(each.column(name).to_numpy() for each in self._batches)])

    def addressed(self, subtask: int) -> Iterator[pa.RecordBatch]:
        """Give the frames for one subtask, in processing order, as slices of what is mapped."""
        begin, end = np.searchsorted(self._targets, [subtask, subtask + 1]).tolist()
        origins, rows = self._origins[begin:end], self._rows[begin:end]
        # Neighbors that were neighbors before continue together.
        apart = (np.diff(origins) != 0) | (np.diff(rows) != 1)
        for first, last in itertools.pairwise([0, *(np.flatnonzero(apart) + 1), len(rows)]):
            if first < last:
                batch = self._batches[int(origins[first])]
                yield batch.slice(int(rows[first]), int(last - first))


class FrameFiles:
    """Reads what tasks read; keeps the frames of a stage until another one is read."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._frames: StageFrames | None = None

    def read(
        self, paths: Sequence[Path], subtask: int, parallelism: int
    ) -> Iterator[pa.RecordBatch]:
        """Give the frames for one subtask of a stage, in processing order."""
        found = [path.stat() for path in paths]
        # An epoch that is repeated has the names of its first attempt.
        files = [
            (path, each.st_ino, each.st_mtime_ns) for path, each in zip(paths, found, strict=True)
        ]
        key = (*files, parallelism)
        if self._frames is None or key != self._key:
            self._frames, self._key = StageFrames(paths, parallelism), key
        return self._frames.addressed(subtask)


#: Of this process.
_files: Final = FrameFiles()
#: Exit code of a worker that was told to give up.
_GIVEN_UP: Final = 0


@dataclass(frozen=True, slots=True)
class RunMessage:
    """A run begins: what its tasks have in common.  Instances of the run before are closed."""

    graph: bytes
    files: JobFiles
    #: A worker was lost in the run before.
    careful: bool = False


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """A task to run."""

    #: The file of the plan, pickled by value: workers may lack the program's modules.  Not the plan
    #: itself: what a worker is sent must be small, or one that does not read blocks the driver.
    plan: Path
    level: int
    subtask: int
    parallelism: int
    #: Where its frames are.
    inputs: Sequence[Path]
    #: Where those that it makes go.
    output: Path
    #: The subtask comes from elsewhere: an instance that is here is not used.
    moved: bool = False


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """The output of one task."""

    frames: Path
    acks: list[bytes]


class _GiveUpError(BaseException):
    """The driver does not want the task any more."""


def serve(connection: Connection) -> None:
    """Return what a worker does; it ends with the driver."""
    threading.Thread(target=_end_with, args=(connection.fileno(),), daemon=True).start()
    serve_and_outlive(connection)


def serve_and_outlive(connection: Connection) -> None:
    """Return what a worker does; a task that is at work when the driver ends is run to its end."""
    signal.signal(signal.SIGTERM, _give_up)
    # Records are many short-lived objects without cycles: collecting them often only costs.
    gc.set_threshold(200_000, 20, 100)
    host: TaskHost | None = None
    try:
        # The driver is gone, or has let go.
        with contextlib.suppress(EOFError, OSError, _GiveUpError):
            while True:
                message = pickle.loads(connection.recv_bytes())
                if isinstance(message, RunMessage):
                    if host is not None:
                        # Of a run that has failed: what its functions raise now must not fail
                        # this one.
                        with contextlib.suppress(Exception):
                            host.close()
                    begin_notes(careful=message.careful)
                    host = TaskHost(message.graph, message.files)
                elif host is not None:
                    connection.send_bytes(_answer(host, message))
    finally:
        if host is not None:
            with contextlib.suppress(_GiveUpError):
                host.close()


def _answer(host: TaskHost, request: TaskRequest) -> bytes:
    try:
        host.bring_files()
        plan = cast("EpochPlan", pickle.loads(request.plan.read_bytes()))
        if request.moved:
            host.forget(request.level, request.subtask)
        frames = _files.read(request.inputs, request.subtask, request.parallelism)
        made = host.run(plan, request.level, request.subtask, frames)
        return pickle.dumps(TaskOutput(request.output, write_frames(made, request.output)))
    except (SystemExit, KeyboardInterrupt) as error:
        return portable_error(exit_error(error))
    except Exception as error:  # noqa: BLE001 - the driver's to raise
        return portable_error(error)


def _give_up(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise _GiveUpError


def _end_with(descriptor: int) -> None:
    """End the process when the other end of the connection is closed."""
    poll = select.poll()
    # Hang-ups and errors are always told; what arrives is the main thread's.
    poll.register(descriptor, 0)
    poll.poll()
    os._exit(_GIVEN_UP)
