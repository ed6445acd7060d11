"""The program of ``bench/pyflink_program.py``: on PyFlink, a peer, or with swapped imports.

``--mode process`` and ``thread`` are PyFlink's ways of running Python; ``epochs`` and ``pipelined``
are Millstream.  All read the same CSV files and write text files, which are checked.  The rate
counts from the first record to the end of the job: starting processes is left out.

Run by ``bench/run.py``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from bench.data import Dataset
from bench.measure import Outcome, add_measurement_arguments
from bench.nexmark.flink_home import environment, python_of
from bench.pyflink_program import PANDAS, WORKLOADS, Library, run
from pyarrow import csv

if TYPE_CHECKING:
    from collections.abc import Sequence

_PYFLINK_MODES = ("process", "thread")


def _on_flink(given: argparse.Namespace) -> float:
    home = Path(os.environ.get("MILLSTREAM_BENCH_PYFLINK", "build/pyflink")).absolute()
    report = given.scratch / "seconds"
    command = [str(python_of(home, functions=True)), "-m", "bench.pyflink_program"]
    for name in ("workload", "mode", "files", "output", "first"):
        command += [f"--{name}", str(getattr(given, name))]
    command += ["--checkpoints", str(given.scratch / "checkpoints"), "--report", str(report)]
    variables = environment()
    # Threads of the JVM do not find the packages of a virtual environment by themselves.
    packages = next((home / "lib").glob("python3*/site-packages"))
    variables["PYTHONPATH"] += f"{os.pathsep}{packages}"
    subprocess.run(command, check=True, env=variables)
    return float(report.read_text())


def _on_millstream(given: argparse.Namespace) -> float:
    from bench.millstream_jobs import OPTIONS, new_environment
    from bench.spark_session import start_session

    given.library = "millstream"
    start_session("millstream", given.scratch, OPTIONS)
    return run(Library(given.library), new_environment(given.scratch, given.mode), given)


def _as_parquet(output: Path, target: Path) -> None:
    """Rewrite the lines of the result, which ``bench/check.py`` reads as Parquet."""
    target.mkdir()
    options = csv.ReadOptions(autogenerate_column_names=True)
    for number, path in enumerate(_files(output)):
        table = csv.read_csv(path, options)
        whole = pa.schema([(name, pa.int64()) for name in table.column_names])
        pq.write_table(table.cast(whole), target / f"{number}.parquet")


def _files(output: Path) -> Sequence[Path]:
    """What is committed; hidden files are not."""
    found = [path for path in output.rglob("*") if path.is_file() and path.stat().st_size]
    return sorted(path for path in found if not path.name.startswith((".", "_")))


def main() -> None:
    """Run one workload and save its outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", choices=[*WORKLOADS, PANDAS], required=True)
    parser.add_argument("--mode", choices=[*_PYFLINK_MODES, "epochs", "pipelined"], required=True)
    add_measurement_arguments(parser)
    given = parser.parse_args()
    dataset = Dataset(given.events, given.keys, given.files)
    given.files = f"file://{dataset.ensure_csv()}"
    given.output = str(given.scratch / "output")
    given.first = str(given.scratch / "first")
    Path(given.first).mkdir(parents=True)
    seconds = _on_flink(given) if given.mode in _PYFLINK_MODES else _on_millstream(given)
    checked = given.scratch / "checked"
    _as_parquet(Path(given.output), checked)
    Outcome(given.events / seconds, given.events, output=str(checked)).save(given.report)


if __name__ == "__main__":
    main()
