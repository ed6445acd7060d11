"""Every built-in aggregate against plain Python: tumbling, sliding and session windows.

The programs of records, watermarks and cuts are those of ``test_windows.py``; the records have
nulls, strings and filters.
"""

from __future__ import annotations

import math
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.operators.test_window_oracles import ASSIGNERS, ITEMS, LATENESS, Model
from tests.support.examples import examples

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from millstream.datastream.windowed_stream import built_in_output_type
from millstream.errors import ProgramError, UserFunctionError
from millstream.functions.window_assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.runtime.columnar.aggregates import (
    Avg,
    BuiltInAggregate,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Min,
    Quantile,
    Quantiles,
    Sum,
)
from millstream.runtime.columnar.row_aggregates import RowAggregates
from millstream.runtime.operators import BuiltInSpec, CombinerFactory, WindowFactory
from millstream.state.key_codec import key_group, key_group_range, subtask_of
from millstream.state.rescale import copy_key_groups
from millstream.testing.harness import OperatorHarness
from millstream.testing.memory_store import MemoryStore
from millstream.types.row import Row
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD = Types.ROW_NAMED(
    ["k", "v", "s", "x"], [Types.LONG(), Types.LONG(), Types.STRING(), Types.DOUBLE()]
)
TEN = TumblingEventTimeWindows.of(10)


def key_of(record: Any) -> Any:
    return record.k


def is_odd(batch: pa.RecordBatch) -> Any:
    return np.array([v is not None and v % 2 == 1 for v in batch.column("v").to_pylist()])


def odd(record: Any) -> bool:
    return record.v is not None and record.v % 2 == 1


BIG = pc.field("v") > 5
AGGREGATES: dict[str, BuiltInAggregate] = {
    "n": Count(),
    "n_big": Count(where=BIG),
    "n_v": Count("v"),
    "total": Sum("v"),
    "total_odd": Sum("v", where=is_odd),
    "low": Min("v"),
    "high_big": Max("v").filter(BIG),
    "mean_big": Avg("v", where=BIG),
    "low_s": Min("s"),
    "high_x": Max("x"),
    "first": First("s"),
    "last_big": Last("s", where=BIG),
    "distinct": CountDistinct("v"),
    "distinct_s": CountDistinct("s", where=BIG),
    "all": Collect("v"),
    "all_s": Collect("s", where=is_odd),
    "median": Quantile("v"),
    "ends": Quantiles("x", ranks=[0, 0.3, 1]),
}


def record_of(key: int, position: int) -> Row:
    number = position * 7 % 11
    value = None if position % 5 == 0 else number
    text = None if position % 7 == 3 else "abcde"[number % 5]
    return Row(k=key, v=value, s=text, x=number / 4 - 1)


def rank(numbers: list[float], share: float) -> float:
    return sorted(numbers)[max(math.ceil(share * len(numbers)) - 1, 0)]


def expected_of(elements: list[tuple[Row, int]]) -> dict[str, Any]:
    """The answer, from (record, timestamp) in order of arrival."""

    def values(field: str, which: Callable[[Any], bool] = lambda _: True) -> list[Any]:
        found = [(t, record[field]) for record, t in elements if which(record)]
        return [value for _, value in sorted(found, key=lambda e: e[0]) if value is not None]

    def big(record: Any) -> bool:
        return record.v is not None and record.v > 5

    v, v_big, x = values("v"), values("v", big), values("x")
    return {
        "n": len(elements),
        "n_big": sum(big(record) for record, _ in elements),
        "n_v": len(v),
        "total": sum(v) if v else None,
        "total_odd": sum(values("v", odd)) if values("v", odd) else None,
        "low": min(v, default=None),
        "high_big": max(v_big, default=None),
        "mean_big": sum(v_big) / len(v_big) if v_big else None,
        "low_s": min(values("s"), default=None),
        "high_x": max(x),
        "first": next(iter(values("s")), None),
        "last_big": next(reversed(values("s", big)), None),
        "distinct": len(set(v)),
        "distinct_s": len(set(values("s", big))),
        "all": v,
        "all_s": values("s", odd),
        "median": rank(v, 0.5) if v else None,
        "ends": [rank(x, share) for share in (0, 0.3, 1)],
    }


class Feed:
    """Runs a program on a window operator, or on a combiner in front of it."""

    def __init__(
        self, assigner: Any, lateness: int, *, combined: bool = False, late: str | None = None
    ) -> None:
        output = built_in_output_type(RECORD, Types.LONG(), AGGREGATES)
        factory = WindowFactory(assigner, BuiltInSpec(AGGREGATES), key_of, lateness, late)
        self.window = OperatorHarness(factory, input_type=RECORD, output_type=output)
        self.combiner = None
        if combined:
            made = CombinerFactory(assigner, AGGREGATES, key_of)
            self.combiner = OperatorHarness(made, input_type=RECORD)
        self._passed = 0

    def run(self, items: list[tuple[str, Any, int]]) -> OperatorHarness:
        pending: list[tuple[Row, int]] = []
        for position, (what, first, second) in enumerate(items):
            if what == "record":
                pending.append((record_of(first, position), second))
                continue
            self.send(pending)
            if what == "watermark":
                self.watermark(first)
            else:
                self.cut(swap=first)
        self.send(pending)
        self.watermark(MAX_TIMESTAMP)
        self.window.end_epoch(final=True)
        return self.window

    def send(self, pending: list[tuple[Row, int]]) -> None:
        if pending:
            target = self.combiner or self.window
            target.process_all([r for r, _ in pending], [t for _, t in pending], columnar=True)
            pending.clear()

    def watermark(self, time: int) -> None:
        if self.combiner is not None:
            self.combiner.watermark(time)
            self.pass_on()
        self.window.watermark(time)

    def cut(self, *, swap: bool) -> None:
        if self.combiner is not None:
            self.combiner.end_epoch(swap=swap)
            self.pass_on()
        self.window.end_epoch(swap=swap)

    def pass_on(self) -> None:
        """Several flushes in one batch, as the exchange may put them."""
        if self.combiner is not None and len(self.combiner.batches) > self._passed:
            flushes = self.combiner.batches[self._passed :]
            table = pa.Table.from_batches([batch.arrow for batch in flushes]).combine_chunks()
            self.window.process_batch(Batch(flushes[0].type_info, arrow=table.to_batches()[0]))
            self._passed = len(self.combiner.batches)


def model_of(assigner: Any, lateness: int, items: Any) -> dict[tuple[int, int], dict[str, Any]]:
    model = Model(assigner, lateness).run(items)
    times = {position: item[2] for position, item in enumerate(items)}
    last: dict[tuple[int, int], dict[str, Any]] = {}
    for window, key, elements in model.fired:
        records = [(record_of(key, position), times[position]) for _, position in elements]
        last[key, window.start] = expected_of(records)
    return last


def results(harness: OperatorHarness) -> dict[tuple[int, int], dict[str, Any]]:
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for row in harness.outputs:
        fields = row.as_dict()  # type: ignore[attr-defined]
        found[fields.pop("key"), fields.pop("window_start")] = fields
        del fields["window_end"]
    return found


@given(ITEMS, ASSIGNERS, LATENESS, st.booleans())
@examples(30)
def test_oracle_all_aggregates(items: Any, assigner: Any, lateness: int, combined: bool) -> None:
    combined = combined and assigner.slide <= assigner.size
    found = results(Feed(assigner, lateness, combined=combined).run(items))
    assert found == model_of(assigner, lateness, items)


def plain(late: tuple[Any, int]) -> str:
    return repr((sorted(late[0].as_dict().items()), late[1]))


class SessionModel:
    """Flink's merging windows record by record: ``[start, end, elements]`` per key."""

    def __init__(self, gap: int, lateness: int) -> None:
        self.gap = gap
        self.lateness = lateness
        self.watermark = MIN_TIMESTAMP
        self.open: dict[int, list[tuple[int, int, list[tuple[Row, int]]]]] = {}
        #: (key, start, end) -> elements at each firing.
        self.fired: dict[tuple[int, int, int], list[list[tuple[Row, int]]]] = {}
        self.firings = 0
        self.late: list[tuple[Row, int]] = []

    def run(self, items: list[tuple[str, Any, int]]) -> SessionModel:
        for position, (what, first, second) in enumerate(items):
            if what == "record":
                self.add(first, record_of(first, position), second)
            elif what == "watermark":
                self.advance(first)
        self.advance(MAX_TIMESTAMP)
        return self

    def add(self, key: int, record: Row, time: int) -> None:
        start, end, elements = time, time + self.gap, [(record, time)]
        rest = []
        for other in self.open.setdefault(key, []):
            if other[0] <= end and other[1] >= start:
                start, end = min(start, other[0]), max(end, other[1])
                elements = other[2] + elements
            else:
                rest.append(other)
        if end - 1 + self.lateness <= self.watermark:
            assert len(rest) == len(self.open[key]), "an open session is not late"
            self.late.append((record, time))
            return
        self.open[key] = [*rest, (start, end, elements)]
        if end - 1 <= self.watermark:
            self.fire(key, start, end, elements)

    def fire(self, key: int, start: int, end: int, elements: list[tuple[Row, int]]) -> None:
        self.fired.setdefault((key, start, end), []).append(list(elements))
        self.firings += 1

    def advance(self, watermark: int) -> None:
        if watermark <= self.watermark:
            return
        before, self.watermark = self.watermark, watermark
        for key, sessions in self.open.items():
            for start, end, elements in sessions:
                if before < end - 1 <= watermark:
                    self.fire(key, start, end, elements)
            sessions[:] = [e for e in sessions if e[1] - 1 + self.lateness > watermark]


def session_results(harness: OperatorHarness) -> dict[tuple[int, int, int], dict[str, Any]]:
    found = {}
    for row, timestamp in harness.records:
        fields = row.as_dict()  # type: ignore[attr-defined]
        where = fields.pop("key"), fields.pop("window_start"), fields.pop("window_end")
        assert timestamp == where[2] - 1
        found[where] = fields
    return found


@given(ITEMS, st.sampled_from([1, 3, 5, 12]), LATENESS, st.booleans())
@examples(60)
def test_oracle_sessions(items: Any, gap: int, lateness: int, tagged: bool) -> None:
    feed = Feed(EventTimeSessionWindows.with_gap(gap), lateness, late="late" if tagged else None)
    harness = feed.run(items)
    model = SessionModel(gap, lateness).run(items)
    found = session_results(harness)
    expected = {w: [expected_of(each) for each in fires] for w, fires in model.fired.items()}
    assert found.keys() <= expected.keys()
    for (key, start, end), fires in expected.items():
        grew = any(k == key and s <= start and end <= e and (s, e) != (start, end)
                   for k, s, e in found)  # fmt: skip
        # Records of one batch fire their session once, when all of them are in it: of the firings
        # in between, and of sessions that were merged, some may be missing.
        if lateness and grew:
            assert found.get((key, start, end), fires[0]) in fires
        else:
            assert found[key, start, end] == fires[-1]
    if not lateness:
        assert len(harness.records) == model.firings
    late = harness.side_records.get("late", [])
    assert sorted(map(plain, late)) == sorted(map(plain, model.late if tagged else []))
    assert harness.metrics["numLateRecordsDropped"] == (0 if tagged else len(model.late))
    assert list(harness.state_entries()) == []


@given(ITEMS, st.integers(1, 40))
@examples(30)
def test_agree_row_by_row(items: Any, cut: int) -> None:
    """The plain form has the same results, and merges."""
    records = [(record_of(0, i), item[2]) for i, item in enumerate(items) if item[0] == "record"]
    if not records:
        return
    rows = RowAggregates(AGGREGATES)
    context = Feed(TEN, 0).window.context
    batch = Batch(RECORD, values=[r for r, _ in records], timestamps=[t for _, t in records])
    elements = rows.elements(batch, context)
    parts = []
    for part in (elements[:cut], elements[cut:]):
        accumulator = rows.create_accumulator()
        for element in part:
            accumulator = rows.add(element, accumulator)
        parts.append(pickle.loads(pickle.dumps(accumulator)))
    merged = rows.get_result(rows.merge(*parts))
    assert dict(zip(rows.names, merged, strict=True)) == expected_of(records)


def test_sessions_are_restored_at_another_parallelism() -> None:
    """1 -> 3 -> 2 subtasks, with sessions that go on, and marks, in between."""
    factory = WindowFactory(
        EventTimeSessionWindows.with_gap(10), BuiltInSpec(AGGREGATES), key_of, 5
    )
    groups = {n: [key_group_range(i, 128, n) for i in range(n)] for n in (1, 2, 3)}
    stores = [MemoryStore()]
    for step, parallelism in enumerate((1, 3, 2)):
        before = groups[(1, 1, 3)[step]]
        after: list[MemoryStore] = []
        for subtask in range(parallelism):
            part = OperatorHarness(
                factory, input_type=RECORD, subtask=subtask, parallelism=parallelism
            )
            part.epoch = step
            for store, held in zip(stores, before, strict=True):
                first, stop = groups[parallelism][subtask]
                if step and held[0] < stop and first < held[1]:
                    copy_key_groups(store, held, part._store, (first, stop))
            part.current_watermark = step * 7
            part.operator.restore(part._restore_context())
            for times in ([step * 7] * 60, [step * 7 + 4] * 60):
                keys = [k for k in range(60) if first_of(k, parallelism) == subtask]
                records = [record_of(key, key + step) for key in keys]
                part.process_all(records, times[: len(keys)], columnar=True)
            part.watermark(step * 7 + 3)
            if step == 2:
                part.finish()
                found = session_results(part)
                assert {(s, e) for _, s, e in found} == {(0, 28)}
                assert sorted(k for k, _, _ in found) == keys
                assert all(fields["n"] == 6 for fields in found.values())
                assert list(part.state_entries()) == []
            else:
                part.end_epoch(swap=False)
                part.end_epoch()
            after.append(part._store)
        stores = after


def first_of(key: int, parallelism: int) -> int:
    return subtask_of(key_group(key, 128), 128, parallelism)


def one_window(
    aggregates: Any, values: list[Any], kind: Any, assigner: Any = TEN, cut: int = 0
) -> Any:
    """Results of one key over values with timestamps 0, 1, 2, ... in one window."""
    typed = Types.ROW_NAMED(["k", "v"], [Types.LONG(), kind])
    factory = WindowFactory(assigner, BuiltInSpec(aggregates), key_of)
    output = built_in_output_type(typed, Types.LONG(), aggregates)
    harness = OperatorHarness(factory, input_type=typed, output_type=output)
    for part in (values[:cut], values[cut:]):
        if part:
            harness.process_all([Row(k=1, v=each) for each in part], [1] * len(part))
        harness.end_epoch()
    harness.finish()
    (row,) = harness.outputs[:1]
    return row.as_dict()  # type: ignore[attr-defined]


@pytest.mark.parametrize("slide", [10, 5])
def test_types_other_than_numbers(slide: int) -> None:
    from datetime import date
    from decimal import Decimal

    assigner = SlidingEventTimeWindows.of(10, slide)
    days = [date(2026, 1, day) for day in (3, 1, 2)]
    named = {"least": Min("v"), "most": Max("v"), "last": Last("v"), "n": CountDistinct("v")}
    row = one_window(named, days, Types.SQL_DATE(), assigner, 1)
    assert (row["least"], row["most"], row["last"], row["n"]) == (days[1], days[0], days[2], 3)
    amounts = [Decimal("1.50"), Decimal("-2.25"), None]
    totals = {**named, "total": Sum("v")}
    row = one_window(totals, amounts, Types.DECIMAL(10, 2), assigner, 1)
    assert row["total"] == Decimal("-0.75")
    assert (row["least"], row["most"], row["n"]) == (amounts[1], amounts[0], 2)
    row = one_window(named, [True, False, None], Types.BOOLEAN(), assigner, 1)
    assert (row["least"], row["most"], row["last"], row["n"]) == (False, True, False, 2)


@pytest.mark.parametrize("slide", [10, 5])
def test_zeros_and_nan(slide: int) -> None:
    nan = float("nan")
    assigner = SlidingEventTimeWindows.of(10, slide)
    named = {"n": CountDistinct("v"), "least": Min("v"), "most": Max("v"), "half": Quantile("v")}
    row = one_window(named, [0.0, -0.0, nan, nan, 2.0], Types.DOUBLE(), assigner, 3)
    assert (row["n"], row["least"], row["most"], row["half"]) == (3, 0.0, 2.0, 0.0)


def test_many_small_batches_in_one_pane() -> None:
    """More tables than are laid over each other are merged, in the order they came."""
    feed = Feed(SlidingEventTimeWindows.of(10, 5), 0)
    records = [(record_of(position % 3, position), 6) for position in range(40)]
    for record in records:
        feed.send([record])
    found = results(feed.run([]))
    assert len(found) == 6
    for key in range(3):
        expected = expected_of([each for each in records if each[0].k == key])
        assert found[key, 0] == found[key, 5] == expected


@pytest.mark.parametrize("slide", [10, 5])
def test_flushes_of_a_combiner_in_one_batch(slide: int) -> None:
    feed = Feed(SlidingEventTimeWindows.of(10, slide), 0, combined=True)
    assert feed.combiner is not None
    for value in (1, 2, 3):
        feed.combiner.process_all([record_of(1, value), record_of(2, value)], [6, 6])
        feed.combiner.end_epoch(swap=False)
    feed.pass_on()
    assert len(feed.window.batches) == 0
    found = results(feed.run([]))
    assert len(found) == 2 * 10 // slide
    assert len(feed.window.outputs) == len(found)
    for key in (1, 2):
        expected = expected_of([(record_of(key, value), 6) for value in (1, 2, 3)])
        assert found[key, 0] == expected


def test_quantiles_of_many_values_are_within_the_bounds() -> None:
    numbers = np.random.default_rng(1).permutation(20_000).astype(float).tolist()
    named = {"half": Quantile("v"), "some": Quantiles("v", ranks=[0.1, 0.9])}
    for assigner in (TEN, SlidingEventTimeWindows.of(10, 5)):
        row = one_window(named, numbers, Types.DOUBLE(), assigner, 7_000)
        found = [row["half"], *row["some"]]
        assert found == pytest.approx([10_000, 2_000, 18_000], abs=0.03 * 20_000)
    rows = RowAggregates(named)
    parts = []
    for part in (numbers[:7_000], numbers[7_000:]):
        accumulator = rows.create_accumulator()
        for number in part:
            accumulator = rows.add((0, number, number), accumulator)
        parts.append(accumulator)
    half, (low, high) = rows.get_result(rows.merge(*parts))
    assert [half, low, high] == pytest.approx([10_000, 2_000, 18_000], abs=0.03 * 20_000)


def test_filters_are_checked_and_combined() -> None:
    with pytest.raises(ProgramError, match="record batch"):
        Sum("v", where="v > 3")
    with pytest.raises(ProgramError, match="one callable"):
        Sum("v", where=is_odd).filter(BIG)
    both = Count(where=BIG).filter(pc.field("v") < 9)
    assert one_window({"n": both}, [5, 6, 8, 9, None], Types.LONG())["n"] == 2
    for wrong, text in (
        (lambda batch: batch.column("v"), "booleans"),
        (lambda _: np.array([True]), "1 booleans for 2"),
        (pc.field("nothing") > 1, "nothing"),
    ):
        with pytest.raises(UserFunctionError, match=text):
            one_window({"n": Count(where=wrong)}, [1, 2], Types.LONG())
    with pytest.raises(ProgramError, match="output_type"):
        built_in_output_type(Types.PICKLED_BYTE_ARRAY(), Types.LONG(), {"n": Count(where=BIG)})
    with pytest.raises(ProgramError, match="0 to 1"):
        Quantile("v", rank=2)


def test_names_of_results() -> None:
    given_names = {each.default_name: each for each in (CountDistinct("v"), Quantile("v"))}
    assert list(one_window(given_names, [6], Types.LONG()))[3:] == [
        "count_distinct_v", "quantile_v"
    ]  # fmt: skip
