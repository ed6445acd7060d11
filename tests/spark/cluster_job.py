"""The job of the tests on clusters: Kafka, a count per key, Kafka, and an executor that is killed.

Run as ``python cluster_job.py MASTER EXECUTION SERVERS READ WRITTEN DIRECTORY``.  The file
``records`` says behind how many events of each of two partitions it ends; they need not be there
yet.  The function ahead of the exchange kills the executor that it runs on, once, at the event of
three quarters of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import cloudpickle
from tests.kafka import kafka_job
from tests.spark import counting_job

from millstream.datastream import MapFunction
from millstream.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaTopicPartition

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class KillExecutorAtEvent(MapFunction):
    """Kills the JVM of the executor at an event, once."""

    def __init__(self, number: int, flag: Path) -> None:
        self.killing = counting_job.KillExecutor(number, flag)

    def map(self, value: Any) -> Any:
        self.killing.map(value.id)
        return value


def main(master: str, execution: str, topics: tuple[str, str, str], directory: Path) -> None:
    """Run the job.

    Args:
        master: Spark's.
        execution: how the job runs.
        topics: the broker's servers, the topic to read and the one to write.
        directory: of the test.
    """
    servers, read, written = topics
    records = int((directory / "records").read_text())
    for module in (kafka_job, counting_job):
        cloudpickle.register_pickle_by_value(module)
    settings = {
        "millstream.spark.master": master,
        "millstream.execution": execution,
        "millstream.local-directory": str(directory / "local"),
        "millstream.checkpoint.fsync": "false",
        "millstream.progress": "off",
        "execution.checkpointing.interval": "200 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "5",
        "restart-strategy.fixed-delay.delay": "100 ms",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.executor.extraJavaOptions": SHORT_LIVED,
        "spark.executor.memory": "1024m",
        "spark.executor.cores": "1",
    }
    ends = {KafkaTopicPartition(read, partition): records for partition in (0, 1)}
    env = kafka_job.environment(
        *(servers, read, written, str(directory / "checkpoints")),
        stop=KafkaOffsetsInitializer.offsets(ends),
        before=KillExecutorAtEvent(2 * records * 3 // 4, directory / "killed"),
        settings=settings,
    )
    env.execute("kafka on a cluster")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], (sys.argv[3], sys.argv[4], sys.argv[5]), Path(sys.argv[6]))
