"""Programs of kill tests, forked from a process that has imported what they use.

What it is: ``run_once`` of ``millstream.testing.crash`` for a Python program without Spark, a
second faster.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.util
import os
import runpy
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream import crash_points
from millstream.testing import sink_processes
from millstream.testing.crash import ProgramTimeoutError, Run, group_lives

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["fork_server", "run_child", "run_forked"]

#: Seconds that a child of ``check_sink`` may take.
_PATIENCE: Final = 120.0


@contextlib.contextmanager
def fork_server() -> Iterator[None]:
    """A process that has everything imported that drivers use, to fork them from.

    A start costs a hundredth of what that of a new Python costs.
    """
    root = str(Path(__file__).parents[1])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, f"{root}/src", before]))
    # Its directory is removed when Python exits; that of the tests is gone by then.
    chosen, tempfile.tempdir = tempfile.tempdir, "/tmp"
    multiprocessing.util.get_temp_dir()
    tempfile.tempdir = chosen
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.matrix.slots_driver", "confluent_kafka"])
    try:
        warm = context.Process(target=time.monotonic)
        warm.start()
        warm.join()
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def run_forked(
    program: Path, arguments: Sequence[str], *, directory: Path, crash: str, deadline: float
) -> Run:
    """Run a program once, with a crash armed, in a process group of its own.

    Raises:
        ProgramTimeoutError: it, or what it left behind, took longer than ``deadline`` seconds.
    """
    counts, output = directory / "passings", directory / "output.txt"
    counts.mkdir(parents=True)
    process = multiprocessing.get_context("forkserver").Process(
        target=_enter, args=(str(program), list(arguments), crash, str(counts), str(output))
    )
    started = time.monotonic()
    process.start()
    group = process.pid
    assert group is not None
    process.join(deadline)
    code = process.exitcode
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    process.join()
    text = output.read_text(errors="replace") if output.exists() else ""
    while group_lives(group):
        code = code if time.monotonic() < started + deadline else None
        if code is None:
            break
        time.sleep(0.005)
    if code is None:
        message = f"{program} did not end within {deadline} s; its output:\n{text}"
        raise ProgramTimeoutError(message)
    return Run(code, time.monotonic() - started, text)


def run_child(directory: str) -> tuple[int | None, str]:
    """``sink_processes.child`` in a fork: its exit code, and what it says."""
    process = multiprocessing.get_context("forkserver").Process(
        target=_be_child, args=(directory, list(sys.path))
    )
    process.start()
    process.join(_PATIENCE)
    if process.exitcode is None:
        process.kill()
    said = Path(directory, "said")
    return process.exitcode, said.read_text(errors="replace") if said.exists() else ""


def _be_child(directory: str, path: list[str]) -> None:
    file = os.open(Path(directory, "said"), os.O_CREAT | os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.path[:] = path
    sys.argv = ["child", directory]
    sink_processes.child()


def _enter(program: str, arguments: list[str], crash: str, counts: str, output: str) -> None:
    """Be the program."""
    os.setsid()
    file = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ[crash_points.COUNT_VARIABLE] = counts
    os.environ.pop(crash_points.GROUP_VARIABLE, None)
    crash_points.arm(crash)
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")
