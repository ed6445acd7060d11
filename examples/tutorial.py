"""Kafka -> sessions -> PostgreSQL, with servers of its own.  Run with ``python tutorial.py``."""

import json
import tempfile
import time
from datetime import datetime

import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tutorial_servers import servers

from millstream.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from millstream.datastream.connectors.postgres import PostgresSink
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.datastream.window import EventTimeSessionWindows

CLICK = Types.ROW_NAMED(["who", "page", "at"], [Types.STRING(), Types.STRING(), Types.STRING()])


class ClickTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return int(datetime.fromisoformat(value.at).timestamp() * 1000)


def clicks(brokers):
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(brokers)
        .set_topics("clicks")
        .set_group_id("sessions")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(
            JsonRowDeserializationSchema.builder().type_info(CLICK).build()
        )
        .build()
    )


SESSION = Types.ROW_NAMED(
    ["who", "began", "ended", "clicks"],
    [Types.STRING(), Types.SQL_TIMESTAMP(), Types.SQL_TIMESTAMP(), Types.LONG()],
)
GAP = Time.minutes(30)


class Summary(ProcessWindowFunction):
    def process(self, key, context, elements):
        times = sorted(datetime.fromisoformat(click.at) for click in elements)
        yield Row(key, times[0].replace(tzinfo=None), times[-1].replace(tzinfo=None), len(times))


TABLE = """CREATE TABLE sessions (
    who text, began timestamp, ended timestamp, clicks bigint, PRIMARY KEY (who, began))"""


def start(brokers, database, checkpoints):
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.dir", checkpoints)
    configuration.set_string("millstream.progress", "off")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2).enable_checkpointing(200)
    order = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(1))
    order = order.with_timestamp_assigner(ClickTime())
    stream = env.from_source(clicks(brokers), order, "clicks").uid("clicks")
    sessions = (
        stream.key_by(lambda click: click.who)
        .window(EventTimeSessionWindows.with_gap(GAP))
        .process(Summary(), SESSION)
        .uid("sessions")
    )
    sessions.sink_to(PostgresSink.two_phase(database, "sessions", type_info=SESSION)).uid("table")
    return env.execute_async("sessions")


def send(brokers, *lines):
    producer = Producer({"bootstrap.servers": brokers})
    for line in lines:
        who, page, clock = line.split()
        click = {"who": who, "page": page, "at": f"2026-03-02T{clock}:00+00:00"}
        producer.produce("clicks", json.dumps(click).encode())
    producer.flush()


def show(database, rows):
    """Wait until the table has so many rows, and print them."""
    deadline = time.monotonic() + 300
    with psycopg.connect(database, autocommit=True) as connection:
        while True:
            found = connection.execute("SELECT * FROM sessions ORDER BY began, who").fetchall()
            if len(found) >= rows:
                break
            assert time.monotonic() < deadline, f"{len(found)} sessions after five minutes"
            time.sleep(0.1)
    for who, began, ended, count in found:
        print(f"{who}  {began:%H:%M} to {ended:%H:%M}  {count} clicks")


if __name__ == "__main__":
    with servers() as (brokers, database), tempfile.TemporaryDirectory() as checkpoints:
        AdminClient({"bootstrap.servers": brokers}).create_topics([NewTopic("clicks", 1)])
        with psycopg.connect(database) as connection:
            connection.execute(TABLE)

        send(brokers, "ann / 09:00", "bob / 09:05", "ann /shoes 09:10", "ann /cart 09:25")
        send(brokers, "cid / 10:20")
        job = start(brokers, database, checkpoints)
        print("After the first clicks:")
        show(database, rows=2)
        job.cancel().result()

        send(brokers, "cid /hats 10:40", "ann / 10:45", "bob / 12:00")
        job = start(brokers, database, checkpoints)
        print("After a stop and more clicks:")
        show(database, rows=4)
        job.cancel().result()
