"""The regions of a job, and how far each is on its way back from a failure.

What it is: bookkeeping without threads and sockets; time is given.  A *region* is what is connected
by edges: no record goes from one to another, so one can go back to the last checkpoint while the
others go on.

What it is not: the doing of it (``engines/pipelined/failover.py``), nor a slot's part
(``runtime/pipelined/main_loop.py``).

The way of a region, one of whose tasks has failed:

1. STOPS: all slots close its tasks.  Checkpoints that are under way are given up, but for those
   that all tasks have acknowledged: these will be published.
2. WAITS: for the delay of the restart strategy, and until those are committed.
3. DROPS: what its tasks have left in the sinks is dropped, behind these commits.
4. BEGINS: from the last checkpoint, in an epoch that no older attempt has written for.
5. RUNS: when all slots have restored its tasks.

From 1 to 5 no checkpoint is triggered.  A task that fails in 4 begins the way again; one that
hangs there, in ``open``, restarts the whole job.

A slot that is lost with some of its tasks is as one of them that fails; what a slot that is not
there would have said is not waited for.

Slots do not begin at the same time: a task may fail while another slot has yet to restore its own.
That slot stops the region when it has begun; until all have, they have more time.

What can never happen: tasks of two attempts of a region are at work at the same time.

Read next: ``engines/pipelined/failover.py``, ``graph/model.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from millstream.configuration import options
from millstream.errors import WorkerLostError

if TYPE_CHECKING:
    from millstream.graph.model import JobGraph

__all__ = ["Region", "RegionState", "Regions"]

#: Seconds that slots may take to stop the tasks of a region: what they close may have to answer.
_STOPPING: Final = 10.0


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
        self._begun = False
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
        """How many there are."""
        return len(self._regions)

    @property
    def all_run(self) -> bool:
        """Whether no region is on its way back."""
        return all(region.state is RegionState.RUNS for region in self._regions.values())

    @property
    def least(self) -> int:
        """In how many slots the narrowest has tasks."""
        return min(region.width for region in self._regions.values())

    @property
    def has_begun(self) -> bool:
        """Whether all slots have, once."""
        return self._begun

    def in_slot(self, slot: int) -> list[Region]:
        """The regions that have tasks in a slot."""
        return [region for region in self._regions.values() if slot < region.width]

    def gone(self, slot: int) -> None:
        """Take that a slot is lost: it has no tasks, and its answers are not waited for."""
        self._gone.add(slot)
        for region in self._regions.values():
            if region.state is RegionState.STOPS:
                self.stopped(region.number, region.attempt, slot)
            elif region.state is RegionState.BEGINS:
                self.running(region.number, region.attempt, slot)

    def taken(self, slot: int) -> None:
        """Take that the place of a lost slot is taken."""
        self._gone.discard(slot)

    def get(self, number: int, attempt: int) -> Region | None:
        """A region; None if that attempt is not its last, so that nothing of it is news."""
        region = self._regions[number]
        return region if region.attempt == attempt else None

    def begun(self, now: float) -> None:
        """Note that all slots have begun: what they were told to stop before, they can stop now.

        Args:
            now: monotonic seconds.
        """
        self._begun = True
        for region in self._regions.values():
            if region.state is RegionState.STOPS:
                region.deadline = now + _STOPPING

    def stop(
        self, region: Region, delay: float, now: float, error: Exception | None = None
    ) -> None:
        """Note that its slots are told to stop its tasks, for the next attempt.

        Args:
            region: one of whose tasks has failed.
            delay: seconds to wait before it begins again.
            now: monotonic seconds.
            error: what it has failed of.
        """
        region.attempt += 1
        region.error = error
        region.state = RegionState.STOPS
        region.missing = set(range(self._slots)) - self._gone
        region.deadline = now + (_STOPPING if self._begun else self._patience)
        region.due = now + delay

    def stopped(self, number: int, attempt: int, slot: int) -> None:
        """Take that a slot has no task of the older attempts of a region."""
        region = self.get(number, attempt)
        # One that takes a lost slot's place may say so when nobody waits for it any more.
        stops = region is not None and region.state is RegionState.STOPS
        if region is not None and stops and self._answered(region, slot):
            region.state = RegionState.WAITS

    def require_answers(self, now: float) -> None:
        """Raise if the tasks of a region have not stopped, or begun again, in time.

        Args:
            now: monotonic seconds.

        Raises:
            Exception: what the region has failed of, if that is known: the failure is the same.
            WorkerLostError: else; or its tasks do not begin again, which is another failure.
        """
        for region in self._regions.values():
            waits = region.state in {RegionState.STOPS, RegionState.BEGINS}
            if not waits or now <= region.deadline:
                continue
            slots = ", ".join(map(str, sorted(region.missing)))
            message = f"slots {slots} have not {self._owed(region)}; the whole job is restarted"
            if region.error is None or region.state is RegionState.BEGINS:
                raise WorkerLostError(message) from region.error
            region.error.add_note(message)
            raise region.error

    def _owed(self, region: Region) -> str:
        """What slots were to do by the deadline of a region."""
        patience = f"within {self._patience:g} s ({options.SLOT_REQUEST_TIMEOUT.key})"
        if region.state is RegionState.BEGINS:
            return f"opened and restored the tasks of {region.title} again {patience}"
        if self._begun:
            return f"stopped the tasks of {region.title} within {_STOPPING:g} s"
        return f"begun {patience} of a failure of {region.title}"

    def due(self, now: float) -> list[Region]:
        """The regions that may go on now; they drop what they have left."""
        found = []
        for region in self._regions.values():
            if region.state is RegionState.WAITS and now >= region.due:
                region.state = RegionState.DROPS
                found.append(region)
        return found

    def begin(self, region: Region, now: float) -> None:
        """Note that its slots are told to begin.

        Args:
            region: nothing is left of its last attempt.
            now: monotonic seconds.
        """
        region.state = RegionState.BEGINS
        region.deadline = now + self._patience
        region.missing = set(range(self._slots)) - self._gone

    def running(self, number: int, attempt: int, slot: int) -> Region | None:
        """Take that a slot has restored the tasks of a region; the region, if all have."""
        region = self.get(number, attempt)
        if region is None or not self._answered(region, slot):
            return None
        region.state = RegionState.RUNS
        return region

    def _answered(self, region: Region, slot: int) -> bool:
        region.missing.discard(slot)
        return not region.missing
