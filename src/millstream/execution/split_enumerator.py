"""The split enumerator: assigns splits to long-running tasks, and makes offsets of checkpoints.

It finds splits, assigns them, and sends how far they can be read, when a source is over and which
splits have to wait for others.  It makes the offset of a checkpoint from the acknowledgements of
tasks; micro-batch execution (``execution/planner.py``) can resume from that offset, and vice versa.

Requests to the systems behind sources may take long (``execution/source_requests.py``): it does not
wait for their answers.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from millstream.execution.planned_source import Position, SourceSplits, new_splits
from millstream.execution.planner import AlignedSplit, Aligner
from millstream.execution.source_requests import (
    Inquiries,
    Question,
    SplitEnd,
    end_of,
    is_read_at_once,
)
from millstream.graph.validation import error_context
from millstream.runtime.plan import SplitAssignment
from millstream.runtime.task_metrics import SplitFigures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from millstream.checkpoint.model import Manifest, SplitState, TaskAck
    from millstream.contracts.source import Source, Split
    from millstream.execution.planned_source import Offset, PlannedSource, SplitLog
    from millstream.execution.planner import TimeOfSplit
    from millstream.execution.source_requests import Answer, Inquiry
    from millstream.runtime.plan import SplitProgress


_LOG: Final = logging.getLogger("millstream")
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
    """The complete splits that a subtask of a source has to read."""

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
        """A split of its is read; after the last one it is told how many it may have next."""
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
        """Return whether no splits come any more."""
        return self.source.has_all_splits

    @property
    def is_over(self) -> bool:
        """Whether the source has an end, or has come to it, and nothing is left before it."""
        return self.has_all_splits and self.has_read_all

    @property
    def has_read_all(self) -> bool:
        """Return whether all splits that are known are read to their ends."""
        return not (self.waiting or self.untaken or self.open)

    @property
    def is_busy(self) -> bool:
        """Return whether another thread asks it something."""
        return self.asked is not None and not self.asked.is_answered

    def free_subtasks(self, most: int | None = None) -> list[int]:
        """The subtasks that have fewer complete splits than they may, or than ``most``."""
        return [
            index
            for index, each in enumerate(self.subtasks)
            if each.splits < (each.most if most is None else most)
        ]

    def report_committed(self) -> None:
        """Tell the source how far it is read, if it was not told yet."""
        if self.committed is not None:
            states, self.committed = self.committed, None
            self.source.committed({name: each.position for name, each in states.items()})

    def move(self, states: list[SplitState], channels: int) -> None:
        """Move the position to where the splits are that a checkpoint acknowledges.

        Cases, of a split that is not finished in a checkpoint yet:

        1. It is acknowledged as finished -> it is.
        2. It is acknowledged at a position -> it is there.
        3. It is not acknowledged, and was assigned after the trigger -> it has not begun.
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
class Triggered:
    """The splits that the slots know when they take a checkpoint."""

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


# -- watermark alignment -----------------------------------------------------------------------


class SplitAlignment:
    """Compares the times of splits, and remembers who was told to wait.

    Args:
        planned: the sources of the run.
        last: the checkpoint that it resumes from; None: the job begins.
        first_of: asks a source that is not busy where a split begins.
    """

    def __init__(
        self,
        planned: Sequence[PlannedSource],
        last: Manifest | None,
        first_of: Callable[[Reading, Split], int],
    ) -> None:
        self._first_of = first_of
        #: Source uid -> split id -> its time; of aligned sources only.
        self._times: dict[str, dict[str, TimeOfSplit]] = {
            each.uid: {} for each in planned if each.alignment is not None
        }
        for uid in self._times:
            self.go_back(uid, last)
        self._aligner = Aligner()
        self._aligner.observe(self._times)
        #: The channels that wait, as was told last.
        self._held: frozenset[int] = frozenset()
        #: Channel -> its ceiling, as was told last.
        self._ceilings: dict[int, int] = {}

    def go_back(self, uid: str, last: Manifest | None) -> None:
        """A source is read on from a checkpoint; None: from its beginning."""
        if uid in self._times:
            self._times[uid] = dict(last.splits.get(uid, {}) if last else {})

    def observe(self, uid: str, split_id: str, told: TimeOfSplit) -> None:
        """Record how far a split is."""
        if uid in self._times:
            self._times[uid][split_id] = told

    def forget(self, uid: str, split_id: str) -> None:
        """A split is read to its end: nobody waits for it."""
        self._times.get(uid, {}).pop(split_id, None)

    def compare(
        self, readings: Sequence[Reading], now: int
    ) -> tuple[frozenset[int] | None, dict[int, int] | None]:
        """The channels that wait, and how far each may run; each None if it is as before."""
        if not self._times:
            return None, None
        splits = list(self._aligned_splits(readings))
        aligned = [each for _, each in splits]
        self._aligner.compare(aligned, now)
        held = self._found(splits)
        if held and not _can_read(readings, held):
            # Nobody moves until the next comparison: do not wait for it.
            self._aligner.compare(aligned, now, again=True)
            held = self._found(splits)
        ceilings = {
            each.channel: self._aligner.ceiling(split.alignment.group, split.source_uid)
            for each, split in splits
        }
        told = self._held, self._ceilings
        self._held, self._ceilings = held, ceilings
        return None if held == told[0] else held, None if ceilings == told[1] else ceilings

    def _aligned_splits(
        self, readings: Sequence[Reading]
    ) -> Iterator[tuple[OpenSplit, AlignedSplit]]:
        for reading in readings:
            planned = reading.planned
            if planned.alignment is not None:
                for each in reading.open.values():
                    # Of one that had no record nothing is known: it does not hold the others, as in
                    # Flink.
                    if each.first is None:
                        if reading.is_busy:
                            continue
                        each.first = self._first_of(reading, each.split)
                    if max(each.position, each.end) > each.first:
                        yield each, AlignedSplit(planned.uid, each.split.id, planned.alignment)

    def _found(self, splits: Sequence[tuple[OpenSplit, AlignedSplit]]) -> frozenset[int]:
        holds = self._aligner.holds
        return frozenset(
            each.channel
            for each, aligned in splits
            if holds(aligned.alignment.group, aligned.source_uid, aligned.split_id)
        )


def _can_read(readings: Sequence[Reading], held: frozenset[int]) -> bool:
    """Return whether some split has something to read that does not wait."""
    return any(
        channel not in held and each.position < each.end
        for reading in readings
        for channel, each in reading.open.items()
    )


_T = TypeVar("_T")

#: Milliseconds between two questions for the ends of splits that cursors follow themselves.
_SELDOM: Final = 1000


@dataclass(slots=True)
class Update:
    """News of splits, to be told to the slots."""

    #: Slot -> splits that it reads from now on.  The slot's number is that of the subtask.
    assigned: dict[int, list[SplitAssignment]] = field(default_factory=dict)
    #: Channel -> how far its split can be read now.
    grown: dict[int, int] = field(default_factory=dict)
    #: Channels whose end is their last.
    final: set[int] = field(default_factory=set)
    #: Slot -> channels of splits that it has read to their ends, to be told after ``assigned``.
    retired: dict[int, set[int]] = field(default_factory=dict)
    #: Uids of sources that are over: nothing more comes, and all is read.
    ended: list[str] = field(default_factory=list)
    #: Channels that must wait, all others do not; None: as before.
    held: frozenset[int] | None = None
    #: Channel -> the event time after which its split waits, too; None: as before.
    ceilings: dict[int, int] | None = None

    def __bool__(self) -> bool:
        found = self.assigned or self.grown or self.final or self.retired or self.ended
        return bool(found) or self.held is not None or self.ceilings is not None


class SplitEnumerator:
    """Assigns the splits of a run to long-running tasks.

    Contract:
      1. ``start`` first, then ``begin``, then all else, then ``close``; from one thread.  The first
         two ask the sources, so they take as long as their systems take to answer: what is found
         later could not hold time back for what is read before.  (caller)
      2. What an ``Update`` says is told to the slots in the order of updates.  (caller)
      3. A task acknowledges all splits that it had been assigned when it was told to take the
         checkpoint, but for those whose end it has acknowledged before, also for a checkpoint that
         was aborted.  (slot)
      4. What is read is every record once, whatever checkpoints are resumed from, by whichever
         engine.  (``tests/execution/test_split_turns_of_engines.py``)

    Args:
        planned: the source nodes; none of them Spark's.
        log: where discovered splits are kept.
        start: where the last checkpoint stands.
        last: the last checkpoint; None: the job begins.
        retained: how many checkpoints are kept, of which the splits must be known.
        clock: milliseconds since 1970.
        inquiries: asks the sources; None: each at once, and waits for the answer.
    """

    def __init__(
        self,
        planned: list[PlannedSource],
        log: SplitLog,
        start: Offset,
        last: Manifest | None = None,
        *,
        retained: int = 2,
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
        inquiries: Inquiries | None = None,
    ) -> None:
        self._planned = planned
        self._inquiries = inquiries or Inquiries()
        self._splits = SourceSplits(planned, log, retained)
        self._start = start
        self._clock = clock
        self._next_channel = 0
        self._readings = [
            Reading.of(each, each.source, start) for each in planned if each.source is not None
        ]
        self._by_channel: dict[int, Reading] = {}
        #: Slot -> channels of splits that are over, of which it is to be told that this is known.
        self._retired: dict[int, set[int]] = {}
        self._held = SplitAlignment(planned, last, self._first_of)
        #: Epoch -> what the slots were told before its barrier.
        self._triggered: dict[int, Triggered] = {}
        self._time = cast("int", start["time"])
        #: Epoch -> sources that were over and said so before its barrier.
        self._over_in: dict[int, frozenset[str]] = {}
        #: Sources of which all is processed, as a checkpoint shows; others may wait for it.
        self._passed: set[str] = set()

    # -- what is read --------------------------------------------------------------------------

    def start(self, is_unwanted: Callable[[], bool] = lambda: False) -> None:
        """Let the sources begin to monitor.

        Raises:
            UnwantedError: it was not waited for.
        """
        for reading in self._readings:
            with error_context(reading.planned.label):
                self._with(reading, reading.source.start, is_unwanted)

    def _first_of(self, reading: Reading, split: Split) -> int:
        """Return where a split begins; its source is not busy."""
        return self._with(reading, partial(reading.source.start_offset, split))

    def _with(
        self,
        reading: Reading,
        act: Callable[[], _T],
        is_unwanted: Callable[[], bool] = lambda: False,
    ) -> _T:
        """Do something that asks a source: in its thread.  A busy one is not asked by ``act``."""
        if reading.is_busy:
            return act()
        planned = reading.planned
        return self._inquiries.call(planned.uid, planned.label, act, is_unwanted)

    def begin(self, is_unwanted: Callable[[], bool] = lambda: False) -> list[SplitAssignment]:
        """The splits that have begun, and the first new ones.

        Those that have begun have no state yet; the plan of the first epoch restores it.

        Raises:
            UnwantedError: it was not waited for.
        """
        self._splits.begin_at(self._start)
        now = self._clock()
        made: list[SplitAssignment] = []
        for reading in self._readings:
            with error_context(reading.planned.label):
                planned, source = reading.planned, reading.source
                # Ahead of all, so that a new split is one of those that wait.
                all_read = reading.position.has_read(planned.table)
                if self._splits.is_due(planned, source, all_read=all_read):
                    poll = partial(new_splits, source, planned.table.seen)
                    self._splits.take_in(planned, self._with(reading, poll, is_unwanted))
                self._with(reading, partial(self._begin, reading, now, made), is_unwanted)
        return made

    def begin_unasked(self) -> list[SplitAssignment]:
        """The splits that have begun, in place of ``begin``: the job is to end before it reads.

        Nothing is found, and what the sources answer is not waited for.
        """
        self._splits.begin_at(self._start)
        now = self._clock()
        made: list[SplitAssignment] = []
        for number, old in enumerate(self._readings):
            # Of the old one splits may be assigned when the source answers.
            planned, source = old.planned, old.source
            reading = Reading.of(planned, source, self._start)
            # So that nobody waits behind a source that does not answer.
            question = Question(source, None, {})
            reading.asked = self._inquiries.ask(planned.uid, planned.label, question.ask)
            begun = reading.position.at
            reading.ends = {
                planned.table.splits[each].id: SplitEnd(position, final=False)
                for each, position in begun.items()
            }
            self._readings[number] = reading
            made += [self._assign(reading, each, begun[each], now) for each in sorted(begun)]
        return made

    def _begin(self, reading: Reading, now: int, made: list[SplitAssignment]) -> None:
        table, position = reading.planned.table, reading.position
        begun = sorted(position.at)
        made += [self._assign(reading, n, position.at[n], now) for n in begun]
        new = [number for number in table.splits if number not in position.at]
        if reading.is_busy:
            reading.untaken = new
            return
        self._take_in(reading, new, now, made)
        self._assign_waiting(reading, now, made)

    def restart(
        self, uids: AbstractSet[str], start: Offset, last: Manifest | None
    ) -> tuple[list[int], list[SplitAssignment]]:
        """Go back to a checkpoint with some sources, whose tasks have stopped.

        Args:
            uids: of the sources.
            start: where the checkpoint stands: the last that is published, or the beginning; no
                later one is under way that the tasks of these sources have acknowledged.
            last: the checkpoint; None: the beginning.

        Returns:
            The channels that nobody reads any more, and, as of ``begin``, what is read.
        """
        now = self._clock()
        gone: list[int] = []
        made: list[SplitAssignment] = []
        self._passed -= uids
        for number, old in enumerate(self._readings):
            if old.planned.uid not in uids:
                continue
            gone += old.open
            self._held.go_back(old.planned.uid, last)
            reading = self._readings[number] = Reading.of(old.planned, old.source, start)
            # What it is asked meanwhile is answered, for whichever tasks.
            reading.asked, reading.committed = old.asked, old.committed
            reading.ends = {
                each.split.id: SplitEnd(each.end, each.final) for each in old.open.values()
            }
            with error_context(reading.planned.label):
                self._with(reading, partial(self._begin, reading, now, made))
        for channel in gone:
            del self._by_channel[channel]
        for channels in self._retired.values():
            channels.difference_update(gone)
        return gone, made

    def poll(self, now: int) -> Update:
        """What has changed; costs what the unfinished splits cost, and does not wait for sources.

        Raises:
            SourceError: a source cannot be asked, or has lost records.
        """
        update = Update()
        made: list[SplitAssignment] = []
        for reading in self._readings:
            with error_context(reading.planned.label):
                if reading.untaken and not reading.is_busy and not self._waits(reading):
                    self._with(reading, partial(self._take_untaken, reading, now, made))
                self._ask(reading, now, made, update)
                if not reading.is_busy and (reading.waiting or reading.committed is not None):
                    self._with(reading, partial(self._catch_up, reading, now, made))
            if not reading.ended and reading.is_over:
                reading.ended = True
                update.ended.append(reading.planned.uid)
        for assignment in made:
            update.assigned.setdefault(assignment.subtask, []).append(assignment)
        update.retired, self._retired = self._retired, {}
        update.held, update.ceilings = self._held.compare(self._readings, now)
        return update

    def progress(self, splits: Mapping[int, SplitProgress]) -> None:
        """Record how far splits are, by channel."""
        for channel, told in splits.items():
            reading = self._by_channel.get(channel)
            if reading is None:
                continue  # was over before
            split = reading.open[channel]
            split.position = told.position
            self._held.observe(reading.planned.uid, split.split.id, told)
            if told.over:
                self._retired.setdefault(split.subtask, set()).add(channel)
                self._close(reading, split)

    def figures(self) -> list[SplitFigures]:
        """Return how far the open splits are read; from any thread."""
        return [
            SplitFigures(each.planned.uid, split.split.id, split.position, split.end, split.subtask)
            for each in self._readings
            for split in list(each.open.values())
        ]

    def _close(self, reading: Reading, split: OpenSplit) -> None:
        del reading.open[split.channel], self._by_channel[split.channel]
        self._held.forget(reading.planned.uid, split.split.id)
        if split.in_turn:
            reading.subtasks[split.subtask].read_one(self._clock())

    @property
    def is_over(self) -> bool:
        """Return whether all sources are, and the slots were told so."""
        return bool(self._readings) and all(reading.ended for reading in self._readings)

    def _catch_up(self, reading: Reading, now: int, made: list[SplitAssignment]) -> None:
        self._assign_waiting(reading, now, made)
        reading.report_committed()

    # -- splits --------------------------------------------------------------------------------

    def _ask(self, reading: Reading, now: int, made: list[SplitAssignment], update: Update) -> None:
        """Ask a source what is to be asked, and take what it has answered."""
        if reading.asked is None:
            question = self._question(reading, now)
            if question is None:
                return
            uid, label = reading.planned.uid, reading.planned.label
            reading.asked = self._inquiries.ask(uid, label, question.ask)
        if reading.asked.is_answered:
            answer, reading.asked = reading.asked.answer(), None
            self._with(reading, partial(self._take_answer, reading, answer, now, made, update))

    def _question(self, reading: Reading, now: int) -> Question | None:
        source, planned = reading.source, reading.planned
        looks = not reading.ended and self._splits.is_due(
            planned, source, all_read=reading.has_read_all
        )
        splits: dict[int, tuple[Split, int, SplitEnd]] = {}
        if not source.cursors_follow or now >= reading.next_question:
            reading.next_question = now + _SELDOM
            for channel, each in reading.open.items():
                if not each.final or (source.cursors_follow and each.position < each.end):
                    splits[channel] = each.split, each.position, SplitEnd(each.end, each.final)
        if not looks and not splits:
            return None
        return Question(source, planned.table.seen if looks else None, splits)

    def _waits(self, reading: Reading) -> bool:
        """Whether another source is to be read first, in BATCH mode, and is not processed yet."""
        return not reading.planned.after <= self._passed

    @property
    def waits_for_checkpoint(self) -> bool:
        """Return whether a source waits for a checkpoint that shows that others are processed."""
        ended = {each.planned.uid for each in self._readings if each.ended}
        return any(
            each.untaken and self._waits(each) and each.planned.after <= ended
            for each in self._readings
        )

    def _take_untaken(self, reading: Reading, now: int, made: list[SplitAssignment]) -> None:
        untaken, reading.untaken = reading.untaken, []
        self._take_in(reading, untaken, now, made)
        self._assign_waiting(reading, now, made)

    def _take_answer(
        self,
        reading: Reading,
        answer: Answer,
        now: int,
        made: list[SplitAssignment],
        update: Update,
    ) -> None:
        planned, known = reading.planned, reading.planned.table.count
        untaken, reading.untaken = reading.untaken, []
        self._take_in(reading, untaken, now, made)
        if answer.found:
            self._splits.take_in(planned, answer.found)
            reading.ends.update(answer.ends)
            self._take_in(reading, range(known, planned.table.count), now, made)
        for channel, found in answer.grown.items():
            each = reading.open.get(channel)
            if each is None or each.final:
                continue  # it is over, or is read by others now
            each.final = found.final
            if found.final:
                update.final.add(channel)
            if found.final or found.end > each.end:
                update.grown[channel] = each.end = found.end

    def _take_in(
        self, reading: Reading, numbers: Iterable[int], now: int, made: list[SplitAssignment]
    ) -> None:
        """Assign new splits that are read side by side; others wait for a subtask."""
        if self._waits(reading):
            reading.untaken += numbers
            return
        table = reading.planned.table
        for number in numbers:
            split = table.splits.get(number)
            if split is None:
                continue  # finished, by a driver that has compacted the log
            if not is_read_at_once(reading.source, split):
                reading.waiting.append(number)
            else:
                start = reading.source.start_offset(split)
                made.append(self._assign(reading, number, start, now))

    def _assign_waiting(self, reading: Reading, now: int, made: list[SplitAssignment]) -> None:
        """Give complete splits to subtasks that have room for them.

        Or to any, as long as all that is open is what a first epoch would read: files that hold the
        same time are few and small, or late in parts whatever reads them.
        """
        splits, source = reading.planned.table.splits, reading.source
        if not reading.waiting:
            return
        open_units = sum(max(0, e.end - e.position) for e in reading.open.values() if e.in_turn)
        limit = source.first_limit(list(splits.values()))
        while reading.waiting:
            free = reading.free_subtasks()
            split = splits[reading.waiting[0]]
            start = source.start_offset(split)
            open_units += source.end_offset(split) - start
            if not free and open_units <= limit:
                free = reading.free_subtasks(MOST_AT_A_TIME)
            if not free:
                return
            number = reading.waiting.popleft()
            subtask = least_loaded(reading, self._readings, free)
            made.append(self._assign(reading, number, start, now, subtask))

    def _assign(
        self, reading: Reading, number: int, start: int, now: int, subtask: int | None = None
    ) -> SplitAssignment:
        """Assign a split from an offset on; a subtask is found for it if none is given."""
        planned, source = reading.planned, reading.source
        split = planned.table.splits[number]
        known = reading.ends.pop(split.id, None)
        if known is None:
            # Its end is asked for when the source has answered.
            known = SplitEnd(start, final=False) if reading.is_busy else end_of(source, split)
        final, end = known.final, known.end
        if subtask is None and final:
            subtask = least_loaded(reading, self._readings, range(planned.parallelism))
        elif subtask is None:
            subtask = number % planned.parallelism
        channel = self._next_channel
        self._next_channel += 1
        in_turn = final and not source.side_by_side
        reading.open[channel] = OpenSplit(
            number, split, channel, subtask, start, end, final, in_turn
        )
        reading.assigned[split.id] = number, channel
        self._by_channel[channel] = reading
        if in_turn:
            reading.subtasks[subtask].take_one(now)
        return SplitAssignment(
            source_uid=planned.uid,
            split=split,
            subtask=subtask,
            start=start,
            stop=end,
            channel=channel,
            finished=final,
            idle=None,
        )

    # -- checkpoints ---------------------------------------------------------------------------

    def close(self) -> None:
        """Let the sources stop, and ask nothing more.

        One that has no answer for long is not waited for, and not told.
        """
        stops = []
        for reading in self._readings:
            uid, label = reading.planned.uid, reading.planned.label
            stops.append((label, self._inquiries.ask(uid, label, reading.source.stop)))
        self._inquiries.settle(reading.planned.uid for reading in self._readings)
        for label, stop in stops:
            if not stop.is_answered:
                _LOG.warning("%s has not answered, and is not asked to stop", label)
            elif stop.error is not None:
                _LOG.warning("%s could not be stopped: %r", label, stop.error)

    def triggered(self, epoch: int) -> None:
        """Note that the slots are told now to take a checkpoint, after all that they were told."""
        ended = frozenset(each.planned.uid for each in self._readings if each.ended)
        self._triggered[epoch] = Triggered(self._next_channel, ended)

    def offset(self, epoch: int, acks: Iterable[TaskAck], *, final: bool, time: int) -> Offset:
        """The offset of a checkpoint: what its tasks have read.

        Args:
            epoch: its number; ``triggered`` was told it.
            acks: of all tasks.
            final: the input is over, and operators were told so ahead of the snapshot.
            time: milliseconds since 1970, as the slots were given it.
        """
        states: dict[str, list[SplitState]] = {}
        for ack in acks:
            for state in ack.splits:
                states.setdefault(state.source_uid, []).append(state)
        told = self._triggered.pop(epoch)
        for older in [number for number in self._triggered if number < epoch]:
            del self._triggered[older]  # of checkpoints that were aborted
        positions: dict[str, object] = {}
        self._over_in[epoch] = told.ended
        for reading in self._readings:
            uid = reading.planned.uid
            reading.move(states.get(uid, []), told.channels)
            # The barrier may lie between the last record of a source and its end.
            over = reading.has_all_splits and reading.position.done == reading.position.known
            reading.position.untold = over and not final and uid not in told.ended
            positions[uid] = reading.position.to_json()
        self._time = max(self._time, time)
        # It is not published yet: splits are released by ``committed``.
        return {
            "epoch": epoch,
            "time": self._time,
            "final": final,
            "sources": positions,
        }

    def committed(
        self,
        splits: Mapping[str, Mapping[str, SplitState]],
        offset: Offset | None = None,
        is_unwanted: Callable[[], bool] = lambda: False,
        *,
        is_aligned: bool = True,
    ) -> None:
        """Note that a checkpoint is published: a run may resume from it, and from older ones kept.

        Only now may the log drop what was read before it.  The sources are told how far they are
        read, for their monitoring.

        Args:
            splits: source uid -> split id -> state, as in the manifest.
            offset: that of the manifest; None: the one that the run begins with.
            is_unwanted: whether to wait no longer for a source that is told.
            is_aligned: nothing is in flight in it: all that was read before it is processed.

        Raises:
            UnwantedError: it was not waited for.
        """
        if offset is not None:
            self._splits.begin_at(offset)
            over = self._over_in.pop(cast("int", offset["epoch"]), frozenset())
            self._passed |= over if is_aligned else frozenset()
        for reading in self._readings:
            reading.committed = splits.get(reading.planned.uid, {})
            if not reading.is_busy:
                self._with(reading, reading.report_committed, is_unwanted)
