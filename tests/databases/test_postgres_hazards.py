"""What may befall the PostgreSQL sinks, beyond kills and cut connections."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from tests.databases.server import execute
from tests.databases.targets import RESULT, TARGETS, PostgresTarget
from tests.databases.test_postgres_sinks import KINDS, ROWS, at, commit, prepare

from millstream.connectors.postgres import source as postgres_source
from millstream.connectors.postgres.sink import PostgresSink
from millstream.connectors.postgres.source import PostgresSource
from millstream.contracts.batch import Batch
from millstream.errors import SinkError
from millstream.testing.conformance import read_records
from millstream.types.row import Row
from millstream.types.types import from_arrow_schema


def target_of(kind: str, database: str) -> PostgresTarget:
    made = TARGETS[kind](database)
    made.create()
    assert isinstance(made, PostgresTarget)
    made.sink().validate()
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_an_older_copy_of_the_checkpoint_repeats_nothing(database: str, kind: str) -> None:
    target = target_of(kind, database)
    sink = target.sink()
    for epoch in (1, 4):  # epochs 2 and 3 had no rows
        commit(sink, prepare(sink, [ROWS[0]], at(epoch=epoch)), epoch)
    # The checkpoint is put back as it was after epoch 2, and the job runs epoch 3 again.
    again = prepare(sink, [ROWS[0]], at(epoch=3, generation=4))
    with pytest.raises(
        SinkError, match=r"holds checkpoint 4 of this job: .* older than the target"
    ):
        commit(sink, again, 3)
    assert len(target.read()) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_one_epoch_older_repeats_nothing(database: str, kind: str) -> None:
    target = target_of(kind, database)
    sink = target.sink()
    commit(sink, prepare(sink, [ROWS[0]]))
    # The checkpoint is put back as it was before this epoch; neither run started again.
    again = prepare(sink, [ROWS[0]], at(attempt="b"))
    with pytest.raises(SinkError, match=r"holds other output of this checkpoint .* older than"):
        commit(sink, again)
    assert len(target.read()) == 1


@pytest.mark.parametrize("kind", [*KINDS, "postgres-upsert"])
def test_an_epoch_that_waits_for_its_input(database: str, kind: str) -> None:
    target = TARGETS[kind](database + "%20-cidle_in_transaction_session_timeout%3D50")
    target.create()
    target.sink().validate()
    writer = target.sink().create_writer(at())
    writer.write(Batch(RESULT, values=[ROWS[0]]))
    time.sleep(0.2)  # longer than the server's limit, which is what is looked at
    writer.write(Batch(RESULT, values=[ROWS[1]]))
    made = list(writer.prepare_commit())
    writer.close()
    if made:
        commit(target.sink(), made)
    assert len(target.read()) == len(ROWS)


def test_columns_with_dots_and_quotes(database: str) -> None:
    execute(database, 'CREATE TABLE results ("user.id" BIGINT UNIQUE, "a ""b"".c" TEXT)')
    kind = from_arrow_schema(pa.schema({"user.id": pa.int64(), 'a "b".c': pa.string()}))
    rows: list[object] = [Row(**{"user.id": n, 'a "b".c': str(n)}) for n in range(3)]
    for epoch, sink in enumerate(
        [
            PostgresSink.two_phase(database, "results", type_info=kind),
            PostgresSink.commit_table(database, "results", key=["user.id"], type_info=kind),
            PostgresSink.upsert(database, "results", key=["user.id"], type_info=kind),
        ]
    ):
        sink.validate()
        writer = sink.create_writer(at(epoch=epoch))
        writer.write(Batch(kind, values=rows))
        made = list(writer.prepare_commit())
        writer.close()
        if made:
            commit(sink, made, epoch)
    source = PostgresSource(database, "SELECT * FROM results", key="user.id", splits=1)
    (split,) = source.discover(frozenset())
    read = read_records(source, split, source.start_offset(split), source.end_offset(split))
    assert [(record[0], record[1]) for record in read] == [(n, str(n)) for n in range(3)]  # type: ignore[index]


def test_a_name_that_leaves_no_room_for_the_staging_table(database: str) -> None:
    name = "t" * 60
    execute(database, f"CREATE TABLE {name} (n INT)")
    with pytest.raises(SinkError, match=r"too long for a staging table beside it; .* 52 bytes"):
        PostgresSink.commit_table(database, name).validate()


def test_rows_of_several_megabytes(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_source, "_BATCH_BYTES", 8 << 20)
    execute(database, "CREATE TABLE large (id BIGINT, text TEXT)")
    execute(
        database,
        "INSERT INTO large SELECT n, repeat('x', 3000000) || E'\\n' || repeat('y', 2000000)"
        " FROM generate_series(1, 3) AS n",
    )
    source = PostgresSource(database, "SELECT * FROM large", key="id", splits=1)
    (split,) = source.discover(frozenset())
    read = list(source.read(split, 1, 4))
    assert [batch.arrow.num_rows for batch in read if batch.arrow is not None] == [2, 1]
    records = read_records(source, split, 1, 4)
    assert [len(record[1]) for record in records] == [5_000_001] * 3  # type: ignore[index]
