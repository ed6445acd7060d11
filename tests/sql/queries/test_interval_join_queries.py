"""Joins with bounds of time in SQL: inner and outer, against DuckDB."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import TYPE_CHECKING

import duckdb
import pytest
from tests.support.query_running import changelog, environment, materialised, table_of

from millstream.common import RowKind
from millstream.errors import ValidationError

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

START = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
COLUMNS = "ts TIMESTAMP(3), k STRING, v INT, WATERMARK FOR ts AS ts - INTERVAL '900' SECOND"
NEAR = "b.ts BETWEEN a.ts - INTERVAL '20' SECOND AND a.ts + INTERVAL '5' SECOND"
#: What stands in both dialects.
QUERIES = [
    f"SELECT a.k, a.v, b.v FROM e a LEFT JOIN f b ON a.k = b.k AND {NEAR}",
    (
        "SELECT a.ts, a.k, b.k, b.v FROM e a RIGHT JOIN f b ON a.k = b.k AND a.ts < b.ts "
        "AND a.ts > b.ts - INTERVAL '30' SECOND AND a.v < b.v"
    ),
    f"SELECT a.k, a.v, b.k, b.v FROM e a FULL JOIN f b ON a.k = b.k AND {NEAR} AND a.v <> 3",
    f"SELECT a.k, a.v, b.k, b.v FROM e a FULL JOIN f b ON a.k IS NOT DISTINCT FROM b.k AND {NEAR}",
    f"SELECT a.k, a.v, b.k, b.v FROM e a LEFT JOIN f b ON {NEAR} AND b.v > 5",
    f"SELECT a.k, a.v, b.v FROM e a JOIN f b ON a.v % 3 = b.v % 3 AND {NEAR}",
    f"SELECT a.v, b.v FROM e a LEFT JOIN f b ON LOWER(a.k) = b.k AND {NEAR} WHERE b.v IS NULL",
    "SELECT a.k, a.v, b.k, b.v FROM e a FULL JOIN f b ON a.ts = b.ts",
    "SELECT a.v, b.v FROM e a JOIN f b ON b.ts = a.ts - INTERVAL '7' SECOND AND a.v <> b.v",
]


def _tables(env: TableEnvironment, seed: int, path: Path) -> duckdb.DuckDBPyConnection:
    drawn = random.Random(seed)
    connection = duckdb.connect()
    for name in ("e", "f"):
        rows = [
            (
                str(START + dt.timedelta(seconds=drawn.randint(0, 600))),
                drawn.choice(["a", "b", "c", None]),
                drawn.randint(0, 9),
            )
            for _ in range(60)
        ]
        table_of(env, name, COLUMNS, rows, path)
        connection.execute(f"CREATE TABLE {name} (ts TIMESTAMP, k VARCHAR, v INT)")
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
    return connection


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(every=3)
@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_oracle_bounds_of_time(number: int, tmp_path: Path) -> None:
    query = QUERIES[number]
    print("seed", number)
    env = environment((3, 1)[number % 2])
    wanted = Counter(_tables(env, number, tmp_path).execute(query).fetchall())
    assert "IntervalJoin(joinType" in env.explain_sql(query)
    rows = changelog(env, query, tmp_path, number)
    assert materialised(rows) == wanted
    assert {row.get_row_kind() for row in rows} == {RowKind.INSERT}


def test_equal_times_bound_each_other_where_nothing_else_does(tmp_path: Path) -> None:
    """So the time goes on, and state goes; where Flink has a regular join there is one."""
    env = environment()
    _tables(env, 1, tmp_path)
    joined = "SELECT a.ts AS ts, b.v AS v FROM e a JOIN f b ON a.k = b.k AND a.ts = b.ts"
    assert "leftLowerBound=0" in env.explain_sql(joined)
    env.execute_sql(f"CREATE TEMPORARY VIEW j AS {joined}")
    window = "TUMBLE(TABLE j, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
    query = f"SELECT window_end, COUNT(*) FROM {window} GROUP BY window_start, window_end"
    assert "WindowAggregate" in env.explain_sql(query)
    for more in ("AND a.ts <= b.ts", "AND a.ts = b.ts + INTERVAL '1' SECOND"):
        assert "IntervalJoin" not in env.explain_sql(f"{joined} {more}")
    half = "SELECT v FROM e a WHERE EXISTS (SELECT 1 FROM f b WHERE a.ts = b.ts)"
    assert "IntervalJoin" not in env.explain_sql(half)


@pytest.mark.both_engines
@pytest.mark.parametrize("kind", ["JOIN", "FULL JOIN"])
def test_oracle_processing_time(kind: str, tmp_path: Path) -> None:
    env = environment(2)
    connection = _tables(env, 7, tmp_path)
    env.execute_sql("CREATE TEMPORARY VIEW p AS SELECT *, PROCTIME() AS pt FROM e")
    env.execute_sql("CREATE TEMPORARY VIEW q AS SELECT *, PROCTIME() AS pt FROM f WHERE v > 5")
    query = f"SELECT p.k, p.v, q.v FROM p {kind} q ON p.k = q.k"
    bounds = " AND q.pt BETWEEN p.pt - INTERVAL '1' DAY AND p.pt + INTERVAL '1' DAY"
    assert "windowBounds=[isRowTime=false" in env.explain_sql(query + bounds)
    connection.execute("CREATE VIEW p AS SELECT * FROM e")
    connection.execute("CREATE VIEW q AS SELECT * FROM f WHERE v > 5")
    wanted = Counter(connection.execute(query).fetchall())
    assert materialised(changelog(env, query + bounds, tmp_path, 7)) == wanted


def test_the_time_of_a_side_that_may_be_missing_is_no_attribute(tmp_path: Path) -> None:
    env = environment()
    _tables(env, 0, tmp_path)
    env.execute_sql(
        "CREATE TEMPORARY VIEW v AS SELECT a.k, a.ts, b.ts AS other FROM e a "
        f"LEFT JOIN f b ON a.k = b.k AND {NEAR}"
    )
    window = "SELECT * FROM TUMBLE(TABLE v, DESCRIPTOR({}), INTERVAL '1' MINUTE)"
    env.explain_sql(window.format("ts"))
    with pytest.raises(ValidationError, match="requires the timecol is a time attribute type"):
        env.explain_sql(window.format("other"))
    near = NEAR.replace("a.ts", "a.other")
    assert (
        "IntervalJoin"
        not in env.explain_sql(f"SELECT a.k FROM v a JOIN f b ON a.k = b.k AND {near}")
        .split("== Optimized")[1]
        .split("+- ")[0]
    )


def test_bounds_on_a_time_behind_distinct_make_a_regular_join(tmp_path: Path) -> None:
    env = environment()
    _tables(env, 0, tmp_path)
    env.execute_sql("CREATE TEMPORARY VIEW d AS SELECT DISTINCT k, ts FROM e")
    query = f"SELECT a.k FROM d a JOIN f b ON a.k = b.k AND {NEAR}"
    assert "IntervalJoin" not in env.explain_sql(query)


def test_bounds_of_time_take_inserts(tmp_path: Path) -> None:
    env = environment()
    _tables(env, 0, tmp_path)
    env.execute_sql(
        "CREATE TEMPORARY VIEW u AS SELECT ts, k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION "
        "BY k ORDER BY ts DESC) AS n FROM e) WHERE n = 1"
    )
    with pytest.raises(ValidationError, match="IntervalJoin doesn't support consuming update"):
        env.explain_sql(f"SELECT a.k FROM u a LEFT JOIN f b ON a.k = b.k AND {NEAR}")
