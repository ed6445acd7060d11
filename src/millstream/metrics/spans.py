"""Spans of a job: its checkpoints, restarts and recoveries, under Flink's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.contracts.metrics import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.checkpoint.model import Manifest, TaskAck

#: Classes of Flink that make such spans.
_CHECKPOINTS: Final = "org.apache.flink.runtime.checkpoint.CheckpointStatsTracker"
_STARTS: Final = "org.apache.flink.runtime.jobmaster.JobMaster"


def checkpoint_span(
    job: Mapping[str, str], manifest: Manifest, acks: Iterable[TaskAck], now: int, sizes: list[int]
) -> Span:
    """Make the span of a checkpoint that is committed at ``now``.

    Its children are the alignment of the barriers of each long-running task, the time until all was
    uploaded and the manifest published, and the commit of the sinks.

    Args:
        job: variables of the job.
        manifest: of the checkpoint.
        acks: of its tasks.
        now: milliseconds since 1970.
        sizes: bytes that it uploaded, and of all its state.
    """
    started, published = manifest.started, max(manifest.started, manifest.published)
    children = [
        Span(
            _CHECKPOINTS,
            "Checkpoint_Alignment",
            each.barrier,
            each.barrier + int(1000 * each.aligning),
            {"task": each.stage, "subtask_index": each.subtask},
        )
        for each in acks
        if each.barrier is not None
    ]
    names = ("Checkpoint_Snapshot", started, published), ("Checkpoint_Commit", published, now)
    children += [Span(_CHECKPOINTS, name, start, max(start, end), {}) for name, start, end in names]
    attributes: dict[str, str | int | float] = {
        **job,
        "checkpointId": manifest.epoch,
        "checkpointedSize": sizes[0],
        "fullSize": sizes[1],
        "checkpointStatus": "COMPLETED",
    }
    end = max(started, now)
    return Span(_CHECKPOINTS, "Checkpoint", started, end, attributes, tuple(children))


def failed_checkpoint_span(job: Mapping[str, str], now: int) -> Span:
    """Make the span of a checkpoint that was aborted at ``now``; when it began is not known."""
    attributes = {**job, "checkpointStatus": "FAILED"}
    return Span(_CHECKPOINTS, "Checkpoint", now, now, attributes)


def start_span(name: str, job: Mapping[str, str], start: int, end: int, checkpoint: int) -> Span:
    """Make the span of a recovery (``JobInitialization``) or a restart.

    Args:
        name: its name.
        job: variables of the job.
        start: milliseconds since 1970, when it began.
        end: and when it had ended.
        checkpoint: the id of the checkpoint that the job continues from; -1: none.
    """
    attributes: dict[str, str | int | float] = {**job, "checkpointId": checkpoint}
    return Span(_STARTS, name, start, max(start, end), attributes)
