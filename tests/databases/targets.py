"""Targets of the tests: a table of some database, made empty, written by a sink, and read.

A target is made from its name (see ``TARGETS``) and an address, so that a job in
another process makes the same one.
"""

from __future__ import annotations

import importlib
import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.databases.server import execute, prepared_in_schema

from millstream.connectors.embedded.duckdb import DuckDbSink
from millstream.connectors.embedded.sqlite import SqliteSink
from millstream.connectors.postgres.sink import PostgresSink
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.sink import Sink

RESULT = Types.ROW_NAMED(["key", "n", "id"], [Types.STRING(), Types.LONG(), Types.LONG()])
#: The table of the tests; rows of one key have n = 1, 2, 3, ...
COLUMNS = "key TEXT NOT NULL, n BIGINT NOT NULL CHECK (n < 1000000), id BIGINT"


class Target(ABC):
    """A table that a sink writes."""

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    def create(self, columns: str = COLUMNS) -> None:
        """Make the table ``results``."""

    @abstractmethod
    def sink(self, **options: Any) -> Sink:
        """A sink that writes it."""

    @abstractmethod
    def read(self, query: str = "SELECT * FROM results") -> list[tuple[Any, ...]]:
        """What a reader sees."""

    def leftovers(self) -> Sequence[object]:
        """What is pre-committed and not committed."""
        return list(Path(self.address).parent.glob(".pending*"))


class SqliteTarget(Target):
    """SQLite in WAL mode, so that readers do not wait."""

    def create(self, columns: str = COLUMNS) -> None:
        with sqlite3.connect(self.address) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"CREATE TABLE results ({columns})")
        connection.close()

    def sink(self, **options: Any) -> Sink:
        return SqliteSink(self.address, "results", fsync=False, **options)

    def read(self, query: str = "SELECT * FROM results") -> list[tuple[Any, ...]]:
        # Whoever opens it first after a kill has it to himself for a moment.
        connection = sqlite3.connect(self.address, timeout=60)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()


class DuckDbTarget(Target):
    """DuckDB; a reader in another process has to wait for the sink."""

    def create(self, columns: str = COLUMNS) -> None:
        import duckdb  # takes half a second, which other jobs can do without

        with duckdb.connect(self.address) as connection:
            connection.execute(f"CREATE TABLE results ({columns})")

    def sink(self, **options: Any) -> Sink:
        return DuckDbSink(self.address, "results", fsync=False, **options)

    def read(self, query: str = "SELECT * FROM results") -> list[tuple[Any, ...]]:
        import duckdb

        with duckdb.connect(self.address, read_only=True) as connection:
            rows: list[tuple[Any, ...]] = connection.execute(query).fetchall()
            return rows


class PostgresTarget(Target):
    """A PostgreSQL database; its address is how to connect."""

    def create(self, columns: str = COLUMNS) -> None:
        execute(self.address, f"CREATE TABLE results ({columns})")

    def read(self, query: str = "SELECT * FROM results") -> list[tuple[Any, ...]]:
        return execute(self.address, query)


class TwoPhaseTarget(PostgresTarget):
    """Prepared transactions."""

    def sink(self, **options: Any) -> Sink:
        return PostgresSink.two_phase(self.address, "results", **options)

    def leftovers(self) -> Sequence[object]:
        return prepared_in_schema(self.address)


class CommitTableTarget(PostgresTarget):
    """A staging table and a commit table."""

    def sink(self, **options: Any) -> Sink:
        return PostgresSink.commit_table(self.address, "results", **options)

    def leftovers(self) -> Sequence[object]:
        return self.read("SELECT * FROM results_millstream")


class UpsertTarget(PostgresTarget):
    """Rows that replace those of the same key."""

    def create(self, columns: str = COLUMNS) -> None:
        super().create(columns + ", epoch BIGINT, PRIMARY KEY (key, n)")

    def sink(self, **options: Any) -> Sink:
        chosen = {"key": ["key", "n"], "epoch_column": "epoch", **options}
        return PostgresSink.upsert(self.address, "results", **chosen)

    def leftovers(self) -> Sequence[object]:
        return []


class LakeTarget(Target):
    """A table of a lakehouse below a directory; the address is a path in it."""

    def rows(self) -> Any:
        """What the newest version has, as columns."""
        raise NotImplementedError

    def files(self) -> list[str]:
        """The names of the data files of all versions."""
        raise NotImplementedError

    @property
    def directory(self) -> Path:
        """Where the table's files are, below it."""
        return Path(f"{self.address}-lake")

    def read(self, query: str = "SELECT * FROM results") -> list[tuple[Any, ...]]:
        import duckdb

        with duckdb.connect() as connection:
            connection.register("results", self.rows())
            found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
            return found

    def leftovers(self) -> Sequence[object]:
        named = set(self.files())
        return [each for each in self.directory.glob("**/data/*/*") if each.name not in named]


class DeltaTarget(LakeTarget):
    """A Delta table."""

    def create(self, columns: str = COLUMNS) -> None:
        assert columns == COLUMNS
        deltalake = importlib.import_module("deltalake")
        deltalake.DeltaTable.create(str(self.directory), RESULT.arrow_schema)

    def sink(self, **options: Any) -> Sink:
        from millstream.connectors.lakehouse.delta import DeltaSink

        return DeltaSink(self.directory, fsync=False, **options)

    def _open(self) -> Any:
        return importlib.import_module("deltalake").DeltaTable(str(self.directory))

    def rows(self) -> Any:
        return self._open().to_pyarrow_table()

    def files(self) -> list[str]:
        return [path.rpartition("/")[2] for path in self._open().file_uris()]


class DeltaPartitionsTarget(DeltaTarget):
    """A Delta table with partitions."""

    def create(self, columns: str = COLUMNS) -> None:
        assert columns == COLUMNS
        deltalake = importlib.import_module("deltalake")
        schema = RESULT.arrow_schema
        deltalake.DeltaTable.create(str(self.directory), schema, partition_by=["key"])


class IcebergTarget(LakeTarget):
    """An Iceberg table of a catalog in SQLite."""

    @property
    def catalog(self) -> dict[str, str]:
        """As ``pyiceberg`` has it."""
        return {
            "name": "lake",
            "type": "sql",
            "uri": f"sqlite:///{self.directory}/catalog.db",
            "warehouse": f"file://{self.directory}/warehouse",
        }

    def create(self, columns: str = COLUMNS) -> None:
        assert columns == COLUMNS
        self.directory.mkdir()
        catalog = importlib.import_module("pyiceberg.catalog").load_catalog(**self.catalog)
        catalog.create_namespace("sales")
        catalog.create_table("sales.results", RESULT.arrow_schema)

    def sink(self, **options: Any) -> Sink:
        from millstream.connectors.lakehouse.iceberg import IcebergSink

        return IcebergSink("sales.results", self.catalog, fsync=False, **options)

    def _open(self) -> Any:
        catalog = importlib.import_module("pyiceberg.catalog").load_catalog(**self.catalog)
        return catalog.load_table("sales.results")

    def rows(self) -> Any:
        return self._open().scan().to_arrow()

    def files(self) -> list[str]:
        found = self._open().inspect.all_files()["file_path"].to_pylist()
        return [path.rpartition("/")[2] for path in found]


class IcebergPartitionsTarget(IcebergTarget):
    """One with partitions: by buckets of the key."""

    def create(self, columns: str = COLUMNS) -> None:
        super().create(columns)
        with self._open().update_spec() as update:
            transforms = importlib.import_module("pyiceberg.transforms")
            update.add_field("key", transforms.BucketTransform(4))


#: By the names of tests; those of a lakehouse are no databases.
TARGETS: dict[str, type[Target]] = {
    "sqlite": SqliteTarget,
    "duckdb": DuckDbTarget,
    "postgres-two-phase": TwoPhaseTarget,
    "postgres-commit-table": CommitTableTarget,
    "postgres-upsert": UpsertTarget,
    "delta": DeltaTarget,
    "delta-partitions": DeltaPartitionsTarget,
    "iceberg": IcebergTarget,
    "iceberg-partitions": IcebergPartitionsTarget,
}
