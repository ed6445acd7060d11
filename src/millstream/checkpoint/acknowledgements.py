"""Step 3a of an epoch: all votes must be in and speak of the same records.

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

__all__ = ["select_votes"]

#: (stage, subtask).
TaskId = tuple[int, int]


def select_votes(
    epoch: int, acks: Iterable[TaskAck], expected: AbstractSet[TaskId]
) -> list[TaskAck]:
    """The vote of each expected task, in order of stage and subtask.

    Cases for one task:

    1. One ack, and whoever read the task's frames read those of this attempt: it is the vote.
    2. The same attempt's ack several times (it travelled to several consumers): one vote.
    3. Acks of several attempts, and all consumers read one of them: that one is the vote; the
       output and state of the others are deleted as orphans.
    4. Consumers read different attempts, or one that sent no ack: two attempts need not have made
       the same records, so part of the epoch is built on records that the rest never saw.
       The epoch is refused and run again.
    5. No ack: the task's output and state may be lost.  Refused.

    What can never happen: a vote is chosen whose records nobody, or only some, have read.

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
    # Consumers are in later stages than their producers, so votes are settled from the end.
    read: dict[TaskId, tuple[str, TaskAck]] = {}
    votes: list[TaskAck] = []
    for task in sorted(candidates, reverse=True):
        vote = _vote(epoch, candidates[task], read.get(task))
        _note_consumed(epoch, vote, candidates, read)
        votes.append(vote)
    votes.reverse()
    return votes


def _vote(epoch: int, attempts: dict[str, TaskAck], read: tuple[str, TaskAck] | None) -> TaskAck:
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
    vote = attempts.get(attempt)
    if vote is None:
        some = next(iter(attempts.values()))
        raise _refused(
            epoch,
            f"{_name(consumer)} read stage {some.stage} subtask {some.subtask} attempt {attempt},"
            f" which sent no acknowledgement (those that did: {', '.join(sorted(attempts))})",
        )
    return vote


def _note_consumed(
    epoch: int,
    vote: TaskAck,
    candidates: dict[TaskId, dict[str, TaskAck]],
    read: dict[TaskId, tuple[str, TaskAck]],
) -> None:
    for stage, subtask, attempt in vote.consumed:
        producer = (stage, subtask)
        if producer not in candidates or stage >= vote.stage:
            raise _refused(
                epoch,
                f"{_name(vote)} read frames of stage {stage} subtask {subtask}, which is not a"
                " task before it",
            )
        known = read.setdefault(producer, (attempt, vote))
        if known[0] != attempt:
            raise _refused(
                epoch,
                f"{_name(vote)} read attempt {attempt} of stage {stage} subtask {subtask}, but"
                f" {_name(known[1])} read attempt {known[0]}",
            )


def _name(ack: TaskAck) -> str:
    return f"stage {ack.stage} subtask {ack.subtask} attempt {ack.attempt}"


def _refused(epoch: int, reason: str) -> InconsistentEpochError:
    message = f"epoch {epoch} cannot be published: {reason}. It has to be run again."
    return InconsistentEpochError(message)
