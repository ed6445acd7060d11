"""Step 3a of an epoch: all acknowledgements must be in and speak of the same records.

What it is: a pure function from the acknowledgements that reached the driver to one per task.

What it is not: the making of the manifest, which is in ``checkpoint/publish.py``.

Read next: ``checkpoint/publish.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InconsistentEpochError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from millstream.checkpoint.model import TaskAck

__all__ = ["select_acks"]

#: (stage, subtask).
TaskId = tuple[int, int]


def select_acks(
    epoch: int, acks: Iterable[TaskAck], expected: AbstractSet[TaskId]
) -> list[TaskAck]:
    """The ack that counts for each expected task, in order of stage and subtask.

    Cases for one task:

    1. One ack, and whoever read the task's frames read those of this attempt: it counts.
    2. The same attempt's ack several times (it travelled to several consumers): it counts once.
    3. Acks of several attempts, and all consumers read one of them: that one counts; the
       output and state of the others are deleted as orphans.
    4. Consumers read different attempts, or one that sent no ack: two attempts need not have made
       the same records, so part of the epoch is built on records that the rest never saw.
       The epoch is refused and run again.
    5. No ack: the task's output and state may be lost.  Refused.

    What can never happen: an ack counts whose records nobody, or only some, have read.

    Args:
        epoch: the epoch that is being completed.
        acks: what the driver received, in any order, losers of retried tasks included.
        expected: (stage, subtask) of every task of the epoch.

    Raises:
        InconsistentEpochError: case 4 or 5, or an ack of another epoch or an unknown task.
    """
    candidates: dict[TaskId, dict[str, TaskAck]] = {task: {} for task in expected}
    for ack in acks:
        if ack.epoch != epoch:
            raise _refused(epoch, f"{_name(ack)} sent an acknowledgement of epoch {ack.epoch}")
        if (ack.stage, ack.subtask) not in candidates:
            raise _refused(epoch, f"{_name(ack)} is not a task of this epoch")
        candidates[ack.stage, ack.subtask][ack.attempt] = ack
    missing = sorted(task for task, attempts in candidates.items() if not attempts)
    if missing:
        tasks = ", ".join(f"stage {stage} subtask {subtask}" for stage, subtask in missing)
        raise _refused(epoch, f"no acknowledgement came from {tasks}")
    # Consumers are in later stages than their producers, so those are settled first.
    read: dict[TaskId, tuple[str, TaskAck]] = {}
    chosen: list[TaskAck] = []
    for task in sorted(candidates, reverse=True):
        ack = _ack_that_counts(epoch, candidates[task], read.get(task))
        _add_consumed(epoch, ack, candidates, read)
        chosen.append(ack)
    chosen.reverse()
    return chosen


def _ack_that_counts(
    epoch: int, attempts: dict[str, TaskAck], read: tuple[str, TaskAck] | None
) -> TaskAck:
    if read is None:
        if len(attempts) == 1:
            return next(iter(attempts.values()))
        some = next(iter(attempts.values()))
        raise _refused(
            epoch,
            f"{len(attempts)} attempts of stage {some.stage} subtask {some.subtask} sent an"
            " acknowledgement and no consumer says which of them counts",
        )
    attempt, consumer = read
    ack = attempts.get(attempt)
    if ack is None:
        some = next(iter(attempts.values()))
        raise _refused(
            epoch,
            f"{_name(consumer)} read stage {some.stage} subtask {some.subtask} attempt {attempt},"
            f" which sent no acknowledgement (those that did: {', '.join(sorted(attempts))})",
        )
    return ack


def _add_consumed(
    epoch: int,
    ack: TaskAck,
    candidates: dict[TaskId, dict[str, TaskAck]],
    read: dict[TaskId, tuple[str, TaskAck]],
) -> None:
    for stage, subtask, attempt in ack.consumed:
        producer = (stage, subtask)
        if producer not in candidates or stage >= ack.stage:
            raise _refused(
                epoch,
                f"{_name(ack)} read frames of stage {stage} subtask {subtask}, which is not a"
                " task before it",
            )
        known = read.setdefault(producer, (attempt, ack))
        if known[0] != attempt:
            raise _refused(
                epoch,
                f"{_name(ack)} read attempt {attempt} of stage {stage} subtask {subtask}, but"
                f" {_name(known[1])} read attempt {known[0]}",
            )


def _name(ack: TaskAck) -> str:
    return f"stage {ack.stage} subtask {ack.subtask} attempt {ack.attempt}"


def _refused(epoch: int, reason: str) -> InconsistentEpochError:
    message = f"epoch {epoch} cannot be published: {reason}. It has to be run again."
    return InconsistentEpochError(message)
