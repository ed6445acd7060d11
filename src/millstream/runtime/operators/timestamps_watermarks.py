"""The timestamps-and-watermarks operator: at every source split, and in mid-stream.

It assigns event time and generates watermarks by the user's strategy.  The generator's attributes
are its checkpointed state.

Periodic watermarks and idleness are decided by a snapshot, which ends a micro-batch, and in
long-running tasks also by the clock in between (``due``).

Watermarks from upstream are not forwarded, except by ``WatermarkStrategy.preserve`` and the maximum
that ends a bounded input.

In BATCH mode that maximum is the only watermark, as in Flink: the strategy's generator is not even
created, nothing is idle, and only the timestamp assigner is used.

After a change of parallelism every subtask in mid-stream continues with the generator that was
furthest behind: its watermarks may be too low, never too high.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypedDict, cast

import numpy as np

from millstream.configuration import options
from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from millstream.contracts.operator import GENERATOR_STATE, Operator, OperatorSnapshot
from millstream.functions.watermark_strategy import TimeOrigin
from millstream.runtime.user_code import NO_RECORD, user_error, warn_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from millstream.contracts.operator import (
        Checkpoint,
        OperatorContext,
        Output,
        RestoreContext,
    )
    from millstream.functions.watermark_strategy import WatermarkGenerator, WatermarkStrategy


_MAKING: Final = "making watermarks of"
#: Milliseconds between periodic watermarks that the clock makes where the program does not say:
#: Flink's default, and how far after the clock ingestion time may be.
_USUAL_INTERVAL: Final = 200
_INGESTION_INTERVAL: Final = 10
#: Seconds since 1970 of 2001 and 2096: timestamps between them are of somebody's records.
_FROM: Final = 1_000_000_000
_TO: Final = 4_000_000_000
#: How many of a unit are in a second.
_OTHER_UNITS: Final = {
    "seconds": (1, "Multiply by 1000"),
    "microseconds": (1_000_000, "Divide by 1000"),
    "nanoseconds": (1_000_000_000, "Divide by 1000000"),
}


def _date(timestamp: int) -> str:
    """Return the day of a timestamp in milliseconds, or the year if no calendar here has it."""
    try:
        return f"{dt.datetime.fromtimestamp(timestamp / 1000, dt.UTC):%-d %B %Y}"
    except (OverflowError, ValueError):
        return f"about the year {1970 + timestamp // 31_556_952_000}"


class _GeneratorState(TypedDict):
    """Content of a checkpoint."""

    #: Attributes of the generator.
    attributes: dict[str, Any]
    #: The last watermark emitted, and the status.
    emitted: int
    idle: bool
    #: Milliseconds of processing time: when the last record came, and the last periodic watermark
    #: was made (None: not yet).
    last_active: int
    last_emit: int | None
    #: Records since the last periodic watermark.
    since_emit: int
    #: Whether there were any since then, if watermarks are made at intervals of time.
    unasked: bool


class _Watermarks:
    """Takes what a generator emits; keeps the highest."""

    __slots__ = ("highest", "idle", "now")

    def __init__(self, highest: int, now: int) -> None:
        self.highest = highest
        self.idle = False
        self.now = now

    def emit_watermark(self, watermark: int) -> None:
        # As in Flink, a watermark that says nothing new does not end idleness.
        if watermark > self.highest:
            self.highest = watermark
            self.idle = False

    def mark_idle(self) -> None:
        self.idle = True

    def current_processing_time(self) -> int:
        return self.now


class TimestampsWatermarksOperator(Operator):
    """Assigns timestamps and makes watermarks."""

    counted: ClassVar[Mapping[str, str]] = {
        "numRecordsIn": "_records",
        "numRecordsOut": "_records",
    }

    def __init__(self, strategy: WatermarkStrategy, *, keeps_times: bool = True) -> None:
        """Take the user's strategy, and whether records continue with the times that it gives."""
        self._keeps_times = keeps_times
        self._interval: int | None = None
        self._take(strategy)
        self._source_idle: bool | None = None
        self._now = 0
        #: Milliseconds up to now of which it is not known whether the input was silent.
        self._lag = 0
        self._records = 0
        self._unit_is_checked = False

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Take the surroundings, and the interval from the configuration."""
        super().setup(context, output)
        if context.batch_mode:
            self._take(self._strategy.for_batch())
        # While the option is not set, watermarks follow every batch, so that windows fire as early
        # as they can.
        is_set = context.configuration.contains(options.AUTO_WATERMARK_INTERVAL)
        if is_set and self._interval is None and self._every is None:
            self._interval = context.configuration.get(options.AUTO_WATERMARK_INTERVAL)

    def _take(self, strategy: WatermarkStrategy) -> None:
        self._strategy = strategy
        self._preserves = strategy.origin is TimeOrigin.PRESERVED
        self._ingests = strategy.origin is TimeOrigin.INGESTED
        self._every = strategy.emit_every
        self._interval = strategy.emit_interval

    def restore(self, restored: RestoreContext) -> None:
        try:
            self._generator: WatermarkGenerator = self._strategy.create_generator()
        except Exception as error:
            doing = "making the watermark generator"
            raise user_error(self.context, error, doing=doing) from error
        self._now = restored.processing_time
        self._source_idle = restored.source_idle
        self._records = 0
        # A union, for a subtask of another parallelism takes the slowest generator of all.
        self._kept = restored.operator_states.union_list_state(GENERATOR_STATE)
        state = self._restored_state(self._kept.get())
        self._generator.__dict__.update(state["attributes"])
        self._emitted = state["emitted"]
        self._idle = state["idle"]
        self._last_active = state["last_active"]
        if restored.resumes:
            self._last_active = max(self._last_active, self._now)
        self._last_emit = state["last_emit"]
        self._since_emit = state["since_emit"]
        self._unasked = state["unasked"]
        self._watermarks = _Watermarks(self._emitted, self._now)
        self._knows_time = False
        self._ticked = self._restored_at = self._now

    def process_processing_time(self, now: int) -> None:
        """Move the clock, and do what is due by it.

        The first time after ``restore`` or a snapshot says only what time it is.  Where an epoch
        begins with it, what the epoch reads must not be overtaken by the time of other channels:
        the snapshot at its end decides.
        """
        self._now = self._watermarks.now = now
        if self.context.batch_mode or self._emitted == MAX_TIMESTAMP:
            return
        if not self._knows_time:
            self._knows_time = True
            if self._ingests:
                self._emit_time()
            return
        due = self.due()
        if due is not None and due <= now:
            self._tick()

    def process_pause(self, milliseconds: int) -> None:
        """Leave the time out that says nothing of the input."""
        self._last_active += milliseconds
        self._restored_at += milliseconds

    def process_lag(self, milliseconds: int) -> None:
        """Judge idleness as of so long ago, until the next call."""
        self._lag = milliseconds

    def due(self) -> int | None:
        """Return when a long-running task must move the clock: for a watermark, or for idleness."""
        if self.context.batch_mode or self._emitted == MAX_TIMESTAMP:
            return None
        due: list[int] = []
        if self._ingests:
            due.append(self._ticked + (self._interval or _INGESTION_INTERVAL))
        elif self._may_emit_periodically():
            last = self._ticked if self._last_emit is None else self._last_emit
            due.append(last + (self._interval or _USUAL_INTERVAL))
        idle_at = self._idle_at()
        if idle_at is not None:
            due.append(idle_at)
        return min(due, default=None)

    def _tick(self) -> None:
        """Make the watermark that is due, then see whether the input has become idle."""
        self._ticked = self._now
        if self._ingests:
            self._emit_time()
        elif self._may_emit_periodically():
            if self._interval is not None:
                self._last_emit = self._now
            self._unasked = False
            self._emit_periodically()
        idle_at = self._idle_at()
        if idle_at is not None and idle_at <= self._now:
            self._idle = True
            self.output.emit_idle(True)  # noqa: FBT003 - as in the contract

    def _may_emit_periodically(self) -> bool:
        """Return whether a periodic watermark between two snapshots may say something new.

        Of our generators only after records; those of the user's may read the clock.
        """
        if self._every is not None or self._interval == 0 or self._idle:
            return False
        if self._strategy.origin is not TimeOrigin.GENERATED:
            return False
        if getattr(self._generator, "vectorised", False):
            return self._interval is not None and self._unasked
        return True

    def _idle_at(self) -> int | None:
        """Return when the input becomes idle without records; None if it is, or if others decide.

        After a restart it has the whole time-out to show that it is not.
        """
        timeout = self._strategy.idle_timeout
        if timeout is None or self._source_idle is not None or self._idle:
            return None
        return max(self._last_active, self._restored_at) + timeout + self._lag

    def _emit_time(self) -> None:
        """Records to come have this time, so all earlier ones are complete."""
        self._watermarks.emit_watermark(self._now - 1)
        self._advance()

    def _restored_state(self, old: list[_GeneratorState]) -> _GeneratorState:
        """Choose among those of all subtasks, each of which has left one."""
        if len(old) == self.context.parallelism:
            return old[self.context.subtask]
        if not old:
            return _GeneratorState(
                attributes={},
                emitted=MIN_TIMESTAMP,
                idle=False,
                last_active=self._now,
                last_emit=None,
                since_emit=0,
                unasked=False,
            )
        active = [state for state in old if not state["idle"]]
        slowest = min(active or old, key=lambda state: state["emitted"])
        last_active = max(state["last_active"] for state in old)
        return {**slowest, "idle": not active, "last_active": last_active}

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Assign timestamps; emit the records and the watermarks between them."""
        del input_index
        count = len(batch)
        if not count:
            return
        self._records += count
        self._unasked = True
        self._last_active = self._now
        stamped = self._stamped(batch)
        if self._idle:
            # Ahead of the records, or those after would not wait for this channel's time.
            self._idle = False
            self.output.emit_idle(False)  # noqa: FBT003 - as in the contract
        for part in self._cut(stamped):
            if self._strategy.origin is not TimeOrigin.GENERATED:
                self.output.emit(part)
            elif getattr(self._generator, "vectorised", False):
                self.output.emit(part if self._keeps_times else part.with_timestamps(None))
                cast("Any", self._generator).on_batch(part.timestamp_array)
            else:
                self._event_by_event(part)
            if self._since_emit == self._every:
                self._since_emit = 0
                self._emit_periodically()
        if self._every is None and self._interval is None:
            self._emit_periodically()

    def _stamped(self, batch: Batch) -> Batch:
        if self._ingests:
            return batch.with_timestamps(np.full(len(batch), self._now, dtype=np.int64))
        if self._strategy.timestamp_assigner is None:
            return batch
        try:
            timestamps = np.asarray(self._strategy.extract_timestamps(batch), dtype=np.int64)
        except Exception as error:
            record = self._culprit(batch)
            raise user_error(
                self.context, error, record, doing="taking the timestamp of"
            ) from error
        if not self._unit_is_checked:
            self._unit_is_checked = True
            self._check_unit(timestamps)
        return batch.with_timestamps(timestamps)

    def _check_unit(self, timestamps: NDArray[np.int64]) -> None:
        """Warn where the first timestamps are of these years, but in another unit."""
        low, high = int(timestamps.min()), int(timestamps.max())
        for unit, (scale, advice) in _OTHER_UNITS.items():
            if _FROM * scale <= low and high <= _TO * scale:
                warn_once(
                    self.context,
                    "unit",
                    f"timestamps such as {low} look like {unit} since 1970, but are taken for"
                    f" milliseconds, as in Flink, which gives {_date(low)}. {advice} in the"
                    " timestamp assigner",
                )

    def _cut(self, batch: Batch) -> Iterator[Batch]:
        """The batch, cut where a watermark is due because of the number of records."""
        if self._every is None:
            yield batch
            return
        start = 0
        while start < len(batch):
            stop = min(len(batch), start + self._every - self._since_emit)
            self._since_emit += stop - start
            yield batch.slice(start, stop)
            start = stop

    def process_watermark(self, watermark: int) -> None:
        """Pass on the maximum, which ends the input; any if they are preserved."""
        if watermark > self._emitted and (self._preserves or watermark == MAX_TIMESTAMP):
            self._watermarks.emit_watermark(watermark)
            self._advance()

    def process_idle(self, idle: bool) -> None:  # noqa: FBT001 - as in the contract
        """Idleness of the input is the idleness of the output, until records come."""
        if idle or self._idle:  # idleness is said again: channels may have begun as active ones
            self._idle = idle
            self.output.emit_idle(idle)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        """Note idleness or make what is due, and keep the generator's attributes."""
        del checkpoint
        self._unasked = self._unasked or self._records > 0
        if self._is_silent():
            self._idle = True
        elif self._is_due():
            if self._interval is not None:  # else it is not asked for, and changes every checkpoint
                self._last_emit = self._now
            self._unasked = False
            self._emit_periodically()
        if self._idle and not self._records:
            # Said again in every such epoch: the channels of stage 0 may begin as active ones.
            self.output.emit_idle(True)  # noqa: FBT003 - as in the contract
        state = _GeneratorState(
            attributes=dict(self._generator.__dict__),
            emitted=self._emitted,
            idle=self._idle,
            last_active=self._last_active,
            last_emit=self._last_emit,
            since_emit=self._since_emit,
            unasked=self._unasked,
        )
        self._knows_time = False
        metrics = self.take_metrics()
        self._kept.update([state])
        return OperatorSnapshot(metrics=metrics, next_due=self._next_due())

    def _next_due(self) -> int | None:
        """Return when time alone causes a watermark or idleness.

        Whether a source split is idle the planner finds out by itself.
        """
        if self._emitted == MAX_TIMESTAMP or self.context.batch_mode:
            return None
        due: list[int] = []
        if self._ingests:
            due.append(self._now + 1)
        timeout = self._strategy.idle_timeout
        if timeout is not None and self._source_idle is None and not self._idle:
            due.append(self._last_active + timeout)
        if self._interval and self._every is None:
            # A generator of the user's may read the clock; ours change with records only.
            own = self._strategy.emit_interval is not None and not (
                getattr(self._generator, "vectorised", False)
            )
            if self._unasked or own:
                last = self._now if self._last_emit is None else self._last_emit
                due.append(last + self._interval)
        return min(due, default=None)

    def _event_by_event(self, batch: Batch) -> None:
        """Emit the batch in parts, cut where the generator emits a watermark or becomes idle."""
        generator, watermarks, emitted = self._generator, self._watermarks, self._emitted
        start = 0
        stamps = batch.timestamp_list
        for position, (value, stamp) in enumerate(zip(batch.values, stamps, strict=True)):
            try:
                generator.on_event(value, stamp, watermarks)
            except Exception as error:
                raise user_error(self.context, error, value, doing=_MAKING) from error
            if watermarks.highest > emitted or watermarks.idle:
                self.output.emit(batch.slice(start, position + 1))
                start = position + 1
                self._advance()
                emitted = self._emitted
                watermarks.idle = False
        if start < len(batch):
            self.output.emit(batch.slice(start, len(batch)))

    def _emit_periodically(self) -> None:
        generator: Any = self._generator
        if getattr(generator, "vectorised", False):
            self._watermarks.emit_watermark(generator.current_watermark())
        else:
            try:
                generator.on_periodic_emit(self._watermarks)
            except Exception as error:
                raise user_error(self.context, error, NO_RECORD, doing=_MAKING) from error
        self._advance()

    def _advance(self) -> None:
        """Send on what the generator has said."""
        if self._watermarks.highest > self._emitted:
            if self._idle:
                self._idle = False
                self.output.emit_idle(False)  # noqa: FBT003 - as in the contract
            self._emitted = self._watermarks.highest
            self.output.emit_watermark(self._emitted)
        if self._watermarks.idle and not self._idle:
            self._idle = True
            self.output.emit_idle(True)  # noqa: FBT003 - as in the contract

    def _is_due(self) -> bool:
        """Return whether a periodic watermark is due at the end of this epoch."""
        if self._every is not None:
            return False
        if self._interval is None:
            return not self._records  # else it was made after the last batch
        if self._interval == 0:
            return False  # as in Flink: no periodic watermarks
        return self._last_emit is None or self._now - self._last_emit >= self._interval

    def _is_silent(self) -> bool:
        """At the end of an epoch: nothing came for longer than the strategy's timeout.

        Not at its start: what comes in this very epoch must not be overtaken by the time of other
        channels.  Of a source split the planner knows it, which also knows whether there is
        something that was not read for other reasons.
        """
        timeout = self._strategy.idle_timeout
        if timeout is None or self._records:
            return False
        if self._source_idle is not None:
            return self._source_idle
        return self._now - self._lag - self._last_active >= timeout

    def _culprit(self, batch: Batch) -> object:
        """The record whose timestamp cannot be taken."""
        for position, value in enumerate(batch.values):
            try:
                self._strategy.extract_timestamps(batch.take([position]))
            except Exception:  # noqa: BLE001 - whatever the user's assigner raises
                return value
        return NO_RECORD


@dataclass
class TimestampsWatermarksFactory:
    """Factory of timestamps-and-watermarks operators."""

    strategy: WatermarkStrategy
    #: Whether records continue with their timestamps; watermarks are made all the same.
    keeps_times: bool = True
    keyed: ClassVar[bool] = False
    per_channel: ClassVar[bool] = True

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return TimestampsWatermarksOperator(self.strategy, keeps_times=self.keeps_times)
