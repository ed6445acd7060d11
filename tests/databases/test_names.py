"""Tables and columns with names that SQL, clients and messages could misread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.databases.database_job import job_graph
from tests.databases.server import execute
from tests.databases.targets import TARGETS
from tests.databases.test_refusals import ALL, change

from millstream.common import Row
from millstream.connectors.commit_protocols.commit_table import table_parts
from millstream.connectors.embedded.duckdb import DuckDbSink
from millstream.connectors.embedded.sqlite import SqliteSink
from millstream.connectors.postgres.sink import PostgresSink
from millstream.connectors.postgres.source import PostgresSource
from millstream.contracts.batch import Batch
from millstream.contracts.sink import CommitRequest, WriterContext
from millstream.errors import SinkError
from millstream.graph.explain import explain
from millstream.graph.validation import connector_label
from millstream.testing.conformance import read_records
from millstream.types.types import from_arrow_schema

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.sink import Sink

#: As SQL has it -> as users write it.
NAMES = {
    '"100% %s"': "100% %s",
    '"a.b"': '"a.b"',
    '"a ""b"".%c"': '"a ""b"".%c"',
    '"$1?:x"': "$1?:x",
}
FIELDS = from_arrow_schema(pa.schema({"k%s": pa.string(), "n.$1": pa.int64()}))


def sink_of(kind: str, address: str, table: str) -> Sink:
    options: dict[str, Any] = {"type_info": FIELDS}
    match kind:
        case "sqlite":
            return SqliteSink(address, table, fsync=False, **options)
        case "duckdb":
            return DuckDbSink(address, table, fsync=False, **options)
        case "postgres-two-phase":
            return PostgresSink.two_phase(address, table, **options)
        case "postgres-commit-table":
            return PostgresSink.commit_table(address, table, key=["k%s"], **options)
        case _:
            return PostgresSink.upsert(address, table, key=["k%s"], epoch_column="e%", **options)


def address_of(kind: str, request: pytest.FixtureRequest, path: Path) -> str:
    if kind.startswith("postgres"):
        address: str = request.getfixturevalue("database")
        return address
    return str(path / "results.db")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", NAMES)
def test_a_table_with_an_odd_name(
    kind: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    target = TARGETS[kind](address_of(kind, request, tmp_path))
    change(target, f'CREATE TABLE {name} ("k%s" TEXT UNIQUE, "n.$1" BIGINT, "e%" BIGINT)')
    sink = sink_of(kind, target.address, NAMES[name])
    sink.validate()
    sink.validate_input(FIELDS)
    writer = sink.create_writer(WriterContext("job", "sink", 0, 1, 1, "a", 3))
    writer.write(Batch(FIELDS, values=[Row(**{"k%s": "a", "n.$1": 7})]))
    made = writer.prepare_commit()
    writer.close()
    committer = sink.create_committer()
    if committer is not None:
        committer.commit([CommitRequest(item, 1, retried=False) for item in made])
        committer.abort_orphans("job", "sink", made, 3)
        committer.close()
    assert target.read(f'SELECT "k%s", "n.$1" FROM {name}') == [("a", 7)]


def test_a_source_of_a_table_with_an_odd_name(database: str) -> None:
    execute(database, 'CREATE TABLE "a.b %s" ("k%" TEXT, n BIGINT)')
    execute(database, """INSERT INTO "a.b %s" VALUES ('100%', 1), ('x', 2)""")
    query = """SELECT * FROM "a.b %s" WHERE "k%" LIKE '%0%'"""
    source = PostgresSource(database, query, key="k%", splits=1)
    source.validate()
    (split,) = source.discover(frozenset())
    read = read_records(source, split, source.start_offset(split), source.end_offset(split))
    assert [record[0] for record in read] == ["100%"]  # type: ignore[index]


@pytest.mark.parametrize("kind", ["postgres-two-phase", "duckdb"])
def test_a_dot_that_was_not_meant(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    target = TARGETS[kind](address_of(kind, request, tmp_path))
    change(target, 'CREATE TABLE "a.b" ("k%s" TEXT, "n.$1" BIGINT)')
    with pytest.raises(SinkError, match=r"""a dot separates .* write '"a\.b"' if it is"""):
        sink_of(kind, target.address, "a.b").validate()


def test_sqlite_takes_a_dot_as_it_is(tmp_path: Path) -> None:
    target = TARGETS["sqlite"](str(tmp_path / "results.db"))
    change(target, 'CREATE TABLE "a.b" ("k%s" TEXT, "n.$1" BIGINT)')
    for name in ("a.b", '"a.b"', 'main."a.b"'):
        sink_of("sqlite", target.address, name).validate()


def test_schema_and_table(database: str) -> None:
    schema = database.rpartition("%3D")[2]
    execute(database, 'CREATE TABLE "a.b" ("k%s" TEXT UNIQUE, "n.$1" BIGINT)')
    for kind in ("postgres-two-phase", "postgres-commit-table"):
        sink_of(kind, database, f'{schema}."a.b"').validate()


def test_parts_of_a_name() -> None:
    assert table_parts("counts") == ["counts"]
    assert table_parts("s.counts") == ["s", "counts"]
    assert table_parts('s."a.""b"""') == ["s", 'a."b"']
    assert table_parts('half"quoted') == ['half"quoted']
    assert table_parts("a..b") == ["a..b"]


@pytest.mark.parametrize("kind", ALL)
def test_the_table_is_in_the_name_of_the_sink(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    address = address_of(kind, request, tmp_path)
    graph = job_graph(sink_of(kind, address, "counts"))
    other = job_graph(sink_of(kind, address, "other"))
    (node,) = (each for each in graph.nodes.values() if each.sink is not None)
    assert node.name == f"Sink: {type(node.sink).__name__} counts"
    assert node.name in explain(graph)
    assert node.name in connector_label(node)
    assert graph.nodes.keys() == other.nodes.keys()


def test_a_uid_is_not_made_of_the_table(database: str) -> None:
    from millstream.datastream import StreamExecutionEnvironment

    def uid(table: str) -> str:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([1]).sink_to(PostgresSink.two_phase(database, table))
        nodes = env.get_job_graph("job").nodes.values()
        return next(node.uid for node in nodes if node.sink is not None)

    assert uid("one") == uid("other")
