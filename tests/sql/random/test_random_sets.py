"""INTERSECT and EXCEPT, IN and EXISTS over NULLs, GROUPING SETS: at random against DuckDB.

All over tables that change, cut and gone on with as ``test_random_queries.py`` has it.
``MILLSTREAM_SET_SEEDS=7,8 pytest tests/sql/random/test_random_sets.py`` replays some.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from typing import TYPE_CHECKING, Final

import pytest
from tests.sql.random.random_expressions import Text
from tests.sql.random.random_tables import Run, Tables, answer, collected, upserted
from tests.support.tiers import sampled

if TYPE_CHECKING:
    from pathlib import Path

SEEDS: Final = [int(each) for each in os.environ.get("MILLSTREAM_SET_SEEDS", "1,2,3").split(",")]
#: Queries of an INT and a STRING.
_SIDES: Final = (
    "SELECT c0 AS a, c1 AS b FROM s",
    "SELECT c2 AS a, c1 AS b FROM s WHERE c5",
    "SELECT c2 AS a, c1 AS b FROM p",
    "SELECT c1 AS a, c2 AS b FROM u",
    "SELECT c0 AS a, MAX(c1) AS b FROM s GROUP BY c0",
    "SELECT COUNT(*) AS a, c1 AS b FROM p GROUP BY c1",
    "SELECT x.c0 AS a, y.c1 AS b FROM s AS x LEFT JOIN p AS y ON x.c0 = y.c2",
)
_OPERATORS: Final = (
    "INTERSECT ALL",
    "EXCEPT ALL",
    "INTERSECT ALL",
    "EXCEPT ALL",
    "INTERSECT",
    "EXCEPT",
)
#: Queries of an INT, which may name columns of x: s.
_INNER: Final = (
    "SELECT y.c2 FROM p AS y",
    "SELECT y.c2 FROM p AS y WHERE y.c1 = x.c1",
    "SELECT y.c0 FROM u AS y WHERE y.c1 = x.c2",
    "SELECT y.c0 FROM s AS y WHERE y.c2 IS NOT NULL",
    "SELECT y.c1 FROM u AS y WHERE y.c0 > x.c0 AND y.c2 IS NOT NULL",
    "SELECT MAX(y.c2) FROM p AS y GROUP BY y.c1",
    "SELECT DISTINCT y.c2 FROM p AS y WHERE y.c2 <> x.c0",
)
_KEYS: Final = ("ROLLUP (c0, c5)", "CUBE (c0, c5)", "GROUPING SETS ((c0, c5), (c5), (c0))")
_CALLS: Final = (
    "COUNT(*)",
    "COUNT(c0)",
    "SUM(c2)",
    "MIN(c0)",
    "COUNT(DISTINCT c5)",
    "MAX(c1) FILTER (WHERE c5)",
    "GROUPING(c5)",
    "GROUPING(c0)",
)


def query_of(seed: int) -> str:
    """A query that Flink and DuckDB read alike."""
    drawn = random.Random(seed)
    kind = drawn.choice(("sets", "sets", "sets", "in", "in", "in", "groups"))
    if kind == "sets":
        query = f"({drawn.choice(_SIDES)})"
        for _ in range(drawn.choice((1, 1, 2))):
            pair = [query, f"({drawn.choice(_SIDES)})"]
            drawn.shuffle(pair)
            query = f"({pair[0]} {drawn.choice(_OPERATORS)} {pair[1]})"
        if drawn.random() < 0.3:
            return f"SELECT a, COUNT(*) AS n, MIN(b) AS b FROM {query} AS z GROUP BY a"
        return f"SELECT a, b FROM {query} AS z"
    if kind == "in":
        not_ = drawn.choice(("", "NOT "))
        inner = drawn.choice(_INNER)
        condition = (
            f"{not_}EXISTS ({inner})" if drawn.random() < 0.3 else f"x.c0 {not_}IN ({inner})"
        )
        more = drawn.choice(("", "", " AND x.c2 IS NOT NULL", " AND x.c1 IN (SELECT c1 FROM p)"))
        if drawn.random() < 0.3:
            return f"SELECT x.c1, COUNT(*) FROM s AS x WHERE {condition}{more} GROUP BY x.c1"
        return f"SELECT x.c0, x.c1, x.c5 FROM s AS x WHERE {condition}{more}"
    calls = ", ".join(f"{each} AS a{i}" for i, each in enumerate(drawn.sample(_CALLS, 3)))
    having = drawn.choice(("", "", " HAVING COUNT(*) > 1", " HAVING SUM(c2) IS NOT NULL"))
    keys = drawn.choice(_KEYS)
    return f"SELECT c0, c5, {calls} FROM {drawn.choice('st')} GROUP BY {keys}{having}"


def compare(seed: int, directory: Path) -> None:
    query, tables, run = query_of(seed), Tables(seed), Run.of(seed)
    print(f"replay with MILLSTREAM_SET_SEEDS={seed}\n{run}\n{query}")
    wanted = answer(tables, Text.same(query))
    assert collected(tables, query, run, directory) == wanted
    there = upserted(tables, query, run, directory)
    assert there is None or there == wanted, "by the key of upserts"


@pytest.mark.parametrize("seed", sampled(SEEDS, 1))
def test_oracle_random_sets(seed: int, tmp_path: Path) -> None:
    compare(seed, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_oracle_random_sets_for_long(tmp_path: Path) -> None:
    end = time.monotonic() + float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "600"))
    seed = int(time.time())
    failed: list[tuple[int, str]] = []
    while time.monotonic() < end:
        seed += 1
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            compare(seed, directory)
        except Exception as error:  # noqa: BLE001 - all seeds are tried
            failed.append((seed, f"{type(error).__name__}: {str(error)[:200]}"))
        shutil.rmtree(directory)
    assert not failed
