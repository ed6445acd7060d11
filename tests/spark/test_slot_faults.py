"""Faults at crash points in slots on Spark, and what is read from the storage behind them.

The job is that of ``tests/pipelined/test_failures.py``.  The crash matrix has all of it on slots of
this machine (``tests/matrix``); here is what Spark adds: who notices, who kills, who starts anew.
"""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest
from tests.pipelined import storages, test_failures, test_local_recovery
from tests.pipelined.test_failures import Paced, check, finish, job, seen
from tests.pipelined.test_local_recovery import (
    downloads,
    lose_the_disk_of_slot_1,
    require_what_slot_1_lost,
)
from tests.spark.test_slots import is_running
from tests.support.environments import environments

from millstream import crash_points
from millstream.datastream import JobStatus
from millstream.engines.spark.pipelined import SparkSlotHost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.datastream import RuntimeContext, StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

__all__ = ["downloads"]

pytestmark = pytest.mark.spark

SLOTS = {"millstream.execution": "pipelined", "heartbeat.timeout": "1000"}
#: Every place in a slot, and what happens there.
POINTS = [
    point
    for point in crash_points.points_of("task", "pipelined task", "unaligned task")
    if point != "source.read.after"  # an epoch's: where tasks live on, reading has no end
]
FAULTS = ["killed", "stopped", "cut from the others", "cut from the driver"]
#: One of each in ``make test-all``, each at another place.
SAMPLE = [("barrier.send.after", "killed"), ("barrier.align.after", "cut from the others")]


@pytest.fixture
def make(spark: SparkSession, tmp_path: Path) -> Make:
    """Make an environment of a parallelism, with settings."""
    return environments(tmp_path, SLOTS)


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is imported here the workers cannot import; processes here are not our children."""
    monkeypatch.setattr(test_failures, "lives", is_running)
    for module in (storages, test_failures):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (storages, test_failures):
        cloudpickle.unregister_pickle_by_value(module)


def shut_down(kind: str, sockets: Callable[[Any], list[Any]]) -> None:
    """Cut connections that objects of a kind have in this process."""
    for each in gc.get_objects():
        if type(each).__name__ == kind:
            for connection in sockets(each):
                connection.shutdown(2)


def meet(fault: str) -> None:
    if fault == "cut from the others":
        shut_down("TcpTransport", lambda each: [c.sock for c in each._connections.values()])
    elif fault == "cut from the driver":
        shut_down("ControlConnection", lambda each: [each._socket])
    else:
        os.kill(os.getpid(), signal.SIGKILL if fault == "killed" else signal.SIGSTOP)


class Faulty(Paced):
    """Has its process meet a fault at a crash point, once, when there is output."""

    point, fault = "", ""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        crash_points.arm(self.point, self.act)

    def act(self, point: str) -> None:
        met = self.notes.parent / "met"
        if met.exists():
            return
        if not any((self.notes.parent / "out").glob("part-*")):
            crash_points.arm(point, self.act)
            return
        try:
            met.touch(exist_ok=False)
        except FileExistsError:
            return
        meet(self.fault)


@pytest.mark.parametrize(
    ("point", "fault"),
    [
        pytest.param(
            *(point, fault),
            marks=[] if (point, fault) in SAMPLE else pytest.mark.soak,
            id=f"{point} {fault}",
        )
        for point in POINTS
        for fault in FAULTS
    ],
)
def test_a_slot_meets_a_fault(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, fault: str
) -> None:
    class Meeting(Faulty):
        pass

    Meeting.point, Meeting.fault = point, fault
    monkeypatch.setattr(test_failures, "Paced", Meeting)
    monkeypatch.setattr(test_failures, "NUMBERS", 8000)
    settings = {"execution.checkpointing.num-retained": "10"}
    if point in crash_points.points_of("unaligned task"):
        settings["execution.checkpointing.unaligned"] = "true"
    client = job(make, tmp_path, **settings).execute_async("meets")
    client.get_job_execution_result().result()
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert (tmp_path / "met").exists()
    check(tmp_path)
    processes = {pid for each in seen(tmp_path).values() for pid, _ in each}
    assert not any(is_running(pid) for pid in processes)


BACKENDS = [pytest.param("hashmap", marks=pytest.mark.soak), "rocksdb"]


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_new_process_finds_the_copies_of_this_machine(
    make: Make, tmp_path: Path, eventually: Eventually, downloads: Path, backend: str
) -> None:
    test_local_recovery.test_a_new_process_finds_the_copies_of_this_machine(
        make, tmp_path, eventually, downloads, backend
    )


@pytest.mark.soak
def test_a_job_whose_spark_job_somebody_cancels_begins_another(
    make: Make,
    spark: SparkSession,
    tmp_path: Path,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in Spark's interface, where one may think that it hangs, since it does not end."""
    client = job(make, tmp_path).execute_async("cancelled")
    pids = test_failures.at_work(tmp_path, eventually)
    spark.sparkContext.cancelAllJobs()
    finish(client, tmp_path, pids)
    assert "the Spark job of the slots has ended: " in caplog.text
    assert "cancelled" in caplog.text


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_lost_with_a_slot_is_read_and_nothing_else(
    make: Make,
    tmp_path: Path,
    eventually: Eventually,
    downloads: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
) -> None:
    lose_the_disk_of_slot_1(monkeypatch, SparkSlotHost, tmp_path)
    settings = {"state.backend.type": backend, "execution.checkpointing.num-retained": "1000"}
    client = job(make, tmp_path, **settings).execute_async("killed")
    pids = test_failures.at_work(tmp_path, eventually)
    os.kill(pids[1], signal.SIGKILL)
    finish(client, tmp_path, pids)
    require_what_slot_1_lost(tmp_path, downloads)
