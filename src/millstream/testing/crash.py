"""Crash tests: run a program, kill it with SIGKILL at a named point or moment, run it again.

The program has its own process group, a crash point armed through the environment
(``millstream.crash_points``) and a deadline, and is run again, unarmed, until it exits by itself::

    report = run_until_done([sys.executable, "job.py"], crash="manifest.publish.after:2",
                            directory=tmp_path)
    assert report.killed and report.exit_code == 0
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.crash_points import (
    COUNT_VARIABLE,
    CRASH_POINTS,
    ENVIRONMENT_VARIABLE,
    GROUP_VARIABLE,
    VICTIM_VARIABLE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CrashReport",
    "ProgramTimeoutError",
    "Run",
    "group_lives",
    "record_everything",
    "run_once",
    "run_until_done",
]

#: A passing that is never reached: points armed with it are counted and do not kill.
_NEVER: Final = 10**9
#: Seconds between two looks at a running program.
_POLL: Final = 0.02
#: Seconds to wait for the rest of a killed process group to be gone.
_GROUP_DEADLINE: Final = 10.0


class ProgramTimeoutError(Exception):
    """A program did not end within its deadline; it was killed."""


@dataclass(frozen=True, slots=True)
class Run:
    """One start of the program."""

    #: As in ``subprocess``: minus the signal's number if it was killed.
    exit_code: int
    seconds: float
    #: What it wrote to standard output and standard error together.
    output: str

    @property
    def killed(self) -> bool:
        """Return whether it ended by SIGKILL."""
        return self.exit_code == -signal.SIGKILL


@dataclass(slots=True)
class CrashReport:
    """The outcome of a program that exited by itself."""

    runs: list[Run] = field(default_factory=list)
    #: Armed crash point -> how often it was passed, the fatal passing included.
    passed: dict[str, int] = field(default_factory=dict)

    @property
    def killed(self) -> bool:
        """Return whether any run was killed: False means that the armed point was never reached."""
        return any(run.killed for run in self.runs)

    @property
    def exit_code(self) -> int:
        """How the last run ended."""
        return self.runs[-1].exit_code

    @property
    def output(self) -> str:
        """The output of all runs, one after the other."""
        return "".join(run.output for run in self.runs)


def record_everything() -> str:
    """A value for ``crash`` that kills nowhere but counts every crash point."""
    return ",".join(f"{name}:{_NEVER}" for name in CRASH_POINTS)


def run_until_done(
    command: Sequence[str],
    *,
    directory: Path,
    crash: str | Sequence[str] = "",
    kill_after: float | None = None,
    deadline: float = 120.0,
    environment: Mapping[str, str] | None = None,
    max_runs: int = 10,
) -> CrashReport:
    """Run a program with a crash, then without, until it exits by itself.

    Args:
        command: the program and its arguments.
        directory: where passings are counted and output is kept; a fresh one for each call.
        crash: crash points to arm, ``name`` or ``name:n`` for the n-th passing, or several joined
            by commas.  A list arms its first for the first run, its second for the
            second, and so on.
        kill_after: kill the first run this many seconds after its start, if it lives that long.
        deadline: seconds that one run may take.
        environment: added to the environment of this process.
        max_runs: how often it is started at most.

    Returns:
        What happened.  The exit code may be one of failure; it is the caller's to look.

    Raises:
        ProgramTimeoutError: a run took longer than ``deadline``, or every run was killed.
    """
    crashes = [crash] if isinstance(crash, str) else list(crash)
    report = CrashReport()
    passed: Counter[str] = Counter()
    for number in range(max_runs):
        counts = directory / f"passings-{number}"
        counts.mkdir(parents=True)
        armed = crashes[number] if number < len(crashes) else ""
        run = _run(
            command,
            _environment(environment or {}, armed, counts),
            directory / f"output-{number}.txt",
            kill_after if number == 0 else None,
            deadline,
        )
        report.runs.append(run)
        passed.update(_passings(counts))
        report.passed = dict(passed)
        if not run.killed:
            return report
    message = f"{' '.join(command)} was killed in each of {max_runs} runs:\n{report.output}"
    raise ProgramTimeoutError(message)


def run_once(
    command: Sequence[str],
    *,
    directory: Path,
    crash: str = "",
    kill_after: float | None = None,
    deadline: float = 120.0,
    environment: Mapping[str, str] | None = None,
    victim: str = "",
) -> Run:
    """Run a program once, with a crash armed or a kill timed; see ``run_until_done``.

    Args:
        command: as there, and so are the others but one.
        directory: a fresh one.
        crash: what to arm.
        kill_after: seconds.
        deadline: seconds.
        environment: added to the environment of this process.
        victim: "jvm" has the crash kill Spark's JVM alone; the driver is left to end by itself.

    Raises:
        ProgramTimeoutError: it took longer than ``deadline`` seconds; it was killed.
    """
    counts = directory / "passings"
    counts.mkdir(parents=True)
    return _run(
        command,
        _environment({**(environment or {}), VICTIM_VARIABLE: victim}, crash, counts),
        directory / "output.txt",
        kill_after,
        deadline,
    )


def _environment(extra: Mapping[str, str], armed: str, counts: Path) -> dict[str, str]:
    environment = {**os.environ, **extra, COUNT_VARIABLE: str(counts)}
    # The group is that of the program to be started, not of a test that runs inside another.
    environment.pop(GROUP_VARIABLE, None)
    environment.pop(ENVIRONMENT_VARIABLE, None)
    if armed:
        environment[ENVIRONMENT_VARIABLE] = armed
    return environment


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    output: Path,
    kill_after: float | None,
    deadline: float,
) -> Run:
    started = time.monotonic()
    with output.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603 - the caller's own program
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
        try:
            timed_out = not _wait(process, started, kill_after, deadline)
        finally:
            # The rest of the group, whatever ended its leader: a JVM must not live on.
            _kill_group(process)
    text = output.read_text(errors="replace")
    if timed_out:
        message = f"{' '.join(command)} did not end within {deadline} s; its output:\n{text}"
        raise ProgramTimeoutError(message)
    return Run(process.returncode, time.monotonic() - started, text)


def _wait(
    process: subprocess.Popen[bytes], started: float, kill_after: float | None, deadline: float
) -> bool:
    """Wait for the end of the program; False if it is still running at the deadline."""
    if kill_after is not None:
        try:
            process.wait(min(kill_after, deadline))
        except subprocess.TimeoutExpired:
            if kill_after < deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(max(0.0, started + deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process group and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    limit = time.monotonic() + _GROUP_DEADLINE
    while group_lives(process.pid) and time.monotonic() < limit:
        time.sleep(_POLL)


def group_lives(group: int) -> bool:
    """Return whether the group has a process that is not a zombie."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    processes = Path("/proc")
    if not processes.is_dir():
        return True
    for entry in processes.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # pid (name) state parent group ...; the name may hold blanks and brackets.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            return True
    return False


def _passings(counts: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for entry in counts.iterdir():
        match = re.fullmatch(r"(.+)\.(\d+)", entry.name)
        if match and match[1] in CRASH_POINTS:
            found[match[1]] += 1
    return found
