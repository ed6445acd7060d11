"""OVER over changelogs, beside a computation over all rows in front, and in queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.table_operators.model import UA, UB, Aggregate, Change, D, I, Row, is_add
from tests.runtime.table_operators.running import TableHarness
from tests.runtime.table_operators.strategies import batches, changelogs, cuts
from tests.support.examples import examples
from tests.support.query_running import changelog, environment, materialised, table_of

from millstream.errors import ProgramError
from millstream.runtime.operators.table.over import UpdatingOverFactory
from millstream.runtime.operators.table.specs import AggregateCall, SortColumn
from millstream.types.logical_types import BigIntType, RowType, VarCharType

if TYPE_CHECKING:
    from pathlib import Path

ROWS = RowType.of(k=VarCharType(5), o=BigIntType(), n=BigIntType())
TYPES = [field.type for field in ROWS]
CALLS = {
    "SUM": AggregateCall("SUM", (2,), BigIntType()),
    "MIN": AggregateCall("MIN", (2,), BigIntType()),
    "COUNT": AggregateCall("COUNT", (2,), BigIntType(), distinct=True),
    "FIRST_VALUE": AggregateCall("FIRST_VALUE", (2,), BigIntType()),
}
MODELS = [Aggregate(name, 2, distinct=name == "COUNT") for name in CALLS]

rows = st.tuples(
    st.sampled_from(["a", None]),
    st.one_of(st.none(), st.integers(0, 4)),
    st.one_of(st.none(), st.integers(-2, 2)),
)


class Over:
    """Every row with its aggregates, computed anew behind each change."""

    def __init__(
        self, *, is_rows: bool, preceding: int | None, descending: bool, update_before: bool
    ) -> None:
        self.is_rows, self.preceding = is_rows, preceding
        self.descending, self.update_before = descending, update_before
        self.there: dict[Any, list[Row]] = {}

    def place(self, row: Row) -> tuple[int, int]:
        rank = (0, 0) if row[1] is None else (1, row[1])
        return (-rank[0], -rank[1]) if self.descending else rank

    def results(self, mine: list[Row]) -> list[Row]:
        found = []
        for at, row in enumerate(mine):
            if self.is_rows:
                first = 0 if self.preceding is None else max(0, at - self.preceding)
                frame = mine[first : at + 1]
            else:
                here = self.place(row)
                frame = [
                    each
                    for each in mine
                    if self.place(each) <= here
                    and (self.preceding is None or self.place(each) == here)
                ]
            found.append((*row, *(m.result([each[2] for each in frame]) for m in MODELS)))
        return found

    def process(self, kind: int, row: Row) -> list[Change]:
        mine = self.there.setdefault(row[0], [])
        before = self.results(mine)
        if is_add(kind):
            at = sum(self.place(each) <= self.place(row) for each in mine)
            mine.insert(at, row)
            after = self.results(mine)
            out, rest = [(I, after.pop(at))], before
        else:
            at = mine.index(row)
            out, rest = [(D, before.pop(at))], before
            mine.pop(at)
            after = self.results(mine)
        for old, new in zip(rest, after, strict=True):
            if old != new:
                out += [(UB, old)] if self.update_before else []
                out.append((UA, new))
        return out


@pytest.mark.parametrize("long_lived", [False, True])
@examples(20)
@given(
    changes=changelogs(rows, 30),
    cut=cuts(),
    frame=st.sampled_from([(True, None), (True, 0), (True, 2), (False, None), (False, 0)]),
    descending=st.booleans(),
    update_before=st.booleans(),
)
def test_agree_with_the_rows_in_front(
    long_lived: bool,
    changes: list[Change],
    cut: list[tuple[int, bool]],
    frame: tuple[bool, int | None],
    descending: bool,
    update_before: bool,
) -> None:
    options = {"is_rows": frame[0], "preceding": frame[1], "update_before": update_before}
    model = Over(descending=descending, **options)  # type: ignore[arg-type]
    expected = [out for change in changes for out in model.process(*change)]
    plan = UpdatingOverFactory(
        ROWS,
        (0,),
        (SortColumn(1, descending),),
        tuple(CALLS.values()),
        **options,  # type: ignore[arg-type]
    )
    with TableHarness(
        plan, ROWS, [*TYPES, *[BigIntType()] * len(CALLS)], long_lived=long_lived
    ) as harness:
        for part, snapshot in batches(changes, cut):
            harness.feed(part)
            if snapshot:
                harness.end_epoch()
        assert harness.changes == expected


def test_state_expires_as_a_whole() -> None:
    plan = UpdatingOverFactory(
        ROWS, (0,), (SortColumn(1),), (CALLS["SUM"],), True, True, state_ttl=10
    )
    with TableHarness(plan, ROWS, [*TYPES, BigIntType()]) as harness:
        harness.feed([(I, ("a", 1, 1))])
        harness.processing_time(9)
        assert harness.feed([(I, ("a", 2, 2))]) == [(I, ("a", 2, 2, 3))]
        harness.end_epoch()
        harness.processing_time(19)
        assert harness.feed([(I, ("a", 3, 4))]) == [(I, ("a", 3, 4, 4))]
        assert harness.feed([(D, ("a", 2, 2))]) == []


OVER = "SUM(v) OVER (PARTITION BY k ORDER BY {} {}) AS s"


@pytest.mark.both_engines
@pytest.mark.parametrize("parallelism", [1, 3])
def test_groups_that_change_are_summed_up_in_order(parallelism: int, tmp_path: Path) -> None:
    env = environment(parallelism)
    given_ = [(k, o, v) for v in range(4) for o in (3, 1, 2) for k in ("a", "b")]
    table_of(env, "t", "k STRING, o INT, v INT", given_, tmp_path)
    over = OVER.format("o DESC", "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW")
    query = f"SELECT k, o, {over} FROM (SELECT k, o, SUM(v) AS v FROM t GROUP BY k, o)"
    found = materialised(changelog(env, query, tmp_path, limit=2))
    assert found == {(k, o, s): 1 for k in ("a", "b") for o, s in ((3, 6), (2, 12), (1, 12))}
    assert "OverAggregate(partitionBy=[k], orderBy=[o DESC]" in env.explain_sql(query)


def test_a_time_attribute_that_has_ended_is_an_order_like_any_other(tmp_path: Path) -> None:
    env = environment()
    columns = "k STRING, ts TIMESTAMP(3), v INT, WATERMARK FOR ts AS ts"
    given_ = [("a", f"2024-01-01 00:00:0{second}", second) for second in (3, 1, 2)]
    table_of(env, "t", columns, given_, tmp_path)
    over = OVER.format("ts", "")
    query = f"SELECT v, {over} FROM (SELECT DISTINCT k, ts, v FROM t)"
    assert materialised(changelog(env, query, tmp_path)) == {(1, 1): 1, (2, 3): 1, (3, 6): 1}
    rows = changelog(env, f"SELECT v, {over} FROM t", tmp_path)  # by time: late rows are dropped
    assert {row.get_row_kind().value for row in rows} == {0}


_BY_CLOCK = "SELECT SUM(v) OVER (ORDER BY now) FROM (SELECT v, PROCTIME() AS now FROM ({}))"
_LENGTH = "RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            f"SELECT SUM(v) OVER (ORDER BY ts {_LENGTH}) FROM (SELECT DISTINCT ts, v FROM t)",
            "where it is processing time, or RANGE has a length",
        ),
        (_BY_CLOCK.format("SELECT SUM(v) AS v FROM t"), "doesn't support consuming update"),
        ("SELECT SUM(v) OVER (ORDER BY ts DESC) FROM t", "ordered by time in ASCENDING mode"),
        (
            "SELECT SUM(v) FILTER (WHERE v > 1) OVER (ORDER BY v) FROM t",
            "FILTER with OVER is not in this release",
        ),
    ],
)
def test_what_is_refused(query: str, message: str, tmp_path: Path) -> None:
    env = environment()
    table_of(env, "t", "ts TIMESTAMP(3), v INT, WATERMARK FOR ts AS ts", [], tmp_path)
    with pytest.raises(ProgramError, match=message):
        changelog(env, query, tmp_path)
