"""The general window operator: the situations of Flink's own operator tests."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.common.functions import (
    AggregateFunction,
    ReduceFunction,
    WindowFunction,
)
from millstream.common.output_tag import OutputTag
from millstream.datastream.window import (
    EventTimeSessionWindows,
    TimeWindow,
)
from millstream.runtime.operators import (
    AggregateSpec,
    ApplySpec,
    ReduceSpec,
    WindowFactory,
)
from millstream.testing.harness import OperatorHarness

LATE = OutputTag("late")


def key_of(record: Any) -> Any:
    return record[0]


class Adding(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], value1[1] + value2[1]


class Collecting(AggregateFunction):
    """Accumulates into a list, in place."""

    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        acc_a.extend(acc_b)
        return acc_a


class Listing(WindowFunction[Any, Any, Any, Any]):
    """Emits key, window and the values, sorted."""

    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        bounds = (window.start, window.end) if isinstance(window, TimeWindow) else repr(window)
        return [(key, bounds, sorted(value for _, value in inputs))]


class Session(WindowFunction[Any, Any, Any, TimeWindow]):
    """Flink's SessionReducer: the sum with key, start and end."""

    def apply(self, key: Any, window: TimeWindow, inputs: Any) -> Any:
        return [(f"{key}-{sum(value for _, value in inputs)}", window.start, window.end)]


def harness_of(
    assigner: Any,
    spec: Any,
    *,
    trigger: Any = None,
    evictor: Any = None,
    lateness: int = 0,
    late: OutputTag | None = None,
    **options: Any,
) -> OperatorHarness:
    factory = WindowFactory(assigner, spec, key_of, lateness, late, trigger, evictor)
    return OperatorHarness(factory, **options)


SPECS = {
    "reduce": lambda: ReduceSpec(Adding(), Session()),
    "aggregate": lambda: AggregateSpec(Pairing(), Session()),
    "apply": lambda: ApplySpec(Session()),
}


class Pairing(AggregateFunction):
    """Sums values; the result is a record again."""

    def create_accumulator(self) -> Any:
        return ["", 0]

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator[0] = value[0]
        accumulator[1] += value[1]
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return tuple(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return [acc_a[0] or acc_b[0], acc_a[1] + acc_b[1]]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_sessions(spec: Any) -> None:
    harness = harness_of(EventTimeSessionWindows.with_gap(3000), spec())
    for record, time in [
        (("key2", 1), 0), (("key2", 2), 1000), (("key2", 3), 2500),
        (("key1", 1), 10), (("key1", 2), 1000),
    ]:  # fmt: skip
        harness.process(record, time)
    harness.end_epoch()
    for record, time in [
        (("key1", 3), 2500), (("key2", 4), 5501), (("key2", 5), 6000), (("key2", 5), 6000),
        (("key2", 6), 6050),
    ]:  # fmt: skip
        harness.process(record, time)
    harness.watermark(12_000)
    assert sorted(harness.records) == [
        (("key1-6", 10, 5500), 5499),
        (("key2-20", 5501, 9050), 9049),
        (("key2-6", 0, 5500), 5499),
    ]
    harness.records.clear()
    harness.process(("key2", 10), 15_000)
    harness.process(("key2", 20), 15_000)
    harness.end_epoch()
    harness.watermark(17_999)
    assert sorted(harness.records) == [(("key2-30", 15_000, 18_000), 17_999)]
    harness.end_epoch()
    assert_empty(harness)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("cut", [False, True])
def test_late_record_joins_two_sessions_that_have_fired(spec: Any, cut: bool) -> None:
    harness = harness_of(EventTimeSessionWindows.with_gap(100), spec(), lateness=1000)
    harness.process_all([("a", 1), ("a", 2)], [0, 190])
    harness.watermark(400)
    assert harness.records == [(("a-1", 0, 100), 99), (("a-2", 190, 290), 289)]
    if cut:
        harness.end_epoch()
    harness.records.clear()
    harness.process(("a", 4), 95)
    assert harness.records == [(("a-7", 0, 290), 289)]
    if cut:
        harness.end_epoch()
    harness.process(("a", 8), 289)
    assert harness.records[1:] == [(("a-15", 0, 389), 388)]
    harness.watermark(1389)
    assert harness.outputs == [("a-7", 0, 290), ("a-15", 0, 389)]
    harness.end_epoch()
    assert_empty(harness)


def assert_empty(harness: OperatorHarness) -> None:
    left = [name for name, _ in harness.state_entries() if not name.startswith(b"M")]
    assert left == []
