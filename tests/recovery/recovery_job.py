"""The job of the kill tests: keyed state, timers and windows into two exactly-once file sinks.

Run as ``python recovery_job.py INPUT OUTPUT CHECKPOINTS BYTES_PER_EPOCH MASTER``, where the master
is one of Spark (after ``slots:`` for long-running tasks), or ``local`` for the local engine, or
``pipelined`` for slots that are processes of this machine, or ``mini``: then the job runs in this
process, with the same tasks, coordinator and sinks, and starts in a second instead of many.  With
``DATABASE BROKERS TOPIC`` behind it the running totals go to PostgreSQL (table ``running``,
two-phase) and Kafka as well.  Every key lives in one input file, so the order of its records is
that of the file.  Nothing is late.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.common import Configuration, Duration, Row, Types, WatermarkStrategy
from millstream.contracts.source import RangeCursor
from millstream.crash_points import VICTIM_VARIABLE
from millstream.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.file_system import FileSink, FileSource
from millstream.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
)
from millstream.datastream.connectors.postgres import PostgresSink
from millstream.datastream.formats.json import JsonRowSerializationSchema
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import (
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.contracts.source import Split, SplitCursor

EVENT = Types.ROW_NAMED(
    ["id", "key", "ts", "value"], [Types.LONG(), Types.STRING(), Types.LONG(), Types.LONG()]
)
RUNNING = Types.ROW_NAMED(
    ["key", "id", "n", "total"], [Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()]
)
WINDOW = Types.ROW_NAMED(
    ["kind", "key", "start", "n", "total"],
    [Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()],
)
OUT_OF_ORDERNESS = 2_000
SERVERS_AT = 5
TIMEOUT = 700


class RunningTotal(KeyedProcessFunction):
    """Count and sum per key, one row per record; a row with n = -count at the end of a pause."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(
            ValueStateDescriptor("total", Types.PICKLED_BYTE_ARRAY())
        )
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        count, total, latest = self.total.value() or (0, 0, 0)
        count, total, latest = count + 1, total + value.value, max(latest, value.ts)
        self.total.update((count, total, latest))
        self.seen.add(value.id)
        ctx.timer_service().register_event_time_timer(value.ts + TIMEOUT)
        yield Row(key=value.key, id=value.id, n=count, total=total)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        """Emitted once per distinct time; the sum of ids seen checks the list state."""
        if timestamp % 10 == 0:
            yield Row(key=ctx.get_current_key(), id=-timestamp, n=-1, total=0)


class CountAndSum(AggregateFunction):
    """(count, sum) of the values."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Row, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value.value

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], a[1] + b[1]


class Describe(ProcessWindowFunction[tuple[int, int], Row, str, TimeWindow]):
    """Adds key and window to the aggregate."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[tuple[int, int]],
    ) -> Iterator[Row]:
        for count, total in elements:
            yield Row(kind=self.kind, key=key, start=context.window().start, n=count, total=total)


class SlowFileSource(FileSource):
    """Reads at most so many bytes of each file per epoch, so that there are many epochs."""

    bytes_per_epoch = 0

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        if self.bytes_per_epoch:
            limit = min(limit, self.bytes_per_epoch)
        return super().next_stop(split, start, limit, end)

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        if self.bytes_per_epoch:
            return RangeCursor(self, split, position)
        return super().open_cursor(split, position)


def slowly(row: Row) -> bool:
    """Takes its time, so that there are many checkpoints."""
    del row
    time.sleep(0.004)
    return True


def key_of(row: Row) -> bytes:
    """The key of a message."""
    key: str = row.key
    return key.encode()


def kafka_sink(brokers: str, topic: str) -> KafkaSink:
    """The exactly-once sink of the running totals."""
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_key_serialization_schema(key_of)
        .set_value_serialization_schema(JsonRowSerializationSchema.builder().build())
        .build()
    )
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(brokers)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(topic)
        .build()
    )


def main(arguments: list[str]) -> None:
    source_path, output, checkpoints, bytes_per_epoch = arguments[:4]
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.dir", checkpoints)
    configuration.set_string("parallelism.default", "2")
    if arguments[4] == "local":
        configuration.set_string("execution.target", "local")
    elif arguments[4] == "pipelined":
        configuration.set_string("execution.target", "local")
        configuration.set_string("millstream.execution", "pipelined")
        configuration.set_string("execution.checkpointing.interval", "20 ms")
    elif arguments[4] != "mini":
        mode, _, master = arguments[4].rpartition(":")
        configuration.set_string("millstream.spark.master", master)
        if mode == "slots":
            configuration.set_string("millstream.execution", "pipelined")
            configuration.set_string("execution.checkpointing.interval", "20 ms")
    configuration.set_string("millstream.local-directory", str(Path(output).parent / "local"))
    # A driver that is left without a JVM must not start again, whatever its strategy.
    lives_on = bool(os.environ.get(VICTIM_VARIABLE))
    configuration.set_string("restart-strategy.type", "exponential-delay" if lives_on else "none")
    # The job is started some ninety times: what the JVM saves at the start counts.
    configuration.set_string(
        "spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    source = FileSource.json_lines(source_path, schema=EVENT)
    source.__class__ = SlowFileSource
    setattr(source, "bytes_per_epoch", int(bytes_per_epoch))  # noqa: B010 - of the subclass
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(OUT_OF_ORDERNESS)
    ).with_timestamp_assigner(lambda row, _: row.ts)
    events = env.from_source(source, strategy, "events").uid("events")
    if arguments[4].startswith(("pipelined", "slots:")) and int(bytes_per_epoch):
        events = events.filter(slowly).uid("slowly")
    keyed = events.key_by(lambda row: row.key)
    running = keyed.process(RunningTotal(), RUNNING).uid("running")
    running.sink_to(FileSink.json_lines(str(Path(output) / "running"))).uid("running-sink")
    if len(arguments) > SERVERS_AT:
        database, brokers, topic = arguments[SERVERS_AT:]
        running.sink_to(PostgresSink.two_phase(database, "running")).uid("running-database")
        running.sink_to(kafka_sink(brokers, topic)).uid("running-topic")
    tumbling = (
        keyed.window(TumblingEventTimeWindows.of(Duration.of_millis(1_000)))
        .aggregate(CountAndSum(), Describe("tumbling"), output_type=WINDOW)
        .uid("tumbling")
    )
    sliding = (
        keyed.window(SlidingEventTimeWindows.of(Duration.of_millis(900), Duration.of_millis(300)))
        .aggregate(CountAndSum(), Describe("sliding"), output_type=WINDOW)
        .uid("sliding")
    )
    tumbling.union(sliding).sink_to(FileSink.parquet(str(Path(output) / "windows"))).uid(
        "windows-sink"
    )
    if arguments[4] == "mini":
        graph = env.get_job_graph("recovery")
        MiniCluster(graph, Path(checkpoints), state_backend="rocksdb").run()
    else:
        env.execute("recovery")


if __name__ == "__main__":
    main(sys.argv[1:])
