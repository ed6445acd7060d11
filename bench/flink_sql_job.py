"""A workload of ``bench/sql_queries.py`` on the local cluster of Flink; no Python runs in it.

What it is: a run to warm the JVM up, then the one that is measured, from CSV files: PyPI has no
Parquet for Flink.  The rate is that of the whole run, with the start of its cluster.

Run by ``bench/peer_flink_sql.py`` in Flink's environment.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.sql_queries import TIME, WATERMARK, WORKLOADS
from pyflink.table import EnvironmentSettings, TableEnvironment


def _run(workload: str, files: str, checkpoints: Path, interval: str) -> float:
    """How many seconds it takes."""
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    options = {
        "parallelism.default": "2",
        "taskmanager.numberOfTaskSlots": "2",
        "taskmanager.memory.managed.size": "1g",
        "taskmanager.memory.network.min": "256m",
        "taskmanager.memory.network.max": "256m",
        "execution.checkpointing.interval": interval,
        "execution.checkpointing.dir": f"file://{checkpoints}",
        "execution.checkpointing.incremental": "true",
        "state.backend.type": "rocksdb",
    }
    for key, value in options.items():
        env.get_config().set(key, value)
    env.execute_sql(
        f"CREATE TABLE events (`key` BIGINT, `value` BIGINT, ts BIGINT, t AS {TIME}, WATERMARK FOR "
        f"t AS {WATERMARK}) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{files}')"
    )
    columns, query = WORKLOADS[workload]
    env.execute_sql(f"CREATE TABLE answer ({columns}) WITH ('connector' = 'blackhole')")
    begun = time.perf_counter()
    env.execute_sql(f"INSERT INTO answer {query}").wait()
    return time.perf_counter() - begun


def main() -> None:
    """Print how many seconds the measured run took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", choices=sorted(WORKLOADS), required=True)
    parser.add_argument("--files", required=True)
    parser.add_argument("--warm-up-files", required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--interval", default="1s")
    given = parser.parse_args()
    _run(given.workload, given.warm_up_files, given.scratch / "warm-up", given.interval)
    seconds = _run(given.workload, given.files, given.scratch / "run", given.interval)
    (given.scratch / "seconds").write_text(str(seconds))


if __name__ == "__main__":
    main()
