"""Whole jobs in slots on Spark: the same results as in epochs, and what failures do.

Tests of jobs that other engines pass as well run here with a few samples of each kind; all of them
run on slots of this machine (``tests/pipelined/test_jobs_of_spark.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.conftest import JOB
from tests.spark.test_failures import test_an_error_in_open_names_the_operator
from tests.spark.test_slots import is_running
from tests.spark.test_smoke import test_killed_worker
from tests.spark.test_sources_and_sinks import (
    test_continuous_monitoring_and_job_client,
    test_generator_at_a_rate_and_processing_time_timers,
)
from tests.support.environments import environments

from millstream.common import Row, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, MapFunction, RestartStrategies
from millstream.datastream.connectors import (
    DataGeneratorSource,
    DiscardingSink,
    FileSink,
    FileSource,
    RateLimiterStrategy,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.engines.spark import pipelined
from millstream.errors import EngineError, ProgramError, WorkerLostError
from millstream.execution.job_client import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from millstream.common import JobClient
    from millstream.datastream import RuntimeContext, StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

__all__ = [
    "test_an_error_in_open_names_the_operator",
    "test_continuous_monitoring_and_job_client",
    "test_generator_at_a_rate_and_processing_time_timers",
    "test_killed_worker",
]

pytestmark = pytest.mark.spark

WORDS = Path(__file__).parents[2] / "examples" / "word_count.py"
SALES = 6000
SALE = Types.ROW_NAMED(["shop", "cents"], [Types.STRING(), Types.LONG()])
COUNTED = Types.ROW_NAMED(["shop", "n"], [Types.STRING(), Types.LONG()])
SLOTS = {"millstream.execution": "pipelined", "execution.checkpointing.interval": "100"}


@pytest.fixture
def make(spark: SparkSession, tmp_path: Path) -> Make:
    """Make an environment of a parallelism, with settings."""
    return environments(tmp_path, SLOTS)


def write_sales(directory: Path) -> None:
    directory.mkdir()
    for part in range(3):
        sales = [
            {"shop": f"shop-{i * i % 11}", "cents": i * 7 % 1000} for i in range(part, SALES, 3)
        ]
        pq.write_table(pa.Table.from_pylist(sales), directory / f"{part}.parquet")


class SoFar(KeyedProcessFunction):
    """How many sales a shop has had so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield Row(value.shop, count)


def count_up(env: StreamExecutionEnvironment, read: Path, written: Path) -> list[dict[str, Any]]:
    """The sales of each shop, numbered, exactly-once; what a reader sees, sorted."""
    source = FileSource.parquet(str(read), schema=SALE)
    sales = env.from_source(source, WatermarkStrategy.no_watermarks(), "sales")
    counted = sales.key_by(lambda sale: sale.shop).process(SoFar(), COUNTED)
    counted.sink_to(FileSink.json_lines(str(written)))
    env.execute("sales")
    rows = [
        json.loads(line)
        for path in written.glob("[!._]*")
        for line in path.read_text().splitlines()
    ]
    return sorted(rows, key=lambda row: (row["shop"], row["n"]))


def test_agree_with_epochs(make: Make, tmp_path: Path) -> None:
    write_sales(tmp_path / "sales")
    found = {
        execution: count_up(
            make(2, {"millstream.execution": execution}), tmp_path / "sales", tmp_path / execution
        )
        for execution in ("epochs", "pipelined")
    }
    assert len(found["epochs"]) == SALES
    assert found["pipelined"] == found["epochs"]


def test_the_example(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    from millstream.cli.main import main

    monkeypatch.chdir(tmp_path)
    assert main(["run", "--pipelined", "-Dmillstream.progress=off", str(WORDS)]) == 0
    assert (
        capsys.readouterr().out == "('be', 1) ('be', 2) ('not', 1) ('or', 1) ('to', 1) ('to', 2)\n"
    )


def test_a_killed_slot_without_restart(make: Make, job: Any, tmp_path: Path) -> None:
    """The error says which slot it was; a second start finishes the job."""
    settings = {"execution.checkpointing.dir": str(tmp_path / "checkpoints")}
    killing = job.KillWorker(33, tmp_path / "flag")
    env = make(2, settings)
    job.add_job(env, tmp_path / "output", second=killing)
    with pytest.raises(WorkerLostError, match=r"slot [01] was killed or has crashed"):
        env.execute("counting")
    env = make(2, settings)
    job.add_job(env, tmp_path / "output", second=killing)
    env.execute("counting")
    assert job.problem(tmp_path / "output") is None


class StopWorker(MapFunction):
    """Stops the Python worker that it runs in, once, as a machine that hangs."""

    def __init__(self, number: int, flag: Path) -> None:
        self.number = number
        self.flag = flag

    def map(self, value: int) -> int:
        if value == self.number and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return value


def test_a_slot_that_hangs_is_killed_and_replaced(
    make: Make, job: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = make(2, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 10))
    stopping = StopWorker(33, tmp_path / "flag")
    job.add_job(env, tmp_path / "output", second=stopping)
    env.execute("counting")
    assert "gave no sign of life" in caplog.text
    assert job.problem(tmp_path / "output") is None


@pytest.mark.soak  # a session in another process takes long; tests/pipelined has it without Spark
def test_a_killed_driver_takes_its_slots_with_it(
    make: Make, job: Any, tmp_path: Path, eventually: Eventually
) -> None:
    """And another goes on from its last checkpoint."""
    options = [f"-D{key}={value}" for key, value in SLOTS.items()]
    output, log = tmp_path / "output", tmp_path / "log"
    with log.open("w") as said:
        driver = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "millstream",
                "run",
                *options,
                str(JOB),
                "wait",
                str(tmp_path),
            ],
            cwd=tmp_path,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:

        def half_done() -> bool:
            assert driver.poll() is None, log.read_text()
            return bool(len(job.rows(output)) == job.NUMBERS // 2)

        eventually(half_done, "the first half")
        workers = workers_below(driver.pid)
        assert len(workers) >= 2
    finally:
        driver.kill()
        driver.wait()
    eventually(lambda: not any(is_running(pid) for pid in workers), "the end of the slots")
    env = make(2, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
    job.add_job(env, output)
    env.execute("counting")
    assert job.problem(output) is None


def workers_below(pid: int) -> set[int]:
    """The Python workers among the processes that a process has started, and these, and so on."""
    parents, workers = {}, set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            parents[int(process.name)] = int(fields[1])
            if b"worker_daemon" in (process / "cmdline").read_bytes():
                workers.add(int(process.name))
    below, found = {pid}, set[int]()
    while below:
        below = {child for child, parent in parents.items() if parent in below}
        found |= below
    return found & workers


def test_more_subtasks_than_cores_are_refused_at_once(make: Make) -> None:
    env = make(3)
    env.from_sequence(1, 9).key_by(lambda number: number % 3).reduce(max).print()
    with pytest.raises(
        EngineError, match=r"needs 3 task slots .* can have 2 \(master local\[2\]\)"
    ):
        env.execute_async("too wide")


def test_dataframes_need_epochs(make: Make, spark: SparkSession) -> None:
    env = make(1)
    rows = spark.readStream.format("rate").load()
    env.from_spark(rows).print()
    with pytest.raises(ProgramError, match=r"millstream.execution: epochs"):
        env.execute_async("rows of Spark")


def test_a_job_that_waits_for_cores_says_for_which_and_can_be_cancelled(
    make: Make,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipelined, "_SOON", 0.3)

    def start(name: str) -> JobClient:
        env = make(2)
        source = DataGeneratorSource(
            lambda number: number,
            2**60,
            rate_limiter_strategy=RateLimiterStrategy.per_second(1000),
            type_info=Types.LONG(),
        )
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        numbers.key_by(lambda number: number % 7).reduce(max).sink_to(DiscardingSink())
        return env.execute_async(name)

    first = start("first")
    eventually(lambda: bool(first.get_accumulators().result()), "a checkpoint of the first job")
    second = start("second")
    said = "(Millstream job 'first' in 2 slots)"
    eventually(lambda: said in caplog.text, "a word about the cores")
    assert "after 0.3 s 0 of 2 slots have started: Spark has 2 task slots" in caplog.text
    for client in (second, first):
        client.cancel().result()
        assert client.get_job_status().result() is JobStatus.CANCELED
