"""A stage instance: the operator chains of one subtask of one stage, wired together.

It is built once per worker process and subtask, and kept for later epochs.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from typing import TYPE_CHECKING, cast

from millstream.configuration import options
from millstream.contracts import operator
from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.contracts.operator import OperatorContext
from millstream.functions.watermark_strategy import WatermarkStrategy
from millstream.logs import TaskPosition, configure_worker
from millstream.runtime.exchange import ExchangeWriter, Outbox, WatermarkValve, create_partitioner
from millstream.runtime.last_given import current_operator, watch
from millstream.runtime.operators import TimestampsWatermarksFactory
from millstream.runtime.user_code import OutputCheck
from millstream.state.operator_state import OperatorStates
from millstream.state.serializers import set_moved_classes

if TYPE_CHECKING:
    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator
    from millstream.graph.model import JobGraph, StreamEdge, StreamNode
    from millstream.runtime.exchange import Partitioner
    from millstream.runtime.operators.combiner import CombinerOperator
    from millstream.types.types import TypeInformation


def is_per_channel(node: StreamNode) -> bool:
    """Return whether a stage-0 node keeps one watermark per channel (source split)."""
    return node.kind == "source" or operator.is_per_channel(node.factory)


def time_origins(graph: JobGraph) -> dict[str, dict[int, frozenset[str]]]:
    """Source uid -> stage-0 node it reaches -> uids of the operators that make its watermarks.

    There are several where a node is reached on several ways (a diamond within the stage).
    """
    stage_0 = {node for stage in graph.stages if stage.level == 0 for node in stage.nodes}
    origins: dict[str, dict[int, frozenset[str]]] = {}
    for node in graph.nodes.values():
        if node.kind == "source":
            reached: dict[int, frozenset[str]] = {}
            _follow(graph, node, node.uid, stage_0, reached)
            origins[node.uid] = reached
    return origins


def _follow(
    graph: JobGraph,
    node: StreamNode,
    origin: str,
    stage_0: set[int],
    reached: dict[int, frozenset[str]],
) -> None:
    own = node.uid if is_per_channel(node) else origin
    known = reached.get(node.id, frozenset())
    if own in known or node.id not in stage_0:
        return
    reached[node.id] = known | {own}
    for edge in graph.outputs(node.id):
        _follow(graph, graph.nodes[edge.target], own, stage_0, reached)


class ChainedInput:
    """A plain call into the next operator of the chain, merged with its other inputs' time."""

    def __init__(self, instance: StageInstance, edge: StreamEdge) -> None:
        self._instance = instance
        self._node = edge.target
        self._edge = edge.id
        self._input_index = edge.input_index
        self._operator = instance.operators[edge.target]
        self._alone = len(instance.graph.inputs(edge.target)) == 1

    def emit(self, batch: Batch) -> None:
        """Hand records over."""
        if len(batch):
            self._operator.process_batch(batch, self._input_index)

    def emit_watermark(self, watermark: int) -> None:
        """Hand a watermark over."""
        if self._alone:
            self._instance.advance(self._node, watermark)
        else:
            self._instance.channel_watermark(self._node, self._edge, 0, watermark)

    def emit_idle(self, idle: bool) -> None:  # noqa: FBT001 - a status, named in the frame
        """Hand idleness over."""
        if self._alone:
            self._operator.process_idle(idle)
        else:
            self._instance.channel_status(self._node, self._edge, 0, idle=idle)


class NodeOutput:
    """The ``Output`` of one operator: all its edges, main and side."""

    def __init__(self, context: OperatorContext | None = None) -> None:
        self._context = context
        self._check = None if context is None else OutputCheck(context)
        self._side_checks: dict[str, OutputCheck] = {}
        self.main: list[ChainedInput | ExchangeWriter] = []
        self.side: dict[str, list[ChainedInput | ExchangeWriter]] = {}
        #: What receivers know: the last watermark and status sent (or restored).
        self.watermark = MIN_TIMESTAMP
        self.idle = False
        #: Records for side outputs that nobody reads, since they were last counted.
        self.unread = 0

    def receivers(self) -> list[ChainedInput | ExchangeWriter]:
        """All receivers: watermarks go to side outputs too."""
        return [*self.main, *(receiver for many in self.side.values() for receiver in many)]

    def emit(self, batch: Batch) -> None:
        """Send records on the main output, if they are of the declared type."""
        if self._check is not None:
            self._check(batch)
        for receiver in self.main:
            receiver.emit(batch)

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Send records on a side output, if they are of its declared type."""
        if self._context is not None:
            check = self._side_checks.get(tag)
            if check is None:
                check = self._side_checks[tag] = OutputCheck(self._context, tag)
            check(batch)
        receivers = self.side.get(tag, ())
        if not receivers:
            self.unread += len(batch)
        for receiver in receivers:
            receiver.emit(batch)

    def emit_watermark(self, watermark: int) -> None:
        """Send a watermark."""
        self.watermark = max(self.watermark, watermark)
        for receiver in self.receivers():
            receiver.emit_watermark(watermark)

    def emit_idle(self, idle: bool) -> None:  # noqa: FBT001 - a status, named in the frame
        """Send idleness."""
        self.idle = idle
        for receiver in self.receivers():
            receiver.emit_idle(idle)


class StageInstance:
    """All operators of one subtask of one stage."""

    def __init__(
        self, graph: JobGraph, number: int, subtask: int, outbox: Outbox | None = None
    ) -> None:
        self.graph = graph
        self.number = number
        self.subtask = subtask
        self.outbox = Outbox() if outbox is None else outbox
        self.edges = {edge.id: edge for edge in graph.edges}
        self.origins = time_origins(graph)
        self._cached_files = graph.files.cached
        stage = next(stage for stage in graph.stages if stage.number == number)
        self.level = stage.level
        self._levels = {node: s.level for s in graph.stages for node in s.nodes}
        #: Nodes of this stage that have an instance in this subtask, inputs first.
        self.nodes = [
            graph.nodes[node] for node in stage.nodes if subtask < graph.nodes[node].parallelism
        ]
        #: Names the instance, for what it counts as long as it is there.
        self.id = uuid.uuid4().hex
        #: Bytes of records that came from other tasks, by the node that they went to.
        self.received: Counter[int] = Counter()
        self.operators: dict[int, Operator] = {}
        #: Kept from epoch to epoch, for what they hold need not be read again then.
        self.operator_states: dict[int, OperatorStates] = {}
        self.outputs: dict[int, NodeOutput] = {}
        self.writers: list[ExchangeWriter] = []
        #: Of edges that lead here.
        self._asked: list[Partitioner] = []
        #: Set again at the start of each epoch; in stage 0 at the start of each split, and only for
        #: operators with several inputs.
        self.valves: dict[int, WatermarkValve] = {}
        self.watermarks: dict[int, int] = {}
        #: Somebody in another thread wants to know what gauges say, or soon will.
        self.wants_gauges = True
        self.position = TaskPosition()
        if graph.logging is not None:
            configure_worker(graph.logging, current_operator)
        #: What state and batches of the process may take, in bytes.
        self.managed_memory: int = graph.configuration.get(options.MANAGED_MEMORY)
        moved: dict[str, str] = graph.configuration.get(options.MOVED_CLASSES)
        set_moved_classes(moved)
        for node in self.nodes:
            self.operators[node.id] = self._create(node)
            self.operator_states[node.id] = OperatorStates(f"operator {node.name!r}")
            self.outputs[node.id] = NodeOutput(self._context(node))
        for node in self.nodes:
            self._wire(node)

    def _create(self, node: StreamNode) -> Operator:
        factory = node.factory
        if node.kind == "source":
            # The head of a source chain takes timestamps and makes watermarks, split by split.
            strategy = node.watermark_strategy or WatermarkStrategy.no_watermarks()
            return TimestampsWatermarksFactory(strategy).create()
        if factory is None:
            message = f"operator {node.name!r} has no factory"
            raise ValueError(message)
        return factory.create()

    def _wire(self, node: StreamNode) -> None:
        output = self.outputs[node.id]
        for edge in self.graph.outputs(node.id):
            receiver: ChainedInput | ExchangeWriter
            if self._levels[edge.target] == self.level:
                receiver = ChainedInput(self, edge)
            else:
                receiver = self._exchange(node, edge)
            if edge.tag is None:
                output.main.append(receiver)
            else:
                output.side.setdefault(edge.tag, []).append(receiver)
        self.operators[node.id].setup(self._context(node), output)
        watch(self.operators[node.id], self.position)

    def _exchange(self, node: StreamNode, edge: StreamEdge) -> ExchangeWriter:
        target = self.graph.nodes[edge.target]
        reader = self._context(target)
        partitioner = create_partitioner(edge, self.subtask, node.parallelism, reader)
        combiner: CombinerOperator | None = None
        if edge.combiner is not None:
            combiner = cast("CombinerOperator", edge.combiner.create())
            combiner.setup(reader, NodeOutput())
        stage = self.graph.stage_of(edge.target).number
        writer = ExchangeWriter(edge, stage, target.parallelism, partitioner, self.outbox, combiner)
        source = self.graph.nodes[edge.source]
        writer.producer = f"operator {source.name!r} ({source.location})"
        self.writers.append(writer)
        return writer

    def partitioner_into(self, edge: StreamEdge) -> Partitioner:
        """The partitioner of an edge that leads here, to ask it whose a record is."""
        source, target = self.graph.nodes[edge.source], self.graph.nodes[edge.target]
        partitioner = create_partitioner(edge, 0, source.parallelism, self._context(target))
        partitioner.open()
        self._asked.append(partitioner)
        return partitioner

    def _context(self, node: StreamNode) -> OperatorContext:
        tags = {edge.tag for edge in self.graph.outputs(node.id) if edge.tag is not None}
        side_types: dict[str, TypeInformation] = dict(node.side_types)
        return OperatorContext(
            uid=node.uid,
            name=node.name,
            location=node.location,
            subtask=self.subtask,
            parallelism=node.parallelism,
            max_parallelism=node.max_parallelism,
            job_name=self.graph.job_name,
            configuration=self.graph.configuration,
            output_type=node.output_type,
            side_types=side_types,
            read_tags=frozenset(tags),
            batch_mode=self.graph.batch_mode,
            has_own_uid=node.has_own_uid,
            cached_files=self._cached_files,
        )

    def open(self) -> None:
        """Open the user functions, consumers first, so that nobody emits into a closed one.

        If one of them raises, all are closed again.
        """
        try:
            for node in reversed(self.nodes):
                self.operators[node.id].open()
            for writer in self.writers:
                writer.open()
        except BaseException:
            self.give_up()
            raise

    def close(self) -> None:
        """Close the user functions; all of them, whatever one of them raises."""
        errors: list[Exception] = []
        closing = [self.operators[node.id].close for node in self.nodes]
        closing += [writer.close for writer in self.writers]
        closing += [partitioner.close for partitioner in self._asked]
        for close in closing:
            try:
                close()
            except Exception as error:  # noqa: BLE001 - collected and raised below
                errors.append(error)
        if errors:
            raise errors[0]

    def give_up(self) -> None:
        """Close the user functions after an error: it matters, not what they raise now."""
        with contextlib.suppress(Exception):
            self.close()

    def read_gauges(self) -> None:
        """Read the gauges of all functions if they are asked for; between two batches."""
        if self.wants_gauges:
            self.wants_gauges = False
            for node in self.nodes:
                self.operators[node.id].read_gauges()

    def advance(self, node: int, watermark: int) -> None:
        """Give an operator its new watermark, if it is one."""
        if watermark > self.watermarks[node]:
            self.watermarks[node] = watermark
            self.operators[node].process_watermark(watermark)

    def channel_watermark(self, node: int, edge: int, channel: int, watermark: int) -> None:
        """A channel of an operator advanced."""
        combined = self.valves[node].watermark(edge, channel, watermark)
        if combined is not None:
            self.advance(node, combined)

    def channel_status(self, node: int, edge: int, channel: int, *, idle: bool) -> None:
        """A channel of an operator became idle or active."""
        valve = self.valves[node]
        before = valve.idle
        self._take_status(node, valve.status(edge, channel, idle=idle), before=before)

    def channel_finished(self, node: int, edge: int, channel: int) -> None:
        """A channel of an operator is over; if only idle ones are left, so is the operator."""
        valve = self.valves[node]
        before = valve.idle
        self._take_status(node, valve.finished(edge, channel), before=before)

    def _take_status(self, node: int, combined: int | None, *, before: bool) -> None:
        """Tell an operator what its valve says now, which was idle ``before`` or was not."""
        valve = self.valves[node]
        # An operator is active when its time moves: told so before the watermark, and told that it
        # is idle only after it.
        if before and not valve.idle:
            self.operators[node].process_idle(False)  # noqa: FBT003 - the contract's signature
        if combined is not None:
            self.advance(node, combined)
        if valve.idle and not before:
            self.operators[node].process_idle(True)  # noqa: FBT003 - the contract's signature

    def is_exchange_input(self, edge: StreamEdge) -> bool:
        """Return whether an edge comes from an earlier stage."""
        return self._levels[edge.source] < self.level

    def source_level(self, edge: StreamEdge) -> int:
        """The stage that an edge comes from."""
        return self._levels[edge.source]
