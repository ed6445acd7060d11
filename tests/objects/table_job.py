"""SQL that replaces a table and commits partitions in a store: ``table_job.py BASE EXECUTION``."""

from __future__ import annotations

import sys
from typing import Any

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment

_TABLE = "CREATE TABLE {} (id BIGINT, k STRING) {} WITH ('connector' = 'filesystem', {}, {})"


class Noted:
    """A policy that prints what it is given."""

    def commit(self, context: Any) -> None:
        print("committed", context.partition_path(), context.partition_spec(), flush=True)


def main(base: str, execution: str) -> None:
    settings = {
        "execution.target": "local",
        "millstream.execution": execution,
        "execution.checkpointing.dir": f"{base}/checkpoints",
        "execution.checkpointing.interval": "50 ms",
        "restart-strategy.type": "none",
        "parallelism.default": "2",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
    tables = StreamTableEnvironment.create(env)
    policies = (
        "'format' = 'json', 'sink.partition-commit.policy.kind' = 'success-file,custom',"
        " 'sink.partition-commit.policy.class' = 'tests.objects.table_job.Noted'"
    )
    for name, partitioned, options in (
        ("given", "", "'format' = 'json'"),
        ("parts", "PARTITIONED BY (k)", policies),
        ("whole", "", "'format' = 'json'"),
        ("added", "PARTITIONED BY (k)", policies),
    ):
        tables.execute_sql(_TABLE.format(name, partitioned, f"'path' = '{base}/{name}'", options))
    statements = tables.create_statement_set()
    statements.add_insert_sql("INSERT OVERWRITE parts SELECT id, k FROM given")
    statements.add_insert_sql("INSERT OVERWRITE whole SELECT id, k FROM given")
    statements.add_insert_sql("INSERT INTO added SELECT id, k FROM given")
    statements.execute().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
