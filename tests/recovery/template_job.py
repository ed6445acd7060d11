"""The job that is killed again and again with a sink of each template, all in one job.

What it is: a program: ``python template_job.py DIRECTORY``.  It runs on a MiniCluster, a few
records per epoch.  Its sinks write into files and into an SQLite database in the directory.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors import (
    CheckpointCommitter,
    GenericWriteAheadSink,
    TwoPhaseCommitSinkFunction,
    UpsertSink,
)
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.connectors.commit_protocols.two_phase import SinkContext

LAST = 120
KEYS = 5
#: Splits are cut so that there are some thirty epochs.
RECORDS_PER_EPOCH = 4


class Files(TwoPhaseCommitSinkFunction[int, str]):
    """A transaction is a hidden file."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self.lines: list[str] = []

    def begin_transaction(self) -> str:
        assert self.writer_context is not None
        self.lines = []
        return f"{self.writer_context.epoch}-{self.writer_context.attempt}".replace("/", "_")

    def invoke(self, transaction: str, value: int, context: SinkContext) -> None:
        self.lines.append(f"{value}\n")

    def pre_commit(self, transaction: str) -> None:
        (self.directory / f".{transaction}").write_text("".join(self.lines))

    def commit(self, transaction: str) -> None:
        (self.directory / f".{transaction}").rename(self.directory / transaction)

    def abort(self, transaction: str) -> None:
        (self.directory / f".{transaction}").unlink(missing_ok=True)

    def recover_and_commit(self, transaction: str) -> None:
        if not (self.directory / transaction).exists():
            self.commit(transaction)


class Notes(CheckpointCommitter):
    """Reads the note that ``Rows`` has written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_checkpoint_committed(self, subtask_idx: int, checkpoint_id: int) -> bool:
        with sqlite3.connect(self.path) as database:
            row = database.execute("SELECT max(epoch) FROM notes").fetchone()
        return row[0] is not None and int(row[0]) >= checkpoint_id

    def commit_checkpoint(self, subtask_idx: int, checkpoint_id: int) -> None:
        raise AssertionError


class Rows(GenericWriteAheadSink):
    """Rows and note in one transaction."""

    atomic = True

    def __init__(self, path: Path) -> None:
        super().__init__(Notes(path))
        self.path = path

    def send_values(self, values: Iterable[object], checkpoint_id: int, timestamp: int) -> bool:
        with sqlite3.connect(self.path) as database:
            database.executemany("INSERT INTO results VALUES (?)", ((value,) for value in values))
            database.execute("INSERT INTO notes VALUES (?)", (checkpoint_id,))
        return True


class PlainRows(GenericWriteAheadSink):
    """Rows without a note: at least once."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def send_values(self, values: Iterable[object], checkpoint_id: int, timestamp: int) -> bool:
        with sqlite3.connect(self.path) as database:
            database.executemany("INSERT INTO repeated VALUES (?)", ((value,) for value in values))
        return True


class Totals(UpsertSink):
    """The newest number of each key."""

    def __init__(self, path: Path) -> None:
        super().__init__(fenced=True)
        self.path = path

    def get_key(self, value: Any) -> int:
        return int(value) % KEYS

    def upsert(self, rows: Mapping[int, int], epoch: int) -> None:
        statement = (
            "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
            " total = excluded.total, epoch = excluded.epoch WHERE totals.epoch <= excluded.epoch"
        )
        with sqlite3.connect(self.path) as database:
            database.executemany(statement, ((k, v, epoch) for k, v in rows.items()))


def main(directory: Path) -> None:
    files, database = directory / "files", directory / "results.db"
    files.mkdir(exist_ok=True)
    with sqlite3.connect(database) as connection:
        connection.executescript(
            "CREATE TABLE IF NOT EXISTS results (row INT);"
            "CREATE TABLE IF NOT EXISTS notes (epoch INT PRIMARY KEY);"
            "CREATE TABLE IF NOT EXISTS repeated (row INT);"
            "CREATE TABLE IF NOT EXISTS totals (name INT PRIMARY KEY, total INT, epoch INT);"
        )
    configuration = Configuration()
    configuration.set_string("parallelism.default", "2")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    numbers = env.from_collection(list(range(1, LAST + 1)), Types.LONG()).uid("numbers")
    keyed = numbers.key_by(lambda number: number % KEYS)
    same = keyed.reduce(lambda _, number: number).uid("same")
    same.sink_to(Files(files)).uid("files")
    same.sink_to(Rows(database)).uid("rows")
    same.sink_to(PlainRows(database)).uid("plain")
    same.sink_to(Totals(database)).uid("totals")
    limits = [RECORDS_PER_EPOCH] * LAST
    job_graph = env.get_job_graph("templates")
    MiniCluster(job_graph, directory / "checkpoint", limits=limits).run()


if __name__ == "__main__":
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    main(Path(sys.argv[1]))
