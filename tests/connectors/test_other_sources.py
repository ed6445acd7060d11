"""Collections, number sequences, generators, sockets and scripts as sources."""

from __future__ import annotations

import pickle
import socket
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from millstream.common import Configuration, WatermarkStrategy
from millstream.connectors.basic.collection import CollectionSource
from millstream.connectors.basic.data_generator import (
    DataGeneratorSource,
    GeneratorFunction,
    NumberSequenceSource,
    RateLimiterStrategy,
)
from millstream.connectors.basic.socket_source import SocketTextStreamSource
from millstream.contracts.source import Boundedness, SourceBatch
from millstream.datastream import GlobalWindows, StreamExecutionEnvironment
from millstream.errors import ConfigurationError, SourceError, TypeMismatchError
from millstream.testing.conformance import check_source, read_records
from millstream.testing.sources import CRASH, EOF, EPOCH, WATERMARK, At, ScriptedSource
from millstream.types.types import Types

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from millstream.contracts.source import Source


def read_all(source: Source) -> list[object]:
    return [
        record
        for split in source.discover(frozenset())
        for record in read_records(source, split, 0, source.end_offset(split))
    ]


def test_collections() -> None:
    values: list[object] = [1, "x", None, [1]]
    check_source(CollectionSource(values))
    assert read_all(CollectionSource(values)) == values
    typed = CollectionSource(list(range(40_000)), Types.LONG())
    typed.validate()
    check_source(typed)
    assert read_all(typed) == list(range(40_000))
    with pytest.raises(TypeMismatchError, match="x"):
        CollectionSource([1, "x"], Types.LONG()).validate()


@pytest.mark.parametrize(("start", "end"), [(1, 50_000), (0, 2), (5, 5), (5, 4), (-3, 3)])
def test_number_sequences(start: int, end: int) -> None:
    source = NumberSequenceSource(start, end)
    assert read_all(source) == list(range(start, end + 1))
    check_source(source, rounds=2)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def square(number: int) -> int:
    return number * number


class Squares(GeneratorFunction):
    def map(self, value: int) -> object:
        return square(value)

    def map_batch(self, indices: NDArray[np.int64]) -> pa.RecordBatch | None:
        return pa.RecordBatch.from_arrays([pa.array(indices * indices)], names=["f0"])


@pytest.mark.parametrize("count", [0, 1, 10, 20_001])
def test_agree_generators(count: int) -> None:
    untyped = DataGeneratorSource(square, count, splits=3)
    typed = DataGeneratorSource(square, count, type_info=Types.LONG(), splits=3)
    vectorised = DataGeneratorSource(Squares(), count, type_info=Types.LONG(), splits=3)
    expected = sorted(i * i for i in range(count))
    for source in (untyped, typed, vectorised):
        assert sorted(map(int, map(str, read_all(source)))) == expected
        check_source(source, rounds=1)


def test_the_rate_is_kept_by_the_clock() -> None:
    clock = Clock()
    rate = RateLimiterStrategy.per_second(10)
    source = DataGeneratorSource(square, 25, rate, splits=2, clock=clock)
    splits = source.discover(frozenset())

    def due() -> int:
        return sum(source.end_offset(split) for split in splits)

    assert due() == 0
    clock.now += 1.55
    assert due() == 15
    clock.now -= 1
    assert due() == 15  # a clock that is set back takes nothing away
    assert not any(source.is_final(split) for split in splits)
    clock.now += 100
    assert due() == 25
    assert all(source.is_final(split) for split in splits)


def test_a_generator_without_count_never_ends() -> None:
    source = DataGeneratorSource(square, splits=2)
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    split = source.discover(frozenset())[1]
    assert not source.is_final(split)
    assert read_records(source, split, 10, 12) == [21 * 21, 23 * 23]
    with pytest.raises(ConfigurationError):
        RateLimiterStrategy.per_second(0)


class Server:
    """Sends to one client what it is told to."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    def send(self, *chunks: bytes) -> None:
        connection, _ = self._listening.accept()
        with connection:
            for chunk in chunks:
                connection.sendall(chunk)
        self._listening.close()


def wait(source: SocketTextStreamSource) -> None:
    reader = source._reader
    assert reader is not None
    reader._thread.join(timeout=60)
    assert reader.finished


def test_lines_of_a_socket(tmp_path: Path) -> None:
    server = Server()
    thread = threading.Thread(target=server.send, args=(b"one\ntw", b"o\n", b"\nlast"))
    thread.start()
    source = SocketTextStreamSource("127.0.0.1", server.port, directory=str(tmp_path))
    source.validate()
    source.start()
    (split,) = source.discover(frozenset())
    wait(source)
    thread.join()
    end = source.end_offset(split)
    assert read_records(source, split, 0, end) == ["one", "two", "", "last"]
    stop = source.next_stop(split, 0, 1, end)
    first = read_records(source, split, 0, stop)
    assert first + read_records(source, split, stop, end) == ["one", "two", "", "last"]
    assert source.is_final(split)
    assert not source.replayable
    source.stop()
    # Another driver can still read what the first one wrote.
    other = pickle.loads(pickle.dumps(source))
    assert other.end_offset(split) == end
    assert other.is_final(split)


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as taken:  # and not listening, so that nobody else can
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        source = SocketTextStreamSource("127.0.0.1", port)
        source.start()
        (split,) = source.discover(frozenset())
        wait(source)
    with pytest.raises(SourceError, match=str(port)):
        source.end_offset(split)
    source.stop()


def test_scripts(tmp_path: Path) -> None:
    script = [At("a", 1), WATERMARK(1), EPOCH, At("b", 2), CRASH, At("c", 3), EOF, At("d", 4)]
    source = ScriptedSource(script, Types.STRING(), tmp_path)
    source.start()
    (split,) = source.discover(frozenset())
    assert source.end_offset(split) == 7
    assert source.next_stop(split, 0, 100, 7) == 3
    assert read_records(source, split, 0, 3) == ["a"]
    with pytest.raises(SourceError, match="CRASH at position 4"):
        read_records(source, split, 3, 7)
    assert read_records(source, split, 3, 7) == ["b", "c"]
    source.start()
    assert source.end_offset(split) == 8
    assert read_records(source, split, 7, 8) == ["d"]


def test_scripted_watermarks() -> None:
    class Output:
        def __init__(self) -> None:
            self.watermarks: list[int] = []

        def emit_watermark(self, watermark: int) -> None:
            self.watermarks.append(watermark)

    source = ScriptedSource([1, 2, WATERMARK(5), EPOCH, 3, WATERMARK(9)])
    generator = pickle.loads(pickle.dumps(source.watermark_strategy())).create_generator()
    output = Output()
    for record in (1, 2, 3):
        generator.on_event(record, 0, output)
    assert output.watermarks == [5, 9]


@pytest.mark.parametrize("arrow", [False, True])
def test_batches_are_cut_at_the_configured_size(arrow: bool) -> None:
    values: list[object] = list(range(10))
    kind = Types.LONG()
    batch = SourceBatch(
        arrow=kind.to_arrow(values) if arrow else None,
        values=None if arrow else values,
        timestamps=list(range(10)),
        watermark=9,
        dead_letters=[("place", "raw", "error")],
    )
    parts = list(batch.cut(4))
    found = [kind.from_arrow(part.arrow) if arrow else part.values for part in parts]
    assert found == [values[0:4], values[4:8], values[8:]]
    assert [part.timestamps for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [part.watermark for part in parts] == [None, None, 9]
    assert [len(part.dead_letters) for part in parts] == [1, 0, 0]
    assert list(batch.cut(10)) == [batch]


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_a_job_ends_with_its_socket(tmp_path: Path, execution: str) -> None:
    """And its windows close."""
    settings = {
        "execution.target": "local",
        "millstream.execution": execution,
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "millstream.progress": "off",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
    env.set_parallelism(1).enable_checkpointing(20)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.sendall(b"1\n2\n3")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        source = SocketTextStreamSource("127.0.0.1", server.getsockname()[1])
        lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "socket")
        windows = lines.key_by(lambda _: 0).window(
            GlobalWindows.create_with_end_of_stream_trigger()
        )
        found = windows.reduce(lambda one, two: f"{one}+{two}").execute_and_collect()
        assert list(found) == ["1+2+3"]
        thread.join(60)
