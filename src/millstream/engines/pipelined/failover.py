"""What becomes of a region one of whose tasks has failed: it alone goes back to a checkpoint.

What it is: the way of a region that ``engines/pipelined/regions.py`` describes, step by step: what
the slots, the sinks and the sources are told.  Of a lost slot all regions fail that have tasks in
it, together and once.

What it is not: the restart of a whole run (``execution/driver.py``), which is what an error raised
here leads to.

Read next: ``engines/pipelined/regions.py``, ``engines/pipelined/replacements.py``.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, cast

from millstream.engines.pipelined.committing import Dropped
from millstream.engines.pipelined.control_server import LostSlot
from millstream.runtime.pipelined.control import (
    BeginRegion,
    Met,
    Registered,
    Stopped,
    StopRegion,
)
from millstream.types.pickling import dumps_by_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.engines.pipelined.checkpoints import Checkpoints
    from millstream.engines.pipelined.committing import CommittingThread
    from millstream.engines.pipelined.control_server import ControlServer
    from millstream.engines.pipelined.readers import Readers
    from millstream.engines.pipelined.regions import Region, Regions
    from millstream.engines.pipelined.replacements import Replacements
    from millstream.engines.pipelined.triggers import Triggers
    from millstream.execution.run import Run
    from millstream.runtime.pipelined.control import Failed, Running, Unreachable

__all__ = ["Failover"]

_LOG: Final = logging.getLogger("millstream")


class Failover:
    """Restarts regions while others go on.

    Contract:
      1. All is called by the run loop, in its thread.  (run loop)
      2. What is raised ends the run.  (run loop)

    Args:
        run: the run.
        regions: of the job.
        server: tells the slots.
        checkpoints: those under way.
        triggers: triggers them, and gives them up.
        committing: drops what stopped tasks have left.
        readers: of the sources' splits.
        replacements: of lost slots.
        clock: milliseconds since 1970.
    """

    def __init__(
        self,
        run: Run,
        regions: Regions,
        server: ControlServer,
        checkpoints: Checkpoints,
        triggers: Triggers,
        committing: CommittingThread,
        readers: Readers,
        replacements: Replacements,
        clock: Callable[[], int],
    ) -> None:
        self._run = run
        self._regions = regions
        self._server = server
        self._checkpoints = checkpoints
        self._triggers = triggers
        self._committing = committing
        self._readers = readers
        self._replacements = replacements
        self._clock = clock

    @property
    def all_run(self) -> bool:
        """Whether no region is on its way back, and no slot is being replaced."""
        return self._regions.all_run and not self._replacements.under_way

    def begun(self, now: float) -> None:
        """Take that all slots have begun.

        Args:
            now: monotonic seconds.
        """
        self._regions.begun(now)

    def failed(self, event: Failed, error: BaseException) -> None:
        """Restart a region alone, one of whose tasks has raised.

        Raises:
            BaseException: ``error``, if that cannot be done.
        """
        on_failure = self._run.on_failure
        if event.region is None or on_failure is None or not isinstance(error, Exception):
            raise error
        region = self._regions.get(event.region, event.attempt)
        if region is None:
            return  # another task of the same attempt was first
        if self._checkpoints.is_over or self._run.stop.is_asked:
            raise error  # the job is about to end
        self._stop([region], error, on_failure(error, region.sources))

    def _stop(self, regions: list[Region], error: Exception, delay: float) -> None:
        self._triggers.give_up_all()
        for region in regions:
            self._regions.stop(region, delay, time.monotonic(), error)
            self._server.tell_all(StopRegion(region.number, region.attempt))

    def _lost(self, event: LostSlot) -> None:
        """Restart the regions that have tasks in a lost slot, and replace it.

        Raises:
            WorkerLostError: that cannot be done: it is one that all regions have tasks in; slots
                have yet to begin; the job is about to end; or other slots are being replaced, and
                are too far on their way.
        """
        slot, on_failure = event.slot, self._run.on_failure
        regions = self._regions.in_slot(slot)
        is_ending = self._checkpoints.is_over or self._run.stop.is_asked
        is_whole = len(regions) == len(self._regions) or not self._regions.has_begun
        if on_failure is None or is_whole or is_ending or self._replacements.too_late:
            raise event.error
        how = self._replacements.end(slot)
        error = how if isinstance(how, Exception) else event.error
        delay = on_failure(error, frozenset().union(*(region.sources for region in regions)))
        self._replacements.replace(slot)
        self._regions.gone(slot)
        self._stop(regions, error, delay)

    def hear(self, event: Stopped | Dropped | LostSlot | Registered | Met | Unreachable) -> None:
        """Take what has happened to a region or a slot.

        Raises:
            BaseException: the run cannot go on.
        """
        if isinstance(event, Stopped):
            self._regions.stopped(event.region, event.attempt, event.slot)
        elif isinstance(event, Dropped):
            self._dropped(event)
        elif isinstance(event, LostSlot):
            self._lost(event)
        elif isinstance(event, Registered):
            for slot in self._replacements.registered(event):
                self._regions.taken(slot)
        elif isinstance(event, Met):
            self._replacements.met(event)
        else:
            self._replacements.unreachable(event)

    def taken(self, slot: int) -> None:
        """Take that a slot runs that takes the place of a lost one."""
        self._replacements.running(slot)

    def running(self, event: Running) -> None:
        """Take that a slot has restored the tasks of a region."""
        number = cast("int", event.region)
        region = self._regions.running(number, event.attempt, event.slot)
        if region is not None:
            _LOG.info("%s goes on, attempt %d", region.title, region.attempt)
            if self._regions.all_run:
                self._run.on_resumed()

    def look(self) -> None:
        """See whether regions may go on, or take too long."""
        self._replacements.look()
        if self._regions.all_run:
            return
        now = time.monotonic()
        self._regions.require_answers(now)
        # What all tasks have acknowledged will be published: the region goes on from there.
        if self._checkpoints.pending or self._replacements.under_way:
            return
        for region in self._regions.due(now):
            self._committing.drop(region.sinks, region.number, region.attempt)

    def _dropped(self, event: Dropped) -> None:
        """Let a region begin, now that nothing is left of its last attempt.

        Raises:
            BaseException: what dropping has raised.
        """
        if event.error is not None:
            raise event.error
        region = self._regions.get(event.region, event.attempt)
        if region is None:
            return
        # The number that the others are at is left out: names of what stopped tasks have written
        # tell it, and they are not to be used again.
        self._triggers.trigger(time.monotonic())
        self._triggers.give_up_all()
        run = self._run
        assignments = self._readers.restart(region.sources, run.position, run.last)
        now = max(self._clock(), cast("int", run.position["time"]))
        plan = run.plan_of_region(assignments, now, self._checkpoints.next)
        self._regions.begin(region, time.monotonic())
        message = BeginRegion(region.number, region.attempt, dumps_by_value(plan))
        self._server.tell_all(message)
