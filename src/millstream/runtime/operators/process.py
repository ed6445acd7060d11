"""The process operator: a ProcessFunction on a stream that is not keyed.

What it is: one record in, any number out, on the main output and on side outputs, with the time
at hand.

What it is not: keyed.  State and timers need ``runtime/operators/keyed_process.py``.

Read next: ``runtime/operators/keyed_process.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.functions.functions import ProcessFunction, TimerService
from millstream.runtime.function_context import Clock
from millstream.runtime.operators.base import Collector, FunctionOperator
from millstream.runtime.user_code import (
    NO_RECORD,
    USUAL_RESULTS,
    bound_method,
    check_records,
    user_error,
)
from millstream.types.output_tag import OutputTag

if TYPE_CHECKING:
    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, RestoreContext

__all__ = ["ProcessFactory", "ProcessOperator"]


class _Context(ProcessFunction.Context):
    """One object reused for all records."""

    __slots__ = ("_clock", "current_timestamp")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.current_timestamp = MIN_TIMESTAMP

    def timer_service(self) -> TimerService:
        return self._clock

    def timestamp(self) -> int:
        return self.current_timestamp


class ProcessOperator(FunctionOperator):
    """Applies a ProcessFunction, or a callable of (value, context), to every record."""

    #: The method of the function that gets the records.
    method: ClassVar[str] = "process_element"

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._process = bound_method(self.function, self.method)
        self._clock = Clock()
        self._record_context: Any = _Context(self._clock)
        self._collector = Collector(self, self.emit)

    def restore(self, restored: RestoreContext) -> None:
        self._clock.watermark = restored.watermark
        self._clock.processing_time = restored.processing_time

    def process_processing_time(self, now: int) -> None:
        self._clock.processing_time = now

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        self.records_in += len(batch)
        collector, process, context = self._collector, self._process, self._record_context
        append, append_timestamp = collector.values.append, collector.timestamps.append
        value: object = NO_RECORD
        try:
            for value, timestamp in zip(batch.values, batch.timestamp_list, strict=True):
                context.current_timestamp = timestamp
                result = process(value, context)
                if result is None:
                    continue
                if result.__class__ not in USUAL_RESULTS:
                    check_records(result, self.context)
                for item in result:  # as Collector.collect, in place: this is the hot loop
                    if item.__class__ is tuple and item and item[0].__class__ is OutputTag:
                        collector.side(item, timestamp)
                    else:
                        append(item)
                        append_timestamp(timestamp)
        except Exception as error:
            raise user_error(self.context, error, value) from error
        collector.flush()

    def process_watermark(self, watermark: int) -> None:
        """Set the clock and pass the watermark on."""
        self._clock.watermark = watermark
        self.output.emit_watermark(watermark)


@dataclass
class ProcessFactory:
    """Makes process operators."""

    function: Any
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return ProcessOperator(self.function)
