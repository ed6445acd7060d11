"""Operator state: what an operator keeps that belongs to a subtask, not to a key.

What it is: named states of three kinds, as Flink's ``OperatorStateStore`` has them, and how a
checkpoint says where one of them lies.  The kind decides what a subtask is given when the job is
restored (``state/redistribution.py``).

What it is not: the states (``state/operator_state.py``), or keyed state
(``contracts/key_value_store.py``).

Read next: ``state/operator_state.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from millstream.contracts.key_value_store import StateFile
    from millstream.types.typeinfo import TypeInformation

__all__ = [
    "GENERATOR_STATE",
    "OperatorBroadcastState",
    "OperatorListState",
    "OperatorStateHandle",
    "OperatorStateKind",
    "OperatorStateStore",
    "StatePart",
]


#: The name of what watermark generators keep.
GENERATOR_STATE: Final = "generator"


class OperatorStateKind(StrEnum):
    """Who gets what when a job is restored."""

    #: At another parallelism its elements are dealt out, in order; at the same one each subtask
    #: has its own again.
    LIST = "list"
    #: Every subtask gets the elements of all, in order of the subtasks.
    UNION = "union"
    #: The same map in every subtask, so each gets one of the copies.
    BROADCAST = "broadcast"

    @property
    def label(self) -> str:
        """What it is called in messages."""
        return {"list": "list state", "union": "union list state"}.get(self, "broadcast state")


@dataclass(frozen=True, slots=True)
class OperatorStateHandle:
    """One named state of one subtask in a checkpoint."""

    kind: OperatorStateKind
    #: How many elements; of broadcast state, entries.
    count: int
    #: The elements, each pickled, where they are small; else they are in the file.
    inline: tuple[bytes, ...] = ()
    file: StateFile | None = None
    #: The declared type, for people; empty if there is none.
    type: str = ""
    #: All of a union, as the subtask was given it, which has not asked for it: the others have the
    #: same, and it counts once.
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class StatePart:
    """The elements ``[first, stop)`` of a state in a checkpoint."""

    handle: OperatorStateHandle
    first: int
    stop: int

    @classmethod
    def whole(cls, handle: OperatorStateHandle) -> StatePart:
        """Return all elements of a state."""
        return cls(handle, 0, handle.count)

    @property
    def is_whole(self) -> bool:
        """Whether it is all of it."""
        return self.first == 0 and self.stop == self.handle.count


class OperatorListState(Protocol):
    """A list; ``get`` gives a copy."""

    def get(self) -> list[Any]:
        """Return the elements."""

    def add(self, element: object) -> None:
        """Append an element."""

    def update(self, elements: Iterable[object]) -> None:
        """Take these elements in place of all others."""

    def clear(self) -> None:
        """Remove all elements."""


class OperatorBroadcastState(Protocol):
    """A map.  Whoever changes a value in place has to put it again."""

    def get(self, key: Any) -> Any:
        """Return the value of a key, None if there is none."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set the values of several keys."""

    def remove(self, key: Any) -> None:
        """Remove a key, if it is there."""

    def contains(self, key: Any) -> bool:
        """Return whether there is such a key."""

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return keys and values."""

    def clear(self) -> None:
        """Remove all keys."""


class OperatorStateStore(Protocol):
    """The operator states of one subtask.

    Contract:
      1. A state is asked for in ``restore``, each time, and holds what the checkpoint has for this
         subtask.  (operators)
      2. What it holds when ``snapshot`` of the operator returns is in the checkpoint.  (runtime)
      3. A name that a checkpoint has and nobody asks for is kept, as in Flink.  (test kit)
      4. A name that a checkpoint has as another kind, or of another declared type, is refused.
         (runtime)
    """

    def list_state(self, name: str, type_info: TypeInformation | None = None) -> OperatorListState:
        """Return the list whose elements are dealt out at another parallelism."""

    def union_list_state(
        self, name: str, type_info: TypeInformation | None = None
    ) -> OperatorListState:
        """Return the list of which every subtask gets the elements of all."""

    def broadcast_state(
        self,
        name: str,
        key_type: TypeInformation | None = None,
        value_type: TypeInformation | None = None,
    ) -> OperatorBroadcastState:
        """Return the map that is the same in all subtasks."""
