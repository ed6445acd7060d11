"""Which sources are read to their end before others begin, in BATCH mode.

What it is: an operator with an input that has to be there whole before the other comes says so
(``first_input`` in ``contracts/operator.py``).  What leads to that input is bounded, so its sources
are read first; nothing is held back anywhere.

What it is not: the reading (``execution/planner.py``).

Read next: ``execution/planned_source.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.contracts.operator import first_input
from millstream.errors import ProgramError

if TYPE_CHECKING:
    from millstream.graph.model import JobGraph, StreamNode

__all__ = ["sources_before"]


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
