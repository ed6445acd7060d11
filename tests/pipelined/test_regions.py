"""Two pipelines in one job: one fails and is restarted alone, the other has no gap."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelined.processes import lives
from tests.pipelined.test_backpressure import Slots, job

from millstream.checkpoint import LocalStorage, ManifestLog
from millstream.common import Encoder, Types
from millstream.datastream import (
    JobStatus,
    KeyedProcessFunction,
    MapFunction,
    RestartStrategies,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors import DiscardingSink, FileSink
from millstream.datastream.state import ValueStateDescriptor
from millstream.engines.pipelined import failover as regions_module
from millstream.engines.pipelined.failover import Region, Regions
from millstream.errors import UserFunctionError, WorkerLostError
from millstream.graph.model import by_chain
from millstream.runtime.pipelined.control import (
    BeginRegion,
    Running,
    Stopped,
    StopRegion,
    TakeCheckpoint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

pytestmark = pytest.mark.extended

NUMBERS = 1200
KEYS = 5


def note(directory: Path, name: str) -> None:
    """Add a line to a file; several processes may."""
    with (directory / name).open("a") as file:
        file.write(f"{os.getpid()}\n")


def notes(directory: Path, name: str) -> list[int]:
    """Processes, in the order in which they have noted something."""
    path = directory / name
    return [int(line) for line in path.read_text().split()] if path.exists() else []


class Paced(MapFunction):
    """Holds numbers back a little, and fails where it is told to."""

    def __init__(self, directory: Path, name: str, fails: Callable[[int], bool]) -> None:
        self.directory, self.name, self.fails = directory, name, fails

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        note(self.directory, f"{self.name}-{self.subtask}-opened")

    def map(self, value: Any) -> Any:
        time.sleep(0.0006)
        if self.fails(value):
            message = f"{self.name} refuses {value}"
            raise ValueError(message)
        return value

    def close(self) -> None:
        note(self.directory, f"{self.name}-{self.subtask}-closed")


class Count(KeyedProcessFunction):
    """(number, the how-manieth of its key)."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory, self.name = directory, name

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))
        note(self.directory, f"count-{self.name}-opened")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        del ctx
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield f"{value},{count}"


def claim(marker: Path) -> bool:
    """Whether this is the first, of all processes, to do something."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def once(marker: Path, when: int) -> Callable[[int], bool]:
    """Fail of one number, if that was not done before and there is a checkpoint to go back to."""

    def fails(value: int) -> bool:
        return value >= when and not marker.exists() and claim(marker)

    return fails


def never(value: int) -> bool:
    del value
    return False


def pipeline(
    env: StreamExecutionEnvironment, directory: Path, name: str, fails: Callable[[int], bool]
) -> None:
    numbers = env.from_sequence(0, NUMBERS - 1).uid(f"{name} numbers")
    paced = numbers.map(Paced(directory, name, fails), Types.LONG()).uid(f"{name} paced")
    counted = paced.key_by(lambda n: n % KEYS).process(Count(directory, name), Types.STRING())
    sink = FileSink.for_row_format(str(directory / name), Encoder.simple_string_encoder())
    counted.uid(f"{name} count").sink_to(sink.build()).uid(f"{name} files")


def two(make: Make, directory: Path, fails: Callable[[int], bool], **more: str) -> Any:
    """Two pipelines, ``calm`` and ``rash``, of which the second fails."""
    settings = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.interval": "100",
        "execution.checkpointing.num-retained": "1000",
        **{key.replace("_", "-"): value for key, value in more.items()},
    }
    env = make(2, settings)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
    pipeline(env, directory, "calm", never)
    pipeline(env, directory, "rash", fails)
    return env


def check(directory: Path) -> None:
    """Each number once in both, with counts without gaps."""
    for name in ("calm", "rash"):
        files = [each for each in (directory / name).iterdir() if not each.name.startswith(".")]
        lines = [line for each in files for line in each.read_text().splitlines()]
        pairs = [tuple(map(int, line.split(","))) for line in lines]
        assert sorted(number for number, _ in pairs) == list(range(NUMBERS)), name
        for key in range(KEYS):
            counts = sorted(count for number, count in pairs if number % KEYS == key)
            assert counts == list(range(1, len(counts) + 1)), name
        left = [each for each in (directory / name).rglob("*") if each.name.startswith(".")]
        assert not [each for each in left if each.is_file()], "what was begun is dropped"


def committed(directory: Path) -> bool:
    """Whether something of the rash pipeline is."""
    path = directory / "rash"
    return path.exists() and any(path.glob("part-*"))


def generations(directory: Path) -> set[int]:
    storage = LocalStorage(directory / "checkpoints", fsync=False)
    return {manifest.generation for manifest in ManifestLog(storage).manifests()}


def test_the_other_pipeline_has_no_gap(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failed = tmp_path / "failed"

    def fails(value: int) -> bool:
        return committed(tmp_path) and once(failed, 1)(value)

    two(make, tmp_path, fails).execute("two")
    check(tmp_path)
    assert failed.exists()
    assert "rash refuses" in caplog.text
    assert generations(tmp_path) == {1}, "it is the same run"
    for subtask in (0, 1):
        assert len(notes(tmp_path, f"calm-{subtask}-opened")) == 1
        assert len(notes(tmp_path, f"calm-{subtask}-closed")) == 1
        again = notes(tmp_path, f"rash-{subtask}-opened")
        assert len(again) == 2
        assert len(set(again)) == 1, "in the same process"
        assert len(notes(tmp_path, f"rash-{subtask}-closed")) == 2
    assert len(notes(tmp_path, "count-calm-opened")) == 2
    assert len(notes(tmp_path, "count-rash-opened")) == 4


def test_with_the_full_strategy_all_is_restarted(make: Make, tmp_path: Path) -> None:
    failed = tmp_path / "failed"

    def fails(value: int) -> bool:
        return committed(tmp_path) and once(failed, 1)(value)

    more = {"jobmanager.execution.failover_strategy": "full"}
    two(make, tmp_path, fails, **more).execute("two")
    check(tmp_path)
    assert generations(tmp_path) == {1, 2}
    assert len(notes(tmp_path, "count-calm-opened")) == 4


def test_before_the_first_checkpoint_a_region_begins_at_its_beginning(
    make: Make, tmp_path: Path
) -> None:
    two(make, tmp_path, once(tmp_path / "failed", 0)).execute("two")
    check(tmp_path)
    assert len(notes(tmp_path, "count-calm-opened")) == 2
    assert len(notes(tmp_path, "count-rash-opened")) == 4


class Late(Paced):
    """In one slot the calm one is opened when it may be."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        deadline = time.monotonic() + 60
        while self.name == "calm" and self.subtask == 1 and not (self.directory / "go").exists():
            assert time.monotonic() < deadline, "nobody has let it go on"
            time.sleep(0.01)


def test_a_region_that_fails_before_another_slot_has_begun_is_restarted_alone(
    make: Make,
    tmp_path: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(globals(), "Paced", Late)
    env = two(make, tmp_path, once(tmp_path / "failed", 0))
    client = env.execute_async("two")
    eventually(lambda: "rash refuses" in caplog.text, "the failure")
    (tmp_path / "go").touch()
    client.get_job_execution_result().result()
    check(tmp_path)
    assert generations(tmp_path) == {1}, "it is the same run"
    for subtask in (0, 1):
        assert len(notes(tmp_path, f"calm-{subtask}-opened")) == 1
        assert len(notes(tmp_path, f"rash-{subtask}-opened")) == 2


def two_regions() -> tuple[Regions, Region]:
    """Two pipelines in two slots, and the region of the first."""

    def build(environment: StreamExecutionEnvironment) -> None:
        for _ in range(2):
            environment.from_sequence(0, 9).sink_to(DiscardingSink())

    regions = Regions(by_chain(job(build)), 2)
    region = regions.get(0, 0)
    assert region is not None
    return regions, region


def test_slots_that_have_not_begun_may_take_longer_to_stop_a_region() -> None:
    regions, region = two_regions()
    regions.stop(region, 0.0, now=100.0, error=ValueError("refused"))
    regions.stopped(0, 1, 0)
    regions.require_answers(now=500.0)
    regions.begun(now=600.0)
    regions.require_answers(now=609.0)
    with pytest.raises(ValueError, match="refused") as caught:
        regions.require_answers(now=611.0)
    assert "slots 1 have not stopped" in caught.value.__notes__[0]
    regions.stopped(0, 1, 1)
    regions.require_answers(now=611.0)


def test_a_slot_that_takes_a_place_while_a_region_begins_does_not_have_it_begin_twice() -> None:
    """It is told to stop the region, and to begin it, at once; the others have done both."""
    regions, region = two_regions()
    regions.begun(now=50.0)
    regions.gone(1)
    regions.stop(region, 0.0, now=100.0)
    regions.taken(1)
    regions.stopped(0, 1, 0)
    assert regions.due(now=100.0) == [region]
    regions.begin(region, now=100.0)
    regions.running(0, 1, 0)
    regions.stopped(0, 1, 1)
    assert regions.due(now=100.0) == []
    assert not regions.all_run, "it has yet to begin there"
    regions.running(0, 1, 1)
    assert regions.all_run


class Refuses(Paced):
    """The first of the rash ones that is opened refuses to be."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        if self.name == "rash" and claim(self.directory / "refused"):
            message = "rash refuses to begin"
            raise ValueError(message)


def test_a_function_that_raises_in_its_first_open_restarts_its_region_alone(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(globals(), "Paced", Refuses)
    two(make, tmp_path, never).execute("two")
    check(tmp_path)
    assert "rash refuses to begin" in caplog.text
    assert generations(tmp_path) == {1}, "it is the same run"
    for subtask in (0, 1):
        assert len(notes(tmp_path, f"calm-{subtask}-opened")) == 1
        assert len(notes(tmp_path, f"calm-{subtask}-closed")) == 1


class Hangs(Paced):
    """Once, in one slot, the calm one is at its opening until it is given up."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        if self.name == "calm" and self.subtask == 1 and claim(self.directory / "hung"):
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                time.sleep(0.01)


def test_a_slot_that_hangs_at_its_beginning_while_a_region_has_failed_restarts_the_job(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once: the failure counts as one."""
    monkeypatch.setitem(globals(), "Paced", Hangs)
    env = two(make, tmp_path, once(tmp_path / "failed", 0), **{"slot.request.timeout": "1000"})
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    began = time.monotonic()
    env.execute("two")
    assert time.monotonic() - began < 50, "it was not waited for"
    check(tmp_path)
    assert len(notes(tmp_path, "calm-1-opened")) == 2


def test_slots_that_have_not_begun_have_so_long_once_a_region_has_failed() -> None:
    def build(environment: StreamExecutionEnvironment) -> None:
        for _ in range(2):
            environment.from_sequence(0, 9).sink_to(DiscardingSink())

    regions = Regions(by_chain(job(build)), 2, patience=300.0)
    region = regions.get(0, 0)
    assert region is not None
    regions.stop(region, 0.0, now=100.0, error=ValueError("refused"))
    regions.stopped(0, 1, 0)
    regions.require_answers(now=399.0)
    with pytest.raises(ValueError, match="refused") as caught:
        regions.require_answers(now=401.0)
    assert (
        "slots 1 have not begun within 300 s (slot.request.timeout) of a failure"
        in (caught.value.__notes__[0])
    )


class HangsAgain(Paced):
    """Once, in one slot, the rash one is at its second opening until it is given up."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        is_second = len(notes(self.directory, f"{self.name}-1-opened")) == 2
        if self.name == "rash" and self.subtask == 1 and is_second:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                time.sleep(0.01)


def test_a_region_that_hangs_where_it_begins_again_restarts_the_job(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Which is the second failure that counts."""
    monkeypatch.setitem(globals(), "Paced", HangsAgain)
    failed = tmp_path / "failed"

    def fails(value: int) -> bool:
        return committed(tmp_path) and once(failed, 1)(value)

    env = two(make, tmp_path, fails, **{"slot.request.timeout": "1000"})
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
    began = time.monotonic()
    env.execute("two")
    assert time.monotonic() - began < 50, "it was not waited for"
    check(tmp_path)
    assert len(notes(tmp_path, "rash-1-opened")) == 3
    assert generations(tmp_path) == {1, 2}
    assert "slots 1 have not opened and restored the tasks of" in caplog.text


def test_slots_have_so_long_to_begin_again() -> None:
    def build(environment: StreamExecutionEnvironment) -> None:
        for _ in range(2):
            environment.from_sequence(0, 9).sink_to(DiscardingSink())

    regions = Regions(by_chain(job(build)), 2, patience=300.0)
    region = regions.get(1, 0)
    assert region is not None
    regions.begun(now=50.0)
    regions.stop(region, 0.0, now=100.0, error=ValueError("refused"))
    for slot in (0, 1):
        regions.stopped(1, 1, slot)
    assert regions.due(now=900.0) == [region]
    regions.require_answers(now=900.0)
    regions.begin(region, now=1000.0)
    regions.running(1, 1, 1)
    regions.require_answers(now=1299.0)
    with pytest.raises(WorkerLostError, match="slots 0 have not opened and restored") as caught:
        regions.require_answers(now=1301.0)
    assert str(caught.value.__cause__) == "refused"
    regions.running(1, 1, 0)
    regions.require_answers(now=1301.0)


def test_a_region_that_fails_again_and_again_ends_the_job(make: Make, tmp_path: Path) -> None:
    """However much the other reads meanwhile, that is no progress of this one."""

    def fails(value: int) -> bool:
        return value == 0

    env = two(make, tmp_path, fails)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 200))
    with pytest.raises(UserFunctionError, match="rash refuses 0"):
        env.execute("two")
    opened = notes(tmp_path, "rash-0-opened")
    assert len(opened) == 3
    assert len(notes(tmp_path, "calm-0-opened")) == 1


def test_the_restart_strategy_counts_for_the_job(make: Make, tmp_path: Path) -> None:
    env = two(make, tmp_path, lambda value: value == 0)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    with pytest.raises(UserFunctionError, match="rash refuses 0"):
        env.execute("two")
    assert len(notes(tmp_path, "rash-0-opened")) == 2


def test_a_region_that_fails_while_it_is_restored(make: Make, tmp_path: Path) -> None:
    failed, refused = tmp_path / "failed", tmp_path / "refused"

    class Refusing(Count):
        def open(self, runtime_context: RuntimeContext) -> None:
            super().open(runtime_context)
            # The first two are opened at the start: in one slot later, maybe, than the other fails.
            if len(notes(tmp_path, "count-third-opened")) > 2 and claim(refused):
                message = "not now"
                raise ValueError(message)

    env = two(make, tmp_path, never)
    numbers = env.from_sequence(0, NUMBERS - 1).uid("third numbers")
    paced = numbers.map(Paced(tmp_path, "third", once(failed, 700)), Types.LONG()).uid(
        "third paced"
    )
    counted = paced.key_by(lambda n: n % KEYS).process(Refusing(tmp_path, "third"), Types.STRING())
    counted.uid("third count").print().uid("third out")
    env.execute("three")
    check(tmp_path)
    assert refused.exists()
    # Counts are opened first, and the slot where one refuses opens nothing else.
    assert sum(len(notes(tmp_path, f"third-{subtask}-opened")) for subtask in (0, 1)) == 5
    assert len(notes(tmp_path, "count-calm-opened")) == 2
    assert len(notes(tmp_path, "count-rash-opened")) == 2


def test_a_slot_that_is_killed_takes_all_regions_with_it(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    client = two(make, tmp_path, never).execute_async("two")
    eventually(lambda: committed(tmp_path), "output")
    (pid,) = notes(tmp_path, "calm-1-opened")
    os.kill(pid, signal.SIGKILL)
    client.get_job_execution_result().result()
    check(tmp_path)
    assert generations(tmp_path) == {1, 2}
    assert not any(lives(each) for each in notes(tmp_path, "calm-0-opened"))


def test_the_status_says_that_a_region_waits(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    failed = tmp_path / "failed"
    env = two(make, tmp_path, once(failed, 0))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 500))
    client = env.execute_async("two")
    status = client.get_job_status
    eventually(lambda: status().result() is JobStatus.RESTARTING, "the failure")
    eventually(lambda: status().result() is JobStatus.RUNNING, "the restart")
    client.get_job_execution_result().result()
    check(tmp_path)


def test_what_stopped_tasks_have_sent_is_dropped_and_what_new_ones_send_waits(
    tmp_path: Path,
) -> None:
    seen = tmp_path / "seen"

    def note_value(value: int) -> int:
        with seen.open("a") as file:
            file.write(f"{value}\n")
        return value

    def build(environment: StreamExecutionEnvironment) -> None:
        source = environment.from_sequence(0, 199).uid("numbers")
        keyed = source.key_by(lambda value: value, Types.LONG())
        keyed.map(note_value, Types.LONG()).sink_to(DiscardingSink())
        environment.from_sequence(0, 9).sink_to(DiscardingSink())

    slots = Slots(job(build), tmp_path)
    slots.turns(20, 0)
    assert slots.network.in_flight(0, 1), "slot 1 has not heard of them"
    seen.unlink()
    begin = BeginRegion(0, 1, slots.plan)
    slots.loops[0].step([StopRegion(0, 1), TakeCheckpoint(0)], 0.0)
    assert Stopped(0, 0, 1) in slots.heard
    slots.loops[0].step([begin], 0.0)
    slots.turns(20, 0)
    # In slot 1: all of both attempts, ahead of the word to stop.
    slots.loops[1].step([StopRegion(0, 1)], 0.0)
    slots.turns(5, 1)
    slots.loops[1].step([begin], 0.0)
    for slot in (0, 1):
        assert Running(slot, 0, 1) in slots.heard
    slots.turns(20, 0, 1)
    assert sorted(map(int, seen.read_text().split())) == list(range(200))
    slots.close()


class SlowToClose(Paced):
    """Takes longer to close, once, than tasks may take to stop."""

    def close(self) -> None:
        super().close()
        marker = self.directory / f"slow-{self.subtask}"
        if not marker.exists():
            marker.touch()
            time.sleep(3)


def test_a_failure_whose_tasks_do_not_stop_in_time_counts_once(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole job restarts then; one restart is allowed."""
    monkeypatch.setattr(regions_module, "_STOPPING", 0.2)
    monkeypatch.setitem(globals(), "Paced", SlowToClose)
    failed = tmp_path / "failed"

    def fails(value: int) -> bool:
        return committed(tmp_path) and once(failed, 1)(value)

    env = two(make, tmp_path, fails)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    env.execute("two")
    check(tmp_path)
    assert generations(tmp_path) == {1, 2}
