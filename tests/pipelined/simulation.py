"""A run of the pipelined engine in one thread: slots, network, driver, all by a seeded scheduler.

What it is: the main loops of all slots on an ``InMemoryTransport``, and in place of the driver a
few lines with the same coordinator and the same enumerator of splits.  Who has the next turn, how
long frames and messages take, which link stands still, when a barrier is begun and an upload is
done, or refused, which slot is killed when, and which task fails, comes from one seed.  After each
checkpoint the state in it, and what can be seen of the output, is compared with a plain computation
up to its positions.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

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
from tests.pipelined.simulated_run import Clock, InconsistentCutError, SimulatedRun

from millstream.checkpoint.commit import CommitRetry
from millstream.checkpoint.job_directories import JobDirectories
from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Configuration
from millstream.connectors.basic.collect import read_collected
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import IncompatibleProgramError
from millstream.execution.job import Job, fit
from millstream.execution.planned_source import Position
from millstream.execution.run import Run
from millstream.graph.validation import edge_names
from millstream.runtime.exchange import DATA_ARROW, DATA_PICKLE, decode_batch
from millstream.runtime.frames_in_flight import read_frames
from millstream.runtime.pipelined.control import (
    NEVER,
)
from millstream.state.reader import open_state
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from millstream.checkpoint.model import Manifest
    from millstream.graph.model import JobGraph

__all__ = ["InconsistentCutError", "Simulation"]


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
