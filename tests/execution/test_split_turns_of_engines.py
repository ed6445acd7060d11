"""Every record is read once, also if engines take turns."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest
from tests.execution.lengths import Lengths

from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.model import SplitState, TaskAck
from millstream.execution.planned_source import (
    Offset,
    PlannedSource,
    Position,
    SplitLog,
    initial_offset,
)
from millstream.execution.planner import SourcePlanner
from millstream.execution.split_enumerator import SplitEnumerator, Update
from millstream.runtime.plan import SplitProgress

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.runtime.plan import SplitAssignment


@dataclass
class _Reader:
    """A cursor of a slot."""

    assignment: SplitAssignment
    position: int
    end: int
    final: bool

    @property
    def over(self) -> bool:
        return self.final and self.position == self.end


@dataclass
class _Slots:
    """All slots of a run, in one: they read some, and take snapshots."""

    enumerator: SplitEnumerator
    #: (uid, split id, offset), of what was read.
    read: list[tuple[str, str, int]]
    readers: dict[int, _Reader] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    held: frozenset[int] = frozenset()
    #: What was told last.
    over: dict[int, SplitProgress] = field(default_factory=dict)

    def assign(self, assignment: SplitAssignment) -> None:
        assert assignment.channel not in self.readers
        self.readers[assignment.channel] = _Reader(
            assignment, assignment.start, assignment.stop, assignment.finished
        )

    def take(self, update: Update) -> None:
        for subtask, assignments in update.assigned.items():
            for assignment in assignments:
                assert assignment.subtask == subtask
                self.assign(assignment)
        for channel, end in update.grown.items():
            if channel in self.readers:
                self.readers[channel].end = end
        for channel in update.final & self.readers.keys():
            self.readers[channel].final = True
        for uid in update.ended:
            assert uid not in self.ended
            assert all(r.over for r in self.readers.values() if r.assignment.source_uid == uid)
            self.ended.add(uid)
        if update.held is not None:
            self.held = update.held

    def advance(self, chance: random.Random) -> None:
        for reader in self.readers.values():
            stop = min(reader.end, reader.position + chance.randrange(4))
            uid, split = reader.assignment.source_uid, reader.assignment.split.id
            self.read += [(uid, split, at) for at in range(reader.position, stop)]
            reader.position = max(stop, reader.position)

    def progress(self) -> dict[int, SplitProgress]:
        self.over |= {
            channel: SplitProgress(r.position, 0, idle=False, over=r.over)
            for channel, r in self.readers.items()
        }
        return self.over

    def snapshot(self, epoch: int, parallelism: int) -> list[TaskAck]:
        acks = [TaskAck(epoch, 0, subtask, "a") for subtask in range(parallelism)]
        for reader in self.readers.values():
            each = reader.assignment
            state = SplitState(each.source_uid, each.split.id, reader.position, reader.over, 0)
            acks[each.subtask].splits.append(state)
        return acks

    def forget_finished(self, acks: list[TaskAck]) -> None:
        self.progress()
        over = {(s.source_uid, s.split_id) for ack in acks for s in ack.splits if s.finished}
        self.readers = {
            channel: reader
            for channel, reader in self.readers.items()
            if (reader.assignment.source_uid, reader.assignment.split.id) not in over
        }


class _World:
    """Sources, a log, and two engines that take turns; what is committed counts as read."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = chance = random.Random(seed)
        self.directory = directory
        self.sources = {
            uid: Lengths(
                [chance.choice([0, 1, 5, 30]) for _ in range(chance.randrange(6))],
                grows=chance.random() < 0.4,
                first=chance.choice([0, 7]),
            )
            for uid in ("a", "b")[: chance.randrange(1, 3)]
        }
        self.offset: Offset = initial_offset()
        self.read: list[tuple[str, str, int]] = []
        #: ``read`` when the run of now began.
        self.before: list[tuple[str, str, int]] = []
        #: Uids whose maximum watermark lies before the checkpoint.
        self.ended: set[str] = set()
        self.now = 0

    def planned(self) -> list[PlannedSource]:
        parallelism = self.chance.randrange(1, 4)
        return [PlannedSource(uid, source, parallelism) for uid, source in self.sources.items()]

    def log(self) -> SplitLog:
        return SplitLog(LocalStorage(self.directory, fsync=False))

    def grow(self) -> None:
        self.now += self.chance.choice([1, 50, 5000])
        for source in self.sources.values():
            if source.grows:
                source.grow(self.chance)

    def run_epochs(self) -> None:
        planner = SourcePlanner(
            self.planned(), self.log(), target_seconds=1, tick_interval=None, wait_seconds=0
        )
        for _ in range(self.chance.randrange(1, 5)):
            self.grow()
            planner.set_limit(self.chance.randrange(1, 20))
            start = self.offset
            stop = planner.latest_offset(start)
            if stop is start:
                continue
            for each in planner.assignments(start, stop):
                if each.is_end_of_input:
                    self.ended.add(each.source_uid)
                spans = range(each.start, each.stop)
                self.read += [(each.source_uid, each.split.id, at) for at in spans]
            self.offset = stop

    def run_pipelined(self) -> None:
        planned = self.planned()
        enumerator = SplitEnumerator(planned, self.log(), self.offset, clock=lambda: self.now)
        slots = _Slots(enumerator, [])
        for assignment in enumerator.begin():
            slots.assign(assignment)
        epoch = int(str(self.offset["epoch"])) + 1
        pending: list[tuple[int, list[TaskAck], int, set[str], bool]] = []
        for _ in range(self.chance.randrange(1, 40)):
            self.grow()
            slots.take(enumerator.poll(self.now))
            slots.advance(self.chance)
            if self.chance.random() < 0.7:
                enumerator.progress(slots.progress())
            if self.chance.random() < 0.3 and not (pending and pending[-1][-1]):
                enumerator.triggered(epoch)
                acks = slots.snapshot(epoch, planned[0].parallelism)
                slots.forget_finished(acks)
                final = enumerator.is_over
                pending.append((epoch, acks, len(slots.read), set(slots.ended), final))
                epoch += 1
            while pending and self.chance.random() < 0.4:
                self._complete(enumerator, slots, pending.pop(0))

    def _complete(
        self,
        enumerator: SplitEnumerator,
        slots: _Slots,
        pending: tuple[int, list[TaskAck], int, set[str], bool],
    ) -> None:
        epoch, acks, read, ended, final = pending
        if self.chance.random() < 0.2 and not final:
            return  # given up; the next one has all of it
        self.offset = enumerator.offset(epoch, acks, final=final, time=self.now)
        self.read = self.before + slots.read[:read]
        self.ended |= ended
        self.check_ends()

    def check_ends(self) -> None:
        """Who is over has its maximum watermark, or is still to be told; or the job ends next."""
        over = {uid for uid in self.sources if self._is_over(Position.of(self.offset, uid), uid)}
        told = {uid for uid in over if not Position.of(self.offset, uid).untold}
        assert told <= self.ended or over == set(self.sources)

    def _is_over(self, position: Position, uid: str) -> bool:
        known = uid in cast("dict[str, object]", self.offset["sources"])
        return known and position.done == position.known

    def everything(self) -> list[tuple[str, str, int]]:
        return [
            (uid, str(number), source.first + at)
            for uid, source in self.sources.items()
            for number, length in enumerate(source.full)
            for at in range(length)
        ]


@pytest.mark.parametrize("seed", range(150))
def test_everything_is_read_once_whichever_engine_takes_its_turn(seed: int, tmp_path: Path) -> None:
    world = _World(seed, tmp_path)
    for _ in range(400):
        world.before = list(world.read)
        if world.chance.random() < 0.5:
            world.run_epochs()
        else:
            world.run_pipelined()
        world.check_ends()
        if world.offset["final"]:
            break
    assert world.offset["final"], f"seed {seed}"
    assert sorted(world.read) == sorted(world.everything())
    assert world.ended == set(world.sources)
    for uid, source in world.sources.items():
        position = Position.of(world.offset, uid)
        assert (position.done, position.at) == (len(source.full), {})
