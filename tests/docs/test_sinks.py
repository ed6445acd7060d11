"""The sinks of docs/how-to/custom-sinks.md keep the contract, also in a job that is killed."""

from __future__ import annotations

import importlib
import sqlite3
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.docs.sinks_page import create_table, rows_of, write_modules

from millstream.checkpoint import LocalStorage
from millstream.common import Types
from millstream.contracts.batch import Batch
from millstream.contracts.sink import CommitRequest, CommitterContext, WriterContext
from millstream.testing.conformance import check_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The page's code as a module."""
    monkeypatch.syspath_prepend(write_modules(tmp_path))
    yield importlib.import_module("docs_sinks")
    sys.modules.pop("docs_delta", None)
    del sys.modules["docs_sinks"]


def query(path: Path, statement: str) -> list[Any]:
    with sqlite3.connect(path) as database:
        return database.execute(statement).fetchall()


@pytest.mark.usefixtures("forked_children")
def test_two_phase(page: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    page.check(tmp_path / "out")


@pytest.mark.usefixtures("forked_children")
def test_write_ahead(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    query(path, "CREATE TABLE results (row TEXT)")
    query(path, "CREATE TABLE written (job TEXT, sink TEXT, epoch INT, PRIMARY KEY (job, sink))")
    batches = [Batch(Types.LONG(), values=[1, 2, 3]), Batch(Types.LONG(), values=[4])]
    check_sink(lambda: page.SqliteRows(path), batches, lambda: query(path, "SELECT * FROM results"))


def test_write_ahead_by_two_drivers_at_a_time(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    query(path, "CREATE TABLE results (row TEXT)")
    query(path, "CREATE TABLE written (job TEXT, sink TEXT, epoch INT, PRIMARY KEY (job, sink))")
    storage = LocalStorage(tmp_path / "checkpoint", fsync=False)

    def staged(epoch: int) -> list[CommitRequest]:
        where = WriterContext("job", "sink", 0, 1, epoch, "a", 1, storage)
        writer = page.SqliteRows(path).create_writer(where)
        writer.write(Batch(Types.LONG(), values=[epoch]))
        return [CommitRequest(each, epoch, retried=True) for each in writer.prepare_commit()]

    first, second = staged(1), staged(2)

    def newer_run() -> None:
        committer = page.SqliteRows(path).create_committer()
        committer.open(CommitterContext("job", "sink", 2, storage))
        for requests in (first, second):
            committer.commit(requests)
        committer.close()

    class Slow(page.Written):  # type: ignore[misc]
        """The old driver stops for a while right after it has looked."""

        def is_checkpoint_committed(self, subtask_idx: int, checkpoint_id: int) -> bool:
            found: bool = super().is_checkpoint_committed(subtask_idx, checkpoint_id)
            newer_run()
            return found

    sink = page.SqliteRows(path)
    sink.committer = Slow(path)
    old = sink.create_committer()
    old.open(CommitterContext("job", "sink", 1, storage))
    old.commit(first)
    old.close()
    assert sorted(query(path, "SELECT * FROM results")) == [("1",), ("2",)]
    assert query(path, "SELECT epoch FROM written") == [(2,)]


@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("fenced", [False, True])
def test_upsert(page: Any, tmp_path: Path, *, fenced: bool) -> None:
    path = tmp_path / "totals.db"
    query(path, "CREATE TABLE totals (name TEXT PRIMARY KEY, total INT, epoch INT)")
    batches = [Batch(Types.PICKLED_BYTE_ARRAY(), values=[("a", 1), ("b", 2), ("a", 3)])]
    read = "SELECT name, total FROM totals"
    check_sink(lambda: page.SqliteTotals(path, fenced=fenced), batches, lambda: query(path, read))
    assert sorted(query(path, read)) == [("a", 3), ("b", 2)]


class Frame:
    """What the writer needs of a DataFrame, and what happens when it is computed."""

    def __init__(self, number: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.number = number
        self.meanwhile = meanwhile

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        self.meanwhile()
        return pa.table({"n": [self.number]})


@pytest.mark.usefixtures("page")
def test_delta_table_by_two_drivers_at_a_time(tmp_path: Path) -> None:
    """``tests/spark`` has the conformance suite and whole jobs."""
    from millstream.spark import EpochNumber

    path = create_table(tmp_path / "table", pa.schema([("n", pa.int64())]))
    write = importlib.import_module("docs_delta").DeltaTableWriter(path)

    def epoch(number: int, name: str = "job/sink") -> EpochNumber:
        return EpochNumber(number, name)

    def numbers() -> list[int]:
        return sorted(row["n"] for row in rows_of(path))

    def newer_run() -> None:
        write(Frame(1), epoch(1))
        write(Frame(2), epoch(2))

    # The old driver stops for a while right after it has looked.
    with pytest.raises(Exception, match="Concurrent transaction failed"):
        write(Frame(1, newer_run), epoch(1))
    assert numbers() == [1, 2]
    write(Frame(2), epoch(2))
    with pytest.raises(ValueError, match="holds epoch 2 of this job"):
        write(Frame(1), epoch(1))
    assert numbers() == [1, 2]

    def another() -> None:
        write(Frame(10), epoch(7, "another/sink"))

    write(Frame(3, another), epoch(3))
    assert numbers() == [1, 2, 3, 10]
