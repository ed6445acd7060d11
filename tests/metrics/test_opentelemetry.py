"""Metrics and spans that a collector of OpenTelemetry gets of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.metrics.collector import attributes, collecting
from tests.support.environments import environments, wait_until

from millstream.common import Configuration, Types
from millstream.contracts.metrics import MetricKind, MetricSample, Span
from millstream.datastream import MapFunction
from millstream.datastream.connectors import DiscardingSink
from millstream.errors import ConfigurationError
from millstream.metrics.opentelemetry_reporter import (
    OpenTelemetryMetricReporter,
    OpenTelemetryTraceReporter,
)
from millstream.metrics.reporting import MetricReporting
from millstream.metrics.settings import reporters_of

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE = 60.0
FACTORIES = {
    "metrics.reporter.otel.factory.class": (
        "org.apache.flink.metrics.otel.OpenTelemetryMetricReporterFactory"
    ),
    "traces.reporter.otel.factory.class": (
        "org.apache.flink.traces.otel.OpenTelemetryTraceReporterFactory"
    ),
}


class FailsOnce(MapFunction):
    """Raises at a record, if a file is not there yet."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def map(self, value: Any) -> Any:
        if value == 500 and not self.marker.exists():
            self.marker.touch()
            message = "once"
            raise ValueError(message)
        return value


def options(address: str) -> dict[str, str]:
    own = {
        f"{what}.reporter.otel.{key}": value
        for what in ("metrics", "traces")
        for key, value in {
            "exporter.endpoint": address,
            "exporter.protocol": "HTTP",
            "service.name": "flights",
            "interval": "200 ms",
        }.items()
    }
    return {**FACTORIES, **own}


@pytest.mark.parametrize("mode", ["epochs", "pipelined"])
def test_a_collector_gets_metrics_and_spans_of_checkpoints_and_restarts(
    tmp_path: Path, mode: str
) -> None:
    with collecting() as collector:
        engine = {"execution.target": "local", "millstream.execution": mode}
        settings = {
            **options(collector.address),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.delay": "0 ms",
            "execution.checkpointing.interval": "100 ms",
        }
        env = environments(tmp_path, engine)(1, settings)
        numbers = env.from_sequence(1, 10**12).uid("numbers").name("numbers")
        mapped = numbers.map(FailsOnce(tmp_path / "failed"), Types.LONG()).uid("mapped")
        mapped.sink_to(DiscardingSink()).uid("sink")
        client = env.execute_async("a job")

        # Of a checkpoint that completed: one that failed has no children.
        wanted = {"Restart", "Checkpoint", "Checkpoint_Commit"}

        def names() -> set[str]:
            return {each.name for _, each in collector.spans}

        try:
            wait_until(lambda: wanted <= names(), "the spans", DEADLINE)
            wait_until(lambda: bool(collector.metrics), "metrics", DEADLINE)
        finally:
            client.cancel().result()
    assert collector.services == {"flights"}
    points = collector.metrics["flink.taskmanager.job.task.operator.numRecordsIn"].sum.data_points
    assert {attributes(each)["operator_name"] for each in points} >= {"Source: numbers"}
    assert collector.metrics["flink.jobmanager.job.numRestarts"].gauge.data_points
    by_id = {each.span_id: each for _, each in collector.spans}
    completed = [
        each
        for _, each in collector.spans
        if attributes(each).get("checkpointStatus") == "COMPLETED"
    ]
    ids = [attributes(each)["checkpointId"] for each in completed]
    assert ids == sorted(set(ids))
    assert all(attributes(each)["job_name"] == "a job" for each in completed)
    children: dict[str, set[str]] = {}
    for _, each in collector.spans:
        if each.parent_span_id:
            parent = by_id[each.parent_span_id]
            assert each.trace_id == parent.trace_id
            children.setdefault(parent.name, set()).add(each.name)
    found = children["Checkpoint"]
    assert found >= {"Checkpoint_Snapshot", "Checkpoint_Commit"}
    assert ("Checkpoint_Alignment" in found) == (mode == "pipelined")
    assert "JobInitialization" in names()
    assert all(each.end_time_unix_nano >= each.start_time_unix_nano for _, each in collector.spans)


def test_spans_that_a_collector_refuses_are_sent_again() -> None:
    with collecting() as collector:
        collector.refuses = 1
        configuration = Configuration()
        for key, value in options(collector.address).items():
            if key.startswith("traces"):
                configuration.set_string(key, value)
        reporting = MetricReporting("a job", reporters_of(configuration), list)
        reporting.start()
        for number in range(3):
            reporting.add_span(Span("here", "Checkpoint", number, number + 1, {}))
        wait_until(lambda: len(collector.spans) >= 3, "the spans", DEADLINE)
        reporting.close()
    assert [each.start_time_unix_nano for _, each in collector.spans] == [0, 10**6, 2 * 10**6]
    assert collector.refuses == 0


def test_histograms_and_numbers_that_are_too_large() -> None:
    values = {"count": 2, "sum": 5.0, "min": 1.0, "max": 4.0, "mean": 2.5}
    with collecting() as collector:
        reporter = OpenTelemetryMetricReporter()
        reporter.open({"exporter.endpoint": collector.address})
        reporter.report(
            [
                MetricSample("", "a", "sizes", MetricKind.HISTOGRAM, values, {"k": "v"}),
                MetricSample("", "a", "large", MetricKind.GAUGE, 10**30, {}),
            ]
        )
        reporter.close()
    point = collector.metrics["flink.a.sizes"].histogram.data_points[0]
    assert (point.count, point.sum, point.min, point.max) == (2, 5.0, 1.0, 4.0)
    assert attributes(point) == {"k": "v"}
    assert collector.metrics["flink.a.large"].gauge.data_points[0].as_double == float("inf")


@pytest.mark.parametrize(
    "given", [{}, {"exporter.endpoint": "http://localhost:4317", "exporter.protocol": "gRPC"}]
)
def test_what_makes_no_sense_is_refused(given: dict[str, str]) -> None:
    for reporter in (OpenTelemetryMetricReporter(), OpenTelemetryTraceReporter()):
        with pytest.raises(ConfigurationError, match="exporter"):
            reporter.open(given)
