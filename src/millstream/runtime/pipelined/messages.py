"""What the driver and the slots of a pipelined run say to each other.

What it is: plain picklable data, sent over the control connection of each slot.  Nothing is read
from a connection before it is authenticated.

What it is not: what tasks send each other (``runtime/pipelined/links.py``).

Read next: ``runtime/pipelined/slot.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.graph.job_files import JobFiles
    from millstream.runtime.live_counts import RunningMetrics
    from millstream.runtime.plan import SplitAssignment

__all__ = [
    "NEVER",
    "Abandoned",
    "Acknowledged",
    "Assigned",
    "Beat",
    "Begin",
    "BeginRegion",
    "Ceilings",
    "Completed",
    "Declined",
    "Drain",
    "DriverMessage",
    "End",
    "Failed",
    "Grown",
    "Held",
    "Joins",
    "Met",
    "Newcomer",
    "Progress",
    "Registered",
    "Retired",
    "Running",
    "SlotMessage",
    "SlotSettings",
    "SourceEnded",
    "SplitProgress",
    "StopRegion",
    "Stopped",
    "SubtaskTimes",
    "TakeCheckpoint",
    "Unreachable",
]

#: A deadline that does not come.
NEVER: Final = 2**63 - 1

#: Host and port.
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class SlotSettings:
    """What a slot's process is begun with."""

    slot: int
    #: How many there are.
    slots: int
    run_id: str
    #: The secret of the run, with which each end of a connection shows that it belongs to it.
    token: bytes
    #: Where the driver listens.
    driver: Address
    #: The address of this machine's that the other slots can reach.
    host: str
    #: The job, pickled.
    graph: bytes
    files: JobFiles
    #: Whether a region is restarted alone when one of its tasks fails.
    restarts_regions: bool = False
    #: Whether the slot goes on when others are lost; new ones take their places.
    outlives_others: bool = False
    #: Whether a process was lost that did the same (``runtime/last_given.py``).
    careful: bool = False


# -- from the driver ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """All slots are there: connect to each other, restore, and run."""

    #: The plan of the first epoch, pickled: what is restored.  Its assignments are the splits that
    #: have begun.
    plan: bytes
    #: Of the slots, in order.
    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Joins:
    """In place of ``Begin``, for a slot that takes the place of a lost one: the others are at work.

    Its tasks begin with their regions.
    """

    #: To which it connects: new ones as well.
    connect: dict[int, Address]
    #: Which connect to it.
    accept: frozenset[int]


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A slot has taken the place of a lost one: connect to it."""

    slot: int
    address: Address


@dataclass(frozen=True, slots=True)
class StopRegion:
    """Close the tasks of a region, one of which has failed; all others go on."""

    region: int
    #: The number of the attempt that will follow; the first was 0.
    attempt: int


@dataclass(frozen=True, slots=True)
class BeginRegion:
    """All slots have stopped the tasks of a region: make new ones, restore, and run."""

    region: int
    attempt: int
    #: The plan of its first epoch, pickled: what is restored, and the splits of its sources.
    plan: bytes


@dataclass(frozen=True, slots=True)
class Assigned:
    """Splits that the slot reads from now on."""

    #: ``start`` is where reading begins, ``stop`` how far it can go now; the channel is unique in
    #: the run.
    splits: tuple[SplitAssignment, ...]


@dataclass(frozen=True, slots=True)
class Grown:
    """How far splits can be read now."""

    #: Channel -> offset.
    ends: dict[int, int]
    #: Channels of splits whose end is their last.
    final: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Retired:
    """These splits are read to their ends, and what follows them was assigned ahead of this.

    Until then they hold time back: else nobody would, while the next splits are on their way to
    their readers, and records of these would be late.
    """

    channels: frozenset[int]


@dataclass(frozen=True, slots=True)
class SourceEnded:
    """No split of a source will come any more, and all that it had are read to their ends."""

    source_uid: str


@dataclass(frozen=True, slots=True)
class Held:
    """Splits that are ahead of their group in event time, and wait; all others do not."""

    channels: frozenset[int]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """How far splits may run in event time before they wait, too, until they are told anew."""

    #: Channel -> milliseconds; a split that is not here may run as far as it likes.
    by_channel: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Drain:
    """Take every split for read to its end where it is: the job is to stop, and its time to end."""


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Let a barrier flow behind all that was read."""

    #: Its number; all that is processed since the one before belongs to it.
    epoch: int
    #: The input is over: operators are told so ahead of their snapshot.
    final: bool = False
    #: Milliseconds since 1970.
    time: int = 0
    #: Milliseconds since 1970 from which on its barriers overtake what lies before them.
    deadline: int = NEVER


@dataclass(frozen=True, slots=True)
class Completed:
    """A checkpoint is published and committed."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A checkpoint was given up: nothing more is kept for it alone."""

    epoch: int


@dataclass(frozen=True, slots=True)
class End:
    """Close the user functions, and end: the last checkpoint is complete."""


DriverMessage = (
    Begin
    | Joins
    | Newcomer
    | StopRegion
    | BeginRegion
    | Assigned
    | Grown
    | Retired
    | SourceEnded
    | Held
    | Ceilings
    | Drain
    | TakeCheckpoint
    | Completed
    | Abandoned
    | End
)

# -- from a slot -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Registered:
    """A slot is there."""

    slot: int
    #: Where it listens for other slots.
    address: Address
    pid: int
    #: Name of its machine.
    machine: str


@dataclass(frozen=True, slots=True)
class Running:
    """The tasks of a slot are restored: from now on it hears what the driver says, and reads."""

    slot: int
    #: That of ``BeginRegion``; None: those of all regions, for the first time.
    region: int | None = None
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Met:
    """A slot that was told of a newcomer is connected with it."""

    slot: int
    other: int


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The connection with another slot has ended; what is sent to it is dropped."""

    slot: int
    other: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """No task of a region's older attempts is left in the slot, nor anything that it uploads."""

    slot: int
    region: int
    #: That of ``StopRegion``.
    attempt: int


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """How far a split is."""

    #: All before it was handed to the operators.
    position: int
    #: Milliseconds; of the split's head.
    watermark: int
    idle: bool
    #: Read to its last end.
    over: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the splits of a slot are; those only that have moved since it was said last."""

    slot: int
    #: By channel.
    splits: dict[int, SplitProgress]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One task's part of a checkpoint is durable."""

    slot: int
    #: A ``TaskAck``, pickled.
    ack: bytes
    #: Seconds: between the first barrier and the last; in which nothing was processed.
    aligning: float = 0.0
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Declined:
    """One task's part of a checkpoint cannot be made durable; the task goes on."""

    slot: int
    epoch: int
    #: (stage, subtask).
    task: tuple[int, int]
    #: The exception, pickled.
    error: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """A task raised; the slot does nothing more."""

    slot: int
    #: The exception, pickled.
    error: bytes
    #: Whose task it was; the slot goes on with all others.  None: nobody's, or there is one region.
    region: int | None = None
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class SubtaskTimes:
    """Milliseconds of the last second that a subtask was at work, waiting, or without credit.

    Their sum is 1000.  The subtasks of a slot share its thread: one that has to wait for another's
    turn to be over is backpressured if it feeds others, else busy.
    """

    busy: float
    idle: float
    backpressured: float
    #: Bytes of records that have come and are not processed.
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Beat:
    """The slot's process lives."""

    slot: int
    #: (stage, subtask) -> what it has done.
    times: dict[tuple[int, int], SubtaskTimes] = field(default_factory=dict)
    #: What each task has counted.
    counts: tuple[RunningMetrics, ...] = ()
    #: Seconds that the main loop has been at one turn.
    turn: float = 0.0


SlotMessage = (
    Registered
    | Running
    | Met
    | Unreachable
    | Stopped
    | Progress
    | Acknowledged
    | Declined
    | Failed
    | Beat
)
