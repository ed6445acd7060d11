"""Counters, gauges, meters and distributions: from a function to the job's accumulators."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support.environments import environments

from millstream.checkpoint.model import MANIFEST, OperatorAck, TaskAck
from millstream.checkpoint.program import accumulators, labels
from millstream.checkpoint.publish import EpochMetadata, make_manifest
from millstream.cli.main import main
from millstream.common import Types
from millstream.contracts.metrics import added, counter, distribution, meter, shown
from millstream.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from millstream.datastream.connectors import DiscardingSink
from millstream.errors import ProgramError, UserFunctionError
from millstream.metrics import Distribution, Metric, MetricGroup
from millstream.runtime.operators.stateless import MapFactory
from millstream.testing.harness import OperatorHarness
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.checkpoint.model import Manifest


class Measured(MapFunction):
    """Measures the numbers that go through."""

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.last = -1
        self.even = group.counter("even")
        group.gauge("last", lambda: self.last)
        subtask = runtime_context.get_index_of_this_subtask()
        group.gauge("place", lambda: 10 + subtask)
        inner = group.add_group("sizes", "small")
        self.events = inner.meter("events", 10)
        self.sizes = inner.distribution("values")

    def map(self, value: Any) -> Any:
        self.last = value
        self.events.mark_event(2)
        self.sizes.update(value)
        if value % 2 == 0:
            self.even.inc()
        return value


def measured_job(directory: Path, parallelism: int) -> MiniCluster:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    numbers = env.from_sequence(1, 100).uid("numbers").map(Measured()).uid("measured")
    numbers.sink_to(DiscardingSink()).uid("nowhere")
    return MiniCluster(env.get_job_graph(), directory, limits=[7] * 40)


def of(manifest: Manifest) -> dict[str, Any]:
    return accumulators(manifest, labels(manifest.program))


@pytest.mark.both_engines
def test_a_job_adds_them_up_over_subtasks_epochs_and_lost_instances(tmp_path: Path) -> None:
    manifest = measured_job(tmp_path, 2).run()
    assert manifest is not None
    assert manifest.epoch > 5
    found = of(manifest)
    assert found["measured.even"] == 50
    assert found["measured.sizes.small.values"] == {
        "count": 100,
        "sum": 5050,
        "min": 1,
        "max": 100,
        "mean": 50.5,
    }
    assert found["measured.sizes.small.events"]["count"] == 200
    assert found["measured.place"] == {"0": 10, "1": 11}


@pytest.mark.both_engines
def test_they_are_in_the_checkpoint_and_go_on_from_it(tmp_path: Path) -> None:
    measured_job(tmp_path, 2).run(max_epochs=3)
    manifest = measured_job(tmp_path, 1).run()
    assert manifest is not None
    found = of(manifest)
    assert (found["measured.even"], found["measured.sizes.small.values"]["sum"]) == (50, 5050)
    # There is one subtask now, and what the other one said last is gone.
    assert found["measured.place"] == {"0": 10}
    read = MANIFEST.read(MANIFEST.write(manifest))
    assert (read.measures, read.totals) == (manifest.measures, manifest.totals)
    assert read.operators["measured"][0].metrics == manifest.operators["measured"][0].metrics


@pytest.mark.both_engines
def test_the_command_line_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured_job(tmp_path, 2).run()
    assert main(["checkpoints", str(tmp_path), "inspect"]) == 0
    printed = capsys.readouterr().out
    assert "measured.even: 50\n" in printed
    assert "measured.place: 0 10, 1 11\n" in printed
    assert "values: count 100, sum 5,050, min 1, max 100, mean 50.500\n" in printed


def manifest_at(milliseconds: int, events: int, last: Manifest | None) -> Manifest:
    metrics: dict[str, Any] = {"hits": meter(events, 20)} if events else {}
    ack = OperatorAck("map", 0, 0, metrics=metrics)
    metadata = EpochMetadata(0, milliseconds, {}, {0: 1}, 128)
    return make_manifest(metadata, [TaskAck(0, 0, 0, "x", [ack], [])], last)


def test_a_meter_is_the_rate_of_the_time_before() -> None:
    manifest, rates = None, []
    for seconds, events in [(100, 40), (101, 20), (110, 0), (112, 40), (121, 0), (140, 0)]:
        manifest = manifest_at(seconds * 1000, events, manifest)
        hits: Any = accumulators(manifest, {})["map.hits"]
        rates.append((hits["count"], hits["rate"]))
    # Of 20 seconds: at 121 the sixty of the beginning are over, at 140 all.
    assert rates == [(40, 2), (60, 3), (60, 3), (100, 5), (100, 2), (100, 0)]
    assert manifest is not None
    later = manifest_at(200_000, 1, manifest)
    assert later.measures["map.hits"]["recent"] == [[40, 1]]


class NamedAlike(MapFunction):
    """Count as an operator does."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counter = runtime_context.get_metrics_group().counter("numRecordsIn")

    def map(self, value: Any) -> Any:
        self.counter.inc(1000)
        return value


def test_a_counter_of_a_function_is_told_from_one_of_its_operator(tmp_path: Path) -> None:
    env = environments(tmp_path, {"execution.target": "local"})(1)
    numbers = env.from_sequence(1, 3).uid("numbers").map(NamedAlike(), Types.LONG()).uid("counts")
    numbers.sink_to(DiscardingSink()).uid("nowhere")
    result = env.execute("alike")
    assert result.get_all_accumulator_results() == {"counts.numRecordsIn": 3000}
    assert result.get_accumulator_result("nowhere.numRecordsIn") == 3


def test_a_metric_of_another_kind_takes_the_place_of_the_old_one() -> None:
    before = added(None, meter(3, 60), 0, 0)
    found: Any = shown(added(before, distribution(1, 5, 5, 5), 0, 0), 0)
    assert found["count"] == 1


def test_the_harness_has_them(tmp_path: Path) -> None:
    with OperatorHarness(MapFactory(Measured())) as harness:
        harness.process_all([4, 5, 9], [0, 0, 0])
        harness.end_epoch()
        assert harness.metrics["even"] == 1
        assert harness.measures["last"] == {"kind": "gauge", "values": {"0": 9}}
        sizes: Any = shown(harness.measures["sizes.small.values"], 0)
        assert sizes["mean"] == 6


def test_what_is_measured_is_known_before_the_checkpoint() -> None:
    with OperatorHarness(MapFactory(Measured())) as harness:
        harness.process_all([4, 5], [0, 0])
        assert "last" not in harness.operator.current_metrics()
        harness.operator.read_gauges()
        harness.process(9, 0)
        found: Any = harness.operator.current_metrics()
        assert found["numRecordsIn"] == 3
        assert found["even"] == counter(1)
        assert found["last"]["value"] == 5
        assert found["sizes.small.events"]["count"] == 6
        assert found["sizes.small.values"]["max"] == 9


class Gauged(MapFunction):
    def __init__(self, value: Any) -> None:
        self.value = value

    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_metrics_group().gauge("queue", lambda: self.value / 1)

    def map(self, value: Any) -> Any:
        return value


def test_numbers_of_numpy_are_taken() -> None:
    group = MetricGroup()
    group.gauge("size", lambda: np.int64(3))  # type: ignore[arg-type, return-value]
    [taken] = group.take_all().values()
    assert taken == {"kind": "gauge", "value": 3}
    assert type(taken["value"]) is int


def test_a_gauge_that_fails_is_an_error_of_the_function() -> None:
    harness = OperatorHarness(MapFactory(Gauged("text")), name="sizes")
    harness.process(1, 0)
    with pytest.raises(UserFunctionError, match=r"'sizes'.*reading a gauge.*TypeError"):
        harness.end_epoch()


@pytest.mark.parametrize("value", ["text", None, True])
def test_a_gauge_gives_a_number(value: Any) -> None:
    group = MetricGroup()
    group.gauge("queue", lambda: value)
    with pytest.raises(ProgramError, match="a gauge must return a number, not"):
        group.take_all()


def test_a_name_means_one_metric() -> None:
    group = MetricGroup()
    assert group.counter("n") is group.counter("n")
    assert group.add_group("a").distribution("n") is group.distribution("a.n")
    assert isinstance(group.distribution("a.n"), Distribution)
    assert issubclass(Distribution, Metric)
    with pytest.raises(ProgramError, match="the metric 'n' is a counter and cannot be a meter"):
        group.meter("n")
    with pytest.raises(ProgramError, match="meter 'm': the time span must be positive, not 0"):
        group.meter("m", 0)


def test_what_was_not_used_is_not_reported() -> None:
    group = MetricGroup()
    group.counter("c")
    group.meter("m")
    values = group.distribution("d")
    assert group.take_all() == {}
    values.update(-3)
    values.update(-5)
    assert group.take_all() == {"d": distribution(2, -8, -5, -3)}
    assert group.take_all() == {}
    values.update(1)
    assert group.take_all() == {"d": distribution(1, 1, 1, 1)}


@pytest.mark.parametrize("number", [np.int64(3), np.uint8(3), True])
def test_numbers_of_numpy_are_counted(number: Any) -> None:
    group = MetricGroup()
    group.counter("n").inc(number)
    group.counter("n").dec(number)
    group.counter("n").inc(number)
    group.meter("events").mark_event(number)
    size: Any = np.float32(number)
    group.distribution("sizes").update(size)
    taken = group.take_all()
    assert json.loads(json.dumps(taken)) == taken
    assert taken["n"] == counter(int(number))


@pytest.mark.parametrize("wrong", [0.5, np.float64(1), "1", None])
def test_what_is_not_whole_is_not_counted(wrong: Any) -> None:
    with pytest.raises(ProgramError, match="whole number"):
        MetricGroup().counter("n").inc(wrong)
    with pytest.raises(ProgramError, match="whole number"):
        MetricGroup().meter("n").mark_event(wrong)


@pytest.mark.parametrize("wrong", ["1", None, True])
def test_what_is_no_number_is_not_distributed(wrong: Any) -> None:
    with pytest.raises(ProgramError, match="must be a number"):
        MetricGroup().distribution("n").update(wrong)
