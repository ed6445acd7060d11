"""Which worker a partition gets: on Spark by itself that which has waited longest, here its own."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import TaskContext

from millstream.engines.spark import engine
from millstream.engines.spark.engine import RUN_PROPERTY, keep_spare_workers, keep_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from py4j.java_gateway import JavaGateway
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARTITIONS = 2
DEADLINE = 60.0


@contextmanager
def run_named(context: SparkContext, name: str) -> Iterator[None]:
    """Tasks are of this run."""
    context.setLocalProperty(RUN_PROPERTY, name)
    try:
        yield
    finally:
        context.setLocalProperty(RUN_PROPERTY, "")


def together(context: SparkContext, flags: Path) -> dict[int, int]:
    """Run a task per partition, all at the same time; partition -> process."""
    flags.mkdir()
    names = [str(flags / str(number)) for number in range(PARTITIONS)]

    def meet(_: Iterable[int]) -> list[tuple[int, int]]:
        here = TaskContext.get()
        assert here is not None
        Path(names[here.partitionId()]).touch()
        end = time.monotonic() + DEADLINE
        while not all(Path(name).exists() for name in names):
            assert time.monotonic() < end
            time.sleep(0.002)
        return [(here.partitionId(), os.getpid())]

    return dict(context.parallelize(range(PARTITIONS), PARTITIONS).mapPartitions(meet).collect())


def alone(context: SparkContext, partition: int) -> int:
    """Run the task of one partition, while all workers are idle; its process."""
    rows = context.parallelize(range(PARTITIONS), PARTITIONS)
    (found,) = context.runJob(rows, lambda _: [os.getpid()], [partition])
    return int(found)


def test_a_partition_stays_with_its_worker(spark: SparkSession, tmp_path: Path) -> None:
    context = spark.sparkContext
    together(context, tmp_path / "first")
    assert keep_workers(context) >= 1
    assert keep_workers(context) >= 1  # there is nothing left to do, and nothing breaks
    with run_named(context, "a"):
        homes = together(context, tmp_path / "a")
        assert len(set(homes.values())) == PARTITIONS
        for partition in (0, 0, 1, 1, 1, 0, 1, 0, 0):
            assert alone(context, partition) == homes[partition]
    # Tasks that are nobody's go to all in turn, as ever.
    assert len({alone(context, 0) for _ in range(4)}) > 1
    with run_named(context, "b"):
        first = alone(context, 1)
        # That one is the first partition's by now.
        assert alone(context, 0) != first
        assert [alone(context, number) for number in (1, 0, 1)][::2] == [first, first]
    with run_named(context, "a"):
        assert {number: alone(context, number) for number in homes} == homes


def test_a_worker_that_is_busy_or_gone_is_not_waited_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    context = spark.sparkContext
    together(context, tmp_path / "first")
    keep_workers(context)
    with run_named(context, "c"):
        lonely = alone(context, 0)
        assert alone(context, 0) == lonely
        # Both are the home of partition 0 or of none, and both are wanted at once.
        homes = together(context, tmp_path / "both")
        assert homes[0] == lonely
        os.kill(homes[1], 9)
        other = alone(context, 1)
        assert other != homes[1]
        assert alone(context, 1) == other
        assert alone(context, 0) == lonely


def test_spark_made_otherwise_goes_on(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is not found where it is now costs a message at debug level."""

    def other_class(gateway: JavaGateway, _name: str) -> object:
        list_class = gateway.jvm.java.lang.Class.forName("java.util.ArrayList")
        return list_class.getConstructor(gateway.new_array(gateway.jvm.java.lang.Class, 0))

    context = spark.sparkContext
    monkeypatch.setattr(engine, "_worker_homes_compiled", {})
    monkeypatch.setattr(engine, "compiled", other_class)
    assert keep_workers(context) == 0
    assert len(together(context, tmp_path / "first")) == PARTITIONS


def test_no_epoch_waits_for_it(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[SparkContext] = []
    kept: Callable[[SparkContext], object] = called.append
    monkeypatch.setattr(engine, "keep_workers", kept)
    thread = keep_spare_workers(spark.sparkContext)
    assert thread is not None
    thread.join(DEADLINE)
    assert called == [spark.sparkContext]
