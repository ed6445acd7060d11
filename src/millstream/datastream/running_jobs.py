"""The jobs of this process, and their end when the program is interrupted or exits.

- An interrupt (Ctrl-C) while the program waits for a job cancels that job and waits for its end.
- A program that exits while a job of ``execute_async`` runs logs this and waits for it, as the job
  would continue on a Flink cluster; an interrupt then cancels it.  If the program failed, or is a
  session in a terminal or notebook that its user leaves, its jobs are cancelled instead, and so
  are those whose records the program was reading: nobody else would ever end them.
- A program that exits without executing anything, though it made operators, logs a warning.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - so that its hook at the end runs behind ours
import contextlib
import logging
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.execution.job_client import JobClient, JobExecutionResult


class RunningJobs:
    """Jobs that were started and may still run."""

    def __init__(self) -> None:
        self._jobs: list[tuple[str, JobClient]] = []
        self._lock = threading.Lock()

    def add(self, name: str, client: JobClient) -> None:
        """Remember a job."""
        with self._lock:
            self._jobs = [*self._running(), (name, client)]

    def clients(self) -> list[JobClient]:
        """Those that have not ended, the oldest first."""
        return [client for _, client in self.named()]

    def named(self) -> list[tuple[str, JobClient]]:
        """The same with their names."""
        with self._lock:
            self._jobs = self._running()
            return list(self._jobs)

    def _running(self) -> list[tuple[str, JobClient]]:
        return [
            (name, client)
            for name, client in self._jobs
            if not client.job.get_job_status().is_terminal_state()
        ]


class _Program:
    """The program that this process runs."""

    def __init__(self) -> None:
        #: A forked child has no threads of its parent, thus no jobs.
        self.process = os.getpid()
        self.jobs = RunningJobs()
        #: Those whose records the program iterates over.
        self.read = RunningJobs()
        #: Where operators were made before anything was executed.
        self.operators: list[str] = []
        self.used = False
        #: A job failed after the end, when there is nobody to raise it to.
        self.failed = False


_program: Final = _Program()


def note_operator(location: str) -> None:
    """An operator was made, at this line of the program."""
    if not _program.used:
        _program.operators.append(location)


def note_use() -> None:
    """The program has executed what it made, or looked at its plan."""
    _program.used = True
    _program.operators.clear()


def note_job(name: str, client: JobClient) -> None:
    """A job was started."""
    _program.jobs.add(name, client)


def note_reader(client: JobClient) -> None:
    """The program iterates over the records of this job."""
    _program.read.add("", client)


def wait_for(client: JobClient) -> JobExecutionResult:
    """Wait for the end of a job; an interrupt cancels it, waits for that, and goes on.

    A second interrupt does not wait.

    Raises:
        JobError: the job failed.
        KeyboardInterrupt: it was cancelled.
    """
    try:
        with _plain_interrupts():
            return client.job.get_job_execution_result()
    except KeyboardInterrupt:
        client.job.cancel()
        raise


@contextlib.contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Python's own handler of interrupts in the place of PySpark's.

    That one fails what the session runs, also for jobs that nobody wants to end, and the job would
    start again before it is cancelled.
    """
    before = signal.getsignal(signal.SIGINT)
    theirs = getattr(before, "__module__", None) or ""
    if threading.current_thread() is not threading.main_thread() or not theirs.startswith(
        "pyspark."
    ):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_of_program(*, failed: bool) -> bool:
    """Wait for the jobs that still run, or cancel them.

    Args:
        failed: the program ended by an exception.

    Returns:
        Whether all jobs ended well.

    Raises:
        KeyboardInterrupt: the wait was interrupted; the jobs are cancelled.
    """
    well = True
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    if _program.operators and not failed and not interactive:
        count, first = len(_program.operators), _program.operators[0]
        noun = "operator" if count == 1 else "operators"
        _say(f"the program made {count} {noun} (the first in {first}) and never called execute()")
        _program.operators.clear()
    for name, client in _program.jobs.named():
        read = any(client is each for each in _program.read.clients())
        if failed or interactive or read:
            _say(f"cancelling job {name!r}, which still runs")
            client.job.cancel()
            continue
        _say(f"job {name!r} still runs; waiting for its end (an interrupt cancels it)")
        try:
            wait_for(client)
        except KeyboardInterrupt:
            for other in _program.jobs.clients():
                other.job.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - nobody is left to raise it to
            _say(f"{type(error).__name__}: {error}")
            well = False
    return well


def _say(text: str) -> None:
    sys.stderr.write(f"millstream: {text}\n")
    sys.stderr.flush()


def _at_end() -> None:
    """Before Python joins its threads: later, none can be started any more."""
    if os.getpid() != _program.process:
        return
    try:
        _program.failed = not end_of_program(failed=getattr(sys, "last_value", None) is not None)
    except KeyboardInterrupt:
        _say("interrupted")
        _program.failed = True


def _exit_code() -> None:
    """Last of all: an exit code that tells of what failed after the program's end."""
    if _program.failed and os.getpid() == _program.process:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def _register() -> None:
    atexit.register(_exit_code)
    # Python's own executors use it for the same reason.  A thread of ours would not do: only the
    # main thread can take an interrupt.
    hook: Callable[..., object] = getattr(threading, "_register_atexit", atexit.register)
    hook(_at_end)


_register()
