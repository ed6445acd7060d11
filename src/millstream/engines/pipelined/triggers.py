"""How checkpoints of a run begin, and how they are given up.

What it is: the order in which the coordinator, the sources and the slots hear of either.

What it is not: when (``engines/pipelined/run_loop.py``, ``engines/pipelined/checkpoints.py``).

Read next: ``engines/pipelined/checkpoints.py``, ``checkpoint/coordinator.py``.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from millstream.runtime.pipelined.control import Abandoned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.engines.pipelined.checkpoints import Checkpoints
    from millstream.engines.pipelined.control_server import ControlServer
    from millstream.execution.offsets import Offset
    from millstream.execution.run import Run
    from millstream.execution.split_enumerator import SplitEnumerator

__all__ = ["Triggers"]

_LOG: Final = logging.getLogger("millstream")


class Triggers:
    """Triggers the checkpoints of a run, and gives them up.

    Args:
        run: the run.
        checkpoints: those that are under way.
        sources: told what is triggered.
        server: tells the slots.
        clock: milliseconds since 1970.
    """

    def __init__(
        self,
        run: Run,
        checkpoints: Checkpoints,
        sources: SplitEnumerator,
        server: ControlServer,
        clock: Callable[[], int],
    ) -> None:
        self._run = run
        self._checkpoints = checkpoints
        self._sources = sources
        self._server = server
        self._clock = clock

    def trigger(
        self, now: float, *, final: bool = False, last: bool = False, overtakes: bool = False
    ) -> None:
        """Let barriers flow.

        Args:
            now: monotonic seconds.
            final: the input is over.
            last: this is the last checkpoint.
            overtakes: its barriers may overtake although it is the last.
        """
        message = self._checkpoints.trigger(
            now, self._clock(), final=final, last=last, overtakes=overtakes
        )
        run = self._run
        # Before any task can write for it.
        run.coordinator.begin_epoch(
            run.metadata(_offset_to_come(message.epoch, final), message.time)
        )
        self._sources.triggered(message.epoch)
        self._server.tell_all(message)

    def give_up(self, epochs: Iterable[int]) -> None:
        """Forget checkpoints that were triggered."""
        for epoch in epochs:
            self._run.coordinator.fail_epoch(epoch)
            self._server.tell_all(Abandoned(epoch))

    def give_up_expired(self) -> None:
        """Forget those that have taken too long.

        Raises:
            CheckpointExpiredError: one too many, or the last.
        """
        for epoch, words in self._checkpoints.expired(time.monotonic()):
            _LOG.warning("%s", words)
            self.give_up([epoch])

    def give_up_all(self) -> None:
        """Forget all that not every task has acknowledged: some of the tasks are gone."""
        self.give_up(self._checkpoints.abort())


def _offset_to_come(epoch: int, final: bool) -> Offset:  # noqa: FBT001 - JSON
    """All that is known of an offset before the tasks have acknowledged it."""
    return {"epoch": epoch, "final": final}
