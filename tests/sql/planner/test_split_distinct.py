"""DISTINCT aggregates split by buckets of their values: the answer of one step, spread values."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.support.query_running import changelog, environment, materialised, table_of
from tests.support.tiers import sampled

from millstream.expressions.functions.string_encodings import hash_code
from millstream.runtime.columnar.row_groups import key_groups_of_rows
from millstream.state.key_codec import key_group_range

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

#: Query -> the columns of buckets that its plan has.
QUERIES = {
    "SELECT a, COUNT(DISTINCT b) AS n FROM t GROUP BY a": "b",
    "SELECT COUNT(DISTINCT a) AS n, COUNT(*) AS m FROM t": "a",
    "SELECT a, COUNT(DISTINCT b) AS n, SUM(DISTINCT b) AS s, SUM(id) AS i, COUNT(b) AS c, MIN(id) "
    "AS f, MAX(b) AS l FROM t GROUP BY a": "b",
    "SELECT a, COUNT(DISTINCT b) FILTER (WHERE id > 20) AS n, SUM(b) FILTER (WHERE id < 0) AS s "
    "FROM t GROUP BY a HAVING COUNT(*) > 1": "b",
    "SELECT b, COUNT(DISTINCT a) AS n, GROUPING(b) AS g FROM t GROUP BY ROLLUP (b)": "a",
    # Over rows that are taken back.
    "SELECT n % 3 AS m, COUNT(DISTINCT a) AS d, MIN(n) AS s, COUNT(*) AS c FROM (SELECT a, b, "
    "COUNT(*) AS n FROM t GROUP BY a, b) GROUP BY n % 3": "a",
    # Not split: different columns, or results of buckets that cannot be put together.
    "SELECT a, COUNT(DISTINCT b) AS n, COUNT(DISTINCT id) AS m FROM t GROUP BY a": "",
    "SELECT a, COUNT(DISTINCT b) AS n, CAST(AVG(id) * 0 AS INT) AS m FROM t GROUP BY a": "",
    "SELECT a, COUNT(b) AS n FROM t GROUP BY a": "",
}


def _environment(parallelism: int, buckets: int, *, mini_batch: bool) -> TableEnvironment:
    env = environment(parallelism)
    env.execute_sql("SET 'table.optimizer.distinct-agg.split.enabled' = 'true'")
    env.execute_sql(f"SET 'table.optimizer.distinct-agg.split.bucket-num' = '{buckets}'")
    env.execute_sql(f"SET 'table.exec.mini-batch.enabled' = '{str(mini_batch).lower()}'")
    return env


def _rows(seed: int) -> list[tuple[Any, ...]]:
    drawn = random.Random(seed)
    return [
        (i, drawn.choice(["x", "y", "", None]), drawn.choice([None, -7, 0, 1, 4, 9, 12]))
        for i in range(70)
    ]


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize("mini_batch", [False, True])
@pytest.mark.parametrize("number", sampled(range(len(QUERIES)), 4))
def test_oracle_split(number: int, mini_batch: bool, tmp_path: Path) -> None:
    query, column = list(QUERIES.items())[number]
    print("seed", number)
    rows, buckets = _rows(number), (1024, 2, 1)[number % 3]
    env = _environment((3, 1)[number % 2], buckets, mini_batch=mini_batch)
    table_of(env, "t", "id INT, a STRING, b INT", rows, tmp_path)
    shown = env.explain_sql(query)
    assert (f"MOD(HASH_CODE({column}), {buckets}) AS $b]" in shown) is bool(column)
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (id INT, a VARCHAR, b INT)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    wanted = Counter(connection.execute(query).fetchall())
    assert materialised(changelog(env, query, tmp_path, number)) == wanted


def test_there_is_one_step_by_default() -> None:
    env = environment(2)
    env.execute_sql("CREATE TABLE t (a STRING, b INT) WITH ('connector' = 'datagen')")
    shown = env.explain_sql("SELECT a, COUNT(DISTINCT b) FROM t GROUP BY a")
    assert "HASH_CODE" not in shown


@pytest.mark.parametrize("kind", [int, str])
def test_the_values_of_one_group_are_spread_over_subtasks(kind: type) -> None:
    """In one step all rows of a key are one subtask's, in two each has about as many."""
    values = [kind(each) for each in range(20_000)]
    buckets = pa.array([hash_code(each) % 1024 for each in values], pa.int32())
    keys = pa.array(["hot"] * len(values))
    groups = key_groups_of_rows([keys, buckets], len(values), 128)
    shares = []
    for subtask in range(4):
        first, last = key_group_range(subtask, 128, 4)
        shares.append(np.mean((groups >= first) & (groups < last)))
    assert sum(shares) == pytest.approx(1)
    assert max(shares) < 0.32
