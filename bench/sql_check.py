"""Whether what a statement gives in the end is DuckDB's answer, of its whole changelog.

What it is: a second run of a statement over the same events, straight behind the one that is
measured and outside its time, whose changes are written as they are, each with its kind; and the
queries that add them up (+1 for what comes, -1 for what goes) and hold the sum against the truth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from bench.sql_queries import WORKLOADS

from millstream.common import Types
from millstream.datastream.connectors.file_system import FileSink

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import StreamTableEnvironment

__all__ = ["COLUMNS", "QUERIES", "write_changes"]

_KINDS: Final = "$row_kind"


def write_changes(tables: StreamTableEnvironment, workload: str, directory: Path) -> None:
    """Make the job of an environment write the changes of a workload as Parquet.

    The kind of each change comes first, then the columns, which are all whole numbers.
    """
    columns, query = WORKLOADS[workload]
    count = columns.count(",") + 1
    rows = tables.to_changelog_stream(tables.sql_query(query))
    names = ["kind", *(f"c{number}" for number in range(count))]
    kind = Types.ROW_NAMED(names, [Types.BYTE(), *[Types.LONG()] * count])
    changes = rows.map_batches(_as_inserts, output_type=kind)
    changes.sink_to(FileSink.parquet(str(directory))).uid("output")


def _as_inserts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The kinds as a column like others, of rows that all come."""
    inserts = pa.repeat(pa.scalar(0, pa.int8()), rows.num_rows)
    names = rows.schema.names
    kinds = rows.column(_KINDS) if _KINDS in names else inserts
    plain = [rows.column(at) for at, name in enumerate(names) if name != _KINDS]
    named = [f"c{number}" for number in range(len(plain))]
    return pa.RecordBatch.from_arrays([kinds, *plain, inserts], ["kind", *named, _KINDS])


#: What remains of the changes: each row as often as it is there.
_REMAINS: Final = """
with changes as (select * from {{output}}),
     result as (select * exclude (kind), sum(case when kind in (0, 2) then 1 else -1 end) as times
                from changes group by all having times <> 0)
"""
_COMPARED: Final = (
    _REMAINS
    + """, rows as ({truth}),
     truth as (select *, count(*) as times from rows group by all),
     differ as ((select * from truth except all select * from result)
                union all (select * from result except all select * from truth))
select * from differ
"""
)
_TRUTHS: Final = {
    "sql_filter": "select key, value * 3 as value, ts from {events} where value % 2 = 0",
    "sql_aggregate": "select key, count(*) as n, sum(value) as total from {events} group by key",
    "sql_windows": (
        "select key, ts // {size} * {size} as start, count(*) as n, sum(value) as total "
        "from {events} group by 1, 2"
    ),
    "sql_join": (
        "select * from (select key, count(*) as n from {events} where value < 500 group by key) "
        "join (select key, sum(value) as total from {events} where value >= 500 group by key) "
        "using (key)"
    ),
    # Rows of the same value may stand in any order, but they are the same in what is selected.
    "sql_top_10": (
        "select key, value, row_number() over (partition by key order by value desc) as place "
        "from {events} qualify place <= 10"
    ),
}
# Of a key's events of one time, the last that came is any of them.
_LAST: Final = (
    _REMAINS.format()
    + """, truth as (select key, max(ts) as ts from {events} group by key),
     possible as (select distinct key, value, ts from {events} semi join truth using (key, ts)),
     wrong as (select key, value, ts, times from result anti join possible using (key, value, ts)),
     counted as (select key, count(*) as n, sum(times) as times from result group by key)
select 'not the last' as what, key, value, ts, times from wrong
union all
select 'not one', key, n, times, null from truth full join counted using (key)
where n is distinct from 1 or times is distinct from 1
"""
)
#: By kind of result: gives the rows in which result and truth differ.
QUERIES: Final = {
    "sql_last": _LAST,
    **{kind: _COMPARED.format(truth=truth) for kind, truth in _TRUTHS.items()},
}
#: Names of the result's columns.
COLUMNS: Final = {
    "sql_filter": "kind, key, value, ts",
    "sql_aggregate": "kind, key, n, total",
    "sql_windows": "kind, key, start, n, total",
    "sql_join": "kind, key, n, total",
    "sql_top_10": "kind, key, value, place",
    "sql_last": "kind, key, value, ts",
}
