"""What Structured Streaming asks Millstream for offsets: from the JVM, without Python processes."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from millstream.engines.spark.engine import OffsetServer, split_rows
from millstream.execution.planned_source import initial_offset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

FIRST: Any = {"epoch": 0, "final": False, "sources": {"1": 3}}
SECOND: Any = {"epoch": 1, "final": True, "sources": {"1": 3}}


class OlderReader(DataSourceStreamReader):
    """As Millstream's source was before: of Python, in a process of its own."""

    def initialOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's name
        return dict(initial_offset())

    def latestOffset(self) -> dict[str, object]:  # type: ignore[override] # noqa: N802 - Spark's name
        return dict(FIRST)

    def partitions(self, start: object, end: object) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter(())


class OlderSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "older-millstream"

    def schema(self) -> str:
        return "nothing int"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return OlderReader()


def run(rows: DataFrame, checkpoint: Path) -> list[int]:
    """Run a query until nothing is new; the numbers of its micro-batches."""
    numbers: list[int] = []
    query = (
        rows.writeStream.foreachBatch(lambda _, number: numbers.append(number))
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return numbers


def of_data_sources(spark: SparkSession) -> set[int]:
    """Python processes of the JVM, but for its workers' daemon."""
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == jvm and b"pyspark.sql" in (path / "cmdline").read_bytes():
                found.add(int(path.name))
    return found


def test_spark_logs_what_the_driver_answers(spark: SparkSession, tmp_path: Path) -> None:
    before = of_data_sources(spark)
    answers = [FIRST, SECOND]
    server = OffsetServer(
        initial_offset(), lambda: answers.pop(0) if len(answers) > 1 else answers[0]
    )
    assert run(split_rows(spark, server), tmp_path) == [0, 1]
    logged = [(tmp_path / "offsets" / str(number)).read_text() for number in (0, 1)]
    assert [json.loads(text.splitlines()[-1]) for text in logged] == [FIRST, SECOND]
    assert of_data_sources(spark) <= before


def test_the_log_of_a_python_source_is_gone_on_with(spark: SparkSession, tmp_path: Path) -> None:
    """Checkpoints of older versions have one."""
    spark.dataSource.register(OlderSource)
    before = of_data_sources(spark)
    assert run(spark.readStream.format("older-millstream").load(), tmp_path) == [0]
    assert of_data_sources(spark) > before, "as the test above would find them"
    same = OffsetServer(initial_offset(), lambda: FIRST)
    assert run(split_rows(spark, same), tmp_path) == []
    more = OffsetServer(initial_offset(), lambda: SECOND)
    assert run(split_rows(spark, more), tmp_path) == [1]


def test_an_error_of_planning_ends_the_query_and_is_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    error = ValueError("no such topic")

    def latest() -> Any:
        raise error

    server = OffsetServer(initial_offset(), latest)
    with pytest.raises(StreamingQueryException):
        run(split_rows(spark, server), tmp_path)
    assert server.error is error
