"""Cutting the StreamGraph into stages.

What it is: every operator gets a level, the greatest number of exchanges that lie between it and
a source; operators of one level run in one Spark stage, where subtask *i* of the stage hosts
subtask *i* of each of them (Flink's slot sharing).  So a graph of any shape becomes one linear
chain of stages, and nothing upstream is computed twice.

Where tasks live on there is nothing to gain from one chain of stages: ``by_chain`` cuts each level
into stages whose operators call each other, so that none waits for what another of its level does,
and says which *regions* are not connected: each can be restarted alone.

What it is not: the running of them, which is ``runtime/task.py``.

Read next: ``graph/explain.py``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.graph.model import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.graph.model import JobGraph, StreamEdge, StreamNode

__all__ = ["by_chain", "cut_stages", "levels"]


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
