"""The job of the kill test with a schema registry: rows of one topic into another, exactly once.

Run as ``python registry_job.py SERVERS REGISTRY INPUT OUTPUT CHECKPOINTS``.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

from tests.support.query_running import environment

from millstream.sql.parser.parser import parse_statement
from millstream.testing.mini_cluster import MiniCluster

PER_EPOCH = 40


def main(servers: str, registry: str, read: str, written: str, checkpoints: str) -> None:
    """Run the job to the end of its input."""
    env = environment(2)
    for name, topic in (("events", read), ("results", written)):
        env.execute_sql(f"""
            CREATE TABLE {name} (id BIGINT NOT NULL, name STRING) WITH (
                'connector' = 'kafka', 'topic' = '{topic}',
                'properties.bootstrap.servers' = '{servers}',
                'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
                'sink.delivery-guarantee' = 'exactly-once',
                'sink.transactional-id-prefix' = '{written}',
                'format' = 'avro-confluent', 'avro-confluent.url' = '{registry}')
        """)
    text = "INSERT INTO results SELECT id, UPPER(name) FROM events"
    session = env.session
    statement: Any = parse_statement(text)
    end = session.target(statement, text)
    graph = session.program.graph_of(session.sinks([end]), "registry")
    MiniCluster(graph, Path(checkpoints), limits=itertools.repeat(PER_EPOCH)).run()


if __name__ == "__main__":
    main(*sys.argv[1:6])
