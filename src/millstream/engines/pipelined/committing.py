"""Publishing and committing checkpoints in a thread, while slots and the run loop go on.

What it is: one thread that calls the coordinator for one checkpoint after the other; a sink that
takes its time holds up the next checkpoint only.

What it is not: the protocol (``checkpoint/coordinator.py``).

Read next: ``engines/pipelined/run_loop.py``.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.checkpoint.publish import EpochMetadata
    from millstream.execution.run import Run

__all__ = ["Committed", "CommittingThread", "Dropped"]

_END: Final = None


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a checkpoint: its manifest, or the error."""

    epoch: int
    manifest: Manifest | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """What stopped tasks of a region have left in the sinks is dropped, or the error."""

    region: int
    attempt: int
    error: BaseException | None = None


class CommittingThread:
    """Completes the checkpoints of a run.

    Contract:
      1. From its first checkpoint until ``close`` has returned nobody else calls the coordinator.
         (run loop)
      2. What has ended is in ``ended`` before ``done`` is called; nothing is added to it once
         ``close`` has returned.  (here)
      3. Whoever has heard of an end takes it out of ``ended``: a job may have a million.
         (run loop)

    Args:
        run: the run.
        done: called in the thread with what became of each.
    """

    def __init__(self, run: Run, done: Callable[[Committed | Dropped], None]) -> None:
        self._run = run
        self._done = done
        #: What became of the checkpoints of which nobody has heard yet, in order.
        self.ended: deque[Committed] = deque()
        self._waiting: queue.SimpleQueue[Callable[[], bool] | None] = queue.SimpleQueue()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._work, name="millstream-commit", daemon=True)
        self._thread.start()

    def complete(self, metadata: EpochMetadata, acks: list[TaskAck]) -> None:
        """Publish and commit a checkpoint, behind those that wait; does not wait."""
        self._waiting.put(partial(self._complete, metadata, acks))

    def drop(self, sinks: frozenset[str], region: int, attempt: int) -> None:
        """Drop what the stopped tasks of a region have left, behind what waits; does not wait.

        Args:
            sinks: uids of the sinks of the region.
            region: its number.
            attempt: the number of the attempt that follows.
        """
        self._waiting.put(partial(self._drop, sinks, region, attempt))

    def close(self) -> None:
        """Begin no other, and wait for the one at work: what is published is to be committed."""
        self._given_up.set()
        self._waiting.put(_END)
        self._thread.join()

    def _work(self) -> None:
        while (act := self._waiting.get()) is not _END and not self._given_up.is_set():
            if not act():
                return

    def _complete(self, metadata: EpochMetadata, acks: list[TaskAck]) -> bool:
        """Complete a checkpoint; whether that went well."""
        try:
            manifest = self._run.coordinator.complete_epoch(metadata, acks, self._run.tasks())
        except BaseException as error:  # noqa: BLE001 - the run's to raise
            event = Committed(metadata.epoch, error=error)
        else:
            event = Committed(metadata.epoch, manifest=manifest)
        self.ended.append(event)
        self._done(event)
        return event.error is None

    def _drop(self, sinks: frozenset[str], region: int, attempt: int) -> bool:
        try:
            self._run.coordinator.drop_output(sinks)
        except BaseException as error:  # noqa: BLE001 - the run's to raise
            self._done(Dropped(region, attempt, error))
            return False
        self._done(Dropped(region, attempt))
        return True
