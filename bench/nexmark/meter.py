"""What a job took: seconds, seconds of all cores, memory, and what it has kept.

What it is: a sampler of a process and all its descendants (workers, JVMs), and of the directory of
checkpoints.  It needs nothing but Python, as it runs in Flink's environment too.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from bench.measure import Sampler, process_tree

__all__ = ["Meter", "Taken"]

_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass
class Taken:
    """What a job took."""

    query: str
    seconds: float = 0.0
    #: Of all cores together.
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    #: The largest that the directory of checkpoints has been.
    state_bytes: int = 0
    #: Why it could not run.
    error: str = ""

    def save(self, path: Path) -> None:
        """Write it where ``load`` finds it."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Taken:
        """Read what ``save`` wrote."""
        return cls(**json.loads(path.read_text()))


def _cpu_seconds(root: int) -> float:
    """Of living processes, with what they have waited for."""
    total = 0
    for process in process_tree(root):
        with contextlib.suppress(OSError):
            stat = Path("/proc", str(process), "stat").read_text()
            total += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return total / _TICKS


def _size(directory: Path) -> int:
    total = 0
    for path, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(path, name)).st_size  # noqa: PTH116, PTH118 - quick
    return total


class Meter:
    """Measures what is done within it, by this process and its descendants."""

    def __init__(self, query: str, checkpoints: Path) -> None:
        """Take what is measured, and where its checkpoints will be."""
        self.taken = Taken(query)
        self._checkpoints = checkpoints
        self._memory = Sampler(os.getpid())
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._cpu = _cpu_seconds(os.getpid())
        self._begun = time.perf_counter()
        self._memory.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.taken.seconds = time.perf_counter() - self._begun
        self.taken.cpu_seconds = _cpu_seconds(os.getpid()) - self._cpu
        self._memory.__exit__()
        self.taken.memory_bytes = self._memory.peak
        self._stopped.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stopped.wait(0.5):
            self.taken.state_bytes = max(self.taken.state_bytes, _size(self._checkpoints))
