"""Slots of this machine that are stopped, killed and cut off as a fault has it.

What it is: the host of slots in a driver of the crash matrix.  A slot that is stopped is out of
its reach, as on a machine that does not answer: it is left where it is, and woken when the slots of
the next run have been started.  That one is to end by itself, at once.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

from tests.support.faults import ArmedFault, Fault, stopped_sign
from tests.support.proxied_slots import ProxiedSlots
from tests.support.slot_proxy import DRIVER

from millstream.engines.pipelined import run_loop
from millstream.engines.pipelined.engine import LocalSlots
from millstream.runtime.pipelined.control import FENCED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.faults import Rendezvous

    from millstream.engines.pipelined.engine import _Process
    from millstream.runtime.pipelined.control import SlotSettings

__all__ = ["DisturbedSlots"]

_POLL: Final = 0.003
#: Seconds that a slot which was woken may take to end.
_PATIENCE: Final = 20.0


class DisturbedSlots(ProxiedSlots):
    """Runs slots in processes of this machine, and meets the faults that a driver is armed with.

    Args:
        signs: of the fault.
        fault: which.
        seed: chooses the slot that is killed, stopped or cut off where the driver meets it.
    """

    def __init__(self, signs: Rendezvous, fault: Fault, seed: int) -> None:
        super().__init__(seed=seed)
        self._signs = signs
        self._fault = fault
        self._chance = random.Random(seed)
        self._cuts = fault in {Fault.LINK_CUT, Fault.CONTROL_CUT}
        #: Stopped, and no slots of a run any more.
        self._zombies: list[_Process] = []
        if self._cuts:
            setattr(run_loop, "Begin", self.begin)  # noqa: B010 - it is no name of its own there
            threading.Thread(target=self._cut_when_told, name="cuts", daemon=True).start()

    def start(self, settings: Sequence[SlotSettings]) -> None:
        """Start the slots of a run, and wake those of older ones."""
        if self._cuts:
            super().start(settings)
        else:
            LocalSlots.start(self, settings)
        self._wake()

    def stop(self, patience: float) -> None:
        """Wait for the processes that can be reached."""
        self._zombies += [each for each in self._processes if self._is_stopped(each)]
        self._processes = [each for each in self._processes if not self._is_stopped(each)]
        super().stop(patience)

    def close(self) -> None:
        """Let the nursery end, which would kill what is left.

        Raises:
            AssertionError: a slot that was stopped did not end when it was woken, or was not
                fenced.
        """
        self._wake()
        try:
            for each in self._zombies:
                assert each.connection.poll(_PATIENCE), f"process {each.pid} goes on"
                code = self._fork_server.wait(each.pid)
                assert code == FENCED, f"process {each.pid} was not fenced, it ended with {code}"
        finally:
            super().close()

    def kill(self) -> None:
        """Kill one slot, or all."""
        pids = self.pids
        for pid in self._chance.choice([pids, pids[:1], pids[-1:]]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop_one(self) -> None:
        """Stop a slot."""
        pid = self._chance.choice(self.pids)
        self._signs.give(stopped_sign(pid))
        os.kill(pid, signal.SIGSTOP)

    def _is_stopped(self, process: _Process) -> bool:
        return self._signs.given(stopped_sign(process.pid)) and not process.gone

    def _wake(self) -> None:
        for each in self._zombies:
            # Nobody has waited for it: its number is nobody else's.
            os.kill(each.pid, signal.SIGCONT)

    def _cut_when_told(self) -> None:
        slot = self._chance.randrange(2)
        ends = (1, 0) if self._fault is Fault.LINK_CUT else (slot, DRIVER)
        while not self._signs.given(ArmedFault.CUT):
            time.sleep(_POLL)
        while (proxy := self.proxy) is None or not proxy.cut(*ends):
            time.sleep(_POLL)  # slots that run are connected, or soon will be
        self._signs.give(ArmedFault.IS_CUT)
