"""Tables of databases, of a real PostgreSQL and of files: changes, rows that are added, scans."""

from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
from decimal import Decimal
from typing import TYPE_CHECKING
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pytest
from tests.databases.server import execute
from tests.support.query_running import changelog, environment, insert, materialised

from millstream.connectors.embedded.duckdb import DuckDbSource
from millstream.connectors.embedded.sqlite import SqliteSource
from millstream.errors import SinkError, SourceError, ValidationError

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment


def url_of(conninfo: str) -> str:
    from psycopg.conninfo import conninfo_to_dict

    pairs = (f"{key}={quote(str(each))}" for key, each in conninfo_to_dict(conninfo).items())
    return f"postgresql://?{'&'.join(pairs)}"


def table(env: TableEnvironment, database: str, name: str, columns: str, more: str = "") -> None:
    env.execute_sql(
        f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'jdbc', "
        f"'url' = '{url_of(database)}', 'table-name' = '{name}'{more})"
    )


@pytest.mark.both_engines
def test_changes_are_merged_and_deleted_by_key(database: str, tmp_path: Path) -> None:
    execute(database, "CREATE TABLE counts (name TEXT PRIMARY KEY, n BIGINT, other INT DEFAULT 7)")
    execute(database, "INSERT INTO counts VALUES ('z', 1, 3), ('a', 5, 4)")
    env = environment(2)
    columns = "name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED"
    table(env, database, "counts", columns, ", 'scan.partition.column' = 'n'")
    rows = [f"('{name}')" for n in range(12) for name in "abc"[: 1 + n % 3]]
    env.execute_sql(f"CREATE TEMPORARY VIEW clicks (name) AS VALUES {', '.join(rows)}")
    insert(
        env,
        "INSERT INTO counts SELECT name, COUNT(*) FROM clicks GROUP BY name HAVING COUNT(*) < 12",
        limits=[5] * 1000,
    )
    # What the query deletes goes, what it does not have stays, columns that it lacks are kept.
    found = execute(database, "SELECT name, n, other FROM counts ORDER BY name")
    assert found == [("b", 8, 7), ("c", 4, 7), ("z", 1, 3)]
    query = "SELECT SUM(n) AS n FROM counts"
    assert materialised(changelog(env, query, tmp_path, limit=3)) == {(13,): 1}


def embedded_table(kind: str, path: Path, name: str, columns: str) -> None:
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(f"CREATE TABLE {name} ({columns})")
    else:
        with duckdb.connect(str(path)) as connection:
            connection.execute(f"CREATE TABLE {name} ({columns})")


def embedded_rows(kind: str, path: Path, query: str) -> list[tuple[object, ...]]:
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return list(connection.execute(query).fetchall())
    with duckdb.connect(str(path)) as connection:
        return list(connection.execute(query).fetchall())


@pytest.mark.both_engines
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_changes_of_files_are_merged_and_deleted_by_key(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "counts.db"
    columns = "name TEXT, kind INT, n BIGINT, other INT DEFAULT 7, PRIMARY KEY (kind, name)"
    embedded_table(kind, path, "counts", columns)
    env = environment(2)
    env.execute_sql(
        "CREATE TABLE counts (name STRING, n BIGINT, kind INT, PRIMARY KEY (name, kind) "
        f"NOT ENFORCED) WITH ('connector' = '{kind}', 'path' = '{path}', 'table-name' = 'counts')"
    )
    values = "VALUES ('z', 1, 5), ('a', 5, 1), ('z', 9, 6)"
    insert(env, f"INSERT INTO counts {values} ON CONFLICT DO DEDUPLICATE")
    rows = [f"('{name}')" for n in range(12) for name in "abc"[: 1 + n % 3]]
    env.execute_sql(f"CREATE TEMPORARY VIEW clicks (name) AS VALUES {', '.join(rows)}")
    counted = "SELECT name, COUNT(*), 1 FROM clicks GROUP BY name HAVING COUNT(*) < 12"
    insert(env, f"INSERT INTO counts {counted}", limits=[5] * 1000)
    found = embedded_rows(kind, path, "SELECT name, kind, n, other FROM counts ORDER BY name, kind")
    assert found == [("b", 1, 8, 7), ("c", 1, 4, 7), ("z", 5, 1, 7), ("z", 6, 9, 7)]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_changes_of_files_need_a_key_there(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    embedded_table(kind, path, "t", "a BIGINT, b BIGINT")
    env = environment(1)
    options = f"WITH ('connector' = '{kind}', 'path' = '{path}', 'table-name' = 't')"
    env.execute_sql(f"CREATE TABLE t (a BIGINT, b BIGINT) {options}")
    query = "SELECT x, COUNT(*) FROM (VALUES (1)) AS v(x) GROUP BY x"
    with pytest.raises(ValidationError, match="please declare a PRIMARY KEY"):
        env.explain_sql(f"INSERT INTO t {query}")
    env.execute_sql(f"CREATE TABLE u (a BIGINT, b BIGINT, PRIMARY KEY (a) NOT ENFORCED) {options}")
    with pytest.raises(SinkError, match=r"refuses record .*(?i:on conflict|conflict target)"):
        insert(env, f"INSERT INTO u {query}")


def test_values_go_in_and_come_back(database: str, tmp_path: Path) -> None:
    execute(
        database,
        "CREATE TABLE facts (id INT, a BOOLEAN, b DOUBLE PRECISION, c NUMERIC, d TEXT, e BYTEA,"
        " f DATE, g TIMESTAMP, h TIMESTAMPTZ)",
    )
    env = environment(1)
    columns = (
        "id INT, a BOOLEAN, b DOUBLE, c DECIMAL(10, 2), d STRING, e BYTES, f DATE, g TIMESTAMP(6), "
        "h TIMESTAMP_LTZ(3)"
    )
    table(env, database, "facts", columns, ", 'scan.partition.column' = 'id'")
    text = (
        "INSERT INTO facts VALUES (1, TRUE, 1.5, 2.25, 'x', x'00ff', DATE '2024-01-02', "
        "TIMESTAMP '2024-01-02 03:04:05.123456', TO_TIMESTAMP_LTZ(250, 3))"
    )
    insert(env, text)
    insert(env, "INSERT INTO facts (id) VALUES (2)")
    assert execute(database, "SELECT c, e, g FROM facts WHERE id = 1") == [
        (Decimal("2.25"), b"\x00\xff", dt.datetime(2024, 1, 2, 3, 4, 5, 123456))  # noqa: DTZ001
    ]
    query = (
        "SELECT id, a, b, c, d, e, CAST(f AS STRING), CAST(g AS STRING), CAST(h AS STRING) "
        "FROM facts"
    )
    shown = ("2024-01-02", "2024-01-02 03:04:05.123456", "1970-01-01 00:00:00.250")
    assert materialised(changelog(env, query, tmp_path)) == {
        (1, True, 1.5, Decimal("2.25"), "x", b"\x00\xff", *shown): 1,
        (2, *[None] * 8): 1,
    }


@pytest.mark.parametrize(
    ("url", "more", "message"),
    [
        ("jdbc:mysql://h/d", "", "other databases are not in this release"),
        ("jdbc:postgresql://h:1/d?x=1", "", "has the parameter 'x'"),
        ("jdbc:postgresql://h:1/d", ", 'username' = 'u'", "go together"),
        ("jdbc:postgresql://h:1/d", ", 'tablename' = 'u'", "Did you mean 'table-name'?"),
        ("jdbc:postgresql://h:1/d", ", 'scan.partition.column' = 'z'", "is no column: 'z'"),
    ],
)
def test_options_that_make_no_sense(url: str, more: str, message: str) -> None:
    env = environment(1)
    env.execute_sql(
        f"CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'url' = '{url}', "
        f"'table-name' = 't'{more})"
    )
    with pytest.raises(ValidationError) as raised:
        env.sql_query("SELECT * FROM t")
    assert message in str(raised.value)


def test_what_needs_a_key(database: str) -> None:
    env = environment(1)
    table(env, database, "t", "a BIGINT")
    with pytest.raises(ValidationError, match="please declare a PRIMARY KEY"):
        env.explain_sql("INSERT INTO t SELECT COUNT(*) FROM (VALUES (1)) AS v(x)")
    with pytest.raises(ValidationError, match=r"PRIMARY KEY or 'scan\.partition\.column'"):
        env.execute_sql("SELECT * FROM t")


@pytest.mark.both_engines
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_files_are_read_as_they_were_written(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "facts.db"
    columns = (
        "id INT, a BOOLEAN, b DOUBLE, c DECIMAL(10, 2), d STRING, e BYTES, f DATE, g TIMESTAMP(3)"
    )
    made = "id INT, a BOOLEAN, b DOUBLE, c DECIMAL(10, 2), d VARCHAR, e BLOB, f DATE, g TIMESTAMP"
    embedded_table(kind, path, "facts", made)
    env = environment(1)
    env.execute_sql(
        f"CREATE TABLE facts ({columns}) WITH ('connector' = '{kind}', 'path' = '{path}', "
        "'table-name' = 'facts')"
    )
    row = "TRUE, 1.5, 2.25, 'x', x'00ff', DATE '2024-01-02', TIMESTAMP '2024-01-02 03:04:05.25'"
    rows = ", ".join(f"({number}, {row})" for number in range(50))
    insert(env, f"INSERT INTO facts VALUES {rows}")
    insert(env, "INSERT INTO facts (id) VALUES (50)")
    query = "SELECT id, a, b, c, d, e, CAST(f AS STRING), CAST(g AS STRING) FROM facts"
    values = (True, 1.5, Decimal("2.25"), "x", b"\x00\xff", "2024-01-02", "2024-01-02 03:04:05.250")
    wanted = {(number, *values): 1 for number in range(50)} | {(50, *[None] * 7): 1}
    assert materialised(changelog(env, query, tmp_path, limit=40)) == wanted


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int32())])
    for made in (SqliteSource, DuckDbSource):
        with pytest.raises(SourceError, match="there is no such file"):
            made(str(tmp_path / "nothing"), "t", schema).validate()
    path = tmp_path / "x.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES ('no number')")
        connection.commit()
    with pytest.raises(SourceError, match="no such table: u"):
        SqliteSource(str(path), "u", schema).validate()
    source = SqliteSource(str(path), "t", schema)
    (split,) = source.discover(frozenset())
    with pytest.raises(SourceError, match="column 'a' does not fit int32"):
        list(source.read(split, source.start_offset(split), source.end_offset(split)))


@pytest.mark.both_engines
@pytest.mark.parametrize("cached", [False, True])
def test_rows_are_looked_up(database: str, cached: bool, tmp_path: Path) -> None:
    cache = ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '9'"
    execute(
        database,
        'CREATE TABLE goods (id INT, name TEXT, "50%" NUMERIC, since TIMESTAMPTZ, bin BYTEA)',
    )
    execute(
        database,
        "INSERT INTO goods VALUES (1, 'tea', 1.255, '2024-01-01 00:00:00.5Z', 'a'), "
        "(1, 'cup', 2, NULL, NULL), (2, 'pot', NULL, NULL, NULL), (NULL, 'none', 1, NULL, NULL)",
    )
    env = environment(1)
    columns = "id INT, name STRING, `50%` DECIMAL(10, 2), since TIMESTAMP_LTZ(3), bin BYTES"
    table(env, database, "goods", columns, cache if cached else "")
    env.execute_sql("CREATE TEMPORARY VIEW ids (k) AS VALUES 1, 2, 3, CAST(NULL AS INT), 1")
    query = (
        "SELECT k, name, `50%`, since, bin FROM (SELECT k, PROCTIME() AS pt FROM ids) AS o "
        "LEFT JOIN goods FOR SYSTEM_TIME AS OF o.pt AS g ON o.k = g.id AND g.name <> 'none'"
    )
    since = dt.datetime(2024, 1, 1, 0, 0, 0, 500_000, dt.UTC)
    assert materialised(changelog(env, query, tmp_path)) == {
        (1, "tea", Decimal("1.26"), since, b"a"): 2,
        (1, "cup", Decimal("2.00"), None, None): 2,
        (2, "pot", None, None, None): 1,
        (3, None, None, None, None): 1,
        (None, None, None, None, None): 1,
    }
    hint = "/*+ LOOKUP('table'='g', 'async'='true', 'capacity'='2') */"
    side_by_side = query.replace("SELECT", f"SELECT {hint}", 1)
    assert materialised(changelog(env, side_by_side, tmp_path)) == materialised(
        changelog(env, query, tmp_path, seed=1)
    )
    by_two = query.replace("g.name <> 'none'", "g.since = TO_TIMESTAMP_LTZ(1704067200500, 3)")
    found = materialised(changelog(env, by_two, tmp_path))
    assert found[1, "tea", Decimal("1.26"), since, b"a"] == 2
    assert sum(found.values()) == 5


@pytest.mark.parametrize("cached", [False, True])
def test_of_rows_that_are_looked_up_what_is_read_is_selected(
    database: str, cached: bool, tmp_path: Path
) -> None:
    """A view that fails where its column ``bad`` is selected says which columns are."""
    execute(database, "CREATE TABLE kept (id INT, name TEXT, price INT, part UUID)")
    part = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    execute(
        database,
        f"INSERT INTO kept VALUES (1, 'tea', 3, '{part}'), (1, 'cup', 5, NULL), "
        "(2, 'pot', 9, NULL)",
    )
    bad = "SELECT *, 1 / (price - price) AS bad FROM kept"
    execute(database, f"CREATE VIEW goods AS {bad}")
    env = environment(1)
    once = ", 'lookup.max-retries' = '0'"
    cache = once + ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '9'"
    columns = "bad INT, name STRING, id INT, price INT, part STRING"
    table(env, database, "goods", columns, cache if cached else once)
    env.execute_sql("CREATE TEMPORARY VIEW ids (k) AS VALUES 1, 2, 3, 1")
    ids = "(SELECT k, PROCTIME() AS pt FROM ids) AS o"
    join = "JOIN goods FOR SYSTEM_TIME AS OF o.pt AS {} ON"
    wanted = {
        f"SELECT k FROM {ids} {join.format('g')} k = g.id AND price > 3 AND price < k + 8": {
            (1,): 2,
            (2,): 1,
        },
        f"SELECT name FROM {ids} {join.format('g')} k = g.id AND g.part = '{part}'": {("tea",): 2},
        f"SELECT COUNT(*) AS n FROM {ids} {join.format('g')} g.id = 1": {(8,): 1},
        # The same table twice, with other columns.
        f"SELECT g.name, h.price FROM {ids} {join.format('g')} k = g.id AND g.price = 9 "
        f"LEFT {join.format('h')} k - 1 = h.id": {("pot", 3): 1, ("pot", 5): 1},
    }
    for seed, (query, rows) in enumerate(wanted.items()):
        assert materialised(changelog(env, query, tmp_path, seed=seed)) == rows, query
    with pytest.raises(SourceError, match="division by zero"):
        changelog(env, f"SELECT bad FROM {ids} {join.format('g')} k = g.id", tmp_path)


def test_types_that_only_postgres_has_are_texts(database: str, tmp_path: Path) -> None:
    execute(database, "CREATE TYPE mood AS ENUM ('sad', 'glad')")
    texts = ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", '{"a": [1]}', "1.250", "sad", "10.0.0.1/24"]
    texts += ["{a,b}", "1 day"]
    kinds = ["uuid", "jsonb", "numeric", "mood", "inet", "text[]", "interval"]
    there = ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds))
    env = environment(1)
    columns = ", ".join(f"c{at} STRING" for at in range(len(kinds)))
    values = ", ".join(f"'{each}'" for each in texts)
    for name, more in (("kept", ", PRIMARY KEY (id) NOT ENFORCED"), ("added", "")):
        key = "PRIMARY KEY" if more else ""
        execute(database, f"CREATE TABLE {name} (id INT {key}, {there})")
        by = "" if more else ", 'scan.partition.column' = 'id'"
        table(env, database, name, f"id INT, {columns}{more}", by)
        end = "ON CONFLICT DO DEDUPLICATE" if name == "kept" else ""
        insert(env, f"INSERT INTO {name} VALUES (1, {values}) {end}")
        insert(env, f"INSERT INTO {name} (id) VALUES (2) {end}")
        rows = changelog(env, f"SELECT * FROM {name}", tmp_path, seed=len(name))
        assert materialised(rows) == {(1, *texts): 1, (2, *[None] * len(texts)): 1}
    other = values.replace(texts[0], "no UUID")
    env.execute_sql(f"CREATE TEMPORARY VIEW asked AS VALUES ({values}, 1), ({other}, 2)")
    for at in range(len(kinds)):
        query = (
            f"SELECT n, id, r.c{at} FROM (SELECT *, PROCTIME() AS pt FROM asked AS v "
            f"({', '.join(f'k{each}' for each in range(len(kinds)))}, n)) AS o "
            f"JOIN kept FOR SYSTEM_TIME AS OF o.pt AS r ON o.k{at} = r.c{at}"
        )
        both = {(1, 1, texts[at]): 1, (2, 1, texts[at]): 1}
        found = materialised(changelog(env, query, tmp_path, seed=at + 10))
        assert found == ({(1, 1, texts[at]): 1} if at == 0 else both)


def test_a_time_is_not_looked_up_as_text(database: str, tmp_path: Path) -> None:
    execute(database, "CREATE TABLE times (id INT, t TIMESTAMPTZ)")
    env = environment(1)
    table(env, database, "times", "id INT, t STRING", ", 'lookup.max-retries' = '0'")
    query = (
        "SELECT t FROM (SELECT 1 AS k, PROCTIME() AS pt) AS o "
        "JOIN times FOR SYSTEM_TIME AS OF o.pt AS r ON o.k = r.id"
    )
    with pytest.raises(SourceError, match="column 't' is timestamp with time zone, which is not"):
        changelog(env, query, tmp_path)
