"""Compares what a measured job wrote with DuckDB's answer computed from the input files.

What it is: one query per workload that returns the rows in which result and truth differ.  The
result is a directory of Parquet files, possibly nested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
from bench import sql_check
from bench.data import MAX_OUT_OF_ORDERNESS_MS, SESSION_GAP_MS, WINDOW_MS, Dataset

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CheckFailedError", "check"]


class CheckFailedError(AssertionError):
    """A result differs from DuckDB's."""


# The running counts of a key are right if they are 1, 2, ..., n, each once.
_COUNT = """
with truth as (select key, count(*) as n from {events} group by key),
     result as (select key, count(*) as n, count(distinct count) as different,
                       min(count) as low, max(count) as high from {output} group by key)
select * from truth full join result using (key)
where truth.n is distinct from result.n or different <> truth.n or low <> 1 or high <> truth.n
"""

_WINDOWS = """
with truth as (select key, ts // {size} * {size} as start, count(*) as n, sum(value) as total
               from {events} group by 1, 2),
     result as (select key, start, n, total from {output}),
     closed as (select * from truth where start + {size} <= {closed}),
     differ as ((select * from closed except all select * from result)
                union all (select * from result except all select * from closed))
select * from differ
"""

# Panes first: an event is in up to 100 windows.
_SLIDING = """
with panes as (select key, ts // {slide} as pane, count(*) as n, sum(value) as total
               from {events} group by 1, 2),
     truth as (select key, (pane - step) * {slide} as start, sum(n) as n, sum(total) as total
               from panes, range({size} // {slide}) as steps(step) group by 1, 2),
     result as (select key, start, n, total from {output}),
     differ as ((select * from truth except all select * from result)
                union all (select * from result except all select * from truth))
select * from differ
"""

# Events of one time are peers in both windows over them, so their order does not matter.
_SESSIONS = """
with gaps as (select *, coalesce(ts - lag(ts) over (partition by key order by ts), {gap} + 1)
                        > {gap} as fresh from {events}),
     numbered as (select *, sum(fresh::int) over (partition by key order by ts) as session
                  from gaps),
     truth as (select key, min(ts) as start, max(ts) + {gap} as stop, count(*) as n,
                      sum(value) as total from numbered group by key, session),
     result as (select key, start, stop, n, total from {output}),
     differ as ((select * from truth except all select * from result)
                union all (select * from result except all select * from truth))
select * from differ
"""

# What fired early depends on how far time had got; the last firing of a key has everything.
_BUFFERED = """
with truth as (select key, count(*) as n, sum(value) as total from {events} group by key),
     result as (select key, max(n) as n, arg_max(total, n) as total, count(*) as firings
                from {output} group by key)
select * from truth full join result using (key)
where truth.n is distinct from result.n or truth.total is distinct from result.total or firings < 2
"""

_MAP_FILTER = """
with truth as (select key, value * 3 as value, ts from {events} where (value * 3) % 2 = 0),
     differ as ((select * from truth except all select key, value, ts from {output})
                union all (select key, value, ts from {output} except all select * from truth))
select * from differ
"""

_COPY = """
with truth as (select key, value, ts from {events}),
     differ as ((select * from truth except all select key, value, ts from {output})
                union all (select key, value, ts from {output} except all select * from truth))
select * from differ
"""

# 5,000,000 keys: each is checked, by its highest count.
_STATE = """
with truth as (select key, count(*) as n from {events} group by key),
     result as (select key, max(count) as n, count(*) as outputs from {output} group by key)
select * from truth full join result using (key)
where truth.n is distinct from result.n or outputs <> truth.n
"""

_SLIDES = (10_000, 1_000, 100)
_QUERIES = {
    "buffered": _BUFFERED,
    "copy": _COPY,
    "count": _COUNT,
    "map_filter": _MAP_FILTER,
    "sessions": _SESSIONS,
    "state": _STATE,
    "windows": _WINDOWS,
    **sql_check.QUERIES,
    **{f"sliding_{slide}": _SLIDING.replace("{slide}", str(slide)) for slide in _SLIDES},
}


#: Names of the result's columns by their position, for each number of columns.
_COLUMNS = {
    "buffered": {3: "key, n, total"},
    "copy": {3: "key, value, ts"},
    "count": {2: "key, count"},
    "state": {2: "key, count"},
    "map_filter": {3: "key, value, ts"},
    "sessions": {5: "key, start, stop, n, total"},
    **{f"sliding_{slide}": {5: "key, start, stop, n, total"} for slide in _SLIDES},
    "windows": {4: "key, start, n, total", 5: "key, start, stop, n, total"},
    **{kind: {names.count(",") + 1: names} for kind, names in sql_check.COLUMNS.items()},
}


def _named(database: duckdb.DuckDBPyConnection, files: list[str], kind: str) -> str:
    """The result as a sub-query with the expected names, whatever the system called them."""
    columns = database.execute(f"describe select * from read_parquet({files[:1]!r})").fetchall()
    names = _COLUMNS[kind].get(len(columns))
    if names is None:
        message = f"{kind}: unexpected columns {[column[0] for column in columns]}"
        raise CheckFailedError(message)
    return f"(select * from read_parquet({files!r}) as result({names}))"


def check(kind: str, dataset: Dataset, output: Path, *, closed_only: bool) -> int:
    """Compare the rows in ``output`` with the truth.

    Args:
        kind: ``copy``, ``count``, ``windows``, ``sliding_1000``, ``sessions``, ``map_filter`` or
            ``state``; ``sql_join`` and the like of a changelog.
        dataset: what was read.
        output: directory of the result.
        closed_only: windows that the last watermark (highest timestamp less the allowed delay)
            leaves open are missing in the result.  Spark never emits those.

    Returns:
        The number of rows in the result.

    Raises:
        CheckFailedError: they differ; the message shows three rows.
    """
    with duckdb.connect() as database:
        events = f"read_parquet('{dataset.directory}/*.parquet')"
        files = [str(path) for path in output.rglob("*.parquet") if path.stat().st_size > 0]
        if not files:
            message = f"{kind}: no result in {output}"
            raise CheckFailedError(message)
        result = _named(database, files, kind)
        closed = 2**62
        if closed_only:
            row = database.execute(f"select max(ts) from {events}").fetchone()
            closed = (row[0] if row else 0) - MAX_OUT_OF_ORDERNESS_MS
        query = _QUERIES[kind].format(
            events=events, output=result, size=WINDOW_MS, gap=SESSION_GAP_MS, closed=closed
        )
        wrong = database.execute(f"{query} limit 3").fetchall()
        if wrong:
            message = f"{kind}: {output} differs from DuckDB, for example {wrong}"
            raise CheckFailedError(message)
        found = database.execute(f"select count(*) from {result}").fetchone()
        return int(found[0]) if found else 0
