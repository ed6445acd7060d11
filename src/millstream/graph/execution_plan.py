"""The plan of a job as JSON, in the form that Flink's ``getExecutionPlan`` gives.

What it is: for programs; Flink's plan visualizer reads it as well.
What it is not: the plan for people, which is in ``graph/explain.py``.

Read next: ``graph/picture.py``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.graph.model import JobGraph, StreamEdge, StreamNode

__all__ = ["execution_plan"]

_PACTS = {"source": "Data Source", "sink": "Data Sink", "operator": "Operator"}


def execution_plan(job_graph: JobGraph) -> str:
    """The plan as JSON text: ``{"nodes": [{"id", "type", "pact", ..., "predecessors"}]}``."""
    nodes = [_node(job_graph, job_graph.nodes[number]) for number in sorted(job_graph.nodes)]
    return json.dumps({"nodes": nodes}, indent=2)


def _node(job_graph: JobGraph, node: StreamNode) -> dict[str, object]:
    described: dict[str, object] = {
        "id": node.id,
        "type": node.name,
        "pact": _PACTS[node.kind],
        "contents": node.name,
        "parallelism": node.parallelism,
        "uid": node.uid,
        "stage": job_graph.level(node.id),
        "location": node.location,
    }
    inputs = job_graph.inputs(node.id)
    if inputs:
        described["predecessors"] = [
            {
                "id": edge.source,
                "ship_strategy": edge.partitioning.name,
                "side": _side(edge, inputs),
            }
            | ({"side_output": edge.tag} if edge.tag is not None else {})
            for edge in inputs
        ]
    return described


def _side(edge: StreamEdge, inputs: list[StreamEdge]) -> str:
    """Flink's word for the input that an edge leads to; of a single input it says "second" too."""
    two = any(each.input_index for each in inputs)
    return "first" if two and edge.input_index == 0 else "second"
