"""CPU time and memory of this process, for the metrics of a job."""

from __future__ import annotations

import gc
import os
import resource
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TASKS: Final = Path("/proc/self/task")
_STATM: Final = Path("/proc/self/statm")
_KIBI: Final = 1024


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """CPU time and memory of a process at one moment."""

    #: ``time.monotonic`` of its machine.
    moment: float
    #: Nanoseconds since it started.
    cpu: int
    #: Resident bytes.
    memory: int
    #: Cores of its machine.
    cores: int
    #: Its threads, those of libraries included.
    threads: int = 1
    #: Collections of garbage since it started.
    collections: int = 0

    def load(self, before: ProcessUse | None) -> float:
        """Return the CPU use since ``before``, as a fraction of all cores; 0 without it."""
        if before is None or self.moment <= before.moment:
            return 0.0
        return (self.cpu - before.cpu) / 1e9 / (self.moment - before.moment) / self.cores


def this_process() -> ProcessUse:
    """Return the use of this process; its peak memory where the current one is not known."""
    try:
        memory = int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # not Linux
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBI
    try:
        threads = sum(1 for _ in _TASKS.iterdir())
    except OSError:  # not Linux
        threads = threading.active_count()
    collections = sum(each["collections"] for each in gc.get_stats())
    cores = os.cpu_count() or 1
    cpu = time.process_time_ns()
    return ProcessUse(time.monotonic(), cpu, memory, cores, threads, collections)
