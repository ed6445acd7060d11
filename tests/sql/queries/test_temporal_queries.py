"""FOR SYSTEM_TIME AS OF over event time in SQL, against DuckDB's ASOF joins."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import TYPE_CHECKING

import duckdb
import pytest
from tests.support.query_running import changelog, environment, materialised, table_of

from millstream.common import Row, RowKind, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import MillstreamError, ValidationError
from millstream.table import ChangelogMode, Schema, StreamTableEnvironment

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

START = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
TIME = "WATERMARK FOR ts AS ts - INTERVAL '900' SECOND"
VIEW = (
    "CREATE TEMPORARY VIEW last AS SELECT ts, k, r FROM (SELECT *, ROW_NUMBER() OVER "
    "(PARTITION BY k ORDER BY ts DESC) AS n FROM history) WHERE n = 1"
)
ASOF = "o ASOF {} JOIN rates AS r ON o.k = r.k AND o.ts >= r.ts"
#: Query -> the same for DuckDB.
QUERIES = {
    "SELECT o.k, v, r FROM o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k": (
        f"SELECT o.k, v, r FROM {ASOF.format('INNER')}"
    ),
    "SELECT o.k, v, r.ts, r FROM o LEFT JOIN last FOR SYSTEM_TIME AS OF o.ts AS r ON r.k = o.k": (
        f"SELECT o.k, v, r.ts, r FROM {ASOF.format('LEFT')}"
    ),
    # An equality beside the key says something of the version, not which one it is.
    "SELECT o.k, v, r FROM o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r "
    "ON o.k = r.k AND o.v = r.r": (
        f"SELECT k, v, CASE WHEN v = r THEN r END FROM "
        f"(SELECT o.k, v, r FROM {ASOF.format('LEFT')})"
    ),
    "SELECT o.k, v, r FROM o, rates FOR SYSTEM_TIME AS OF o.ts AS r "
    "WHERE o.k = r.k AND v > r AND r <> 3": (
        f"SELECT o.k, v, r FROM {ASOF.format('INNER')} WHERE v > r AND r <> 3"
    ),
    "SELECT o.k, v, r FROM o JOIN last FOR SYSTEM_TIME AS OF o.ts AS r "
    "ON LOWER(o.k) = r.k WHERE v > 2": (
        f"SELECT o.k, v, r FROM {ASOF.format('INNER')} WHERE v > 2"
    ),
    # The time of the left goes on.
    "SELECT window_start, SUM(v * r) AS s FROM TUMBLE(TABLE joined, DESCRIPTOR(ts), INTERVAL '1' "
    "MINUTE) GROUP BY window_start, window_end": (
        f"SELECT date_trunc('minute', o.ts), SUM(v * r) FROM {ASOF.format('INNER')} GROUP BY ALL"
    ),
}


def _rows(seed: int) -> tuple[list[tuple[str, str | None, int]], list[tuple[str, str, int]]]:
    drawn = random.Random(seed)

    def at() -> str:
        return str(START + dt.timedelta(seconds=drawn.randint(0, 600)))

    orders = [(at(), drawn.choice(["a", "b", "c", None]), drawn.randint(0, 9)) for _ in range(60)]
    rates = {(at(), drawn.choice("abd")): drawn.randint(0, 9) for _ in range(30)}
    return orders, [(*key, value) for key, value in rates.items()]


def _tables(env: TableEnvironment, seed: int, path: Path) -> duckdb.DuckDBPyConnection:
    orders, rates = _rows(seed)
    table_of(env, "o", f"ts TIMESTAMP(3), k STRING, v INT, {TIME}", orders, path)
    columns = f"ts TIMESTAMP(3), k STRING, r INT, {TIME}"
    table_of(env, "rates", f"{columns}, PRIMARY KEY (k) NOT ENFORCED", rates, path)
    table_of(env, "history", columns, rates, path)
    env.execute_sql(VIEW)
    env.execute_sql(
        "CREATE TEMPORARY VIEW joined AS SELECT o.ts, v, r FROM o "
        "JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k"
    )
    connection = duckdb.connect()
    connection.execute("CREATE TABLE o (ts TIMESTAMP, k VARCHAR, v INT)")
    connection.execute("CREATE TABLE rates (ts TIMESTAMP, k VARCHAR, r INT)")
    connection.executemany("INSERT INTO o VALUES (?, ?, ?)", orders)
    connection.executemany("INSERT INTO rates VALUES (?, ?, ?)", rates)
    return connection


@pytest.mark.both_engines(every=3)
@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_oracle_versions(number: int, tmp_path: Path) -> None:
    query, same = list(QUERIES.items())[number]
    print("seed", number)
    env = environment((1, 3)[number % 2])
    wanted = Counter(_tables(env, number, tmp_path).execute(same).fetchall())
    rows = changelog(env, query, tmp_path, number)
    assert materialised(rows) == wanted
    assert {row.get_row_kind() for row in rows} <= {RowKind.INSERT}


def test_a_late_row_does_not_find_versions_that_are_over(tmp_path: Path) -> None:
    env = environment(1)
    for name, times in {"o": ["30", "50", "10", "59"], "rates": ["05", "20", "40", "59"]}.items():
        (tmp_path / name).mkdir()
        lines = [
            f'{{"ts": "2024-01-01 00:00:{each}", "k": 1, "v": {int(each)}}}\n' for each in times
        ]
        (tmp_path / name / "0.json").write_text("".join(lines))
        env.execute_sql(
            f"CREATE TABLE {name} (ts TIMESTAMP(3), k INT, v INT, WATERMARK FOR ts AS ts, "
            "PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'filesystem', 'format' = 'json', "
            f"'path' = '{tmp_path / name}')"
        )
    query = "SELECT o.v, r.v FROM o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k"
    rows = [tuple(row) for row in changelog(env, query, tmp_path, limit=48)]
    assert rows[:2] == [(30, 20), (50, 40)]
    assert sorted(rows[2:]) == [(10, None), (59, 59)]


# -- plans ---------------------------------------------------------------------------------------

REFUSED = {
    "o JOIN plain FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k": (
        "requires primary key in versioned table, but no primary key can be found"
    ),
    "o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.r": (
        "primary key [k] must be included in the equivalence condition of temporal join, but "
        "current temporal join condition is [=(k, r)]"
    ),
    "o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k + 1": "primary key [k] must be",
    "o JOIN timeless FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k": (
        "but no row time attribute can be found"
    ),
    "o RIGHT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k": (
        "only support INNER JOIN and LEFT JOIN, but was RIGHT JOIN"
    ),
    "o JOIN rates FOR SYSTEM_TIME AS OF o.k AS r ON o.k = r.k": "takes a time attribute of the",
    "o JOIN rates FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01 00:00:00' AS r ON o.k = r.k": (
        "takes a time attribute of the left table"
    ),
    "o JOIN zoned FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k": "requires same rowtime type",
    "(SELECT o.* FROM o JOIN plain ON o.k = plain.k) AS x JOIN rates FOR SYSTEM_TIME AS OF x.ts AS "
    "r ON x.k = r.k": "'ts' comes through a regular join",
    "latest AS o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k": (
        "The left of TemporalJoin doesn't support consuming update"
    ),
    "o JOIN high FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k": "Conditions on versions stand in",
    "o JOIN highest FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k": "Conditions on versions stand",
}


@pytest.fixture
def env() -> TableEnvironment:
    made = environment()
    time = "WATERMARK FOR ts AS ts"
    for name, columns in {
        "o": f"ts TIMESTAMP(3), k INT, {time}",
        "rates": f"ts TIMESTAMP(3), k INT, r INT, {time}, PRIMARY KEY (k) NOT ENFORCED",
        "zoned": f"ts TIMESTAMP_LTZ(3), k INT, r INT, {time}, PRIMARY KEY (k) NOT ENFORCED",
        "plain": f"ts TIMESTAMP(3), k INT, r INT, {time}",
        "timeless": "ts TIMESTAMP(3), k INT, r INT, PRIMARY KEY (k) NOT ENFORCED",
    }.items():
        made.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'datagen')")
    numbered = (
        "SELECT {0} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {1} DESC) AS n "
        "FROM plain) WHERE n = 1"
    )
    made.execute_sql(f"CREATE VIEW latest AS {numbered.format('ts, k, r', 'ts')}")
    made.execute_sql("CREATE VIEW high AS SELECT * FROM latest WHERE r > 5")
    made.execute_sql(f"CREATE VIEW highest AS {numbered.format('ts, k, r', 'r')}")
    return made


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_has_no_versions_is_refused(number: int, env: TableEnvironment) -> None:
    query, part = list(REFUSED.items())[number]
    with pytest.raises(MillstreamError) as refused:
        env.explain_sql(f"SELECT * FROM {query}")
    assert part in str(refused.value)


def test_plan_of_a_temporal_join(env: TableEnvironment) -> None:
    query = "SELECT o.k, r.r FROM o LEFT JOIN latest FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k"
    plan = env.explain_sql(query, "CHANGELOG_MODE")
    assert (
        "TemporalJoin(joinType=[LeftOuterJoin], where=[((k = k0) AND __TEMPORAL_JOIN_CONDITION(ts, "
        "ts0, __TEMPORAL_JOIN_CONDITION_PRIMARY_KEY(k0), __TEMPORAL_JOIN_LEFT_KEY(k), "
        "__TEMPORAL_JOIN_RIGHT_KEY(k0)))], select=[ts, k, ts0, k0, r], changelogMode=[I])"
    ) in plan
    assert "Deduplicate" not in plan


def test_the_times_of_versions_are_no_attributes(env: TableEnvironment) -> None:
    env.execute_sql(
        "CREATE VIEW v AS SELECT o.ts, r.ts AS other FROM o "
        "JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k"
    )
    window = "SELECT * FROM TUMBLE(TABLE v, DESCRIPTOR({}), INTERVAL '1' MINUTE)"
    env.explain_sql(window.format("ts"))
    with pytest.raises(ValidationError, match="requires the timecol is a time attribute type"):
        env.explain_sql(window.format("other"))


@pytest.mark.parametrize("upserts", [True, False])
def test_versions_of_a_changelog(upserts: bool, tmp_path: Path) -> None:
    """Updates and deletes come at times of their own, as those of a database do."""
    streams = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment())
    kind = Types.ROW_NAMED(["k", "r", "at"], [Types.INT(), Types.INT(), Types.LONG()])
    changes = [
        (RowKind.INSERT, 1, 10, 1000),
        (RowKind.UPDATE_BEFORE, 1, 10, 5000),
        (RowKind.UPDATE_AFTER, 1, 20, 5000),
        (RowKind.DELETE, 1, 20, 9000),
    ]
    rows = [
        Row.of_kind(*each)
        for each in changes
        if not upserts or each[0] is not RowKind.UPDATE_BEFORE
    ]
    schema = Schema.new_builder().column("k", "INT NOT NULL").column("r", "INT")
    schema = schema.column("at", "BIGINT").column_by_expression("ts", "TO_TIMESTAMP_LTZ(`at`, 3)")
    schema = schema.watermark("ts", "ts").primary_key("k")
    stream = streams._environment.from_collection(rows, kind)
    mode = ChangelogMode.upsert() if upserts else ChangelogMode.all()
    table = streams.from_changelog_stream(stream, schema.build(), mode)
    streams.create_temporary_view("rates", table)
    orders = [(1, each) for each in (500, 1500, 4999, 5000, 8999, 9500)]
    (tmp_path / "o").mkdir()
    lines = "".join(f'{{"k": {key}, "at": {time}}}\n' for key, time in orders)
    (tmp_path / "o" / "0.json").write_text(lines)
    streams.execute_sql(
        "CREATE TABLE o (k INT, `at` BIGINT, ts AS TO_TIMESTAMP_LTZ(`at`, 3), WATERMARK FOR ts AS "
        f"ts) WITH ('connector' = 'filesystem', 'path' = '{tmp_path / 'o'}', 'format' = 'json')"
    )
    query = "SELECT o.`at`, r FROM o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k"
    assert "ChangelogNormalize" not in streams.explain_sql(query)
    there = materialised(changelog(streams, query, tmp_path))
    assert there == {
        (500, None): 1,
        (1500, 10): 1,
        (4999, 10): 1,
        (5000, 20): 1,
        (8999, 20): 1,
        (9500, None): 1,
    }
