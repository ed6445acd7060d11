"""Runs the measurements side by side and prints what came out.

What it is: each measurement runs in a process of its own, one after the other, Millstream and its
peer in turn, so that both meet the machine in the same mood.  Every result is compared with
DuckDB's.  Prints a table and writes ``bench/results/latest.json``.

Usage, in the root of the repository::

    python -m bench [--quick] [--only NAME] [--repeat N] [--sink parquet|discard] [--flink]

``--only growing`` measures what shall not grow with the size of a job (``bench/growing.py``),
``--only start-up`` what passes before the first result (``bench/start_up.py``).
``PYTHONPATH=<older checkout>/src`` in the environment measures that one's ``millstream`` instead.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.check import CheckFailedError, check
from bench.growing import Point, quantities, render_growing, verdicts
from bench.measure import Outcome, Sampler
from bench.report import (
    Line,
    buffered_line,
    checkpoint_line,
    cpu_words,
    idle_line,
    latency_line,
    ratio_line,
    record_line,
    recovery_line,
    render,
    session_line,
    state_line,
)
from bench.start_up import NAME as START_UP
from bench.start_up import StartUp, measure_start_up, render_start_up, verdict
from bench.workloads import (
    Measurement,
    comparisons,
    costly_comparisons,
    flink_comparisons,
    own_measurements,
    pipelined_comparisons,
    pyflink_comparisons,
    sql_comparisons,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["main"]

_ROOT = Path(__file__).resolve().parent.parent
_RESULTS = Path(__file__).resolve().parent / "results"
_TIMEOUT_SECONDS = 1_200
_PACKAGES = ("pyspark", "bytewax", "pyarrow", "duckdb", "rocksdict", "confluent-kafka", "noida-db")


@dataclass
class Run:
    """What became of one measured process."""

    measurement: str
    rows_per_second: float = 0.0
    peak_memory: int = 0
    #: Of all processes, with start and warm-up.
    cpu_seconds: float = 0.0
    rows: int = 0
    #: Load average of the machine before the start; above the number of cores figures are low.
    load: float = 0.0
    batches: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    #: "correct", "not checked", or what went wrong.
    status: str = "not run"

    @property
    def failed(self) -> bool:
        """Whether it did not run, or gave a wrong result."""
        return self.status not in {"correct", "not checked"}


def _run(measurement: Measurement, sink: str) -> Run:
    """Run one measurement and check its result."""
    run = Run(measurement.name, load=os.getloadavg()[0])
    measurement.dataset.ensure()
    scratch = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    try:
        with _hogs(measurement.hogs):
            run.peak_memory, run.cpu_seconds = _execute(measurement, sink, scratch)
        outcome = Outcome.load(scratch / "report.json")
        run.rows_per_second, run.rows = outcome.rows_per_second, outcome.rows
        run.batches = len(outcome.batches)
        run.figures = outcome.figures
        run.status = "not checked"
        if outcome.output and measurement.kind:
            output = Path(outcome.output)
            closed = measurement.closed_only
            check(measurement.kind, measurement.dataset, output, closed_only=closed)
            run.status = "correct"
    except (CheckFailedError, RuntimeError) as error:
        run.status = str(error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return run


@contextlib.contextmanager
def _hogs(count: int) -> Iterator[None]:
    """Let so many processes be busy beside a measurement."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def _execute(measurement: Measurement, sink: str, scratch: Path) -> tuple[int, float]:
    """Start a measurement and wait for its end; returns peak memory in bytes and CPU seconds."""
    dataset = measurement.dataset
    arguments = [*measurement.arguments]
    arguments += ["--events", str(dataset.events), "--keys", str(dataset.keys)]
    arguments += ["--files", str(dataset.files), "--sink", sink]
    return _execute_module(measurement.name, measurement.module, arguments, scratch)


def _execute_module(
    name: str, module: str, arguments: list[str], scratch: Path
) -> tuple[int, float]:
    """Start the process and wait for its end; returns peak memory in bytes and CPU seconds.

    Raises:
        RuntimeError: it failed or took too long; the message ends with its last words.
    """
    command = [sys.executable, "-m", f"bench.{module}", *arguments]
    command += ["--scratch", str(scratch), "--report", str(scratch / "report.json")]
    paths = [os.environ.get("PYTHONPATH", ""), str(_ROOT), str(_ROOT / "src")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    log = scratch / "log.txt"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=_ROOT,
            env=environment,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with Sampler(process.pid) as sampler:
            try:
                code = process.wait(_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                # Also what it started; nothing of one measurement may disturb the next.
                _kill_group(process)
    if code != 0:
        reason = "took too long" if code == -1 else f"ended with {code}"
        last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        message = f"{name} {reason}:\n{last}"
        raise RuntimeError(message)
    return sampler.peak, sampler.cpu_seconds


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _grow(only: str, *, quick: bool) -> tuple[list[Point], bool]:
    """Measure the growing quantities that are asked for; whether one failed."""
    points: list[Point] = []
    failed = False
    for quantity in quantities(quick=quick):
        if only not in f"growing {quantity.name} {' '.join(quantity.arguments)}":
            continue
        for size in quantity.sizes:
            scratch = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
            try:
                arguments = [*quantity.arguments, "--size", str(size)]
                _execute_module(quantity.name, quantity.module, arguments, scratch)
                figures = Outcome.load(scratch / "report.json").figures
            except RuntimeError as error:
                sys.stderr.write(f"{error}\n")
                figures, failed = {}, True
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            points.append(Point(quantity, size, figures))
            sys.stderr.write(f"{quantity.name:40} {size:12,}  {figures}\n")
    return points, failed


def _start(only: str) -> tuple[list[StartUp], bool]:
    """Measure start-up if it is asked for; whether it failed."""
    if only not in START_UP:
        return [], False
    scratch = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    try:
        return measure_start_up(scratch), False
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return [], True
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class Bench:
    """All runs of one invocation."""

    def __init__(self, *, sink: str, repeat: int) -> None:
        self._sink = sink
        self._repeat = repeat
        self.runs: dict[str, list[Run]] = {}

    def measure(self, measurements: list[Measurement], repeat: int = 1) -> None:
        """Run each of them in turn, unless they have been run before.

        Args:
            measurements: what to run.
            repeat: how many times at least; the command line may ask for more.
        """
        new = [each for each in measurements if each.name not in self.runs]
        for turn in range(max(repeat, self._repeat)):
            # Who goes first changes with every turn.
            for measurement in new if turn % 2 == 0 else reversed(new):
                started = time.monotonic()
                run = _run(measurement, self._sink)
                self.runs.setdefault(measurement.name, []).append(run)
                rate = f"{run.rows_per_second:12,.0f} rows/s" if run.rows_per_second else " " * 19
                seconds = time.monotonic() - started
                text = f"{measurement.name:58} {rate}  {run.status}  ({seconds:.0f} s)"
                sys.stderr.write(text + "\n")

    def rate(self, measurement: Measurement) -> float:
        """The median rate of its runs; 0 if one failed."""
        runs = self.runs[measurement.name]
        if any(run.failed for run in runs):
            return 0.0
        return statistics.median(run.rows_per_second for run in runs)

    def peak_memory(self, measurement: Measurement) -> int:
        """The largest of its runs, in bytes."""
        return max(run.peak_memory for run in self.runs[measurement.name])

    def cpu_per_row(self, measurement: Measurement) -> float:
        """The median of its runs, in seconds; 0 if rows are not what was measured."""
        runs = [run for run in self.runs[measurement.name] if run.rows]
        return statistics.median(run.cpu_seconds / run.rows for run in runs) if runs else 0.0

    @property
    def failed(self) -> bool:
        """Whether a run failed or gave a wrong result."""
        return any(run.failed for runs in self.runs.values() for run in runs)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="200,000 events instead of 2,000,000")
    parser.add_argument(
        "--only", default="", help="names that contain this: count, 50000, growing, start-up"
    )
    parser.add_argument("--repeat", type=int, default=1, help="median of so many runs")
    parser.add_argument(
        "--sink",
        choices=["parquet", "discard"],
        default="parquet",
        help="every system writes Parquet files, which are checked, or drops its result",
    )
    parser.add_argument(
        "--flink",
        action="store_true",
        help="also SQL and DataStream programs on Flink and PyFlink, which are installed for it",
    )
    parser.add_argument("--strict", action="store_true", help="fail if a target is not reached")
    return parser.parse_args()


def _lines(bench: Bench, arguments: argparse.Namespace) -> list[Line]:
    lines: list[Line] = []
    quick = arguments.quick
    rows = [comparisons, pipelined_comparisons, costly_comparisons, sql_comparisons]
    if arguments.flink:
        rows += [flink_comparisons, pyflink_comparisons]
    for comparison in (row for each in rows for row in each(quick=quick)):
        pair = [comparison.peer, comparison.millstream]
        if not any(arguments.only in f"{comparison.workload} {each.name}" for each in pair):
            continue
        bench.measure(pair, comparison.repeat)
        rates = (bench.rate(comparison.millstream), bench.rate(comparison.peer))
        memory = (bench.peak_memory(comparison.millstream), bench.peak_memory(comparison.peer))
        cpu = (bench.cpu_per_row(comparison.millstream), bench.cpu_per_row(comparison.peer))
        lines.append(ratio_line(comparison, rates, memory, cpu))
    own_lines = (
        *(idle_line, session_line, state_line, buffered_line, latency_line),
        *(latency_line, record_line, latency_line, record_line, checkpoint_line),
        *(checkpoint_line, checkpoint_line, recovery_line),
    )
    for measurement, line in zip(own_measurements(quick=quick), own_lines, strict=True):
        if arguments.only in measurement.name:
            bench.measure([measurement])
            run = bench.runs[measurement.name][-1]
            made = line(measurement, run.rows_per_second, run.figures, run.peak_memory)
            lines.append(replace(made, cpu=cpu_words(bench.cpu_per_row(measurement))))
    return lines


def _version(package: str) -> str | None:
    """None: it is not there, and neither was what needs it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _save(
    bench: Bench,
    lines: list[Line],
    points: list[Point],
    starts: list[StartUp],
    arguments: argparse.Namespace,
) -> Path:
    content = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": {"cores": os.cpu_count(), "platform": platform.platform()},
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "options": vars(arguments),
        "lines": [asdict(line) for line in lines],
        "growing": [asdict(point) for point in points],
        "start-up": [asdict(row) for row in starts],
        "runs": [asdict(run) for runs in bench.runs.values() for run in runs],
    }
    _RESULTS.mkdir(exist_ok=True)
    path = _RESULTS / "latest.json"
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def main() -> int:
    """Run what the command line asks for; returns the exit code."""
    arguments = _arguments()
    bench = Bench(sink=arguments.sink, repeat=arguments.repeat)
    lines = _lines(bench, arguments)
    points, failed = _grow(arguments.only, quick=arguments.quick)
    starts, unstarted = _start(arguments.only)
    if not lines and not points and not starts and not unstarted:
        sys.stderr.write(f"no measurement has {arguments.only!r} in its name\n")
        return 2
    path = _save(bench, lines, points, starts, arguments)
    if lines:
        loads = [run.load for runs in bench.runs.values() for run in runs]
        sys.stdout.write(render(lines, arguments.sink, max(loads)))
    if points:
        sys.stdout.write(render_growing(points))
    if starts:
        sys.stdout.write(render_start_up(starts))
    sys.stdout.write(f"\nwritten to {path}\n")
    found = [line.verdict for line in lines] + verdicts(points)
    behind = "behind" in found + [verdict(row, starts) for row in starts]
    return 1 if bench.failed or failed or unstarted or (arguments.strict and behind) else 0


if __name__ == "__main__":
    sys.exit(main())
