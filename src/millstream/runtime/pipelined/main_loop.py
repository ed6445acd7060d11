"""The main loop of a slot, a process that runs one subtask of every stage of a job.

Each chain of operators is a stage of its own here (``graph/model.py``), so that no task waits for
credit that only another task of its stage needs.  One thread runs all operators; the control
connection and the uploader have separate threads.

A scheduling step handles frames of other slots and messages of the driver; then it runs the tasks,
those of later stages first, because they make room for their producers; after each task, timers and
other periodic work.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import queue
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

import cloudpickle

from millstream.configuration import options
from millstream.graph.model import by_chain
from millstream.runtime.job_files import bring_files, working_directory
from millstream.runtime.last_given import end_careful_mode
from millstream.runtime.pipelined.batch_sizing import WorkClock
from millstream.runtime.pipelined.control import (
    Abandoned,
    Assigned,
    BeginRegion,
    Ceilings,
    Completed,
    Connected,
    ControlConnection,
    Drain,
    End,
    Failed,
    Grown,
    InterruptedSlotError,
    Joins,
    Newcomer,
    Paused,
    Progress,
    Retired,
    Running,
    SourceEnded,
    Stopped,
    StopRegion,
    TakeCheckpoint,
    Unreachable,
)
from millstream.runtime.pipelined.links import (
    CREDIT,
    HEADER,
    CreditLimits,
    Frame,
    Header,
    InLink,
    LinkOutbox,
    OutLink,
    TaskId,
    links_of,
)
from millstream.runtime.pipelined.stacks import StackSampler
from millstream.runtime.pipelined.task import PipelinedTask
from millstream.runtime.pipelined.transport import (
    TcpTransport,
    connect_slots,
    connect_to,
    join_slots,
    listen,
)
from millstream.runtime.pipelined.uploader import Uploader
from millstream.runtime.stage import StageInstance
from millstream.runtime.task_metrics import SubtaskTimes
from millstream.runtime.user_code import exit_error, portable_error

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.graph.model import JobGraph, Stage
    from millstream.runtime.pipelined.control import Begin, DriverMessage, SlotMessage, SlotSettings
    from millstream.runtime.pipelined.links import Link
    from millstream.runtime.pipelined.splits import SplitScheduler
    from millstream.runtime.pipelined.transport import Transport
    from millstream.runtime.pipelined.uploader import PendingAck
    from millstream.runtime.plan import EpochPlan
    from millstream.runtime.task_metrics import RunningMetrics


_T = TypeVar("_T")

#: Seconds that tasks may work before all have had their turns, and the least that one may: what
#: comes from other slots waits for so long.
_WORK: Final = 0.01
_LEAST_WORK: Final = 0.001
#: Seconds that a slot with nothing to do waits for something to come: sources are asked again then.
_IDLE: Final = 0.002
#: Seconds between two runs of timers and other periodic work.
_TICK: Final = 0.005
#: Seconds that tasks may write, at each of these, of what the next snapshot would have to.
_WRITE: Final = 0.001
#: Seconds between two reports of how far splits are, and of times.
_REPORT: Final = 0.02
_TIMES: Final = 1.0
#: Seconds after which records that were gathered are sent, if the program does not say.
_FLUSH: Final = 0.005
#: Bytes on one link that its consumer has not processed.
_CREDIT: Final = 2 << 20
#: The same until throughput is known.
_FIRST_CREDIT: Final = 4 << 10


class _Times:
    """The time of a task since it was asked last, by what it did."""

    __slots__ = ("_accumulated", "_feeds", "_left", "_stuck", "backpressured", "busy", "since")

    def __init__(self, now: float, *, feeds: bool) -> None:
        self.busy = self.backpressured = 0.0
        self.since = now
        #: Milliseconds at work, waiting and without credit, up to ``since``.
        self._accumulated = (0.0, 0.0, 0.0)
        #: Others depend on it.
        self._feeds = feeds
        #: Since when it has no credit; 0.0: it has.
        self._stuck = 0.0
        #: When others of its slot had their turn though it was not ready; 0.0: it was.
        self._left = 0.0

    def hold(self, now: float) -> None:
        """It has no credit."""
        self._stuck = self._stuck or self._left or now
        self._left = 0.0

    def begin(self, now: float) -> None:
        """It is given time."""
        if self._stuck:
            self.backpressured += now - self._stuck
            self._stuck = 0.0
        elif self._left and self._feeds:
            # Others that take the slot's time from it are, for the most part, its consumers.
            self.backpressured += now - self._left
        elif self._left:
            self.busy += now - self._left
        self._left = 0.0

    def leave(self, now: float, *, is_ready: bool) -> None:
        """Its time is over."""
        self._left = now if is_ready else 0.0

    def take(self, now: float, waiting: int = 0) -> SubtaskTimes:
        """Per second, in milliseconds, and the bytes that wait; begins again."""
        is_stuck, is_left = bool(self._stuck), bool(self._left)
        self.begin(now)
        self._stuck, self._left = now if is_stuck else 0.0, now if is_left else 0.0
        whole = max(now - self.since, 1e-9)
        busy = min(1000.0, 1000 * self.busy / whole)
        # Without credit it may still send what it has gathered.
        stuck = min(1000.0 - busy, 1000 * self.backpressured / whole)
        rates = (busy, 1000.0 - busy - stuck, stuck)
        before = zip(self._accumulated, rates, strict=True)
        busy, idle, stuck = (total + whole * rate for total, rate in before)
        self._accumulated = (busy, idle, stuck)
        self.busy = self.backpressured = 0.0
        self.since = now
        return SubtaskTimes(*rates, waiting, self._accumulated)


@dataclass(slots=True)
class _Region:
    """The part of one region that a slot runs."""

    stages: list[Stage]
    attempt: int = 0
    #: One of its tasks has failed, here or in another slot: none is run until it begins again.
    is_lost: bool = False

    @property
    def number(self) -> int:
        """Its number."""
        return self.stages[0].region


class MainLoop:
    """The tasks of one slot, and their turns.

    Contract:
      1. ``restore``, then ``step`` again and again until ``ended``, then ``close``; from one
         thread.  (runner)
      2. After an exception it is closed, and nothing else.  (runner)
      3. Where regions are restarted, what a task raises is told to the driver, and raised by no
         method: no task of its region has another turn, all others continue.  (here)

    What happens to a region, one of whose tasks has raised:

    1. ``StopRegion`` comes -> its uploads are aborted; when none is at work its tasks are closed,
       and its links are gone.  What still comes on them is dropped, by the number of its attempt.
    2. Frames of the next attempt come ahead of ``BeginRegion`` -> they are kept for it.
    3. ``BeginRegion`` comes -> its tasks are made again and restored.  If that fails, as before 1.
    4. The driver gives up, and ``End`` comes -> what is there is closed.

    Args:
        number: of the slot.
        graph: makes the job's graph, again for each task: functions share nothing.
        make_plan: makes the plan to restore from, again for each task; None: others of the run are
            at work, and the tasks of this slot begin with their regions.
        transport: to the other slots.
        send: sends a message to the driver.
        finish: takes what a checkpoint leaves to be finished.
        clock: milliseconds since 1970.
        seconds: a clock for short times.
        work_seconds: one that stands still while the thread is not run, as on a crowded machine:
            what is done every few milliseconds must not take all of the time that is left.  None:
            ``seconds``.
        restarts_regions: whether a region is restarted alone when one of its tasks fails.
        do_aside: has something done after what ``finish`` was given before.
    """

    def __init__(
        self,
        number: int,
        graph: Callable[[], JobGraph],
        make_plan: Callable[[], EpochPlan] | None,
        transport: Transport,
        send: Callable[[SlotMessage], None],
        finish: Callable[[PendingAck], None],
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
        seconds: Callable[[], float] = time.monotonic,
        work_seconds: Callable[[], float] | None = None,
        *,
        restarts_regions: bool = False,
        do_aside: Callable[[Callable[[], None]], None] = lambda order: order(),
    ) -> None:
        self._number = number
        self._graph = graph
        self._transport = transport
        self._send = send
        self._finish = finish
        self._do_aside = do_aside
        self._clock = clock
        self._seconds = seconds
        self._work_seconds = work_seconds or seconds
        shape = by_chain(graph())
        #: Seconds after which records that were gathered are sent.
        self._flush_after = flush_after(shape.configuration)
        self._limits = CreditLimits.of(shape.configuration, _FIRST_CREDIT, _CREDIT)
        self._first_credit = _CREDIT if self._limits is None else self._limits.first
        self._links = list(links_of(shape))
        self._in: dict[Link, InLink] = {}
        self._out: dict[Link, OutLink] = {}
        #: By number of a stage.
        self._regions: dict[int, _Region] = {}
        regions: dict[int, _Region] = {}
        for stage in shape.stages:
            region = regions.setdefault(stage.region, _Region([]))
            region.stages.append(stage)
            self._regions[stage.number] = region
        self._restarts_regions = restarts_regions and len(regions) > 1
        #: Those whose tasks are being stopped, and the attempt that will follow.
        self._stopping: list[tuple[_Region, int]] = []
        #: Frames of attempts that have not begun here.
        self._early: list[tuple[Header, memoryview]] = []
        #: Those of later stages first.
        self.tasks: list[PipelinedTask] = []
        self._times: dict[TaskId, _Times] = {}
        #: Whose turn to write comes first.
        self._writer = 0
        try:
            if make_plan is not None:
                self._make_tasks(shape.stages, make_plan, shape)
        except BaseException:
            # After an error it matters that functions are closed, not what they raise now.
            with contextlib.suppress(Exception):
                self.close()
            raise
        self._next_tick = self._next_flush = self._next_report = self._work_seconds()
        self._next_times = seconds() + _TIMES
        #: The driver says that the last checkpoint is complete.
        self.ended = False

    def _make_tasks(
        self, stages: Iterable[Stage], make_plan: Callable[[], EpochPlan], shape: JobGraph | None
    ) -> None:
        """Make the tasks of stages, and their links.

        Args:
            stages: all of some regions.
            make_plan: makes the plan to restore from.
            shape: a graph that no task has; None: there is none.
        """
        stages = [stage for stage in stages if self._number < stage.parallelism]
        numbers = {stage.number for stage in stages}
        for link in self._links:
            attempt = self._regions[link.source.stage].attempt
            if link.target.subtask == self._number and link.target.stage in numbers:
                self._in[link] = InLink(link, self._first_credit, attempt)
            if link.source.subtask == self._number and link.source.stage in numbers:
                self._out[link] = OutLink(link, self._first_credit, attempt)
        graphs = itertools.chain(
            [] if shape is None else [shape],
            (by_chain(self._graph()) for _ in itertools.count()),
        )
        now = self._seconds()
        for stage in reversed(stages):
            number = TaskId(stage.number, self._number)
            task = self._guarded(number, self._task, number, graphs, make_plan)
            if task is None:
                continue  # it could not be opened, or another of its region could not
            feeds = any(link.source == number for link in self._out)
            self._times[number] = _Times(now, feeds=feeds)
            self.tasks = sorted([*self.tasks, task], key=lambda each: each.id, reverse=True)
        self._work = max(_LEAST_WORK, _WORK / max(1, len(self.tasks)))

    def _task(
        self, task: TaskId, graphs: Iterator[JobGraph], make_plan: Callable[[], EpochPlan]
    ) -> PipelinedTask:
        links = {link.target: out for link, out in self._out.items() if link.source == task}
        outbox = LinkOutbox(links, self._is_here, self._deliver)
        plan = make_plan()
        instance = StageInstance(next(graphs), task.stage, task.subtask, outbox)
        instance.open()
        return PipelinedTask(
            instance,
            plan,
            [each for link, each in self._in.items() if link.target == task],
            outbox,
            self._give_back,
            self._finish,
            self._clock,
            self._seconds,
            self._work_seconds,
            self._limits,
        )

    def _is_here(self, task: TaskId) -> bool:
        return task.subtask == self._number

    def restore(self) -> None:
        """Put all tasks back to the last checkpoint: what one emits waits for those after it."""
        for task in self.tasks:
            self._guarded(task.id, task.restore)

    # -- regions -------------------------------------------------------------------------------

    def _guarded(self, task: TaskId, act: Callable[..., _T], *args: object) -> _T | None:
        """Have a task do something; None if it, or another of its region, has failed."""
        region = self._regions[task.stage]
        if region.is_lost:
            return None
        try:
            return act(*args)
        except Exception as error:
            if not self._restarts_regions:
                raise
            self._lose(region, error)
            return None

    def _lose(self, region: _Region, error: Exception) -> None:
        region.is_lost = True
        failed = Failed(self._number, portable_error(error), region.number, region.attempt)
        self._send(failed)

    def _tasks_of(self, region: _Region) -> list[PipelinedTask]:
        return [task for task in self.tasks if self._regions[task.id.stage] is region]

    def _region(self, number: int) -> _Region:
        return next(each for each in self._regions.values() if each.number == number)

    def _stop_region(self, message: StopRegion) -> None:
        region = self._region(message.region)
        region.is_lost = True
        self._stopping.append((region, message.attempt))
        for task in self._tasks_of(region):
            task.abort_uploads()

    def _close_stopped(self) -> None:
        """Close the tasks of regions that were told to stop, if nothing of theirs is uploaded."""
        for region, attempt in list(self._stopping):
            tasks = self._tasks_of(region)
            if any(task.is_uploading for task in tasks):
                continue
            for task in reversed(tasks):
                # What it has failed of is told; what its functions raise now is of no use.
                with contextlib.suppress(Exception):
                    task.close()
            self.tasks = [task for task in self.tasks if task not in tasks]
            numbers = {stage.number for stage in region.stages}
            self._in = {k: end for k, end in self._in.items() if k.source.stage not in numbers}
            self._out = {k: end for k, end in self._out.items() if k.source.stage not in numbers}
            self._stopping.remove((region, attempt))
            self._send(Stopped(self._number, region.number, attempt))

    def _begin_region(self, message: BeginRegion) -> None:
        # A slot that was not there when the others stopped may be told both at once.
        self._close_stopped()
        region = self._region(message.region)
        region.attempt, region.is_lost = message.attempt, False
        self._make_tasks(region.stages, lambda: _unpickled(message.plan), None)
        for task in self._tasks_of(region):
            self._guarded(task.id, task.restore)
        if region.is_lost:
            return
        early, self._early = self._early, []
        for header, payload in early:
            self._dispatch_frame(header, payload)
        self._send(Running(self._number, message.region, message.attempt))

    # -- frames --------------------------------------------------------------------------------

    def _deliver(self, link: Link, frame: Frame) -> None:
        if self._is_here(link.target):
            self._in[link].put(frame)
            return
        attempt = self._out[link].attempt
        header = Header(frame.kind, link, attempt, frame.edge, frame.channel, frame.number).pack()
        self._transport.send(link.target.subtask, header, cast("bytes", frame.payload))

    def _give_back(self, link: Link, credit: int) -> None:
        end = self._in[link]
        if self._is_here(link.source):
            self._out[link].in_flight -= credit
            self._out[link].limit = end.limit
            return
        header = Header(CREDIT, link, end.attempt, end.limit, -1, credit).pack()
        self._transport.send(link.source.subtask, header, b"")

    def _receive(self, timeout: float) -> None:
        for _, content, payload in self._transport.poll(timeout):
            self._dispatch_frame(Header.unpack(bytes(content)), payload)

    def _dispatch_frame(self, header: Header, payload: memoryview) -> None:
        """Take a frame of another slot's; what is of an attempt that was stopped is dropped."""
        kind, link, attempt, edge, channel, number = header
        end = self._out.get(link) if kind == CREDIT else self._in.get(link)
        if end is None or attempt != end.attempt:
            if attempt > self._regions[link.source.stage].attempt:
                self._early.append((header, payload))
        elif isinstance(end, OutLink):
            end.in_flight -= number
            end.limit = edge
        else:
            size = LinkOutbox.size_of(kind, len(payload))
            end.put(Frame(kind, edge, channel, number, payload, size))

    # -- a step --------------------------------------------------------------------------------

    def step(self, messages: Sequence[DriverMessage], timeout: float) -> float:
        """One turn.

        Returns:
            Seconds that the next one may wait.
        """
        self._receive(timeout)
        for message in messages:
            self._handle(message)
        worked = False
        now = self._work_seconds()
        for task in list(self.tasks):
            worked = bool(self._guarded(task.id, self._run_task, task)) or worked
            # What is due waits for one task at most, not for all.
            now = self._work_seconds()
            self._run_periodic(now)
        if not self.tasks:
            self._run_periodic(now)
        self._close_stopped()
        if worked or any(map(self._has_work, self.tasks)):
            return 0.0
        return max(0.0, min(_IDLE, self._next_tick - now))

    def _has_work(self, task: PipelinedTask) -> bool:
        return not self._regions[task.id.stage].is_lost and task.is_ready and task.has_credit

    def _run_task(self, task: PipelinedTask) -> bool:
        began = self._seconds()
        times = self._times[task.id]
        task.begin_step(began)
        if not task.may_run:
            times.hold(began)
            return False
        times.begin(began)
        worked = task.run(self._work_time(began) + self._work)
        if worked:
            ended = self._seconds()
            times.busy += ended - began
            times.leave(ended, is_ready=task.is_ready or task.splits is not None)
        return worked

    def _work_time(self, now: float) -> float:
        """Return what the clock for work says, where the clock for short times says ``now``."""
        return now if self._work_seconds is self._seconds else self._work_seconds()

    def _spend(self, task: PipelinedTask, work: Callable[[], object]) -> None:
        """Have a task do something else than process what has come."""
        began = self._seconds()
        self._guarded(task.id, work)
        self._times[task.id].busy += self._seconds() - began

    def _run_periodic(self, now: float) -> None:
        """Do what is due, by the clock for work."""
        if now >= self._next_flush:
            self._next_flush = now + self._flush_after
            for task in self.tasks:
                self._spend(task, task.flush)
        if now >= self._next_tick:
            clock = self._clock()
            for task in self.tasks:
                # What fires makes records: a timer waits, as a record does.
                if task.has_credit:
                    self._spend(task, partial(task.tick, clock))
                else:
                    task.hold()
                self._guarded(task.id, task.raise_failure)
            took = self._work_seconds() - now
            self._next_tick = now + _TICK
            if took > _TICK:
                # After timers that take long tasks have as long, too, up to a turn of all of them.
                self._next_tick = now + took + min(_WORK, took)
            deadline = _WRITE + (now if self._work_seconds is self._seconds else self._seconds())
            # Whether there is work or not: what is not written by now is in the next pause.
            self._writer = (self._writer + 1) % max(1, len(self.tasks))
            for task in (*self.tasks[self._writer :], *self.tasks[: self._writer]):
                self._spend(task, partial(task.write_some, deadline))
        if now >= self._next_report:
            self._next_report = now + _REPORT
            self._report()

    def _report(self) -> None:
        for task in self.tasks:
            if task.splits is not None and (news := self._guarded(task.id, task.splits.progress)):
                self._send(Progress(self._number, news))

    def times(self) -> dict[tuple[int, int], SubtaskTimes] | None:
        """Return what the tasks have done in the last second; None if it is not over."""
        now = self._seconds()
        if now < self._next_times:
            return None
        self._next_times = now + _TIMES
        waiting = dict.fromkeys(self._times, 0)
        for link, end in self._in.items():
            if link.target in waiting:
                waiting[link.target] += sum(frame.size for frame in end.frames)
        return {
            (task.stage, task.subtask): each.take(now, waiting[task])
            for task, each in self._times.items()
        }

    def counts(self) -> tuple[RunningMetrics, ...]:
        """What each task has counted since the last checkpoint that it knows to be complete."""
        return tuple(task.counts() for task in self.tasks)

    def out_links(self) -> list[OutLink]:
        """The links out of the tasks of this slot."""
        return list(self._out.values())

    def _handle(self, message: DriverMessage) -> None:
        if isinstance(message, TakeCheckpoint):
            for task in filter(lambda each: each.is_root, self.tasks):
                self._spend(task, partial(task.trigger, message))
        elif isinstance(message, Completed | Abandoned):
            self._end_checkpoint(message)
        elif isinstance(message, StopRegion):
            self._stop_region(message)
        elif isinstance(message, BeginRegion):
            self._begin_region(message)
        elif isinstance(message, End):
            self.ended = True
        else:
            self._update_splits(message)

    def _end_checkpoint(self, message: Completed | Abandoned) -> None:
        for task in self.tasks:
            is_lost = isinstance(message, Abandoned)
            if not is_lost:
                end_careful_mode()
            orders = task.abandon(message.epoch) if is_lost else task.confirm(message.epoch)
            for order in orders:
                self._do_aside(order)

    def _update_splits(self, message: DriverMessage) -> None:
        for task in self.tasks:
            if task.splits is not None:
                self._guarded(task.id, _apply, task.splits, message)

    def close(self) -> None:
        """Close all tasks; producers first, as in a stage."""
        with contextlib.ExitStack() as closing:
            for task in self.tasks:
                closing.callback(task.close)


def _unpickled(plan: bytes) -> EpochPlan:
    return cast("EpochPlan", cloudpickle.loads(plan))


def _apply(splits: SplitScheduler, message: DriverMessage) -> None:
    if isinstance(message, Assigned):
        splits.assign(message.splits)
    elif isinstance(message, Grown):
        splits.extend(message.ends, message.final)
    elif isinstance(message, Paused):
        splits.hold(message.channels)
    elif isinstance(message, Ceilings):
        splits.limit(message.by_channel)
    elif isinstance(message, Retired):
        splits.retire(message.channels)
    elif isinstance(message, Drain):
        splits.drain()
    elif isinstance(message, SourceEnded):
        splits.end_source(message.source_uid)


def flush_after(configuration: Configuration) -> float:
    """Seconds after which gathered records are sent; infinite: only when they are many."""
    if not configuration.get(options.BUFFER_TIMEOUT_ENABLED):
        return math.inf
    if not configuration.contains(options.BUFFER_TIMEOUT):
        return _FLUSH
    return configuration.get(options.BUFFER_TIMEOUT) / 1000


class Newcomers:
    """Connects a slot with newcomers.

    Contract:
      1. ``take_newcomers`` is called by the thread that calls the transport.  (slot)
      2. When the driver is told that they have met, what is sent to the newcomer arrives.  (here)
    """

    def __init__(
        self,
        settings: SlotSettings,
        transport: TcpTransport,
        send: Callable[[SlotMessage], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._send = send
        self._fail = fail
        self._made: queue.SimpleQueue[tuple[int, socket.socket]] = queue.SimpleQueue()

    def take_newcomers(self, messages: Sequence[DriverMessage]) -> list[DriverMessage]:
        """Record what the driver says of newcomers, and those that are connected by now.

        Returns:
            What it has said of anything else.
        """
        while not self._made.empty():
            slot, connection = self._made.get()
            self._transport.connected(slot, connection)
            self._send(Connected(self._settings.slot, slot))
        if not messages:
            return []
        for each in messages:
            if isinstance(each, Newcomer):
                threading.Thread(
                    target=self._connect, args=(each,), name="millstream-meet", daemon=True
                ).start()
        return [each for each in messages if not isinstance(each, Newcomer)]

    def _connect(self, newcomer: Newcomer) -> None:
        own, token, run_id = self._settings.slot, self._settings.token, self._settings.run_id
        try:
            made = connect_to(own, newcomer.slot, newcomer.address, token, run_id)
        except BaseException as error:  # noqa: BLE001 - the main loop's to raise
            self._fail(error)
            return
        self._made.put((newcomer.slot, made))
        self._transport.wake()


#: Those that are not ``Exception`` come from functions: no interrupt from outside is for slots.
_FAILURES: Final = (Exception, SystemExit, KeyboardInterrupt)


def run_slot(settings: SlotSettings) -> None:
    """Run a slot until its job is over; returns, or ends the process with its driver."""
    listener = listen(settings.host, settings.slots)
    transport: TcpTransport | None = None

    def wake() -> None:
        if transport is not None:
            transport.wake()

    control = ControlConnection(settings, wake)
    control.register(listener.getsockname()[:2])
    begin = control.begin()
    if begin is None:
        control.close()
        return
    try:
        control.allow_interrupt()
        bring_files(settings.files)
        with working_directory(settings.files):
            connections = _connected(settings, listener, begin)
            on_lost = _on_lost(settings, control) if settings.outlives_others else None
            transport = TcpTransport(settings.slot, connections, HEADER.size, on_lost)
            _run(settings, control, transport, begin)
    except InterruptedSlotError:
        pass  # nothing had begun
    except _FAILURES as error:  # the driver's to raise
        _fail(settings, control, error)
    control.close()


def _connected(
    settings: SlotSettings, listener: socket.socket, begin: Begin | Joins
) -> dict[int, socket.socket]:
    own, token, run_id = settings.slot, settings.token, settings.run_id
    if isinstance(begin, Joins):
        return join_slots(own, listener, begin.connect, begin.accept, token, run_id)
    return connect_slots(own, listener, begin.addresses, token, run_id)


def _on_lost(settings: SlotSettings, control: ControlConnection) -> Callable[[int], None]:
    return lambda other: control.send(Unreachable(settings.slot, other))


def _fail(settings: SlotSettings, control: ControlConnection, error: BaseException) -> None:
    """Tell the driver, and do nothing until it has fenced, or wants the slot to end."""
    if not isinstance(error, Exception):
        error = exit_error(error)
    control.send(Failed(settings.slot, portable_error(error)))
    control.wait_for_end()


def _run(
    settings: SlotSettings,
    control: ControlConnection,
    transport: TcpTransport,
    begin: Begin | Joins,
) -> None:
    failures: list[BaseException] = []

    def fail(error: BaseException) -> None:
        failures.append(error)
        transport.wake()

    uploader = Uploader(settings.slot, control.send, fail)
    newcomers = Newcomers(settings, transport, control.send, fail)
    plan = None if isinstance(begin, Joins) else begin.plan
    # Records are many short-lived objects without cycles: collecting them often only costs.
    gc.set_threshold(200_000, 20, 100)
    loop = MainLoop(
        settings.slot,
        lambda: cast("JobGraph", cloudpickle.loads(settings.graph)),
        None if plan is None else lambda: cast("EpochPlan", cloudpickle.loads(plan)),
        transport,
        control.send,
        uploader.take,
        work_seconds=WorkClock().seconds,
        restarts_regions=settings.restarts_regions,
        do_aside=uploader.do,
    )
    try:
        loop.restore()
        control.report(loop.counts)
        control.send_stacks(StackSampler().answer)
        control.send(Running(settings.slot))
        wait = 0.0
        while not loop.ended:
            wait = loop.step(newcomers.take_newcomers(control.messages()), wait)
            control.alive(loop.times())
            _raise_first(failures)
        uploader.close()
    except BaseException as error:
        if isinstance(error, _FAILURES):
            _fail(settings, control, error)
        elif not isinstance(error, InterruptedSlotError):
            raise
        # As far as it goes: what functions raise now is of no use to anybody.
        with contextlib.suppress(Exception):
            loop.close()
        return
    try:
        loop.close()
    except Exception as error:  # noqa: BLE001 - the driver's to tell
        control.send(Failed(settings.slot, portable_error(error)))
    transport.close()


def _raise_first(failures: list[BaseException]) -> None:
    if failures:
        raise failures[0]
