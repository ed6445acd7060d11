"""Sub-queries as values, with ANY and ALL, beside aggregates, nested, LATERAL: against DuckDB."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tests.support.query_running import changelog, environment, materialised, table_of

from millstream.errors import MillstreamError
from millstream.table import DataTypes
from millstream.table.udf import udf

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

_SAME = "SELECT v FROM u WHERE u.k = t.k"
_OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
QUERIES = [
    # Compared with ANY and ALL: in WHERE, as values, correlated, with nothing to compare with.
    *(
        f"SELECT k, v, v {one} {word} ({query}) AS x FROM t"
        for one in _OPERATORS
        for word, query in (
            ("ANY", "SELECT v FROM u WHERE w > 2"),
            ("ALL", "SELECT v FROM u WHERE w > 2 AND v IS NOT NULL"),
            ("ANY", _SAME),
            ("ALL", _SAME),
        )
    ),
    *(
        f"SELECT k, v FROM t WHERE {word} (v {one} (SELECT v FROM u WHERE w = 1))".replace(
            f"{one} (", f"{one} {kind} ("
        )
        for one, word, kind in (
            (">", "", "ANY"),
            ("=", "", "ANY"),
            ("=", "NOT", "ANY"),
            ("<>", "", "ALL"),
            ("<>", "NOT", "ALL"),
            ("=", "", "ALL"),
            ("<=", "NOT", "ALL"),
        )
    ),
    "SELECT k FROM t WHERE v > ALL (SELECT v FROM u WHERE w > 99)",
    "SELECT k, v > ANY (SELECT v FROM u WHERE w > 99) AS x FROM t",
    "SELECT k FROM t WHERE v >= ALL (SELECT MAX(v) FROM u WHERE u.k = t.k)",
    "SELECT k FROM t WHERE v > ANY (SELECT MAX(v) FROM u WHERE u.k = t.k GROUP BY w)",
    # IN and EXISTS wherever a BOOLEAN can stand.
    "SELECT k, v IN (SELECT v FROM u) AS x, v NOT IN (SELECT v FROM u WHERE k = 'a') AS y FROM t",
    f"SELECT k, v IN ({_SAME}) AS x, EXISTS ({_SAME}) AS y, NOT EXISTS ({_SAME}) AS z FROM t",
    f"SELECT k, v FROM t WHERE v > 3 OR v IN (SELECT w FROM u) OR NOT EXISTS ({_SAME})",
    f"SELECT k, CASE WHEN EXISTS ({_SAME}) THEN 1 ELSE 0 END AS x FROM t",
    "SELECT COUNT(*) FILTER (WHERE v IN (SELECT w FROM u)) AS c FROM t",
    # Over aggregates that depend on the row.
    "SELECT k, v FROM t WHERE v IN (SELECT MAX(v) FROM u WHERE u.k = t.k)",
    "SELECT k, v FROM t WHERE v NOT IN (SELECT MAX(v) FROM u WHERE u.k = t.k)",
    "SELECT k, v FROM t WHERE v IN (SELECT COUNT(v) FROM u WHERE u.k = t.k)",
    "SELECT k, v FROM t WHERE v IN (SELECT MAX(v) FROM u WHERE u.k = t.k GROUP BY w)",
    "SELECT k, v FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k HAVING COUNT(*) = 0)",
    "SELECT k, v FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k HAVING SUM(v) > 9)",
    "SELECT k, (SELECT SUM(v) FROM u WHERE u.k = t.k HAVING COUNT(*) > 4) AS x FROM t",
    "SELECT k, v FROM t WHERE 3 IN (SELECT COUNT(*) + 1 FROM u WHERE u.k = t.k HAVING SUM(w) > 2)",
    "SELECT k, (SELECT k FROM single_v WHERE single_v.v = t.v) AS x FROM t",
    # Beside aggregates.
    "SELECT k, SUM(v) AS s, (SELECT MAX(u.v) FROM u WHERE u.k = t.k) AS m FROM t GROUP BY k",
    "SELECT k, SUM(v) * (SELECT COUNT(*) FROM u WHERE u.k = t.k) AS m FROM t GROUP BY k",
    (
        "SELECT k, SUM(v) AS s FROM t GROUP BY k HAVING SUM(v) > "
        "(SELECT SUM(u.v) FROM u WHERE u.k = t.k)"
    ),
    "SELECT k, SUM(v) AS s FROM t GROUP BY k HAVING k IN (SELECT k FROM u WHERE w > 3)",
    "SELECT k, MAX(v) AS s FROM t GROUP BY k HAVING MAX(v) IN (SELECT v FROM u WHERE u.k = t.k)",
    f"SELECT k, SUM(v) AS s FROM t GROUP BY k HAVING NOT EXISTS ({_SAME})",
    "SELECT k, MIN(v) < ALL (SELECT v FROM u WHERE v IS NOT NULL) AS x FROM t GROUP BY k",
    "SELECT SUM((SELECT MAX(u.v) FROM u WHERE u.k = t.k)) AS s FROM t",
    # Sub-queries of sub-queries that name the outermost query.
    (
        "SELECT k, v FROM t WHERE EXISTS (SELECT * FROM u WHERE u.k = t.k AND EXISTS "
        "(SELECT * FROM z WHERE z.v = t.v AND z.k = u.k))"
    ),
    (
        "SELECT k, v FROM t WHERE NOT EXISTS (SELECT * FROM u WHERE u.k = t.k AND EXISTS "
        "(SELECT * FROM z WHERE z.v = t.v))"
    ),
    (
        "SELECT k, v FROM t WHERE v IN (SELECT v FROM u WHERE u.w IN "
        "(SELECT z.v FROM z WHERE z.k = t.k))"
    ),
    (
        "SELECT k, (SELECT COUNT(*) FROM u WHERE u.w IN (SELECT z.v FROM z WHERE z.k = t.k)) AS c "
        "FROM t"
    ),
    (
        "SELECT k FROM t WHERE EXISTS (SELECT * FROM u JOIN z ON u.k = z.k AND z.v > t.v "
        "WHERE u.v = t.v)"
    ),
    # LATERAL.
    "SELECT a.k, a.v, b.v AS x FROM t AS a, LATERAL (SELECT v, w FROM u WHERE u.k = a.k) AS b",
    (
        "SELECT a.k, b.v FROM t AS a LEFT JOIN LATERAL "
        "(SELECT v, w FROM u WHERE u.k = a.k AND u.v < a.v) AS b ON TRUE"
    ),
    (
        "SELECT a.k, b.v, b.w FROM t AS a, LATERAL "
        "(SELECT v, w FROM u WHERE u.k = a.k "
        "ORDER BY v DESC NULLS LAST, w NULLS FIRST LIMIT 2) AS b"
    ),
    (
        "SELECT a.k, b.v FROM (SELECT DISTINCT k FROM u) AS a, LATERAL (SELECT v FROM u "
        "WHERE u.k = a.k AND v > 1 ORDER BY v LIMIT 2 OFFSET 1) AS b WHERE b.v <> 4"
    ),
    (
        "SELECT a.k, b.v FROM t AS a LEFT JOIN LATERAL "
        "(SELECT v FROM u WHERE u.k = a.k "
        "ORDER BY w NULLS FIRST, v NULLS FIRST LIMIT 1) AS b ON TRUE"
    ),
    (
        "SELECT a.k, b.s, b.c FROM t AS a, LATERAL "
        "(SELECT SUM(v) AS s, COUNT(*) AS c FROM u WHERE u.k = a.k) AS b"
    ),
    (
        "SELECT a.k, s FROM t AS a LEFT JOIN LATERAL "
        "(SELECT COUNT(v) + 1 FROM u WHERE u.k = a.k) AS b (s) ON TRUE"
    ),
    (
        "SELECT a.k, b.s FROM t AS a, LATERAL "
        "(SELECT w, SUM(v) AS s FROM u WHERE u.k = a.k GROUP BY w HAVING COUNT(*) > 1) AS b"
    ),
    "SELECT a.k, b.s FROM t AS a, LATERAL (SELECT DISTINCT w AS s FROM u WHERE u.k = a.k) AS b",
    "SELECT a.k, b.s FROM t AS a, LATERAL (SELECT u.v + a.v AS s FROM u WHERE u.k = a.k) AS b",
    "SELECT a.k, b.s FROM t AS a, LATERAL (SELECT a.v * 2 AS s) AS b WHERE b.s > 4",
    (
        "SELECT a.k, b.c FROM t AS a, LATERAL "
        "(SELECT COUNT(*) AS c FROM u WHERE u.k = a.k HAVING COUNT(*) < 5) AS b"
    ),
]
#: What runs in each suite; all of it in soaks.
_USUAL = {0, 5, 10, 15, 20, 25, *range(31, len(QUERIES), 3)}


def _rows(drawn: random.Random, count: int) -> list[tuple[Any, ...]]:
    return [
        (drawn.choice("abcd") if drawn.random() < 0.9 else None, *_numbers(drawn))
        for _ in range(count)
    ]


def _numbers(drawn: random.Random) -> tuple[Any, ...]:
    return tuple(drawn.choice([None, *range(6)]) for _ in range(2))


def _tables(env: TableEnvironment, seed: int, path: Path) -> duckdb.DuckDBPyConnection:
    drawn = random.Random(seed)
    connection = duckdb.connect()
    single = [("x", 1, 0), ("y", 2, 0), ("z", 5, 1)]
    for name, rows in {
        "t": _rows(drawn, 25),
        "u": [row for row in _rows(drawn, 15) if row[0] != "d"],
        "z": _rows(drawn, 10),
        "single_v": single,
    }.items():
        table_of(env, name, "k STRING, v INT, w INT", rows, path)
        connection.execute(f"CREATE TABLE {name} (k VARCHAR, v INT, w INT)")
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
    return connection


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(every=8)
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(each, marks=() if each in _USUAL else pytest.mark.soak)
        for each in range(len(QUERIES))
    ],
)
def test_oracle_sub_queries(number: int, tmp_path: Path) -> None:
    query = QUERIES[number]
    print("seed", number)
    env = environment((1, 3)[number % 2])
    connection = _tables(env, number, tmp_path)
    answer = Counter(connection.execute(query).fetchall())
    assert materialised(changelog(env, query, tmp_path, number)) == answer


def test_oracle_repeated_rows_and_rows_over_nothing(tmp_path: Path) -> None:
    """DISTINCT of what several correlated values make, and DISTINCT and LIMIT of one aggregate."""
    counted = "COUNT(*) AS c FROM u WHERE u.k = a.k"
    query = (
        f"SELECT a.k, a.v, b.s, c.c, (SELECT DISTINCT {counted}) AS d, "
        f"(SELECT {counted} ORDER BY c LIMIT 1) AS e, EXISTS (SELECT DISTINCT {counted}) AS f, "
        f"0 IN (SELECT {counted} LIMIT 1) AS g FROM t AS a "
        "LEFT JOIN LATERAL (SELECT DISTINCT k AS s FROM u WHERE ABS(u.v - 2) = a.v) AS b ON TRUE, "
        f"LATERAL (SELECT DISTINCT {counted}) AS c"
    )
    env = environment(3)
    connection = _tables(env, 1, tmp_path)
    answer = Counter(connection.execute(query).fetchall())
    assert materialised(changelog(env, query, tmp_path, 1)) == answer


@pytest.mark.parametrize("mode", ["BATCH", "STREAMING"])
def test_aggregates_of_no_rows_are_what_flink_gives(mode: str, tmp_path: Path) -> None:
    """In batch mode a row (as in DuckDB); in streams none, but where that is known beforehand."""
    env = environment(1, **{"execution.runtime-mode": mode})
    connection = _tables(env, 2, tmp_path)
    none = "FROM u WHERE w > 100"
    query = (
        f"SELECT k, (SELECT COUNT(*) {none}) AS n, (SELECT SUM(v) {none}) AS s, "
        f"(SELECT COUNT(*) + 1 FROM u WHERE w > 100 AND 1 = 2) AS z FROM single_v "
        f"WHERE EXISTS (SELECT COUNT(*) {none}) AND (v < 9 OR NOT EXISTS (SELECT MAX(v) {none}))"
    )
    with env.sql_query(query).execute().collect() as rows:
        found = materialised(rows)
    count = 0 if mode == "BATCH" else None
    assert found == Counter((key, count, None, 1) for key in "xyz")
    if mode == "BATCH":
        assert found == Counter(connection.execute(query).fetchall())


def test_rows_are_known_to_be_none_by_the_time_zone_and_without_functions_of_users(
    tmp_path: Path,
) -> None:
    zone = {"table.local-time-zone": "Europe/Berlin"}
    env = environment(1, **{"execution.runtime-mode": "BATCH"}, **zone)
    _tables(env, 2, tmp_path)
    planner = os.getpid()
    in_tasks = udf(lambda _: os.getpid() != planner, result_type=DataTypes.BOOLEAN())
    env.create_temporary_system_function("in_tasks", in_tasks)
    counted = "(SELECT COUNT(*) FROM single_v WHERE"
    query = (
        f"SELECT {counted} FROM_UNIXTIME(0) = '1970-01-01 01:00:00'), {counted} in_tasks(1)), "
        f"{counted} in_tasks(1) AND FALSE)"
    )
    with env.sql_query(query).execute().collect() as rows:
        assert materialised(rows) == {(3, 3, 0): 1}


REFUSED = {
    "SELECT (v, w) > ANY (SELECT v, w FROM u) FROM t": "compare one value",
    "SELECT (v, w) IN (SELECT v, w FROM u) FROM t": "can stand only in WHERE, connected by AND",
    "SELECT v > ALL (SELECT v, w FROM u) FROM t": "has one column; this has 2",
    "SELECT k, (SELECT MAX(u.v) FROM u WHERE u.w = t.v) FROM t GROUP BY k": "is not in GROUP BY",
    "SELECT (SELECT MAX(u.v) FROM u WHERE u.w < t.v) FROM t": "only in equalities",
    "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE NOT EXISTS (SELECT 1 FROM z WHERE "
    "z.v = t.v AND z.k = u.k))": "not below NOT",
    "SELECT (SELECT COUNT(*) AS c FROM u WHERE u.k = t.k ORDER BY c LIMIT 1 OFFSET 1) FROM t": (
        "aggregate of all rows that is not its last step"
    ),
    "SELECT SUM(v) OVER (ORDER BY k) > ANY (SELECT v FROM u) FROM t": "OVER cannot be compared",
    "SELECT * FROM t RIGHT JOIN LATERAL (SELECT v FROM u WHERE u.k = t.k) AS b ON TRUE": (
        "LATERAL is joined by CROSS, INNER or LEFT JOIN"
    ),
    "SELECT * FROM t LEFT JOIN LATERAL (SELECT v FROM u WHERE u.k = t.k) AS b ON b.v > 1": (
        "takes ON TRUE alone"
    ),
    "SELECT * FROM t, LATERAL (SELECT v FROM u WHERE u.k = t.k LIMIT 2) AS b": "only in equalities",
    "SELECT * FROM t, LATERAL (SELECT v FROM u WHERE u.v < t.v ORDER BY v LIMIT 2)": (
        "only in equalities"
    ),
    "SELECT * FROM t, LATERAL (SELECT DISTINCT v FROM u WHERE u.w < t.w)": "by equalities alone",
    "SELECT * FROM t LEFT JOIN LATERAL (SELECT MAX(v) AS m FROM u WHERE u.k = t.k HAVING "
    "COUNT(*) > 1) ON TRUE": "of an aggregate with HAVING",
}


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> TableEnvironment:
    made = environment()
    _tables(made, 0, tmp_path_factory.mktemp("tables"))
    return made


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused_sub_queries(number: int, env: TableEnvironment) -> None:
    query, part = list(REFUSED.items())[number]
    with pytest.raises(MillstreamError) as refused:
        env.explain_sql(query)
    assert part in str(refused.value)


def test_first_rows_of_lateral_are_a_top_n(env: TableEnvironment) -> None:
    query = QUERIES[-10]
    assert "LIMIT 2" in query
    assert "Rank(strategy=[AppendFastStrategy], rankType=[ROW_NUMBER]" in env.explain_sql(query)
