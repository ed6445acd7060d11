"""An expression that fails for a row: the error names the operator and the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest
from tests.support.query_running import environment, table_of

from millstream.errors import ExpressionError

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = (
    "ts TIMESTAMP(3), k STRING, v INT, p AS PROCTIME(), WATERMARK FOR ts AS ts, "
    "PRIMARY KEY (k) NOT ENFORCED"
)
ROWS = [("2024-01-01 00:00:00", "x", 1), ("2024-01-01 00:00:30", "y", 2)]
FAILS = "CAST(a.k || b.k AS INT) > 0"
WINDOWS = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
LEFT, RIGHT = (WINDOWS.format(name) for name in "lr")
QUERIES = {
    "Calc": "SELECT CAST(k AS INT) FROM l",
    "Join": f"SELECT a.v FROM l a JOIN r b ON a.v = b.v AND {FAILS}",
    "IntervalJoin": f"SELECT a.v FROM l a JOIN r b ON a.v = b.v AND a.ts = b.ts AND {FAILS}",
    "TemporalJoin": (
        f"SELECT a.v FROM l a JOIN r FOR SYSTEM_TIME AS OF a.ts b ON a.k = b.k AND {FAILS}"
    ),
    "WindowJoin": (
        f"SELECT a.v FROM (SELECT * FROM {LEFT}) a JOIN (SELECT * FROM {RIGHT}) b ON a.v = b.v "
        f"AND a.window_start = b.window_start AND a.window_end = b.window_end AND {FAILS}"
    ),
    "LookupJoin": (
        f"SELECT a.v FROM l a JOIN known FOR SYSTEM_TIME AS OF a.p AS b ON a.v = b.v AND {FAILS}"
    ),
    "Match": (
        "SELECT * FROM l MATCH_RECOGNIZE (ORDER BY ts MEASURES A.v AS v PATTERN (A B) "
        "DEFINE B AS CAST(A.k || B.k AS INT) > 0)"
    ),
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("operator", QUERIES)
def test_the_operator_is_named(operator: str, tmp_path: Path) -> None:
    env = environment(1)
    for name in "lr":
        table_of(env, name, COLUMNS, ROWS, tmp_path)
    with duckdb.connect(str(tmp_path / "known.db")) as connection:
        connection.execute("CREATE TABLE known AS SELECT 1 AS v, 'x' AS k")
    env.execute_sql(
        "CREATE TABLE known (v INT, k STRING) WITH ('connector' = 'duckdb', "
        f"'path' = '{tmp_path / 'known.db'}', 'table-name' = 'known')"
    )
    query = QUERIES[operator]
    assert operator in env.explain_sql(query)
    with pytest.raises(ExpressionError) as failed:
        list(env.execute_sql(query).collect())
    told = str(failed.value)
    assert f"operator '{operator}" in told, told
    assert told.count("operator '") == 1, told
    assert " of job '" in told
