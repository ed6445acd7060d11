"""A run of a job: recovery, source monitoring and planning, from fencing older runs to its end."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.program import has_declared_states
from millstream.checkpoint.publish import EpochMetadata
from millstream.configuration import options
from millstream.crash_points import crash_point
from millstream.errors import CheckpointExpiredError, FencedError
from millstream.execution.job import delete_older_files, fit, program_of
from millstream.execution.planned_source import SplitLog, initial_offset, plan_sources
from millstream.execution.planner import SourcePlanner
from millstream.graph import model
from millstream.logs import at_checkpoint
from millstream.runtime.plan import EpochPlan, OperatorRestore
from millstream.runtime.task_metrics import delete_counts
from millstream.state.rescale import own_states, redistribute
from millstream.types.pickling import loads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.checkpoint.commit import PendingCommits
    from millstream.checkpoint.coordinator import Coordinator
    from millstream.checkpoint.model import Manifest, OperatorAck, OperatorRecord, TaskAck
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.execution.job import Job
    from millstream.execution.planned_source import Offset
    from millstream.execution.savepoints import SavepointRequest
    from millstream.object_stores import StoreAccess
    from millstream.runtime.plan import ChannelStates, SplitAssignment
    from millstream.runtime.task_metrics import SplitFigures


def make_plan(
    *,
    epoch: int,
    assignments: list[SplitAssignment],
    stop: Offset,
    last: Manifest | None,
    program: Mapping[str, OperatorRecord],
    job_id: str,
    run_id: str,
    generation: int,
    storage: CheckpointStorage,
    local_root: str,
    state_backend: str,
    fsync: bool,
    stores: StoreAccess,
    begins: bool = False,
    clock_moves: bool = True,
) -> EpochPlan:
    """The plan of the epoch of ``program`` that reads to ``stop``, restored from ``last``.

    ``begins``: its tasks begin, though within the run that has made ``last``.  ``clock_moves``:
    the time of ``stop`` is of the system's clock.
    """
    operators: dict[str, OperatorRestore] = {}
    if last is not None:
        for assignment in assignments:
            _restore_split(assignment, last)
        # Each subtask continues with its own states; only where tasks begin they are restored.
        is_restored = begins or last.generation != generation
        operators = {
            uid: _restore(acks, program[uid].parallelism, is_restored=is_restored)
            for uid, acks in last.operators.items()
            if uid in program
        }
    return EpochPlan(
        job_id=job_id,
        run_id=run_id,
        generation=generation,
        epoch=epoch,
        processing_time=cast("int", stop["time"]),
        assignments=assignments,
        operators=operators,
        final=bool(stop["final"]),
        storage=storage,
        local_root=local_root,
        state_backend=state_backend,
        fsync=fsync,
        clock_moves=clock_moves,
        in_flight=[] if last is None else last.in_flight,
        stores=stores,
    )


def _restore_split(assignment: SplitAssignment, last: Manifest) -> None:
    state = last.splits.get(assignment.source_uid, {}).get(assignment.split.id)
    if state is not None:
        assignment.was_idle = state.idle
    if state is not None and state.generator is not None:
        assignment.operators = cast("dict[str, tuple[int, ChannelStates]]", loads(state.generator))


def _restore(acks: list[OperatorAck], parallelism: int, *, is_restored: bool) -> OperatorRestore:
    states = [ack.operator_states for ack in acks]
    if is_restored or len(acks) != parallelism:
        parts = redistribute(states, parallelism)
    else:
        parts = list(map(own_states, states))
    return OperatorRestore(
        handles=[ack.state for ack in acks],
        watermarks=[ack.watermark for ack in acks],
        idle=[ack.idle for ack in acks],
        operator_states=parts,
    )


#: Between two checks of the manifest log, which costs a listing.
_SECONDS: Final = 2.0


class FenceWatch:
    """Looks at the fence now and then.

    A run meets the fence when it publishes.  One that is idle, or in a long epoch, would stay
    beside the newer one, and on Spark write into its logs.
    """

    def __init__(
        self, coordinator: Coordinator, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._coordinator = coordinator
        self._seconds = seconds
        self._next = seconds() + _SECONDS

    def check(self) -> None:
        """Look, if it is time to.

        Raises:
            FencedError: a newer run has the job.
        """
        now = self._seconds()
        if now < self._next:
            return
        self._next = now + _SECONDS
        if self._coordinator.is_fenced():
            message = "a newer run has taken the job over, so this one ends"
            raise FencedError(message)


class StopRequest:
    """Whether a job is to stop, and how; it holds over restarts."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        #: Around the first question: of two at a time one says how.
        self._asking = threading.Lock()
        #: Time is to end first: windows fire, and nothing can go on from the checkpoint.
        self.drains = False
        #: Those who want the last checkpoint as a savepoint.
        self.savepoints: list[SavepointRequest] = []

    @property
    def is_asked(self) -> bool:
        """Return whether the job is to stop after a last checkpoint."""
        return self._asked.is_set()

    def ask(self, *, drain: bool, savepoint: SavepointRequest | None = None) -> None:
        """Have it stop; who has asked first has said how."""
        with self._asking:
            if savepoint is not None:
                self.savepoints.append(savepoint)
            if not self._asked.is_set():
                self.drains = drain
                self._asked.set()


class Run:
    """One run of a job.

    Contract:
      1. ``open``, then all else, then ``close``, also after a failure; from one thread.  (caller)
      2. No task of the run is at work when it is closed.  (engine)

    Args:
        job: the job.
        on_fenced: called when older runs are fenced, before anything of theirs is read.
        on_recovered: told the manifest that the run resumes from, if there is one.
        on_epoch: told of each epoch that is committed: its manifest, the acknowledgements of its
            tasks, and the seconds it took.
        on_pending: told what is pending while a commit fails or takes long.
        on_begun: told of each checkpoint that begins, and whether its barriers may overtake.
        on_acknowledged: told of each task that has acknowledged a checkpoint, where tasks continue.
        on_aborted: told of each checkpoint that is aborted while its tasks continue, and why.
        make_planner: makes the planner.
        after: the generation that the driver began before; None if this is its first run.
        tasks_at_work: whether the engine has long-running tasks.
        by_chain: whether each chain of operators is a task of its own; None: where tasks continue.
        stop: whether the job is to stop after a last checkpoint; the engine checks it.
        on_failure: told what the tasks of some sources have failed of, and which sources these are,
            where the engine can restart them alone; returns the seconds to wait before, or raises
            if the job has failed for good.  None: they are not restarted alone.
        on_resumed: told when all tasks run again.
        clock_moves: whether the planner goes by the system's clock.
    """

    def __init__(
        self,
        job: Job,
        *,
        on_fenced: Callable[[], object] = lambda: None,
        on_recovered: Callable[[Manifest], None] = lambda _: None,
        on_epoch: Callable[[Manifest, list[TaskAck], float], None] = lambda *_: None,
        on_pending: Callable[[PendingCommits], None] = lambda _: None,
        on_begun: Callable[[int, bool], None] = lambda *_: None,
        on_acknowledged: Callable[[TaskAck], None] = lambda _: None,
        on_aborted: Callable[[int, str], None] = lambda *_: None,
        make_planner: Callable[[Job], SourcePlanner] | None = None,
        after: int | None = None,
        tasks_at_work: bool = False,
        by_chain: bool | None = None,
        stop: StopRequest | None = None,
        on_failure: Callable[[Exception, frozenset[str]], float] | None = None,
        on_resumed: Callable[[], None] = lambda: None,
        clock_moves: bool = True,
    ) -> None:
        self.job = job
        #: Changes with every run, so that workers drop what an older one left.
        self.run_id = uuid.uuid4().hex
        self.coordinator = job.new_coordinator(on_pending, tasks_at_work=tasks_at_work)
        self.coordinator.on_committed = partial(job.checkpoint_committed, self.coordinator)
        self.on_epoch = on_epoch
        self.on_begun = on_begun
        self.on_acknowledged = on_acknowledged
        self.on_aborted = on_aborted
        self.on_failure = on_failure
        self.on_resumed = on_resumed
        self._on_fenced = on_fenced
        self._on_recovered = on_recovered
        self._make_planner = make_planner or planner_of
        self._after = after
        self._clock_moves = clock_moves
        self._tasks_at_work = tasks_at_work
        one_by_one = tasks_at_work if by_chain is None else by_chain
        #: What a task is a subtask of.
        self.stages = (model.by_chain(job.graph) if one_by_one else job.graph).stages
        self.stop = stop or StopRequest()
        self._planner: SourcePlanner | None = None
        #: The operators as manifests record them.
        self._program: dict[str, OperatorRecord] = {}
        #: The planner knows a position by its identity.
        self._beginning = initial_offset()
        self._closing = contextlib.ExitStack()
        self._closing.callback(self.coordinator.close)

    @property
    def planner(self) -> SourcePlanner:
        """Plans what epochs read."""
        if self._planner is None:
            message = (
                "a run is opened before anything is planned, and its tasks end with each checkpoint"
            )
            raise RuntimeError(message)
        return self._planner

    @property
    def last(self) -> Manifest | None:
        """The manifest to resume from; None before the first epoch."""
        return self.coordinator.last

    @property
    def position(self) -> Offset:
        """Return how far the last manifest has read."""
        last = self.last
        return self._beginning if last is None else last.offsets

    def open(self) -> bool:
        """Take the job over, and finish what the run before left.

        Returns:
            Whether there is anything to do: False if the job has finished before.

        Raises:
            CheckpointError: the checkpoints cannot be used, or a newer run has taken over.
            SinkError: what is published could not be committed.
        """
        job = self.job
        JobIdentity.require(job.storage, job.job_id)
        job.savepoints.given_up()  # those of a run before
        self.coordinator.open(self._after, job.begin)
        self._on_fenced()
        last = self.coordinator.recover()
        fit(job.graph, job.storage, last)
        job.start = job.describe_start(last)
        self._program = program_of(job.graph)
        job.ship_missing()
        self.coordinator.check_fence()  # a newer run may have sent files, which this one would drop
        delete_older_files(job.graph.files, job.storage)
        if last is not None:
            self._on_recovered(last)
            job.drop_claimed(last)  # a run before may have been killed at it
            if last.final:
                return False
        if not self._tasks_at_work:  # ``execution/split_enumerator.py`` starts and tells them else
            self._closing.callback(delete_counts, job.storage)
            for node in job.graph.nodes.values():
                if node.source is not None:
                    node.source.start()
                    self._closing.callback(node.source.stop)
            self.plan_again()
        return True

    def plan_again(self) -> None:
        """Plan from the last manifest on, whatever was planned and has not run."""
        planner = self._planner = self._make_planner(self.job)
        planner.is_required = lambda: self.job.savepoints.is_wanted
        last = self.last
        if last is None:
            return
        planner.committed(last.splits)
        if last.in_flight:
            planner.require_epoch(last.epoch)
        elif self._after is None and has_declared_states(last, self._program):
            # Functions declare their states when they are opened: restored at once, those that do
            # not fit end the job now, and not when the first record comes.
            planner.require_epoch()

    def close(self) -> None:
        """Stop the sources' monitoring, and release the log and the sinks."""
        self._closing.close()

    def metadata(self, stop: Offset, started: int) -> EpochMetadata:
        """Return what is known of the epoch that reads up to ``stop`` before it runs."""
        graph = self.job.graph
        return EpochMetadata(
            epoch=cast("int", stop["epoch"]),
            started=started,
            offsets=stop,
            stages={stage.level: stage.parallelism for stage in graph.stages},
            max_parallelism=max(node.max_parallelism for node in graph.nodes.values()),
            final=bool(stop["final"]),
            program=self._program,
        )

    def plan(self, stop: Offset) -> EpochPlan:
        """The plan of the epoch that reads up to ``stop``."""
        return self._plan(stop, self.planner.assignments(self.position, stop))

    def first_plan(self, assignments: list[SplitAssignment], processing_time: int) -> EpochPlan:
        """The first plan of long-running tasks."""
        epoch = cast("int", self.position["epoch"]) + 1
        return self._plan({"epoch": epoch, "time": processing_time, "final": False}, assignments)

    def plan_of_region(
        self, assignments: list[SplitAssignment], processing_time: int, epoch: int
    ) -> EpochPlan:
        """The plan of a region that is restarted, while others continue.

        Args:
            assignments: the splits of their sources.
            processing_time: milliseconds since 1970.
            epoch: which they begin in; no task of theirs has written anything for it.
        """
        stop: Offset = {"epoch": epoch, "time": processing_time, "final": False}
        return self._plan(stop, assignments, begins=True)

    def _plan(
        self, stop: Offset, assignments: list[SplitAssignment], *, begins: bool = False
    ) -> EpochPlan:
        job = self.job
        return make_plan(
            epoch=cast("int", stop["epoch"]),
            assignments=assignments,
            stop=stop,
            last=self.last,
            program=self._program,
            job_id=job.job_id,
            run_id=self.run_id,
            generation=self.coordinator.generation,
            storage=job.storage,
            local_root=str(job.local_root),
            state_backend=job.state_backend,
            fsync=job.fsync,
            begins=begins,
            clock_moves=self._clock_moves,
            stores=job.graph.files.store_options.access,
        )

    def split_figures(self) -> list[SplitFigures]:
        """Return how far the splits of sources are read, where a planner plans; from any thread."""
        planner, last = self._planner, self.last
        return [] if planner is None or last is None else planner.figures(last.splits)

    def tasks(self) -> set[tuple[int, int]]:
        """(stage, subtask) of every task."""
        return {
            (stage.number, subtask) for stage in self.stages for subtask in range(stage.parallelism)
        }


def planner_of(job: Job) -> SourcePlanner:
    """The planner that a job's options ask for."""
    configuration = job.graph.configuration
    target = configuration.get(options.TARGET_EPOCH_DURATION) / 1000
    return SourcePlanner(
        plan_sources(job.graph),
        SplitLog(job.storage),
        target_seconds=max(target, job.interval / 1000),
        tick_interval=configuration.get(options.TICK_INTERVAL),
        wakes=any(node.needs_processing_time for node in job.graph.nodes.values()),
        retained=configuration.get(options.NUM_RETAINED),
        min_pause=configuration.get(options.CHECKPOINTING_MIN_PAUSE),
    )


class EpochLoop:
    """Runs the epochs of one run.

    Contract:
      1. ``run_tasks`` returns when no task of the epoch is at work any more, or raises; then the
         run is over.  (engine)
      2. ``give_up`` makes ``run_tasks`` raise, soon; it comes from another thread.  (engine)
    """

    def __init__(
        self,
        run: Run,
        run_tasks: Callable[[EpochPlan], list[TaskAck]],
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._run = run
        self._run_tasks = run_tasks
        self._give_up = give_up
        configuration = run.job.graph.configuration
        self._timeout = configuration.get(options.CHECKPOINTING_TIMEOUT) / 1000
        #: Nobody needs to wait for anything any more.
        self.ending = threading.Event()

    def run(self, cancelled: threading.Event) -> bool:
        """Run epochs until the job is over or to be stopped (True), or cancelled (False)."""
        interval = self._run.job.interval / 1000
        due = time.monotonic()
        fence = FenceWatch(self._run.coordinator)
        while not cancelled.wait(max(0.0, due - time.monotonic())):
            if self._run.position["final"] or self._run.stop.is_asked:
                return True
            started = time.monotonic()
            if self.run_next():
                due = started + interval
            else:
                fence.check()
        return False

    def run_next(self) -> bool:
        """Plan and run an epoch; False if there is nothing to do now."""
        start = self._run.position
        stop = self._run.planner.latest_offset(start)
        if stop is start:
            return False
        self.run_epoch(stop)
        return True

    def run_epoch(self, stop: Offset) -> None:
        """Run the epoch that reads up to ``stop``, unless it is published already.

        Raises:
            MillstreamError: it failed, and so has the run.
        """
        run, planner = self._run, self._run.planner
        started = time.monotonic()
        metadata = run.metadata(stop, int(time.time() * 1000))
        if run.coordinator.handle_replay(metadata.epoch, stop):
            return
        # The planner keeps the pause already, but Spark's own sources do not ask it.
        self.ending.wait(planner.remaining_pause())
        crash_point("epoch.start.before")
        plan = run.plan(stop)
        run.coordinator.begin_epoch(metadata)
        run.on_begun(metadata.epoch, False)  # noqa: FBT003 - nothing is in flight
        run.job.savepoints.begun(metadata.epoch)
        with (
            at_checkpoint(metadata.epoch),
            EpochTimeout(metadata.epoch, self._timeout, self._give_up),
        ):
            acks = self._run_tasks(plan)
        manifest = run.coordinator.complete_epoch(metadata, acks, run.tasks())
        seconds = time.monotonic() - started
        planner.epoch_finished(seconds)
        planner.wake_at(acks)
        planner.committed(manifest.splits)
        run.on_epoch(manifest, acks, seconds)


class EpochTimeout:
    """Gives an epoch up that takes longer than ``execution.checkpointing.timeout``.

    As in Flink with its default of no tolerated failure, the job fails then, and the restart
    strategy decides whether the epoch is run again.  What was published is never given up: only
    the tasks are timed.
    """

    def __init__(self, epoch: int, seconds: float, cancel: Callable[[], None]) -> None:
        """Time epoch ``epoch``; ``cancel`` makes its tasks fail, and is called in a thread."""
        self._epoch = epoch
        self._seconds = seconds
        self._cancel = cancel
        self._expired = False
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def _expire(self) -> None:
        self._expired = True
        self._cancel()

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End; raises CheckpointExpiredError in place of the error that giving up has caused."""
        self._timer.cancel()
        if self._expired and kind is not None:
            message = (
                f"checkpoint {self._epoch} was aborted: it took longer than "
                f"execution.checkpointing.timeout ({self._seconds:g} s); raise it, or read less "
                "per micro-batch (millstream.epoch.target-duration)"
            )
            raise CheckpointExpiredError(message) from None
