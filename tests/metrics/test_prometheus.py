"""The text that Prometheus gets of a running job, in both execution modes."""

from __future__ import annotations

import re
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.environments import environments, wait_until

from millstream.common import Types, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import MapFunction, RuntimeContext
from millstream.datastream.connectors import DiscardingSink
from millstream.errors import ConfigurationError
from millstream.metrics.definitions import DEFINITIONS, Scope
from millstream.ports import parse_ports

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.datastream import JobClient

DEADLINE = 60.0
ADDRESS = re.compile(r"metrics: (http://127\.0\.0\.1:\d+/metrics)")
#: Names that Flink's own dashboards query.
QUERIED = {
    "flink_jobmanager_numRunningJobs",
    "flink_jobmanager_Status_JVM_CPU_Load",
    "flink_jobmanager_job_uptime",
    "flink_jobmanager_job_downtime",
    "flink_jobmanager_job_numRestarts",
    "flink_jobmanager_job_runningTime",
    "flink_jobmanager_job_lastCheckpointDuration",
    "flink_jobmanager_job_lastCheckpointSize",
    "flink_jobmanager_job_numberOfCompletedCheckpoints",
    "flink_jobmanager_job_numberOfFailedCheckpoints",
    "flink_taskmanager_job_task_numRecordsIn",
    "flink_taskmanager_job_task_numRecordsInPerSecond",
    "flink_taskmanager_job_task_busyTimeMsPerSecond",
    "flink_taskmanager_job_task_idleTimeMsPerSecond",
    "flink_taskmanager_job_task_backPressuredTimeMsPerSecond",
    "flink_taskmanager_job_task_isBackPressured",
    "flink_taskmanager_job_task_operator_numRecordsIn",
    "flink_taskmanager_job_task_operator_numRecordsOut",
    "flink_taskmanager_job_task_operator_numRecordsOutPerSecond",
    "flink_taskmanager_job_task_operator_currentInputWatermark",
    "flink_taskmanager_job_task_operator_currentOutputWatermark",
}


class Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


class Measured(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group().add_group("mine")
        self.events = group.meter("events")
        self.even = group.counter("even")
        self.sizes = group.distribution("sizes")
        group.gauge("answer", lambda: 42)

    def map(self, value: Any) -> Any:
        self.events.mark_event()
        self.sizes.update(value)
        if value % 2 == 0:
            self.even.inc()
        return value


def running(directory: Path, mode: str, settings: dict[str, str] | None = None) -> JobClient:
    engine = {"execution.target": "local", "millstream.execution": mode}
    reporter = {
        "metrics.reporter.prom.factory.class": "prometheus",
        "metrics.reporter.prom.port": "0",
    }
    env = environments(directory, engine)(2, {**reporter, **(settings or {})})
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
    numbers = env.from_sequence(0, 10**12).uid("numbers").name("numbers")
    timed = numbers.assign_timestamps_and_watermarks(strategy)
    mapped = timed.map(Measured(), Types.LONG()).uid("measured").name("measured")
    keyed = mapped.key_by(lambda n: n % 7, Types.LONG()).map(lambda n: n, Types.LONG())
    keyed.name("keyed").sink_to(DiscardingSink()).name("nowhere")
    return env.execute_async("a job")


def scraped(address: str) -> dict[str, list[Any]]:
    with urllib.request.urlopen(address, timeout=DEADLINE) as response:
        text = response.read().decode()
    families = text_string_to_metric_families(text)
    return {sample.name: family.samples for family in families for sample in family.samples}


@pytest.mark.parametrize("mode", ["epochs", "pipelined"])
def test_a_running_job_serves_flinks_names_and_labels(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "millstream")
    client = running(tmp_path, mode)
    found: dict[str, list[Any]] = {}

    def is_at_work() -> bool:
        addresses = ADDRESS.findall(caplog.text)
        found.clear()
        found.update(scraped(addresses[0]) if addresses else {})
        done = found.get("flink_jobmanager_job_numberOfCompletedCheckpoints", [])
        busy = found.get("flink_taskmanager_job_task_busyTimeMsPerSecond", [])
        return len(busy) == 4 and any(each.value > 0 for each in done)

    try:
        wait_until(is_at_work, "a checkpoint in the metrics", DEADLINE)
    finally:
        client.cancel().result()
    assert found.keys() >= QUERIED
    memory = found["flink_taskmanager_Status_Process_Memory_RSS"]
    assert {each.labels["tm_id"] for each in memory} == {"slot_0", "slot_1"}
    assert min(each.value for each in memory) > 1 << 20
    assert min(each.value for each in found["flink_taskmanager_Status_JVM_CPU_Time"]) > 0
    assert min(each.value for each in found["flink_taskmanager_job_task_numBytesIn"]) > 0
    _require_known(found)
    _require_labels(found)
    _require_user_metrics(found)


def _require_known(found: dict[str, list[Any]]) -> None:
    defined = {
        "flink_" + f"{each.scope.value}.{each.path}".replace(".", "_") for each in DEFINITIONS
    }
    others = {name for name in found if name not in defined and "_mine_" not in name}
    assert others == set()


def _require_labels(found: dict[str, list[Any]]) -> None:
    samples = found["flink_taskmanager_job_task_operator_numRecordsIn"]
    of = {(each.labels["operator_name"], each.labels["subtask_index"]): each for each in samples}
    assert {name for name, _ in of} >= {"Source:_numbers", "measured", "keyed", "nowhere:_Writer"}
    labels = of["measured", "1"].labels
    assert labels["job_name"] == "a_job"
    assert labels["operator_id"] == "measured"
    assert labels["task_name"].startswith("Source:_numbers____")
    assert labels.keys() == {
        *("host", "tm_id", "job_id", "job_name", "task_id", "task_name", "task_attempt_id"),
        *("task_attempt_num", "subtask_index", "operator_id", "operator_name"),
    }
    assert of["measured", "0"].value + of["measured", "1"].value > 0
    [running_jobs] = found["flink_jobmanager_numRunningJobs"]
    assert (running_jobs.value, set(running_jobs.labels)) == (1, {"host"})


def _require_user_metrics(found: dict[str, list[Any]]) -> None:
    begin = "flink_taskmanager_job_task_operator_mine_"
    assert {each.value for each in found[begin + "answer"]} == {42}
    assert sum(each.value for each in found[begin + "even"]) > 0
    assert sum(each.value for each in found[begin + "events"]) > 0
    assert sum(each.value for each in found[begin + "sizes_count"]) > 0


def test_names_of_definitions_are_unique_in_prometheus() -> None:
    names = [f"{each.scope.value}.{each.path}".replace(".", "_") for each in DEFINITIONS]
    assert len(names) == len(set(names))
    assert {each.scope for each in DEFINITIONS} <= set(Scope)


@pytest.mark.parametrize(
    ("text", "ports"),
    [("9249", [9249]), ("9250-9252", [9250, 9251, 9252]), ("1, 5 - 6", [1, 5, 6])],
)
def test_ports(text: str, ports: list[int]) -> None:
    assert parse_ports(text) == ports


@pytest.mark.parametrize("text", ["", "http", "9250-", "-9250", "70000", "9260-9250"])
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(ConfigurationError, match="a port must be a number, or a range"):
        parse_ports(text)
