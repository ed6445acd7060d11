"""Latency markers: from sources through exchanges to operators, past windows."""

from __future__ import annotations

import re
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.environments import environments, wait_until

from millstream.common import Duration, Types, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.configuration.configuration import Configuration
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.aggregates import Count
from millstream.datastream.connectors import DiscardingSink
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.runtime.pipelined.latency import LatencyMarker, LatencyTracking
from millstream.runtime.stage import StageInstance

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE = 60.0
ADDRESS = re.compile(r"metrics: (http://127\.0\.0\.1:\d+/metrics)")
PIPELINED = {"execution.target": "local", "millstream.execution": "pipelined"}


class Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


def latencies(address: str) -> list[Any]:
    """The samples of histograms of latency, whatever their groups."""
    with urllib.request.urlopen(address, timeout=DEADLINE) as response:
        text = response.read().decode()
    return [
        sample
        for family in text_string_to_metric_families(text)
        if family.name.startswith("flink_taskmanager_job_latency_")
        for sample in family.samples
    ]


@pytest.mark.parametrize("granularity", ["single", "operator", "subtask"])
def test_operators_have_histograms_of_how_long_markers_took(
    tmp_path: Path, granularity: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "millstream")
    settings = {
        "metrics.reporter.prom.factory.class": "prometheus",
        "metrics.reporter.prom.port": "0",
        "metrics.latency.granularity": granularity,
    }
    env = environments(tmp_path, PIPELINED)(2, settings)
    env.get_config().set_latency_tracking_interval(50)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
    numbers = env.from_sequence(0, 10**12).uid("numbers")
    timed = numbers.assign_timestamps_and_watermarks(strategy).uid("timed")
    keyed = timed.key_by(lambda n: n % 7, Types.LONG())
    # No such window ever fires: markers do not wait for it.
    windows = keyed.window(TumblingEventTimeWindows.of(Duration.of_days(10_000)))
    windows.aggregate(Count()).uid("counts").sink_to(DiscardingSink()).uid("sink")
    client = env.execute_async("a job")
    found: list[Any] = []

    def is_complete() -> bool:
        addresses = ADDRESS.findall(caplog.text)
        found[:] = latencies(addresses[0]) if addresses else []
        return {
            (each.labels["operator_id"], each.labels["operator_subtask_index"]) for each in found
        } >= {(uid, str(n)) for uid in ("counts", "sink") for n in (0, 1)}

    try:
        wait_until(is_complete, "latencies of all operators", DEADLINE)
    finally:
        client.cancel().result()
    labels = found[0].labels
    assert ("source_id" in labels) == (granularity != "single")
    assert ("source_subtask_index" in labels) == (granularity == "subtask")
    assert "numbers" not in {each.labels["operator_id"] for each in found}
    quantiles = {each.labels.get("quantile") for each in found}
    assert quantiles >= {"0.5", "0.95", "0.99"}
    medians = [each.value for each in found if each.labels.get("quantile") == "0.5"]
    assert min(medians) >= 0
    assert max(medians) < 1000 * DEADLINE


@pytest.mark.parametrize("unaligned", ["false", "true"])
def test_markers_change_no_result(tmp_path: Path, unaligned: str) -> None:
    settings = {
        "metrics.latency.interval": "1 ms",
        "execution.checkpointing.interval": "20 ms",
        "execution.checkpointing.unaligned.enabled": unaligned,
    }
    env = environments(tmp_path, PIPELINED)(2, settings)
    numbers = env.from_sequence(1, 20_000).uid("numbers")
    keyed = numbers.key_by(lambda n: n % 7, Types.LONG()).map(lambda n: n, Types.LONG())
    keyed.rebalance().sink_to(CollectSink(tmp_path / "output"))
    env.execute("a job")
    records: Any = read_collected(tmp_path / "output")
    assert sorted(records) == list(range(1, 20_001))


def instance(settings: dict[str, str]) -> StageInstance:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
    numbers = env.set_parallelism(1).from_sequence(0, 9).uid("numbers")
    numbers.map(lambda n: n, Types.LONG()).uid("mapped").sink_to(DiscardingSink()).uid("sink")
    return StageInstance(env.get_job_graph("a job"), 0, 0)


def test_without_an_interval_there_are_no_markers() -> None:
    assert LatencyTracking.of(instance({})) is None


def test_statistics_are_of_the_last_markers() -> None:
    settings = {"metrics.latency.interval": "10 ms", "metrics.latency.history-size": "100"}
    tracking = LatencyTracking.of(instance(settings))
    assert tracking is not None
    [marker] = tracking.due(1_000)
    assert (tracking.due(1_009), len(tracking.due(1_010))) == ([], 1)
    assert LatencyMarker.decode(marker.encode()) == marker == (1_000, 0, "numbers")
    for latency in (*[10_000] * 50, *range(1, 101)):
        tracking.take(marker, marker.time + latency)
    found = tracking.histograms()
    assert found.keys() == {("mapped", "numbers", -1), ("sink", "numbers", -1)}
    assert found["sink", "numbers", -1] == {
        "count": 100,
        "sum": 5050,
        "min": 1,
        "max": 100,
        "mean": 50.5,
        "p50": 50.5,
        "p75": 75.75,
        "p95": pytest.approx(95.95),
        "p98": pytest.approx(98.98),
        "p99": pytest.approx(99.99),
        "p999": 100,
    }
    # The clock of the machine was set back.
    tracking.take(marker, 0)
    assert tracking.histograms()["sink", "numbers", -1]["min"] == 0
