"""Options of tables: materializers that are forced or left out, parallelism; and ``SELECT r.*``."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import changelog, environment, insert, materialised, table_of

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from pathlib import Path

KEYED = "CREATE TABLE {} (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ({})"
INSERTS = "SELECT k, CAST(v AS BIGINT) FROM t"
COUNTS = "SELECT k, COUNT(*) FROM t GROUP BY k"
#: Its key is not that of the sink.
LARGEST = "SELECT MAX(k), n FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) GROUP BY n"
ROWS = [("abc"[number % 3], number) for number in range(30)]


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        ("AUTO", [False, False, True]),
        # As Flink 2.3 answers.
        ("FORCE", [True, True, True]),
        ("none", [False, False, False]),
    ],
)
def test_materializers_by_strategy(strategy: str, wanted: list[bool], tmp_path: Path) -> None:
    env = environment()
    env.get_config().set("table.exec.sink.upsert-materialize", strategy)
    table_of(env, "t", "k STRING, v INT", ROWS, tmp_path)
    env.execute_sql(KEYED.format("keyed", "'connector' = 'blackhole'"))
    env.execute_sql("CREATE TABLE plain (k STRING, n BIGINT) WITH ('connector' = 'blackhole')")
    largest = f"{LARGEST} ON CONFLICT DO DEDUPLICATE"
    plans = [env.explain_sql(f"INSERT INTO keyed {each}") for each in (INSERTS, COUNTS, largest)]
    assert ["upsertMaterialize=[true]" in each for each in plans] == wanted
    plans = [env.explain_sql(f"INSERT INTO plain {each}") for each in (INSERTS, COUNTS)]
    assert not any("upsertMaterialize" in each for each in plans)


@pytest.mark.both_engines
@pytest.mark.parametrize("parallelism", [1, 3])
def test_oracle_a_forced_materializer(parallelism: int, tmp_path: Path) -> None:
    env = environment(parallelism)
    env.get_config().set("table.exec.sink.upsert-materialize", "FORCE")
    table_of(env, "t", "k STRING, v INT", ROWS, tmp_path)
    file = tmp_path / "counts.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE counts (k TEXT PRIMARY KEY, n BIGINT)")
    options = f"'connector' = 'sqlite', 'path' = '{file}', 'table-name' = 'counts'"
    env.execute_sql(KEYED.format("counts", options))
    insert(env, f"INSERT INTO counts {COUNTS}", limits=(each % 7 + 1 for each in range(1000)))
    with sqlite3.connect(file) as connection:
        assert dict(connection.execute("SELECT k, n FROM counts")) == {"a": 10, "b": 10, "c": 10}


def test_parallelism_of_jobs_of_tables(tmp_path: Path) -> None:
    env = environment(2)
    table_of(env, "t", "k STRING, v INT", ROWS, tmp_path)
    env.execute_sql(KEYED.format("keyed", "'connector' = 'blackhole'"))

    def parallelisms() -> set[int]:
        end: Any = env.session.collected(env.sql_query(COUNTS).plan, str(tmp_path / "out"))
        graph = env.session.program.graph_of([end], "test")
        return {node.parallelism for node in graph.nodes.values()}

    assert 2 in parallelisms()
    env.execute_sql("SET 'table.exec.resource.default-parallelism' = '5'")
    assert 5 in parallelisms()
    assert 2 not in parallelisms()
    env.execute_sql("RESET 'table.exec.resource.default-parallelism'")
    assert 2 in parallelisms()


@pytest.fixture
def rows_of_rows(tmp_path: Path) -> Any:
    env = environment()
    rows = [(1, {"a": 1, "b": "x"}), (2, {"a": None, "b": "y"}), (3, None)]
    (tmp_path / "t").mkdir()
    import json

    lines = [json.dumps({"k": k, "r": r}) + "\n" for k, r in rows]
    (tmp_path / "t" / "0.json").write_text("".join(lines))
    env.execute_sql(
        "CREATE TABLE t (k INT, r ROW<a INT, b STRING>) WITH ('connector' = 'filesystem', "
        f"'path' = '{tmp_path / 't'}', 'format' = 'json')"
    )
    return env


@pytest.mark.parametrize("star", ["r.*", "t.r.*", "x.r.*"])
def test_the_fields_of_a_row(star: str, rows_of_rows: Any, tmp_path: Path) -> None:
    env = rows_of_rows
    source = "(SELECT * FROM t) AS x" if star.startswith("x") else "t"
    query = f"SELECT k, {star}, k + 1 AS l FROM {source}"
    assert env.sql_query(query).get_schema().get_column_names() == ["k", "a", "b", "l"]
    found = materialised(changelog(env, query, tmp_path))
    assert found == Counter([(1, 1, "x", 2), (2, None, "y", 3), (3, None, None, 4)])
    env.execute_sql(f"CREATE VIEW v AS {query}")
    assert materialised(changelog(env, "SELECT * FROM v", tmp_path)) == found
    grouped = f"SELECT {star} FROM {source} GROUP BY {star.removesuffix('.*')}"
    assert len(materialised(changelog(env, grouped, tmp_path))) == 3


def test_no_fields(rows_of_rows: Any) -> None:
    with pytest.raises(MillstreamError, match="'k' is neither a table nor a column of type ROW"):
        rows_of_rows.sql_query("SELECT k.* FROM t")
    with pytest.raises(MillstreamError, match="Table 'q' is not in FROM"):
        rows_of_rows.sql_query("SELECT q.* FROM t")
