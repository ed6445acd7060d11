"""Rows, tables and columns that a database refuses: said once, for good, and mended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.databases.database_job import cluster, expected, job_graph
from tests.databases.targets import TARGETS, PostgresTarget, Target, UpsertTarget

from millstream.common import Row, Types
from millstream.connectors.postgres.sink import PostgresSink
from millstream.contracts.batch import Batch
from millstream.contracts.sink import WriterContext
from millstream.errors import PermanentSinkError, SinkError
from millstream.graph.validation import validate_connectors

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases.server import PostgresServer

    from millstream.contracts.sink import Committable
    from millstream.types.types import TypeInformation

ALL = ["sqlite", "duckdb", "postgres-two-phase", "postgres-commit-table", "postgres-upsert"]
#: Of records of which the table lacks a column.
OTHER = "key TEXT, n BIGINT, epoch BIGINT, UNIQUE (key, n)"


@pytest.fixture(params=ALL)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param.startswith("postgres"):
        return TARGETS[request.param](request.getfixturevalue("database"))
    return TARGETS[request.param](str(tmp_path / "results.db"))


def change(target: Target, statement: str) -> None:
    """Run a statement in the database."""
    if isinstance(target, PostgresTarget):
        target.read(statement)
        return
    import importlib

    kind = "duckdb" if "DuckDb" in type(target).__name__ else "sqlite3"
    connection: Any = importlib.import_module(kind).connect(target.address)
    connection.execute(statement)
    connection.commit()
    connection.close()


def create(target: Target, columns: str) -> None:
    change(target, f"CREATE TABLE results ({columns})")


def test_wrong_columns_are_found_at_submit(target: Target) -> None:
    """Without ``type_info``: the stream knows its type."""
    create(target, OTHER)
    graph = job_graph(target.sink())
    with pytest.raises(SinkError, match=r"has no column 'id'; it has \['key', 'n'"):
        validate_connectors(graph)


def test_a_key_that_the_records_lack_is_found_at_submit(database: str) -> None:
    target = TARGETS["postgres-upsert"](database)
    create(target, "key TEXT, n BIGINT, id BIGINT, epoch BIGINT, place TEXT UNIQUE")
    for sink in (
        PostgresSink.upsert(database, "results", key=["place"]),
        PostgresSink.commit_table(database, "results", key=["place"]),
    ):
        with pytest.raises(SinkError, match=r"the records lack \['place'\] of the key"):
            validate_connectors(job_graph(sink))


def prepare(target: Target, kind: TypeInformation, *rows: Row, **more: Any) -> list[Committable]:
    writer = target.sink(**more).create_writer(WriterContext("job", "sink", 0, 2, 1, "a", 3))
    try:
        writer.write(Batch(kind, values=list(rows)))
        return list(writer.prepare_commit())
    finally:
        writer.close()


def test_a_row_that_breaks_a_constraint(target: Target) -> None:
    create(target, "key TEXT, n BIGINT CHECK (n > 0), epoch BIGINT, UNIQUE (key, n)")
    kind = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
    with pytest.raises(PermanentSinkError, match=r"Correct the record"):
        prepare(target, kind, Row(key="a", n=1), Row(key="b", n=-1))


def test_a_value_of_the_wrong_type(target: Target) -> None:
    strict = ") STRICT" if "Sqlite" in type(target).__name__ else ")"
    columns = "key TEXT, n INTEGER, epoch INTEGER, UNIQUE (key, n)"
    change(target, f"CREATE TABLE results ({columns}{strict}")
    kind = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.STRING()])
    with pytest.raises(PermanentSinkError, match="none of a number"):
        prepare(target, kind, Row(key="a", n="none of a number"))


def test_a_table_that_was_changed_or_dropped(target: Target) -> None:
    create(target, "key TEXT, n BIGINT, epoch BIGINT, UNIQUE (key, n)")
    target.sink().validate()
    change(target, "ALTER TABLE results RENAME COLUMN n TO m")
    kind = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
    with pytest.raises(PermanentSinkError, match="no column 'n'"):
        prepare(target, kind, Row(key="a", n=1))
    change(target, "DROP TABLE results")
    with pytest.raises(SinkError, match="there is no table"):
        prepare(target, kind, Row(key="a", n=1))


def test_a_server_that_is_away_is_no_refusal() -> None:
    away = PostgresSink.two_phase("postgresql://user@127.0.0.1:1/db", "results")
    with pytest.raises(SinkError) as caught:
        away.validate()
    assert not isinstance(caught.value, PermanentSinkError)


def test_who_may_not_write(server: PostgresServer, database: str) -> None:
    target = UpsertTarget(database)
    target.create()
    schema = database.rpartition("%3D")[2]
    target.read(f"CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA {schema} TO reader")
    try:
        theirs = TARGETS["postgres-upsert"](database.replace("millstream@", "reader@"))
        kind = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
        with pytest.raises(PermanentSinkError, match=r"permission denied .*what the user may do"):
            prepare(theirs, kind, Row(key="a", n=1))
    finally:
        target.read(f"REVOKE USAGE ON SCHEMA {schema} FROM reader; DROP ROLE reader")


@pytest.mark.parametrize("kind", ["sqlite", "postgres-commit-table"])
def test_a_commit_that_is_refused_is_done_when_the_row_in_the_way_is_gone(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Rows are not tried, and somebody else has inserted one."""
    where = request.getfixturevalue("database") if "postgres" in kind else str(tmp_path / "r.db")
    target = TARGETS[kind](where)
    create(target, "key TEXT, n BIGINT, id BIGINT UNIQUE")
    change(target, "INSERT INTO results VALUES ('theirs', 1, 50)")
    sink = target.sink(check_rows=False)
    sink.validate()
    for _ in range(3):  # the restart strategy ends the job then
        with pytest.raises(PermanentSinkError, match=r"the row in it that is in the way.*in 1 try"):
            cluster(sink, tmp_path / "checkpoints").run()
    change(target, "DELETE FROM results WHERE key = 'theirs'")
    cluster(sink, tmp_path / "checkpoints").run()
    assert sorted(target.read("SELECT key, n, id FROM results")) == expected()
    assert list(target.leftovers()) == []
