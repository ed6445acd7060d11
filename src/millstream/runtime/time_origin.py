"""Where the watermarks of stage-0 operators come from.

In stage 0 event time is kept per channel (source split) by the *per-channel* operators: the head
of each source and operators that assign timestamps and watermarks.  Every other operator of
stage 0 has the time of the nearest of them upstream; the least of them, where several ways lead to
it.  Both the task that reads a split and the tasks that receive its frames must know which these
are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.contracts import operator

if TYPE_CHECKING:
    from millstream.graph.model import JobGraph, StreamNode

__all__ = ["is_per_channel", "time_origins"]


def is_per_channel(node: StreamNode) -> bool:
    """Whether a stage-0 node keeps one watermark per channel (source split)."""
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
