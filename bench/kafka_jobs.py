"""Kafka to Kafka: JSON, a running count per key, JSON; exactly-once, at-least-once, and latency.

What it is: the same job in two guarantees, read from a topic that was filled before, and once more
with events that are written while it runs, to measure *visible latency*: from the writing of an
event until a reader with ``read_committed`` has its result.  And a job that passes texts on as it
reads them, exactly-once, which shows what the connector takes without formats and functions.

Exactly-once is ``CheckpointingMode.EXACTLY_ONCE`` (the default) with
``DeliveryGuarantee.EXACTLY_ONCE``; at-least-once is ``CheckpointingMode.AT_LEAST_ONCE`` with
``DeliveryGuarantee.AT_LEAST_ONCE``, as a user sets them who wants the one or the other throughout.

Run by ``bench/run.py``.  Read next: ``bench/kafka_traffic.py``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from bench.data import Dataset
from bench.kafka_broker import (
    create_topic,
    delete_topics,
    fill,
    running_broker,
    to_parquet,
)
from bench.measure import Outcome, add_measurement_arguments, steady_rate
from bench.millstream_jobs import (
    FIRST_EPOCH,
    INTERVALS,
    OPTIONS,
    PARALLELISM,
    batches_of,
    manifests_of,
    new_environment,
)
from bench.spark_session import start_session, warm_up_dataset

from millstream.common import Row, Types, WatermarkStrategy
from millstream.common.serialization import SimpleStringSchema
from millstream.datastream import (
    CheckpointingMode,
    JobStatus,
    KeyedProcessFunction,
    RuntimeContext,
)
from millstream.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from millstream.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from millstream.datastream.state import ValueStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.datastream import StreamExecutionEnvironment

_LONG = Types.LONG()
_EVENT = Types.ROW_NAMED(["key", "value", "ts"], [_LONG, _LONG, _LONG])
_RESULT = Types.ROW_NAMED(["key", "count", "ts"], [_LONG, _LONG, _LONG])
_TIMED_RESULT = Types.ROW_NAMED(["key", "count", "ts", "at"], [_LONG, _LONG, _LONG, _LONG])

PASSED_ON = "kafka_passed_on"
#: Milliseconds between epochs for latency; with epochs, they take longer than that anyway.
_SHORT_INTERVALS = {"epochs": 200, "pipelined": 100}
#: Seconds at the beginning that do not count: the first epochs of a job
#: open state, connections and producers.
_START_UP_SECONDS = 10
_PATIENCE_SECONDS = 120
#: Of each workload that is run as fast as it goes.
_GUARANTEES = {
    "kafka_exactly_once": DeliveryGuarantee.EXACTLY_ONCE,
    "kafka_at_least_once": DeliveryGuarantee.AT_LEAST_ONCE,
    PASSED_ON: DeliveryGuarantee.EXACTLY_ONCE,
}


class RunningCount(KeyedProcessFunction):
    """Numbers the records of each key, and passes their time on."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        self._count = runtime_context.get_state(ValueStateDescriptor("count", _LONG))

    def process_element(
        self,
        value: Any,
        ctx: KeyedProcessFunction.Context,
    ) -> Iterator[Row]:
        """One output per record."""
        del ctx
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield Row(key=value.key, count=count, ts=value.ts)


class TimedCount(RunningCount):
    """Says besides when it had the record, in milliseconds since 1970."""

    def process_element(
        self,
        value: Any,
        ctx: KeyedProcessFunction.Context,
    ) -> Iterator[Row]:
        """One output per record."""
        at = int(time.time() * 1_000)
        for row in super().process_element(value, ctx):
            yield Row(key=row.key, count=row.count, ts=row.ts, at=at)


@dataclass(frozen=True)
class Job:
    """One run of the job."""

    servers: str
    read: str
    written: str
    guarantee: DeliveryGuarantee
    scratch: Path
    interval: int
    bounded: bool = True
    first_epoch: int = FIRST_EPOCH
    execution: str = "epochs"
    timed: bool = False
    #: Whether it hands on texts as they are, and counts nothing.
    passes_on: bool = False

    def environment(self) -> StreamExecutionEnvironment:
        """The job, not executed."""
        json = JsonRowDeserializationSchema.builder().type_info(_EVENT).build()
        source = (
            KafkaSource.builder()
            .set_bootstrap_servers(self.servers)
            .set_topics(self.read)
            .set_group_id(self.read)
            .set_value_only_deserializer(SimpleStringSchema() if self.passes_on else json)
        )
        if self.bounded:
            source = source.set_bounded(KafkaOffsetsInitializer.latest())
        environment = new_environment(self.scratch, self.execution)
        environment.enable_checkpointing(self.interval, CheckpointingMode[self.guarantee.name])
        built = source.build()
        built.initial_limit = self.first_epoch
        if self.passes_on:
            no_time = WatermarkStrategy.no_watermarks()
            texts = environment.from_source(built, no_time, "texts").uid("events")
            texts.sink_to(self._sink()).uid("output")
            return environment
        strategy = WatermarkStrategy.for_monotonous_timestamps()
        events = environment.from_source(built, strategy, "events").uid("events")
        keyed = events.key_by(lambda event: event.key)
        counts = (
            keyed.process(TimedCount(), _TIMED_RESULT)
            if self.timed
            else keyed.process(RunningCount(), _RESULT)
        )
        counts.sink_to(self._sink()).uid("output")
        return environment

    def _sink(self) -> KafkaSink:
        records = KafkaRecordSerializationSchema.builder().set_topic(self.written)
        if self.passes_on:
            records = records.set_value_serialization_schema(SimpleStringSchema())
        else:
            records = records.set_key_serialization_schema(lambda row: str(row.key).encode())
            json = JsonRowSerializationSchema.builder().build()
            records = records.set_value_serialization_schema(json)
        return (
            KafkaSink.builder()
            .set_bootstrap_servers(self.servers)
            .set_delivery_guarantee(self.guarantee)
            .set_transactional_id_prefix(self.written)
            .set_record_serializer(records.build())
            .build()
        )


def throughput(servers: str, arguments: argparse.Namespace) -> Outcome:
    """Read all events of a topic, as fast as it goes."""
    scratch: Path = arguments.scratch
    dataset = Dataset(arguments.events, arguments.keys, arguments.files)
    guarantee = _GUARANTEES[arguments.workload]
    warm_up = warm_up_dataset(dataset)
    limit = warm_up.events // warm_up.files
    _warm_up(servers, warm_up, guarantee, arguments, limit)
    # Small enough that there are some epochs, so that there is a steady state.
    limit = min(FIRST_EPOCH, dataset.events // 8)
    written = _run_bounded(servers, dataset, "events", guarantee, arguments, limit)
    batches = batches_of(manifests_of(scratch / "events"))
    outcome = Outcome(rows=sum(batch.rows for batch in batches), batches=batches)
    outcome.rows_per_second = steady_rate(batches)
    if arguments.sink == "parquet":
        names = ["key", "value", "ts"] if arguments.workload == PASSED_ON else ["key", "count"]
        outcome.output = to_parquet(servers, written, names, scratch / "output")
    return outcome


def _warm_up(
    servers: str,
    dataset: Dataset,
    guarantee: DeliveryGuarantee,
    arguments: argparse.Namespace,
    limit: int,
) -> None:
    """Run the job over a topic that is not measured, and forget it."""
    written = _run_bounded(servers, dataset, "warm-up", guarantee, arguments, limit)
    delete_topics(servers, ["warm-up", written])


def _run_bounded(
    servers: str,
    dataset: Dataset,
    name: str,
    guarantee: DeliveryGuarantee,
    arguments: argparse.Namespace,
    limit: int,
) -> str:
    """Fill a topic and run the job over it; returns the topic of the results."""
    read = create_topic(servers, name, PARALLELISM)
    written = create_topic(servers, f"{name}-counts", PARALLELISM)
    fill(servers, read, dataset)
    job = Job(
        servers,
        read,
        written,
        guarantee,
        arguments.scratch / name,
        interval=INTERVALS[arguments.execution],
        first_epoch=limit,
        execution=arguments.execution,
        passes_on=arguments.workload == PASSED_ON,
    )
    job.environment().execute(name)
    return written


def latency(servers: str, arguments: argparse.Namespace) -> Outcome:
    """Write events at a steady rate while the job runs, and see when their results are readable."""
    scratch: Path = arguments.scratch
    dataset = Dataset(arguments.events, arguments.keys, arguments.files)
    guarantee = DeliveryGuarantee.EXACTLY_ONCE
    warm_up = warm_up_dataset(dataset)
    limit = warm_up.events // warm_up.files
    _warm_up(servers, warm_up, guarantee, arguments, limit)
    read = create_topic(servers, "events", PARALLELISM)
    written = create_topic(servers, "counts", PARALLELISM)
    job = Job(
        servers,
        read,
        written,
        guarantee,
        scratch / "events",
        interval=_SHORT_INTERVALS[arguments.execution],
        bounded=False,
        execution=arguments.execution,
        timed=True,
    )
    client = job.environment().execute_async("latency")
    seen = scratch / "seen.npy"
    reader = _traffic("read", servers, written, dataset, ["--seen", str(seen)])
    writer = _traffic("write", servers, read, dataset, ["--rate", str(arguments.rate)])
    deadline = time.monotonic() + dataset.events / arguments.rate + _PATIENCE_SECONDS
    try:
        while reader.poll() is None:
            if client.get_job_status().result() is JobStatus.FAILED:
                client.get_job_execution_result().result()  # raises
            if writer.poll() or time.monotonic() > deadline:
                message = "the writer failed, or results do not come; see above"
                raise RuntimeError(message)
            time.sleep(0.1)
        if reader.returncode != 0:
            message = "the reader failed; see above"
            raise RuntimeError(message)
    finally:
        for process in (writer, reader):
            process.kill()
        client.cancel().result()
    outcome = Outcome(rows=dataset.events, batches=batches_of(manifests_of(scratch / "events")))
    outcome.figures = _latencies(np.load(seen))
    outcome.figures["epochs"] = len(outcome.batches)
    if arguments.sink == "parquet":
        outcome.output = to_parquet(servers, written, ["key", "count"], scratch / "output")
    return outcome


def _latencies(seen: np.ndarray) -> dict[str, float]:
    """Figures from rows of milliseconds: when written, when read, when the operator had it."""
    written, read, had = seen.T
    counted = written >= written.min() + _START_UP_SECONDS * 1_000
    seconds = (read - written)[counted] / 1_000
    record = (had - written)[counted] / 1_000
    return {
        "record_p50_seconds": float(np.percentile(record, 50)),
        "record_p99_seconds": float(np.percentile(record, 99)),
        "p50_seconds": float(np.percentile(seconds, 50)),
        "p99_seconds": float(np.percentile(seconds, 99)),
        "max_seconds": float(seconds.max()),
        "start_up_seconds": _START_UP_SECONDS,
        "events_counted": int(counted.sum()),
        "events_per_second": float(counted.sum() / np.ptp(written[counted]) * 1_000),
    }


def _traffic(
    what: str, servers: str, topic: str, dataset: Dataset, more: list[str]
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.kafka_traffic", what]
    command += ["--servers", servers, "--topic", topic, "--events", str(dataset.events)]
    command += ["--keys", str(dataset.keys), "--files", str(dataset.files), *more]
    return subprocess.Popen(command)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    workloads = (*_GUARANTEES, "kafka_latency")
    parser.add_argument("--workload", choices=workloads, required=True)
    add_measurement_arguments(parser)
    parser.add_argument("--rate", type=int, default=1_000, help="events per second, of latency")
    parser.add_argument("--execution", choices=sorted(INTERVALS), default="epochs")
    parser.add_argument(
        "--bare-broker",
        action="store_true",
        help="measure with a broker that answers fetches at once, with nothing",
    )
    return parser.parse_args()


def main() -> None:
    """Run one workload and save its outcome."""
    arguments = _arguments()
    session = start_session("millstream", arguments.scratch, OPTIONS)
    run = latency if arguments.workload == "kafka_latency" else throughput
    holds = not arguments.bare_broker
    try:
        with running_broker(arguments.scratch, holds_fetches=holds) as servers:
            run(servers, arguments).save(arguments.report)
    finally:
        session.stop()  # what its workers complain of then is not what an error ends with


if __name__ == "__main__":
    main()
