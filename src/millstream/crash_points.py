"""The registry of crash points: named places before and after every durable step.

What it is: ``crash_point(NAME)`` is called at each durable step.  Normally it costs one dictionary
look-up in an empty dictionary.  When the environment variable ``MILLSTREAM_CRASH`` names the point
(``name`` or ``name:n`` for its n-th passing in this process tree; several are joined by commas),
the process group of the driver is killed with SIGKILL, exactly as ``kill -9`` would.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


ENVIRONMENT_VARIABLE: Final = "MILLSTREAM_CRASH"
#: Set beside it by the driver so that workers, which Spark puts into a process group of their
#: own, can kill the driver's group: the process group id of the driver.
GROUP_VARIABLE: Final = "MILLSTREAM_CRASH_GROUP"
#: What to kill instead of the driver's group: ``jvm``, Spark's, as the system does when memory runs
#: out; the driver and whoever passed the point go on.
VICTIM_VARIABLE: Final = "MILLSTREAM_CRASH_VICTIM"
JVM: Final = "jvm"
#: A directory in which passings are counted across processes and restarts.
COUNT_VARIABLE: Final = "MILLSTREAM_CRASH_DIRECTORY"

#: Name -> where in the protocol it lies: the part that passes it, a colon, and the place.  A test
#: fails if a durable step has none.
CRASH_POINTS: Final[dict[str, str]] = {
    "log.open.before": "driver: before a new generation is published in the manifest log",
    "log.open.after": "driver: the generation is published, nothing recovered yet",
    "lease.take.before": "lease: before a term of the lease is created",
    "lease.take.after": "lease: the term is there, the job is not taken over",
    "recover.commit.before": "driver: before the committables of the last manifest are recommitted",
    "recover.commit.after": "driver: they are committed, orphans not yet aborted",
    "recover.abort.before": "driver: before output of unpublished epochs is aborted",
    "recover.abort.after": "driver: orphans are aborted",
    "epoch.start.before": "driver: Spark logged the offsets, no task has run",
    "source.read.after": "task: the records of the epoch are read",
    "sink.prepare.before": "task: before a sink writer pre-commits",
    "sink.prepare.after": "task: output is durable and invisible",
    "state.flush.before": "task: before the state store is flushed",
    "state.flush.after": "task: the local snapshot exists",
    "state.upload.before": "task: before a state file is uploaded",
    "state.upload.after": "task: the state files are in the checkpoint storage",
    "task.ack.before": "task: all is durable, the acknowledgement is not sent",
    "barrier.align.before": "pipelined task: a barrier has come on one of its links",
    "barrier.align.after": "pipelined task: barriers have come on all links, no snapshot is taken",
    "barrier.send.before": "pipelined task: the snapshot is taken, nothing sent or uploaded",
    "barrier.send.after": "pipelined task: the barrier is sent on, nothing uploaded",
    "notify.before": "pipelined driver: a checkpoint is committed, the slots are not told",
    "notify.after": "pipelined driver: the slots were told that it is, none may have heard it",
    "barrier.overtake.before": "unaligned task: a barrier is to overtake, no snapshot is taken",
    "in-flight.upload.before": "unaligned task: before the frames in flight are uploaded",
    "in-flight.upload.after": "unaligned task: the frames in flight are in the checkpoint storage",
    "epoch.acks.after": "driver: every acknowledgement is in, nothing published",
    "manifest.publish.before": "driver: before the put-if-absent of the manifest",
    "manifest.publish.after": "driver: the manifest is published, nothing committed",
    "sink.commit.before": "driver: before a committable is committed",
    "sink.commit.after": "driver: after a committable is committed",
    "file.rename.before": "file sink: before a pending file is renamed",
    "file.rename.after": "file sink: after a pending file is renamed",
    "upload.begin.after": "object sink: a multipart upload is begun, nothing notes it",
    "upload.parts.before": "object sink: the upload is noted, no part is sent",
    "upload.parts.after": "object sink: all parts are durable and invisible",
    "upload.complete.before": "object sink: before an upload is completed",
    "upload.complete.after": "object sink: the object is visible, its note not deleted",
    "upload.abort.after": "object sink: an upload that no manifest names is aborted",
    "partition.commit.before": "partition commit: files are renamed, their partition is complete",
    "partition.commit.after": "partition commit: it is committed, that is not recorded",
    "overwrite.delete.before": "overwrite: what goes and what comes is recorded, nothing is done",
    "overwrite.delete.after": "overwrite: the old files are deleted, no new one is in its place",
    "overwrite.move.after": "overwrite: a new file is in its place",
    "table.transaction.before": "commit table: before the transaction of an epoch's rows",
    "table.commit.before": "commit table: rows and entries are written, not committed",
    "table.commit.after": "commit table: committed, staged rows are not dropped",
    "lakehouse.commit.before": "lakehouse sink: data files are durable, before the table's commit",
    "lakehouse.commit.after": "lakehouse sink: the table names them, that is not reported",
    "staged.write.before": "staged values: before an epoch's records are kept in the checkpoint",
    "staged.write.after": "staged values: the records are kept, not acknowledged",
    "wal.send.before": "write-ahead sink: before the results of an epoch are written",
    "wal.send.after": "write-ahead sink: they are written, that is not marked",
    "wal.marker.after": "write-ahead sink: they are marked",
    "transaction.handle.before": "two-phase sink: a transaction is begun, its handle not kept",
    "transaction.handle.after": "two-phase sink: its handle is kept, nothing written",
    "transaction.commit.before": "two-phase sink: before a transaction is committed",
    "transaction.commit.after": "two-phase sink: it is committed, its handle not deleted",
    "kafka.marker.before": "kafka sink: records are flushed, the transaction has no marker",
    "kafka.marker.after": "kafka sink: records and marker are in the open transaction",
    "kafka.commit.before": "kafka sink: before a prepared transaction is committed",
    "kafka.commit.after": "kafka sink: after a prepared transaction is committed",
    "kafka.abort.before": "kafka sink: before an orphaned transaction is aborted",
    "kafka.abort.after": "kafka sink: after an orphaned transaction is aborted",
    "prepared.prepare.before": "PostgreSQL two-phase: rows are in an open transaction",
    "prepared.prepare.after": "PostgreSQL two-phase: the transaction is prepared",
    "prepared.commit.before": "PostgreSQL two-phase: before COMMIT PREPARED",
    "prepared.commit.after": "PostgreSQL two-phase: after COMMIT PREPARED",
    "upsert.commit.before": "PostgreSQL upsert: rows are merged, not committed",
    "upsert.commit.after": "PostgreSQL upsert: rows are visible, the epoch is not published",
    "sink.abort.before": "driver: before output of lost attempts is aborted",
    "sink.abort.after": "driver: after output of lost attempts is aborted",
    "cleanup.before": "driver: before old checkpoints are cleaned up",
    "cleanup.after": "driver: after old checkpoints are cleaned up",
    "epoch.end.before": "driver: all committed, Spark has not logged its commit",
    "splits.log.before": "driver: before newly discovered splits are logged",
    "splits.log.after": "driver: newly discovered splits are logged",
    "splits.compact.before": "split log: before files of discovered splits are made one",
    "splits.compact.after": "split log: they are one, the old ones not deleted",
    "savepoint.write.before": "savepoint: its checkpoint is committed, nothing is written",
    "savepoint.file.after": "savepoint: a state file is copied",
    "savepoint.publish.before": "savepoint: all files are written, it is not complete",
    "savepoint.publish.after": "savepoint: it is complete, nobody was told",
    "savepoint.restore.before": "start: a job is to start from a savepoint, nothing is copied",
    "savepoint.copy.after": "start: a state file of the savepoint is copied",
    "savepoint.begin.before": "start: all files are copied, the first manifest is not published",
    "savepoint.begin.after": "start: the first manifest is published, nothing recovered",
    "savepoint.delete.before": "claim: the first own checkpoint is there, the savepoint too",
    "savepoint.delete.after": "claim: the savepoint is deleted",
    "checkpoint.restore.before": "restore: a job is to go back to a checkpoint, nothing is written",
    "checkpoint.restore.after": "restore: the checkpoint is published again as the newest",
}


def points_of(*parts: str) -> list[str]:
    """The names of the points that these parts pass ("driver", "task", "file sink", ...)."""
    return sorted(name for name, place in CRASH_POINTS.items() if place.split(":")[0] in parts)


def _parse(value: str) -> dict[str, int]:
    armed: dict[str, int] = {}
    for part in filter(None, value.split(",")):
        name, _, count = part.partition(":")
        if name not in CRASH_POINTS:
            known = ", ".join(sorted(CRASH_POINTS))
            message = f"unknown crash point {name!r}; known are: {known}"
            raise ValueError(message)
        armed[name] = int(count or 1)
    return armed


_armed: dict[str, int] = _parse(os.environ.get(ENVIRONMENT_VARIABLE, ""))
_action: Callable[[str], None] | None = None


def arm(value: str, action: Callable[[str], None] | None = None) -> None:
    """Arm ``name`` or ``name:n`` in this process, or several (an empty string disarms).

    Args:
        value: what to arm; processes that are forked later have it armed, too.
        action: what to do, once, in the process that passes the point for the n-th time; it is
            given the point's name.  None: kill the driver's process group.
    """
    global _action  # noqa: PLW0603 - one process, one fault
    _armed.clear()
    _armed.update(_parse(value))
    _action = action


def crash_point(name: str) -> None:
    """Die here, with the whole process group of the driver, if ``name`` is armed.

    With ``MILLSTREAM_CRASH_VICTIM=jvm`` Spark's JVM dies alone.

    Raises:
        KeyError: the name is not in the registry (only when some point is armed).
    """
    if not _armed:
        return
    CRASH_POINTS[name]
    if name not in _armed:
        return
    passings, wanted = _passings(name), _armed[name]
    if _action is None:
        if passings >= wanted:
            if os.environ.get(VICTIM_VARIABLE) == JVM:
                kill_jvm()
            else:
                kill_driver_group()
    elif passings == wanted:
        del _armed[name]  # without a directory that counts, the action is not to be repeated
        _action(name)


def kill_driver_group() -> None:
    """Kill the driver's process group, and this process, with SIGKILL."""
    group = int(os.environ.get(GROUP_VARIABLE, "0")) or os.getpgrp()
    with contextlib.suppress(ProcessLookupError):  # the group may already be dead
        os.killpg(group, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_jvm() -> None:
    """Kill Spark's JVM, which is in the driver's process group; nothing happens if it is gone."""
    group = int(os.environ.get(GROUP_VARIABLE, "0")) or os.getpgrp()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            same = os.getpgid(int(process.name)) == group
            if (
                same
                and b"org.apache.spark.deploy.SparkSubmit" in (process / "cmdline").read_bytes()
            ):
                os.kill(int(process.name), signal.SIGKILL)


def _passings(name: str) -> int:
    """How often the point was passed so far, counted in files so that all processes share it."""
    directory = os.environ.get(COUNT_VARIABLE)
    if directory is None:
        return _armed[name]
    number = 1
    while True:
        try:
            descriptor = os.open(Path(directory) / f"{name}.{number}", os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            number += 1
            continue
        os.close(descriptor)
        return number
