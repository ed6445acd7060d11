"""One run of a simulated job: the main loops of its slots, and a few lines in place of the driver.

What it is: steps by a seeded scheduler.  Who has the next turn, how long messages take, when a
barrier is begun, an upload is done or refused, which slot is killed or lost, which task fails.
What it is not: what must hold of its checkpoints, which is ``Simulation``'s.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import cloudpickle
from tests.support.memory_transport import Network

from millstream.engines.pipelined.failover import Regions
from millstream.engines.pipelined.run_loop import Draining
from millstream.errors import SlotLostError
from millstream.execution.planned_source import SplitLog, plan_sources
from millstream.execution.split_enumerator import SplitEnumerator
from millstream.graph.model import by_chain
from millstream.runtime.pipelined.control import (
    NEVER,
    Abandoned,
    Acknowledged,
    Assigned,
    BeginRegion,
    Ceilings,
    Completed,
    Declined,
    End,
    Failed,
    Grown,
    Paused,
    Progress,
    Retired,
    Running,
    SourceEnded,
    Stopped,
    StopRegion,
    TakeCheckpoint,
)
from millstream.runtime.pipelined.links import HEADER
from millstream.runtime.pipelined.main_loop import MainLoop
from millstream.runtime.pipelined.uploader import declined, finished
from millstream.types.pickling import loads

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.pipelined.simulation import Simulation

    from millstream.checkpoint.model import TaskAck
    from millstream.engines.pipelined.failover import Region
    from millstream.execution.run import Run
    from millstream.runtime.pipelined.control import DriverMessage, SlotMessage
    from millstream.runtime.pipelined.uploader import PendingAck
    from millstream.runtime.plan import EpochPlan

__all__ = ["Clock", "InconsistentCutError", "SimulatedRun"]

#: A run that has not ended by then stands still.
MOST_STEPS = 60_000


class InconsistentCutError(AssertionError):
    """A checkpoint, or the output, is not that of a plain computation."""


class Delayed:
    """Messages in one direction, each late by some steps, in their order."""

    def __init__(self, chance: random.Random, most: int) -> None:
        self._chance = chance
        self._most = most
        self._waiting: deque[tuple[int, Any]] = deque()
        self.now = 0

    def put(self, message: Any) -> None:
        last = self._waiting[-1][0] if self._waiting else 0
        due = max(last, self.now + self._chance.randint(0, self._most))
        self._waiting.append((due, message))

    def take(self) -> list[Any]:
        found = []
        while self._waiting and self._waiting[0][0] <= self.now:
            found.append(self._waiting.popleft()[1])
        return found

    def __len__(self) -> int:
        return len(self._waiting)


class Clock:
    """Time moves when somebody looks, so a slot's turn does not depend on the machine."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.now = 1000.0

    def seconds(self) -> float:
        self.now += self._chance.choice([0.0002, 0.001, 0.004])
        return self.now

    def milliseconds(self) -> int:
        return int(self.now * 1000)


class SimulatedRun:
    """One run: from a checkpoint, or the beginning, to a kill or the end."""

    def __init__(self, simulation: Simulation, run: Run) -> None:
        self.sim = simulation
        self.chance = chance = simulation.chance
        self.life = run
        slots = simulation.graph.slots
        self.network = Network(
            slots,
            chance.randrange(1 << 30),
            header_size=HEADER.size,
            most_delay=chance.choice([0, 3, 15]),
        )
        delay = chance.choice([0, 4, 20])
        self.to_slot = [Delayed(chance, delay) for _ in range(slots)]
        self.to_driver = [Delayed(chance, delay) for _ in range(slots)]
        self.uploads: list[deque[PendingAck]] = [deque() for _ in range(slots)]
        clock = simulation.clock
        self.sources = SplitEnumerator(
            plan_sources(run.job.graph),
            SplitLog(run.job.storage),
            run.position,
            run.last,
            clock=clock.milliseconds,
        )
        if run.last is not None:
            self.sources.committed(run.last.splits)
        assignments = self.sources.begin()
        self.readers = {each.channel: each.subtask for each in assignments}
        time = max(clock.milliseconds(), cast("int", run.position["time"]))
        plan = cloudpickle.dumps(run.first_plan(assignments, time))
        self.shipped = cloudpickle.dumps(run.job.graph)
        self.delay = delay
        self.loops = {
            slot: self._loop(slot, lambda: cloudpickle.loads(plan)) for slot in range(slots)
        }
        self.regions = Regions(by_chain(run.job.graph), slots)
        self.credit = chance.choice([100, 1000, 1 << 20])
        self._limit_credit(self.credit)
        self.epoch = (run.last.epoch if run.last else -1) + 1
        #: Epoch -> its message, and what is acknowledged.
        self.pending: dict[int, tuple[TakeCheckpoint, list[TaskAck]]] = {}
        self.failed: set[int] = set()
        self.most_pending = chance.choice([1, 1, 2, 3])
        #: Some slots have more turns than others.
        self.weights = [chance.choice([1, 1, 3, 10]) for _ in range(slots)]
        self.barriers = chance.choice([0.02, 0.1, 0.4])
        self.over = False
        self.draining = Draining(overtakes=simulation.barriers != "aligned")

    def _loop(self, slot: int, make_plan: Callable[[], EpochPlan] | None) -> MainLoop:
        return MainLoop(
            slot,
            lambda: cloudpickle.loads(self.shipped),
            make_plan,
            self.network.transport(slot),
            self.to_driver[slot].put,
            self.uploads[slot].append,
            self.sim.clock.milliseconds,
            self.sim.clock.seconds,
            restarts_regions=True,
        )

    def _limit_credit(self, limit: int) -> None:
        for loop in self.loops.values():
            for incoming in loop._in.values():
                incoming.limit = limit
            for outgoing in loop._out.values():
                outgoing.limit = limit

    def run(self) -> bool:
        """Take steps until the job is over (True) or a slot is lost (False)."""
        try:
            for slot in self.chance.sample(sorted(self.loops), len(self.loops)):
                self.loops[slot].restore()
            for _ in range(MOST_STEPS):
                self._step()
                if self.over:
                    self._end()
                    return True
        except SlotLostError:
            # The others end as well; what none of them has acknowledged is lost with them.
            return False
        message = f"nothing moves any more; pending: {sorted(self.pending)}"
        raise InconsistentCutError(message)

    def _step(self) -> None:
        chance = self.chance
        self.network.step()
        for each in (*self.to_slot, *self.to_driver):
            each.now += 1
        if chance.random() < 0.01 and len(self.loops) > 1:
            source, target = chance.sample(sorted(self.loops), 2)
            self.network.stall(source, target, chance.choice([5, 50, 300]))
        if self.sim.kills_left and chance.random() < 0.003:
            self._kill(chance.choice(sorted(self.loops)))
        may_fail = self.sim.failures_left and len(self.regions) > 1 and not self.is_ending
        if may_fail and chance.random() < 0.003:
            self._fail_task(chance.choice(sorted(self.loops)))
        if self.sim.losses_left and not self.is_ending and self.sim.losing.random() < 0.005:
            self._lose(self.sim.losing.choice(sorted(self.loops)))
        actor = chance.choices(["slot", "driver", "upload"], [10, 3, 3])[0]
        if actor == "slot":
            there = sorted(self.loops)
            (slot,) = chance.choices(there, [self.weights[each] for each in there])
            self.loops[slot].step(self.to_slot[slot].take(), 0)
        elif actor == "upload":
            self._upload(chance.choice(sorted(self.loops)))
        else:
            self.sim.grow()
            self._drive()

    def _upload(self, slot: int) -> None:
        if not self.uploads[slot]:
            return
        pending = self.uploads[slot].popleft()
        pending.is_done = True
        if pending.is_given_up:
            pending.give_up()
        elif not self.is_ending and self.chance.random() < 0.01:
            pending.give_up()
            self.to_driver[slot].put(declined(slot, pending, OSError("refused")))
        else:
            self.to_driver[slot].put(finished(slot, pending))

    def _fail_task(self, slot: int) -> None:
        """As if a task had raised."""
        loop = self.loops[slot]
        if loop.tasks:
            self.sim.failures_left -= 1
            loop._guarded(self.chance.choice(loop.tasks).id, _raise)

    def _kill(self, slot: int) -> None:
        self.sim.kills_left -= 1
        del self.loops[slot]  # nothing is closed: it was killed
        self.network.kill(slot)
        self.uploads[slot].clear()
        if not self.loops:
            message = f"slot {slot} was killed, and there is no other"
            raise SlotLostError(message)

    def _lose(self, slot: int) -> None:
        """Kill a slot, and put another in its place, where some regions have no task in it."""
        regions = self.regions.in_slot(slot)
        if len(regions) == len(self.regions) or len(self.loops) < len(self.to_slot):
            return
        self.sim.losses_left -= 1
        self.sim.lost += 1
        # As it was killed: nothing is closed, and what it has said last is lost with it.
        self.network.clear(slot)
        self.uploads[slot].clear()
        self.to_slot[slot] = Delayed(self.chance, self.delay)
        self.to_driver[slot] = Delayed(self.chance, self.delay)
        self.loops[slot] = self._loop(slot, None)
        for epoch in sorted(self.pending):
            self._give_up(epoch)
        self.regions.gone(slot)
        for region in regions:
            self._stop(region)
        self.regions.taken(slot)

    def _end(self) -> None:
        for slot, loop in self.loops.items():
            self._tell(slot, End())
            for _ in range(1000):
                self.to_slot[slot].now += 1
                loop.step(self.to_slot[slot].take(), 0)
                if loop.ended:
                    break
            else:
                message = f"slot {slot} does not end"
                raise InconsistentCutError(message)
            loop.close()

    # -- the driver ----------------------------------------------------------------------------

    def _tell(self, slot: int, message: DriverMessage) -> None:
        self.to_slot[slot].put(message)

    def _tell_all(self, message: DriverMessage) -> None:
        for slot in range(len(self.to_slot)):
            self._tell(slot, message)

    def _drive(self) -> None:
        for slot in self.chance.sample(range(len(self.to_driver)), len(self.to_driver)):
            for message in self.to_driver[slot].take():
                self._hear_of_region(message)
                self._handle(message)
        if self.over:
            return
        self._look_at_sources()
        for region in self.regions.due(self.sim.clock.now):
            self._begin_region(region)
        if not self.regions.all_run:
            return
        if self.pending and not self.sources.is_over and self.chance.random() < 0.01:
            self._give_up(self.chance.choice(sorted(self.pending)))
        self.draining.update(self.epoch, self.sim.clock.now, is_over=self.sources.is_over)
        if self.draining.is_done:
            if not self.pending:
                self._trigger(final=True)
        elif len(self.pending) < self.most_pending and self.chance.random() < self.barriers:
            self._trigger(final=False)

    def _look_at_sources(self) -> None:
        update = self.sources.poll(self.sim.clock.milliseconds())
        for slot, splits in update.assigned.items():
            self.readers.update((each.channel, slot) for each in splits)
            self._tell(slot, Assigned(tuple(splits)))
        for slot in {self.readers[channel] for channel in update.grown.keys() | update.final}:
            ends = {c: end for c, end in update.grown.items() if self.readers[c] == slot}
            final = frozenset(c for c in update.final if self.readers[c] == slot)
            self._tell(slot, Grown(ends, final))
        for slot, channels in update.retired.items():
            self._tell(slot, Retired(frozenset(channels)))
        if update.held is not None:
            self._tell_all(Paused(update.held))
        if update.ceilings is not None:
            self._tell_all(Ceilings(update.ceilings))
        for uid in update.ended:
            self._tell_all(SourceEnded(uid))

    # -- regions -------------------------------------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """Whether the last checkpoint is triggered: what fails now ends the run."""
        return any(message.final for message, _ in self.pending.values())

    def _hear_of_region(self, message: SlotMessage) -> None:
        if isinstance(message, Failed):
            assert message.region is not None
            region = self.regions.get(message.region, message.attempt)
            if region is None:
                return
            if self.is_ending:
                lost = "a task has failed behind the last barrier"
                raise SlotLostError(lost)
            for epoch in sorted(self.pending):
                self._give_up(epoch)
            self._stop(region)
        elif isinstance(message, Stopped):
            self.regions.stopped(message.region, message.attempt, message.slot)
        elif isinstance(message, Running):
            assert message.region is not None
            if self.regions.running(message.region, message.attempt, message.slot):
                self._limit_credit(self.credit)
                self.sim.restarted += 1

    def _stop(self, region: Region) -> None:
        self.regions.stop(region, self.chance.choice([0.0, 0.1]), self.sim.clock.now)
        region.deadline = math.inf
        self._tell_all(StopRegion(region.number, region.attempt))

    def _begin_region(self, region: Region) -> None:
        """As the driver does it."""
        self.life.coordinator.drop_output(region.sinks)
        self._trigger(final=False)
        self._give_up(self.epoch - 1)
        _, assignments = self.sources.restart(region.sources, self.life.position, self.life.last)
        self.readers.update((each.channel, each.subtask) for each in assignments)
        time = self.sim.clock.milliseconds()
        plan = cloudpickle.dumps(self.life.plan_of_region(assignments, time, self.epoch))
        self.regions.begin(region, self.sim.clock.now)
        self._tell_all(BeginRegion(region.number, region.attempt, plan))

    # -- checkpoints ---------------------------------------------------------------------------

    def _trigger(self, *, final: bool) -> None:
        time = self.sim.clock.milliseconds()
        deadline = NEVER if final else self.sim.deadline(time)
        message = TakeCheckpoint(self.epoch, final, time, deadline)
        self.epoch += 1
        self.pending[message.epoch] = message, []
        offset: dict[str, object] = {"epoch": message.epoch, "final": final}
        self.life.coordinator.begin_epoch(self.life.metadata(offset, message.time))
        self.sources.triggered(message.epoch)
        self._tell_all(message)

    def _give_up(self, epoch: int) -> None:
        """As if it had taken too long; the tasks go on."""
        del self.pending[epoch]
        self.failed.add(epoch)
        self.life.coordinator.fail_epoch(epoch)
        self._tell_all(Abandoned(epoch))
        self.sim.given_up += 1
        self._complete_all()

    def _handle(self, message: SlotMessage) -> None:
        if isinstance(message, Progress):
            self.sources.progress(message.splits)
        elif isinstance(message, Acknowledged):
            ack = cast("TaskAck", loads(message.ack))
            if ack.epoch not in self.failed:
                self.pending[ack.epoch][1].append(ack)
                self._complete_all()
        elif isinstance(message, Declined) and message.epoch not in self.failed:
            self.sim.declined += 1
            self._give_up(message.epoch)

    def _complete_all(self) -> None:
        while self.pending and self._complete(min(self.pending)):
            pass

    def _complete(self, epoch: int) -> bool:
        message, acks = self.pending[epoch]
        if len(acks) < len(self.life.tasks()):
            return False
        del self.pending[epoch]
        offset = self.sources.offset(epoch, acks, final=message.final, time=message.time)
        manifest = self.life.coordinator.complete_epoch(
            self.life.metadata(offset, message.time), acks, self.life.tasks()
        )
        self.sources.committed(manifest.splits, manifest.offsets)
        in_flight = [(each.stage, each.file["size"]) for each in manifest.in_flight]
        self.draining.committed(epoch, self.sim.clock.now, in_flight)
        self.sim.compare(manifest)
        self._tell_all(Completed(epoch))
        self.over = message.final
        return not self.over


def _raise() -> None:
    message = "simulated"
    raise ValueError(message)
