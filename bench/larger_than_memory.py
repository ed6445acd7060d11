"""What batch queries cost with more data than the memory budget.

What it is: a batch query of SQL on the local engine over Parquet files, with 64 MiB of managed
memory; so many MiB is what its rows take as they are stored.

``joined``, ``grouped``, ``sorted``: seconds for a join with a table of a fifth as many rows, for
GROUP BY with as many groups as rows, and for ORDER BY.
``joined-memory``, ``grouped-memory``, ``sorted-memory``: MiB of all processes together, at most.

Run by ``bench/run.py`` (``--only batch``).  Read next: ``docs/concepts/memory.md``.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import duckdb
from bench.growing import growing_arguments
from bench.measure import Outcome, Sampler
from bench.millstream_jobs import PARALLELISM

from millstream.common import Configuration
from millstream.table import EnvironmentSettings, TableEnvironment

if TYPE_CHECKING:
    from pathlib import Path

WORKLOADS: Final = tuple(
    f"{query}{what}" for query in ("joined", "grouped", "sorted") for what in ("", "-memory")
)

_MANAGED: Final = "64m"
_MEBIBYTE: Final = 1 << 20
#: Of a row, roughly: 96 characters, two numbers, key and order.
_ROW: Final = 130
_QUERIES: Final = {
    "joined": "SELECT t.id, t.s, d.x FROM t JOIN d ON t.k = d.k",
    "grouped": "SELECT id, MAX(s) AS s, CAST(COUNT(*) AS STRING) AS x FROM t GROUP BY id",
    "sorted": "SELECT id, s, s AS x FROM t ORDER BY s, id",
}


def _write(scratch: Path, rows: int) -> None:
    keys = rows // 5
    tables = {
        "t": f"SELECT i AS id, i * 104729 % {keys} AS k, repeat(md5(i::VARCHAR), 3) AS s "
        f"FROM range({rows}) t(i)",
        "d": f"SELECT i AS k, repeat(md5(i::VARCHAR), 3) AS x FROM range({keys}) t(i)",
    }
    for name, query in tables.items():
        duckdb.execute(f"COPY ({query}) TO '{scratch / name}.parquet' (ROW_GROUP_SIZE 50000)")


def _environment(scratch: Path) -> TableEnvironment:
    configuration = Configuration()
    for key, value in {
        "execution.target": "local",
        "parallelism.default": str(PARALLELISM),
        "execution.checkpointing.dir": str(scratch / "checkpoints"),
        "millstream.local-directory": str(scratch / "local"),
        "millstream.progress": "off",
        "taskmanager.memory.managed.size": _MANAGED,
    }.items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_batch_mode().with_configuration(configuration)
    environment = TableEnvironment.create(settings.build())
    for name, path, columns in (
        ("t", "t.parquet", "id BIGINT, k BIGINT, s STRING"),
        ("d", "d.parquet", "k BIGINT, x STRING"),
        ("found", "out", "id BIGINT, s STRING, x STRING"),
    ):
        options = f"'connector'='filesystem', 'format'='parquet', 'path'='{scratch / path}'"
        environment.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({options})")
    return environment


def _measured(workload: str, mebibytes: int, scratch: Path) -> dict[str, float]:
    rows = mebibytes * _MEBIBYTE // _ROW
    _write(scratch, rows)
    environment = _environment(scratch)
    query = _QUERIES[workload.removesuffix("-memory")]
    started = time.monotonic()
    with Sampler(os.getpid()) as sampler:
        environment.execute_sql(f"INSERT INTO found {query}").wait()
    seconds = time.monotonic() - started
    files = [str(path) for path in (scratch / "out").rglob("part-*")]
    found = duckdb.execute("SELECT COUNT(*) FROM read_parquet(?)", [files]).fetchall()
    if found != [(rows,)]:
        message = f"the query has {found[0][0]} rows of {rows}"
        raise RuntimeError(message)
    is_memory = workload.endswith("-memory")
    return {"seconds": sampler.peak / _MEBIBYTE if is_memory else seconds}


def main() -> None:
    """Measure one workload at one size and save the outcome."""
    arguments = growing_arguments(WORKLOADS)
    figures = _measured(arguments.workload, arguments.size, arguments.scratch)
    Outcome(figures=figures).save(arguments.report)


if __name__ == "__main__":
    main()
