"""The split enumerator: what it assigns, and what it tells the slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.execution.lengths import Lengths, done, enumerator_of

from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.model import Manifest, SplitState, TaskAck
from millstream.errors import SourceError
from millstream.execution.planned_source import (
    MOST_FILES,
    PlannedSource,
    Position,
    SplitLog,
    initial_offset,
)
from millstream.execution.planner import SourcePlanner
from millstream.execution.source_requests import Inquiries, Inquiry
from millstream.execution.split_enumerator import SplitEnumerator, Update
from millstream.functions.watermark_strategy import WatermarkAlignment
from millstream.runtime.plan import SplitProgress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.contracts.source import KnownSplits, Source, Split


_T = TypeVar("_T")


def test_growing_splits_are_all_read_at_once_and_stay_put(tmp_path: Path) -> None:
    enumerator = enumerator_of(tmp_path, Lengths([9] * 5, grows=True, bounded=False), 2)
    found = [(a.split.id, a.subtask, a.finished, a.idle) for a in enumerator.begin()]
    assert found == [(str(n), n % 2, False, None) for n in range(5)]


def test_complete_splits_of_the_same_time_are_all_read_at_once(tmp_path: Path) -> None:
    """Or what is read later would be late: the watermark of those before has passed it."""
    source = Lengths([9] * 5)
    source.side_by_side = True
    enumerator = enumerator_of(tmp_path, source, 2)
    assigned = enumerator.begin()
    assert [(a.split.id, a.finished) for a in assigned] == [(str(n), True) for n in range(5)]
    assert {a.subtask for a in assigned} == {0, 1}
    for assignment in assigned:
        assert not enumerator.is_over
        enumerator.progress(done(assignment))
        update = enumerator.poll(1)
        assert not update.assigned
    assert update.ended == ["s"]


def test_few_complete_splits_are_open_at_a_time(tmp_path: Path) -> None:
    enumerator = enumerator_of(tmp_path, Lengths([9, 2, 5, 5, 1]), 2)
    first, second = enumerator.begin()
    assert [(a.split.id, a.subtask, a.start, a.stop, a.finished) for a in (first, second)] == [
        ("0", 0, 0, 9, True),
        ("1", 1, 0, 2, True),
    ]
    assert not enumerator.poll(1)
    enumerator.progress({second.channel: SplitProgress(1, 0, idle=False, over=False)})
    assert not enumerator.poll(2)


def test_complete_splits_that_a_first_epoch_would_read_are_read_side_by_side(
    tmp_path: Path,
) -> None:
    """They may hold the same time; so they do with epochs."""
    assigned = enumerator_of(tmp_path, Lengths([3, 3, 3, 3, 3]), 1).begin()
    assert [(a.split.id, a.stop) for a in assigned] == [("0", 3), ("1", 3), ("2", 3)]


def test_a_subtask_that_is_done_gets_the_next(tmp_path: Path) -> None:
    now = 0
    planned = [PlannedSource("s", Lengths([9] * 40), 2)]
    log = SplitLog(LocalStorage(tmp_path, fsync=False))
    enumerator = SplitEnumerator(planned, log, initial_offset(), clock=lambda: now)
    first, second = enumerator.begin()
    now = 5_000
    enumerator.progress(done(second))
    third = enumerator.poll(now).assigned
    assert {slot: [a.split.id for a in those] for slot, those in third.items()} == {1: ["2"]}
    # It was soon done with that: the way to the driver and back is what takes time.
    now += 10
    enumerator.progress(done(third[1][0]))
    assert len(enumerator.poll(now).assigned[1]) == 2
    assert first.channel not in {a.channel for a in third[1]}


def test_begun_splits_go_on_where_they_were(tmp_path: Path) -> None:
    source = Lengths([9, 9, 9], first=100)
    enumerator = enumerator_of(tmp_path, source, 1)
    assert [a.split.id for a in enumerator.begin()] == ["0"]
    acks = [TaskAck(0, 0, 0, "a", splits=[SplitState("s", "0", 104, finished=False, watermark=0)])]
    enumerator.triggered(0)
    offset = enumerator.offset(0, acks, final=False, time=5)
    part = {"known": 3, "done": 0, "at": {"0": 104}, "idle": []}
    assert offset == {"epoch": 0, "time": 5, "final": False, "sources": {"s": part}}
    again = enumerator_of(tmp_path, source, 2, offset).begin()
    assert [(a.split.id, a.start, a.channel) for a in again] == [("0", 104, 0), ("1", 100, 1)]


def test_only_what_has_changed_is_told(tmp_path: Path) -> None:
    source = Lengths([4, 4], grows=True)
    source.now = [2, 3]
    enumerator = enumerator_of(tmp_path, source)
    first, second = enumerator.begin()
    assert not enumerator.poll(1)
    source.now = [2, 4]
    assert enumerator.poll(2) == Update(grown={second.channel: 4}, final={second.channel})
    asked = source.asked
    source.now = [3, 4]
    assert enumerator.poll(3) == Update(grown={first.channel: 3})
    assert source.asked == asked + 1  # the other has had its last end
    enumerator.progress(done(second))
    source.now = [4, 4]
    assert enumerator.poll(4).final == {first.channel}
    before = enumerator.is_over
    enumerator.progress({first.channel: SplitProgress(4, 0, idle=False, over=True)})
    assert enumerator.poll(5) == Update(retired={0: {0}}, ended=["s"])
    assert (before, enumerator.is_over) == (False, True)
    assert not enumerator.poll(6)


def test_ends_that_cursors_find_are_asked_for_now_and_then(tmp_path: Path) -> None:
    source = Lengths([4], grows=True, bounded=False)
    source.cursors_follow = True
    enumerator = enumerator_of(tmp_path, source)
    (only,) = enumerator.begin()
    enumerator.poll(0)
    asked = source.asked
    for now in range(1, 1000, 50):
        assert not enumerator.poll(now)
    assert source.asked == asked
    source.now = [1]
    enumerator.progress({only.channel: SplitProgress(3, 0, idle=False, over=False)})
    assert enumerator.poll(1001).grown == {only.channel: 1}
    assert source.early == [("0", 3)]  # the source says whether records were lost


def test_a_source_without_splits_is_over_at_once(tmp_path: Path) -> None:
    enumerator = enumerator_of(tmp_path, Lengths([]))
    assert enumerator.begin() == []
    assert enumerator.poll(0) == Update(ended=["s"])
    assert enumerator.is_over


def test_an_end_that_was_told_behind_the_barrier_is_told_again(tmp_path: Path) -> None:
    enumerator = enumerator_of(tmp_path, Lengths([1]))
    (only,) = enumerator.begin()
    state = SplitState("s", "0", 1, finished=True, watermark=0)
    enumerator.triggered(0)
    enumerator.progress(done(only))
    assert enumerator.poll(1).ended == ["s"]
    ack = TaskAck(0, 0, 0, "a", splits=[state])
    first = enumerator.offset(0, [ack], final=False, time=0)
    assert Position.of(first, "s").untold
    enumerator.triggered(1)
    second = enumerator.offset(1, [ack], final=False, time=0)
    assert not Position.of(second, "s").untold


def test_errors_name_the_source(tmp_path: Path) -> None:
    class Broken(Lengths):
        def end_offset(self, split: Split) -> int:
            if self.now == [2]:
                message = "the server does not answer"
                raise SourceError(message)
            return super().end_offset(split)

    source = Broken([1], grows=True)
    enumerator = enumerator_of(tmp_path, source)
    enumerator.begin()
    source.now = [2]
    with pytest.raises(SourceError, match=r"^source 's' \(job.py:3\): the server does not answer"):
        enumerator.poll(1)


def test_sources_are_told_what_is_committed(tmp_path: Path) -> None:
    source = Lengths([3])
    enumerator = enumerator_of(tmp_path, source)
    enumerator.committed({"s": {"0": SplitState("s", "0", 2, finished=False, watermark=0)}})
    assert source.told == [{"0": 2}]


class _Asked(Inquiries):
    """Whoever is asked has no answer until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[Inquiry[Any]] = []

    def ask(self, uid: str, label: str, question: Callable[[], _T]) -> Inquiry[_T]:
        del uid
        inquiry = Inquiry(label, question)
        self.open.append(inquiry)
        return inquiry

    def answer(self) -> None:
        for inquiry in self.open:
            inquiry.ask()
        self.open = []


class _Alone(Lengths):
    """May not be asked by two at once."""

    asked_by: _Asked | None = None

    def _require_alone(self) -> None:
        assert self.asked_by is None or not self.asked_by.open, "it is asked something else"

    def start_offset(self, split: Split) -> int:
        self._require_alone()
        return super().start_offset(split)

    def is_final(self, split: Split) -> bool:
        self._require_alone()
        return super().is_final(split)

    def committed(self, offsets: dict[str, int]) -> None:
        self._require_alone()
        super().committed(offsets)


def test_a_source_is_asked_one_thing_at_a_time(tmp_path: Path) -> None:
    source, inquiries = _Alone([9, 9, 9], grows=True, bounded=False), _Asked()
    source.now = [5, 5]
    planned = [PlannedSource("s", source, 1)]
    log = SplitLog(LocalStorage(tmp_path, fsync=False))
    start = initial_offset()
    enumerator = SplitEnumerator(planned, log, start, clock=lambda: 0, inquiries=inquiries)
    assert [a.split.id for a in enumerator.begin()] == ["0", "1"]
    state = SplitState("s", "0", 3, finished=False, watermark=0)
    enumerator.triggered(0)
    offset = enumerator.offset(0, [TaskAck(0, 0, 0, "a", splits=[state])], final=False, time=0)
    enumerator.poll(1)
    assert len(inquiries.open) == 1
    source.asked_by = inquiries
    enumerator.committed({"s": {"0": state}})
    # Its tasks begin again: at the checkpoint, then at the beginning, where nothing is open.
    gone, assigned = enumerator.restart({"s"}, offset, None)
    assert (gone, [(a.split.id, a.start, a.stop) for a in assigned]) == ([0, 1], [("0", 3, 5)])
    assert enumerator.restart({"s"}, start, None) == ([2], [])
    assert not enumerator.poll(2)
    assert (source.told, len(inquiries.open)) == ([], 1)
    source.asked_by = None
    inquiries.answer()
    update = enumerator.poll(3)
    assert [(a.split.id, a.start, a.stop) for a in update.assigned[0]] == [
        ("0", 0, 5),
        ("1", 0, 5),
    ]
    assert source.told == [{"0": 3}]


class _OneByOne(Lengths):
    """One more split is found each time."""

    discovery_interval = 0

    def discover(self, known: KnownSplits) -> list[Split]:
        return super().discover(known)[:1]


def _read_all(enumerator: SplitEnumerator, looks: int) -> list[str]:
    """Read what is assigned, each split at once; what was read."""
    read, made = [], enumerator.begin()
    for now in range(looks):
        for each in made:
            enumerator.progress(done(each))
        read += [each.split.id for each in made]
        made = [each for those in enumerator.poll(now).assigned.values() for each in those]
    return read


@pytest.mark.parametrize(("retained", "under_way"), [(1, 1), (2, 1), (2, 2), (3, 3)])
def test_splits_are_known_until_a_checkpoint_behind_them_is_published(
    tmp_path: Path, retained: int, under_way: int
) -> None:
    """The driver dies while checkpoints are being committed, and begins where the last one is."""

    def started(source: Source) -> SplitEnumerator:
        planned = [PlannedSource("s", source, 2)]
        log = SplitLog(LocalStorage(tmp_path, fsync=False))
        return SplitEnumerator(planned, log, initial_offset(), retained=retained, clock=lambda: 0)

    source = _OneByOne([1] * (MOST_FILES + 9), bounded=False)
    enumerator = started(source)
    read = _read_all(enumerator, MOST_FILES - 2)
    states = [SplitState("s", n, 1, finished=True, watermark=0) for n in read]
    for epoch in range(under_way):
        enumerator.triggered(epoch)
        ack = TaskAck(epoch, 0, 0, "a", splits=states)
        enumerator.offset(epoch, [ack], final=False, time=0)
    for now in range(6):
        enumerator.poll(1000 + now)
    assert list(tmp_path.rglob("*-*.json")), "the log was compacted"
    again = _read_all(started(source), 2 * len(source.full))
    assert sorted(again, key=int) == [str(n) for n in range(len(source.full))]


def test_splits_before_all_checkpoints_that_are_kept_are_let_go(tmp_path: Path) -> None:
    source = _OneByOne([1] * (MOST_FILES + 9), bounded=False)
    log = SplitLog(LocalStorage(tmp_path, fsync=False))
    planned = [PlannedSource("s", source, 2)]
    enumerator = SplitEnumerator(planned, log, initial_offset(), retained=1, clock=lambda: 0)
    read = _read_all(enumerator, MOST_FILES - 2)
    enumerator.triggered(0)
    states = [SplitState("s", n, 1, finished=True, watermark=0) for n in read]
    acks = [TaskAck(0, 0, 0, "a", splits=states)]
    enumerator.committed({}, enumerator.offset(0, acks, final=False, time=0))
    for now in range(6):
        enumerator.poll(1000 + now)
    table = SplitLog(LocalStorage(tmp_path, fsync=False)).load("s")
    assert not table.splits.keys() & set(range(len(read)))
    assert table.count > len(read)


# -- watermark alignment -----------------------------------------------------------------------


def _aligned(directory: Path, last: Manifest | None = None) -> tuple[SplitEnumerator, list[int]]:
    """Two splits, up to 10 ms apart, compared each 100 ms; and their channels."""
    alignment = WatermarkAlignment("g", max_drift=10, update_interval=100)
    source = Lengths([50, 50], grows=True, bounded=False)
    source.now = [50, 50]
    planned = [PlannedSource("s", source, 2, alignment=alignment)]
    log = SplitLog(LocalStorage(directory, fsync=False))
    enumerator = SplitEnumerator(planned, log, initial_offset(), last, clock=lambda: 0)
    return enumerator, [assignment.channel for assignment in enumerator.begin()]


def test_a_split_that_runs_ahead_waits_for_the_others(tmp_path: Path) -> None:
    enumerator, (slow, fast) = _aligned(tmp_path)

    def at(first: int, second: int) -> dict[int, SplitProgress]:
        return {
            slow: SplitProgress(5, first, idle=False, over=False),
            fast: SplitProgress(5, second, idle=False, over=False),
        }

    enumerator.progress(at(100, 105))
    assert enumerator.poll(0).held is None
    enumerator.progress(at(100, 120))
    assert enumerator.poll(50).held == frozenset({fast})  # the ceiling is that of before
    enumerator.progress(at(110, 120))
    assert enumerator.poll(99).held is None
    assert enumerator.poll(100).held == frozenset()
    enumerator.progress(at(110, 500))
    assert enumerator.poll(101).held == frozenset({fast})
    enumerator.progress({slow: SplitProgress(5, 115, idle=True, over=False)})
    assert enumerator.poll(201).held == frozenset()


def test_tasks_are_told_how_far_their_splits_may_run(tmp_path: Path) -> None:
    enumerator, (slow, fast) = _aligned(tmp_path)
    enumerator.progress({slow: SplitProgress(5, 100, idle=False, over=False)})
    enumerator.progress({fast: SplitProgress(5, 105, idle=False, over=False)})
    assert enumerator.poll(0).ceilings == {slow: 110, fast: 110}
    enumerator.progress({slow: SplitProgress(6, 104, idle=False, over=False)})
    assert enumerator.poll(99).ceilings is None  # compared each 100 ms
    assert enumerator.poll(100).ceilings == {slow: 114, fast: 114}
    assert enumerator.poll(200).ceilings is None
    enumerator.progress({slow: SplitProgress(50, 104, idle=False, over=True)})
    assert enumerator.poll(300).ceilings == {fast: 115}


def test_nobody_waits_for_a_comparison_if_all_wait(tmp_path: Path) -> None:
    enumerator, (slow, fast) = _aligned(tmp_path)
    enumerator.progress({slow: SplitProgress(5, 100, idle=False, over=False)})
    enumerator.progress({fast: SplitProgress(5, 120, idle=False, over=False)})
    assert enumerator.poll(0).held == frozenset({fast})
    # All of the slow one is read: its time comes to the other's.
    enumerator.progress({slow: SplitProgress(50, 119, idle=False, over=False)})
    assert enumerator.poll(1).held == frozenset()


def test_what_was_ahead_at_the_checkpoint_waits_from_the_start(tmp_path: Path) -> None:
    splits = {
        name: SplitState("s", name, 5, finished=False, watermark=watermark)
        for name, watermark in (("0", 100), ("1", 120))
    }
    last = Manifest(3, 0, "j", 0, 0, {}, {}, {"s": splits}, {0: 2}, 128)
    enumerator, (_, fast) = _aligned(tmp_path, last)
    assert enumerator.poll(0).held == frozenset({fast})


def test_an_engine_with_epochs_tells_an_end_that_was_not(tmp_path: Path) -> None:
    log = SplitLog(LocalStorage(tmp_path, fsync=False))
    over, on = Lengths([1]), Lengths([5], grows=True, bounded=False)
    planned = [PlannedSource("over", over, 2), PlannedSource("on", on, 1)]
    enumerator = SplitEnumerator(planned, log, initial_offset(), clock=lambda: 0)
    enumerator.begin()
    enumerator.triggered(0)
    ack = TaskAck(0, 0, 0, "a", splits=[SplitState("over", "0", 1, finished=True, watermark=0)])
    start = enumerator.offset(0, [ack], final=False, time=0)
    planned = [PlannedSource("over", over, 2), PlannedSource("on", on, 1)]
    planner = SourcePlanner(planned, log, target_seconds=1, tick_interval=None, wait_seconds=0)
    stop = planner.latest_offset(start)
    assert stop is not start
    told = [each.source_uid for each in planner.assignments(start, stop) if each.is_end_of_input]
    assert told == ["over", "over"]
    assert planner.latest_offset(stop) is stop
