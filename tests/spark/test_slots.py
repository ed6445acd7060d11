"""The slot host on Spark: slots start side by side, end with the run, and what keeps them is said.

The slots of these tests do as they are told by files in a directory, whose name stands where a
run has its graph.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.engines.spark import pipelined
from millstream.engines.spark.java import JavaProcess
from millstream.engines.spark.pipelined import SparkSlotHost, _BarrierJob
from millstream.engines.spark.presence import Presence
from millstream.engines.spark.slot_function import host_of
from millstream.errors import EngineError, SourceError, WorkerLostError
from millstream.graph.job_files import JobFiles
from millstream.runtime.pipelined.control import SlotSettings, end_process
from millstream.runtime.pipelined.main_loop import run_slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    Eventually = Callable[[Callable[[], bool], str], None]

pytestmark = pytest.mark.spark

#: Seconds that only a slot that is lost waits.
LONGEST = 120.0


def tell(settings: SlotSettings) -> Path:
    """Leave a note of this process; returns the directory of the test."""
    directory = Path(settings.graph.decode())
    note = {"slot": settings.slot, "host": settings.host, "pid": os.getpid()}
    new = directory / f"new-{settings.slot}"
    new.write_text(json.dumps(note))
    new.rename(directory / f"slot-{settings.slot}")
    return directory


def until_told(settings: SlotSettings) -> None:
    """A slot that ends by itself once there is a file ``end``."""
    directory = tell(settings)
    limit = time.monotonic() + LONGEST
    while not (directory / "end").exists() and time.monotonic() < limit:
        time.sleep(0.01)


def until_fenced(settings: SlotSettings) -> None:
    """A slot that ends as slots do when the driver closes their connection."""
    with socket.create_connection(settings.driver) as control:
        tell(settings)
        control.recv(1)
        end_process()


def fails(settings: SlotSettings) -> None:
    tell(settings)
    message = f"slot {settings.slot} has nothing to read"
    raise SourceError(message)


class Run:
    """The slots of one run, and what they have noted."""

    def __init__(self, host: SparkSlotHost, directory: Path, slots: int) -> None:
        self.host = host
        self.directory = directory
        self.driver = socket.create_server((host.driver_host, 0))
        self.settings = [
            SlotSettings(
                slot=slot,
                slots=slots,
                run_id=f"run-{directory.name}",
                token=b"t" * 32,
                driver=self.driver.getsockname(),
                host="",
                graph=str(directory).encode(),
                files=JobFiles(),
            )
            for slot in range(slots)
        ]

    def notes(self) -> list[dict[str, Any]]:
        found = sorted(self.directory.glob("slot-*"))
        return [json.loads(path.read_text()) for path in found]

    def pids(self) -> list[int]:
        return [note["pid"] for note in self.notes()]

    def all_there(self) -> bool:
        return len(self.notes()) == len(self.settings)

    def start(self, eventually: Eventually) -> Run:
        self.host.start(self.settings)
        eventually(lambda: self.all_there() or self.host.lost() is not None, "all slots")
        return self


def is_running(pid: int) -> bool:
    """Whether a process does anything: one that ends closes its connections before all else."""
    with contextlib.suppress(OSError):
        # Flags of a process in the kernel; this one says that it is ending.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0] != "Z" and not int(fields[6]) & 0x4
    return False


@pytest.fixture
def begin(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Make the slots of a run, not started."""
    made: list[Run] = []

    def make(run: Callable[[SlotSettings], None], slots: int = 2, timeout: float = LONGEST) -> Run:
        host = SparkSlotHost(spark, JavaProcess(spark), "job", timeout=timeout, run=run)
        directory = tmp_path / f"{len(made)}-{secrets.token_hex(4)}"
        directory.mkdir()
        made.append(Run(host, directory, slots))
        return made[-1]

    yield make
    for run in made:
        (run.directory / "end").touch()
        run.driver.close()
        for pid in run.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        run.host.stop(0.1)
        run.host.close()


def test_slots_are_side_by_side_and_end_by_themselves(
    begin: Callable[..., Run], eventually: Eventually
) -> None:
    run = begin(until_told).start(eventually)
    notes = run.notes()
    assert [note["slot"] for note in notes] == [0, 1]
    assert {note["host"] for note in notes} == {"127.0.0.1"}
    assert len(set(run.pids())) == 2
    assert run.host.lost() is None
    (run.directory / "end").touch()
    run.host.stop(LONGEST)
    assert not any(is_running(pid) for pid in run.pids())
    again = begin(until_told).start(eventually)
    assert not set(again.pids()) & set(run.pids()), "a process is a slot once"


def test_fenced_slots_are_gone_when_the_host_has_stopped(
    begin: Callable[..., Run], eventually: Eventually
) -> None:
    run = begin(until_fenced)
    run.host.start(run.settings)
    controls = [run.driver.accept()[0] for _ in run.settings]
    eventually(run.all_there, "all slots")
    for control in controls:
        control.close()
    began = time.monotonic()
    run.host.stop(LONGEST)
    assert time.monotonic() - began < LONGEST / 4, "it did not wait for Spark"
    assert not any(is_running(pid) for pid in run.pids())
    assert run.host.lost() is None


def test_the_slot_that_crashed_is_told_from_those_that_were_fenced(
    begin: Callable[..., Run], eventually: Eventually
) -> None:
    run = begin(until_fenced)
    run.host.start(run.settings)
    controls = [run.driver.accept()[0] for _ in run.settings]
    eventually(run.all_there, "all slots")
    os.kill(run.pids()[1], signal.SIGKILL)
    for control in controls:
        control.close()
    run.host.stop(LONGEST)
    lost = run.host.lost()
    assert isinstance(lost, WorkerLostError)
    assert "the Python worker that was slot 1 was killed or has crashed" in str(lost)


def test_a_slot_that_does_not_end_is_killed(
    begin: Callable[..., Run], eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    run = begin(until_told).start(eventually)
    for pid in run.pids():
        os.kill(pid, signal.SIGSTOP)
    run.host.stop(0.1)
    assert not any(is_running(pid) for pid in run.pids())
    assert "slots [0, 1] do not end by themselves" in caplog.text
    assert run.host.lost() is None, "what was wrong with them the engine knows"


def test_a_killed_slot_is_noticed(begin: Callable[..., Run], eventually: Eventually) -> None:
    run = begin(until_told).start(eventually)
    os.kill(run.pids()[1], signal.SIGKILL)
    eventually(lambda: run.host.lost() is not None, "the loss of a slot")
    assert isinstance(run.host.lost(), WorkerLostError)
    eventually(lambda: "Spark job" in str(run.host.lost()), "Spark to say more")
    run.host.stop(5)  # the other one has no control connection: Spark kills it
    assert not any(is_running(pid) for pid in run.pids())


def test_what_a_slot_raises_reaches_the_driver(
    begin: Callable[..., Run], eventually: Eventually
) -> None:
    run = begin(fails).start(eventually)
    eventually(lambda: isinstance(run.host.lost(), SourceError), "the error")
    assert str(run.host.lost()) in {f"slot {slot} has nothing to read" for slot in (0, 1)}


def test_a_driver_that_cannot_be_reached_for_a_moment_does_not_end_the_job(
    begin: Callable[..., Run], eventually: Eventually
) -> None:
    run = begin(run_slot)
    run.driver.close()
    run.host.start(run.settings)
    eventually(lambda: "cannot reach the driver" in str(run.host.lost()), "the error")
    assert isinstance(run.host.lost(), WorkerLostError), "of which a restart strategy decides"


def fails_otherwise(settings: SlotSettings) -> None:
    tell(settings)
    try:
        "no number".index("7")
    except ValueError as error:
        message = "this executor has another\nMillstream"
        raise ImportError(message) from error


def test_what_a_worker_raises_that_is_not_of_millstream(
    begin: Callable[..., Run], eventually: Eventually
) -> None:
    run = begin(fails_otherwise).start(eventually)
    eventually(lambda: "ended with" in str(run.host.lost()), "the error")
    assert isinstance(run.host.lost(), WorkerLostError)
    said = "the Python worker of a slot has ended with ImportError: this executor has another"
    assert str(run.host.lost()) == said


def test_strangers_do_not_keep_slots_away(
    begin: Callable[..., Run], eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever connects and does not belong to the run is let go of, and nobody's end is awaited."""
    made: list[Presence] = []

    class Seen(Presence):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)
            for _ in range(3):
                stranger = socket.create_connection(self.address, timeout=5)
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 9)
                strangers.append(stranger)

    strangers: list[socket.socket] = []
    monkeypatch.setattr(pipelined, "Presence", Seen)
    run = begin(until_told).start(eventually)
    (run.directory / "end").touch()
    run.host.stop(LONGEST)
    assert made[0].came == 2
    for stranger in strangers:
        stranger.close()


def test_a_host_that_stops_before_spark_has_begun(begin: Callable[..., Run]) -> None:
    run = begin(until_told)
    run.host.start(run.settings)
    run.host.stop(LONGEST)
    assert run.host.lost() is None
    assert not any(is_running(pid) for pid in run.pids())


@pytest.mark.parametrize(
    ("slots_there", "come", "levels"),
    [
        (0, True, ["INFO"]),  # executors that register by and by
        (0, False, ["INFO", "WARNING"]),
        (2, False, ["WARNING"]),  # nothing is to be waited for
    ],
)
def test_executors_that_are_starting_are_no_warning(
    slots_there: int, come: bool, levels: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "millstream")
    host = _BarrierJob.__new__(_BarrierJob)
    host._slots = 2
    shortage = {"total": lambda: slots_there, "shortage": lambda *_: "why"}
    host._task_slots = cast("Any", SimpleNamespace(**shortage, has_started=lambda *_: False))
    waits = {"came": 0, "wait_for_all": lambda _: come}
    host._presence = cast("Any", SimpleNamespace(**waits))
    host._group = "group"
    host._over = host._stopping = threading.Event()
    host._warn_missing(5.0, 30.0)
    assert [record.levelname for record in caplog.records] == levels
    assert "after 5 s 0 of 2 slots have started: why" in caplog.text or slots_there == 0


def test_cores_that_another_job_has(
    spark: SparkSession,
    begin: Callable[..., Run],
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "millstream")
    other = begin(until_told, slots=1).start(eventually)
    run = begin(until_told, timeout=0.2)
    run.host.start(run.settings)
    eventually(lambda: run.host.lost() is not None, "the time-out")
    said = str(run.host.lost())
    assert "after 0.2 s 0 of 2 slots have started: Spark has 2 task slots (executor driver" in said
    assert "after 0.1 s 0 of 2 slots have started: Spark" in caplog.text, "while it is waited for"
    group = f"millstream-run-{other.directory.name}"
    assert "runs other jobs: job" in said
    assert f" of group '{group}' (Millstream job 'job' in 1 slots)" in said
    assert "Wait for their end" in said
    run.host.stop(LONGEST)
    assert run.notes() == []
    run = begin(until_told)
    run.host.start(run.settings)
    (other.directory / "end").touch()
    eventually(run.all_there, "the slots, once the cores are free")


def test_a_slot_that_is_quiet_for_long_is_not_idle(
    spark: SparkSession, begin: Callable[..., Run], eventually: Eventually
) -> None:
    """However Spark is told to treat Python workers that say nothing."""
    context: Any = spark.sparkContext._jsc.sc()
    settings = {
        "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "1",
        "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "true",
    }
    for key, value in settings.items():
        context.conf().set(key, value)
    try:
        run = begin(until_told).start(eventually)
        since = time.monotonic()
        eventually(lambda: time.monotonic() - since > 2.5, "more than the time-out")
        assert run.host.lost() is None
        assert all(is_running(pid) for pid in run.pids())
    finally:
        for key in settings:
            context.conf().remove(key)


def test_more_slots_than_cores(begin: Callable[..., Run]) -> None:
    with pytest.raises(
        EngineError, match=r"needs 3 task slots .* can have 2 \(master local\[2\]\)"
    ):
        begin(until_told, slots=3).host.require(3)
    begin(until_told).host.require(2)


@pytest.mark.parametrize(
    ("executor", "driver", "host"),
    [
        ("10.1.2.3:4040", "127.0.0.1", "127.0.0.1"),
        ("10.1.2.3:4040", "localhost", "localhost"),
        ("10.1.2.3:4040", "10.1.2.9", "10.1.2.3"),
        ("node-7.cluster:4040", "driver.cluster", "node-7.cluster"),
        ("[fd00::7]:4040", "fd00::9", "fd00::7"),
        ("[::1]:4040", "::1", "::1"),
    ],
)
def test_where_a_slot_is_reached(executor: str, driver: str, host: str) -> None:
    assert host_of(executor, (driver, 1)) == host


@pytest.mark.parametrize(
    ("master", "options", "told", "listens"),
    [
        ("local[2]", {"spark.driver.host": "10.1.2.9"}, "127.0.0.1", "127.0.0.1"),
        ("local-cluster[2,1,1024]", {"spark.driver.host": "10.1.2.9"}, "127.0.0.1", "127.0.0.1"),
        ("yarn", {"spark.driver.host": "10.1.2.9"}, "10.1.2.9", "10.1.2.9"),
        (
            "k8s://https://master",
            {"spark.driver.host": "driver.jobs.svc", "spark.driver.bindAddress": "10.1.2.9"},
            "driver.jobs.svc",
            "10.1.2.9",
        ),
    ],
)
def test_where_slots_reach_the_driver(
    master: str, options: dict[str, str], told: str, listens: str
) -> None:
    conf = SimpleNamespace(get=options.get)
    session = SimpleNamespace(sparkContext=SimpleNamespace(master=master, getConf=lambda: conf))
    host = SparkSlotHost(cast("Any", session), cast("Any", None), "job", timeout=1.0)
    assert (host.driver_host, host.listen_host) == (told, listens)


def test_threads_end_with_the_run(begin: Callable[..., Run], eventually: Eventually) -> None:
    before = {thread.name for thread in threading.enumerate()}
    run = begin(until_told).start(eventually)
    (run.directory / "end").touch()
    run.host.stop(LONGEST)

    def ours() -> set[str]:
        names = {thread.name for thread in threading.enumerate()}
        return {name for name in names - before if name.startswith("millstream")}

    eventually(lambda: not ours(), "the end of the host's threads")
