"""Reads the source splits that a task of stage 0 is assigned into the chain of their source.

In micro-batch execution they are read one after the other.  Calls of asynchronous functions that
are in flight at the end of a split continue while the next ones are read, as many as the capacity
allows; only the end of the epoch waits for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from millstream.checkpoint.model import SplitState
from millstream.configuration import options
from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from millstream.contracts.operator import Checkpoint, RestoreContext
from millstream.crash_points import crash_point
from millstream.errors import SourceError
from millstream.functions.watermark_strategy import TimeOrigin
from millstream.graph.validation import connector_label
from millstream.runtime.plan import OperatorTime, SourceChain, restore_split_time
from millstream.runtime.user_code import reading
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from millstream.contracts.operator import PendingCalls
    from millstream.contracts.source import SourceBatch
    from millstream.graph.model import StreamNode
    from millstream.runtime.exchange import WatermarkValve
    from millstream.runtime.plan import ChannelStates, EpochPlan, SplitAssignment
    from millstream.runtime.stage import StageInstance


@dataclass(frozen=True, slots=True)
class SuspendedCalls:
    """What operators have under way of a split that was left, and the time that they know."""

    calls: Mapping[int, PendingCalls]
    times: Mapping[int, OperatorTime]
    #: Of nodes with several inputs.
    valves: Mapping[int, WatermarkValve]

    @property
    def is_ready(self) -> bool:
        """Return whether some of it can be emitted without waiting."""
        return any(each.is_ready for each in self.calls.values())

    @property
    def records(self) -> int:
        """Return how many records are in flight."""
        return sum(each.records for each in self.calls.values())


class _SuspendedSplit(NamedTuple):
    """A split that is read to its end in this epoch, and has calls in flight."""

    chain: SourceChain
    #: As it was left.
    assignment: SplitAssignment
    #: Records that were read.
    records: int
    calls: SuspendedCalls


class SplitReader:
    """Reads the splits of one subtask into its stage instance."""

    def __init__(
        self,
        instance: StageInstance,
        plan: EpochPlan,
        attempt: str,
        spark_rows: Callable[[int], Iterator[SourceBatch]] | None = None,
    ) -> None:
        """Read for ``instance``."""
        self._instance = instance
        self._plan = plan
        self.attempt = attempt
        self._spark_rows = spark_rows
        self._batch_size = instance.graph.configuration.get(options.BATCH_SIZE)
        #: Where reading of each split stands, for the acknowledgement.
        self.splits: list[SplitState] = []
        #: When operators of a split have something to do without a record.
        self.due: list[int] = []
        #: Source node -> records that it could not parse.
        self.unparsed: dict[int, int] = defaultdict(int)
        #: Source node -> records read since the checkpoint before.
        self.counted: dict[int, int] = defaultdict(int)
        #: (channel, node) -> the watermark at the end of the split.
        self.reached: dict[tuple[int, int], int] = {}
        #: In the order in which they were read.
        self._suspended: list[_SuspendedSplit] = []

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read all assigned splits; yields frames for later stages where there are many."""
        sources = [node for node in self._instance.nodes if node.kind == "source"]
        chains = {node.uid: SourceChain(self._instance, node) for node in sources}
        for assignment in self._plan.assignments:
            chain = chains.get(assignment.source_uid)
            if chain is not None and assignment.subtask == self._instance.subtask:
                # Also a split of which nothing is read: its idleness and its periodic watermarks
                # are due, and its state goes into the checkpoint again.
                yield from self._read_split(chain, assignment)
        yield from self._finish_suspended()
        crash_point("source.read.after")

    def _read_split(
        self, chain: SourceChain, assignment: SplitAssignment
    ) -> Iterator[pa.RecordBatch]:
        instance, node = self._instance, chain.source
        if assignment.is_end_of_input:  # after all that its splits have
            yield from self._finish_suspended()
        self.enter(chain, assignment)
        records = 0
        head = instance.operators[node.id]
        for read in self._source_batches(node, assignment):
            records += self.emit(node, read)
            if instance.outbox.is_full:
                yield from instance.outbox.drain()
        if assignment.is_end_of_input:
            head.process_watermark(MAX_TIMESTAMP)
        self._leave_split(chain, assignment, records)
        yield from self._finish_some(chain.concurrency)

    def _finish_some(self, most: int) -> Iterator[pa.RecordBatch]:
        """Emit until at most so many records of splits that were left are in flight."""
        if self._in_flight() <= most:
            return
        waiting, self._suspended = self._suspended, []
        for split in waiting:
            if split.calls.is_ready:
                self.enter(split.chain, split.assignment, calls=split.calls)
                self._leave_split(split.chain, split.assignment, split.records)
            else:
                self._suspended.append(split)
            if self._instance.outbox.is_full:
                yield from self._instance.outbox.drain()
        while self._in_flight() > most:
            yield from self._finish_first()

    def _in_flight(self) -> int:
        return sum(each.calls.records for each in self._suspended)

    def _finish_suspended(self) -> Iterator[pa.RecordBatch]:
        while self._suspended:
            yield from self._finish_first()

    def _finish_first(self) -> Iterator[pa.RecordBatch]:
        """Wait for the calls of the split that was left first."""
        split = self._suspended.pop(0)
        self.enter(split.chain, split.assignment, calls=split.calls)
        self._finish(split.chain, split.assignment, split.records)
        if self._instance.outbox.is_full:
            yield from self._instance.outbox.drain()

    def _leave_split(self, chain: SourceChain, assignment: SplitAssignment, records: int) -> None:
        """Leave a split: for this epoch, or until its calls are done."""
        calls = self.suspend(chain)
        if calls is None:
            self._finish(chain, assignment, records)
            return
        known = len(self.due)
        states = self.leave(chain, assignment)
        del self.due[known:]  # it is left again
        # A copy: tasks of later stages read in the plan what held at the start of the epoch.
        reached = replace(
            assignment,
            start=assignment.stop,
            was_idle=self._instance.outputs[chain.source.id].idle,
            operators=states,
        )
        self._suspended.append(_SuspendedSplit(chain, reached, records, calls))

    def _finish(self, chain: SourceChain, assignment: SplitAssignment, records: int) -> None:
        """Leave a split for this epoch."""
        states = self.leave(chain, assignment)
        if not assignment.is_end_of_input:  # no split of the source, so nothing of it is kept
            self.splits.append(self.state_of(chain, assignment, states, records))
        for writer in chain.writers:
            if assignment.finished:
                # After everything that the split has: its readers stop waiting for it.
                writer.emit_finished()
            writer.flush()

    def enter(
        self,
        chain: SourceChain,
        assignment: SplitAssignment,
        *,
        resumes: bool = False,
        calls: SuspendedCalls | None = None,
    ) -> None:
        """Restore the operators of a split, and have the time of all that it reaches.

        Args:
            chain: of its source.
            assignment: of the split.
            resumes: whether it is entered for the first time in this run.
            calls: what was under way when it was left.
        """
        operators = self._instance.operators
        times = None if calls is None else calls.times
        restore_split_time(self._instance, assignment, chain, times)
        if calls is not None:
            self._instance.valves.update(calls.valves)
        for node in chain.per_channel:
            operators[node.id].restore(self._restore_context(node, assignment, resumes=resumes))
        for node in reversed(chain.per_channel):  # as in a task: those after it are restored now
            operators[node.id].process_processing_time(self._plan.processing_time)
        if calls is not None:
            # The last operators first: what those before them emit comes after what they have.
            for node in reversed(chain.nodes):
                if (pending := calls.calls.get(node.id)) is not None:
                    operators[node.id].resume_pending(pending)

    def suspend(self, chain: SourceChain) -> SuspendedCalls | None:
        """Set aside what operators have under way, before the split is left; None: nothing."""
        instance = self._instance
        calls = {
            node.id: pending
            for node in chain.nodes
            if (pending := instance.operators[node.id].suspend_pending()) is not None
        }
        if not calls:
            return None
        times = {
            node.id: OperatorTime(
                instance.watermarks[node.id],
                instance.outputs[node.id].watermark,
                instance.outputs[node.id].idle,
            )
            for node in chain.nodes
            if node.id not in chain.per_channel_ids
        }
        valves = {node.id: instance.valves[node.id] for node, _ in chain.merging}
        return SuspendedCalls(calls, times, valves)

    def _restore_context(
        self, node: StreamNode, assignment: SplitAssignment, *, resumes: bool
    ) -> RestoreContext:
        watermark, kept = assignment.operators.get(node.uid, (MIN_TIMESTAMP, None))
        states = self._instance.operator_states[node.id]
        states.restore_elements(_named(kept))
        return RestoreContext(
            epoch=self._plan.epoch,
            attempt=self.attempt,
            processing_time=self._plan.processing_time,
            store=None,
            watermark=watermark,
            operator_states=states,
            source_idle=assignment.idle if node.kind == "source" else None,
            job_id=self._plan.job_id,
            generation=self._plan.generation,
            resumes=resumes,
        )

    def emit(self, node: StreamNode, read: SourceBatch) -> int:
        """One batch of a source into its chain; returns the number of records."""
        batch = Batch(
            node.output_type, values=read.values, arrow=read.arrow, timestamps=read.timestamps
        )
        if read.dead_letters:
            self._feed_dead_letters(node, read)
        self._instance.read_gauges()
        head = self._instance.operators[node.id]
        if len(batch):
            head.process_batch(batch)
        if read.watermark is not None and _preserves_time(node):
            # The maximum says that the input ends; that is for the runtime to say.
            head.process_watermark(min(read.watermark, MAX_TIMESTAMP - 1))
        self.counted[node.id] += len(batch)
        return len(batch)

    def _feed_dead_letters(self, node: StreamNode, read: SourceBatch) -> None:
        self.unparsed[node.id] += len(read.dead_letters)
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
            label = connector_label(node)
            while True:
                # Only the source's own step is within: what operators make of a batch fails under
                # their own names.
                with reading(label, assignment.split.id):
                    found = next(batches, None)
                if found is None:
                    return
                yield from found.cut(self._batch_size)

    def leave(
        self, chain: SourceChain, assignment: SplitAssignment
    ) -> dict[str, tuple[int, ChannelStates]]:
        """Take the split's operators out of the chain; returns their watermarks and states."""
        instance = self._instance
        # What comes later would go out in the channel, and the time, of another split.
        for node in chain.nodes:
            instance.operators[node.id].finish_pending()
        checkpoint = Checkpoint(self._plan.epoch)
        states: dict[str, tuple[int, ChannelStates]] = {}
        # In the order of the chain: the last watermark of one is for the next.
        for node in chain.nodes:
            if node.id in chain.per_channel_ids:
                snapshot = instance.operators[node.id].snapshot(checkpoint)
                if snapshot.next_due is not None and not assignment.finished:
                    self.due.append(snapshot.next_due)
                kept = instance.operator_states[node.id].elements()
                states[node.uid] = (instance.outputs[node.id].watermark, kept)
            self.reached[assignment.channel, node.id] = instance.outputs[node.id].watermark
        return states

    def state_of(
        self,
        chain: SourceChain,
        assignment: SplitAssignment,
        states: dict[str, tuple[int, ChannelStates]],
        records: int,
    ) -> SplitState:
        """Return where a split stands that was left."""
        return SplitState(
            source_uid=assignment.source_uid,
            split_id=assignment.split.id,
            position=assignment.stop,
            finished=assignment.finished,
            watermark=states[assignment.source_uid][0],
            idle=self._instance.outputs[chain.source.id].idle,
            generator=dumps(states),
            records=records,
        )


def _named(kept: ChannelStates) -> Mapping[str, tuple[str, Sequence[bytes]]]:
    return kept or {}


def _preserves_time(node: StreamNode) -> bool:
    strategy = node.watermark_strategy
    return strategy is not None and strategy.origin is TimeOrigin.PRESERVED
