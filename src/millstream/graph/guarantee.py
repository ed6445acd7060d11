"""The delivery guarantee of each sink of a job: that of its weakest part.

What it is: computed from the graph alone, at submit, so that it can be shown with the plan.  A
source that cannot be read again loses records at a failure, a sink or a checkpoint mode that is
not exactly-once repeats them.

What it is not: a check.  Nothing is refused here.

Read next: ``graph/explain.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.common import options
from millstream.connectors.sink import DeliveryGuarantee

if TYPE_CHECKING:
    from millstream.graph.model import JobGraph, StreamNode

__all__ = ["SinkGuarantee", "sink_guarantees"]


@dataclass(frozen=True, slots=True)
class SinkGuarantee:
    """What the records of one sink can rely on."""

    node: int
    #: "exactly-once", "at-least-once", "at-most-once" or "none".
    guarantee: str
    #: Why it is not more; empty for exactly-once.
    reasons: tuple[str, ...] = ()


def sink_guarantees(job_graph: JobGraph) -> list[SinkGuarantee]:
    """The guarantee of each sink, in order of node id."""
    mode = job_graph.configuration.get(options.CHECKPOINTING_MODE)
    at_least_once_mode = mode == "AT_LEAST_ONCE"
    return [
        _guarantee(job_graph, node, at_least_once_mode=at_least_once_mode)
        for _, node in sorted(job_graph.nodes.items())
        if node.sink is not None
    ]


def _guarantee(job_graph: JobGraph, node: StreamNode, *, at_least_once_mode: bool) -> SinkGuarantee:
    lost = [
        f"source '{source.name}' cannot be read again after a failure"
        for source in _sources(job_graph, node.id)
        if source.source is not None and not source.source.replayable
    ]
    repeated = []
    own = node.sink.guarantee if node.sink is not None else DeliveryGuarantee.NONE
    if own is DeliveryGuarantee.AT_LEAST_ONCE:
        repeated.append("the sink may write records again after a failure")
    if at_least_once_mode:
        repeated.append(f"{options.CHECKPOINTING_MODE.key} is AT_LEAST_ONCE")
    nothing = ["the sink promises nothing"] if own is DeliveryGuarantee.NONE else []
    if nothing or (lost and repeated):
        word = "none"
    elif lost:
        word = "at-most-once"
    elif repeated:
        word = "at-least-once"
    else:
        word = "exactly-once"
    return SinkGuarantee(node.id, word, (*nothing, *lost, *repeated))


def _sources(job_graph: JobGraph, node: int) -> list[StreamNode]:
    """All sources upstream of ``node``, in order of id."""
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting.extend(edge.source for edge in job_graph.inputs(current))
    upstream = [job_graph.nodes[each] for each in sorted(seen)]
    return [each for each in upstream if each.kind == "source"]
