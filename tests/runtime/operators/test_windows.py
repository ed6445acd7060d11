"""Windows: Flink's rules one by one, and against plain Python over the whole input.

The model ``Model`` follows the text of Flink's window operator record by record; the operators
work on batches.  They must agree for any order of records, any watermarks, and any cut into
epochs, with the instance swapped at the cut.
"""

from __future__ import annotations

from collections import Counter as Bag
from typing import Any

import pytest

from millstream.errors import ConfigurationError, ProgramError, UserFunctionError
from millstream.functions.descriptors import ListStateDescriptor, ValueStateDescriptor
from millstream.functions.functions import (
    AggregateFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from millstream.functions.window import TimeWindow
from millstream.functions.window_assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from millstream.runtime.columnar.aggregates import Avg, Count, Max, Min, Sum
from millstream.runtime.operators import (
    AggregateSpec,
    ApplySpec,
    BuiltInSpec,
    ProcessSpec,
    ReduceSpec,
    WindowFactory,
)
from millstream.testing.harness import OperatorHarness
from millstream.types.output_tag import OutputTag
from millstream.types.row import Row
from millstream.types.types import Types

LATE = OutputTag("late")
RECORD = Types.TUPLE([Types.LONG(), Types.LONG()])


def key_of(record: Any) -> Any:
    return record[0]


class SumAndCount(AggregateFunction):
    """Accumulates into a list, in place."""

    def create_accumulator(self) -> Any:
        return [0, 0]

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator[0] += value[1]
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return tuple(accumulator)


class Adding(ReduceFunction):
    """Adds values."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], value1[1] + value2[1]


class Listing(WindowFunction[Any, Any, Any, TimeWindow]):
    """Emits the elements."""

    def apply(self, key: Any, window: TimeWindow, inputs: Any) -> Any:
        return [(key, window.start, window.end, list(inputs))]


class Telling(ProcessWindowFunction[Any, Any, Any, TimeWindow]):
    """Emits the elements and counts firings per window and per key in state."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        fired = context.window_state().get_state(ValueStateDescriptor("fired"))
        total = context.global_state().get_list_state(ListStateDescriptor("total"))
        fired.update((fired.value() or 0) + 1)
        total.add(window.end)
        yield key, window.start, window.end, list(elements), fired.value()
        yield LATE, (key, context.current_watermark())

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("fired")).clear()


def window_harness(
    assigner: Any, spec: Any, lateness: int = 0, late: OutputTag | None = None, **options: Any
) -> OperatorHarness:
    factory = WindowFactory(assigner, spec, key_of, lateness, late)
    return OperatorHarness(factory, input_type=RECORD, **options)


def plain(records: list[Any]) -> list[Any]:
    """Rows of typed streams as tuples."""
    return [(tuple(value), timestamp) for value, timestamp in records]


def test_tumbling_window_fires_when_the_watermark_reaches_its_last_millisecond() -> None:
    harness = window_harness(TumblingEventTimeWindows.of(10), AggregateSpec(SumAndCount()))
    harness.process_all([(1, 5), (2, 6), (1, 7)], [3, 4, 9])
    harness.watermark(8)
    assert harness.records == []
    harness.end_epoch()
    harness.watermark(9)
    assert sorted(harness.records) == [((6, 1), 9), ((12, 2), 9)]
    assert harness.events[-1] == ("watermark", 9)
    harness.end_epoch()
    assert list(harness.state_entries()) == []


def test_windows_fire_in_order_of_their_end() -> None:
    harness = window_harness(TumblingEventTimeWindows.of(10), ReduceSpec(Adding()))
    harness.process_all([(1, 5), (1, 6), (1, 7)], [25, 4, 15])
    harness.watermark(100)
    assert harness.records == [((1, 6), 9), ((1, 7), 19), ((1, 5), 29)]


def test_offset_and_negative_timestamps() -> None:
    harness = window_harness(TumblingEventTimeWindows.of(10, 3), ApplySpec(Listing()))
    harness.process_all([(1, 0), (1, 1), (1, 2)], [-8, 2, 3])
    harness.finish()
    assert harness.outputs == [
        (1, -17, -7, [(1, 0)]), (1, -7, 3, [(1, 1)]), (1, 3, 13, [(1, 2)])
    ]  # fmt: skip


def test_sliding_windows() -> None:
    harness = window_harness(SlidingEventTimeWindows.of(10, 5), ApplySpec(Listing()))
    harness.process_all([(1, 0), (1, 1)], [3, 7])
    harness.finish()
    assert harness.records == [
        ((1, -5, 5, [(1, 0)]), 4), ((1, 0, 10, [(1, 0), (1, 1)]), 9), ((1, 5, 15, [(1, 1)]), 14)
    ]  # fmt: skip


def test_late_records_are_counted_or_go_to_the_side() -> None:
    for late in (None, LATE):
        for spec in (ReduceSpec(Adding()), BuiltInSpec([Count()])):
            harness = window_harness(TumblingEventTimeWindows.of(10), spec, late=late)
            harness.watermark(9)
            harness.process_all([(1, 1), (1, 2), (2, 3)], [5, 10, 9])
            harness.finish()
            assert len(harness.outputs) == 1
            sides = plain(harness.side_records.get("late", []))
            assert sides == ([((1, 1), 5), ((2, 3), 9)] if late else [])
            assert harness.metrics["numLateRecordsDropped"] == (0 if late else 2)


def test_allowed_lateness_fires_again_for_every_late_record() -> None:
    assigner = TumblingEventTimeWindows.of(10)
    harness = window_harness(assigner, AggregateSpec(SumAndCount()), 5)
    harness.process((1, 1), 5)
    harness.watermark(9)
    harness.end_epoch()
    harness.process_all([(1, 10), (1, 100), (2, 7)], [6, 6, 6])
    harness.watermark(13)
    harness.process((1, 1000), 6)
    harness.watermark(14)
    harness.process((1, 5), 6)
    assert harness.records == [
        ((1, 1), 9), ((11, 2), 9), ((111, 3), 9), ((7, 1), 9), ((1111, 4), 9)
    ]  # fmt: skip
    harness.end_epoch()
    assert list(harness.state_entries()) == []
    assert harness.metrics["numLateRecordsDropped"] == 1


def test_results_do_not_change_when_the_accumulator_does() -> None:
    class Itself(SumAndCount):
        def get_result(self, accumulator: Any) -> Any:
            return accumulator

    harness = window_harness(TumblingEventTimeWindows.of(10), AggregateSpec(Itself()), 50)
    harness.process((1, 1), 5)
    harness.watermark(9)
    harness.process_all([(1, 10), (1, 100)], [6, 6])
    assert harness.outputs == [[1, 1], [11, 2], [111, 3]]


def test_window_function_over_an_aggregate() -> None:
    def tell(key: Any, window: TimeWindow, inputs: Any) -> Any:
        yield key, window.end, *inputs

    for function in (tell, Listing()):
        spec = AggregateSpec(SumAndCount(), function)
        harness = window_harness(TumblingEventTimeWindows.of(10), spec)
        harness.process_all([(1, 5), (1, 6)], [3, 4])
        harness.finish()
        expected: Any = (1, 10, (11, 2)) if function is tell else (1, 0, 10, [(11, 2)])
        assert harness.records == [(expected, 9)]


def test_process_window_function_has_state_per_window_and_per_key() -> None:
    assigner = TumblingEventTimeWindows.of(10)
    harness = window_harness(assigner, ProcessSpec(Telling()), 20)
    harness.process_all([(1, 5), (1, 6)], [3, 14])
    harness.watermark(9)
    harness.end_epoch()
    harness.process((1, 7), 4)
    harness.watermark(25)
    harness.end_epoch()
    assert harness.records == [
        ((1, 0, 10, [(1, 5)], 1), 9),
        ((1, 0, 10, [(1, 5), (1, 7)], 2), 9),
        ((1, 10, 20, [(1, 6)], 1), 19),
    ]
    assert harness.side_outputs("late") == [(1, 9), (1, 9), (1, 25)]
    harness.finish()
    left = [name for name, _ in harness.state_entries() if name[:1] in b"TC"]
    assert left == []


def test_records_without_timestamp_are_refused() -> None:
    for spec in (ReduceSpec(Adding()), BuiltInSpec([Count()])):
        harness = window_harness(TumblingEventTimeWindows.of(10), spec)
        with pytest.raises(ProgramError, match="WatermarkStrategy"):
            harness.process((1, 1))


def test_errors_name_the_record_or_the_window() -> None:
    def broken(_key: Any, window: TimeWindow, _inputs: Any) -> Any:
        raise KeyError(window.start)

    harness = window_harness(TumblingEventTimeWindows.of(10), ApplySpec(broken))
    harness.process((1, 1), 5)
    with pytest.raises(UserFunctionError, match=r"TimeWindow\(start=0, end=10\)"):
        harness.watermark(9)
    harness = window_harness(
        TumblingEventTimeWindows.of(10), ReduceSpec(lambda a, b: (a[0], a[1] // b[1]))
    )
    with pytest.raises(UserFunctionError, match=r"record \(1, 0\) \(key 1\)"):
        harness.process_all([(1, 1), (1, 2), (1, 0), (1, 3)], [1, 1, 1, 1])


def test_assigners_check_their_numbers() -> None:
    for make in (
        lambda: TumblingEventTimeWindows.of(0),
        lambda: SlidingEventTimeWindows.of(10, -1),
        lambda: TumblingEventTimeWindows.of(10, 10),
        lambda: TumblingEventTimeWindows.of("10"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError):
            make()


def test_assigner_and_batch_form_agree_on_windows() -> None:
    assigner = SlidingEventTimeWindows.of(10, 4, 1)
    assert assigner.assign_windows(None, 7) == [TimeWindow(5, 15), TimeWindow(1, 11)]


# Built-in aggregates.

ALL = {"n": Count(), "total": Sum(1), "low": Min(1), "high": Max(1), "mean": Avg(1)}


def test_built_in_output_has_key_window_and_aggregates() -> None:
    harness = window_harness(TumblingEventTimeWindows.of(10), BuiltInSpec(ALL))
    harness.process_all([(1, 5), (1, 8)], [3, 4], columnar=True)
    harness.end_epoch()
    harness.process_all([(1, 2)], [5])
    harness.watermark(9)
    (row,) = harness.outputs
    assert isinstance(row, Row)
    assert row.as_dict() == {
        "key": 1, "window_start": 0, "window_end": 10, "n": 3, "total": 15, "low": 2, "high": 8,
        "mean": 5.0,
    }  # fmt: skip
    assert harness.records[0][1] == 9
    assert harness.batches[0].is_columnar
    harness.end_epoch()
    assert list(harness.state_entries()) == []


def test_built_in_names_and_nulls() -> None:
    kind = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.DOUBLE()])
    spec = BuiltInSpec([Count(), Count("v"), Sum("v"), Avg("v")])
    factory = WindowFactory(TumblingEventTimeWindows.of(10), spec, lambda r: r.k)
    for columnar in (False, True):
        harness = OperatorHarness(factory, input_type=kind)
        rows = [Row(k="a", v=None), Row(k="a", v=1.5), Row(k="b", v=None)]
        harness.process_all(rows, [1, 2, 3], columnar=columnar)
        harness.finish()
        found = sorted(tuple(row.as_dict().items()) for row in harness.outputs)  # type: ignore[attr-defined]
        assert found == [
            (("key", "a"), ("window_start", 0), ("window_end", 10), ("count", 2), ("count_v", 1),
             ("sum_v", 1.5), ("avg_v", 1.5)),
            (("key", "b"), ("window_start", 0), ("window_end", 10), ("count", 1), ("count_v", 0),
             ("sum_v", None), ("avg_v", None)),
        ]  # fmt: skip


def test_built_in_with_keys_of_any_type() -> None:
    keys: list[Any] = [1, "1", True, 1.0, (1, "x"), [1, 2], None, 2**80, 1, "1", [1, 2]]
    harness = OperatorHarness(
        WindowFactory(TumblingEventTimeWindows.of(10), BuiltInSpec([Count()]), lambda r: r["k"])
    )
    for key in keys:
        harness.process({"k": key}, 1)
        harness.end_epoch()
    harness.process_all([{"k": key} for key in keys], [2] * len(keys))
    harness.finish()
    found = Bag((repr(row[0]), row[3]) for row in harness.outputs)  # type: ignore[index]
    expected = Bag((repr(key), 2 * keys_like(keys, key)) for key in unique(keys))
    assert found == expected


def keys_like(keys: list[Any], key: Any) -> int:
    return sum(type(other) is type(key) and other == key for other in keys)


def unique(keys: list[Any]) -> list[Any]:
    return list({repr(key): key for key in keys}.values())


def test_built_in_rejects_what_it_cannot_aggregate() -> None:
    with pytest.raises(ProgramError, match="built-in"):
        window_harness(TumblingEventTimeWindows.of(10), BuiltInSpec([3]))  # type: ignore[list-item]
    with pytest.raises(ProgramError, match="window_end"):
        window_harness(TumblingEventTimeWindows.of(10), BuiltInSpec({"window_end": Count()}))
    harness = window_harness(TumblingEventTimeWindows.of(10), BuiltInSpec([Sum("nothing")]))
    with pytest.raises(UserFunctionError, match="nothing"):
        harness.process((1, 1), 1)


def test_chunks_of_other_key_groups_are_left_out() -> None:
    """What happens at a change of parallelism: both new subtasks read all chunks."""
    factory = WindowFactory(TumblingEventTimeWindows.of(10), BuiltInSpec([Count()]), key_of)
    whole = OperatorHarness(factory, input_type=RECORD)
    whole.process_all([(key, 1) for key in range(100)], [1] * 100)
    whole.end_epoch()
    found: list[Any] = []
    for subtask in range(3):
        part = OperatorHarness(
            factory, input_type=RECORD, subtask=subtask, parallelism=3, long_lived=False
        )
        part._store.entries.update(whole.state_entries())
        part.end_epoch()
        part.finish()
        found.extend(row[0] for row in part.outputs)  # type: ignore[index]
        assert 10 < len(part.outputs) < 60
    assert sorted(found) == list(range(100))


@pytest.mark.parametrize(
    ("key_type", "key"),
    [
        (Types.PICKLED_BYTE_ARRAY(), 7),
        (Types.PICKLED_BYTE_ARRAY(), (1, "x")),
        (Types.TUPLE([Types.LONG(), Types.STRING()]), (1, "x")),
        (Types.INT(), 7),
        (Types.STRING(), "x"),
    ],
)
def test_built_in_output_of_a_declared_type(key_type: Any, key: Any) -> None:
    names = ["key", "window_start", "window_end", "n"]
    declared = Types.ROW_NAMED(names, [key_type, Types.LONG(), Types.LONG(), Types.LONG()])
    factory = WindowFactory(TumblingEventTimeWindows.of(10), BuiltInSpec({"n": Count()}), key_of)
    harness = OperatorHarness(factory, output_type=declared)
    harness.process((key, 1), 5)
    harness.finish()
    (batch,) = harness.batches
    assert batch.is_columnar
    assert batch.arrow.schema == declared.arrow_schema
    rows: list[Any] = harness.outputs
    assert [tuple(row) for row in rows] == [(key, 0, 10, 1)]


@pytest.mark.parametrize("field", [None, 0, "f0"])
def test_built_in_over_scalars(field: Any) -> None:
    factory = WindowFactory(
        TumblingEventTimeWindows.of(10), BuiltInSpec([Sum(field)]), lambda v: v % 2
    )
    for kind in (Types.LONG(), None):
        harness = OperatorHarness(factory, input_type=kind)
        harness.process_all([1, 2, 3], [1, 1, 1])
        harness.finish()
        rows: list[Any] = harness.outputs
        assert sorted(tuple(row) for row in rows) == [(0, 0, 10, 2), (1, 0, 10, 4)]
