"""Where the jobs of the crash matrix write to, and readers of it.

A target is made from its kind and an address, so that a driver in another process makes the same
one.  Its reader lives in the test's process and sees what any client sees.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
from tests.coordination.slow_proxy import SlowProxy
from tests.databases.server import execute
from tests.databases.targets import (
    CommitTableTarget,
    SqliteTarget,
    Target,
    TwoPhaseTarget,
    UpsertTarget,
)

from kafka import KafkaConsumer, TopicPartition
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.connectors.commit_protocols.staged_values import (
    CheckpointCommitter,
    GenericWriteAheadSink,
    staged_part,
)
from millstream.connectors.files.sink import FileSink
from millstream.connectors.kafka.client import KafkaCluster, KafkaTopicPartition
from millstream.connectors.kafka.transactions import TransactionControl
from millstream.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
)
from millstream.datastream.formats.json import JsonRowSerializationSchema
from millstream.errors import SinkError
from millstream.types.pickling import loads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.contracts.sink import Sink

__all__ = ["COMMITTED", "KINDS", "MatrixTarget", "Reader", "Result", "make_target"]

#: (key, n, id); rows of one key have n = 1, 2, 3, ...
Result = tuple[str, int, int]
PARTITIONS = 2
KAFKA_POLL = 20  # milliseconds
#: Seconds that a record takes to a slow broker, and that all may take.
SLOW = 0.2
PATIENCE = 60.0
#: A table has no order; that a key's rows come in order shows in that there is never a hole.
READ = "SELECT key, n, id FROM results ORDER BY key, n"


class Reader(ABC):
    """Sees what is visible; made and closed in one thread."""

    @abstractmethod
    def look(self) -> list[list[Result]]:
        """All rows that are visible now, per sink and in the order of reading."""

    def close(self) -> None:
        """Let go of the connection."""


class MatrixTarget(ABC):
    """A target of the matrix."""

    #: The parts of ``CRASH_POINTS`` that only a sink like this passes.
    parts: ClassVar[tuple[str, ...]]
    #: What the client of the server raises when its connection breaks; None: no server.
    server_error: ClassVar[type[Exception] | None] = None
    #: Points at which the process itself holds a lock, which nobody else can take from it.
    locked: ClassVar[tuple[str, ...]] = ()
    #: Points of the driver that a job with such a sink never passes.
    never: ClassVar[tuple[str, ...]] = ()
    #: Whether there is a ``slowed`` address.
    slows: ClassVar[bool] = False

    def __init__(self, kind: str, address: str) -> None:
        self.kind = kind
        self.address = address
        #: For the sink.
        self.options: dict[str, float] = {}

    def slowed(self, sign: Path) -> contextlib.AbstractContextManager[str]:
        """An address of it to which records take their time, while the block runs.

        All of them have arrived when it ends.  ``sign`` is there while some are on their way.
        """
        raise NotImplementedError(self.kind)

    @abstractmethod
    def create(self) -> None:
        """Make it, empty."""

    @abstractmethod
    def sinks(self) -> list[Sink]:
        """The sinks of one job that all write the same rows."""

    @abstractmethod
    def reader(self) -> Reader:
        """A reader; call it in the thread that reads."""

    @abstractmethod
    def leftovers(self) -> list[object]:
        """What is pre-committed and not committed."""


class _LookingReader(Reader):
    def __init__(self, target: FileTarget) -> None:
        self._directory = Path(target.address)

    def look(self) -> list[list[Result]]:
        names = self._names()
        # A listing is no snapshot: one that was made while files came may lack an older one.
        while names != (again := self._names()):
            names = again
        rows = (json.loads(line) for name in names for line in _lines(self._directory / name))
        return [[(row["key"], row["n"], row["id"]) for row in rows]]

    def _names(self) -> list[str]:
        return sorted(path.name for path in self._directory.glob("[!._]*"))


class FileTarget(MatrixTarget):
    """A directory of JSON lines."""

    parts = ("file sink",)

    def create(self) -> None:
        Path(self.address).mkdir()

    def sinks(self) -> list[Sink]:
        return [FileSink.json_lines(self.address, fsync=False)]

    def reader(self) -> Reader:
        return _LookingReader(self)

    def leftovers(self) -> list[object]:
        return [path for path in Path(self.address).rglob("*") if ".pending" in str(path)]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


class _TableReader(Reader):
    def __init__(self, target: Target) -> None:
        self._target = target

    def look(self) -> list[list[Result]]:
        return [self._target.read(READ)]


class SqliteMatrixTarget(MatrixTarget):
    """A table of an SQLite database."""

    parts: ClassVar[tuple[str, ...]] = ("commit table",)
    locked = ("table.commit.before",)

    def create(self) -> None:
        self._table.create()

    @property
    def _table(self) -> SqliteTarget:
        return SqliteTarget(self.address)

    def sinks(self) -> list[Sink]:
        return [self._table.sink()]

    def reader(self) -> Reader:
        return _TableReader(self._table)

    def leftovers(self) -> list[object]:
        return list(self._table.leftovers())


class _PostgresReader(Reader):
    def __init__(self, address: str) -> None:
        self._connection = psycopg.connect(address, autocommit=True)

    def look(self) -> list[list[Result]]:
        return [self._connection.execute(READ).fetchall()]

    def close(self) -> None:
        self._connection.close()


class PostgresMatrixTarget(MatrixTarget):
    """A table of a PostgreSQL database."""

    table: ClassVar[type[Target]]
    server_error = psycopg.OperationalError

    def create(self) -> None:
        table = self.table(self.address)
        table.create()
        for sink in self.sinks():
            sink.validate()

    def sinks(self) -> list[Sink]:
        return [self.table(self.address).sink(**self.options)]

    def reader(self) -> Reader:
        return _PostgresReader(self.address)

    def leftovers(self) -> list[object]:
        return list(self.table(self.address).leftovers())


class TwoPhaseMatrixTarget(PostgresMatrixTarget):
    """By prepared transactions."""

    parts = ("PostgreSQL two-phase",)
    table: ClassVar[type[Target]] = TwoPhaseTarget

    def leftovers(self) -> list[object]:
        # Other cases use the server at the same time; only this one's job had locks on its table,
        # beside the server's own cleaning.  A prepared transaction has no process.
        query = (
            "SELECT l.mode FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid"
            " WHERE l.relation = 'results'::regclass"
            " AND a.backend_type IS DISTINCT FROM 'autovacuum worker'"
        )
        return list(execute(self.address, query))


class UpsertMatrixTarget(TwoPhaseMatrixTarget):
    """By key; what is visible too early is never wrong, for the job counts the same again."""

    parts = ("PostgreSQL upsert",)
    never = ("sink.commit.before", "sink.commit.after")  # it has no committer
    table = UpsertTarget


class CommitTableMatrixTarget(PostgresMatrixTarget):
    """By a commit table."""

    parts = ("commit table",)
    table = CommitTableTarget


class _KafkaReader(Reader):
    """Follows the topic with read_committed, by the independent client."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        self._consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        self._seen: list[Result] = []

    def look(self) -> list[list[Result]]:
        for records in self._consumer.poll(KAFKA_POLL).values():
            for record in records:
                row = json.loads(record.value)
                self._seen.append((row["key"], row["n"], row["id"]))
        return [self._seen]

    def close(self) -> None:
        self._consumer.close()


def _key_of(row: Any) -> bytes:
    key: str = row.key
    return key.encode()


class KafkaTarget(MatrixTarget):
    """A topic; the address is "servers topic", or "servers topic milliseconds" of linger.ms."""

    parts = ("kafka sink",)
    server_error = ConnectionError
    slows = True

    def __init__(self, kind: str, address: str) -> None:
        super().__init__(kind, address)
        # Only the flush before the vote sends early: without it the matrix shall notice.
        self._servers, self._topic, self._linger = [*address.split(), "60000"][:3]

    @contextlib.contextmanager
    def slowed(self, sign: Path) -> Iterator[str]:
        with SlowProxy(int(self._servers.rpartition(":")[2]), SLOW, sign) as proxy:
            # Each record is on its way as soon as it is written.
            yield f"127.0.0.1:{proxy.port} {self._topic} 0"
            proxy.drain(PATIENCE)

    def create(self) -> None:
        """The topic is there: the fixture made it."""

    def sinks(self) -> list[Sink]:
        serializer = (
            KafkaRecordSerializationSchema.builder()
            .set_topic(self._topic)
            .set_key_serialization_schema(_key_of)
            .set_value_serialization_schema(JsonRowSerializationSchema.builder().build())
            .build()
        )
        sink = (
            KafkaSink.builder()
            .set_bootstrap_servers(self._servers)
            .set_record_serializer(serializer)
            .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .set_transactional_id_prefix(self._topic)
            .set_property("linger.ms", self._linger)
            .build()
        )
        return [sink]

    def reader(self) -> Reader:
        return _KafkaReader(self._servers, self._topic)

    def leftovers(self) -> list[object]:
        control = TransactionControl({"bootstrap.servers": self._servers})
        try:
            return [*control.open_transactions(self._topic), *self._stuck()]
        finally:
            control.close()

    def _stuck(self) -> list[object]:
        """Partitions in which readers with read_committed do not get to the end."""
        cluster = KafkaCluster({"bootstrap.servers": self._servers}, SinkError, "matrix")
        places = {KafkaTopicPartition(self._topic, each): "latest" for each in range(PARTITIONS)}
        stable, ends = cluster.offsets(places, committed_only=True), cluster.offsets(places)
        return [
            f"{place} is readable up to {stable[place]} of {ends[place]}"
            for place in places
            if stable[place] != ends[place]
        ]


class _Notes(CheckpointCommitter):
    """Reads the number that ``_WrittenAhead`` writes with the rows."""

    def __init__(self, path: str) -> None:
        self._path = path

    def is_checkpoint_committed(self, subtask_idx: int, checkpoint_id: int) -> bool:
        with sqlite3.connect(self._path) as database:
            found = database.execute("SELECT max(epoch) FROM notes").fetchone()[0]
        database.close()
        return found is not None and int(found) >= checkpoint_id

    def commit_checkpoint(self, subtask_idx: int, checkpoint_id: int) -> None:
        raise AssertionError


class _WrittenAhead(GenericWriteAheadSink):
    """Rows and number in one transaction of SQLite."""

    atomic = True

    def __init__(self, path: str) -> None:
        super().__init__(_Notes(path))
        self._path = path

    def send_values(self, values: Iterable[Any], checkpoint_id: int, timestamp: int) -> bool:
        with sqlite3.connect(self._path) as database:
            rows = [(row.key, row.n, row.id) for row in values]
            database.executemany("INSERT INTO results VALUES (?, ?, ?)", rows)
            database.execute("INSERT INTO notes VALUES (?)", (checkpoint_id,))
        database.close()
        return True


class WriteAheadTarget(SqliteMatrixTarget):
    """A user's write-ahead sink into SQLite."""

    parts = ("staged values", "write-ahead sink")

    def create(self) -> None:
        super().create()
        with sqlite3.connect(self.address) as database:
            # Unique: a driver that was overtaken before it wrote must not write the epoch again.
            database.execute("CREATE TABLE notes (epoch INT PRIMARY KEY)")
        database.close()

    def sinks(self) -> list[Sink]:
        return [_WrittenAhead(self.address)]

    def leftovers(self) -> list[object]:
        checkpoints = Path(self.address).parent / "checkpoints"
        staged = (checkpoints / "sinks").rglob("*.values")
        # What the last checkpoint names it needs, should it be committed again.
        versions = ManifestLog(LocalStorage(checkpoints)).entries()
        manifests = [each.manifest for each in versions if each.manifest is not None]
        kept = {
            staged_part(loads(item))["name"]
            for acks in (manifests[-1].operators.values() if manifests else ())
            for ack in acks
            for item in ack.committables
        }
        return [path for path in staged if str(path.relative_to(checkpoints)) not in kept]


class _AllReaders(Reader):
    def __init__(self, readers: list[Reader]) -> None:
        self._readers = readers

    def look(self) -> list[list[Result]]:
        return [rows for reader in self._readers for rows in reader.look()]

    def close(self) -> None:
        for reader in self._readers:
            reader.close()


class SeveralTarget(MatrixTarget):
    """A directory, SQLite and a commit table in one job; "address of PostgreSQL|directory"."""

    parts = ("file sink", "commit table", "PostgreSQL two-phase")
    locked = SqliteMatrixTarget.locked
    server_error = psycopg.OperationalError

    def __init__(self, kind: str, address: str) -> None:
        super().__init__(kind, address)
        server, directory = address.split("|")
        self._targets: list[MatrixTarget] = [
            FileTarget(kind, f"{directory}/files"),
            SqliteMatrixTarget(kind, f"{directory}/results.db"),
            TwoPhaseMatrixTarget(kind, server),
        ]

    def create(self) -> None:
        for target in self._targets:
            target.create()

    def sinks(self) -> list[Sink]:
        return [sink for target in self._targets for sink in target.sinks()]

    def reader(self) -> Reader:
        return _AllReaders([target.reader() for target in self._targets])

    def leftovers(self) -> list[object]:
        return [left for target in self._targets for left in target.leftovers()]


KINDS: dict[str, type[MatrixTarget]] = {
    "file": FileTarget,
    "kafka": KafkaTarget,
    "postgres-two-phase": TwoPhaseMatrixTarget,
    "postgres-commit-table": CommitTableMatrixTarget,
    "postgres-upsert": UpsertMatrixTarget,
    "sqlite": SqliteMatrixTarget,
    "write-ahead": WriteAheadTarget,
    "several": SeveralTarget,
}

#: Those that nobody sees before the commit.
COMMITTED = sorted(set(KINDS) - {"postgres-upsert"})


def make_target(kind: str, address: str) -> MatrixTarget:
    """The target of a kind at an address."""
    return KINDS[kind](kind, address)
