"""The task: one subtask of one stage for one epoch.

What it is: restores operators, has source splits (stage 0) or frames (later stages) read into them,
ends the epoch, and sends the acknowledgement.  It is a generator of Arrow record batches of frames,
so that Spark can shuffle while it runs.

What it is not: Spark code.  ``engines/spark/stage_function.py`` calls it inside ``mapInArrow``;
tests call it directly.

The path of an epoch in a task::

    time restored -> restore -> processing time -> splits, or frames, those in flight first
      -> end_input (final epoch)
      -> snapshot in order of the chain -> stores uploaded -> exchange flushed -> ack

Read next: ``runtime/task_state.py``, ``runtime/split_reader.py``, ``runtime/frame_reader.py``,
``runtime/stage.py``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from millstream.checkpoint.model import OperatorAck, TaskAck
from millstream.contracts.operator import Checkpoint
from millstream.crash_points import crash_point
from millstream.runtime.frame_reader import FrameReader
from millstream.runtime.frames import ACK, ACKNOWLEDGEMENT_STAGE, PRODUCER_ATTEMPT
from millstream.runtime.live_counts import RunningMetrics, metrics_of, published
from millstream.runtime.restored_time import acknowledged_watermark
from millstream.runtime.split_reader import SplitReader
from millstream.runtime.task_state import TaskState, attempt_name, this_worker
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from millstream.contracts.source import SourceBatch
    from millstream.runtime.plan import EpochPlan
    from millstream.runtime.stage import StageInstance

__all__ = ["Task"]


def system_clock() -> int:
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000


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
        self._attempt = attempt_name(plan, plan.epoch, instance.level, instance.subtask)
        self._splits = SplitReader(instance, plan, self._attempt, spark_rows)
        self._frames = FrameReader(instance)
        clock = system_clock if plan.clock_moves else None
        self._state = TaskState(instance, plan, self._attempt, clock=clock)
        self._started = time.monotonic()

    def run(self, frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the epoch; yields frames for later stages and, last, the acknowledgement."""
        task = (self._instance.level, self._instance.subtask)
        with published(self._plan.storage, task, self._counts):
            yield from self._run(frames)

    def _counts(self) -> RunningMetrics:
        metrics = metrics_of(self._instance, self._splits)
        return RunningMetrics(self._plan.epoch - 1, metrics, self._instance.subtask)

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
            operators, due = self._snapshot()
        finally:
            # Before the rest is yielded: whoever reads it may never ask for the end, and RocksDB
            # lets nobody else of this process into a directory that is open.
            self._state.close()
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

    def _snapshot(self) -> tuple[list[OperatorAck], list[int]]:
        """Take the epoch's one snapshot; returns acknowledgements, and when operators are due."""
        instance, state, splits = self._instance, self._state, self._splits
        snapshots = state.snapshot(Checkpoint(self._plan.epoch))
        due = list(splits.due)
        acks: list[OperatorAck] = []
        for node in instance.nodes:
            snapshot = snapshots[node.id]
            if snapshot.next_due is not None:
                due.append(snapshot.next_due)
            watermark = acknowledged_watermark(instance, self._plan, node, splits.reached)
            ack = state.acknowledgement(node, snapshot, watermark, splits.unparsed)
            while state.pending:
                state.pending.pop().finish(self._plan.storage)
            store = state.stores.get(node.id)
            # Nothing writes to it any more.
            ack.state = None if store is None else store.snapshot()
            acks.append(ack)
        return acks, due

    def _acknowledge(self, operators: list[OperatorAck], due: list[int]) -> None:
        worker, peak_memory = this_worker()
        ack = TaskAck(
            epoch=self._plan.epoch,
            stage=self._instance.level,
            subtask=self._instance.subtask,
            attempt=self._attempt,
            operators=operators,
            splits=self._splits.splits,
            consumed=self._frames.consumed,
            worker=worker,
            seconds=time.monotonic() - self._started,
            peak_memory=peak_memory,
            next_due=min(due, default=None),
        )
        self._instance.outbox.add(ACKNOWLEDGEMENT_STAGE, 0, -1, ACK, dumps(ack))
