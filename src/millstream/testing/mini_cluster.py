"""MiniCluster: runs a whole job in the process of the test, checkpoint by checkpoint.

The test chooses where checkpoints fall; tasks run in any order, workers forget their instances, and
the job can be stopped after any checkpoint and resumed, at another parallelism too.
Tasks of the pipelined engine live from plan to plan, take snapshots at barriers, and are scheduled
in a seeded order.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, cast

import cloudpickle

from millstream.checkpoint.commit import CommitRetry
from millstream.checkpoint.job_directories import JobDirectories
from millstream.checkpoint.local_storage import LocalStorage, seal_of
from millstream.configuration import options
from millstream.contracts.source import Boundedness, RangeCursor
from millstream.directories import run_directory
from millstream.engines.local.engine import EpochTasks
from millstream.engines.local.worker import FrameFiles, TaskHost, TaskOutput, write_frames
from millstream.engines.pipelined.checkpoints import deadline_of
from millstream.execution.job import Job
from millstream.execution.planned_source import SplitLog, plan_sources
from millstream.execution.planner import SourcePlanner
from millstream.execution.run import EpochLoop, Run
from millstream.runtime.job_files import bring_files, working_directory
from millstream.runtime.pipelined.control import (
    Acknowledged,
    Assigned,
    Completed,
    Grown,
    Paused,
    Progress,
    Retired,
    SourceEnded,
    TakeCheckpoint,
)
from millstream.runtime.pipelined.main_loop import MainLoop
from millstream.runtime.pipelined.transport import Transport
from millstream.runtime.pipelined.uploader import finished
from millstream.types.pickling import dumps_by_value, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.engines.local.worker import TaskRequest
    from millstream.graph.job_files import JobFiles
    from millstream.graph.model import JobGraph
    from millstream.runtime.pipelined.control import DriverMessage, SlotMessage
    from millstream.runtime.pipelined.transport import Received
    from millstream.runtime.pipelined.uploader import PendingAck
    from millstream.runtime.plan import EpochPlan, SplitAssignment

__all__ = ["MiniCluster", "PipelinedTasks"]


#: Seconds that pass from one look at the clock to the next.
_POLL_SECONDS: Final = 0.0005
#: While the clock is moved a poll takes next to nothing, a step so many seconds, and there are so
#: many turns: more than one tick of every slot, and never a millisecond between two turns of a
#: task, as silence is judged up to the last but one.
_SHORT_POLL: Final = 1e-6
_SHORT_STEP: Final = 0.0003
_SHORT_STEPS: Final = 18
#: Turns after which looks take next to nothing in every other turn: a task among many has less time
#: than it takes to check all its splits, and would never come to the last.
_PATIENT_STEPS: Final = 500
#: Turns after which a checkpoint hangs: there is nothing to wait for.
_MOST_STEPS: Final = 1_000_000


class _ListTransport(Transport):
    """Frames to slots of the same process."""

    def __init__(self, slot: int, frames: list[deque[Received]]) -> None:
        self._slot = slot
        self._frames = frames

    def send(self, slot: int, header: bytes, payload: bytes | memoryview | pa.Buffer) -> None:
        self._frames[slot].append((self._slot, header, memoryview(bytes(payload))))

    def poll(self, timeout: float) -> list[Received]:
        del timeout
        came = list(self._frames[self._slot])
        self._frames[self._slot].clear()
        return came

    def wake(self) -> None:
        """Nobody waits."""

    def queued(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""


class PipelinedTasks:
    """Runs the tasks of plans, which live from one plan to the next.

    Args:
        graph: the job, pickled.
        files: of the job.
        slots: how many: the widest parallelism.
        tasks: how many acknowledge.
        seed: of the order of turns.
    """

    #: Milliseconds after which barriers overtake; None: they never do.  What the job's options say
    #: of it is not heeded: tasks would continue after a plan, while their output is committed.
    patience: ClassVar[int | None] = None

    def __init__(self, graph: bytes, files: JobFiles, slots: int, tasks: int, seed: int) -> None:
        self._pickled = graph
        self._files = files
        self._slots = slots
        self._tasks = tasks
        self._random = random.Random(seed)  # noqa: S311 - a seeded test
        self._loops: list[MainLoop] = []
        self._messages: list[list[DriverMessage]] = [[] for _ in range(slots)]
        #: The clock for short times, and the duration of a poll.
        self._seconds = 0.0
        self._step = _POLL_SECONDS
        self._now = 0
        #: (source, split) -> channel, unique in the run, and where it is to be read up to.
        self._channels: dict[tuple[str, str], int] = {}
        self._wanted: dict[int, int] = {}
        self._read: dict[int, int] = {}
        sources = {node.uid: node.source for node in self._graph().nodes.values()}
        self._bounded = {
            uid
            for uid, source in sources.items()
            if source is not None and source.boundedness is Boundedness.BOUNDED
        }
        #: Channels of splits that are over and hold time back: the next plan has what follows them.
        self._over: list[int] = []
        self._acks: list[TaskAck] = []

    def run(
        self, plan: EpochPlan, waiting: frozenset[tuple[str, str]] = frozenset()
    ) -> list[TaskAck]:
        """Read what a plan says, then take a checkpoint.

        Args:
            plan: of an epoch.
            waiting: source and split of those that have more than the plan lets them read.

        Returns:
            What tasks acknowledge.
        """
        try:
            return self._run(plan, waiting)
        except BaseException as error:
            # As at a restart: what comes next begins with new tasks, from the last checkpoint.
            self._forget(error)
            raise

    def _run(self, plan: EpochPlan, waiting: frozenset[tuple[str, str]]) -> list[TaskAck]:
        self._now = plan.processing_time
        self._acks = []
        ends = [each for each in plan.assignments if each.is_end_of_input]
        splits = [each for each in plan.assignments if not each.is_end_of_input]
        bring_files(self._files)
        with working_directory(self._files):
            if self._loops:
                self._send(Completed(plan.epoch - 1))
                self._go_on(splits)
            else:
                self._begin(plan, splits)
            held = (channel for name, channel in self._channels.items() if name in waiting)
            # While the clock moves: what has more is not idle.
            self._send(Paused(frozenset(held)))
            self._move_clock()
            self._send(Paused(frozenset()))
            self._step_until(self._has_read, "its splits to be read")
            over = [each for each in splits if each.finished]
            self._over += [each.channel for each in over if each.source_uid in self._bounded]
            self._retire([each.channel for each in over if each.source_uid not in self._bounded])
            for uid in dict.fromkeys(each.source_uid for each in ends):
                self._send(SourceEnded(uid))
            deadline = deadline_of(None if plan.final else self.patience, self._now)
            self._send(TakeCheckpoint(plan.epoch, plan.final, self._now, deadline))
            self._step_until(lambda: len(self._acks) == self._tasks, "acknowledgements")
        return self._acks

    def _begin(self, plan: EpochPlan, splits: list[SplitAssignment]) -> None:
        plan.assignments = splits
        self._note(splits)
        pickled = dumps_by_value(plan)
        frames: list[deque[Received]] = [deque() for _ in range(self._slots)]
        self._loops = [
            MainLoop(
                slot,
                self._graph,
                lambda: cast("EpochPlan", cloudpickle.loads(pickled)),
                _ListTransport(slot, frames),
                self._handle,
                partial(self._finish, slot),
                lambda: self._now,
                self._look,
            )
            for slot in range(self._slots)
        ]
        for loop in self._loops:
            loop.restore()

    def _look(self) -> float:
        self._seconds += self._step
        return self._seconds

    def _graph(self) -> JobGraph:
        graph = cast("JobGraph", cloudpickle.loads(self._pickled))
        for node in graph.nodes.values():
            if node.source is not None:
                # The plan says how far is read: a cursor that finds records itself would continue.
                node.source.open_cursor = partial(RangeCursor, node.source)  # type: ignore[method-assign]
        return graph

    def _note(self, splits: list[SplitAssignment]) -> None:
        for assignment in splits:
            name = assignment.source_uid, assignment.split.id
            assignment.channel = self._channels.setdefault(name, len(self._channels))
            self._wanted[assignment.channel] = assignment.stop

    def _go_on(self, splits: list[SplitAssignment]) -> None:
        known = set(self._channels)
        self._wanted.clear()
        self._note(splits)
        new = [each for each in splits if (each.source_uid, each.split.id) not in known]
        for slot in range(self._slots):
            mine = tuple(each for each in new if each.subtask == slot)
            if mine:
                self._messages[slot].append(Assigned(mine))
        old = [each for each in splits if each not in new]
        final = frozenset(each.channel for each in old if each.finished)
        self._send(Grown({each.channel: each.stop for each in old}, final))
        over, self._over = self._over, []
        self._retire(over)

    def _retire(self, channels: list[int]) -> None:
        self._send(Retired(frozenset(channels)))

    def _send(self, message: DriverMessage) -> None:
        for messages in self._messages:
            messages.append(message)

    def _handle(self, message: SlotMessage) -> None:
        if isinstance(message, Acknowledged):
            self._acks.append(cast("TaskAck", loads(message.ack)))
        elif isinstance(message, Progress):
            self._read.update(
                {channel: split.position for channel, split in message.splits.items()}
            )

    def _finish(self, slot: int, pending: PendingAck) -> None:
        self._handle(finished(slot, pending))

    def _has_read(self) -> bool:
        return all(self._read.get(channel) == stop for channel, stop in self._wanted.items())

    def _move_clock(self) -> None:
        """Have every task told the time of the plan, ahead of its records and of its barrier."""
        self._step = _SHORT_POLL
        for _ in range(_SHORT_STEPS):
            self._seconds += _SHORT_STEP
            self._turn()
        self._step = _POLL_SECONDS
        self._turn()

    def _step_until(self, condition: Callable[[], bool], what: str) -> None:
        for step in range(_MOST_STEPS):
            if condition():
                self._step = _POLL_SECONDS
                return
            self._step = _SHORT_POLL if step % 2 and step > _PATIENT_STEPS else _POLL_SECONDS
            self._turn()
        message = f"no progress, waiting for {what}"
        raise AssertionError(message)

    def _turn(self) -> None:
        order = list(range(self._slots))
        self._random.shuffle(order)
        for slot in order:
            messages, self._messages[slot] = self._messages[slot], []
            self._loops[slot].step(messages, 0.0)

    def _forget(self, error: BaseException) -> None:
        try:
            self.close()
        except Exception as other:  # noqa: BLE001 - the first error is the one to tell
            error.add_note(f"then, while its tasks were closed: {other!r}")
        self._messages = [[] for _ in range(self._slots)]
        self._channels.clear()
        self._read.clear()
        self._over.clear()

    def close(self) -> None:
        """Close the user functions."""
        with contextlib.ExitStack() as closing:
            while self._loops:
                closing.callback(self._loops.pop().close)


class _ScriptedPlanner(SourcePlanner):
    """Cuts epochs where the test says, however long they take."""

    def epoch_finished(self, seconds: float) -> None:
        """Learn nothing of it."""

    def waiting(self) -> frozenset[tuple[str, str]]:
        """Source and split of those that have more than the last plan lets them read."""
        return frozenset(
            (planned.uid, planned.table.splits[number].id)
            for planned in self._sources
            for number in planned.waiting
        )


class MiniCluster:
    """Runs one job on one checkpoint directory.

    With ``pipelined`` its tasks are those of the pipelined engine, and each epoch ends with a
    barrier.  A job may change engines at any stop.

    Args:
        graph: the job, as for Spark; it is pickled and unpickled as there.
        directory: the checkpoint directory; a new temporary one if None.
        limit: units of source offset per epoch; a function of the epoch for random cuts.
        seed: shuffles the order in which tasks run and which of them forget their instance.
        state_backend: "hashmap" or "rocksdb".
        clock: processing time in milliseconds; the system's if None.
        tick_interval: milliseconds of ``clock`` after which an epoch runs though no data came;
            None: never.
        pipelined: whether tasks live on from epoch to epoch; None: as ``MiniCluster.pipelined``.
    """

    #: Which tasks run where nothing is said: those that end with each epoch, or those that go on.
    pipelined: ClassVar[bool] = False

    def __init__(
        self,
        graph: JobGraph,
        directory: Path | None = None,
        *,
        limits: Iterable[int] = (),
        seed: int = 0,
        state_backend: str = "hashmap",
        clock: Callable[[], int] | None = None,
        tick_interval: int | None = None,
        pipelined: bool | None = None,
    ) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix="millstream-mini-"))
        self._graph = graph
        self._limits = iter(limits)
        self._random = random.Random(seed)  # noqa: S311 - a seeded test
        seal = seal_of(graph.configuration.get(options.CHECKPOINT_HMAC_KEY_FILE))
        self.storage = LocalStorage(self.directory, fsync=False, seal=seal)
        local = self.directory.absolute() / "local"
        job = Job(
            graph,
            JobDirectories(self.storage, temporary=False, local=local),
            local_root=local,
            fsync=False,
            state_backend=state_backend,
            retry=CommitRetry((0.0, 0.0)),
        )
        self.job_id = job.job_id

        def make_planner(job: Job) -> _ScriptedPlanner:
            return _ScriptedPlanner(
                plan_sources(job.graph),
                SplitLog(job.storage),
                target_seconds=1.0,
                tick_interval=tick_interval,
                clock=clock or (lambda: time.time_ns() // 1_000_000),
                # Waiting brings nothing where the test moves the clock.
                wait_seconds=0.25 if clock is None else 0.0,
            )

        self.job = job
        lives_on = self.pipelined if pipelined is None else pipelined
        self._run = Run(
            job, make_planner=make_planner, by_chain=lives_on, clock_moves=clock is None
        )
        self.coordinator = self._run.coordinator
        self._run.open()
        pickled = dumps_by_value(graph)
        self._host = TaskHost(pickled, graph.files)
        self._files = FrameFiles()
        frames = run_directory().path / f"frames-{self._run.run_id}"
        self._tasks = EpochTasks(graph, frames, self._run_stage)
        self._pipelined_tasks: PipelinedTasks | None = None
        if lives_on:
            slots = max(stage.parallelism for stage in graph.stages)
            count = len(self._run.tasks())
            self._pipelined_tasks = PipelinedTasks(pickled, graph.files, slots, count, seed)
        self.loop = EpochLoop(self._run, self._run_tasks)

    @property
    def planner(self) -> SourcePlanner:
        """Plans what epochs read."""
        return self._run.planner

    def run(self, max_epochs: int = 10_000) -> Manifest | None:
        """Run epochs until the bounded job is over, or ``max_epochs`` more are done."""
        try:
            for _ in range(max_epochs):
                if not self.run_epoch():
                    break
        finally:
            self.close_instances()
        return self.coordinator.last

    def run_epoch(self) -> bool:
        """Plan and run one epoch; False if the sources have nothing."""
        if self._run.position["final"]:
            return False
        limit = next(self._limits, None)
        if limit is not None:
            self.planner.set_limit(limit)
        return self.loop.run_next()

    def _run_tasks(self, plan: EpochPlan) -> list[TaskAck]:
        if self._pipelined_tasks is not None:
            planner = cast("_ScriptedPlanner", self.planner)
            return self._pipelined_tasks.run(plan, planner.waiting())
        return self._tasks.run(plan)

    def _run_stage(self, requests: Sequence[TaskRequest]) -> list[TaskOutput]:
        # Which task finishes first must not matter.
        order = list(requests)
        self._random.shuffle(order)
        return [self._run_request(request) for request in order]

    def _run_request(self, request: TaskRequest) -> TaskOutput:
        self._host.bring_files()
        plan = cast("EpochPlan", loads(request.plan.read_bytes()))
        frames = self._files.read(request.inputs, request.subtask, request.parallelism)
        made = self._run_task(plan, request.level, request.subtask, list(frames))
        return TaskOutput(request.output, write_frames(made, request.output))

    def _run_task(
        self, plan: EpochPlan, level: int, subtask: int, frames: list[pa.RecordBatch]
    ) -> list[pa.RecordBatch]:
        if self._host.holds(level, subtask) and self._flips_coin():
            self._host.forget(level, subtask)  # it moves to another worker
        return list(self._host.run(plan, level, subtask, frames))

    def _flips_coin(self) -> bool:
        return self._random.random() < 0.5  # noqa: PLR2004 - a coin has two sides

    def close_instances(self) -> None:
        """Close the user functions."""
        if self._pipelined_tasks is not None:
            self._pipelined_tasks.close()
        self._host.close()
