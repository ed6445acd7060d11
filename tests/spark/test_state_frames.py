"""State of a savepoint as Spark DataFrames, and savepoints made of them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from millstream.common import Row
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millstream.state_processor import SavepointReader, SavepointWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

VALUES = {
    "a": Row(n=1, price=Decimal("1.50"), day=date(2026, 1, 2), tags=["x", None]),
    "b": Row(n=None, price=None, day=None, tags=[]),
}


def test_rows_go_to_spark_and_back(tmp_path: Path, spark: SparkSession) -> None:
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    entries = [
        {"key": 1, "map_key": "x", "value": {"f0": moment, "f1": 2.5}},
        {"key": 2, "map_key": "y", "value": {"f0": moment, "f1": None}},
    ]
    with SavepointWriter.new_savepoint() as writer:
        rows = [
            {"key": key, "value": dict(value.as_dict().items())} for key, value in VALUES.items()
        ]
        writer.with_keyed_state("one", ValueStateDescriptor("rows"), rows)
        writer.with_keyed_state("one", MapStateDescriptor("entries"), entries)
        path = writer.write(tmp_path)
    with SavepointReader.read(path) as reader:
        frames = [
            reader.read_keyed_state("one", name).to_spark(spark) for name in ("rows", "entries")
        ]
    assert frames[0].filter("key = 'a'").selectExpr("value.price").collect()[0][0] == Decimal(
        "1.50"
    )
    assert frames[1].selectExpr("sum(value.f1)").collect()[0][0] == 2.5
    with SavepointWriter.from_existing_savepoint(path) as writer:
        writer.with_keyed_state("one", "rows", frames[0])
        writer.with_keyed_state("one", "entries", frames[1])
        again = writer.write(tmp_path)
    with SavepointReader.read(again) as reader:
        found = {row["key"]: row["value"] for row in reader.read_keyed_state("one", "rows").rows()}
        assert {key: list(value) for key, value in found.items()} == {
            key: list(value) for key, value in VALUES.items()
        }
        maps = list(reader.read_keyed_state("one", "entries").rows())
        assert {(each["key"], each["map_key"]): each["value"][1] for each in maps} == {
            (1, "x"): 2.5,
            (2, "y"): None,
        }
