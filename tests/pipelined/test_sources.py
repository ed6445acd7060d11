"""Sources of every kind in jobs that stop on the way and go on, each time on the other engine."""

from __future__ import annotations

import gzip
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.environments import environments

from millstream.common import (
    Duration,
    Encoder,
    SimpleStringSchema,
    Time,
    Types,
    WatermarkStrategy,
)
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.connectors.basic.data_generator import DataGeneratorSource, NumberSequenceSource
from millstream.contracts.source import Boundedness
from millstream.datastream import JobStatus, TumblingEventTimeWindows
from millstream.datastream.connectors import FileSink
from millstream.datastream.connectors.file_system import FileSource
from millstream.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from millstream.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.broker import Broker

    from millstream.contracts.source import Source, Split, SplitCursor
    from millstream.datastream import JobClient, StreamExecutionEnvironment

COUNT = 3_000


def _parquet(directory: Path) -> Source:
    for number in range(3):
        numbers = list(range(number * 1_000, (number + 1) * 1_000))
        path = directory / f"{number}.parquet"
        pq.write_table(pa.table({"n": numbers}), path, row_group_size=300)
    return FileSource.parquet(str(directory))


def _texts(directory: Path) -> Source:
    """Many small files, and a compressed one of half the lines."""
    for number in range(50):
        (directory / f"{number}.txt").write_text(_lines(number * 30, (number + 1) * 30))
    (directory / "lines.gz").write_bytes(gzip.compress(_lines(1_500, COUNT).encode()))
    return FileSource.text(str(directory))


def _lines(start: int, stop: int) -> str:
    return "".join(f"{n}\n" for n in range(start, stop))


def _generated(directory: Path) -> Source:
    del directory
    return DataGeneratorSource(int, COUNT, 2_000, Types.LONG(), splits=3)


def _number(record: object) -> int:
    return int(record[0] if isinstance(record, tuple | list) else str(record))


def _slowly(record: object) -> str:
    time.sleep(0.0002)
    return str(_number(record))


def _environment(directory: Path, engine: str) -> StreamExecutionEnvironment:
    settings = {"execution.target": "local", "millstream.execution": engine}
    make = environments(directory, {**settings, "execution.checkpointing.interval": "50"})
    return make(2, {"execution.checkpointing.dir": str(directory / "checkpoints")})


def _start(
    directory: Path,
    engine: str,
    source: Source,
    strategy: WatermarkStrategy = WatermarkStrategy.no_watermarks(),  # noqa: B008 - immutable
) -> JobClient:
    env = _environment(directory, engine)
    sink = FileSink.for_row_format(str(directory / "out"), Encoder.simple_string_encoder())
    stream = env.from_source(source, strategy, "source").uid("source")
    texts = stream.map(_slowly, Types.STRING()).uid("slowly")
    texts.key_by(lambda text: int(text) % 7).map(lambda text: text, Types.STRING()).uid(
        "on"
    ).sink_to(sink.build()).uid("files")
    return env.execute_async("sources")


def _written(directory: Path) -> list[int]:
    out = directory / "out"
    files = [path for path in out.glob("*") if not path.name.startswith(".")]
    return [int(line) for path in files for line in path.read_text().splitlines()]


def _run_by_turns(
    directory: Path, source: Source, eventually: Callable[[Callable[[], bool], str], None]
) -> None:
    source.initial_limit = 200  # of the first epoch of each run
    written: list[int] = []
    for engine in ("pipelined", "epochs", "pipelined"):
        client = _start(directory, engine, source)
        more = min(len(written) + 1, COUNT)  # the epoch engine reads compressed files as a whole
        eventually(lambda more=more: len(_written(directory)) >= more, "records")  # type: ignore[misc]
        client.stop().result()
        assert client.get_job_status().result() is JobStatus.FINISHED
        written = _written(directory)
        assert len(set(written)) == len(written)
    _start(directory, "pipelined", source).get_job_execution_result().result()
    assert sorted(_written(directory)) == list(range(COUNT))


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("make", [_parquet, _texts, _generated])
def test_everything_once(
    tmp_path: Path,
    eventually: Callable[[Callable[[], bool], str], None],
    make: Callable[[Path], Source],
) -> None:
    (tmp_path / "in").mkdir()
    _run_by_turns(tmp_path, make(tmp_path / "in"), eventually)


def test_everything_of_kafka_once(
    tmp_path: Path, eventually: Callable[[Callable[[], bool], str], None], broker: Broker
) -> None:
    topic = broker.topic(partitions=3)
    for partition in range(3):
        broker.send(topic, [b"%d" % n for n in range(partition, COUNT, 3)], partition=partition)
    builder = KafkaSource.builder().set_bootstrap_servers(broker.servers).set_topics(topic)
    builder.set_value_only_deserializer(SimpleStringSchema())
    source = builder.set_bounded(KafkaOffsetsInitializer.latest()).build()
    _run_by_turns(tmp_path, source, eventually)


class _Shut(NumberSequenceSource):
    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        message = f"nobody opens {split.id}"
        raise OSError(message)


def test_a_split_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    client = _start(tmp_path, "pipelined", _Shut(1, 10, splits=1))
    where = r"'Source: source' \(test_sources.py:\d+, uid source\)"
    with pytest.raises(SourceError, match=f"{where} failed while reading split 'numbers-0'"):
        client.get_job_execution_result().result()


# -- watermark alignment and idleness ----------------------------------------------------------


class _TwoSpeeds(NumberSequenceSource):
    """One split of a hundred records a second, and one that has all of them at once, or none."""

    def __init__(self, fast: int) -> None:
        super().__init__(0, 2 * 10**9 - 1, splits=2)
        self.started = time.time()
        self.fast = fast

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def is_final(self, split: Split) -> bool:
        return False

    def end_offset(self, split: Split) -> int:
        if split.id == "numbers-1":
            return self.fast
        return int(100 * (time.time() - self.started))


class _Seconds(TimestampAssigner):
    """The n-th record of a split is n seconds."""

    def extract_timestamp(self, value: object, record_timestamp: int) -> int:
        del record_timestamp
        return int(str(value)) % 10**9 * 1000


def test_a_split_that_is_ahead_waits(
    tmp_path: Path, eventually: Callable[[Callable[[], bool], str], None]
) -> None:
    def count() -> tuple[int, int]:
        written = _written(tmp_path)
        slow = sum(n < 10**9 for n in written)
        return slow, len(written) - slow

    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(_Seconds())
        .with_watermark_alignment("g", Duration.of_seconds(10), Duration.of_millis(50))
    )
    client = _start(tmp_path, "pipelined", _TwoSpeeds(10**9), strategy)
    # Where slots begin late, the slow split has much at once, and the fast one comes behind it.
    eventually(lambda: 150 < count()[0] < count()[1], "records of the slow split, and of the fast")
    client.stop().result()
    slow, fast = count()
    # Ten seconds ahead, a batch, and what it reads of 5,000 a second until its first ceiling comes;
    # 7,500 if nobody held it.
    assert fast < slow + 10 + 2_000


def test_time_goes_on_without_a_split_that_is_idle(
    tmp_path: Path, eventually: Callable[[Callable[[], bool], str], None]
) -> None:
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(_Seconds())
        .with_idleness(Duration.of_millis(200))
    )
    env = _environment(tmp_path, "pipelined")
    stream = env.from_source(_TwoSpeeds(fast=3), strategy, "source").key_by(lambda _: 0)
    greatest = stream.window(TumblingEventTimeWindows.of(Time.seconds(10))).reduce(max)
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    greatest.map(str, Types.STRING()).sink_to(sink.build())
    client = env.execute_async("idle")
    # The first window holds for the other split, until nothing comes of it.
    eventually(lambda: {10**9 + 2, 19, 29} <= set(_written(tmp_path)), "windows")
    client.cancel().result()
