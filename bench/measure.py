"""What one measurement returns, and how its rate and memory are computed.

What it is: the ``Outcome`` that every measured process leaves behind as a JSON file, the
steady-state rate, and a sampler of the memory and the CPU time of a process tree.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import argparse

__all__ = [
    "Batch",
    "Outcome",
    "Sampler",
    "add_measurement_arguments",
    "process_tree",
    "steady_rate",
]


def add_measurement_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``bench/run.py`` gives to each measured process."""
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--sink", choices=["parquet", "discard"], default="parquet")


@dataclass(frozen=True)
class Batch:
    """One epoch or micro-batch that had data."""

    rows: int
    #: Seconds since 1970: when it was complete.
    finished: float


@dataclass
class Outcome:
    """What a measured process reports."""

    #: Rows per second in the steady state; 0 if that is not what was measured.
    rows_per_second: float = 0.0
    rows: int = 0
    batches: list[Batch] = field(default_factory=list)
    #: Where the result is, as Parquet files; empty if there is nothing to check.
    output: str = ""
    #: Further figures by name ("seconds per empty epoch").
    figures: dict[str, float] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write it where ``load`` finds it."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Outcome:
        """Read what ``save`` wrote."""
        content = json.loads(path.read_text())
        content["batches"] = [Batch(**batch) for batch in content["batches"]]
        return cls(**content)


def steady_rate(batches: list[Batch]) -> float:
    """Rows per second from the end of the first batch to the end of the last one.

    The first batch pays for starting workers, so neither its rows nor its time count.

    Raises:
        ValueError: there are fewer than two batches.
    """
    if len(batches) < 2:  # noqa: PLR2004 - one to leave out, one to measure
        message = f"a steady state needs at least two batches with data, there are {len(batches)}"
        raise ValueError(message)
    seconds = batches[-1].finished - batches[0].finished
    return sum(batch.rows for batch in batches[1:]) / seconds


def process_tree(root: int) -> list[int]:
    """``root`` and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        # The name in parentheses may hold blanks; the parent is the second field behind it.
        parent = int(stat.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for process in found:
        found.extend(children.get(process, ()))
    return found


def _memory_bytes(process: int) -> int:
    """The proportional share (Pss) of a process: shared pages are counted once in a sum."""
    try:
        lines = Path("/proc", str(process), "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _cpu_seconds(process: int) -> float:
    """User and system time of a process; 0 if it is gone."""
    try:
        stat = Path("/proc", str(process), "stat").read_text()
    except OSError:
        return 0.0
    # The name in parentheses may hold blanks; these are the 12th and 13th field behind it.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Sampler:
    """Samples memory and CPU time of a process tree until stopped.

    ``peak`` is in bytes.  ``cpu_seconds`` has all processes that were seen, but for what one does
    after it was seen last.
    """

    def __init__(self, root: int, interval: float = 0.5) -> None:
        self.peak = 0
        self._cpu: dict[int, float] = {}
        self._root = root
        self._interval = interval
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> float:
        """Of all processes together."""
        return sum(self._cpu.values())

    def _sample(self) -> None:
        while not self._stopped.wait(self._interval):
            processes = process_tree(self._root)
            for process in processes:
                spent = _cpu_seconds(process)
                self._cpu[process] = max(spent, self._cpu.get(process, 0.0))
            self.peak = max(self.peak, sum(_memory_bytes(process) for process in processes))
