"""What a job must be like for its tasks to live on.

What it is: the check that an engine makes before anything is written, and that ``millstream plan``
can ask for its reasons.

What it is not: about machines, cores and clusters, which is for whoever starts the slots.

Read next: ``engines/pipelined/run_loop.py``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from millstream.configuration import options
from millstream.errors import ProgramError
from millstream.graph.unaligned import is_unaligned, why_not_unaligned
from millstream.graph.validation import connector_label

if TYPE_CHECKING:
    from millstream.graph.model import JobGraph

__all__ = ["require_pipelined", "why_not_pipelined"]

_LOG: Final = logging.getLogger("millstream")


def why_not_pipelined(graph: JobGraph) -> str | None:
    """Why a job cannot run with tasks that live on, and what to do; None if it can."""
    for node in graph.nodes.values():
        if node.spark_index is not None:
            return (
                f"{connector_label(node)} is a Spark DataFrame: Spark reads it by micro-batches,"
                " and hands no record to a task that lives on. Set millstream.execution: epochs,"
                " or read what it reads with a source of Millstream's (docs/connectors.md)"
            )
    return why_not_unaligned(graph)


def require_pipelined(graph: JobGraph) -> None:
    """Check that a job can run with tasks that live on.

    Raises:
        ProgramError: it cannot; says why.
    """
    reason = why_not_pipelined(graph)
    if reason is not None:
        raise ProgramError(reason)
    configuration = graph.configuration
    if configuration.get(options.UNALIGNED_CHECKPOINTS) and not is_unaligned(configuration):
        # As in Flink.
        _LOG.warning(
            "%s has no effect: barriers overtake with %s: EXACTLY_ONCE only",
            options.UNALIGNED_CHECKPOINTS.key,
            options.CHECKPOINTING_MODE.key,
        )
