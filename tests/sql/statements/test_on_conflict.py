"""INSERT ... ON CONFLICT, where rows of several keys of a query have one key in the sink."""

from __future__ import annotations

import random
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from tests.runtime.table_operators.model import UA, UB, D, I
from tests.runtime.table_operators.running import TableHarness
from tests.support.query_running import environment, insert, table_of

from millstream.errors import MillstreamError, PermanentSinkError, ValidationError
from millstream.runtime.operators.table.sink_materializer import SinkConflictsFactory
from millstream.types.logical_types import BigIntType, IntType, RowType, VarCharType

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

ROW = RowType.of(k=IntType(), name=VarCharType(9), n=BigIntType())
TYPES = [field.type for field in ROW]
#: Its key is b; a is the sink's.
LARGEST = "SELECT MAX(a), COUNT(*) FROM {} GROUP BY b"
COLUMNS = "a INT, b STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts"


def tables(env: TableEnvironment) -> None:
    env.execute_sql(f"CREATE TABLE src ({COLUMNS}) WITH ('connector' = 'datagen')")
    env.execute_sql("CREATE TABLE plain (a INT, b STRING) WITH ('connector' = 'datagen')")
    key = "a INT PRIMARY KEY NOT ENFORCED, n BIGINT"
    for connector in ("blackhole", "print"):
        env.execute_sql(f"CREATE TABLE {connector} ({key}) WITH ('connector' = '{connector}')")
    env.execute_sql("CREATE TABLE nokey (a INT, n BIGINT) WITH ('connector' = 'blackhole')")
    kafka = "'topic' = 't', 'properties.bootstrap.servers' = 'localhost:1'"
    env.execute_sql(
        f"CREATE TABLE upserts ({key}) WITH ('connector' = 'upsert-kafka', {kafka}, "
        "'key.format' = 'json', 'value.format' = 'json')"
    )
    env.execute_sql(
        f"CREATE TABLE retracts ({key}) WITH ('connector' = 'kafka', {kafka}, "
        "'format' = 'debezium-json')"
    )


@pytest.fixture
def env() -> TableEnvironment:
    made = environment()
    tables(made)
    return made


def plan(env: TableEnvironment, text: str) -> str:
    return env.explain_sql(text)


@pytest.mark.parametrize(
    "text",
    [
        f"blackhole {LARGEST.format('src')}",
        f"print {LARGEST.format('src')}",
        f"upserts {LARGEST.format('src')}",
        "upserts SELECT a, 1 FROM src",
        "upserts VALUES (1, 2)",
    ],
)
def test_the_clause_is_required_where_keys_differ(env: TableEnvironment, text: str) -> None:
    wanted = r"Primary key: \[a\], upsert key: \[none\].*ON CONFLICT DO DEDUPLICATE"
    with pytest.raises(ValidationError, match=wanted):
        plan(env, f"INSERT INTO {text}")
    assert "conflictStrategy=[DEDUPLICATE]" in plan(
        env, f"INSERT INTO {text} ON CONFLICT DO DEDUPLICATE"
    )
    env.get_config().set("table.exec.sink.require-on-conflict", "false")
    materializes = "GROUP BY" in text
    assert ("upsertMaterialize=[true]" in plan(env, f"INSERT INTO {text}")) == materializes


@pytest.mark.parametrize(
    "text",
    [
        "blackhole SELECT a, COUNT(*) FROM src GROUP BY a",
        "blackhole SELECT MAX(a), COUNT(*) FROM src",
        "blackhole SELECT a, 1 FROM src",
        f"nokey {LARGEST.format('src')}",
        f"retracts {LARGEST.format('src')}",
    ],
)
def test_the_clause_is_not_required(env: TableEnvironment, text: str) -> None:
    assert "upsertMaterialize" not in plan(env, f"INSERT INTO {text}")


@pytest.mark.parametrize("strategy", ["NONE", "FORCE"])
def test_nor_where_the_option_decides(env: TableEnvironment, strategy: str) -> None:
    env.get_config().set("table.exec.sink.upsert-materialize", strategy)
    found = plan(env, f"INSERT INTO blackhole {LARGEST.format('src')}")
    assert ("upsertMaterialize=[true]" in found) == (strategy == "FORCE")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("blackhole SELECT a, 1 FROM src", "it only accepts INSERT"),
        (f"retracts {LARGEST.format('src')}", "it requires UPDATE_BEFORE"),
        (f"blackhole {LARGEST.format('plain')}", r"define watermarks.*default_database\.plain"),
    ],
)
def test_a_clause_that_cannot_be_carried_out_is_refused(
    env: TableEnvironment, text: str, message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        plan(env, f"INSERT INTO {text} ON CONFLICT DO NOTHING")


def test_the_clause_is_in_the_plan_and_has_a_materializer(env: TableEnvironment) -> None:
    for word in ("NOTHING", "ERROR"):
        text = f"INSERT INTO blackhole {LARGEST.format('src')} ON CONFLICT DO {word}"
        assert f"upsertMaterialize=[true], conflictStrategy=[{word}]" in plan(env, text)
        append = plan(env, f"INSERT INTO upserts SELECT a, 1 FROM src ON CONFLICT DO {word}")
        assert f"upsertMaterialize=[true], conflictStrategy=[{word}]" in append
    equal = "INSERT INTO blackhole SELECT a, COUNT(*) FROM src GROUP BY a ON CONFLICT DO NOTHING"
    assert "upsertMaterialize" not in plan(env, equal)


def written(env: TableEnvironment, query: str, path: Path, seed: int = 1) -> dict[Any, Any]:
    """What a table of SQLite with the key k has when the query is over."""
    file = path / f"out-{seed}.db"
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE IF EXISTS out")
        connection.execute("CREATE TABLE out (k INT PRIMARY KEY, n BIGINT)")
    env.execute_sql(
        f"CREATE TEMPORARY TABLE sink{seed} (k INT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH "
        f"('connector' = 'sqlite', 'path' = '{file}', 'table-name' = 'out')"
    )
    drawn = random.Random(seed)
    insert(env, f"INSERT INTO sink{seed} {query}", limits=(drawn.randint(1, 9) for _ in range(999)))
    with sqlite3.connect(file) as connection:
        return dict(connection.execute("SELECT k, n FROM out"))


@pytest.mark.both_engines
@pytest.mark.parametrize("parallelism", [1, 3])
def test_oracle_first_last_or_error(parallelism: int, tmp_path: Path) -> None:
    env = environment(parallelism)
    rows = [(number % 4, number) for number in range(12)]
    values = ", ".join(f"({k}, {n})" for k, n in rows)
    query = f"SELECT k, n FROM (VALUES {values}) AS t(k, n) ON CONFLICT DO"
    assert written(env, f"{query} NOTHING", tmp_path, 1) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert written(env, f"{query} DEDUPLICATE", tmp_path, 2) == {0: 8, 1: 9, 2: 10, 3: 11}
    with pytest.raises(MillstreamError, match=r"constraint violation.*sink3.*\[k=\d\]"):
        written(env, f"{query} ERROR", tmp_path, 3)


@pytest.mark.both_engines
@pytest.mark.parametrize("word", ["NOTHING", "ERROR", "DEDUPLICATE"])
def test_oracle_keys_that_change_do_not_conflict(word: str, tmp_path: Path) -> None:
    """Each group has one k at any time, though in between two have the same."""
    env = environment(2)
    rows = [(g, k, at) for at in range(20) for g, k in ((at % 5, at % 5 + 5 * (at // 5)),)]
    query = (
        "SELECT k, n FROM (SELECT MAX(k) AS k, MAX(n) AS n, g FROM {} GROUP BY g) ON CONFLICT DO {}"
    )
    values = f"(VALUES {', '.join(map(str, rows))}) AS t(g, k, n)"
    assert written(env, query.format(values, word), tmp_path) == {15 + g: 15 + g for g in range(5)}


@pytest.mark.both_engines
@pytest.mark.parametrize("word", ["NOTHING", "ERROR"])
def test_oracle_rows_of_a_table_with_watermarks(word: str, tmp_path: Path) -> None:
    env = environment(2)
    day = "2024-01-01 00:00:{:02}"
    rows = [(at % 3, day.format(at), at) for at in range(40)]
    watermark = "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
    table_of(env, "t", f"g INT, ts TIMESTAMP(3), n INT, {watermark}", rows, tmp_path)
    query = f"SELECT g + 10, MAX(n) FROM t GROUP BY g ON CONFLICT DO {word}"
    assert written(env, query, tmp_path) == {10: 39, 11: 37, 12: 38}


def harness(*, fails: bool = False, key: tuple[int, ...] | None = (1,)) -> TableHarness:
    factory = SinkConflictsFactory(ROW, (0,), key, fails, "'t'")
    return TableHarness(factory, ROW, TYPES)


def test_changes_wait_for_the_watermark_and_undo_each_other() -> None:
    with harness(fails=True) as running:
        running.feed([(I, (1, "b", 1)), (I, (1, "a", 1))])
        running.feed([(UB, (1, "a", 1)), (UA, (1, "b", 2)), (UB, (1, "b", 1))])
        running.end_epoch()
        assert running.changes == []
        running.watermark(5)
        assert running.changes == [(I, (1, "b", 2))]
        running.feed([(D, (1, "b", 2))])
        running.watermark(6)
        running.end_epoch()
        assert running.changes[1:] == [(D, (1, "b", 2))]
        assert list(running.state_entries()) == []


def test_the_first_row_stays_until_it_goes() -> None:
    with harness() as running:
        running.feed([(I, (1, "a", 1)), (I, (1, "b", 1))])
        running.watermark(1)
        running.feed([(I, (1, "c", 1)), (UB, (1, "b", 1)), (UA, (1, "b", 9))])
        running.watermark(2)
        running.end_epoch()
        running.feed([(UB, (1, "a", 1)), (UA, (1, "a", 7))])
        running.watermark(3)
        running.feed([(D, (1, "a", 7)), (I, (1, "d", 4))])
        running.watermark(4)
        wanted = [(I, (1, "a", 1)), (UA, (1, "a", 7)), (UA, (1, "d", 4))]
        assert running.changes == wanted


def test_rows_without_an_upsert_key_are_compared_as_a_whole() -> None:
    with harness(key=None, fails=True) as running:
        running.feed([(I, (None, "a", 1)), (D, (None, "a", 1)), (I, (None, "a", 1))])
        running.watermark(1)
        assert running.changes == [(I, (None, "a", 1))]
        running.feed([(I, (None, "a", 2))])
        with pytest.raises(PermanentSinkError, match=r"2 distinct records have the key \[k=None\]"):
            running.watermark(2)


def test_a_compiled_plan_keeps_the_clause(env: TableEnvironment) -> None:
    text = f"INSERT INTO blackhole {LARGEST.format('src')} ON CONFLICT DO NOTHING"
    written_plan = env.compile_plan_sql(text)
    assert '"conflict": "NOTHING"' in written_plan.as_json_string()
    assert "conflictStrategy=[NOTHING]" in written_plan.explain()


def test_batch_mode_takes_the_clause_without_effect_as_flink(tmp_path: Path) -> None:
    env = environment()
    env.get_config().set("execution.runtime-mode", "BATCH")
    query = "SELECT k, n FROM (VALUES (1, 1), (1, 2)) AS t(k, n)"
    assert written(env, query, tmp_path) == {1: 2}
    assert written(env, f"{query} ON CONFLICT DO NOTHING", tmp_path, 2) == {1: 2}
