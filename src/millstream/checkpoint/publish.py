"""Step 2 of a checkpoint: the manifest, made of the acknowledgements and the last manifest.

A pure function.  What an epoch did not touch (a split that was not read, an operator whose stage
had nothing to do) is carried forward, so that every manifest is complete.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from millstream.checkpoint.model import Manifest, OperatorAck, SplitState
from millstream.contracts.metrics import added, all_together
from millstream.errors import InconsistentEpochError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.checkpoint.model import OperatorRecord, TaskAck
    from millstream.contracts.metrics import Measure


#: Flink's name of the counter of records read by a source.
_RECORDS_IN = "numRecordsIn"


@dataclass(frozen=True, slots=True)
class EpochMetadata:
    """What the driver knows of an epoch beside the acknowledgements."""

    epoch: int
    #: Milliseconds since 1970.
    started: int
    #: The source planner's position after the epoch (JSON).
    offsets: Mapping[str, object]
    #: Stage level -> parallelism.
    stages: Mapping[int, int]
    max_parallelism: int
    #: The bounded job is over.
    final: bool = False
    #: Operator uid -> its record; what the last manifest has of other operators is dropped.
    #: Empty: nothing is known of the program, and all is carried forward.
    program: Mapping[str, OperatorRecord] = field(default_factory=dict)
    #: Filled in by the coordinator.
    generation: int = 0
    job_id: str = ""
    published: int = 0
    #: Requests of the driver to object stores since the last epoch, by kind, and bytes.
    requests: Mapping[str, int] = field(default_factory=dict)


def make_manifest(
    metadata: EpochMetadata, acks: Sequence[TaskAck], last: Manifest | None
) -> Manifest:
    """The manifest of an epoch.

    Raises:
        InconsistentEpochError: two tasks acknowledged the same operator subtask or split.
    """
    last = _of_program(metadata, last)
    splits, read = _splits(metadata, acks, last)
    frames = [task.in_flight for task in acks if task.in_flight is not None]
    in_flight = sorted(frames, key=lambda each: (each.stage, each.subtask))
    return Manifest(
        epoch=metadata.epoch,
        generation=metadata.generation,
        job_id=metadata.job_id,
        started=metadata.started,
        published=metadata.published,
        # Through JSON, so that it is the same whether kept in memory or read after a crash.
        offsets=json.loads(json.dumps(dict(metadata.offsets))),
        operators=_operators(metadata, acks, last),
        splits=splits,
        stages=dict(metadata.stages),
        max_parallelism=metadata.max_parallelism,
        final=metadata.final,
        totals=_totals(acks, read, last),
        measures=_measures(metadata, acks, last),
        program=_program(metadata, acks, last),
        # Never carried forward: this epoch has processed what was in flight before it.
        in_flight=in_flight,
        requests=_requests(metadata, acks),
    )


def _requests(metadata: EpochMetadata, acks: Sequence[TaskAck]) -> dict[str, int]:
    """Add up what driver and tasks have requested of object stores."""
    total = Counter(metadata.requests)
    for task in acks:
        total.update(task.requests)
    return dict(sorted(total.items()))


def _of_program(metadata: EpochMetadata, last: Manifest | None) -> Manifest | None:
    """The last manifest without what belongs to operators that the program does not have."""
    if last is None or not metadata.program:
        return last
    known = metadata.program.keys()
    return replace(
        last,
        operators={uid: acks for uid, acks in last.operators.items() if uid in known},
        splits={uid: splits for uid, splits in last.splits.items() if uid in known},
        program={uid: record for uid, record in last.program.items() if uid in known},
    )


def _program(
    metadata: EpochMetadata, acks: Sequence[TaskAck], last: Manifest | None
) -> dict[str, OperatorRecord]:
    """Return what is known of the program, with the states and keys that its functions have met."""
    states: dict[str, dict[str, str]] = {}
    keys: dict[str, set[str]] = {}
    if last is not None:
        states = {uid: dict(record.states) for uid, record in last.program.items()}
        keys = {uid: set(record.key_types) for uid, record in last.program.items()}
    for task in acks:
        for ack in task.operators:
            states.setdefault(ack.uid, {}).update(ack.states)
            keys.setdefault(ack.uid, set()).update(ack.key_types)
    return {
        uid: replace(record, states=states.get(uid, {}), key_types=tuple(sorted(keys.get(uid, ()))))
        for uid, record in metadata.program.items()
    }


def _operators(
    metadata: EpochMetadata, acks: Sequence[TaskAck], last: Manifest | None
) -> dict[str, list[OperatorAck]]:
    found: dict[str, dict[int, OperatorAck]] = {}
    for task in acks:
        for ack in task.operators:
            subtasks = found.setdefault(ack.uid, {})
            if ack.subtask in subtasks:
                raise _twice(metadata, f"operator {ack.uid} subtask {ack.subtask}")
            subtasks[ack.subtask] = ack
    if last is not None:
        for uid, kept in last.operators.items():
            if uid in found and _is_whole(metadata, last):
                continue  # the new subtasks have taken over the state of the old ones
            subtasks = found.setdefault(uid, {})
            for ack in kept:
                if ack.subtask not in subtasks:
                    # Its output belongs to the epoch that made it: that one was committed.
                    subtasks[ack.subtask] = replace(ack, committables=[], metrics={})
    return {
        uid: [subtasks[index] for index in sorted(subtasks)]
        for uid, subtasks in sorted(found.items())
    }


def _is_whole(metadata: EpochMetadata, last: Manifest) -> bool:
    """Return whether an operator that acknowledged at all has done so with all its subtasks.

    Every task of the program votes in every epoch.  A stage is as wide as its widest operator, so
    it may be as wide as before though one of its operators is not.
    """
    return bool(metadata.program) or last.stages != metadata.stages


def _splits(
    metadata: EpochMetadata, acks: Sequence[TaskAck], last: Manifest | None
) -> tuple[dict[str, dict[str, SplitState]], dict[str, int]]:
    """Splits after the epoch, finished ones left out, and records read per source."""
    splits: dict[str, dict[str, SplitState]] = {}
    if last is not None:
        splits = {
            uid: {
                key: replace(split, records=0) if split.records else split
                for key, split in old.items()
            }
            for uid, old in last.splits.items()
        }
    read: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    for task in acks:
        for split in task.splits:
            key = (split.source_uid, split.split_id)
            if key in seen:
                raise _twice(metadata, f"split {split.split_id} of source {split.source_uid}")
            seen.add(key)
            read[split.source_uid] = read.get(split.source_uid, 0) + split.records
            source = splits.setdefault(split.source_uid, {})
            if split.finished:
                source.pop(split.split_id, None)
            else:
                source[split.split_id] = split
    return splits, read


def _totals(
    acks: Sequence[TaskAck], read: Mapping[str, int], last: Manifest | None
) -> dict[str, int]:
    totals = dict(last.totals) if last is not None else {}
    counted: dict[str, int] = {}
    for task in acks:
        for ack in task.operators:
            for metric, value in ack.metrics.items():
                if isinstance(value, int):
                    name = f"{ack.uid}.{metric}"
                    counted[name] = counted.get(name, 0) + value
    for uid, records in read.items():
        counted.setdefault(f"{uid}.{_RECORDS_IN}", records)
    for name, value in counted.items():
        totals[name] = totals.get(name, 0) + value
    return totals


def _measures(
    metadata: EpochMetadata, acks: Sequence[TaskAck], last: Manifest | None
) -> dict[str, Measure]:
    """Gauges, meters and distributions after the epoch."""
    measures = dict(last.measures) if last is not None else {}
    if last is not None and _are_rescaled(metadata, acks, last):
        # The values of subtasks that there may not be any more.
        measures = {name: each for name, each in measures.items() if each["kind"] != "gauge"}
    for task in acks:
        for ack in task.operators:
            for metric, value in ack.metrics.items():
                if not isinstance(value, int):
                    name = f"{ack.uid}.{metric}"
                    before = measures.get(name)
                    measures[name] = added(before, value, ack.subtask, metadata.started)
    return measures


def _are_rescaled(metadata: EpochMetadata, acks: Sequence[TaskAck], last: Manifest) -> bool:
    """Whether a stage, or an operator within one, has another number of subtasks than before."""
    if last.stages != metadata.stages or not metadata.program:
        return last.stages != metadata.stages
    found = Counter(ack.uid for task in acks for ack in task.operators)
    return any(len(kept) != found.get(uid, len(kept)) for uid, kept in last.operators.items())


def _twice(metadata: EpochMetadata, what: str) -> InconsistentEpochError:
    message = (
        f"checkpoint {metadata.epoch} cannot be published: two tasks acknowledged {what}."
        " It has to be run again."
    )
    return InconsistentEpochError(message)


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
        """Note that a checkpoint was aborted: it will never be published."""
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
    """Return what a later checkpoint does not say again: no state, no place to resume from.

    Splits are in it, for one that is read to its end is not in the next acknowledgement.
    """
    operators = [replace(operator, state=None, operator_states={}) for operator in ack.operators]
    return replace(ack, operators=operators, earlier=[], in_flight=None)


def _operator_together(earlier: OperatorAck, later: OperatorAck) -> OperatorAck:
    return replace(
        later,
        committables=[*earlier.committables, *later.committables],
        metrics=all_together(earlier.metrics, later.metrics),
        states={**earlier.states, **later.states},
        key_types=sorted({*earlier.key_types, *later.key_types}),
    )
