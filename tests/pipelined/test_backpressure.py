"""Credit: what is slow holds back what feeds it, and nothing else; memory stays bounded."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest
from tests.support.memory_transport import Network

from millstream.checkpoint.job_directories import JobDirectories
from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors import DiscardingSink
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.execution.job import Job
from millstream.execution.run import Run
from millstream.runtime.operators.timestamps_watermarks import TimestampsWatermarksOperator
from millstream.runtime.pipelined import main_loop
from millstream.runtime.pipelined.control import Acknowledged, Progress, TakeCheckpoint
from millstream.runtime.pipelined.links import HEADER
from millstream.runtime.pipelined.main_loop import MainLoop
from millstream.runtime.pipelined.uploader import finished
from millstream.runtime.plan import SplitAssignment
from millstream.types.pickling import loads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.contracts.source import Split
    from millstream.datastream import DataStream
    from millstream.graph.model import JobGraph
    from millstream.runtime.pipelined.control import SlotMessage
    from millstream.runtime.pipelined.task import PipelinedTask

#: Far more than ever fits into the links.
RECORDS = 1_000_000_000
LONG = Types.LONG()


class Clock:
    """Moves when somebody looks, and when the test says so; begins as the plan's."""

    def __init__(self) -> None:
        self.now = time.time()

    def seconds(self) -> float:
        self.now += 0.0002
        return self.now

    def milliseconds(self) -> int:
        return int(self.now * 1000)


class Slots:
    """The slots of a job that reads numbers, given turns one by one by the test."""

    def __init__(
        self, graph: JobGraph, directory: Path, slots: int = 2, clock: Clock | None = None
    ) -> None:
        local = directory / "local"
        storage = LocalStorage(directory / "checkpoints", fsync=False)
        directories = JobDirectories(storage, temporary=False, local=local)
        run = Run(Job(graph, directories, local_root=local, fsync=False))
        run.open()
        plan = run.plan(run.planner.latest_offset(run.position))
        plan.assignments = []
        for node in graph.nodes.values():
            if node.source is not None:
                found = node.source.discover(())
                plan.assignments += [self._assigned(node.uid, split) for split in found]
        for channel, each in enumerate(plan.assignments):
            each.channel = channel
        self.channels = {
            node.uid: [each.channel for each in plan.assignments if each.source_uid == node.uid]
            for node in graph.nodes.values()
        }
        self.network = Network(slots, header_size=HEADER.size)
        self.positions: dict[int, int] = {}
        self.acks: list[Any] = []
        self.heard: list[SlotMessage] = []
        shipped = cloudpickle.dumps(graph), cloudpickle.dumps(plan)
        self.plan = shipped[1]
        clocks = () if clock is None else (clock.milliseconds, clock.seconds)
        self.loops = [
            MainLoop(
                slot,
                partial(cloudpickle.loads, shipped[0]),
                partial(cloudpickle.loads, shipped[1]),
                self.network.transport(slot),
                self._handle,
                lambda pending, slot=slot: self._handle(finished(slot, pending)),  # type: ignore[misc]
                *clocks,
            )
            for slot in range(slots)
        ]
        for loop in self.loops:
            loop.restore()
        self.run = run

    @staticmethod
    def _assigned(uid: str, split: Split) -> SplitAssignment:
        return SplitAssignment(uid, split, 0, 0, RECORDS, -1)

    def _handle(self, message: SlotMessage) -> None:
        self.heard.append(message)
        if isinstance(message, Acknowledged):
            self.acks.append(loads(message.ack))
        elif isinstance(message, Progress):
            self.positions |= {channel: split.position for channel, split in message.splits.items()}

    def turns(self, count: int, *slots: int) -> None:
        for _ in range(count):
            self.network.step()
            for slot in slots:
                self.loops[slot].step([], 0.0)

    def position(self) -> int:
        """Return where the one source of slot 0 has come to, reported or not."""
        (task,) = [each for each in self.loops[0].tasks if each.splits is not None]
        assert task.splits is not None
        news = task.splits.progress()
        self.positions |= {channel: split.position for channel, split in news.items()}
        return self.positions[0]

    def in_flight(self, slot: int) -> int:
        return max(link.in_flight for link in self.loops[slot].out_links())

    def close(self) -> None:
        for loop in self.loops:
            loop.close()
        self.run.close()


def numbers(environment: StreamExecutionEnvironment, uid: str) -> DataStream:
    source = NumberSequenceSource(0, RECORDS - 1)
    return environment.from_source(source, WatermarkStrategy.no_watermarks(), uid).uid(uid)


def job(build: Callable[[StreamExecutionEnvironment], None]) -> JobGraph:
    environment = StreamExecutionEnvironment.get_execution_environment(Configuration())
    build(environment.set_parallelism(2))
    return environment.get_job_graph("backpressure")


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes of credit of a link."""
    for name in ("_CREDIT", "_FIRST_CREDIT"):
        monkeypatch.setattr(main_loop, name, 200_000)
    return 200_000


def by_key(environment: StreamExecutionEnvironment, key: Callable[[int], int]) -> None:
    keyed = numbers(environment, "numbers").key_by(key, LONG)
    keyed.map(lambda value: value, LONG).sink_to(DiscardingSink())


#: What one turn of a task makes: frames of some ten thousand records, some of them twice.
ONE_TURN = 4_000_000


@pytest.mark.parametrize(
    "key", [lambda value: value, lambda _: 1, lambda _: 2], ids=["all", "one", "other"]
)
def test_a_consumer_that_stands_still_stops_its_source(
    tmp_path: Path, limit: int, key: Callable[[int], int]
) -> None:
    slots = Slots(job(lambda environment: by_key(environment, key)), tmp_path)
    for _ in range(15):  # how much a turn does depends on the machine
        slots.turns(20, 0)
        if slots.in_flight(0) >= limit:
            break
    stopped = slots.position()
    slots.turns(40, 0)
    if slots.network.bytes_from(0):  # the keys of slot 1 are among them
        assert slots.position() == stopped < RECORDS
        assert limit <= slots.in_flight(0) <= limit + ONE_TURN
        assert slots.network.bytes_from(0) <= limit + ONE_TURN
        slots.turns(30, 0, 1)
        assert slots.position() > stopped, "it goes on when its consumer does"
    else:
        assert slots.position() > stopped, "slot 1 has nothing to hold back"
        assert slots.in_flight(0) <= limit + ONE_TURN
    slots.close()


def test_a_source_waits_for_its_own_consumers_only(tmp_path: Path, limit: int) -> None:
    def build(environment: StreamExecutionEnvironment) -> None:
        by_key(environment, lambda value: value)
        free = numbers(environment, "free").map(lambda value: value, LONG)
        free.sink_to(DiscardingSink())

    slots = Slots(job(build), tmp_path)
    slots.turns(60, 0)
    before = dict(slots.positions)
    slots.turns(60, 0)
    assert slots.in_flight(0) >= limit
    for channel in slots.channels["numbers"]:
        assert slots.positions[channel] == before[channel]
    for channel in slots.channels["free"]:
        assert slots.positions[channel] > before[channel]
    slots.close()


def idle_after_a_second(environment: StreamExecutionEnvironment) -> None:
    # All in slot 0, so that the source does not wait for slot 1.
    timed = numbers(environment, "numbers").global_()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, _: value
    )
    watched = timed.map(lambda value: value, LONG).assign_timestamps_and_watermarks(
        strategy.with_idleness(1000)
    )
    keyed = watched.key_by(lambda value: value, LONG)
    keyed.map(lambda value: value, LONG).sink_to(DiscardingSink())


def idleness(slots: Slots, slot: int) -> tuple[PipelinedTask, list[bool]]:
    """The task in mid-stream, and what its strategy says from now on of its input's idleness."""
    (task,) = [each for each in slots.loops[slot].tasks if each.id.stage == 1]
    (operator,) = [
        each
        for each in task._instance.operators.values()
        if isinstance(each, TimestampsWatermarksOperator)
    ]
    said: list[bool] = []
    operator.output.emit_idle = said.append  # type: ignore[assignment, method-assign]
    return task, said


def test_waiting_for_credit_is_no_idleness(tmp_path: Path, limit: int) -> None:
    """Of a strategy in mid-stream: nothing could come, as long as its task was not run."""
    clock = Clock()
    slots = Slots(job(idle_after_a_second), tmp_path, clock=clock)
    slots.turns(30, 0)
    task, said = idleness(slots, 0)
    assert not task.has_credit
    clock.now += 10
    slots.turns(30, 0, 1)
    assert not said
    slots.close()


@pytest.mark.parametrize("turn", [0.05, 0.15, 5.0])
def test_a_silent_input_becomes_idle_however_long_turns_are(
    tmp_path: Path, limit: int, turn: float
) -> None:
    """Another chain of the slot is at a slow record in each turn."""
    clock = Clock()
    slots = Slots(job(idle_after_a_second), tmp_path, clock=clock)
    _, said = idleness(slots, 1)  # nothing comes there
    began = clock.now
    while not said:
        assert clock.now < began + max(1.5, 4 * turn)
        slots.turns(1, 1)
        clock.now += turn
    assert said == [True]
    assert clock.now - began >= 1
    slots.close()


def test_a_long_turn_of_another_chain_is_no_silence(tmp_path: Path, limit: int) -> None:
    """The producer is in the same slot: nothing comes while another chain is at a slow record."""
    clock = Clock()
    slots = Slots(job(idle_after_a_second), tmp_path, clock=clock)
    slots.turns(4, 0, 1)
    _, said = idleness(slots, 0)
    for _ in range(20):
        clock.now += 5
        slots.turns(1, 0, 1)
    assert not said
    slots.close()


def test_barriers_need_no_credit(tmp_path: Path, limit: int) -> None:
    slots = Slots(job(lambda environment: by_key(environment, lambda value: value)), tmp_path)
    slots.turns(60, 0)
    assert slots.in_flight(0) >= limit
    slots.loops[0].step([TakeCheckpoint(0)], 0.0)
    slots.loops[1].step([TakeCheckpoint(0)], 0.0)
    slots.turns(20, 0)  # the rest of a piece that the source was at
    sent = {(ack.stage, ack.subtask) for ack in slots.acks}
    assert (0, 0) in sent, "the source has taken its snapshot though its consumer stands still"
    slots.turns(80, 0, 1)
    assert {(ack.stage, ack.subtask) for ack in slots.acks} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    slots.close()


def test_a_record_longer_than_all_credit_passes(tmp_path: Path, limit: int) -> None:
    size = 20 * limit
    seen = tmp_path / "seen"

    def build(environment: StreamExecutionEnvironment) -> None:
        long = numbers(environment, "numbers").map(lambda value: "x" * size, Types.STRING())

        def note(value: str) -> str:
            with seen.open("a") as file:
                file.write(f"{len(value)}\n")
            return value

        spread = long.key_by(len, LONG)
        spread.map(note, Types.STRING()).sink_to(DiscardingSink())

    slots = Slots(job(build), tmp_path)
    for _ in range(2_000):
        slots.turns(1, 0, 1)
        if seen.exists() and seen.read_text().count("\n") > 3:
            break
    lengths = set(seen.read_text().split())
    assert lengths == {str(size)}
    slots.close()


def test_a_million_flushes_of_nothing_send_nothing(tmp_path: Path) -> None:
    slots = Slots(job(lambda environment: by_key(environment, lambda value: value)), tmp_path)
    loop = slots.loops[0]
    for _ in range(1_000_000 // len(loop.tasks)):
        for task in loop.tasks:
            task.flush()
    assert slots.network.bytes_from(0) == 0
    assert all(link.in_flight == 0 for link in loop.out_links())
    slots.close()
