"""Regional failover: restarts a failed region alone, and replaces lost slots.

A lost slot fails all regions that have tasks in it, together and once.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, cast

from millstream.configuration import options
from millstream.engines.pipelined.checkpoints import Dropped
from millstream.engines.pipelined.control_server import LostSlot
from millstream.errors import EngineError, SlotLostError, WorkerLostError
from millstream.runtime.pipelined.control import (
    Assigned,
    BeginRegion,
    Ceilings,
    Connected,
    Drain,
    Grown,
    Joins,
    Newcomer,
    Paused,
    Registered,
    Retired,
    SourceEnded,
    Stopped,
    StopRegion,
)
from millstream.types.pickling import dumps_by_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from millstream.checkpoint.model import Manifest
    from millstream.engines.pipelined.checkpoints import Checkpoints, CommittingThread, Triggers
    from millstream.engines.pipelined.control_server import ControlServer
    from millstream.execution.planned_source import Offset
    from millstream.execution.run import Run
    from millstream.execution.split_enumerator import SplitEnumerator
    from millstream.graph.model import JobGraph
    from millstream.runtime.pipelined.control import (
        Address,
        Failed,
        Running,
        SlotSettings,
        Unreachable,
    )
    from millstream.runtime.plan import SplitAssignment, SplitProgress


_LOG: Final = logging.getLogger("millstream")


# -- slot hosts --------------------------------------------------------------------------------


class SlotHost(ABC):
    """Starts the slots of a job, run after run.

    Contract:
      1. ``require`` before ``start``; ``stop`` after each ``start``, also one that has failed;
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

        Raises:
            EngineError: they cannot; says what is missing, and what to do.
        """

    @property
    def replaces_slots(self) -> bool:
        """Whether the others continue when one slot has ended, and a new one can take its place."""
        return False

    def end_slot(self, slot: int) -> BaseException | None:
        """Ensure that one slot of a run is gone.

        Returns:
            How it had ended, if it was not ended here and that says anything.
        """
        message = f"slot {slot} cannot be ended alone here"
        raise EngineError(message)

    def replace(self, settings: SlotSettings) -> None:
        """Start another in the place of a slot that was ended.

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
        """Return how a slot of the run has ended before it was told to, as far as is known now.

        Best is what says most: that a process was killed rather than that one ended.
        """

    @abstractmethod
    def stop(self, patience: float) -> None:
        """Wait until all slots are gone, and see to it.

        Args:
            patience: seconds; those that are not gone by then are killed.
        """

    def original_error(self, error: BaseException) -> BaseException:
        """Return what happened, if ``error`` is the host's way to tell of it; else ``error``."""
        return error

    def close(self) -> None:
        """Release what only this job needs."""


#: Seconds in which one of two slots whose connection has ended must turn out to be lost.
_GRACE: Final = 1.0


# -- lost slots --------------------------------------------------------------------------------


class Replacements:
    """Replaces the lost slots of a run."""

    def __init__(self, host: SlotHost, server: ControlServer, timeout: float) -> None:
        self._host = host
        self._server = server
        self._timeout = timeout
        self._settings: Sequence[SlotSettings] = ()
        #: The slots that are being replaced, and of those the ones that are there.
        self._vacant: set[int] = set()
        self._registered: dict[int, Address] = {}
        self._deadline = 0.0
        self._notified = False
        #: Who has yet to meet whom, and which new ones do not run yet.
        self._unconnected: set[tuple[int, int]] = set()
        self._waiting: set[int] = set()
        #: Connections that have ended -> by when one of the two must be lost.
        self._ended: dict[tuple[int, int], float] = {}

    def begin(self, settings: Sequence[SlotSettings]) -> None:
        """Record what slots are started with, in order."""
        self._settings = settings

    @property
    def under_way(self) -> bool:
        """Return whether a slot is being replaced."""
        return bool(self._vacant)

    @property
    def too_late(self) -> bool:
        """Return whether new slots are meeting the others: none may be lost now."""
        return self._notified

    def end(self, slot: int) -> BaseException | None:
        """Ensure that nothing of a lost slot is at work; how it has ended, if that is known."""
        return self._host.end_slot(slot)

    def replace(self, slot: int) -> None:
        """Start another in place of a slot that was ended."""
        self._ended = {pair: by for pair, by in self._ended.items() if slot not in pair}
        self._vacant.add(slot)
        self._registered.pop(slot, None)
        self._deadline = time.monotonic() + self._timeout
        self._server.readmit(slot)
        self._host.replace(self._settings[slot])

    def registered(self, event: Registered) -> frozenset[int]:
        """Note that a new slot is there; when all are, they are told to join the others.

        Returns:
            Those that were told: from now on they hear all, and answer.
        """
        if event.slot not in self._vacant:
            return frozenset()  # one that was there from the beginning
        self._registered[event.slot] = event.address
        if self._registered.keys() != self._vacant:
            return frozenset()
        self._notified = True
        everybody = {each.slot for each in self._settings}
        stay = everybody - self._vacant
        self._waiting = set(self._vacant)
        self._unconnected = {(one, new) for one in stay for new in self._vacant}
        for new in sorted(self._vacant):
            lower = {
                other: self._registered[other] for other in sorted(self._vacant) if other < new
            }
            self._server.send(new, Joins(lower, frozenset(everybody - lower.keys() - {new})))
            for one in sorted(stay):
                self._server.send(one, Newcomer(new, self._registered[new]))
        return frozenset(self._vacant)

    def connected(self, event: Connected) -> None:
        """Note that a slot is connected with a new one."""
        self._unconnected.discard((event.slot, event.other))
        self._end_if_done()

    def running(self, slot: int) -> None:
        """Note that a new slot runs."""
        self._waiting.discard(slot)
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._notified and not self._unconnected and not self._waiting:
            self._vacant, self._registered, self._notified = set(), {}, False

    def unreachable(self, event: Unreachable) -> None:
        """Note that the connection of two slots has ended: one of them is lost, or soon will be."""
        if not self._vacant & {event.slot, event.other}:
            pair = event.slot, event.other
            self._ended.setdefault(pair, time.monotonic() + _GRACE)

    def check(self) -> None:
        """Check whether a place stays empty.

        Raises:
            WorkerLostError: a new slot is lost, or does not come; or two slots that live are not
                connected any more.
        """
        now = time.monotonic()
        for (one, other), by in self._ended.items():
            if now >= by:
                message = f"slots {one} and {other} have lost their connection, and both live"
                raise SlotLostError(message)
        for slot in self._vacant - self._registered.keys():
            lost = self._host.lost_slot(slot)
            if lost is not None:
                raise lost
        if self._vacant and now >= self._deadline:
            places = ", ".join(map(str, sorted(self._vacant)))
            message = (
                f"the places of lost slots {places} were not taken within {self._timeout:g} s"
                f" ({options.SLOT_REQUEST_TIMEOUT.key}); the whole job is restarted"
            )
            raise WorkerLostError(message)


#: Seconds that slots may take to stop the tasks of a region: what they close may have to answer.
_STOPPING: Final = 10.0


# -- regions -----------------------------------------------------------------------------------


class RegionState(Enum):
    """Where a region is."""

    RUNS = "runs"
    STOPS = "stops"
    WAITS = "waits"
    DROPS = "drops"
    BEGINS = "begins"


@dataclass(slots=True, eq=False)
class Region:
    """One region."""

    number: int
    #: Uids.
    sources: frozenset[str]
    sinks: frozenset[str]
    #: What people call it: the names of its sources.
    title: str
    #: Slots that have tasks of it: those with lower numbers.
    width: int
    #: Of its tasks; the first is 0.
    attempt: int = 0
    state: RegionState = RegionState.RUNS
    #: Slots that have not said that its tasks are stopped, or that they run.
    missing: set[int] = field(default_factory=set)
    #: Monotonic seconds: by when its tasks must be stopped, or run; from when it may begin.
    deadline: float = 0.0
    due: float = 0.0
    #: What its last attempt failed of.
    error: Exception | None = None


class Regions:
    """All regions of a job.

    Args:
        graph: the job, cut by chain.
        slots: how many slots there are.
        patience: seconds that slots may take to begin, once a task has failed, and to begin again.
    """

    def __init__(self, graph: JobGraph, slots: int, patience: float = math.inf) -> None:
        self._slots = slots
        self._patience = patience
        #: All slots have restored their tasks, and hear what they are told.
        self.has_begun = False
        #: Slots whose places are empty.
        self._gone: set[int] = set()
        members: dict[int, list[int]] = {}
        widths: dict[int, int] = {}
        for stage in graph.stages:
            members.setdefault(stage.region, []).extend(stage.nodes)
            widths[stage.region] = max(widths.get(stage.region, 0), stage.parallelism)
        self._regions = {}
        for number, nodes in members.items():
            own = [graph.nodes[node] for node in nodes]
            self._regions[number] = Region(
                number,
                frozenset(node.uid for node in own if node.kind == "source"),
                frozenset(node.uid for node in own if node.kind == "sink"),
                ", ".join(repr(node.name) for node in own if node.kind == "source"),
                widths[number],
            )

    def __len__(self) -> int:
        return len(self._regions)

    @property
    def all_run(self) -> bool:
        """Return whether no region is on its way back."""
        return all(region.state is RegionState.RUNS for region in self._regions.values())

    @property
    def least(self) -> int:
        """In how many slots the narrowest has tasks."""
        return min(region.width for region in self._regions.values())

    def in_slot(self, slot: int) -> list[Region]:
        """The regions that have tasks in a slot."""
        return [region for region in self._regions.values() if slot < region.width]

    def gone(self, slot: int) -> None:
        """Note that a slot is lost: it has no tasks, and its answers are not waited for."""
        self._gone.add(slot)
        for region in self._regions.values():
            if region.state is RegionState.STOPS:
                self.stopped(region.number, region.attempt, slot)
            elif region.state is RegionState.BEGINS:
                self.running(region.number, region.attempt, slot)

    def taken(self, slot: int) -> None:
        """Note that the place of a lost slot is taken."""
        self._gone.discard(slot)

    def get(self, number: int, attempt: int) -> Region | None:
        """A region; None if that attempt is not its last, so that nothing of it is news."""
        region = self._regions[number]
        return region if region.attempt == attempt else None

    def begun(self, now: float) -> None:
        """Note that all slots have begun: what they were told to stop before, they can stop now."""
        self.has_begun = True
        for region in self._regions.values():
            if region.state is RegionState.STOPS:
                region.deadline = now + _STOPPING

    def stop(
        self, region: Region, delay: float, now: float, error: Exception | None = None
    ) -> None:
        """Note that its slots are told to stop its tasks, for the next attempt."""
        region.attempt += 1
        region.error = error
        region.state = RegionState.STOPS
        region.missing = set(range(self._slots)) - self._gone
        region.deadline = now + (_STOPPING if self.has_begun else self._patience)
        region.due = now + delay

    def stopped(self, number: int, attempt: int, slot: int) -> None:
        """Note that a slot has no task of the older attempts of a region."""
        region = self.get(number, attempt)
        # One that takes a lost slot's place may say so when nobody waits for it any more.
        stops = region is not None and region.state is RegionState.STOPS
        if region is not None and stops and self._answered(region, slot):
            region.state = RegionState.WAITS

    def require_answers(self, now: float) -> None:
        """Raise if the tasks of a region have not stopped, or begun again, in time.

        Raises:
            Exception: what the region has failed of, if that is known: the failure is the same.
            WorkerLostError: else; or its tasks do not begin again, which is another failure.
        """
        for region in self._regions.values():
            waits = region.state in {RegionState.STOPS, RegionState.BEGINS}
            if not waits or now <= region.deadline:
                continue
            slots = ", ".join(map(str, sorted(region.missing)))
            message = (
                f"slots {slots} have not {self._pending_step(region)}; the whole job is restarted"
            )
            if region.error is None or region.state is RegionState.BEGINS:
                raise WorkerLostError(message) from region.error
            region.error.add_note(message)
            raise region.error

    def _pending_step(self, region: Region) -> str:
        """Return what slots were to do by the deadline of a region."""
        patience = f"within {self._patience:g} s ({options.SLOT_REQUEST_TIMEOUT.key})"
        if region.state is RegionState.BEGINS:
            return f"opened and restored the tasks of {region.title} again {patience}"
        if self.has_begun:
            return f"stopped the tasks of {region.title} within {_STOPPING:g} s"
        return f"begun {patience} of a failure of {region.title}"

    def due(self, now: float) -> list[Region]:
        """The regions that may continue now; they drop what they have left."""
        found = []
        for region in self._regions.values():
            if region.state is RegionState.WAITS and now >= region.due:
                region.state = RegionState.DROPS
                found.append(region)
        return found

    def begin(self, region: Region, now: float) -> None:
        """Note that its slots are told to begin."""
        region.state = RegionState.BEGINS
        region.deadline = now + self._patience
        region.missing = set(range(self._slots)) - self._gone

    def running(self, number: int, attempt: int, slot: int) -> Region | None:
        """Note that a slot has restored the tasks of a region; the region, if all have."""
        region = self.get(number, attempt)
        if region is None or not self._answered(region, slot):
            return None
        region.state = RegionState.RUNS
        return region

    def _answered(self, region: Region, slot: int) -> bool:
        region.missing.discard(slot)
        return not region.missing


# -- readers of splits -------------------------------------------------------------------------


class Readers:
    """The readers of all splits of a run."""

    def __init__(self, sources: SplitEnumerator, server: ControlServer) -> None:
        self._sources = sources
        self._server = server
        #: Channel -> the slot that reads its split.
        self._slots: dict[int, int] = {}
        #: Those of its keys that are not read to their ends.
        self._open: set[int] = set()

    @property
    def all_is_read(self) -> bool:
        """Return whether all splits that were assigned are read to their ends."""
        return not self._open

    def note(self, assignments: Iterable[SplitAssignment]) -> None:
        """Note that slots are told, by a plan or a message, to read splits."""
        for each in assignments:
            self._slots[each.channel] = each.subtask
            self._open.add(each.channel)

    def restart(
        self, uids: AbstractSet[str], position: Offset, last: Manifest | None
    ) -> list[SplitAssignment]:
        """Go back to a checkpoint with some sources, whose tasks have stopped.

        Returns:
            What their tasks read from then on.
        """
        gone, assignments = self._sources.restart(uids, position, last)
        self._open.difference_update(gone)
        self.note(assignments)
        return assignments

    def progress(self, splits: Mapping[int, SplitProgress]) -> None:
        """Record how far splits are, by channel."""
        self._sources.progress(splits)
        self._open.difference_update(c for c, split in splits.items() if split.over)

    def check(self, now: int) -> None:
        """Tell the slots what has changed."""
        update = self._sources.poll(now)
        if not update:
            return
        send = self._server.send
        for slot, splits in update.assigned.items():
            self.note(splits)
            send(slot, Assigned(tuple(splits)))
        for slot in {self._slots[channel] for channel in update.grown.keys() | update.final}:
            ends = {c: end for c, end in update.grown.items() if self._slots[c] == slot}
            final = frozenset(c for c in update.final if self._slots[c] == slot)
            send(slot, Grown(ends, final))
        for slot, channels in update.retired.items():
            send(slot, Retired(frozenset(channels)))
        if update.held is not None:
            self._server.broadcast(Paused(update.held))
        if update.ceilings is not None:
            self._server.broadcast(Ceilings(update.ceilings))
        for uid in update.ended:
            self._server.broadcast(SourceEnded(uid))

    def stop(self, *, drains: bool) -> None:
        """Have all slots read nothing more: it would not be committed."""
        self._server.broadcast(Drain() if drains else Paused(frozenset(self._slots)))


# -- failover ----------------------------------------------------------------------------------


class Failover:
    """Restarts regions while others continue.

    Contract:
      1. All is called by the run loop, in its thread.  (run loop)
      2. What is raised ends the run.  (run loop)
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
        """Return whether no region is on its way back, and no slot is being replaced."""
        return self._regions.all_run and not self._replacements.under_way

    def begun(self, now: float) -> None:
        """Note that all slots have begun."""
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
            self._server.broadcast(StopRegion(region.number, region.attempt))

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

    def handle(
        self, event: Stopped | Dropped | LostSlot | Registered | Connected | Unreachable
    ) -> None:
        """Record what has happened to a region or a slot.

        Raises:
            BaseException: the run cannot continue.
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
        elif isinstance(event, Connected):
            self._replacements.connected(event)
        else:
            self._replacements.unreachable(event)

    def taken(self, slot: int) -> None:
        """Note that a slot runs that takes the place of a lost one."""
        self._replacements.running(slot)

    def running(self, event: Running) -> None:
        """Note that a slot has restored the tasks of a region."""
        number = cast("int", event.region)
        region = self._regions.running(number, event.attempt, event.slot)
        if region is not None:
            _LOG.info("%s continues, attempt %d", region.title, region.attempt)
            if self._regions.all_run:
                self._run.on_resumed()

    def check(self) -> None:
        """Check whether regions may continue, or take too long."""
        self._replacements.check()
        if self._regions.all_run:
            return
        now = time.monotonic()
        self._regions.require_answers(now)
        # What all tasks have acknowledged will be published: the region resumes from there.
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
        self._server.broadcast(message)
