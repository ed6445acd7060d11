"""The StreamGraph: nodes, edges, and the stages they are cut into, shipped once to every worker."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.contracts.operator import first_input
from millstream.errors import ProgramError
from millstream.graph.job_files import JobFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.contracts.operator import OperatorFactory
    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source
    from millstream.functions.watermark_strategy import WatermarkStrategy
    from millstream.logs import LogSettings
    from millstream.types.types import TypeInformation


class Partitioning(Enum):
    """How records are spread over the subtasks of the next operator."""

    #: Same subtask; chained (a plain call) when both ends are in one stage.
    FORWARD = "forward"
    #: By key group.
    HASH = "hash"
    REBALANCE = "rebalance"
    RESCALE = "rescale"
    SHUFFLE = "shuffle"
    BROADCAST = "broadcast"
    #: All to subtask 0.
    GLOBAL = "global"
    #: By the user's partitioner.
    CUSTOM = "custom"

    @property
    def is_exchange(self) -> bool:
        """Return whether records change subtask."""
        return self is not Partitioning.FORWARD


@dataclass(slots=True)
class StreamNode:
    """One operator of the job."""

    id: int
    #: Stable over restarts: the user's ``uid`` or a hash of the node's place in the program.
    uid: str
    name: str
    #: "job.py:12".
    location: str
    #: "source", "operator", "sink".
    kind: str
    parallelism: int
    max_parallelism: int
    output_type: TypeInformation
    side_types: dict[str, TypeInformation] = field(default_factory=dict)
    #: Set for operators and sinks.
    factory: OperatorFactory | None = None
    #: Set for sources.
    source: Source | None = None
    watermark_strategy: WatermarkStrategy | None = None
    #: Index of the Spark DataFrame for ``env.from_spark``, None for Millstream sources.
    spark_index: int | None = None
    #: Set for sinks (the factory makes the operator that drives its writer).
    sink: Sink | None = None
    #: Whether the graph needs ticks of processing time for this node.
    needs_processing_time: bool = False
    #: Whether the program gives the uid, and the max parallelism, or leaves them to us.
    has_own_uid: bool = True
    max_parallelism_is_set: bool = False
    #: Whether it computes something that one subtask has to see as a whole.
    has_one_subtask: bool = False
    #: What it computes, part by part, if that is known.
    details: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class StreamEdge:
    """A connection between two operators."""

    id: int
    source: int
    target: int
    #: Which input of the target (0, or 1 for the second input of a two-input operator).
    input_index: int
    partitioning: Partitioning
    #: None for the main output, else the side output's tag.
    tag: str | None
    #: Type of the records that travel.
    type_info: TypeInformation
    #: Record -> key, for HASH and for keyed targets reached otherwise.
    key_selector: Callable[[object], object] | None = None
    #: (key, number of subtasks) -> subtask, for CUSTOM.
    partitioner: Callable[[object, int], int] | None = None
    #: A factory of the operator that pre-aggregates batches before the exchange, if there is one.
    combiner: OperatorFactory | None = None


@dataclass(slots=True)
class Stage:
    """Operators that lie after the same number of exchanges, and run in one task per subtask."""

    level: int
    parallelism: int
    #: In an order in which inputs come before their users.
    nodes: list[int]
    #: Tells it from the other stages of the graph; those after it have higher ones.  The level,
    #: where all operators of a level are one stage.
    number: int = -1
    #: What is in different regions is not connected.
    region: int = 0

    def __post_init__(self) -> None:
        """Give it its number."""
        if self.number < 0:
            self.number = self.level


@dataclass(slots=True)
class JobGraph:
    """The whole job, as shipped to the workers."""

    job_name: str
    nodes: dict[int, StreamNode]
    edges: list[StreamEdge]
    stages: list[Stage]
    configuration: Configuration
    batch_mode: bool = False
    #: Set once they have been shipped.
    files: JobFiles = field(default_factory=JobFiles)
    #: For workers; set when the job is submitted.
    logging: LogSettings | None = None

    @property
    def width(self) -> int:
        """How many subtasks the widest stage has."""
        return max(stage.parallelism for stage in self.stages)

    @property
    def shows_records(self) -> bool:
        """Return whether the program shows records of the job: a sink prints or collects them."""
        return any(
            node.sink is not None and node.sink.shows_records for node in self.nodes.values()
        )

    def inputs(self, node: int) -> list[StreamEdge]:
        """The edges into ``node``, in order of their id."""
        return [edge for edge in self.edges if edge.target == node]

    def outputs(self, node: int) -> list[StreamEdge]:
        """The edges out of ``node``, in order of their id."""
        return [edge for edge in self.edges if edge.source == node]

    def upstream(
        self, edges: Iterable[StreamEdge], ends_at: Callable[[StreamNode], bool] | None = None
    ) -> Iterator[StreamNode]:
        """Yield every node that leads to one of ``edges``, once.

        Args:
            edges: where the walk begins; their sources come first.
            ends_at: whether the walk goes no further than a node, which is still given.
        """
        seen: set[int] = set()
        waiting = [edge.source for edge in edges]
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            node = self.nodes[number]
            yield node
            if ends_at is None or not ends_at(node):
                waiting += [edge.source for edge in self.inputs(number)]

    def stage_of(self, node: int) -> Stage:
        """The stage that ``node`` runs in."""
        return next(stage for stage in self.stages if node in stage.nodes)

    def level(self, node: int) -> int:
        """The level of the stage that ``node`` runs in."""
        return self.stage_of(node).level


_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"


def caller_location() -> str:
    """File name and line of the innermost frame that is not in Millstream itself."""
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to the stack without its cost
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def levels(nodes: Mapping[int, StreamNode], edges: Sequence[StreamEdge]) -> dict[int, int]:
    """The level of each node, by node id, in an order in which inputs come first.

    A forward edge between different levels (one input of a union came through an exchange, the
    other did not) does not raise the level: its frames are passed on unread to the same subtask.
    """
    incoming: dict[int, list[StreamEdge]] = defaultdict(list)
    waiting: dict[int, int] = dict.fromkeys(nodes, 0)
    outgoing: dict[int, list[int]] = defaultdict(list)
    for edge in edges:
        incoming[edge.target].append(edge)
        outgoing[edge.source].append(edge.target)
        waiting[edge.target] += 1
    ready = sorted((node for node, count in waiting.items() if count == 0), reverse=True)
    result: dict[int, int] = {}
    while ready:
        node = ready.pop()
        result[node] = max(
            (result[edge.source] + edge.partitioning.is_exchange for edge in incoming[node]),
            default=0,
        )
        for target in sorted(outgoing[node], reverse=True):
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return result


def cut_stages(nodes: Mapping[int, StreamNode], edges: Sequence[StreamEdge]) -> list[Stage]:
    """The stages, in order of level; a stage is as parallel as its most parallel operator."""
    members: dict[int, list[int]] = defaultdict(list)
    for node, level in levels(nodes, edges).items():
        members[level].append(node)
    return [
        Stage(
            level=level,
            parallelism=max(nodes[node].parallelism for node in members[level]),
            nodes=members[level],
        )
        for level in sorted(members)
    ]


def by_chain(graph: JobGraph) -> JobGraph:
    """The same job with a stage per chain of operators, numbered so that inputs come first.

    Args:
        graph: with one stage per level; it is not changed.
    """
    level = {node: stage.level for stage in graph.stages for node in stage.nodes}
    chain = _connected(
        level, (edge for edge in graph.edges if level[edge.source] == level[edge.target])
    )
    region = _connected(level, graph.edges)
    #: Both are told by the first of their nodes.
    regions = {first: number for number, first in enumerate(dict.fromkeys(region.values()))}
    stages: list[Stage] = []
    for stage in graph.stages:
        members: dict[int, list[int]] = defaultdict(list)
        for node in stage.nodes:
            members[chain[node]].append(node)
        stages += [
            Stage(
                level=stage.level,
                parallelism=max(graph.nodes[node].parallelism for node in nodes),
                nodes=nodes,
                number=number,
                region=regions[region[first]],
            )
            for number, (first, nodes) in enumerate(members.items(), len(stages))
        ]
    return replace(graph, stages=stages)


def _connected(nodes: Iterable[int], edges: Iterable[StreamEdge]) -> dict[int, int]:
    """Node -> the first of those that it is connected with, whatever the direction."""
    group = {node: [node] for node in nodes}
    for edge in edges:
        one, other = group[edge.source], group[edge.target]
        if one is not other:
            one += other
            group.update(dict.fromkeys(other, one))
    return {node: min(members) for node, members in group.items()}


def sources_before(graph: JobGraph) -> dict[str, frozenset[str]]:
    """Source uid -> uids of those that are read to their end before it; empty in STREAMING mode.

    Raises:
        ProgramError: the sources cannot be read in such an order.
    """
    before: dict[str, set[str]] = {
        node.uid: set() for node in graph.nodes.values() if node.kind == "source"
    }
    readers = [node for node in graph.nodes.values() if first_input(node.factory) is not None]
    for node in readers if graph.batch_mode else ():
        first, second = _sources(graph, node, first=True), _sources(graph, node, first=False)
        for source in second:
            before[source].update(first)
            # Of a chain of such operators, all that comes before.
            before[source].update(*(before[each] for each in first))
            for each in before.values():
                if source in each:
                    each.update(before[source])
        _check(graph, node, before)
    return {uid: frozenset(uids) for uid, uids in before.items()}


def _sources(graph: JobGraph, node: StreamNode, *, first: bool) -> set[str]:
    """Uids of the sources that lead to the input that comes first, or to the others."""
    index = first_input(node.factory)
    edges = [each for each in graph.inputs(node.id) if (each.input_index == index) == first]
    return {each.uid for each in graph.upstream(edges) if each.kind == "source"}


def _check(graph: JobGraph, node: StreamNode, before: dict[str, set[str]]) -> None:
    reason = ""
    sources = {each.uid: each for each in graph.nodes.values() if each.kind == "source"}
    for uid, uids in before.items():
        source = sources[uid]
        if uid in uids:
            reason = (
                f"source {source.name!r} ({source.location}) feeds both of its inputs, one of which"
                " is read to its end first; read it twice, by two sources"
            )
        elif uids and any(sources[each].source is None for each in (uid, *uids)):
            reason = "Spark reads its sources in no order; write the DataFrame to a file first"
    if reason:
        message = f"operator {node.name!r} ({node.location}) in BATCH mode: {reason}"
        raise ProgramError(message)
