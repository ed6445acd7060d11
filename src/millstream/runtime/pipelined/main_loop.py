"""The main loop of a slot, which hosts one subtask of every stage.

What it is: gives its tasks time, hands frames to and from other slots, does what the driver says.
One thread runs all operators; the control connection and the uploader have threads of their own.

The order of a turn: what has come, from other slots and from the driver; then the tasks, those of
later stages first, for they make room for what comes behind them; then what is due by time.

What it is not: in charge of anything: without its driver it has no right to live
(``runtime/pipelined/control.py``).

Read next: ``runtime/pipelined/slot.py``, ``runtime/pipelined/task.py``.
"""

from __future__ import annotations

import contextlib
import math
import time
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from millstream.configuration import options
from millstream.runtime.pipelined.links import (
    CREDIT,
    Frame,
    Header,
    InLink,
    LinkOutbox,
    OutLink,
    TaskId,
    links_of,
)
from millstream.runtime.pipelined.messages import (
    Assigned,
    Completed,
    Drain,
    End,
    Grown,
    Held,
    Progress,
    Retired,
    SourceEnded,
    SubtaskTimes,
    TakeCheckpoint,
)
from millstream.runtime.pipelined.task import PendingAck, PipelinedTask
from millstream.runtime.stage import StageInstance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.graph.model import JobGraph
    from millstream.runtime.pipelined.links import Link
    from millstream.runtime.pipelined.messages import DriverMessage, SlotMessage
    from millstream.runtime.pipelined.splits import SplitTurns
    from millstream.runtime.pipelined.transport import Transport
    from millstream.runtime.plan import EpochPlan

__all__ = ["MainLoop", "flush_after"]

#: Seconds that a task may work before the others have their turn.
_WORK: Final = 0.005
#: Seconds that a slot with nothing to do waits for something to come: sources are asked again then.
_IDLE: Final = 0.002
#: Seconds between two looks at what is due by time.
_TICK: Final = 0.005
#: Seconds that a task may write, at each of these, of what the next snapshot would have to.
_WRITE: Final = 0.001
#: Seconds between two reports of how far splits are, and of times.
_REPORT: Final = 0.02
_TIMES: Final = 1.0
#: Seconds after which records that were gathered are sent, if the program does not say.
_FLUSH: Final = 0.005
#: Bytes on one link that its consumer has not processed.
_CREDIT: Final = 2 << 20


class _Times:
    """What a task has done with its time since it was asked last."""

    __slots__ = ("_feeds", "_left", "_stuck", "backpressured", "busy", "since")

    def __init__(self, now: float, *, feeds: bool) -> None:
        self.busy = self.backpressured = 0.0
        self.since = now
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
        """Its time is over.

        Args:
            now: monotonic seconds.
            is_ready: it has more to do.
        """
        self._left = now if is_ready else 0.0

    def take(self, now: float) -> SubtaskTimes:
        """Per second, in milliseconds; begins anew."""
        is_stuck, is_left = bool(self._stuck), bool(self._left)
        self.begin(now)
        self._stuck, self._left = now if is_stuck else 0.0, now if is_left else 0.0
        whole = max(now - self.since, 1e-9)
        busy = min(1000.0, 1000 * self.busy / whole)
        # Without credit it may still send what it has gathered.
        stuck = min(1000.0 - busy, 1000 * self.backpressured / whole)
        self.busy = self.backpressured = 0.0
        self.since = now
        return SubtaskTimes(busy, 1000.0 - busy - stuck, stuck)


class MainLoop:
    """The tasks of one slot, and their turns.

    Contract:
      1. ``restore``, then ``turn`` again and again until ``ended``, then ``close``; from one
         thread.  (runner)
      2. After an exception it is closed, and nothing else.  (runner)

    Args:
        number: of the slot.
        graph: makes the job's graph, anew for each task: functions share nothing.
        make_plan: makes the plan to restore from, anew for each task.
        transport: to the other slots.
        send: tells the driver something.
        finish: takes what a checkpoint leaves to be finished.
        clock: milliseconds since 1970.
        seconds: a clock for short times.
    """

    def __init__(
        self,
        number: int,
        graph: Callable[[], JobGraph],
        make_plan: Callable[[], EpochPlan],
        transport: Transport,
        send: Callable[[SlotMessage], None],
        finish: Callable[[PendingAck], None],
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._number = number
        self._transport = transport
        self._send = send
        self._finish = finish
        self._clock = clock
        self._seconds = seconds
        shape = graph()
        #: Seconds after which records that were gathered are sent.
        self._flush_after = flush_after(shape.configuration)
        self._in: dict[Link, InLink] = {}
        self._out: dict[Link, OutLink] = {}
        for link in links_of(shape):
            if link.target.subtask == number:
                self._in[link] = InLink(link, _CREDIT)
            if link.source.subtask == number:
                self._out[link] = OutLink(link, _CREDIT)
        stages = [stage for stage in shape.stages if number < stage.parallelism]
        #: Those of later stages first.
        self.tasks: list[PipelinedTask] = []
        try:
            for stage in reversed(stages):
                task = TaskId(stage.level, number)
                self.tasks.append(self._task(task, graph(), make_plan()))
        except BaseException:
            # Behind an error it matters that functions are closed, not what they raise now.
            with contextlib.suppress(Exception):
                self.close()
            raise
        now = seconds()
        feeding = {link.source for link in self._out}
        self._times = {task.id: _Times(now, feeds=task.id in feeding) for task in self.tasks}
        self._next_tick = self._next_flush = self._next_report = now
        self._next_times = now + _TIMES
        #: The driver says that the last checkpoint is complete.
        self.ended = False

    def _task(self, task: TaskId, graph: JobGraph, plan: EpochPlan) -> PipelinedTask:
        links = {link.target: out for link, out in self._out.items() if link.source == task}
        outbox = LinkOutbox(links, self._is_here, self._deliver)
        instance = StageInstance(graph, task.stage, task.subtask, outbox)
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
        )

    def _is_here(self, task: TaskId) -> bool:
        return task.subtask == self._number

    def restore(self) -> None:
        """Put all tasks back to the last checkpoint: what one emits waits for those behind it."""
        for task in self.tasks:
            task.restore()

    # -- frames --------------------------------------------------------------------------------

    def _deliver(self, link: Link, frame: Frame) -> None:
        if self._is_here(link.target):
            self._in[link].frames.append(frame)
            return
        header = Header(frame.kind, link, frame.edge, frame.channel, frame.number).pack()
        self._transport.send(link.target.subtask, header, cast("bytes", frame.payload))

    def _give_back(self, link: Link, credit: int) -> None:
        if self._is_here(link.source):
            self._out[link].in_flight -= credit
            return
        header = Header(CREDIT, link, -1, -1, credit).pack()
        self._transport.send(link.source.subtask, header, b"")

    def _receive(self, timeout: float) -> None:
        for _, content, payload in self._transport.poll(timeout):
            kind, link, edge, channel, number = Header.unpack(bytes(content))
            if kind == CREDIT:
                self._out[link].in_flight -= number
            else:
                size = LinkOutbox.size_of(kind, len(payload))
                self._in[link].frames.append(Frame(kind, edge, channel, number, payload, size))

    # -- a turn --------------------------------------------------------------------------------

    def turn(self, messages: Sequence[DriverMessage], timeout: float) -> float:
        """One turn.

        Args:
            messages: what the driver has said since the last.
            timeout: seconds to wait for other slots.

        Returns:
            Seconds that the next one may wait.
        """
        self._receive(timeout)
        for message in messages:
            self._obey(message)
        worked = False
        for task in self.tasks:
            worked = self._give_time(task) or worked
        now = self._seconds()
        self._look_at_the_clock(now)
        if worked or any(task.is_ready and task.has_credit for task in self.tasks):
            return 0.0
        return max(0.0, min(_IDLE, self._next_tick - now))

    def _give_time(self, task: PipelinedTask) -> bool:
        began = self._seconds()
        times = self._times[task.id]
        if not task.may_run:
            times.hold(began)
            return False
        times.begin(began)
        worked = task.run(began + _WORK)
        if worked:
            ended = self._seconds()
            times.busy += ended - began
            times.leave(ended, is_ready=task.is_ready or task.splits is not None)
        return worked

    def _spend(self, task: PipelinedTask, work: Callable[[], object]) -> None:
        """Have a task do something else than process what has come."""
        began = self._seconds()
        work()
        self._times[task.id].busy += self._seconds() - began

    def _look_at_the_clock(self, now: float) -> None:
        if now >= self._next_flush:
            self._next_flush = now + self._flush_after
            for task in self.tasks:
                self._spend(task, task.flush)
        if now >= self._next_tick:
            self._next_tick = now + _TICK
            clock = self._clock()
            for task in self.tasks:
                # What fires makes records: a timer waits, as a record does.
                if task.has_credit:
                    self._spend(task, partial(task.tick, clock))
            # Whether there is work or not: what is not written by now is in the next pause.
            for task in self.tasks:
                self._spend(task, partial(task.write_some, now + _WRITE))
        if now >= self._next_report:
            self._next_report = now + _REPORT
            self._report()

    def _report(self) -> None:
        for task in self.tasks:
            if task.splits is not None and (news := task.splits.progress()):
                self._send(Progress(self._number, news))

    def times(self) -> dict[tuple[int, int], SubtaskTimes] | None:
        """What the tasks have done in the last second; None if it is not over."""
        now = self._seconds()
        if now < self._next_times:
            return None
        self._next_times = now + _TIMES
        return {(t.stage, t.subtask): each.take(now) for t, each in self._times.items()}

    def out_links(self) -> list[OutLink]:
        """The links out of the tasks of this slot."""
        return list(self._out.values())

    def _obey(self, message: DriverMessage) -> None:
        if isinstance(message, TakeCheckpoint):
            for task in self.tasks:
                if task.is_root:
                    self._spend(task, partial(task.trigger, message.epoch, final=message.final))
        elif isinstance(message, Completed):
            for task in self.tasks:
                task.confirm(message.epoch)
        elif isinstance(message, End):
            self.ended = True
        else:
            for task in self.tasks:
                if task.splits is not None:
                    _tell(task.splits, message)

    def close(self) -> None:
        """Close all tasks; producers first, as in a stage."""
        with contextlib.ExitStack() as closing:
            for task in self.tasks:
                closing.callback(task.close)


def _tell(splits: SplitTurns, message: DriverMessage) -> None:
    if isinstance(message, Assigned):
        splits.assign(message.splits)
    elif isinstance(message, Grown):
        splits.extend(message.ends, message.final)
    elif isinstance(message, Held):
        splits.hold(message.channels)
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
