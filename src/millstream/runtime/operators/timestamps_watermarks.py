"""The timestamps-and-watermarks operator: ``assign_timestamps_and_watermarks`` in mid-stream.

What it is: gives each record its event time and makes watermarks of what passes, by the user's
strategy.  The generator's attributes are its checkpointed state.

What it is not: what runs at sources; the task runs their generators per split.

Watermarks from upstream are not passed on, except the maximum that ends a bounded input.

Read next: ``common/watermark_strategy.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from millstream.errors import MillstreamError
from millstream.runtime.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from millstream.runtime.operator import Operator, OperatorSnapshot
from millstream.runtime.user_code import NO_RECORD, user_error
from millstream.state.serializers import dumps, loads

if TYPE_CHECKING:
    from millstream.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy
    from millstream.runtime.operator import EpochContext

__all__ = ["TimestampsWatermarksFactory", "TimestampsWatermarksOperator"]


class _Watermarks:
    """Takes what a generator emits; keeps the highest."""

    def __init__(self) -> None:
        self.highest = MIN_TIMESTAMP
        self.idle = False

    def emit_watermark(self, watermark: int) -> None:
        self.highest = max(self.highest, watermark)
        self.idle = False

    def mark_idle(self) -> None:
        self.idle = True


class TimestampsWatermarksOperator(Operator):
    """Assigns timestamps and makes watermarks."""

    def __init__(self, strategy: WatermarkStrategy) -> None:
        """Take the user's strategy."""
        self._strategy = strategy
        self._watermarks = _Watermarks()
        self._emitted = MIN_TIMESTAMP
        self._idle = False
        self._last_active = 0
        self._now = 0
        self._records = 0

    def begin_epoch(self, epoch: EpochContext) -> None:
        """Restore the generator."""
        self._generator: WatermarkGenerator = self._strategy.create_generator()
        self._watermarks = _Watermarks()
        self._emitted, self._idle, self._last_active = MIN_TIMESTAMP, False, epoch.processing_time
        self._now = epoch.processing_time
        if epoch.operator_state is not None:
            attributes, self._emitted, self._idle, self._last_active = loads(epoch.operator_state)  # type: ignore[arg-type]
            self._generator.__dict__.update(attributes)
        self._watermarks.highest = self._emitted
        self._records = 0

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Give records their timestamps; emit them and the watermark behind them."""
        del input_index
        count = len(batch)
        if not count:
            return
        self._records += count
        self._last_active = self._now
        try:
            timestamps = np.asarray(self._strategy.extract_timestamps(batch), dtype=np.int64)
        except MillstreamError:
            raise
        except Exception as error:
            record = self._culprit(batch)
            raise user_error(
                self.context, error, record, doing="taking the timestamp of"
            ) from error
        if self._idle:
            self._idle = False
            self.output.emit_idle(False)  # noqa: FBT003 - as in the contract
        stamped = batch.with_timestamps(timestamps)
        generator: Any = self._generator
        if getattr(generator, "vectorised", False):
            self.output.emit(stamped)
            generator.on_batch(timestamps)
            self._watermarks.emit_watermark(generator.current_watermark())
        else:
            self._event_by_event(stamped)
        self._advance()

    def process_watermark(self, watermark: int) -> None:
        """Pass on only the maximum, which ends the input."""
        if watermark == MAX_TIMESTAMP and self._emitted != MAX_TIMESTAMP:
            self._emitted = MAX_TIMESTAMP
            self.output.emit_watermark(MAX_TIMESTAMP)

    def process_idle(self, idle: bool) -> None:  # noqa: FBT001 - as in the contract
        """Idleness of the input is the idleness of the output, until records come."""
        if idle != self._idle:
            self._idle = idle
            self.output.emit_idle(idle)

    def end_epoch(self) -> OperatorSnapshot:
        """Note idleness, and vote with the generator's attributes."""
        self._check_idleness()
        state = dumps(
            (dict(self._generator.__dict__), self._emitted, self._idle, self._last_active)
        )
        metrics = {"numRecordsIn": self._records, "numRecordsOut": self._records}
        return OperatorSnapshot(operator_state=state, metrics=metrics)

    def _event_by_event(self, batch: Batch) -> None:
        """Emit the batch in pieces, cut where the generator emits a watermark."""
        generator, watermarks = self._generator, self._watermarks
        emitted_upto = 0
        value: object = NO_RECORD
        try:
            stamps = batch.timestamp_list
            for position, (value, stamp) in enumerate(zip(batch.values, stamps, strict=True)):
                generator.on_event(value, stamp, watermarks)
                if watermarks.highest > self._emitted:
                    self.output.emit(batch.take(range(emitted_upto, position + 1)))
                    emitted_upto = position + 1
                    self._advance()
            value = NO_RECORD
            if emitted_upto < len(batch):
                rest = batch if not emitted_upto else batch.take(range(emitted_upto, len(batch)))
                self.output.emit(rest)
            generator.on_periodic_emit(watermarks)
        except Exception as error:
            doing = "making watermarks of"
            raise user_error(self.context, error, value, doing=doing) from error

    def _advance(self) -> None:
        if self._watermarks.highest > self._emitted:
            self._emitted = self._watermarks.highest
            self.output.emit_watermark(self._emitted)
        if self._watermarks.idle and not self._idle:
            self._idle = True
            self.output.emit_idle(True)  # noqa: FBT003 - as in the contract

    def _check_idleness(self) -> None:
        """At the end of an epoch: nothing came for longer than the strategy's timeout.

        Not at its start: what comes in this very epoch must not be overtaken by the time of other
        channels.  It is said again in every such epoch, because the channels of stage 0 begin
        each epoch as active.
        """
        timeout = self._strategy.idle_timeout
        if timeout is None or self._records or self._now - self._last_active < timeout:
            return
        self._idle = True
        self.output.emit_idle(True)  # noqa: FBT003 - as in the contract

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
    """Makes timestamps-and-watermarks operators."""

    strategy: WatermarkStrategy
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return TimestampsWatermarksOperator(self.strategy)
