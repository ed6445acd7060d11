"""ORDER BY a time attribute without LIMIT: the rows of a stream in order of time."""

from __future__ import annotations

import datetime as dt
import random
from typing import TYPE_CHECKING

import pytest
from tests.runtime.table_operators.model import D, I
from tests.runtime.table_operators.running import TableHarness
from tests.support.query_running import changelog, environment, table_of

from millstream.errors import TypeMismatchError, ValidationError
from millstream.runtime.operators.table.sort import TemporalSortFactory
from millstream.runtime.operators.table.specs import SortColumn
from millstream.types.logical_types import (
    BigIntType,
    RowType,
    TimestampKind,
    TimestampType,
    VarCharType,
)

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

ROWS = RowType.of(k=VarCharType(5), t=TimestampType(3, kind=TimestampKind.ROWTIME), n=BigIntType())
TYPES = [field.type for field in ROWS]
START = dt.datetime(1969, 12, 31, 23, 59)  # noqa: DTZ001 - a TIMESTAMP has no zone
COLUMNS = "ts TIMESTAMP(3), k STRING, v INT, WATERMARK FOR ts AS ts - INTERVAL '{}' SECOND"

NUMBERED = "SELECT *, ROW_NUMBER() OVER (ORDER BY v) AS n FROM t"


def at(seconds: int) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def test_rows_come_in_order_and_late_ones_do_not() -> None:
    plan = TemporalSortFactory(ROWS, (SortColumn(1), SortColumn(2, descending=True)))
    with TableHarness(plan, ROWS, TYPES) as harness:
        epoch = -60_000
        harness.feed([(I, ("a", at(9), 1)), (I, ("b", at(3), 1)), (I, ("c", at(3), 2))])
        harness.watermark(epoch + 2_000)
        harness.end_epoch()
        # The watermark has passed d, and yet nothing was given after which it would come.
        harness.feed([(I, ("d", at(2), 1)), (I, ("e", at(5), None)), (I, ("f", at(3), 1))])
        assert harness.changes == []
        harness.watermark(epoch + 5_000)
        assert [row[0] for _, row in harness.changes] == ["d", "c", "b", "f", "e"]
        harness.watermark(epoch + 7_000)
        harness.end_epoch()
        assert harness.metrics["numLateRecordsDropped"] == 0
        harness.feed([(I, ("late", at(5), 1)), (I, ("g", at(6), 1)), (I, ("later", at(1), 1))])
        harness.watermark(epoch + 8_000)
        harness.watermark(epoch + 9_000)
        assert [row[0] for _, row in harness.changes][5:] == ["g", "a"]
        harness.end_epoch()
        assert harness.metrics["numLateRecordsDropped"] == 2
        assert len(list(harness.state_entries())) == 1  # the last time


def test_updates_are_refused_where_they_come() -> None:
    plan = TemporalSortFactory(ROWS, (SortColumn(1),))
    with (
        TableHarness(plan, ROWS, TYPES) as harness,
        pytest.raises(TypeMismatchError, match="inserts only"),
    ):
        harness.feed([(D, ("a", at(1), 1))])


@pytest.mark.both_engines(every=2, about="order")
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_query_in_the_order_of_time(parallelism: int, tmp_path: Path) -> None:
    drawn = random.Random(parallelism)
    rows = [
        (str(at(drawn.randint(0, 90))), drawn.choice(["a", "b", None]), drawn.randint(0, 9))
        for _ in range(80)
    ]
    env = environment(parallelism)
    table_of(env, "t", COLUMNS.format(300), rows, tmp_path)
    query = "SELECT k, v + 1 AS w FROM t WHERE v > 1 ORDER BY ts, k DESC NULLS FIRST, w"
    found = [tuple(row) for row in changelog(env, query, tmp_path, parallelism)]
    # Descending, NULL is in front.
    kept = sorted(
        (each for each in rows if each[2] > 1),
        key=lambda row: (row[0], row[1] is not None, -ord(row[1] or " "), row[2]),
    )
    assert found == [(k, v + 1) for _, k, v in kept]


@pytest.mark.both_engines(about="order")
def test_by_processing_time_rows_stay_as_they_came(tmp_path: Path) -> None:
    env = environment(3)
    values = "(SELECT n, PROCTIME() AS p FROM (VALUES (3), (1), (2)) AS t(n))"
    found = changelog(env, f"SELECT n FROM {values} ORDER BY p", tmp_path, limit=9)
    assert [tuple(row) for row in found] == [(3,), (1,), (2,)]
    found = changelog(env, f"SELECT n FROM {values} ORDER BY p, n DESC", tmp_path, limit=9)
    assert [tuple(row) for row in found] == [(3,), (2,), (1,)]
    with pytest.raises(ValidationError, match="TemporalSort doesn't support consuming update"):
        env.explain_sql(
            f"SELECT * FROM (SELECT COUNT(*), PROCTIME() AS p FROM {values}) ORDER BY p"
        )


@pytest.fixture
def env(tmp_path: Path) -> TableEnvironment:
    made = environment()
    table_of(made, "t", COLUMNS.format(1), [], tmp_path)
    made.execute_sql("CREATE TEMPORARY VIEW p AS SELECT *, PROCTIME() AS pt FROM t")
    return made


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM t ORDER BY ts DESC", "must be ascending on time"),
        ("SELECT * FROM t ORDER BY k, ts", "Sort on a non-time-attribute field is not supported"),
        ("SELECT * FROM t ORDER BY ts OFFSET 3 ROWS", "OFFSET without LIMIT"),
        ("SELECT * FROM p ORDER BY pt DESC", "Sort on a non-time-attribute field"),
        (
            "SELECT DISTINCT ts, k FROM t ORDER BY ts",
            "Sort on a non-time-attribute field is not supported",
        ),
        (
            f"SELECT ts FROM ({NUMBERED}) WHERE n < 3 ORDER BY ts",
            "TemporalSort doesn't support consuming update and delete changes",
        ),
    ],
)
def test_what_has_no_order_is_refused(env: TableEnvironment, query: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        env.explain_sql(query)


def test_the_plan(env: TableEnvironment) -> None:
    env.execute_sql("CREATE TEMPORARY VIEW sorted_rows AS SELECT * FROM t ORDER BY ts, v DESC")
    window = "TUMBLE(TABLE sorted_rows, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
    plan = env.explain_sql(f"SELECT COUNT(*) FROM {window} GROUP BY window_start, window_end")
    assert "TemporalSort(orderBy=[ts ASC, v DESC])" in plan
