"""Map, filter, flat map, process, map_batches: values, timestamps, side outputs, errors."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.errors import ProgramError, TypeMismatchError, UserFunctionError
from millstream.functions.functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ProcessFunction,
    RuntimeContext,
)
from millstream.runtime.operators import (
    FilterFactory,
    FlatMapFactory,
    MapBatchesFactory,
    MapFactory,
    ProcessFactory,
)
from millstream.testing.harness import OperatorHarness
from millstream.types.output_tag import OutputTag
from millstream.types.types import Types

ROW = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.LONG()])
LATE = OutputTag("late")


class Scaled(MapFunction):
    """Multiplies by a factor that only ``open`` sets."""

    factor = 0
    closed = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        assert runtime_context.get_index_of_this_subtask() == 0
        self.factor = 10
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def map(self, value: Any) -> Any:
        self.seen.inc()
        return value * self.factor


def test_map_keeps_order_and_timestamps() -> None:
    harness = OperatorHarness(MapFactory(lambda v: v + 1))
    harness.process_all([1, 2, 3], [10, 20, 30])
    harness.process(5)
    assert harness.records == [(2, 10), (3, 20), (4, 30), (6, MIN_TIMESTAMP)]


def test_map_function_is_opened_once_per_instance_and_counts() -> None:
    harness = OperatorHarness(MapFactory(Scaled()))
    harness.process_all([1, 2], [0, 0])
    harness.end_epoch()
    harness.process(3, 0)
    harness.end_epoch()
    assert harness.outputs == [10, 20, 30]
    assert harness.metrics["seen"] == 3
    assert harness.metrics["numRecordsIn"] == harness.metrics["numRecordsOut"] == 3


def test_map_error_names_operator_line_and_record() -> None:
    harness = OperatorHarness(MapFactory(lambda v: 1 // v), name="divide")
    with pytest.raises(UserFunctionError) as caught:
        harness.process_all([3, 2, 0, 1])
    text = str(caught.value)
    assert "'divide'" in text
    assert "(test)" in text
    assert "record 0" in text
    assert "ZeroDivisionError" in text
    assert "test_simple_operators.py:" in text
    assert "1 // v" in text
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_long_record_is_cut_in_the_error() -> None:
    harness = OperatorHarness(MapFactory(lambda v: v.missing))
    with pytest.raises(UserFunctionError) as caught:
        harness.process("x" * 5000)
    assert len(str(caught.value)) < 1000


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(ProgramError, match="no method map"):
        OperatorHarness(MapFactory(3))


class Even(FilterFunction):
    """Keeps even numbers."""

    def filter(self, value: Any) -> bool:
        return bool(value % 2 == 0)


@pytest.mark.parametrize("columnar", [False, True])
def test_filter(columnar: bool) -> None:
    harness = OperatorHarness(FilterFactory(Even()), input_type=Types.LONG())
    harness.process_all([1, 2, 3, 4], [5, 6, 7, 8], columnar=columnar)
    harness.process_all([1, 3], [9, 9], columnar=columnar)
    harness.process_all([6, 8], columnar=columnar)
    assert harness.records == [(2, 6), (4, 8), (6, MIN_TIMESTAMP), (8, MIN_TIMESTAMP)]
    assert all(batch.is_columnar for batch in harness.batches)
    assert harness.batches[0].arrow.column(0).to_pylist() == [2, 4]


def test_filter_takes_any_truth_value_and_locates_errors() -> None:
    harness = OperatorHarness(FilterFactory(lambda v: v["a"]))
    harness.process_all([{"a": 0}, {"a": [1]}, {"a": ""}])
    assert harness.outputs == [{"a": [1]}]
    with pytest.raises(UserFunctionError, match=r"record \{'b': 1\}"):
        harness.process_all([{"a": 0}, {"b": 1}, {"a": 0}])


class Words(FlatMapFunction):
    """Yields words."""

    def flat_map(self, value: Any) -> Any:
        yield from value.split()


@pytest.mark.parametrize("function", [Words(), lambda v: v.split(), lambda v: v.split() or None])
def test_flat_map(function: Any) -> None:
    harness = OperatorHarness(FlatMapFactory(function))
    harness.process_all(["a b", "", "c"], [1, 2, 3])
    harness.process_all(["d e"])
    assert harness.records == [
        ("a", 1), ("b", 1), ("c", 3), ("d", MIN_TIMESTAMP), ("e", MIN_TIMESTAMP)
    ]  # fmt: skip
    with pytest.raises(UserFunctionError, match="record 7"):
        harness.process_all(["a", 7], [1, 1])


class Route(ProcessFunction):
    """Odd numbers go to the side, with the time seen."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        if value % 2:
            yield LATE, (value, ctx.timestamp())
        else:
            yield value
            yield ctx.timer_service().current_watermark()


def test_process_function_with_side_output_time_and_generator() -> None:
    harness = OperatorHarness(ProcessFactory(Route()))
    harness.process_all([1, 2], [10, 20])
    harness.watermark(15)
    harness.process_all([4], [30])
    assert harness.records == [(2, 20), (MIN_TIMESTAMP, 20), (4, 30), (15, 30)]
    assert harness.side_records == {"late": [((1, 10), 10)]}
    assert harness.events[2] == ("watermark", 15)


def test_process_function_may_return_list_or_none() -> None:
    harness = OperatorHarness(ProcessFactory(lambda v, _ctx: [v, (LATE, v)] if v else None))
    harness.process_all([0, 1, 2], [0, 1, 2])
    assert harness.records == [(1, 1), (2, 2)]
    assert harness.side_outputs("late") == [1, 2]


def test_timers_need_a_keyed_stream() -> None:
    def function(_value: Any, ctx: ProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(5)

    harness = OperatorHarness(ProcessFactory(function))
    with pytest.raises(ProgramError, match="key_by"):
        harness.process(1)


def test_map_batches_typed_and_untyped() -> None:
    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        value = pc.multiply(batch.column("v"), 2)
        return pa.RecordBatch.from_arrays([batch.column("k"), value], ["k", "v"])

    for output in (ROW, None):
        harness = OperatorHarness(MapBatchesFactory(doubled), input_type=ROW, output_type=output)
        harness.process_all([("a", 1), ("b", 2)], [5, 6])
        assert [(tuple(v), t) for v, t in harness.records] == [(("a", 2), 5), (("b", 4), 6)]  # type: ignore[arg-type]


def test_map_batches_with_other_length() -> None:
    factory = MapBatchesFactory(lambda b: b.slice(0, 1))
    harness = OperatorHarness(factory, input_type=ROW, output_type=ROW)
    harness.process_all([("a", 1), ("b", 2)], [5, 6])
    assert harness.records[0][1] == MIN_TIMESTAMP
    factory = MapBatchesFactory(lambda b: [None, (b.slice(1, 1), [7])][1:])
    harness = OperatorHarness(factory, input_type=ROW, output_type=ROW)
    harness.process_all([("a", 1), ("b", 2)], [5, 6])
    assert harness.records[0][1] == 7
    harness = OperatorHarness(MapBatchesFactory(lambda _b: None), input_type=ROW)
    harness.process_all([("a", 1)])
    assert harness.records == []


def test_map_batches_refuses_other_things() -> None:
    harness = OperatorHarness(MapBatchesFactory(lambda _b: [3]), input_type=ROW)
    with pytest.raises(TypeMismatchError, match="RecordBatch"):
        harness.process(("a", 1))
    harness = OperatorHarness(
        MapBatchesFactory(lambda b: b.select(["k"])), input_type=ROW, output_type=ROW
    )
    with pytest.raises(TypeMismatchError, match="output_type"):
        harness.process(("a", 1))
