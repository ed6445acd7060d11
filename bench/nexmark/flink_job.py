"""One query of Nexmark on Flink, in a process of its own, in an environment of its own.

What it is: the same statements as ``bench/nexmark/own_job.py``, by PyFlink, on Flink's local
cluster; no Python runs within the job.  A run over few events to warm the JVM up, then the one that
is measured.
What it is not: run by the Python that runs Millstream (``bench/nexmark/flink_home.py``).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench.nexmark.meter import Meter, Taken
from bench.nexmark.queries import QUERIES, write_side_input
from bench.nexmark.tables import from_files, job_statements
from pyflink.table import EnvironmentSettings, TableEnvironment


def _run(given: argparse.Namespace, files: Path, scratch: Path) -> Taken:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    checkpoints = scratch / "checkpoints"
    options = {
        "parallelism.default": str(given.parallelism),
        "taskmanager.numberOfTaskSlots": str(given.parallelism),
        "taskmanager.memory.managed.size": "1g",
        "taskmanager.memory.network.min": "256m",
        "taskmanager.memory.network.max": "256m",
        "execution.checkpointing.interval": given.interval,
        "execution.checkpointing.dir": f"file://{checkpoints}",
        "execution.checkpointing.incremental": "true",
        "state.backend.type": "rocksdb",
        **dict(each.split("=", 1) for each in given.set),
    }
    for key, value in options.items():
        env.get_config().set(key, value)
    for statement in (*from_files(files), write_side_input(scratch / "side")):
        env.execute_sql(statement)
    *before, job = job_statements(given.query, QUERIES[given.query], scratch / "output")
    for statement in before:
        env.execute_sql(statement)
    with Meter(given.query, checkpoints) as meter:
        env.execute_sql(job).wait()
    return meter.taken


def _reason(error: Exception) -> str:
    """The first line of the innermost cause that says something."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line.partition(": ")[2] for line in lines if line.startswith("Caused by: ")]
    # Without a cause py4j says the exception in its second line.
    thrown = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    said = [line for line in [*causes, *thrown, *lines] if line]
    return said[0] if said else repr(error)


def main() -> None:
    """Run one query and save what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--query", choices=list(QUERIES), required=True)
    parser.add_argument("--files", type=Path, required=True)
    parser.add_argument("--warm-up-files", type=Path, required=True)
    parser.add_argument("--parallelism", type=int, required=True)
    parser.add_argument("--interval", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--report", type=Path, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        try:
            _run(given, given.warm_up_files, place / "warm-up")
            taken = _run(given, given.files, place / "run")
        except Exception as error:  # noqa: BLE001 - Java's have no base here; it is reported
            taken = Taken(given.query, error=_reason(error))
    taken.save(given.report)


if __name__ == "__main__":
    main()
