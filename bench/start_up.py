"""Start-up: how long a small program takes until its first result and until its end.

What it is: ``examples/word_count.py`` in sessions without and with an archive of Spark's
classes, beside a plain PySpark program that counts ten rows; each several times, each time in a
process of its own, in turn.  Figures are medians; CPU is that of all processes of the program.
The archive is made before, in a cache of the measurement's own.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NAME", "StartUp", "measure_start_up", "render_start_up", "verdict"]

NAME = "start-up"
#: The first result of word_count.py, with an archive, to that of the plain program.
AT_MOST = 1.2

_ROOT = Path(__file__).resolve().parent.parent
_WORDS = ("-c", (_ROOT / "examples" / "word_count.py").read_text())
_PLAIN = (
    "-c",
    """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[2]").getOrCreate()
print(session.range(10).count())
java = session.sparkContext._gateway.proc
session.stop()
java.stdin.close()
java.wait()  # so that its CPU time is known
""",
)
_TIMEOUT_SECONDS = 600
_HEADINGS = ("start-up", "first result", "end", "CPU", "of plain", "target", "")


@dataclass(frozen=True)
class StartUp:
    """One program; seconds."""

    program: str
    first_result: float
    end: float
    cpu: float
    #: ``first_result`` to that of the plain program is to be at most this; None: for information.
    at_most: float | None = None


def measure_start_up(scratch: Path, repeat: int = 3) -> list[StartUp]:
    """Run the programs in turn.

    Args:
        scratch: an empty directory.
        repeat: how often each.

    Raises:
        RuntimeError: one failed; the message ends with what it said.
    """
    cache = scratch / "cache"
    cache.mkdir()
    kept = {"XDG_CACHE_HOME": str(cache)}
    off = _options({"millstream.spark.class-archive": "false"})
    _run(_WORDS, kept)
    _wait_for_archive(cache)
    programs = {
        "plain PySpark, ten rows": (_PLAIN, {}, None),
        "word_count.py, no archive": (_WORDS, kept | off, None),
        "word_count.py, archive": (_WORDS, kept, AT_MOST),
    }
    runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in programs}
    for _ in range(repeat):
        for name, (arguments, environment, _target) in programs.items():
            runs[name].append(_run(arguments, environment))
    found = []
    for name, (_, _, at_most) in programs.items():
        first, end, cpu = (statistics.median(column) for column in zip(*runs[name], strict=True))
        found.append(StartUp(name, first, end, cpu, at_most))
    return found


def _options(values: dict[str, str]) -> dict[str, str]:
    from millstream.configuration.configuration import CONFIGURATION_VARIABLE

    return {CONFIGURATION_VARIABLE: json.dumps(values)}


def _run(arguments: tuple[str, ...], environment: dict[str, str]) -> tuple[float, float, float]:
    """Seconds until the first result and until the end, and CPU seconds."""
    paths = [os.environ.get("PYTHONPATH", ""), str(_ROOT / "src")]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        **environment,
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-u", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    first = time.monotonic() - started
    _, said = process.communicate(timeout=_TIMEOUT_SECONDS)
    end = time.monotonic() - started
    if process.returncode != 0:
        message = f"a program ended with {process.returncode}:\n{said.decode(errors='replace')}"
        raise RuntimeError(message)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return first, end, cpu


def _wait_for_archive(cache: Path) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not any(cache.glob("millstream/classes/*.jsa")):
        notes = [path.read_text() for path in cache.glob("millstream/classes/*.failed")]
        if notes or time.monotonic() > deadline:
            message = f"no archive of Spark's classes was made: {''.join(notes)}"
            raise RuntimeError(message)
        time.sleep(0.1)


def _ratio(row: StartUp, rows: list[StartUp]) -> float:
    return row.first_result / rows[0].first_result


def verdict(row: StartUp, rows: list[StartUp]) -> str:
    """Whether it is "ok" or "behind"; empty without a target.  The plain program is the first."""
    if row.at_most is None:
        return ""
    return "ok" if _ratio(row, rows) <= row.at_most else "behind"


def render_start_up(rows: list[StartUp]) -> str:
    """The table as text."""
    cells: list[tuple[str, ...]] = [_HEADINGS]
    for row in rows:
        figures = [f"{seconds:.1f} s" for seconds in (row.first_result, row.end, row.cpu)]
        target = "" if row.at_most is None else f"<= {row.at_most:.1f} x"
        ratio = f"{_ratio(row, rows):.2f} x"
        cells.append((row.program, *figures, ratio, target, verdict(row, rows)))
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADINGS))]
    cells.insert(1, tuple("-" * width for width in widths))
    text = []
    for line in cells:
        aligned = (
            cell.ljust(width) if column in {0, len(_HEADINGS) - 1} else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        text.append("  ".join(aligned).rstrip())
    return "\n" + "\n".join(text) + "\n"
