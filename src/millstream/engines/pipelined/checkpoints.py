"""The pending checkpoints of a pipelined run: triggers, acknowledgements, expiry."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.configuration import options
from millstream.configuration.options import CheckpointingMode
from millstream.errors import CheckpointExpiredError, EngineError
from millstream.graph.validation import is_unaligned
from millstream.runtime.pipelined.control import NEVER, Abandoned, TakeCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.checkpoint.publish import EpochMetadata
    from millstream.configuration.configuration import Configuration
    from millstream.engines.pipelined.control_server import ControlServer
    from millstream.execution.planned_source import Offset
    from millstream.execution.run import Run
    from millstream.execution.split_enumerator import SplitEnumerator


_LOG: Final = logging.getLogger("millstream")
#: Seconds between two checkpoints where the program does not say: how long exactly-once output
#: may wait to be seen, against a file per sink and a manifest each time.
DEFAULT_INTERVAL: Final = 1.0
_OR_ELSE: Final = f", or set {options.UNALIGNED_CHECKPOINTS.key}"


@dataclass(slots=True, eq=False)
class PendingCheckpoint:
    """A checkpoint that was triggered and is not committed."""

    message: TakeCheckpoint
    #: Monotonic seconds.
    triggered: float
    #: Seconds since the one before was triggered, or the run began: what it holds.
    span: float
    #: When it is aborted if not all is acknowledged.
    expires: float
    #: None follows it.
    is_last: bool = False
    #: It was triggered for a savepoint alone: the job does not fail with it.
    for_savepoint: bool = False
    #: (stage, subtask) -> what that task has acknowledged.
    acks: dict[tuple[int, int], TaskAck] = field(default_factory=dict)
    is_acknowledged: bool = False

    @property
    def epoch(self) -> int:
        """Its number."""
        return self.message.epoch


class Checkpoints:
    """The checkpoints of one run, from trigger to commit.

    Those that were triggered are acknowledged and committed in the order of their numbers.

    Args:
        configuration: the job's; read are ``execution.checkpointing.*``.
        tasks: (stage, subtask) of all tasks.
        first: the number of the first checkpoint.
        now: monotonic seconds.
        names: stage -> the operator that it begins with.
    """

    def __init__(
        self,
        configuration: Configuration,
        tasks: AbstractSet[tuple[int, int]],
        first: int,
        now: float,
        names: Mapping[int, str] | None = None,
    ) -> None:
        interval = configuration.get(options.CHECKPOINTING_INTERVAL) / 1000
        self._interval = interval or DEFAULT_INTERVAL
        self._min_pause = configuration.get(options.CHECKPOINTING_MIN_PAUSE) / 1000
        self._timeout = configuration.get(options.CHECKPOINTING_TIMEOUT) / 1000
        self._tolerated = configuration.get(options.TOLERABLE_FAILURES)
        # As in Flink, a pause after each leaves no room for two at a time.
        most = configuration.get(options.MAX_CONCURRENT_CHECKPOINTS)
        self._most = 1 if self._min_pause else most
        #: Milliseconds after which barriers overtake; None: they never do.
        self._patience = (
            configuration.get(options.ALIGNED_CHECKPOINT_TIMEOUT)
            if is_unaligned(configuration)
            else None
        )
        #: Barriers do not wait: they overtake, or block nothing.
        mode = CheckpointingMode[configuration.get(options.CHECKPOINTING_MODE)]
        self._overtakes = self._patience is not None or mode is not CheckpointingMode.EXACTLY_ONCE
        self._tasks = frozenset(tasks)
        self._names = names or {}
        #: The number of the next.
        self.next = first
        self._triggered = now
        self._committed = now - self._min_pause
        self._pending: list[PendingCheckpoint] = []
        #: Numbers of those that were aborted; tasks may still acknowledge them.
        self._failed: set[int] = set()
        self._failures = 0
        #: The last was triggered.
        self.is_over = False

    @property
    def pending(self) -> int:
        """Return how many are under way."""
        return len(self._pending)

    @property
    def has_room(self) -> bool:
        """Return whether another may be under way beside those that are."""
        return not self.is_over and len(self._pending) < self._most

    def begin(self, now: float) -> None:
        """Note that the tasks begin to work: the first is an interval later."""
        self._triggered = now

    def is_due(self, now: float) -> bool:
        """Return whether the next is to be triggered."""
        return (
            not self.is_over
            and len(self._pending) < self._most
            and now >= self._triggered + self._interval
            and now >= self._committed + self._min_pause
        )

    def trigger(
        self,
        now: float,
        time: int,
        *,
        final: bool = False,
        last: bool = False,
        overtakes: bool = False,
        aligned: bool = False,
    ) -> TakeCheckpoint:
        """Begin the next.

        Args:
            now: monotonic seconds.
            time: milliseconds since 1970.
            final: the input is over, and this is the last.
            last: this is the last, whether the input is over or not.
            overtakes: its barriers may overtake although it is the last.
            aligned: its barriers may not, for it is to be a savepoint.
        """
        self.is_over = final or last
        # As in savepoints, nothing is in flight in the last one.
        waits = aligned or (self.is_over and not overtakes)
        deadline = deadline_of(None if waits else self._patience, time)
        message = TakeCheckpoint(self.next, final=final, time=time, deadline=deadline)
        self.next += 1
        span = now - self._triggered
        expires = now + self._timeout
        self._pending.append(
            PendingCheckpoint(message, now, span, expires, self.is_over, for_savepoint=aligned)
        )
        self._triggered = now
        return message

    def acknowledge(self, ack: TaskAck) -> PendingCheckpoint | None:
        """Record what a task has acknowledged; the checkpoint, if that was the last of its tasks.

        Raises:
            EngineError: the checkpoint is not under way, or the task acknowledges it twice.
        """
        if ack.epoch in self._failed:
            return None
        task = (ack.stage, ack.subtask)
        found = next((each for each in self._pending if each.epoch == ack.epoch), None)
        if found is None or task not in self._tasks or task in found.acks:
            message = (
                f"subtask {ack.subtask} of stage {ack.stage} acknowledges checkpoint {ack.epoch},"
                f" which is not expected of it; under way are"
                f" {[each.epoch for each in self._pending]}"
            )
            raise EngineError(message)
        found.acks[task] = ack
        found.is_acknowledged = found.acks.keys() == self._tasks
        return found if found.is_acknowledged else None

    def committed(self, epoch: int, now: float) -> PendingCheckpoint:
        """Note that the oldest is published and committed, and return it."""
        oldest = self._pending.pop(0)
        if oldest.epoch != epoch:
            message = f"checkpoint {epoch} was committed ahead of {oldest.epoch}"
            raise EngineError(message)
        self._committed = now
        self._failures = 0
        self._failed = {number for number in self._failed if number > epoch}
        return oldest

    def expired(self, now: float) -> list[tuple[int, str]]:
        """The checkpoints that have taken too long and are aborted, and what to say of each.

        As in Flink, the tasks continue, and the next is triggered; so many in a row are tolerated.

        Raises:
            CheckpointExpiredError: one too many, or the last, after which there is none.
        """
        found = []
        for each in [each for each in self._pending if not each.is_acknowledged]:
            if now < each.expires:
                break
            missing = sorted(self._tasks - each.acks.keys())
            message = (
                f"checkpoint {each.epoch} was aborted: it took longer than"
                f" {options.CHECKPOINTING_TIMEOUT.key} ({self._timeout:g} s);"
                f" {self._describe_tasks(missing)} of {len(self._tasks)} did not acknowledge it."
                " Find the task that is slow or waits for something, or raise the option"
                f"{'' if self._overtakes or each.is_last else _OR_ELSE}"
            )
            self._fail(each, CheckpointExpiredError(message))
            found.append((each.epoch, f"{message} {self._describe_tolerance()}"))
        return found

    def declined(self, epoch: int, task: tuple[int, int], error: Exception) -> str | None:
        """Note that a task cannot make its part durable: the checkpoint is aborted.

        Tolerated as one that has expired.

        Returns:
            What to say of it; None: it was aborted before.

        Raises:
            Exception: ``error``: one too many, or the last, after which there is none.
            EngineError: the checkpoint is not under way.
        """
        if epoch in self._failed:
            return None
        found = next((each for each in self._pending if each.epoch == epoch), None)
        if found is None or task in found.acks:
            message = (
                f"{self._describe_tasks([task])} cannot have declined checkpoint {epoch}: {error}"
            )
            raise EngineError(message) from error
        self._fail(found, error)
        return (
            f"checkpoint {epoch} was aborted: {self._describe_tasks([task])} could not make state"
            f" durable: {error!r} {self._describe_tolerance()}"
        )

    def abort(self) -> list[int]:
        """Give up all that are not acknowledged, for some of the tasks are gone; returns which.

        As in Flink this says nothing of the checkpoints themselves: they do not count as failed.
        """
        gone = [each for each in self._pending if not each.is_acknowledged]
        for each in gone:
            self._let_go(each)
        return [each.epoch for each in gone]

    def _fail(self, checkpoint: PendingCheckpoint, error: Exception) -> None:
        """Give one up; raises ``error`` if that is one too many."""
        if not checkpoint.for_savepoint:
            self._failures += 1
            if checkpoint.is_last or self._failures > self._tolerated:
                raise error
        self._let_go(checkpoint)

    def _let_go(self, checkpoint: PendingCheckpoint) -> None:
        self._pending.remove(checkpoint)
        self._failed.add(checkpoint.epoch)

    def _describe_tasks(self, tasks: list[tuple[int, int]], most: int = 4) -> str:
        """As stage/subtask, and what stages begin with."""
        words = [f"{stage}/{subtask}" for stage, subtask in tasks[:most]]
        more = f" and {len(tasks) - most} more" if len(tasks) > most else ""
        stages = {stage: None for stage, _ in tasks[:most] if stage in self._names}
        names = "".join(f"; {stage}: {self._names[stage]!r}" for stage in stages)
        return f"tasks {', '.join(words)}{more} (stage/subtask{names})"

    def _describe_tolerance(self) -> str:
        return f"({self._failures} of {self._tolerated} in a row)"


def deadline_of(patience: int | None, time: int) -> int:
    """When the barriers of a checkpoint begin to overtake, in milliseconds since 1970.

    Args:
        patience: milliseconds that they wait; None: for ever.
        time: milliseconds since 1970, when it is triggered.
    """
    if patience is None:
        return NEVER
    return time + patience if patience else 0  # at once, whatever the clocks of slots say


class Triggers:
    """Triggers the checkpoints of a run, and gives them up."""

    def __init__(
        self,
        run: Run,
        checkpoints: Checkpoints,
        sources: SplitEnumerator,
        server: ControlServer,
        clock: Callable[[], int],
    ) -> None:
        self._run = run
        self._checkpoints = checkpoints
        self._sources = sources
        self._server = server
        self._clock = clock

    def trigger(
        self,
        now: float,
        *,
        final: bool = False,
        last: bool = False,
        overtakes: bool = False,
        aligned: bool = False,
    ) -> None:
        """Let barriers flow."""
        message = self._checkpoints.trigger(
            now, self._clock(), final=final, last=last, overtakes=overtakes, aligned=aligned
        )
        run = self._run
        if message.deadline == NEVER:
            run.job.savepoints.begun(message.epoch)
        # Before any task can write for it.
        run.coordinator.begin_epoch(
            run.metadata(_offset_to_come(message.epoch, final), message.time)
        )
        run.on_begun(message.epoch, message.deadline != NEVER)
        self._sources.triggered(message.epoch)
        self._server.broadcast(message)

    def give_up(self, epochs: Iterable[int], reason: str = "") -> None:
        """Forget checkpoints that were triggered; ``reason`` is why, unless they come again."""
        epochs = list(epochs)
        self._run.job.savepoints.given_up(epochs, reason)
        for epoch in epochs:
            self._run.coordinator.fail_epoch(epoch)
            self._run.on_aborted(epoch, reason)
            self._server.broadcast(Abandoned(epoch))

    def give_up_expired(self) -> None:
        """Forget those that have taken too long.

        Raises:
            CheckpointExpiredError: one too many, or the last.
        """
        for epoch, words in self._checkpoints.expired(time.monotonic()):
            _LOG.warning("%s", words)
            self.give_up([epoch], words)

    def give_up_all(self) -> None:
        """Forget all that not every task has acknowledged: some of the tasks are gone."""
        self.give_up(self._checkpoints.abort())


def _offset_to_come(epoch: int, final: bool) -> Offset:  # noqa: FBT001 - JSON
    """All that is known of an offset before the tasks have acknowledged it."""
    return {"epoch": epoch, "final": final}


_END: Final = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a checkpoint: its manifest, or the error."""

    epoch: int
    manifest: Manifest | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """The result of dropping what stopped tasks of a region have left in the sinks."""

    region: int
    attempt: int
    error: BaseException | None = None


class CommittingThread:
    """Completes the checkpoints of a run.

    Contract:
      1. From its first checkpoint until ``close`` has returned nobody else calls the coordinator.
         (run loop)
      2. What has ended is in ``ended`` before ``done`` is called; nothing is added to it once
         ``close`` has returned.  (here)
      3. Whoever has heard of an end takes it out of ``ended``: a job may have a million.
         (run loop)
    """

    def __init__(self, run: Run, done: Callable[[Committed | Dropped], None]) -> None:
        self._run = run
        self._done = done
        #: What became of the checkpoints of which nobody has heard yet, in order.
        self.ended: deque[Committed] = deque()
        self._waiting: queue.SimpleQueue[Callable[[], bool] | None] = queue.SimpleQueue()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._work, name="millstream-commit", daemon=True)
        self._thread.start()

    def complete(self, metadata: EpochMetadata, acks: list[TaskAck]) -> None:
        """Publish and commit a checkpoint, after those that wait; does not wait."""
        self._waiting.put(partial(self._complete, metadata, acks))

    def drop(self, sinks: frozenset[str], region: int, attempt: int) -> None:
        """Drop what the stopped tasks of a region have left, after what waits; does not wait."""
        self._waiting.put(partial(self._drop, sinks, region, attempt))

    def close(self) -> None:
        """Begin no other, and wait for the one at work: what is published is to be committed."""
        self._given_up.set()
        self._waiting.put(_END)
        self._thread.join()

    def _work(self) -> None:
        while (act := self._waiting.get()) is not _END and not self._given_up.is_set():
            if not act():
                return

    def _complete(self, metadata: EpochMetadata, acks: list[TaskAck]) -> bool:
        """Complete a checkpoint; whether that went well."""
        try:
            manifest = self._run.coordinator.complete_epoch(metadata, acks, self._run.tasks())
        except BaseException as error:  # noqa: BLE001 - the run's to raise
            event = Committed(metadata.epoch, error=error)
        else:
            event = Committed(metadata.epoch, manifest=manifest)
        self.ended.append(event)
        self._done(event)
        return event.error is None

    def _drop(self, sinks: frozenset[str], region: int, attempt: int) -> bool:
        try:
            self._run.coordinator.drop_output(sinks)
        except BaseException as error:  # noqa: BLE001 - the run's to raise
            self._done(Dropped(region, attempt, error))
            return False
        self._done(Dropped(region, attempt))
        return True
