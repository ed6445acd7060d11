"""A clock that stands still while its thread waits for a processor.

On a crowded machine a batch of a millisecond may take 50 by any other clock.  Batches that follow
such a clock become short when the machine can least afford it.  Linux counts how long a thread was
ready to run and was not run (``/proc/thread-self/schedstat``).  Time in which it waits for
something else, such as an answer from a service, counts as work.
"""

from __future__ import annotations

import os
import time
from typing import Final

__all__ = ["WorkClock"]

_STATISTICS: Final = "/proc/thread-self/schedstat"
_MOST_BYTES: Final = 128


class WorkClock:
    """Tells seconds of work of the thread that makes it; only that thread may ask.

    Where the system does not say how long a thread waits, it is a monotonic clock.
    """

    def __init__(self) -> None:
        """Begin now."""
        self._file = -1
        try:
            self._file = os.open(_STATISTICS, os.O_RDONLY | os.O_CLOEXEC)
            self.waited()
        except (OSError, ValueError, IndexError):  # another system, or one that does not count
            self.close()

    def seconds(self) -> float:
        """Return seconds since some moment, without those in which the thread was not run."""
        before = self.waited()
        while True:
            now, waited = time.monotonic(), self.waited()
            if waited == before:
                return now - waited
            before = waited  # it was not run between the two

    def waited(self) -> float:
        """Return seconds that the thread has waited for a processor."""
        if self._file < 0:
            return 0.0
        return int(os.pread(self._file, _MOST_BYTES, 0).split()[1]) * 1e-9

    def close(self) -> None:
        """Close the file; the clock goes on as a monotonic one."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
