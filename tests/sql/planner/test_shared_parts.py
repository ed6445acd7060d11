"""Plans in which equal parts are one, and columns that nobody reads are gone: what they give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.query_running import changelog, environment, materialised, table_of

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

COLUMNS = "k INT, v INT, s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
ROWS = [(n % 3, n, f"s{n % 4}", f"2024-01-01 00:00:{n:02d}") for n in range(20)]


def _environment(path: Path, *, reuse: str = "true") -> TableEnvironment:
    env = environment(2, **{"table.optimizer.reuse-sub-plan-enabled": reuse})
    for name in ("a", "b"):
        table_of(env, name, COLUMNS, ROWS, path)
    return env


def _plan(env: TableEnvironment, query: str) -> str:
    text = env.explain_sql(query).partition("== Optimized Physical Plan ==")[2]
    return text.partition("== Optimized Execution Plan ==")[0]


COUNTS = "(SELECT k, COUNT(*) AS n, SUM(v) AS total FROM a GROUP BY k)"
SHARED = f"SELECT x.k, x.n, y.total FROM {COUNTS} AS x JOIN {COUNTS} AS y ON x.n = y.n"


@pytest.mark.both_engines
def test_an_aggregate_that_is_read_twice_runs_once(tmp_path: Path) -> None:
    env = _environment(tmp_path)
    plan = _plan(env, SHARED)
    assert plan.count("TableSourceScan") == plan.count("GroupAggregate(") == 1
    expected = {(0, 7, 63): 1, (0, 7, 70): 1, (1, 7, 63): 1, (1, 7, 70): 1, (2, 6, 57): 1}
    assert materialised(changelog(env, SHARED, tmp_path, limit=3)) == expected


def test_nothing_is_shared_if_the_option_says_so(tmp_path: Path) -> None:
    plan = _plan(_environment(tmp_path, reuse="false"), SHARED)
    assert plan.count("TableSourceScan") == plan.count("GroupAggregate(") == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT k FROM a", "SELECT k FROM b"),
        ("SELECT k, COUNT(*) AS n FROM a GROUP BY k", "SELECT k, COUNT(s) AS n FROM a GROUP BY k"),
        ("SELECT k FROM a WHERE v > 3", "SELECT k FROM a WHERE v > 4"),
    ],
)
def test_what_differs_is_not_shared(one: str, other: str, tmp_path: Path) -> None:
    env = _environment(tmp_path)
    query = f"SELECT x.k FROM ({one}) AS x JOIN ({other}) AS y ON x.k = y.k"
    assert "Reused" not in _plan(env, query) or "WatermarkAssigner" in _plan(env, query)
    found = materialised(changelog(env, query, tmp_path))
    apart = _environment_again(tmp_path)
    assert found == materialised(changelog(apart, query, tmp_path, seed=1))


def _environment_again(path: Path) -> TableEnvironment:
    env = environment(1, **{"table.optimizer.reuse-sub-plan-enabled": "false"})
    for name in ("a", "b"):
        env.execute_sql(
            f"CREATE TABLE {name} ({COLUMNS}) WITH ('connector' = 'filesystem', "
            f"'path' = '{path / name}', 'format' = 'json')"
        )
    return env


def test_two_random_numbers_are_two(tmp_path: Path) -> None:
    env = _environment(tmp_path)
    drawn = "(SELECT v, RAND() AS r FROM a)"
    query = f"SELECT x.r = y.r FROM {drawn} AS x JOIN {drawn} AS y ON x.v = y.v"
    assert materialised(changelog(env, query, tmp_path)) == {(False,): 20}


_FIRST = (
    "SELECT v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {}) AS n FROM a) "
    "WHERE n = 1"
)
_OVER = (
    "SELECT w FROM (SELECT s, SUM(v) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN 1 PRECEDING "
    "AND CURRENT ROW) AS w FROM a WHERE v < 6)"
)


@pytest.mark.parametrize(
    ("query", "kept", "expected"),
    [
        (
            "SELECT x.v FROM a AS x JOIN b AS y ON x.v = y.v WHERE x.k = 1 AND x.v + y.k < 9",
            "select=[v, k0, v0]",
            {(1,): 1, (4,): 1, (7,): 1},
        ),
        (
            "SELECT COUNT(*) FROM a AS x LEFT JOIN b AS y ON x.v = y.k",
            "Calc(select=[k])",
            {(37,): 1},
        ),
        (_FIRST.format("v DESC"), "Calc(select=[k, v])", {(17,): 1, (18,): 1, (19,): 1}),
        (_FIRST.format("ts"), "project=[k, v, ts]", {(0,): 1, (1,): 1, (2,): 1}),
        (
            _OVER,
            "Calc(select=[k, v]",
            {(0,): 1, (1,): 1, (2,): 1, (3,): 1, (5,): 1, (7,): 1},
        ),
    ],
)
@pytest.mark.both_engines
def test_columns_that_nobody_reads_do_not_cross_exchanges(
    query: str, kept: str, expected: dict[tuple[int, ...], int], tmp_path: Path
) -> None:
    env = _environment(tmp_path)
    assert kept in _plan(env, query)
    assert materialised(changelog(env, query, tmp_path, limit=4)) == expected
