"""SQLite and DuckDB: the contract, the values, and the failures."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.databases.targets import RESULT, TARGETS, SqliteTarget, Target

from millstream.connectors.embedded.duckdb import DuckDbSink
from millstream.connectors.embedded.sqlite import SqliteSink
from millstream.contracts.batch import Batch
from millstream.contracts.sink import CommitRequest, Sink, WriterContext
from millstream.errors import SinkError
from millstream.testing.conformance import check_sink
from millstream.testing.sinks import FailingSink
from millstream.types.row import Row, RowKind
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.contracts.sink import Committable

ROWS: list[object] = [Row(key="a", n=1, id=10), Row(key="å'\"\n", n=2, id=None)]


@pytest.fixture(params=["sqlite", "duckdb"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    made = TARGETS[request.param](str(tmp_path / "results.db"))
    made.create()
    return made


def context(epoch: int = 1, subtask: int = 0, attempt: str = "a") -> WriterContext:
    return WriterContext("job", "sink", subtask, 2, epoch, attempt)


def prepare(
    sink: Sink, values: Sequence[object] = ROWS, where: WriterContext | None = None
) -> list[Committable]:
    writer = sink.create_writer(where or context())
    writer.write(Batch(RESULT, values=list(values)))
    committables = list(writer.prepare_commit())
    writer.close()
    return committables


def commit(sink: Sink, committables: Sequence[Committable], epoch: int = 1) -> None:
    committer = sink.create_committer()
    assert committer is not None
    committer.commit([CommitRequest(item, epoch, retried=False) for item in committables])


def test_keeps_the_contract_with_untyped_records(target: Target) -> None:
    records: list[object] = [{"key": "a", "n": 1}, {"key": "b", "n": 2}]
    batch = Batch(Types.PICKLED_BYTE_ARRAY(), values=records)
    check_sink(target.sink, [batch, batch], target.read, processes=False)


def test_values_of_every_kind(target: Target) -> None:
    kind = Types.ROW_NAMED(
        ["yes", "real", "raw", "day", "at", "amount", "list"],
        [
            Types.BOOLEAN(),
            Types.DOUBLE(),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.SQL_DATE(),
            Types.SQL_TIMESTAMP(),
            Types.DECIMAL(10, 2),
            Types.LIST(Types.LONG()),
        ],
    )
    at = dt.datetime(2020, 5, 17, 1, 2, 3, 456_000)  # noqa: DTZ001 - as Flink's TIMESTAMP
    row = Row(True, 1.5, b"\x00\xff", dt.date(2020, 5, 17), at, Decimal("12.30"), [1, 2])
    types = ["BOOLEAN", "DOUBLE", "BLOB", "DATE", "TIMESTAMP", "DECIMAL(10, 2)", "BIGINT[]"]
    if isinstance(target.sink(), SqliteSink):
        types = ["INTEGER", "REAL", "BLOB", "TEXT", "TEXT", "TEXT", "TEXT"]
    names = ["yes", "real_", "raw", "day", "at", "amount", "list"]
    columns = ", ".join(f'"{n}" {t}' for n, t in zip(names, types, strict=True))
    other = type(target)(target.address + "2")
    other.create(columns)
    sink = other.sink(columns=names, type_info=kind)
    sink.validate()
    writer = sink.create_writer(context())
    writer.write(Batch(kind, values=[row, Row(*[None] * 7)]))
    commit(sink, list(writer.prepare_commit()))
    first, empty = other.read()
    assert empty == (None,) * 7
    if isinstance(sink, SqliteSink):
        texts = ("2020-05-17", "2020-05-17 01:02:03.456000", "12.30", "[1, 2]")
        assert first == (1, 1.5, b"\x00\xff", *texts)
    else:
        assert first == (True, 1.5, b"\x00\xff", row[3], at, row[5], [1, 2])


def test_an_epoch_of_two_subtasks_is_visible_at_once(target: Target) -> None:
    sink = target.sink()
    parts = [
        item
        for subtask in (0, 1)
        for item in prepare(sink, [Row(key=f"k{subtask}", n=1, id=1)], context(subtask=subtask))
    ]
    assert target.read() == []
    commit(sink, parts)
    assert sorted(target.read()) == [("k0", 1, 1), ("k1", 1, 1)]


KEYED = "key TEXT, n BIGINT, id BIGINT, PRIMARY KEY (n, key)"


def keyed(target: Target) -> Target:
    made = type(target)(f"{target.address}2")
    made.create(KEYED)
    return made


def changes(*rows: tuple[RowKind, str, int, int | None]) -> list[object]:
    made: list[object] = []
    for kind, *values in rows:
        row = Row(**dict(zip(RESULT.get_field_names(), values, strict=True)))
        row.set_row_kind(kind)
        made.append(row)
    return made


def test_the_last_change_of_a_key_counts(target: Target) -> None:
    target = keyed(target)
    sink = target.sink(key=["key", "n"])
    sink.validate()
    add, take, give, drop = RowKind
    first = changes(
        (add, "a", 1, 10), (add, "b", 1, 20), (add, "c", 1, 30), (take, "a", 1, 10),
        (give, "a", 1, 11), (drop, "b", 1, 20), (add, "d", 1, 1), (drop, "d", 1, 1),
    )  # fmt: skip
    commit(sink, prepare(sink, first))
    assert sorted(target.read()) == [("a", 1, 11), ("c", 1, 30)]
    # Two parts of one commit: what a checkpoint that failed had written comes before.
    older = prepare(sink, changes((drop, "a", 1, 11), (give, "c", 1, 31)), context(2, 0, "b"))
    newer = prepare(sink, changes((add, "a", 1, 12), (drop, "c", 1, 31)), context(3, 0, "c"))
    commit(sink, [*older, *newer], 3)
    commit(sink, [*older, *newer], 3)
    assert target.read() == [("a", 1, 12)]


def test_what_was_staged_before_there_was_a_key(target: Target) -> None:
    target = keyed(target)
    staged = prepare(target.sink(), [Row(key="a", n=1, id=1)])
    commit(target.sink(key=["key", "n"]), staged)
    assert target.read() == [("a", 1, 1)]


def test_changes_whose_key_does_not_fit(target: Target) -> None:
    target = keyed(target)
    with pytest.raises(SinkError, match=r"no primary key or unique index that fits key=\['key'\]"):
        target.sink(key=["key"]).validate()
    sink = target.sink(key=["key", "n"])
    with pytest.raises(SinkError, match="a row has no value in 'key', a column of its key"):
        prepare(sink, changes((RowKind.INSERT, None, 1, 1)))  # type: ignore[arg-type]
    with pytest.raises(SinkError, match=r"column 'n' of key=.* is not among those"):
        sink.validate_input(Types.ROW_NAMED(["key"], [Types.STRING()]))
    writer = sink.create_writer(context())
    with pytest.raises(SinkError, match="changes by key need a stream with types"):
        writer.write(Batch(Types.PICKLED_BYTE_ARRAY(), values=[{"key": "a", "n": 1}]))
    writer.close()


@pytest.mark.parametrize("step", ["commit.before", "commit.half", "commit.after"])
def test_a_commit_that_fails_is_repeated_without_doubling(target: Target, step: str) -> None:
    sink = FailingSink(target.sink(), step)
    parts = [item for i in range(4) for item in prepare(sink, where=context(subtask=i))]
    with pytest.raises(SinkError, match="failure 1 of 1"):
        commit(sink, parts)
    commit(sink, parts)
    assert len(target.read()) == 4 * len(ROWS)


def test_a_refused_record_is_named_before_the_epoch_is_published(target: Target) -> None:
    sink = target.sink()
    values = [Row(key=f"k{n}", n=n, id=0) for n in range(50)]
    values[37] = Row(key=None, n=37, id=0)
    with pytest.raises(SinkError, match=r"(?s)sink, checkpoint 1.*'results'.*'key': None, 'n': 37"):
        prepare(sink, values)
    assert target.read() == []


def test_a_refused_record_in_the_commit_leaves_nothing(target: Target) -> None:
    sink = target.sink(check_rows=False)
    good = prepare(sink)
    bad = prepare(sink, [Row(key="b", n=10**6, id=0)], context(subtask=1))
    with pytest.raises(SinkError, match=r"sink sink, in the commit: table 'results'.*CHECK"):
        commit(sink, good + bad)
    assert target.read() == []


def test_an_overtaken_run_cannot_commit(target: Target) -> None:
    sink = target.sink()
    old, new = prepare(sink), prepare(sink, where=context(epoch=2))
    commit(sink, old)
    commit(sink, new, epoch=2)
    committed = target.read()
    late = prepare(sink, where=context(attempt="late"))
    for again in (old, late):
        with pytest.raises(SinkError, match="holds checkpoint 2 of this job"):
            commit(sink, again)
    assert target.read() == committed


def test_a_copy_of_the_checkpoint_one_epoch_older_repeats_nothing(target: Target) -> None:
    sink = target.sink()
    commit(sink, prepare(sink))
    committed = target.read()
    again = prepare(sink, where=context(attempt="again"))
    with pytest.raises(SinkError, match=r"holds other output of this checkpoint .* older than"):
        commit(sink, again)
    assert target.read() == committed


def test_lost_output_is_reported(target: Target, tmp_path: Path) -> None:
    sink = target.sink()
    parts = prepare(sink)
    for path in tmp_path.rglob("*.pending"):
        path.unlink()
    with pytest.raises(SinkError, match="output of a published checkpoint is lost"):
        commit(sink, parts)


def test_what_is_wrong_is_said_at_submit(target: Target, tmp_path: Path) -> None:
    kind = type(target.sink())
    assert kind in {SqliteSink, DuckDbSink}
    options: dict[str, Any] = {"timeout": 0.1}
    with pytest.raises(SinkError, match="there is no database"):
        kind(tmp_path / "missing.db", "results").validate()
    with pytest.raises(SinkError, match="there is no table 'missing'"):
        kind(target.address, "missing").validate()
    wrong = Types.ROW_NAMED(["key", "what"], [Types.STRING(), Types.LONG()])
    with pytest.raises(SinkError, match=r"no column 'what'; it has \['key', 'n', 'id'\]"):
        target.sink(type_info=wrong).validate()
    with pytest.raises(SinkError, match="are 1, but the records have 3"):
        target.sink(type_info=RESULT, columns=["key"]).validate()
    with pytest.raises(SinkError, match="in memory"):
        kind(":memory:", "results")
    (tmp_path / "text").write_text("no database at all " * 500)
    with pytest.raises(SinkError, match=r"cannot open|not a database"):
        kind(tmp_path / "text", "results", **options).validate()


def test_deletions_are_refused(target: Target) -> None:
    row = Row(key="a", n=1, id=1)
    row.set_row_kind(RowKind.DELETE)
    with pytest.raises(SinkError, match="deletion or update"):
        prepare(target.sink(), [row])


def test_an_aborted_epoch_leaves_no_file(target: Target, tmp_path: Path) -> None:
    writer = target.sink().create_writer(context())
    writer.write(Batch(RESULT, values=ROWS))
    assert len(list(tmp_path.rglob("*.pending"))) == 1
    writer.abort()
    writer.close()
    assert list(tmp_path.rglob("*.pending")) == []


def test_sqlite_forces_its_commits_to_the_disk(tmp_path: Path) -> None:
    target = TARGETS["sqlite"](str(tmp_path / "results.db"))
    target.create()
    extra = 3
    for fsync in (True, False):
        database = SqliteSink(target.address, "results", fsync=fsync).database
        session = database.open()
        (found,) = session.execute("PRAGMA synchronous").fetchone()
        assert (found == extra) == fsync
        session.close()


def test_a_driver_that_is_stopped_in_its_commit_is_named(target: Target) -> None:
    """Nobody can take the lock of the file from it but its end."""
    sink = target.sink(timeout=0.2)
    made = prepare(sink)
    kind = "sqlite3" if isinstance(target, SqliteTarget) else "duckdb"
    code = (
        f"import {kind}, os, signal; c = {kind}.connect({target.address!r});"
        " c.execute('BEGIN'); c.execute('DELETE FROM results');"
        " os.kill(os.getpid(), signal.SIGSTOP)"
    )
    driver = subprocess.Popen([sys.executable, "-c", code])
    try:
        os.waitpid(driver.pid, os.WUNTRACED)
        said = rf"cannot open .*process {driver.pid} \(.*stopped\).*kill -9 {driver.pid}"
        with pytest.raises(SinkError, match=said):
            commit(sink, made)
    finally:
        driver.kill()
        driver.wait()
    commit(sink, made)
    assert len(target.read()) == len(ROWS)
