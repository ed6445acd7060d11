"""The task: one subtask of one stage for one epoch.

What it is: restores operators, has source splits (stage 0) or frames (later stages) read into them,
ends the epoch, and sends the acknowledgement.  It is a generator of Arrow record batches of frames,
so that Spark can shuffle while it runs.

What it is not: Spark code.  ``engines/spark/stage_function.py`` calls it inside ``mapInArrow``;
tests call it directly.

The path of an epoch in a task::

    time restored -> restore -> processing time -> splits or frames -> end_input (final epoch)
      -> snapshot in order of the chain -> stores uploaded -> exchange flushed -> ack

Read next: ``runtime/split_reader.py``, ``runtime/frame_reader.py``, ``runtime/stage.py``.
"""

from __future__ import annotations

import os
import resource
import socket
import time
import uuid
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.checkpoint.model import OperatorAck, TaskAck
from millstream.contracts.operator import Checkpoint, OperatorSnapshot, RestoreContext
from millstream.crash_points import crash_point
from millstream.runtime.frame_reader import FrameReader
from millstream.runtime.frames import ACK, ACKNOWLEDGEMENT_STAGE, PRODUCER_ATTEMPT
from millstream.runtime.restored_time import acknowledged_watermark, refresh_time, restore_time
from millstream.runtime.split_reader import SplitReader
from millstream.runtime.time_origin import is_per_channel
from millstream.state.backend import open_store
from millstream.state.key_groups import key_group_range
from millstream.state.operator_state_files import StateReader, write_states
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.metrics import MetricValue
    from millstream.contracts.operator_state import OperatorStateHandle
    from millstream.contracts.source import SourceBatch
    from millstream.graph.model import StreamNode
    from millstream.runtime.plan import EpochPlan
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
        place = f"{plan.epoch}-{instance.level}-{instance.subtask}"
        self._attempt = f"g{plan.generation}-{place}-{uuid.uuid4().hex[:12]}"
        self._splits = SplitReader(instance, plan, self._attempt, spark_rows)
        self._frames = FrameReader(instance)
        self._stores: dict[int, KeyValueStore] = {}
        self._started = time.monotonic()

    def run(self, frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the epoch; yields frames for later stages and, last, the acknowledgement."""
        outbox = self._instance.outbox
        try:
            self._name_attempt()
            self._restore()
            if self._instance.level == 0:
                yield from self._splits.read()
            else:
                yield from self._frames.read(frames)
            if self._plan.final:
                yield from self._end_input()
            operators, due = self._snapshot()
        finally:
            # Before the rest is yielded: whoever reads it may never ask for the end, and RocksDB
            # lets nobody else of this process into a directory that is open.
            for store in self._stores.values():
                store.close()
        yield from outbox.drain()
        crash_point("task.ack.before")
        # Last of all, and read by the driver only: it says that everything else of this task is
        # durable, or on its way ahead of it.
        self._acknowledge(operators, due)
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
            instance.outbox.add(level, subtask, -1, PRODUCER_ATTEMPT, payload)

    def _restore(self) -> None:
        """Put everything back to the end of the last epoch.

        Each pass relies on the one before it in every operator, not in its own only: event time,
        which outputs must know before anything is emitted; the operators; processing time, by which
        timers fire and emit into operators that are restored by now, those of consumers first, for
        their timers were due before what comes in now; then event time again where channels became
        idle.
        """
        instance = self._instance
        restore_time(instance, self._plan)
        restored = [node for node in instance.nodes if not self._is_restored_by_split(node)]
        for node in restored:
            instance.operators[node.id].restore(self._restore_context(node))
        for node in reversed(restored):
            instance.operators[node.id].process_processing_time(self._plan.processing_time)
        if instance.level > 0:
            refresh_time(instance)

    def _is_restored_by_split(self, node: StreamNode) -> bool:
        return self._instance.level == 0 and is_per_channel(node)

    def _restore_context(self, node: StreamNode) -> RestoreContext:
        plan, subtask = self._plan, self._instance.subtask
        states = self._instance.operator_states[node.id]
        states.restore(plan.operator_states(node.uid, subtask), StateReader(plan.storage))
        return RestoreContext(
            epoch=plan.epoch,
            attempt=self._attempt,
            processing_time=plan.processing_time,
            store=self._open_store(node) if self._instance.operators[node.id].keyed else None,
            watermark=plan.subtask_watermark(node.uid, subtask, node.parallelism),
            operator_states=states,
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
        )
        self._stores[node.id] = store
        return store

    def _end_input(self) -> Iterator[pa.RecordBatch]:
        """Producers first: what one of them has left goes to operators that are not ended yet."""
        instance = self._instance
        for node in instance.nodes:
            instance.operators[node.id].end_input()
            if instance.outbox.is_full:
                yield from instance.outbox.drain()

    def _snapshot(self) -> tuple[list[OperatorAck], list[int]]:
        """Take the epoch's one snapshot; returns acknowledgements, and when operators are due.

        First all operators, in the order of the chain, for a snapshot may emit a watermark or
        records, which belong to this epoch in those behind.  Then the writers, whose combiners hold
        such records back.  Stores last: an upload takes long, and nothing writes to them any more.
        """
        checkpoint = Checkpoint(self._plan.epoch)
        instance = self._instance
        due = list(self._splits.due)
        snapshots: dict[int, OperatorSnapshot] = defaultdict(OperatorSnapshot)
        for node in instance.nodes:
            if not self._is_restored_by_split(node):
                snapshots[node.id] = instance.operators[node.id].snapshot(checkpoint)
        for writer in instance.writers:
            writer.flush()
        acks: list[OperatorAck] = []
        for node in instance.nodes:
            snapshot = snapshots[node.id]
            if snapshot.next_due is not None:
                due.append(snapshot.next_due)
            acks.append(self._operator_ack(node, snapshot))
        return acks, due

    def _operator_ack(self, node: StreamNode, snapshot: OperatorSnapshot) -> OperatorAck:
        instance = self._instance
        store = self._stores.get(node.id)
        return OperatorAck(
            uid=node.uid,
            subtask=instance.subtask,
            watermark=acknowledged_watermark(instance, self._plan, node, self._splits.reached),
            idle=instance.outputs[node.id].idle,
            state=None if store is None else store.snapshot(),
            operator_states=self._write_states(node),
            committables=[dumps(item) for item in snapshot.committables],
            metrics=self._metrics(node, snapshot),
            states=snapshot.states,
            key_types=snapshot.key_types,
        )

    def _write_states(self, node: StreamNode) -> dict[str, OperatorStateHandle]:
        if self._is_restored_by_split(node):
            return {}  # they lie with the splits
        states = self._instance.operator_states[node.id]
        handles = write_states(states.snapshot(), self._plan.storage, node.uid)
        states.written(handles)
        return handles

    def _metrics(self, node: StreamNode, snapshot: OperatorSnapshot) -> dict[str, MetricValue]:
        metrics = dict(snapshot.metrics)
        if node.id in self._splits.unparsed:
            # Counted whether or not anybody reads the side output of dead letters.
            metrics["numRecordsInErrors"] = self._splits.unparsed[node.id]
        output = self._instance.outputs[node.id]
        if output.unread:
            metrics["numSideOutputRecordsUnread"] = output.unread
            output.unread = 0
        return metrics

    def _acknowledge(self, operators: list[OperatorAck], due: list[int]) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        ack = TaskAck(
            epoch=self._plan.epoch,
            stage=self._instance.level,
            subtask=self._instance.subtask,
            attempt=self._attempt,
            operators=operators,
            splits=self._splits.splits,
            consumed=self._frames.consumed,
            worker=f"{socket.gethostname()}:{os.getpid()}",
            seconds=time.monotonic() - self._started,
            peak_memory=usage.ru_maxrss * 1024,
            next_due=min(due, default=None),
        )
        self._instance.outbox.add(ACKNOWLEDGEMENT_STAGE, 0, -1, ACK, dumps(ack))
