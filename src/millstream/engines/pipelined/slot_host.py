"""The contract of slot hosts: where the slots of a run live, and that they are gone at its end.

What it is: all that is asked of whatever starts the slots of a pipelined run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from millstream.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.runtime.pipelined.control import SlotSettings


class SlotHost(ABC):
    """Starts the slots of a job, run after run.

    Contract:
      1. ``require`` before ``start``; ``stop`` behind each ``start``, also one that has failed;
         ``close`` once, at the end of the job.  All from one thread.  (engine)
      2. When ``stop`` returns no process of the run's slots is at work, whatever they were doing.
         (host)
      3. The control connections of a run are closed before ``stop`` is called, unless its slots
         were told to end.  Slots end by themselves then; ``stop`` kills those that do not.
         (engine)
      4. ``lost`` never waits, and says why a slot ended until the next ``start``.  (host)
      5. When ``end_slot`` returns no process of that slot is at work; its control connection is
         closed before.  ``replace`` follows, or ``stop``.  (host, engine)
    """

    @property
    def driver_host(self) -> str:
        """The address of the driver's machine that slots can reach."""
        return "127.0.0.1"

    @property
    def listen_host(self) -> str:
        """The address that the driver listens at; another where slots reach it by way of others."""
        return self.driver_host

    def require(self, slots: int) -> None:
        """Make sure that so many slots can run side by side, before anything begins.

        Args:
            slots: how many.

        Raises:
            EngineError: they cannot; says what is missing, and what to do.
        """

    @property
    def replaces_slots(self) -> bool:
        """Whether the others go on when one slot has ended, and a new one can take its place."""
        return False

    def end_slot(self, slot: int) -> BaseException | None:
        """See that one slot of a run is gone.

        Returns:
            How it had ended, if it was not ended here and that says anything.
        """
        message = f"slot {slot} cannot be ended alone here"
        raise EngineError(message)

    def replace(self, settings: SlotSettings) -> None:
        """Start another in the place of a slot that was ended.

        Args:
            settings: of the slot, as of ``start``.

        Raises:
            EngineError: it cannot be started.
        """
        message = f"slot {settings.slot} cannot be replaced here"
        raise EngineError(message)

    def lost_slot(self, slot: int) -> BaseException | None:
        """How one slot has ended; None: it lives, or how slots end one by one is not known here."""
        del slot
        return None

    @abstractmethod
    def start(self, settings: Sequence[SlotSettings]) -> None:
        """Start the slots of a run; each does ``run_slot`` with its settings.  Does not wait.

        Args:
            settings: one for each slot, in order.  ``host`` is to be replaced by an address of the
                slot's machine, where that is another.

        Raises:
            EngineError: they cannot be started.
        """

    @abstractmethod
    def lost(self) -> BaseException | None:
        """How a slot of the run has ended before it was told to, as far as is known now.

        Best is what says most: that a process was killed rather than that one ended.
        """

    @abstractmethod
    def stop(self, patience: float) -> None:
        """Wait until all slots are gone, and see to it.

        Args:
            patience: seconds; those that are not gone by then are killed.
        """

    def original_error(self, error: BaseException) -> BaseException:
        """What happened, if ``error`` is the host's way to tell of it; else ``error``."""
        return error

    def close(self) -> None:
        """Let go of what only this job needs."""
