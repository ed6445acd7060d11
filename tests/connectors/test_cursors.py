"""Cursors of files and of the basic sources: the contract, and what a barrier waits for."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.connectors.basic.collection import CollectionSource
from millstream.connectors.basic.data_generator import DataGeneratorSource
from millstream.connectors.basic.number_sequence import NumberSequenceSource
from millstream.connectors.files.source import FileSource
from millstream.connectors.formats import line_format
from millstream.connectors.formats.avro_files import AvroInputFormat, AvroParquetFormat
from millstream.connectors.formats.avro_types import AvroSchema
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

    def opening(file: object) -> object:
        opened.append(file)
        return real(file)

    monkeypatch.setattr(pq, "ParquetFile", opening)
    while cursor.poll(1_000) is not None:
        pass
    assert (cursor.is_over, len(opened)) == (True, 1)
