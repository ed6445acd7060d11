"""Peer: Flink's SQL, the statements of ``bench/sql_jobs.py``, from the same CSV files.

What it is: what starts Flink in its own environment (``bench/nexmark/flink_home.py``), which is
made at the first time.  ``MILLSTREAM_BENCH_FLINK`` says where it is.  Results go into a blackhole.

Run by ``bench/run.py``.  Read next: ``bench/flink_sql_job.py``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

from bench.data import Dataset
from bench.measure import Outcome, add_measurement_arguments
from bench.nexmark.flink_home import environment, python_of
from bench.spark_session import warm_up_dataset
from bench.sql_queries import WORKLOADS


def main() -> None:
    """Run one workload and save its outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", choices=sorted(WORKLOADS), required=True)
    add_measurement_arguments(parser)
    given = parser.parse_args()
    dataset = Dataset(given.events, given.keys, given.files)
    home = Path(os.environ.get("MILLSTREAM_BENCH_FLINK", "build/flink")).absolute()
    command = [str(python_of(home)), "-m", "bench.flink_sql_job", "--workload", given.workload]
    command += ["--files", f"file://{dataset.ensure_csv()}", "--scratch", str(given.scratch)]
    command += ["--warm-up-files", f"file://{warm_up_dataset(dataset).ensure_csv()}"]
    subprocess.run(command, check=True, env=environment())
    seconds = float((given.scratch / "seconds").read_text())
    Outcome(given.events / seconds, given.events).save(given.report)


if __name__ == "__main__":
    main()
