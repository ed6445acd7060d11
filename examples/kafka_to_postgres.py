"""Write visits of a web site, sessions of clicks in a Kafka topic, to PostgreSQL exactly once.

Run it with ``millstream run --checkpoint-dir DIR kafka_to_postgres.py BROKERS DATABASE``.
"""

import sys
from datetime import datetime

from millstream.common import Duration, Row, Time, Types, WatermarkStrategy
from millstream.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from millstream.datastream.connectors.postgres import PostgresSink
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.datastream.window import EventTimeSessionWindows

CLICK = Types.ROW_NAMED(["who", "page", "at"], [Types.STRING(), Types.STRING(), Types.STRING()])
SESSION = Types.ROW_NAMED(
    ["who", "began", "ended", "clicks"],
    [Types.STRING(), Types.SQL_TIMESTAMP(), Types.SQL_TIMESTAMP(), Types.LONG()],
)


class Summary(ProcessWindowFunction):
    def process(self, key, context, elements):
        times = sorted(datetime.fromisoformat(click.at) for click in elements)
        yield Row(key, times[0].replace(tzinfo=None), times[-1].replace(tzinfo=None), len(times))


def write_sessions(env, brokers, database):
    clicks = (
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
    in_order = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(1))
    in_order = in_order.with_timestamp_assigner(
        lambda click, _: int(datetime.fromisoformat(click.at).timestamp() * 1000)
    )
    stream = env.from_source(clicks, in_order, "clicks").uid("clicks")
    sessions = (
        stream.key_by(lambda click: click.who)
        .window(EventTimeSessionWindows.with_gap(Time.minutes(30)))
        .process(Summary(), SESSION)
        .uid("sessions")
    )
    sessions.sink_to(PostgresSink.two_phase(database, "sessions", type_info=SESSION)).uid("table")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(200)
    write_sessions(env, *sys.argv[1:])
    env.execute("sessions")
