"""The StreamGraph: nodes, edges, and the stages they are cut into.

What it is: plain data made from the user's transformations (``graph/translate.py``), cut into
stages (``graph/stages.py``) and shipped once to every worker.

What it is not: executable.  ``runtime/task.py`` builds operator chains from it.

Read next: ``graph/stages.py``, ``graph/explain.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from millstream.graph.job_files import JobFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.configuration.configuration import Configuration
    from millstream.contracts.operator import OperatorFactory
    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source
    from millstream.functions.watermark_strategy import WatermarkStrategy
    from millstream.types.typeinfo import TypeInformation

__all__ = ["JobGraph", "Partitioning", "Stage", "StreamEdge", "StreamNode"]


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
        """Whether records change subtask."""
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
    """Operators that lie behind the same number of exchanges, and run in one task per subtask."""

    level: int
    parallelism: int
    #: In an order in which inputs come before their users.
    nodes: list[int]
    #: Tells it from the other stages of the graph; those behind it have higher ones.  The level,
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

    @property
    def width(self) -> int:
        """How many subtasks the widest stage has."""
        return max(stage.parallelism for stage in self.stages)

    @property
    def shows_records(self) -> bool:
        """Whether the program shows records of the job: a sink prints or collects them."""
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
