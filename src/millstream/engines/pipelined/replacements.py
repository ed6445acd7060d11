"""Slots that are lost while others go on, and those that take their places.

What it is: from the loss of a slot until another is connected with all that have stayed.  No region
begins meanwhile.

What it is not: the decision that the others go on, nor what becomes of the regions
(``engines/pipelined/failover.py``).

The way of a place:

1. ENDED: what is left of the lost slot is killed, and gone; a new one is started.
2. THERE: it has registered.  Further slots may be lost until all new ones are.
3. TOLD: new ones are told to join, the others to connect to them.
4. TAKEN: all have met, and the new ones run, as yet without tasks.

A slot that is lost in 3, or that does not come in time, ends the run.  So does a connection between
two slots of which neither turns out to be lost.

What can never happen: a lost slot is at work when the one that takes its place begins.

Read next: ``engines/pipelined/failover.py``, ``runtime/pipelined/slot.py``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from millstream.configuration import options
from millstream.errors import SlotLostError, WorkerLostError
from millstream.runtime.pipelined.control import Joins, Newcomer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.engines.pipelined.control_server import ControlServer
    from millstream.engines.pipelined.slot_host import SlotHost
    from millstream.runtime.pipelined.control import (
        Address,
        Met,
        Registered,
        SlotSettings,
        Unreachable,
    )

__all__ = ["Replacements"]

#: Seconds in which one of two slots whose connection has ended must turn out to be lost.
_GRACE: Final = 1.0


class Replacements:
    """Replaces the lost slots of a run.

    Args:
        host: starts slots.
        server: tells them.
        timeout: seconds that a new slot may take to begin.
    """

    def __init__(self, host: SlotHost, server: ControlServer, timeout: float) -> None:
        self._host = host
        self._server = server
        self._timeout = timeout
        self._settings: Sequence[SlotSettings] = ()
        #: The slots that are being replaced, and of those the ones that are there.
        self._places: set[int] = set()
        self._there: dict[int, Address] = {}
        self._deadline = 0.0
        self._told = False
        #: Who has yet to meet whom, and which new ones do not run yet.
        self._unmet: set[tuple[int, int]] = set()
        self._waiting: set[int] = set()
        #: Connections that have ended -> by when one of the two must be lost.
        self._ended: dict[tuple[int, int], float] = {}

    def begin(self, settings: Sequence[SlotSettings]) -> None:
        """Take what slots are started with, in order."""
        self._settings = settings

    @property
    def under_way(self) -> bool:
        """Whether a slot is being replaced."""
        return bool(self._places)

    @property
    def too_late(self) -> bool:
        """Whether new slots are meeting the others: none may be lost now."""
        return self._told

    def end(self, slot: int) -> BaseException | None:
        """See that nothing of a lost slot is at work; how it has ended, if that is known."""
        return self._host.end_slot(slot)

    def replace(self, slot: int) -> None:
        """Start another in place of a slot that was ended."""
        self._ended = {pair: by for pair, by in self._ended.items() if slot not in pair}
        self._places.add(slot)
        self._there.pop(slot, None)
        self._deadline = time.monotonic() + self._timeout
        self._server.readmit(slot)
        self._host.replace(self._settings[slot])

    def registered(self, event: Registered) -> frozenset[int]:
        """Take that a new slot is there; when all are, they are told to join the others.

        Returns:
            Those that were told: from now on they hear all, and answer.
        """
        if event.slot not in self._places:
            return frozenset()  # one that was there from the beginning
        self._there[event.slot] = event.address
        if self._there.keys() != self._places:
            return frozenset()
        self._told = True
        everybody = {each.slot for each in self._settings}
        stay = everybody - self._places
        self._waiting = set(self._places)
        self._unmet = {(one, new) for one in stay for new in self._places}
        for new in sorted(self._places):
            lower = {other: self._there[other] for other in sorted(self._places) if other < new}
            self._server.tell(new, Joins(lower, frozenset(everybody - lower.keys() - {new})))
            for one in sorted(stay):
                self._server.tell(one, Newcomer(new, self._there[new]))
        return frozenset(self._places)

    def met(self, event: Met) -> None:
        """Take that a slot is connected with a new one."""
        self._unmet.discard((event.slot, event.other))
        self._end_if_done()

    def running(self, slot: int) -> None:
        """Take that a new slot runs."""
        self._waiting.discard(slot)
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._told and not self._unmet and not self._waiting:
            self._places, self._there, self._told = set(), {}, False

    def unreachable(self, event: Unreachable) -> None:
        """Take that the connection of two slots has ended: one of them is lost, or soon will be."""
        if not self._places & {event.slot, event.other}:
            pair = event.slot, event.other
            self._ended.setdefault(pair, time.monotonic() + _GRACE)

    def look(self) -> None:
        """See whether a place stays empty.

        Raises:
            WorkerLostError: a new slot is lost, or does not come; or two slots that live are not
                connected any more.
        """
        now = time.monotonic()
        for (one, other), by in self._ended.items():
            if now >= by:
                message = f"slots {one} and {other} have lost their connection, and both live"
                raise SlotLostError(message)
        for slot in self._places - self._there.keys():
            lost = self._host.lost_slot(slot)
            if lost is not None:
                raise lost
        if self._places and now >= self._deadline:
            places = ", ".join(map(str, sorted(self._places)))
            message = (
                f"the places of lost slots {places} were not taken within {self._timeout:g} s"
                f" ({options.SLOT_REQUEST_TIMEOUT.key}); the whole job is restarted"
            )
            raise WorkerLostError(message)
