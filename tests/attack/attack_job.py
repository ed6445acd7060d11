"""The job that is attacked: Kafka, state and timers, three exactly-once sinks, on Spark or slots.

Run as ``python attack_job.py SETTINGS``, a JSON file with the keys of ``Settings``.  It runs until
it is ended, and appends a line to the file ``marks`` at each stage of its start: name and time.  On
slots it is sent signals that have it cut its own connections (``CUT_LINK``, ``CUT_SLOT_OFF``).
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.proxied_slots import ProxiedSlots
from tests.support.slot_proxy import DRIVER

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
from millstream.engines.pipelined import run_loop
from millstream.engines.pipelined.engine import PipelinedEngine, slots_of
from millstream.engines.spark.session import get_session
from millstream.execution.driver import check_job, start_job

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET_MS = 2_000
#: Have the driver end the connection between its slots, and that of one slot with itself.
CUT_LINK: Final = signal.SIGRTMIN
CUT_SLOT_OFF: Final = signal.SIGRTMIN + 1
SLOTS: Final = 2
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
    #: Tasks live on, in processes of this machine.
    on_slots: bool = False


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
        "parallelism.default": str(SLOTS),
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.initial-backoff": "500 ms",
        "restart-strategy.exponential-delay.max-backoff": "3 s",
    }.items():
        configuration.set_string(key, value)
    if settings.on_slots:
        configuration.set_string("execution.target", "local")
        configuration.set_string("millstream.execution", "pipelined")
        # One driver lets barriers overtake records, the next one may not.
        unaligned = "true" if os.getpid() % 2 else "false"
        configuration.set_string("execution.checkpointing.unaligned", unaligned)
    return configuration


def run_on_slots(env: StreamExecutionEnvironment) -> None:
    """Run the job in slots whose connections can be cut."""
    host, chance = ProxiedSlots(), random.Random(time.time())
    # Else slots would reach each other by themselves.
    setattr(run_loop, "Begin", host.begin)  # noqa: B010 - it is no name of its own there

    def cut(number: int, _: object) -> None:
        proxy = host.proxy
        if proxy is not None:
            end = 0 if number == CUT_LINK else DRIVER
            proxy.cut(SLOTS - 1 if end == 0 else chance.randrange(SLOTS), end)

    signal.signal(CUT_LINK, cut)
    signal.signal(CUT_SLOT_OFF, cut)
    graph = env.get_job_graph("attacked")
    check_job(graph)
    start_job(graph, PipelinedEngine(slots_of(graph), host)).get_job_execution_result()


def main(settings: Settings) -> None:
    """Build the program and run it until somebody ends it."""
    mark = Path(settings.marks)

    def reached(name: str) -> None:
        with mark.open("a") as file:
            file.write(f"{os.getpid()} {name} {time.time()}\n")

    reached("imported")
    configuration = configure(settings)
    if not settings.on_slots:
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
    if settings.on_slots:
        run_on_slots(env)
    else:
        env.execute("attacked")


if __name__ == "__main__":
    main(Settings(**json.loads(Path(sys.argv[1]).read_text())))
