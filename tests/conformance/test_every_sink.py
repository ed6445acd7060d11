"""Every sink of Millstream keeps the contract of its guarantee; none is forgotten."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.csv as pacsv
import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest
from tests.databases.server import execute
from tests.databases.targets import RESULT, TARGETS

import millstream.connectors
import millstream.engines.spark
from millstream.common import Encoder, Row, SimpleStringSchema, Types
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.connectors.basic.print_sink import PrintSink
from millstream.connectors.files.partitions import PartitionCommit, TableFileSink
from millstream.connectors.files.sink import FileSink, OutputFileConfig
from millstream.connectors.formats.csv_format import CsvWriterFactory
from millstream.connectors.kafka.sink import KafkaSink
from millstream.connectors.kafka.transactions import TransactionControl
from millstream.connectors.postgres.sink import PostgresSink
from millstream.contracts.batch import Batch
from millstream.contracts.sink import DeliveryGuarantee, Sink
from millstream.datastream.connectors.kafka import KafkaRecordSerializationSchema
from millstream.testing.conformance import check_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

#: Two batches, in which no key comes twice.
BATCHES = [
    Batch(RESULT, values=[Row(key="a", n=1, id=10), Row(key="å'\"", n=2, id=None)]),
    Batch(RESULT, values=[Row(key="c", n=3, id=30)]),
]
TEXTS = [Batch(Types.STRING(), values=["b", "å'\"", "a"])]


@dataclass
class Case:
    """A sink and how its target is looked at."""

    make: Callable[[], Sink]
    read: Callable[[], Sequence[object]]
    batches: Sequence[Batch]
    leftovers: Callable[[], Sequence[object]] | None = None
    ordered: bool = False
    by_key: bool = False


def by_length(row: Any) -> str:
    return f"length={len(row.key)}"


READERS: dict[str, Any] = {
    "csv": lambda path: pacsv.read_csv(path).to_pylist(),
    "jsonl": lambda path: pj.read_json(path).to_pylist(),
    "parquet": lambda path: pq.read_table(path).to_pylist(),
    "txt": lambda path: path.read_text().splitlines(),
}


def files(kind: str, directory: Path) -> Case:
    out = str(directory / "out")
    config = OutputFileConfig.builder().with_part_suffix(".txt").build()
    text = FileSink.for_row_format(out, Encoder.simple_string_encoder())
    makers: dict[str, Callable[[], Sink]] = {
        "csv": lambda: FileSink.csv(out),
        "json_lines": lambda: FileSink.json_lines(out),
        "parquet": lambda: FileSink.parquet(out),
        "buckets": lambda: FileSink.csv(out, bucket_assigner=by_length),
        "table": lambda: TableFileSink(
            out, CsvWriterFactory(), None, commit=PartitionCommit(("c", "d", "t"), ())
        ),
        "text": lambda: text.with_output_file_config(config).build(),
    }

    def read() -> list[object]:
        found = sorted(path for path in (directory / "out").rglob("[!.]*") if path.is_file())
        return [
            row
            for path in found
            if ".pending" not in str(path) and ".progress" not in str(path)
            for row in READERS[path.suffix[1:]](path)
        ]

    def left() -> list[Path]:
        return [path for path in (directory / "out").rglob(".pending*/*/*") if path.is_file()]

    return Case(makers[kind], read, BATCHES, left)


def databases(kind: str, request: pytest.FixtureRequest, directory: Path) -> Case:
    name = kind.removesuffix("-key").removesuffix("-changes")
    if name.startswith("postgres"):
        address = request.getfixturevalue("server").new_schema()
    else:
        address = str(directory / "results.db")
    target = TARGETS[name](address)
    target.create()
    make: Callable[[], Sink] = target.sink
    if name != kind and not name.startswith("postgres"):
        other = TARGETS[name](f"{address}2")
        other.create("key TEXT, n BIGINT, id BIGINT, PRIMARY KEY (key, n)")
        target = other
        make = functools.partial(target.sink, key=["key", "n"])
    elif name != kind:
        execute(address, "CREATE UNIQUE INDEX ON results (key, n)")
        by_key = PostgresSink.commit_table if kind.endswith("-key") else PostgresSink.changes
        make = functools.partial(by_key, address, "results", key=["key", "n"])

    def read() -> Sequence[object]:
        return target.read("SELECT key, n, id FROM results")

    shows = name.startswith(("postgres", "delta", "iceberg"))
    left = target.leftovers if shows else None
    return Case(make, read, BATCHES, left, kind == "sqlite", by_key=name != kind)


def kafka(kind: str, request: pytest.FixtureRequest) -> Case:
    broker = request.getfixturevalue("broker")
    topic = broker.topic()
    guarantee = DeliveryGuarantee[kind.removeprefix("kafka-").replace("-", "_").upper()]
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_key_serialization_schema(SimpleStringSchema())
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(broker.servers)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(guarantee)
        .set_transactional_id_prefix(topic)
        .build()
    )

    def read() -> list[str]:
        return [each.value.decode() for each in broker.read(topic)]

    def left() -> list[str]:
        control = TransactionControl({"bootstrap.servers": broker.servers})
        try:
            return control.open_transactions(topic)
        finally:
            control.close()

    exact = guarantee is DeliveryGuarantee.EXACTLY_ONCE
    return Case(lambda: sink, read, TEXTS, left if exact else None, ordered=exact)


def others(kind: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> Case:
    if kind == "collect":
        place = directory / "out"
        return Case(lambda: CollectSink(place), lambda: list(read_collected(place)), BATCHES)
    printed: list[str] = []

    def read() -> list[str]:
        printed.extend(line.partition("> ")[2] for line in capsys.readouterr().out.splitlines())
        return printed

    return Case(PrintSink, read, TEXTS)


FILES = ["csv", "json_lines", "parquet", "buckets", "text", "table"]
#: Writers and committers that are killed load the libraries of these anew.
SLOW = {"delta", "iceberg"}
OF_KEYS = [
    "postgres-commit-table-key",
    "postgres-commit-table-changes",
    "sqlite-changes",
    "duckdb-changes",
]
DATABASES = [
    *(pytest.param(each, marks=pytest.mark.slow) if each in SLOW else each for each in TARGETS),
    *OF_KEYS,
]
KAFKA = ["kafka-exactly-once", "kafka-at-least-once", "kafka-none"]
OTHERS = ["collect", "print"]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", [*FILES, *DATABASES, *KAFKA, *OTHERS])
def test_sink(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if kind != "collect":  # users have new interpreters
        request.getfixturevalue("forked_children")
    if kind in FILES:
        case = files(kind, tmp_path)
    elif kind in [*TARGETS, *OF_KEYS]:
        case = databases(kind, request, tmp_path)
    elif kind in KAFKA:
        case = kafka(kind, request)
    else:
        case = others(kind, tmp_path, capsys)
    check_sink(
        case.make,
        case.batches,
        case.read,
        leftovers=case.leftovers,
        ordered=case.ordered,
        by_key=case.by_key,
        # Formats and options of one sink share its protocol.
        processes=kind not in {"json_lines", "parquet", "buckets", "text", "table"}
        and not case.by_key,
    )


def test_no_sink_is_forgotten() -> None:
    """The templates are checked by their examples, ``tests/docs/test_sinks.py``.

    What needs Spark is checked in ``tests/spark/test_dataframe_sink.py``.
    """
    covered = {
        "CollectSink",
        "DataFrameSink",
        "DeltaSink",
        "DuckDbSink",
        "FileSink",
        "IcebergSink",
        "KafkaSink",
        "PostgresChangesSink",
        "PostgresCommitTableSink",
        "PostgresTwoPhaseSink",
        "PostgresUpsertSink",
        "PrintSink",
        "SqliteSink",
        "TableFileSink",
    }
    templates = {"GenericWriteAheadSink", "TwoPhaseCommitSinkFunction", "UpsertSink"}
    nothing_to_see = {"BlackholeSink"}
    found = set()
    packages = [
        info
        for package in (millstream.connectors, millstream.engines.spark)
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    for info in packages:
        members = inspect.getmembers(importlib.import_module(info.name), inspect.isclass)
        for _, each in members:
            if issubclass(each, Sink) and each.__module__ == info.name:
                found.add(each.__name__)
    assert (
        found - {"Sink", "EmbeddedSink", "LakehouseSink", "TableSink"}
        == covered | templates | nothing_to_see
    )
