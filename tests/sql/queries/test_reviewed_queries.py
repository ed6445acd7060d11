"""Queries whose answers were wrong once: against DuckDB, or refused by name."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tests.support.query_running import changelog, environment, materialised, table_of

from millstream.common import Row, RowKind, Types
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import MillstreamError, ValidationError
from millstream.table import ChangelogMode, StreamTableEnvironment
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

TABLES = {
    "l (a, b)": "VALUES (1, 10), (2, 20), (3, CAST(NULL AS INT)), (2, 20)",
    "r (a, c)": "VALUES (1, 5), (2, 6), (4, 7), (1, 1)",
}
QUERIES = [
    # ON over one side alone decides which rows find each other, not which there are.
    "SELECT * FROM l FULL JOIN r ON l.a = r.a AND l.b > 15",
    "SELECT * FROM l FULL JOIN r ON l.a = r.a AND r.c > 5",
    "SELECT * FROM l RIGHT JOIN r ON l.a = r.a AND l.b > 15",
    # The column of USING is that of the side that is there.
    "SELECT a, b, c FROM l FULL JOIN r USING (a)",
    "SELECT a, l.a, r.a AS d, c FROM l NATURAL FULL JOIN r",
    # Scalar sub-queries stand beside the groups.
    ("SELECT a, COUNT(*), SUM(b), MAX(b), MIN(b) + 1000, (SELECT MAX(c) FROM r) FROM l GROUP BY a"),
    "SELECT (SELECT MAX(c) FROM r) + SUM(b) FROM l",
    "SELECT a FROM l GROUP BY a HAVING COUNT(*) >= (SELECT MIN(c) + 1 FROM r)",
    # A row for which the aggregate sees nothing has the aggregate of nothing.
    "SELECT a, (SELECT COUNT(*) + 1 FROM r WHERE r.a = l.a) FROM l",
    "SELECT a, (SELECT COALESCE(SUM(c), 0) FROM r WHERE r.a = l.a) FROM l",
    "SELECT a, (SELECT COUNT(*) FROM r WHERE r.a + r.c = l.a + 5) FROM l",
    "SELECT a FROM l WHERE EXISTS (SELECT COUNT(*) FROM r WHERE r.a = l.a)",
    "SELECT a FROM l WHERE NOT EXISTS (SELECT COUNT(*) FROM r WHERE r.a = l.a)",
]
REFUSED = {
    "SELECT l.a FROM l LEFT JOIN UNNEST(ARRAY[l.a, l.b]) AS t (x) ON t.x > 5": "ON TRUE alone",
    "SELECT a FROM l JOIN UNNEST(ARRAY[l.a, l.b]) AS t (a) USING (a)": "joined by ON",
    "SELECT a FROM l WHERE a IN (SELECT 1, 2)": "IN compares 1 values with 2 columns",
    "SELECT (SELECT SUM(c) FROM r WHERE r.a < l.a) FROM l": "only in equalities",
}


@pytest.fixture(scope="module")
def env() -> TableEnvironment:
    made = environment()
    for name, rows in TABLES.items():
        made.execute_sql(f"CREATE TEMPORARY VIEW {name} AS {rows}")
    return made


def _answer(query: str) -> Counter[tuple[Any, ...]]:
    connection = duckdb.connect()
    for name, rows in TABLES.items():
        connection.execute(f"CREATE VIEW {name} AS {rows}")
    return Counter(connection.execute(query).fetchall())


@pytest.mark.parametrize("query", QUERIES)
def test_the_answer_is_that_of_duckdb(env: TableEnvironment, query: str, tmp_path: Path) -> None:
    assert materialised(changelog(env, query, tmp_path)) == _answer(query)


@pytest.mark.parametrize("query", REFUSED)
def test_what_is_not_computed_is_refused(env: TableEnvironment, query: str) -> None:
    with pytest.raises(MillstreamError, match=REFUSED[query]):
        env.explain_sql(query)


def test_the_condition_of_a_join_with_unnest_holds(env: TableEnvironment, tmp_path: Path) -> None:
    query = "SELECT l.a, x FROM l JOIN UNNEST(ARRAY[l.a, l.b]) AS t (x) ON t.x > 5"
    assert materialised(changelog(env, query, tmp_path)) == {(1, 10): 1, (2, 20): 2}


# -- keys of changes -----------------------------------------------------------------------------


@pytest.fixture
def streams() -> StreamTableEnvironment:
    made = StreamExecutionEnvironment.get_execution_environment()
    made.set_parallelism(1)
    return StreamTableEnvironment.create(made)


def _upserts(env: StreamTableEnvironment, query: str, directory: Path) -> list[Any]:
    stream = env.to_changelog_stream(env.sql_query(query), None, ChangelogMode.upsert())
    stream.sink_to(CollectSink(str(directory)))
    graph = stream.get_execution_environment().get_job_graph("test")
    MiniCluster(graph, limits=iter([1] * 100)).run()
    return list(read_collected(directory))


@pytest.mark.both_engines
def test_an_update_that_a_join_condition_ends_is_taken_back(
    streams: StreamTableEnvironment, tmp_path: Path
) -> None:
    streams.execute_sql("CREATE TEMPORARY VIEW g AS SELECT * FROM (VALUES (1, 9), (1, -8)) t(k, v)")
    query = (
        "SELECT g.k, s FROM (SELECT k, SUM(v) AS s FROM g GROUP BY k) AS g "
        "JOIN (SELECT k, COUNT(*) AS n FROM g GROUP BY k) AS d ON g.k = d.k AND g.s > 5"
    )
    rows = _upserts(streams, query, tmp_path)
    last = rows[-1].get_row_kind()
    assert tuple(rows[-1]) == (1, 9)
    assert last in {RowKind.UPDATE_BEFORE, RowKind.DELETE}


@pytest.mark.both_engines
def test_upserts_of_a_query_without_a_key_are_refused(
    streams: StreamTableEnvironment, tmp_path: Path
) -> None:
    streams.execute_sql("CREATE TEMPORARY VIEW g AS SELECT * FROM (VALUES (1, 9), (1, -8)) t(k, v)")
    with pytest.raises(ValidationError, match=r"no key to identify its rows: GroupAggregate"):
        _upserts(streams, "SELECT SUM(v) AS s FROM g GROUP BY k", tmp_path)


@pytest.mark.both_engines
def test_a_rank_is_updated_by_its_number(streams: StreamTableEnvironment, tmp_path: Path) -> None:
    streams.execute_sql(
        "CREATE TEMPORARY VIEW g AS SELECT * FROM (VALUES (1, 9), (2, 5), (3, 7)) t(k, v)"
    )
    query = (
        "SELECT k, s{} FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY s DESC) AS n FROM "
        "(SELECT k, SUM(v) AS s FROM g GROUP BY k)) WHERE n <= 2"
    )
    with pytest.raises(ValidationError, match="no key"):
        _upserts(streams, f"SELECT k, s FROM ({query.format(', n')})", tmp_path)
    there = {row[2]: tuple(row) for row in _upserts(streams, query.format(", n"), tmp_path)}
    assert there == {1: (1, 9, 1), 2: (3, 7, 2)}


@pytest.mark.both_engines
def test_rows_behind_an_offset_have_no_key(streams: StreamTableEnvironment, tmp_path: Path) -> None:
    """They move from number to number: a row comes at its new one before it goes from its old."""
    streams.execute_sql(
        "CREATE TEMPORARY VIEW g AS SELECT * FROM (VALUES (1, 9), (2, 5), (3, 7), (4, 6), (2, 9), "
        "(5, 1), (3, -7), (5, 9), (1, -9)) t(k, v)"
    )
    streams.execute_sql("CREATE TEMPORARY VIEW g2 AS SELECT k, SUM(v) AS s FROM g GROUP BY k")
    query = "SELECT k, s FROM g2 ORDER BY s, k LIMIT 2 OFFSET 1"
    with pytest.raises(ValidationError, match="no key"):
        _upserts(streams, query, tmp_path)
    joined = f"SELECT x.k, x.s, y.k AS z FROM ({query}) x LEFT JOIN g y ON x.s = y.k + 100"
    rows = materialised(changelog(streams, joined, tmp_path, limit=1))
    assert rows == {(3, 0, None): 1, (4, 6, None): 1}


@pytest.mark.parametrize(("keys", "has_key"), [("1, 2", True), ("1, CAST(NULL AS INT)", False)])
def test_the_keys_of_both_sides_tell_rows_of_a_full_join_apart_unless_they_are_null(
    streams: StreamTableEnvironment, keys: str, has_key: bool, tmp_path: Path
) -> None:
    """NULL beside nothing, and nothing beside NULL, have the same keys."""
    rows = ", ".join(f"({each}, 5)" for each in keys.split(", "))
    streams.execute_sql(f"CREATE TEMPORARY VIEW g AS SELECT * FROM (VALUES {rows}) t(k, v)")
    counts = "(SELECT k, COUNT(*) AS n FROM g GROUP BY k)"
    query = (
        f"SELECT x.k, x.n, y.k AS z FROM {counts} x FULL JOIN {counts} y ON x.k = y.k AND y.n > 5"
    )
    if has_key:
        there = {(row[0], row[2]): row for row in _upserts(streams, query, tmp_path)}
        assert set(there) == {(1, None), (2, None), (None, 1), (None, 2)}
        return
    with pytest.raises(ValidationError, match="no key to identify its rows: Join"):
        _upserts(streams, query, tmp_path)


def test_an_upsert_stream_needs_a_key(streams: StreamTableEnvironment) -> None:
    rows = [Row.of_kind(RowKind.INSERT, 1, "a"), Row.of_kind(RowKind.INSERT, 2, "b")]
    kind = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
    stream = streams._environment.from_collection(rows, kind)
    with pytest.raises(ValidationError, match="gives upserts and needs a PRIMARY KEY"):
        streams.from_changelog_stream(stream, None, ChangelogMode.upsert()).explain()


# -- time ----------------------------------------------------------------------------------------


def _timed(env: TableEnvironment, name: str, watermark: str, directory: Path) -> None:
    (directory / name).mkdir()
    env.execute_sql(
        f"CREATE TABLE {name} (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS {watermark}) WITH "
        f"('connector' = 'filesystem', 'path' = '{directory / name}', 'format' = 'json')"
    )


def test_a_cast_that_changes_the_time_is_no_bound_of_an_interval_join(tmp_path: Path) -> None:
    env = environment()
    _timed(env, "x", "ts", tmp_path)
    _timed(env, "y", "ts", tmp_path)
    query = (
        "SELECT x.k FROM x JOIN y ON x.k = y.k AND "
        "{} BETWEEN y.ts - INTERVAL '1' SECOND AND y.ts + INTERVAL '1' SECOND"
    )
    assert "IntervalJoin" in env.explain_sql(query.format("x.ts"))
    day = "CAST(CAST(x.ts AS DATE) AS TIMESTAMP(3))"
    assert "IntervalJoin" not in env.explain_sql(query.format(day))


def test_a_watermark_of_a_cast_that_changes_the_time_is_refused(tmp_path: Path) -> None:
    env = environment()
    _timed(env, "x", "CAST(CAST(ts AS DATE) AS TIMESTAMP(3))", tmp_path)
    with pytest.raises(MillstreamError, match="it is the column itself"):
        changelog(env, "SELECT k FROM x", tmp_path)


@pytest.mark.parametrize(
    "source",
    [
        "SELECT x.k, x.ts FROM x JOIN y ON x.k = y.k",
        "SELECT * FROM x WHERE k IN (SELECT k FROM y)",
        "SELECT DISTINCT k, ts FROM x",
    ],
)
def test_a_time_attribute_ends_in_regular_joins_and_distinct(source: str, tmp_path: Path) -> None:
    env = environment()
    _timed(env, "x", "ts", tmp_path)
    _timed(env, "y", "ts", tmp_path)
    env.execute_sql(f"CREATE TEMPORARY VIEW v AS {source}")
    tvf = "TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '1' SECOND)"
    for query in (
        f"SELECT k, window_start FROM {tvf}",
        f"SELECT COUNT(*) FROM {tvf} GROUP BY window_start, window_end",
    ):
        with pytest.raises(ValidationError, match="where a time attribute ends"):
            env.explain_sql(query)
    length = "RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW"
    with pytest.raises(ValidationError, match="must be defined on a time attribute"):
        env.explain_sql(f"SELECT COUNT(*) OVER (PARTITION BY k ORDER BY ts {length}) FROM v")


NUMBERED = "SELECT {} FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM t)"


def test_a_number_that_nobody_reads_is_not_kept_up(tmp_path: Path) -> None:
    env = environment()
    table_of(env, "t", "k STRING, v INT", [("a", v) for v in (5, 3, 4, 1, 2)], tmp_path)
    plain, numbered = (NUMBERED.format(each) + " WHERE n <= 2" for each in ("k, v", "k, v, n"))
    assert "select=[k, v])" in env.explain_sql(plain)
    assert "select=[k, v, w$0])" in env.explain_sql(numbered)
    rows = changelog(env, plain, tmp_path, limit=1)
    assert materialised(rows) == {("a", 1): 1, ("a", 2): 1}
    # No row changes its place for nobody: each comes once, and goes at most once.
    assert len(rows) == len({(row.get_row_kind(), *row) for row in rows})
    both = f"{plain} UNION ALL SELECT k, n FROM ({numbered})"
    assert sum(materialised(changelog(env, both, tmp_path)).values()) == 4


def test_a_nan_that_is_taken_back_goes(tmp_path: Path) -> None:
    env = environment(1)
    env.execute_sql(
        "CREATE TEMPORARY VIEW v (k, x) AS VALUES (1, CAST('NaN' AS DOUBLE)), "
        "(2, CAST(5 AS DOUBLE)), (1, 2.0)"
    )
    query = (
        "SELECT ARRAY_AGG(x), FIRST_VALUE(x), ARRAY_AGG(a) FROM ("
        "SELECT LAST_VALUE(x) AS x, ARRAY[LAST_VALUE(x)] AS a FROM v GROUP BY k)"
    )
    rows = changelog(env, query, tmp_path, limit=1)
    assert tuple(rows[-1]) == ([5.0, 2.0], 5.0, [[5.0], [2.0]])
