"""Windows, OVER, UNNEST and grouping sets in SQL, against DuckDB or plain Python."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tests.support.query_running import changelog, environment, materialised, table_of
from tests.support.tiers import sampled

if TYPE_CHECKING:
    from pathlib import Path

START = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
COLUMNS = "ts TIMESTAMP(3), k STRING, v INT, WATERMARK FOR ts AS ts - INTERVAL '700' SECOND"
TUMBLE = "TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
#: Query -> the same for DuckDB.
QUERIES = {
    f"SELECT window_start, window_end, k, COUNT(*) AS n, SUM(v) AS s FROM {TUMBLE} "
    "GROUP BY window_start, window_end, k": (
        "SELECT date_trunc('minute', ts) AS w, w + INTERVAL 1 MINUTE, k, COUNT(*), SUM(v) "
        "FROM e GROUP BY ALL"
    ),
    "SELECT k, window_end, MAX(v) AS n FROM HOP(TABLE e, DESCRIPTOR(ts), INTERVAL '1' MINUTE, "
    "INTERVAL '2' MINUTE) WHERE v > 2 GROUP BY window_start, window_end, k": (
        "SELECT k, w + INTERVAL 2 MINUTE, MAX(v) FROM (SELECT e.*, UNNEST([date_trunc('minute', "
        "ts), date_trunc('minute', ts) - INTERVAL 1 MINUTE]) AS w FROM e WHERE v > 2) GROUP BY ALL"
    ),
    f"SELECT ts, k, window_start FROM {TUMBLE}": "SELECT ts, k, date_trunc('minute', ts) FROM e",
    f"SELECT k, s FROM (SELECT k, window_start, SUM(v) AS s FROM {TUMBLE} "
    "GROUP BY window_start, window_end, k) WHERE s > 10": (
        "SELECT k, SUM(v) AS s FROM e GROUP BY k, date_trunc('minute', ts) HAVING SUM(v) > 10"
    ),
    "SELECT k, v, COUNT(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '60' SECOND "
    "PRECEDING AND CURRENT ROW) AS n FROM e": None,
    "SELECT k, v, SUM(v) OVER w AS n FROM e WINDOW w AS (PARTITION BY k ORDER BY ts)": None,
    "SELECT k, x FROM (SELECT k, ARRAY[v, v + 1] AS a FROM e) CROSS JOIN UNNEST(a) AS u (x)": (
        "SELECT k, UNNEST([v, v + 1]) FROM e"
    ),
    "SELECT k, v % 2 AS p, COUNT(*) AS n, GROUPING(k) AS g FROM e GROUP BY ROLLUP(k, v % 2)": None,
    "SELECT k, COUNT(*) AS n FROM e GROUP BY GROUPING SETS ((k), ())": None,
    f"SELECT window_start, window_end, k, v % 2 AS p, COUNT(*) AS n, SUM(v) AS s, GROUPING(k) AS g "
    f"FROM {TUMBLE} GROUP BY window_start, window_end, CUBE(k, v % 2)": (
        "SELECT date_trunc('minute', ts) AS w, w + INTERVAL 1 MINUTE, k, v % 2 AS p, COUNT(*), "
        "SUM(v), GROUPING(k) FROM e GROUP BY GROUPING SETS ((w, k, p), (w, k), (w, p), (w))"
    ),
    "SELECT k, window_end, MAX(k) AS m, GROUPING_ID(k) AS g FROM HOP(TABLE e, DESCRIPTOR(ts), "
    "INTERVAL '1' MINUTE, INTERVAL '2' MINUTE) GROUP BY GROUPING SETS "
    "((window_start, window_end), (k, window_start, window_end))": (
        "SELECT k, w + INTERVAL 2 MINUTE, MAX(k), GROUPING(k) FROM (SELECT e.*, UNNEST([date_trunc("
        "'minute', ts), date_trunc('minute', ts) - INTERVAL 1 MINUTE]) AS w FROM e) "
        "GROUP BY GROUPING SETS ((w), (w, k))"
    ),
    # Sets that do not name all columns of the window have NULL in their place.
    f"SELECT window_start, window_end, window_time, k, COUNT(*) AS n, GROUPING(window_time) AS g "
    f"FROM {TUMBLE} GROUP BY GROUPING SETS ((window_start, window_end, window_time, k), "
    "(window_start, window_end), (window_start, window_time, window_end))": (
        "SELECT w, w + INTERVAL 1 MINUTE, t, k, COUNT(*), GROUPING(t) FROM (SELECT k, date_trunc("
        "'minute', ts) AS w, w + INTERVAL 59999 MILLISECOND AS t FROM e) GROUP BY GROUPING SETS "
        "((w, t, k), (w), (w, t))"
    ),
    # The second aggregation is of windows, too: their time goes through the sets.
    f"SELECT window_end, SUM(n) AS n FROM (SELECT window_start, window_end, window_time, k, "
    f"COUNT(*) AS n FROM {TUMBLE} GROUP BY window_start, window_end, window_time, ROLLUP(k)) "
    "GROUP BY window_start, window_end": (
        "SELECT date_trunc('minute', ts) + INTERVAL 1 MINUTE AS w, 2 * COUNT(*) FROM e GROUP BY w"
    ),
    # A set without the window: groups that go on being updated.
    f"SELECT window_start, k, COUNT(*) AS n FROM {TUMBLE} GROUP BY GROUPING SETS "
    "((window_start, window_end, k), (k))": (
        "SELECT date_trunc('minute', ts) AS w, k, COUNT(*) FROM e GROUP BY GROUPING SETS "
        "((w, k), (k))"
    ),
    "SELECT COUNT(*) AS n FROM (SELECT k FROM e LIMIT 7)": "SELECT 7",
    "SELECT a.k, a.v, b.v FROM e a JOIN e b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '20' "
    "SECOND AND a.ts + INTERVAL '5' SECOND WHERE a.v < b.v": None,
    "SELECT a.k, a.v, b.v FROM e a, e b WHERE a.k = b.k AND a.ts > b.ts "
    "AND a.ts <= b.ts + INTERVAL '1' MINUTE": None,
}


def _events(seed: int) -> list[tuple[str, str, int]]:
    drawn = random.Random(seed)
    found = []
    for _ in range(80):
        time = START + dt.timedelta(seconds=drawn.randint(0, 600))
        text = time.strftime("%Y-%m-%d %H:%M:%S")
        found.append((text, drawn.choice("abc"), drawn.randint(0, 9)))
    return sorted(found)


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize("number", sampled(range(len(QUERIES)), 8))
def test_oracle_over_time(number: int, tmp_path: Path) -> None:
    query, same = list(QUERIES.items())[number]
    print("seed", number)
    events = _events(number)
    env = environment((1, 3)[number % 2])
    table_of(env, "e", COLUMNS, events, tmp_path)
    connection = duckdb.connect()
    connection.execute("CREATE TABLE e (ts TIMESTAMP, k VARCHAR, v INT)")
    connection.executemany("INSERT INTO e VALUES (?, ?, ?)", events)
    wanted = Counter(connection.execute(same or query).fetchall())
    assert materialised(changelog(env, query, tmp_path, number)) == wanted


def test_sets_of_windows_are_given_once(tmp_path: Path) -> None:
    """They are aggregates of windows, which never update what they gave."""
    env = environment(2)
    table_of(env, "e", COLUMNS, _events(7), tmp_path)
    query = f"SELECT k, COUNT(*) AS n FROM {TUMBLE} GROUP BY window_start, window_end, ROLLUP(k)"
    shown = env.explain_sql(query, "CHANGELOG_MODE")
    assert "Expand(projects=[{k}, {}], changelogMode=[I])" in shown
    assert "WindowAggregate(groupBy=[k0, $e], " in shown
    assert "UA" not in shown


@pytest.mark.parametrize("least", [0, 3])
def test_oracle_sessions(least: int, tmp_path: Path) -> None:
    """Sessions are those of the rows that pass the filter, as in Flink 2.3."""
    events = _events(1)
    env = environment(2)
    table_of(env, "e", COLUMNS, events, tmp_path)
    query = (
        "SELECT k, window_start, window_end, COUNT(*) AS n FROM SESSION(TABLE e PARTITION BY k, "
        "DESCRIPTOR(ts), INTERVAL '20' SECOND) "
        f"WHERE v >= {least} GROUP BY k, window_start, window_end"
    )
    times: dict[str, list[dt.datetime]] = defaultdict(list)
    for text, key, v in events:
        if v >= least:
            times[key].append(dt.datetime.fromisoformat(text))
    gap = dt.timedelta(seconds=20)
    wanted: Counter[tuple[Any, ...]] = Counter()
    for key, found in times.items():
        session: list[dt.datetime] = []
        for time in [*sorted(found), START + dt.timedelta(days=1)]:
            if session and time - session[-1] > gap:
                wanted[key, session[0], session[-1] + gap, len(session)] += 1
                session = []
            session.append(time)
    assert materialised(changelog(env, query, tmp_path, 1)) == wanted


def test_a_window_is_given_once_and_late_rows_do_not_change_it(tmp_path: Path) -> None:
    env = environment(1)
    directory = tmp_path / "e"
    directory.mkdir()
    times = ["00:00:10", "00:00:50", "00:01:30", "00:02:10", "00:00:20", "00:02:20"]
    lines = [f'{{"ts": "2024-01-01 {time}", "k": "a", "v": 1}}\n' for time in times]
    (directory / "0.json").write_text("".join(lines))
    env.execute_sql(
        "CREATE TABLE e (ts TIMESTAMP(3), k STRING, v INT, WATERMARK FOR ts AS ts) WITH "
        f"('connector' = 'filesystem', 'path' = '{directory}', 'format' = 'json')"
    )
    query = f"SELECT window_start, COUNT(*) AS n FROM {TUMBLE} GROUP BY window_start, window_end"
    graph_rows = changelog(env, query, tmp_path, 0, limit=40)
    assert [(row[0].minute, row[1]) for row in graph_rows] == [(0, 2), (1, 1), (2, 2)]


def test_times_near_each_other_make_an_interval_join(tmp_path: Path) -> None:
    env = environment(1)
    table_of(env, "e", COLUMNS, [], tmp_path)
    query = "SELECT a.v FROM e a, e b WHERE a.k = b.k AND a.ts > b.ts AND a.ts < b.ts + {}"
    plan = env.sql_query(query.format("INTERVAL '1' MINUTE")).explain()
    assert (
        "IntervalJoin(joinType=[InnerJoin], windowBounds=[isRowTime=true, leftLowerBound=1, "
        "leftUpperBound=59999, leftTimeIndex=0, rightTimeIndex=0], where=[(k = k0)]"
    ) in plan
