"""What cannot be reached or is not there is said at submit, before anything is written.

Every message names the source or sink in the program, the target, what is wrong and what to do.
"""

from __future__ import annotations

import re
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.bad_input.jobs import RESULT, sink_graph, source_graph, submit
from tests.bad_input.outlets import KafkaOutlet, make_outlet
from tests.databases.server import PostgresServer, execute

from millstream.common import SimpleStringSchema
from millstream.connectors.embedded.duckdb import DuckDbSink
from millstream.connectors.embedded.sqlite import SqliteSink
from millstream.connectors.files.sink import FileSink
from millstream.connectors.files.source import FileSource
from millstream.connectors.kafka.client import KafkaCluster
from millstream.connectors.postgres.sink import PostgresSink
from millstream.connectors.postgres.source import PostgresSource
from millstream.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from millstream.errors import SinkError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.kafka.broker import Broker

    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source

POSTGRES = ["two_phase", "commit_table", "upsert"]
KAFKA = ["EXACTLY_ONCE", "AT_LEAST_ONCE", "NONE"]
#: Never resolves (RFC 2606).
NOWHERE = "nowhere.invalid"
SECRET = "do-not-show"
#: Seconds; only a client that never finds out waits so long.
LONGEST = 60.0


@pytest.fixture(scope="module")
def refused() -> Iterator[int]:
    """A port at which nobody listens, and that nobody else can take meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


class Impatient:
    """A client that gives up as soon as it knows why it reaches no broker, however long that takes.

    The real one waits for its whole time-out, in which a broker may come back.
    """

    def __init__(self, inner: Any, trouble: Callable[[], str]) -> None:
        self.inner = inner
        self.trouble = trouble

    def poll(self, timeout: float) -> Any:
        return self.inner.poll(timeout)

    def list_topics(self, timeout: float) -> Any:
        limit = time.monotonic() + LONGEST
        while not self.trouble() and time.monotonic() < limit:
            self.inner.poll(0.05)
        return self.inner.list_topics(timeout=0.1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = KafkaCluster._connect

    def connect_impatiently(cluster: KafkaCluster, properties: Mapping[str, str]) -> Any:
        return Impatient(connect(cluster, properties), lambda: cluster._log.trouble)

    monkeypatch.setattr(KafkaCluster, "_connect", connect_impatiently)


def postgres_sink(kind: str, conninfo: str, table: str = "results", **options: Any) -> Sink:
    if kind == "upsert":
        options = {"key": ["key", "n"], **options}
    made: Sink = getattr(PostgresSink, kind)(conninfo, table, **options)
    return made


def kafka_sink(guarantee: str, servers: str, topic: str = "t") -> Sink:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee[guarantee])
        .build()
    )


def kafka_source(servers: str, topic: str = "t") -> Source:
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(topic)
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )


def refuses(connector: Sink | Source, directory: Path, *says: str) -> None:
    """The job is refused, and the error says it all."""
    is_sink = hasattr(connector, "create_writer")
    with pytest.raises((SinkError, SourceError)) as caught:
        submit(
            sink_graph(connector)  # type: ignore[arg-type]
            if is_sink
            else source_graph(connector, directory / "collected")  # type: ignore[arg-type]
        )
    message = str(caught.value)
    assert isinstance(caught.value, SinkError if is_sink else SourceError)
    name = r"sink 'results' \(jobs.py:\d+, uid results-sink\)"
    if not is_sink:
        name = r"source 'Source: rows' \(jobs.py:\d+, uid rows\)"
    for each in (f"^{name}: ", *says):
        assert re.search(each, message), f"{each} is not in: {message}"
    assert SECRET not in message
    print(message)


# -- unreachable -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*POSTGRES, "source"])
def test_a_database_server_that_cannot_be_reached(
    kind: str, refused: int, server: PostgresServer, tmp_path: Path
) -> None:
    for place, says in (
        (f"127.0.0.1:{refused}/db", "(?i)refused"),
        (f"{NOWHERE}:5432/db", "(?i)resolve|not known"),
        (f"127.0.0.1:{server.port}/missing", 'database "missing" does not exist'),
    ):
        conninfo = f"postgresql://millstream:{SECRET}@{place}"
        connector: Any = (
            PostgresSource(conninfo, "SELECT 1 AS i", key="i")
            if kind == "source"
            else postgres_sink(kind, conninfo)
        )
        if kind == "source":
            with pytest.raises(SourceError, match=says) as caught:
                connector.validate()
            assert place in str(caught.value)
            assert "Check" in str(caught.value)
            assert SECRET not in str(caught.value)
        else:
            refuses(connector, tmp_path, place, says, "Check")


def test_a_wrong_password(server: PostgresServer, tmp_path: Path) -> None:
    with server.password_wanted("guarded", "right") as conninfo:
        good = conninfo.replace("guarded:", "guarded:right")
        execute(good, "SELECT 1")
        wrong = conninfo.replace("guarded:", f"guarded:{SECRET}")
        for kind in POSTGRES:
            refuses(
                postgres_sink(kind, wrong),
                tmp_path,
                f"127.0.0.1:{server.port}/postgres",
                'password authentication failed for user "guarded"',
                "Check",
            )
        with pytest.raises(SourceError, match=r"password authentication failed.*Check"):
            PostgresSource(wrong, "SELECT 1 AS i", key="i").validate()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("guarantee", [*KAFKA, "source"])
def test_a_broker_that_cannot_be_reached(guarantee: str, refused: int, tmp_path: Path) -> None:
    for servers, says in ((f"127.0.0.1:{refused}", "refused"), (f"{NOWHERE}:9092", "resolve")):
        made: Any = (
            kafka_source(servers) if guarantee == "source" else kafka_sink(guarantee, servers)
        )
        refuses(made, tmp_path, "'t'", servers, f"(?i){says}", "Check bootstrap.servers")


# -- missing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", [*KAFKA, "source"])
def test_a_missing_topic(guarantee: str, broker: Broker, tmp_path: Path) -> None:
    there = broker.topic()
    missing = f"{there}s"  # among many, the one that may have been meant is named first
    made: Any = (
        kafka_source(broker.servers, missing)
        if guarantee == "source"
        else kafka_sink(guarantee, broker.servers, missing)
    )
    told = (f"no topic '{missing}'", broker.servers, f"topics there: {there}[,.]")
    refuses(made, tmp_path, *told, "Create it, or correct")


@pytest.mark.parametrize("kind", POSTGRES)
def test_tables_of_postgres(kind: str, server: PostgresServer, tmp_path: Path) -> None:
    conninfo = server.new_schema()
    place = f"127.0.0.1:{server.port}/postgres"
    refuses(postgres_sink(kind, conninfo), tmp_path, "no table 'results'", place, "create it")
    execute(conninfo, "CREATE TABLE results (key TEXT, m BIGINT, id BIGINT)")
    sink = postgres_sink(kind, conninfo, type_info=RESULT)
    refuses(sink, tmp_path, "'results'", place, r"no column 'n'; it has \['key', 'm'", "columns=")
    execute(conninfo, "ALTER TABLE results RENAME COLUMN m TO n")
    if kind == "upsert":
        sink = postgres_sink(kind, conninfo)
        refuses(
            sink, tmp_path, "'results'", place, "no unique", r"CREATE UNIQUE INDEX ON .*\"n\"\)"
        )
    elif kind == "two_phase":
        several = sink_graph(postgres_sink(kind, conninfo), parallelism=9)
        with pytest.raises(SinkError, match=r"sink 'results'.*parallelism 9 needs at least 18"):
            submit(several)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_files_of_databases(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    make: Any = SqliteSink if kind == "sqlite" else DuckDbSink
    missing = tmp_path / "missing.db"
    refuses(make(missing, "results"), tmp_path, f"no database {missing}; create it")
    assert not missing.exists()
    text = tmp_path / "text"
    text.write_text("no database at all " * 500)
    refuses(make(text, "results", timeout=0.1), tmp_path, str(text), "(?i)not a.* database")
    outlet: Any = make_outlet(kind, request, tmp_path)
    address = outlet.target.address
    refuses(make(address, "missing"), tmp_path, f"no table 'missing' of {address}; create it")
    outlet.execute("ALTER TABLE results RENAME COLUMN n TO m")
    refuses(outlet.sink(type_info=RESULT), tmp_path, address, r"no column 'n'; it has .*'m'")


def test_paths_of_files(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    refuses(FileSink.csv(str(file / "out")), tmp_path, f"cannot write to {file}/out", "directory")
    missing = str(tmp_path / "missing")
    refuses(FileSource.csv(missing, schema=RESULT), tmp_path, missing, "correct the path")
    refuses(FileSource.csv("nothing://there/x", schema=RESULT), tmp_path, "nothing://there/x")


@pytest.mark.parametrize(
    ("query", "key", "says"),
    [
        ("SELECT * FROM missing", "i", 'relation "missing" does not exist'),
        ("SELECT no FROM numbers", "i", 'column "no" does not exist'),
        ("SELECT * FROM numbers", "j", r"no column 'j'; it has \['i', 'square', 'label'\]"),
        (
            "SELECT i > 0 AS yes FROM numbers",
            "yes",
            "is of type bool; it must be an integer",
        ),
        ("SELECT i, i::numeric AS n FROM numbers", "i", r"'n' is numeric.*cast it in the query"),
    ],
)
def test_queries(query: str, key: str, says: str, server: PostgresServer) -> None:
    conninfo = server.new_schema()
    execute(conninfo, "CREATE TABLE numbers (i INT, square BIGINT, label TEXT)")
    place = f"PostgreSQL 127.0.0.1:{server.port}/postgres"
    with pytest.raises(SourceError, match=says) as caught:  # as soon as the stream is made
        PostgresSource(conninfo, query, key=key).validate()
    assert f"query '{query}' to {place}" in str(caught.value)


def test_a_topic_that_is_made_afterwards(broker: Broker, tmp_path: Path) -> None:
    outlet = KafkaOutlet(broker, DeliveryGuarantee.EXACTLY_ONCE)
    later = f"{outlet.topic}-later"
    refuses(outlet.sink(topic=later), tmp_path, later)
    broker.admin.create_topics({later: {"num_partitions": 1, "replication_factor": 1}})
    submit(sink_graph(outlet.sink(topic=later)))
