"""The plan of an epoch: assignments, restored state and event time of its tasks.

A plan is picklable data that the driver makes for each epoch; the job graph is shipped once.

Stage 0 keeps time per source split in the per-channel operators (``runtime/stage.py``), and a split
may be read by another subtask in every epoch.  So its operators are restored with each split, and
the checkpoint stores their time with the split.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.object_stores import StoreAccess
from millstream.runtime.exchange import WatermarkValve
from millstream.runtime.stage import is_per_channel
from millstream.state.rescale import Rehash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.checkpoint.model import FramesInFlight
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import StateHandle
    from millstream.contracts.operator import StatePart
    from millstream.contracts.source import Split
    from millstream.graph.model import StreamEdge, StreamNode
    from millstream.runtime.stage import StageInstance


#: The operator states of a per-channel operator for one split, which are small and lie with it:
#: name -> kind and pickled elements.
ChannelStates = dict[str, tuple[str, list[bytes]]] | None
#: Id of the pseudo-splits that carry the maximum watermark when a source is over.
END_OF_INPUT: Final = "end-of-input"


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """How far a split is."""

    #: All before it was handed to the operators.
    position: int
    #: Milliseconds; of the split's head.
    watermark: int
    idle: bool
    #: Read to its last end.
    over: bool


@dataclass(slots=True)
class SplitAssignment:
    """One split as it takes part in an epoch (also when nothing of it is read)."""

    source_uid: str
    split: Split
    #: The subtask of stage 0 that reads it.
    subtask: int
    #: ``[start, stop)``; equal if nothing is read.
    start: int
    stop: int
    #: Number of its channel, unique in the epoch.
    channel: int
    #: The split ends at ``stop``.
    finished: bool = False
    #: Whether the planner takes it for idle; None: it cannot know (a Spark DataFrame).
    idle: bool | None = False
    #: Whether its channels were idle at the end of the previous epoch.
    was_idle: bool = False
    #: Operator uid -> watermark and states of the per-channel operators of stage 0.
    operators: dict[str, tuple[int, ChannelStates]] = field(default_factory=dict)

    @property
    def starts_idle(self) -> bool:
        """Return whether its channels begin the epoch as idle ones.

        Not if it is known that records come: what others say must not move time past them.
        """
        return bool(self.idle) or (self.was_idle and self.start == self.stop)

    def watermark(self, uids: Iterable[str]) -> int:
        """The least watermark that the per-channel operators ``uids`` had reached."""
        return min(self.operators.get(uid, (MIN_TIMESTAMP, None))[0] for uid in uids)

    @property
    def is_end_of_input(self) -> bool:
        """Return whether it only carries the maximum watermark of a source that is over."""
        return self.split.id.startswith(END_OF_INPUT)


@dataclass(slots=True)
class OperatorRestore:
    """The previous checkpoint of one operator, all subtasks."""

    #: Per old subtask.
    handles: list[StateHandle | None]
    watermarks: list[int]
    idle: list[bool]
    #: Per subtask of this job: name -> the parts that it is given.
    operator_states: list[dict[str, list[StatePart]]]


@dataclass(slots=True)
class EpochPlan:
    """Everything that is new about an epoch."""

    job_id: str
    #: Changes with every run of the driver, so that workers drop what an older run left.
    run_id: str
    #: Of the run in the manifest log; the first part of every attempt's name, so that an older
    #: run can tell the output of a newer one and leaves it alone.
    generation: int
    epoch: int
    #: Milliseconds; the same in every replay.
    processing_time: int
    assignments: list[SplitAssignment]
    #: Operator uid -> its previous checkpoint.
    operators: dict[str, OperatorRestore]
    #: The last epoch of a bounded job.
    final: bool
    storage: CheckpointStorage
    #: Where workers keep local copies of state.
    local_root: str
    state_backend: str
    fsync: bool = True
    #: Whether ``processing_time`` is of the system's clock, which moves while the epoch runs.
    clock_moves: bool = True
    #: What barriers had overtaken at all tasks of the previous checkpoint.
    in_flight: list[FramesInFlight] = field(default_factory=list)
    #: With which sources, sinks and state are opened in object stores.
    stores: StoreAccess = field(default_factory=StoreAccess)

    def old_parallelism(self, uid: str) -> int:
        """How many subtasks an operator had at the end of the previous epoch; 0: it was not."""
        restore = self.operators.get(uid)
        return 0 if restore is None else len(restore.watermarks)

    def subtask_watermark(self, uid: str, subtask: int, parallelism: int) -> int:
        """An operator's watermark at the end of the previous epoch."""
        restore = self.operators.get(uid)
        if restore is None or not restore.watermarks:
            return MIN_TIMESTAMP
        if len(restore.watermarks) == parallelism:
            return restore.watermarks[subtask]
        # After a change of parallelism nobody knows more than the slowest old subtask.
        return min(restore.watermarks)

    def subtask_idle(self, uid: str, subtask: int, parallelism: int) -> bool:
        """Return whether an operator was idle at the end of the previous epoch."""
        restore = self.operators.get(uid)
        if restore is None or len(restore.idle) != parallelism:
            return False
        return restore.idle[subtask]

    def operator_states(self, uid: str, subtask: int) -> dict[str, list[StatePart]]:
        """Return what an operator's subtask is given of operator state."""
        restore = self.operators.get(uid)
        return restore.operator_states[subtask] if restore is not None else {}

    def handles(self, uid: str) -> list[StateHandle]:
        """Return where the keyed state of an operator lies."""
        restore = self.operators.get(uid)
        return [] if restore is None else [handle for handle in restore.handles if handle]

    def rehash(self, uid: str, max_parallelism: int) -> Rehash | None:
        """Return how the keys of an operator's state are hashed again; None if they are not."""
        # The key groups of all subtasks together are all there are.
        stored = max((handle["key_groups"][1] for handle in self.handles(uid)), default=None)
        if stored is None or stored == max_parallelism:
            return None
        return Rehash(stored, max_parallelism)


#: (edge, channel) -> watermark and idleness.
_Channels = dict[tuple[int, int], tuple[int, bool]]


def restore_time(
    instance: StageInstance, plan: EpochPlan, in_flight: Callable[[int], _Channels]
) -> None:
    """Set the time of all operators, outputs, valves and writers to the end of the last epoch.

    It comes before any operator is restored: one that fires a timer then emits into outputs and
    writers that must know what their receivers know.

    Args:
        instance: of the task.
        plan: what is restored.
        in_flight: the channels into a node with frames in flight, which come ahead of all else.
    """
    for node in instance.nodes:
        if is_restored_by_split(instance, node):
            continue  # its time is that of a split, which is not begun yet
        uid, parallelism = node.uid, node.parallelism
        watermark = plan.subtask_watermark(uid, instance.subtask, parallelism)
        instance.watermarks[node.id] = watermark
        output = instance.outputs[node.id]
        output.watermark = watermark
        output.idle = plan.subtask_idle(uid, instance.subtask, parallelism)
        if instance.level > 0:
            channels = _channels(instance, plan, node) | in_flight(node.id)
            instance.valves[node.id] = WatermarkValve(watermark, channels)
    for writer in instance.writers:
        known = instance.outputs[writer.source_node]
        idle = instance.level > 0 and known.idle
        writer.switch_channel(instance.subtask, known.watermark, idle=idle)


def is_restored_by_split(instance: StageInstance, node: StreamNode) -> bool:
    """Return whether an operator keeps time per split: it is restored again with each."""
    return instance.level == 0 and is_per_channel(node)


def refresh_time(instance: StageInstance) -> None:
    """Let time advance where channels became idle between two epochs.

    The planner finds out that a split is idle, and no frame says so: a valve that is left with the
    other channels must be asked.  This calls operators, so all of them are restored before it.
    """
    for node in instance.nodes:
        valve = instance.valves[node.id]
        combined = valve.refresh()
        if combined is not None:
            instance.advance(node.id, combined)
        if valve.idle != instance.outputs[node.id].idle:
            instance.operators[node.id].process_idle(valve.idle)


class SourceChain:
    """The operators that the splits of a source reach in stage 0; the same for all of them."""

    def __init__(self, instance: StageInstance, source: StreamNode) -> None:
        self.source = source
        #: Node -> uids of the operators that make its watermarks.
        self.reached = instance.origins[source.uid]
        #: In the order of the chain.
        self.nodes = [node for node in instance.nodes if node.id in self.reached]
        self.per_channel = [node for node in self.nodes if is_per_channel(node)]
        self.per_channel_ids = {node.id for node in self.per_channel}
        self.writers = [each for each in instance.writers if each.source_node in self.reached]
        #: Records that some of its operators process at the same time.
        self.concurrency = max(instance.operators[node.id].concurrency for node in self.nodes)
        #: Nodes with several inputs, and these.
        self.merging = [
            (node, edges) for node in self.nodes if len(edges := instance.graph.inputs(node.id)) > 1
        ]


class OperatorTime(NamedTuple):
    """What an operator knows of time: its input's watermark, and what it has sent on."""

    input_watermark: int
    watermark: int
    idle: bool


def restore_split_time(
    instance: StageInstance,
    assignment: SplitAssignment,
    chain: SourceChain,
    times: Mapping[int, OperatorTime] | None = None,
) -> None:
    """Set the time of the operators that a split reaches to what the split had come to.

    Args:
        instance: of stage 0.
        assignment: of the split.
        chain: of its source.
        times: by node, of operators that time has not reached yet: calls are under way before it.
    """
    reached, idle, times = chain.reached, assignment.starts_idle, times or {}
    for node in chain.nodes:
        watermark = assignment.watermark(reached[node.id])
        known = times.get(node.id) or OperatorTime(watermark, watermark, idle)
        instance.watermarks[node.id] = known.input_watermark
        output = instance.outputs[node.id]
        output.watermark, output.idle = known.watermark, known.idle
    for node, edges in chain.merging:
        instance.valves[node.id] = WatermarkValve(
            instance.watermarks[node.id],
            {
                (edge.id, 0): (assignment.watermark(reached[edge.source]), False)
                for edge in edges
                if edge.source in reached
            },
        )
    for writer in chain.writers:
        # Ends the channel of the split before it, too: no frame mixes two of them.
        start = assignment.watermark(reached[writer.source_node])
        known = times.get(writer.source_node) or OperatorTime(start, start, idle)
        writer.switch_channel(assignment.channel, known.watermark, idle=known.idle)


def _channels(instance: StageInstance, plan: EpochPlan, node: StreamNode) -> _Channels:
    """All channels into a node with their watermark and status at the epoch's start.

    Every channel must be known here, also those of which this epoch brings no frame: one that a
    valve has not heard of does not hold time back.
    """
    channels: _Channels = {}
    graph = instance.graph
    for edge in graph.inputs(node.id):
        producer = graph.nodes[edge.source]
        if instance.source_level(edge) == 0:
            channels.update(_channels_of_splits(instance, plan, edge))
            continue
        chained = not instance.is_exchange_input(edge)
        subtasks = [instance.subtask] if chained else range(producer.parallelism)
        for subtask in subtasks:
            uid, count = producer.uid, producer.parallelism
            channels[edge.id, 0 if chained else subtask] = (
                plan.subtask_watermark(uid, subtask, count),
                plan.subtask_idle(uid, subtask, count),
            )
    return channels


def _channels_of_splits(instance: StageInstance, plan: EpochPlan, edge: StreamEdge) -> _Channels:
    channels: _Channels = {}
    for assignment in plan.assignments:
        origins = instance.origins[assignment.source_uid].get(edge.source)
        if origins is not None:
            start = (assignment.watermark(origins), assignment.starts_idle)
            channels[edge.id, assignment.channel] = start
    return channels


def acknowledged_watermark(
    instance: StageInstance,
    plan: EpochPlan,
    node: StreamNode,
    reached: Mapping[tuple[int, int], int],
) -> int:
    """Return what the manifest says of an operator's time.

    In stage 0 it is that of the slowest split of all subtasks, as far as it is known here: when
    the parallelism changes the operator may continue after an exchange, where it gets them all.
    """
    if instance.level > 0:
        return instance.outputs[node.id].watermark
    over = {each.source_uid for each in plan.assignments if each.is_end_of_input}
    watermarks: list[int] = []
    for assignment in plan.assignments:
        origins = instance.origins[assignment.source_uid].get(node.id)
        if origins is None:
            continue
        if assignment.source_uid in over:
            watermarks.append(MAX_TIMESTAMP)
            continue
        start = assignment.watermark(origins)
        watermarks.append(reached.get((assignment.channel, node.id), start))
    if not watermarks:
        return plan.subtask_watermark(node.uid, instance.subtask, node.parallelism)
    return min(watermarks)
