"""Functions that take part in checkpoints: with state of the operator, or by being told of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.functions.descriptors import ListStateDescriptor, MapStateDescriptor
    from millstream.functions.functions import KeyedStateStore
    from millstream.functions.handles import BroadcastState, ListState


class OperatorStateStore(ABC):
    """Gives handles to the state of an operator's subtask, by descriptor.

    What a state holds when ``snapshot_state`` returns is in the checkpoint.  The three kinds differ
    in who gets what when the job goes on at another parallelism.
    """

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list whose elements are dealt out to the subtasks at another parallelism.

        Args:
            state_descriptor: name and type; the name is the operator's own, beside keyed state.

        Raises:
            StateError: the checkpoint has a state of this name and another kind or type.
        """

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list of which every subtask is given the elements of all.

        Raises:
            StateError: as for ``get_list_state``.
        """

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return a map that the function keeps the same in all subtasks; each is given one of them.

        Raises:
            StateError: as for ``get_list_state``.
        """


class FunctionInitializationContext(ABC):
    """The argument of ``initialize_state``.  Not to be kept."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Return whether the job goes on from a checkpoint."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """Return the id of that checkpoint, None if there is none."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Return where the state of the operator is to be had."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """Return where keyed state is to be had; its handles raise where there are no keys."""


class FunctionSnapshotContext(ABC):
    """The argument of ``snapshot_state``.  Not to be kept."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Return the id of the checkpoint that is being taken."""


class CheckpointedFunction(ABC):
    """A second base class of a function that keeps state of its operator, as Flink's.

    Such a function may hold records in its fields and copy them into a state when a checkpoint is
    taken.  ``initialize_state`` comes before ``open``.  Whenever a task goes on from a checkpoint
    the function begins anew, with the fields that it had in the program; in micro-batches that is
    the case in every one.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Get the handles of its state, and read from them what a checkpoint has."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Write into its state what the checkpoint is to have; nothing can be emitted."""


class CheckpointListener(ABC):
    """A second base class of a function that is told of checkpoints, as Flink's.

    A call may be missing: where a task has failed meanwhile, and in micro-batches where the next
    one runs in another process, or there is none.  So what is done at the completion of a
    checkpoint is also done, for all earlier ones, at the next.
    """

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint is complete and its transactions are committed."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint of a running task was aborted; later ones have its records."""
