"""The task of micro-batch execution: one subtask of one stage for one epoch.

A task is a generator of Arrow record batches of frames, so that Spark can shuffle while it runs::

    time restored -> restore -> processing time -> splits, or frames, those in flight first
      -> end_input (final epoch)
      -> snapshot in order of the chain -> stores uploaded -> exchange flushed -> ack
"""

from __future__ import annotations

import os
import resource
import socket
import time
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from millstream.checkpoint.model import OperatorAck, TaskAck
from millstream.checkpoint.packs import packing
from millstream.contracts.batch import Batch
from millstream.contracts.operator import Checkpoint, OperatorSnapshot, RestoreContext
from millstream.crash_points import crash_point
from millstream.runtime.exchange import (
    ACK,
    ACKNOWLEDGEMENT_STAGE,
    FINISHED,
    IDLE,
    PRODUCER_ATTEMPT,
    WATERMARK,
    Destination,
    concatenate,
    decode_batch,
    decode_long,
)
from millstream.runtime.frames_in_flight import RestoredFrames
from millstream.runtime.plan import (
    acknowledged_watermark,
    is_restored_by_split,
    refresh_time,
    restore_time,
)
from millstream.runtime.split_reader import SplitReader
from millstream.runtime.task_metrics import RunningMetrics, figures_of, metrics_of, published
from millstream.state.backend import open_store
from millstream.state.key_codec import key_group_range
from millstream.state.operator_state import StateReader, prepare_states
from millstream.types.pickling import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.metrics import MetricValue
    from millstream.contracts.operator import OperatorStateHandle
    from millstream.contracts.source import SourceBatch
    from millstream.graph.model import StreamEdge, StreamNode
    from millstream.runtime.frames_in_flight import RestoredFrame
    from millstream.runtime.plan import EpochPlan
    from millstream.runtime.stage import StageInstance
    from millstream.state.operator_state import PendingStates


#: What is gathered at most: rows, and bytes of their frames and of what came with those.
_MOST_ROWS: Final = 65_536
_MOST_BYTES: Final = 16 << 20
#: The part of managed memory that gathered rows may take: what operators make of them while they
#: process them takes several times as much.
_GATHERED: Final = 1 / 16
#: Smaller parts would cost more than they save.
_LEAST_ROWS: Final = 1_000
_NO_RECORDS: Final = frozenset({PRODUCER_ATTEMPT, WATERMARK, IDLE, FINISHED})


@dataclass(slots=True)
class _Gathered:
    """Batches of an edge that wait for others, and the frames after them that hold no records."""

    edge: StreamEdge
    batches: list[Batch] = field(default_factory=list)
    behind: list[tuple[int, int, int, pa.Buffer]] = field(default_factory=list)
    rows: int = 0
    size: int = 0


class FrameReader:
    """Reads frames into the operators of a stage instance."""

    def __init__(self, instance: StageInstance, managed: int) -> None:
        """Read frames into an instance.

        Args:
            instance: of the stage.
            managed: memory for state and batches of this process, in bytes.
        """
        self._instance = instance
        self._most_bytes = min(_MOST_BYTES, int(managed * _GATHERED))
        #: (stage, subtask, attempt) of each task whose frames were read.  A task that Spark ran
        #: twice may have made other records the second time: the driver publishes the epoch only
        #: if all its readers name the same attempt.
        self.consumed: list[tuple[int, int, str]] = []
        targets = Counter(edge.target for edge in instance.edges.values())
        #: What waits on the only edges of operators that gather their batches.
        self._gathered = {
            number: _Gathered(edge)
            for number, edge in instance.edges.items()
            if targets[edge.target] == 1
            and edge.target in instance.operators
            and instance.operators[edge.target].gathers_batches
        }

    def read(self, frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process all frames, in the order in which they come; yields those of later stages."""
        level, outbox = self._instance.level, self._instance.outbox
        for rows in frames:
            if not rows.num_rows:
                continue
            # There are few rows, and most often one: no kernel is worth its call for them.
            if max(rows.column(0).to_pylist()) > level:
                later = pc.greater(rows.column(0), level)
                # The stages are one chain, so an edge that skips stages has its frames handed from
                # task to task; they were addressed by their producer and are not opened here.
                yield rows.filter(later)
                rows = rows.filter(pc.equal(rows.column(0), level))  # noqa: PLW2901
            edges = rows.column(2).to_pylist()
            kinds = rows.column(3).to_pylist()
            channels = rows.column(4).to_pylist()
            payloads = rows.column(7)
            for position, kind in enumerate(kinds):
                payload = payloads[position].as_buffer()
                self._take(edges[position], kind, channels[position], payload)
                # One frame can make any number of records.  Sent on between frames, what waits
                # here is bounded by what one of them makes.
                if outbox.is_full:
                    yield from outbox.drain()
            self._hold(rows.nbytes)
        for gathered in self._gathered.values():
            self._release(gathered)

    def _hold(self, size: int) -> None:
        """Count what all came with gathered batches: they are views of it, and keep it."""
        for gathered in self._gathered.values():
            if gathered.batches:
                gathered.size += size
                if gathered.size >= self._most_bytes:
                    self._release(gathered)

    def _take(self, edge_id: int, kind: int, channel: int, payload: pa.Buffer) -> None:
        """Process a frame, or gather it: some operators do less for one large batch.

        What is after records on their edge stays after them.
        """
        if kind not in _NO_RECORDS:
            self._instance.received[self._instance.edges[edge_id].target] += payload.size
        gathered = self._gathered.get(edge_id)
        if gathered is None:
            self.process(edge_id, kind, channel, payload)
        elif kind in _NO_RECORDS:
            if gathered.batches:
                gathered.behind.append((edge_id, kind, channel, payload))
            else:
                self.process(edge_id, kind, channel, payload)
        else:
            batch = decode_batch(kind, payload, gathered.edge.type_info)
            is_other = gathered.batches and not (
                batch.is_columnar
                and gathered.batches[0].is_columnar
                and batch.arrow.schema.equals(gathered.batches[0].arrow.schema)
            )
            if is_other:
                self._release(gathered)
            gathered.batches.append(batch)
            gathered.rows += len(batch)
            gathered.size += payload.size
            if gathered.rows >= _MOST_ROWS or gathered.size >= self._most_bytes:
                self._release(gathered)

    def _release(self, gathered: _Gathered) -> None:
        """Process what is gathered of an edge."""
        batches, behind = gathered.batches, gathered.behind
        gathered.batches, gathered.behind, gathered.rows, gathered.size = [], [], 0, 0
        self._instance.read_gauges()
        if batches:
            edge = gathered.edge
            self._process_records(edge, concatenate(batches))
        for frame in behind:
            self.process(*frame)

    def process_restored(self, frame: RestoredFrame) -> None:
        """Process a frame that was in flight in the checkpoint that the task begins with."""
        payload = frame.payload
        if isinstance(payload, Batch):
            edge = self._instance.edges[frame.edge]
            self._instance.operators[edge.target].process_batch(payload, edge.input_index)
        else:
            self.process(frame.edge, frame.kind, frame.channel, pa.py_buffer(payload))

    def process(self, edge_id: int, kind: int, channel: int, payload: pa.Buffer) -> None:
        """Process a frame of this stage."""
        instance = self._instance
        if kind == PRODUCER_ATTEMPT:
            # Of no edge: a producer says once per reader, ahead of everything, which attempt it is.
            self.consumed.append(cast("tuple[int, int, str]", loads(payload.to_pybytes())))
            return
        instance.read_gauges()
        edge = instance.edges[edge_id]
        if kind == WATERMARK:
            watermark = decode_long(payload.to_pybytes())
            instance.channel_watermark(edge.target, edge_id, channel, watermark)
        elif kind == IDLE:
            idle = bool(decode_long(payload.to_pybytes()))
            instance.channel_status(edge.target, edge_id, channel, idle=idle)
        elif kind == FINISHED:
            instance.channel_finished(edge.target, edge_id, channel)
        else:
            self._process_records(edge, decode_batch(kind, payload, edge.type_info))

    def _process_records(self, edge: StreamEdge, batch: Batch) -> None:
        """Process a batch, in parts if it takes more memory than it may."""
        operator = self._instance.operators[edge.target]
        rows = len(batch)
        if batch.is_columnar and batch.arrow.nbytes > 2 * self._most_bytes:
            rows = max(_LEAST_ROWS, rows * self._most_bytes // batch.arrow.nbytes)
        for start in range(0, max(1, len(batch)), max(1, rows)):
            operator.process_batch(batch.slice(start, start + rows), edge.input_index)


def attempt_name(plan: EpochPlan, epoch: int, stage: int, subtask: int) -> str:
    """A new name of an attempt at an epoch; the run's generation comes first."""
    return f"g{plan.generation}-{epoch}-{stage}-{subtask}-{uuid.uuid4().hex[:12]}"


def this_worker() -> tuple[str, int]:
    """The name of this process for acknowledgements, and the most bytes of memory that it had."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return f"{socket.gethostname()}:{os.getpid()}", usage.ru_maxrss * 1024


class TaskState:
    """The state of one subtask of one stage, operator by operator.

    Operators of stage 0 that keep time per split are not among them: they are restored with each
    split, and their state lies with it.

    Args:
        instance: the opened operator chains.
        plan: what they are restored from.
        attempt: names what they write.
        goes_on: they are restored once, at the start of a run, and not in every epoch.
        clock: tells the time while records are processed; None: it stands still.
    """

    def __init__(
        self,
        instance: StageInstance,
        plan: EpochPlan,
        attempt: str,
        *,
        is_long_running: bool = False,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._instance = instance
        self._plan = plan
        self._attempt = attempt
        self._is_long_running = is_long_running
        # In BATCH mode the records of a key are taken as if they came at once.
        self._clock = None if instance.graph.batch_mode else clock
        #: Of the operators that keep keyed state, by node.
        self.stores: dict[int, KeyValueStore] = {}
        #: In the order of the chain.
        self.nodes = [node for node in instance.nodes if not is_restored_by_split(instance, node)]
        self._ids = {node.id for node in self.nodes}
        #: Once it is restored: what is to be processed ahead of all else.
        self.in_flight: RestoredFrames | None = None
        #: Operator states that acknowledgements name and that are not written yet.
        self.pending: list[PendingStates] = []

    def restore(self) -> None:
        """Put everything back to the end of the last epoch.

        Each pass relies on the one before it in every operator, not in its own only: event time,
        which outputs must know before anything is emitted; the operators; processing time, by which
        timers fire and emit into operators that are restored by now, those of consumers first, for
        their timers were due before what comes in now; then event time again where channels became
        idle, unless there are frames in flight: that comes after them.
        """
        instance, plan = self._instance, self._plan
        self.in_flight = RestoredFrames(instance, plan)
        restore_time(instance, plan, self.in_flight.channels_of)
        for node in self.nodes:
            instance.operators[node.id].restore(self._restore_context(node))
        for node in reversed(self.nodes):
            instance.operators[node.id].process_processing_time(plan.processing_time)
        if instance.level > 0 and not self.in_flight:
            refresh_time(instance)

    def close(self) -> None:
        """Close the stores."""
        for store in self.stores.values():
            store.close()

    def _restore_context(self, node: StreamNode) -> RestoreContext:
        plan, subtask = self._plan, self._instance.subtask
        states = self._instance.operator_states[node.id]
        states.restore(plan.operator_states(node.uid, subtask), StateReader(plan.storage))
        return RestoreContext(
            epoch=plan.epoch,
            attempt=self._attempt,
            processing_time=plan.processing_time,
            clock=self._clock,
            store=self._open_store(node) if self._instance.operators[node.id].keyed else None,
            watermark=plan.subtask_watermark(node.uid, subtask, node.parallelism),
            operator_states=states,
            resumes=self._is_long_running,
            job_id=plan.job_id,
            generation=plan.generation,
            scratch_directory=plan.local_root,
            storage=plan.storage,
        )

    def _open_store(self, node: StreamNode) -> KeyValueStore:
        plan, subtask = self._plan, self._instance.subtask
        store = open_store(
            plan.state_backend,
            plan.storage,
            node.uid,
            subtask,
            key_group_range(subtask, node.max_parallelism, node.parallelism),
            plan.handles(node.uid),
            self._attempt,
            Path(plan.local_root),
            plan.fsync,
            node.name,
            plan.rehash(node.uid, node.max_parallelism),
            self._instance.graph.configuration,
        )
        self.stores[node.id] = store
        return store

    def _snapshot(self, checkpoint: Checkpoint) -> dict[int, OperatorSnapshot]:
        """Have all operators take their snapshots; returns those by node, of the others empty ones.

        First all operators, in the order of the chain, for a snapshot may emit a watermark or
        records, which belong to this epoch in those after.  Then the writers, whose combiners hold
        such records back.  Stores come after this: an upload takes long.
        """
        snapshots: dict[int, OperatorSnapshot] = defaultdict(OperatorSnapshot)
        for node in self.nodes:
            snapshots[node.id] = self._instance.operators[node.id].snapshot(checkpoint)
        for writer in self._instance.writers:
            writer.flush()
        return snapshots

    def acknowledge(
        self,
        checkpoint: Checkpoint,
        attempt: str,
        splits: SplitReader | None,
        due: Iterable[int | None],
    ) -> tuple[TaskAck, dict[int, OperatorSnapshot]]:
        """Take the snapshot of the task.

        Args:
            checkpoint: the checkpoint.
            attempt: that all up to here is of.
            splits: reads the splits of the task; None: it has none.
            due: when something else of it can change without a record.

        Returns:
            The acknowledgement, which lacks snapshots of stores, committables that are not
            prepared, and what only the caller knows; and the operators' snapshots, by node.  What
            is in ``pending`` then is to be written before it is sent.
        """
        instance = self._instance
        snapshots = self._snapshot(checkpoint)
        reached = {} if splits is None else splits.reached
        unparsed: Mapping[int, int] = {} if splits is None else splits.unparsed
        operators = []
        for node in instance.nodes:
            watermark = acknowledged_watermark(instance, self._plan, node, reached)
            operators.append(self._operator(node, snapshots[node.id], watermark, unparsed))
        moments = [*due, *(each.next_due for each in snapshots.values())]
        ack = TaskAck(
            checkpoint.epoch,
            instance.number,
            instance.subtask,
            attempt,
            operators,
            next_due=min((each for each in moments if each is not None), default=None),
        )
        return ack, snapshots

    def _operator(
        self,
        node: StreamNode,
        snapshot: OperatorSnapshot,
        watermark: int,
        unparsed: Mapping[int, int],
    ) -> OperatorAck:
        instance = self._instance
        return OperatorAck(
            uid=node.uid,
            subtask=instance.subtask,
            watermark=watermark,
            idle=instance.outputs[node.id].idle,
            operator_states=self._write_states(node),
            committables=[dumps(item) for item in snapshot.committables],
            metrics=self._metrics(node, snapshot, unparsed),
            states=snapshot.states,
            unused_states=frozenset(snapshot.unused_states),
            unused_operator_states=frozenset(instance.operator_states[node.id].unclaimed),
            key_types=snapshot.key_types,
        )

    def _write_states(self, node: StreamNode) -> dict[str, OperatorStateHandle]:
        if node.id not in self._ids:
            return {}  # they lie with the splits
        states = self._instance.operator_states[node.id]
        pending = prepare_states(states.snapshot(), node.uid)
        self.pending.append(pending)
        states.written(pending.handles)
        return pending.handles

    def _metrics(
        self, node: StreamNode, snapshot: OperatorSnapshot, unparsed: Mapping[int, int]
    ) -> dict[str, MetricValue]:
        metrics = dict(snapshot.metrics)
        if node.id in unparsed:
            # Counted whether or not anybody reads the side output of dead letters.
            metrics["numRecordsInErrors"] = unparsed[node.id]
        output = self._instance.outputs[node.id]
        if output.unread:
            metrics["numSideOutputRecordsUnread"] = output.unread
            output.unread = 0
        return metrics


def system_clock() -> int:
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Task:
    """Runs one epoch on a stage instance."""

    def __init__(
        self,
        instance: StageInstance,
        plan: EpochPlan,
        spark_rows: Callable[[int], Iterator[SourceBatch]] | None = None,
    ) -> None:
        self._instance = instance
        self._plan = plan
        self._attempt = attempt_name(plan, plan.epoch, instance.level, instance.subtask)
        self._splits = SplitReader(instance, plan, self._attempt, spark_rows)
        self._frames = FrameReader(instance, instance.managed_memory)
        clock = system_clock if plan.clock_moves else None
        self._state = TaskState(instance, plan, self._attempt, clock=clock)
        self._started = time.monotonic()
        self._cpu = time.process_time()
        instance.position.checkpoint_id = plan.epoch

    def run(self, frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the epoch; yields frames for later stages and, last, the acknowledgement."""
        task = (self._instance.level, self._instance.subtask)
        with published(self._plan.storage, task, self._counts):
            yield from self._run(frames)

    def _counts(self) -> RunningMetrics:
        instance = self._instance
        metrics = metrics_of(instance, self._splits)
        figures = figures_of(instance, self._state.stores)
        return RunningMetrics(self._plan.epoch - 1, metrics, instance.subtask, figures)

    def _run(self, frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        outbox = self._instance.outbox
        try:
            self._name_attempt()
            self._state.restore()
            if self._instance.level == 0:
                yield from self._splits.read()
            else:
                yield from self._process_in_flight()
                yield from self._frames.read(frames)
            if self._plan.final:
                yield from self._end_input()
            ack = self._snapshot()
        finally:
            # Before the rest is yielded: whoever reads it may never ask for the end, and RocksDB
            # lets nobody else of this process into a directory that is open.
            self._state.close()
        yield from outbox.drain()
        crash_point("task.ack.before")
        # Last of all, and read by the driver only: it says that everything else of this task is
        # durable, or on its way ahead of it.
        ack.seconds = time.monotonic() - self._started
        ack.cpu = time.process_time() - self._cpu
        ack.worker, ack.peak_memory = this_worker()
        ack.requests = self._plan.stores.requests.take()
        outbox.add(Destination(ACKNOWLEDGEMENT_STAGE, 0), ACK, dumps(ack))
        yield from outbox.drain()

    def _name_attempt(self) -> None:
        """Tell every possible reader which attempt its frames come from.

        Also those who get no record from here: that there was none is what they have read.
        """
        instance = self._instance
        targets: set[tuple[int, int]] = set()
        for node in instance.nodes:
            for edge in instance.graph.outputs(node.id):
                level = instance.graph.level(edge.target)
                if level > instance.level:
                    parallelism = instance.graph.nodes[edge.target].parallelism
                    targets |= {(level, subtask) for subtask in range(parallelism)}
        payload = dumps((instance.level, instance.subtask, self._attempt))
        for level, subtask in sorted(targets):
            instance.outbox.add(Destination(level, subtask), PRODUCER_ATTEMPT, payload)

    def _process_in_flight(self) -> Iterator[pa.RecordBatch]:
        """Process what barriers had overtaken here in the checkpoint that the epoch begins with."""
        in_flight = self._state.in_flight
        while in_flight:
            in_flight.process_next(self._frames.process_restored)
            if self._instance.outbox.is_full:
                yield from self._instance.outbox.drain()

    def _end_input(self) -> Iterator[pa.RecordBatch]:
        """Producers first: what one of them has left goes to operators that are not ended yet."""
        instance = self._instance
        for node in instance.nodes:
            instance.operators[node.id].end_input()
            if instance.outbox.is_full:
                yield from instance.outbox.drain()

    def _snapshot(self) -> TaskAck:
        """Take the epoch's one snapshot."""
        instance, state, splits = self._instance, self._state, self._splits
        checkpoint = Checkpoint(self._plan.epoch)
        ack, _ = state.acknowledge(checkpoint, self._attempt, splits, splits.due)
        ack.splits, ack.consumed = splits.splits, self._frames.consumed
        while state.pending:
            state.pending.pop().finish(self._plan.storage)
        with packing(self._plan.storage):
            for node, operator in zip(instance.nodes, ack.operators, strict=True):
                if node.id in state.stores:
                    # Nothing writes to it any more.
                    operator.state = state.stores[node.id].snapshot()
        ack.figures = figures_of(instance, state.stores)
        return ack
