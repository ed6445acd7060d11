"""Cursors of files and of the basic sources: the contract, and what a barrier waits for."""

from __future__ import annotations

import gzip
import io
import pickle
import socket
import time
from typing import TYPE_CHECKING

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.connectors.basic.collection import CollectionSource
from millstream.connectors.basic.data_generator import DataGeneratorSource, NumberSequenceSource
from millstream.connectors.basic.socket_source import SocketTextStreamSource
from millstream.connectors.files.source import FileSource
from millstream.connectors.formats import line_format, parquet_format
from millstream.connectors.formats.avro_format import AvroParquetFormat, AvroSchema
from millstream.datastream.formats.avro import AvroInputFormat
from millstream.testing.conformance import check_cursors
from millstream.testing.sources import ScriptedSource
from millstream.types.types import Types

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.source import Source, SplitCursor

ROWS = 20_000
AVRO = """{"type": "record", "name": "r", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": "string"}]}"""


def _table() -> pa.Table:
    ids = list(range(ROWS))
    return pa.table({"id": ids, "name": [f"n{i % 97}" for i in ids]})


def _lines() -> bytes:
    return b"id,name\n" + b"".join(b"%d,n%d\n" % (i, i % 97) for i in range(ROWS))


def _bytes(kind: str) -> bytes:
    if kind == "csv.gz":
        return gzip.compress(_lines(), 1)
    if kind == "json":
        return b"".join(b'{"id": %d, "name": "n"}\n' % i for i in range(ROWS))
    return b"id,name\n" + b'1,"a\nb"\n' * ROWS if kind == "csv with breaks" else _lines()


def _source(kind: str, directory: Path) -> Source:
    path = directory / ("file.gz" if kind == "csv.gz" else "file")
    name = str(path)
    if "parquet" in kind:
        pq.write_table(_table(), path, row_group_size=7_000)
    elif kind == "avro":
        with path.open("wb") as stream:
            fastavro.writer(stream, AvroSchema(AVRO).parsed, _table().to_pylist())
    else:
        path.write_bytes(_bytes(kind))
    made = {
        "parquet": lambda: FileSource.parquet(name),
        "avro-parquet": lambda: FileSource(AvroParquetFormat(AvroSchema(AVRO)), (name,)),
        "avro": lambda: AvroInputFormat(name, AvroSchema(AVRO)).create_source(),
        "csv": lambda: FileSource.csv(name),
        "csv.gz": lambda: FileSource.csv(name, header=False, schema=_TEXTS),
        "csv with breaks": lambda: FileSource.csv(name, multi_line=True),
        "json": lambda: FileSource.json_lines(name),
        "text": lambda: FileSource.text(name),
    }
    return made[kind]()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several in each file."""
    monkeypatch.setattr(line_format, "BLOCK_SIZE", 1 << 16)


_TEXTS = Types.ROW_NAMED(["id", "name"], [Types.STRING(), Types.STRING()])


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "kind", ["parquet", "avro-parquet", "avro", "csv", "csv.gz", "csv with breaks", "json", "text"]
)
def test_files(tmp_path: Path, kind: str) -> None:
    check_cursors(_source(kind, tmp_path), rounds=1, most=1 << 30)


def test_malformed_lines(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(_lines().replace(b",n5\n", b"\n", 10))
    source = FileSource.csv(str(path), malformed="dead-letter")
    check_cursors(source, most=1 << 30, slowest=1.0)  # it takes blocks apart


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "source",
    [
        CollectionSource(list(range(5_000))),
        CollectionSource(list(range(40_000)), Types.LONG()),
        CollectionSource([]),
        NumberSequenceSource(1, 50_000),
        DataGeneratorSource(float, 30_000, type_info=Types.DOUBLE()),
        ScriptedSource(list(range(500))),
    ],
    ids=["values", "columns", "empty", "numbers", "generated", "scripted"],
)
def test_basic_sources(source: Source) -> None:
    check_cursors(source)


def _cursor(source: Source) -> SplitCursor:
    (split,) = source.discover(frozenset())
    cursor = source.open_cursor(split, source.start_offset(split))
    cursor.extend(source.end_offset(split), final=True)
    return cursor


@pytest.mark.parametrize(("kind", "polls"), [("parquet", 1), ("avro", 1), ("csv.gz", 20)])
def test_a_barrier_waits_for_no_more_than_a_block(tmp_path: Path, kind: str, polls: int) -> None:
    cursor = _cursor(_source(kind, tmp_path))
    unsettled = longest = count = 0
    while not cursor.is_over:
        cursor.poll(1_000)
        unsettled = 0 if cursor.settled else unsettled + 1
        longest, count = max(longest, unsettled), count + 1
    cursor.close()
    assert longest < polls
    assert count >= polls


def test_a_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _source("parquet", tmp_path)
    cursor = _cursor(source)
    opened: list[object] = []
    real = pq.ParquetFile

    def opening(file: object, **options: object) -> object:
        opened.append(file)
        return real(file, **options)

    monkeypatch.setattr(pq, "ParquetFile", opening)
    while cursor.poll(1_000) is not None:
        pass
    assert (cursor.is_over, len(opened)) == (True, 1)


def test_a_row_group_is_not_read_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_format, "BUFFER_SIZE", 1 << 14)
    path = tmp_path / "file"
    pq.write_table(pa.table({"n": list(range(400_000))}), path, use_dictionary=False)
    cursor = _cursor(FileSource.parquet(str(path)))
    read = 0

    class Counted(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            nonlocal read
            found = super().read(-1 if size is None else size) or b""
            read += len(found)
            return found

    monkeypatch.setattr(parquet_format, "open_file", lambda path, _: Counted(path))
    batch = cursor.poll(10)
    assert batch is not None
    assert read < path.stat().st_size // 4
    cursor.close()


def test_going_on_within_a_row_group_or_a_compressed_file_takes_several_polls(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    pq.write_table(pa.table({"n": list(range(100_000))}), path)
    source = FileSource.parquet(str(path))
    (split,) = source.discover(frozenset())
    cursor = source.open_cursor(split, 90_000)
    cursor.extend(100_000, final=True)
    lengths = []
    while not (batch := cursor.poll(100)):
        assert batch is not None
        lengths.append((cursor.position, cursor.settled))
    assert lengths == [(90_000, True)] * 5
    assert batch.arrow is not None
    assert batch.arrow.column(0)[0].as_py() == 90_000
    cursor.close()


# -- sources that grow -----------------------------------------------------------------------------


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_generated_records_come_when_they_are_due() -> None:
    clock = _Clock()
    source = DataGeneratorSource(int, 25, 100, splits=1, clock=clock)
    (split,) = source.discover(frozenset())
    cursor = source.open_cursor(split, 0)  # and the driver says nothing
    assert cursor.poll(100) is None
    clock.now += 0.035
    assert _values(cursor) == [0, 1, 2]
    assert not cursor.is_over
    clock.now -= 1  # set back
    assert cursor.poll(100) is None
    clock.now += 1.01
    assert _values(cursor) == [3]
    clock.now += 5
    assert _values(cursor) == list(range(4, 25))
    assert (cursor.is_over, cursor.settled, cursor.position) == (True, True, 25)


def _values(cursor: SplitCursor) -> list[object]:
    found: list[object] = []
    while (batch := cursor.poll(100)) is not None:
        found += batch.arrow.column(0).to_pylist() if batch.arrow else batch.values or []
    return found


def test_generated_records_at_a_rate() -> None:
    check_cursors(DataGeneratorSource(int, 400, 10_000, splits=2), most=50)
    check_cursors(DataGeneratorSource(int, None, splits=1), most=20_000)


def test_lines_of_a_socket_are_seen_without_the_driver(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = SocketTextStreamSource("127.0.0.1", port, directory=str(tmp_path))
        source.start()
        try:
            (split,) = source.discover(frozenset())
            task: Source = pickle.loads(pickle.dumps(source))
            cursor = task.open_cursor(split, 0)
            connection = server.accept()[0]
            with connection:
                for number in range(20):
                    connection.sendall(b"line %d\nhal" % number)
                    expected = f"halline {number}" if number else "line 0"
                    assert _wait_for(cursor) == [expected]
            assert _wait_for(cursor) == ["hal"]
            position = cursor.position
            while not cursor.is_over:
                assert cursor.poll(10) is None
            again = task.open_cursor(split, 0)
            assert len(_values(again)) == 21
            assert again.position == position
        finally:
            source.stop()


def _wait_for(cursor: SplitCursor) -> list[object]:
    deadline = time.monotonic() + 60
    while not (found := _values(cursor)):
        assert time.monotonic() < deadline
    return found


def test_a_socket_that_fails_is_not_over(tmp_path: Path) -> None:
    with socket.socket() as taken:  # and not listening
        taken.bind(("127.0.0.1", 0))
        source = SocketTextStreamSource(
            "127.0.0.1", taken.getsockname()[1], directory=str(tmp_path)
        )
        source.start()
        (split,) = source.discover(frozenset())
        reader = source._reader
        assert reader is not None
        reader._thread.join(60)
    assert reader.error is not None
    cursor = source.open_cursor(split, 0)
    assert cursor.poll(10) is None
    assert not cursor.is_over
    source.stop()
