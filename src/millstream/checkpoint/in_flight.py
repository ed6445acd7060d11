"""The checkpoints that were begun and have not ended, where the tasks go on meanwhile.

What it is: their order.  Several may be under way; they are published in the order of their
numbers, and one may fail.  Its number then stays out of the log, as in Flink: the tasks are in the
next epoch by then, and names of what they write tell the number.

What it is not: a decision when one begins or fails, which is the driver's.

Read next: ``checkpoint/coordinator.py``, ``checkpoint/unconfirmed.py``.
"""

from __future__ import annotations

import threading

from millstream.errors import CheckpointError

__all__ = ["CheckpointsInFlight"]


class CheckpointsInFlight:
    """Numbers of checkpoints under way.  For several threads.

    Invariant: those between the last published one and ``newest`` are under way or have failed.
    """

    def __init__(self) -> None:
        """Begin with none."""
        #: The last that was begun; -1 if none was in this run.
        self.newest = -1
        #: How many have failed since one was published.
        self.failures = 0
        self._open: list[int] = []
        self._lock = threading.Lock()

    def begin(self, epoch: int, published: int) -> None:
        """Note that a checkpoint begins.

        Args:
            epoch: its number.
            published: the last one that is published, -1 if none is.

        Raises:
            CheckpointError: it is not the one after the last that was begun.
        """
        with self._lock:
            expected = max(self.newest, published) + 1
            if epoch != expected:
                message = f"checkpoint {epoch} is to begin, but the next one is {expected}"
                raise CheckpointError(message)
            self.newest = epoch
            self._open.append(epoch)

    def require_oldest(self, epoch: int) -> None:
        """Check that a checkpoint can be published.

        Raises:
            CheckpointError: an older one is under way, or this one is not.
        """
        with self._lock:
            self._require_oldest(epoch)

    def _require_oldest(self, epoch: int) -> None:
        if not self._open or self._open[0] != epoch:
            under_way = ", ".join(map(str, self._open)) or "none"
            message = f"checkpoint {epoch} is to be published; under way, in order: {under_way}"
            raise CheckpointError(message)

    def publish(self, epoch: int) -> None:
        """Note that the oldest one is published."""
        with self._lock:
            self._require_oldest(epoch)
            del self._open[0]
            self.failures = 0

    def fail(self, epoch: int) -> int:
        """Note that one will not be published; returns how many have failed in a row.

        Raises:
            CheckpointError: it is not under way.
        """
        with self._lock:
            if epoch not in self._open:
                message = f"checkpoint {epoch} is given up, but it is not under way"
                raise CheckpointError(message)
            self._open.remove(epoch)
            self.failures += 1
            return self.failures
