"""What tests of the general window operator share: functions, and a harness of them."""

from __future__ import annotations

from typing import Any

from millstream.datastream.window import (
    SessionWindowTimeGapExtractor,
    TimeWindow,
)
from millstream.functions.functions import (
    AggregateFunction,
    ReduceFunction,
    WindowFunction,
)
from millstream.runtime.operators import (
    WindowFactory,
)
from millstream.testing.harness import OperatorHarness
from millstream.types.output_tag import OutputTag

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


def assert_empty(harness: OperatorHarness) -> None:
    left = [name for name, _ in harness.state_entries() if not name.startswith(b"M")]
    assert left == []


class GapOfValue(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return int(element[1]) + 1
