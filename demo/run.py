"""The script of the demo: prepare, start, kill half way, start again, compare, draw.

What it is: the parent of the job.  It knows the job by what a stranger could see: the files that
the sinks have committed, and the checkpoint directory.  It prints what happens as it happens.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
from rich.console import Console

from demo.check import check
from demo.job import OutputDirectories, committed_files
from demo.picture import draw
from demo.prepare import prepare
from millstream.checkpoint.inspect import list_checkpoints
from millstream.checkpoint.local_storage import LocalStorage
from millstream.errors import CheckpointError, JobError, MillstreamError

if TYPE_CHECKING:
    from demo.check import Report

__all__ = ["main", "run_demo"]

#: All flights that left New York in 2013.
FLIGHTS: Final = 336_776
#: Per reader of the source; the demo would be over in a few seconds without.
_RECORDS_PER_SECOND: Final = 10_000
_PARALLELISM: Final = 2
#: Short epochs: there is more to see, and more that could go wrong.
_OPTIONS: Final = {
    "millstream.epoch.target-duration": "1 s",
    "millstream.progress": "on",
}
_POLL_SECONDS: Final = 0.2
#: A line at most, and at least, so often.
_REPORT_SECONDS: Final = 2.0
_QUIET_SECONDS: Final = 15.0
#: An overdue demo is a failed demo.
_TIMEOUT_SECONDS: Final = 600.0
_LOG_LINES: Final = 25


def main() -> int:
    """Run the demo with the arguments of the command line; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="A year of flights, a kill -9 half way, every row compared with DuckDB's",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default="demo-output",
        help="where everything goes (default: %(default)s)",
    )
    parser.add_argument(
        "--no-kill", action="store_true", help="let the job run through without killing it"
    )
    parser.add_argument(
        "--pipelined",
        action="store_true",
        help="run it with tasks that live on (docs/concepts/engines.md)",
    )
    options = parser.parse_args()
    try:
        return run_demo(options.directory, kill=not options.no_kill, pipelined=options.pipelined)
    except MillstreamError as error:
        print(f"demo: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


def run_demo(directory: Path, *, kill: bool = True, pipelined: bool = False) -> int:
    """Run the demo.

    Args:
        directory: where input, results, checkpoints and log go.  Input that is there already is
            used again, anything else of an earlier demo is removed.
        kill: whether to kill the job half way.
        pipelined: whether its tasks live on, in place of epochs.

    Returns:
        0 if every row is right, else 1.

    Raises:
        SourceError: the package with the flights is not installed.
        JobError: the job failed, or did not end in time.
    """
    demo = _Demo(directory.absolute(), ["--pipelined"] if pipelined else [])
    started = time.monotonic()
    demo.prepare()
    demo.run(kill=kill)
    report = demo.check()
    demo.finish(report, time.monotonic() - started)
    return 0 if report.correct else 1


class _Demo:
    """The demo's directories, and what is done with them in order."""

    def __init__(self, directory: Path, options: list[str]) -> None:
        self._directory = directory
        self._options = options
        self._outputs = OutputDirectories(directory / "results")
        self._checkpoints = directory / "checkpoints"
        self._log = directory / "job.log"
        self._picture = directory / "results.png"
        self._console = Console(highlight=False, soft_wrap=True)
        self._counter = _CommittedRows(self._outputs.flights)
        self._started = time.monotonic()

    def prepare(self) -> None:
        """Write the input, and remove what an earlier demo left."""
        for path in (self._outputs.directory, self._checkpoints):
            shutil.rmtree(path, ignore_errors=True)
        for path in (self._log, self._picture):
            path.unlink(missing_ok=True)
        self._inputs = prepare(self._directory / "input")
        files = len(list(self._inputs.flights.iterdir()))
        self._say(
            f"{FLIGHTS:,} flights that left New York in 2013, in {files} files, "
            "in the order in which they really left"
        )

    def run(self, *, kill: bool) -> None:
        """Run the job to its end, through a kill if ``kill`` is set."""
        process = self._start()
        self._say(f"job started, process {process.pid}; its log is {self._log}")
        if kill:
            self._watch(process, until=FLIGHTS // 2)
            self._kill(process)
            process = self._start()
            self._say(f"job started again, process {process.pid}: nothing but the same command")
        self._watch(process, until=None)

    def check(self) -> Report:
        """Compare everything with DuckDB's answer, and say how it came out."""
        report = check(self._inputs, self._outputs)
        for comparison in report.comparisons:
            mark = "[green]same[/]" if comparison.equal else "[red]DIFFERENT[/]"
            self._say(f"  {comparison.name}: {comparison.rows:,} rows, {mark}")
            if not comparison.equal:
                self._say(f"    {comparison.missing} missing, {comparison.unexpected} unexpected")
            for example in comparison.examples:
                self._say(f"    {example}")
        return report

    def finish(self, report: Report, seconds: float) -> None:
        """Say what came out and where it is."""
        color = "green" if report.correct else "red"
        self._say(f"[bold {color}]{report.summary()}[/]")
        self._say(
            f"{report.hours:,} rows of hourly statistics ({report.late:,} flights came too late "
            f"for their hour), {report.missed:,} flights missed by their aircraft"
        )
        draw(self._outputs, self._picture)
        self._say(f"results:     {self._outputs.directory}")
        self._say(f"picture:     {self._picture}")
        self._say(f"checkpoints: {self._checkpoints} (millstream checkpoints {self._checkpoints})")
        self._say(f"{seconds:.0f} seconds in all")

    # -- the job as a child process --------------------------------------------------------------

    def _start(self) -> subprocess.Popen[bytes]:
        job = Path(__file__).with_name("job.py")
        command = [sys.executable, "-m", "millstream", "run"]
        command += ["--master", f"local[{_PARALLELISM}]", "--parallelism", str(_PARALLELISM)]
        command += ["--checkpoint-dir", str(self._checkpoints), *self._options]
        for key, value in _OPTIONS.items():
            command += ["-D", f"{key}={value}"]
        command += [str(job), str(self._inputs.directory), str(self._outputs.directory)]
        command += [str(_RECORDS_PER_SECOND)]
        with self._log.open("ab") as log:
            # A session of its own: the kill shall hit the job, its JVM and nothing else.
            return subprocess.Popen(  # noqa: S603 - our own command line
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _watch(self, process: subprocess.Popen[bytes], until: int | None) -> None:
        """Report progress until so many flights are committed, or the job has ended."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        reported, reported_at = self._counter.count(), time.monotonic()
        try:
            while True:
                ended = process.poll() is not None
                committed = self._counter.count()
                if ended or (until is not None and committed >= until):
                    break
                if time.monotonic() > deadline:
                    self._fail(f"the job did not end within {_TIMEOUT_SECONDS:.0f} s")
                silence = time.monotonic() - reported_at
                if silence > (_QUIET_SECONDS if committed == reported else _REPORT_SECONDS):
                    reported, reported_at = committed, time.monotonic()
                    self._report(committed)
                time.sleep(_POLL_SECONDS)
        except BaseException:
            _kill_group(process)
            raise
        if process.returncode:
            self._fail(f"the job ended with exit code {process.returncode}")
        if ended and until is not None:
            self._fail(f"the job ended after {committed:,} flights, before it could be killed")
        self._report(committed)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        pending = _pending_files(self._outputs.directory)
        _kill_group(process)
        self._say(
            f"[bold red]kill -9[/] of process group {process.pid} half way; uncommitted output "
            f"lies about in {pending} files"
        )

    def _report(self, committed: int) -> None:
        self._say(f"  {committed:>7,} flights committed{self._describe_checkpoint()}")

    def _describe_checkpoint(self) -> str:
        if not self._checkpoints.is_dir():
            return ""
        try:
            checkpoints = list_checkpoints(LocalStorage(str(self._checkpoints))).checkpoints
        except (CheckpointError, OSError):
            return ""  # the directory is being made or cleaned up just now
        if not checkpoints:
            return ""
        last = checkpoints[-1]
        return (
            f", checkpoint {last.epoch} of run {last.generation}, "
            f"{last.state_size / 1e6:.1f} MB of state"
        )

    def _fail(self, message: str) -> None:
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        raise JobError("\n".join([f"{message}; the end of {self._log}:", *lines]))

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._started:6.1f} s[/]  {text}")


class _CommittedRows:
    """Counts the rows that a file sink has committed; each file is looked at once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rows: dict[Path, int] = {}

    def count(self) -> int:
        """Rows in all committed files."""
        for path in committed_files(self._directory):
            if path not in self._rows:
                self._rows[path] = pq.read_metadata(path).num_rows
        return sum(self._rows.values())


def _pending_files(directory: Path) -> int:
    """Files of the sinks that no reader looks at."""
    places = ((Path(place).relative_to(directory), names) for place, _, names in os.walk(directory))
    return sum(
        any(part.startswith((".", "_")) for part in (*place.parts, name))
        for place, names in places
        for name in names
    )


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # Not terminate(): nothing in the job gets a chance to tidy up.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has ended by itself
    process.wait()
