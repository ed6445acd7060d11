"""Event time from one epoch to the next: what a task restores of it, and what it acknowledges.

What it is: watermarks and idleness of operators, of their outputs, and of the channels into them,
as the last checkpoint has them.

Stage 0 is the special case.  Time is kept there per source split by the per-channel operators
(``runtime/stage.py``), and a split may be read by another subtask in every epoch.  So its
operators are restored anew with each split, and the checkpoint has their time with the split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.runtime.exchange import WatermarkValve
from millstream.runtime.stage import is_per_channel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.graph.model import StreamEdge, StreamNode
    from millstream.runtime.plan import EpochPlan, SplitAssignment
    from millstream.runtime.stage import StageInstance


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
    """Whether an operator keeps time per split: it is restored anew with each."""
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
    """What the splits of a source reach in stage 0; the same for all of them."""

    def __init__(self, instance: StageInstance, source: StreamNode) -> None:
        """Find out, once for all splits of an epoch."""
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


def restore_split_time(
    instance: StageInstance, assignment: SplitAssignment, chain: SourceChain
) -> None:
    """Set the time of the operators that a split reaches to what the split had come to.

    Args:
        instance: of stage 0.
        assignment: of the split.
        chain: of its source.
    """
    reached, idle = chain.reached, assignment.starts_idle
    for node in chain.nodes:
        watermark = assignment.watermark(reached[node.id])
        instance.watermarks[node.id] = watermark
        output = instance.outputs[node.id]
        output.watermark, output.idle = watermark, idle
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
        writer.switch_channel(assignment.channel, start, idle=idle)


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
    """What the manifest says of an operator's time.

    In stage 0 it is that of the slowest split of all subtasks, as far as it is known here: when
    the parallelism changes the operator may go on behind an exchange, where it gets them all.

    Args:
        instance: of the subtask.
        plan: of the epoch.
        node: the operator.
        reached: (channel, node) -> the watermark at the end of each split that was read here.
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
