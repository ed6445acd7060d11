"""Each committed epoch reaches a Spark writer once, under a name that stays the same."""

from __future__ import annotations

import importlib
import pickle
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from tests.docs.sinks_page import create_table, rows_of, write_modules

from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Row, Types
from millstream.contracts.batch import Batch
from millstream.contracts.sink import (
    CommitRequest,
    CommitterContext,
    DeliveryGuarantee,
    Sink,
    WriterContext,
)
from millstream.errors import SinkError
from millstream.spark import DataFrameSink, EpochNumber
from millstream.testing.conformance import ConformanceError, check_sink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ROW = Types.ROW_NAMED(["n"], [Types.LONG()])
PAIR = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
BATCHES = [
    Batch(PAIR, values=[Row(key="a", n=1), Row(key="å'\"", n=None)]),
    Batch(PAIR, values=[Row(key="c", n=3)]),
]


@pytest.fixture
def delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The writer of docs/how-to/custom-sinks.md, in a module that other processes can import."""
    monkeypatch.syspath_prepend(write_modules(tmp_path))
    yield importlib.import_module("docs_delta")
    del sys.modules["docs_delta"]


class ParquetAppender:
    """Knows nothing of epochs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, frame: Any, epoch: EpochNumber) -> None:
        frame.write.mode("append").parquet(f"file:{self.path}")


def stage(sink: Sink, storage: LocalStorage, epoch: int, numbers: list[int], part: int = 0) -> Any:
    writer = sink.create_writer(
        WriterContext("job", "table", part, 2, epoch, f"a{epoch}.{part}", 1, storage)
    )
    writer.write(Batch(ROW, arrow=ROW.to_arrow([(n,) for n in numbers])))
    (committable,) = writer.prepare_commit()
    writer.close()
    return committable


def test_epochs_go_to_the_writer_once(spark: SparkSession, tmp_path: Path) -> None:
    calls: list[tuple[str, int, list[int]]] = []
    failures = [OSError("the table is away")]

    def write(frame: Any, epoch: Any) -> None:
        rows = sorted(row.n for row in frame.collect())
        calls.append((epoch.application_id, epoch, rows))
        if failures:
            raise failures.pop()

    sink = DataFrameSink(write)
    storage = LocalStorage(tmp_path, fsync=False)
    first = [stage(sink, storage, 0, [1, 2]), stage(sink, storage, 0, [3], part=1)]
    stage(sink, storage, 0, [9])  # an attempt that lost
    requests = [CommitRequest(each, 0, retried=False) for each in first]

    def committer() -> Any:
        made = sink.create_committer()
        made.open(CommitterContext("job", "table", 1, storage))
        return made

    with pytest.raises(
        SinkError, match="sink table: writing checkpoint 0 failed: the table is away"
    ):
        committer().commit(requests)
    committer().commit(requests)
    committer().commit(requests)  # noted: not written again
    committer().abort_orphans("job", "table", first, 1)
    assert calls == [("job/table", 0, [1, 2, 3])] * 2
    assert len(list(tmp_path.rglob("*.pending"))) == 2

    (second,) = [stage(sink, storage, 1, [4])]
    (tmp_path / "dataframes" / second["pending"]).unlink()
    with pytest.raises(SinkError, match="output of checkpoint 1 is lost"):
        committer().commit([CommitRequest(second, 1, retried=False)])


@pytest.mark.usefixtures("spark")
def test_contract_exactly_once(delta: Any, tmp_path: Path) -> None:
    path = create_table(tmp_path / "table", PAIR.arrow_schema)
    storage = LocalStorage(tmp_path / "checkpoint", fsync=False)
    check_sink(lambda: delta.delta_sink(path), BATCHES, lambda: rows_of(path), storage)
    staged = list((tmp_path / "checkpoint" / "dataframes").rglob("*.pending"))
    assert len(staged) == 1, "of the last epoch only"


@pytest.mark.usefixtures("spark")
def test_contract_at_least_once(tmp_path: Path) -> None:
    path = tmp_path / "table"

    def read() -> list[Any]:
        found: list[Any] = ds.dataset(path).to_table().to_pylist() if path.exists() else []
        return found

    check_sink(lambda: DataFrameSink(ParquetAppender(path)), BATCHES, read)
    shutil.rmtree(path)
    wrong = DataFrameSink(ParquetAppender(path), DeliveryGuarantee.EXACTLY_ONCE)
    with pytest.raises(ConformanceError, match=r"a commit that died at wal\.send\.after is not"):
        check_sink(lambda: wrong, BATCHES, read, processes=False)


@pytest.mark.usefixtures("spark")
def test_an_epoch_whose_note_is_lost(delta: Any, tmp_path: Path) -> None:
    """As if the driver had died between the write and the note."""
    path = create_table(tmp_path / "table", ROW.arrow_schema)
    # Not a pattern, which would match other directories.
    place = tmp_path / "a [b-c]{d,e}*\\f=g?"
    sink, storage = delta.delta_sink(path), LocalStorage(place, fsync=False)
    request = CommitRequest(stage(sink, storage, 0, [1, 2]), 0, retried=True)
    for _ in range(2):
        committer = sink.create_committer()
        committer.open(CommitterContext("job", "table", 1, storage))
        committer.commit([request])
        (note,) = place.rglob("written")
        note.unlink()
    assert sorted(row["n"] for row in rows_of(path)) == [1, 2]


def test_numbers_of_epochs_can_go_to_workers() -> None:
    number = pickle.loads(pickle.dumps(EpochNumber(7, "job/table")))
    assert (number, number.application_id) == (7, "job/table")


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            Batch(Types.ROW_NAMED(["at"], [Types.SQL_TIME()]), values=[Row(at=None)]),
            "sink table, checkpoint 0, subtask 0: Spark cannot read column 'at' of type time64",
        ),
        (
            Batch(
                Types.ROW_NAMED(["all"], [Types.MAP(Types.STRING(), Types.INSTANT())]),
                values=[Row(all=None)],
            ),
            "column 'all' of type map<string, timestamp",
        ),
        (Batch(Types.PICKLED_BYTE_ARRAY(), values=[{"a": 1}]), "the records have no type"),
    ],
)
def test_what_spark_cannot_read_is_refused_before_the_vote(
    batch: Batch, message: str, tmp_path: Path
) -> None:
    storage = LocalStorage(tmp_path, fsync=False)
    sink = DataFrameSink(print)
    writer = sink.create_writer(WriterContext("job", "table", 0, 1, 0, "a", 1, storage))
    with pytest.raises(SinkError, match=message):
        writer.write(batch)
    writer.abort()
    assert list(tmp_path.rglob("*.pending")) == []
