"""Joins, numbers and groups of rows that have windows already, against DuckDB."""

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
from millstream.table import ExplainDetail

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

START = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
COLUMNS = "ts TIMESTAMP(3), k STRING, v INT, WATERMARK FOR ts AS ts - INTERVAL '900' SECOND"
SAME = "a.window_start = b.window_start AND a.window_end = b.window_end"
JOIN = f"SELECT a.k, a.v, b.k, b.v FROM wl AS a {{}} JOIN wr AS b ON {SAME} AND {{}}"
EXISTS = f"SELECT a.ts, a.k FROM wl AS a WHERE {{}} (SELECT * FROM wr AS b WHERE {SAME} AND {{}})"
COUNTS = (
    "SELECT window_start, window_end, k, COUNT(*) AS n, SUM(v) AS s FROM {} "
    "GROUP BY window_start, window_end, k"
)
#: Query -> which node computes it.  What stands here is the same for DuckDB.
QUERIES = {
    JOIN.format("", "a.k = b.k"): "WindowJoin",
    JOIN.format("LEFT", "a.k = b.k AND a.v < b.v"): "WindowJoin",
    JOIN.format("RIGHT", "b.k = a.k AND b.v > 3"): "WindowJoin",
    JOIN.format("FULL", "a.k = b.k AND a.v <> b.v"): "WindowJoin",
    JOIN.format("FULL", "a.k IS NOT DISTINCT FROM b.k"): "WindowJoin",
    JOIN.format("LEFT", "a.v > b.v + 6"): "WindowJoin",
    EXISTS.format("EXISTS", "a.k = b.k AND a.v < b.v"): "WindowJoin",
    EXISTS.format("NOT EXISTS", "a.k = b.k AND a.v + 1 = b.v"): "WindowJoin",
    f"SELECT a.k, a.v FROM wl AS a WHERE a.v IN (SELECT b.v FROM wr AS b WHERE {SAME})": (
        "WindowJoin"
    ),
    (
        "SELECT k, v, window_start, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, "
        "window_end, window_start ORDER BY v DESC, ts) AS n FROM wl) WHERE n <= 2"
    ): "WindowRank",
    (
        "SELECT k, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k "
        "ORDER BY ts DESC) AS n FROM wl) WHERE n = 1"
    ): "WindowRank",
    (
        "SELECT window_start, k, s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, "
        f"window_end ORDER BY s DESC, n, k NULLS FIRST) AS p FROM ({COUNTS.format('wl')})) "
        "WHERE p BETWEEN 2 AND 3"
    ): "WindowRank",
    (
        f"SELECT a.window_start, a.k, a.n, b.n FROM ({COUNTS.format('wl')}) AS a "
        f"FULL JOIN ({COUNTS.format('wr')}) AS b ON a.k = b.k AND {SAME}"
    ): "WindowJoin",
    (
        f"SELECT window_start, MAX(n) AS m, COUNT(*) AS c FROM ({COUNTS.format('wl')}) "
        "WHERE s > 5 GROUP BY window_start, window_end"
    ): "WindowAggregate(window=[TUMBLE(win_start=[window_start], win_end=[window_end]",
    (
        "SELECT a.window_end, COUNT(*) AS c, SUM(a.v * b.v) AS s FROM wl AS a JOIN wr AS b "
        f"ON {SAME} AND a.k = b.k GROUP BY a.window_start, a.window_end"
    ): "WindowAggregate(window=[TUMBLE(win_start=[window_start], win_end=[window_end]",
    "SELECT date_trunc_2, s FROM twice": "WindowAggregate",
    (
        "SELECT window_start, k, n, COUNT(*) AS c, SUM(s) AS s, GROUPING(k) AS g FROM "
        f"({COUNTS.format('wl')}) WHERE s > 3 GROUP BY GROUPING SETS "
        "((window_start, window_end, k), (window_end, window_start), (window_start, window_end, n))"
    ): "window=[TUMBLE(win_start=[window_start], win_end=[window_end])]",
    (
        "SELECT a.window_end, a.k, b.k, COUNT(*) AS c FROM wl AS a JOIN wr AS b "
        f"ON {SAME} AND a.v = b.v GROUP BY a.window_start, a.window_end, CUBE (a.k, b.k)"
    ): "window=[TUMBLE(win_start=[window_start], win_end=[window_end])]",
    (
        "SELECT a.window_end, GROUPING(a.k) AS g, COUNT(*) AS c FROM wl AS a JOIN wr AS b "
        f"ON {SAME} AND a.v = b.v GROUP BY a.window_start, a.window_end, a.k"
    ): "window=[TUMBLE(win_start=[window_start], win_end=[window_end])]",
}
#: The queries that are not left to soaks.
_USUAL = {1, 3, 7, 9, 12, 14, 15, 17, 18}


def _tables(env: TableEnvironment, seed: int, path: Path) -> duckdb.DuckDBPyConnection:
    drawn = random.Random(seed)
    connection = duckdb.connect()
    for name in "lr":
        rows = [
            (
                str(START + dt.timedelta(seconds=seconds)),
                drawn.choice(["a", "b", "c", None]),
                drawn.randint(0, 9),
            )
            for seconds in drawn.sample(range(600), 60)
        ]
        table_of(env, name, COLUMNS, rows, path)
        env.execute_sql(
            f"CREATE TEMPORARY VIEW w{name} AS SELECT * FROM TUMBLE(TABLE {name}, DESCRIPTOR(ts), "
            "INTERVAL '1' MINUTE)"
        )
        connection.execute(f"CREATE TABLE {name} (ts TIMESTAMP, k VARCHAR, v INT)")
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
        connection.execute(
            f"CREATE VIEW w{name} AS SELECT *, date_trunc('minute', ts) AS window_start, "
            f"window_start + INTERVAL 1 MINUTE AS window_end FROM {name}"
        )
    # The time of windows goes on: windows of two minutes over those of one.
    env.execute_sql(
        "CREATE TEMPORARY VIEW sums AS SELECT window_time AS t, SUM(v) AS s FROM wl "
        "GROUP BY window_start, window_end, window_time"
    )
    env.execute_sql(
        "CREATE TEMPORARY VIEW twice AS SELECT window_start AS date_trunc_2, MAX(s) AS s FROM "
        "TUMBLE(TABLE sums, DESCRIPTOR(t), INTERVAL '2' MINUTE) GROUP BY window_start, window_end"
    )
    connection.execute(
        "CREATE VIEW twice AS SELECT time_bucket(INTERVAL 2 MINUTE, w) AS date_trunc_2, MAX(s) "
        "AS s FROM (SELECT window_start AS w, SUM(v) AS s FROM wl GROUP BY ALL) GROUP BY ALL"
    )
    return connection


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(every=5)
@pytest.mark.parametrize(
    "number",
    [
        # The rest is for soaks.
        pytest.param(each, marks=() if each in _USUAL else pytest.mark.soak)
        for each in range(len(QUERIES))
    ],
)
def test_oracle_windowed_rows(number: int, tmp_path: Path) -> None:
    query, node = list(QUERIES.items())[number]
    print("seed", number)
    env = environment((1, 3)[number % 2])
    connection = _tables(env, number, tmp_path)
    assert node in env.explain_sql(query)
    rows = changelog(env, query, tmp_path, number)
    assert materialised(rows) == Counter(connection.execute(query).fetchall())
    assert {row.get_row_kind() for row in rows} <= {RowKind.INSERT}


def test_late_rows_join_nothing(tmp_path: Path) -> None:
    env = environment(1)
    for name, times in {"l": ["00:10", "01:05", "00:20"], "r": ["00:30", "01:20", "00:40"]}.items():
        (tmp_path / name).mkdir()
        lines = [f'{{"ts": "2024-01-01 00:{each}", "v": {int(each[-2:])}}}\n' for each in times]
        (tmp_path / name / "0.json").write_text("".join(lines))
        env.execute_sql(
            f"CREATE TABLE {name} (ts TIMESTAMP(3), v INT, WATERMARK FOR ts AS ts) WITH "
            f"('connector' = 'filesystem', 'path' = '{tmp_path / name}', 'format' = 'json')"
        )
    query = (
        "SELECT a.v, b.v FROM TUMBLE(TABLE l, DESCRIPTOR(ts), INTERVAL '1' MINUTE) AS a FULL JOIN "
        f"TUMBLE(TABLE r, DESCRIPTOR(ts), INTERVAL '1' MINUTE) AS b ON {SAME}"
    )
    rows = [tuple(row) for row in changelog(env, query, tmp_path, limit=38)]
    assert rows == [(10, 30), (5, 20)]


def test_windows_of_another_size_are_no_window_join(tmp_path: Path) -> None:
    env = environment()
    _tables(env, 0, tmp_path)
    env.execute_sql(
        "CREATE TEMPORARY VIEW other AS SELECT * FROM TUMBLE(TABLE r, DESCRIPTOR(ts), INTERVAL '2' "
        "MINUTE)"
    )
    query = f"SELECT a.v FROM wl AS a JOIN {{}} AS b ON a.k = b.k AND {SAME}"
    assert "WindowJoin" in env.explain_sql(query.format("wr"))
    assert "WindowJoin" not in env.explain_sql(query.format("other"))
    start = "SELECT a.v FROM wl AS a JOIN wr AS b ON a.window_start = b.window_start"
    assert "WindowJoin" not in env.explain_sql(start)


def test_plans_of_windowed_rows(tmp_path: Path) -> None:
    env = environment()
    _tables(env, 0, tmp_path)
    window = "TUMBLE(win_start=[window_start], win_end=[window_end], size=[1 min])"
    plan = env.explain_sql(JOIN.format("LEFT", "a.k = b.k"), "CHANGELOG_MODE")
    assert (
        f"WindowJoin(leftWindow=[{window}], rightWindow=[{window}], joinType=[LeftOuterJoin], "
        "where=[(k = k0)], select=["
    ) in plan
    query = (
        "SELECT k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k "
        "ORDER BY v DESC) AS n FROM wl) WHERE n <= 3"
    )
    assert (
        f"WindowRank(window=[{window}], rankType=[ROW_NUMBER], rankRange=[rankStart=1, rankEnd=3], "
        "partitionBy=[k], orderBy=[v DESC], select=["
    ) in env.explain_sql(query)


def test_equal_times_of_windows_are_keys(tmp_path: Path) -> None:
    """Beside equal windows they bound nothing: rows of one key go to one task, not all to one."""
    env = environment()
    _tables(env, 1, tmp_path)
    shown = env.explain_sql(JOIN.format("", "a.window_time = b.window_time"))
    assert "IntervalJoin" not in shown
    assert shown.count("Exchange(distribution=[hash[$k0]])") == 4  # of two inputs, in two plans
    assert "single" not in shown


def test_of_the_times_behind_a_window_only_its_own_goes_on(tmp_path: Path) -> None:
    env = environment()
    _tables(env, 0, tmp_path)
    env.execute_sql(
        "CREATE TEMPORARY VIEW j AS SELECT a.ts, a.window_time AS t, b.window_time AS u FROM wl AS "
        f"a LEFT JOIN wr AS b ON a.k = b.k AND {SAME}"
    )
    env.execute_sql(
        "CREATE TEMPORARY VIEW g AS SELECT window_time AS t, k FROM wl GROUP BY window_time, k"
    )
    window = "SELECT * FROM TUMBLE(TABLE {}, DESCRIPTOR({}), INTERVAL '1' MINUTE)"
    env.explain_sql(window.format("j", "t"))
    for table, time in (("j", "ts"), ("j", "u"), ("g", "t")):
        with pytest.raises(ValidationError, match="requires the timecol is a time attribute type"):
            env.explain_sql(window.format(table, time))


def test_windows_of_processing_time_are_not_joined(tmp_path: Path) -> None:
    env = environment()
    _tables(env, 0, tmp_path)
    for name in "lr":
        env.execute_sql(f"CREATE TEMPORARY VIEW p{name} AS SELECT *, PROCTIME() AS p FROM {name}")
        env.execute_sql(
            f"CREATE TEMPORARY VIEW wp{name} AS SELECT * FROM TUMBLE(TABLE p{name}, DESCRIPTOR(p), "
            "INTERVAL '1' MINUTE)"
        )
    with pytest.raises(ValidationError, match="Processing time Window Join is not supported yet"):
        env.explain_sql(f"SELECT a.v FROM wpl AS a JOIN wpr AS b ON {SAME}")


def test_windows_of_processing_time_lose_no_rows(tmp_path: Path) -> None:
    """A row of a window may come when the clock is past it: what is above has updates."""
    env = environment(1)
    connection = _tables(env, 0, tmp_path)
    env.execute_sql("CREATE TEMPORARY VIEW clocked AS SELECT k, v, PROCTIME() AS p FROM l")
    env.execute_sql(
        "CREATE TEMPORARY VIEW sums_by_clock AS SELECT window_start AS a, window_end AS b, "
        "window_time AS t, k, SUM(v) AS s FROM TUMBLE(TABLE clocked, DESCRIPTOR(p), "
        "INTERVAL '0.001' SECOND) GROUP BY window_start, window_end, window_time, k"
    )
    ((total,),) = connection.execute("SELECT SUM(v) FROM l").fetchall()
    top = "SELECT s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a, b ORDER BY s) AS n FROM "
    for query in (
        "SELECT SUM(s) AS s FROM sums_by_clock GROUP BY a, b, t",
        f"{top} sums_by_clock) WHERE n <= 9",
    ):
        there = materialised(changelog(env, query, tmp_path, limit=7))
        assert sum(row[0] * count for row, count in there.items()) == total


def test_windows_over_a_union(tmp_path: Path) -> None:
    env = environment(1)
    connection = _tables(env, 3, tmp_path)
    env.execute_sql("CREATE TEMPORARY VIEW both_sides AS SELECT * FROM l UNION ALL SELECT * FROM r")
    query = (
        "SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE both_sides, DESCRIPTOR(ts), "
        "INTERVAL '1' MINUTE) GROUP BY window_start, window_end"
    )
    same = "SELECT date_trunc('minute', ts), COUNT(*) FROM (FROM l UNION ALL FROM r) GROUP BY ALL"
    rows = materialised(changelog(env, query, tmp_path, 3))
    assert rows == Counter(connection.execute(same).fetchall())


@pytest.mark.parametrize(
    "computed",
    [
        "CASE WHEN v > 3 THEN ts END",
        "NULLIF(ts, TIMESTAMP '2024-01-01 00:00:00')",
        "COALESCE(ts)",
        "IF(v > 3, ts, NULL)",
        "ROW(ts, v).EXPR$0",
        "ARRAY[ts][1]",
        "MAP[v, ts][v]",
    ],
)
def test_what_is_computed_of_a_time_is_no_time_attribute(computed: str, tmp_path: Path) -> None:
    """Else a window would drop rows whose time is NULL, and OVER wait for a watermark."""
    env = environment(1)
    _tables(env, 0, tmp_path)
    env.execute_sql(f"CREATE TEMPORARY VIEW computed AS SELECT {computed} AS t, v FROM l")
    with pytest.raises(ValidationError, match="time attribute"):
        env.explain_sql("SELECT * FROM TUMBLE(TABLE computed, DESCRIPTOR(t), INTERVAL '1' MINUTE)")
    over = env.explain_sql(
        "SELECT SUM(v) OVER (ORDER BY t) FROM computed", ExplainDetail.CHANGELOG_MODE
    )
    assert any("OverAggregate(" in line and "UA" in line for line in over.splitlines()), (
        over
    )  # as of any column: rows may come in front of others


def test_days_of_a_time_zone(tmp_path: Path) -> None:
    env = environment(1)
    env.execute_sql("SET 'table.local-time-zone' = 'Asia/Kolkata'")
    times = ["2024-01-01 18:00:00", "2024-01-01 19:00:00", "2024-01-02 18:00:00"]
    directory = tmp_path / "z"
    directory.mkdir()
    epoch = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - UTC
    unit = dt.timedelta(milliseconds=1)
    millis = [(dt.datetime.fromisoformat(each) - epoch) // unit for each in times]
    (directory / "0.json").write_text("".join(f'{{"m": {each}}}\n' for each in millis))
    env.execute_sql(
        "CREATE TABLE z (m BIGINT, ts AS TO_TIMESTAMP_LTZ(m, 3), WATERMARK FOR ts AS ts) WITH "
        f"('connector' = 'filesystem', 'path' = '{directory}', 'format' = 'json')"
    )
    day = "TUMBLE(TABLE z, DESCRIPTOR(ts), INTERVAL '1' DAY)"
    query = (
        f"SELECT a.window_start, COUNT(*) AS n FROM {day} AS a JOIN {day} AS b ON {SAME} "
        "GROUP BY a.window_start, a.window_end, a.window_time"
    )
    days = {(START, 1): 1, (START + dt.timedelta(days=1), 4): 1}
    assert materialised(changelog(env, query, tmp_path)) == days


def test_what_is_random_is_computed_once_below_a_window(tmp_path: Path) -> None:
    """Filters and expressions over it would have another value each, put below the aggregation."""
    env = environment()
    rows = [(f"2024-01-01 00:00:{second:02}", "a", 1) for second in range(60)]
    table_of(env, "e", COLUMNS, rows, tmp_path)
    window = "TABLE({}(TABLE e {} DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
    query = (
        "SELECT MIN(r) >= 50 AS m, SUM(r - r) AS d FROM (SELECT *, RAND_INTEGER(100) AS r FROM {}) "
        "WHERE r >= 50 GROUP BY window_start, window_end{}"
    )
    found = changelog(env, query.format(window.format("TUMBLE", ","), ""), tmp_path)
    assert materialised(found) == {(True, 0): 1}
    found = changelog(
        env, query.format(window.format("SESSION", "PARTITION BY k,"), ", k"), tmp_path
    )
    assert materialised(found) == {(True, 0): 1}


def test_sets_without_the_window_are_never_over(tmp_path: Path) -> None:
    env = environment()
    _tables(env, 1, tmp_path)
    query = (
        f"SELECT k, COUNT(*) AS c FROM ({COUNTS.format('wl')}) WHERE s > 3 "
        "GROUP BY GROUPING SETS ((window_start, window_end, k), (window_start, k))"
    )
    assert "GroupAggregate" in env.explain_sql(query)


def test_what_is_random_is_computed_once_above_numbers(tmp_path: Path) -> None:
    env = environment()
    table_of(env, "e", "k STRING, v INT", [("ab"[n % 2], n) for n in range(60)], tmp_path)
    numbered = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM e)"
    drawn = f"(SELECT k, v, n, RAND_INTEGER(100) AS r FROM {numbered})"
    query = "SELECT {}r, s FROM (SELECT *, r AS s FROM {}) WHERE n <= 40 AND r >= 50"
    for number in ("", "n, "):
        rows = changelog(env, query.format(number, drawn), tmp_path)
        pairs = [tuple(row)[-2:] for row in rows]
        assert len(pairs) > 5
        assert all(50 <= r == s for r, s in pairs)
    query = f"SELECT r FROM {drawn} WHERE n > 2 AND n <= 40 AND r > 50"
    assert min(tuple(row) for row in changelog(env, query, tmp_path)) > (50,)
