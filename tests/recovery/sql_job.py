"""The SQL job of the kill tests: windows, a join, aggregates and Top-N into exactly-once sinks.

Run as ``python sql_job.py INPUT OUTPUT CHECKPOINTS BYTES_PER_EPOCH ENGINE PARALLELISM``, where the
engine is ``local``, ``pipelined`` (slots that are processes of this machine), or ``mini``: then the
job runs in this process.  With ``URL BROKERS ORDERS PAIRS TOTALS`` behind it orders come from Kafka
(the topic ``ORDERS``), pairs go to Kafka (``PAIRS``), and totals by name, merged by their key, to
PostgreSQL (table ``totals``) and to Kafka (``TOTALS``).

What is updated goes out as a changelog: each change with its kind in the column ``op``.  Some
starts have a filter that lets all rows pass, slowly: queries may change so.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.common import Configuration, Row, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink
from millstream.table import StreamTableEnvironment
from millstream.table.udf import udf
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.datastream import DataStream
    from millstream.types.types import TypeInformation

SERVERS_AT = 6
SUM = Types.ROW_NAMED(
    ["op", "k", "n", "s", "most", "kinds"],
    [Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()],
)
PLACE = Types.ROW_NAMED(
    ["op", "name", "total", "place"],
    [Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG()],
)
ORDERS = """
    CREATE TABLE orders (id BIGINT, k STRING, v INT, ts TIMESTAMP(3),
                         WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) WITH ({})
"""
PEOPLE = "CREATE TABLE people (k STRING, name STRING) WITH ({})"
WINDOWS = "CREATE TABLE windows (w TIMESTAMP(3), k STRING, n BIGINT, s INT) WITH ({})"
PAIRS = "CREATE TABLE pairs (id BIGINT, name STRING, v INT) WITH ({})"
TOTALS = (
    "CREATE TABLE {} (name STRING, n BIGINT, total INT, PRIMARY KEY (name) NOT ENFORCED) WITH ({})"
)
SUM_BY_NAME = (
    "SELECT p.name, COUNT(*) AS n, SUM(o.v) AS total FROM given o JOIN people p ON o.k = p.k "
    "GROUP BY p.name"
)
#: The same for DuckDB, but for the window.
INSERTS = (
    (
        "INSERT INTO windows SELECT window_start, k, COUNT(*), SUM(v) FROM TUMBLE(TABLE given, "
        "DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, window_end, k"
    ),
    "INSERT INTO pairs SELECT o.id, p.name, o.v FROM given o JOIN people p ON o.k = p.k",
)
SUMS = (
    "SELECT k, COUNT(*) AS n, CAST(SUM(v) AS BIGINT) AS s, CAST(MAX(v) AS BIGINT) AS most, "
    "COUNT(DISTINCT v % 7) AS kinds FROM given GROUP BY k"
)
TOP = (
    "SELECT name, total, place FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY total DESC, name) AS "
    "place FROM (SELECT p.name, CAST(SUM(o.v) AS BIGINT) AS total FROM given o JOIN people p "
    "ON o.k = p.k GROUP BY p.name)) WHERE place <= 3"
)


def slowly(_: int) -> bool:
    """Takes its time, so that there are many checkpoints."""
    time.sleep(0.003)
    return True


def _with_op(row: Row) -> Row:
    return Row(str(row.get_row_kind()), *row)


def environment_of(arguments: Sequence[str]) -> StreamExecutionEnvironment:
    _, _, checkpoints, _, engine, parallelism = arguments[:SERVERS_AT]
    configuration = Configuration()
    for key, value in {
        "execution.checkpointing.dir": checkpoints,
        "parallelism.default": parallelism,
        "execution.target": "local",
        "millstream.execution": "pipelined" if engine == "pipelined" else "epochs",
        "execution.checkpointing.interval": "30 ms",
        "millstream.local-directory": str(Path(checkpoints) / "local"),
        "restart-strategy.type": "none",
    }.items():
        configuration.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def files(path: Path) -> str:
    return f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'json'"


def _written(brokers: str, topic: str) -> str:
    return (
        f"'topic' = '{topic}', 'properties.bootstrap.servers' = '{brokers}', "
        f"'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{topic}'"
    )


def _add_job(env: StreamExecutionEnvironment, arguments: Sequence[str]) -> None:
    given, out = Path(arguments[0]), Path(arguments[1])
    servers = arguments[SERVERS_AT:]
    tables = StreamTableEnvironment.create(env)
    orders, pairs = files(given / "orders"), files(out / "pairs")
    if servers:
        orders = (
            f"'connector' = 'kafka', 'format' = 'json', 'topic' = '{servers[2]}', "
            f"'properties.bootstrap.servers' = '{servers[1]}', "
            "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
        )
        pairs = f"'connector' = 'kafka', 'format' = 'json', {_written(servers[1], servers[3])}"
    tables.execute_sql(ORDERS.format(orders))
    tables.execute_sql(PEOPLE.format(files(given / "people")))
    tables.execute_sql(WINDOWS.format(files(out / "windows")))
    tables.execute_sql(PAIRS.format(pairs))
    slow = arguments[3] != "0" and arguments[4] != "mini"
    if slow:
        tables.create_temporary_function("slowly", udf(slowly, result_type="BOOLEAN"))
    where = "WHERE slowly(id)" if slow else ""
    tables.execute_sql(f"CREATE TEMPORARY VIEW given AS SELECT * FROM orders {where}")
    statements = tables.create_statement_set()
    for each in INSERTS:
        statements.add_insert_sql(each)
    if servers:
        upsert = "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json', "
        database = f"'connector' = 'jdbc', 'url' = '{servers[0]}', 'table-name' = 'totals'"
        tables.execute_sql(TOTALS.format("totals", database))
        tables.execute_sql(TOTALS.format("topic", upsert + _written(servers[1], servers[4])))
        for name in ("totals", "topic"):
            statements.add_insert_sql(f"INSERT INTO {name} {SUM_BY_NAME}")
    statements.attach_as_datastream()
    sums = _changes(tables, SUMS, SUM, "sums")
    sums.sink_to(FileSink.json_lines(str(out / "sums"))).uid("sums-sink")
    top = _changes(tables, TOP, PLACE, "top")
    top.sink_to(FileSink.json_lines(str(out / "top"))).uid("top-sink")


def _changes(
    tables: StreamTableEnvironment, query: str, kind: TypeInformation, name: str
) -> DataStream:
    stream = tables.to_changelog_stream(tables.sql_query(query))
    return stream.map(_with_op, kind).uid(name)


def main(arguments: list[str]) -> None:
    env = environment_of(arguments)
    _add_job(env, arguments)
    if arguments[4] == "mini":
        graph = env.get_job_graph("sql")
        slow = int(arguments[3])
        limits = itertools.repeat(slow) if slow else ()
        checkpoints = Path(arguments[2])
        MiniCluster(graph, checkpoints, limits=limits, state_backend="rocksdb").run()
    else:
        env.execute("sql")


if __name__ == "__main__":
    main(sys.argv[1:])
