"""A worker process: runs the tasks that the driver sends it, until the driver lets go.

What it is: one task at a time; stage instances are kept from epoch to epoch.  A thread looks at the
connection and ends the process at once when the driver is gone, whatever the task is doing.

What it is not: what a task does (``engines/local/task_host.py``), nor the driver's side
(``engines/local/pool.py``).

Read next: ``engines/local/task_host.py``, ``engines/local/frame_files.py``.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import signal
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from millstream.engines.local.frame_files import FrameFiles, write_frames
from millstream.engines.local.task_host import TaskHost
from millstream.runtime.last_given import begin_notes
from millstream.runtime.user_code import exit_error, portable_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path
    from types import FrameType

    from millstream.graph.job_files import JobFiles
    from millstream.runtime.plan import EpochPlan

__all__ = ["RunMessage", "TaskOutput", "TaskRequest", "serve", "serve_and_outlive"]

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
    """What a task leaves."""

    frames: Path
    acks: list[bytes]


class _GiveUpError(BaseException):
    """The driver does not want the task any more."""


def serve(connection: Connection) -> None:
    """What a worker does; it ends with the driver."""
    threading.Thread(target=_end_with, args=(connection.fileno(),), daemon=True).start()
    serve_and_outlive(connection)


def serve_and_outlive(connection: Connection) -> None:
    """What a worker does; a task that is at work when the driver ends is run to its end."""
    signal.signal(signal.SIGTERM, _give_up)
    if "numpy.random" in sys.modules:
        # Else all workers would draw the same numbers; Python's own does this by itself.
        sys.modules["numpy.random"].seed()
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
