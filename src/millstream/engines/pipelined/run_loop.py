"""The run loop: one run of a pipelined job, from the start of its slots to their end.

What it is: one thread that tells slots what to read, triggers checkpoints, has what is acknowledged
published and committed (in another thread), and ends the run.

How a run ends, and what holds then, in each case with no slot left when ``run`` returns:

1. All is read, or the job is to stop -> the last checkpoint is triggered when no other is under
   way, and committed; slots close their functions and end.  Where barriers overtake, others go on
   after the end of the sources until nothing is on its way.  Is it to stop, without draining,
   before its sources have said what there is to read, or its slots have come -> nothing was read,
   and the last checkpoint is the one that there is.
2. The job is cancelled -> slots close their functions and end; what is not published is dropped by
   the next run.  Those that do not listen are killed.
3. A slot is lost -> fence: all connections are closed, by which slots end at once; those that stay
   are killed.  A commit under way is waited for, and counts.  The error that says most is raised,
   unless the last checkpoint is committed by then: the job is over.  But where some region has no
   task in that slot, and its host can replace it, it alone is fenced and replaced, and the run goes
   on (``engines/pipelined/failover.py``).
4. A task raises, a checkpoint fails or expires, a source cannot be asked -> as 3, but slots may
   close their functions first, for a short time.  A task that raises ends the run only if the
   restart strategy says so, or if all that runs is one region (``engines/pipelined/failover.py``),
   or is about to end; else its region alone is restarted, also while slots have yet to begin.
5. The driver dies -> its connections end, and so do the slots.

What can never happen: a checkpoint is published after ``run`` has returned, or a slot of a run is
at work when the next run begins.
"""

from __future__ import annotations

import contextlib
import logging
import math
import pickle
import queue
import secrets
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, cast

from millstream.configuration import options
from millstream.configuration.options import CheckpointingMode
from millstream.crash_points import crash_point
from millstream.engines.pipelined.checkpoints import (
    Checkpoints,
    Committed,
    CommittingThread,
    Dropped,
    Triggers,
)
from millstream.engines.pipelined.control_server import ControlServer, LostSlot
from millstream.engines.pipelined.failover import Failover, Readers, Regions, Replacements
from millstream.errors import EngineError, WorkerLostError
from millstream.execution.planned_source import SplitLog, plan_sources
from millstream.execution.source_requests import AbandonedRequestError
from millstream.execution.split_enumerator import SplitEnumerator
from millstream.graph.model import by_chain
from millstream.graph.validation import is_unaligned
from millstream.runtime.pipelined.control import (
    Acknowledged,
    Begin,
    Completed,
    Connected,
    Declined,
    End,
    Failed,
    Progress,
    Registered,
    Running,
    SlotSettings,
    SourceEnded,
    Stopped,
    Unreachable,
)
from millstream.types.pickling import dumps_by_value, loads

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Mapping

    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.engines.pipelined.failover import SlotHost
    from millstream.execution.run import Run
    from millstream.execution.source_requests import Inquiries
    from millstream.runtime.pipelined.control import (
        SlotMessage,
        StackRequest,
        Stacks,
    )
    from millstream.runtime.plan import SplitAssignment
    from millstream.runtime.process_use import ProcessUse
    from millstream.runtime.task_metrics import RunningMetrics, SplitFigures, SubtaskTimes

    _Event = SlotMessage | WorkerLostError | LostSlot | Committed | Dropped


_LOG: Final = logging.getLogger("millstream")
#: Seconds between two messages.
_REPORT: Final = 5.0


class Stopping:
    """A stop that was asked for."""

    def __init__(self, names: Mapping[int, str], timeout: float, now: float) -> None:
        self._names = names
        self._began = now
        self._next = now + _REPORT
        self._deadline = now + timeout
        #: Bytes that waited at the message before.
        self._waited: int | None = None

    def is_late(self, now: float) -> bool:
        """Return whether it has taken as long as it may."""
        return now >= self._deadline

    def report(self, now: float, times: Mapping[tuple[int, int], SubtaskTimes]) -> str | None:
        """Describe what is left; None: not now."""
        if now < self._next:
            return None
        waiting = {task: each.waiting for task, each in sorted(times.items()) if each.waiting}
        total, before = sum(waiting.values()), self._waited
        self._waited, self._next = total, now + _REPORT
        stages = {stage: 0 for stage, _ in waiting}
        for (stage, _), size in waiting.items():
            stages[stage] += size
        parts = [f"{size:,} bytes for {self._names.get(s, s)!r}" for s, size in stages.items()]
        words = f"the job has been stopping for {now - self._began:.0f} s;"
        if not parts:
            return f"{words} nothing waits between its tasks: the last checkpoint is under way"
        words = f"{words} {total:,} bytes wait to be processed ({', '.join(parts)})"
        if before is not None and total < before:
            left = total * _REPORT / (before - total)
            words = f"{words}, about {left:.0f} s at the rate of the last {_REPORT:.0f} s"
        return f"{words}; it has {max(0.0, self._deadline - now):.0f} s left"


#: So many checkpoints in a row that have no less in flight than one before them.
_MOST_IN_VAIN: Final = 10


class Draining:
    """What is on its way after the end of all sources."""

    def __init__(self, *, overtakes: bool) -> None:
        self._overtakes = overtakes
        #: The first checkpoint that was triggered after the end of the sources.
        self._first: int | None = None
        self._is_empty = False
        #: (stage, negative, and its bytes in flight), those ahead of others first, at the least.
        #: What is processed goes to stages behind, so that this becomes less, however much that is.
        self._least: list[tuple[int, int]] | None = None
        self._in_vain = 0
        #: Monotonic seconds: since when the sources are over, and when the next is due; infinite:
        #: not ahead of its interval.
        self._began = 0.0
        self._due = math.inf

    @property
    def is_done(self) -> bool:
        """Return whether the sources are over, and the last checkpoint may be triggered."""
        ends = self._is_empty or self._in_vain >= _MOST_IN_VAIN or not self._overtakes
        return self._first is not None and ends

    def is_due(self, now: float) -> bool:
        """Return whether a checkpoint is to be triggered ahead of its interval."""
        return now >= self._due

    def triggered(self) -> None:
        """Note that one is under way.  If it fails, the next comes as it would have without it."""
        self._due = math.inf

    def update(self, coming: int, now: float, *, is_over: bool) -> None:
        """Record whether the sources are over; they are not again where a region begins again."""
        if not is_over:
            self._first, self._is_empty, self._due = None, False, math.inf
        elif self._first is None:
            self._first, self._began, self._due = coming, now, now
            self._least, self._in_vain = None, 0

    def committed(self, epoch: int, now: float, in_flight: Iterable[tuple[int, int]]) -> None:
        """Take a checkpoint, and what was in flight in it.

        Args:
            epoch: its number.
            now: monotonic seconds.
            in_flight: stages, numbered so that inputs come first, and bytes on their way into them.
        """
        if self._first is None or epoch < self._first:
            return
        sizes: Counter[int] = Counter()
        for stage, size in in_flight:
            sizes[-stage] += size
        left = sorted(sizes.items(), reverse=True)
        self._is_empty = not left
        self._due = now + (now - self._began)
        if self._least is None or left < self._least:
            self._least, self._in_vain = left, 0
        else:
            self._in_vain += 1


#: Seconds between two checks of the sources and the clock; a message is heard at once.
_POLL_SECONDS: Final = 0.01
#: Seconds that slots may take to close their functions: at the end of the input, when the job is
#: cancelled, when the run has failed.
_CLOSING: Final = 30.0
_CANCELLING: Final = 5.0
_GIVING_UP: Final = 2.0
#: Seconds that the processes of slots may take to be gone when their connections are closed.
_GONE: Final = 1.0


class RunLoop:
    """Runs one run on the slots of a host.

    Args:
        run: the run, opened.
        slots: how many it has.
        host: starts the slots; nothing of an older run is at work there.
        inquiries: asks the sources.
        clock: milliseconds since 1970.
    """

    def __init__(
        self,
        run: Run,
        slots: int,
        host: SlotHost,
        inquiries: Inquiries,
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        graph = run.job.graph
        self._run = run
        self._host = host
        self._clock = clock
        self._count = slots
        self._configuration = graph.configuration
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._planned = plan_sources(graph)
        self._sources = SplitEnumerator(
            self._planned,
            SplitLog(run.job.storage),
            run.position,
            run.last,
            retained=self._configuration.get(options.NUM_RETAINED),
            clock=clock,
            inquiries=inquiries,
        )
        self._token = secrets.token_bytes(32)
        patience = self._configuration.get(options.SLOT_REQUEST_TIMEOUT) / 1000
        regions = Regions(by_chain(graph), slots, patience)
        self._restarts_regions = self._can_restart_regions(regions)
        #: What all regions have tasks in cannot be lost alone.
        self._outlives = self._restarts_regions and host.replaces_slots and regions.least < slots
        self._server = ControlServer(
            host.driver_host,
            self._count,
            run.run_id,
            self._token,
            self._configuration.get(options.HEARTBEAT_TIMEOUT) / 1000,
            self._events.put,
            host.listen_host,
            outlive=self._outlives,
        )
        self._committing = CommittingThread(run, self._events.put)
        first = cast("int", run.position["epoch"]) + 1
        self._names = {stage.number: graph.nodes[stage.nodes[0]].name for stage in run.stages}
        self._checkpoints = Checkpoints(
            self._configuration, run.tasks(), first, time.monotonic(), self._names
        )
        self._triggers = Triggers(run, self._checkpoints, self._sources, self._server, clock)
        self._readers = Readers(self._sources, self._server)
        self._replacements = Replacements(host, self._server, patience)
        self._failover = Failover(
            *(run, regions, self._server, self._checkpoints, self._triggers, self._committing),
            *(self._readers, self._replacements, clock),
        )
        #: Slots whose tasks are restored.
        self._running: set[int] = set()
        #: The slots were told that the job is to stop.
        self._stopping: Stopping | None = None
        self._stop_timeout = self._configuration.get(options.CHECKPOINTING_TIMEOUT) / 1000
        self._draining = Draining(overtakes=is_unaligned(self._configuration) and bool(graph.edges))
        #: The last checkpoint is committed.
        self._over = False

    def _can_restart_regions(self, regions: Regions) -> bool:
        mode = CheckpointingMode[self._configuration.get(options.CHECKPOINTING_MODE)]
        return (
            self._run.on_failure is not None
            and len(regions) > 1
            # Without checkpoints there is nothing to go back to alone.
            and mode is not CheckpointingMode.NONE
            and self._configuration.get(options.FAILOVER_STRATEGY) == "region"
        )

    @property
    def task_times(self) -> dict[tuple[int, int], SubtaskTimes]:
        """(stage, subtask) -> what it has done in the last second; from any thread."""
        return self._server.times

    @property
    def slot_uses(self) -> dict[int, tuple[str, ProcessUse]]:
        """The machine, CPU time and memory of each slot's process; from any thread."""
        return self._server.uses

    @property
    def task_counts(self) -> list[RunningMetrics]:
        """Return what the tasks have counted; from any thread."""
        return self._server.counts

    def stacks(
        self, slots: Collection[int], request: StackRequest, seconds: float
    ) -> dict[int, Stacks]:
        """Ask slots for their stacks; from any thread, arguments and result as of the server."""
        return self._server.ask_stacks(slots, request, seconds)

    @property
    def split_figures(self) -> list[SplitFigures]:
        """Return how far splits are read; from any thread."""
        return self._sources.figures()

    def run(self, cancelled: threading.Event) -> bool:
        """Run until the job is over (True) or cancelled (False).

        Raises:
            WorkerLostError: a slot is gone.
            Exception: what a task raised, or what failed here.
        """
        try:
            if self._begin(cancelled):
                while not self._over and not cancelled.is_set():
                    self._turn()
                self._end_slots(_CLOSING if self._over else _CANCELLING)
        except BaseException as error:
            cause = self._end_failed(error)
            if not self._over:
                if cause is error:
                    raise
                raise cause from error
            _LOG.warning("the last checkpoint was committed, then the run failed: %s", cause)
        else:
            self._clear_away()
            self._note_late_commits()
        if self._over:
            self._run.coordinator.finish()
        return self._over

    # -- beginning -----------------------------------------------------------------------------

    def _begin(self, cancelled: threading.Event) -> bool:
        """Start the slots and let them begin when all are there; False if nobody wants them."""
        run = self._run
        assignments = self._first_splits(cancelled)
        if assignments is None:
            return False
        self._readers.note(assignments)
        processing_time = max(self._clock(), cast("int", run.position["time"]))
        plan = dumps_by_value(run.first_plan(assignments, processing_time))
        graph = dumps_by_value(run.job.graph)
        settings = [
            SlotSettings(
                slot=slot,
                slots=self._count,
                run_id=run.run_id,
                token=self._token,
                driver=self._server.address,
                host="127.0.0.1",
                graph=graph,
                files=run.job.graph.files,
                restarts_regions=self._restarts_regions,
                outlives_others=self._outlives,
            )
            for slot in range(self._count)
        ]
        self._replacements.begin(settings)
        self._host.start(settings)
        registered = self._wait_for_slots(cancelled)
        if registered is None:
            return False
        crash_point("epoch.start.before")
        self._server.broadcast(Begin(plan, tuple(each.address for each in registered)))
        return True

    def _first_splits(self, cancelled: threading.Event) -> list[SplitAssignment] | None:
        """Return what is read first; None: nothing is to be read any more."""
        sources, last = self._sources, self._run.last

        def is_unwanted() -> bool:
            return cancelled.is_set() or self._run.stop.is_asked

        try:
            sources.start(is_unwanted)
            if last is not None:
                sources.committed(last.splits, is_unwanted=is_unwanted)
            return sources.begin(is_unwanted)
        except AbandonedRequestError:
            if self._is_unwanted_whole(cancelled):
                return None
            # What is restored is to be drained, whatever there may be to read.
            return sources.begin_unasked()

    def _is_unwanted_whole(self, cancelled: threading.Event) -> bool:
        """Whether the run is over before it has begun: cancelled, or stopped without draining.

        Nothing was read: the last checkpoint is where the job stands.
        """
        if cancelled.is_set():
            return True
        self._over = self._run.stop.is_asked and not self._run.stop.drains
        return self._over

    def _wait_for_slots(self, cancelled: threading.Event) -> list[Registered] | None:
        timeout = self._configuration.get(options.SLOT_REQUEST_TIMEOUT) / 1000
        deadline = time.monotonic() + timeout
        while len(found := self._server.registered) < self._count:
            if self._is_unwanted_whole(cancelled):
                return None
            event = self._next()
            if event is not None and not isinstance(event, Registered):
                self._handle(event)
            lost = self._host.lost()
            if lost is not None:
                raise lost
            if time.monotonic() >= deadline:
                there = {each.slot for each in self._server.registered}
                missing = ", ".join(str(n) for n in range(self._count) if n not in there)
                message = (
                    f"{len(there)} of {self._count} slots have come within {timeout:g} s"
                    f" ({options.SLOT_REQUEST_TIMEOUT.key}), missing: {missing}. Are there as many"
                    " free cores, and can they reach the driver at"
                    f" {':'.join(map(str, self._server.address))}?"
                )
                raise WorkerLostError(message)
        return found

    # -- a step --------------------------------------------------------------------------------

    def _next(self, wait: float = _POLL_SECONDS) -> _Event | None:
        try:
            return self._events.get(timeout=wait)
        except queue.Empty:
            return None

    def _turn(self) -> None:
        if self._handle_events(_POLL_SECONDS):
            return
        if self._run.stop.is_asked and not self._sources.is_over:
            self._stop()
        else:
            self._readers.check(self._clock())
            # A source may have taken long to answer: what is acknowledged by now has not expired.
            if self._handle_events(0):
                return
            self._check_checkpoints()
        self._failover.check()
        lost = None if self._outlives else self._host.lost()
        if lost is not None:
            raise lost

    def _handle_events(self, wait: float) -> bool:
        """Hear what has come, and nothing after the commit of the last checkpoint.

        Returns:
            Whether the last checkpoint is committed.
        """
        event = self._next(wait)
        while event is not None:
            self._handle(event)
            if self._over:
                return True  # the job has ended well; what comes now is heard by ``_end_slots``
            event = None if self._events.empty() else self._events.get()
        return False

    def _handle(self, event: _Event) -> None:
        if isinstance(event, Running):
            self._handle_running(event)
        elif isinstance(event, Progress):
            self._readers.progress(event.splits)
        elif isinstance(event, Acknowledged):
            self._acknowledged(cast("TaskAck", loads(event.ack)))
        elif isinstance(event, Declined):
            self._declined(event)
        elif isinstance(event, Committed):
            self._committed(event)
        elif isinstance(event, Failed):
            self._failover.failed(event, _unpickled(event))
        elif isinstance(event, Stopped | Dropped | LostSlot | Registered | Connected | Unreachable):
            self._failover.handle(event)
        elif isinstance(event, BaseException):
            raise event

    def _handle_running(self, event: Running) -> None:
        if event.region is not None:
            self._failover.running(event)
            return
        self._running.add(event.slot)
        if self._replacements.under_way:
            self._failover.taken(event.slot)
        elif len(self._running) == self._count:
            now = time.monotonic()
            self._failover.begun(now)
            self._checkpoints.begin(now)

    # -- checkpoints ---------------------------------------------------------------------------

    def _stop(self) -> None:
        """Let the job end after a last checkpoint, as somebody has asked for."""
        drains = self._run.stop.drains
        if not self._failover.all_run:
            return  # its tasks would not hear of it
        now = time.monotonic()
        if self._stopping is None:
            self._stopping = Stopping(self._names, self._stop_timeout, now)
            self._readers.stop(drains=drains)
        words = self._stopping.report(now, self.task_times)
        if words is not None:
            _LOG.warning("%s", words)
        self._triggers.give_up_expired()
        if self._checkpoints.is_over or not self.all_run:
            return
        if not drains:
            self._trigger_while_stopping(self._stopping, now)
        elif self._readers.all_is_read and not self._checkpoints.pending:
            for each in self._planned:
                self._server.broadcast(SourceEnded(each.uid))
            self._triggers.trigger(now, final=True, last=True)

    def _trigger_while_stopping(self, stopping: Stopping, now: float) -> None:
        """Trigger the last checkpoint, where barriers overtake after others.

        What is processed meanwhile is committed, and nothing is in flight in the last one.
        """
        checkpoints, draining = self._checkpoints, self._draining
        draining.update(checkpoints.next, now, is_over=True)
        if stopping.is_late(now) and not draining.is_done:
            if not checkpoints.pending:
                _LOG.warning(
                    "the stop took longer than %s (%g s): the last checkpoint has records in"
                    " flight, so continue from it with the same program",
                    *(options.CHECKPOINTING_TIMEOUT.key, self._stop_timeout),
                )
                self._triggers.trigger(now, last=True, overtakes=True)
        elif draining.is_done:
            if not checkpoints.pending:
                self._triggers.trigger(now, last=True)
        elif checkpoints.is_due(now) or (draining.is_due(now) and not checkpoints.pending):
            self._triggers.trigger(now)
            draining.triggered()

    @property
    def all_run(self) -> bool:
        """Return whether all tasks are restored; no checkpoint is triggered before.

        What a run needs for that, such as packages, is not time that a checkpoint takes.  And a
        slot that is late would put its barrier ahead of all that it reads: the checkpoint would
        be taken for progress although its input has not been tried.
        """
        return len(self._running) == self._count and self._failover.all_run

    def _check_checkpoints(self) -> None:
        checkpoints, draining, now = self._checkpoints, self._draining, time.monotonic()
        # What a region resumes from, which begins again, may be in flight again.
        is_over = self.all_run and self._sources.is_over
        draining.update(checkpoints.next, now, is_over=is_over)
        if not self.all_run:
            return
        self._triggers.give_up_expired()
        if draining.is_done:
            # After it nothing may follow, so nothing may be under way that could fail.
            if checkpoints.pending == 0:
                self._triggers.trigger(now, final=True, last=True)
        elif checkpoints.has_room and self._run.job.savepoints.is_wanted:
            self._triggers.trigger(now, aligned=True)
            draining.triggered()
        elif checkpoints.is_due(now) or (
            checkpoints.pending == 0
            and (draining.is_due(now) or self._sources.waits_for_checkpoint)
        ):
            self._triggers.trigger(now)
            draining.triggered()

    def _acknowledged(self, ack: TaskAck) -> None:
        self._run.on_acknowledged(ack)
        checkpoint = self._checkpoints.acknowledge(ack)
        if checkpoint is None:
            return
        message, acks = checkpoint.message, list(checkpoint.acks.values())
        offset = self._sources.offset(message.epoch, acks, final=message.final, time=message.time)
        self._committing.complete(self._run.metadata(offset, message.time), acks)

    def _declined(self, event: Declined) -> None:
        error = _unpickled(event)
        if not isinstance(error, Exception):
            raise error
        words = self._checkpoints.declined(event.epoch, event.task, error)
        if words is not None:
            _LOG.warning("%s", words)
            self._triggers.give_up([event.epoch], words)

    def _committed(self, event: Committed) -> None:
        manifest = self._note_commit(event)
        crash_point("notify.before")
        self._server.broadcast(Completed(event.epoch))
        crash_point("notify.after")
        self._sources.committed(
            manifest.splits, manifest.offsets, is_aligned=not manifest.in_flight
        )

    def _note_commit(self, event: Committed) -> Manifest:
        self._committing.ended.popleft()
        if event.error is not None:
            raise event.error
        if event.manifest is None:
            message = f"nothing is known of checkpoint {event.epoch}"
            raise EngineError(message)
        now = time.monotonic()
        checkpoint = self._checkpoints.committed(event.epoch, now)
        in_flight = [(each.stage, each.file["size"]) for each in event.manifest.in_flight]
        self._draining.committed(event.epoch, now, in_flight)
        self._run.on_epoch(event.manifest, list(checkpoint.acks.values()), checkpoint.span)
        self._over = checkpoint.is_last
        return event.manifest

    def _note_late_commits(self) -> None:
        """Note what was committed while the run ended.

        A commit that failed is the next run's to finish, if it was published.
        """
        ended = self._committing.ended
        while ended:
            event = ended[0]
            if event.error is None:
                self._note_commit(event)
            else:
                ended.popleft()
                _LOG.warning(
                    "checkpoint %d failed while its run ended: %s", event.epoch, event.error
                )

    # -- the end -------------------------------------------------------------------------------

    def _end_slots(self, patience: float) -> None:
        """Let slots close their functions, and wait until they have gone."""
        self._server.allow_end()
        self._server.broadcast(End())
        deadline = time.monotonic() + patience
        while not self._server.are_gone:
            if time.monotonic() >= deadline:
                _LOG.warning("slots were ended that did not end by themselves in %g s", patience)
                return
            time.sleep(_POLL_SECONDS)
        while not self._events.empty():
            event = self._events.get()
            if isinstance(event, Failed):
                # All that matters is committed, or given up.
                _LOG.warning("a slot ended with an error: %r", _unpickled(event))

    def _end_failed(self, error: BaseException) -> BaseException:
        """Ensure that nothing is at work any more after an error; returns what says most of it."""
        other: Exception | None = None
        try:
            with contextlib.ExitStack() as ending:
                ending.callback(self._clear_away)
                if not isinstance(error, WorkerLostError):
                    # All slots are there, and listen: functions are closed, as far as they let it.
                    self._end_slots(_GIVING_UP)
        except Exception as raised:  # noqa: BLE001 - the first error is the one to raise
            other = raised
        cause = self._cause(error) if isinstance(error, WorkerLostError) else error
        if other is not None:
            # A restart does not show notes.
            _LOG.warning("while the slots of a failed run were ended: %s", other)
            cause.add_note(f"then, while the slots were ended: {other!r}")
        self._note_late_commits()
        return cause

    def _clear_away(self) -> None:
        """Fence, and see that nothing is at work any more."""
        try:
            self._server.fence()
            self._host.stop(_GONE)
        finally:
            self._committing.close()
            self._server.close()
            self._sources.close()

    def _cause(self, error: WorkerLostError) -> BaseException:
        """Return what says most: that a slot was killed rather than that a connection ended."""
        return self._host.lost() or self._task_error(error)

    def _task_error(self, error: WorkerLostError) -> BaseException:
        """Return what a task said before its slot, or another's connection with it, ended."""
        while not self._events.empty():
            event = self._events.get()
            if isinstance(event, Failed):
                found = _unpickled(event)
                if not isinstance(found, WorkerLostError):
                    return found
        return error


def _unpickled(failed: Failed | Declined) -> BaseException:
    error: object = pickle.loads(failed.error)
    if isinstance(error, BaseException):
        return error
    return EngineError(f"slot {failed.slot} failed with {error!r}")
