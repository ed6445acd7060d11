"""What ``make test`` runs on Spark: results, kills, DataFrames in and out, on one session."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from tests.spark.conftest import JOB

from millstream.common import Row, Types
from millstream.datastream import RestartStrategies
from millstream.spark import DataFrameSink
from millstream.testing.crash import run_once

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.datastream import StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]

pytestmark = [pytest.mark.spark, pytest.mark.smoke]

LINES = ["to be or not to be", "that is the question", "to sleep", "perchance to dream"]
COUNT = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])
#: Seconds; what a program takes on a machine that is busy with other work.
LONGEST = 400


def counted(env: StreamExecutionEnvironment) -> Any:
    """Each word with how often it was there so far."""
    words = env.from_collection(LINES, Types.STRING()).flat_map(str.split, Types.STRING())
    ones = words.map(lambda word: Row(word=word, n=1), COUNT)
    return ones.key_by(lambda row: row.word, Types.STRING()).reduce(
        lambda one, other: Row(word=one.word, n=one.n + other.n)
    )


def is_answer(rows: list[tuple[str, int]]) -> bool:
    """Whether each word is there with 1, 2, 3, ... up to how often it is in the lines."""
    wanted = Counter(word for line in LINES for word in line.split())
    return sorted(rows) == sorted((word, n + 1) for word in wanted for n in range(wanted[word]))


def test_word_count(make: Make) -> None:
    with counted(make(2)).execute_and_collect() as rows:
        assert is_answer([(row.word, row.n) for row in rows])


def test_killed_driver(make: Make, job: Any, tmp_path: Path) -> None:
    """Another one finishes the job; nothing is lost or twice."""
    (tmp_path / "go").touch()
    command = [sys.executable, str(JOB), "wait", str(tmp_path)]
    crash = "manifest.publish.after:2"
    run = run_once(command, directory=tmp_path / "run", crash=crash, deadline=LONGEST)
    assert run.killed, run.output
    assert 0 < len(job.rows(tmp_path / "output")) < job.NUMBERS

    env = make(2, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
    job.add_job(env, tmp_path / "output")
    env.execute("counting")
    assert job.problem(tmp_path / "output") is None


@pytest.mark.parametrize("place", ["first", "second"])
def test_killed_worker(make: Make, job: Any, tmp_path: Path, place: str) -> None:
    env = make(2, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 10))
    flag = tmp_path / "flag"
    job.add_job(env, tmp_path / "output", **{place: job.KillWorker(33, flag)})
    env.execute("counting")
    assert flag.exists()
    assert job.problem(tmp_path / "output") is None


def test_from_spark(make: Make, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text(os.linesep.join(LINES))
    frame = spark.readStream.text(str(tmp_path)).selectExpr("upper(value) AS line")
    lines = make(1).from_spark(frame).map(lambda row: row.line, Types.STRING())
    found = lines.execute_and_collect(limit=len(LINES))
    assert sorted(found) == sorted(line.upper() for line in LINES)  # type: ignore[type-var]


def test_dataframe_sink(make: Make, tmp_path: Path) -> None:
    table = tmp_path / "table"

    def write(frame: Any, epoch: Any) -> None:
        frame.write.mode("overwrite").parquet(f"file:{table}/epoch={int(epoch)}")

    env = make(1, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
    counted(env).sink_to(DataFrameSink(write)).uid("table")
    env.execute("to a DataFrame")
    read = ds.dataset(table, partitioning="hive").to_table().to_pylist()
    assert is_answer([(row["word"], row["n"]) for row in read])
