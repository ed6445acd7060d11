"""Tables in Kafka: written and read by statements, and options that make no sense."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import changelog, environment, insert, materialised

from millstream.errors import ValidationError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.broker import Broker

    from millstream.table import TableEnvironment


def table(env: TableEnvironment, broker: Broker, name: str, columns: str, **options: str) -> None:
    """A bounded table in Kafka; ``__`` in an option's name is a dot, ``_`` a dash."""
    given = {
        "connector": "kafka",
        "properties.bootstrap.servers": broker.servers,
        "scan.bounded.mode": "latest-offset",
    }
    if options.get("connector", "kafka") == "kafka":
        given["scan.startup.mode"] = "earliest-offset"
    for key, each in options.items():
        given[key.replace("__", ".").replace("_", "-")] = each
    text = ", ".join(f"'{key}' = '{each}'" for key, each in given.items())
    env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({text})")


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
    insert(env, text)
    query = "SELECT a, b, CAST(c AS STRING) AS c, CAST(d AS STRING) AS d FROM t"
    assert materialised(changelog(env, query, tmp_path)) == {
        (1, "x", "1.50", "2024-01-01 00:00:00.250"): 1,
        (2, "y", "12.25", "2024-01-02 00:00:00.000"): 1,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "'topic' = 't'",
            "needs the option 'format'. It has avro, avro-confluent, canal-json, csv, debezium-",
        ),
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


@pytest.mark.both_engines
def test_an_upsert_table_has_a_row_per_key(broker: Broker, tmp_path: Path) -> None:
    env = environment(2)
    topic = broker.topic(2)
    formats = {"connector": "upsert-kafka", "key__format": "json", "value__format": "json"}
    columns = "name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED"
    table(
        env,
        broker,
        "counts",
        columns,
        topic=topic,
        sink__delivery_guarantee="exactly-once",
        sink__transactional_id_prefix="counts",
        **formats,
    )
    rows = [f"('{name}', {n})" for n in range(20) for name in "abcd"[: 1 + n % 4]]
    env.execute_sql(f"CREATE TEMPORARY VIEW clicks (name, n) AS VALUES {', '.join(rows)}")
    # Counts of more than 10 are deleted again.
    insert(
        env,
        "INSERT INTO counts SELECT name, COUNT(*) FROM clicks GROUP BY name HAVING COUNT(*) < 11",
    )
    found = materialised(changelog(env, "SELECT * FROM counts", tmp_path))
    assert found == {("c", 10): 1, ("d", 5): 1}
    # A query over it takes back what was counted before.
    query = "SELECT n, COUNT(*) AS c FROM counts GROUP BY n"
    assert materialised(changelog(env, query, tmp_path, limit=3)) == {(10, 1): 1, (5, 1): 1}
    keys = [each.key for each in broker.read(topic) if each.value is None]
    assert keys.count(b'{"name":"d"}') == 0
    assert {b'{"name":"a"}', b'{"name":"b"}'} <= set(keys)


def test_tombstones_and_keys_as_others_read_them(broker: Broker, tmp_path: Path) -> None:
    env = environment(1)
    topic = broker.topic()
    table(
        env,
        broker,
        "t",
        "k_id INT, k_at STRING, v STRING, PRIMARY KEY (k_id, k_at) NOT ENFORCED",
        connector="upsert-kafka",
        topic=topic,
        key__format="json",
        value__format="csv",
        key__fields_prefix="k_",
        value__fields_include="EXCEPT_KEY",
    )
    env.execute_sql("CREATE TEMPORARY VIEW s (k, v) AS VALUES (1, 'x'), (2, 'y'), (1, 'z')")
    insert(
        env,
        "INSERT INTO t SELECT k, CAST('a' AS STRING), MAX(v) FROM s GROUP BY k "
        "HAVING MAX(v) <> 'z'",
    )
    written = [(each.key, each.value) for each in broker.read(topic)]
    # The first row of key 1 is replaced, and goes.
    assert written == [
        (b'{"id":1,"at":"a"}', b"x"),
        (b'{"id":2,"at":"a"}', b"y"),
        (b'{"id":1,"at":"a"}', None),
    ]
    rows = changelog(env, "SELECT * FROM t", tmp_path)
    assert materialised(rows) == {(2, "a", "y"): 1}


@pytest.mark.both_engines
def test_changes_of_debezium_are_counted(broker: Broker, tmp_path: Path) -> None:
    env = environment(2)
    topic, out = broker.topic(), broker.topic()
    table(
        env,
        broker,
        "products",
        "id INT, kind STRING, seen TIMESTAMP_LTZ(3) METADATA FROM "
        "'value.ingestion-timestamp' VIRTUAL",
        topic=topic,
        format="debezium-json",
    )
    drawn = random.Random(7)
    there: dict[int, str] = {}
    messages: list[bytes | None] = []
    for _ in range(60):
        number, kind = drawn.randrange(6), drawn.choice("xyz")
        before = {"id": number, "kind": there[number]} if number in there else None
        after: dict[str, Any] | None = {"id": number, "kind": kind}
        if before is not None and drawn.random() < 0.4:
            after = None
            del there[number]
        else:
            there[number] = kind
        op = "d" if after is None else "u" if before else "c"
        messages.append(
            json.dumps({"before": before, "after": after, "op": op, "ts_ms": 5}).encode()
        )
        messages += [None] if after is None else []
    broker.send(topic, messages, key=b"k")
    query = "SELECT kind, COUNT(*) AS c, MAX(seen) AS seen FROM products GROUP BY kind"
    found = materialised(changelog(env, query, tmp_path, limit=20))
    assert {row[:2] for row in found} == set(Counter(there.values()).items())
    assert {row[2].timestamp() for row in found} <= {0.005}
    # What it changes to goes out as changes again.
    table(env, broker, "counts", "kind STRING, c BIGINT", topic=out, format="debezium-json")
    insert(env, "INSERT INTO counts SELECT kind, COUNT(*) FROM products GROUP BY kind")
    again = materialised(changelog(env, "SELECT * FROM counts", tmp_path))
    assert again == dict.fromkeys(Counter(there.values()).items(), 1)


def test_metadata_is_read_and_written(broker: Broker, tmp_path: Path) -> None:
    env = environment(1)
    topic = broker.topic()
    # A column may have the name of metadata.
    table(
        env,
        broker,
        "t",
        """
        `offset` INT,
        seen TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
        `headers` MAP<STRING, BYTES> METADATA,
        `partition` BIGINT METADATA VIRTUAL,
        place BIGINT METADATA FROM 'offset' VIRTUAL,
        topic STRING METADATA VIRTUAL,
        how STRING METADATA FROM 'timestamp-type' VIRTUAL,
        twice AS `offset` * 2""",
        topic=topic,
        format="json",
        key__format="raw",
        key__fields="offset",
    )
    insert(
        env,
        "INSERT INTO t VALUES (7, TO_TIMESTAMP_LTZ(86400250, 3), MAP['h', x'01']), "
        "(8, CAST(NULL AS TIMESTAMP_LTZ(3)), CAST(NULL AS MAP<STRING, BYTES>))",
    )
    first, second = broker.read(topic)
    assert (first.key, first.value) == (b"\x00\x00\x00\x07", b'{"offset":7}')
    assert (first.timestamp, first.headers) == (86_400_250, [("h", b"\x01")])
    assert second.timestamp > 86_400_250
    query = (
        "SELECT `offset`, CAST(seen AS STRING), headers['h'], `partition`, place, topic, how, "
        "twice FROM t WHERE `offset` = 7"
    )
    (row,) = materialised(changelog(env, query, tmp_path))
    assert row == (7, "1970-01-02 00:00:00.250", b"\x01", 0, 0, topic, "CreateTime", 14)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            "a INT",
            "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'",
            "'upsert-kafka' tables require to define a PRIMARY KEY constraint",
        ),
        (
            "a INT, PRIMARY KEY (a) NOT ENFORCED",
            "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'debezium-json'",
            "doesn't support 'debezium-json' as value format",
        ),
        (
            "a INT, PRIMARY KEY (a) NOT ENFORCED",
            "'connector' = 'upsert-kafka', 'value.format' = 'json'",
            "needs the option 'key.format'",
        ),
        (
            "a INT, PRIMARY KEY (a) NOT ENFORCED",
            (
                "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json', "
                "'scan.startup.mode' = 'latest-offset'"
            ),
            "has no option 'scan.startup.mode'",
        ),
        (
            "a INT, PRIMARY KEY (a) NOT ENFORCED",
            (
                "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json', "
                "'sink.buffer-flush.max-rows' = '5'"
            ),
            "must be set to be greater than zero together",
        ),
        (
            "a INT, PRIMARY KEY (a) NOT ENFORCED",
            "'connector' = 'kafka', 'format' = 'json'",
            "doesn't support defining PRIMARY KEY constraint",
        ),
        (
            "a INT",
            "'connector' = 'kafka', 'format' = 'json', 'key.fields' = 'a'",
            "'key.format' and 'key.fields' go together",
        ),
        (
            "a INT",
            "'connector' = 'kafka', 'format' = 'json', 'key.format' = 'raw', 'key.fields' = 'b'",
            "Could not find the field 'b' in the table schema",
        ),
        (
            "a INT",
            "'connector' = 'kafka', 'format' = 'json', 'value.format' = 'json'",
            "takes either 'format' or 'value.format'",
        ),
        (
            "a INT",
            "'connector' = 'kafka', 'value.format' = 'json', 'json.ignore-parse-errors' = 'true'",
            "Did you mean 'value.json.ignore-parse-errors'?",
        ),
        (
            "a INT, b INT METADATA FROM 'ofset'",
            "'connector' = 'kafka', 'format' = 'json'",
            "has no metadata 'ofset' for column 'b'",
        ),
        (
            "a INT, b DATE METADATA FROM 'offset'",
            "'connector' = 'kafka', 'format' = 'json'",
            "metadata 'offset' is BIGINT NOT NULL and cannot be cast",
        ),
        (
            "a INT",
            (
                "'connector' = 'kafka', 'format' = 'json', "
                "'scan.startup.mode' = 'specific-offsets', "
                "'scan.startup.specific-offsets' = '0:4'"
            ),
            "should follow the format 'partition:0,offset:42",
        ),
    ],
)
def test_tables_that_are_refused(columns: str, options: str, message: str) -> None:
    env = environment(1)
    env.execute_sql(
        f"CREATE TABLE t ({columns}) WITH ({options}, 'topic' = 't', "
        "'properties.bootstrap.servers' = 'nowhere:1')"
    )
    with pytest.raises(ValidationError) as raised:
        env.sql_query("SELECT * FROM t")
    assert message in str(raised.value)


def test_what_cannot_be_written() -> None:
    env = environment(1)
    options = (
        "WITH ('connector' = 'kafka', 'format' = 'json', 'topic' = 't', "
        "'properties.bootstrap.servers' = 'nowhere:1')"
    )
    env.execute_sql(f"CREATE TABLE t (a INT, b BIGINT METADATA FROM 'offset') {options}")
    with pytest.raises(ValidationError, match="has no metadata 'offset' to write for column 'b'"):
        env.explain_sql("INSERT INTO t VALUES (1, 2)")
    env.execute_sql(f"CREATE TABLE s (a BIGINT) {options}")
    with pytest.raises(ValidationError, match="doesn't support consuming update changes"):
        env.explain_sql("INSERT INTO s SELECT COUNT(*) FROM (VALUES (1)) AS v(x)")
