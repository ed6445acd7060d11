"""What the split enumerator knows of sources: their splits, who reads them, what they were asked.

What it is: data of one source (``Reading``), one of its splits (``OpenSplit``), one subtask
(``SubtaskLoad``; ``least_loaded`` finds the one with least to do), and of a checkpoint (``Told``);
and what each source's position is behind it.

What it is not: what is assigned to whom, and when (``execution/split_enumerator.py``).

Read next: ``execution/split_enumerator.py``, ``execution/planned_source.py``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.execution.offsets import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.checkpoint.model import SplitState
    from millstream.contracts.source import Source, Split
    from millstream.execution.inquiries import Answer, Inquiry, SplitEnd
    from millstream.execution.offsets import Offset
    from millstream.execution.planned_source import PlannedSource

__all__ = ["MOST_AT_A_TIME", "OpenSplit", "Reading", "SubtaskLoad", "Told", "least_loaded"]

#: A subtask that read all it had within so many milliseconds is given more splits at a time, so
#: that many small files do not each wait for the driver; one that took longer is given fewer.
_SOON: Final = 100
MOST_AT_A_TIME: Final = 32


@dataclass(slots=True)
class OpenSplit:
    """A split that is assigned and not read to its end."""

    number: int
    split: Split
    channel: int
    subtask: int
    #: Everything before it was read, as far as its task has said.
    position: int
    end: int
    final: bool
    #: Whether it is one of those that are read one after the other.
    in_turn: bool
    #: Where the split begins; None: the source was not asked.
    first: int | None = None


@dataclass(slots=True)
class SubtaskLoad:
    """What a subtask of a source has to read of complete splits."""

    splits: int = 0
    #: How many it may have.
    most: int = 1
    #: Milliseconds of the clock, when it was given one last.
    assigned: float = 0

    def take_one(self, now: int) -> None:
        """It is given a split."""
        self.splits += 1
        self.assigned = now

    def read_one(self, now: int) -> None:
        """A split of its is read; behind the last one it is told how many it may have next."""
        self.splits -= 1
        if not self.splits:
            is_soon = now - self.assigned <= _SOON
            self.most = min(2 * self.most, MOST_AT_A_TIME) if is_soon else max(1, self.most // 2)


@dataclass(slots=True)
class Reading:
    """One source as it is read."""

    planned: PlannedSource
    source: Source
    #: As of the last checkpoint.
    position: Position
    subtasks: list[SubtaskLoad]
    #: Numbers of complete splits that are not assigned yet, in order.
    waiting: deque[int] = field(default_factory=deque)
    #: By channel.
    open: dict[int, OpenSplit] = field(default_factory=dict)
    #: Split id -> number and channel, of those that are assigned and not finished in a checkpoint.
    assigned: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Milliseconds of the clock from which on growing splits are asked for their ends.
    next_question: float = 0
    #: Split id -> its end, of those that are about to be assigned.
    ends: dict[str, SplitEnd] = field(default_factory=dict)
    #: Whether the slots were told that it is over.
    ended: bool = False
    #: What it was asked and has not answered; meanwhile nothing else is asked of it.
    asked: Inquiry[Answer] | None = None
    #: Numbers of splits that are taken in when it has answered, and what it is told then.
    untaken: list[int] = field(default_factory=list)
    committed: Mapping[str, SplitState] | None = None

    @staticmethod
    def of(planned: PlannedSource, source: Source, start: Offset) -> Reading:
        """A source of which nothing is assigned, where an offset says that it stands."""
        subtasks = [SubtaskLoad() for _ in range(planned.parallelism)]
        return Reading(planned, source, Position.of(start, planned.uid), subtasks)

    @property
    def has_all_splits(self) -> bool:
        """Whether no splits come any more."""
        return self.source.has_all_splits

    @property
    def is_over(self) -> bool:
        """Whether the source has an end, or has come to it, and nothing is left before it."""
        return self.has_all_splits and not (self.waiting or self.untaken or self.open)

    @property
    def is_busy(self) -> bool:
        """Whether another thread asks it something."""
        return self.asked is not None and not self.asked.is_answered

    def free_subtasks(self, most: int | None = None) -> list[int]:
        """The subtasks that have fewer complete splits than they may, or than ``most``."""
        return [
            index
            for index, each in enumerate(self.subtasks)
            if each.splits < (each.most if most is None else most)
        ]

    def tell_committed(self) -> None:
        """Tell the source how far it is read, if it was not told yet."""
        if self.committed is not None:
            states, self.committed = self.committed, None
            self.source.committed({name: each.position for name, each in states.items()})

    def move(self, states: list[SplitState], channels: int) -> None:
        """Move the position to where the splits are that a checkpoint acknowledges.

        Cases, of a split that is not finished in a checkpoint yet:

        1. It is acknowledged as finished -> it is.
        2. It is acknowledged at a position -> it is there.
        3. It is not acknowledged, and was assigned behind the trigger -> it has not begun.
        4. It is not, and was assigned before -> its end was acknowledged for a checkpoint that was
           given up, and lies before this one's barrier as well: it is finished.

        Args:
            states: of the source's splits, as acknowledged.
            channels: all below were assigned when the checkpoint was triggered.
        """
        position = self.position
        position.known = self.planned.table.count
        found = {state.split_id: state for state in states}
        for split_id, (number, channel) in list(self.assigned.items()):
            state = found.get(split_id)
            if state is None and channel >= channels:
                continue
            position.at[number] = 0 if state is None else state.position
            if state is None or state.finished:
                position.finish(number)
                del self.assigned[split_id]
            elif state.idle:
                position.idle.add(number)
            else:
                position.idle.discard(number)


@dataclass(frozen=True, slots=True)
class Told:
    """What the slots know when they take a checkpoint."""

    #: All below this were assigned.
    channels: int
    #: Uids of sources that are over.
    ended: frozenset[str]


def least_loaded(reading: Reading, readings: Iterable[Reading], subtasks: Iterable[int]) -> int:
    """The subtask with least to do: of this source, then of all."""
    left, splits = dict.fromkeys(subtasks, 0), dict.fromkeys(subtasks, 0)
    for other in readings:
        for each in other.open.values():
            if each.subtask in splits:
                splits[each.subtask] += 1
                if other is reading and each.in_turn:
                    left[each.subtask] += max(0, each.end - each.position)
    return min(splits, key=lambda subtask: (left[subtask], splits[subtask], subtask))
