"""Queries and statements that are refused because their answer would be wrong, and what is near."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from tests.support.query_running import changelog, environment, materialised, table_of

from millstream.errors import MillstreamError, ValidationError

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
RANKED = "SELECT k, v FROM (SELECT *, {} AS r FROM clicks) WHERE r {}"
#: Query -> a part of the message.
REFUSED = {
    OVER.format("RANGE BETWEEN 5"): "The length of a RANGE window must be an interval of days",
    OVER.format("RANGE BETWEEN INTERVAL '1' MONTH"): "The length of a RANGE window",
    OVER.format("RANGE BETWEEN INTERVAL '-5' SECOND"): "and not negative",
    OVER.format("ROWS BETWEEN INTERVAL '1' HOUR"): "The length of a ROWS window must be a whole",
    OVER.format("ROWS BETWEEN -1"): "window must be a",
    RANKED.format("RANK() OVER (PARTITION BY k ORDER BY v)", "<= 2"): "RANK() on streaming table",
    RANKED.format("DENSE_RANK() OVER (ORDER BY v)", "<= 2"): "DENSE_RANK() on streaming table",
    RANKED.format("RANK() OVER (PARTITION BY k ORDER BY ts)", "= 1"): "RANK() on streaming table",
    "SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) FROM clicks": (
        "ROW_NUMBER needs the order of a time attribute over rows that are not updated, or a "
    ),
    "SELECT k, RANK() OVER (PARTITION BY k) FROM clicks": "functions require ORDER BY clause",
    "SELECT RANK() OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM clicks": (
        "ROW/RANGE not allowed with RANK"
    ),
    RANKED.format("ROW_NUMBER() OVER (ORDER BY ts DESC)", "> 2"): "needs an upper bound",
    "SELECT * FROM clicks FOR SYSTEM_TIME AS OF TIMESTAMP '2020-01-01 00:00:00'": (
        "can stand only on the right of a join"
    ),
    f"SELECT * FROM {TUMBLE.replace('clicks', 'clicks ORDER BY k')}": "TUMBLE takes no ORDER BY",
    "SELECT * FROM HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '3' SECOND)": (
        "The size of HOP (3000 ms) must be a multiple of its slide (2000 ms)"
    ),
    "SELECT LISTAGG(k) WITHIN GROUP (ORDER BY v) OVER (ORDER BY ts) FROM clicks": "ORDER BY in",
    "SELECT FIRST_VALUE(v) RESPECT NULLS OVER (ORDER BY ts) FROM clicks": (
        "Cannot specify IGNORE NULLS or RESPECT NULLS following 'FIRST_VALUE'"
    ),
    "SELECT LAST_VALUE(v) IGNORE NULLS FROM clicks": "following 'LAST_VALUE'. It leaves",
    "SELECT COUNT() OVER (ORDER BY ts) FROM clicks": "COUNT needs an argument",
    "WITH a AS (SELECT 1), a AS (SELECT 2) SELECT * FROM a": "'a' stands twice in WITH",
    "SELECT y FROM (SELECT v AS y, v + 1 AS y FROM clicks)": "Column 'y' is ambiguous",
    "SELECT z.y FROM (SELECT v AS y, v + 1 AS y FROM clicks) AS z": "Column 'z.y' is ambiguous",
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


STATEMENTS = {
    "SET 'table.exec.state.ttl' = '-5 s'": "table.exec.state.ttl is '-5 s'; it must be at least 0",
    "SET 'table.local-time-zone' = 'Mars/Base'": "there is no time zone 'Mars/Base'",
    "TRUNCATE TABLE parted": "column 1: TRUNCATE TABLE is not in this release; INSERT OVERWRITE",
    "EXPLAIN SELECT * FROM parted": "PARTITIONED BY is not in this release",
    "EXPLAIN INSERT INTO nonsense SELECT 1": "has no option 'what'. It has none.",
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_refused_statement(statement: str, env: TableEnvironment) -> None:
    env.execute_sql("CREATE TABLE parted (k INT) PARTITIONED BY (k) WITH ('connector' = 'datagen')")
    env.execute_sql("CREATE TABLE nonsense (k INT) WITH ('connector' = 'blackhole', 'what' = '1')")
    with pytest.raises(MillstreamError) as refused:
        env.execute_sql(statement)
    assert STATEMENTS[statement] in str(refused.value)
    assert env.get_config().get("execution.runtime-mode", "none") == "none"


VIEWS = {
    "SELECT * FROM clicks": (
        "SELECT `default_catalog`.`default_database`.`clicks`.`k`, "
        "`default_catalog`.`default_database`.`clicks`.`v` "
        "FROM `default_catalog`.`default_database`.`clicks`"
    ),
    "SELECT *, 1 FROM clicks a JOIN other b USING (k)": (
        "SELECT `k`, `a`.`v`, `b`.`w`, 1 FROM `default_catalog`.`default_database`.`clicks` AS `a` "
        "INNER JOIN `default_catalog`.`default_database`.`other` AS `b` USING (`k`)"
    ),
    "WITH clicks AS (SELECT w FROM other) SELECT w FROM clicks WHERE EXISTS (SELECT * FROM "
    "default_database.clicks)": (
        "WITH `clicks` AS (SELECT `w` FROM `default_catalog`.`default_database`.`other`) "
        "SELECT `w` FROM `clicks` WHERE EXISTS (SELECT"
    ),
    "SELECT `EXPR$1` FROM (SELECT *, v + 1 FROM clicks)": "FROM (SELECT *, `v` + 1 FROM",
    "SELECT a.* FROM (SELECT * FROM clicks WHERE k IN (TABLE names)) AS a": (
        "`default_database`.`clicks` WHERE `k` IN (TABLE `default_catalog`.`default_database`"
    ),
}


@pytest.fixture
def viewed() -> TableEnvironment:
    env = environment()
    for name, columns in {
        "clicks": "k INT, v INT",
        "other": "k INT, w INT",
        "names": "k INT",
    }.items():
        env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'datagen')")
    env.execute_sql("CREATE DATABASE db2")
    env.execute_sql("CREATE TABLE db2.clicks (other STRING) WITH ('connector' = 'datagen')")
    return env


@pytest.mark.parametrize("query", VIEWS)
def test_a_view_is_the_same_from_another_database(query: str, viewed: TableEnvironment) -> None:
    viewed.execute_sql(f"CREATE VIEW v AS {query}")
    before = viewed.explain_sql("SELECT * FROM v")
    shown = next(iter(viewed.execute_sql("SHOW CREATE VIEW v").collect()))
    assert VIEWS[query] in str(shown)
    viewed.execute_sql("USE db2")
    assert viewed.explain_sql("SELECT * FROM default_database.v") == before


def test_a_column_that_a_table_gets_is_no_column_of_its_views(viewed: TableEnvironment) -> None:
    viewed.execute_sql("CREATE VIEW v AS SELECT * FROM clicks")
    viewed.execute_sql("ALTER TABLE clicks ADD c INT")
    assert list(viewed.from_path("v").plan.row.names) == ["k", "v"]


def test_views_cannot_read_each_other(viewed: TableEnvironment) -> None:
    viewed.execute_sql("CREATE VIEW v AS SELECT k FROM clicks")
    viewed.execute_sql("CREATE VIEW two AS SELECT k FROM v")
    with pytest.raises(ValidationError, match=r"View .*\.v' reads itself"):
        viewed.execute_sql("ALTER VIEW v AS SELECT k FROM two")
    viewed.execute_sql("CREATE TEMPORARY VIEW three AS SELECT k FROM two")
