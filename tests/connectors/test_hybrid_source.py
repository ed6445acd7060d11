"""Sources that are read one after the other."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.environments import environments

from millstream.common import Types, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSource, StreamFormat
from millstream.datastream.connectors.hybrid_source import HybridSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import ProgramError, SourceError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.source import Source
    from millstream.graph.model import JobGraph

LONG = Types.LONG()
PARTS = NumberSequenceSource(0, 299), NumberSequenceSource(300, 309), NumberSequenceSource(310, 699)
EVERY = list(range(700))


def hybrid(*parts: Any) -> HybridSource:
    builder = HybridSource.builder(parts[0])
    for each in parts[1:]:
        builder = builder.add_source(each)
    return builder.build()


def job(source: Source, out: Path, parallelism: int) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "hybrid").uid("hybrid")
    stream.sink_to(CollectSink(str(out))).uid("sink").set_parallelism(1)
    return env.get_job_graph("hybrid")


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_one_after_the_other(tmp_path: Path, execution: str) -> None:
    engine = {"execution.target": "local", "millstream.execution": execution}
    env = environments(tmp_path, engine)(1)
    stream = env.from_source(hybrid(*PARTS), WatermarkStrategy.no_watermarks(), "hybrid")
    stream.sink_to(CollectSink(str(tmp_path / "out")))
    env.execute("hybrid")
    assert list(read_collected(tmp_path / "out")) == EVERY


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pipelined", [False, True])
def test_each_record_once_whenever_it_is_started_again(
    tmp_path: Path, seed: int, pipelined: bool
) -> None:
    numbers = random.Random(seed)
    parallelism = numbers.randint(1, 3)
    for _ in range(200):
        limits = (numbers.choice([1, 7, 60, 400]) for _ in itertools.count())
        graph = job(hybrid(*PARTS), tmp_path / "out", parallelism)
        cluster = MiniCluster(
            graph, tmp_path / "checkpoints", limits=limits, seed=seed, pipelined=pipelined
        )
        last = cluster.run(numbers.randint(1, 4))
        found: Counter[Any] = Counter(read_collected(tmp_path / "out"))
        assert max(found.values(), default=0) <= 1
        if any(each >= 300 for each in found):
            assert all(number in found for number in range(300)), "the first one comes first"
        if last is None or len(found) == len(EVERY):
            break
    assert sorted(found) == EVERY


def test_watermarks_go_on_from_one_source_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("".join(f"{number}\n" for number in range(100)))
    files = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path / "lines.txt")
    ).build()
    (tmp_path / "more.txt").write_text("".join(f"{number}\n" for number in range(100, 137)))
    more = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path / "more.txt")
    ).build()

    class Number(TimestampAssigner):
        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            del record_timestamp
            return int(value)

    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Number())
    env = environments(tmp_path, {"execution.target": "local"})(1)
    windows = (
        env.from_source(hybrid(files, more), strategy, "hybrid")
        .map(int, LONG)
        .window_all(TumblingEventTimeWindows.of(10))
        .reduce(lambda one, other: one + other)
    )
    windows.sink_to(CollectSink(str(tmp_path / "out")))
    env.execute("hybrid")
    expected = [sum(range(start, min(start + 10, 137))) for start in range(0, 137, 10)]
    assert list(read_collected(tmp_path / "out")) == expected


@pytest.mark.parametrize("pipelined", [False, True])
def test_the_last_source_is_made_when_the_others_are_read(tmp_path: Path, pipelined: bool) -> None:
    calls = tmp_path / "calls"

    def go_on(before: Source) -> Source:
        assert isinstance(before, NumberSequenceSource)
        with calls.open("a") as file:
            file.write("call\n")
        return NumberSequenceSource(310, 699)

    for epochs in (1, 2, 2, 100):
        cluster = MiniCluster(
            job(hybrid(*PARTS[:2], go_on), tmp_path / "out", 2),
            tmp_path / "checkpoints",
            limits=itertools.repeat(150),
            pipelined=pipelined,
        )
        cluster.run(epochs)
    assert sorted(read_collected(tmp_path / "out")) == EVERY  # type: ignore[type-var]
    assert calls.read_text() == "call\n", "it is known after a restart"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (None, "its function returned None"),
        (HybridSource, "its function returned <class"),
        (
            FileSource.for_record_stream_format(StreamFormat.text_line_format(), __file__).build(),
            "makes .*, and those before it",
        ),
    ],
)
def test_what_a_function_must_not_return(tmp_path: Path, made: Any, message: str) -> None:
    cluster = MiniCluster(job(hybrid(PARTS[0], lambda _: made), tmp_path / "out", 1))
    with pytest.raises(SourceError, match=message):
        cluster.run(20)
    cluster.close_instances()


def test_what_cannot_be_read_in_order() -> None:
    from millstream.datastream.connectors.datagen import DataGeneratorSource

    endless = DataGeneratorSource(lambda number: number, type_info=LONG)
    with pytest.raises(ProgramError, match="DataGeneratorSource, has no end, so no source after"):
        hybrid(endless, PARTS[0])
    with pytest.raises(ProgramError, match="all sources make records of one type"):
        hybrid(PARTS[0], DataGeneratorSource(str, type_info=Types.STRING()))
    with pytest.raises(ProgramError, match="only the last source"):
        hybrid(PARTS[0], lambda before: before, PARTS[1])
    with pytest.raises(ProgramError, match=r"add_source\(\) of a HybridSource takes a source"):
        hybrid(PARTS[0], 3)
    with pytest.raises(ProgramError, match=r"builder\(\) of a HybridSource takes a source"):
        HybridSource.builder("kafka")  # type: ignore[arg-type]
