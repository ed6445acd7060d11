"""What a job must be like for its tasks to live on.

What it is: the check that an engine makes before anything is written, and that ``millstream plan``
can ask for its reasons.

What it is not: about machines, cores and clusters, which is for whoever starts the slots.

Read next: ``engines/pipelined/run_loop.py``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration import options
from millstream.errors import ProgramError
from millstream.graph.validation import connector_label, is_unaligned, why_not_unaligned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.configuration.configuration import Configuration
    from millstream.configuration.option import ConfigOption
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
                " or read what it reads with a source of Millstream's "
                "(docs/how-to/custom-connectors.md)"
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
    for option, reason in _without_effect(graph.configuration):
        _LOG.warning("%s has no effect: %s", option.key, reason)


def _without_effect(given: Configuration) -> Iterator[tuple[ConfigOption[Any], str]]:
    """Options that were set to what does nothing in this job, and why."""
    for option, reason in (
        (options.TARGET_EPOCH_DURATION, f"see {options.CHECKPOINTING_INTERVAL.key}"),
        (options.TICK_INTERVAL, "tasks look at the clock every few milliseconds"),
    ):
        if given.get(option) != option.default:
            yield option, f"tasks live on, there are no epochs; {reason}"
    if not given.get(options.UNALIGNED_CHECKPOINTS):
        overtake = f"barriers overtake with {options.UNALIGNED_CHECKPOINTS.key} only"
        if given.get(options.ALIGNED_CHECKPOINT_TIMEOUT):
            yield options.ALIGNED_CHECKPOINT_TIMEOUT, overtake
        if given.get(options.FORCE_UNALIGNED_CHECKPOINTS):
            yield options.FORCE_UNALIGNED_CHECKPOINTS, overtake
    elif not is_unaligned(given):
        # As in Flink.
        exactly_once = f"{options.CHECKPOINTING_MODE.key}: EXACTLY_ONCE"
        yield options.UNALIGNED_CHECKPOINTS, f"barriers overtake with {exactly_once} only"
    if (
        given.get(options.CHECKPOINTING_MIN_PAUSE)
        and given.get(options.MAX_CONCURRENT_CHECKPOINTS) > 1
    ):
        # As in Flink.
        pause = options.CHECKPOINTING_MIN_PAUSE.key
        yield options.MAX_CONCURRENT_CHECKPOINTS, f"{pause} leaves one checkpoint at a time"
    if given.contains(options.BUFFER_TIMEOUT) and not given.get(options.BUFFER_TIMEOUT_ENABLED):
        yield options.BUFFER_TIMEOUT, f"{options.BUFFER_TIMEOUT_ENABLED.key} is false"
