"""No connector shows its password: not in a repr, not in an error, not in a plan.

What it is: one table with every source and sink that there is.  One that is missing in it fails a
test, so a new connector says here what secrets it takes.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import traceback
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.databases.server import execute

import millstream.connectors
import millstream.engines.spark
from millstream.common import Types, WatermarkStrategy
from millstream.configuration.redaction import masked_statement, redacted
from millstream.contracts.serialization import SimpleStringSchema
from millstream.contracts.sink import Sink, WriterContext
from millstream.contracts.source import Source
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.iceberg import IcebergSink, IcebergSource
from millstream.datastream.connectors.kafka import (
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from millstream.datastream.connectors.postgres import PostgresSink, PostgresSource
from millstream.datastream.connectors.postgres_cdc import PostgresCdcSource
from millstream.datastream.formats.avro import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)
from millstream.errors import MillstreamError, SchemaRegistryError
from millstream.graph.explain import explain
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECRET: Final = "hunter2-do-not-show"
ROW: Final = Types.ROW_NAMED(["a"], [Types.LONG()])
#: Nobody listens there: what cannot be reached is named, without the password.
CONNECTION: Final = f"postgresql://me:{SECRET}@127.0.0.1:1/db"
#: The same in libpq's other form.
KEYWORDS: Final = f"host=127.0.0.1 port=1 dbname=db user=me password='{SECRET}'"
LOGIN: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="me" password="{SECRET}";'
)
SECURE: Final = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": LOGIN,
    "ssl.key.password": SECRET,
}


CATALOG: Final = {
    "type": "sql",
    "uri": CONNECTION.replace("postgresql", "postgresql+psycopg2"),
    "token": SECRET,
    "s3.secret-access-key": SECRET,
}


def kafka_source() -> Source:
    schema = SimpleStringSchema()
    builder = KafkaSource.builder().set_topics("t").set_value_only_deserializer(schema)
    for name, value in SECURE.items():
        builder.set_property(name, value)
    return builder.build()


def kafka_sink() -> Sink:
    schema = SimpleStringSchema()
    serializer = KafkaRecordSerializationSchema.builder().set_topic("t")
    builder = KafkaSink.builder().set_bootstrap_servers("127.0.0.1:1")
    builder.set_record_serializer(serializer.set_value_serialization_schema(schema).build())
    for name, value in SECURE.items():
        builder.set_property(name, value)
    return builder.build()


def cdc_source() -> Source:
    builder = PostgresCdcSource.builder().hostname("127.0.0.1").port(1).database("db")
    return builder.username("me").password(SECRET).table_list("t").slot_name("s").build()


#: Of a schema registry: the user in the address, and settings.
REGISTRY: Final = f"http://me:{SECRET}@127.0.0.1:1"
RECORD: Final = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}'
SETTINGS: Final = {"basic.auth.user.info": f"me:{SECRET}", "max.retries": "0"}


def registry_source() -> Source:
    schema = ConfluentRegistryAvroDeserializationSchema.for_generic(RECORD, REGISTRY, SETTINGS)
    builder = KafkaSource.builder().set_topics("t").set_value_only_deserializer(schema)
    return builder.set_bootstrap_servers("127.0.0.1:1").build()


def registry_sink() -> Sink:
    schema = ConfluentRegistryAvroSerializationSchema.for_generic(
        "t-value", RECORD, REGISTRY, {"bearer.auth.token": SECRET, "max.retries": "0"}
    )
    with pytest.raises(SchemaRegistryError) as caught:
        schema.validate()
    assert SECRET not in str(caught.value)
    serializer = KafkaRecordSerializationSchema.builder().set_topic("t")
    builder = KafkaSink.builder().set_bootstrap_servers("127.0.0.1:1")
    serializer.set_value_serialization_schema(schema)
    return builder.set_record_serializer(serializer.build()).build()


#: Connectors that connect to somebody.
WITH_SECRETS: Final[dict[str, Callable[[], Any]]] = {
    "KafkaSource": kafka_source,
    "KafkaSink": kafka_sink,
    "KafkaSource, registry": registry_source,
    "KafkaSink, registry": registry_sink,
    "PostgresTwoPhaseSink": lambda: PostgresSink.two_phase(CONNECTION, "t", type_info=ROW),
    "PostgresCommitTableSink": lambda: PostgresSink.commit_table(CONNECTION, "t", type_info=ROW),
    "PostgresChangesSink": lambda: PostgresSink.changes(CONNECTION, "t", key=["a"], type_info=ROW),
    "PostgresUpsertSink": lambda: PostgresSink.upsert(CONNECTION, "t", key=["a"], type_info=ROW),
    "PostgresCdcSource": cdc_source,
    "PostgresSource": lambda: PostgresSource(CONNECTION, "SELECT 1 AS a", key="a"),
    "PostgresSource, keywords": lambda: PostgresSource(KEYWORDS, "SELECT 1 AS a", key="a"),
    "IcebergSource": lambda: IcebergSource("db.t", CATALOG),
    "IcebergSink": lambda: IcebergSink("db.t", CATALOG),
    "PostgresUpsertSink, keywords": lambda: PostgresSink.upsert(KEYWORDS, "t", key=["a"]),
}
#: Connectors of files, memory and the like, and bases of the user's own and of the two of tables.
WITHOUT_SECRETS: Final = {
    *("BlackholeSink", "CollectSink", "DataFrameSink", "DuckDbSink", "EmbeddedSink", "FileSink"),
    *("PrintSink", "SqliteSink", "TableFileSink", "TwoPhaseCommitSinkFunction", "UpsertSink"),
    *("GenericWriteAheadSink", "CollectionSource", "DataGeneratorSource", "FileSource"),
    *("HybridSource", "NumberSequenceSource", "SocketTextStreamSource", "TableSink"),
    *("SqliteSource", "DuckDbSource", "EmbeddedSource"),
    *("DeltaSink", "DeltaSource", "LakehouseSink", "LakehouseSource"),
}


def subclasses(base: type[Any]) -> Iterator[type[Any]]:
    for each in base.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_connector_is_in_the_table() -> None:
    for package in (millstream.connectors, millstream.engines.spark):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    ours = ("millstream.connectors.", "millstream.engines.spark.")
    found = {
        each.__name__
        for base in (Sink, Source)
        for each in subclasses(base)
        if each.__module__.startswith(ours)
    }
    assert found == {name.partition(",")[0] for name in WITH_SECRETS} | WITHOUT_SECRETS


def require_no_secret(root: object) -> None:
    """Look at the repr of every object of ours that can be reached from ``root``."""
    seen: set[int] = set()
    left = [("", root)]
    while left:
        path, value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            left += [(f"{path}[{key!r}]", item) for key, item in value.items()]
        elif isinstance(value, list | tuple | set):
            left += [(f"{path}[{number}]", item) for number, item in enumerate(value)]
        elif type(value).__module__.startswith("millstream."):
            assert SECRET not in repr(value), path
            assert SECRET not in str(value), path
            left += [(f"{path}.{name}", item) for name, item in fields(value).items()]


def fields(value: object) -> dict[str, object]:
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(value, name):
                found[name] = getattr(value, name)
    return found


@pytest.mark.parametrize("name", WITH_SECRETS)
def test_no_repr_shows_a_password(name: str) -> None:
    connector = WITH_SECRETS[name]()
    require_no_secret(connector)
    if isinstance(connector, Sink):
        require_no_secret(connector.create_committer())
        require_no_secret(connector.create_writer(WriterContext("job", "u", 0, 1, 0, "a", 1)))


@pytest.mark.parametrize("name", WITH_SECRETS)
def test_neither_errors_nor_plans_show_a_password(name: str) -> None:
    """Only what need not be reached for a plan; the sources are asked for their types."""
    connector = WITH_SECRETS[name]()
    if name.startswith("Postgres"):
        with pytest.raises(MillstreamError) as caught:
            connector.validate()
        chain: BaseException | None = caught.value
        while chain is not None:
            assert SECRET not in str(chain)
            assert SECRET not in repr(chain)
            chain = chain.__cause__ or chain.__context__
    env = StreamExecutionEnvironment.get_execution_environment()
    if isinstance(connector, Sink):
        env.from_collection([(1,)], ROW).sink_to(connector)
    elif name.startswith("KafkaSource"):
        env.from_source(connector, WatermarkStrategy.no_watermarks(), "source").print()
    else:
        return
    graph = env.get_job_graph("secret")
    assert SECRET not in explain(graph)
    assert SECRET not in repr(graph)
    assert SECRET not in env.get_execution_plan()


@pytest.mark.parametrize(
    "conninfo",
    [
        f"me:{SECRET}@host",
        f"postgresql://me:a/{SECRET}@host/db",
        f"password='{SECRET}",
        f"postgresql://me:a@{SECRET}@host/db",
        f"postgresql://me:a@b/{SECRET}@host/db",
    ],
)
def test_what_is_not_a_connection_string_is_not_shown(conninfo: str) -> None:
    with pytest.raises(MillstreamError, match="not a PostgreSQL connection string") as caught:
        PostgresSink.two_phase(conninfo, "t")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("mode", ["two_phase", "commit_table", "upsert"])
def test_neither_checkpoints_nor_logs_hold_a_password(
    database: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    mode: str,
) -> None:
    """The server asks nobody for one, and takes what it is given."""
    execute(database, "CREATE TABLE t (a bigint PRIMARY KEY)")
    connection = database.replace("@", f":{SECRET}@", 1)
    keys = {"key": ["a"]} if mode == "upsert" else {}
    sink = getattr(PostgresSink, mode)(connection, "t", type_info=ROW, **keys)
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.from_collection([(number,) for number in range(9)], ROW).sink_to(sink)
    with caplog.at_level(logging.DEBUG):
        cluster = MiniCluster(env.get_job_graph("secret"), tmp_path / "checkpoints", limits=[3] * 9)
        cluster.run()
        cluster.coordinator.close()
    assert execute(database, "SELECT count(*) FROM t") == [(9,)]
    files = [path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()]
    assert any(path.parent.name == "log" for path in files)
    for path in files:
        assert SECRET.encode() not in path.read_bytes(), path
    told = capfd.readouterr()
    assert SECRET not in told.out + told.err + caplog.text


# -- SQL -----------------------------------------------------------------------------------------

_SHORT: Final = SECRET[:7]
_KAFKA: Final = (
    "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = '127.0.0.1:1', "
    "'scan.startup.mode' = 'earliest-offset', 'format' = 'json', "
    f"'properties.sasl.jaas.config' = 'x required username=\"me\" password=\"{SECRET}\";'"
)
_JDBC: Final = (
    "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://127.0.0.1:1/db', 'table-name' = 't', "
    f"'username' = 'me', 'password' = '{SECRET}'"
)
_TABLE: Final = "CREATE TABLE t (a BIGINT PRIMARY KEY NOT ENFORCED)"

#: Statements that are refused, with a secret near to what is wrong with them.
REFUSED: Final = (
    f"{_TABLE} WITH ({_JDBC}, )",
    f"{_TABLE} WITH ({_JDBC} 'b' = 'c')",
    f"{_TABLE} WITH ('connector' = 'jdbc', 'password' '{SECRET}')",
    f"{_TABLE} WITH ('connector' = 'jdbc', 'password' = {SECRET})",
    f"{_TABLE} WITH ('connector' = 'jdbc', \"password\" = \"{SECRET}\")",
    f"{_TABLE} WITH ('connector' = 'jdbc', password = '{SECRET}')",
    f"{_TABLE} WITH ('connector' = 'jdbc', 'password' = '{SECRET}",
    f"{_TABLE} WITH ('connector' = 'jdbc', 'properties.sasl.password' = '{SECRET}' nonsense)",
    f"{_TABLE} WITH ('a b'='x','password'='{SECRET}' ! )",
    f"{_TABLE} WITH ('url' = 'postgresql://me:{SECRET}@host/db' nonsense)",
    f"{_TABLE} WITH ('url' = 'postgresql://me:a@b/{SECRET}@host/db' nonsense)",
    f"{_TABLE} WITH ('url' = 'jdbc:postgresql://host/db?user=me&password={SECRET}' nonsense)",
    f"CREATE TABLE t (a BIGINT nonsense) WITH ({_JDBC})",
    f"CREATE TABLE t (a NO_TYPE) WITH ({_KAFKA})",
    f"CREATE TABLE t (a BIGINT, a BIGINT) WITH ({_KAFKA})",
    f"SELECT * FROM t /*+ OPTIONS('password' = '{SECRET}') */ nonsense nonsense",
    f"SELECT * FROM no_table /*+ OPTIONS('password' = '{SECRET}') */",
    f"SET 'x.password' = '{SECRET}' nonsense",
    f"ALTER TABLE no_table SET ('password' = '{SECRET}')",
    f"CREATE CATALOG c WITH ('type' = 'jdbc', 'password' = '{SECRET}')",
)
#: Tables whose options make no sense, which is found when they are read or written.
UNUSABLE: Final = (
    f"{_JDBC}, 'no.such.option' = 'x'",
    f"{_JDBC}, 'lookup.cache' = 'nonsense'",
    f"{_KAFKA}, 'no.such.option' = 'x'",
    f"{_KAFKA}, 'properties.no.such' = 'x'",
    f"'connector' = 'jdbc', 'table-name' = 't', 'url' = 'postgresql://me:a@b/{SECRET}@host/db'",
    f"'connector' = 'jdbc', 'table-name' = 't', 'url' = 'jdbc:postgresql://me:{SECRET}@host/db'",
    f"'connector' = 'jdbc', 'table-name' = 't', 'url' = 'mysql://me:{SECRET}@host/db'",
    f"'connector' = 'jdbc', 'table-name' = 't', 'url' = 'postgresql://me:{SECRET}%zz@host/db'",
    _JDBC,  # nobody listens there
)


def texts_of(error: BaseException) -> str:
    """All that a traceback shows of an error."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("statement", REFUSED)
def test_no_refusal_of_a_statement_shows_a_secret(statement: str) -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    with pytest.raises(MillstreamError) as caught:
        env.execute_sql(statement)
    assert _SHORT not in texts_of(caught.value)


@pytest.mark.parametrize("options", UNUSABLE)
@pytest.mark.parametrize("use", ["SELECT * FROM t", "INSERT INTO t VALUES (1)"])
def test_no_table_that_cannot_be_used_shows_a_secret(
    options: str, use: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def run() -> None:
        env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        env.execute_sql(f"{_TABLE} WITH ({options})")
        env.execute_sql(use).wait()

    with caplog.at_level(logging.DEBUG), pytest.raises(MillstreamError) as caught:
        run()
    shown = capfd.readouterr()
    assert _SHORT not in texts_of(caught.value) + shown.out + shown.err + caplog.text


def test_no_statement_that_shows_options_shows_a_secret() -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    env.execute_sql(f"CREATE TABLE jdbc (a BIGINT PRIMARY KEY NOT ENFORCED) WITH ({_JDBC})")
    env.execute_sql(f"CREATE TABLE kafka (a BIGINT) WITH ({_KAFKA})")
    address = f"jdbc:postgresql://host/db?user=me&password={SECRET}"
    env.execute_sql(
        "CREATE TABLE address (a BIGINT PRIMARY KEY NOT ENFORCED) WITH "
        f"('connector' = 'jdbc', 'table-name' = 't', 'url' = '{address}')"
    )
    env.execute_sql(f"SET 'my.password' = '{SECRET}'")
    env.execute_sql(f"SET 'my.address' = 'https://me:{SECRET}@host/path'")
    shown = [
        "\n".join(str(row) for row in env.execute_sql(statement).collect())
        for statement in (
            *("SHOW CREATE TABLE jdbc", "SHOW CREATE TABLE kafka", "SHOW CREATE TABLE address"),
            *(
                "DESCRIBE jdbc",
                "EXPLAIN SELECT * FROM kafka",
                "EXPLAIN INSERT INTO jdbc VALUES (1) ON CONFLICT DO DEDUPLICATE",
            ),
            f"EXPLAIN SELECT * FROM kafka /*+ OPTIONS('properties.ssl.key.pem' = '{SECRET}') */",
            "SET",
        )
    ]
    for text in (
        *shown,
        repr(env.get_config().get_configuration()),
        repr(env.sql_query("SELECT 1")),
    ):
        assert _SHORT not in text
    assert "'password' = '******'" in shown[0]
    assert "'properties.sasl.jaas.config' = '******'" in shown[1]
    assert "user=me&password=******" in shown[2]
    assert "https://me:******@host/path" in shown[-1]


def test_masked_statements_keep_positions_and_lines() -> None:
    text = f"WITH ('password' = '{SECRET}\n  more', 'topic' = 'shown') WHERE token = shown"
    masked = masked_statement(text)
    assert len(masked) == len(text)
    assert masked.count("\n") == 1
    assert masked.index("'topic' = 'shown'") == text.index("'topic' = 'shown'")
    assert masked.endswith("WHERE token = shown")
    assert SECRET not in masked


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("city:Berlin,db.password:hunter2", "city:Berlin,db.password:******"),
        ("{api-key: hunter2, city: Berlin}", "{api-key: ******, city: Berlin}"),
        ("a.token = 'hun ter2'; b=1", "a.token = ******; b=1"),
        ("-Djdbc.password=hunter2 -Dx=1", "-Djdbc.password=****** -Dx=1"),
        ("10 s", "10 s"),
        ("s3://bucket/path:1", "s3://bucket/path:1"),
    ],
)
def test_secrets_among_the_entries_of_an_option_are_masked(value: str, shown: str) -> None:
    assert redacted("pipeline.global-job-parameters", value) == shown


@pytest.mark.parametrize(
    "written",
    [
        f"'password'=\n'{SECRET}' oops",
        f"'password' -- a comment\n = /* another\none */ '{SECRET}' oops",
        f"'password' = N'{SECRET}' oops",
        f"'password' = U&'{SECRET}' oops",
        f"'password' = _utf8'{SECRET}' oops",
        f"'password' = '{SECRET}",
        f"`my.password` = {SECRET} oops",
    ],
)
def test_secrets_are_masked_however_they_are_written(written: str) -> None:
    masked = masked_statement(f"CREATE TABLE t (a INT) WITH ({written})")
    assert SECRET not in masked
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    with pytest.raises(MillstreamError) as caught:
        env.execute_sql(f"CREATE TABLE t (a INT) WITH ({written})")
    assert _SHORT not in texts_of(caught.value)


@pytest.mark.parametrize("written", [f"my.password={SECRET}", f"my.password = a, b {SECRET};"])
def test_secrets_without_quotes_are_masked_in_set(written: str) -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    with pytest.raises(MillstreamError, match="keys and values of options are strings") as caught:
        env.execute_sql(f"SET {written}")
    assert _SHORT not in texts_of(caught.value)


def test_hints_in_views_and_addresses_of_files_show_no_secret() -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    env.execute_sql(f"CREATE TABLE kafka (a BIGINT) WITH ({_KAFKA})")
    hint = f"/*+ OPTIONS('properties.ssl.key.password' = '{SECRET}') */"
    env.execute_sql(f"CREATE VIEW v AS SELECT a FROM kafka {hint}")
    [shown] = [str(row) for row in env.execute_sql("SHOW CREATE VIEW v").collect()]
    assert _SHORT not in shown
    assert "'properties.ssl.key.password' = '*" in shown
    env.execute_sql(
        "CREATE TABLE files (a INT) WITH ('connector' = 'filesystem', 'format' = 'csv',"
        f" 'path' = 'nowhere://key:{SECRET}@bucket/x')"
    )
    for use in ("SELECT * FROM files", "INSERT INTO files VALUES (1)"):
        with pytest.raises(MillstreamError) as caught:
            env.execute_sql(use).wait()
        assert _SHORT not in str(caught.value)


@pytest.mark.parametrize(
    "statement", ["SELECT 'a' AS b, c = 'd' FROM t", "SELECT x FROM password_resets", "tokens(a)"]
)
def test_statements_without_secrets_are_not_masked(statement: str) -> None:
    assert masked_statement(statement) == statement
