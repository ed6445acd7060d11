"""The plan of a job as text: stages, operators, edges, parallelism, guarantees.

What it is: what ``millstream plan job.py`` prints.  What it is not: the machine-readable plan,
which is in ``graph/execution_plan.py``.

Read next: ``graph/picture.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.graph.guarantee import sink_guarantees

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.graph.guarantee import SinkGuarantee
    from millstream.graph.model import JobGraph, StreamEdge, StreamNode

__all__ = ["edge_words", "explain", "guarantee_words"]

_TYPE_WIDTH = 60


def explain(job_graph: JobGraph) -> str:
    """The plan as text of some lines, ending in a newline."""
    return "\n".join(_lines(job_graph)) + "\n"


def _lines(job_graph: JobGraph) -> Iterator[str]:
    mode = "batch" if job_graph.batch_mode else "streaming"
    stages, operators = len(job_graph.stages), len(job_graph.nodes)
    yield (
        f"Job '{job_graph.job_name}' ({mode}): {_count(operators, 'operator')} "
        f"in {_count(stages, 'stage')}"
    )
    width = max(len(_title(node)) for node in job_graph.nodes.values())
    for stage in job_graph.stages:
        yield ""
        yield f"Stage {stage.level}, parallelism {stage.parallelism}"
        for number in stage.nodes:
            node = job_graph.nodes[number]
            yield f"  {_title(node):<{width}}  {node.location}".rstrip()
            inputs = job_graph.inputs(number)
            numbered = any(edge.input_index for edge in inputs)
            for edge in inputs:
                which = f"input {edge.input_index + 1} " if numbered else ""
                yield f"        {which}<- {_source(job_graph, edge)}"
            yield f"        uid {node.uid}"
            if node.kind != "sink":
                yield f"        type {_short(str(node.output_type))}"
            for tag in sorted(node.side_types):
                yield f"        side output '{tag}' type {_short(str(node.side_types[tag]))}"
    yield ""
    yield "Guarantees"
    for each in sink_guarantees(job_graph):
        yield f"  [{each.node}] {job_graph.nodes[each.node].name}: {guarantee_words(each)}"


def guarantee_words(guarantee: SinkGuarantee) -> str:
    """A guarantee with its reasons, such as "at-least-once (the sink may ...)"."""
    why = (*guarantee.reasons, *guarantee.notes)
    return guarantee.guarantee + (f" ({'; '.join(why)})" if why else "")


def edge_words(edge: StreamEdge) -> str:
    """How records travel along an edge, such as "hash, pre-aggregated, side output 'late'"."""
    words = [edge.partitioning.value]
    if edge.combiner is not None:
        words.append("pre-aggregated")
    if edge.tag is not None:
        words.append(f"side output '{edge.tag}'")
    return ", ".join(words)


def _source(job_graph: JobGraph, edge: StreamEdge) -> str:
    return f"[{edge.source}] {job_graph.nodes[edge.source].name}: {edge_words(edge)}"


def _title(node: StreamNode) -> str:
    return f"[{node.id}] {node.name} x{node.parallelism}"


def _short(text: str) -> str:
    return text if len(text) <= _TYPE_WIDTH else text[: _TYPE_WIDTH - 3] + "..."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
