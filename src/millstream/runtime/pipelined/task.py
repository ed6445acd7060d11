"""The task of a pipelined run: one subtask of one stage, from checkpoint to checkpoint.

**Alignment.** A barrier N on a link separates records of checkpoint N from later ones.  A link
whose barrier has come is *blocked*: later frames wait until the barriers of all links have come.
Then the task takes its snapshot and sends barrier N, after all output of the records before it.  So
the snapshots of all tasks are one consistent cut.

A barrier that waits no longer *overtakes* (``runtime/pipelined/unaligned_checkpoints.py``): the
snapshot is taken ahead of the frames before it in the links, which the checkpoint stores as frames
in flight.

Invariant: no record after barrier N is in snapshot N (with AT_LEAST_ONCE, where no link is blocked,
it may be, and is processed again after a failure).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa

from millstream.checkpoint.publish import Unconfirmed
from millstream.configuration import options
from millstream.configuration.options import CheckpointingMode
from millstream.contracts.batch import MAX_TIMESTAMP, Batch
from millstream.contracts.metrics import all_together
from millstream.contracts.operator import Checkpoint
from millstream.crash_points import crash_point
from millstream.errors import MillstreamError
from millstream.runtime.exchange import (
    WATERMARK,
    concatenate,
    decode_batch,
    decode_long,
    encode_long,
    runs,
)
from millstream.runtime.pipelined.batch_sizing import BatchSizer
from millstream.runtime.pipelined.latency import LatencyMarker, LatencyTracking
from millstream.runtime.pipelined.links import (
    BARRIER,
    DATA_REFERENCE,
    LATENCY,
    RECORDS,
    Barrier,
    Debloater,
    Frame,
    LinkOutbox,
    TaskId,
)
from millstream.runtime.pipelined.splits import END_CHANNEL, SplitScheduler
from millstream.runtime.pipelined.unaligned_checkpoints import Alignment
from millstream.runtime.pipelined.uploader import PendingAck, release_lost
from millstream.runtime.stage import is_per_channel
from millstream.runtime.task import FrameReader, TaskState, attempt_name, this_worker
from millstream.runtime.task_metrics import RunningMetrics, figures_of, metrics_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.checkpoint.model import OperatorAck, TaskAck
    from millstream.contracts.key_value_store import PendingSnapshot
    from millstream.contracts.metrics import MetricValue
    from millstream.contracts.operator import PendingOutput
    from millstream.runtime.frames_in_flight import RestoredFrame
    from millstream.runtime.pipelined.control import TakeCheckpoint
    from millstream.runtime.pipelined.links import CreditLimits, InLink, Link
    from millstream.runtime.pipelined.unaligned_checkpoints import Recording
    from millstream.runtime.plan import EpochPlan
    from millstream.runtime.stage import StageInstance
    from millstream.state.operator_state import PendingStates


#: Seconds of work after which something else may come: a barrier, above all.
_BATCH_SECONDS: Final = 0.02
_MOST_RECORDS: Final = 1 << 20


class PipelinedTask:
    """Runs one subtask of one stage.

    Args:
        instance: its opened operators, whose outbox is ``outbox``.
        plan: what is restored; of this task alone, which moves it on from epoch to epoch.
        inputs: the links into it.
        outbox: the links out of it.
        give_back: tells the producer of a link how many bytes are processed, and its limit.
        take: takes what a checkpoint leaves to be finished.
        clock: milliseconds since 1970.
        seconds: a clock for short times.
        work_seconds: one that stands still while the thread is not run; deadlines are of it, and
            batch sizes follow it.  None: ``seconds``.
        limits: of the credit of its inputs; None: it stays as it is.
    """

    def __init__(
        self,
        instance: StageInstance,
        plan: EpochPlan,
        inputs: list[InLink],
        outbox: LinkOutbox,
        give_back: Callable[[Link, int], None],
        take: Callable[[PendingAck], None],
        clock: Callable[[], int],
        seconds: Callable[[], float],
        work_seconds: Callable[[], float] | None = None,
        limits: CreditLimits | None = None,
    ) -> None:
        self.id = TaskId(instance.number, instance.subtask)
        self._instance = instance
        self._plan = plan
        self._inputs = inputs
        self._outbox = outbox
        self._give_back = give_back
        self._take = take
        self._clock = clock
        self._seconds = seconds
        self._work_seconds = work_seconds or seconds
        self._attempt = self._name(plan.epoch)
        instance.position.checkpoint_id = plan.epoch
        self._state = TaskState(instance, plan, self._attempt, is_long_running=True, clock=clock)
        self._unconfirmed = Unconfirmed()
        self._frames = FrameReader(instance, instance.managed_memory)
        self._debloater: Debloater | None = None
        if limits is not None and inputs:
            self._debloater = Debloater(inputs, limits, seconds())
        self.splits: SplitScheduler | None = None
        if instance.level == 0:
            self.splits = SplitScheduler(
                *(instance, plan, self._attempt, clock, self._work_seconds), outbox
            )
        mode = CheckpointingMode[instance.graph.configuration.get(options.CHECKPOINTING_MODE)]
        self._blocks = mode is CheckpointingMode.EXACTLY_ONCE
        #: The last checkpoint that it knows to be complete, and what it has counted for later ones.
        self._confirmed = plan.epoch - 1
        self._counted: list[tuple[int, dict[str, MetricValue]]] = []
        #: Epoch -> producer -> its attempt, of the barriers that were reached.
        self._barriers: dict[int, dict[TaskId, str]] = {}
        self._latency = LatencyTracking.of(instance)
        self._alignment = Alignment(instance, inputs, clock, self._release)
        #: Snapshots that wait for what is in flight to be recorded, and those after them.
        self._held: deque[PendingAck] = deque()
        #: Checkpoints that were aborted before their snapshots were taken here.
        self._abandoned: set[int] = set()
        #: When the first barrier of the checkpoint came: by the clock for short times, and in
        #: milliseconds since 1970.
        self._first_barrier = 0.0
        self._barrier_came = 0
        #: Snapshots that it does not know to be published; and files of states that could not be
        #: written.
        self._taken: list[PendingAck] = []
        self._unwritten: list[PendingStates] = []
        #: Why output could not be pre-committed; the uploader says so.
        self._failures: list[Exception] = []
        #: Edge -> producers that have said that the source behind them is over.
        self._ended: dict[int, set[int]] = {}
        #: Checkpoints that wait until all positions are exact.
        self._waiting: deque[TakeCheckpoint] = deque()
        self._next_link = 0
        #: Edge -> how many of its records are a short time of work.
        self._sizers: dict[int, BatchSizer] = {}
        #: Records that some operator processes at the same time.
        self._concurrency = max(each.concurrency for each in instance.operators.values())
        self._began = seconds()
        #: When it had its last turn but one with credit, and its last.
        self._steps = self._began, self._began
        #: It had a step without credit since; seconds that it waited so, since the last tick.
        self._is_held = False
        self._paused = 0.0
        #: Those that look at the clock, consumers first; those of splits are told by them.
        self._timed = [
            instance.operators[node.id]
            for node in reversed(self._state.nodes)
            if node.needs_processing_time
        ]
        #: Those that only have to know what time it is, for time to live and PROCTIME(); watermarks
        #: are not made more often for it, and in BATCH mode the clock stands still.
        self._clock_listeners = [
            instance.operators[node.id]
            for node in self._state.nodes
            if not (node.needs_processing_time or is_per_channel(node) or instance.graph.batch_mode)
        ]
        self._operators = [instance.operators[node.id] for node in self._state.nodes]

    def _name(self, epoch: int) -> str:
        return attempt_name(self._plan, epoch, *self.id)

    def restore(self) -> None:
        """Put everything back to the end of the last checkpoint."""
        self._state.restore()
        for store in self._state.stores.values():
            restored = getattr(store, "restored_from", None)
            if restored is not None:
                store.published(restored)
        if self.splits is not None:
            self.splits.begin()

    # -- work ----------------------------------------------------------------------------------

    @property
    def has_credit(self) -> bool:
        """Return whether its consumers keep up."""
        return self._outbox.has_credit

    @property
    def may_run(self) -> bool:
        """Return whether it may be given time: a barrier waits for no credit.

        What is read until the positions are exact is the rest of a piece, so it is bounded.
        """
        return self.has_credit or bool(self._waiting) or self._is_urgent

    @property
    def _is_urgent(self) -> bool:
        return self._alignment.is_urgent(self._plan.epoch)

    @property
    def is_ready(self) -> bool:
        """Return whether something has come that it may process."""
        return bool(self._state.in_flight) or any(link.is_ready for link in self._inputs)

    def hold(self) -> None:
        """Note that it has no credit: nothing of what has come is processed."""
        self._is_held = True

    def begin_step(self, now: float) -> None:
        """Note that it has its step, by the clock for short times."""
        self._set_credit(now)
        if not self.has_credit:
            self.hold()
            return
        before, last = self._steps
        if self._is_held:
            # This turn and the last are as one.
            self._paused += now - last
            self._steps = before + now - last, now
            self._is_held = False
        else:
            self._steps = last, now

    def _set_credit(self, now: float) -> None:
        """Let producers send as much as is processed in the target time."""
        if self._debloater is None:
            return
        batch = max((e.wanted for e in self._sizers.values() if e.is_costly), default=0)
        for link in self._debloater.adjust(now, has_input=self.is_ready, batch=batch):
            self._give_back(link.link, 0)

    def run(self, deadline: float) -> bool:
        """Work until the deadline, or until there is nothing to do or no credit.

        Returns:
            Whether there was anything to do.
        """
        worked = False
        while self._is_urgent and self._overtake():
            worked = True
        while self.has_credit and self._process_next():
            worked = True
            self._send_if_used_up()
            if self._work_seconds() >= deadline:
                return True
        if self._waiting:
            return self._settle(deadline) or worked
        if self.splits is None or not self.has_credit:
            return worked
        return self.splits.read(deadline) or worked

    def _send_if_used_up(self) -> None:
        """Send what is gathered if it takes all credit: what is not sent holds nobody back."""
        if self._outbox.is_used_up:
            for writer in self._instance.writers:
                writer.flush()
            self._outbox.flushed()

    def _process_next(self) -> bool:
        """Process a frame, those first that the task was restored with; whether there was any."""
        in_flight = self._state.in_flight
        if in_flight:
            in_flight.process_next(self._process_restored)
            return True
        link = self._next_ready()
        if link is None:
            return False
        self._process(link, link.take())
        return True

    def _next_ready(self) -> InLink | None:
        """Links round robin, so that none starves, but one first that a checkpoint waits for."""
        wanted = self._alignment.first_link()
        if wanted is not None:
            return wanted
        count = len(self._inputs)
        for step in range(count):
            index = (self._next_link + step) % count
            link = self._inputs[index]
            if link.is_ready:
                self._next_link = index + 1
                return link
        return None

    def _process_restored(self, frame: RestoredFrame) -> Batch | None:
        if frame.kind in RECORDS:
            sizer = self._sizer(frame.edge)
            batch, rest = _cut(self._decoded(frame), sizer.limit)
            self._process_batch(frame.edge, batch, sizer)
            return rest
        self._frames.process_restored(frame)
        return None

    def _process(self, link: InLink, frame: Frame) -> None:
        size = frame.size
        if frame.kind == BARRIER:
            self._take_barrier(link, frame)
        elif frame.kind in RECORDS:
            size = self._process_records(link, frame)
        elif frame.kind == LATENCY:
            self._pass_marker(LatencyMarker.decode(bytes(cast("bytes", frame.payload))))
        elif not self._is_early_end(link, frame):
            payload = pa.py_buffer(frame.payload)
            self._frames.process(frame.edge, frame.kind, frame.channel, payload)
        link.processed += size
        credit = link.take_credit()
        if credit:
            self._give_back(link.link, credit)

    def _pass_marker(self, marker: LatencyMarker) -> None:
        """Note a latency marker, and send it on, after all records before it."""
        if self._latency is None:
            return
        self._latency.take(marker, self._clock())
        targets = self._latency.targets(marker, self._outbox.subtasks)
        if targets:
            self.flush()
        for stage, subtask in targets:
            self._outbox.latency(TaskId(stage, subtask), marker.encode())

    def _process_records(self, link: InLink, frame: Frame) -> int:
        """Process records for a short time of work: a part of a frame, or of several in a row.

        Returns:
            Bytes whose credit is to be given back.
        """
        sizer = self._sizer(frame.edge)
        limit = self._outbox.allowed(sizer.limit)
        wanted = min(limit, sizer.wanted)
        batches: list[Batch] = []
        count = size = 0
        following: Frame | None = frame
        while following is not None:
            batch, rest = _cut(self._decoded(following), limit - count)
            batches.append(batch)
            count += len(batch)
            if rest is not None:
                # Credit comes back as its records are processed.
                left = following.size * len(rest) // (len(batch) + len(rest))
                size += following.size - left
                link.put_back(following._replace(kind=DATA_REFERENCE, payload=rest, size=left))
                break
            size += following.size
            following = link.take_following(following) if count < wanted else None
        for run in [batches] if len(batches) == 1 else runs(batches):
            self._process_batch(frame.edge, concatenate(run), sizer)
        self._instance.received[self._instance.edges[frame.edge].target] += size
        if self._debloater is not None:
            # Columns without what a frame has besides, of which short ones consist for the most.
            columns = [LinkOutbox.size_of_columns(each) for each in batches if each.is_columnar]
            net = sum(columns) if len(columns) == len(batches) else size
            self._debloater.processed(link, min(net, size), count)
        return size

    def _sizer(self, edge: int) -> BatchSizer:
        sizer = self._sizers.get(edge)
        if sizer is None:
            sizer = BatchSizer(_MOST_RECORDS, _BATCH_SECONDS, self._concurrency)
            self._sizers[edge] = sizer
        return sizer

    def _decoded(self, frame: Frame | RestoredFrame) -> Batch:
        if isinstance(frame.payload, Batch):
            return frame.payload
        edge = self._instance.edges[frame.edge]
        return decode_batch(frame.kind, pa.py_buffer(frame.payload), edge.type_info)

    def _process_batch(self, number: int, batch: Batch, sizer: BatchSizer) -> None:
        edge = self._instance.edges[number]
        began = self._work_seconds()
        self._instance.operators[edge.target].process_batch(batch, edge.input_index)
        sizer.processed(len(batch), self._work_seconds() - began)
        self._outbox.processed(len(batch))

    def _is_early_end(self, link: InLink, frame: Frame) -> bool:
        """Return whether a source's end waits for the ends of other producers of its edge.

        Each says it after its last record, but a link may be slower than another, and time that
        has ended makes late what is still under way there.
        """
        if frame.kind != WATERMARK or frame.channel < END_CHANNEL:
            return False
        if isinstance(frame.payload, Batch) or decode_long(bytes(frame.payload)) < MAX_TIMESTAMP:
            return False
        edge = self._instance.edges[frame.edge]
        ended = self._ended.setdefault(frame.edge, set())
        ended.add(link.link.source.subtask)
        return len(ended) < self._instance.graph.nodes[edge.source].parallelism

    # -- barriers ------------------------------------------------------------------------------

    def trigger(self, message: TakeCheckpoint) -> None:
        """Take a checkpoint after all that was read: for tasks without links into them."""
        if self._waiting or (self.splits is not None and not self.splits.settled):
            self._waiting.append(message)
            return
        self._note_first_barrier()
        self._checkpoint(message.epoch, message.deadline, final=message.final)

    def _note_first_barrier(self) -> None:
        self._first_barrier, self._barrier_came = self._seconds(), self._clock()

    @property
    def is_root(self) -> bool:
        """Return whether the driver triggers its checkpoints: nothing leads to it."""
        return not self._inputs

    def _settle(self, deadline: float) -> bool:
        if self.splits is None:
            return False
        self.splits.settle(deadline)
        if self.splits.settled:
            waiting, self._waiting = self._waiting, deque()
            for message in waiting:
                self.trigger(message)
        return True

    def _take_barrier(self, link: InLink, frame: Frame) -> None:
        if frame.number < self._plan.epoch:
            return  # it has overtaken what lay before it
        barrier = Barrier.decode(frame)
        came = self._barriers.setdefault(frame.number, {})
        if not came:
            self._note_first_barrier()
        came[link.link.source] = barrier.attempt
        crash_point("barrier.align.before")
        link.blocked = self._blocks
        if len(came) < len(self._inputs):
            return
        crash_point("barrier.align.after")
        del self._barriers[frame.number]
        deadline = self._alignment.deadline(frame.number)
        self._alignment.taken(frame.number)
        self._frames.consumed = _consumed(came)
        self._checkpoint(frame.number, deadline, final=barrier.final)
        for each in self._inputs:
            each.blocked = False

    def _overtake(self) -> bool:
        """Take a snapshot ahead of all that lies before its barriers; False if some has to wait."""
        epoch = self._plan.epoch
        if not self._alignment.can_overtake(epoch):
            return False
        crash_point("barrier.overtake.before")
        if not self._barriers.pop(epoch, None):
            self._note_first_barrier()
        recording = self._alignment.overtake(epoch, self._held_back())
        self._frames.consumed = []  # known when all barriers have come
        # Over: a task whose clock is behind this one's is not to wait.
        self._checkpoint(epoch, 0, final=False, recording=recording)
        return True

    def _held_back(self) -> list[RestoredFrame | Frame]:
        """Return what lies in no link any more, and was not given to operators."""
        found: list[RestoredFrame | Frame] = []
        for edge, producers in self._ended.items():
            source = self._instance.edges[edge].source
            if len(producers) < self._instance.graph.nodes[source].parallelism:
                end = encode_long(MAX_TIMESTAMP)
                found += [
                    Frame(WATERMARK, edge, END_CHANNEL + each, 0, end, 0) for each in producers
                ]
        if self._state.in_flight:
            found += self._state.in_flight.left()
        return found

    def _release(self) -> None:
        """Release the snapshots of which all is known."""
        while self._held:
            recording = self._held[0].recording
            if recording is not None:
                if not recording.is_complete:
                    return
                self._held[0].ack.consumed = _consumed(recording.attempts)
            self._take(self._held.popleft())

    def _checkpoint(
        self, epoch: int, deadline: int, *, final: bool, recording: Recording | None = None
    ) -> None:
        """The synchronous part of a snapshot, and the barrier after it."""
        if epoch != self._plan.epoch:
            message = (
                f"task {self.id} is asked for checkpoint {epoch} while it is at {self._plan.epoch}"
            )
            raise MillstreamError(message)
        began = self._seconds()
        if final:
            for node in self._instance.nodes:
                self._instance.operators[node.id].end_input()
        self._counted.append((epoch, self._metrics_of_epoch()))
        self._fold_counted()
        if self.splits is not None:
            self.splits.reader.counted.clear()
        next_attempt = self._name(epoch + 1)
        pending = self._snapshot(Checkpoint(epoch, next_attempt))
        crash_point("barrier.send.before")
        self._outbox.barrier(epoch, Barrier(self._attempt, final, deadline))
        crash_point("barrier.send.after")
        self._begin_epoch(epoch + 1, next_attempt)
        ack = pending.ack
        ack.barrier, ack.aligning = self._barrier_came, began - self._first_barrier
        ack.pause = self._seconds() - began
        pending.recording = recording
        self._taken = [each for each in self._taken if not (each.is_lost and each.is_done)]
        self._taken.append(pending)
        self._held.append(pending)
        release_lost(self._taken)
        if epoch in self._abandoned:
            self.abandon(epoch)
        self._abandoned = {each for each in self._abandoned if each > epoch}
        self._release()

    def _begin_epoch(self, epoch: int, attempt: str) -> None:
        """Return what is processed from here on belongs to the next epoch."""
        self._plan.epoch, self._attempt = epoch, attempt
        self._instance.position.checkpoint_id = epoch
        if self.splits is not None:
            self.splits.reader.attempt = attempt
        self._began = self._seconds()

    def _snapshot(self, checkpoint: Checkpoint) -> PendingAck:
        state, splits = self._state, self.splits
        split_states = [] if splits is None else splits.snapshot(checkpoint.epoch)
        reader = None if splits is None else splits.reader
        due = None if splits is None else splits.due()
        whole, snapshots = state.acknowledge(checkpoint, self._attempt, reader, [due])
        whole.splits, whole.consumed = split_states, self._frames.consumed
        whole.seconds = self._seconds() - self._began
        whole.worker, whole.peak_memory = this_worker()
        if reader is not None:
            reader.unparsed.clear()
        waiting: list[tuple[OperatorAck, PendingSnapshot]] = []
        outputs: list[tuple[OperatorAck, PendingOutput]] = []
        for node, ack in zip(self._instance.nodes, whole.operators, strict=True):
            if node.id in state.stores:
                waiting.append((ack, state.stores[node.id].prepare_snapshot()))
            output = snapshots[node.id].output
            if output is not None:
                outputs.append((ack, output))
        states, state.pending = state.pending, []
        carrying = self._unconfirmed.carrying
        pending = PendingAck(whole, waiting, states, self._plan.storage, carrying, self._unwritten)
        pending.stores = self._plan.stores
        pending.outputs, pending.failures = outputs, self._failures
        return pending

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Move the clock to ``now``, in milliseconds: what is due fires.

        It stands still while the task has no credit, or another of its slot is at something long.
        What others of its slot have made since its last turn but one waits for its next turn, so
        an input was silent up to that turn at most, however long turns are.
        """
        paused, self._paused = int(1000 * self._paused), 0.0
        lag = int(1000 * (self._seconds() - self._steps[0]))
        self._plan.processing_time = now
        for operator in self._clock_listeners:
            operator.process_processing_time(now)
        for operator in self._timed:
            if paused:
                operator.process_pause(paused)
            operator.process_lag(lag)
            operator.process_processing_time(now)
        if self.splits is not None:
            self.splits.tick(now)
        for marker in [] if self._latency is None else self._latency.due(now):
            self._pass_marker(marker)

    def confirm(self, epoch: int) -> list[Callable[[], None]]:
        """Note that checkpoint ``epoch`` is published and committed, and those before it are.

        Returns:
            What is to be done about it aside, after what was to be uploaded before.
        """
        self._unconfirmed.confirm(epoch)
        self._confirmed = epoch
        self._counted = [each for each in self._counted if each[0] > epoch]
        if self.splits is not None:
            self.splits.committed(epoch)
        done = [each for each in self._taken if each.ack.epoch <= epoch]
        del self._taken[: len(done)]
        for each in done:
            if each.ack.epoch == epoch:
                self._note_published(each.ack)
        orders = (operator.committed(epoch) for operator in self._operators)
        return [order for order in orders if order is not None]

    def counts(self) -> RunningMetrics:
        """Return what it has counted since the last checkpoint that it knows to be complete."""
        total: dict[str, MetricValue] = {}
        for metrics in [*(kept for _, kept in self._counted), self._metrics_of_epoch()]:
            total = all_together(total, metrics)
        figures = figures_of(self._instance, self._state.stores)
        if self._latency is not None:
            figures = replace(figures, latencies=self._latency.histograms())
        return RunningMetrics(self._confirmed, total, self.id.subtask, figures)

    def _fold_counted(self) -> None:
        """Count what a checkpoint that was aborted has with the next, which has it or nobody."""
        lost = {each.ack.epoch for each in self._taken if each.is_lost}
        folded: list[tuple[int, dict[str, MetricValue]]] = []
        for epoch, metrics in self._counted:
            if folded and folded[-1][0] in lost:
                metrics = all_together(folded.pop()[1], metrics)  # noqa: PLW2901
            folded.append((epoch, metrics))
        self._counted = folded

    def _metrics_of_epoch(self) -> dict[str, MetricValue]:
        return metrics_of(self._instance, None if self.splits is None else self.splits.reader)

    def abandon(self, epoch: int) -> list[Callable[[], None]]:
        """Note that checkpoint ``epoch`` was aborted: no more is recorded for it.

        A barrier that is late, or never comes, would have all recorded that comes before it.

        Returns:
            What is to be done about it aside, after what was to be uploaded before.
        """
        if epoch >= self._plan.epoch:
            self._abandoned.add(epoch)
        self._unconfirmed.abandon(epoch)
        if self.splits is not None:
            self.splits.abandon(epoch)
        for each in self._taken:
            each.is_lost = each.is_lost or each.ack.epoch == epoch
        for each in self._held:
            if each.ack.epoch == epoch and each.recording is not None:
                each.is_given_up = True
                each.recording.drop(self._inputs)
        self._release()
        release_lost(self._taken)
        self._fold_counted()
        for operator in self._operators:
            operator.aborted(epoch)
        return [each.discard for each in self._taken if each.ack.epoch == epoch]

    def _note_published(self, ack: TaskAck) -> None:
        states = {each.uid: each.state for each in ack.operators if each.state is not None}
        for node, store in self._state.stores.items():
            handle = states.get(self._instance.graph.nodes[node].uid)
            if handle is not None:
                store.published(handle["id"])

    def flush(self) -> None:
        """Send what writers have gathered, and what operators hold back."""
        for operator in self._operators:
            operator.flush()
        for writer in self._instance.writers:
            if writer.holds_records:
                writer.flush()
        self._outbox.flushed()

    def write_some(self, deadline: float) -> bool:
        """Write some of what the next snapshot would have to; whether there is more."""
        left = [operator.write_some(deadline) for operator in self._operators]
        return any(left)

    @property
    def is_uploading(self) -> bool:
        """Return whether something of its snapshots is not finished."""
        return not all(each.is_done for each in self._taken)

    def raise_failure(self) -> None:
        """Raise what has kept output from being pre-committed, if there is such."""
        if self._failures:
            raise self._failures[0]

    def abort_uploads(self) -> None:
        """Let nothing more of its snapshots be finished: it is to be closed."""
        for each in self._taken:
            each.is_given_up = each.is_stopped = True
        while self._held:
            self._take(self._held.popleft())

    def close(self) -> None:
        """Close the user functions and stores."""
        try:
            self._instance.close()
        finally:
            if self.splits is not None:
                self.splits.close()
            self._state.close()


def _cut(batch: Batch, most: int) -> tuple[Batch, Batch | None]:
    """The first records of a batch, and those that are left."""
    if len(batch) <= most:
        return batch, None
    return batch.slice(0, most), batch.slice(most, len(batch))


def _consumed(attempts: dict[TaskId, str]) -> list[tuple[int, int, str]]:
    """As an acknowledgement names the producers' attempts."""
    return [(*source, name) for source, name in sorted(attempts.items())]
