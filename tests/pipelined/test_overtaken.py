"""Jobs on slots whose barriers overtake: under backpressure, and killed before the manifest."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.forked import fork_server, run_forked
from tests.pipelined import unaligned_program
from tests.pipelined.test_failures import KEYS
from tests.pipelined.unaligned_program import ROW, SlowCount, slow_job

from millstream.checkpoint.inspect import inspect_checkpoint, list_checkpoints
from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Types
from millstream.crash_points import points_of
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.connectors import DiscardingSink
from millstream.engines.pipelined.run_loop import Draining
from millstream.runtime.exchange import DATA_ARROW, DATA_PICKLE, decode_batch
from millstream.runtime.frames_in_flight import read_frames
from millstream.state.reader import open_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.checkpoint.model import Manifest
    from millstream.datastream import StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

NUMBERS = 1600
DEADLINE = 90.0


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    with fork_server():
        yield


def cases() -> list[object]:
    """All points; those that are not often in ``make test-all`` are for a soak."""
    often = ("barrier.overtake.before", "in-flight.upload.after")
    points = [*points_of("unaligned task"), "task.ack.before"]
    return [pytest.param(p, marks=[] if p in often else [pytest.mark.soak]) for p in points]


def check(directory: Path, numbers: int) -> None:
    """Each number once, with counts without gaps."""
    files = [each for each in (directory / "out").iterdir() if not each.name.startswith(".")]
    lines = [line for each in files for line in each.read_text().splitlines()]
    pairs = [tuple(map(int, line.split(","))) for line in lines]
    assert sorted(number for number, _ in pairs) == list(range(numbers))
    for key in range(KEYS):
        counts = sorted(count for number, count in pairs if number % KEYS == key)
        assert counts == list(range(1, len(counts) + 1))


def rows_in_flight(storage: LocalStorage, manifest: Manifest) -> int:
    found = 0
    for handle in manifest.in_flight:
        for frame in read_frames(handle, storage)[1]:
            if frame.kind in (DATA_ARROW, DATA_PICKLE):
                found += len(decode_batch(frame.kind, frame.payload, Types.STRING()))
    return found


def test_checkpoints_complete_while_their_readers_are_slow(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    """A barrier that waited for what lies before it would do so for many seconds."""
    gate = tmp_path / "gate"
    client = slow_job(make, tmp_path, SlowCount(gate, 0.02), NUMBERS).execute_async("slow")
    storage = LocalStorage(tmp_path / "checkpoints")

    def waiting() -> list[int]:
        found = list_checkpoints(storage).checkpoints if storage.exists("job.json") else []
        return [each.epoch for each in found if each.in_flight_size > 100 * ROW]

    eventually(lambda: bool(waiting()), "a checkpoint with frames in flight")
    manifest = inspect_checkpoint(storage, waiting()[0]).manifest
    in_flight = rows_in_flight(storage, manifest)
    with open_state(storage, manifest, "count") as state:
        counted = sum(cast("int", entry.value) for entry in state.entries("seen"))
    gate.touch()
    client.get_job_execution_result().result()
    check(tmp_path, NUMBERS)
    assert in_flight > 0
    assert counted + in_flight == manifest.totals["numbers.numRecordsIn"]


@pytest.mark.extended
def test_checkpoints_go_on_while_what_was_read_is_on_its_way(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    """All is read at once; the last checkpoint, which is aligned, comes when links are empty."""
    gate, numbers = tmp_path / "gate", 120
    client = slow_job(make, tmp_path, SlowCount(gate, 0.05), numbers).execute_async("slow")
    storage = LocalStorage(tmp_path / "checkpoints")

    def behind_the_end() -> list[Manifest]:
        found = list_checkpoints(storage).checkpoints if storage.exists("job.json") else []
        waiting = [each.epoch for each in found if each.in_flight_size > ROW]
        manifests = [inspect_checkpoint(storage, epoch).manifest for epoch in waiting]
        return [each for each in manifests if each.totals["numbers.numRecordsIn"] == numbers]

    eventually(lambda: len(behind_the_end()) > 1, "checkpoints behind the end of the source")
    gate.touch()
    client.get_job_execution_result().result()
    check(tmp_path, numbers)
    for manifest in behind_the_end():
        assert not manifest.final
        assert 0 < rows_in_flight(storage, manifest) < numbers
    last = inspect_checkpoint(storage, list_checkpoints(storage).checkpoints[-1].epoch).manifest
    assert last.final
    assert not last.in_flight


def test_a_job_ends_when_links_are_empty_and_waits_for_no_interval(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    """What is in flight in the first checkpoint behind the end is soon processed."""
    gate, numbers = tmp_path / "gate", 60
    program = slow_job(make, tmp_path, SlowCount(gate, 0.02), numbers, interval="3600000")
    client = program.execute_async("slow")
    eventually(lambda: client.get_job_execution_result().done(), "the end of the job")
    check(tmp_path, numbers)
    found = list_checkpoints(LocalStorage(tmp_path / "checkpoints")).checkpoints
    assert any(each.in_flight_size > ROW for each in found)


class Beating(KeyedProcessFunction):
    """Gives a row at each of its timers, of which each sets the next."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 2)
        yield value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        ctx.timer_service().register_processing_time_timer(timestamp + 2)
        yield timestamp


def slowly(value: Any) -> Any:
    time.sleep(0.005)
    return value


@pytest.mark.extended
def test_a_job_ends_though_timers_always_have_something_in_flight(
    make: Make, eventually: Eventually
) -> None:
    checkpointing = {"interval": "20", "unaligned": "true"}
    env = make(1, {f"execution.checkpointing.{key}": each for key, each in checkpointing.items()})
    numbers = env.from_sequence(0, 0).key_by(lambda _: 0, Types.LONG())
    beats = numbers.process(Beating(), Types.LONG()).rebalance()
    beats.map(slowly, Types.LONG()).sink_to(DiscardingSink())
    client = env.execute_async("beats")
    eventually(lambda: client.get_job_execution_result().done(), "the end of the job")


def test_when_the_last_checkpoint_may_follow() -> None:
    aligned, draining = Draining(overtakes=False), Draining(overtakes=True)
    done = [aligned.is_done]
    for is_over in (False, True):
        aligned.update(3, 0.0, is_over=is_over)
        done.append(aligned.is_done)
    assert done == [False, False, True]
    draining.update(3, 0.0, is_over=True)
    done = []
    # The barriers of the first were ahead of what was read last.
    for epoch, in_flight in ((2, []), (3, [(1, 5)]), (4, [])):
        draining.committed(epoch, 1.0, in_flight)
        draining.update(epoch + 2, 1.0, is_over=True)
        done.append(draining.is_done)
    # A region begins anew, from an older checkpoint.
    for is_over in (False, True):
        draining.update(7, 2.0, is_over=is_over)
        done.append(draining.is_done)
    assert done == [False, False, True, False, False]


def test_what_is_in_flight_may_grow_behind_what_is_processed() -> None:
    """One row of many that becomes a thousand is no sign that records come for ever."""
    draining = Draining(overtakes=True)
    draining.update(0, 0.0, is_over=True)
    epoch = 0
    for first in range(3, -1, -1):
        for second in (900, 500, 100):
            sizes = [(2, second - 10), (1, first), (2, 10)]
            for _ in range(5):  # a function is at something long
                draining.committed(epoch, 0.0, [each for each in sizes if each[1]])
                epoch += 1
                assert not draining.is_done
    for _ in range(6):
        assert not draining.is_done
        draining.committed(epoch, 0.0, [(2, 300)])
    assert draining.is_done


def test_checkpoints_behind_the_end_are_further_and_further_apart() -> None:
    draining = Draining(overtakes=True)
    assert not draining.is_due(99.0)
    draining.update(3, 100.0, is_over=True)
    assert draining.is_due(100.0)
    draining.committed(2, 100.5, [(1, 5)])
    assert draining.is_due(100.5), "that was ahead of the end"
    draining.triggered()
    assert not draining.is_due(900.0), "if it fails, the next is an interval later"
    draining.committed(3, 101.0, [(1, 5)])
    assert (draining.is_due(101.9), draining.is_due(102.0)) == (False, True)
    draining.triggered()
    draining.committed(4, 103.0, [(1, 5)])
    assert (draining.is_due(105.9), draining.is_due(106.0)) == (False, True)
    draining.update(5, 106.0, is_over=False)
    assert not draining.is_due(900.0)


@pytest.mark.extended
@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("point", cases())
def test_killed_between_overtaking_and_the_manifest(tmp_path: Path, point: str) -> None:
    program = Path(unaligned_program.__file__)
    for number, crash in enumerate([f"{point}:3", f"{point}:1", ""]):
        if not crash:
            (tmp_path / "gate").touch()
        run = run_forked(
            program,
            [str(tmp_path)],
            directory=tmp_path / f"run-{number}",
            crash=crash,
            deadline=DEADLINE,
        )
        if crash:
            assert run.killed, f"{crash} was not reached\n{run.output}"
        else:
            assert run.exit_code == 0, run.output
    check(tmp_path, unaligned_program.NUMBERS)
