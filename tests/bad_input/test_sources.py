"""Bad input of sources: the error names source, place and record; the job goes on without it.

Each case reads a first epoch, then meets what is wrong, in the second.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.bad_input.jobs import run, source_graph, submit
from tests.databases.server import PostgresServer, execute

from millstream.common import Types
from millstream.connectors.basic.collect import read_collected
from millstream.connectors.files.source import FileSource
from millstream.connectors.postgres.source import PostgresSource
from millstream.datastream.connectors.kafka import KafkaSource
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.broker import Broker

    from millstream.contracts.source import Source

pytestmark = pytest.mark.both_engines

ROW = Types.ROW_NAMED(["i", "n"], [Types.LONG(), Types.LONG()])


class Job:
    """A job with a source that changes from run to run."""

    def __init__(self, directory: Path) -> None:
        self.out = directory / "out"
        self.checkpoints = directory / "checkpoints"

    def go(self, source: Source, epochs: int = 100) -> None:
        graph = source_graph(source, self.out)
        submit(graph)
        run(graph, self.checkpoints, epochs)

    def fails(self, source: Source, *says: str) -> None:
        """It fails, and says why."""
        with pytest.raises(SourceError) as caught:
            self.go(source)
        message = str(caught.value)
        print(message)
        for each in (r"^source 'Source: rows' \(jobs.py:\d+, uid rows\): ", *says):
            assert re.search(each, message), f"{each} is not in: {message}"

    def read(self) -> list[int]:
        rows: list[Any] = list(read_collected(self.out))
        return sorted(row.i for row in rows)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


# -- Kafka ---------------------------------------------------------------------------------------


def kafka(broker: Broker, topic: str, malformed: str = "fail") -> Source:
    schema = JsonRowDeserializationSchema.builder().type_info(ROW).build()
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(broker.servers)
        .set_topics(topic)
        .set_value_only_deserializer(schema)
        .set_malformed(malformed)
        .build()
    )


@pytest.mark.parametrize("bad", [b"no json", b'{"i": 4, "n": "seven"}', b""])
def test_a_message_that_does_not_parse(broker: Broker, job: Job, bad: bytes) -> None:
    topic = broker.topic()
    good = [json.dumps({"i": i, "n": i}).encode() for i in range(7)]
    broker.send(topic, good[:4])
    job.go(kafka(broker, topic), epochs=1)
    assert job.read() == [0, 1, 2, 3]
    broker.send(topic, [bad, *good[5:]])
    job.fails(
        kafka(broker, topic),
        f"topic '{topic}', partition 0, offset 4: malformed record",
        f"the value is {re.escape(repr(bad.decode()))}",
        r"correct the producer, or use set_malformed\('dead-letter'\)",
    )
    assert job.read() == [0, 1, 2, 3]
    job.go(kafka(broker, topic, "dead-letter"), epochs=1)
    assert job.read() == [0, 1, 2, 3, 5, 6]


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "json_lines"])
def test_a_line_that_does_not_parse(job: Job, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    lines = [f"{i},{i}" if kind == "csv" else f'{{"i":{i},"n":{i}}}' for i in range(9)]
    bad = lines[7].replace("7", "x")
    path.write_text("\n".join([*lines[:7], bad, lines[8], ""]))

    def source(malformed: str = "fail") -> Source:
        options: dict[str, Any] = {"header": False} if kind == "csv" else {}
        made: Source = getattr(FileSource, kind)(
            str(path), schema=ROW, malformed=malformed, **options
        )
        return made

    job.go(source(), epochs=1)
    first = job.read()
    assert first == list(range(len(first)))
    assert len(first) < 7
    job.fails(source(), f"{path}:8: malformed record", re.escape(bad), "dead-letter")
    assert job.read() == list(range(len(job.read())))
    assert len(job.read()) <= 7, "nothing of the epoch with the bad line"
    path.write_text("\n".join([*lines, ""]))
    job.go(source())
    assert job.read() == list(range(9))


def test_a_file_that_is_taken_away(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    text = "".join(f'{{"i":{i},"n":{i}}}\n' for i in range(9))
    path.write_text(text)
    job.go(FileSource.json_lines(str(path.parent / "rows.jsonl"), schema=ROW), epochs=1)
    source = FileSource.json_lines(str(path), schema=ROW)
    path.unlink()
    job.fails(source, f"no file or directory '{path}'", "correct the path")
    assert job.read() == [0]
    path.write_text(text)
    job.go(source)
    assert job.read() == list(range(9))


# -- PostgreSQL ----------------------------------------------------------------------------------


@pytest.fixture
def database(server: PostgresServer) -> str:
    conninfo = server.new_schema()
    execute(conninfo, "CREATE TABLE rows (i BIGINT, n TEXT, day DATE)")
    execute(conninfo, "INSERT INTO rows SELECT i, i, '2020-01-01' FROM generate_series(0, 11) AS i")
    return conninfo


@pytest.mark.parametrize(
    ("change", "says", "undo"),
    [
        (
            "UPDATE rows SET day = 'infinity' WHERE i = 10",
            ("column 'day' of row {'i': '10', .*'infinity'", "Correct the row, or cast"),
            "UPDATE rows SET day = '2020-01-01' WHERE i = 10",
        ),
        (
            "UPDATE rows SET n = 'seven' WHERE i = 10",
            ('invalid input syntax for type bigint: "seven"', "Correct"),
            "UPDATE rows SET n = '10' WHERE i = 10",
        ),
        (
            "ALTER TABLE rows RENAME TO away",
            ('relation "rows" does not exist', "Check"),
            "ALTER TABLE away RENAME TO rows",
        ),
        (
            "ALTER TABLE rows RENAME COLUMN n TO m",
            ('column "n" does not exist', "Check"),
            "ALTER TABLE rows RENAME COLUMN m TO n",
        ),
    ],
)
def test_rows_and_tables(
    job: Job,
    database: str,
    server: PostgresServer,
    change: str,
    says: tuple[str, ...],
    undo: str,
) -> None:
    query = "SELECT i, n::bigint AS n, day FROM rows"

    def source() -> Source:
        return PostgresSource(database, query, key="i", splits=1)

    read = source()
    job.go(read, epochs=2)
    assert job.read() == [*range(8)]
    execute(database, change)
    place = f"query '{query}' to PostgreSQL 127.0.0.1:{server.port}/postgres"
    job.fails(read, place, *says)
    assert job.read() == [*range(8)]
    execute(database, undo)
    job.go(source())
    assert job.read() == [*range(12)]
