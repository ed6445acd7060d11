"""Each committed epoch reaches a Spark writer once, under a name that stays the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Types
from millstream.connectors.sink import CommitRequest, CommitterContext, Sink, WriterContext
from millstream.errors import SinkError
from millstream.runtime.batch import Batch
from millstream.spark import DataFrameSink

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROW = Types.ROW_NAMED(["n"], [Types.LONG()])


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

    with pytest.raises(SinkError, match="sink table: writing epoch 0 failed: the table is away"):
        committer().commit(requests)
    committer().commit(requests)
    committer().commit(requests)  # noted: not written again
    committer().abort_orphans("job", "table", first, 1)
    assert calls == [("job/table", 0, [1, 2, 3])] * 2
    assert len(list(tmp_path.rglob("*.pending"))) == 2

    (second,) = [stage(sink, storage, 1, [4])]
    (tmp_path / "dataframes" / second["pending"]).unlink()
    with pytest.raises(SinkError, match="output of epoch 1 is lost"):
        committer().commit([CommitRequest(second, 1, retried=False)])
