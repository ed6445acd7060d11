"""Watermark strategies, timestamp assigners, and watermark generators, one per source split.

The attributes of a generator are its checkpointed state.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError, TypeMismatchError
from millstream.types.field_access import column_of, field_of
from millstream.types.time import MIN_TIMESTAMP, DurationLike, milliseconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch


#: Milliseconds, as in Flink.
_ALIGNMENT_UPDATE: Final = 1000

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


class TimestampAssigner(ABC):
    """Says which event time a record has."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The event time of a record.

        Args:
            value: the record.
            record_timestamp: the timestamp it has so far, in milliseconds; the minimum long if it
                has none.

        Returns:
            Milliseconds since 1970.  A datetime (UTC if it has no time zone) is taken as well.
        """


class FieldTimestampAssigner(TimestampAssigner):
    """Takes the event time from a field: milliseconds, or a datetime."""

    def __init__(self, field: str | int) -> None:
        """Take the name or the index of the field."""
        self.field = field

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        del record_timestamp
        if isinstance(self.field, str) and not isinstance(value, dict):
            return getattr(value, self.field)  # type: ignore[no-any-return]  # converted by the strategy
        return value[self.field]  # type: ignore[no-any-return]


def field_timestamps(field: str | int) -> FieldTimestampAssigner:
    """The assigner that takes the event time from the field of that name or index."""
    return FieldTimestampAssigner(field)


#: An assigner, or a function of the record and its timestamp so far.
AssignerLike: TypeAlias = "TimestampAssigner | Callable[[Any, int], int]"


class WatermarkOutput(Protocol):
    """Where a generator sends its watermarks."""

    def emit_watermark(self, watermark: int) -> None:
        """Say that no record with a timestamp of up to ``watermark`` milliseconds will follow."""

    def mark_idle(self) -> None:
        """Say that nothing comes for now and others should not wait.

        A watermark that is higher than all before it ends it, and so do records.
        """

    def current_processing_time(self) -> int:
        """The time of the clock in milliseconds.

        It stands still within an epoch and is the same when the epoch is replayed; a generator
        that looks at the clock asks here, not ``time.time()``.
        """


class WatermarkGenerator(ABC):
    """Makes watermarks of one source split.  Its attributes are pickled into the checkpoint."""

    #: Whether ``on_batch`` and ``current_watermark`` may be used in place of the other two.
    vectorised: ClassVar[bool] = False

    @abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Called for every record; may emit a watermark.

        Args:
            event: the record.
            event_timestamp: its timestamp in milliseconds.
            output: takes the watermark.
        """

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called now and then; may emit a watermark.

        When: after every batch of records, and at the end of an epoch without any; or as
        ``with_periodic_emit`` or ``pipeline.auto-watermark-interval`` say.  Not while the split
        is idle for lack of records.
        """


class BoundedOutOfOrdernessWatermarks(WatermarkGenerator):
    """The watermark trails by a fixed time the greatest timestamp seen."""

    vectorised: ClassVar[bool] = True

    def __init__(self, max_out_of_orderness: int) -> None:
        """Take how far records may be out of order, in milliseconds.

        Raises:
            ProgramError: it is negative.
        """
        if max_out_of_orderness < 0:
            message = f"max_out_of_orderness must not be negative; it is {max_out_of_orderness} ms"
            raise ProgramError(message)
        self.max_out_of_orderness = max_out_of_orderness
        self.max_timestamp = MIN_TIMESTAMP

    def on_batch(self, timestamps: NDArray[np.int64]) -> None:
        """Take the timestamps of a batch, in milliseconds."""
        if len(timestamps):
            self.max_timestamp = max(self.max_timestamp, int(timestamps.max()))

    def current_watermark(self) -> int:
        """The watermark after all that was taken, in milliseconds."""
        return max(self.max_timestamp - self.max_out_of_orderness - 1, MIN_TIMESTAMP)

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Take the timestamp of one record."""
        del event, output
        self.max_timestamp = max(self.max_timestamp, event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(self.current_watermark())


class NoWatermarks(WatermarkGenerator):
    """Never makes a watermark: event time stands still until the input ends."""

    vectorised: ClassVar[bool] = True

    def on_batch(self, timestamps: NDArray[np.int64]) -> None:
        """Nothing to do."""

    def current_watermark(self) -> int:
        """The minimum."""
        return MIN_TIMESTAMP

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Nothing to do."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Nothing to do."""


class TimeOrigin(Enum):
    """Where the timestamps and watermarks of a stream come from."""

    #: An assigner (or the source's timestamps) and a generator.
    GENERATED = "generated"
    #: The source or what is upstream: both are taken as they are.
    PRESERVED = "preserved"
    #: The clock when the records are read.
    INGESTED = "ingested"


@dataclass(frozen=True)
class WatermarkAlignment:
    """How far a source may run ahead of others of its group, in event time."""

    group: str
    #: Milliseconds.
    max_drift: int
    #: Milliseconds between two comparisons.
    update_interval: int


@dataclass(frozen=True)
class WatermarkStrategy:
    """Says which time records have and how watermarks are made.  Immutable and picklable.

    Made by the static methods; the ``with_`` methods return another strategy.
    """

    #: Makes a generator; called once per split.
    supplier: Callable[[], WatermarkGenerator]
    timestamp_assigner: AssignerLike | None = None
    #: Milliseconds without records after which a split is idle; None: never.
    idle_timeout: int | None = None
    alignment: WatermarkAlignment | None = None
    origin: TimeOrigin = TimeOrigin.GENERATED
    #: Records between two periodic watermarks of a split; None: not counted.
    emit_every: int | None = None
    #: Milliseconds of processing time between two periodic watermarks of a split; None: that of
    #: ``pipeline.auto-watermark-interval``.
    emit_interval: int | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """For timestamps that only grow: the watermark follows the latest one closely."""
        return WatermarkStrategy(functools.partial(BoundedOutOfOrdernessWatermarks, 0))

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: DurationLike) -> WatermarkStrategy:
        """For records that are at most that much out of order.

        Args:
            max_out_of_orderness: a Duration, or milliseconds.

        Raises:
            ProgramError: it is negative.
        """
        bound = milliseconds_of(max_out_of_orderness)
        BoundedOutOfOrdernessWatermarks(bound)  # refuses a negative bound here, not in a task
        return WatermarkStrategy(functools.partial(BoundedOutOfOrdernessWatermarks, bound))

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """For jobs that use no event time."""
        return WatermarkStrategy(NoWatermarks)

    @staticmethod
    def for_generator(supplier: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """For an own generator: ``supplier`` (a class, say) makes a new one at each call."""
        return WatermarkStrategy(supplier)

    @staticmethod
    def for_ingestion_time() -> WatermarkStrategy:
        """For event times that are the time at which a record is read.

        The clock is that of the epoch (``processing_time``), so that all records of an epoch have
        one timestamp, a replay of the epoch gives the same ones, and no record is ever late.
        Event time advances while nothing comes.
        """
        return WatermarkStrategy(NoWatermarks, origin=TimeOrigin.INGESTED)

    @staticmethod
    def preserve() -> WatermarkStrategy:
        """For streams that have timestamps and watermarks already: both are taken as they are.

        At a source they are what the source itself says (``SourceBatch.timestamps`` and
        ``watermark``); at ``env.from_spark`` the column and the delay of the DataFrame's
        ``withWatermark``; in mid-stream those from upstream.  With a timestamp assigner only the
        watermarks are taken over.
        """
        return WatermarkStrategy(NoWatermarks, origin=TimeOrigin.PRESERVED)

    def with_timestamp_assigner(self, timestamp_assigner: AssignerLike) -> WatermarkStrategy:
        """The same strategy with event times from an assigner.

        Args:
            timestamp_assigner: a TimestampAssigner, or a function of the record and its timestamp
                so far.  Assigners that only read a field are applied to whole columns.

        Raises:
            ProgramError: it is neither.
        """
        given: object = timestamp_assigner
        if not isinstance(given, TimestampAssigner) and not callable(given):
            message = (
                f"{timestamp_assigner!r} is no timestamp assigner: give a TimestampAssigner, or a "
                'function of the record and its timestamp, or field_timestamps("name")'
            )
            raise ProgramError(message)
        return dataclasses.replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: DurationLike) -> WatermarkStrategy:
        """The same strategy, for which a split without records for that long is idle.

        Raises:
            ProgramError: the time is not positive.
        """
        timeout = milliseconds_of(idle_timeout)
        if timeout <= 0:
            message = f"the idle timeout must be positive; it is {timeout} ms"
            raise ProgramError(message)
        return dataclasses.replace(self, idle_timeout=timeout)

    def with_periodic_emit(
        self, *, every: int | None = None, interval: DurationLike | None = None
    ) -> WatermarkStrategy:
        """The same strategy, whose generator is asked for watermarks less (or more) often.

        Args:
            every: after so many records of a split, counted over batches and epochs; the
                watermark takes effect exactly there.
            interval: at the end of each epoch that begins at least this long (a Duration, or
                milliseconds of processing time) after the epoch of the last time, also when no
                record came.  It wins over ``pipeline.auto-watermark-interval``.

        Raises:
            ProgramError: both or none are given, or it is not positive.
        """
        if (every is None) == (interval is None):
            message = "with_periodic_emit() takes either every= (records) or interval= (time)"
            raise ProgramError(message)
        length = None if interval is None else milliseconds_of(interval)
        for what, given in (("every", every), ("interval", length)):
            if given is not None and given <= 0:
                message = f"with_periodic_emit({what}=...) must be positive; it is {given}"
                raise ProgramError(message)
        return dataclasses.replace(self, emit_every=every, emit_interval=length)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: DurationLike,
        update_interval: DurationLike | None = None,
    ) -> WatermarkStrategy:
        """The same strategy, whose source waits when it is too far ahead of its group.

        A split whose watermark is more than the drift ahead of the slowest split of all sources
        of the group is not read until the others have come closer.  Idle splits and sources that
        are over are left out.

        Args:
            watermark_group: sources with the same name wait for each other.
            max_allowed_watermark_drift: a Duration, or milliseconds of event time.
            update_interval: how long a comparison may be used, a second unless given; it is made
                again sooner when nothing else can be read.

        Raises:
            ProgramError: the group has no name, or a length of time is negative.
        """
        drift = milliseconds_of(max_allowed_watermark_drift)
        interval = (
            _ALIGNMENT_UPDATE if update_interval is None else milliseconds_of(update_interval)
        )
        if not watermark_group:
            message = "with_watermark_alignment() needs the name of a group"
            raise ProgramError(message)
        for what, given in (("drift", drift), ("update interval", interval)):
            if given < 0:
                message = f"the {what} of an alignment must not be negative; it is {given} ms"
                raise ProgramError(message)
        alignment = WatermarkAlignment(watermark_group, drift, interval)
        return dataclasses.replace(self, alignment=alignment)

    @property
    def needs_ticks(self) -> bool:
        """Return whether watermarks may have to be made while no record comes."""
        return (
            self.idle_timeout is not None
            or self.emit_interval is not None
            or self.origin is TimeOrigin.INGESTED
        )

    def for_batch(self) -> WatermarkStrategy:
        """Return what is left of the strategy in BATCH mode: where the timestamps come from.

        As in Flink: the only watermark there is the maximum at the end of the input, so no
        generator is made, no split is idle and no source waits for another.
        """
        ingests = self.origin is TimeOrigin.INGESTED
        return WatermarkStrategy(
            NoWatermarks,
            self.timestamp_assigner,
            origin=TimeOrigin.INGESTED if ingests else TimeOrigin.GENERATED,
        )

    def create_generator(self) -> WatermarkGenerator:
        """A new generator, for one split."""
        return self.supplier()

    def extract_timestamps(self, batch: Batch) -> NDArray[np.int64]:
        """The event times of a batch, in milliseconds.

        Without an assigner, those that the records have.

        Raises:
            TypeMismatchError: what the assigner returns is not a time; names record and value.
        """
        assigner = self.timestamp_assigner
        if assigner is None:
            return batch.timestamp_array
        if batch.is_columnar:
            position = column_of(batch.type_info, _field_read_by(assigner))
            if position is not None:
                found = _from_column(batch.arrow.column(position))
                if found is not None:
                    return found
        extract = (
            assigner.extract_timestamp if isinstance(assigner, TimestampAssigner) else assigner
        )
        return _from_values(list(map(extract, batch.values, batch.timestamp_list)))


def _field_read_by(assigner: AssignerLike) -> str | int | None:
    if isinstance(assigner, FieldTimestampAssigner):
        return assigner.field
    if isinstance(assigner, TimestampAssigner):
        return field_of(assigner.extract_timestamp)
    return field_of(assigner)


def _from_column(column: pa.Array) -> NDArray[np.int64] | None:
    """The column as milliseconds; None if it has to be looked at value by value."""
    if column.null_count:
        return None  # the loop over values names the record
    if pa.types.is_timestamp(column.type):
        if column.type.unit == "ms":
            return column.view(pa.int64()).to_numpy()  # type: ignore[no-any-return]
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64())
        micros: NDArray[np.int64] = column.to_numpy()
        return np.floor_divide(micros, 1000)
    if pa.types.is_signed_integer(column.type):
        return column.to_numpy().astype(np.int64, copy=False)  # type: ignore[no-any-return]
    return None


def _from_values(times: Sequence[object]) -> NDArray[np.int64]:
    if set(map(type, times)) <= {int}:
        checked = cast("Sequence[int]", times)
    else:
        checked = [_to_milliseconds(index, time) for index, time in enumerate(times)]
    try:
        return np.fromiter(checked, dtype=np.int64, count=len(checked))
    except OverflowError as error:
        worst = max(checked, key=abs)
        message = f"the timestamp {worst} does not fit 64 bits; give milliseconds since 1970"
        raise TypeMismatchError(message) from error


def _to_milliseconds(index: int, time: object) -> int:
    if isinstance(time, int | np.integer) and not isinstance(time, bool):
        return int(time)
    if isinstance(time, dt.datetime):
        zoned = time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)
        return (zoned - _EPOCH) // _MILLISECOND
    if isinstance(time, float) and np.isfinite(time):
        return int(np.floor(time))
    message = (
        f"the timestamp assigner gave {time!r} for record {index} of its batch; it must give "
        "milliseconds since 1970 (int) or a datetime"
    )
    raise TypeMismatchError(message)
