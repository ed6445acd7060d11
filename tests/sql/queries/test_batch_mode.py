"""Batch mode: a bounded query gives the rows that are there at the end, in order if asked for."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tests.support.query_running import changelog, environment, insert, table_of

from millstream.common import Configuration
from millstream.errors import UnsupportedSqlError, ValidationError
from millstream.table import EnvironmentSettings, TableEnvironment

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [
    (f"k{n % 7}", n * 37 % 101 if n % 11 else None, f"2024-01-01 00:{n % 60:02}:00")
    for n in range(200)
]

TOP_2 = (
    "SELECT k, v FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC NULLS LAST, "
    "ts) AS r FROM t) WHERE r <= 2"
)


def batch(tmp_path: Path, parallelism: int = 2) -> TableEnvironment:
    env = environment(parallelism, **{"execution.runtime-mode": "BATCH"})
    columns = "k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
    table_of(env, "t", columns, ROWS, tmp_path)
    return env


def rows_of(found: list[Any]) -> list[tuple[Any, ...]]:
    assert {row.get_row_kind().value for row in found} <= {0}
    return [tuple(row) for row in found]


@pytest.fixture(scope="module")
def oracle() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (k TEXT, v INT, ts TIMESTAMP)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
    return connection


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize(
    ("query", "ordered"),
    [
        ("SELECT k, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY k", False),
        ("SELECT k, v FROM t WHERE v > 40 ORDER BY v DESC, k", True),
        ("SELECT k FROM t ORDER BY v NULLS LAST, k, ts LIMIT 13 OFFSET 4", True),
        ("SELECT k, MAX(v) AS m FROM t GROUP BY k HAVING COUNT(*) > 28 ORDER BY m, k", True),
        ("SELECT COUNT(*) AS n, SUM(v) AS s FROM t WHERE v > 1000", False),
        ("SELECT k, v FROM t ORDER BY k, v NULLS FIRST OFFSET 190", True),
        ("SELECT a.k, b.v FROM t a LEFT JOIN t b ON a.v = b.v + 1 AND a.k = b.k", False),
        ("SELECT v FROM t EXCEPT SELECT v + 1 FROM t", False),
        (TOP_2, False),
    ],
)
def test_oracle_rows_at_the_end(
    query: str, ordered: bool, tmp_path: Path, oracle: duckdb.DuckDBPyConnection
) -> None:
    found = rows_of(changelog(batch(tmp_path), query, tmp_path, limit=2000))
    asked = query.replace("DESC, k", "DESC NULLS LAST, k")
    wanted = oracle.execute(asked).fetchall()
    if not ordered:
        found, wanted = sorted(found, key=repr), sorted(wanted, key=repr)
    assert found == wanted


def test_nothing_is_late_where_time_stands_still(tmp_path: Path) -> None:
    """The rows go up and down in time; as a stream many would be late."""
    query = (
        "SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL "
        "'10' MINUTE)) GROUP BY window_start, window_end ORDER BY window_start"
    )
    found = rows_of(changelog(batch(tmp_path), query, tmp_path, limit=1000))
    assert [count for _, count in found] == [40, 40, 30, 30, 30, 30]


_LAST = "(SELECT k, v, ts FROM t WHERE v IS NOT NULL ORDER BY v DESC, k, ts LIMIT 40)"


@pytest.mark.both_engines
@pytest.mark.parametrize(
    "query",
    [
        f"SELECT k, v, COUNT(*) OVER (PARTITION BY k ORDER BY ts) AS n FROM {_LAST} AS x",
        (
            f"SELECT x.k, x.v, y.v AS w FROM {_LAST} AS x JOIN t y ON x.k = y.k "
            "AND x.ts BETWEEN y.ts - INTERVAL '5' MINUTE AND y.ts"
        ),
    ],
)
def test_oracle_rows_that_were_sorted_are_not_late(
    query: str, tmp_path: Path, oracle: duckdb.DuckDBPyConnection
) -> None:
    """They go out at the end, ahead of the watermark of the end."""
    found = rows_of(changelog(batch(tmp_path), query, tmp_path, limit=2000))
    assert sorted(found, key=repr) == sorted(oracle.execute(query).fetchall(), key=repr)


@pytest.mark.both_engines
def test_patterns_and_windows_of_rows_that_were_sorted(tmp_path: Path) -> None:
    env = batch(tmp_path)
    env.execute_sql(f"CREATE TEMPORARY VIEW x AS SELECT * FROM {_LAST} AS x")
    windows = (
        "SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE x, DESCRIPTOR(ts), INTERVAL '10' "
        "MINUTE) GROUP BY window_start, window_end"
    )
    found = rows_of(changelog(env, windows, tmp_path, limit=1000))
    assert sum(count for _, count in found) == 40
    pattern = (
        "SELECT n FROM x MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, v MEASURES COUNT(A.v) AS n "
        "AFTER MATCH SKIP PAST LAST ROW PATTERN (A) DEFINE A AS A.v >= 0)"
    )
    assert rows_of(changelog(env, pattern, tmp_path, limit=1000)) == [(1,)] * 40


@pytest.mark.both_engines
def test_ends_are_in_order_and_only_inserts(tmp_path: Path) -> None:
    env = batch(tmp_path)
    env.execute_sql(
        f"CREATE TABLE s (k STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = "
        f"'{tmp_path}/out', 'format' = 'json')"
    )
    query = "INSERT INTO s SELECT k, COUNT(*) AS n FROM t GROUP BY k ORDER BY n DESC, k"
    insert(env, query, limits=[300] * 1000)
    lines = [
        tuple(json.loads(line).values())
        for file in (tmp_path / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert lines == [(f"k{n}", 29) for n in range(4)] + [(f"k{n}", 28) for n in range(4, 7)]


def test_the_plan_says_so(tmp_path: Path) -> None:
    env = batch(tmp_path)
    plan = env.explain_sql("SELECT k, COUNT(*) AS n FROM t GROUP BY k", "CHANGELOG_MODE")
    assert "FinalRows(select=[k, n], changelogMode=[I])" in plan
    assert "FinalRows" not in env.explain_sql("SELECT k FROM t WHERE v > 1")
    plan = env.explain_sql("SELECT k FROM t ORDER BY v DESC OFFSET 3 ROWS")
    assert re.search(r"Sort\(orderBy=\[\S+ DESC\], offset=\[3\], select=", plan)


def test_settings_and_print(capsys: pytest.CaptureFixture[str]) -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    assert not EnvironmentSettings.in_batch_mode().is_streaming_mode()
    assert EnvironmentSettings.in_streaming_mode().is_streaming_mode()
    env.execute_sql("SET 'parallelism.default' = '1'")
    env.execute_sql(
        "SELECT a, COUNT(*) AS n FROM (VALUES 2, 1, 2) AS v(a) GROUP BY a ORDER BY a"
    ).print()
    line = f"+{'-' * 13}+{'-' * 22}+\n"
    rows = [f"| {a:>11} | {n:>20} |\n" for a, n in (("a", "n"), (1, 1), (2, 2))]
    shown = [line, rows[0], line, *rows[1:], line, "2 rows in set\n"]
    assert capsys.readouterr().out == "".join(shown), "as wide as their types, as in Flink"


def test_what_batch_mode_refuses(tmp_path: Path) -> None:
    env = batch(tmp_path)
    env.execute_sql("CREATE TABLE g (a INT) WITH ('connector' = 'datagen')")
    with pytest.raises(
        ValidationError, match=r"unbounded table 'default_catalog\.default_database\.g' in batch"
    ):
        env.execute_sql("SELECT a FROM g")
    env.execute_sql(
        f"CREATE TABLE c (a INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', "
        "'format' = 'debezium-json')"
    )
    with pytest.raises(ValidationError, match="only possible for INSERT-only table sources"):
        env.execute_sql("SELECT a FROM c")
    env.execute_sql("CREATE TABLE b (k STRING) WITH ('connector' = 'blackhole')")
    with pytest.raises(ValidationError, match="compiled plan feature is not supported in batch"):
        env.execute_sql(f"COMPILE PLAN '{tmp_path}/p.json' FOR INSERT INTO b SELECT k FROM t")
    windows = (
        "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE p, DESCRIPTOR(pt), INTERVAL '1' MINUTE)) "
        "GROUP BY window_start, window_end"
    )
    env.execute_sql("CREATE TEMPORARY VIEW p AS SELECT k, PROCTIME() AS pt FROM t")
    with pytest.raises(ValidationError, match="by processing time is not supported in batch mode"):
        env.explain_sql(windows)
    with pytest.raises(UnsupportedSqlError, match="Unsupported mode 'automatic'"):
        env.execute_sql("SET 'execution.runtime-mode' = 'automatic'")
    configuration = Configuration()
    configuration.set_string("execution.runtime-mode", "AUTOMATIC")
    automatic = EnvironmentSettings.new_instance().with_configuration(configuration).build()
    with pytest.raises(ValidationError, match="Unsupported mode 'AUTOMATIC'"):
        TableEnvironment.create(automatic).explain_sql("SELECT 1")
    env.execute_sql("SET 'execution.runtime-mode' = 'streaming'")
    with pytest.raises(ValidationError, match="a stream has no end"):
        env.explain_sql("SELECT k FROM t ORDER BY k")
