"""Queries at random against DuckDB: the changelog, materialised, is the answer over what is there.

``MILLSTREAM_QUERY_SEEDS=7,8 pytest tests/sql/random/test_random_queries.py`` replays some;
``make soak`` goes on with new seeds.  A query that is refused by name is right, too.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from tests.sql.random.random_more_queries import OUTSIDE, more_random_query
from tests.sql.random.random_queries import random_query
from tests.sql.random.random_tables import Run, Tables, answer, at_the_end, collected, upserted
from tests.support.tiers import sampled

from millstream.errors import UnsupportedSqlError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.sql.random.random_expressions import Text

#: Between them joins, aggregates, Top-N, sub-queries, windows; restarts on the other engine.
SEEDS: Final = [
    int(seed) for seed in os.environ.get("MILLSTREAM_QUERY_SEEDS", "1,2,3,4").split(",")
]


def compare(seed: int, directory: Path, drawn: Callable[[int], Text] = random_query) -> str:
    """Run the query of a seed; "right", or "refused"."""
    query, tables, run = drawn(seed), Tables(seed), Run.of(seed)
    if drawn is more_random_query:
        tables.with_outside(directory / "outside.db", OUTSIDE)
    print(f"replay with MILLSTREAM_QUERY_SEEDS={seed}\n{run}\n{query.flink}\n{query.duck}")
    wanted = answer(tables, query)
    try:
        env = tables.environment(1)
        env.explain_sql(query.flink)
        env.session.collected(env.sql_query(query.flink).plan, str(directory / "refused"))
    except UnsupportedSqlError as refused:
        print("refused:", refused)
        return "refused"
    assert collected(tables, query.flink, run, directory) == wanted
    if seed % 2:
        # An aggregate of no rows has a result in batch mode.
        duck = query.duck.replace(" HAVING COUNT(*) > 0 AND ", " HAVING ")
        whole = replace(query, duck=duck.replace(" HAVING COUNT(*) > 0", ""))
        found = at_the_end(tables, query.flink, run, directory)
        assert found is None or found in (wanted, answer(tables, whole)), "in batch mode"
    there = upserted(tables, query.flink, run, directory)
    assert there is None or there == wanted, "by the key of upserts"
    return "right"


@pytest.mark.parametrize("seed", sampled(SEEDS, 2))
def test_oracle_random_query(seed: int, tmp_path: Path) -> None:
    compare(seed, tmp_path)


@pytest.mark.parametrize("seed", sampled(SEEDS[:2], 1))
def test_oracle_random_query_of_more_kinds(seed: int, tmp_path: Path) -> None:
    compare(seed, tmp_path, more_random_query)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_oracle_random_queries_for_long(tmp_path: Path) -> None:
    end = time.monotonic() + float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "600"))
    seed = int(time.time())
    found: Counter[str] = Counter()
    failed: list[tuple[int, str]] = []
    while time.monotonic() < end:
        seed += 1
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            found[compare(seed, directory, (random_query, more_random_query)[seed % 2])] += 1
        except Exception as error:  # noqa: BLE001 - all seeds are tried
            failed.append((seed, f"{type(error).__name__}: {str(error)[:200]}"))
        shutil.rmtree(directory)
    print(dict(found), failed)
    assert not failed
    assert found["right"] > found["refused"]
