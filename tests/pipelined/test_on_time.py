"""What is due by the clock: timers and windows of processing time; and what waits for nobody.

The clock moves as the test has it: what is measured is how often a slot looks, not this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelined import test_backpressure
from tests.pipelined.test_backpressure import LONG, RECORDS, Clock, Slots, job, numbers

from millstream.checkpoint import LocalStorage, ManifestLog
from millstream.common import Time, WatermarkStrategy
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.contracts.sink import (
    DeliveryGuarantee,
    Sink,
    SinkKind,
    SinkWriter,
)
from millstream.contracts.source import Boundedness
from millstream.datastream import (
    CheckpointingMode,
    KeyedProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TumblingProcessingTimeWindows,
)
from millstream.datastream.connectors import DiscardingSink
from millstream.runtime.pipelined import main_loop
from millstream.runtime.pipelined.control import TakeCheckpoint
from millstream.runtime.pipelined.task import PipelinedTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import Committable, WriterContext

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

#: Milliseconds that something may be late, also where records keep coming.
LATEST = 10
EVERY = 37


def note(path: Path, due: int, now: int) -> None:
    with path.open("a") as file:
        file.write(f"{due} {now}\n")


def delays(path: Path) -> list[int]:
    """Milliseconds by which each was late."""
    pairs = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
    return [now - due for due, now in pairs]


class Alarm(KeyedProcessFunction):
    """Sets one timer behind the other, while records keep coming."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_set = False

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if not self.is_set:
            self.is_set = True
            timers = ctx.timer_service()
            timers.register_processing_time_timer(timers.current_processing_time() + EVERY)
        yield value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        timers = ctx.timer_service()
        note(self.path, timestamp, timers.current_processing_time())
        timers.register_processing_time_timer(timestamp + EVERY)
        yield from ()


class Closing(ProcessWindowFunction[Any, Any, Any, Any]):
    """Notes when its windows close."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def process(
        self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[int]:
        del key
        note(self.path, context.window().max_timestamp(), context.current_processing_time())
        yield sum(1 for _ in elements)


@pytest.mark.parametrize(
    ("what", "latest", "records"),
    [
        ("timers", LATEST, 10),
        pytest.param("timers", LATEST, RECORDS, marks=pytest.mark.soak),
        pytest.param("windows", LATEST, RECORDS, marks=pytest.mark.soak),
    ],
    ids=["timers", "timers under load", "windows under load"],
)
def test_processing_time_is_kept_within_ten_milliseconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, latest: int, records: int
) -> None:
    monkeypatch.setattr(test_backpressure, "RECORDS", records)
    monkeypatch.setattr(main_loop, "_CREDIT", 20_000)
    path = tmp_path / "noted"
    path.touch()

    def build(environment: StreamExecutionEnvironment) -> None:
        # One slot: two of them would move one clock.
        keyed = numbers(environment.set_parallelism(1), "numbers").key_by(lambda _: 0, LONG)
        if what == "timers":
            keyed.process(Alarm(path), LONG).sink_to(DiscardingSink())
        else:
            windows = keyed.window(TumblingProcessingTimeWindows.of(Time.milliseconds(EVERY)))
            windows.process(Closing(path), LONG).sink_to(DiscardingSink())

    clock = Clock()
    slots = Slots(job(build), tmp_path, slots=1, clock=clock)
    for _ in range(100):
        slots.turns(20, 0)
        if len(delays(path)) >= 5:
            break
    found = delays(path)
    assert len(found) >= 5
    assert max(found) <= latest
    assert min(found) >= 0, "nothing fires ahead of its time"
    slots.close()


#: The clock of the test below, and how often a timer has fired.
CLOCKS: list[Clock] = []
FIRED: list[int] = []


class Slow(KeyedProcessFunction):
    """Has timers all the time, of which each takes 50 ms."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 1)
        yield value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        FIRED.append(timestamp)
        CLOCKS[-1].now += 0.05
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 1)
        yield from ()


@pytest.mark.extended
def test_several_tasks_have_turns_between_timers_that_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[object] = []
    run = PipelinedTask.run

    def counted(self: PipelinedTask, deadline: float) -> bool:
        turns.append(self.id)
        return run(self, deadline)

    monkeypatch.setattr(PipelinedTask, "run", counted)

    def build(environment: StreamExecutionEnvironment) -> None:
        keyed = numbers(environment.set_parallelism(1), "numbers").key_by(lambda _: 0, LONG)
        stream = keyed.process(Slow(), LONG)
        for _ in range(6):
            stream = stream.rebalance().map(lambda value: value, LONG)
        stream.sink_to(DiscardingSink())

    CLOCKS.append(Clock())
    slots = Slots(job(build), tmp_path, slots=1, clock=CLOCKS[-1])
    slots.turns(20, 0)
    FIRED.clear()
    turns.clear()
    slots.turns(20, 0)
    slots.close()
    assert len(FIRED) > 3
    assert len(turns) > 2 * len(FIRED), "as many as there are in 10 ms"


@pytest.mark.parametrize("mode", ["EXACTLY_ONCE", "AT_LEAST_ONCE"])
def test_inputs_are_blocked_by_barriers_only_for_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(main_loop, "_CREDIT", 200_000)

    def build(environment: StreamExecutionEnvironment) -> None:
        config = environment.get_checkpoint_config()
        config.set_checkpointing_mode(CheckpointingMode[mode])
        keyed = numbers(environment, "numbers").key_by(lambda value: value, LONG)
        keyed.map(lambda value: value, LONG).sink_to(DiscardingSink())

    slots = Slots(job(build), tmp_path)
    slots.turns(10, 0, 1)
    # The source of slot 1, which has no split, is told later.
    slots.loops[0].step([TakeCheckpoint(0)], 0.0)
    # Links take some of what is behind the barrier; how many turns that is depends on the machine.
    for _ in range(50 if mode == "EXACTLY_ONCE" else 3):
        before = slots.positions[0]
        slots.turns(40, 0, 1)
        waits = slots.positions[0] == before
        if waits:
            break
    assert waits == (mode == "EXACTLY_ONCE"), "what is behind the barrier waits only for that"
    before = slots.positions[0]
    slots.loops[1].step([TakeCheckpoint(0)], 0.0)
    slots.turns(60, 0, 1)
    assert slots.positions[0] > before
    assert sorted((ack.stage, ack.subtask) for ack in slots.acks) == [
        (stage, subtask) for stage in (0, 1) for subtask in (0, 1)
    ]
    slots.close()


class Endless(NumberSequenceSource):
    """Ten numbers, and no end."""

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED


class Appending(SinkWriter):
    """Writes lines where everybody sees them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, batch: Batch) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{value}\n" for value in batch.values)

    def prepare_commit(self) -> Sequence[Committable]:
        return ()


class AppendingSink(Sink):
    """What is written cannot be taken back."""

    guarantee = DeliveryGuarantee.AT_LEAST_ONCE
    kind = SinkKind.ANY

    def __init__(self, path: Path) -> None:
        self.path = path

    def create_writer(self, context: WriterContext) -> SinkWriter:
        del context
        return Appending(self.path)

    def create_committer(self) -> None:
        return None


def test_a_sink_without_transactions_does_not_wait_for_a_checkpoint(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    settings = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.interval": "3600000",
    }
    env = make(1, settings)
    written = tmp_path / "written"
    written.touch()
    source = Endless(0, 9, splits=1)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.map(lambda n: n, LONG).sink_to(AppendingSink(written))
    client = env.execute_async("numbers")
    eventually(lambda: len(written.read_text().split()) == 10, "what is written")
    assert ManifestLog(LocalStorage(tmp_path / "checkpoints", fsync=False)).latest() is None
    client.cancel().result()
