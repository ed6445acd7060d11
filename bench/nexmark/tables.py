"""The tables of Nexmark and what queries write into, as statements that Flink takes as well.

What it is: from CSV files, which both systems read, or from our generator.
What it is not: the queries (``bench/nexmark/queries.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.nexmark.queries import TABLES, Query, quoted, sink_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["from_files", "from_generator", "job_statements"]

_WATERMARK = "WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND"


def _statements(options: dict[str, str]) -> list[str]:
    return [
        quoted(f"CREATE TABLE {table} ({columns}, {_WATERMARK}) WITH ({options[table]})")
        for table, columns in TABLES.items()
    ]


def from_files(directory: Path) -> list[str]:
    """Tables over what ``bench/nexmark/events.py`` has written."""
    base = f"'connector' = 'filesystem', 'format' = 'csv', 'path' = 'file://{directory.absolute()}"
    return _statements({table: f"{base}/{table}'" for table in TABLES})


def from_generator(events: int, splits: int) -> list[str]:
    """Tables of events that are made as they are read."""
    options = f"'connector' = 'nexmark', 'events.num' = '{events}', 'splits' = '{splits}'"
    return _statements({table: f"{options}, 'table' = '{table}'" for table in TABLES})


def job_statements(name: str, query: Query, output: Path) -> list[str]:
    """What runs a query; the last statement is the job."""
    if query.files is None:
        return [f"CREATE TABLE {name}_result WITH ('connector' = 'blackhole') AS {query.sql}"]
    return [
        f"CREATE TABLE {name}_result {sink_of(query, output)}",
        f"INSERT INTO {name}_result {query.sql}",
    ]
