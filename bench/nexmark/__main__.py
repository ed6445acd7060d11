"""``make nexmark``: how many events a second each query of Nexmark takes, also beside Flink.

What it is: each query in a process of its own, one after the other, over generated events or over
CSV files of the same events, into a blackhole.  A run over a tenth of the events goes ahead in the
same process.  A query that reads bids alone has only bids made or read; they alone are counted.
With ``--stream`` every query reads the stream of all events, as the benchmark has it, and all are
counted.
What it is not: a check of the answers; ``tests/sql/queries/test_nexmark.py`` is.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.nexmark.events import write_events
from bench.nexmark.flink_home import environment, python_of
from bench.nexmark.meter import Taken
from bench.nexmark.queries import QUERIES, TABLES

from millstream.sql.catalog.factories.nexmark import events_of

#: Thousands of events per second and core, published for Flink on RocksDB.
PUBLISHED: Final = {
    "q0": 155, "q1": 158, "q2": 175, "q3": 152, "q4": 34, "q5": 22, "q7": 12, "q8": 146, "q9": 14,
    "q11": 40, "q12": 76, "q15": 72, "q16": 19, "q17": 117, "q18": 54, "q19": 44, "q20": 19,
    "q21": 98, "q22": 130,
}  # fmt: skip
_MEGABYTE: Final = 1_000_000
_HEADINGS: Final = ("K/s", "K per core s", "MB", "state MB")


def _events(name: str, events: int) -> int:
    """How many events a query reads."""
    words = set(re.findall(r"\w+", QUERIES[name].text))
    return sum(events_of(table, events) for table in TABLES if table in words)


def _run(module: str, python: str, name: str, given: argparse.Namespace, more: list[str]) -> Taken:
    """Run a query in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        report, log = Path(scratch, "report.json"), Path(scratch, "log")
        command = [python, "-m", f"bench.nexmark.{module}", "--query", name, *more]
        command += ["--parallelism", str(given.parallelism), "--interval", given.interval]
        command += ["--report", str(report)]
        is_flink = module == "flink_job"
        with log.open("w") as out:
            subprocess.run(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
                env=environment() if is_flink else dict(os.environ),
            )
        if report.exists():
            return Taken.load(report)
        return Taken(name, error=log.read_text()[-300:].strip().replace("\n", " "))


def _cells(taken: Taken, events: int) -> list[str]:
    if taken.error:
        return ["-"] * len(_HEADINGS)
    thousands = events / 1000
    return [
        f"{thousands / taken.seconds:.0f}",
        f"{thousands / max(taken.cpu_seconds, 0.01):.0f}",
        f"{taken.memory_bytes / _MEGABYTE:.0f}",
        f"{taken.state_bytes / _MEGABYTE:.1f}",
    ]


def _line(name: str, events: int, ours: Taken, theirs: Taken | None) -> str:
    cells = [name, *_cells(ours, events)]
    if theirs is not None:
        cells += _cells(theirs, events)
        if ours.error or theirs.error:
            cells += ["", ""]
        else:
            cells += [
                f"{theirs.seconds / ours.seconds:.2f}",
                f"{theirs.cpu_seconds / max(ours.cpu_seconds, 0.01):.2f}",
            ]
    cells.append(str(PUBLISHED.get(name, "")))
    return "| " + " | ".join(cells) + " |"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.nexmark", description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--interval", default="1s", help="between checkpoints")
    parser.add_argument("--query", action="append", choices=list(QUERIES))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--stream", action="store_true", help="all events come by one stream, and all are counted"
    )
    parser.add_argument("--files", action="store_true", help="read CSV files, not the generator")
    parser.add_argument("--flink", action="store_true", help="Flink as well, from the same files")
    parser.add_argument("--flink-home", type=Path, default=Path("build/flink"))
    parser.add_argument("--data", type=Path, default=Path("build/nexmark"))
    given = parser.parse_args()
    if given.stream and (given.files or given.flink):
        parser.error("--stream is of the generator: it goes without --files and --flink")
    return given


def main() -> None:
    """Measure and print."""
    given = _arguments()
    few = given.events // 10
    read: list[str] = []
    if given.files or given.flink:
        places = [given.data.absolute() / str(count) for count in (given.events, few)]
        for place, count in zip(places, (given.events, few), strict=True):
            write_events(place, count, given.parallelism)
        read = ["--files", str(places[0]), "--warm-up-files", str(places[1])]
    if given.stream:
        read = ["--stream"]
    own = [*read, "--events", str(given.events), "--warm-up-events", str(few)]
    own += [part for each in given.set for part in ("--set", each)]
    python = python_of(given.flink_home.absolute()) if given.flink else None
    headings = ["query", *_HEADINGS]
    if given.flink:
        headings += [f"Flink {each}" for each in _HEADINGS] + ["ratio", "ratio per core s"]
    headings.append("published for Flink, K per core s")
    print("| " + " | ".join(headings) + " |")
    print("|" + "---|" * len(headings))
    reasons = []
    for name in given.query or QUERIES:
        ours = _run("own_job", sys.executable, name, given, own)
        theirs = _run("flink_job", str(python), name, given, read) if given.flink else None
        counted = given.events if given.stream else _events(name, given.events)
        print(_line(name, counted, ours, theirs), flush=True)
        for system, taken in (("Millstream", ours), ("Flink", theirs)):
            if taken is not None and taken.error:
                reasons.append(f"{name} does not run on {system}: {taken.error}")
    print("\n".join(reasons))


if __name__ == "__main__":
    main()
