"""The operators of a stream and a broadcast one: process functions with broadcast state.

What it is: input 0 is the stream, whose records read the states; input 1 is broadcast to all
subtasks, and its records write them.  The states are operator state that every subtask has whole.

What it is not: a promise about the order between the inputs in STREAMING mode.  As in Flink, a
record may come before a broadcast one that was written earlier; who cannot have that keeps such
records in keyed state.  In BATCH mode the broadcast stream is read to its end first
(``graph/model.py``).

Read next: ``contracts/operator.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.contracts.operator import FUNCTION_STATES
from millstream.errors import ProgramError, StateError
from millstream.functions.descriptors import writer
from millstream.functions.functions import (
    BaseBroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    TimeDomain,
    TimerService,
)
from millstream.functions.handles import BroadcastState, ReadOnlyBroadcastState
from millstream.runtime.operators.keyed_process import KeyedProcessOperator
from millstream.runtime.operators.process import ProcessOperator
from millstream.runtime.user_code import bound_method, user_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        Operator,
        OperatorBroadcastState,
        RestoreContext,
        StateSection,
    )
    from millstream.functions.descriptors import MapStateDescriptor
    from millstream.runtime.function_context import Clock
    from millstream.state.keyed import KeyedState
    from millstream.types.typeinfo import TypeInformation

__all__ = [
    "BroadcastProcessFactory",
    "BroadcastProcessOperator",
    "KeyedBroadcastProcessFactory",
    "KeyedBroadcastProcessOperator",
]

_BROADCAST_METHOD: Final = "process_broadcast_element"


class _ReadOnly(ReadOnlyBroadcastState[Any, Any]):
    """A state as records of the stream see it."""

    __slots__ = ("_state",)

    def __init__(self, state: OperatorBroadcastState) -> None:
        self._state = state

    def get(self, key: Any) -> Any:
        return self._state.get(key)

    def contains(self, key: Any) -> bool:
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self._state.items()

    def clear(self) -> None:
        message = "broadcast state can be written in process_broadcast_element only"
        raise ProgramError(message)


class _Writable(_ReadOnly, BroadcastState[Any, Any]):
    """A state as records of the broadcast stream see it; what they write is of its types."""

    __slots__ = ("_check_key", "_check_value")

    def __init__(self, state: OperatorBroadcastState, descriptor: MapStateDescriptor) -> None:
        super().__init__(state)
        place = f"state {descriptor.name!r}"
        self._check_key = writer(descriptor.key_type_info, f"{place}, map key")
        self._check_value = writer(descriptor.type_info, f"{place}, map value")

    def put(self, key: Any, value: Any) -> None:
        self._check_key(key)
        self._check_value(value)
        self._state.put(key, value)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._state.remove(key)

    def clear(self) -> None:
        self._state.clear()


class _States:
    """The broadcast states of one operator, by name, in both forms."""

    def __init__(self, descriptors: Sequence[MapStateDescriptor]) -> None:
        self._descriptors = descriptors
        self._writable: dict[str, _Writable] = {}
        self._read_only: dict[str, _ReadOnly] = {}

    def restore(self, restored: RestoreContext) -> None:
        states = restored.operator_states
        for each in self._descriptors:
            key_type = cast("TypeInformation | None", each.key_type_info)
            value_type = cast("TypeInformation | None", each.type_info)
            state = states.broadcast_state(each.name, key_type, value_type)
            self._writable[each.name] = _Writable(state, each)
            self._read_only[each.name] = _ReadOnly(state)

    def writable(self, descriptor: MapStateDescriptor) -> _Writable:
        return self._writable.get(descriptor.name) or self._unknown(descriptor)

    def read_only(self, descriptor: MapStateDescriptor) -> _ReadOnly:
        return self._read_only.get(descriptor.name) or self._unknown(descriptor)

    def _unknown(self, descriptor: MapStateDescriptor) -> _Writable:
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


class _Context(_Times, BaseBroadcastProcessFunction.Context):
    """For the broadcast stream."""

    __slots__ = ()

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._states.writable(state_descriptor)


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
    """Stands for the key where there is none: whatever looks it up is told so."""

    def __hash__(self) -> int:
        message = (
            "keyed state has no current key in process_broadcast_element; use it in process_element"
            " or on_timer"
        )
        raise StateError(message)


class BroadcastProcessOperator(ProcessOperator):
    """Applies a BroadcastProcessFunction."""

    def __init__(self, function: Any, descriptors: Sequence[MapStateDescriptor]) -> None:
        """Take the user's function and the descriptors of the states."""
        super().__init__(function)
        self._states = _States(descriptors)
        self._methods = (self._process, bound_method(self.function, _BROADCAST_METHOD))
        self._contexts = (
            _ReadOnlyContext(self._clock, self._states),
            _Context(self._clock, self._states),
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
        """Take the user's function, key selector, and the descriptors of the states."""
        super().__init__(function, key_selector)
        self._states = _States(descriptors)
        self._process_broadcast = bound_method(self.function, _BROADCAST_METHOD)

    def open(self) -> None:
        """Make the contexts, then open the function."""
        super().open()
        self._context = _KeyedContext(self._service, self._states, self.keyed_state)
        self._broadcast_context = _Context(self._service, self._states)

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._states.restore(restored)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        if input_index == 0:
            super().process_batch(batch)
            return
        self.records_in += len(batch)
        # A key that came before must not look like that of a record which has none.
        self.keyed_state.current_key = None
        self.keyed_state.cache_key = _NoKey()  # type: ignore[assignment] # on purpose
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
    """Makes operators for a stream that is not keyed."""

    function: Any
    descriptors: Sequence[MapStateDescriptor]
    keyed: ClassVar[bool] = False
    first_input: ClassVar[int] = 1

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return BroadcastProcessOperator(self.function, self.descriptors)


@dataclass
class KeyedBroadcastProcessFactory:
    """Makes operators for a keyed stream."""

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
