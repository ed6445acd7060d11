"""Where the sinks of the tests write: made, read, and looked at for what was left behind.

What it is: one class per kind of sink, on top of ``tests.databases.targets`` for databases.
"""

from __future__ import annotations

import contextlib
import csv
import json
import sqlite3
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import duckdb
from tests.databases.server import execute
from tests.databases.targets import TARGETS, DuckDbTarget, PostgresTarget, Target

from millstream.connectors.files.sink import FileSink
from millstream.connectors.kafka.sink import KafkaSink
from millstream.connectors.kafka.transactions import TransactionControl
from millstream.datastream.connectors.kafka import DeliveryGuarantee, KafkaRecordSerializationSchema
from millstream.datastream.formats.json import JsonRowSerializationSchema

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest
    from tests.databases.server import PostgresServer
    from tests.kafka.broker import Broker

    from millstream.contracts.sink import Sink

__all__ = ["DATABASES", "Outlet", "make_outlet"]

#: Names of ``tests.databases.targets``.
DATABASES = [
    "postgres-two-phase",
    "postgres-commit-table",
    "postgres-upsert",
    "sqlite",
    "duckdb",
]


class Outlet(ABC):
    """A place that a sink writes to."""

    #: The parallelism of the job: idempotent sinks show what the other subtasks wrote.
    parallelism = 2
    #: As a message must name it.
    name: str

    @abstractmethod
    def sink(self, **options: Any) -> Sink:
        """A sink that writes there."""

    @abstractmethod
    def read(self) -> list[str]:
        """The keys that a reader sees, sorted."""

    @abstractmethod
    def leftovers(self) -> Sequence[object]:
        """What is pre-committed and not committed."""


class TableOutlet(Outlet):
    """A table of a database."""

    def __init__(self, target: Target, name: str) -> None:
        self.target = target
        self.name = name

    @property
    def parallelism(self) -> int:  # type: ignore[override]
        return 1 if "Upsert" in type(self.target).__name__ else 2

    def sink(self, **options: Any) -> Sink:
        return self.target.sink(**options)

    def read(self) -> list[str]:
        return sorted(key for (key,) in self.target.read("SELECT key FROM results"))

    def leftovers(self) -> Sequence[object]:
        return self.target.leftovers()

    def execute(self, statement: str) -> None:
        """Change the table."""
        address = self.target.address
        if isinstance(self.target, PostgresTarget):
            execute(address, statement)
        elif isinstance(self.target, DuckDbTarget):
            with duckdb.connect(address) as connection:
                connection.execute(statement)
        else:
            with contextlib.closing(sqlite3.connect(address)) as database, database:
                database.execute(statement)


class FileOutlet(Outlet):
    """A directory of CSV files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = str(directory)

    def sink(self, **options: Any) -> Sink:
        return FileSink.csv(str(self.directory), fsync=False, **options)

    def read(self) -> list[str]:
        if not self.directory.is_dir():
            return []
        files = [path for path in self.directory.rglob("[!.]*.csv") if path.is_file()]
        return sorted(row["key"] for path in files for row in _rows(path))

    def leftovers(self) -> Sequence[object]:
        return list(self.directory.glob(".pending*"))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


class KafkaOutlet(Outlet):
    """A topic, of JSON."""

    def __init__(self, broker: Broker, guarantee: DeliveryGuarantee) -> None:
        self.broker = broker
        self.topic = broker.topic()
        self.guarantee = guarantee
        self.name = repr(self.topic)

    @property
    def parallelism(self) -> int:  # type: ignore[override]
        return 2 if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE else 1

    def sink(
        self,
        *,
        servers: str | None = None,
        topic: str | None = None,
        selector: Any = None,
        value: Any = None,
        **properties: str,
    ) -> Sink:
        serializer = KafkaRecordSerializationSchema.builder()
        if selector is None:
            serializer.set_topic(topic or self.topic)
        else:
            serializer.set_topic_selector(selector)
        serializer.set_value_serialization_schema(
            value or JsonRowSerializationSchema.builder().build()
        )
        builder = (
            KafkaSink.builder()
            .set_bootstrap_servers(servers or self.broker.servers)
            .set_record_serializer(serializer.build())
            .set_delivery_guarantee(self.guarantee)
            .set_transactional_id_prefix(self.topic)
        )
        for key, text in properties.items():
            builder.set_property(key.replace("_", "."), text)
        return builder.build()

    def read(self) -> list[str]:
        return sorted(json.loads(each.value)["key"] for each in self.broker.read(self.topic))

    def leftovers(self) -> Sequence[object]:
        control = TransactionControl({"bootstrap.servers": self.broker.servers})
        try:
            return control.open_transactions(self.topic)
        finally:
            control.close()


def make_outlet(kind: str, request: pytest.FixtureRequest, directory: Path) -> Outlet:
    """The outlet called ``kind``, empty; servers are started only where it needs one."""
    if kind.startswith("kafka"):
        guarantee = "AT_LEAST_ONCE" if kind.endswith("at-least-once") else "EXACTLY_ONCE"
        return KafkaOutlet(request.getfixturevalue("broker"), DeliveryGuarantee[guarantee])
    if kind == "file":
        return FileOutlet(directory / "out")
    if kind.startswith("postgres"):
        server: PostgresServer = request.getfixturevalue("server")
        address, name = server.new_schema(), f"'results' of PostgreSQL 127.0.0.1:{server.port}"
    else:
        (directory / "database").mkdir(exist_ok=True)
        address = str(directory / "database" / "results.db")
        name = f"'results' of {address}"
    target = TARGETS[kind](address)
    target.create()
    return TableOutlet(target, name)
