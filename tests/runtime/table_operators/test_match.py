"""MATCH_RECOGNIZE's operator, beside all ways in which the rows of a key can be of variables."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.table_operators.model import D, I, Row
from tests.runtime.table_operators.pattern_model import matches
from tests.runtime.table_operators.running import TableHarness
from tests.support.examples import examples

from millstream.errors import TypeMismatchError, UserFunctionError
from millstream.expressions.nodes import Expression, InputReference, Literal
from millstream.expressions.resolution import resolve_call
from millstream.runtime.operators.table.match import (
    Aggregation,
    MatchFactory,
    MatchTime,
    Navigation,
    Slot,
)
from millstream.runtime.operators.table.row_patterns import PatternVariable, RowPattern, SkipTo
from millstream.runtime.operators.table.specs import SortColumn
from millstream.types.logical_types import (
    BigIntType,
    IntType,
    RowType,
    TimestampKind,
    TimestampType,
    VarCharType,
)

TIME = TimestampType(3, kind=TimestampKind.ROWTIME)
NUMBER = BigIntType()
ROWS = RowType.of(k=VarCharType(5), t=TIME, n=NUMBER)
START = datetime(1970, 1, 1)  # noqa: DTZ001 - a TIMESTAMP has no zone
COUNT = BigIntType(nullable=False)
SLOTS: tuple[Slot, ...] = (
    Navigation(2, 0, False, 0, NUMBER),  # A.n
    Navigation(2, 1, False, 0, NUMBER),  # B.n
    Navigation(2, 1, False, 1, NUMBER),  # LAST(B.n, 1)
    Navigation(2, None, True, 0, NUMBER),  # FIRST(n)
    Aggregation("SUM", (InputReference(2, "n", NUMBER),), 1, NUMBER),  # SUM(B.n)
    Aggregation("COUNT", (), None, COUNT),  # COUNT(*)
    MatchTime(TIME),
)
OUTPUT = [ROWS.fields[0].type, *(slot.type for slot in SLOTS)]


def slot(index: int) -> InputReference:
    return InputReference(index, f"s{index}", SLOTS[index].type)


def number(value: int) -> Literal:
    return Literal(value, IntType(nullable=False))


#: A reads the row alone; B rows before it; C an aggregate and the first row.
CONDITIONS: tuple[Expression | None, ...] = (
    resolve_call(">", slot(0), number(0)),
    resolve_call("OR", resolve_call("IS NULL", slot(2)), resolve_call(">=", slot(1), slot(2))),
    resolve_call(">", slot(4), slot(3)),
)
VARIABLES = (PatternVariable("A"), PatternVariable("B", 1, None, True), PatternVariable("C"))
RELUCTANT = (VARIABLES[0], PatternVariable("B", 1, 3), VARIABLES[2])


def meets_of(rows: list[Row]) -> Any:
    def meets(start: int, counts: tuple[int, ...]) -> bool:
        numbers = [row[2] for row in rows[start : start + sum(counts)]]
        of_b = numbers[counts[0] : sum(counts[:2])]
        if len(counts) == 1:
            return numbers[-1] is not None and numbers[-1] > 0
        if len(counts) == 2:
            before = of_b[-2] if len(of_b) > 1 else None
            return before is None or (of_b[-1] is not None and of_b[-1] >= before)
        known = [each for each in of_b if each is not None]
        return bool(known) and numbers[0] is not None and sum(known) > numbers[0]

    return meets


def measured(rows: list[Row], found: Any) -> Row:
    start, counts, time = found
    numbers = [row[2] for row in rows[start : start + sum(counts)]]
    of_b = numbers[counts[0] : sum(counts[:2])]
    known = [each for each in of_b if each is not None]
    return (
        rows[start][0],
        numbers[counts[0] - 1],
        of_b[-1],
        of_b[-2] if len(of_b) > 1 else None,
        numbers[0],
        sum(known) if known else None,
        len(numbers),
        at(time),
    )


def at(milliseconds: int) -> datetime:
    return START + timedelta(milliseconds=milliseconds)


def milliseconds(time: datetime) -> int:
    return (time - START) // timedelta(milliseconds=1)


def plan_of(pattern: RowPattern, **options: Any) -> MatchFactory:
    given: dict[str, Any] = {"rowtime": 1, **options}
    measures = tuple(map(slot, range(len(SLOTS))))
    return MatchFactory(ROWS, (0,), pattern, CONDITIONS, measures, SLOTS, **given)


rows_of_keys = st.tuples(
    st.sampled_from(["a", "b"]),
    st.integers(0, 12).map(at),
    st.one_of(st.none(), st.integers(0, 3), st.integers(0, 3)),
)
steps = st.lists(
    st.one_of(
        st.lists(rows_of_keys, min_size=1, max_size=6),
        st.lists(rows_of_keys, min_size=1, max_size=6),
        st.integers(0, 12),  # a watermark
        st.just("snapshot"),
    ),
    max_size=12,
)
patterns = st.builds(
    RowPattern,
    st.sampled_from([VARIABLES, RELUCTANT]),
    st.sampled_from([SkipTo.PAST_LAST_ROW, SkipTo.NEXT_ROW, SkipTo.LAST]),
    st.just(1),
    st.sampled_from([None, 4, 9]),
)


@pytest.mark.parametrize("long_lived", [False, True])
@examples(25)
@given(plan=steps, pattern=patterns)
def test_oracle_of_all_ways(long_lived: bool, plan: list[Any], pattern: RowPattern) -> None:
    taken: list[Row] = []
    late, watermark = 0, -1
    factory = plan_of(pattern, order=(SortColumn(2, descending=True),))
    with TableHarness(factory, ROWS, OUTPUT, long_lived=long_lived) as harness:
        harness.watermark(-1)
        for step in [*plan, 30]:
            if step == "snapshot":
                harness.end_epoch()
            elif isinstance(step, int):
                watermark = max(watermark, step)
                harness.watermark(watermark)
            else:
                harness.feed([(I, row) for row in step])
                on_time = [row for row in step if row[1] > at(watermark)]
                late += len(step) - len(on_time)
                taken += on_time
        harness.end_epoch()
        for key in ("a", "b"):
            mine = [row for row in taken if row[0] == key]
            # NULL is the lowest value: it comes last.
            mine.sort(key=lambda row: (row[1], row[2] is None, -(row[2] or 0)))
            times = [milliseconds(row[1]) for row in mine]
            wanted = matches(pattern, meets_of(mine), times, 30)
            assert not isinstance(wanted, str)
            found = [row for _, row in harness.changes if row[0] == key]
            assert found == [measured(mine, each) for each in wanted]
        assert harness.metrics["numLateRecordsDropped"] == late


def test_by_processing_time_rows_are_taken_as_they_come() -> None:
    pattern = RowPattern(VARIABLES, SkipTo.PAST_LAST_ROW, None, 10)
    slots, measures = SLOTS[:6], tuple(map(slot, range(6)))
    plan = MatchFactory(ROWS, (0,), pattern, CONDITIONS, measures, slots, rowtime=None)
    with TableHarness(plan, ROWS, OUTPUT[:-1]) as harness:
        harness.feed([(I, ("a", None, n)) for n in (1, 2)])
        harness.end_epoch()
        harness.feed([(I, ("a", None, 0))])
        assert [row[5:] for _, row in harness.changes] == [(2, 3)]
        harness.feed([(I, ("a", None, n)) for n in (1, 2)])
        harness.processing_time(10)  # what has begun is too old now
        harness.feed([(I, ("a", None, 0))])
        assert len(harness.changes) == 1


def test_nothing_is_kept_of_keys_without_a_match_in_the_making() -> None:
    pattern = RowPattern(VARIABLES, SkipTo.PAST_LAST_ROW, None, 5)
    with TableHarness(plan_of(pattern), ROWS, OUTPUT) as harness:
        operator: Any = harness.operator
        harness.feed([(I, (key, at(1), n)) for key in "abc" for n in (0, 1)])
        harness.watermark(2)
        assert all(operator._matches.get_all(["a", "b", "c"]))
        harness.watermark(7)
        assert not any(operator._matches.get_all(["a", "b", "c"]))


def test_skipping_to_where_the_match_began_fails() -> None:
    pattern = RowPattern(VARIABLES, SkipTo.FIRST, 0)
    message = "Could not skip to first element of a match"
    with TableHarness(plan_of(pattern), ROWS, OUTPUT) as harness:
        harness.feed([(I, ("a", at(n), n)) for n in (1, 2)] + [(I, ("a", at(3), 0))])
        with pytest.raises(UserFunctionError, match=message):
            harness.watermark(5)


def test_updates_are_refused() -> None:
    plan = plan_of(RowPattern(VARIABLES))
    with (
        TableHarness(plan, ROWS, OUTPUT) as harness,
        pytest.raises(TypeMismatchError, match="inserts only"),
    ):
        harness.feed([(D, ("a", at(1), 1))])


def test_a_row_without_time_is_refused() -> None:
    plan = plan_of(RowPattern(VARIABLES))
    with (
        TableHarness(plan, ROWS, OUTPUT) as harness,
        pytest.raises(UserFunctionError, match="is NULL"),
    ):
        harness.feed([(I, ("a", None, 1))])
