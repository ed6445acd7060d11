"""The task: one subtask of one stage for one epoch.

What it is: restores operators, feeds them source splits (stage 0) or frames (later stages) in
order, ends the epoch, and sends the acknowledgement.  It is a generator of Arrow record batches
of frames, so that Spark can shuffle while it runs.

What it is not: Spark code.  ``engines/spark/stage_function.py`` calls it inside ``mapInArrow``;
tests call it directly.

The path of an epoch in a task::

    begin_epoch (consumers first) -> splits or frames -> end_input (final epoch only)
      -> end_epoch in order of the chain -> snapshots uploaded -> exchange flushed -> ack

Read next: ``runtime/stage.py``, ``checkpoint/coordinator.py``.
"""

from __future__ import annotations

import os
import resource
import socket
import time
import uuid
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow.compute as pc

from millstream.checkpoint.model import OperatorAck, SplitState, TaskAck
from millstream.configuration import options
from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from millstream.contracts.operator import EpochContext, OperatorSnapshot
from millstream.crash_points import crash_point
from millstream.errors import MillstreamError, SourceError
from millstream.functions.watermark_strategy import TimeOrigin
from millstream.graph.validation import connector_place, naming
from millstream.runtime.exchange import WatermarkValve
from millstream.runtime.frames import (
    ACK,
    ACKNOWLEDGEMENT_STAGE,
    FINISHED,
    HELLO,
    IDLE,
    WATERMARK,
    decode_batch,
    decode_long,
)
from millstream.runtime.time_origin import is_per_channel
from millstream.runtime.user_code import cause_of
from millstream.state.backend import open_store
from millstream.state.key_groups import key_group_range
from millstream.types.pickling import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.source import SourceBatch
    from millstream.graph.model import StreamEdge, StreamNode
    from millstream.runtime.plan import EpochPlan, SplitAssignment
    from millstream.runtime.stage import StageInstance

__all__ = ["Task"]


class Task:
    """Runs one epoch on a stage instance.

    Args:
        instance: the opened operator chains of this subtask.
        plan: what is new about the epoch.
        spark_rows: reads the batches of a Spark source (by its node id) in stage 0.
    """

    def __init__(
        self,
        instance: StageInstance,
        plan: EpochPlan,
        spark_rows: Callable[[int], Iterator[SourceBatch]] | None = None,
    ) -> None:
        self._instance = instance
        self._plan = plan
        self._spark_rows = spark_rows
        place = f"{plan.epoch}-{instance.level}-{instance.subtask}"
        self._attempt = f"g{plan.generation}-{place}-{uuid.uuid4().hex[:12]}"
        self._stores: dict[int, KeyValueStore] = {}
        self._splits: list[SplitState] = []
        #: When operators have something to do without a record.
        self._due: list[int] = []
        #: Source node -> records that it could not parse.
        self._unparsed: dict[int, int] = defaultdict(int)
        self._consumed: list[tuple[int, int, str]] = []
        self._started = time.monotonic()
        self._edges = instance.edges
        self._origins = instance.origins
        self._batch_size = instance.graph.configuration.get(options.BATCH_SIZE)
        #: (channel, stage-0 node) -> the watermark at the end of the split.
        self._reached: dict[tuple[int, int], int] = {}

    def run(self, frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the epoch; yields frames for later stages and, last, the acknowledgement."""
        outbox = self._instance.outbox
        try:
            self._say_hello()
            self._begin()
            if self._instance.level == 0:
                yield from self._read_splits()
            else:
                yield from self._read_frames(frames)
            if self._plan.final:
                for node in self._instance.nodes:
                    self._instance.operators[node.id].end_input()
                    yield from self._drain_if_full()
            operators = self._end()
        finally:
            for store in self._stores.values():
                store.close()
        yield from outbox.drain()
        crash_point("task.ack.before")
        self._acknowledge(operators)
        yield from outbox.drain()

    def _drain_if_full(self) -> Iterator[pa.RecordBatch]:
        if self._instance.outbox.is_full:
            yield from self._instance.outbox.drain()

    def _say_hello(self) -> None:
        """Tell every consumer which attempt its frames come from."""
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
            instance.outbox.add(level, subtask, -1, HELLO, payload)

    # -- the start of an epoch ---------------------------------------------------------------

    def _begin(self) -> None:
        instance = self._instance
        for node in reversed(instance.nodes):
            if instance.level == 0 and is_per_channel(node):
                continue  # begins anew with each split
            uid, parallelism = node.uid, node.parallelism
            watermark = self._plan.subtask_watermark(uid, instance.subtask, parallelism)
            instance.watermarks[node.id] = watermark
            output = instance.outputs[node.id]
            output.watermark = watermark
            output.idle = self._plan.subtask_idle(uid, instance.subtask, parallelism)
            if instance.level > 0:
                instance.valves[node.id] = WatermarkValve(watermark, self._channels(node))
        for writer in instance.writers:
            known = instance.outputs[writer.source_node]
            idle = instance.level > 0 and known.idle
            writer.switch_channel(instance.subtask, known.watermark, idle=idle)
        for node in reversed(instance.nodes):
            if instance.level > 0 or not is_per_channel(node):
                instance.operators[node.id].begin_epoch(self._epoch_context(node))
        if instance.level > 0:
            self._refresh_time()

    def _refresh_time(self) -> None:
        """Channels that became idle between two epochs may let time advance at once."""
        instance = self._instance
        for node in instance.nodes:
            valve = instance.valves[node.id]
            combined = valve.refresh()
            if combined is not None:
                instance.advance(node.id, combined)
            if valve.idle != instance.outputs[node.id].idle:
                instance.operators[node.id].process_idle(valve.idle)

    def _epoch_context(self, node: StreamNode) -> EpochContext:
        plan, subtask = self._plan, self._instance.subtask
        pickled = plan.operator_state(node.uid, subtask, node.parallelism)
        store: KeyValueStore | None = None
        if self._instance.operators[node.id].keyed:
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
            )
            self._stores[node.id] = store
        return EpochContext(
            epoch=plan.epoch,
            attempt=self._attempt,
            processing_time=plan.processing_time,
            store=store,
            watermark=plan.subtask_watermark(node.uid, subtask, node.parallelism),
            operator_state=None if pickled is None else loads(pickled),
            rescaled_states=[loads(s) for s in plan.rescaled_states(node.uid, node.parallelism)],
            job_id=plan.job_id,
            generation=plan.generation,
            final=plan.final,
            scratch_directory=plan.local_root,
            storage=plan.storage,
        )

    def _channels(self, node: StreamNode) -> dict[tuple[int, int], tuple[int, bool]]:
        """All channels into a node with their watermark and status at the epoch's start."""
        channels: dict[tuple[int, int], tuple[int, bool]] = {}
        graph = self._instance.graph
        for edge in graph.inputs(node.id):
            producer = graph.nodes[edge.source]
            if self._instance.source_level(edge) == 0:
                channels.update(self._split_channels(edge))
                continue
            chained = not self._instance.is_exchange_input(edge)
            subtasks = [self._instance.subtask] if chained else range(producer.parallelism)
            for subtask in subtasks:
                uid, count = producer.uid, producer.parallelism
                channels[edge.id, 0 if chained else subtask] = (
                    self._plan.subtask_watermark(uid, subtask, count),
                    self._plan.subtask_idle(uid, subtask, count),
                )
        return channels

    def _split_channels(self, edge: StreamEdge) -> dict[tuple[int, int], tuple[int, bool]]:
        channels = {}
        for assignment in self._plan.assignments:
            origins = self._origins[assignment.source_uid].get(edge.source)
            if origins is not None:
                start = (assignment.watermark(origins), assignment.starts_idle)
                channels[edge.id, assignment.channel] = start
        return channels

    def _channels_of_split(
        self, node: StreamNode, assignment: SplitAssignment
    ) -> dict[tuple[int, int], tuple[int, bool]]:
        """The inputs of a stage-0 operator that a split reaches, as channels of a valve."""
        channels = {}
        for edge in self._instance.graph.inputs(node.id):
            origins = self._origins[assignment.source_uid].get(edge.source)
            if origins is not None:
                channels[edge.id, 0] = (assignment.watermark(origins), False)
        return channels

    # -- stage 0: source splits --------------------------------------------------------------

    def _read_splits(self) -> Iterator[pa.RecordBatch]:
        by_uid = {node.uid: node for node in self._instance.nodes if node.kind == "source"}
        for assignment in self._plan.assignments:
            node = by_uid.get(assignment.source_uid)
            if node is not None and assignment.subtask == self._instance.subtask:
                yield from self._read_split(node, assignment)
        crash_point("source.read.after")

    def _read_split(
        self, node: StreamNode, assignment: SplitAssignment
    ) -> Iterator[pa.RecordBatch]:
        instance = self._instance
        reached = self._origins[node.uid]
        here = [n for n in instance.nodes if n.id in reached]
        writers = [w for w in instance.writers if w.source_node in reached]
        for stage_node in here:
            watermark = assignment.watermark(reached[stage_node.id])
            instance.watermarks[stage_node.id] = watermark
            instance.outputs[stage_node.id].watermark = watermark
            instance.outputs[stage_node.id].idle = assignment.starts_idle
            if len(instance.graph.inputs(stage_node.id)) > 1:
                channels = self._channels_of_split(stage_node, assignment)
                instance.valves[stage_node.id] = WatermarkValve(watermark, channels)
        for writer in writers:
            start = assignment.watermark(reached[writer.source_node])
            writer.switch_channel(assignment.channel, start, idle=assignment.starts_idle)
        for stage_node in reversed(here):
            if is_per_channel(stage_node):
                context = self._split_context(stage_node, assignment)
                instance.operators[stage_node.id].begin_epoch(context)
        records = 0
        head = instance.operators[node.id]
        for read in self._source_batches(node, assignment):
            records += self._feed(node, read)
            yield from self._drain_if_full()
        if assignment.is_end_of_input:
            head.process_watermark(MAX_TIMESTAMP)
        self._end_split(here, assignment, records)
        for writer in writers:
            if assignment.finished:
                writer.emit_finished()
            writer.flush()

    def _feed(self, node: StreamNode, read: SourceBatch) -> int:
        """One batch of a source into its chain; returns the number of records."""
        batch = Batch(
            node.output_type, values=read.values, arrow=read.arrow, timestamps=read.timestamps
        )
        if read.dead_letters:
            self._feed_dead_letters(node, read)
        head = self._instance.operators[node.id]
        if len(batch):
            head.process_batch(batch)
        if read.watermark is not None and _preserves_time(node):
            # The maximum says that the input ends; that is for the runtime to say.
            head.process_watermark(min(read.watermark, MAX_TIMESTAMP - 1))
        return len(batch)

    def _feed_dead_letters(self, node: StreamNode, read: SourceBatch) -> None:
        self._unparsed[node.id] += len(read.dead_letters)
        for tag, type_info in node.side_types.items():
            rows = type_info.from_arrow(type_info.to_arrow(list(read.dead_letters)))
            self._instance.outputs[node.id].emit_side(tag, Batch(type_info, values=rows))

    def _source_batches(
        self, node: StreamNode, assignment: SplitAssignment
    ) -> Iterator[SourceBatch]:
        if node.spark_index is not None:
            if self._spark_rows is not None:
                for read in self._spark_rows(node.id):
                    yield from read.cut(self._batch_size)
            return
        if node.source is None:
            message = f"source {node.name!r} has nothing to read"
            raise SourceError(message)
        if assignment.start < assignment.stop:
            batches = node.source.read(assignment.split, assignment.start, assignment.stop)
            place = connector_place(node)
            while True:
                try:
                    with naming(place):
                        found = next(batches, None)
                except MillstreamError:
                    raise
                except Exception as error:
                    message = f"{place} failed while reading split {assignment.split.id!r}"
                    msg = f"{message}: {cause_of(error)}"
                    raise SourceError(msg) from error
                if found is None:
                    return
                yield from found.cut(self._batch_size)

    def _split_context(self, node: StreamNode, assignment: SplitAssignment) -> EpochContext:
        watermark, pickled = assignment.operators.get(node.uid, (MIN_TIMESTAMP, None))
        return EpochContext(
            epoch=self._plan.epoch,
            attempt=self._attempt,
            processing_time=self._plan.processing_time,
            store=None,
            watermark=watermark,
            operator_state=None if pickled is None else loads(pickled),
            source_idle=assignment.idle if node.kind == "source" else None,
            job_id=self._plan.job_id,
            generation=self._plan.generation,
            final=self._plan.final,
        )

    def _end_split(self, here: list[StreamNode], assignment: SplitAssignment, records: int) -> None:
        states: dict[str, tuple[int, bytes | None]] = {}
        for node in here:
            if is_per_channel(node):
                snapshot = self._instance.operators[node.id].end_epoch()
                if snapshot.next_due is not None and not assignment.finished:
                    self._due.append(snapshot.next_due)
                state = snapshot.operator_state
                pickled = None if state is None else dumps(state)
                states[node.uid] = (self._instance.outputs[node.id].watermark, pickled)
            self._reached[assignment.channel, node.id] = self._instance.outputs[node.id].watermark
        source = next(node for node in here if node.uid == assignment.source_uid)
        head = self._instance.outputs[source.id]
        if assignment.is_end_of_input:
            return
        self._splits.append(
            SplitState(
                source_uid=assignment.source_uid,
                split_id=assignment.split.id,
                position=assignment.stop,
                finished=assignment.finished,
                watermark=states[assignment.source_uid][0],
                idle=head.idle,
                generator=dumps(states),
                records=records,
            )
        )

    # -- later stages: frames ----------------------------------------------------------------

    def _read_frames(self, frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        level = self._instance.level
        for rows in frames:
            if not rows.num_rows:
                continue
            later = pc.greater(rows.column(0), level)
            if pc.any(later).as_py():
                yield rows.filter(later)
                rows = rows.filter(pc.equal(rows.column(0), level))  # noqa: PLW2901
            edges = rows.column(2).to_pylist()
            kinds = rows.column(3).to_pylist()
            channels = rows.column(4).to_pylist()
            payloads = rows.column(7)
            for position, kind in enumerate(kinds):
                payload = payloads[position].as_buffer()
                self._frame(edges[position], kind, channels[position], payload)
                yield from self._drain_if_full()

    def _frame(self, edge_id: int, kind: int, channel: int, payload: pa.Buffer) -> None:
        instance = self._instance
        if kind == HELLO:
            # Written by _say_hello of the producer.
            self._consumed.append(cast("tuple[int, int, str]", loads(payload.to_pybytes())))
            return
        edge = self._edges[edge_id]
        if kind == WATERMARK:
            watermark = decode_long(payload.to_pybytes())
            instance.channel_watermark(edge.target, edge_id, channel, watermark)
        elif kind == IDLE:
            idle = bool(decode_long(payload.to_pybytes()))
            instance.channel_status(edge.target, edge_id, channel, idle=idle)
        elif kind == FINISHED:
            instance.channel_finished(edge.target, edge_id, channel)
        else:
            batch = decode_batch(kind, payload, edge.type_info)
            instance.operators[edge.target].process_batch(batch, edge.input_index)

    # -- the end of an epoch -----------------------------------------------------------------

    def _end(self) -> list[OperatorAck]:
        instance = self._instance
        acks: list[OperatorAck] = []
        snapshots: dict[int, OperatorSnapshot] = defaultdict(OperatorSnapshot)
        for node in instance.nodes:
            if instance.level > 0 or not is_per_channel(node):
                snapshots[node.id] = instance.operators[node.id].end_epoch()
        for writer in instance.writers:
            writer.flush()
        for node in instance.nodes:
            snapshot = snapshots[node.id]
            if snapshot.next_due is not None:
                self._due.append(snapshot.next_due)
            store = self._stores.get(node.id)
            state = snapshot.operator_state
            acks.append(
                OperatorAck(
                    uid=node.uid,
                    subtask=instance.subtask,
                    watermark=self._acknowledged_watermark(node),
                    idle=instance.outputs[node.id].idle,
                    state=None if store is None else store.snapshot(),
                    operator_state=None if state is None else dumps(state),
                    committables=[dumps(item) for item in snapshot.committables],
                    metrics=self._metrics(node, snapshot),
                    states=snapshot.states,
                )
            )
        return acks

    def _metrics(self, node: StreamNode, snapshot: OperatorSnapshot) -> dict[str, int]:
        metrics = dict(snapshot.metrics)
        if node.id in self._unparsed:
            # Counted whether or not anybody reads the side output of dead letters.
            metrics["numRecordsInErrors"] = self._unparsed[node.id]
        output = self._instance.outputs[node.id]
        if output.unread:
            metrics["numSideOutputRecordsUnread"] = output.unread
            output.unread = 0
        return metrics

    def _acknowledged_watermark(self, node: StreamNode) -> int:
        """What the manifest says of an operator's time.

        In stage 0 it is that of the slowest split of all subtasks, as far as it is known here: when
        the parallelism changes the operator may go on behind an exchange, where it gets them all.
        """
        output = self._instance.outputs[node.id].watermark
        if self._instance.level > 0:
            return output
        assignments = self._plan.assignments
        over = {each.source_uid for each in assignments if each.is_end_of_input}
        watermarks: list[int] = []
        for assignment in assignments:
            origins = self._origins[assignment.source_uid].get(node.id)
            if origins is None:
                continue
            if assignment.source_uid in over:
                watermarks.append(MAX_TIMESTAMP)
                continue
            start = assignment.watermark(origins)
            watermarks.append(self._reached.get((assignment.channel, node.id), start))
        if not watermarks:
            subtask = self._instance.subtask
            return self._plan.subtask_watermark(node.uid, subtask, node.parallelism)
        return min(watermarks)

    def _acknowledge(self, operators: list[OperatorAck]) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        ack = TaskAck(
            epoch=self._plan.epoch,
            stage=self._instance.level,
            subtask=self._instance.subtask,
            attempt=self._attempt,
            operators=operators,
            splits=self._splits,
            consumed=self._consumed,
            worker=f"{socket.gethostname()}:{os.getpid()}",
            seconds=time.monotonic() - self._started,
            peak_memory=usage.ru_maxrss * 1024,
            next_due=min(self._due, default=None),
        )
        self._instance.outbox.add(ACKNOWLEDGEMENT_STAGE, 0, -1, ACK, dumps(ack))


def _preserves_time(node: StreamNode) -> bool:
    strategy = node.watermark_strategy
    return strategy is not None and strategy.origin is TimeOrigin.PRESERVED
