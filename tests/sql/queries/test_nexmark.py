"""Nexmark: its events, and each of its queries against DuckDB on the same events."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from bench.nexmark.queries import QUERIES, TABLES, quoted, sink_of, write_side_input
from bench.nexmark.tables import from_stream
from tests.support.query_running import changelog, environment, insert, materialised

from millstream.errors import ValidationError
from millstream.sql.catalog.factories.nexmark import (
    ALL_EVENTS,
    NEXMARK_COLUMNS,
    NexmarkEvents,
    NexmarkStream,
    events_of,
)
from millstream.table import TableDescriptor

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

#: So slow that no two events are in one millisecond, and a run has several windows.
_RATE = 40
_BASE = 1_577_836_800_000
#: Of these a few examples run with ``make test-all``.
_SAMPLE = {"q3", "q4", "q6", "q12", "q13", "q16", "q19"}
#: What q10 writes, as DuckDB reads it.
_WRITTEN = (
    "{'auction': 'BIGINT', 'bidder': 'BIGINT', 'price': 'BIGINT', 'dateTime': 'TIMESTAMP', "
    "'extra': 'VARCHAR'}"
)


def events(table: str, count: int, seed: int, rate: float = _RATE) -> pa.RecordBatch:
    made = NexmarkEvents(table, list(NEXMARK_COLUMNS[table]), seed, rate, _BASE)
    return made.map_batch(np.arange(events_of(table, count)))


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(float(each) if isinstance(each, Decimal) else each for each in row)


def _tables(env: TableEnvironment, count: int, seed: int) -> None:
    for table, columns in TABLES.items():
        env.execute_sql(
            quoted(
                f"CREATE TABLE {table} ({columns}, WATERMARK FOR dateTime AS dateTime - INTERVAL "
                f"'4' SECOND) WITH ('connector' = 'nexmark', 'table' = '{table}', "
                f"'events.num' = '{count}', 'next-event.rate' = '{_RATE}', 'seed' = '{seed}')"
            )
        )


def test_every_query_can_be_measured(tmp_path: Path) -> None:
    """``make nexmark`` writes into a table that forgets, and takes no -U."""
    env = environment(1)
    _tables(env, 10, 0)
    env.execute_sql(write_side_input(tmp_path / "side"))
    forgets = TableDescriptor.for_connector("blackhole").build()
    for name, query in QUERIES.items():
        pipeline = env.sql_query(query.sql).insert_into(forgets)
        assert "== Optimized Physical Plan ==" in pipeline.explain(), name


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize(
    "name",
    [name if name in _SAMPLE else pytest.param(name, marks=pytest.mark.soak) for name in QUERIES],
)
def test_oracle_query(name: str, tmp_path: Path) -> None:
    count, seed = 2_400, int(name[1:])
    env = environment(parallelism=1 + seed % 2 * 2)
    connection = duckdb.connect()
    _tables(env, count, seed)
    for table in TABLES:
        rows = pa.Table.from_batches([events(table, count, seed)])
        connection.register(f"{table}_events", rows)
        connection.execute(f"CREATE TABLE {table} AS SELECT * FROM {table}_events")
    env.execute_sql(write_side_input(tmp_path / "side"))
    side = str(tmp_path / "side" / "side.csv")
    connection.execute(
        f"CREATE TABLE side_input AS SELECT * FROM read_csv('{side}', names=['key', 'value'])"
    )
    query = QUERIES[name]
    expected = Counter(map(_plain, connection.execute(query.oracle).fetchall()))
    found = materialised(changelog(env, query.sql, tmp_path, seed))
    if name == "q12":
        found = _summed_up(found)
    assert Counter({_plain(row): count for row, count in found.items()}) == expected
    assert expected


@pytest.mark.extended
@pytest.mark.both_engines(every=2)
@pytest.mark.parametrize("name", ["q3", "q20"])
def test_oracle_query_of_the_stream_of_all_events(name: str, tmp_path: Path) -> None:
    """As ``make nexmark-stream`` measures it, whose events are more in a second."""
    count, rate = 6_000, 100_000
    env = environment(parallelism=2)
    connection = duckdb.connect()
    for statement in from_stream(count, splits=3):
        env.execute_sql(statement)
    for table in TABLES:
        rows = pa.Table.from_batches([events(table, count, 0, rate)])
        connection.register(f"{table}_events", rows)
        connection.execute(f"CREATE TABLE {table} AS SELECT * FROM {table}_events")
    query = QUERIES[name]
    expected = Counter(map(_plain, connection.execute(query.oracle).fetchall()))
    found = materialised(changelog(env, query.sql, tmp_path, 1))
    assert Counter({_plain(row): count for row, count in found.items()}) == expected
    assert expected


def test_the_stream_has_the_events_of_all_tables_in_order() -> None:
    count = 730
    made = NexmarkStream(list(ALL_EVENTS), 5, _RATE, _BASE)
    batch = made.map_batch(np.arange(count))
    assert batch.schema.types == list(ALL_EVENTS.values())
    times = batch.column("dateTime").cast(pa.int64()).to_numpy()
    assert (np.diff(times) > 0).all()
    kinds = batch.column("event_type").to_numpy()
    for number, table in enumerate(TABLES):
        column = batch.column(table)
        assert (column.is_valid().to_numpy(zero_copy_only=False) == (kinds == number)).all()
        assert column.drop_null().to_pylist() == events(table, count, 5).to_pylist()
    for at, row in enumerate(batch.to_pylist()):
        assert row["dateTime"] == row[list(TABLES)[row["event_type"]]]["dateTime"], at
    some = np.array([0, 3, 60, 729])
    assert made.map_batch(some).to_pylist() == batch.take(pa.array(some)).to_pylist()
    assert made.map(60) == tuple(batch.slice(60, 1).to_pylist()[0].values())


def _summed_up(windows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """How many bids each bidder has in all windows, which do not meet."""
    sums: Counter[Any] = Counter()
    for (bidder, bids, start, end), count in windows.items():
        assert count == 1
        assert end - start == timedelta(seconds=10)
        sums[bidder] += bids
    return Counter(dict.fromkeys(sums.items(), 1))


@pytest.mark.both_engines
def test_q10_writes_files_by_minute(tmp_path: Path) -> None:
    count, seed = 3_000, 10
    env = environment(parallelism=2)
    _tables(env, count, seed)
    query = QUERIES["q10"]
    env.execute_sql(f"CREATE TABLE written {sink_of(query, tmp_path / 'out')}")
    insert(env, f"INSERT INTO written {query.sql}", limits=(700 for _ in range(100)), seed=seed)
    connection = duckdb.connect()
    connection.register("bid", pa.Table.from_batches([events("bid", count, seed)]))
    expected = Counter(connection.execute(query.oracle).fetchall())
    found: Counter[Any] = Counter()
    for path in (tmp_path / "out").rglob("*.csv"):
        dt, hm = (unquote(each.partition("=")[2]) for each in path.parts[-3:-1])
        options = f"header = false, hive_partitioning = false, columns = {_WRITTEN}"
        rows = connection.execute(f"SELECT *, '{dt}', '{hm}' FROM read_csv('{path}', {options})")
        found.update(rows.fetchall())
    assert found == expected
    assert len({row[-1] for row in expected}) > 1


def test_shares_are_those_of_the_benchmark() -> None:
    count = 200_000
    counts = {table: events_of(table, count) for table in TABLES}
    assert counts == {"person": 4_000, "auction": 12_000, "bid": 184_000}
    bids = events("bid", count, seed=3, rate=100_000)
    auction, bidder, price = (
        bids.column(name).to_numpy() for name in ("auction", "bidder", "price")
    )
    number = np.arange(len(bids)) // 46
    newest = 3 * number + 2
    assert np.mean(auction == 1000 + newest // 100 * 100) == pytest.approx(0.505, abs=0.005)
    assert np.mean(bidder == 1001 + number // 100 * 100) == pytest.approx(0.75, abs=0.005)
    assert np.mean(auction % 123 == 0) == pytest.approx(0.0081, abs=0.003)
    euros = price * 0.908
    assert np.mean((euros > 1e6) & (euros < 5e7)) == pytest.approx(0.283, abs=0.005)
    urls, channels = bids.column("url").to_pylist(), bids.column("channel").to_pylist()
    named = {"Google", "Facebook", "Baidu", "Apple"}
    told = [c in named or "channel_id=" in url for url, c in zip(urls, channels, strict=True)]
    assert np.mean(told) == pytest.approx(0.95, abs=0.01)
    assert auction.min() >= 1000
    assert auction.max() <= 1000 + newest.max() + 10


@pytest.mark.parametrize("table", TABLES)
def test_an_event_is_the_same_however_it_is_read(table: str) -> None:
    whole = events(table, 2_000, seed=5)
    made = NexmarkEvents(table, list(NEXMARK_COLUMNS[table]), 5, _RATE, _BASE)
    some = np.array([0, 7, 30])
    assert made.map_batch(some).to_pylist() == whole.take(pa.array(some)).to_pylist()
    assert made.map(7) == tuple(whole.slice(7, 1).to_pylist()[0].values())
    assert events(table, 2_000, seed=6) != whole
    times = whole.column("dateTime").cast(pa.int64()).to_numpy()
    assert (np.diff(times) > 0).all()


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id INT", "'seed' = '1'", "needs 'table'; it is one of"),
        ("prize BIGINT", "'table' = 'bid'", "no column 'prize' of bid. Did you mean 'price'?"),
        ("price BIGINT", "'table' = 'bids'", "it must be one of person, auction, bid, events"),
        ("bids INT", "'table' = 'events'", "no column 'bids' of events. Did you mean 'bid'?"),
        ("price BIGINT", "'table' = 'bid', 'events.num' = '-1'", "at least 0"),
    ],
)
def test_wrong_tables_are_refused(columns: str, options: str, message: str) -> None:
    env = environment()
    env.execute_sql(f"CREATE TABLE x ({columns}) WITH ('connector' = 'nexmark', {options})")
    with pytest.raises(ValidationError, match=message):
        env.sql_query("SELECT * FROM x")
