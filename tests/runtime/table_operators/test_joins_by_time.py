"""Interval joins and joins with versions, beside rows taken one by one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.table_operators.model import UA, UB, Change, D, I, Row
from tests.runtime.table_operators.running import TableHarness
from tests.support.examples import examples

from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.errors import ProgramError, TypeMismatchError
from millstream.expressions.nodes import InputReference
from millstream.expressions.resolution import resolve_call
from millstream.runtime.operators.table.joins_by_time import (
    IntervalJoinFactory,
    TemporalJoinFactory,
)
from millstream.runtime.operators.table.specs import JoinKind, JoinSide
from millstream.types.logical_types import (
    BigIntType,
    RowType,
    TimestampKind,
    TimestampType,
    VarCharType,
)

TIME = TimestampType(3, kind=TimestampKind.ROWTIME)
LEFT = RowType.of(k=VarCharType(5), t=TIME, n=BigIntType())
RIGHT = RowType.of(t2=TIME, k2=VarCharType(5), m=BigIntType())
BOTH = [each.type for each in (*LEFT, *RIGHT)]
START = datetime(1970, 1, 1)  # noqa: DTZ001 - a TIMESTAMP has no zone
LARGER = resolve_call(
    ">", InputReference(2, "n", BigIntType()), InputReference(5, "m", BigIntType())
)


def at(milliseconds: int) -> datetime:
    return START + timedelta(milliseconds=milliseconds)


def time_of(side: int, row: Row) -> int:
    time: datetime = row[1 - side]
    return round((time - START) / timedelta(milliseconds=1))


keys = st.sampled_from(["a", "b", None])
times = st.integers(0, 15).map(at)
left_rows = st.tuples(keys, times, st.integers(0, 2))
right_rows = st.tuples(times, keys, st.integers(0, 2))
steps = st.lists(
    st.one_of(
        st.tuples(st.just(0), st.lists(left_rows, min_size=1, max_size=4)),
        st.tuples(st.just(1), st.lists(right_rows, min_size=1, max_size=4)),
        st.integers(0, 18),
        st.just("snapshot"),
    ),
    max_size=16,
)
OUTER = {
    JoinKind.INNER: (False, False),
    JoinKind.LEFT: (True, False),
    JoinKind.RIGHT: (False, True),
    JoinKind.FULL: (True, True),
}


def joined(side: int, row: Row, other: Row | None) -> Row:
    padded = (None, None, None) if other is None else other
    return (*row, *padded) if side == 0 else (*padded, *row)


class IntervalModel:
    def __init__(self, kind: JoinKind, bounds: tuple[int, int], *, filters: bool) -> None:
        self.outer = OUTER[kind]
        self.lower, self.upper = bounds
        self.filters = filters
        self.kept: tuple[list[list[Any]], list[list[Any]]] = ([], [])
        self.watermark = -(10**6)

    def matches(self, left: Row, right: Row) -> bool:
        apart = time_of(1, right) - time_of(0, left)
        return (
            left[0] == right[1]
            and left[0] is not None
            and self.lower <= apart <= self.upper
            and (not self.filters or left[2] > right[2])
        )

    def lasts(self, side: int, row: Row) -> bool:
        return time_of(side, row) + (-self.lower if side else self.upper) > self.watermark

    def process(self, side: int, row: Row) -> list[Row]:
        out = []
        for entry in self.kept[1 - side]:
            pair = (row, entry[0]) if side == 0 else (entry[0], row)
            if self.matches(*pair):
                entry[1] = True
                out.append(joined(side, row, entry[0]))
        if self.lasts(side, row):
            self.kept[side].append([row, bool(out)])
        elif not out and self.outer[side]:
            out.append(joined(side, row, None))
        return out

    def advance(self, watermark: int) -> list[Row]:
        self.watermark = max(self.watermark, watermark)
        out = []
        for side in (0, 1):
            for entry in list(self.kept[side]):
                if not self.lasts(side, entry[0]):
                    self.kept[side].remove(entry)
                    if not entry[1] and self.outer[side]:
                        out.append(joined(side, entry[0], None))
        return out


@pytest.mark.parametrize("long_lived", [False, True])
@examples(30)
@given(
    plan=steps,
    kind=st.sampled_from(list(OUTER)),
    bounds=st.sampled_from([(0, 0), (-2, 3), (1, 4), (-5, -2)]),
    filters=st.booleans(),
)
def test_interval_joins_agree_with_the_model(
    long_lived: bool, plan: list[Any], kind: JoinKind, bounds: tuple[int, int], filters: bool
) -> None:
    model = IntervalModel(kind, bounds, filters=filters)
    condition = LARGER if filters else None
    factory = IntervalJoinFactory(
        LEFT,
        RIGHT,
        kind,
        JoinSide((0,)),
        JoinSide((1,)),
        (True,),
        1,
        0,
        *bounds,
        condition=condition,
    )
    with TableHarness(factory, LEFT, BOTH, long_lived=long_lived) as harness:
        harness.row_types.append(RIGHT)
        for step in [*plan, 10**6]:
            before = len(harness.changes)
            expected: list[Row] = []
            if step == "snapshot":
                harness.end_epoch()
            elif isinstance(step, int):
                harness.watermark(step)
                expected = model.advance(step)
            else:
                side, rows = step
                harness.feed([(I, row) for row in rows], side)
                expected = [out for row in rows for out in model.process(side, row)]
            found = harness.changes[before:]
            assert {kind for kind, _ in found} <= {I}
            assert sorted((row for _, row in found), key=repr) == sorted(expected, key=repr)
        harness.end_epoch()
        assert list(harness.state_entries()) == []


def interval(kind: JoinKind = JoinKind.INNER, **options: Any) -> IntervalJoinFactory:
    given: dict[str, Any] = {"lower": -2, "upper": 5, **options}
    return IntervalJoinFactory(
        LEFT, RIGHT, kind, JoinSide((0,)), JoinSide((1,)), (True,), 1, 0, **given
    )


def test_watermarks_are_held_back_behind_rows_that_may_come() -> None:
    with TableHarness(interval(), LEFT, BOTH) as harness:
        harness.watermark(10)
        harness.watermark(MAX_TIMESTAMP)
        assert harness.watermarks == [5, MAX_TIMESTAMP]


def test_rows_meet_by_processing_time() -> None:
    with TableHarness(interval(is_rowtime=False), LEFT, BOTH) as harness:
        harness.row_types.append(RIGHT)
        harness.processing_time(100)
        harness.feed([(I, ("a", None, 1))], 0)
        assert harness.operator.due() == 106
        for time, m in ((104, 2), (105, 3), (106, 4)):
            harness.processing_time(time)
            harness.feed([(I, (None, "a", m))], 1)
        assert [row[5] for _, row in harness.changes] == [2, 3]
        harness.processing_time(200)
        harness.end_epoch()
        assert list(harness.state_entries()) == []


def test_rows_that_the_clock_shows_at_once_meet_whoever_comes_first() -> None:
    """``left.p = right.p``: all rows of an epoch have one processing time."""
    for sides in ((0, 1), (1, 0)):
        with TableHarness(interval(is_rowtime=False, lower=0, upper=0), LEFT, BOTH) as harness:
            harness.row_types.append(RIGHT)
            harness.processing_time(100)
            for side in sides:
                row = (None, "a", 2) if side else ("a", None, 1)
                harness.feed([(I, row)], side)
            harness.processing_time(101)
            harness.feed([(I, (None, "a", 9))], 1)
            assert [row[5] for _, row in harness.changes] == [2]


def test_interval_joins_refuse_what_they_cannot() -> None:
    with pytest.raises(ProgramError, match="cannot be a semi join"):
        interval(JoinKind.SEMI).create()
    with (
        TableHarness(interval(), LEFT, BOTH) as harness,
        pytest.raises(TypeMismatchError, match="inserts only"),
    ):
        harness.feed([(D, ("a", at(1), 1))], 0)


class TemporalModel:
    def __init__(self, kind: JoinKind, *, filters: bool) -> None:
        self.kind = kind
        self.filters = filters
        self.waiting: list[tuple[int, Row]] = []
        self.versions: dict[Any, dict[int, tuple[int, Row]]] = {}

    def process(self, side: int, kind: int, row: Row) -> None:
        if side == 0:
            self.waiting.append((kind, row))
        else:
            self.versions.setdefault(row[1], {})[time_of(1, row)] = (kind, row)

    def advance(self, watermark: int) -> list[Change]:
        due = [each for each in self.waiting if time_of(0, each[1]) <= watermark]
        self.waiting = [each for each in self.waiting if each not in due]
        out: list[Change] = []
        for kind, row in due:
            versions = self.versions.get(row[0], {}) if row[0] is not None else {}
            valid = [time for time in versions if time <= time_of(0, row)]
            found = versions[max(valid)] if valid else (D, ())
            if found[0] in (I, UA) and (not self.filters or row[2] > found[1][2]):
                out.append((kind, (*row, *found[1])))
            elif self.kind is JoinKind.LEFT:
                out.append((kind, (*row, None, None, None)))
        for versions in self.versions.values():
            passed = [time for time in versions if time <= watermark]
            for time in passed:
                if time < max(passed):
                    del versions[time]
        return out


@st.composite
def versioned(draw: Any) -> list[Any]:
    """Steps, with kinds, and no version behind the watermark."""
    found: list[Any] = []
    watermark = -1
    for step in draw(steps):
        if isinstance(step, int):
            watermark = max(watermark, step)
            found.append(watermark)
        elif step == "snapshot":
            found.append(step)
        else:
            side, rows = step
            kinds = st.sampled_from([I, UB, UA, D])
            rows = [row for row in rows if time_of(side, row) > watermark]
            found.append((side, [(draw(kinds), row) for row in rows]))
    return found


@pytest.mark.parametrize("long_lived", [False, True])
@examples(30)
@given(
    plan=versioned(),
    kind=st.sampled_from([JoinKind.INNER, JoinKind.LEFT]),
    filters=st.booleans(),
)
def test_rows_meet_the_version_of_their_time(
    long_lived: bool, plan: list[Any], kind: JoinKind, filters: bool
) -> None:
    model = TemporalModel(kind, filters=filters)
    factory = TemporalJoinFactory(
        LEFT,
        RIGHT,
        kind,
        JoinSide((0,)),
        JoinSide((1,)),
        (True,),
        1,
        0,
        condition=LARGER if filters else None,
    )
    with TableHarness(factory, LEFT, BOTH, long_lived=long_lived) as harness:
        harness.row_types.append(RIGHT)
        for step in [*plan, 100]:
            before = len(harness.changes)
            expected: list[Change] = []
            if step == "snapshot":
                harness.end_epoch()
            elif isinstance(step, int):
                harness.watermark(step)
                expected = model.advance(step)
            else:
                side, changes = step
                harness.feed(changes, side)
                for change in changes:
                    model.process(side, *change)
            found = harness.changes[before:]
            for key in ("a", "b", None):
                assert [c for c in found if c[1][0] == key] == [
                    c for c in expected if c[1][0] == key
                ]


def test_old_versions_are_forgotten() -> None:
    factory = TemporalJoinFactory(
        LEFT, RIGHT, JoinKind.LEFT, JoinSide((0,)), JoinSide((1,)), (True,), 1, 0
    )
    with TableHarness(factory, LEFT, BOTH) as harness:
        harness.row_types.append(RIGHT)
        harness.feed([(UA, (at(n), "a", n)) for n in range(200)], 1)
        harness.end_epoch()
        (before,) = [len(value) for _, value in harness.state_entries() if value]
        harness.watermark(198)
        harness.end_epoch()
        (after,) = [len(value) for _, value in harness.state_entries() if value]
        assert after < before / 20
        harness.feed([(I, ("a", at(199), 1))], 0)
        harness.watermark(199)
        assert harness.changes == [(I, ("a", at(199), 1, at(199), "a", 199))]


def test_temporal_joins_are_inner_or_left() -> None:
    sides = (JoinSide((0,)), JoinSide((1,)))
    factory = TemporalJoinFactory(LEFT, RIGHT, JoinKind.FULL, *sides, (True,), 1, 0)
    with pytest.raises(ProgramError, match="inner or left, not full"):
        factory.create()
