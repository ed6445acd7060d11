"""What tasks that go on owe a checkpoint that is not published: kept, and sent with the next one.

What it is: committables and metrics count from one snapshot to the next (``Operator``, contract 6),
so those of a checkpoint that fails (it took longer than its timeout) are in no other.  The task
keeps them until it is told that the checkpoint is published, and every acknowledgement carries
those of the checkpoints before it that are not known to be (``TaskAck.earlier``); the driver adds
what no manifest has yet.  As in Flink, whose committers keep the committables of all checkpoints
until one of them, or a later one, is complete.

Cases for checkpoint N of a task, whose acknowledgement of N + 1 carries its part of N:

1. N was published, and the task has been told -> it carries nothing.
2. N was published, and the task has not been told -> the driver drops the part, by its number.
3. N failed, however: the acknowledgement never came, or could not be made for an upload failed, or
   it came and others' did not -> the part goes into N + 1.  Its files and transactions keep their
   names, which tell epoch N.
4. N + 1 fails, too -> N + 2 carries both.  Once the task is told that N and N + 1 were given up
   they are one part, N + 1's: however many fail in a row, acknowledgements do not grow by each.
5. The run ends before a later one is published -> nothing has them: all is read again, and what
   lies in the target is an orphan.

What can never happen: a part is in two manifests, or one that is not in a manifest is lost while
the run lives.

What it is not: state, of which a snapshot has all; nor a decision that a checkpoint has failed.

Read next: ``checkpoint/coordinator.py``.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.contracts.metrics import together

if TYPE_CHECKING:
    from millstream.checkpoint.model import OperatorAck, SplitState, TaskAck
    from millstream.contracts.metrics import MetricValue

__all__ = ["Unconfirmed", "with_earlier"]


class Unconfirmed:
    """What one task has acknowledged and does not know to be published.

    Contract:
      1. ``carrying`` is called for every checkpoint of the task, in order, also where it cannot be
         acknowledged.  (slot)
      2. ``confirm`` and ``abandon`` may come from another thread.  (a lock)
    """

    def __init__(self) -> None:
        """Begin with nothing, as after a restore: what is published is committed by then."""
        self._parts: deque[TaskAck] = deque()
        #: Epochs that will never be published: those of parts, and of parts to come.
        self._abandoned: set[int] = set()
        self._lock = threading.Lock()

    def carrying(self, ack: TaskAck) -> TaskAck:
        """Keep the task's part of a checkpoint.

        Args:
            ack: of the checkpoint, with all its state uploaded.

        Returns:
            The acknowledgement to send: with the parts that are not confirmed.
        """
        with self._lock:
            earlier = list(self._parts)
            self._parts.append(_part(ack))
            self._fold()
        return replace(ack, earlier=earlier)

    def abandon(self, epoch: int) -> None:
        """Take that a checkpoint was given up: it will never be published."""
        with self._lock:
            self._abandoned.add(epoch)
            self._fold()

    def _fold(self) -> None:
        """Make one part of those side by side that will never be published.

        None between them is: a manifest has both, or neither.
        """
        parts: deque[TaskAck] = deque()
        for part in self._parts:
            if parts and {parts[-1].epoch, part.epoch} <= self._abandoned:
                parts[-1] = with_earlier(replace(part, earlier=[parts[-1]]), published=-1)
            else:
                parts.append(part)
        self._parts = parts
        if parts:
            kept, last = {part.epoch for part in parts}, parts[-1].epoch
            self._abandoned = {each for each in self._abandoned if each in kept or each > last}

    def confirm(self, epoch: int) -> None:
        """Forget what checkpoint ``epoch`` and those before it have: it is published."""
        with self._lock:
            while self._parts and self._parts[0].epoch <= epoch:
                self._parts.popleft()


def with_earlier(ack: TaskAck, published: int) -> TaskAck:
    """An acknowledgement with the parts that it carries, as if their epochs were one with its own.

    Args:
        ack: of a task.
        published: the last epoch that is published; parts of it and of those before are dropped.
    """
    parts = [part for part in ack.earlier if part.epoch > published]
    if not parts:
        return replace(ack, earlier=[]) if ack.earlier else ack
    operators: dict[tuple[str, int], OperatorAck] = {}
    splits: dict[tuple[str, str], SplitState] = {}
    for part in (*parts, ack):
        for operator in part.operators:
            before = operators.get((operator.uid, operator.subtask))
            operators[operator.uid, operator.subtask] = (
                operator if before is None else _operator_together(before, operator)
            )
        for split in part.splits:
            old = splits.get((split.source_uid, split.split_id))
            splits[split.source_uid, split.split_id] = (
                split if old is None else replace(split, records=old.records + split.records)
            )
    return replace(
        ack, operators=list(operators.values()), splits=list(splits.values()), earlier=[]
    )


def _part(ack: TaskAck) -> TaskAck:
    """What a later checkpoint does not say anew: no state, no place to go on from.

    Splits are in it, for one that is read to its end is not in the next acknowledgement.
    """
    operators = [replace(operator, state=None, operator_states={}) for operator in ack.operators]
    return replace(ack, operators=operators, earlier=[], in_flight=None)


def _operator_together(earlier: OperatorAck, later: OperatorAck) -> OperatorAck:
    return replace(
        later,
        committables=[*earlier.committables, *later.committables],
        metrics=_metrics_together(earlier.metrics, later.metrics),
        states={**earlier.states, **later.states},
        key_types=sorted({*earlier.key_types, *later.key_types}),
    )


def _metrics_together(
    earlier: dict[str, MetricValue], later: dict[str, MetricValue]
) -> dict[str, MetricValue]:
    found = {**earlier, **later}
    for name in earlier.keys() & later.keys():
        found[name] = together(earlier[name], later[name])
    return found
