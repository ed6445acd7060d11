"""A run of the pipelined engine in one thread: slots, network, driver, all by a seeded scheduler.

What it is: the main loops of all slots on an ``InMemoryTransport``, and in place of the driver a
few lines with the same coordinator and the same enumerator of splits.  Who has the next turn, how
long frames and messages take, which link stands still, when a barrier is begun and an upload is
done, or refused, which slot is killed when, and which task fails, comes from one seed.  After each
checkpoint the state in it, and what can be seen of the output, is compared with a plain computation
up to its positions.

What it is not: a test of processes, sockets and threads.

Read next: ``tests/pipelined/random_graphs.py``, ``src/millstream/runtime/pipelined/main_loop.py``.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, cast

import cloudpickle
from tests.pipelined.random_graphs import (
    WORLDS,
    Computed,
    Graph,
    InFlight,
    computed,
    number_of,
    program,
    rescaled,
    split_id,
    uid_of,
)
from tests.support.memory_transport import Network

from millstream.checkpoint.commit import CommitRetry
from millstream.checkpoint.job_directories import JobDirectories
from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Configuration
from millstream.connectors.basic.collect import read_collected
from millstream.datastream import StreamExecutionEnvironment
from millstream.engines.pipelined.regions import Regions
from millstream.errors import IncompatibleProgramError, SlotLostError
from millstream.execution.job import Job
from millstream.execution.offsets import Position
from millstream.execution.planned_source import plan_sources
from millstream.execution.restored_program import fit
from millstream.execution.run import Run
from millstream.execution.split_enumerator import SplitEnumerator
from millstream.execution.split_log import SplitLog
from millstream.graph.stages import by_chain
from millstream.graph.unaligned import edge_names
from millstream.runtime.frames import DATA_ARROW, DATA_PICKLE, decode_batch
from millstream.runtime.pipelined.links import HEADER
from millstream.runtime.pipelined.main_loop import MainLoop
from millstream.runtime.pipelined.messages import (
    NEVER,
    Abandoned,
    Acknowledged,
    Assigned,
    BeginRegion,
    Completed,
    Declined,
    End,
    Failed,
    Grown,
    Held,
    Progress,
    Retired,
    Running,
    SourceEnded,
    Stopped,
    StopRegion,
    TakeCheckpoint,
)
from millstream.runtime.pipelined.uploader import declined, finished
from millstream.state.in_flight_files import read_frames
from millstream.state.reader import open_state
from millstream.testing.mini_cluster import MiniCluster
from millstream.types.pickling import loads

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.engines.pipelined.regions import Region
    from millstream.graph.model import JobGraph
    from millstream.runtime.pipelined.messages import DriverMessage, SlotMessage
    from millstream.runtime.pipelined.pending_ack import PendingAck
    from millstream.runtime.plan import EpochPlan

__all__ = ["InconsistentCutError", "Simulation"]

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


class Simulation:
    """Runs one job to its end, over all the runs that it takes.

    Args:
        graph: the program.
        seed: of everything else.
        directory: an empty one.
        kills: how many slots are killed at most.
        failures: how many tasks raise at most, of jobs with several regions.
        backend: where state lives.
        mode: EXACTLY_ONCE or AT_LEAST_ONCE; with that nothing may be missing.
        changes: whether the job goes on at another parallelism, or with some epochs on the other
            engine, after some of the kills.
        barriers: "aligned", "unaligned", "time-out", or "mixed", where each checkpoint is one of
            them.
        losses: how many slots are lost and replaced at most, while regions that have no task in
            them go on.
    """

    def __init__(
        self,
        graph: Graph,
        seed: int,
        directory: Path,
        *,
        kills: int = 3,
        failures: int = 6,
        changes: bool = False,
        backend: str = "hashmap",
        mode: str = "EXACTLY_ONCE",
        barriers: str = "aligned",
        losses: int = 0,
    ) -> None:
        self.graph = graph
        self.may_lose, self.losses_left = losses > 0, losses
        self.lost = 0
        self.losing = random.Random(f"losses {seed}")
        self.barriers = barriers
        self._drawn = random.Random(f"barriers {seed}")
        self.backend = backend
        self.mode = mode
        self.directory = directory
        self.chance = random.Random(f"simulation {seed}")
        self.clock = Clock(self.chance)
        self.kills_left = kills
        self.failures_left = failures
        self.changes = changes
        self.world = str(directory)
        #: Checkpoints, and how far splits were read in each.
        self.compared: list[tuple[int, dict[str, int]]] = []
        self.runs = 0
        #: Checkpoints that have failed; of those, for an upload was refused.
        self.given_up = 0
        self.declined = 0
        #: How often a region was restarted alone.
        self.restarted = 0
        #: Epochs that the other engine has run.
        self.epochs = 0
        #: Frames in flight in checkpoints; restarts from such a checkpoint, at the same and at
        #: another parallelism, on the other engine, and refused.
        self.in_flight = 0
        self.resumed = Counter[str]()
        self._last: Manifest | None = None
        self.sizes = {
            split_id(number, split): size
            for number, source in enumerate(graph.sources)
            for split, size in enumerate(source.splits)
        }
        WORLDS[self.world] = {
            name: 0 if graph.sources[int(name.split("-")[0])].grows else size
            for name, size in self.sizes.items()
        }
        self.storage = LocalStorage(directory / "checkpoints", fsync=False)

    def _job_graph(self) -> JobGraph:
        configuration = Configuration()
        configuration.set_string("millstream.local-directory", str(self.directory / "local"))
        configuration.set_string("execution.checkpointing.mode", self.mode)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(self.graph.slots)
        narrow = self.may_lose  # else sinks have tasks of all regions in all slots
        program(env, self.graph, self.world, self.directory / "sinks", narrow=narrow)
        return env.get_job_graph("random")

    def _job(self) -> Job:
        local = self.directory / "local"
        return Job(
            self._job_graph(),
            JobDirectories(self.storage, temporary=False, local=local),
            local_root=local,
            fsync=False,
            state_backend=self.backend,
            retry=CommitRetry((0.0, 0.0)),
        )

    def run(self) -> None:
        """Run until the job is over, and compare its output.

        Raises:
            InconsistentCutError: something is not as computed.
        """
        while not self._run_once():
            how = "same"
            if self.changes and self.chance.random() < 0.5:
                how = self._rescale()
            if self._last is not None and self._last.in_flight:
                self.resumed[how] += 1
            # With epochs a split that has not begun holds no time back (decision 0003), so what
            # comes there later may be late: where there are windows, not before all have begun.
            may_run_epochs = self.changes and (self.compared or not self.graph.is_timed)
            if may_run_epochs and self.chance.random() < 0.5:
                self._run_epochs(self.chance.randint(1, 3))
        self.compare_output(computed(self.graph, self.sizes), "at the end")
        del WORLDS[self.world]

    def _rescale(self) -> str:
        """Go on at another parallelism, unless what is in flight would lie where a source is."""
        before, self.graph = self.graph, rescaled(self.graph, self.chance)
        try:
            fit(self._job_graph(), self.storage, self._last)
        except IncompatibleProgramError as error:
            if "lies within one task now" not in str(error):
                raise
            self.graph = before
            return "refused"
        return "rescaled"

    def deadline(self, time: int) -> int:
        """Of the barriers of a checkpoint that is triggered now."""
        kind = self.barriers
        if kind == "mixed":
            kind = self._drawn.choice(["aligned", "unaligned", "time-out"])
        if kind == "aligned":
            return NEVER
        return 0 if kind == "unaligned" else time + self._drawn.choice([1, 20, 200])

    def _run_once(self) -> bool:
        run = Run(self._job(), tasks_at_work=True)
        self.runs += 1
        try:
            return not run.open() or SimulatedRun(self, run).run()
        finally:
            run.close()

    def _run_epochs(self, count: int) -> None:
        """Let the job go on with the engine whose tasks end with each epoch."""
        cluster = MiniCluster(
            self._job_graph(),
            self.directory / "checkpoints",
            limits=itertools.repeat(20),
            seed=self.chance.randrange(1 << 30),
            state_backend=self.backend,
            clock=self.clock.milliseconds,
        )
        if self._last is not None and self._last.in_flight:
            self.resumed["other engine"] += 1
        try:
            for _ in range(count):
                self.grow()
                if cluster.run_epoch() and (last := cluster.coordinator.last) is not None:
                    self.epochs += 1
                    self.compare(last)
        finally:
            cluster.close_instances()
            cluster.coordinator.close()

    def grow(self) -> None:
        """Let some split have more."""
        world = WORLDS[self.world]
        name = self.chance.choice(sorted(world))
        world[name] = min(self.sizes[name], world[name] + self.chance.choice([1, 10, 50]))

    # -- what must hold ------------------------------------------------------------------------

    def compare(self, manifest: Manifest) -> None:
        """Compare a checkpoint that is committed.

        Raises:
            InconsistentCutError: it is no consistent cut.
        """
        self._last = manifest
        positions = self._positions(manifest)
        self.compared.append((manifest.epoch, positions))
        where = f"in checkpoint {manifest.epoch}, run {self.runs}, positions {positions}"
        unknown = set() if manifest.final else self.graph.behind_windows
        try:
            expected = computed(self.graph, positions, self._in_flight(manifest, unknown))
        except ValueError as error:
            message = f"{error} {where}"
            raise InconsistentCutError(message) from error
        for number in self.graph.keyed:
            if number in unknown:
                continue
            found = Counter[tuple[int, str]]()
            with open_state(self.storage, manifest, uid_of(number)) as state:
                if any(each.section.name == "seen" for each in state.sections()):
                    for entry in state.entries("seen"):
                        name = cast("str", entry.namespace)
                        found[cast("int", entry.key), name] += cast("int", entry.value)
            self._require(found, expected.states[number], f"operation {number} {where}")
        self.compare_output(expected, where, unknown)

    def _in_flight(self, manifest: Manifest, unknown: AbstractSet[int]) -> InFlight:
        """What was not processed, of streams that are known."""
        graph = self._job_graph()
        edges = {name: graph.edges[i] for i, name in enumerate(edge_names(graph).values())}
        found: InFlight = {}
        for handle in manifest.in_flight:
            channels, frames = read_frames(handle, self.storage)
            self.in_flight += len(frames)
            for frame in frames:
                name = channels[frame.channel].edge
                is_known = number_of(name.source) not in unknown
                if frame.kind not in (DATA_ARROW, DATA_PICKLE) or not is_known:
                    continue
                batch = decode_batch(frame.kind, frame.payload, edges[name].type_info)
                records = (tuple(cast("Any", each)) for each in batch.values)
                found.setdefault((name.source, name.target), Counter()).update(records)
        return found

    def _positions(self, manifest: Manifest) -> dict[str, int]:
        """Split -> how far it is read."""
        found = {}
        for number, source in enumerate(self.graph.sources):
            position = Position.of(manifest.offsets, uid_of(number))
            for split in range(len(source.splits)):
                name = split_id(number, split)
                is_over = position.is_over(split)
                found[name] = self.sizes[name] if is_over else position.at.get(split, 0)
        return found

    def compare_output(
        self, expected: Computed, where: str, unknown: AbstractSet[int] = frozenset()
    ) -> None:
        """Compare what can be seen of the output, but for streams that are not known yet."""
        for number in set(self.graph.sinks) - unknown:
            path = self.directory / "sinks" / str(number)
            seen = Counter(tuple(cast("Any", each)) for each in read_collected(path))
            self._require(seen, expected.sinks[number], f"sink of stream {number} {where}")

    def _require(self, found: Counter[Any], expected: Counter[Any], what: str) -> None:
        more, less = found - expected, expected - found
        if self.mode == "AT_LEAST_ONCE":
            more.clear()
        if more or less:
            message = f"{what}: too many {more.most_common(5)}, missing {less.most_common(5)}"
            raise InconsistentCutError(message)


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
            self.loops[slot].turn(self.to_slot[slot].take(), 0)
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
                loop.turn(self.to_slot[slot].take(), 0)
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
                self._hear(message)
        if self.over:
            return
        self._look_at_sources()
        for region in self.regions.due(self.sim.clock.now):
            self._begin_region(region)
        if not self.regions.all_run:
            return
        if self.pending and not self.sources.is_over and self.chance.random() < 0.01:
            self._give_up(self.chance.choice(sorted(self.pending)))
        if self.sources.is_over:
            if not self.pending:
                self._trigger(final=True)
        elif len(self.pending) < self.most_pending and self.chance.random() < self.barriers:
            self._trigger(final=False)

    def _look_at_sources(self) -> None:
        update = self.sources.look(self.sim.clock.milliseconds())
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
            self._tell_all(Held(update.held))
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
        self.regions.begin(region)
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

    def _hear(self, message: SlotMessage) -> None:
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
        self.sim.compare(manifest)
        self._tell_all(Completed(epoch))
        self.over = message.final
        return not self.over


def _raise() -> None:
    message = "simulated"
    raise ValueError(message)
