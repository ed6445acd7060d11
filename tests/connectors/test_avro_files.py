"""Avro's container files, Parquet by an Avro schema, and ORC: what is written is read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from millstream.configuration.configuration import Configuration
from millstream.connectors.files.sink import FileSink
from millstream.connectors.files.source import FileSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.formats.avro import (
    AvroBulkWriters,
    AvroFormat,
    AvroInputFormat,
    AvroSchema,
    GenericRecordAvroTypeInfo,
)
from millstream.datastream.formats.orc import OrcBulkWriters
from millstream.datastream.formats.parquet import AvroParquetReaders, AvroParquetWriters
from millstream.errors import ConfigurationError, PermanentSinkError, SourceError
from millstream.testing.conformance import check_source, read_records
from millstream.testing.local_run import run_and_collect
from millstream.testing.mini_cluster import MiniCluster
from millstream.types.row import Row
from millstream.types.types import Types

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.connectors.formats.file_format import BulkWriterFactory

TEXT = json.dumps(
    {
        "type": "record",
        "name": "Reading",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "values", "type": {"type": "array", "items": "int"}},
            {"name": "tags", "type": {"type": "map", "values": "string"}},
        ],
    }
)
SCHEMA = AvroSchema.parse_string(TEXT)
RECORDS: list[Any] = [
    {"id": 1, "name": "a", "values": [1, 2], "tags": {"x": "y"}},
    {"id": 2, "name": None, "values": [], "tags": {}},
]


def environment() -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    return env.set_parallelism(1)


def write(tmp_path: Path, factory: BulkWriterFactory, records: list[Any], kind: Any = None) -> Path:
    env = environment()
    stream = env.from_collection(records, kind)
    if kind is None:
        stream = stream.map(lambda record: record, GenericRecordAvroTypeInfo(SCHEMA))
    stream.sink_to(FileSink.for_bulk_format(str(tmp_path / "out"), factory).build())
    cluster = MiniCluster(env.get_job_graph(), tmp_path / "checkpoints")
    cluster.run()
    cluster.coordinator.close()
    (path,) = (tmp_path / "out").glob(f"*{factory.extension}")
    return path


@pytest.mark.both_engines
def test_avro_files_are_written_and_read(tmp_path: Path) -> None:
    path = write(tmp_path, AvroBulkWriters.for_generic_record(SCHEMA), RECORDS)
    with path.open("rb") as file:
        assert list(fastavro.reader(file)) == RECORDS
    env = environment()
    stream = env.create_input(AvroInputFormat(str(path), SCHEMA))
    assert stream.get_type() == GenericRecordAvroTypeInfo(AvroSchema(TEXT))
    assert run_and_collect(stream) == [RECORDS]


@pytest.mark.both_engines
def test_rows_are_written_by_their_names(tmp_path: Path) -> None:
    kind = Types.ROW_NAMED(
        ["id", "name", "values", "tags"],
        [
            *(Types.LONG(), Types.STRING(), Types.LIST(Types.INT())),
            Types.MAP(Types.STRING(), Types.STRING()),
        ],
    )
    rows = [Row(**record) for record in RECORDS]
    path = write(tmp_path, AvroBulkWriters.for_generic_record(SCHEMA), rows, kind)
    with path.open("rb") as file:
        assert list(fastavro.reader(file)) == RECORDS


def test_avro_files_are_cut_at_blocks_and_within(tmp_path: Path) -> None:
    records = [{"id": n, "name": str(n), "values": [n], "tags": {}} for n in range(500)]
    with (tmp_path / "many.avro").open("wb") as file:
        fastavro.writer(file, json.loads(TEXT), records, sync_interval=400)
    source = FileSource(AvroFormat(SCHEMA), (str(tmp_path / "many.avro"),))
    (split,) = source.discover(frozenset())
    ends = split.properties["blocks"]
    assert isinstance(ends, list)
    assert len(ends) > 5
    assert source.next_stop(split, 0, 1, 500) == ends[0]
    assert source.next_stop(split, 0, ends[2], 500) == ends[2]
    assert source.next_stop(split, ends[-2], 10_000, 500) == 500
    for start, stop in ((0, 500), (0, 1), (ends[0], ends[1]), (ends[1] - 1, ends[3] + 1), (7, 7)):
        found = [v for batch in source.read(split, start, stop) for v in batch.values or ()]
        assert found == records[start:stop]
    check_source(source, rounds=2)


@pytest.mark.both_engines
def test_parquet_by_an_avro_schema(tmp_path: Path) -> None:
    path = write(tmp_path, AvroParquetWriters.for_generic_record(SCHEMA), RECORDS)
    assert pq.read_table(path).column_names == ["id", "name", "values", "tags"]
    source = FileSource.for_record_stream_format(
        AvroParquetReaders.for_generic_record(SCHEMA), str(path)
    ).build()
    assert source.produced_type == GenericRecordAvroTypeInfo(SCHEMA)
    (split,) = source.discover(frozenset())
    assert read_records(source, split, 0, 2) == RECORDS


@pytest.mark.both_engines
def test_records_that_do_not_fit(tmp_path: Path) -> None:
    bad: list[Any] = [{"id": "x", "name": None, "values": [], "tags": {}}]
    with pytest.raises(PermanentSinkError, match="does not fit the Avro schema"):
        write(tmp_path / "avro", AvroBulkWriters.for_generic_record(SCHEMA), bad)
    with pytest.raises(PermanentSinkError, match="do not fit the Avro schema"):
        write(tmp_path / "parquet", AvroParquetWriters.for_generic_record(SCHEMA), bad)


def test_files_and_schemas_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text.avro").write_text("no avro")
    source = FileSource(AvroFormat(SCHEMA), (str(tmp_path / "text.avro"),))
    with pytest.raises(SourceError, match="is not an Avro file"):
        source.discover(frozenset())
    (tmp_path / "schema.avsc").write_text(TEXT)
    assert AvroSchema.parse_file(str(tmp_path / "schema.avsc")) == SCHEMA
    assert str(SCHEMA) == json.dumps(json.loads(TEXT), separators=(",", ":"))
    with pytest.raises(ConfigurationError, match=r"missing\.avsc cannot be read"):
        AvroSchema.parse_file(str(tmp_path / "missing.avsc"))
    with pytest.raises(ConfigurationError, match="must be that of a record"):
        AvroSchema.parse_string('"string"')
    several = {"name": "v", "type": ["int", "string"]}
    union = AvroSchema(json.dumps({"type": "record", "name": "U", "fields": [several]}))
    with pytest.raises(ConfigurationError, match="no column can hold"):
        AvroParquetReaders.for_generic_record(union)


@pytest.mark.both_engines
@pytest.mark.parametrize("typed", [True, False])
def test_orc_files_are_written(tmp_path: Path, typed: bool) -> None:
    kind = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
    rows = [Row(id=1, name="a"), Row(id=2, name=None)]
    writer = OrcBulkWriters.for_row_type()
    path = write(tmp_path, writer, rows, kind if typed else Types.PICKLED_BYTE_ARRAY())
    assert orc.read_table(path).to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
