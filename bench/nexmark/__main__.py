"""``make nexmark``: how many events a second each query of Nexmark takes.

What it is: each query reads generated events and writes into a blackhole, on this machine, one
after the other.  A query that reads bids alone has only bids generated; they alone are counted.
What it is not: a check of the answers; ``tests/table/test_nexmark.py`` is.
"""

from __future__ import annotations

import argparse
import re
import time
from typing import Final

from bench.nexmark.queries import QUERIES, TABLES, quoted

from millstream.connectors.basic.nexmark import events_of
from millstream.table import EnvironmentSettings, TableEnvironment

#: Thousands of events per second and core, published for Flink on RocksDB.
PUBLISHED: Final = {
    "q0": 155, "q1": 158, "q2": 175, "q3": 152, "q4": 34, "q5": 22, "q7": 12, "q8": 146, "q9": 14,
    "q11": 40, "q12": 76, "q15": 72, "q16": 19, "q17": 117, "q18": 54, "q19": 44, "q20": 19,
    "q21": 98, "q22": 130,
}  # fmt: skip


def environment(events: int, parallelism: int, options: list[str]) -> TableEnvironment:
    """An environment with the three tables."""
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    env.execute_sql(f"SET 'parallelism.default' = '{parallelism}'")
    for option in options:
        key, _, value = option.partition("=")
        env.execute_sql(f"SET '{key}' = '{value}'")
    for table, columns in TABLES.items():
        text = (
            f"CREATE TABLE {table} ({columns}, WATERMARK FOR dateTime AS dateTime - INTERVAL '4' "
            f"SECOND) WITH ('connector' = 'nexmark', 'table' = '{table}', "
            f"'events.num' = '{events}', 'splits' = '{parallelism}')"
        )
        env.execute_sql(quoted(text))
    return env


def measured(name: str, events: int, parallelism: int, options: list[str]) -> tuple[int, float]:
    """How many events a query has read, and in how many seconds, with all that it begins with."""
    env = environment(events, parallelism, options)
    query = QUERIES[name]
    begun = time.perf_counter()
    text = f"CREATE TABLE {name}_result WITH ('connector' = 'blackhole') AS {query.sql}"
    env.execute_sql(text).wait()
    taken = time.perf_counter() - begun
    words = set(re.findall(r"\w+", query.text))
    return sum(events_of(table, events) for table in TABLES if table in words), taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.nexmark", description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--parallelism", type=int, default=1)
    parser.add_argument("--query", action="append", choices=list(QUERIES))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    print("| query | K events/s | per core | published for Flink, per core | s |")
    print("|---|---|---|---|---|")
    for name in given.query or QUERIES:
        events, taken = measured(name, given.events, given.parallelism, given.set)
        rate = events / taken / 1000
        line = f"{rate:.0f} | {rate / given.parallelism:.0f} | {PUBLISHED.get(name, '')}"
        print(f"| {name} | {line} | {taken:.1f} |", flush=True)


if __name__ == "__main__":
    main()
