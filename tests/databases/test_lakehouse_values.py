"""Values in lakehouse tables: partitions of every kind, and what other readers find of them."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyiceberg.catalog import load_catalog
from tests.databases.test_lakehouse_sinks import commit
from tests.databases.test_lakehouse_sources import read

from millstream.connectors.formats.file_format import rows_of_columns
from millstream.connectors.lakehouse.delta import DeltaSink, DeltaSource
from millstream.connectors.lakehouse.iceberg import IcebergSink, IcebergSource
from millstream.contracts.batch import Batch
from millstream.contracts.sink import WriterContext

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.connectors.lakehouse.data_files import LakehouseSink

UTC = dt.UTC
MOMENT = dt.datetime(2020, 1, 2, 3, 4, 5, 6, UTC).replace(tzinfo=None)
#: Values of a column, each of which is a partition of its own.
PARTITIONS = [
    pa.array([math.nan, 0.0, -0.0, 1.5, None, math.inf, -math.inf]),
    pa.array(["x", None, "a b", "a%20b", "ä/ö:?#=&", "a'b\"", "\n", "null"]),
    pa.array([dt.datetime(2020, 1, 2, 3, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
    pa.array([MOMENT, MOMENT.replace(year=999)], pa.timestamp("us")),
    pa.array([Decimal("1E-8"), Decimal(0), Decimal("12.5"), None], pa.decimal128(20, 10)),
    pa.array([dt.date(1, 1, 1), None]),
    pa.array([True, False, None]),
]


def append(sink: LakehouseSink, rows: pa.Table, epoch: int = 1) -> None:
    sink.validate()
    writer = sink.create_writer(WriterContext("job", "sink", 0, 1, epoch, "a", generation=1))
    for batch in rows.to_batches():
        writer.write(Batch(rows_of_columns(batch.schema), arrow=batch))
    commit(sink, list(writer.prepare_commit()), epoch)


def catalog(directory: Path) -> dict[str, str]:
    uri = f"sqlite:///{directory}/catalog.db"
    return {"name": "lake", "type": "sql", "uri": uri, "warehouse": f"file://{directory}"}


def texts(rows: pa.Table) -> list[str]:
    return sorted(str(row) for row in rows.select(["key", "n"]).to_pylist())


def numbered(keys: pa.Array) -> pa.Table:
    """Each key twice, not side by side."""
    twice = pa.concat_arrays([keys, keys])
    return pa.table({"key": twice, "n": pa.array(range(len(twice)), pa.int64())})


@pytest.mark.parametrize("keys", PARTITIONS, ids=lambda keys: str(keys.type))
def test_each_row_is_once_in_its_partition(tmp_path: Path, keys: pa.Array) -> None:
    rows = numbered(keys)
    append(DeltaSink(tmp_path / "t", create_with=rows.schema, partition_by=["key"]), rows)
    opened = deltalake.DeltaTable(str(tmp_path / "t"))
    assert len(opened.file_uris()) == len(keys)
    assert texts(opened.to_pyarrow_table()) == texts(rows)
    named = catalog(tmp_path)
    made = IcebergSink("lake.t", named, create_with=rows.schema, partition_by=["key"])
    append(made, rows)
    loaded = load_catalog(**named).load_table("lake.t")
    assert len(list(loaded.scan().plan_files())) == len(keys)
    assert texts(loaded.scan().to_arrow()) == texts(rows)
    for source in (DeltaSource(tmp_path / "t"), IcebergSource("lake.t", named)):
        found: list[Any] = read(source, source.discover(frozenset()))
        names = rows.column_names
        assert sorted(str({name: row[name] for name in names}) for row in found) == texts(rows)


def test_reads_the_partitions_of_other_writers(tmp_path: Path) -> None:
    at = dt.datetime(2020, 1, 2, 3, tzinfo=UTC)
    rows = pa.table(
        {
            "key": pa.array(["", None, "a b", "a%20b", "ä:?#=&", "x/y"]),
            "at": pa.array([at] * 6, pa.timestamp("us", "UTC")),
            "n": pa.array(range(6), pa.int64()),
        }
    )
    deltalake.write_deltalake(str(tmp_path / "t"), rows, partition_by=["key", "at"])
    source = DeltaSource(tmp_path / "t")
    found: list[Any] = read(source, source.discover(frozenset()))
    expected = [(None, at, 0), *zip(*(c.to_pylist()[1:] for c in rows.columns), strict=True)]
    assert sorted(map(tuple, found), key=lambda row: row[2]) == expected
    reader = source.table.reader()
    assert sorted(str(f["path"]) for f in reader.files(0)) == sorted(
        str(f["path"]) for f in reader.added(0)
    )


#: Columns of Delta with their bounds in the log; None: those of no column are kept.
BOUNDED: dict[str, tuple[pa.Array, list[object] | None]] = {
    "number": (pa.array([3, None, -5], pa.int64()), [-5, 3]),
    "text": (pa.array(["x" * 40, None, "a"]), ["a", "x" * 32 + "\U0010ffff"]),
    "last": (pa.array(["\U0010ffff" * 40, "", None]), None),
    "float": (pa.array([1.5, None, -2.0]), [-2.0, 1.5]),
    "nan": (pa.array([1.5, None, math.nan]), None),
    "infinite": (pa.array([1.5, None, math.inf]), None),
    "decimal": (pa.array([Decimal("1.5"), None, Decimal(-3)], pa.decimal128(9, 2)), [-3, 1.5]),
    "long": (pa.array([Decimal("12345678901234567890.5"), None], pa.decimal128(30, 2)), None),
    "time": (
        pa.array([MOMENT, None], pa.timestamp("us")),
        ["2020-01-02T03:04:05.000", "2020-01-02T03:04:05.001"],
    ),
    "instant": (
        pa.array([MOMENT, None], pa.timestamp("us", "UTC")),
        ["2020-01-02T03:04:05.000Z", "2020-01-02T03:04:05.001Z"],
    ),
    "day": (pa.array([MOMENT.date(), None]), ["2020-01-02", "2020-01-02"]),
    "bool": (pa.array([True, None]), [True, True]),
    "bytes": (pa.array([b"a", b"\xff", None]), []),
    "nulls": (pa.array([None, None], pa.int64()), []),
    "list": (pa.array([[1], None]), []),
    "record": (pa.array([{"a": 1}, None]), None),
}


@pytest.mark.parametrize(("keys", "expected"), BOUNDED.values(), ids=BOUNDED.keys())
def test_bounds_keep_what_filters_look_for(
    tmp_path: Path, keys: pa.Array, expected: list[object] | None
) -> None:
    rows = pa.table({"key": keys, "n": pa.array(range(len(keys)), pa.int64())})
    append(DeltaSink(tmp_path / "t", create_with=rows.schema), rows)
    opened = deltalake.DeltaTable(str(tmp_path / "t"))
    log = (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").read_text()
    (add,) = [found["add"] for found in map(json.loads, log.splitlines()) if "add" in found]
    kept = json.loads(add["stats"])
    if expected is None:
        assert not {"minValues", "maxValues"} & kept.keys()
    else:
        both = [kept["minValues"], kept["maxValues"]]
        assert [each["n"] for each in both] == [0, len(keys) - 1]
        assert [each["key"] for each in both if "key" in each] == expected
    dataset = opened.to_pyarrow_dataset()
    for n, key in enumerate(keys):
        if pa.types.is_nested(keys.type) or key.as_py() != key.as_py():
            continue
        column = ds.field("key")
        chosen = column == key if key.is_valid else column.is_null()
        assert n in dataset.to_table(filter=chosen)["n"].to_pylist()
