"""OVER by time, beside a computation over all rows in front."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.table_operators.model import Aggregate, D, I, Row
from tests.runtime.table_operators.running import TableHarness
from tests.support.examples import examples

from millstream.errors import ProgramError, TypeMismatchError, UserFunctionError
from millstream.runtime.operators.table.over import OverFactory
from millstream.runtime.operators.table.specs import AggregateCall
from millstream.types.logical_types import (
    BigIntType,
    RowType,
    TimestampKind,
    TimestampType,
    VarCharType,
)

TIME = TimestampType(3, kind=TimestampKind.ROWTIME)
ROWS = RowType.of(k=VarCharType(5), t=TIME, n=BigIntType())
TYPES = [field.type for field in ROWS]
START = datetime(1970, 1, 1)  # noqa: DTZ001 - a TIMESTAMP has no zone
CALLS = {
    "SUM": AggregateCall("SUM", (2,), BigIntType()),
    "MIN": AggregateCall("MIN", (2,), BigIntType()),
    "COUNT": AggregateCall("COUNT", (2,), BigIntType(), distinct=True),
    "LAST_VALUE": AggregateCall("LAST_VALUE", (2,), BigIntType()),
}
MODELS = [Aggregate(name, 2, distinct=name == "COUNT") for name in CALLS]


def at(milliseconds: int) -> datetime:
    return START + timedelta(milliseconds=milliseconds)


rows = st.tuples(
    st.sampled_from(["a", "b"]),
    st.integers(0, 12).map(at),
    st.one_of(st.none(), st.integers(-3, 3)),
)
steps = st.lists(
    st.one_of(
        st.lists(rows, min_size=1, max_size=6),
        st.integers(0, 12),  # a watermark
        st.just("snapshot"),
    ),
    max_size=12,
)


def plan_of(**options: Any) -> OverFactory:
    given: dict[str, Any] = {"rowtime": 1, "is_rows": False, "preceding": None, **options}
    return OverFactory(ROWS, (0,), tuple(CALLS.values()), **given)


def harness_of(plan: OverFactory, **options: Any) -> TableHarness:
    return TableHarness(plan, ROWS, [*TYPES, *[BigIntType()] * len(CALLS)], **options)


def results(
    taken: list[Row], row: Row, position: int, *, is_rows: bool, preceding: int | None
) -> Row:
    """The aggregates of a row over those in front of it, of its key, in order of time."""
    mine = [each for each in taken if each[0] == row[0]]
    if is_rows:
        frame = mine[: position + 1]
        frame = frame if preceding is None else frame[-preceding - 1 :]
    else:
        first = START if preceding is None else row[1] - timedelta(milliseconds=preceding)
        frame = [each for each in mine if first <= each[1] <= row[1]]
    return (*row, *(model.result([each[2] for each in frame]) for model in MODELS))


def bound(
    taken: list[Row], key: str, is_rows: bool, preceding: int | None, watermark: int
) -> datetime:
    """The last time of which rows are late."""
    if preceding is None:
        return at(watermark)
    given = [row[1] for row in taken if row[0] == key]
    if is_rows:
        return max(given, default=at(-1))
    last = max(given, default=START - timedelta(days=1))
    return last if last >= at(watermark - preceding) else at(watermark - 1)


@pytest.mark.parametrize("long_lived", [False, True])
@examples(13)
@given(plan=steps, is_rows=st.booleans(), preceding=st.sampled_from([None, 0, 2, 5]))
def test_agree_with_the_rows_in_front(
    long_lived: bool, plan: list[Any], is_rows: bool, preceding: int | None
) -> None:
    waiting: list[Row] = []
    taken: list[Row] = []
    expected: list[Row] = []
    late = 0
    watermark = -1
    factory = plan_of(is_rows=is_rows, preceding=preceding)
    with harness_of(factory, long_lived=long_lived) as harness:
        harness.watermark(-1)
        for step in [*plan, 12]:
            if step == "snapshot":
                harness.end_epoch()
            elif isinstance(step, int):
                if step <= watermark:
                    continue
                watermark = step
                harness.watermark(step)
                due = sorted((r for r in waiting if r[1] <= at(watermark)), key=lambda r: r[1])
                waiting = [row for row in waiting if row[1] > at(watermark)]
                counts = {key: len([r for r in taken if r[0] == key]) for key in ("a", "b")}
                taken += due
                for row in due:
                    position = counts[row[0]]
                    counts[row[0]] += 1
                    expected.append(
                        results(taken, row, position, is_rows=is_rows, preceding=preceding)
                    )
            else:
                harness.feed([(I, row) for row in step])
                on_time = [
                    row
                    for row in step
                    if row[1] > bound(taken, row[0], is_rows, preceding, watermark)
                ]
                late += len(step) - len(on_time)
                waiting += on_time
        harness.end_epoch()
        for key in ("a", "b"):
            found = [row for _, row in harness.changes if row[0] == key]
            assert found == [row for row in expected if row[0] == key]
        assert harness.metrics["numLateRecordsDropped"] == late


def test_by_processing_time_rows_are_taken_as_they_come() -> None:
    plan = OverFactory(ROWS, (0,), (CALLS["SUM"],), rowtime=None, is_rows=True, preceding=1)
    with TableHarness(plan, ROWS, [*TYPES, BigIntType()]) as harness:
        harness.feed([(I, ("a", None, n)) for n in (1, 2, 3)])
        harness.end_epoch()
        harness.feed([(I, ("a", None, 4))])
        assert [row[3] for _, row in harness.changes] == [1, 3, 5, 7]


def test_frames_of_processing_time_are_of_some_length() -> None:
    plan = OverFactory(ROWS, (0,), (CALLS["SUM"],), rowtime=None, is_rows=False, preceding=10)
    with TableHarness(plan, ROWS, [*TYPES, BigIntType()]) as harness:
        for now, n in ((0, 1), (10, 2), (11, 4)):
            harness.processing_time(now)
            harness.feed([(I, ("a", None, n))])
        assert [row[3] for _, row in harness.changes] == [1, 3, 6]


def test_state_expires() -> None:
    with harness_of(plan_of(state_ttl=10, rowtime=None)) as harness:
        harness.feed([(I, ("a", None, 1))])
        harness.processing_time(10)
        harness.feed([(I, ("a", None, 2))])
        assert [row[3] for _, row in harness.changes] == [1, 2]


@pytest.mark.parametrize("by_clock", [False, True])
def test_rows_are_numbered_in_the_order_of_time(by_clock: bool) -> None:
    number = BigIntType(nullable=False)
    calls = tuple(
        AggregateCall(name, () if name != "SUM" else (2,), number)
        for name in ("RANK", "SUM", "DENSE_RANK", "ROW_NUMBER")
    )
    plan = OverFactory(ROWS, (0,), calls, None if by_clock else 1, is_rows=False)
    with TableHarness(plan, ROWS, [*TYPES, *[number] * 4]) as harness:
        rows = [(1, 1), (3, 2), (3, 3), (3, 4), (8, 5), (8, 6), (9, 7)]
        for watermark, some in ((4, rows[:4]), (9, rows[4:])):
            harness.feed([(I, ("a", at(time), n)) for time, n in some])
            harness.feed([(I, ("b", at(watermark), 0))])
            harness.watermark(watermark)
            harness.end_epoch()
        found = {row[2]: row[3:] for _, row in harness.changes if row[0] == "a"}
    sums = [1, 3, 6, 10, 15, 21, 28] if by_clock else [1, 10, 10, 10, 21, 21, 28]
    ranks = range(1, 8) if by_clock else [1, 2, 2, 2, 5, 5, 7]
    dense = range(1, 8) if by_clock else [1, 2, 2, 2, 3, 3, 4]
    wanted = zip(ranks, sums, dense, range(1, 8), strict=True)
    assert found == dict(zip(range(1, 8), wanted, strict=True))


def test_rows_are_not_numbered_in_frames() -> None:
    call = AggregateCall("RANK", (), BigIntType(nullable=False))
    for options in ({"is_rows": True}, {"is_rows": False, "preceding": 3}):
        with pytest.raises(ProgramError, match="RANK counts from the first row"):
            OverFactory(ROWS, (0,), (call,), 1, **options).create()


@pytest.mark.parametrize("rowtime", [None, 1])
def test_frames_of_rows_expire_with_their_accumulators(rowtime: int | None) -> None:
    plan = plan_of(rowtime=rowtime, is_rows=True, preceding=1, state_ttl=10)
    with harness_of(plan) as harness:
        for number, (now, n) in enumerate([(0, 1), (5, 2), (20, 4), (21, 8), (60, 16)]):
            harness.processing_time(now)
            harness.feed([(I, ("a", at(number), n))])
            harness.watermark(number)
        assert [row[3:6] for _, row in harness.changes] == [
            (1, 1, 1),
            (3, 1, 2),
            (4, 4, 1),
            (12, 4, 2),
            (16, 16, 1),
        ]


@pytest.mark.parametrize("by_clock", [False, True])
def test_frames_of_time_do_not_expire_but_go_when_time_has_passed(by_clock: bool) -> None:
    plan = plan_of(rowtime=None if by_clock else 1, preceding=10, state_ttl=3)
    with harness_of(plan) as harness:
        for time, key, n in ((0, "a", 1), (10, "a", 2), (11, "a", 4), (12, "b", 3)):
            harness.processing_time(time)
            harness.feed([(I, (key, at(time), n))])
            harness.watermark(time)
        found = [row[3:6] for _, row in harness.changes]
        assert found == [(1, 1, 1), (3, 1, 2), (6, 2, 2), (3, 3, 1)]
        harness.end_epoch()
        for time in (22, 23):
            harness.processing_time(time)
            harness.watermark(time)
            harness.end_epoch()
            assert bool(list(harness.state_entries())) is (time == 22)


def test_updates_are_refused() -> None:
    with harness_of(plan_of()) as harness, pytest.raises(TypeMismatchError, match="inserts only"):
        harness.feed([(D, ("a", at(1), 1))])


def test_a_row_without_time_is_refused() -> None:
    with harness_of(plan_of()) as harness, pytest.raises(UserFunctionError, match="is NULL"):
        harness.feed([(I, ("a", None, 1))])
