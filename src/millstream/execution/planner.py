"""The source planner of micro-batch execution, with watermark alignment of splits.

Spark asks the planner for the latest offset and logs the answer; for an epoch it turns two offsets
into split assignments.  Planning ``[start, stop)`` from the same two offsets gives the same
assignments in every run.

Nothing here grows with what was read before: a split that is read to its end is forgotten, and
polling costs what the unfinished splits cost.  An epoch is planned only if something can change:
there is data, a split became idle or active, the input is over, or the time has come that the tasks
of the last epoch have named (a timer, a pending watermark).

Alignment (``WatermarkStrategy.with_watermark_alignment``) compares the watermarks of the last
checkpoint only, so it continues after a restart.  Splits are compared that have begun, are not read
to their end and are not idle.  The slowest of them is never paused, so a group cannot wait for
itself.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, cast

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.contracts.source import Boundedness, Split
from millstream.execution.planned_source import (
    EpochSizer,
    PlannedSource,
    Position,
    SourceSplits,
    choose_subtask,
)
from millstream.graph.validation import error_context
from millstream.runtime.plan import END_OF_INPUT, SplitAssignment
from millstream.runtime.task_metrics import SplitFigures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.checkpoint.model import SplitState, TaskAck
    from millstream.contracts.source import Source
    from millstream.execution.planned_source import Offset, SplitLog
    from millstream.functions.watermark_strategy import WatermarkAlignment


class TimeOfSplit(Protocol):
    """How far a split is in event time: its state in a checkpoint, or what its task says."""

    @property
    def watermark(self) -> int:
        """Milliseconds."""

    @property
    def idle(self) -> bool:
        """Return whether nothing comes."""


@dataclass(frozen=True, slots=True)
class AlignedSplit:
    """A split that takes part in a comparison."""

    source_uid: str
    split_id: str
    alignment: WatermarkAlignment


@dataclass(slots=True)
class _Group:
    #: Source uid -> the highest watermark with which a split may be read.
    ceilings: dict[str, int] = field(default_factory=dict)
    #: Milliseconds of processing time after which the ceilings are to be found again.
    valid_until: int = MIN_TIMESTAMP


class Aligner:
    """Knows the watermarks of splits, and holds back those that are ahead."""

    def __init__(self) -> None:
        self._splits: Mapping[str, Mapping[str, TimeOfSplit]] = {}
        self._groups: dict[str, _Group] = {}

    def observe(self, splits: Mapping[str, Mapping[str, TimeOfSplit]]) -> None:
        """Record how far splits are (source uid -> split id -> its time), to be looked at on."""
        self._splits = splits

    def is_idle(self, source_uid: str, split_id: str) -> bool:
        """Return whether the split was idle when that was said last."""
        state = self._state(source_uid, split_id)
        return state is not None and state.idle

    def compare(self, splits: Iterable[AlignedSplit], now: int, *, again: bool = False) -> None:
        """Find how far each source may run.

        Args:
            splits: those to compare, of all groups.
            now: milliseconds of processing time.
            again: compare also groups whose update interval is not over.
        """
        members: dict[str, list[AlignedSplit]] = {}
        for split in splits:
            members.setdefault(split.alignment.group, []).append(split)
        for name in self._groups.keys() - members.keys():
            del self._groups[name]  # nobody left to wait for
        for name, those in members.items():
            group = self._groups.setdefault(name, _Group())
            if again or now >= group.valid_until:
                group.ceilings = self._ceilings(those)
                group.valid_until = now + min(each.alignment.update_interval for each in those)

    def _ceilings(self, splits: list[AlignedSplit]) -> dict[str, int]:
        active = [each for each in splits if not self.is_idle(each.source_uid, each.split_id)]
        if not active:
            return {}
        slowest = min(self._watermark(each.source_uid, each.split_id) for each in active)
        return {
            each.source_uid: min(slowest + each.alignment.max_drift, MAX_TIMESTAMP)
            for each in splits
        }

    def holds(self, group: str, source_uid: str, split_id: str) -> bool:
        """Return whether the split is too far ahead to be read."""
        if self.is_idle(source_uid, split_id):
            return False
        return self._watermark(source_uid, split_id) > self.ceiling(group, source_uid)

    def ceiling(self, group: str, source_uid: str) -> int:
        """The highest watermark with which a split of the source may be read, as found last."""
        known = self._groups.get(group)
        return MAX_TIMESTAMP if known is None else known.ceilings.get(source_uid, MAX_TIMESTAMP)

    def _state(self, source_uid: str, split_id: str) -> TimeOfSplit | None:
        return self._splits.get(source_uid, {}).get(split_id)

    def _watermark(self, source_uid: str, split_id: str) -> int:
        state = self._state(source_uid, split_id)
        return MIN_TIMESTAMP if state is None else state.watermark


#: How often a waiting planner asks the sources again, and how long it keeps Spark waiting.
_POLL_SECONDS: Final = 0.02
_WAIT_SECONDS: Final = 0.25
#: When something may change that does not come with data: at any time, for all we know.
_UNKNOWN: Final = -math.inf


class SourcePlanner:
    """Plans epochs over all sources of a job.

    Args:
        sources: the source nodes.
        log: where discovered splits are kept.
        tick_interval: milliseconds between epochs without data at least; None: there are none.
        wakes: whether the first epoch after a restart may be one without data: timers may be due of
            which no task has told this run.
        retained: how many checkpoints are kept, of which the splits must be known.
        clock: milliseconds since 1970.
        min_pause: milliseconds from the end of an epoch to the planning of the next.
        wait_seconds: how long a question for the next offset may wait for data.
    """

    def __init__(
        self,
        sources: list[PlannedSource],
        log: SplitLog,
        *,
        target_seconds: float,
        tick_interval: int | None,
        wakes: bool = True,
        retained: int = 2,
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
        min_pause: int = 0,
        wait_seconds: float = _WAIT_SECONDS,
    ) -> None:
        self._sources = sources
        self._target_seconds = target_seconds
        self._tick_interval = tick_interval
        self._clock = clock
        self._last_tick = 0
        #: Milliseconds of the clock at which something can change without data.
        self._next_due = _UNKNOWN if wakes else math.inf
        #: The next epoch is needed though there may be nothing to read.
        self._must_plan = False
        #: Asked whether it is needed for other reasons.
        self.is_required: Callable[[], bool] = lambda: False
        #: The checkpoint that this is said of; None: of none.
        self._in_flight_in: int | None = None
        #: Uid of a source without an end that has come to it -> the epoch that tells so.
        self._reported_ends: dict[str, int] = {}
        self._min_pause = min_pause / 1000
        self._wait_seconds = wait_seconds
        #: Monotonic seconds.
        self._epoch_ended = -math.inf
        self._aligner = Aligner()
        self._splits = SourceSplits(sources, log, retained)

    # -- planning the next offset --------------------------------------------------------------

    def latest_offset(self, start: Offset) -> Offset:
        """The offset up to which the next epoch should read; ``start`` if there is nothing to do.

        Waits a short time for data, so that Spark does not ask in a busy loop.
        """
        self._splits.begin_at(start)
        deadline = time.monotonic() + self._wait_seconds
        while True:
            if self.remaining_pause() <= 0:
                offset = self._plan(start)
                if offset is not None:
                    return offset
            if time.monotonic() >= deadline:
                return start
            time.sleep(_POLL_SECONDS)

    def remaining_pause(self) -> float:
        """Seconds until the next epoch may begin (``execution.checkpointing.min-pause``)."""
        return max(0.0, self._epoch_ended + self._min_pause - time.monotonic())

    def _plan(self, start: Offset) -> Offset | None:
        if start["final"]:
            return None
        now = self._clock()
        if any(planned.alignment is not None for planned in self._sources):
            self._aligner.compare(self._aligned(start), now)
            if not self._can_read_or_need_not(start):
                self._aligner.compare(self._aligned(start), now, again=True)
        positions: dict[str, object] = {}
        changed = untold = False
        over = bool(self._sources)
        for planned in self._sources:
            position = self._position(start, planned.uid)
            with error_context(planned.label):
                self._find(planned, position)
                if self._waits(planned, start):
                    self._hold(planned, position)
                else:
                    changed |= self._advance(planned, position, now)
                over = over and self._is_over(planned, position)
            untold |= position.untold or self._is_news(planned, position)
            position.untold = False  # this epoch tells it
            positions[planned.uid] = position.to_json()
        needed = self._must_plan or self.is_required()
        if not (changed or over or untold or needed or self._is_due(start, now)):
            return None
        self._last_tick = now
        self._must_plan = False
        return {
            "epoch": cast("int", start["epoch"]) + 1,
            "time": max(now, cast("int", start["time"])),
            # Everything was read by earlier epochs: this one carries the maximum watermark.
            "final": over and not changed,
            "sources": positions,
        }

    def _is_due(self, start: Offset, now: int) -> bool:
        """Return whether an epoch without data is worth running."""
        if self._tick_interval is None or now - self._last_tick < self._tick_interval:
            return False
        # Before the first epoch there is nothing that time could change.
        return now >= self._next_due and cast("int", start["epoch"]) >= 0

    def require_epoch(self, epoch: int | None = None) -> None:
        """Plan an epoch though nothing may be there to read: its tasks restore their state.

        Args:
            epoch: of the checkpoint that has frames in flight, which are processed then; None: it
                has none.  The epoch after it reports the end of all sources that are over again:
                their ends may be in flight too, and not to all that are tasks now.
        """
        self._must_plan = True
        self._in_flight_in = epoch

    def _position(self, start: Offset, uid: str) -> Position:
        """Return where a source stands at the start of an epoch."""
        position = Position.of(start, uid)
        position.untold |= start["epoch"] == self._in_flight_in
        return position

    def wake_at(self, acks: Iterable[TaskAck]) -> None:
        """Take from the tasks of the last epoch when something can change without data."""
        due = (ack.next_due for ack in acks)
        self._next_due = min((time for time in due if time is not None), default=math.inf)

    def _aligned(self, start: Offset) -> list[AlignedSplit]:
        """The splits that are compared: begun, not over, not idle, not without any record yet."""
        found = []
        for planned in self._sources:
            source, alignment = planned.source, planned.alignment
            if source is None or alignment is None:
                continue
            position = Position.of(start, planned.uid)
            for number, at in position.at.items():
                split = planned.table.splits[number]
                end = source.end_offset(split)
                # Of one that had no record nothing is known: it does not hold the others, as in
                # Flink.
                has_time = at > source.start_offset(split) or end > at
                over = source.is_final(split) and at >= end
                if has_time and not over and number not in position.idle:
                    found.append(AlignedSplit(planned.uid, split.id, alignment))
        return found

    def _can_read_or_need_not(self, start: Offset) -> bool:
        """Whether no split is held back, or some source has something to read nevertheless."""
        held = False
        for planned in self._sources:
            source = planned.source
            if source is None:
                continue
            position = Position.of(start, planned.uid)
            for number, split in planned.table.splits.items():
                at = position.at.get(number, source.start_offset(split))
                if at < source.end_offset(split):
                    if not self._is_held(planned, position, number):
                        return True
                    held = True
        return not held

    def _is_held(self, planned: PlannedSource, position: Position, number: int) -> bool:
        """Return whether a split waits for others of its group."""
        if planned.alignment is None or number not in position.at or number in position.idle:
            return False
        split = planned.table.splits[number]
        return self._aligner.holds(planned.alignment.group, planned.uid, split.id)

    def _waits(self, planned: PlannedSource, start: Offset) -> bool:
        """Whether a source that is to be read to its end before this one is not, or not told so."""
        for before in self._sources if planned.after else ():
            if before.uid in planned.after:
                position = self._position(start, before.uid)
                begun = before.uid in cast("dict[str, object]", start["sources"])
                if not begun or position.untold or not self._is_over(before, position):
                    return True
        return False

    def _hold(self, planned: PlannedSource, position: Position) -> None:
        """Begin a split and read nothing of it: its channel keeps what it feeds from ending."""
        source = planned.source
        if source is None:
            return
        for number in self._in_turn(planned, position):
            split = planned.table.splits[number]
            at = position.at.get(number, source.start_offset(split))
            if at < source.end_offset(split) or not source.is_final(split):
                position.at[number] = at
                return

    def _find(self, planned: PlannedSource, position: Position) -> None:
        """Look for splits of one source."""
        if planned.source is not None:
            all_read = position.has_read(planned.table)
            self._splits.discover(planned, planned.source, all_read=all_read)
            position.known = planned.table.count

    def _advance(self, planned: PlannedSource, position: Position, now: int) -> bool:
        """Move one source's position forward; True if an epoch is worth running for it."""
        source = planned.source
        if source is None:
            return False
        sizer = self._sizer(planned, source)
        splits = planned.table.splits
        moved, backlog, read = False, False, 0
        unfinished = self._in_turn(planned, position)
        held = {number for number in unfinished if self._is_held(planned, position, number)}
        planned.waiting = held
        turn = [number for number in unfinished if number not in held]
        # So many are read side by side, each up to its share, whatever the others take: as many
        # as there are subtasks, and every split that grows or has the same time as the others.  The
        # rest of the limit goes to more.
        alike = sum(source.side_by_side or not source.is_final(splits[number]) for number in turn)
        side, taken = max(planned.parallelism, alike), 0
        share = max(1, -(-sizer.limit // side))
        for number in turn:
            split = splits[number]
            allowance = share if taken < side else min(share, sizer.limit - read)
            at = position.at.get(number)
            if at is None:
                if allowance <= 0:
                    backlog = True
                    break  # none that follows has begun
                at = source.start_offset(split)
            end = planned.ends[split.id] = source.end_offset(split)
            stop = at
            if at > end:
                source.ends_early(split, at)
            if at < end:
                stop = source.next_stop(split, at, allowance, end) if allowance > 0 else at
                if stop < end:
                    backlog = True
                    planned.waiting.add(number)
            # An empty split that is complete is done at once; one that may grow holds time back
            # from now on, as in Flink: its first record may be older than those of the others.
            position.at[number] = stop
            read += stop - at
            if stop > at:
                moved = True
                taken += 1
        sizer.planned(read, backlog=backlog)
        self._retire(planned, position)
        changed_idle = self._mark_idle(planned, position, now)
        return moved or changed_idle

    @staticmethod
    def _in_turn(planned: PlannedSource, position: Position) -> list[int]:
        """Unfinished splits: begun ones first, so that few are open at a time."""
        at, is_over = position.at, position.is_over
        fresh = [n for n in planned.table.splits if n not in at and not is_over(n)]
        return [*sorted(at), *fresh]

    def _sizer(self, planned: PlannedSource, source: Source) -> EpochSizer:
        if planned.sizer is None:
            planned.sizer = EpochSizer(
                source.first_limit(list(planned.table.splits.values())), self._target_seconds
            )
        return planned.sizer

    @staticmethod
    def _retire(planned: PlannedSource, position: Position) -> None:
        """Keep of finished splits only that they are."""
        source, splits = planned.source, planned.table.splits
        if source is None:
            return
        for number, at in list(position.at.items()):
            split = splits[number]
            if source.is_final(split) and at >= source.end_offset(split):
                position.finish(number)
                planned.ends.pop(split.id, None)
                planned.last_data.pop(number, None)

    @staticmethod
    def _mark_idle(planned: PlannedSource, position: Position, now: int) -> bool:
        """Splits without data for the idle time; True if a status changed."""
        if planned.idleness is None:
            return False
        before = set(position.idle)
        for number, at in position.at.items():
            reached, since = planned.last_data.get(number, (None, now))
            if reached != at or number in planned.waiting:
                since = now
                planned.last_data[number] = (at, since)
            if now - since >= planned.idleness:
                position.idle.add(number)
            else:
                position.idle.discard(number)
        return before != position.idle

    @staticmethod
    def _is_over(planned: PlannedSource, position: Position) -> bool:
        source = planned.source
        if source is None or not source.has_all_splits:
            return False
        for number, split in planned.table.splits.items():
            if number >= position.known or position.is_over(number):
                continue
            at = position.at.get(number)
            # A split that may still grow (records made at a rate) has an end so far only.
            if at is None or not source.is_final(split) or at < source.end_offset(split):
                return False
        return True

    def set_limit(self, limit: int) -> None:
        """Let the next epoch read at most about ``limit`` units of each source (for tests)."""
        for planned in self._sources:
            if planned.source is not None:
                self._sizer(planned, planned.source).limit = limit

    def committed(self, splits: Mapping[str, Mapping[str, SplitState]]) -> None:
        """Take the splits of the last checkpoint, and tell the sources, for their monitoring.

        Args:
            splits: source uid -> split id -> state, as in the manifest.
        """
        self._aligner.observe(splits)
        self._splits.committed(splits)

    def figures(self, splits: Mapping[str, Mapping[str, SplitState]]) -> list[SplitFigures]:
        """Return how far splits are read; from any thread.

        Args:
            splits: those of the last checkpoint, as for ``committed``.
        """
        return [
            SplitFigures(each.uid, split_id, states[split_id].position, end)
            for each in self._sources
            if (states := splits.get(each.uid))
            for split_id, end in list(each.ends.items())
            if split_id in states
        ]

    def epoch_finished(self, seconds: float) -> None:
        """Tell how long the epoch took, so that the next one can be sized."""
        self._epoch_ended = time.monotonic()
        for planned in self._sources:
            if planned.sizer is not None:
                planned.sizer.finished(seconds)

    # -- turning offsets into work -------------------------------------------------------------

    def assignments(self, start: Offset, stop: Offset) -> list[SplitAssignment]:
        """Return what the epoch from ``start`` to ``stop`` reads.

        A pure function of its arguments.
        """
        result: list[SplitAssignment] = []
        for planned in self._sources:
            if planned.source is None:
                result.extend(_spark_splits(planned))
            else:
                result.extend(self._source_assignments(planned, start, stop))
            if planned.source is not None and (stop["final"] or self._ends(planned, start, stop)):
                result.extend(_end_of_input(planned))
        for channel, assignment in enumerate(result):
            assignment.channel = channel
        return result

    def _ends(self, planned: PlannedSource, start: Offset, stop: Offset) -> bool:
        """Return whether the source reads its last in this epoch while others continue.

        It then has the maximum watermark at once, so that it does not hold the others back, and
        what it alone feeds is over.  If no other continues, the final epoch follows.
        """
        over = [self._is_over(each, Position.of(stop, each.uid)) for each in self._sources]
        if all(over) or not self._is_over(planned, Position.of(stop, planned.uid)):
            return False
        before = self._position(start, planned.uid)
        if before.untold:
            return True
        if not _has_end(planned):
            epoch = cast("int", stop["epoch"])
            return self._reported_ends.setdefault(planned.uid, epoch) == epoch
        begun = planned.uid in cast("dict[str, object]", start["sources"])
        return not (begun and self._is_over(planned, before))

    def _is_news(self, planned: PlannedSource, position: Position) -> bool:
        """Return whether a source has come to its end, and no epoch was told so.

        It may have done so after the epoch that read its last: offsets do not say.
        """
        is_new = planned.uid not in self._reported_ends and not _has_end(planned)
        return is_new and self._is_over(planned, position)

    def _source_assignments(
        self, planned: PlannedSource, start: Offset, stop: Offset
    ) -> list[SplitAssignment]:
        source = planned.source
        if source is None:
            return []
        before, after = Position.of(start, planned.uid), Position.of(stop, planned.uid)
        self._splits.require(planned, before)
        self._splits.require(planned, after)
        splits = {
            number: split
            for number, split in planned.table.splits.items()
            if number < after.known and not before.is_over(number)
        }
        made: list[SplitAssignment] = []
        load = [0] * planned.parallelism
        for number, split in splits.items():
            begun = number in before.at
            first = before.at[number] if begun else source.start_offset(split)
            last = after.at.get(number)
            if after.is_over(number):
                last = source.end_offset(split)
            if last is None:
                continue  # not begun yet
            final = source.is_final(split) and last >= source.end_offset(split)
            if begun and first >= last and final:
                continue  # finished in an earlier epoch, and not counted in ``done`` then
            subtask = choose_subtask(number, load, final=source.is_final(split))
            load[subtask] += last - first
            made.append(
                SplitAssignment(
                    source_uid=planned.uid,
                    split=split,
                    subtask=subtask,
                    start=first,
                    stop=last,
                    channel=-1,
                    finished=final,
                    idle=number in after.idle,
                )
            )
        return made


def _has_end(planned: PlannedSource) -> bool:
    """Return whether a source has an end from the beginning."""
    source = planned.source
    return source is not None and source.boundedness is Boundedness.BOUNDED and not source.in_stages


def _spark_splits(planned: PlannedSource) -> list[SplitAssignment]:
    return [
        SplitAssignment(planned.uid, Split(f"spark-{subtask}"), subtask, 0, 0, -1, idle=None)
        for subtask in range(planned.parallelism)
    ]


def _end_of_input(planned: PlannedSource) -> list[SplitAssignment]:
    return [
        SplitAssignment(planned.uid, Split(f"{END_OF_INPUT}-{subtask}"), subtask, 0, 0, -1)
        for subtask in range(planned.parallelism)
    ]
