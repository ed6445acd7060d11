"""What a task is told about one epoch: assignments, restored state, channels.

What it is: plain picklable data made by the driver for each epoch (``checkpoint`` side) and read
by ``runtime/task.py``.  It is the only thing that changes from epoch to epoch; the job graph is
shipped once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.contracts.batch import MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.checkpoint.model import FramesInFlight
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import StateHandle
    from millstream.contracts.operator import StatePart
    from millstream.contracts.source import Split


#: The operator states of a per-channel operator for one split, which are small and lie with it:
#: name -> kind and pickled elements.
ChannelStates = dict[str, tuple[str, list[bytes]]] | None
#: Id of the pseudo-splits that carry the maximum watermark when a source is over.
END_OF_INPUT: Final = "end-of-input"


@dataclass(slots=True)
class SplitAssignment:
    """One split as it takes part in an epoch (also when nothing of it is read)."""

    source_uid: str
    split: Split
    #: The subtask of stage 0 that reads it.
    subtask: int
    #: ``[start, stop)``; equal if nothing is read.
    start: int
    stop: int
    #: Number of its channel, unique in the epoch.
    channel: int
    #: The split ends at ``stop``.
    finished: bool = False
    #: Whether the planner takes it for idle; None: it cannot know (a Spark DataFrame).
    idle: bool | None = False
    #: Whether its channels were idle at the end of the previous epoch.
    was_idle: bool = False
    #: Operator uid -> watermark and states of the per-channel operators of stage 0.
    operators: dict[str, tuple[int, ChannelStates]] = field(default_factory=dict)

    @property
    def starts_idle(self) -> bool:
        """Whether its channels begin the epoch as idle ones.

        Not if it is known that records come: what others say must not move time past them.
        """
        return bool(self.idle) or (self.was_idle and self.start == self.stop)

    def watermark(self, uids: Iterable[str]) -> int:
        """The least watermark that the per-channel operators ``uids`` had reached."""
        return min(self.operators.get(uid, (MIN_TIMESTAMP, None))[0] for uid in uids)

    @property
    def is_end_of_input(self) -> bool:
        """Whether it only carries the maximum watermark of a source that is over."""
        return self.split.id.startswith(END_OF_INPUT)


@dataclass(slots=True)
class OperatorRestore:
    """The previous checkpoint of one operator, all subtasks."""

    #: Per old subtask.
    handles: list[StateHandle | None]
    watermarks: list[int]
    idle: list[bool]
    #: Per subtask of this job: name -> the parts that it is given.
    operator_states: list[dict[str, list[StatePart]]]


@dataclass(slots=True)
class EpochPlan:
    """Everything that is new about an epoch."""

    job_id: str
    #: Changes with every run of the driver, so that workers drop what an older run left.
    run_id: str
    #: Of the run in the manifest log; the first part of every attempt's name, so that an older
    #: run can tell the output of a newer one and leaves it alone.
    generation: int
    epoch: int
    #: Milliseconds; the same in every replay.
    processing_time: int
    assignments: list[SplitAssignment]
    #: Operator uid -> its previous checkpoint.
    operators: dict[str, OperatorRestore]
    #: The last epoch of a bounded job.
    final: bool
    storage: CheckpointStorage
    #: Where workers keep local copies of state.
    local_root: str
    state_backend: str
    fsync: bool = True
    #: Whether ``processing_time`` is of the system's clock, which moves while the epoch runs.
    clock_moves: bool = True
    #: What barriers had overtaken at all tasks of the previous checkpoint.
    in_flight: list[FramesInFlight] = field(default_factory=list)

    def old_parallelism(self, uid: str) -> int:
        """How many subtasks an operator had at the end of the previous epoch; 0: it was not."""
        restore = self.operators.get(uid)
        return 0 if restore is None else len(restore.watermarks)

    def subtask_watermark(self, uid: str, subtask: int, parallelism: int) -> int:
        """An operator's watermark at the end of the previous epoch."""
        restore = self.operators.get(uid)
        if restore is None or not restore.watermarks:
            return MIN_TIMESTAMP
        if len(restore.watermarks) == parallelism:
            return restore.watermarks[subtask]
        # After a change of parallelism nobody knows more than the slowest old subtask.
        return min(restore.watermarks)

    def subtask_idle(self, uid: str, subtask: int, parallelism: int) -> bool:
        """Whether an operator was idle at the end of the previous epoch."""
        restore = self.operators.get(uid)
        if restore is None or len(restore.idle) != parallelism:
            return False
        return restore.idle[subtask]

    def operator_states(self, uid: str, subtask: int) -> dict[str, list[StatePart]]:
        """What an operator's subtask is given of operator state."""
        restore = self.operators.get(uid)
        return restore.operator_states[subtask] if restore is not None else {}

    def handles(self, uid: str) -> list[StateHandle]:
        """Where the keyed state of an operator lies."""
        restore = self.operators.get(uid)
        return [] if restore is None else [handle for handle in restore.handles if handle]
