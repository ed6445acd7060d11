"""A job that is saved, stopped with a savepoint, or started from one: the job of its kill tests.

Run as ``python savepoint_job.py DIRECTORY EXECUTION SAVEPOINTS [SAVEPOINT]``.  Without the last it
takes a savepoint and stops with another one; with it, it claims that savepoint and runs to the end.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.common import Configuration, Encoder, Types, WatermarkStrategy
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink
from millstream.errors import JobError

if TYPE_CHECKING:
    from millstream.datastream import JobClient

COUNT = 6_000
KEYS = 5


class Numbers(NumberSequenceSource):
    """Of which the first epoch reads few."""

    initial_limit = 100


def slowly(n: int) -> tuple[int, int]:
    time.sleep(0.0005)
    return n % KEYS, 1


def build(directory: Path, execution: str, savepoint: str) -> StreamExecutionEnvironment:
    settings = {
        "execution.target": "local",
        "millstream.execution": execution,
        "millstream.local-directory": str(directory / "local"),
        "millstream.checkpoint.fsync": "false",
        "millstream.progress": "off",
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.interval": "100",
        "millstream.epoch.target-duration": "20",
        "execution.state-recovery.path": savepoint,
        "execution.state-recovery.claim-mode": "CLAIM",
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    source = Numbers(0, COUNT - 1, splits=2)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    pairs = numbers.map(slowly, Types.TUPLE([Types.LONG(), Types.LONG()])).uid("pairs")
    counts = pairs.key_by(lambda each: each[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    sink = FileSink.for_row_format(str(directory / "out"), Encoder.simple_string_encoder())
    texts = counts.uid("counts").map(lambda each: f"{each[0]} {each[1]}", Types.STRING())
    texts.sink_to(sink.build()).uid("files")
    return env


def read(client: JobClient) -> int:
    return int(str(client.get_accumulators().result().get("numbers.numRecordsIn", 0)))


def main(directory: str, execution: str, savepoints: str, savepoint: str = "") -> None:
    env = build(Path(directory), execution, savepoint)
    client = env.execute_async("numbers")
    if not savepoint:
        first = read(client)
        while read(client) == first and not client.get_job_status().result().is_terminal_state():
            time.sleep(0.01)
        with contextlib.suppress(JobError):  # it may be over by then
            client.trigger_savepoint(savepoints).result()
            client.stop_with_savepoint(False, savepoints).result()
    client.get_job_execution_result().result()


if __name__ == "__main__":
    main(*sys.argv[1:])
