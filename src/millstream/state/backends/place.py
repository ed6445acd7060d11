"""Where a state backend opens a store: what it is given, and what it has to give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from millstream.configuration.configuration import Configuration

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import KeyValueStore, StateHandle
    from millstream.state.local_copies import LocalCopies


@dataclass(frozen=True, slots=True)
class StorePlace:
    """One attempt of one operator subtask, whose store is opened."""

    #: Where snapshots go.
    storage: CheckpointStorage
    #: Of the operator.
    uid: str
    #: ``[first, stop)`` of the subtask.
    key_groups: tuple[int, int]
    #: Unique name of this attempt of the task.
    attempt: str
    #: The local directories of the subtask.
    copies: LocalCopies
    #: Of the job: options of the backend.
    configuration: Configuration = field(default_factory=Configuration)


#: A state backend.
#:
#: Contract:
#:   1. It opens the store with the content of a snapshot that it made, or an empty one if there is
#:      none.  Key groups of the snapshot that the subtask does not have stay in.  (`tests/state`)
#:   2. The handles of its snapshots name it as ``backend``.  (nobody)
#:   3. The store keeps the contract of ``KeyValueStore``.  (`tests/state`)
OpenStore: TypeAlias = "Callable[[StorePlace, StateHandle | None], KeyValueStore]"
