"""What the registry makes of events of the driver and of counts of tasks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.checkpoint.commit import CommitCounts, PendingCommits
from millstream.checkpoint.model import OperatorAck, SplitState, TaskAck
from millstream.checkpoint.publish import EpochMetadata, make_manifest
from millstream.common import Configuration, Types
from millstream.contracts.metrics import InstanceFigures, counter, gauge, quantile
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors import DiscardingSink
from millstream.metrics.registry import MetricRegistry, TaskFigures
from millstream.runtime.process_use import ProcessUse
from millstream.runtime.task_metrics import (
    RunningMetrics,
    SplitFigures,
    SubtaskTimes,
)

if TYPE_CHECKING:
    from millstream.checkpoint.model import Manifest


class Clock:
    """Seconds that pass when a test says so; the time since 1970 begins at 1,000 s."""

    def __init__(self) -> None:
        self.seconds = 50.0

    def __call__(self) -> float:
        return self.seconds

    def milliseconds(self) -> int:
        return int((self.seconds + 950) * 1000)


class Observed:
    """A registry of a job: source "numbers" and map "counts", an exchange, a sink."""

    def __init__(self) -> None:
        env = StreamExecutionEnvironment.get_execution_environment(Configuration())
        numbers = env.set_parallelism(2).from_sequence(0, 9).uid("numbers").name("numbers")
        counts = numbers.map(lambda n: n, Types.LONG()).uid("counts").name("counts")
        keyed = counts.key_by(lambda n: n, Types.LONG())
        keyed.sink_to(DiscardingSink()).uid("sink").name("sink")
        self.clock = Clock()
        graph = env.get_job_graph("a job")
        self.registry = MetricRegistry(graph, "id", self.clock, self.clock.milliseconds)
        self.last: Manifest | None = None

    def checkpoint(
        self, records: int, barrier: int | None = None, aligning: float = 0.0, **more: Any
    ) -> None:
        """Complete one in which the first subtask has read some records."""
        epoch = 0 if self.last is None else self.last.epoch + 1
        split = SplitState("numbers", "s", 0, finished=False, watermark=7, records=records)
        operators = [
            OperatorAck("numbers", 0, 7),
            OperatorAck("counts", 0, 990_000, metrics={"numRecordsIn": records, **more}),
        ]
        ack = TaskAck(epoch, 0, 0, "a", operators, [split], seconds=2.0, peak_memory=77, cpu=1.5)
        ack.barrier, ack.aligning = barrier, aligning
        acks = [ack]
        metadata = EpochMetadata(epoch, 1, {}, {0: 2, 1: 2}, 128)
        self.last = make_manifest(metadata, acks, self.last)
        self.registry.checkpoint_completed(self.last, acks, 1.5, 300)

    def values(
        self, *counts: RunningMetrics, pending: PendingCommits | None = None, **tasks: Any
    ) -> dict[tuple[str, ...], Any]:
        """By operator, or task, and subtask, where there are such, and name."""
        figures = TaskFigures(counts, **tasks)
        found = {}
        for each in self.registry.collect(figures, pending or PendingCommits()):
            of = each.variables
            owner = of.get("operator_name") or of.get("task_name") or of.get("tm_id")
            begin = (owner, of.get("subtask_index", "")) if owner else ()
            found[*begin, each.name] = each.value
        return found


@pytest.fixture
def job() -> Observed:
    return Observed()


SOURCE, MAP = ("Source: numbers", "0"), ("counts", "0")
TASK = ("Source: numbers -> counts", "0")


def test_counts_of_checkpoints_and_of_running_tasks_add_up(job: Observed) -> None:
    job.checkpoint(10)
    running = RunningMetrics(0, {"numbers.numRecordsIn": 5, "counts.numRecordsIn": 4}, 0)
    found = job.values(running)
    assert (found[*SOURCE, "numRecordsOut"], found[*MAP, "numRecordsIn"]) == (15, 14)
    assert found[*TASK, "numRecordsIn"] == 15
    assert found["counts", "1", "numRecordsIn"] == 0
    job.checkpoint(6)
    # What it said before the checkpoint is in that.
    found = job.values(running)
    assert (found[*SOURCE, "numRecordsIn"], found[*MAP, "numRecordsIn"]) == (16, 16)


def test_a_counter_does_not_go_back_after_a_failure(job: Observed) -> None:
    running = RunningMetrics(-1, {"counts.numRecordsIn": 9}, 0)
    assert job.values(running)[*MAP, "numRecordsIn"] == 9
    assert job.values()[*MAP, "numRecordsIn"] == 9
    job.checkpoint(12)
    assert job.values()[*MAP, "numRecordsIn"] == 12


def test_rates_are_of_the_last_minute(job: Observed) -> None:
    job.clock.seconds += 10
    job.checkpoint(100)
    assert job.values()[*MAP, "numRecordsInPerSecond"] == 10
    job.clock.seconds += 60
    assert job.values()[*MAP, "numRecordsInPerSecond"] == pytest.approx(0)
    job.checkpoint(600)
    job.clock.seconds += 30
    assert job.values()[*MAP, "numRecordsInPerSecond"] == pytest.approx(600 / 90)


def test_time_at_work(job: Observed) -> None:
    assert (*TASK, "busyTimeMsPerSecond") not in job.values()
    job.clock.seconds += 4
    job.checkpoint(1)
    found = job.values()
    busy, idle = (found[*TASK, f"{each}TimeMsPerSecond"] for each in ("busy", "idle"))
    assert (busy, idle, found[*TASK, "isBackPressured"]) == (500, 500, 0)
    spent = [f"accumulate{each}TimeMs" for each in ("Busy", "Idle", "BackPressured")]
    assert [found[*TASK, each] for each in spent] == [2000, 2000, 0]
    times = {(0, 0): SubtaskTimes(100, 200, 700, 9, (1100.5, 2200.0, 3300.0))}
    found = job.values(times=times)
    assert [found[*TASK, each] for each in spent] == [1100, 2200, 3300]
    assert found[*TASK, "backPressuredTimeMsPerSecond"] == 700
    assert (found[*TASK, "isBackPressured"], found[*TASK, "inputQueueSize"]) == (1, 9)


def test_event_time_and_commits(job: Observed) -> None:
    job.checkpoint(1)
    pending = PendingCommits(0, 999_000, {"sink": 3})
    found = job.values(pending=pending)
    assert found[*MAP, "currentInputWatermark"] == 990_000
    assert found[*MAP, "watermarkLag"] == 10_000
    assert (*SOURCE, "currentInputWatermark") not in found
    assert found[*SOURCE, "currentOutputWatermark"] == 7
    committer = ("sink: Committer", "0")
    assert found[*committer, "pendingCommittables"] == 3
    assert found[*committer, "pendingCommittablesAge"] == 1000


def test_restarts_of_the_driver_are_counted_and_are_downtime(job: Observed) -> None:
    job.registry.driver_restarted(0, 0)
    assert (job.values()["numRestarts",], job.values()["downtime",]) == (0, 0)
    job.registry.driver_restarted(2, job.clock.milliseconds() - 3000)
    job.clock.seconds += 1
    found = job.values()
    assert (found["numRestarts",], found["downtime",]) == (2, 4000)
    job.registry.moved("RUNNING")
    job.registry.restarted()
    assert (job.values()["numRestarts",], job.values()["downtime",]) == (3, 0)


def test_checkpoints_and_restarts(job: Observed) -> None:
    found = job.values()
    assert found["numberOfCompletedCheckpoints",] == 0
    assert found["lastCheckpointRestoreTimestamp",] == -1
    job.registry.moved("RUNNING")
    job.clock.seconds += 3
    job.checkpoint(1)
    job.registry.checkpoint_failed()
    job.registry.moved("RESTARTING")
    job.clock.seconds += 2
    found = job.values()
    assert (found["uptime",], found["downtime",], found["restartingTime",]) == (0, 2000, 2000)
    job.registry.restarted()
    job.registry.moved("RUNNING")
    assert job.last is not None
    job.registry.recovered(job.last)
    job.clock.seconds += 1
    found = job.values()
    names = ("uptime", "downtime", "runningTimeTotal", "numRestarts", "numRunningJobs")
    assert [found[each,] for each in names] == [1000, 0, 4000, 1, 1]
    counts = ("numberOfCompletedCheckpoints", "numberOfFailedCheckpoints", "lastCheckpointDuration")
    assert [found[each,] for each in counts] == [1, 1, 1500]
    assert (found["lastCheckpointSize",], found["totalNumberOfCheckpoints",]) == (300, 2)
    assert found["lastCheckpointRestoreTimestamp",] == 1_005_000


def test_metrics_of_functions_have_their_subtask(job: Observed) -> None:
    metrics: dict[str, Any] = {"a.mine": counter(3), "answer": gauge(42)}
    job.checkpoint(1, **metrics)
    running = RunningMetrics(0, {"counts.a.mine": counter(2), "counts.answer": gauge(43)}, 0)
    found = job.values(running)
    assert (found[*MAP, "mine"], found[*MAP, "answer"]) == (5, 43)


def test_processes_of_slots(job: Observed) -> None:
    job.checkpoint(1)
    assert job.values()["slot-0", "", "RSS"] == 77

    def use(moment: float, cpu: float) -> dict[int, tuple[str, ProcessUse]]:
        return {0: ("there", ProcessUse(moment, int(cpu * 1e9), 5, 4))}

    assert job.values(uses=use(10, 1))["slot-0", "", "Load"] == 0
    found = job.values(uses=use(12, 5))
    assert (found["slot-0", "", "Load"], found["slot-0", "", "RSS"]) == (0.5, 5)


def test_cpu_time_of_tasks_that_end_with_their_checkpoint_adds_up(job: Observed) -> None:
    job.clock.seconds += 4
    job.checkpoint(1)
    job.checkpoint(1)
    found = job.values()
    assert found["slot-0", "", "Time"] == 3_000_000_000
    assert found["slot-0", "", "Load"] == pytest.approx(3 / 4 / (os.cpu_count() or 1))


def test_bytes_add_up_over_instances_of_a_task(job: Observed) -> None:
    def running(instance: str, size: int) -> RunningMetrics:
        figures = InstanceFigures(instance, {"counts.numBytesOut": size}, {})
        return RunningMetrics(-1, {}, 0, figures)

    job.values(running("a", 100))
    job.values(running("b", 7))
    # A report of the older instance comes again.
    found = job.values(running("a", 100))
    assert found[*MAP, "numBytesOut"] == found[*TASK, "numBytesOut"] == 107
    assert (*SOURCE, "numBytesOut") not in found


def test_what_sources_have_not_read(job: Observed) -> None:
    splits = [SplitFigures("numbers", "s", 7, 10, 0), SplitFigures("numbers", "t", 7, 11, 0)]
    found = job.values(splits=splits)
    assert found[*SOURCE, "pendingRecords"] == 7
    assert found["Source: numbers", "1", "pendingRecords"] == 0


def test_memory_of_stores_and_tries_to_commit(job: Observed) -> None:
    figures = InstanceFigures("a", {}, {"sink.rocksdb.cur-size-all-mem-tables": 12})
    commits = {"sink": CommitCounts(total=3, succeeded=2, retried=4, failed=5)}
    found = job.values(RunningMetrics(-1, {}, 0, figures), commits=commits)
    assert found["sink: Writer", "0", "cur-size-all-mem-tables"] == 12
    names = ("total", "successful", "retried", "failed")
    committer = ("sink: Committer", "0")
    assert [found[*committer, f"{each}Committables"] for each in names] == [3, 2, 4, 5]


def test_how_long_barriers_took(job: Observed) -> None:
    job.checkpoint(1, barrier=5_000, aligning=0.25)
    found = job.values()
    assert found[*TASK, "checkpointAlignmentTime"] == 250_000_000
    # The checkpoint was triggered at 1 ms.
    assert found[*TASK, "checkpointStartDelayNanos"] == 4_999_000_000


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1), st.floats(0.001, 1))
def test_quantiles_are_those_of_flink(values: list[int], part: float) -> None:
    # Percentile of Apache Commons Math with which Flink computes them; numpy calls it Weibull's.
    assert quantile(sorted(values), part) == pytest.approx(
        np.quantile(values, part, method="weibull"), rel=1e-9, abs=1e-6
    )


def test_managed_memory_of_a_slot(job: Observed) -> None:
    """Block cache and write buffers are shared by all operators of a process, objects are not."""
    job.checkpoint(1)
    gauges: dict[str, float] = {"sink.rocksdb.block-cache-usage": 5}
    gauges["counts.rocksdb.block-cache-usage"] = 7
    gauges |= {"sink.stateObjectsSize": 100, "counts.stateObjectsSize": 1_000}
    found = job.values(RunningMetrics(-1, {}, 0, InstanceFigures("a", {}, gauges)))
    assert found["slot-0", "", "Used"] == 1_107
    assert found["slot-0", "", "Total"] == 512 << 20
    assert found["sink: Writer", "0", "stateObjectsSize"] == 100
