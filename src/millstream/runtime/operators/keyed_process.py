"""The keyed process operator: a KeyedProcessFunction with state and timers.

What it is: the loop that everything user-written on keyed streams runs in.  Per batch the keys
are taken and their state is read in one go; per record only the current key and the timestamp
are set on one reused context.

What it is not: aware of what the state is; handles are ``functions/handles.py``.

Read next: ``state/keyed.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.contracts.operator import FUNCTION_STATES
from millstream.functions.functions import KeyedProcessFunction, TimeDomain, TimerService
from millstream.runtime.function_context import KeyedTimerService
from millstream.runtime.operators.base import LONGEST_BATCH, Collector
from millstream.runtime.operators.keyed import KeyedOperator
from millstream.runtime.user_code import (
    NO_RECORD,
    USUAL_RESULTS,
    bound_method,
    check_records,
    user_error,
)
from millstream.types.output_tag import OutputTag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, RestoreContext, StateSection
    from millstream.state.keyed import KeyedState

__all__ = ["KeyedProcessFactory", "KeyedProcessOperator"]


class _Context(KeyedProcessFunction.OnTimerContext):
    """One object reused for all records and timers of an operator."""

    __slots__ = ("_keyed", "_service", "current_timestamp", "domain")

    def __init__(self, keyed: KeyedState, service: KeyedTimerService) -> None:
        self._keyed = keyed
        self._service = service
        self.current_timestamp = MIN_TIMESTAMP
        self.domain = TimeDomain.EVENT_TIME

    def get_current_key(self) -> Any:
        return self._keyed.current_key

    def timer_service(self) -> TimerService:
        return self._service

    def timestamp(self) -> int:
        return self.current_timestamp

    def time_domain(self) -> TimeDomain:
        return self.domain


class KeyedProcessOperator(KeyedOperator):
    """Applies a KeyedProcessFunction, or a callable of (value, context), to every record."""

    #: The method of the function that gets the records.
    method: ClassVar[str] = "process_element"

    def __init__(self, function: Any, key_selector: Any) -> None:
        """Take the user's function and key selector."""
        super().__init__(function, key_selector)
        self._process = bound_method(self.function, self.method)
        self._on_timer = getattr(self.function, "on_timer", None)
        self._collector = Collector(self, self.emit)

    def open(self) -> None:
        """Make the context, then open the function."""
        self._service = KeyedTimerService(self.keyed_state)
        self._context: Any = _Context(self.keyed_state, self._service)
        super().open()

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._service.quiesced = False
        self._service.watermark = restored.watermark
        self._service.processing_time = restored.processing_time

    def process_processing_time(self, now: int) -> None:
        """Fire the processing-time timers that are due; in BATCH mode they wait for the end."""
        super().process_processing_time(now)
        self._service.processing_time = now
        if not self.context.batch_mode:
            self._fire_processing_time(now)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        keys = self.extractor.keys(batch, self.context)
        self.records_in += len(keys)
        keyed = self.keyed_state
        self.prefetch(keys)
        process, context = self._process, self._context
        collector = self._collector
        append, append_timestamp = collector.values.append, collector.timestamps.append
        value: object = NO_RECORD
        try:
            for key, short, value, timestamp in zip(
                keys, keyed.cache_keys(keys), batch.values, batch.timestamp_list, strict=True
            ):
                # As ``set_current_key``, in place: this is the hot loop.
                keyed.current_key, keyed.cache_key = key, short
                context.current_timestamp = timestamp
                result = process(value, context)
                if result is None:
                    continue
                if result.__class__ not in USUAL_RESULTS:
                    check_records(result, self.context)
                for item in result:  # as Collector.collect, in place, too
                    if item.__class__ is tuple and item and item[0].__class__ is OutputTag:
                        collector.side(item, timestamp)
                    else:
                        append(item)
                        append_timestamp(timestamp)
        except Exception as error:
            raise user_error(self.context, error, value, key=keyed.current_key) from error
        collector.flush()

    def process_watermark(self, watermark: int) -> None:
        """Fire the timers that are due, in order of time, then pass the watermark on.

        In BATCH mode the maximum is the end of every key.  Processing-time timers fire then too,
        before the maximum is passed on: behind it what they emit would be late.
        """
        # Moved first: a timer's function sees the time that fired it, and a timer that it sets for
        # a time that has come fires in this same pass.
        self._service.watermark = watermark
        self._service.quiesced = self.is_end_of_keys(watermark)
        fired = self.keyed_state.timers.advance_event_time(watermark)
        self._fire(fired, TimeDomain.EVENT_TIME)
        if self._service.quiesced:
            self._fire_processing_time(MAX_TIMESTAMP)
        self.output.emit_watermark(watermark)

    def _fire_processing_time(self, now: int) -> None:
        fired = self.keyed_state.timers.advance_processing_time(now)
        self._fire(fired, TimeDomain.PROCESSING_TIME)

    def _fire(self, fired: Iterable[tuple[int, Any, bytes]], domain: TimeDomain) -> None:
        """Call ``on_timer``; what a processing-time timer emits has no timestamp, as in Flink."""
        collector, context, on_timer = self._collector, self._context, self._on_timer
        set_key = self.keyed_state.set_current_key
        event_time = domain is TimeDomain.EVENT_TIME
        for time, key, _namespace in fired:
            if on_timer is None:
                continue
            set_key(key)
            context.current_timestamp = time
            context.domain = domain
            try:
                result = on_timer(time, context)
                if result is not None:
                    collector.collect(result, time if event_time else MIN_TIMESTAMP)
            except Exception as error:
                doing = f"running the {domain.name.lower()} timer for {time}"
                raise user_error(self.context, error, doing=doing, key=key) from error
            # One watermark can fire the timers of a million keys.
            if len(collector.values) >= LONGEST_BATCH:
                collector.flush()
        context.domain = TimeDomain.EVENT_TIME
        collector.flush()


@dataclass
class KeyedProcessFactory:
    """Makes keyed process operators."""

    function: Any
    key_selector: Any
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [FUNCTION_STATES]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return KeyedProcessOperator(self.function, self.key_selector)
