"""Apache Iceberg: tables of a catalog, of which each snapshot's summary says what it was made by.

As Flink's Iceberg sink, a commit keeps job and checkpoint in the summary of its snapshot, and
looks for the last one of its job among the ancestors of the newest snapshot.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.files.pending_files import local_directory
from millstream.connectors.lakehouse.data_files import LakehouseSink, by_columns
from millstream.connectors.lakehouse.source import LakehouseSource, as_columns
from millstream.connectors.lakehouse.table import (
    CommitConflictError,
    LakehouseTable,
    LastCommit,
    TableLayout,
    TableReader,
    TableSnapshot,
    require_library,
)
from millstream.errors import PermanentSinkError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow.parquet as pq
    from pyiceberg.catalog import Catalog
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

    from millstream.connectors.lakehouse.table import DataFile
    from millstream.connectors.output_names import OutputNames
    from millstream.types.time import Duration

#: In the summary of a snapshot.
_JOB: Final = "millstream.job-id"
_SINK: Final = "millstream.sink"
_CHECKPOINT: Final = "millstream.checkpoint-id"
_OUTPUT: Final = "millstream.output"
#: Of the library: the driver tries again itself, after it has looked at the table.
_RETRIES: Final = "commit.retry.num-retries"


@dataclass(frozen=True, slots=True)
class IcebergTable(LakehouseTable):
    """A table by its name in a catalog."""

    #: ``namespace.table``.
    name: str
    #: What the catalog is: ``type``, ``uri``, ``warehouse`` and the like, as ``pyiceberg`` has it,
    #: with its passwords.
    properties: tuple[tuple[str, str], ...] = dataclasses.field(repr=False)

    @property
    def target(self) -> str:
        return f"Iceberg table {self.name}"

    def catalog(self) -> Catalog:
        """A connection to the catalog."""
        return _catalog(self.properties)

    def load_layout(self) -> TableLayout:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        loaded = self.catalog().load_table(self.name)
        schema = schema_to_pyarrow(loaded.schema(), include_field_ids=True)
        return _IcebergLayout(local_directory(loaded.location()), schema, (), loaded)

    def look(self) -> TableSnapshot:
        return _IcebergSnapshot(self.catalog().load_table(self.name))

    def reader(self) -> TableReader:
        return _IcebergReader(self)

    def exists(self) -> bool:
        return self.catalog().table_exists(self.name)

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        catalog = self.catalog()
        catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        with (
            suppress(TableAlreadyExistsError, CommitFailedException),  # somebody else was faster
            catalog.create_table_transaction(self.name, schema) as transaction,
            transaction.update_spec() as partitions,
        ):
            for name in partition_by:
                partitions.add_identity(name)
        catalog.load_table(self.name)


@lru_cache(maxsize=16)
def _catalog(properties: tuple[tuple[str, str], ...]) -> Catalog:
    from pyiceberg.catalog import load_catalog

    given = dict(properties)
    return load_catalog(given.pop("name", "default"), **given)


@dataclass(frozen=True)
class _IcebergLayout(TableLayout):
    directory: Path
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    table: Table

    def partitions(self, rows: pa.Table) -> Iterator[tuple[dict[str, Any], pa.Table]]:
        spec, schema = self.table.spec(), self.table.schema()
        if spec.is_unpartitioned():
            yield {}, rows
            return
        from pyiceberg.io.pyarrow import _get_field_from_arrow_table  # of nested columns too
        from pyiceberg.partitioning import PartitionFieldValue, PartitionKey

        columns = {}
        for field in spec.fields:
            transformed = field.transform.pyarrow_transform(
                schema.find_field(field.source_id).field_type
            )
            name = schema.find_column_name(field.source_id)
            columns[field.name] = transformed(_get_field_from_arrow_table(rows, str(name)))
        for values, part in by_columns(rows, pa.table(columns)):
            found = [PartitionFieldValue(field, values[field.name]) for field in spec.fields]
            record = PartitionKey(found, spec, schema).partition
            yield {field.name: record[at] for at, field in enumerate(spec.fields)}, part

    def details(
        self, partition: dict[str, Any], metadata: pq.FileMetaData, path: str, *, has_nan: bool
    ) -> dict[str, Any]:
        del has_nan  # Iceberg's bounds are of the other numbers
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )

        schema = self.table.schema()
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=metadata,
            stats_columns=compute_statistics_plan(schema, self.table.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return {
            "location": f"{self.table.location()}/{path}",
            "partition": list(partition.values()),
            "spec": self.table.metadata.default_spec_id,
            "statistics": statistics.to_serialized_dict(),
        }


class _IcebergSnapshot(TableSnapshot):
    def __init__(self, table: Table) -> None:
        self._table = table

    def last_commit(self, names: OutputNames) -> LastCommit | None:
        metadata = self._table.metadata
        snapshot = metadata.current_snapshot()
        while snapshot is not None:
            said = {} if snapshot.summary is None else snapshot.summary.additional_properties
            if said.get(_JOB) == names.job_id and said.get(_SINK) == names.sink_uid:
                return LastCommit(int(said[_CHECKPOINT]), said.get(_OUTPUT))
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else metadata.snapshot_by_id(parent)
        return None

    def append(
        self, files: Sequence[DataFile], names: OutputNames, checkpoint: int, output: str
    ) -> None:
        from pyiceberg.exceptions import CommitFailedException

        summary = {
            _JOB: names.job_id,
            _SINK: names.sink_uid,
            _CHECKPOINT: str(checkpoint),
            _OUTPUT: output,
        }
        if any(file["details"]["spec"] != self._table.spec().spec_id for file in files):
            message = (
                f"the partitions of Iceberg table {'.'.join(self._table.name())} were changed after"
                " files were written that are to be added. Set them back, let the job commit, stop"
                " it, and change them then"
            )
            raise PermanentSinkError(message)
        # In this copy alone: the table keeps its own.
        self._table.metadata.properties[_RETRIES] = "0"
        try:
            with self._table.transaction() as transaction:
                update = transaction.update_snapshot(snapshot_properties=summary)
                with update.fast_append() as append:
                    for file in files:
                        append.append_data_file(_iceberg_file(file))
        except CommitFailedException as error:
            raise CommitConflictError(str(error)) from error

    def paths(self) -> set[str]:
        found = self._table.inspect.all_files()["file_path"].to_pylist()
        return {str(path) for path in found}


def _iceberg_file(file: DataFile) -> IcebergFile:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.manifest import DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    details = file["details"]
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=details["location"],
        file_format=FileFormat.PARQUET,
        partition=Record(*details["partition"]),
        file_size_in_bytes=file["size"],
        sort_order_id=None,
        spec_id=details["spec"],
        equality_ids=None,
        key_metadata=None,
        **details["statistics"],
    )


class _IcebergReader(TableReader):
    def __init__(self, table: IcebergTable) -> None:
        self._table = table

    @cached_property
    def _loaded(self) -> Table:
        """The table as it is when it is first asked for: a reader is made for each look."""
        return self._table.catalog().load_table(self._table.name)

    def schema(self, version: int | None) -> pa.Schema:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        if version is None:
            return schema_to_pyarrow(self._loaded.schema(), include_field_ids=False)
        return schema_to_pyarrow(self._loaded.scan(snapshot_id=version).projection())

    def newest(self) -> int | None:
        current = self._loaded.metadata.current_snapshot()
        return None if current is None else current.snapshot_id

    def files(self, version: int) -> list[dict[str, object]]:
        tasks = _planned(self._table, version)
        return [
            {"path": path, "end": self._count(version, task), "version": version}
            for path, task in tasks.items()
        ]

    def _count(self, version: int, task: FileScanTask) -> int:
        if not task.delete_files:
            return task.file.record_count
        loaded = self._loaded
        columns = loaded.scan(snapshot_id=version).projection()
        batches = _arrow_scan(loaded, columns).to_record_batches([task])
        return sum(batch.num_rows for batch in batches)

    def before(self, version: int) -> int | None:
        snapshot = self._loaded.metadata.snapshot_by_id(version)
        return None if snapshot is None else snapshot.parent_snapshot_id

    def added(self, version: int) -> list[dict[str, object]]:
        from pyiceberg.table.snapshots import Operation

        snapshot = self._loaded.metadata.snapshot_by_id(version)
        operation = (
            None if snapshot is None or snapshot.summary is None else snapshot.summary.operation
        )
        if operation is Operation.REPLACE:
            return []  # a compaction: the same rows in other files
        if snapshot is None or operation is not Operation.APPEND:
            message = (
                f"{self._table.target}: snapshot {version} has changed or deleted rows; a table"
                " that is read continuously may only be appended to. Start the job from scratch"
            )
            raise SourceError(message)
        new = {
            entry.data_file.file_path
            for manifest in snapshot.manifests(self._loaded.io)
            if manifest.added_snapshot_id == version
            for entry in manifest.fetch_manifest_entry(self._loaded.io)
            if entry.snapshot_id == version
        }
        return [file for file in self.files(version) if file["path"] in new]

    def rows(self, file: Mapping[str, object], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        version = int(str(file["version"]))
        task = _planned(self._table, version).get(str(file["path"]))
        if task is None:
            message = f"{self._table.target}: {file['path']} is not in snapshot {version} any more"
            raise SourceError(message)
        loaded = self._loaded
        # A column has the name that it has now, unless an older version was asked for by others.
        current = loaded.schema()
        if set(schema.names) <= set(current.column_names):
            columns = current.select(*schema.names)
        else:
            columns = loaded.scan(snapshot_id=version).projection().select(*schema.names)
        for batch in _arrow_scan(loaded, columns).to_record_batches([task]):
            yield as_columns(batch, schema, self._table.target)


def _arrow_scan(table: Table, columns: Schema) -> ArrowScan:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    return ArrowScan(table.metadata, table.io, columns, AlwaysTrue())


@lru_cache(maxsize=8)
def _planned(table: IcebergTable, version: int) -> dict[str, FileScanTask]:
    """The files of a snapshot, with what was deleted of them, by path."""
    scan = table.catalog().load_table(table.name).scan(snapshot_id=version)
    return {task.file.file_path: task for task in scan.plan_files()}


class IcebergSource(LakehouseSource):
    """Rows of an Iceberg table whose files are in a directory that all share.

    Args:
        table: its name in the catalog, ``namespace.table``.
        catalog: what the catalog is, as for ``IcebergSink``.
        schema: the columns to read; None: all.
        version: the snapshot to read, or to begin with; None: the newest when the job starts.
        discovery_interval: look for new snapshots this often, and never end; None: read one.

    Raises:
        SinkError: ``pyiceberg`` is not installed.
    """

    def __init__(
        self,
        table: str,
        catalog: Mapping[str, str],
        *,
        schema: pa.Schema | None = None,
        version: int | None = None,
        discovery_interval: Duration | None = None,
    ) -> None:
        super().__init__(
            iceberg_table(table, catalog, "IcebergSource"),
            schema=schema,
            version=version,
            discovery_interval=discovery_interval,
        )


def iceberg_table(table: str, catalog: Mapping[str, str], who: str) -> IcebergTable:
    """The table of a catalog; raises SinkError."""
    require_library("pyiceberg", who, "iceberg")
    return IcebergTable(table, tuple(sorted(catalog.items())))


class IcebergSink(LakehouseSink):
    """Appends to an Iceberg table whose files are in a directory that all share, exactly once.

    Args:
        table: its name in the catalog, ``namespace.table``.
        catalog: what the catalog is, as ``pyiceberg`` has it: ``{"name": "lake", "type": "sql",
            "uri": "sqlite:///...", "warehouse": "file:///..."}``, ``{"type": "rest", "uri": ...}``.
            In a catalog of type ``sql`` tables belong to its name ("default").
        create_with: columns with which the table is created if it is missing.
        partition_by: the columns of its partitions then.
        columns: columns of the table in the order of the records' fields; None: found by name.
        target_file_size: bytes after which a task begins another file.
        fsync: False trades survival of a machine crash for speed.

    Raises:
        SinkError: ``pyiceberg`` is not installed.
    """

    def __init__(
        self,
        table: str,
        catalog: Mapping[str, str],
        *,
        create_with: pa.Schema | None = None,
        partition_by: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        target_file_size: int = 128 << 20,
        fsync: bool = True,
    ) -> None:
        super().__init__(
            iceberg_table(table, catalog, "IcebergSink"),
            create_with=create_with,
            partition_by=partition_by,
            columns=columns,
            target_file_size=target_file_size,
            fsync=fsync,
        )
