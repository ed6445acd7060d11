"""The SQL job of the kill tests of partitions: some are committed by time, some are replaced.

Run as ``python partition_job.py INPUT OUTPUT CHECKPOINTS BYTES_PER_EPOCH ENGINE PARALLELISM``, as
``sql_job.py``.  Rows go to ``OUTPUT/hours``, whose partitions are committed when the watermark has
passed them, and replace the tables ``OUTPUT/parts``, which is partitioned, and ``OUTPUT/whole``.
What the policy sees of a partition is added to ``OUTPUT/noted``.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.recovery.sql_job import environment_of, files, slowly

from millstream.table import StreamTableEnvironment
from millstream.table.udf import udf
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.datastream import StreamExecutionEnvironment

#: The partition's columns are the clock of this zone; the watermark is an instant.
ZONE = "Asia/Kolkata"
_KIND = "'sink.partition-commit.policy.kind'"
HOURS = f"""
    CREATE TABLE hours (id INT, d DATE, s STRING) PARTITIONED BY (d, s) WITH (
        {{}}, {_KIND} = 'success-file, custom',
        'sink.partition-commit.policy.class' = 'tests.recovery.partition_job.Noted',
        'sink.partition-commit.policy.class.parameters' = '{{}}',
        'sink.partition-commit.trigger' = 'partition-time', 'sink.partition-commit.delay' = '1 s',
        'sink.partition-commit.watermark-time-zone' = '{ZONE}',
        'partition.time-extractor.timestamp-pattern' = '$d $s')
"""
INSERTS = (
    (
        "INSERT INTO hours SELECT id, CAST(DATE_FORMAT(ts, 'yyyy-MM-dd') AS DATE), "
        "DATE_FORMAT(ts, 'HH:mm:ss') FROM given"
    ),
    "INSERT OVERWRITE parts SELECT id, k FROM given",
    "INSERT OVERWRITE whole SELECT id FROM given",
)


class Noted:
    """A policy that writes down which rows a partition had when it was committed."""

    def __init__(self, path: str) -> None:
        """Take the file."""
        self._path = path

    def commit(self, context: Any) -> None:
        """Add a line, in one piece."""
        rows = [
            json.loads(line)["id"]
            for each in context.partition_path().glob("[!._]*")
            for line in each.read_text().splitlines()
        ]
        line = json.dumps([*context.partition_values(), rows]) + "\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)


def _add_job(env: StreamExecutionEnvironment, arguments: Sequence[str]) -> None:
    given, out = Path(arguments[0]), Path(arguments[1])
    tables = StreamTableEnvironment.create(env)
    tables.execute_sql(f"SET 'table.local-time-zone' = '{ZONE}'")
    tables.execute_sql(
        "CREATE TABLE orders (id INT, k STRING, ts TIMESTAMP_LTZ(3), "
        f"WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) WITH ({files(given)})"
    )
    tables.execute_sql(HOURS.format(files(out / "hours"), out / "noted"))
    tables.execute_sql(
        "CREATE TABLE parts (id INT, k STRING) PARTITIONED BY (k) WITH ("
        f"{files(out / 'parts')}, {_KIND} = 'success-file')"
    )
    tables.execute_sql(f"CREATE TABLE whole (id INT) WITH ({files(out / 'whole')})")
    slow = arguments[3] != "0" and arguments[4] != "mini"
    if slow:
        tables.create_temporary_function("slowly", udf(slowly, result_type="BOOLEAN"))
    where = "WHERE slowly(id)" if slow else ""
    # Rows go through all subtasks by their key, in the order of time.
    tables.execute_sql(
        "CREATE TEMPORARY VIEW given AS SELECT id, k, ts, COUNT(*) OVER (PARTITION BY k ORDER BY "
        f"ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM orders {where}"
    )
    statements = tables.create_statement_set()
    for each in INSERTS:
        statements.add_insert_sql(each)
    statements.attach_as_datastream()


def main(arguments: list[str]) -> None:
    env = environment_of(arguments)
    _add_job(env, arguments)
    if arguments[4] == "mini":
        graph, slow = env.get_job_graph("partitions"), int(arguments[3])
        limits = itertools.repeat(slow) if slow else ()
        MiniCluster(graph, Path(arguments[2]), limits=limits).run()
    else:
        env.execute("partitions")


if __name__ == "__main__":
    main(sys.argv[1:])
