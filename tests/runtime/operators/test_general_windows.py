"""The general window operator: the situations of Flink's own operator tests."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runtime.operators.general_windows import (
    LATE,
    Adding,
    Collecting,
    Pairing,
    Session,
    assert_empty,
    harness_of,
)

from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTrigger,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    PurgingTrigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.errors import ProgramError
from millstream.functions.descriptors import (
    ValueStateDescriptor,
)
from millstream.functions.functions import (
    ProcessWindowFunction,
)
from millstream.runtime.columnar.aggregates import Count, Last, Sum
from millstream.runtime.operators import (
    AggregateSpec,
    ApplySpec,
    BuiltInSpec,
    ProcessSpec,
    ReduceSpec,
    WindowFactory,
)
from millstream.runtime.operators.windows import contents, generic
from millstream.state import keyed
from millstream.state.keyed import KeyedState
from millstream.testing.harness import OperatorHarness

SPECS = {
    "reduce": lambda: ReduceSpec(Adding(), Session()),
    "aggregate": lambda: AggregateSpec(Pairing(), Session()),
    "apply": lambda: ApplySpec(Session()),
}


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


def test_built_in_aggregates_run_in_any_window() -> None:
    aggregates = {"n": Count(), "total": Sum(1), "last": Last(1)}
    harness = harness_of(
        EventTimeSessionWindows.with_gap(10), BuiltInSpec(aggregates), lateness=100
    )
    harness.process_all([("a", 1), ("a", 2), ("b", 5)], [0, 15, 3])
    harness.end_epoch()
    harness.watermark(50)
    harness.process(("a", 4), 8)
    records: list[Any] = harness.records
    assert [(tuple(row), time) for row, time in records] == [
        (("a", 0, 10, 1, 1, 1), 9),
        (("b", 3, 13, 1, 5, 5), 12),
        (("a", 15, 25, 1, 2, 2), 24),
        (("a", 0, 25, 3, 7, 2), 24),
    ]


def test_built_in_aggregates_with_trigger_and_evictor() -> None:
    harness = harness_of(
        GlobalWindows.create(),
        BuiltInSpec({"total": Sum(1)}),
        trigger=DeltaTrigger.of(2, lambda old, new: new[1] - old[1]),
        evictor=CountEvictor.of(2),
    )
    for value in (1, 2, 4, 5, 7):
        harness.process(("a", value))
    rows: list[Any] = harness.outputs
    assert [tuple(row) for row in rows] == [("a", None, None, 6), ("a", None, None, 12)]


def test_purging_trigger_with_lateness_fires_late_elements_alone() -> None:
    harness = harness_of(
        TumblingEventTimeWindows.of(10),
        ReduceSpec(Adding()),
        trigger=PurgingTrigger.of(EventTimeTrigger.create()),
        lateness=20,
        late=LATE,
    )
    harness.process_all([("a", 1), ("a", 2)], [1, 2])
    harness.watermark(9)
    harness.process(("a", 4), 3)
    harness.end_epoch()
    harness.process(("a", 8), 4)
    harness.watermark(29)
    harness.process(("a", 16), 5)
    assert harness.outputs == [("a", 3), ("a", 4), ("a", 8)]
    assert harness.side_outputs("late") == [("a", 16)]
    harness.end_epoch()
    assert_empty(harness)


def test_purging_session_that_fired_keeps_nothing_when_it_grows() -> None:
    harness = harness_of(
        EventTimeSessionWindows.with_gap(10),
        ApplySpec(Session()),
        trigger=PurgingTrigger.of(EventTimeTrigger.create()),
        lateness=100,
    )
    harness.process_all([("a", 1), ("a", 2)], [0, 15])
    harness.watermark(40)
    harness.end_epoch()
    harness.process(("a", 4), 9)
    assert harness.outputs[2:] == [("a-4", 0, 25)]
    harness.process(("a", 8), 24)
    assert harness.outputs[3:] == [("a-8", 0, 34)]
    harness.watermark(133)
    harness.end_epoch()
    assert_empty(harness)


def test_session_late_by_itself_is_not_late_if_it_joins_one_in_flight() -> None:
    harness = harness_of(EventTimeSessionWindows.with_gap(10), ReduceSpec(Adding()), late=LATE)
    harness.process(("a", 1), 20)
    harness.watermark(25)
    harness.process(("a", 2), 12)
    harness.process(("a", 4), 1)
    harness.process(("b", 8), 12)
    harness.watermark(29)
    assert harness.records == [(("a", 3), 29)]
    assert harness.side_records["late"] == [(("a", 4), 1), (("b", 8), 12)]


def test_late_records_are_counted_without_a_side_output() -> None:
    harness = harness_of(EventTimeSessionWindows.with_gap(10), ReduceSpec(Adding()))
    harness.watermark(100)
    harness.process_all([("a", 1), ("a", 1), ("a", 1)], [90, 91, 92])
    harness.end_epoch()
    assert harness.metrics["numLateRecordsDropped"] == 2


@pytest.mark.parametrize("batch_mode", [False, True])
def test_processing_time_windows_at_the_end_of_the_input(batch_mode: bool) -> None:
    harness = harness_of(
        TumblingProcessingTimeWindows.of(10), ReduceSpec(Adding()), batch_mode=batch_mode
    )
    harness.processing_time(100)
    harness.process_all([("a", 1), ("a", 2)])
    harness.processing_time(109)
    assert harness.records == ([] if batch_mode else [(("a", 3), 109)])
    harness.process(("a", 4))
    harness.finish()
    # Neither has the window fired nor what was left at the end been dropped.
    assert harness.outputs == ([("a", 7)] if batch_mode else [("a", 3)])


def test_endless_trigger_ends_with_the_input() -> None:
    for trigger in (ContinuousEventTimeTrigger.of(10), ContinuousProcessingTimeTrigger.of(10)):
        harness = harness_of(
            GlobalWindows.create(), ReduceSpec(Adding()), trigger=trigger, batch_mode=True
        )
        harness.process(("a", 1), 5)
        harness.finish()
        assert set(harness.outputs) == {("a", 1)}
        assert len(harness.outputs) <= 2


def test_count_windows_fire_full_only_and_leave_only_the_count() -> None:
    harness = harness_of(CountSlidingWindowAssigner.of(3, 2), AggregateSpec(Collecting()))
    for number in range(8):
        harness.process(("a", number))
        harness.end_epoch()
    assert harness.outputs == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    assert {time for _, time in harness.records} == {MAX_TIMESTAMP}


def test_results_do_not_change_after_they_were_emitted() -> None:
    harness = harness_of(
        GlobalWindows.create(), AggregateSpec(Collecting()), trigger=CountTrigger.of(1)
    )
    harness.process_all([("a", 1), ("a", 2), ("a", 3)])
    assert harness.outputs == [[1], [1, 2], [1, 2, 3]]


def test_window_state_is_refused_where_windows_merge() -> None:
    class Keeping(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            context.window_state().get_state(ValueStateDescriptor("state"))
            yield key

    harness = harness_of(EventTimeSessionWindows.with_gap(10), ProcessSpec(Keeping()))
    harness.process(("a", 1), 0)
    with pytest.raises(ProgramError, match="per-window state is not allowed"):
        harness.watermark(9)


def test_large_windows_are_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_CHUNK", 7)
    monkeypatch.setattr(contents, "_MOST_LISTED", 20)
    monkeypatch.setattr(contents, "_MOST_MOVED", 5)
    monkeypatch.setattr(generic, "MOST_IN_MEMORY", 30)

    class Twice(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            assert not isinstance(elements, list)
            yield len(elements), [value for _, value in elements] == [v for _, v in elements]
            yield [value for _, value in elements]

    harness = harness_of(EventTimeSessionWindows.with_gap(50), ProcessSpec(Twice()))
    for start in (0, 100, 200):  # three sessions, of 90 elements each, that then become one
        for step in range(30):
            harness.process_all([("a", start + step + n) for n in range(3)], [start + step] * 3)
    harness.process_all([("a", -1), ("a", -2)], [75, 175])
    harness.process(("a", -3), 229)
    harness.watermark(1000)
    size_and_same, values = harness.outputs
    assert size_and_same == (273, True)
    assert isinstance(values, list)
    expected = [start + step + n for start in (0, 100, 200) for step in range(30) for n in range(3)]
    assert sorted(values) == sorted([*expected, -1, -2, -3])
    assert values[-1] == -3
    harness.end_epoch()
    assert_empty(harness)


@pytest.mark.parametrize("engine", ["long-lived"], indirect=True)
def test_accumulators_that_stay_are_not_written_behind_every_batch(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine == "long-lived"
    monkeypatch.setattr(OperatorHarness, "managed_memory", 64 << 20)
    monkeypatch.setattr(keyed, "MOST_UNWRITTEN", 1_000_000)
    monkeypatch.setattr(generic, "MOST_IN_MEMORY", 50)
    gap = EventTimeSessionWindows(1000)
    factory = WindowFactory(gap, ReduceSpec(lambda a, b: a), lambda value: value, 10)
    harness = OperatorHarness(factory)
    flushes: list[int] = []
    harness.process_all(range(100), [5] * 100)
    harness.end_epoch()
    flush = KeyedState.flush

    def counted(state: KeyedState) -> None:
        flushes.append(1)
        flush(state)

    monkeypatch.setattr(KeyedState, "flush", counted)
    for _ in range(3):
        harness.process_all(range(100), [6] * 100)
    assert not flushes
