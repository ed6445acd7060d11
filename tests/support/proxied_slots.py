"""Slots of this machine whose connections all go through a proxy.

What it is: ``LocalSlots`` with a ``SlotProxy`` per run, between slots and between these and their
driver.  The driver's engine has to tell slots the proxy's addresses in place of their own::

    host = ProxiedSlots()
    monkeypatch.setattr(run_loop, "Begin", host.begin)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.support.slot_proxy import DRIVER, SlotProxy

from millstream.engines.pipelined.engine import LocalSlots
from millstream.runtime.pipelined.control import Begin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.runtime.pipelined.control import Address, SlotSettings

__all__ = ["ProxiedSlots"]


class ProxiedSlots(LocalSlots):
    """Runs slots in processes of this machine, which reach each other through a proxy.

    Args:
        prepare: given the proxy of each run before its slots start.
        seed: of all delays.
    """

    def __init__(self, prepare: Callable[[SlotProxy], None] | None = None, seed: int = 0) -> None:
        super().__init__()  # before there are threads
        self._prepare = prepare
        self._seed = seed
        #: Of the run that was started last, and how many there were.
        self.proxy: SlotProxy | None = None
        self.runs = 0

    def start(self, settings: Sequence[SlotSettings]) -> None:
        """Fork a process for each slot, which finds the driver through the proxy."""
        self.proxy = SlotProxy(self._seed + self.runs)
        self.runs += 1
        if self._prepare is not None:
            self._prepare(self.proxy)
        driver = self.proxy.route(DRIVER, settings[0].driver)
        super().start([replace(each, driver=driver) for each in settings])

    def begin(self, plan: bytes, addresses: tuple[Address, ...]) -> Begin:
        """What slots are told when all are there."""
        proxy = self.proxy
        assert proxy is not None
        return Begin(plan, tuple(proxy.route(slot, each) for slot, each in enumerate(addresses)))

    def stop(self, patience: float) -> None:
        """Wait for the processes, and end the proxy."""
        try:
            super().stop(patience)
        finally:
            if self.proxy is not None:
                self.proxy.close()
                self.proxy = None
