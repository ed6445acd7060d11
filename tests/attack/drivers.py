"""The processes of the attacked job: a driver, its JVM, its workers, and what to do to them.

What it is: a driver started in a session of its own, so that all its processes are found by that,
also those that Spark puts into process groups of their own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Driver", "wait_until"]

JOB: Final = Path(__file__).with_name("attack_job.py")
_POLL_SECONDS: Final = 0.02


class Process(NamedTuple):
    """A living process of a driver's session."""

    pid: int
    parent: int
    command: str


class Driver:
    """One start of the job."""

    def __init__(self, settings: Path, directory: Path, number: int) -> None:
        self.number = number
        self.output = directory / f"driver-{number}.txt"
        environment = dict(os.environ)
        # What tests save at the start, a user does not; no archive is to be made meanwhile.
        environment["SPARK_SUBMIT_OPTS"] = "-Xshare:auto"
        environment["PYTHONPATH"] = os.pathsep.join(part for part in sys.path if part)
        self.began = time.time()
        with self.output.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, str(JOB), str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        self.pid = self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the driver itself, not its JVM, is there."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of the driver; negative for a signal."""
        return self._process.poll()

    def processes(self) -> list[Process]:
        """All processes of the session that live, the driver first."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                # The name in brackets may hold anything but is the last with brackets.
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                state, parent, session = fields[0], int(fields[1]), int(fields[3])
                if session == self.pid and state != "Z":
                    command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append(Process(int(path.name), parent, command))
        return sorted(found, key=lambda each: each.pid != self.pid)

    def jvm(self) -> Process | None:
        """Spark's JVM, if it is there."""
        found = [each for each in self.processes() if "java" in each.command.split(" ")[0]]
        return found[0] if found else None

    def workers(self) -> list[Process]:
        """The Python workers that the daemon has forked, or the slots that the nursery has."""
        daemons = {each.pid for each in self._daemons()}
        if not daemons:
            daemons = {each.pid for each in self.processes() if each.parent == self.pid}
        return [each for each in self.processes() if each.parent in daemons]

    def kill_all(self) -> None:
        """SIGKILL to every process, and wait until none is left."""
        for _ in range(20):  # one that was forked meanwhile
            living = self.processes()
            for each in living:
                _signal(each.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            if not living:
                return
            time.sleep(_POLL_SECONDS)
        raise AssertionError(self.processes())

    def kill(self) -> None:
        """SIGKILL to the driver alone."""
        _signal(self.pid, signal.SIGKILL)
        self._process.wait(30)

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        _signal(self.pid, signal.SIGINT)

    def signal(self, number: int) -> None:
        """Send a signal to the driver alone."""
        _signal(self.pid, number)

    def stop(self) -> None:
        """SIGSTOP to every process."""
        for each in self.processes():
            _signal(each.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT to every process."""
        for each in self.processes():
            _signal(each.pid, signal.SIGCONT)

    def wait_for_end(self, seconds: float) -> int:
        """The exit code; fails if it does not end in time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            message = f"driver {self.number} did not end in {seconds} s:\n{self.tail()}"
            raise AssertionError(message) from None

    def tail(self) -> str:
        """The end of what it printed."""
        return self.output.read_text(errors="replace")[-3_000:]

    def _daemons(self) -> list[Process]:
        daemons = [each for each in self.processes() if "daemon" in each.command]
        forked = {each.pid for each in daemons}
        return [each for each in daemons if each.parent not in forked]


def kill_process(process: Process) -> None:
    """SIGKILL, whether it is still there or not."""
    _signal(process.pid, signal.SIGKILL)


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait for a condition; fails after a time that only failures reach."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(_POLL_SECONDS)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
