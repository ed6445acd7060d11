"""The uploader: a thread of a slot that finishes snapshots and acknowledges them.

What it is: what of a checkpoint takes long, one snapshot after the other in the order in which they
were taken, while the main loop goes on.

What it is not: the snapshot itself (``runtime/pipelined/task.py``).

Read next: ``runtime/pipelined/slot.py``.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from millstream.crash_points import crash_point
from millstream.runtime.pipelined.messages import Acknowledged
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.runtime.pipelined.task import PendingAck

__all__ = ["Uploader", "finished"]


def finished(slot: int, pending: PendingAck) -> Acknowledged:
    """Finish a snapshot; returns what the driver is told."""
    ack = pending.finish()
    crash_point("task.ack.before")
    return Acknowledged(slot, dumps(ack), pending.aligning, pending.pause)


class Uploader:
    """Finishes snapshots in a thread.

    Args:
        slot: the number of the slot.
        acknowledge: tells the driver.
        fail: told what went wrong; nothing is finished after it.
    """

    def __init__(
        self,
        slot: int,
        acknowledge: Callable[[Acknowledged], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._slot = slot
        self._acknowledge = acknowledge
        self._fail = fail
        self._pending: queue.SimpleQueue[PendingAck | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="millstream-upload", daemon=True)
        self._thread.start()

    def take(self, pending: PendingAck) -> None:
        """Take a snapshot to be finished behind those before it."""
        self._pending.put(pending)

    def close(self) -> None:
        """Finish all, and end."""
        self._pending.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (pending := self._pending.get()) is not None:
            try:
                self._acknowledge(finished(self._slot, pending))
            except BaseException as error:  # noqa: BLE001 - the main loop's to tell
                self._fail(error)
                return
