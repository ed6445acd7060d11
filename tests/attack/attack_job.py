"""The job that is attacked: Kafka, state and timers, three exactly-once sinks, on Spark.

Run as ``python attack_job.py SETTINGS``, a JSON file with the keys of ``Settings``.  It runs until
it is ended, and appends a line to the file ``marks`` at each stage of its start: name and time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.common import Configuration, Row, Types, WatermarkStrategy
from millstream.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.file_system import FileSink
from millstream.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from millstream.datastream.connectors.postgres import PostgresSink
from millstream.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millstream.engines.spark.session import get_session

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET_MS = 2_000
ORDER = Types.ROW_NAMED(
    ["id", "customer", "ts", "amount"], [Types.LONG(), Types.STRING(), Types.LONG(), Types.LONG()]
)
RESULT = Types.ROW_NAMED(
    ["kind", "customer", "id", "n", "total"],
    [Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()],
)


@dataclass(frozen=True)
class Settings:
    """Where everything is."""

    brokers: str
    orders: str
    results: str
    database: str
    output: str
    checkpoints: str
    local: str
    marks: str


class Totals(KeyedProcessFunction):
    """A customer's running total with each order, and a sum of each stretch of time at its end."""

    def open(self, runtime_context: RuntimeContext) -> None:
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.total = runtime_context.get_state(ValueStateDescriptor("total", pair))
        self.buckets = runtime_context.get_map_state(
            MapStateDescriptor("buckets", Types.LONG(), pair)
        )

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        count, total = self.total.value() or (0, 0)
        count, total = count + 1, total + value.amount
        self.total.update((count, total))
        end = (value.ts // BUCKET_MS + 1) * BUCKET_MS - 1
        number, sum_ = self.buckets.get(end) or (0, 0)
        self.buckets.put(end, (number + 1, sum_ + value.amount))
        ctx.timer_service().register_event_time_timer(end)
        yield Row("running", value.customer, value.id, count, total)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        number, sum_ = self.buckets.get(timestamp)
        self.buckets.remove(timestamp)
        key = ctx.get_current_key()
        yield Row("bucket", key, timestamp, number, sum_)


def customer(row: Row) -> bytes:
    """The key of a message."""
    name: str = row.customer
    return name.encode()


def source(settings: Settings) -> KafkaSource:
    """All orders, for ever."""
    orders = JsonRowDeserializationSchema.builder().type_info(ORDER).build()
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(settings.brokers)
        .set_topics(settings.orders)
        .set_group_id(settings.orders)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(orders)
        .build()
    )


def topic(settings: Settings) -> KafkaSink:
    """The results as messages, a customer's in one partition."""
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(settings.results)
        .set_key_serialization_schema(customer)
        .set_value_serialization_schema(JsonRowSerializationSchema.builder().build())
        .build()
    )
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(settings.brokers)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(settings.results)
        .build()
    )


def configure(settings: Settings) -> Configuration:
    """Two tasks on this machine, restarts without long waits."""
    configuration = Configuration()
    for key, value in {
        "execution.checkpointing.dir": settings.checkpoints,
        "execution.checkpointing.interval": "200 ms",
        "millstream.local-directory": settings.local,
        "millstream.spark.master": "local[2]",
        "parallelism.default": "2",
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.initial-backoff": "500 ms",
        "restart-strategy.exponential-delay.max-backoff": "3 s",
    }.items():
        configuration.set_string(key, value)
    return configuration


def main(settings: Settings) -> None:
    """Build the program and run it until somebody ends it."""
    mark = Path(settings.marks)

    def reached(name: str) -> None:
        with mark.open("a") as file:
            file.write(f"{os.getpid()} {name} {time.time()}\n")

    reached("imported")
    configuration = configure(settings)
    get_session(configuration)
    reached("session")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda row, _: row.ts
    )
    orders = env.from_source(source(settings), strategy, "orders").uid("orders")
    results = orders.key_by(lambda row: row.customer).process(Totals(), RESULT).uid("totals")
    results.sink_to(topic(settings)).uid("topic")
    results.sink_to(PostgresSink.two_phase(settings.database, "results")).uid("table")
    results.sink_to(FileSink.json_lines(settings.output)).uid("files")
    env.execute("attacked")


if __name__ == "__main__":
    main(Settings(**json.loads(Path(sys.argv[1]).read_text())))
