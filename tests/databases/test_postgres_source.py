"""The PostgreSQL source on a real server: the contract, the values, and the failures."""

from __future__ import annotations

import datetime as dt
import itertools
import re
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.databases.server import execute

from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.connectors.postgres import source as postgres_source
from millstream.connectors.postgres.source import PostgresSource, key_range
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import SourceError
from millstream.functions.watermark_strategy import WatermarkStrategy
from millstream.testing.conformance import check_cursors, check_source, read_records
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from millstream.contracts.source import SourceBatch, SplitCursor
    from millstream.graph.model import JobGraph

NUMBERS = (
    "CREATE TABLE numbers AS SELECT i, i * i AS square, 'text ' || i AS label,"
    " date '2020-01-01' + i / 10 AS day, timestamp '2020-01-01' + i * interval '7.5 s' AS at,"
    " md5(i::text)::uuid AS token, NULLIF(i % 7, 3) AS maybe"
    " FROM generate_series(-50, 149) AS i"
)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("key", ["i", "day", "at", "label", "token", "maybe"])
def test_keeps_the_contract_and_reads_every_row(database: str, key: str) -> None:
    execute(database, NUMBERS)
    source = PostgresSource(database, "SELECT * FROM numbers;", key=key, splits=3)
    check_source(source, rounds=2, most=10**12)
    check_cursors(source, rounds=1, most=1 << 62, slowest=0.2)
    splits = source.discover(frozenset())
    assert len(splits) == (3 if key != "maybe" else 4)
    rows: list[Any] = []
    for split in splits:
        start, stop = source.start_offset(split), source.end_offset(split)
        rows += read_records(source, split, start, stop)
    wanted = "i, square, label, day, at, token::text, maybe"
    assert sorted(map(tuple, rows)) == execute(database, f"SELECT {wanted} FROM numbers ORDER BY i")
    keys = [row[key] for row in rows if row[key] is not None]
    if key != "label":  # texts come in the order of their hashes
        assert keys == sorted(keys)
    assert source.discover(frozenset(split.id for split in splits)) == []


def test_values_of_every_kind(database: str) -> None:
    at = dt.datetime(2020, 5, 17, 1, 2, 3, 456_000, tzinfo=dt.UTC)
    columns = (
        "1 AS key, true AS yes, 1.5::float8 AS real, '\\x00ff'::bytea AS raw,"
        f" '{at}'::timestamptz AS zoned, 12.3::numeric(10, 2) AS amount, ARRAY[1, 2] AS list,"
        " '' AS empty, E'a,\"\\nb' AS text"
    )
    execute(database, f"CREATE TABLE kinds AS SELECT {columns}")
    execute(database, "INSERT INTO kinds (key) VALUES (2)")
    source = PostgresSource(database, "SELECT * FROM kinds", key="key")
    splits = source.discover(frozenset())
    ranges = [(split, source.start_offset(split), source.end_offset(split)) for split in splits]
    rows: list[Any] = [row for each in ranges for row in read_records(source, *each)]
    first, second = map(tuple, rows)
    moment = first[4]
    assert (moment.to_epoch_milli() if hasattr(moment, "to_epoch_milli") else moment) in {
        at,
        int(at.timestamp() * 1000),
    }
    assert first[:4] == (1, True, 1.5, b"\x00\xff")
    assert first[5:] == (Decimal("12.30"), "{1,2}", "", 'a,"\nb')
    assert second == (2, *[None] * 8)


def graph_of(source: PostgresSource, out: Path) -> JobGraph:
    """A job that collects the rows."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    stream.sink_to(CollectSink(out, fsync=False)).uid("out")
    return env.get_job_graph("numbers")


@pytest.mark.both_engines
def test_a_job_reads_it_through_a_restart(database: str, tmp_path: Path) -> None:
    execute(database, NUMBERS)

    def run(epochs: int) -> None:
        source = PostgresSource(database, "SELECT i, square FROM numbers", key="i", splits=2)
        graph = graph_of(source, tmp_path / "out")
        MiniCluster(graph, tmp_path / "checkpoints", limits=[30] * 20).run(epochs)

    run(2)
    execute(database, "INSERT INTO numbers (i, square) VALUES (1000, 0)")  # beyond the range found
    run(100)
    rows: list[Any] = list(read_collected(tmp_path / "out"))
    assert sorted(tuple(row) for row in rows) == [(i, i * i) for i in range(-50, 150)]


@pytest.mark.parametrize(("key", "limit"), [("token", 1 << 58), ("label", 1 << 58), ("maybe", 2)])
def test_keys_without_distances_and_rows_without_keys(
    database: str, tmp_path: Path, key: str, limit: int
) -> None:
    """UUIDs up to the last one, texts, equal keys and none, over epochs and restarts."""
    execute(database, NUMBERS)
    execute(
        database,
        "INSERT INTO numbers (i, token, label, maybe) VALUES"
        " (1001, '00000000-0000-0000-0000-000000000000', '', NULL),"
        " (1002, 'ffffffff-ffff-ffff-ffff-ffffffffffff', E'\\n', NULL),"
        " (1003, 'ffffffff-ffff-fff0-0000-000000000000', 'å', -1), (1004, NULL, NULL, 6)",
    )
    for _ in range(100):
        query = f"SELECT i, {key} FROM numbers"
        source = PostgresSource(database, query, key=key, splits=2)
        graph = graph_of(source, tmp_path / "out")
        last = MiniCluster(graph, tmp_path / "checkpoints", limits=[limit] * 3).run(3)
        if last is not None and last.final:
            break
    rows: list[Any] = list(read_collected(tmp_path / "out"))
    assert sorted(row[0] for row in rows) == [*range(-50, 150), *range(1001, 1005)]


@pytest.mark.parametrize("key", ["far", "label"])
def test_the_first_epoch_of_a_run_is_measured_in_rows(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(postgres_source, "_FIRST_ROWS", 50)
    execute(database, NUMBERS)
    source = PostgresSource(
        database, "SELECT i::bigint << 50 AS far, label FROM numbers", key=key, splits=2
    )
    out = tmp_path / "out"
    for run in (1, 2):  # of one epoch each
        MiniCluster(graph_of(source, out), tmp_path / "checkpoints").run(1)
        assert 30 * run <= len(list(read_collected(out))) <= 70 * run
    MiniCluster(graph_of(source, out), tmp_path / "checkpoints").run(10)
    rows: list[Any] = list(read_collected(out))
    assert len({row.label for row in rows}) == len(rows) == 200


def test_the_index_of_the_page_is_used_for_texts(database: str) -> None:
    execute(database, NUMBERS)
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "postgres.md").read_text()
    (statement,) = re.findall(r"CREATE INDEX ON counts .*", page)
    execute(database, statement.replace("counts", "numbers").replace("word", "label"))
    plan = execute(
        f"{database}%20-cenable_seqscan%3Doff",  # the table is small
        f"EXPLAIN SELECT i FROM numbers AS q WHERE {key_range('label', 'text', 0, 10)}",
    )
    assert "Index" in str(plan), plan


def test_an_empty_result_has_no_splits(database: str) -> None:
    execute(database, NUMBERS)
    source = PostgresSource(database, "SELECT * FROM numbers WHERE i > 1000", key="i")
    source.validate()
    assert source.discover(frozenset()) == []


@pytest.mark.parametrize(
    ("query", "key", "message"),
    [
        ("SELECT * FROM missing", "i", r'"missing" does not exist'),
        ("SELEC", "i", r"syntax error"),
        ("SELECT * FROM numbers", "j", r"has no column 'j'; it has \['i', 'square'"),
        (
            "SELECT i > 0 AS yes FROM numbers",
            "yes",
            "is of type bool; it must be an integer",
        ),
        ("SELECT i, i::numeric AS n FROM numbers", "i", r"'n' is numeric without a precision"),
    ],
)
def test_what_is_wrong_is_said_at_submit(database: str, query: str, key: str, message: str) -> None:
    execute(database, NUMBERS)
    source = PostgresSource(database, query, key=key)
    with pytest.raises(SourceError, match=message):
        source.discover(frozenset())  # which validates too


def test_an_unreachable_server_is_named() -> None:
    source = PostgresSource("postgresql://u:secret@127.0.0.1:1/db", "SELECT 1 AS i", key="i")
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1/db.*refused") as refused:
        source.validate()
    assert "secret" not in str(refused.value)


# -- cursors -----------------------------------------------------------------------------------


def _cursor(source: PostgresSource) -> SplitCursor:
    (split,) = source.discover(frozenset())
    return source.open_cursor(split, source.start_offset(split))


def _poll(cursor: SplitCursor, most: int = 100) -> SourceBatch:
    deadline = time.monotonic() + 60
    while (batch := cursor.poll(most)) is None:
        assert time.monotonic() < deadline
    return batch


def test_positions_are_exact_where_the_key_changes(database: str) -> None:
    execute(database, "CREATE TABLE rows AS SELECT i / 100 AS k, i FROM generate_series(0, 999) i")
    source = PostgresSource(database, "SELECT * FROM rows", key="k", splits=1)
    check_cursors(source, rounds=2, slowest=0.2)
    cursor = _cursor(source)
    lengths, settled = [], []
    while not cursor.is_over:
        lengths.append(len(_poll(cursor, 70)))
        settled.append((cursor.position, cursor.settled))
    cursor.close()
    # Seventy of a key, and the rest of it: a barrier waits for that.
    assert (lengths, settled) == (
        [70, 30] * 10,
        [each for k in range(10) for each in ((k, False), (k + 1, True))],
    )


def test_a_server_that_takes_its_time_is_not_waited_for(database: str) -> None:
    query = "SELECT i, pg_sleep(0.3)::text AS slept FROM generate_series(1, 2) AS i"
    source = PostgresSource(database, query, key="i", splits=1)
    cursor = _cursor(source)
    assert cursor.poll(10) is None  # connects
    begun, empty = time.monotonic(), []
    while (batch := cursor.poll(10)) is None:
        empty.append(time.monotonic())
    assert len(batch) == 2
    assert len(empty) > 10
    assert min(b - a for a, b in itertools.pairwise([begun, *empty])) < 0.02
    cursor.close()


def test_an_error_on_the_way_names_the_query(database: str) -> None:
    query = "SELECT i, 1 / (i - 5000) AS x FROM generate_series(1, 9000) AS i"
    cursor = _cursor(PostgresSource(database, f"{query} OFFSET 0", key="i", splits=1))
    try:
        with pytest.raises(SourceError, match=r"query 'SELECT i, 1 .*: division by zero"):
            _drain(cursor)
    finally:
        cursor.close()


def _drain(cursor: SplitCursor) -> None:
    while not cursor.is_over:
        _poll(cursor)
