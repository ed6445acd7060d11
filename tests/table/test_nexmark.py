"""Nexmark: its events, and each of its queries against DuckDB on the same events."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from bench.nexmark.queries import QUERIES, TABLES, quoted
from tests.table.query_running import changelog, environment, materialised

from millstream.connectors.basic.nexmark import NEXMARK_COLUMNS, NexmarkEvents, events_of
from millstream.errors import ValidationError

if TYPE_CHECKING:
    from pathlib import Path

#: So slow that no two events are in one millisecond, and a run has several windows.
_RATE = 40
_BASE = 1_577_836_800_000
#: Of these a few examples run with ``make test``.
_SAMPLE = {"q3", "q4", "q16", "q19"}


def events(table: str, count: int, seed: int, rate: float = _RATE) -> pa.RecordBatch:
    made = NexmarkEvents(table, list(NEXMARK_COLUMNS[table]), seed, rate, _BASE)
    return made.map_batch(np.arange(events_of(table, count)))


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(float(each) if isinstance(each, Decimal) else each for each in row)


@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize(
    "name",
    [name if name in _SAMPLE else pytest.param(name, marks=pytest.mark.soak) for name in QUERIES],
)
def test_oracle_query(name: str, tmp_path: Path) -> None:
    count, seed = 2_400, int(name[1:])
    env = environment(parallelism=1 + seed % 2 * 2)
    connection = duckdb.connect()
    for table, columns in TABLES.items():
        env.execute_sql(
            quoted(
                f"CREATE TABLE {table} ({columns}, WATERMARK FOR dateTime AS dateTime - INTERVAL "
                f"'4' SECOND) WITH ('connector' = 'nexmark', 'table' = '{table}', "
                f"'events.num' = '{count}', 'next-event.rate' = '{_RATE}', 'seed' = '{seed}')"
            )
        )
        rows = pa.Table.from_batches([events(table, count, seed)])
        connection.register(f"{table}_events", rows)
        connection.execute(f"CREATE TABLE {table} AS SELECT * FROM {table}_events")
    query = QUERIES[name]
    expected = Counter(map(_plain, connection.execute(query.oracle).fetchall()))
    found = materialised(changelog(env, query.sql, tmp_path, seed))
    assert Counter({_plain(row): count for row, count in found.items()}) == expected
    assert expected


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
        ("price BIGINT", "'table' = 'bids'", "it must be one of person, auction, bid"),
        ("price BIGINT", "'table' = 'bid', 'events.num' = '-1'", "at least 0"),
    ],
)
def test_wrong_tables_are_refused(columns: str, options: str, message: str) -> None:
    env = environment()
    env.execute_sql(f"CREATE TABLE x ({columns}) WITH ('connector' = 'nexmark', {options})")
    with pytest.raises(ValidationError, match=message):
        env.sql_query("SELECT * FROM x")
