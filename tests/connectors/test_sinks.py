"""File sink, collect sink, print sink: the contract, the bytes, and the failures."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest

from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.connectors.basic.print_sink import BlackholeSink, PrintSink
from millstream.connectors.files.sink import (
    BucketAssigner,
    FileSink,
    OutputFileConfig,
    RollingPolicy,
)
from millstream.connectors.formats.csv_format import CsvWriterFactory
from millstream.connectors.formats.json_format import JsonLinesWriterFactory, json_lines
from millstream.connectors.formats.parquet_format import (
    ROW_GROUP_BYTES,
    ParquetWriterFactory,
    RowGroupWriter,
)
from millstream.contracts.batch import Batch
from millstream.contracts.serialization import Encoder
from millstream.contracts.sink import CommitRequest, DeliveryGuarantee, Sink, WriterContext
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import (
    OnCheckpointRollingPolicy,
    StreamingFileSink,
)
from millstream.errors import SinkError
from millstream.testing import MiniCluster
from millstream.testing.conformance import check_sink
from millstream.testing.sinks import FailingSink
from millstream.types.row import Row
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.contracts.sink import Committable
    from millstream.types.types import TypeInformation

ROW = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
ROWS: list[object] = [
    Row(id=1, name='a "quoted", one'),
    Row(id=2, name=None),
    Row(id=3, name="å\n"),
]
UNTYPED = Types.PICKLED_BYTE_ARRAY()


def context(
    epoch: int = 1, attempt: str = "a", subtask: int = 0, parallelism: int = 1
) -> WriterContext:
    return WriterContext("job", "my sink/1", subtask, parallelism, epoch, attempt)


def typed(values: list[object] | None = None) -> Batch:
    return Batch(ROW, values=ROWS if values is None else values)


def untyped(values: list[object]) -> Batch:
    return Batch(UNTYPED, values=values)


def prepare(sink: Sink, batches: Sequence[Batch], where: WriterContext) -> list[Committable]:
    writer = sink.create_writer(where)
    for batch in batches:
        writer.write(batch)
    committables = list(writer.prepare_commit())
    writer.close()
    return committables


def commit(sink: Sink, committables: Sequence[Committable], epoch: int = 1) -> None:
    committer = sink.create_committer()
    assert committer is not None
    committer.commit([CommitRequest(item, epoch, retried=False) for item in committables])


def write(sink: Sink, *batches: Batch) -> None:
    commit(sink, prepare(sink, batches, context()))


def visible(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file() and ".pending" not in str(p))


def content(path: Path) -> str:
    (only,) = visible(path)
    return only.read_text()


# -- the contract ----------------------------------------------------------------------------------


def rows_of(path: Path) -> list[Any]:
    rows: list[Any] = []
    for file in visible(path):
        if file.suffix == ".csv":
            rows += pacsv.read_csv(
                file, parse_options=pacsv.ParseOptions(newlines_in_values=True)
            ).to_pylist()
        elif file.suffix == ".jsonl":
            rows += pj.read_json(file).to_pylist()
        elif file.suffix == ".parquet":
            rows += pq.read_table(file).to_pylist()
        else:
            rows += file.read_text().splitlines()
    return rows


@pytest.mark.parametrize("kind", ["csv", "json_lines", "parquet", "text", "collect"])
@pytest.mark.parametrize(
    "batch", [typed(), untyped([{"id": 1, "name": "x"}, {"id": 2, "name": "y"}])]
)
def test_exactly_once_sinks_keep_the_contract(tmp_path: Path, kind: str, batch: Batch) -> None:
    def make() -> Sink:
        if kind == "collect":
            return CollectSink(tmp_path)
        if kind == "text":
            return FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
        sink: Sink = getattr(FileSink, kind)(str(tmp_path))
        return sink

    def read() -> Sequence[object]:
        return list(read_collected(tmp_path)) if kind == "collect" else rows_of(tmp_path)

    check_sink(make, [batch], read, processes=False)


def test_output_that_was_lost_is_reported(tmp_path: Path) -> None:
    sink = FileSink.csv(str(tmp_path))
    committables = prepare(sink, [typed()], context())
    for path in tmp_path.rglob("*.pending"):
        path.unlink()
    with pytest.raises(SinkError, match="output of checkpoint 1 is lost"):
        commit(sink, committables)


def test_orphans_are_deleted_and_kept_files_stay(tmp_path: Path) -> None:
    sink = FileSink.csv(str(tmp_path))
    kept = prepare(sink, [typed()], context(attempt="a"))
    prepare(sink, [typed()], context(attempt="b"))
    committer = sink.create_committer()
    assert committer is not None
    assert len(list(tmp_path.rglob("*.pending"))) == 2
    committer.abort_orphans("job", "my sink/1", kept, 1)
    assert len(list(tmp_path.rglob("*.pending"))) == 1
    commit(sink, kept)
    committer.abort_orphans("job", "my sink/1", [], 1)
    assert [p.parent for p in tmp_path.rglob("*")] == [tmp_path]


def test_names_tell_sink_subtask_and_epoch(tmp_path: Path) -> None:
    sink = FileSink.csv(str(tmp_path))
    commit(sink, prepare(sink, [typed()], context(epoch=7, subtask=3)))
    (path,) = visible(tmp_path)
    prefix, hashed, subtask, epoch = path.stem.split("-")
    assert (prefix, len(hashed), subtask, epoch) == ("part", 8, "3", "000007")


@pytest.mark.parametrize("step", ["commit.before", "commit.half", "commit.after"])
def test_a_commit_that_fails_is_repeated_without_doubling(tmp_path: Path, step: str) -> None:
    sink = FailingSink(FileSink.csv(str(tmp_path)), step)
    parts = [prepare(sink, [typed()], context(subtask=i)) for i in range(4)]
    committables = [item for part in parts for item in part]
    with pytest.raises(SinkError, match="failure 1 of 1"):
        commit(sink, committables)
    commit(sink, committables)
    assert sink.failures == 1
    assert len(visible(tmp_path)) == 4


def test_a_base_path_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(SinkError, match="not a directory"):
        FileSink.csv(str(path / "out")).validate()
    with pytest.raises(SinkError, match="hdfs"):
        FileSink.csv("hdfs://host/out")


# -- formats ---------------------------------------------------------------------------------------

WIDE = pa.schema(
    [
        ("whole", pa.int32()),
        ("real", pa.float64()),
        ("text", pa.string()),
        ("yes", pa.bool_()),
        ("day", pa.date32()),
        ("stamp", pa.timestamp("us")),
        ("many", pa.list_(pa.int64())),
        ("exact", pa.decimal128(10, 2)),
    ]
)


def wide() -> pa.RecordBatch:
    day = dt.date(2013, 1, 2)
    stamp = dt.datetime(2013, 1, 2, 3, 4, 5, 678)  # noqa: DTZ001 - a timestamp without zone
    rows = [
        {"whole": 1, "real": 1.0, "text": 'q"\\\n\tå', "yes": True, "day": day, "stamp": stamp,
         "many": [1, 2], "exact": Decimal("1.50")},
        {"whole": None, "real": 1e300, "text": "", "yes": None, "day": None, "stamp": None,
         "many": None, "exact": None},
        {"whole": -5, "real": -0.25, "text": "\x01", "yes": False, "day": day, "stamp": stamp,
         "many": [], "exact": Decimal("-0.01")},
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=WIDE)


def test_oracle_json_lines_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines(wide()))
    schema = WIDE.set(4, pa.field("day", pa.string()))
    back = pj.read_json(path, parse_options=pj.ParseOptions(explicit_schema=schema)).to_pylist()
    expected = wide().to_pylist()
    for row in expected:
        row["day"] = row["day"] and row["day"].isoformat()
    assert back == expected
    assert len(duckdb.read_json(str(path)).fetchall()) == 3


def test_json_has_no_nan() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [math.nan, math.inf, 2.0]})
    assert json_lines(batch) == b'{"x":null}\n{"x":null}\n{"x":2.0}\n'


def test_untyped_values_become_columns(tmp_path: Path) -> None:
    @dataclass
    class Point:
        x: int
        y: float | None

    cases: list[tuple[list[object], str]] = [
        ([{"a": 1, "b": "x"}], '{"a": 1, "b": "x"}\n'),
        ([Row(a=1, b=None)], '{"a": 1, "b": null}\n'),
        ([Row(1, [2])], '{"f0": 1, "f1": [2]}\n'),
        ([(1, "x")], '{"f0": 1, "f1": "x"}\n'),
        (["x", 1.5], '{"f0": "x"}\n{"f0": 1.5}\n'),
        ([Point(1, math.nan)], '{"x": 1, "y": null}\n'),
    ]
    for index, (values, expected) in enumerate(cases):
        path = tmp_path / str(index)
        write(FileSink.json_lines(str(path)), untyped(values))
        assert content(path) == expected


def test_untyped_values_as_csv_and_parquet(tmp_path: Path) -> None:
    values: list[object] = [{"a": 1, "b": "x,y"}, {"b": None, "a": 2.5}]
    write(FileSink.csv(str(tmp_path / "csv")), untyped(values))
    assert content(tmp_path / "csv") == 'a,b\n1,"x,y"\n2.5,\n'
    write(FileSink.parquet(str(tmp_path / "parquet")), untyped(values[:1]), untyped(values[1:]))
    assert rows_of(tmp_path / "parquet") == [{"a": 1.0, "b": "x,y"}, {"a": 2.5, "b": None}]
    with pytest.raises(SinkError, match="column 'f0' have no common type"):
        write(FileSink.parquet(str(tmp_path / "bad")), untyped([1, "x"]))
    with pytest.raises(SinkError, match="lacks: c"):
        write(FileSink.csv(str(tmp_path / "bad")), untyped([{"a": 1}, {"c": 1}]))


def test_csv_of_nested_columns_and_null_text(tmp_path: Path) -> None:
    kind = Types.ROW_NAMED(["id", "items"], [Types.LONG(), Types.LIST(Types.LONG())])
    batch = Batch(kind, values=[Row(id=1, items=[1, 2]), Row(id=None, items=None)])
    write(FileSink.csv(str(tmp_path / "a")), batch)
    assert content(tmp_path / "a") == '"id","items"\n1,"[1, 2]"\n,\n'
    factory = CsvWriterFactory(header=False, null_text="NULL", array_separator=";")
    write(FileSink.for_bulk_format(str(tmp_path / "b"), factory).build(), batch)
    assert content(tmp_path / "b") == '1,"1;2"\nNULL,NULL\n'


def test_the_simple_string_encoder_writes_what_flink_writes(tmp_path: Path) -> None:
    write(
        FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build(),
        typed([ROWS[1]]),
    )
    assert content(tmp_path) == "+I[2, null]\n"


def test_parquet_row_groups_gather_batches(tmp_path: Path) -> None:
    sink = FileSink.for_bulk_format(str(tmp_path), ParquetWriterFactory("zstd")).build()
    write(sink, *[typed()] * 100)
    (path,) = visible(tmp_path)
    assert pq.ParquetFile(path).metadata.num_row_groups == 1
    assert pq.read_table(path).num_rows == 300


# -- buckets, names, rolling -----------------------------------------------------------------------


def test_buckets_are_directories(tmp_path: Path) -> None:
    sink = (
        FileSink.for_bulk_format(str(tmp_path), JsonLinesWriterFactory())
        .with_bucket_assigner(lambda row: f"odd={row.id % 2}")  # type: ignore[attr-defined]
        .with_output_file_config(
            OutputFileConfig.builder().with_part_prefix("out").with_part_suffix(".ndjson").build()
        )
        .build()
    )
    write(sink, typed())
    assert [str(p.parent.relative_to(tmp_path)) for p in visible(tmp_path)] == ["odd=0", "odd=1"]
    assert all(p.name.startswith("out-") and p.suffix == ".ndjson" for p in visible(tmp_path))


def test_buckets_by_time_and_buckets_that_hide(tmp_path: Path) -> None:
    assigner = BucketAssigner.date_time_bucket_assigner("yyyy-MM-dd--HH", "UTC")
    before = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d--%H")
    found = assigner.get_bucket_id(None, 0)
    assert before <= found <= dt.datetime.now(dt.UTC).strftime("%Y-%m-%d--%H")
    for bucket in ("../up", "/abs", ".hidden", "_x"):
        sink = FileSink.csv(str(tmp_path), bucket_assigner=lambda _, b=bucket: b)  # type: ignore[misc]
        with pytest.raises(SinkError, match="relative directory"):
            write(sink, typed())


def test_files_roll_by_size(tmp_path: Path) -> None:
    sink = (
        FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
        .with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=10))
        .build()
    )
    write(sink, *[untyped(["12345678901"])] * 3)
    assert [p.read_text() for p in visible(tmp_path)] == ["12345678901\n"] * 3


# -- print and blackhole ---------------------------------------------------------------------------


def test_print_prints_committed_lines_once(capsys: pytest.CaptureFixture[str]) -> None:
    sink = PrintSink("id")
    assert sink.guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    parts = [
        prepare(sink, [typed([ROWS[1]])], context(subtask=subtask, parallelism=2))
        for subtask in (1, 0)
    ]
    assert capsys.readouterr().out == ""
    committer = sink.create_committer()
    assert committer is not None
    requests = [CommitRequest(item, 1, retried=False) for part in parts for item in part]
    committer.commit(requests)
    committer.commit(requests)
    # Who goes on behind a run that has said that all is committed.
    confirmed = [replace(each, retried=True, confirmed=True) for each in requests]
    next_run = sink.create_committer()
    assert next_run is not None
    next_run.commit(confirmed)
    assert capsys.readouterr().out == "id:1> +I[2, null]\nid:2> +I[2, null]\n"


@pytest.mark.parametrize(
    ("kind", "value", "line"),
    [
        (Types.STRING(), "hi", "hi"),
        (Types.TUPLE([Types.LONG(), Types.BOOLEAN()]), (1, True), "(1,true)"),
        (UNTYPED, (1, True), "(1, True)"),
        (UNTYPED, Row("hi", 1), "<Row('hi', 1)>"),
        (UNTYPED, None, "None"),
        (Types.LIST(Types.LONG()), [1, 2], "[1, 2]"),
    ],
)
def test_lines_look_like_flinks(
    capsys: pytest.CaptureFixture[str], kind: TypeInformation, value: object, line: str
) -> None:
    write(PrintSink(), Batch(kind, values=[value]))
    assert capsys.readouterr().out == f"{line}\n"


def test_the_blackhole_commits_nothing() -> None:
    assert prepare(BlackholeSink(), [typed()], context()) == []


def test_collected_values_come_in_order_of_epochs(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path)
    for epoch in (10, 9):
        for subtask in (1, 0):
            batches = [untyped([(epoch, subtask, 0)]), untyped([(epoch, subtask, 1)])]
            commit(sink, prepare(sink, batches, context(epoch=epoch, subtask=subtask)), epoch)
    assert list(read_collected(tmp_path)) == [
        (epoch, subtask, i) for epoch in (9, 10) for subtask in (0, 1) for i in (0, 1)
    ]
    assert list(read_collected(tmp_path / "nowhere")) == []


@pytest.mark.both_engines
def test_the_deprecated_file_sink_writes_what_the_file_sink_does(tmp_path: Path) -> None:
    builder = StreamingFileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    config = OutputFileConfig.builder().with_part_prefix("old").with_part_suffix(".txt").build()
    sink = (
        builder.with_rolling_policy(policy=OnCheckpointRollingPolicy())
        .with_output_file_config(config)
        .with_bucket_check_interval(1)
        .build()
    )
    assert isinstance(sink, StreamingFileSink)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(["a", "b"], Types.STRING()).add_sink(sink)
    MiniCluster(env.get_job_graph("test")).run()
    written = [each for each in tmp_path.iterdir() if each.name.startswith("old")]
    assert sorted("".join(each.read_text() for each in written).split()) == ["a", "b"]


def test_row_groups_are_bounded_in_bytes(tmp_path: Path) -> None:
    """Rows wait in memory for their row group, and they may be long."""
    path, text = tmp_path / "long.parquet", "x" * 1_000_000
    rows = pa.RecordBatch.from_pydict({"s": [text] * 4})
    with path.open("wb") as stream:
        writer = RowGroupWriter(stream, "snappy", rows.schema)
        for _ in range(10):
            writer.write(rows)
            assert writer.waiting_bytes < ROW_GROUP_BYTES
        writer.finish()
    metadata = pq.ParquetFile(path).metadata
    assert [metadata.row_group(each).num_rows for each in range(2)] == [20, 20]
