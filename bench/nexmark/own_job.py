"""One query of Nexmark on Millstream, in a process of its own.

What it is: a run over few events to warm up, then the run that is measured.

Run by ``bench/nexmark/__main__.py``.  Read next: ``bench/nexmark/flink_job.py``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench.nexmark.meter import Meter, Taken
from bench.nexmark.queries import QUERIES, write_side_input
from bench.nexmark.tables import from_files, from_generator, from_stream, job_statements

from millstream.errors import MillstreamError
from millstream.table import EnvironmentSettings, TableEnvironment


def _run(given: argparse.Namespace, tables: list[str], scratch: Path) -> Taken:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    checkpoints = scratch / "checkpoints"
    options = {
        "parallelism.default": str(given.parallelism),
        "execution.checkpointing.interval": given.interval,
        "execution.checkpointing.dir": f"file://{checkpoints}",
        "state.backend.type": "rocksdb",
        **dict(each.split("=", 1) for each in given.set),
    }
    for key, value in options.items():
        env.execute_sql(f"SET '{key}' = '{value}'")
    for statement in (*tables, write_side_input(scratch / "side")):
        env.execute_sql(statement)
    *before, job = job_statements(given.query, QUERIES[given.query], scratch / "output")
    for statement in before:
        env.execute_sql(statement)
    with Meter(given.query, checkpoints) as meter:
        env.execute_sql(job).wait()
    return meter.taken


def main() -> None:
    """Run one query and save what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--query", choices=list(QUERIES), required=True)
    parser.add_argument("--files", type=Path, help="of events; without, they are generated")
    parser.add_argument("--stream", action="store_true", help="of all events, which tables view")
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--warm-up-files", type=Path)
    parser.add_argument("--warm-up-events", type=int, required=True)
    parser.add_argument("--parallelism", type=int, required=True)
    parser.add_argument("--interval", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--report", type=Path, required=True)
    given = parser.parse_args()

    def tables(files: Path | None, events: int) -> list[str]:
        if files is not None:
            return from_files(files)
        generated = from_stream if given.stream else from_generator
        return generated(events, given.parallelism)

    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        try:
            _run(given, tables(given.warm_up_files, given.warm_up_events), place / "warm-up")
            taken = _run(given, tables(given.files, given.events), place / "run")
        except MillstreamError as error:
            taken = Taken(given.query, error=str(error))
    taken.save(given.report)


if __name__ == "__main__":
    main()
