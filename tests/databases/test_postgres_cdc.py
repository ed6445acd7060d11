"""Changes of PostgreSQL tables: every one of them, once, and what refuses to give them."""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.databases.change_writer import CREATE, ChangeWriter, content, materialized
from tests.databases.server import execute

from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.connectors.postgres.changes import VisibleTransactions
from millstream.connectors.postgres.pgoutput import Begin
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.postgres_cdc import PostgresCdcSource, StartupMode
from millstream.errors import ConfigurationError, SourceError
from millstream.functions.watermark_strategy import WatermarkStrategy
from millstream.testing.conformance import read_records
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.databases.server import PostgresServer

    from millstream.graph.model import JobGraph


def schema_of(database: str) -> str:
    return database.rpartition("%3D")[2]


@pytest.fixture
def items(database: str) -> Iterator[str]:
    """How to connect to a schema with the table; its slot is dropped at the end."""
    execute(database, CREATE)
    yield database
    slot = schema_of(database)
    deadline = time.monotonic() + 20
    name = f"slot_name = '{slot}'"
    while execute(database, f"SELECT FROM pg_replication_slots WHERE {name} AND active"):
        assert time.monotonic() < deadline, "somebody still reads the slot"
        time.sleep(0.02)
    execute(
        database,
        f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE {name}",
    )


def source_of(
    server: PostgresServer, database: str, mode: StartupMode = StartupMode.INITIAL
) -> PostgresCdcSource:
    schema = schema_of(database)
    builder = PostgresCdcSource.builder().hostname("127.0.0.1").port(server.port)
    builder.database("postgres").username("millstream").table_list(f"{schema}.items")
    return builder.slot_name(schema).startup_options(mode).heartbeat_interval(0.05).build()


def graph_of(source: PostgresCdcSource, out: Path) -> JobGraph:
    """A job that collects the changes."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "items").uid("items")
    stream.sink_to(CollectSink(out, fsync=False)).uid("out")
    return env.get_job_graph("items")


def wait_for(condition: Callable[[], object], what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.both_engines
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(3))
def test_oracle_of_random_transactions(
    server: PostgresServer, items: str, tmp_path: Path, seed: int
) -> None:
    """Transactions overlap the snapshot, each epoch and each restart."""
    writer = ChangeWriter(items, seed)
    writer.step(60)
    beside = threading.Thread(target=writer.end_all)
    beside.start()  # the snapshot waits for the transactions that are open
    try:
        for _ in range(4):
            graph = graph_of(source_of(server, items), tmp_path / "out")
            cluster = MiniCluster(graph, tmp_path / "checkpoints", limits=[20_000] * 9, seed=seed)
            for _ in range(3):
                cluster.run_epoch()
                if beside.is_alive():
                    beside.join()
                writer.step(15)
            cluster.close_instances()
            close(cluster)
    finally:
        beside.join()
        writer.finish()
    wanted = content(items)

    def is_complete() -> bool:
        graph = graph_of(source_of(server, items), tmp_path / "out")
        cluster = MiniCluster(graph, tmp_path / "checkpoints", seed=seed)
        for _ in range(3):
            cluster.run_epoch()
        cluster.close_instances()
        close(cluster)
        return materialized(read_collected(tmp_path / "out")) == wanted

    wait_for(is_complete, f"seed {seed}: {content(items)!r:.500}")


def close(cluster: MiniCluster) -> None:
    cluster._run.close()


def test_visible_transactions_over_a_wrapped_counter() -> None:
    after = (5 << 32) + 10
    found = VisibleTransactions(f"{after - 20}:{after}:{after - 15},{after - 3}", until=100)

    def is_visible(xid: int, lsn: int = 50) -> bool:
        return found.has(Begin(lsn, 0, xid % (1 << 32)))

    assert is_visible(after - 21)
    assert is_visible(after - 14)
    assert not is_visible(after - 15)
    assert not is_visible(after - 3)
    assert not is_visible(after)
    assert not is_visible(after + 5)
    assert not is_visible(after - 21, lsn=101)


def test_the_slot_follows_checkpoints(server: PostgresServer, items: str, tmp_path: Path) -> None:
    execute(items, "INSERT INTO items SELECT i FROM generate_series(1, 10) i")
    source = source_of(server, items)
    cluster = MiniCluster(graph_of(source, tmp_path / "out"), tmp_path / "checkpoints")
    query = (
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots"
        f" WHERE slot_name = '{schema_of(items)}'"
    )
    cluster.run_epoch()
    seen = {execute(items, query)[0][0]}
    for number in range(20, 23):
        execute(items, f"INSERT INTO items VALUES ({number})")
        cluster.run_epoch()
        seen.add(execute(items, query)[0][0])
    cluster.close_instances()
    close(cluster)
    assert len(seen) >= 3


REFUSALS = {
    "no old rows": ("ALTER TABLE items REPLICA IDENTITY DEFAULT", "REPLICA IDENTITY FULL"),
    "no table": ("DROP TABLE items", "there is no such table"),
}


@pytest.mark.parametrize("case", sorted(REFUSALS))
def test_refused_before_anything_is_read(server: PostgresServer, items: str, case: str) -> None:
    statement, message = REFUSALS[case]
    source = source_of(server, items)
    assert source.produced_type is not None
    execute(items, statement)
    with pytest.raises(SourceError, match=message):
        source.validate()


def test_insufficient_rights_and_a_wrong_password(server: PostgresServer, items: str) -> None:
    schema, user = schema_of(items), f"cdc_{schema_of(items)}"
    with server.password_wanted(user, "right-one"):
        builder = PostgresCdcSource.builder().hostname("127.0.0.1").port(server.port)
        builder.database("postgres").username(user).table_list(f"{schema}.items").slot_name(schema)
        with pytest.raises(SourceError, match="Check host, port, database, user") as wrong:
            builder.password("wrong-one").build().validate()
        assert "wrong-one" not in str(wrong.value)
        source = builder.password("right-one").build()
        execute(items, f"GRANT USAGE ON SCHEMA {schema} TO {user}")
        with pytest.raises(SourceError, match=f'ALTER ROLE "?{user}"? REPLICATION'):
            source.validate()
        execute(items, f"ALTER ROLE {user} REPLICATION")
        with pytest.raises(SourceError, match="GRANT SELECT ON"):
            source.validate()
        execute(items, f"GRANT SELECT ON items TO {user}")
        source.validate()
        source.start()
        with pytest.raises(SourceError, match="CREATE PUBLICATION"):
            source.discover(frozenset())
        source.stop()
        execute(items, f"DROP OWNED BY {user}")


def changes_after(
    server: PostgresServer, database: str, *statements: str
) -> list[tuple[str, tuple[Any, ...]]]:
    """The changes that statements make, as a cursor reads them."""
    source = source_of(server, database, StartupMode.LATEST_OFFSET)
    assert source.produced_type is not None  # looked up when the stream is made
    source.start()
    (split,) = source.discover(frozenset())
    cursor = source.open_cursor(split, source.start_offset(split))
    found: list[tuple[str, tuple[Any, ...]]] = []
    try:
        for statement in statements:
            execute(database, statement)
        end = source.end_offset(split)
        deadline = time.monotonic() + 20
        while cursor.position < end:
            assert time.monotonic() < deadline
            batch = cursor.poll(100)
            for row in [] if batch is None or batch.arrow is None else batch.arrow.to_pylist():
                kind = ["+I", "-U", "+U", "-D"][row.pop("$row_kind", 0)]
                found.append((kind, tuple(row.values())))
    finally:
        cursor.close()
        source.stop()
    return found


VALUES = {
    "small smallint": ("-3", -3),
    "number numeric(6, 2)": ("12.50", Decimal("12.50")),
    "free numeric": ("1e30", "1" + 30 * "0"),
    "flag bool": ("true", True),
    "padded char(3)": ("'a'", "a  "),
    "day date": ("'2024-02-29'", dt.date(2024, 2, 29)),
    "hour time": ("'10:00:00.5'", dt.time(10, 0, 0, 500_000)),
    "local timestamp": (
        "'2024-01-01 10:00:00.123456'",
        dt.datetime.fromisoformat("2024-01-01 10:00:00.123456"),
    ),
    "token uuid": (f"'{'0' * 32}'", "00000000-0000-0000-0000-000000000000"),
    "document jsonb": ("""'{"a": [1]}'""", '{"a": [1]}'),
    "content bytea": (r"'\x00ff'", b"\x00\xff"),
    "tags text[]": ("""ARRAY['a,b', NULL, 'c"d', '']""", ["a,b", None, 'c"d', ""]),
    "real float8": ("'-Infinity'", float("-inf")),
}


def test_values_are_the_same_in_snapshot_and_stream(server: PostgresServer, items: str) -> None:
    execute(items, "DROP TABLE items")
    execute(items, f"CREATE TABLE items (id int PRIMARY KEY, {', '.join(VALUES)})")
    execute(items, "ALTER TABLE items REPLICA IDENTITY FULL")
    insert = f"VALUES (1, {', '.join(text for text, _ in VALUES.values())})"
    rows = changes_after(server, items, f"INSERT INTO items {insert}")
    wanted = (1, *(value for _, value in VALUES.values()))
    assert rows == [("+I", wanted)]
    snapshot = source_of(server, items, StartupMode.SNAPSHOT)
    (split,) = snapshot.discover(frozenset())
    found: list[Any] = read_records(snapshot, split, 0, 1)
    assert [tuple(row) for row in found] == [wanted]
    snapshot.stop()


def test_schema_changes(server: PostgresServer, items: str) -> None:
    """An added column is passed over; one that is removed or changed is named."""
    rows = changes_after(
        server,
        items,
        "INSERT INTO items VALUES (1)",
        "ALTER TABLE items ADD COLUMN more int DEFAULT 7",
        "INSERT INTO items VALUES (2)",
    )
    assert rows == [("+I", (1, None, None, None)), ("+I", (2, None, None, None))]
    with pytest.raises(SourceError, match="column 'name' was dropped or renamed"):
        changes_after(
            server,
            items,
            "ALTER TABLE items RENAME COLUMN name TO label",
            "INSERT INTO items VALUES (3)",
        )


def test_a_column_of_another_type_and_truncate(server: PostgresServer, items: str) -> None:
    with pytest.raises(SourceError, match="column 'amount' has another type now"):
        changes_after(
            server,
            items,
            "ALTER TABLE items ALTER COLUMN amount TYPE text",
            "INSERT INTO items VALUES (1)",
        )
    with pytest.raises(SourceError, match="TRUNCATE deleted all rows"):
        changes_after(server, items, "INSERT INTO items VALUES (2)", "TRUNCATE items")


def test_a_lost_slot_is_named(server: PostgresServer, items: str) -> None:
    source = source_of(server, items)
    source.start()
    (split,) = source.discover(frozenset())
    begin = int(str(split.properties["begin"]))
    source.drop_slot()
    cursor = source.open_cursor(split, begin)
    with pytest.raises(SourceError, match="is missing, and the changes since it was dropped"):
        cursor.poll(10)
    cursor.close()
    source.stop()
    again = source_of(server, items, StartupMode.LATEST_OFFSET)
    again.start()
    execute(items, "INSERT INTO items VALUES (1)")
    again.discover(frozenset())
    cursor = again.open_cursor(split, begin)
    with pytest.raises(SourceError, match="was confirmed up to"):
        cursor.poll(10)
    cursor.close()
    again.stop()


def test_a_server_that_crashes(server: PostgresServer, items: str) -> None:
    """The task fails with an error that names the table; a new cursor continues exactly there."""
    source = source_of(server, items, StartupMode.LATEST_OFFSET)
    assert source.produced_type is not None
    source.start()
    (split,) = source.discover(frozenset())
    cursor = source.open_cursor(split, source.start_offset(split))
    ids: list[int] = []

    def read() -> bool:
        batch = cursor.poll(100)
        ids.extend(batch.arrow.column("id").to_pylist() if batch and batch.arrow else [])
        return bool(batch)

    execute(items, "INSERT INTO items VALUES (1)")
    wait_for(read, "the first change did not come")
    server.crash()
    with pytest.raises(SourceError, match=f"table {schema_of(items)}.items"):
        wait_for(read, "the crash was not noticed")
    cursor.close()
    server.start(16)
    execute(items, "INSERT INTO items VALUES (2)")
    cursor = source.open_cursor(split, cursor.position)
    wait_for(read, "the second change did not come")
    assert ids == [1, 2]
    cursor.close()
    source.stop()


def test_a_server_without_logical_replication(server: PostgresServer, items: str) -> None:
    server.stop_using_slots()
    try:
        server.start(16, wal_level="replica")
        with pytest.raises(SourceError, match="ALTER SYSTEM SET wal_level = 'logical'"):
            source_of(server, items).validate()
    finally:
        server.start(16)


def test_what_the_builder_refuses() -> None:
    builder = PostgresCdcSource.builder().hostname("a").username("b").database("c")
    with pytest.raises(ConfigurationError, match=re.escape("needs table(...)")):
        builder.build()
    with pytest.raises(ConfigurationError, match="pgoutput"):
        builder.decoding_plugin_name("wal2json")
    with pytest.raises(ConfigurationError, match="'all' or 'upsert'"):
        builder.changelog_mode("some")
