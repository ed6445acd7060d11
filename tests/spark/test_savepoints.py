"""A job on Spark is saved while it runs; another starts from there on this machine, and back."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.checkpoint import LocalStorage
from millstream.checkpoint.inspect import inspect_checkpoint
from millstream.common import Encoder, Types, WatermarkStrategy
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.datastream.connectors import FileSink

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.datastream import JobClient, StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

pytestmark = pytest.mark.spark

KEYS = 5


class Numbers(NumberSequenceSource):
    """Of which the first epoch reads few."""

    initial_limit = 100


def slowly(n: int) -> tuple[int, int]:
    time.sleep(0.0005)
    return n % KEYS, 1


def start(env: StreamExecutionEnvironment, directory: Path) -> JobClient:
    source = Numbers(0, 10**9, splits=2)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    pairs = numbers.map(slowly, Types.TUPLE([Types.LONG(), Types.LONG()]))
    counts = pairs.key_by(lambda each: each[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    sink = FileSink.for_row_format(str(directory), Encoder.simple_string_encoder())
    texts = counts.uid("counts").map(lambda each: f"{each[0]} {each[1]}", Types.STRING())
    texts.sink_to(sink.build()).uid("files")
    return env.execute_async("numbers")


def lines(directory: Path) -> Counter[str]:
    files = [each for each in directory.glob("*") if not each.name.startswith(".")]
    return Counter(line for each in files for line in each.read_text().splitlines())


def read(client: JobClient) -> int:
    return int(str(client.get_accumulators().result().get("numbers.numRecordsIn", 0)))


def records_of(saved: str) -> int:
    return inspect_checkpoint(LocalStorage(saved)).manifest.totals["numbers.numRecordsIn"]


def test_from_spark_to_this_machine_and_back(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    saved, before = "", 0
    for number, target in enumerate(["spark", "local", "spark"]):
        settings = {
            "execution.target": target,
            "execution.checkpointing.dir": str(tmp_path / f"checkpoints-{number}"),
            "execution.checkpointing.savepoint-dir": str(tmp_path / "savepoints"),
            "execution.state-recovery.path": saved,
        }
        client = start(make(2, settings), tmp_path / f"out-{number}")
        eventually(lambda client=client, before=before: read(client) > before + 50, "records")  # type: ignore[misc]
        if number == 0:
            running = client.trigger_savepoint().result()
            assert Path(running).parent == tmp_path / "savepoints"
            count = records_of(running)
            eventually(lambda client=client, count=count: read(client) > count, "records")  # type: ignore[misc]
        saved = client.stop_with_savepoint(advance_to_end_of_event_time=False).result()
        assert records_of(saved) == read(client)
        assert lines(tmp_path / f"out-{number}").total() == read(client) - before
        before = records_of(saved)
    together: Counter[str] = Counter()
    for number in range(3):
        together += lines(tmp_path / f"out-{number}")
    # Each record is counted once, by one of the three jobs.
    assert set(together.values()) == {1}
    for key in range(KEYS):
        found = sorted(int(line.split()[1]) for line in together if line.startswith(f"{key} "))
        assert found == list(range(1, len(found) + 1))
