"""PERCENTILE, JSON_ARRAYAGG, JSON_OBJECTAGG, LAG and GROUP_ID in queries."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tests.support.query_running import changelog, environment, materialised, table_of

from millstream.errors import MillstreamError
from millstream.table.expression import JsonOnNull
from millstream.table.expressions import col, json_array_agg, json_object_agg

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

DRAWN = random.Random(5)
ROWS: list[tuple[Any, ...]] = [
    (
        DRAWN.choice("abc"),
        DRAWN.choice([None, *range(9)]),
        DRAWN.randint(0, 3),
        f"2024-01-01 00:{n:02}:00",
    )
    for n in range(60)
]


@pytest.fixture
def env(tmp_path: Path) -> TableEnvironment:
    env = environment(2)
    columns = "k STRING, v INT, n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' HOUR"
    table_of(env, "t", columns, ROWS, tmp_path)
    return env


@pytest.fixture(scope="module")
def oracle() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (k TEXT, v INT, n INT, ts TIMESTAMP)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", ROWS)
    return connection


@pytest.mark.both_engines(every=4)
def test_oracle_percentile(
    env: TableEnvironment, oracle: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    query = (
        "SELECT k, PERCENTILE(v, 0.25) AS a, PERCENTILE(v, ARRAY[0.5, 1.0]) AS b FROM t GROUP BY k"
    )
    found = materialised(_Row(row) for row in changelog(env, query, tmp_path, limit=900))
    wanted = oracle.execute(
        "SELECT k, quantile_cont(v, 0.25), quantile_cont(v, [0.5, 1.0]) FROM t GROUP BY k"
    ).fetchall()
    assert found == Counter((k, a, tuple(b)) for k, a, b in wanted)


class _Row:
    """A row with values that can be counted."""

    def __init__(self, row: Any) -> None:
        self._row = row

    def __iter__(self) -> Any:
        return (tuple(each) if isinstance(each, list) else each for each in self._row)

    def get_row_kind(self) -> Any:
        return self._row.get_row_kind()


def test_oracle_percentile_of_what_is_taken_back(
    env: TableEnvironment, oracle: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """Counts change, so that values are taken back; the frequency says how often they count."""
    inner = "SELECT v, COUNT(*) AS c, MAX(n) AS f FROM t WHERE v IS NOT NULL GROUP BY v"
    query = f"SELECT PERCENTILE(c, 0.5) AS a, PERCENTILE(c, 0.3, f) AS b FROM ({inner})"
    wanted = oracle.execute(
        f"WITH i AS ({inner}), r AS (SELECT c FROM i, range(10) WHERE range < f) "
        "SELECT (SELECT quantile_cont(c, 0.5) FROM i), (SELECT quantile_cont(c, 0.3) FROM r)"
    ).fetchall()
    (found,) = materialised(changelog(env, query, tmp_path, limit=500))
    assert found == pytest.approx(wanted[0])


@pytest.mark.both_engines
def test_json_of_groups(env: TableEnvironment, tmp_path: Path) -> None:
    query = (
        "SELECT k, JSON_ARRAYAGG(v) AS a, JSON_ARRAYAGG(v NULL ON NULL) AS b, "
        "JSON_OBJECTAGG(KEY CAST(ts AS STRING) VALUE v) AS c, "
        "JSON_OBJECTAGG(KEY CAST(ts AS STRING) VALUE v ABSENT ON NULL) AS d, COUNT(*) AS m "
        "FROM t GROUP BY k"
    )
    found = {row[0]: row[1:] for row in materialised(changelog(env, query, tmp_path, limit=900))}
    for key in "abc":
        values = [(ts, v) for k, v, _, ts in ROWS if k == key]
        array, with_nulls, whole, without, count = found[key]
        assert Counter(json.loads(array)) == Counter(v for _, v in values if v is not None)
        assert Counter(json.loads(with_nulls)) == Counter(v for _, v in values)
        assert json.loads(whole) == {f"{ts}.000": v for ts, v in values}
        assert whole == json.dumps(json.loads(whole), separators=(",", ":"), sort_keys=True)
        assert json.loads(without) == {f"{ts}.000": v for ts, v in values if v is not None}
        assert count == len(values)


def test_in_windows(env: TableEnvironment, tmp_path: Path) -> None:
    windows = "TABLE({}(TABLE t, DESCRIPTOR(ts), {}INTERVAL '30' MINUTE{}))"
    columns = "COUNT(v) AS c, PERCENTILE(v, 0.0) AS p, JSON_ARRAYAGG(v) AS a"
    hop = windows.format("HOP", "INTERVAL '15' MINUTE, ", "")
    query = f"SELECT {columns} FROM {hop} GROUP BY window_start, window_end"
    found = materialised(changelog(env, query, tmp_path, limit=700))
    wanted: Counter[tuple[Any, ...]] = Counter()
    for start in range(-15, 60, 15):
        minutes = range(start, start + 30)
        values = [v for n, (_, v, _, _) in enumerate(ROWS) if n in minutes and v is not None]
        wanted[len(values), float(min(values)), sum(values)] += 1
    assert Counter((c, p, sum(json.loads(a))) for c, p, a in found.elements()) == wanted
    session = windows.format("SESSION", "", "")
    query = f"SELECT {columns} FROM {session} GROUP BY window_start, window_end"
    found = materialised(changelog(env, query, tmp_path / "session", limit=700))
    values = [v for _, v, _, _ in ROWS if v is not None]
    ((count, lowest, listed),) = found.elements()
    assert (count, lowest) == (len(values), float(min(values)))
    assert Counter(json.loads(listed)) == Counter(values)


def test_json_of_what_is_taken_back(env: TableEnvironment, tmp_path: Path) -> None:
    query = (
        "SELECT JSON_OBJECTAGG(KEY k VALUE c) AS o, "
        "JSON_ARRAYAGG(JSON_OBJECT(KEY 'x' VALUE c)) AS a "
        "FROM (SELECT k, COUNT(v) AS c FROM t GROUP BY k)"
    )
    counts = Counter(k for k, v, _, _ in ROWS if v is not None)
    ((whole, array),) = materialised(changelog(env, query, tmp_path, limit=500))
    assert json.loads(whole) == counts
    assert Counter(each["x"] for each in json.loads(array)) == Counter(counts.values())


def test_json_aggregates_of_the_table_api(env: TableEnvironment, tmp_path: Path) -> None:
    groups = env.sql_query("SELECT 'x' AS k, CAST(NULL AS INT) AS v").group_by(col("k"))
    table = groups.select(
        json_object_agg(JsonOnNull.NULL, col("k"), col("v")).alias("o"),
        json_array_agg(JsonOnNull.ABSENT, col("v")).alias("a"),
    )
    env.create_temporary_view("made", table)
    found = materialised(changelog(env, "SELECT * FROM made", tmp_path))
    assert found == {('{"x":null}', "[]"): 1}


@pytest.mark.both_engines
def test_oracle_lag(
    env: TableEnvironment, oracle: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    over = "OVER (PARTITION BY k ORDER BY ts)"
    query = (
        f"SELECT k, v, LAG(v) {over} AS a, LAG(v, 2, -1) {over} AS b, LAG(v, 0) {over} AS c, "
        "CAST(ts AS STRING) AS s FROM t"
    )
    found = materialised(changelog(env, query, tmp_path, limit=300))
    wanted = oracle.execute(query.replace("CAST(ts AS STRING)", "ts::TEXT || '.000'")).fetchall()
    assert found == Counter(wanted)


def test_group_id_counts_sets_that_are_alike(env: TableEnvironment, tmp_path: Path) -> None:
    query = (
        "SELECT k, n, GROUP_ID() AS g, GROUPING(n) AS h, COUNT(*) AS c FROM t "
        "GROUP BY GROUPING SETS ((k), (k, n), (k), ())"
    )
    found = materialised(changelog(env, query, tmp_path))
    by_k = Counter(row[0] for row in ROWS)
    assert {row[2:4] for row in found if row[0] and row[1] is not None} == {(0, 0)}
    alone = {row for row in found if row[0] and row[1] is None}
    assert alone == {(k, None, g, 1, count) for k, count in by_k.items() for g in (0, 1)}
    plain = "SELECT k, GROUP_ID() AS g FROM t GROUP BY k"
    assert materialised(changelog(env, plain, tmp_path)) == {(k, 0): 1 for k in by_k}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT LEAD(v) OVER (ORDER BY ts) FROM t", "LEAD Function is not supported in stream"),
        ("SELECT NTILE(2) OVER (ORDER BY ts) FROM t", "NTILE Function is not supported in stream"),
        ("SELECT LAG(v, n) OVER (ORDER BY ts) FROM t", "offset of LAG must be a constant"),
        ("SELECT LAG(v, 1, 'x') OVER (ORDER BY ts) FROM t", "default of LAG is"),
        (
            "SELECT LAG(v) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
            "LAG takes no frame",
        ),
        ("SELECT PERCENTILE(k, 0.5) FROM t", "PERCENTILE"),
        ("SELECT GROUP_ID(k) FROM t GROUP BY k", "GROUP_ID takes no arguments"),
        ("SELECT JSON_OBJECTAGG(KEY v VALUE v) FROM t", "takes a text as its key, not INT"),
        ("SELECT k FROM t WHERE JSON_ARRAYAGG(v) = 'x'", "JSON_ARRAYAGG cannot stand here"),
    ],
)
def test_refused(query: str, message: str, env: TableEnvironment) -> None:
    with pytest.raises(MillstreamError) as refused:
        env.explain_sql(query)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT PERCENTILE(v, 1.5) AS a FROM t", "between [0.0, 1.0], but was '1.5'"),
        ("SELECT JSON_OBJECTAGG(KEY k VALUE v) AS a FROM t", "is already present"),
        ("SELECT JSON_OBJECTAGG(KEY CAST(NULL AS STRING) VALUE v) AS a FROM t", "a key is NULL"),
    ],
)
def test_fails(query: str, message: str, env: TableEnvironment, tmp_path: Path) -> None:
    with pytest.raises(MillstreamError) as failed:
        changelog(env, query, tmp_path)
    assert message in str(failed.value)
