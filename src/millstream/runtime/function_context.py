"""The runtime context and timer service that functions are given.

What it is: implementations of the abstract classes of ``functions/functions.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.configuration import options
from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.errors import ProgramError
from millstream.functions.functions import (
    DistributedCache,
    KeyedStateStore,
    RuntimeContext,
    TimerService,
)
from millstream.functions.metric_group import MetricGroup

if TYPE_CHECKING:
    from millstream.contracts.operator import OperatorContext
    from millstream.functions.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )
    from millstream.functions.handles import (
        AggregatingState,
        ListState,
        MapState,
        ReducingState,
        ValueState,
    )
    from millstream.state.keyed import KeyedState


#: Namespace of timers that user functions register.
USER_TIMERS = b""
#: A time before this was computed from that of a record without a timestamp, the minimum.
_NO_TIME: Final = MIN_TIMESTAMP // 2


class Clock(TimerService):
    """Time without timers: for functions on streams that are not keyed."""

    __slots__ = ("processing_time", "watermark")

    def __init__(self) -> None:
        """Start before all time."""
        self.watermark = MIN_TIMESTAMP
        self.processing_time = 0

    def current_processing_time(self) -> int:
        return self.processing_time

    def current_watermark(self) -> int:
        return self.watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._refuse(timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        self._refuse(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._refuse(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._refuse(timestamp)

    @staticmethod
    def _refuse(timestamp: int) -> None:
        message = f"the timer for {timestamp} needs a keyed stream: call key_by() before process()"
        raise ProgramError(message)


def _checked_time(timestamp: object) -> int:
    """The time of a timer, if it is one: a number of milliseconds.

    Raises:
        ProgramError: it is of another type, or was computed from the timestamp of a record that
            has none.
    """
    if isinstance(timestamp, bool) or not isinstance(timestamp, int | np.integer):
        message = (
            f"the time of a timer is an int of milliseconds since 1970, not {timestamp!r}; "
            "write int(...)"
        )
        raise ProgramError(message)
    if timestamp < _NO_TIME:
        message = (
            f"the event-time timer for {timestamp} lies before all time: the record has no "
            "timestamp. Give the source a WatermarkStrategy with a timestamp assigner, or use "
            "assign_timestamps_and_watermarks(), before key_by()"
        )
        raise ProgramError(message)
    return int(timestamp)


class KeyedTimerService(Clock):
    """Time and timers of the current key."""

    __slots__ = ("_keyed", "_timers", "quiesced")

    def __init__(self, keyed: KeyedState) -> None:
        """Register for the current key of ``keyed``."""
        super().__init__()
        self._keyed = keyed
        self._timers = keyed.timers
        #: BATCH mode, and the key is over: new timers are ignored, as in Flink.
        self.quiesced = False

    def register_processing_time_timer(self, timestamp: int) -> None:
        if timestamp.__class__ is not int:
            timestamp = _checked_time(timestamp)
        if not self.quiesced:
            self._timers.register_processing_time(self._keyed.current_key, USER_TIMERS, timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        if timestamp.__class__ is not int or timestamp < _NO_TIME:
            timestamp = _checked_time(timestamp)
        if not self.quiesced:
            self._timers.register_event_time(self._keyed.current_key, USER_TIMERS, timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        if timestamp.__class__ is not int:
            timestamp = _checked_time(timestamp)
        self._timers.delete_processing_time(self._keyed.current_key, USER_TIMERS, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        if timestamp.__class__ is not int:
            timestamp = _checked_time(timestamp)
        self._timers.delete_event_time(self._keyed.current_key, USER_TIMERS, timestamp)


class StateAccess(KeyedStateStore):
    """Handles to the state of the current key."""

    def __init__(self, keyed: KeyedState | None) -> None:
        """Take the state, None if the stream is not keyed."""
        self._keyed = keyed

    def _need(self, name: object) -> KeyedState:
        if self._keyed is None:
            message = f"keyed state {name!r} needs a keyed stream: call key_by() first"
            raise ProgramError(message)
        return self._keyed

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState:
        return self._need(state_descriptor.name).get_state(state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        return self._need(state_descriptor.name).get_list_state(state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState:
        return self._need(state_descriptor.name).get_map_state(state_descriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState:
        return self._need(state_descriptor.name).get_reducing_state(state_descriptor)

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState:
        return self._need(state_descriptor.name).get_aggregating_state(state_descriptor)


class FunctionContext(StateAccess, RuntimeContext):
    """The runtime context of one operator instance."""

    def __init__(self, context: OperatorContext, keyed: KeyedState | None = None) -> None:
        """Take the surroundings of the operator."""
        super().__init__(keyed)
        self._context = context
        self.metrics = MetricGroup()

    def get_task_name(self) -> str:
        return self._context.name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._context.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._context.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._context.subtask

    def get_attempt_number(self) -> int:
        return 0

    def get_task_name_with_subtasks(self) -> str:
        context = self._context
        return f"{context.name} ({context.subtask + 1}/{context.parallelism})"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        configuration = self._context.configuration
        parameters = configuration.get(options.GLOBAL_JOB_PARAMETERS)
        if key in parameters:
            return parameters[key]
        return str(configuration.to_dict().get(key, default_value))

    def get_distributed_cache(self) -> DistributedCache:
        return DistributedCache(self._context.cached_files)

    def get_metrics_group(self) -> MetricGroup:
        return self.metrics
