"""Windows of random programs against a plain model: all operators, cut into epochs anywhere."""

from __future__ import annotations

from collections import Counter as Bag
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.operators.test_windows import (
    ALL,
    LATE,
    RECORD,
    Adding,
    Listing,
    SumAndCount,
    Telling,
    key_of,
    plain,
    window_harness,
)
from tests.support.examples import examples

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.functions.window_assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from millstream.runtime.columnar.aggregates import Count, Sum
from millstream.runtime.operators import (
    AggregateSpec,
    ApplySpec,
    BuiltInSpec,
    CombinerFactory,
    ProcessSpec,
    ReduceSpec,
)
from millstream.testing.harness import OperatorHarness

if TYPE_CHECKING:
    from millstream.functions.window import TimeWindow

ITEMS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.integers(0, 3), st.integers(0, 60)),
        st.tuples(st.just("record"), st.integers(0, 3), st.integers(0, 60)),
        st.tuples(st.just("watermark"), st.integers(0, 80), st.just(0)),
        st.tuples(st.just("cut"), st.booleans(), st.just(0)),
    ),
    max_size=50,
)
ASSIGNERS = st.sampled_from(
    [
        TumblingEventTimeWindows.of(10),
        TumblingEventTimeWindows.of(7, 3),
        SlidingEventTimeWindows.of(10, 5),
        SlidingEventTimeWindows.of(10, 4, 1),
        SlidingEventTimeWindows.of(12, 3, -2),
        SlidingEventTimeWindows.of(5, 8),
    ]
)
LATENESS = st.sampled_from([0, 0, 6, 30])


def run(harness: OperatorHarness, items: list[tuple[str, Any, int]]) -> OperatorHarness:
    """Feed a program; the value of a record is its position, its timestamp the third number."""
    pending: list[tuple[Any, int]] = []

    def send() -> None:
        if pending:
            values = [record for record, _ in pending]
            columnar = len(pending) % 2 == 0
            harness.process_all(values, [time for _, time in pending], columnar=columnar)
            pending.clear()

    for position, (what, first, second) in enumerate(items):
        if what == "record":
            pending.append(((first, position), second))
            continue
        send()
        if what == "watermark":
            harness.watermark(first)
        else:
            harness.end_epoch(swap=first)
    send()
    harness.finish()
    return harness


class Model:
    """Flink's window operator over one list of elements per key and window, record by record."""

    def __init__(self, assigner: Any, lateness: int) -> None:
        self.assigner = assigner
        self.lateness = lateness
        self.watermark = MIN_TIMESTAMP
        self.windows: dict[tuple[TimeWindow, Any], list[Any]] = {}
        #: (window, key, elements) at each firing.
        self.fired: list[tuple[TimeWindow, Any, list[Any]]] = []
        self.late: list[Any] = []

    def run(self, items: list[tuple[str, Any, int]]) -> Model:
        for position, (what, first, second) in enumerate(items):
            if what == "record":
                self.add(first, (first, position), second)
            elif what == "watermark":
                self.advance(first)
        self.advance(MAX_TIMESTAMP)
        return self

    def add(self, key: Any, value: Any, timestamp: int) -> None:
        skipped = True
        for window in self.assigner.assign_windows(value, timestamp):
            if window.max_timestamp() + self.lateness <= self.watermark:
                continue
            skipped = False
            self.windows.setdefault((window, key), []).append(value)
            if window.max_timestamp() <= self.watermark:
                self.fire(window, key)
        if skipped and timestamp + self.lateness <= self.watermark:
            self.late.append((value, timestamp))

    def fire(self, window: TimeWindow, key: Any) -> None:
        self.fired.append((window, key, list(self.windows[window, key])))

    def advance(self, watermark: int) -> None:
        if watermark <= self.watermark:
            return
        before, self.watermark = self.watermark, watermark
        for window, key in sorted(self.windows, key=lambda entry: entry[0].end):
            if before < window.max_timestamp() <= watermark:
                self.fire(window, key)
            if window.max_timestamp() + self.lateness <= watermark:
                del self.windows[window, key]


def total_and_count(elements: list[Any]) -> tuple[int, int]:
    return sum(value for _, value in elements), len(elements)


def bag(values: Any) -> Bag[str]:
    return Bag(map(repr, values))


@given(ITEMS, ASSIGNERS, LATENESS, st.booleans())
@examples(120)
def test_oracle_aggregate(items: Any, assigner: Any, lateness: int, tagged: bool) -> None:
    model = Model(assigner, lateness).run(items)
    spec = AggregateSpec(SumAndCount())
    harness = run(window_harness(assigner, spec, lateness, LATE if tagged else None), items)
    expected = [(total_and_count(e), w.max_timestamp()) for w, _, e in model.fired]
    assert bag(harness.records) == bag(expected)
    late = plain(harness.side_records.get("late", []))
    assert late == (model.late if tagged else [])
    assert harness.metrics["numLateRecordsDropped"] == (0 if tagged else len(model.late))


@given(ITEMS, ASSIGNERS, LATENESS)
@examples(80)
def test_oracle_reduce(items: Any, assigner: Any, lateness: int) -> None:
    model = Model(assigner, lateness).run(items)
    harness = run(window_harness(assigner, ReduceSpec(Adding()), lateness), items)
    expected = [((k, total_and_count(e)[0]), w.max_timestamp()) for w, k, e in model.fired]
    assert bag(plain(harness.records)) == bag(expected)


@given(ITEMS, ASSIGNERS, LATENESS)
@examples(80)
def test_oracle_apply(items: Any, assigner: Any, lateness: int) -> None:
    model = Model(assigner, lateness).run(items)
    harness = run(window_harness(assigner, ApplySpec(Listing()), lateness), items)
    expected = [((k, w.start, w.end, e), w.max_timestamp()) for w, k, e in model.fired]
    assert bag(harness.records) == bag(expected)


@given(ITEMS, ASSIGNERS, LATENESS)
@examples(80)
def test_oracle_process(items: Any, assigner: Any, lateness: int) -> None:
    model = Model(assigner, lateness).run(items)
    harness = run(window_harness(assigner, ProcessSpec(Telling()), lateness), items)
    numbers: Bag[tuple[TimeWindow, Any]] = Bag()
    expected = []
    for window, key, elements in model.fired:
        numbers[window, key] += 1
        value = (key, window.start, window.end, elements, numbers[window, key])
        expected.append((value, window.max_timestamp()))
    assert bag(harness.records) == bag(expected)


def final_values(rows: Any) -> dict[tuple[Any, int], Any]:
    """The last result per key and window, plain."""
    return {(row[0], row[1]): tuple(row[3:]) for row in rows}


def built_in_model(model: Model) -> dict[tuple[Any, int], Any]:
    last: dict[tuple[Any, int], Any] = {}
    for window, key, elements in model.fired:
        values = [value for _, value in elements]
        last[key, window.start] = (
            len(values), sum(values), min(values), max(values), sum(values) / len(values)
        )  # fmt: skip
    return last


@given(ITEMS, ASSIGNERS, LATENESS)
@examples(150)
def test_oracle_built_in(items: Any, assigner: Any, lateness: int) -> None:
    model = Model(assigner, lateness).run(items)
    harness = run(window_harness(assigner, BuiltInSpec(ALL), lateness), items)
    assert final_values(harness.outputs) == built_in_model(model)
    if not lateness:
        assert len(harness.outputs) == len(model.fired)
    if assigner.slide <= assigner.size:
        assert harness.metrics["numLateRecordsDropped"] == len(model.late)
    assert all(time == row[2] - 1 for row, time in harness.records)  # type: ignore[index]


@given(ITEMS, ASSIGNERS, LATENESS)
@examples(80)
def test_agree_built_in_and_user_written(items: Any, assigner: Any, lateness: int) -> None:
    def tell(key: Any, window: TimeWindow, inputs: Any) -> Any:
        (total, count) = next(iter(inputs))
        yield key, window.start, window.end, count, total

    user = run(window_harness(assigner, AggregateSpec(SumAndCount(), tell), lateness), items)
    built_in = run(window_harness(assigner, BuiltInSpec([Count(), Sum(1)]), lateness), items)
    assert final_values(user.outputs) == final_values(built_in.outputs)


def run_combined(
    items: list[tuple[str, Any, int]], assigner: Any, lateness: int
) -> tuple[OperatorHarness, OperatorHarness]:
    """A combiner in front of a window operator, cut into epochs together."""
    combiner = OperatorHarness(CombinerFactory(assigner, ALL, key_of), input_type=RECORD)
    window = window_harness(assigner, BuiltInSpec(ALL), lateness)
    passed = 0

    def pass_on() -> None:
        nonlocal passed
        for batch in combiner.batches[passed:]:
            window.process_batch(batch)
        passed = len(combiner.batches)

    for position, (what, first, second) in enumerate(items):
        if what == "record":
            combiner.process_all([(first, position)], [second], columnar=position % 2 == 0)
            pass_on()
        elif what == "watermark":
            combiner.watermark(first)
            pass_on()
            window.watermark(first)
        else:
            combiner.end_epoch(swap=first)
            pass_on()
            window.end_epoch(swap=first)
    combiner.finish()
    pass_on()
    window.finish()
    return combiner, window


@given(ITEMS, ASSIGNERS, LATENESS)
@examples(120)
def test_oracle_combined(items: Any, assigner: Any, lateness: int) -> None:
    model = Model(assigner, lateness).run(items)
    _, window = run_combined(items, assigner, lateness)
    assert final_values(window.outputs) == built_in_model(model)
    if not lateness:
        assert len(window.outputs) == len(model.fired)
    if assigner.slide <= assigner.size:
        assert window.metrics["numLateRecordsDropped"] == len(model.late)


def test_combiner_gathers_until_a_window_fires() -> None:
    combiner = OperatorHarness(
        CombinerFactory(TumblingEventTimeWindows.of(10), ALL, key_of), input_type=RECORD
    )
    for time in range(9):
        combiner.process((1, time), time)
        combiner.watermark(time)
    assert combiner.records == []
    combiner.watermark(9)
    assert len(combiner.records) == 1
    assert combiner.events[-1] == ("watermark", 9)
    combiner.process((1, 1), 12)
    combiner.end_epoch()
    assert len(combiner.records) == 2
