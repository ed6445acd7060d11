"""Scans read the columns that somebody reads: plans say which, and results stay what they were."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import changelog, environment, insert, materialised

from millstream.errors import MalformedRecordError
from millstream.sql.parser.parser import parse_statement
from millstream.sql.statements import plans
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.broker import Broker

    from millstream.table import TableEnvironment

_COLUMNS = "a INT, s STRING, v BIGINT, t TIMESTAMP(3), l ARRAY<INT>"
_VALUES = ", ".join(
    f"({i % 3}, 'x{i}', {i * 10}, TIMESTAMP '2024-01-01 00:00:{i:02d}', ARRAY[{i}])"
    for i in range(9)
)
_PATH = "default_catalog, default_database"


def _files(env: TableEnvironment, path: Path, columns: str, kind: str, more: str = "") -> None:
    env.execute_sql(
        f"CREATE TABLE f ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', "
        f"'format' = '{kind}'{more})"
    )


def _scans(env: TableEnvironment, query: str) -> list[str]:
    plan = env.explain_sql(query).partition("== Optimized Physical Plan ==")[2]
    plan = plan.partition("== Optimized Execution Plan ==")[0]
    lines = (line.partition("TableSourceScan") for line in plan.splitlines())
    return [text for _, found, text in lines if found]


@pytest.mark.parametrize("kind", ["csv", "json", "avro", "parquet"])
def test_results_are_those_of_all_columns(kind: str, tmp_path: Path) -> None:
    env = environment()
    _files(env, tmp_path / "in", f"{_COLUMNS}, n AS v + 1, WATERMARK FOR t AS t", kind)
    insert(env, f"INSERT INTO f VALUES {_VALUES}")
    cases: list[tuple[str, str, list[tuple[Any, ...]]]] = [
        ("SELECT s FROM f", "s, t", [(f"x{i}",) for i in range(9)]),
        ("SELECT n FROM f WHERE a = 1", "a, v, t", [(11,), (41,), (71,)]),
        ("SELECT l[1], a FROM f WHERE v > 60", "a, v, t, l", [(7, 1), (8, 2)]),
        (
            "SELECT x.a, y.v FROM f x JOIN f y ON x.v = y.v + 80",
            "a, v, t",
            [(2, 0)],
        ),
    ]
    for query, read, wanted in cases:
        scan = f"(table=[[{_PATH}, f, project=[{read}], metadata=[]]], fields=[{read}])"
        assert set(_scans(env, query)) - {""} == {scan}, query
        assert materialised(changelog(env, query, tmp_path)) == Counter(wanted), query
    counted = materialised(changelog(env, "SELECT COUNT(*) FROM f", tmp_path))
    assert counted == {(9,): 1}


@pytest.mark.both_engines
def test_metadata_and_partitions_are_read_if_wanted(tmp_path: Path) -> None:
    env = environment()
    env.execute_sql(
        "CREATE TABLE f (s STRING, v INT, p INT, q STRING, name STRING METADATA FROM 'file.name' "
        "VIRTUAL, changed TIMESTAMP_LTZ(3) METADATA FROM 'file.modification-time' VIRTUAL) "
        f"PARTITIONED BY (p, q) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/in', "
        "'format' = 'json')"
    )
    insert(env, "INSERT INTO f VALUES ('a', 1, 5, 'x'), ('b', 2, 6, 'y'), ('c', 3, 6, 'z')")
    scans = {
        "SELECT q FROM f WHERE p = 6": "partitions=[=(p, 6)], project=[p, q], metadata=[]",
        "SELECT v FROM f": "project=[v], metadata=[]",
        "SELECT name FROM f": "project=[], metadata=[file.name]",
        "SELECT s FROM f WHERE changed IS NULL": "project=[s], metadata=[file.modification-time]",
    }
    results = {query: materialised(changelog(env, query, tmp_path)) for query in scans}
    for query, wanted in scans.items():
        assert wanted in _scans(env, query)[0]
    assert results["SELECT q FROM f WHERE p = 6"] == {("y",): 1, ("z",): 1}
    assert results["SELECT v FROM f"] == {(1,): 1, (2,): 1, (3,): 1}
    assert all(name.endswith(".jsonl") for (name,) in results["SELECT name FROM f"])
    assert sum(results["SELECT name FROM f"].values()) == 3
    assert not results["SELECT s FROM f WHERE changed IS NULL"]


def test_a_scan_that_several_read_gives_what_one_of_them_reads(tmp_path: Path) -> None:
    env = environment()
    _files(env, tmp_path / "in", _COLUMNS, "json")
    insert(env, f"INSERT INTO f VALUES {_VALUES}")
    query = (
        "SELECT a, SUM(v) FROM f GROUP BY a UNION ALL SELECT a, COUNT(DISTINCT s) FROM f GROUP BY a"
    )
    assert "project=[a, s, v]" in _scans(env, query)[0]
    found = materialised(changelog(env, query, tmp_path))
    assert found == {(0, 90): 1, (1, 120): 1, (2, 150): 1, (0, 3): 1, (1, 3): 1, (2, 3): 1}


def test_keys_of_changes_are_read_though_nobody_wants_them(tmp_path: Path) -> None:
    lines = (
        '{"before":null,"after":{"k":1,"v":5,"w":1},"op":"c"}',
        '{"before":null,"after":{"k":2,"v":5,"w":2},"op":"c"}',
        '{"before":{"k":1,"v":5,"w":1},"after":{"k":1,"v":7,"w":1},"op":"u"}',
        '{"before":{"k":2,"v":5,"w":2},"after":null,"op":"d"}',
    )
    (tmp_path / "in").write_text("\n".join(lines))
    env = environment()
    columns = "k INT, v INT, w INT, PRIMARY KEY (k) NOT ENFORCED"
    _files(env, tmp_path / "in", columns, "debezium-json")
    assert "project=[k, v]" in _scans(env, "SELECT v FROM f")[0]
    for query, wanted in (("SELECT v FROM f", {(7,): 1}), ("SELECT SUM(v) FROM f", {(7,): 1})):
        assert materialised(changelog(env, query, tmp_path, limit=60)) == wanted


def test_generators_make_the_same_values_with_fewer_columns(tmp_path: Path) -> None:
    env = environment()
    env.execute_sql(
        "CREATE TABLE g (a INT, b STRING, c INT, d DOUBLE) WITH ('connector' = 'datagen', "
        "'number-of-rows' = '20', 'rows-per-second' = '1000000', 'fields.c.kind' = 'sequence', "
        "'fields.c.start' = '1', 'fields.c.end' = '9')"
    )
    env.execute_sql(
        "CREATE TABLE n (price BIGINT, url STRING, `dateTime` TIMESTAMP(3), bidder BIGINT) WITH "
        "('connector' = 'nexmark', 'table' = 'bid', 'events.num' = '100')"
    )
    whole = materialised(changelog(env, "SELECT * FROM g", tmp_path))
    assert _scans(env, "SELECT d, b FROM g") == [
        f"(table=[[{_PATH}, g, project=[b, d]]], fields=[b, d])"
    ]
    assert materialised(changelog(env, "SELECT d, b FROM g", tmp_path)) == Counter(
        (row[3], row[1]) for row in whole
    )
    assert materialised(changelog(env, "SELECT COUNT(*) FROM g", tmp_path)) == {(9,): 1}
    bids = materialised(changelog(env, "SELECT * FROM n", tmp_path))
    assert "project=[url, bidder]" in _scans(env, "SELECT bidder, url FROM n")[0]
    assert materialised(changelog(env, "SELECT bidder, url FROM n", tmp_path)) == Counter(
        (row[3], row[1]) for row in bids.elements()
    )
    assert materialised(changelog(env, "SELECT COUNT(*) FROM n", tmp_path)) == {(92,): 1}


def test_values_that_nobody_reads_may_be_wrong_but_records_may_not(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("1,x,3\n2,5,6\n")
    env = environment()
    _files(env, tmp_path / "in", "a INT, b INT, c INT", "csv")
    assert materialised(changelog(env, "SELECT a, c FROM f", tmp_path)) == {(1, 3): 1, (2, 6): 1}
    with pytest.raises(MalformedRecordError):
        changelog(env, "SELECT b FROM f", tmp_path)
    for text in ('1,2,3\n4,"5,6\n', "1,2,3\n4,5\n", "1,2,3\n4,5,6,7\n"):
        (tmp_path / "in").write_text(text)
        with pytest.raises(MalformedRecordError):
            changelog(env, "SELECT a FROM f", tmp_path, limit=100)


def test_short_records_are_filled_by_their_place_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("1,2,3\n4\n5,6\n7,8,9,10\n")
    env = environment()
    lenient = ", 'csv.ignore-parse-errors' = 'true'"
    _files(env, tmp_path / "in", "a INT, b STRING, c STRING", "csv", lenient)
    found = materialised(changelog(env, "SELECT c, a FROM f", tmp_path, limit=100))
    assert found == {("3", 1): 1, (None, 4): 1, (None, 5): 1}
    found = materialised(changelog(env, "SELECT b FROM f", tmp_path, limit=100))
    assert found == {("2",): 1, (None,): 1, ("6",): 1}


@pytest.mark.both_engines
def test_a_compiled_plan_reads_the_same_columns(tmp_path: Path) -> None:
    env = environment()
    _files(env, tmp_path / "in", _COLUMNS, "csv")
    insert(env, f"INSERT INTO f VALUES {_VALUES}")
    out = tmp_path / "out"
    env.execute_sql(
        "CREATE TABLE o (s STRING) WITH ('connector' = 'filesystem', 'format' = 'csv', "
        f"'path' = '{out}')"
    )
    text = "INSERT INTO o SELECT s FROM f WHERE a = 0"
    statement: Any = parse_statement(text)
    plan = plans.compiled(env.session, [env.session.target(statement, text)])
    assert "project=[a, s]" in plan.text
    ends = plans.ends_of(env.session, plans.loaded(env.session, plan.text, "the plan"))
    MiniCluster(env.session.program.graph_of(ends, "test")).run()
    lines = [line for file in out.glob("*.csv") for line in file.read_text().splitlines()]
    assert sorted(lines) == ["x0", "x3", "x6"]


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_of_messages_what_is_read_is_looked_at(kind: str, broker: Broker, tmp_path: Path) -> None:
    env, topic = environment(), broker.topic()
    lines = {
        "json": [b'{"s": "x", "v": 1, "w": 2}', b'{"s": {"no": "text"}, "v": "no number", "w": 3}'],
        "csv": [b"x,1,2", b"y,no number,3"],
    }
    broker.send(topic, lines[kind])
    env.execute_sql(
        "CREATE TABLE k (s STRING, v INT, w INT, place BIGINT METADATA FROM 'offset' VIRTUAL, "
        "part INT METADATA FROM 'partition' VIRTUAL, n AS w + 1) WITH ('connector' = 'kafka', "
        f"'topic' = '{topic}', 'format' = '{kind}', 'scan.startup.mode' = 'earliest-offset', "
        f"'scan.bounded.mode' = 'latest-offset', 'properties.bootstrap.servers' = "
        f"'{broker.servers}')"
    )
    wanted = {
        "SELECT n FROM k": ("project=[w], metadata=[]", {(3,): 1, (4,): 1}),
        "SELECT w, place FROM k": ("project=[w], metadata=[offset]", {(2, 0): 1, (3, 1): 1}),
        "SELECT place, part FROM k": ("project=[], metadata=[offset, partition]", None),
        "SELECT w FROM k WHERE w > 2": ("project=[w], metadata=[]", {(3,): 1}),
    }
    for query, (scan, rows) in wanted.items():
        assert scan in _scans(env, query)[0]
        if rows is not None:
            assert materialised(changelog(env, query, tmp_path)) == rows, query
    with pytest.raises(MalformedRecordError, match="no number"):
        changelog(env, "SELECT v FROM k", tmp_path)


def test_the_key_of_a_message_is_always_read(broker: Broker, tmp_path: Path) -> None:
    """Rows are deleted by it."""
    env, topic = environment(), broker.topic()
    broker.send(topic, [b'{"k": 1, "v": 5, "w": 1}', None], key=b'{"k": 1}')
    broker.send(topic, [b'{"k": 2, "v": "?", "w": 2}'], key=b'{"k": 2}')
    env.execute_sql(
        "CREATE TABLE k (w INT, v INT, k INT, PRIMARY KEY (k) NOT ENFORCED) WITH ("
        "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json', "
        f"'topic' = '{topic}', 'scan.bounded.mode' = 'latest-offset', "
        f"'properties.bootstrap.servers' = '{broker.servers}')"
    )
    assert "project=[w, k]" in _scans(env, "SELECT w FROM k")[0]
    assert materialised(changelog(env, "SELECT w FROM k", tmp_path)) == {(2,): 1}
