"""Start Kafka and PostgreSQL, run kafka_to_postgres.py between them, and print the table."""

import json
import tempfile
import time

import kafka_to_postgres
import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tutorial_servers import servers

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment

TABLE = """CREATE TABLE sessions (
    who text, began timestamp, ended timestamp, clicks bigint, PRIMARY KEY (who, began))"""


def start(brokers, database, checkpoints):
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.dir", checkpoints)
    configuration.set_string("millstream.progress", "off")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2).enable_checkpointing(200)
    env.add_python_file(kafka_to_postgres.__file__)
    kafka_to_postgres.write_sessions(env, brokers, database)
    return env.execute_async("sessions")


def send(brokers, *lines):
    producer = Producer({"bootstrap.servers": brokers})
    for line in lines:
        who, page, clock = line.split()
        click = {"who": who, "page": page, "at": f"2026-03-02T{clock}:00+00:00"}
        producer.produce("clicks", json.dumps(click).encode())
    producer.flush()


def show(database, rows):
    """Wait until the table has this many rows, and print them."""
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
