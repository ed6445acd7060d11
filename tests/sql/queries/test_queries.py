"""Queries against DuckDB: the changelog, materialised, is the answer over the whole input."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tests.support.query_running import changelog, environment, materialised, table_of
from tests.support.tiers import sampled

if TYPE_CHECKING:
    from pathlib import Path

QUERIES = [
    "SELECT a, b + 1 AS c FROM t WHERE b > 3",
    "SELECT COUNT(*) AS n, SUM(b) AS s, MIN(b) AS lo, MAX(b) AS hi FROM t",
    "SELECT a, COUNT(DISTINCT b) AS n FROM t GROUP BY a HAVING COUNT(*) > 5",
    "SELECT DISTINCT a, b % 3 AS c FROM t",
    "SELECT n, COUNT(*) AS m FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) GROUP BY n",
    "SELECT a FROM t UNION ALL SELECT k FROM u",
    "SELECT a FROM t UNION SELECT k FROM u",
    "SELECT a FROM t INTERSECT SELECT k FROM u",
    "SELECT a FROM t EXCEPT SELECT k FROM u",
    "SELECT t.a, t.b, u.v FROM t JOIN u ON t.a = u.k",
    "SELECT t.a, t.b, u.v FROM t LEFT JOIN u ON t.a = u.k AND t.b > 4",
    "SELECT t.a, u.v FROM t FULL JOIN u ON t.a = u.k",
    (
        "SELECT x.a, x.n, u.v FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) x, u "
        "WHERE x.a = u.k AND x.n > 3"
    ),
    "SELECT * FROM t WHERE a IN (SELECT k FROM u WHERE v > 5)",
    "SELECT * FROM t WHERE a NOT IN (SELECT k FROM u WHERE v > 5)",
    "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.a)",
    "SELECT * FROM t WHERE b > (SELECT AVG(v) FROM u)",
    (
        "SELECT a, b FROM (SELECT a, b, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b DESC, id) "
        "AS r FROM t) WHERE r <= 2"
    ),
    (
        "SELECT a, n, r FROM (SELECT a, n, ROW_NUMBER() OVER (ORDER BY n DESC, a) AS r FROM "
        "(SELECT a, COUNT(*) AS n FROM t GROUP BY a)) WHERE r <= 3"
    ),
    (
        "WITH x AS (SELECT a, SUM(b) AS s FROM t GROUP BY a) "
        "SELECT p.a, p.s, q.s AS s2 FROM x p JOIN x q ON p.s = q.s"
    ),
    "SELECT a, b, id FROM t ORDER BY b DESC NULLS LAST, id LIMIT 5",
    "SELECT a, (SELECT COUNT(*) FROM u WHERE u.k = t.a) AS c FROM t",
    (
        "SELECT CASE WHEN b > 5 THEN 'x' ELSE 'y' END AS z, COUNT(*) FILTER (WHERE a = 'c') AS n "
        "FROM t GROUP BY CASE WHEN b > 5 THEN 'x' ELSE 'y' END"
    ),
    "SELECT a, BOOL_AND(b > 1) AS x, BOOL_OR(b > 8) AS y FROM t GROUP BY a",
]


def _rows(seed: int) -> tuple[list[Any], list[Any]]:
    drawn = random.Random(seed)
    t = [(i, drawn.choice("abcde"), drawn.choice([None, *range(10)])) for i in range(60)]
    u = [(drawn.choice("abcxyz"), drawn.randint(0, 9)) for _ in range(15)]
    return t, u


def _answer(query: str, t: list[Any], u: list[Any]) -> Counter[tuple[Any, ...]]:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (id INT, a VARCHAR, b INT)")
    connection.execute("CREATE TABLE u (k VARCHAR, v INT)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", t)
    connection.executemany("INSERT INTO u VALUES (?, ?)", u)
    return Counter(connection.execute(query).fetchall())


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize("number", sampled(range(len(QUERIES)), 12))
def test_oracle_query(number: int, tmp_path: Path) -> None:
    _compare(QUERIES[number], (1, 3)[number % 2], tmp_path)


@pytest.mark.soak
@pytest.mark.both_engines
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("query", QUERIES)
def test_oracle_query_many(query: str, parallelism: int, seed: int, tmp_path: Path) -> None:
    _compare(query, parallelism, tmp_path, seed)


def _compare(query: str, parallelism: int, directory: Path, seed: int = 0) -> None:
    seed = 100 * seed + len(query) + parallelism
    print("seed", seed)
    t, u = _rows(seed)
    env = environment(parallelism)
    table_of(env, "t", "id INT, a STRING, b INT", t, directory)
    table_of(env, "u", "k STRING, v INT", u, directory)
    got = materialised(changelog(env, query, directory, seed))
    assert got == _answer(query, t, u)
