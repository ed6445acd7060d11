"""State of an operator as user functions see it, and functions that take part in checkpoints."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from millstream.errors import ProgramError
from millstream.functions.checkpointed import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OperatorStateStore,
)
from millstream.functions.descriptors import writer
from millstream.functions.handles import BroadcastState, ListState, ReadOnlyBroadcastState
from millstream.runtime.user_code import (
    close_functions,
    open_functions,
    private_copy,
    user_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.contracts.operator import (
        Checkpoint,
        OperatorBroadcastState,
        OperatorContext,
        OperatorListState,
        RestoreContext,
    )
    from millstream.contracts.operator import OperatorStateStore as States
    from millstream.functions.descriptors import ListStateDescriptor, MapStateDescriptor
    from millstream.functions.functions import KeyedStateStore
    from millstream.runtime.user_code import FunctionContext
    from millstream.types.types import TypeInformation


class ReadableBroadcast(ReadOnlyBroadcastState[Any, Any]):
    """A broadcast state that is not to be written here."""

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


class WritableBroadcast(ReadableBroadcast, BroadcastState[Any, Any]):
    """A broadcast state; what is written is of its types."""

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


def broadcast_state_of(states: States, descriptor: MapStateDescriptor) -> OperatorBroadcastState:
    """Return the broadcast state that a descriptor names.

    Raises:
        StateError: the checkpoint has a state of this name and another kind or type.
    """
    key_type = cast("TypeInformation | None", descriptor.key_type_info)
    value_type = cast("TypeInformation | None", descriptor.type_info)
    return states.broadcast_state(descriptor.name, key_type, value_type)


class _List(ListState[Any]):
    """A list of the operator; what is written is of its type."""

    __slots__ = ("_check", "_state")

    def __init__(self, state: OperatorListState, descriptor: ListStateDescriptor) -> None:
        self._state = state
        self._check = writer(descriptor.type_info, f"state {descriptor.name!r}")

    def get(self) -> Iterable[Any]:
        return self._state.get()

    def add(self, value: Any) -> None:
        self._check(value)
        self._state.add(value)

    def add_all(self, values: Sequence[Any]) -> None:
        for value in values:
            self.add(value)

    def update(self, values: Sequence[Any]) -> None:
        every = list(values)
        for value in every:
            self._check(value)
        self._state.update(every)

    def clear(self) -> None:
        self._state.clear()


class _Store(OperatorStateStore):
    def __init__(self, states: States) -> None:
        self._states = states

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        kind = cast("TypeInformation | None", state_descriptor.type_info)
        return _List(self._states.list_state(state_descriptor.name, kind), state_descriptor)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        kind = cast("TypeInformation | None", state_descriptor.type_info)
        return _List(self._states.union_list_state(state_descriptor.name, kind), state_descriptor)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        state = broadcast_state_of(self._states, state_descriptor)
        return WritableBroadcast(state, state_descriptor)


class _Initialization(FunctionInitializationContext):
    def __init__(self, restored: RestoreContext, keyed: KeyedStateStore) -> None:
        self._restored = restored
        self._keyed = keyed

    def is_restored(self) -> bool:
        return self._restored.epoch > 0

    def get_restored_checkpoint_id(self) -> int | None:
        return self._restored.epoch - 1 if self.is_restored() else None

    def get_operator_state_store(self) -> OperatorStateStore:
        return _Store(self._restored.operator_states)

    def get_keyed_state_store(self) -> KeyedStateStore:
        return self._keyed


class _Snapshot(FunctionSnapshotContext):
    def __init__(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def get_checkpoint_id(self) -> int:
        return self._checkpoint_id


class OperatorFunctions:
    """Opens and closes the user functions of an operator, and has them take part in checkpoints.

    Cases of ``restore``:

    1. A plain function -> it is open and stays as it is.
    2. A CheckpointedFunction, the first time -> its state is initialized, then it is opened.
    3. A CheckpointedFunction, again -> it is closed, has the fields that it had in the program, and
       goes on as in 2: what it had gathered is in its state, and would be in its fields twice.

    It can never be fed without having been initialized from the checkpoint that it goes on from.
    """

    def __init__(
        self, functions: Iterable[object], runtime: FunctionContext, context: OperatorContext
    ) -> None:
        every = list(functions)
        self._runtime = runtime
        self._context = context
        self._plain = [each for each in every if not isinstance(each, CheckpointedFunction)]
        self._checkpointed = [each for each in every if isinstance(each, CheckpointedFunction)]
        self._listeners = [each for each in every if isinstance(each, CheckpointListener)]
        self._open: list[object] = []
        #: As the program has them.
        self._fields = [private_copy(vars(each)) for each in self._checkpointed]
        #: The checkpoint of the last snapshot, as long as nobody has told of its end.
        self._last: int | None = None

    def open(self) -> None:
        """Open those that can be before their state is known."""
        self._open = list(self._plain)
        open_functions(self._plain, self._runtime, self._context)

    def close(self) -> None:
        """Close those that were opened."""
        functions, self._open = self._open, []
        close_functions(functions, self._context)

    def restore(self, restored: RestoreContext) -> None:
        """Have them go on from a checkpoint; in micro-batches it is the one that they took part in.

        Raises:
            MillstreamError: a function has raised; names the operator.
        """
        if self._last is not None and self._last == restored.epoch - 1:
            self.completed(self._last)
        self._last = None
        for function, fields in zip(self._checkpointed, self._fields, strict=True):
            if any(each is function for each in self._open):
                self._open = [each for each in self._open if each is not function]
                close_functions([function], self._context)
                vars(function).clear()
                vars(function).update(private_copy(fields))
            context = _Initialization(restored, self._runtime)
            self._call(partial(function.initialize_state, context), "initializing the state of")
            self._open.append(function)
            open_functions([function], self._runtime, self._context)

    def snapshot(self, checkpoint: Checkpoint) -> None:
        """Have them write what the checkpoint is to have into their states."""
        self._last = checkpoint.epoch
        for function in self._checkpointed:
            context = _Snapshot(checkpoint.epoch)
            self._call(partial(function.snapshot_state, context), "writing the state of")

    def completed(self, checkpoint_id: int) -> None:
        """Tell those that listen that a checkpoint is complete."""
        self._last = None if self._last == checkpoint_id else self._last
        for listener in self._listeners:
            call = partial(listener.notify_checkpoint_complete, checkpoint_id)
            self._call(call, f"telling of checkpoint {checkpoint_id}")

    def aborted(self, checkpoint_id: int) -> None:
        """Tell those that listen that a checkpoint was aborted."""
        for listener in self._listeners:
            call = partial(listener.notify_checkpoint_aborted, checkpoint_id)
            self._call(call, f"telling of the end of checkpoint {checkpoint_id}")

    def _call(self, call: Callable[[], None], doing: str) -> None:
        try:
            call()
        except Exception as error:
            raise user_error(self._context, error, doing=f"{doing} the function") from error
