"""The splits of a subtask: which of them are idle, which wait, and how long barriers wait."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest
from tests.integration.job_runs import SplitsSource, environment, event_time
from tests.support.memory_transport import Network

from millstream.checkpoint.job_directories import JobDirectories
from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Duration, Types
from millstream.contracts.source import (
    FollowingCursor,
    RangeCursor,
    SourceBatch,
    Split,
    SplitCursor,
)
from millstream.datastream.connectors import DiscardingSink
from millstream.execution.job import Job
from millstream.execution.run import Run
from millstream.runtime.operators.timestamps_watermarks import TimestampsWatermarksOperator
from millstream.runtime.pipelined.control import (
    Acknowledged,
    Ceilings,
    Grown,
    Paused,
    TakeCheckpoint,
)
from millstream.runtime.pipelined.links import HEADER, CreditLimits
from millstream.runtime.pipelined.main_loop import MainLoop
from millstream.runtime.pipelined.splits import SplitScheduler
from millstream.runtime.pipelined.uploader import finished
from millstream.runtime.plan import SplitAssignment
from millstream.types.pickling import loads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.checkpoint.model import SplitState
    from millstream.contracts.operator import RestoreContext
    from millstream.contracts.source import Source
    from millstream.runtime.pipelined.control import DriverMessage, SlotMessage

#: Milliseconds without a record after which a split is idle.
TIMEOUT = 100
#: More bytes than any link may have under way.
NONE_LEFT = 10 << 20


@pytest.fixture(autouse=True)
def enough_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let splits be read while a slot stands still, or is slow by the clock of these tests."""
    monkeypatch.setattr(CreditLimits, "of", lambda *_, **__: None)


class Slots:
    """Two slots with a split each, given turns by the test, which also moves all clocks."""

    def __init__(
        self,
        directory: Path,
        source: Source,
        *,
        in_mid_stream: bool = False,
        behind: bool = False,
    ) -> None:
        env = environment(2)
        strategy = event_time(0).with_idleness(Duration.of_millis(TIMEOUT))
        stream = env.from_source(source, strategy, "events").uid("events")
        if in_mid_stream:
            # Chained to the head; it finds out by itself that nothing comes.
            stream = stream.assign_timestamps_and_watermarks(strategy).uid("second")
        keyed = stream.key_by(lambda value: value[0], Types.STRING())
        read = keyed.map(lambda value: value).uid("reader")
        if behind:
            read = read.assign_timestamps_and_watermarks(strategy).uid("third")
        read.sink_to(DiscardingSink())
        self._graph = env.get_job_graph("turns")
        storage = LocalStorage(directory / "checkpoints", fsync=False)
        directories = JobDirectories(storage, temporary=False, local=directory / "local")
        job = Job(self._graph, directories, local_root=directory / "local", fsync=False)
        self._run = Run(job)
        self._run.open()
        self._splits = source.discover(())
        uids = {node.uid: node.id for node in self._graph.nodes.values()}
        self._reader = uids["reader"]
        #: Milliseconds, and seconds, which move by so much at every look.
        self.now = 1000
        self.seconds = 1000.0
        self.step = 0.001
        self.acks: list[Any] = []
        self.loops: list[MainLoop] = []

    def start(self, *assignments: SplitAssignment) -> None:
        """Begin, or go on in new slots."""
        plan = self._run.plan(self._run.planner.latest_offset(self._run.position))
        plan.assignments = list(assignments)
        plan.processing_time = self.now
        self._network = Network(2, header_size=HEADER.size)
        shipped = cloudpickle.dumps(self._graph), cloudpickle.dumps(plan)
        self.acks = []
        self.close_loops()
        self.loops = [
            MainLoop(
                slot,
                partial(cloudpickle.loads, shipped[0]),
                partial(cloudpickle.loads, shipped[1]),
                self._network.transport(slot),
                self._handle,
                lambda pending, slot=slot: self._handle(finished(slot, pending)),  # type: ignore[misc]
                lambda: self.now,
                self._look,
            )
            for slot in range(2)
        ]
        for loop in self.loops:
            loop.restore()

    def split(self, channel: int, stop: int, start: int = 0) -> SplitAssignment:
        """A split as the driver assigns it, which does not say whether it is idle."""
        split = self._splits[channel]
        return SplitAssignment("events", split, channel, start, stop, channel, idle=None)

    def credit(self, slot: int, in_flight: int) -> None:
        """Have so many bytes under way from a source."""
        root = self.root(slot)
        for each in self.loops[slot].out_links():
            if each.link.source == root.id:
                each.in_flight = in_flight

    def restored(self, channel: int, stop: int) -> SplitAssignment:
        """The same as the last checkpoint has it."""
        state = self.states()[self._splits[channel].id]
        made = self.split(channel, stop, state.position)
        operators: Any = loads(state.generator or b"")
        made.was_idle, made.operators = state.idle, operators
        return made

    def states(self) -> dict[str, SplitState]:
        return {state.split_id: state for ack in self.acks for state in ack.splits}

    def _look(self) -> float:
        self.seconds += self.step
        return self.seconds

    def _handle(self, message: SlotMessage) -> None:
        if isinstance(message, Acknowledged):
            self.acks.append(loads(message.ack))

    def turns(self, count: int, *messages: DriverMessage, slots: tuple[int, ...] = (0, 1)) -> None:
        for number in range(count):
            self._network.step()
            for slot in slots:
                self.loops[slot].step(messages if number == 0 else [], 0.0)

    def checkpoint(self) -> None:
        epoch = self.root(0)._plan.epoch
        self.turns(100, TakeCheckpoint(epoch))
        assert {(ack.stage, ack.subtask) for ack in self.acks} >= {(0, 0), (0, 1), (1, 0), (1, 1)}

    def root(self, slot: int) -> Any:
        return next(task for task in self.loops[slot].tasks if task.is_root)

    def of(self, slot: int, channel: int | None = None) -> Any:
        """Its split, as it is read."""
        return self.root(slot).splits._splits[slot if channel is None else channel]

    def times(self) -> list[int]:
        """The readers' event time."""
        tasks = [task for loop in self.loops for task in loop.tasks if task.id.stage == 1]
        return [task._instance.watermarks[self._reader] for task in tasks]

    def close_loops(self) -> None:
        for loop in self.loops:
            loop.close()

    def close(self) -> None:
        self.close_loops()
        self._run.close()


def events() -> SplitsSource:
    return SplitsSource([[("key", time, time) for time in range(0, 1000, 10)]] * 2)


@pytest.mark.parametrize("silent", [False, True], ids=["active", "idle"])
@pytest.mark.parametrize("in_mid_stream", [False, True], ids=["source", "second"])
def test_a_backlog_is_waited_for_behind_a_restart(
    tmp_path: Path, silent: bool, in_mid_stream: bool
) -> None:
    """Whatever the split was in the checkpoint, and however long nothing ran."""
    slots = Slots(tmp_path, events(), in_mid_stream=in_mid_stream)
    slots.start(slots.split(0, 50), slots.split(1, 5))
    slots.turns(100)
    assert slots.times() == [39, 39]
    if silent:
        for _ in range(30):
            slots.now += 10
            slots.turns(3)
        assert slots.times() == [489, 489]
    slots.checkpoint()
    assert slots.states()["split-1"].idle is silent
    assert slots.states()["split-1"].position == 5
    slots.now += 50 * TIMEOUT  # the job is down
    slots.start(slots.restored(0, 100), slots.restored(1, 100))
    slots.turns(100, slots=(0,))
    expected = 489 if silent else 39  # time does not go back
    assert slots.of(0).position == 100
    assert slots.times()[0] <= expected
    slots.turns(100)
    assert slots.of(1).position == 100
    assert slots.times() == [989, 989]
    slots.close()


def test_a_split_without_backlog_goes_on_as_idle(tmp_path: Path) -> None:
    slots = Slots(tmp_path, events())
    slots.start(slots.split(0, 50), slots.split(1, 5))
    slots.turns(100)
    slots.now += TIMEOUT
    slots.turns(100)
    slots.checkpoint()
    slots.start(slots.restored(0, 100), slots.restored(1, 5))
    slots.turns(100)
    assert slots.times() == [989, 989]
    assert slots.of(1).assignment.idle
    slots.close()


def test_a_split_that_may_not_be_read_is_not_idle(tmp_path: Path) -> None:
    """Backpressure says nothing of what is in it."""
    slots = Slots(tmp_path, events())
    slots.start(slots.split(0, 5), slots.split(1, 5))
    slots.turns(100)
    for number in range(10):
        slots.credit(1, NONE_LEFT)
        slots.now += TIMEOUT // 2
        slots.turns(3, Grown({0: 6 + number, 1: 6 + number}))
    assert slots.of(1).position == 5
    slots.credit(1, 0)
    slots.seconds += 1
    slots.step = 0.00001
    slots.turns(1, slots=(1,))
    assert slots.of(1).position == 15
    assert slots.of(1).drained
    assert not slots.of(1).assignment.idle
    slots.step = 0.001
    slots.turns(100)
    assert slots.times() == [139, 139]
    slots.turns(100, Grown({0: 100}))
    assert slots.times() == [139, 139]
    slots.now += TIMEOUT
    slots.turns(100, Grown({0: 100}))
    assert slots.of(1).assignment.idle, "nothing comes though it is looked for"
    slots.close()


class _Growing(SplitsSource):
    cursors_follow = True

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        return FollowingCursor(self, split, position)


def test_a_split_at_which_nobody_looked_is_not_idle(tmp_path: Path) -> None:
    """Another split of its subtask takes the first turn when there is credit again."""
    events: list[list[object]] = [[("key", time, time) for time in range(50)] for _ in range(2)]
    slots = Slots(tmp_path, _Growing(events, unbounded=True))
    other = slots.split(1, 50)
    other.subtask = 0
    slots.start(slots.split(0, 50), other)
    slots.turns(100)
    both = slots.of(0, 0), slots.of(0, 1)
    assert [each.position for each in both] == [50, 50]
    slots.credit(0, NONE_LEFT)
    for each in both:
        each.cursor._growing.splits = [[*values, ("key", 50, 50)] for values in events]
    slots.now += TIMEOUT
    slots.turns(3)
    slots.credit(0, 0)
    slots.seconds += 1
    slots.step = 0.002  # one batch takes the turn
    slots.turns(1)
    assert sorted(each.position for each in both) == [50, 51]
    assert not any(each.assignment.idle for each in both)
    slots.turns(100)
    assert [each.position for each in both] == [51, 51]
    assert not any(each.assignment.idle for each in both)
    slots.now += TIMEOUT
    slots.turns(100)
    assert all(each.assignment.idle for each in both)
    slots.close()


def test_operators_are_told_that_nothing_ran_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of splits when each is taken, not when its turn comes; all others once."""
    told: dict[str, list[bool]] = {}
    restore = TimestampsWatermarksOperator.restore

    def note(self: TimestampsWatermarksOperator, restored: RestoreContext) -> None:
        told.setdefault(self.context.uid, []).append(restored.resumes)
        restore(self, restored)

    monkeypatch.setattr(TimestampsWatermarksOperator, "restore", note)
    slots = Slots(tmp_path, events(), in_mid_stream=True, behind=True)
    slots.start(slots.split(0, 50), slots.split(1, 5))
    slots.turns(100)
    slots.checkpoint()
    slots.turns(100, Grown({0: 60, 1: 60}))
    slots.close()
    assert told["third"] == [True, True]
    for uid in ("events", "second"):
        assert told[uid].count(True) == 2
        assert told[uid].count(False) > 2
    assert set(told) == {"events", "second", "third"}


class _Endless(SplitsSource):
    """Pieces of many small batches, so that most turns end within one."""

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        del split
        for first in range(start, stop, 10):
            times = range(first, min(stop, first + 10))
            yield SourceBatch(values=[("key", time, time) for time in times])


@pytest.mark.extended
def test_a_split_that_is_held_stops_where_its_position_is_exact(tmp_path: Path) -> None:
    slots = Slots(tmp_path, _Endless([[], []]))
    slots.start(slots.split(0, 10**9), slots.split(1, 0))
    slots.step = 0.0001  # a turn is some batches
    for _ in range(20_000):
        if slots.of(0).position > 5_000 and not slots.of(0).settled:
            break
        slots.turns(1)
    before = slots.of(0).position
    slots.turns(1, Paused(frozenset({0})))
    for _ in range(2_000):
        if slots.of(0).settled:
            break
        slots.turns(1)
    stopped = slots.of(0).position
    assert slots.of(0).settled
    assert before < stopped <= before + slots.root(0).splits._sizers["events"].limit
    slots.turns(500)
    assert slots.of(0).position == stopped
    slots.turns(500, Paused(frozenset()))
    assert slots.of(0).position > stopped
    slots.close()


def test_a_split_stops_by_itself_where_it_passes_its_ceiling(tmp_path: Path) -> None:
    slots = Slots(tmp_path, _Endless([[], []]))
    slots.start(slots.split(0, 10**9), slots.split(1, 10**9))
    for ceiling in (505, 1_234):
        slots.turns(300, Ceilings({0: ceiling}))
        # The time of a record is its offset.  It is read on to where its position is exact.
        stopped = slots.of(0).position
        assert ceiling < stopped <= ceiling + slots.root(0).splits._sizers["events"].limit
        assert slots.of(0).settled
        slots.turns(300)
        assert slots.of(0).position == stopped
    assert slots.of(1).position > 2_000
    slots.turns(300, Ceilings({}))
    assert slots.of(0).position > 2_000
    slots.close()


class _Generous(RangeCursor):
    """Gives 500 records whatever it is asked for; knows the position behind each, or none."""

    tells = False

    def poll(self, most: int) -> SourceBatch | None:
        del most
        start, stop = self.position, min(self.position + 500, self._end)
        if start == stop:
            return None
        self.position = stop
        return SourceBatch(
            values=[("key", time, time) for time in range(start, stop)],
            position=stop if self.tells else None,
            positions=range(start + 1, stop + 1) if self.tells else None,
        )


class _Telling(_Generous):
    tells = True


class _GenerousSource(SplitsSource):
    cursor: type[RangeCursor] = _Generous

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        return self.cursor(self, split, position)


class _TellingSource(_GenerousSource):
    cursor = _Telling


@pytest.mark.parametrize("source", [_GenerousSource, _TellingSource])
def test_barriers_are_between_the_records_of_slow_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: type[SplitsSource]
) -> None:
    fed: list[int] = []
    slots = Slots(tmp_path, source([[], []]))
    feed = SplitScheduler._emit

    def slowly(self: SplitScheduler, split: Any, read: SourceBatch) -> None:
        feed(self, split, read)
        fed.extend(value[1] for value in read.values or ())  # type: ignore[index]
        slots.seconds += 0.05 * len(read)

    monkeypatch.setattr(SplitScheduler, "_emit", slowly)
    slots.start(slots.split(0, 10**9), slots.split(1, 0))
    slots.turns(20)
    before = len(fed)
    assert slots.root(0).splits._sizers["events"].limit == 1
    slots.turns(1)
    assert len(fed) == before + 1, "a turn is a record"
    slots.turns(1, TakeCheckpoint(slots.root(0)._plan.epoch), slots=(0,))
    for _ in range(1_000):
        if slots.states():
            break
        slots.turns(1, slots=(0,))
    position = slots.states()["split-0"].position
    if source is _TellingSource:
        assert before < position <= before + 3
    else:
        assert position % 500 == 0, "nothing behind the position is in the checkpoint"
    assert fed[:position] == list(range(position))
    assert len(fed) <= position + 2
    slots.turns(5, slots=(0,))
    assert fed == list(range(len(fed)))
    slots.close()
