"""GROUP BY TUMBLE(ts, ...), HOP and SESSION: Flink's older windows, against DuckDB."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tests.support.query_running import changelog, environment, materialised, table_of

from millstream.common import RowKind
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

START = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
COLUMNS = (
    "ts TIMESTAMP(3), k STRING, v INT, pt AS PROCTIME(), "
    "WATERMARK FOR ts AS ts - INTERVAL '900' SECOND"
)
MINUTE = "(ts, INTERVAL '1' MINUTE)"
HOP = "(ts, INTERVAL '20' SECOND, INTERVAL '50' SECOND)"
GAP = "(ts, INTERVAL '15' SECOND)"
MINUTES = "(SELECT *, time_bucket(INTERVAL 1 MINUTE, ts) AS w FROM e)"
HOPS = (
    "(SELECT e.*, w FROM e, (SELECT unnest(generate_series(TIMESTAMP '2023-12-31 23:59:00', "
    "TIMESTAMP '2024-01-01 00:11:00', INTERVAL 20 SECOND)) AS w) "
    "WHERE ts >= w AND ts < w + INTERVAL 50 SECOND)"
)
SESSIONS = (
    "(SELECT *, SUM(n) OVER (PARTITION BY k, p ORDER BY ts) AS s FROM (SELECT *, v % 2 AS p, "
    "CASE WHEN ts - LAG(ts) OVER (PARTITION BY k, v % 2 ORDER BY ts) <= INTERVAL 15 SECOND THEN 0 "
    "ELSE 1 END AS n FROM e WHERE v <> 3))"
)
#: Query -> that of DuckDB.
QUERIES = {
    f"SELECT k, TUMBLE_START{MINUTE} AS a, TUMBLE_END{MINUTE} AS b, COUNT(*) AS c FROM e "
    f"GROUP BY k, TUMBLE{MINUTE}": (
        f"SELECT k, w, w + INTERVAL 1 MINUTE, COUNT(*) FROM {MINUTES} GROUP BY k, w"
    ),
    f"SELECT HOP_START{HOP} AS a, HOP_END{HOP} + INTERVAL '1' SECOND AS b, SUM(v) * 2 AS c, k "
    f"FROM e WHERE v <> 3 GROUP BY HOP{HOP}, k HAVING COUNT(*) > 1": (
        "SELECT w, w + INTERVAL 51 SECOND, SUM(v) * 2, k "
        f"FROM {HOPS} WHERE v <> 3 GROUP BY w, k HAVING COUNT(*) > 1"
    ),
    f"SELECT k, v % 2 + 1 AS p, SESSION_START{GAP} AS a, SESSION_END{GAP} AS b, MIN(v) AS c FROM "
    f"(SELECT * FROM e WHERE v <> 3) GROUP BY SESSION{GAP}, k, v % 2": (
        "SELECT k, p + 1, MIN(ts), MAX(ts) + INTERVAL 15 SECOND, MIN(v) "
        f"FROM {SESSIONS} GROUP BY k, p, s"
    ),
    f"SELECT k, COUNT(DISTINCT v) AS c, SUM(v) FILTER (WHERE v > 4) AS f FROM e "
    f"GROUP BY TUMBLE{MINUTE}, k HAVING TUMBLE_START{MINUTE} > TIMESTAMP '2024-01-01 00:03:00'": (
        "SELECT k, COUNT(DISTINCT v), SUM(v) FILTER (WHERE v > 4) "
        f"FROM {MINUTES} GROUP BY k, w HAVING w > TIMESTAMP '2024-01-01 00:03:00'"
    ),
    # The time of windows goes on.
    "SELECT TUMBLE_START(t, INTERVAL '2' MINUTE) AS a, MAX(c) AS m FROM (SELECT "
    f"TUMBLE_ROWTIME{MINUTE} AS t, COUNT(*) AS c FROM e GROUP BY k, TUMBLE{MINUTE}) "
    "GROUP BY TUMBLE(t, INTERVAL '2' MINUTE)": (
        "SELECT time_bucket(INTERVAL 2 MINUTE, w), MAX(c) FROM "
        f"(SELECT w, COUNT(*) AS c FROM {MINUTES} GROUP BY k, w) GROUP BY 1"
    ),
    f"SELECT k, v > 4 AS g, TUMBLE_END{MINUTE} AS b, COUNT(*) AS c, GROUPING(k) AS o FROM e "
    f"GROUP BY TUMBLE{MINUTE}, ROLLUP (k, v > 4)": (
        "SELECT k, v > 4, w + INTERVAL 1 MINUTE, COUNT(*), GROUPING(k) "
        f"FROM {MINUTES} GROUP BY w, ROLLUP (k, v > 4)"
    ),
    # Windows are of Flink's time; a column of the table may be called as theirs are.
    f"SELECT window_start, COUNT(*) AS c FROM (SELECT *, k AS window_start FROM e) "
    f"GROUP BY window_start, TUMBLE{MINUTE}": f"SELECT k, COUNT(*) FROM {MINUTES} GROUP BY k, w",
}


def _rows(seed: int) -> list[tuple[Any, ...]]:
    drawn = random.Random(seed)
    return [
        (
            str(START + dt.timedelta(seconds=seconds)),
            drawn.choice(["a", "b", None]),
            drawn.randint(0, 9),
        )
        for seconds in drawn.sample(range(600), 80)
    ]


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(every=3)
@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_oracle_group_windows(number: int, tmp_path: Path) -> None:
    query, answer = list(QUERIES.items())[number]
    print("seed", number)
    env = environment((1, 3)[number % 2])
    table_of(env, "e", COLUMNS.replace("pt AS PROCTIME(), ", ""), _rows(number), tmp_path)
    connection = duckdb.connect()
    connection.execute("CREATE TABLE e (ts TIMESTAMP, k VARCHAR, v INT)")
    connection.executemany("INSERT INTO e VALUES (?, ?, ?)", _rows(number))
    rows = changelog(env, query, tmp_path, number)
    assert materialised(rows) == Counter(connection.execute(answer).fetchall())
    assert {row.get_row_kind() for row in rows} == {RowKind.INSERT}


ONE = f"GROUP BY k, TUMBLE{MINUTE}"
REFUSED = {
    f"SELECT TUMBLE_START(ts, INTERVAL '2' MINUTE) FROM e {ONE}": "must have matching call to",
    f"SELECT HOP_START(ts, INTERVAL '1' MINUTE, INTERVAL '1' MINUTE) FROM e {ONE}": (
        "must have matching call to group function 'HOP' in GROUP BY clause"
    ),
    f"SELECT TUMBLE_START{MINUTE} FROM e GROUP BY k": "must have matching call to group function",
    f"SELECT TUMBLE_START{MINUTE} FROM e": "must have matching call to group function 'TUMBLE'",
    f"SELECT TUMBLE{MINUTE} FROM e {ONE}": "'TUMBLE' can only appear in GROUP BY clause",
    f"SELECT k FROM e {ONE}, HOP(ts, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)": (
        "Only a single window group function may be used in GROUP BY"
    ),
    "SELECT k FROM e GROUP BY k, TUMBLE(ts, INTERVAL '1' DAY, TIME '08:00:00')": (
        "TUMBLE window with alignment is not supported yet"
    ),
    "SELECT k FROM e GROUP BY k, TUMBLE(ts, INTERVAL '1' MONTH)": (
        "size of TUMBLE must be a positive interval of days to seconds"
    ),
    "SELECT k FROM e GROUP BY k, TUMBLE(ts)": "takes a time attribute, size",
    "SELECT k FROM e GROUP BY k, HOP(ts, INTERVAL '1' MINUTE)": "a time attribute, slide and size",
    "SELECT k FROM e GROUP BY k, TUMBLE(v, INTERVAL '1' MINUTE)": (
        "can only be defined over a time attribute column, but INT encountered"
    ),
    f"SELECT TUMBLE_PROCTIME{MINUTE} FROM e {ONE}": "cannot provide a proctime attribute",
    "SELECT TUMBLE_ROWTIME(pt, INTERVAL '1' MINUTE) FROM e GROUP BY TUMBLE(pt, INTERVAL '1' "
    "MINUTE)": "A proctime window cannot provide a rowtime attribute",
    f"SELECT k FROM e GROUP BY SESSION{GAP}, ROLLUP (k)": "GROUPING SETS with SESSION",
}


@pytest.fixture
def env() -> TableEnvironment:
    made = environment()
    made.execute_sql(
        f"CREATE TABLE e ({COLUMNS}) WITH ('connector' = 'filesystem', 'path' = '/nowhere', "
        "'format' = 'json')"
    )
    return made


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused_group_windows(number: int, env: TableEnvironment) -> None:
    query, part = list(REFUSED.items())[number]
    with pytest.raises(MillstreamError) as refused:
        env.explain_sql(query)
    assert part in str(refused.value)


def test_plans_of_group_windows_are_those_of_table_functions(env: TableEnvironment) -> None:
    """Also by processing time, whose time goes on."""
    one = f"SELECT k, TUMBLE_START{MINUTE} AS s, SUM(v) AS v FROM e GROUP BY k, TUMBLE{MINUTE}"
    other = (
        "SELECT k, window_start AS s, SUM(v) AS v FROM TUMBLE(TABLE e, DESCRIPTOR(ts), "
        "INTERVAL '1' MINUTE) GROUP BY k, window_start, window_end"
    )
    plans = [env.explain_sql(each).partition("== Optimized Phys")[2] for each in (one, other)]
    assert plans[0] == plans[1]
    clock = (
        "SELECT k, TUMBLE_PROCTIME(pt, INTERVAL '1' MINUTE) AS t, COUNT(*) AS c FROM e "
        "GROUP BY k, TUMBLE(pt, INTERVAL '1' MINUTE)"
    )
    schema = env.sql_query(clock).get_resolved_schema()
    assert "*PROCTIME*" in str(schema)
    again = f"SELECT TUMBLE_START(t, INTERVAL '1' HOUR) AS s FROM ({clock}) GROUP BY "
    assert "WindowAggregate" in env.explain_sql(again + "TUMBLE(t, INTERVAL '1' HOUR)")
