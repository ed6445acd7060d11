"""Tables in Kafka: written and read by statements, and options that make no sense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.table.query_running import changelog, environment, materialised

from millstream.errors import ValidationError
from millstream.sql.parser.parser import parse_statement
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.broker import Broker


@pytest.mark.both_engines
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_rows_go_into_a_topic_and_come_back(broker: Broker, tmp_path: Path, kind: str) -> None:
    env = environment(1)
    topic = broker.topic()
    env.execute_sql(f"""
        CREATE TABLE t (a INT, b STRING, c DECIMAL(6, 2), d TIMESTAMP(3)) WITH (
            'connector' = 'kafka', 'topic' = '{topic}', 'format' = '{kind}',
            'properties.bootstrap.servers' = '{broker.servers}',
            'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')
    """)
    text = (
        "INSERT INTO t VALUES (1, 'x', 1.5, TIMESTAMP '2024-01-01 00:00:00.250'), "
        "(2, 'y', 12.25, TIMESTAMP '2024-01-02 00:00:00')"
    )
    statement: Any = parse_statement(text)
    session = env.session
    graph = session.program.graph_of(session.sinks([session.target(statement, text)]), "test")
    MiniCluster(graph).run()
    query = "SELECT a, b, CAST(c AS STRING) AS c, CAST(d AS STRING) AS d FROM t"
    assert materialised(changelog(env, query, tmp_path)) == {
        (1, "x", "1.50", "2024-01-01 00:00:00.250"): 1,
        (2, "y", "12.25", "2024-01-02 00:00:00.000"): 1,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("'topic' = 't'", "needs the option 'format'. It has csv, json."),
        ("'topic' = 't', 'format' = 'jsn'", "has no format 'jsn'. Did you mean 'json'?"),
        ("'format' = 'json'", "needs either 'topic' or 'topic-pattern' to be read."),
        (
            "'topic' = 't', 'format' = 'json', 'scan.startup.mode' = 'earliest'",
            "invalid value for option 'scan.startup.mode': it must be one of earliest-offset",
        ),
        (
            "'topic' = 't', 'format' = 'json', 'scan.startup.mode' = 'timestamp'",
            "'scan.startup.timestamp-millis' goes with 'scan.startup.mode' = 'timestamp'.",
        ),
    ],
)
def test_options_that_make_no_sense(options: str, message: str) -> None:
    env = environment(1)
    env.execute_sql(
        f"CREATE TABLE t (a INT) WITH ('connector' = 'kafka', {options}, "
        "'properties.bootstrap.servers' = 'nowhere:1')"
    )
    with pytest.raises(ValidationError) as raised:
        env.sql_query("SELECT * FROM t")
    assert message in str(raised.value)
