"""The tables of Nexmark and what queries write into, as statements that Flink takes as well.

What it is: from CSV files, which both systems read, or from our generator: a table for each kind of
events, or one stream of all of them, as the benchmark has it, of which tables are views.
What it is not: the queries (``bench/nexmark/queries.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.nexmark.queries import TABLES, Query, quoted, sink_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["from_files", "from_generator", "from_stream", "job_statements"]

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


def from_stream(events: int, splits: int) -> list[str]:
    """Views of one table that all events come from; each is made with all its columns."""
    rows = ", ".join(f"{table} ROW<{columns}>" for table, columns in TABLES.items())
    stream = quoted(
        f"CREATE TABLE events (event_type INT, {rows}, dateTime TIMESTAMP(3), {_WATERMARK}) WITH "
        f"('connector' = 'nexmark', 'table' = 'events', 'events.num' = '{events}', "
        f"'splits' = '{splits}')"
    )
    return [stream, *map(_view, range(len(TABLES)), TABLES)]


def _view(kind: int, table: str) -> str:
    """A kind of events; its time is that of the stream, which has the watermark."""
    names = [each.split()[0] for each in TABLES[table].split(", ")]
    columns = ", ".join(each if each == "dateTime" else f"{table}.{each}" for each in names)
    return quoted(f"CREATE VIEW {table} AS SELECT {columns} FROM events WHERE event_type = {kind}")


def job_statements(name: str, query: Query, output: Path) -> list[str]:
    """What runs a query; the last statement is the job."""
    if query.files is None:
        return [f"CREATE TABLE {name}_result WITH ('connector' = 'blackhole') AS {query.sql}"]
    return [
        f"CREATE TABLE {name}_result {sink_of(query, output)}",
        f"INSERT INTO {name}_result {query.sql}",
    ]
