"""A slot is lost in which not all pipelines have tasks: those that have none there have no gap."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest
from tests.databases.server import execute, prepared_in_schema
from tests.pipelined.processes import lives, stopped
from tests.pipelined.test_local_recovery import downloads, state_of
from tests.pipelined.test_regions import KEYS, Count, Paced, check, generations, never, notes
from tests.support.proxied_slots import ProxiedSlots

from millstream.common import Encoder, Row, Types
from millstream.connectors.postgres.sink import PostgresSink
from millstream.datastream import JobStatus, RestartStrategies, StreamExecutionEnvironment
from millstream.datastream.connectors import FileSink
from millstream.engines.pipelined import engine, run_loop
from millstream.engines.pipelined.engine import LocalSlots
from millstream.errors import WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.broker import Broker

    from millstream.contracts.sink import Sink
    from millstream.datastream import JobClient
    from millstream.runtime.pipelined.control import SlotSettings

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

__all__ = ["downloads"]

pytestmark = pytest.mark.extended

NUMBERS = 1200
ROW = Types.ROW_NAMED(["number", "n"], [Types.LONG(), Types.LONG()])


def row_of(text: str) -> Row:
    number, count = map(int, text.split(","))
    return Row(number=number, n=count)


def pipeline(
    env: StreamExecutionEnvironment,
    directory: Path,
    name: str,
    width: int,
    sink: Sink | None = None,
    rows: bool = False,
) -> None:
    numbers = env.from_sequence(0, NUMBERS - 1).uid(f"{name} numbers").set_parallelism(width)
    paced = numbers.map(Paced(directory, name, never), Types.LONG()).uid(f"{name} paced")
    counted = paced.set_parallelism(width).key_by(lambda n: n % KEYS)
    counts = counted.process(Count(directory, name), Types.STRING()).uid(f"{name} count")
    if rows:
        counts = counts.set_parallelism(width).map(row_of, ROW).uid(f"{name} rows")
    files = FileSink.for_row_format(str(directory / name), Encoder.simple_string_encoder())
    written = counts.set_parallelism(width).sink_to(sink or files.build()).uid(f"{name} files")
    written.set_parallelism(width)


def start(
    make: Make,
    directory: Path,
    width: int = 2,
    restarts: int = 10,
    more: dict[str, str] | None = None,
    sink: Sink | None = None,
    rows: bool = False,
) -> JobClient:
    """``calm`` in the first slot, ``rash`` in all, which writes to ``sink`` if there is one."""
    settings = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.interval": "100",
        "execution.checkpointing.num-retained": "1000",
        **(more or {}),
    }
    env = make(width, settings)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 1))
    pipeline(env, directory, "calm", 1)
    pipeline(env, directory, "rash", width, sink, rows)
    return env.execute_async("two")


def committed(directory: Path) -> int:
    """How many files of the rash pipeline are visible."""
    path = directory / "rash"
    return len(list(path.glob("part-*"))) if path.exists() else 0


def require_calm_has_no_gap(directory: Path) -> None:
    assert generations(directory) == {1}, "it is the same run"
    assert len(notes(directory, "calm-0-opened")) == 1
    assert len(notes(directory, "calm-0-closed")) == 1
    assert len(notes(directory, "count-calm-opened")) == 1


def test_the_pipeline_that_is_not_in_a_killed_slot_has_no_gap(
    make: Make, tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    client = start(make, tmp_path)
    eventually(lambda: committed(tmp_path) > 0, "output")
    (pid,) = notes(tmp_path, "rash-1-opened")
    os.kill(pid, signal.SIGKILL)
    client.get_job_execution_result().result()
    check(tmp_path)
    require_calm_has_no_gap(tmp_path)
    assert f"slot 1 (worker process {pid} of this machine) was killed with SIGKILL" in caplog.text
    stays, comes = notes(tmp_path, "rash-0-opened"), notes(tmp_path, "rash-1-opened")
    assert len(stays) == len(comes) == 2
    assert len(set(stays)) == 1, "its process goes on"
    assert len(set(comes)) == 2
    assert not any(lives(each) for each in {*stays, *comes})


def test_a_slot_that_is_stopped_is_killed_and_replaced(
    make: Make, tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    client = start(make, tmp_path, more={"heartbeat.timeout": "1000"})
    eventually(lambda: committed(tmp_path) > 0, "output")
    (pid,) = notes(tmp_path, "rash-1-opened")
    with stopped(pid):
        eventually(lambda: len(notes(tmp_path, "rash-1-opened")) == 2, "another in its place")
        assert not lives(pid), "it was gone first"
        client.get_job_execution_result().result()
    check(tmp_path)
    require_calm_has_no_gap(tmp_path)
    assert "gave no sign of life for" in caplog.text


@pytest.mark.soak
def test_two_slots_that_are_killed_at_once_meet_each_other(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    client = start(make, tmp_path, width=3)
    eventually(lambda: committed(tmp_path) > 0, "output")
    pids = [*notes(tmp_path, "rash-1-opened"), *notes(tmp_path, "rash-2-opened")]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    client.get_job_execution_result().result()
    check(tmp_path)
    require_calm_has_no_gap(tmp_path)
    assert len(notes(tmp_path, "rash-0-opened")) >= 2


@pytest.mark.soak
def test_a_slot_that_cannot_be_replaced_restarts_the_job(
    make: Make,
    tmp_path: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Here the one that takes its place dies before it is there."""
    replace = LocalSlots.replace

    def kill(self: LocalSlots, settings: SlotSettings) -> None:
        replace(self, settings)
        os.kill(self.pids[-1], signal.SIGKILL)

    monkeypatch.setattr(LocalSlots, "replace", kill)
    client = start(make, tmp_path)
    eventually(lambda: committed(tmp_path) > 0, "output")
    os.kill(notes(tmp_path, "rash-1-opened")[0], signal.SIGKILL)
    client.get_job_execution_result().result()
    check(tmp_path)
    assert generations(tmp_path) == {1, 2}
    assert caplog.text.count("was killed with SIGKILL") >= 2


@pytest.mark.soak
def test_a_place_that_stays_empty_restarts_the_job(
    make: Make,
    tmp_path: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    replace = LocalSlots.replace

    def stop(self: LocalSlots, settings: SlotSettings) -> None:
        replace(self, settings)
        os.kill(self.pids[-1], signal.SIGSTOP)

    client = start(make, tmp_path, more={"slot.request.timeout": "3000"})
    eventually(lambda: committed(tmp_path) > 0, "output")
    monkeypatch.setattr(LocalSlots, "replace", stop)
    os.kill(notes(tmp_path, "rash-1-opened")[0], signal.SIGKILL)
    client.get_job_execution_result().result()
    check(tmp_path)
    assert generations(tmp_path) == {1, 2}
    assert "the places of lost slots 1 were not taken within 3 s" in caplog.text


@pytest.mark.soak
def test_two_slots_that_live_and_are_not_connected_restart_the_job(
    make: Make,
    tmp_path: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hosts: list[ProxiedSlots] = []

    def proxied() -> ProxiedSlots:
        hosts.append(ProxiedSlots())
        monkeypatch.setattr(run_loop, "Begin", hosts[0].begin)
        return hosts[0]

    monkeypatch.setattr(engine, "LocalSlots", proxied)
    client = start(make, tmp_path)
    eventually(lambda: committed(tmp_path) > 0, "output")
    proxy = hosts[0].proxy
    assert proxy is not None
    assert proxy.cut(1, 0) == 1
    client.get_job_execution_result().result()
    check(tmp_path)
    assert generations(tmp_path) == {1, 2}
    assert "have lost their connection, and both live" in caplog.text


def test_without_a_restart_the_error_names_the_slot(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    client = start(make, tmp_path, restarts=0)
    eventually(lambda: committed(tmp_path) > 0, "output")
    (pid,) = notes(tmp_path, "rash-1-opened")
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerLostError, match=f"slot 1 .worker process {pid} .*SIGKILL"):
        client.get_job_execution_result().result()
    assert client.get_job_status().result() is JobStatus.FAILED
    assert not any(lives(each) for each in notes(tmp_path, "calm-0-opened"))


@pytest.mark.parametrize("drain", [pytest.param(True, marks=pytest.mark.soak), False])
def test_a_stop_while_a_slot_is_replaced(
    make: Make, tmp_path: Path, eventually: Eventually, drain: bool
) -> None:
    client = start(make, tmp_path)
    eventually(lambda: committed(tmp_path) > 0, "output")
    (pid,) = notes(tmp_path, "rash-1-opened")
    os.kill(pid, signal.SIGKILL)
    client.stop(drain=drain).result()
    assert client.get_job_status().result() is JobStatus.FINISHED
    read = client.get_accumulators().result()
    for name in ("calm", "rash"):
        files = [each for each in (tmp_path / name).iterdir() if not each.name.startswith(".")]
        lines = [line for each in files for line in each.read_text().splitlines()]
        numbers = [int(line.split(",")[0]) for line in lines]
        assert len(numbers) == len(set(numbers)) == int(str(read[f"{name} numbers.numRecordsIn"]))
    if drain:
        return  # nothing goes on behind it
    start(make, tmp_path).get_job_execution_result().result()
    check(tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("disk", ["stays", "is lost"])
def test_what_was_lost_with_a_slot_is_read_and_nothing_else(
    make: Make,
    tmp_path: Path,
    eventually: Eventually,
    downloads: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    disk: str,
) -> None:
    """From the storage; all else is there, in the slots that stay and on this machine."""
    replace = LocalSlots.replace
    lost: list[Path] = []

    def replaced(self: LocalSlots, settings: SlotSettings) -> None:
        if disk == "is lost":
            lost.extend(each for each in (tmp_path / "local").rglob("1") if "rash" in str(each))
            for each in lost:
                shutil.rmtree(each)
        replace(self, settings)

    monkeypatch.setattr(LocalSlots, "replace", replaced)
    client = start(make, tmp_path, more={"state.backend.type": backend})
    eventually(lambda: committed(tmp_path) > 0, "output")
    os.kill(notes(tmp_path, "rash-1-opened")[0], signal.SIGKILL)
    client.get_job_execution_result().result()
    check(tmp_path)
    require_calm_has_no_gap(tmp_path)
    read = set(downloads.read_text().split())
    if disk == "stays":
        assert not read
    else:
        assert lost
        assert read
        assert read <= state_of(tmp_path, "rash count", 1)
        assert not read & state_of(tmp_path, "rash count", 0)


@pytest.mark.soak
def test_what_a_lost_slot_had_in_open_transactions_holds_nobody_up(
    make: Make, tmp_path: Path, eventually: Eventually, broker: Broker
) -> None:
    from tests.kafka.test_sink import exactly_once

    topic = broker.topic(partitions=2)
    client = start(make, tmp_path, sink=exactly_once(broker, topic).build())
    eventually(lambda: len(broker.read(topic)) > 20, "output")
    (pid,) = notes(tmp_path, "rash-1-opened")
    os.kill(pid, signal.SIGKILL)
    client.get_job_execution_result().result()
    require_calm_has_no_gap(tmp_path)
    found = [record.value.decode().split(",") for record in broker.read(topic)]
    assert sorted(int(number) for number, _ in found) == list(range(NUMBERS))
    for key in range(KEYS):
        counts = sorted(int(count) for number, count in found if int(number) % KEYS == key)
        assert counts == list(range(1, len(counts) + 1))


@pytest.mark.parametrize(
    "protocol", ["two-phase", pytest.param("commit-table", marks=pytest.mark.soak)]
)
def test_what_a_lost_slot_had_begun_in_postgres_is_not_left_there(
    make: Make, tmp_path: Path, eventually: Eventually, database: str, protocol: str
) -> None:
    """Nor is what was prepared for a checkpoint that was given up with it."""
    execute(database, "CREATE TABLE results (number BIGINT, n BIGINT)")
    is_prepared = protocol == "two-phase"
    make_sink = PostgresSink.two_phase if is_prepared else PostgresSink.commit_table
    sink: Sink = make_sink(database, "results")

    def seen() -> list[tuple[int, int]]:
        return [(number, n) for number, n in execute(database, "SELECT number, n FROM results")]

    client = start(make, tmp_path, sink=sink, rows=True)
    eventually(lambda: len(seen()) > 0, "output")
    (pid,) = notes(tmp_path, "rash-1-opened")
    os.kill(pid, signal.SIGKILL)
    client.get_job_execution_result().result()
    require_calm_has_no_gap(tmp_path)
    assert len(notes(tmp_path, "rash-1-opened")) == 2
    assert sorted(number for number, _ in seen()) == list(range(NUMBERS))
    for key in range(KEYS):
        counts = sorted(n for number, n in seen() if number % KEYS == key)
        assert counts == list(range(1, len(counts) + 1))
    assert prepared_in_schema(database) == []
    if not is_prepared:
        assert execute(database, "SELECT count(*) FROM results_millstream") == [(0,)]


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 12)]
)
def test_slots_that_are_killed_and_stopped_again_and_again(
    make: Make, tmp_path: Path, eventually: Eventually, seed: int
) -> None:
    """At random, also while they are being replaced."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    client = start(make, tmp_path, width=3, more={"heartbeat.timeout": "1000"})
    eventually(lambda: committed(tmp_path) > 0, "output")
    for _ in range(4):
        time.sleep(chance.random() * 0.3)  # the fault's moment, not a wait for anything
        pids = [notes(tmp_path, f"rash-{slot}-opened")[-1] for slot in (0, 1, 2)]
        alive = [pid for pid in pids[1:] if lives(pid) and pid != pids[0]]
        if alive:
            os.kill(chance.choice(alive), chance.choice([signal.SIGKILL, signal.SIGSTOP]))
    client.get_job_execution_result().result()
    check(tmp_path)
    for slot in (0, 1, 2):
        assert not any(lives(pid) for pid in notes(tmp_path, f"rash-{slot}-opened"))
