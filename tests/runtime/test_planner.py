"""The source planner: every unit is read once, in order, whatever the cuts."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.execution.lengths import Lengths

from millstream.checkpoint.local_storage import LocalStorage
from millstream.contracts.source import Source, Split
from millstream.errors import CheckpointError
from millstream.execution import planned_source
from millstream.execution.planned_source import (
    Offset,
    PlannedSource,
    Position,
    SplitLog,
    SplitTable,
    initial_offset,
)
from millstream.execution.planner import SourcePlanner
from millstream.runtime.plan import END_OF_INPUT

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.source import KnownSplits


class _Files(Lengths):
    """Complete splits that appear and vanish, as files do; counts what it is asked."""

    def __init__(self, *, interval: float = 0) -> None:
        super().__init__([], bounded=False)
        self.names: list[str] = []
        self.interval = interval
        self.discoveries = 0
        self.ends_asked = 0

    @property
    def discovery_interval(self) -> float:
        return self.interval

    def discover(self, known: KnownSplits) -> list[Split]:
        self.discoveries += 1
        return [Split(name, {"end": 3}) for name in self.names if name not in known]

    def end_offset(self, split: Split) -> int:
        self.ends_asked += 1
        return int(str(split.properties["end"]))

    def is_final(self, split: Split) -> bool:
        return True


def _growing(*lengths: int) -> Lengths:
    source = Lengths(list(lengths), bounded=False, grows=True)
    source.now = list(lengths)
    return source


def _planner(source: Source, directory: Path, parallelism: int) -> SourcePlanner:
    planned = PlannedSource("s", source, parallelism)
    log = SplitLog(LocalStorage(directory, fsync=False))
    return SourcePlanner([planned], log, target_seconds=1.0, tick_interval=None, wait_seconds=0.0)


@pytest.mark.parametrize("seed", range(20))
def test_bounded_source_is_read_once_in_order(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    lengths = [chance.choice([0, 1, 5, 30]) for _ in range(chance.randrange(6))]
    parallelism = chance.randrange(1, 4)
    planner = _planner(Lengths(lengths), tmp_path, parallelism)
    offset: Offset = initial_offset()
    read: dict[str, list[int]] = {str(n): [] for n in range(len(lengths))}
    finished: list[str] = []
    for epoch in range(200):
        planner.set_limit(chance.randrange(1, 20))
        if chance.random() < 0.3:  # another driver, from the log alone
            planner = _planner(Lengths(lengths), tmp_path, parallelism)
        stop = planner.latest_offset(offset)
        assert stop["epoch"] == epoch
        plan = planner.assignments(offset, stop)
        again = _planner(Lengths(lengths), tmp_path, parallelism).assignments(offset, stop)
        assert plan == again, f"replay differs, seed {seed}"
        assert len({a.channel for a in plan}) == len(plan)
        for assignment in plan:
            if assignment.split.id.startswith(END_OF_INPUT):
                assert stop["final"]
                continue
            assert assignment.split.id not in finished
            read[assignment.split.id].extend(range(assignment.start, assignment.stop))
            if assignment.finished:
                finished.append(assignment.split.id)
        offset = stop
        if stop["final"]:
            break
    assert read == {str(n): list(range(length)) for n, length in enumerate(lengths)}
    assert sorted(finished) == sorted(read)
    assert planner.latest_offset(offset) == offset


def test_complete_splits_of_the_same_time_all_begin_at_once(tmp_path: Path) -> None:
    """Or what is read later would be late: the watermark of those before has passed it."""
    one_by_one, side_by_side = Lengths([30] * 6), Lengths([30] * 6)
    side_by_side.side_by_side = True
    begun = []
    for name, source in (("one", one_by_one), ("all", side_by_side)):
        planner = _planner(source, tmp_path / name, 2)
        planner.set_limit(12)
        offset = planner.latest_offset(initial_offset())
        begun.append(len(planner.assignments(initial_offset(), offset)))
    assert begun == [2, 6]


def test_unbounded_source_discovers_and_grows(tmp_path: Path) -> None:
    source = _growing(3)
    planner = _planner(source, tmp_path, 2)
    first = planner.latest_offset(initial_offset())
    assert [(a.start, a.stop) for a in planner.assignments(initial_offset(), first)] == [(0, 3)]
    assert planner.latest_offset(first) == first
    source.now = [4, 2]
    second = planner.latest_offset(first)
    work = [(a.split.id, a.start, a.stop) for a in planner.assignments(first, second)]
    assert work == [("0", 3, 4), ("1", 0, 2)]
    assert not second["final"]


class _Closing(Lengths):
    """Ends when its server closes, which it need not."""

    closed = False

    @property
    def has_all_splits(self) -> bool:
        return self.closed

    def is_final(self, split: Split) -> bool:
        return self.closed


@pytest.mark.parametrize("when", ["reading", "planned", "read"])
def test_the_end_of_a_source_is_told_once_while_others_go_on(when: str, tmp_path: Path) -> None:
    """Whenever its server closes; what it alone feeds waits for it."""
    closing, other = _Closing([3], bounded=False), _growing(1)
    sources = [PlannedSource("closing", closing, 1), PlannedSource("other", other, 1)]
    log = SplitLog(LocalStorage(tmp_path, fsync=False))
    planner = SourcePlanner(sources, log, target_seconds=1.0, tick_interval=None, wait_seconds=0.0)
    offset, told = initial_offset(), []
    for epoch in range(5):
        closing.closed |= epoch == (1 if when == "read" else 0) and when != "planned"
        other.now[0] += epoch == 3  # nothing but the end is there to be told before
        stop = planner.latest_offset(offset)
        if stop is offset:
            continue
        closing.closed |= when == "planned"
        plan = planner.assignments(offset, stop)
        assert planner.assignments(offset, stop) == plan
        ends = [each for each in plan if each.split.id.startswith(END_OF_INPUT)]
        assert all(each.source_uid == "closing" for each in ends)
        told += [epoch for _ in ends]
        offset = stop
    assert told == [1 if when == "read" else 0]
    assert not offset["final"]


def test_min_pause_keeps_the_next_epoch_waiting(tmp_path: Path) -> None:
    log = SplitLog(LocalStorage(tmp_path, fsync=False))
    planned = PlannedSource("s", Lengths([100]), 1)
    planner = SourcePlanner(
        [planned], log, target_seconds=1, tick_interval=None, min_pause=60_000, wait_seconds=0
    )
    first = planner.latest_offset(initial_offset())
    assert first != initial_offset()
    ended = time.monotonic()
    planner.epoch_finished(0.1)
    pause = planner.remaining_pause()
    assert ended + 60 <= time.monotonic() + pause
    assert pause <= 60
    assert planner.latest_offset(first) == first


def test_two_drivers_log_splits_at_a_time(tmp_path: Path) -> None:
    """The newer one must not stop because the one that it has fenced was faster."""
    log = SplitLog(LocalStorage(tmp_path, fsync=False))
    source = _growing(3, 2)

    def planner() -> SourcePlanner:
        planned = PlannedSource("s", source, 1)
        return SourcePlanner([planned], log, target_seconds=1, tick_interval=None, wait_seconds=0)

    older, newer = planner(), planner()
    older.latest_offset(initial_offset())
    source.now = [3, 2, 1]  # the newer one finds more than is logged by then
    first = newer.latest_offset(initial_offset())
    assert [a.split.id for a in newer.assignments(initial_offset(), first)] == ["0", "1"]
    second = newer.latest_offset(first)
    assert [a.split.id for a in newer.assignments(first, second)] == ["0", "1", "2"]
    assert [split.id for split in log.load("s").splits.values()] == ["0", "1", "2"]


def test_sources_whose_uids_look_like_directories(tmp_path: Path) -> None:
    log = SplitLog(LocalStorage(tmp_path, fsync=False))
    uids = ["in", "in/a", "../in", ".."]
    for uid in uids:
        log.append(uid, SplitTable(), [Split(f"split of {uid}")])
    assert [[split.id for split in log.load(uid).splits.values()] for uid in uids] == [
        [f"split of {uid}"] for uid in uids
    ]


# -- what was read costs nothing ---------------------------------------------------------------


def test_finished_splits_are_forgotten(tmp_path: Path) -> None:
    source = _Files()
    source.names = [f"file-{number}" for number in range(5_000)]
    planner = _planner(source, tmp_path, 2)
    offset: Offset = initial_offset()
    while (stop := planner.latest_offset(offset)) != offset:
        planner.set_limit(6_000)
        offset = stop
    assert offset["sources"] == {"s": {"known": 5_000, "done": 5_000, "at": {}, "idle": []}}
    (planned,) = planner._sources
    assert planned.table.splits == {}
    source.ends_asked = 0
    assert planner.latest_offset(offset) == offset
    assert source.ends_asked == 0
    # Another driver finds none of them again, though it holds no list of them either.
    other = _planner(source, tmp_path, 2)
    assert other.latest_offset(offset) == offset
    assert other._sources[0].table.splits == {}
    source.names.append("one more")
    stop = other.latest_offset(offset)
    assert [each.split.id for each in other.assignments(offset, stop)] == ["one more"]


def test_a_slow_split_does_not_make_offsets_grow(tmp_path: Path) -> None:
    source = _Files()
    planner = _planner(source, tmp_path, 2)
    offset: Offset = initial_offset()
    source.names = ["slow"]
    ends = {"slow": 10**9}
    source.end_offset = lambda split: ends.get(split.id, 3)  # type: ignore[method-assign]
    for number in range(50):
        source.names.append(f"file-{number}")
        planner.set_limit(10)
        stop = planner.latest_offset(offset)
        work = {each.split.id: each for each in planner.assignments(offset, stop)}
        assert work[f"file-{number}"].finished
        assert work.keys() == {"slow", f"file-{number}"}
        again = _planner(source, tmp_path, 2).assignments(offset, stop)
        assert {each.split.id: each for each in again} == work
        offset = stop
    position = Position.of(offset, "s")
    assert position.at.keys() == {0}
    assert position.over.to_json() == [[1, 51]]


def test_discovery_waits_for_its_interval(tmp_path: Path) -> None:
    source = _Files(interval=3_600_000)
    planner = _planner(source, tmp_path, 1)
    for _ in range(10):
        assert planner.latest_offset(initial_offset()) == initial_offset()
    assert source.discoveries == 1
    source.names = ["found by the next run"]
    stop = _planner(source, tmp_path, 1).latest_offset(initial_offset())
    assert stop != initial_offset()
    assert source.discoveries == 2


@pytest.mark.parametrize("seed", range(10))
def test_no_split_is_read_twice(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files come one by one, vanish and come back; drivers change; the log is compacted."""
    monkeypatch.setattr(planned_source, "MOST_FILES", 4)
    chance = random.Random(seed)
    source = _Files()
    planner = _planner(source, tmp_path, 2)
    offset: Offset = initial_offset()
    read: Counter[str] = Counter()
    made = 0
    for _ in range(120):
        for _ in range(chance.randrange(3)):
            source.names.append(f"file-{made}")
            made += 1
        if chance.random() < 0.2:
            chance.shuffle(source.names)
            del source.names[: chance.randrange(1 + len(source.names) // 3)]
            source.names += [f"file-{chance.randrange(made)}"] if made else []
            source.names = list(dict.fromkeys(source.names))
        if chance.random() < 0.2:
            planner = _planner(source, tmp_path, 2)
        planner.set_limit(chance.randrange(1, 12))
        stop = planner.latest_offset(offset)
        for each in planner.assignments(offset, stop):
            read[each.split.id] += each.stop - each.start
        offset = stop
    while (stop := planner.latest_offset(offset)) != offset:
        for each in planner.assignments(offset, stop):
            read[each.split.id] += each.stop - each.start
        offset = stop
    assert set(read.values()) == {3}
    assert read.keys() >= set(source.names)
    files = list((tmp_path / "sources" / "s").iterdir())
    assert len(files) <= 4 + made.bit_length()


def test_a_log_that_lacks_what_the_checkpoint_needs(tmp_path: Path) -> None:
    source = _Files()
    source.names = ["a", "b"]
    offset = _planner(source, tmp_path, 1).latest_offset(initial_offset())
    for file in (tmp_path / "sources" / "s").iterdir():
        file.unlink()
    with pytest.raises(CheckpointError, match="list of its splits does not go with the checkpoint"):
        _planner(source, tmp_path, 1).latest_offset(offset)
