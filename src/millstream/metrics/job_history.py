"""The history of a job on its driver: statuses, failures and checkpoints, for the REST API.

Everything is bounded: a job runs for months.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from millstream.configuration.redaction import redacted_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.checkpoint.model import Manifest, OperatorAck, TaskAck

#: Characters of a failure that are kept: those of an engine may have thousands of lines.
_LONGEST_TRACE: Final = 20_000
_TERMINAL: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a job, or of a region of it."""

    #: Milliseconds since 1970.
    time: int
    #: The class of the error.
    name: str
    #: Its message first, and where it was raised; without secrets.
    trace: str
    #: What failed, if that is known: an operator, and its line of the program.
    task: str = ""


@dataclass(slots=True)
class OperatorCheckpoint:
    """The part of a checkpoint that one operator has in one subtask."""

    subtask: int
    #: Bytes of all its state, and of what this checkpoint has uploaded.
    state_size: int
    uploaded: int


@dataclass(slots=True)
class SubtaskCheckpoint:
    """When a subtask acknowledged a checkpoint."""

    #: Milliseconds since 1970.
    acknowledged: int
    #: Milliseconds that it was at work for the checkpoint, where its tasks end with it.
    seconds: float = 0.0
    #: Bytes of frames that its barrier overtook.
    persisted: int = 0


@dataclass(slots=True)
class CheckpointRecord:
    """A checkpoint: in progress, completed or failed."""

    id: int
    #: Milliseconds since 1970.
    triggered: int
    #: "IN_PROGRESS", "COMPLETED" or "FAILED".
    status: str = "IN_PROGRESS"
    #: Milliseconds since 1970; -1: it is in progress.
    ended: int = -1
    is_unaligned: bool = False
    #: Where the savepoint is that was copied from it; empty: there is none.
    savepoint: str = ""
    savepoint_format: str = ""
    failure: str = ""
    #: By uid.
    operators: dict[str, list[OperatorCheckpoint]] = field(default_factory=dict)
    #: (uid of an operator, subtask) -> the acknowledgement of its task.
    subtasks: dict[tuple[str, int], SubtaskCheckpoint] = field(default_factory=dict)
    #: Acknowledgements so far.
    acknowledged: int = 0

    @property
    def state_size(self) -> int:
        """Return the bytes of all state in it."""
        return sum(each.state_size for many in self.operators.values() for each in many)

    @property
    def uploaded(self) -> int:
        """Return the bytes that it uploaded."""
        return sum(each.uploaded for many in self.operators.values() for each in many)

    @property
    def persisted(self) -> int:
        """Return the bytes of frames in flight."""
        return sum(each.persisted for each in self.subtasks.values())


@dataclass(frozen=True, slots=True)
class Restored:
    """The checkpoint that a run continued from."""

    id: int
    #: Milliseconds since 1970.
    time: int
    is_savepoint: bool
    path: str


@dataclass(frozen=True, slots=True)
class CheckpointHistory:
    """A view of the checkpoints at one moment."""

    #: The newest first.
    records: tuple[CheckpointRecord, ...] = ()
    completed: int = 0
    failed: int = 0
    in_progress: int = 0
    restored: int = 0
    last_completed: CheckpointRecord | None = None
    last_failed: CheckpointRecord | None = None
    last_savepoint: CheckpointRecord | None = None
    last_restored: Restored | None = None


def _now() -> int:
    return time.time_ns() // 1_000_000


class JobHistory:
    """The history of one job.

    Contract:
      1. Everything may be called from any thread.  (a lock)
      2. What is given out does not change any more.  (copies)

    Args:
        checkpoints: how many of these are kept.
        failures: how many of these.
        milliseconds: the time since 1970.
    """

    def __init__(
        self, checkpoints: int = 10, failures: int = 16, milliseconds: Callable[[], int] = _now
    ) -> None:
        self._lock = threading.Lock()
        self._milliseconds = milliseconds
        self.started = milliseconds()
        #: Status -> when the job had it last.
        self._times: dict[str, int] = {"CREATED": self.started}
        self._failures: deque[Failure] = deque(maxlen=failures)
        self._failure_count = 0
        self._running: dict[int, CheckpointRecord] = {}
        self._ended: deque[CheckpointRecord] = deque(maxlen=checkpoints)
        self._view = CheckpointHistory()
        #: Directories and formats of savepoints whose checkpoint is about to be noted.
        self._early: dict[int, tuple[str, str]] = {}

    # -- statuses ------------------------------------------------------------------------------

    def moved(self, status: str) -> None:
        """Note that the job has another status."""
        with self._lock:
            self._times[status] = self._milliseconds()
            if status in _TERMINAL:
                self._running.clear()

    def status_times(self) -> dict[str, int]:
        """Return when the job had each status last, in milliseconds since 1970."""
        with self._lock:
            return dict(self._times)

    @property
    def ended(self) -> int:
        """Return when the job ended, in milliseconds since 1970; -1: it has not."""
        times = self.status_times()
        return max((times[each] for each in _TERMINAL if each in times), default=-1)

    # -- failures ------------------------------------------------------------------------------

    def failed(self, error: BaseException, words: str) -> None:
        """Note a failure.

        Args:
            error: what the tasks raised.
            words: its message as the log has it.
        """
        trace = "".join(traceback.format_exception(error))
        if words and words not in trace:
            trace = f"{words}\n{trace}"
        failure = Failure(
            self._milliseconds(),
            f"{type(error).__module__}.{type(error).__qualname__}",
            redacted_text(trace)[:_LONGEST_TRACE],
            redacted_text(words).partition("\n")[0][:_LONGEST_TRACE],
        )
        with self._lock:
            self._failures.append(failure)
            self._failure_count += 1

    def failures(self) -> tuple[list[Failure], bool]:
        """Return the last failures, the newest first, and whether there were more."""
        with self._lock:
            kept = list(self._failures)
            return kept[::-1], self._failure_count > len(kept)

    # -- checkpoints ---------------------------------------------------------------------------

    def checkpoint_triggered(self, checkpoint: int, *, is_unaligned: bool = False) -> None:
        """Note that a checkpoint was triggered, or a micro-batch began."""
        with self._lock:
            now = self._milliseconds()
            self._running[checkpoint] = CheckpointRecord(checkpoint, now, is_unaligned=is_unaligned)

    def acknowledged(self, ack: TaskAck) -> None:
        """Note that a task has acknowledged a checkpoint."""
        with self._lock:
            record = self._running.get(ack.epoch)
            if record is not None:
                _add(record, ack, self._milliseconds())

    def checkpoint_failed(self, checkpoint: int | None, reason: str) -> None:
        """Note that a checkpoint was aborted; None: all that are in progress."""
        with self._lock:
            ids = list(self._running) if checkpoint is None else [checkpoint]
            for each in ids:
                record = self._running.pop(each, None)
                if record is None:
                    continue
                record.status, record.ended = "FAILED", self._milliseconds()
                record.failure = redacted_text(reason)[:_LONGEST_TRACE]
                self._ended.append(record)
                self._view = replace(self._view, failed=self._view.failed + 1, last_failed=record)

    def checkpoint_completed(self, manifest: Manifest, acks: Iterable[TaskAck]) -> None:
        """Note that a checkpoint is committed."""
        with self._lock:
            record = self._running.pop(manifest.epoch, None) or CheckpointRecord(
                manifest.epoch, manifest.started
            )
            for ack in acks:
                _add(record, ack, manifest.published)
            record.operators = {
                uid: [_operator(each) for each in many] for uid, many in manifest.operators.items()
            }
            record.status, record.ended = "COMPLETED", max(manifest.published, record.triggered)
            self._ended.append(record)
            self._view = replace(
                self._view, completed=self._view.completed + 1, last_completed=record
            )
            if record.id in self._early:
                self._note_savepoint(record, *self._early.pop(record.id))

    def savepoint_written(self, checkpoint: int, path: str, kind: str) -> None:
        """Note that a checkpoint was copied as a savepoint."""
        with self._lock:
            kept = (*self._ended, self._view.last_completed)
            found = [each for each in kept if each is not None and each.id == checkpoint]
            if found:
                self._note_savepoint(found[-1], path, kind)
            else:
                self._early[checkpoint] = (path, kind)

    def _note_savepoint(self, record: CheckpointRecord, path: str, kind: str) -> None:
        record.savepoint, record.savepoint_format = path, kind
        self._view = replace(self._view, last_savepoint=record)

    def recovered(self, checkpoint: int, path: str, *, is_savepoint: bool) -> None:
        """Note that a run continues from a checkpoint."""
        with self._lock:
            restored = Restored(checkpoint, self._milliseconds(), is_savepoint, path)
            self._view = replace(
                self._view, restored=self._view.restored + 1, last_restored=restored
            )

    def checkpoints(self) -> CheckpointHistory:
        """Return the checkpoints that are kept."""
        with self._lock:
            running = [_copy(each) for each in self._running.values()]
            records = sorted([*self._ended, *running], key=lambda each: each.id, reverse=True)
            return replace(self._view, records=tuple(records), in_progress=len(running))


def _copy(record: CheckpointRecord) -> CheckpointRecord:
    return replace(record, operators=dict(record.operators), subtasks=dict(record.subtasks))


def _add(record: CheckpointRecord, ack: TaskAck, now: int) -> None:
    """Note an acknowledgement, unless it was noted when it came."""
    uids = [each.uid for each in ack.operators] or [each.source_uid for each in ack.splits]
    known = {(uid, ack.subtask) for uid in uids} & record.subtasks.keys()
    if known:
        return
    persisted = 0 if ack.in_flight is None else ack.in_flight.file["size"]
    for uid in uids:
        # What is in flight lies before the first operator of the task.
        record.subtasks[uid, ack.subtask] = SubtaskCheckpoint(now, ack.seconds, persisted)
        persisted = 0
    record.acknowledged += 1


def _operator(ack: OperatorAck) -> OperatorCheckpoint:
    files = list(ack.files())
    own = "" if ack.state is None else ack.state["id"]
    uploaded = sum(each["size"] for each in files if own and own in each["remote"])
    operator_state = sum(
        handle.file["size"] for handle in ack.operator_states.values() if handle.file is not None
    )
    size = sum(each["size"] for each in files)
    return OperatorCheckpoint(ack.subtask, size, uploaded + operator_state)
