"""Queries and statements that are refused because their answer would be wrong, and what is near."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from tests.table.query_running import changelog, environment, materialised, table_of

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

CLICKS = (
    "CREATE TABLE clicks (k STRING, g STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) "
    "WITH ('connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'json')"
)
SESSION = "SESSION(TABLE clicks PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
TUMBLE = "TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
OVER = "SELECT k, SUM(v) OVER (ORDER BY ts {} PRECEDING AND CURRENT ROW) FROM clicks"
#: Query -> a part of the message.
REFUSED = {
    f"SELECT g, COUNT(*) FROM {SESSION} GROUP BY window_start, window_end, g": "those are: k",
    f"SELECT COUNT(*) FROM {SESSION} GROUP BY window_start, window_end": "those are: k",
    f"SELECT k, COUNT(*) FROM {SESSION} WHERE v > 1 GROUP BY window_start, window_end, k": (
        "A filter over SESSION"
    ),
    OVER.format("RANGE BETWEEN 5"): "The length of a RANGE window must be an interval of days",
    OVER.format("RANGE BETWEEN INTERVAL '1' MONTH"): "The length of a RANGE window",
    OVER.format("RANGE BETWEEN INTERVAL '-5' SECOND"): "and not negative",
    OVER.format("ROWS BETWEEN INTERVAL '1' HOUR"): "The length of a ROWS window must be a whole",
    OVER.format("ROWS BETWEEN -1"): "window must be a",
    f"SELECT COUNT(*) FILTER (WHERE window_start > TIMESTAMP '2020-01-01 00:00:00') FROM {TUMBLE} "
    "GROUP BY window_start, window_end": "FILTER with a condition of window_start",
    f"SELECT COUNT(*) FROM {TUMBLE} GROUP BY window_start, window_end, "
    "DATE_FORMAT(window_start, 'yyyy')": "Expressions in GROUP BY of window_start",
    f"SELECT COUNT(*), GROUPING(k) FROM {TUMBLE} GROUP BY window_start, window_end, k": (
        "GROUPING over windows"
    ),
    f"SELECT COUNT(*) FROM {TUMBLE} WHERE window_start > TIMESTAMP '2020-01-01 00:00:00' "
    "GROUP BY window_start, window_end": "WHERE with a condition of window_start",
}


@pytest.fixture
def env() -> TableEnvironment:
    made = environment()
    made.execute_sql(CLICKS)
    return made


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused_query(number: int, env: TableEnvironment) -> None:
    query, part = list(REFUSED.items())[number]
    with pytest.raises(MillstreamError) as refused:
        env.explain_sql(query)
    assert part in str(refused.value)


def test_a_filter_on_the_key_of_sessions_is_no_filter_in_them(tmp_path: Path) -> None:
    env = environment()
    columns = "k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' HOUR"
    rows = [(key, f"2024-01-01 00:00:{second}") for key in "ab" for second in (10, 15, 50)]
    table_of(env, "clicks", columns, rows, tmp_path)
    session = SESSION.replace("'1' MINUTE", "'20' SECOND")
    query = (
        f"SELECT k, window_start, COUNT(*) AS n FROM {session} WHERE k = 'a' "
        "GROUP BY window_start, window_end, k"
    )
    start = dt.datetime(2024, 1, 1, 0, 0, 10)  # noqa: DTZ001 - TIMESTAMP has no zone
    later = start.replace(second=50)
    assert materialised(changelog(env, query, tmp_path)) == {("a", start, 2): 1, ("a", later, 1): 1}


@pytest.mark.parametrize("limit", [1, 100])
def test_the_first_of_growing_groups_shows_all_that_has_grown(limit: int, tmp_path: Path) -> None:
    env = environment()
    rows = [("a", 9), ("b", 5), ("a", 3), ("a", 9), ("b", 9), ("b", 2)]
    (tmp_path / "t").mkdir()
    lines = "".join(f'{{"k": "{key}", "v": {value}}}\n' for key, value in rows)
    (tmp_path / "t" / "0.json").write_text(lines)
    env.execute_sql(
        "CREATE TABLE t (k STRING, v INT NOT NULL) WITH ('connector' = 'filesystem', "
        f"'path' = '{tmp_path / 't'}', 'format' = 'json')"
    )
    query = (
        "SELECT * FROM (SELECT k, MAX(v) AS mx, COUNT(*) AS c FROM t GROUP BY k) "
        "ORDER BY mx DESC LIMIT 1"
    )
    assert "strategy=[UpdateFastStrategy" in env.explain_sql(query)
    assert materialised(changelog(env, query, tmp_path, limit=limit)) == {("a", 9, 3): 1}


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("MIN(v)", ("b", 5)),
        ("MIN(v) NULLS LAST", ("b", 5)),
        ("MAX(v) DESC NULLS FIRST", ("a", 9)),
        ("MAX(v) DESC", ("a", 9)),
    ],
)
def test_groups_that_begin_with_null_do_not_stay_first(
    order: str, wanted: tuple[str, int], tmp_path: Path
) -> None:
    env = environment()
    name = order[:3]
    (tmp_path / "t").mkdir()
    rows = [("a", "null"), ("b", 5), ("a", 9), ("c", 7), ("a", 8)]
    lines = "".join(f'{{"k": "{key}", "v": {value}}}\n' for key, value in rows)
    (tmp_path / "t" / "0.json").write_text(lines)
    env.execute_sql(
        "CREATE TABLE t (k STRING, v INT) WITH ('connector' = 'filesystem', "
        f"'path' = '{tmp_path / 't'}', 'format' = 'json')"
    )
    query = (
        f"SELECT k, m FROM (SELECT k, {name}(v) AS m, ROW_NUMBER() OVER (ORDER BY {order}) AS n "
        "FROM t GROUP BY k) WHERE n <= 1"
    )
    assert materialised(changelog(env, query, tmp_path, limit=1)) == {wanted: 1}


def test_create_if_not_exists_leaves_a_table_that_is_there(env: TableEnvironment) -> None:
    wanted = [str(row) for row in env.execute_sql("SHOW CREATE TABLE clicks").collect()]
    made = env.execute_sql("CREATE TABLE IF NOT EXISTS clicks AS SELECT 1 AS x, 'a' AS y")
    assert made.get_job_client() is None
    after = [str(row) for row in env.execute_sql("SHOW CREATE TABLE clicks").collect()]
    assert after == wanted


def test_a_column_is_not_written_twice(env: TableEnvironment) -> None:
    with pytest.raises(MillstreamError, match="'k' is assigned more than once"):
        env.execute_sql("INSERT INTO clicks (k, k) SELECT 'a', 'b'")
