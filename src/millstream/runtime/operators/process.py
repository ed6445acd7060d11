"""Process operators: ProcessFunctions on one or two inputs, keyed or not, and broadcast state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.contracts.operator import FUNCTION_STATES
from millstream.errors import ProgramError, StateError
from millstream.functions.functions import (
    BaseBroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    TimeDomain,
    TimerService,
)
from millstream.runtime.operators.base import (
    LONGEST_BATCH,
    Collector,
    FunctionOperator,
    KeyedOperator,
    KeyExtractor,
)
from millstream.runtime.operators.checkpointed_functions import (
    ReadableBroadcast,
    WritableBroadcast,
    broadcast_state_of,
)
from millstream.runtime.user_code import (
    NO_RECORD,
    USUAL_RESULTS,
    Clock,
    KeyedTimerService,
    bound_method,
    check_records,
    user_error,
)
from millstream.types.output_tag import OutputTag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        Operator,
        RestoreContext,
        StateSection,
    )
    from millstream.functions.descriptors import MapStateDescriptor, StateDescriptor
    from millstream.functions.handles import BroadcastState, ReadOnlyBroadcastState
    from millstream.state.keyed import KeyedState


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
        super().restore(restored)
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
    """Factory of process operators."""

    function: Any
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return ProcessOperator(self.function)


class _KeyedProcessContext(KeyedProcessFunction.OnTimerContext):
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
        super().__init__(function, key_selector)
        self._process = bound_method(self.function, self.method)
        self._on_timer = getattr(self.function, "on_timer", None)
        self._collector = Collector(self, self.emit)

    def open(self) -> None:
        """Make the context, then open the function."""
        self._service = KeyedTimerService(self.keyed_state)
        self._context: Any = _KeyedProcessContext(self.keyed_state, self._service)
        self.keyed_state.timestamp = self._event_timestamp
        super().open()

    def _event_timestamp(self) -> int:
        """The timestamp of the record or event-time timer; processing-time timers have none."""
        context = self._context
        if context.domain is not TimeDomain.EVENT_TIME:
            return MIN_TIMESTAMP
        timestamp: int = context.current_timestamp
        return timestamp

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
        shorts = self.prefetch(keys)
        process, context = self._process, self._context
        collector = self._collector
        append, append_timestamp = collector.values.append, collector.timestamps.append
        value: object = NO_RECORD
        try:
            for key, short, value, timestamp in zip(
                keys, shorts, batch.values, batch.timestamp_list, strict=True
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
        before the maximum is passed on: after it what they emit would be late.
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
    """Factory of keyed process operators."""

    function: Any
    key_selector: Any
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [FUNCTION_STATES]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return KeyedProcessOperator(self.function, self.key_selector)


class CoProcessOperator(ProcessOperator):
    """Applies a CoProcessFunction to the records of two streams that are not keyed."""

    method = "process_element1"

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._methods = (self._process, bound_method(self.function, "process_element2"))

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self._process = self._methods[input_index]
        super().process_batch(batch)


class KeyedCoProcessOperator(KeyedProcessOperator):
    """Applies a KeyedCoProcessFunction, or a CoProcessFunction, to two keyed streams."""

    method = "process_element1"

    def __init__(self, function: Any, key_selector1: Any, key_selector2: Any) -> None:
        super().__init__(function, key_selector1)
        second = bound_method(self.function, "process_element2")
        self._inputs = (
            (self.extractor, self._process),
            (KeyExtractor(key_selector2, self.key_types), second),
        )

    def user_functions(self) -> Iterable[object]:
        functions = [each for extractor, _ in self._inputs for each in extractor.functions]
        return (self.function, *functions)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.extractor, self._process = self._inputs[input_index]
        super().process_batch(batch)


@dataclass
class CoProcessFactory:
    """Factory of operators for two streams that are not keyed."""

    function: Any
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return CoProcessOperator(self.function)


@dataclass
class KeyedCoProcessFactory:
    """Factory of operators for two keyed streams."""

    function: Any
    key_selector1: Any
    key_selector2: Any
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [FUNCTION_STATES]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return KeyedCoProcessOperator(self.function, self.key_selector1, self.key_selector2)


_BROADCAST_METHOD: Final = "process_broadcast_element"


class _States:
    """The broadcast states of one operator, by name, in both forms."""

    def __init__(self, descriptors: Sequence[MapStateDescriptor]) -> None:
        self._descriptors = descriptors
        self._writable: dict[str, WritableBroadcast] = {}
        self._read_only: dict[str, ReadableBroadcast] = {}

    def restore(self, restored: RestoreContext) -> None:
        states = restored.operator_states
        for each in self._descriptors:
            state = broadcast_state_of(states, each)
            self._writable[each.name] = WritableBroadcast(state, each)
            self._read_only[each.name] = ReadableBroadcast(state)

    def writable(self, descriptor: MapStateDescriptor) -> WritableBroadcast:
        return self._writable.get(descriptor.name) or self._unknown(descriptor)

    def read_only(self, descriptor: MapStateDescriptor) -> ReadableBroadcast:
        return self._read_only.get(descriptor.name) or self._unknown(descriptor)

    def _unknown(self, descriptor: MapStateDescriptor) -> WritableBroadcast:
        known = ", ".join(repr(each.name) for each in self._descriptors)
        message = (
            f"there is no broadcast state {descriptor.name!r}; broadcast() was given {known}."
            " Give it this descriptor as well"
        )
        raise ProgramError(message)


class _Times(BaseBroadcastProcessFunction.BaseContext):
    """One object reused for all records of a stream."""

    __slots__ = ("_clock", "_states", "current_timestamp")

    def __init__(self, clock: Clock, states: _States) -> None:
        self._clock = clock
        self._states = states
        self.current_timestamp = MIN_TIMESTAMP

    def timestamp(self) -> int:
        return self.current_timestamp

    def current_processing_time(self) -> int:
        return self._clock.processing_time

    def current_watermark(self) -> int:
        return self._clock.watermark


class _BroadcastProcessContext(_Times, BaseBroadcastProcessFunction.Context):
    """For the broadcast stream."""

    __slots__ = ()

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._states.writable(state_descriptor)


class _KeyedBroadcastContext(_BroadcastProcessContext, KeyedBroadcastProcessFunction.Context):
    """For the broadcast stream beside a keyed one."""

    __slots__ = ("_keyed",)

    def __init__(self, clock: Clock, states: _States, keyed: KeyedState) -> None:
        super().__init__(clock, states)
        self._keyed = keyed

    def apply_to_keyed_state(
        self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], None]
    ) -> None:
        process = getattr(function, "process", function)
        keyed = self._keyed
        state = keyed.handle_of(state_descriptor)
        try:
            for key in keyed.keys_of(state_descriptor):
                process(key, state)
        finally:
            _leave_keys(keyed)


class _ReadOnlyContext(_Times, BaseBroadcastProcessFunction.ReadOnlyContext):
    """For a stream that is not keyed."""

    __slots__ = ()

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor
    ) -> ReadOnlyBroadcastState[Any, Any]:
        return self._states.read_only(state_descriptor)


class _KeyedContext(_ReadOnlyContext, KeyedBroadcastProcessFunction.OnTimerContext):
    """For the records and timers of a keyed stream."""

    __slots__ = ("_keyed", "domain")

    def __init__(self, clock: Clock, states: _States, keyed: KeyedState) -> None:
        super().__init__(clock, states)
        self._keyed = keyed
        self.domain = TimeDomain.EVENT_TIME

    def timer_service(self) -> TimerService:
        return self._clock

    def get_current_key(self) -> Any:
        return self._keyed.current_key

    def time_domain(self) -> TimeDomain:
        return self.domain


class _NoKey:
    """Stands for the key where there is none: reading it raises an error."""

    def __hash__(self) -> int:
        message = (
            "keyed state has no current key in process_broadcast_element; use it in process_element"
            " or on_timer"
        )
        raise StateError(message)


def _leave_keys(keyed: KeyedState) -> None:
    """Have no key: one that came before must not look like that of a record which has none."""
    keyed.current_key = None
    keyed.cache_key = _NoKey()  # type: ignore[assignment] # on purpose


class BroadcastProcessOperator(ProcessOperator):
    """Applies a BroadcastProcessFunction."""

    def __init__(self, function: Any, descriptors: Sequence[MapStateDescriptor]) -> None:
        super().__init__(function)
        self._states = _States(descriptors)
        self._methods = (self._process, bound_method(self.function, _BROADCAST_METHOD))
        self._contexts = (
            _ReadOnlyContext(self._clock, self._states),
            _BroadcastProcessContext(self._clock, self._states),
        )

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._states.restore(restored)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self._process = self._methods[input_index]
        self._record_context = self._contexts[input_index]
        super().process_batch(batch)


class KeyedBroadcastProcessOperator(KeyedProcessOperator):
    """Applies a KeyedBroadcastProcessFunction."""

    def __init__(
        self, function: Any, key_selector: Any, descriptors: Sequence[MapStateDescriptor]
    ) -> None:
        super().__init__(function, key_selector)
        self._states = _States(descriptors)
        self._process_broadcast = bound_method(self.function, _BROADCAST_METHOD)

    def open(self) -> None:
        """Make the contexts, then open the function."""
        super().open()
        self._context = _KeyedContext(self._service, self._states, self.keyed_state)
        self._broadcast_context = _KeyedBroadcastContext(
            self._service, self._states, self.keyed_state
        )

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._states.restore(restored)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        if input_index == 0:
            super().process_batch(batch)
            return
        self.records_in += len(batch)
        _leave_keys(self.keyed_state)
        context, collector = self._broadcast_context, self._collector
        for value, timestamp in zip(batch.values, batch.timestamp_list, strict=True):
            context.current_timestamp = timestamp
            try:
                result = self._process_broadcast(value, context)
                if result is not None:
                    collector.collect(result, timestamp)
            except Exception as error:
                raise user_error(self.context, error, value) from error
        collector.flush()


@dataclass
class BroadcastProcessFactory:
    """Factory of operators for a stream that is not keyed."""

    function: Any
    descriptors: Sequence[MapStateDescriptor]
    keyed: ClassVar[bool] = False
    first_input: ClassVar[int] = 1

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return BroadcastProcessOperator(self.function, self.descriptors)


@dataclass
class KeyedBroadcastProcessFactory:
    """Factory of operators for a keyed stream."""

    function: Any
    key_selector: Any
    descriptors: Sequence[MapStateDescriptor]
    keyed: ClassVar[bool] = True
    first_input: ClassVar[int] = 1

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [FUNCTION_STATES]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return KeyedBroadcastProcessOperator(self.function, self.key_selector, self.descriptors)
