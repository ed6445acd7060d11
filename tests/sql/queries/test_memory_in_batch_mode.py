"""Batch mode with more data than ``taskmanager.memory.managed.size``: same rows, bounded memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
from bench.measure import process_tree

from millstream.common import Configuration
from millstream.table import EnvironmentSettings, TableEnvironment

_MEBIBYTE: Final = 1 << 20
#: What a worker takes besides state: the interpreter, Arrow, the rows of a batch and a row group,
#: and what it inherits of the modules of a process that runs other tests, some 80 MiB.
_FIXED: Final = 256 * _MEBIBYTE
_KILLED_ROWS: Final = 6_000
_KILLED_MEMORY: Final = 16_384

#: The columns of the result; the query, which DuckDB runs as well; whether its rows are in order.
QUERIES: Final = {
    "order by": ("id BIGINT, v BIGINT, s STRING", "SELECT id, v, s FROM t ORDER BY v, id", True),
    "over": (
        "id BIGINT, r BIGINT, total BIGINT",
        "SELECT id, ROW_NUMBER() OVER w AS r, SUM(v) OVER w AS total FROM t "  # noqa: ISC004
        "WINDOW w AS (PARTITION BY k ORDER BY v, id)",
        False,
    ),
    "join": (
        "id BIGINT, s STRING, x STRING",
        "SELECT t.id, t.s, d.x FROM t JOIN d USING (k)",
        False,
    ),
    "left join": (
        "id BIGINT, s STRING, x STRING",
        "SELECT t.id, t.s, d.x FROM t LEFT JOIN d ON t.k = d.k + 100",
        False,
    ),
    "many groups": (
        "id BIGINT, n BIGINT, most STRING",
        "SELECT id, COUNT(*) AS n, MAX(s) AS most FROM t GROUP BY id",
        False,
    ),
    "aggregation": (
        "k BIGINT, n BIGINT, most STRING",
        "SELECT k, COUNT(*) AS n, MAX(s) AS most FROM t GROUP BY k",
        False,
    ),
}


class Batch:
    """A batch job of one query over files, and the most memory that one of its workers took."""

    def __init__(self, directory: Path, rows: int, memory: int, parallelism: int = 1) -> None:
        self.directory = directory
        self.peak = 0
        tables = {
            "t": f"SELECT i * 7919 % {rows} AS id, i * 104729 % {rows // 3} AS k, "
            f"hash(i) % 1000 AS v, repeat(md5(i::VARCHAR), 3) AS s FROM range({rows}) t(i)",
            "d": f"SELECT i AS k, repeat(md5(i::VARCHAR), 2) AS x FROM range({rows // 3}) t(i)",
        }
        self.oracle = duckdb.connect()
        for name, query in tables.items():
            path = directory / f"{name}.parquet"
            typed = query.replace("hash(i) % 1000", "(hash(i) % 1000)::BIGINT")
            if not path.exists():  # a job that is run again reads the same files
                self.oracle.execute(f"COPY ({typed}) TO '{path}' (ROW_GROUP_SIZE 20000)")
            self.oracle.execute(f"CREATE VIEW {name} AS FROM '{path}'")
        settings = {
            "execution.target": "local",
            "parallelism.default": str(parallelism),
            "taskmanager.memory.managed.size": str(memory),
            "execution.checkpointing.dir": str(directory / "checkpoints"),
            "millstream.local-directory": str(directory / "local"),
        }
        configuration = Configuration()
        for key, value in settings.items():
            configuration.set_string(key, value)
        builder = EnvironmentSettings.new_instance().in_batch_mode()
        self.env = TableEnvironment.create(builder.with_configuration(configuration).build())
        self._table("t", "id BIGINT, k BIGINT, v BIGINT, s STRING", directory / "t.parquet")
        self._table("d", "k BIGINT, x STRING", directory / "d.parquet")

    def _table(self, name: str, columns: str, path: Path) -> None:
        options = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet'"
        self.env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({options})")

    def run(self, columns: str, query: str) -> list[tuple[Any, ...]]:
        """Run the query into files; returns their rows."""
        self._table("o", columns, self.directory / "out")
        with self._watching():
            self.env.execute_sql(f"INSERT INTO o {query}").wait()
        files = [str(path) for path in sorted((self.directory / "out").rglob("part-*"))]
        return self.oracle.execute("FROM read_parquet(?)", [files]).fetchall()

    def _watching(self) -> _Watching:
        return _Watching(self)


class _Watching:
    """Notes the memory of the processes that this one starts, ten times per second."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        #: Of other tests, such as the JVM of a session of Spark.
        self._others = frozenset(process_tree(os.getpid()))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            started = set(process_tree(os.getpid())) - self._others
            sizes = map(_anonymous_bytes, started)
            self._batch.peak = max(self._batch.peak, *sizes, 0)


def _anonymous_bytes(process: int) -> int:
    """Memory of a process, with its part of what it shares, without files; 0 if it has ended.

    Files of exchanged rows are mapped into memory, which the system takes back when it needs it.
    """
    try:
        lines = Path("/proc", str(process), "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss_Anon:"))


def _check(batch: Batch, name: str) -> None:
    columns, query, ordered = QUERIES[name]
    found, wanted = batch.run(columns, query), batch.oracle.execute(query).fetchall()
    if not ordered:
        found, wanted = sorted(found, key=repr), sorted(wanted, key=repr)
    assert found == wanted
    left = [path for path in (batch.directory / "local").rglob("*") if path.is_file()]
    assert not left, "files of the job are still on the disk"


@pytest.mark.parametrize("name", QUERIES)
def test_oracle_with_little_memory(name: str, tmp_path: Path) -> None:
    """State leaves memory many times: the rows take some hundred times what is allowed."""
    _check(Batch(tmp_path, 3_000, 16_384), name)


@pytest.mark.parametrize("name", ["order by", "join"])
def test_a_job_killed_while_state_is_on_the_disk_runs_again(name: str, tmp_path: Path) -> None:
    """The second run has the same rows as DuckDB, and deletes what the first one has left."""
    command = [sys.executable, "-m", __name__, str(tmp_path), name]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as job:
        try:
            deadline = time.monotonic() + 60
            while not _tables_of(tmp_path / "local"):
                assert time.monotonic() < deadline, "RocksDB has written no table"
                assert job.poll() is None, "the job is over, or has failed"
                time.sleep(0.01)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
    assert _tables_of(tmp_path / "local")
    _check(Batch(tmp_path, _KILLED_ROWS, _KILLED_MEMORY), name)


def _tables_of(directory: Path) -> list[Path]:
    return list(directory.rglob("*.sst"))


@pytest.mark.extended
@pytest.mark.parametrize("name", ["order by", "over", "join", "aggregation", "many groups"])
def test_memory_is_bounded(name: str, tmp_path: Path) -> None:
    """The rows take three times what is allowed, as they are stored."""
    memory = 8 * _MEBIBYTE
    batch = Batch(tmp_path, 3 * memory // 120, memory)
    _check(batch, name)
    assert 0 < batch.peak < _FIXED + memory


if __name__ == "__main__":
    Batch(Path(sys.argv[1]), _KILLED_ROWS, _KILLED_MEMORY).run(*QUERIES[sys.argv[2]][:2])
