"""The pool of worker processes of a job, which runs the tasks of a stage.

Each subtask runs in the same process as long as that lives.  A worker that dies fails the tasks of
the epoch and is replaced for the next.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
from collections import deque
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Final, cast

from millstream.engines.local.fork_server import ForkServer
from millstream.engines.local.worker import TaskOutput, serve, serve_and_outlive
from millstream.errors import EngineError, WorkerLostError
from millstream.runtime.last_given import last_given
from millstream.types.pickling import dumps_by_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.engines.local.worker import RunMessage, TaskRequest


#: Seconds that a worker may take to give up a task, or to end: user functions are closed then.
_PATIENCE: Final = 5.0
#: Seconds between two looks whether the tasks are to be given up.
_LOOK_SECONDS: Final = 0.05


@dataclass(slots=True, eq=False)
class _Worker:
    pid: int
    connection: Connection
    #: What it was last told of a run.
    run: RunMessage | None = None


class WorkerPool:
    """Worker processes, forked when they are needed.

    To be made before the driver has threads of its own.

    Args:
        workers: how many run tasks; subtask n runs in worker n modulo this.
        orphans_die: whether workers end with the driver, whatever they are doing.
    """

    def __init__(self, workers: int = 2, *, orphans_die: bool = True) -> None:
        self._fork_server = ForkServer(
            serve if orphans_die else serve_and_outlive, orphans_die=orphans_die
        )
        self._workers: list[_Worker | None] = [None] * workers
        self._run: RunMessage | None = None
        #: A worker was lost since the last run began.
        self._has_lost = False
        #: The tasks that are at work are to be given up.
        self.giving_up = threading.Event()

    @property
    def pids(self) -> list[int]:
        """The processes that run tasks."""
        return [worker.pid for worker in self._workers if worker is not None]

    def grow(self, workers: int) -> None:
        """Have at least so many workers; no task is at work."""
        self._workers += [None] * (workers - len(self._workers))

    def begin_run(self, run: RunMessage) -> None:
        """Let the tasks that follow be of another run."""
        self._run = replace(run, careful=self._has_lost)
        self._has_lost = False

    def run(
        self, tasks: Sequence[TaskRequest], cancelled: threading.Event | None = None
    ) -> list[TaskOutput]:
        """Run tasks side by side; returns what they leave, in their order.

        After an error none of them is at work any more.

        Raises:
            WorkerLostError: a worker died.
            EngineError: no worker can be started.
            Exception: what a task raised.
        """
        stops = [self.giving_up, *([] if cancelled is None else [cancelled])]
        waiting: dict[int, deque[int]] = {}
        for number, task in enumerate(tasks):
            waiting.setdefault(task.subtask % len(self._workers), deque()).append(number)
        outputs: dict[int, TaskOutput] = {}
        busy: dict[Connection, tuple[int, int]] = {}
        try:
            for index, numbers in waiting.items():
                self._send(index, numbers.popleft(), tasks, busy)
            while busy:
                for connection in wait(list(busy), _LOOK_SECONDS):
                    index, number = busy.pop(cast("Connection", connection))
                    outputs[number] = self._receive(index, tasks[number])
                    if waiting[index]:
                        self._send(index, waiting[index].popleft(), tasks, busy)
                _require_wanted(stops)
        except BaseException:
            self._stop([index for index, _ in busy.values()])
            raise
        return [outputs[number] for number in range(len(tasks))]

    def kill(self) -> None:
        """Kill the processes that run tasks, with SIGKILL, and wait until they are gone."""
        for worker in self._workers:
            if worker is not None:
                os.kill(worker.pid, signal.SIGKILL)
                self._fork_server.wait(worker.pid)

    def close(self) -> None:
        """Let the workers close their user functions, and end."""
        self._stop(range(len(self._workers)))
        self._fork_server.close()

    def _worker(self, index: int) -> _Worker:
        worker = self._workers[index]
        if worker is None:
            try:
                worker = self._workers[index] = _Worker(*self._fork_server.fork())
            except OSError as error:
                message = f"no worker process can be started: {error}"
                raise EngineError(message) from error
        return worker

    def _send(
        self,
        index: int,
        number: int,
        tasks: Sequence[TaskRequest],
        busy: dict[Connection, tuple[int, int]],
    ) -> None:
        worker, task = self._worker(index), tasks[number]
        # Noted first: whatever happens in sending, the worker is not idle.
        busy[worker.connection] = (index, number)
        try:
            if self._run is not None and worker.run is not self._run:
                worker.connection.send_bytes(dumps_by_value(self._run))
                worker.run = self._run
            worker.connection.send_bytes(pickle.dumps(task))
        except OSError as error:
            del busy[worker.connection]
            raise self._lost(index, task) from error

    def _receive(self, index: int, task: TaskRequest) -> TaskOutput:
        worker = self._worker(index)
        try:
            content = worker.connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._lost(index, task) from error
        answer: object = pickle.loads(content)
        if isinstance(answer, TaskOutput):
            return answer
        if isinstance(answer, BaseException):
            raise answer
        message = f"a worker process answered with {answer!r}"
        raise EngineError(message)

    def _lost(self, index: int, task: TaskRequest) -> WorkerLostError:
        worker = self._worker(index)
        self._workers[index] = None
        self._has_lost = True
        worker.connection.close()
        code = self._fork_server.wait(worker.pid)
        return WorkerLostError(
            f"worker process {worker.pid} {how_it_ended(code)} while it ran subtask {task.subtask}"
            f" of stage {task.level}{last_given(worker.pid)}"
        )

    def _stop(self, indices: Sequence[int]) -> None:
        """End workers: those at work are asked to give up, and killed if they do not."""
        stopped = [worker for index in indices if (worker := self._workers[index]) is not None]
        for index in indices:
            self._workers[index] = None
        for worker in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
        for worker in stopped:
            if not _ends(worker.connection):
                os.kill(worker.pid, signal.SIGKILL)
            self._fork_server.wait(worker.pid)
            last_given(worker.pid)  # nobody asks any more
            worker.connection.close()


def _require_wanted(stops: Sequence[threading.Event]) -> None:
    if any(stop.is_set() for stop in stops):
        message = "the tasks of the micro-batch were aborted"
        raise WorkerLostError(message)


def _ends(connection: Connection) -> bool:
    """Return whether the process behind a connection ends in time.

    What it still says is dropped.
    """
    with contextlib.suppress(EOFError, OSError):
        while connection.poll(_PATIENCE):
            connection.recv_bytes()
        return False
    return True


def how_it_ended(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is None:
        return "ended"
    if code == -signal.SIGKILL:
        return (
            "was killed with SIGKILL (as the system does when memory runs out; `dmesg` would tell)"
        )
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"
