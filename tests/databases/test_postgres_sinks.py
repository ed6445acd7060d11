"""PostgreSQL sinks on a real server: the contract, the values, and the failures."""

from __future__ import annotations

import dataclasses
import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.databases.server import PostgresServer, execute
from tests.databases.targets import RESULT, TARGETS, PostgresTarget, UpsertTarget

from millstream.connectors.commit_protocols.commit_table import COMMIT_TABLE
from millstream.connectors.postgres.sink import PostgresSink
from millstream.contracts.batch import Batch
from millstream.contracts.sink import CommitRequest, Sink, WriterContext
from millstream.errors import SinkError
from millstream.testing.conformance import check_sink
from millstream.testing.sinks import FailingSink
from millstream.types.row import Row
from millstream.types.types import Types, from_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.sink import Committable

ROWS: list[object] = [Row(key="a", n=1, id=10), Row(key="å'\"\n\\.", n=2, id=None)]
KINDS = ["postgres-two-phase", "postgres-commit-table"]
WHERE = WriterContext("job", "sink", 0, 2, 1, "a", 3)


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, database: str) -> PostgresTarget:
    made = TARGETS[request.param](database)
    made.create()
    assert isinstance(made, PostgresTarget)
    made.sink().validate()
    return made


def at(**changes: Any) -> WriterContext:
    return dataclasses.replace(WHERE, **changes)


def prepare(
    sink: Sink, values: Sequence[object] = ROWS, where: WriterContext = WHERE
) -> list[Committable]:
    writer = sink.create_writer(where)
    try:
        writer.write(Batch(RESULT, values=list(values)))
        return list(writer.prepare_commit())
    finally:
        writer.close()


def commit(sink: Sink, committables: Sequence[Committable], epoch: int = 1) -> None:
    committer = sink.create_committer()
    assert committer is not None
    try:
        committer.commit([CommitRequest(item, epoch, retried=False) for item in committables])
    finally:
        committer.close()


def abort(sink: Sink, job: str, keep: Sequence[Committable], generation: int = 3) -> None:
    committer = sink.create_committer()
    assert committer is not None
    committer.abort_orphans(job, "sink", keep, generation)
    committer.close()


# -- the contract --------------------------------------------------------------------------------


def test_keeps_the_contract_with_untyped_records(target: PostgresTarget) -> None:
    records: list[object] = [{"key": "a", "n": 1}, {"key": "b", "n": 2}]
    batch = Batch(Types.PICKLED_BYTE_ARRAY(), values=records)
    check_sink(target.sink, [batch, batch], target.read, processes=False)


@pytest.mark.parametrize("step", ["commit.before", "commit.half", "commit.after"])
def test_a_commit_that_fails_is_repeated_without_doubling(
    target: PostgresTarget, step: str
) -> None:
    sink = FailingSink(target.sink(), step)
    parts = [item for i in range(4) for item in prepare(sink, where=at(subtask=i))]
    with pytest.raises(SinkError, match="failure 1 of 1"):
        commit(sink, parts)
    commit(sink, parts)
    assert len(target.read()) == 4 * len(ROWS)
    assert target.leftovers() == []


def test_only_own_orphans_are_dropped(target: PostgresTarget) -> None:
    sink = target.sink()
    kept = prepare(sink)
    prepare(sink, where=at(attempt="lost"))
    prepare(sink, where=at(job_id="another job"))
    prepare(sink, where=at(sink_uid="another sink"))
    prepare(sink, where=at(generation=4))
    execute(target.address, "BEGIN; CREATE TABLE theirs (n INT); PREPARE TRANSACTION 'theirs'")
    before = len(target.leftovers())
    abort(sink, "job", kept)
    lost = 1 if "TwoPhase" in type(target).__name__ else len(ROWS)
    assert len(target.leftovers()) == before - lost
    commit(sink, kept)
    assert len(target.read()) == len(ROWS)
    execute(target.address, "ROLLBACK PREPARED 'theirs'")  # raises if it is gone
    abort(sink, "job", [], 4)
    abort(sink, "another job", [], 4)
    committer = sink.create_committer()
    assert committer is not None
    committer.abort_orphans("job", "another sink", [], 4)
    committer.close()
    assert target.leftovers() == []


def test_an_overtaken_run_cannot_commit(target: PostgresTarget) -> None:
    sink = target.sink()
    old, new = prepare(sink), prepare(sink, where=at(epoch=2))
    commit(sink, old)
    commit(sink, new, epoch=2)
    committed = target.read()
    with pytest.raises(SinkError, match="holds checkpoint 2 of this job"):
        commit(sink, old)
    assert target.read() == committed
    assert len(target.read(f"SELECT * FROM {COMMIT_TABLE}")) == 1


def test_lost_output_is_reported(target: PostgresTarget) -> None:
    sink = target.sink()
    parts = prepare(sink)
    abort(sink, "job", [])  # as somebody else might
    with pytest.raises(SinkError, match=r"output of (a )?published checkpoint.* is lost"):
        commit(sink, parts)
    assert target.read() == []


# -- values --------------------------------------------------------------------------------------


def test_values_of_every_kind(database: str) -> None:
    schema = pa.schema(
        {
            "yes": pa.bool_(),
            "real": pa.float64(),
            "raw": pa.binary(),
            "day": pa.date32(),
            "at": pa.timestamp("us"),
            "zoned": pa.timestamp("us", "UTC"),
            "amount": pa.decimal128(10, 2),
            "list": pa.list_(pa.string()),
            "doc": pa.struct({"a": pa.int64(), "b": pa.list_(pa.int64())}),
        }
    )
    types = [
        "BOOL",
        "FLOAT8",
        "BYTEA",
        "DATE",
        "TIMESTAMP",
        "TIMESTAMPTZ",
        "NUMERIC",
        "TEXT[]",
        "JSONB",
    ]
    names = ", ".join(f'"{n}" {t}' for n, t in zip(schema.names, types, strict=True))
    execute(database, f"CREATE TABLE results ({names})")
    moment = dt.datetime(2020, 5, 17, 1, 2, 3, 456_000, tzinfo=dt.UTC)
    row = {
        "yes": True,
        "real": 0.1,
        "raw": b"\x00\xff",
        "day": moment.date(),
        "at": moment.replace(tzinfo=None),
        "zoned": moment,
        "amount": Decimal("12.30"),
        "list": ["a", None, '"{}\\,'],
        "doc": {"a": 1, "b": [2]},
    }
    nan = dict.fromkeys(row) | {"real": float("-inf"), "list": []}
    batch = pa.RecordBatch.from_pylist([row, nan, {}], schema=schema)
    kind = from_arrow_schema(schema)
    sink = PostgresSink.two_phase(database, "results", type_info=kind)
    sink.validate()
    writer = sink.create_writer(WHERE)
    writer.write(Batch(kind, arrow=batch))
    commit(sink, list(writer.prepare_commit()))
    writer.close()
    assert execute(database, "SELECT * FROM results") == [
        tuple(row.values()),
        tuple(nan.values()),
        (None,) * 9,
    ]


def test_empty_texts_and_nulls_of_a_single_column(database: str) -> None:
    execute(database, "CREATE TABLE results (word TEXT)")
    sink = PostgresSink.commit_table(database, "results", columns=["word"])
    values: list[object] = ["", None, "\\.", "\\N", "a,b", " "]
    writer = sink.create_writer(WHERE)
    writer.write(Batch(Types.STRING(), values=values))
    commit(sink, list(writer.prepare_commit()))
    writer.close()
    assert [word for (word,) in execute(database, "SELECT * FROM results")] == values


# -- bad input -----------------------------------------------------------------------------------


def test_a_refused_record_is_named_and_nothing_is_left(target: PostgresTarget) -> None:
    values = [Row(key=f"k{n}", n=n, id=0) for n in range(50)]
    values[37] = Row(key="bad", n=10**6, id=0)
    with pytest.raises(SinkError, match=r"sink sink, checkpoint 1.*'results'.*check.*bad, 1000000"):
        prepare(target.sink(), values)
    values[37] = Row(key="nul\0", n=37, id=0)
    with pytest.raises(SinkError, match=r"'results'.*invalid byte sequence"):
        prepare(target.sink(), values)
    assert target.read() == []
    assert target.leftovers() == []


def test_a_duplicate_is_named_before_the_epoch_is_published(target: PostgresTarget) -> None:
    execute(target.address, "CREATE UNIQUE INDEX ON results (key)")
    commit(target.sink(), prepare(target.sink()))
    with pytest.raises(SinkError, match=r"duplicate key.*Key \(key\)=\(a\) already exists"):
        prepare(target.sink(), [ROWS[0]], at(epoch=2))
    assert len(target.read()) == len(ROWS)


def test_a_lost_attempt_that_holds_a_key_fails_the_next_after_a_while(database: str) -> None:
    target = TARGETS["postgres-two-phase"](database)
    target.create("key TEXT PRIMARY KEY, n BIGINT, id BIGINT")
    sink = target.sink(lock_timeout=0.2)
    sink.validate()
    prepare(sink)
    with pytest.raises(
        SinkError,
        match=r"lock timeout.*Held by prepared transaction 'millstream-.*pg_prepared_xacts",
    ):
        prepare(sink, where=at(attempt="next"))
    abort(sink, "job", [])
    commit(sink, prepare(sink, where=at(attempt="next")))
    assert len(target.read()) == len(ROWS)


@pytest.mark.parametrize("kind", [*KINDS, "postgres-upsert"])
def test_what_is_wrong_is_said_at_submit(kind: str, database: str, server: PostgresServer) -> None:
    target = TARGETS[kind](database)
    with pytest.raises(SinkError, match=r"there is no table 'results' of PostgreSQL 127\.0\.0\.1"):
        target.sink().validate()
    target.create()
    target.sink().validate()
    target.sink(type_info=RESULT).validate()
    wrong = Types.ROW_NAMED(["key", "what"], [Types.STRING(), Types.LONG()])
    with pytest.raises(SinkError, match=r"no column 'what'; it has \['key', 'n', 'id'"):
        target.sink(type_info=wrong).validate()
    missing = type(target)(server.conninfo("missing"))
    with pytest.raises(SinkError, match=r'cannot connect to PostgreSQL .*"missing" does not exist'):
        missing.sink().validate()
    closed = type(target)("postgresql://user:secret@127.0.0.1:1/db")
    with pytest.raises(SinkError, match=r"127.0.0.1:1/db.*refused") as refused:
        closed.sink().validate()
    assert "secret" not in str(refused.value)
    with pytest.raises(SinkError, match="not a PostgreSQL connection string"):
        type(target)("nonsense").sink()


def test_too_few_prepared_transactions_are_reported(database: str, server: PostgresServer) -> None:
    execute(database, "CREATE TABLE results (n BIGINT)")
    sink = PostgresSink.two_phase(database, "results")
    sink.validate()
    sink.validate_parallelism(8)
    with pytest.raises(SinkError, match=r"is 16; a sink with parallelism 9 needs at least 18"):
        sink.validate_parallelism(9)
    server.start(0)
    try:
        with pytest.raises(SinkError, match=r"is 0.*or use PostgresSink.commit_table"):
            sink.validate()
        without = PostgresSink.commit_table(database, "results")
        without.validate()
        writer = without.create_writer(WHERE)
        writer.write(Batch(Types.ROW_NAMED(["n"], [Types.LONG()]), values=[Row(n=1)]))
        commit(without, list(writer.prepare_commit()))
        writer.close()
        assert execute(database, "SELECT * FROM results") == [(1,)]
    finally:
        server.start(16)


# -- upsert --------------------------------------------------------------------------------------


def test_an_upsert_shows_at_a_flush_what_has_come(database: str) -> None:
    """Where tasks go on, readers do not wait for the checkpoint; an abort takes the rest back."""
    execute(database, "CREATE TABLE results (key TEXT PRIMARY KEY, n BIGINT)")
    row = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
    sink = PostgresSink.upsert(database, "results", key=["key"], type_info=row)
    writer = sink.create_writer(WHERE)
    writer.flush()
    for n in (1, 2):
        writer.write(Batch(row, values=[("a", n), ("b", n)]))
        writer.flush()
        assert execute(database, "SELECT * FROM results ORDER BY key") == [("a", n), ("b", n)]
    writer.write(Batch(row, values=[("a", 3)]))
    writer.abort()
    writer.close()
    assert execute(database, "SELECT n FROM results") == [(2,), (2,)]


def test_the_last_row_of_a_key_counts(database: str) -> None:
    execute(database, "CREATE TABLE results (key TEXT PRIMARY KEY, n BIGINT, id BIGINT)")
    first: list[object] = [*(Row(key="a", n=n, id=n) for n in range(30)), Row(key="b", n=1, id=1)]
    upsert = PostgresSink.upsert(database, "results", key=["key"])
    staged = PostgresSink.commit_table(database, "results", key=["key"])
    for sink in (upsert, staged):
        sink.validate()
        for epoch in (1, 2):  # written again, nothing changes
            parts = prepare(sink, first, at(epoch=epoch))
            if parts:
                commit(sink, parts, epoch)
            rows = execute(database, "SELECT * FROM results ORDER BY key")
            assert rows == [("a", 29, 29), ("b", 1, 1)]
    with pytest.raises(SinkError, match="no unique or exclusion constraint"):
        PostgresSink.upsert(database, "results", key=["n"]).validate()
    with pytest.raises(SinkError, match="no unique or exclusion constraint"):
        PostgresSink.commit_table(database, "results", key=["n"]).validate()


def test_an_overtaken_run_cannot_replace_rows(database: str) -> None:
    target = UpsertTarget(database)
    target.create()
    sink = target.sink()
    sink.validate()
    prepare(sink, where=at(epoch=5))
    prepare(sink, where=at(epoch=5))
    with pytest.raises(SinkError, match=r"1 rows of table 'results'.* were written by a later"):
        prepare(sink, [Row(key="a", n=1, id=99), Row(key="new", n=1, id=99)], at(epoch=4))
    assert sorted(target.read("SELECT key, n, id, epoch FROM results")) == [
        ("a", 1, 10, at(epoch=5).fence),
        ("å'\"\n\\.", 2, None, at(epoch=5).fence),
    ]


def test_a_newer_run_replaces_rows_of_epochs_that_never_came_to_be(database: str) -> None:
    """Where tasks go on, epochs that are not published yet are shown, and run again otherwise."""
    target = UpsertTarget(database)
    target.create()
    sink = target.sink()
    prepare(sink, [Row(key="a", n=1, id=7)], at(epoch=7))
    prepare(sink, [Row(key="a", n=1, id=8)], at(epoch=6, generation=WHERE.generation + 1))
    with pytest.raises(SinkError, match="were written by a later"):
        prepare(sink, [Row(key="a", n=1, id=9)], at(epoch=8))
    newest = at(epoch=6, generation=WHERE.generation + 1).fence
    assert target.read("SELECT key, n, id, epoch FROM results") == [("a", 1, 8, newest)]


def test_an_epoch_column_has_room_for_run_and_epoch(database: str) -> None:
    UpsertTarget(database).create()
    execute(database, "ALTER TABLE results ALTER COLUMN epoch TYPE integer")
    with pytest.raises(SinkError, match=r"'epoch' of .* is integer, .* make it a BIGINT"):
        UpsertTarget(database).sink().validate()
