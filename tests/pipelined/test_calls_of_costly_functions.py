"""Functions that are costly per call get many records per call, whatever precedes them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from tests.spark.test_transformations import UnderWay

from millstream.common import Time, Types, WatermarkStrategy
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.datastream import AsyncDataStream
from millstream.table import DataTypes, StreamTableEnvironment
from millstream.table.udf import udf

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.datastream import DataStream, StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]

RECORDS = 1500
CALL_SECONDS = 0.01

#: What is between the source and the function.
PATHS = {
    "chained": lambda stream: stream,
    "rebalanced": lambda stream: stream.rebalance(),
    "keyed": lambda stream: stream.key_by(lambda n: n % 7).map(lambda n: n, Types.LONG()),
    "keyed exchange": lambda stream: stream.map(lambda n: n, Types.LONG()).rebalance(),
}


def numbers(env: StreamExecutionEnvironment) -> DataStream:
    source = NumberSequenceSource(0, RECORDS - 1, splits=2)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())


def collected(stream: DataStream) -> list[Any]:
    with cast("Any", stream.execute_and_collect()) as results:
        return list(results)


@pytest.mark.parametrize("path", PATHS)
def test_map_batches(make: Make, path: str) -> None:
    def length(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(CALL_SECONDS)
        return pa.RecordBatch.from_arrays([pa.array([len(batch)] * len(batch))], batch.schema.names)

    env = make(1)
    found = collected(PATHS[path](numbers(env)).map_batches(length, Types.LONG()))
    assert len(found) == RECORDS
    assert sum(1 / records for records in found) <= RECORDS / 20, "calls"


@pytest.mark.parametrize("path", PATHS)
def test_async_functions_get_their_capacity(make: Make, path: str) -> None:
    env = make(1)
    stream = PATHS[path](numbers(env))
    found = collected(
        AsyncDataStream.unordered_wait(stream, UnderWay(), Time.seconds(60), 200, Types.LONG())
    )
    assert len(found) == RECORDS
    assert max(found) == 200


def test_pandas_functions(make: Make) -> None:
    @udf(result_type=DataTypes.BIGINT(), func_type="pandas")
    def length(column: Any) -> Any:
        time.sleep(CALL_SECONDS)
        return column * 0 + len(column)

    env = make(1)
    tables = StreamTableEnvironment.create(env)
    tables.create_temporary_function("length", length)
    tables.create_temporary_view("numbers", tables.from_data_stream(numbers(env)))
    with tables.execute_sql("SELECT length(f0) FROM numbers").collect() as rows:
        found: list[Any] = [row[0] for row in cast("Any", rows)]
    assert len(found) == RECORDS
    assert sum(1 / records for records in found) <= RECORDS / 20, "calls"
