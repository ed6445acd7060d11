"""A job with very many checkpoints: its directory and its commit table do not grow with them."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from millstream.checkpoint import Coordinator, LocalStorage, ManifestLog
from millstream.checkpoint.inspect import verify_checkpoints
from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.model import (
    OperatorAck,
    OperatorRecord,
    SplitState,
    TaskAck,
    digest_of,
)
from millstream.checkpoint.publish import EpochMetadata
from millstream.connectors.commit_protocols.commit_table import (
    COMMIT_TABLE,
    CommitTable,
    CommitTableCommitter,
    CommitTableTransaction,
    OutputPart,
)
from millstream.contracts.key_value_store import StateFile, StateHandle
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.contracts.sink import CommitterContext

SUBTASKS = 2
RETAINED = 3
RUNS = 5
PROGRAM = {
    "source": OperatorRecord("source", "source"),
    "count": OperatorRecord("count", "operator"),
    "table": OperatorRecord("table", "sink", commits=True),
}
DIGEST = digest_of([b"x"])[1]


class TableCommitter(CommitTableCommitter):
    """Enters parts that have no rows."""

    def __init__(self, database: Path) -> None:
        self.database = database

    def open(self, context: CommitterContext) -> None:
        self.connection = sqlite3.connect(self.database)
        self.connection.execute("PRAGMA synchronous=OFF")
        self.connection.execute(CommitTable.CREATE)

    @contextmanager
    def transaction(self, sink_uid: str) -> Iterator[CommitTableTransaction]:
        with self.connection:
            yield self

    @property
    def commits(self) -> CommitTable:
        return CommitTable(self.connection.execute)

    def insert(self, part: OutputPart) -> None:
        """There is nothing to insert."""

    def close(self) -> None:
        self.connection.close()


class LongJob:
    """Makes the checkpoints of a job with a source, keyed state and a sink with a commit table."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.storage = LocalStorage(directory / "checkpoints", fsync=False)
        self.job_id = JobIdentity.claim(self.storage, "long", PROGRAM)
        self.files: list[list[StateFile]] = [[] for _ in range(SUBTASKS)]
        self.epoch = 0

    def run(self, count: int) -> list[float]:
        """Make so many checkpoints in one run; returns the CPU seconds of each."""
        committer = TableCommitter(self.directory / "target.sqlite")
        coordinator = Coordinator(self.storage, self.job_id, {"table": committer}, RETAINED)
        coordinator.open()
        last = coordinator.recover()
        assert (-1 if last is None else last.epoch) == self.epoch - 1
        seconds = []
        for _ in range(count):
            began = time.process_time()
            metadata = EpochMetadata(
                epoch=self.epoch,
                started=self.epoch,
                offsets={"epoch": self.epoch, "final": False},
                stages={0: SUBTASKS},
                max_parallelism=128,
                final=False,
                program=PROGRAM,
            )
            coordinator.begin_epoch(metadata)
            acks = [self.ack(subtask) for subtask in range(SUBTASKS)]
            coordinator.complete_epoch(metadata, acks, {(0, n) for n in range(SUBTASKS)})
            seconds.append(time.process_time() - began)
            self.epoch += 1
        coordinator.close()
        return seconds

    def ack(self, subtask: int) -> TaskAck:
        """Write a state file, as RocksDB keeps some of the old ones, and one that loses."""
        epoch, files = self.epoch, self.files[subtask]
        del files[: len(files) - 3]
        name = f"{epoch:06d}-{subtask}.sst"
        self.storage.write(f"state/count/{name}", b"x")
        files.append({"local": name, "remote": f"state/count/{name}", "size": 1, "digest": DIGEST})
        if epoch % 10 == 0:
            self.storage.write(f"state/count/lost-{name}", b"x")
        state = StateHandle(
            backend="rocksdb",
            id=str(epoch),
            key_groups=(64 * subtask, 64 * subtask + 64),
            files=list(files),
        )
        part = {"job": self.job_id, "sink": "table", "part": f"{epoch}-{subtask}"}
        operators = [
            OperatorAck("source", subtask, watermark=epoch, metrics={"numRecordsIn": 7}),
            OperatorAck("count", subtask, watermark=epoch, state=state),
            OperatorAck("table", subtask, watermark=epoch, committables=[dumps(part)]),
        ]
        splits = [
            SplitState("source", f"split-{subtask}", 7 * epoch, finished=False, watermark=epoch)
        ]
        return TaskAck(epoch, 0, subtask, f"a{epoch}", operators=operators, splits=splits)

    def check(self) -> None:
        """Check what there is in all: it depends on what is retained, and on the number of runs."""
        root = self.directory / "checkpoints"
        files = [each for each in root.rglob("*") if each.is_file()]
        kinds = Counter(each.relative_to(root).parts[0] for each in files)
        # Unnamed files stay for two sweeps at most.
        assert kinds["state"] <= SUBTASKS * (4 + RETAINED + 2 * 64 // 10 + 1)
        assert kinds["log"] <= 40 + RUNS
        assert kinds.total() <= 120
        assert sum(each.stat().st_size for each in files) < 200_000
        with sqlite3.connect(self.directory / "target.sqlite") as connection:
            (rows,) = connection.execute(f"SELECT count(*) FROM {COMMIT_TABLE}").fetchone()
        assert rows <= 2 * SUBTASKS
        log = ManifestLog(self.storage)
        epochs = [manifest.epoch for manifest in log.manifests()]
        assert epochs == list(range(self.epoch - RETAINED, self.epoch))
        last = log.latest()
        assert last is not None
        assert last.totals["source.numRecordsIn"] == 7 * SUBTASKS * self.epoch
        assert verify_checkpoints(self.storage).problems == []


@pytest.mark.parametrize("count", [1_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_directory_and_commit_table_stay_as_they_are(tmp_path: Path, count: int) -> None:
    job, seconds = LongJob(tmp_path), []
    for _ in range(RUNS):
        seconds += job.run(count // RUNS)
        job.check()
        began = time.perf_counter()
        names = list(job.storage.list_names("log")) + list(job.storage.list_names("state"))
        assert len(names) < 120
        assert time.perf_counter() - began < 1.0
    tenth = count // 10
    first, last = statistics.median(seconds[:tenth]), statistics.median(seconds[-tenth:])
    print(f"{count} checkpoints: {1000 * first:.2f} ms each at first, {1000 * last:.2f} ms at last")
    assert last < 3 * first
