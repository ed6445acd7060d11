"""The job of the robustness tests: numbers, counted per key, into an exactly-once file sink.

It is imported by tests, and run as ``python counting_job.py MODE DIRECTORY``:

- ``wait``: half of the numbers are read, the rest once the file DIRECTORY/go exists.
- ``executors``: on ``local-cluster[2,1,1024]``; a function kills its executor's JVM in a task of
  the first stage (left to Spark), then in one of the second (a restart may be needed).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.common import Configuration, Row, Types, WatermarkStrategy
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from millstream.datastream.connectors import FileSink
from millstream.datastream.state import ValueStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.source import Split
    from millstream.datastream import RuntimeContext

NUMBERS = 60
KEYS = 7
COUNTED = Types.ROW_NAMED(["key", "id", "n"], [Types.LONG(), Types.LONG(), Types.LONG()])


class SlowNumbers(NumberSequenceSource):
    """Two splits, of which an epoch reads ten numbers; the second half only after ``go``."""

    def __init__(self, go: Path | None = None) -> None:
        super().__init__(0, NUMBERS - 1, splits=2)
        self.go = go

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        return super().next_stop(split, start, min(limit, 10), end)

    def end_offset(self, split: Split) -> int:
        end = super().end_offset(split)
        return end if self.is_final(split) else end // 2

    def is_final(self, split: Split) -> bool:
        return self.go is None or self.go.exists()


class Counting(KeyedProcessFunction):
    """The how-manieth number of its key each number is."""

    def __init__(self, before: MapFunction | None = None) -> None:
        self.before = before

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        if self.before is not None:
            self.before.map(value)
        count: Any = (self.count.value() or 0) + 1
        self.count.update(count)
        yield Row(ctx.get_current_key(), value, count)


class OnceAt(MapFunction):
    """Does something harmful at a number, once: the flag file tells that it was done."""

    def __init__(self, number: int, flag: Path) -> None:
        self.number = number
        self.flag = flag

    def map(self, value: int) -> int:
        if value == self.number and not self.flag.exists():
            self.flag.touch()
            self.harm()
        return value

    def harm(self) -> None:
        raise NotImplementedError


class KillWorker(OnceAt):
    """Kills the Python worker that it runs in."""

    def harm(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class KillExecutor(OnceAt):
    """Kills the JVM of the executor that it runs on."""

    def harm(self) -> None:
        pid = os.getpid()
        while pid > 1:
            process = Path("/proc") / str(pid)
            if b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                signal.pause()  # until Spark or the kernel ends this worker
            pid = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        message = "no executor above this process"
        raise RuntimeError(message)


def add_job(
    env: StreamExecutionEnvironment,
    output: Path,
    *,
    go: Path | None = None,
    first: MapFunction | None = None,
    second: MapFunction | None = None,
) -> None:
    """Add the job; ``first`` runs before the exchange, ``second`` behind it."""
    numbers = env.from_source(SlowNumbers(go), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.uid("numbers")
    if first is not None:
        numbers = numbers.map(first, Types.LONG())
    counted = numbers.key_by(lambda number: number % KEYS).process(Counting(second), COUNTED)
    counted.uid("counts").sink_to(FileSink.json_lines(str(output))).uid("output")


def rows(output: Path) -> list[tuple[int, int, int]]:
    """What a reader sees, file by file."""
    found = []
    for path in sorted(output.glob("[!._]*")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found.append((row["key"], row["id"], row["n"]))
    return found


def problem(output: Path, numbers: range = range(NUMBERS)) -> str | None:
    """What is wrong with the result; None if every number is there once, rightly counted."""
    found = rows(output)
    ids = sorted(number for _, number, _ in found)
    if ids != list(numbers):
        return f"not each number once: {ids}"
    for key in range(KEYS):
        counts = sorted(n for k, _, n in found if k == key)
        if counts != list(range(1, len(counts) + 1)):
            return f"key {key} was counted {counts}"
    wrong = [row for row in found if row[0] != row[1] % KEYS]
    return f"wrong keys: {wrong}" if wrong else None


def environment(directory: Path, settings: dict[str, str]) -> StreamExecutionEnvironment:
    configuration = Configuration()
    entries = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "millstream.local-directory": str(directory / "local"),
        "millstream.progress": "off",
        "millstream.spark.master": "local[2]",
        "parallelism.default": "2",
        "restart-strategy.type": "none",
    }
    for key, value in {**entries, **settings}.items():
        configuration.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def wait(directory: Path) -> None:
    """The job that waits for ``go``; it would restart after any failure that allows it."""
    always = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    env = environment(directory, always)
    add_job(env, directory / "output", go=directory / "go")
    env.execute("counting")


def executors(directory: Path) -> None:
    """Two jobs on a cluster of two executors, each of which loses one."""
    import pyspark
    from pyspark.sql import SparkSession

    short_lived = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    cluster = {
        "millstream.spark.master": "local-cluster[2,1,1024]",
        "spark.driver.extraJavaOptions": short_lived,
        "spark.executor.extraJavaOptions": short_lived,
        "spark.executor.memory": "1024m",
    }
    one, two = directory / "one", directory / "two"
    first = environment(one, cluster)
    add_job(first, one / "output", first=KillExecutor(33, directory / "first"))
    first.execute("counting")
    print("first:", problem(one / "output"), (directory / "first").exists(), flush=True)
    retries = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    second = environment(two, {**cluster, **retries})
    add_job(second, two / "output", second=KillExecutor(33, directory / "second"))
    second.execute("counting")
    print("second:", problem(two / "output"), (directory / "second").exists(), flush=True)
    session = SparkSession.getActiveSession()
    assert session is not None
    work = Path(pyspark.__file__).parent / "work" / session.sparkContext.applicationId
    session.stop()
    shutil.rmtree(work, ignore_errors=True)  # the logs of the executors


if __name__ == "__main__":
    {"wait": wait, "executors": executors}[sys.argv[1]](Path(sys.argv[2]))
