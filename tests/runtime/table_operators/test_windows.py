"""Window table functions and aggregations of windows, beside windows taken one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.table_operators.model import Aggregate, Change, D, I, Row
from tests.runtime.table_operators.running import TableHarness
from tests.support.examples import examples

from millstream.errors import ProgramError
from millstream.runtime.columnar.table_windows import TableWindow, WindowKind, Windows
from millstream.runtime.operators.table import window_aggregate
from millstream.runtime.operators.table.session_windows import (
    SessionFunctionFactory,
    WindowAggregateFactory,
)
from millstream.runtime.operators.table.specs import AggregateCall, SortColumn
from millstream.runtime.operators.table.top_n import WindowRankFactory
from millstream.runtime.operators.table.window_function import WindowFunctionFactory
from millstream.state.keyed import KeyedState
from millstream.types.logical_types import (
    BigIntType,
    LocalZonedTimestampType,
    RowType,
    TimestampKind,
    TimestampType,
    VarCharType,
)

TIME = TimestampType(3, kind=TimestampKind.ROWTIME)
PLAIN = TimestampType(3)
ROWS = RowType.of(k=VarCharType(5), t=TIME, n=BigIntType())
TYPES = [each.type for each in ROWS]
START = datetime(1970, 1, 1)  # noqa: DTZ001 - a TIMESTAMP has no zone
SHARED = {
    "SUM": AggregateCall("SUM", (2,), BigIntType()),
    "MAX": AggregateCall("MAX", (2,), BigIntType()),
    "COUNT": AggregateCall("COUNT", (), BigIntType()),
}
DISTINCT = AggregateCall("COUNT", (2,), BigIntType(), distinct=True)
SPECS = [
    TableWindow(WindowKind.TUMBLE, 5),
    TableWindow(WindowKind.TUMBLE, 4, offset=1),
    TableWindow(WindowKind.HOP, 6, 2),
    TableWindow(WindowKind.HOP, 6, 3, offset=-1),
    TableWindow(WindowKind.CUMULATE, 6, 2),
]


def at(milliseconds: int) -> datetime:
    return START + timedelta(milliseconds=milliseconds)


rows = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.one_of(st.none(), st.integers(0, 20).map(at)),
    st.one_of(st.none(), st.integers(-3, 3)),
)
steps = st.lists(
    st.one_of(st.lists(rows, min_size=1, max_size=6), st.integers(0, 24), st.just("snapshot")),
    max_size=12,
)


def windows_of(spec: TableWindow, time: int) -> list[tuple[int, int]]:
    """All windows that a time is in, tried out one by one."""
    step, found = spec.step or spec.size, []
    for number in range(-40, 60):
        start = number * step + spec.offset
        if spec.kind is WindowKind.CUMULATE:
            if (start - spec.offset) % spec.size == 0:
                ends = range(start + step, start + spec.size + 1, step)
                found += [(start, end) for end in ends if start <= time < end]
        elif start <= time < start + spec.size:
            found.append((start, start + spec.size))
    return found


def milliseconds(time: datetime) -> int:
    return round((time - START) / timedelta(milliseconds=1))


@pytest.mark.parametrize("spec", SPECS)
def test_each_row_has_its_windows(spec: TableWindow) -> None:
    plan = WindowFunctionFactory(ROWS, spec, 1)
    with TableHarness(plan, ROWS, [*TYPES, PLAIN, PLAIN, TIME]) as harness:
        changes: list[Change] = [(kind, ("a", at(t), t)) for t in range(20) for kind in (I, D)]
        found = harness.feed([*changes, (I, ("a", None, 1))])
        harness.end_epoch()
        assert harness.metrics["numNullRowTimeRecordsDropped"] == 1
    expected = {
        (kind, (*row, at(start), at(end), at(end - 1)))
        for kind, row in changes
        for start, end in windows_of(spec, row[2])
    }
    assert set(found) == expected
    assert len(found) == len(expected)


@dataclass
class Model:
    """Windows taken one by one."""

    spec: TableWindow
    aggregates: list[Aggregate]
    watermark: int = -(10**6)
    late: int = 0
    windows: dict[tuple[int, Any, int], list[Any]] = field(default_factory=dict)

    def process(self, row: Row) -> None:
        if row[1] is None:
            return
        inside = [
            window
            for window in windows_of(self.spec, milliseconds(row[1]))
            if window[1] - 1 > self.watermark
        ]
        self.late += not inside
        for start, end in inside:
            self.windows.setdefault((end, row[0], start), []).append(row[2])

    def advance(self, watermark: int) -> list[Row]:
        self.watermark = max(watermark, self.watermark)
        over = [each for each in self.windows if each[0] - 1 <= self.watermark]
        return [
            (
                key,
                *(aggregate.result(values) for aggregate in self.aggregates),
                at(start),
                at(end),
                at(end - 1),
            )
            for end, key, start in over
            for values in [self.windows.pop((end, key, start))]
        ]


@pytest.mark.parametrize("long_lived", [False, True])
@examples(25)
@given(plan=steps, spec=st.sampled_from(SPECS), distinct=st.booleans())
def test_windows_are_given_when_they_are_over(
    long_lived: bool, plan: list[Any], spec: TableWindow, distinct: bool
) -> None:
    check_windows(plan, spec, distinct=distinct, long_lived=long_lived, in_memory=[True])


@examples(20)
@given(
    plan=steps,
    spec=st.sampled_from(SPECS),
    long_lived=st.booleans(),
    in_memory=st.lists(st.booleans(), min_size=1, max_size=4),
    limits=st.tuples(st.sampled_from([-1, 20_000]), st.sampled_from([0, 3, 500_000])),
    memory=st.sampled_from([0, 10**9]),
)
def test_what_is_in_memory_is_as_what_is_in_state(
    plan: list[Any],
    spec: TableWindow,
    long_lived: bool,
    in_memory: list[bool],
    limits: tuple[int, int],
    memory: int,
) -> None:
    """In any mixture: written with each batch, as once, or at snapshots, or when it is too much."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_aggregate, "_FEW", limits[0])
        patch.setattr(window_aggregate, "_MOST", limits[1])
        patch.setattr(KeyedState, "share", property(lambda _: memory))
        check_windows(plan, spec, distinct=False, long_lived=long_lived, in_memory=in_memory)


def check_windows(
    plan: list[Any], spec: TableWindow, *, distinct: bool, long_lived: bool, in_memory: list[bool]
) -> None:
    calls = list(SHARED.values()) + ([DISTINCT] if distinct else [])
    models = [Aggregate("SUM", 0), Aggregate("MAX", 0), Aggregate("COUNT")]
    models += [Aggregate("COUNT", 0, distinct=True)] if distinct else []
    model = Model(spec, models)
    names = ("window_start", "window_end", "window_time")
    factory = WindowAggregateFactory(ROWS, spec, 1, (0,), tuple(calls), names)
    types = [VarCharType(5), *(call.type for call in calls), PLAIN, PLAIN, TIME]
    with TableHarness(factory, ROWS, types, long_lived=long_lived) as harness:
        for number, step in enumerate([*plan, 100]):
            operator: Any = harness.operator
            if not in_memory[number % len(in_memory)]:
                operator._write_buffer()
            if step == "snapshot":
                harness.end_epoch()
            elif isinstance(step, int):
                before = len(harness.changes)
                harness.watermark(step)
                found = harness.changes[before:]
                assert {kind for kind, _ in found} <= {I}
                assert sorted((row for _, row in found), key=repr) == sorted(
                    model.advance(step), key=repr
                )
                ends = [row[-2] for _, row in found]
                assert ends == sorted(ends)
            else:
                harness.feed([(I, row) for row in step])
                for row in step:
                    model.process(row)
        harness.end_epoch()
        assert harness.metrics["numLateRecordsDropped"] == model.late
        assert list(harness.state_entries()) == []


def test_windows_of_processing_time_end_with_the_clock() -> None:
    spec = TableWindow(WindowKind.TUMBLE, 10)
    factory = WindowAggregateFactory(
        ROWS, spec, 1, (), (SHARED["SUM"],), ("window_end",), is_rowtime=False
    )
    with TableHarness(factory, ROWS, [BigIntType(), PLAIN]) as harness:
        harness.feed([(I, ("a", None, 1)), (I, ("b", None, 2))])
        assert harness.operator.due() == 10
        harness.processing_time(9)  # the window still has rows
        harness.feed([(I, ("a", None, 3))])
        assert harness.changes == []
        harness.processing_time(10)
        assert harness.changes == [(I, (6, at(10)))]
        harness.processing_time(12)
        harness.feed([(I, ("a", None, 4))])
        harness.finish()
        assert harness.changes[1:] == [(I, (4, at(20)))]


def test_rows_may_have_their_windows_already() -> None:
    types = RowType.of(k=VarCharType(5), t=TIME, n=BigIntType(), s=PLAIN, e=PLAIN)
    factory = WindowAggregateFactory(
        types,
        TableWindow(WindowKind.TUMBLE, 10),
        1,
        (0,),
        (SHARED["SUM"],),
        ("window_start", "window_end"),
        attached=(3, 4),
    )
    with TableHarness(factory, types, [VarCharType(5), BigIntType(), PLAIN, PLAIN]) as harness:
        harness.feed([(I, ("a", at(1), n, at(0), at(7 * n))) for n in (1, 2, 2)])
        harness.watermark(6)
        harness.watermark(13)
        assert harness.changes == [
            (I, ("a", 1, at(0), at(7))),
            (I, ("a", 4, at(0), at(14))),
        ]


def test_rows_that_are_taken_back_leave_no_window() -> None:
    spec = TableWindow(WindowKind.HOP, 10, 5)
    factory = WindowAggregateFactory(
        ROWS, spec, 1, (0,), (SHARED["SUM"],), ("window_end",), retracts=True
    )
    with TableHarness(factory, ROWS, [VarCharType(5), BigIntType(), PLAIN]) as harness:
        row, other = ("a", at(1), 1), ("b", at(2), 5)
        harness.feed([(I, row), (I, other), (I, other)])
        harness.end_epoch()
        harness.feed([(D, row), (D, other)])
        harness.watermark(100)
        assert harness.changes == [(I, ("b", 5, at(5))), (I, ("b", 5, at(10)))]


def test_windows_go_by_the_clock_of_a_zone() -> None:
    """A day of 23 hours in Berlin: 2024-03-31."""
    types = RowType.of(t=LocalZonedTimestampType(3, kind=TimestampKind.ROWTIME), n=BigIntType())
    day = 86_400_000
    factory = WindowAggregateFactory(
        types,
        TableWindow(WindowKind.TUMBLE, day),
        0,
        (),
        (AggregateCall("SUM", (1,), BigIntType()),),
        ("window_start", "window_end", "window_time"),
        time_zone="Europe/Berlin",
    )
    zoned = LocalZonedTimestampType(3)
    with TableHarness(factory, types, [BigIntType(), PLAIN, PLAIN, zoned]) as harness:
        harness.feed([(I, (datetime(2024, 3, 30, 23, 30, tzinfo=UTC), 1))])
        harness.feed([(I, (datetime(2024, 3, 31, 21, 59, tzinfo=UTC), 2))])
        harness.feed([(I, (datetime(2024, 3, 31, 22, 0, tzinfo=UTC), 4))])
        end = round(datetime(2024, 3, 31, 22, 0, tzinfo=UTC).timestamp() * 1000)
        harness.watermark(end - 2)
        assert harness.changes == []
        harness.watermark(end - 1)
        (change,) = harness.changes
        midnight = datetime(2024, 3, 31)  # noqa: DTZ001
        assert change[1][:3] == (3, midnight, midnight + timedelta(days=1))
        assert change[1][3].timestamp() * 1000 == end - 1


def test_sizes_are_multiples_of_steps() -> None:
    with pytest.raises(ProgramError, match="must be a multiple of 3 ms"):
        TableWindow(WindowKind.CUMULATE, 10, 3)


@pytest.mark.parametrize(("size", "step"), [(10, 3), (3, 10), (5, 2), (2, 5)])
def test_oracle_hops_of_any_size(size: int, step: int) -> None:
    times = np.arange(-40, 40)
    found = Windows.of(times, TableWindow(WindowKind.HOP, size, step, 1))
    starts = range(1 - 100 * step, 100, step)
    expected = [(t, s, s + size) for t in times.tolist() for s in starts if s <= t < s + size]
    pairs = zip(times[found.rows].tolist(), found.starts.tolist(), found.ends.tolist(), strict=True)
    assert sorted(pairs) == sorted(expected)


@dataclass
class SessionModel:
    """Sessions of rows that come one by one."""

    gap: int
    #: Whether there is a DISTINCT aggregate: rows are kept then, not accumulators.
    distinct: bool = False
    watermark: int = -(10**6)
    late: int = 0
    sessions: list[tuple[int, int, Any, list[Any]]] = field(default_factory=list)

    def process(self, row: Row) -> None:
        key, time, value = row
        if time is None:
            return
        start, end, values = milliseconds(time), milliseconds(time) + self.gap, [value]
        met = [s for s in self.sessions if s[2] == key and s[0] <= end and s[1] >= start]
        start, end = min([start, *(s[0] for s in met)]), max([end, *(s[1] for s in met)])
        if end - 1 <= self.watermark:
            self.late += 1
            return
        for each in met:
            self.sessions.remove(each)
            values = [*each[3], *values]
        self.sessions.append((start, end, key, values))

    def advance(self, watermark: int) -> list[Row]:
        self.watermark = max(self.watermark, watermark)
        over = [each for each in self.sessions if each[1] - 1 <= self.watermark]
        self.sessions = [each for each in self.sessions if each not in over]
        return [
            (key, *self.results(values), at(start), at(end), at(end - 1))
            for start, end, key, values in over
        ]

    def results(self, values: list[Any]) -> list[Any]:
        """What is computed of a session."""
        functions = [Aggregate("SUM", 0), Aggregate("MAX", 0), Aggregate("COUNT")]
        found = [each.result(values) for each in functions]
        return [*found, len({*values} - {None})] if self.distinct else found


@pytest.mark.parametrize("long_lived", [False, True])
@examples(25)
@given(plan=steps, gap=st.integers(1, 4), distinct=st.booleans())
def test_sessions_are_given_when_they_are_over(
    long_lived: bool, plan: list[Any], gap: int, distinct: bool
) -> None:
    model = SessionModel(gap, distinct)
    calls = [*SHARED.values(), *[DISTINCT] * distinct]
    names = ("window_start", "window_end", "window_time")
    spec = TableWindow(WindowKind.SESSION, gap)
    factory = WindowAggregateFactory(ROWS, spec, 1, (0,), tuple(calls), names)
    types = [VarCharType(5), *(call.type for call in calls), PLAIN, PLAIN, TIME]
    with TableHarness(factory, ROWS, types, long_lived=long_lived) as harness:
        for step in [*plan, 100]:
            if step == "snapshot":
                harness.end_epoch()
            elif isinstance(step, int):
                before = len(harness.changes)
                harness.watermark(step)
                found = sorted((row for _, row in harness.changes[before:]), key=repr)
                assert found == sorted(model.advance(step), key=repr)
            else:
                harness.feed([(I, row) for row in step])
                for row in step:
                    model.process(row)
        harness.end_epoch()
        assert harness.metrics["numLateRecordsDropped"] == model.late
        assert list(harness.state_entries()) == []


def test_sessions_of_changes_keep_what_is_not_retracted() -> None:
    spec = TableWindow(WindowKind.SESSION, 5)
    calls = (SHARED["MAX"], DISTINCT, SHARED["COUNT"])
    factory = WindowAggregateFactory(ROWS, spec, 1, (0,), calls, ("window_end",), retracts=True)
    types = [VarCharType(5), *(call.type for call in calls), PLAIN]
    with TableHarness(factory, ROWS, types) as harness:
        harness.feed([(I, ("a", at(1), 7)), (I, ("a", at(3), 2)), (I, ("b", at(1), 4))])
        harness.end_epoch()
        harness.feed([(D, ("a", at(1), 7)), (I, ("a", at(9), 2)), (D, ("b", at(1), 4))])
        harness.feed([(I, ("a", at(6), 1))])  # joins both
        harness.watermark(20)
        assert harness.changes == [(I, ("a", 2, 2, 3, at(14)))]
        harness.end_epoch()
        assert list(harness.state_entries()) == []


def test_the_session_function_gives_rows_as_they_came() -> None:
    factory = SessionFunctionFactory(ROWS, TableWindow(WindowKind.SESSION, 3), 1, (0,))
    with TableHarness(
        factory, ROWS, [*(each.type for each in ROWS), PLAIN, PLAIN, TIME]
    ) as harness:
        harness.feed([(I, ("a", at(6), 1)), (I, ("a", at(1), 2)), (I, ("a", None, 3))])
        harness.end_epoch()
        harness.feed([(I, ("a", at(4), 4)), (D, ("a", at(6), 1)), (I, ("b", at(2), 5))])
        harness.watermark(7)
        window = (at(2), at(5), at(4))
        assert harness.changes == [(I, ("b", at(2), 5, *window))]
        harness.feed([(I, ("a", at(2), 6)), (I, ("b", at(3), 7))])  # the second is late
        harness.watermark(8)
        window = (at(1), at(9), at(8))
        rows = [(I, at(6), 1), (I, at(1), 2), (I, at(4), 4), (D, at(6), 1), (I, at(2), 6)]
        assert harness.changes[1:] == [(kind, ("a", *row, *window)) for kind, *row in rows]
        harness.end_epoch()
        assert harness.metrics["numLateRecordsDropped"] == 1
        assert harness.metrics["numNullRowTimeRecordsDropped"] == 1
        assert list(harness.state_entries()) == []


RANKED = RowType.of(k=VarCharType(5), t=TIME, n=BigIntType(), e=PLAIN)
ranked_rows = st.tuples(
    st.sampled_from(["a", None]),
    st.none(),
    st.one_of(st.none(), st.integers(-3, 3)),
    st.sampled_from([5, 10, 15]).map(at),
)


@pytest.mark.parametrize("long_lived", [False, True])
@examples(25)
@given(
    plan=st.lists(
        st.one_of(
            st.lists(ranked_rows, min_size=1, max_size=6), st.integers(0, 16), st.just("snapshot")
        ),
        max_size=10,
    ),
    numbers=st.sampled_from([(1, 1), (1, 3), (2, 3)]),
    descending=st.booleans(),
)
def test_first_rows_of_windows_are_given_when_they_are_over(
    long_lived: bool, plan: list[Any], numbers: tuple[int, int], descending: bool
) -> None:
    start, end = numbers
    order = (SortColumn(2, descending),)
    factory = WindowRankFactory(RANKED, (0,), order, start, end, output_rank=True, window_end=3)
    rows: list[Row] = []
    watermark, late = -1, 0
    types = [*(each.type for each in RANKED), BigIntType()]
    with TableHarness(factory, RANKED, types, long_lived=long_lived) as harness:
        harness.watermark(-1)
        for step in [*plan, 100]:
            before = len(harness.changes)
            if step == "snapshot":
                harness.end_epoch()
            elif isinstance(step, int):
                watermark = max(watermark, step)
                harness.watermark(step)
                over = [row for row in rows if milliseconds(row[3]) - 1 <= watermark]
                rows = [row for row in rows if milliseconds(row[3]) - 1 > watermark]
                found = {row for _, row in harness.changes[before:]}
                assert found == ranked(over, start, end, descending=descending)
            else:
                harness.feed([(I, row) for row in step])
                on_time = [row for row in step if milliseconds(row[3]) - 1 > watermark]
                late += len(step) - len(on_time)
                rows += on_time
        harness.end_epoch()
        assert harness.metrics["numLateRecordsDropped"] == late
        assert list(harness.state_entries()) == []


def ranked(rows: list[Row], start: int, end: int, *, descending: bool) -> set[Row]:
    found: set[Row] = set()
    for place in {(row[0], row[3]) for row in rows}:
        mine = [row for row in rows if (row[0], row[3]) == place]
        mine.sort(key=lambda row: -100 if row[2] is None else row[2], reverse=descending)
        found |= {(*row, n) for n, row in enumerate(mine, 1) if start <= n <= end}
    return found
