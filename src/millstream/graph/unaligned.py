"""What unaligned checkpoints ask of a graph: where barriers may overtake, what edges are called.

What it is: Flink's rules.  Records that wait in front of an operator can become part of a
checkpoint only if it does not matter at which subtask, and how far apart, they are processed after
a restart:

* *Pointwise* exchanges (FORWARD, RESCALE) tie records to a subtask, which another parallelism may
  not have.
* Of a BROADCAST every subtask gets the same; in a checkpoint each would have come a different
  way in it, and at another parallelism nobody could say which of them is right.
* What else leads into such an operator waits with it, as in Flink.
* A CUSTOM partitioner may be any function of the number of subtasks; it is refused unless
  ``execution.checkpointing.unaligned.forced`` is set.

What it is not: the overtaking (``runtime/pipelined/alignment.py``).

Read next: ``runtime/frames_in_flight.py``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.configuration import options
from millstream.configuration.checkpointing_mode import CheckpointingMode
from millstream.graph.model import Partitioning

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration
    from millstream.graph.model import JobGraph, StreamEdge

__all__ = ["EdgeName", "aligned_edges", "edge_names", "is_unaligned", "why_not_unaligned"]

_ALIGNED: Final = frozenset({Partitioning.FORWARD, Partitioning.RESCALE, Partitioning.BROADCAST})


class EdgeName(NamedTuple):
    """What an edge is called in checkpoints: the same in every run of a program."""

    #: Uids of the operators at its ends.
    source: str
    target: str
    #: Which input of the target.
    input_index: int
    #: Of the side output; None: the main one.
    tag: str | None
    #: Tells edges apart that are alike in all this.
    number: int


def edge_names(graph: JobGraph) -> dict[int, EdgeName]:
    """The names of all edges, by id."""
    names: dict[int, EdgeName] = {}
    alike: Counter[EdgeName] = Counter()
    for edge in graph.edges:
        source, target = graph.nodes[edge.source].uid, graph.nodes[edge.target].uid
        name = EdgeName(source, target, edge.input_index, edge.tag, 0)
        names[edge.id] = name._replace(number=alike[name])
        alike[name] += 1
    return names


def aligned_edges(graph: JobGraph) -> frozenset[int]:
    """Ids of the edges between tasks on which no barrier overtakes records."""
    crossing = [edge for edge in graph.edges if _crosses(graph, edge)]
    waiting = {edge.target for edge in crossing if edge.partitioning in _ALIGNED}
    return frozenset(edge.id for edge in crossing if edge.target in waiting)


def _crosses(graph: JobGraph, edge: StreamEdge) -> bool:
    return graph.level(edge.source) != graph.level(edge.target)


def is_unaligned(configuration: Configuration) -> bool:
    """Whether barriers may overtake records: it is asked for, and the mode is EXACTLY_ONCE."""
    mode = CheckpointingMode[configuration.get(options.CHECKPOINTING_MODE)]
    asked = configuration.get(options.UNALIGNED_CHECKPOINTS)
    return asked and mode is CheckpointingMode.EXACTLY_ONCE


def why_not_unaligned(graph: JobGraph) -> str | None:
    """Why a job cannot have unaligned checkpoints that asks for them; None if it can, or does not.

    As in Flink, which refuses the same when a job is submitted.
    """
    configuration = graph.configuration
    if not is_unaligned(configuration):
        return None
    unaligned = options.UNALIGNED_CHECKPOINTS.key
    most = configuration.get(options.MAX_CONCURRENT_CHECKPOINTS)
    if most > 1:
        return (
            f"{unaligned} goes with one checkpoint at a time, but"
            f" {options.MAX_CONCURRENT_CHECKPOINTS.key} is {most}: records in flight would be kept"
            " by several. Set it to 1; unaligned checkpoints are short"
        )
    if configuration.get(options.FORCE_UNALIGNED_CHECKPOINTS):
        return None
    for edge in graph.edges:
        if edge.partitioning is Partitioning.CUSTOM:
            target = graph.nodes[edge.target]
            return (
                f"{unaligned} does not go with partition_custom() in front of"
                f" {target.name!r} ({target.location}): records in flight could not be given to the"
                " right subtasks at another parallelism, unless the partitioner says the same of"
                f" them at each restart. If it does, set {options.FORCE_UNALIGNED_CHECKPOINTS.key}"
            )
    return None
