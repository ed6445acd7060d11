"""Delta Lake: tables by path, of which the log keeps the last transaction of each application.

The application of a sink is its job and itself, the version of its transaction the checkpoint
(Delta's transaction protocol, action ``txn``).  What the output of that checkpoint was is part of
the commit's information.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.connectors.files.pending_files import local_directory
from millstream.connectors.formats.file_format import BATCH_SIZE
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
from millstream.errors import PermanentSinkError, SinkError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from deltalake import DeltaTable
    from deltalake.transaction import RemoveAction

    from millstream.connectors.lakehouse.table import DataFile
    from millstream.connectors.output_names import OutputNames
    from millstream.types.time import Duration

#: The directory of the log, in that of the table.
_LOG: Final = "_delta_log"
#: In the information of a commit: its application, checkpoint, and output.
_APPLICATION: Final = "millstream.application"
_CHECKPOINT: Final = "millstream.checkpoint"
_OUTPUT: Final = "millstream.output"
#: In the metadata of columns: what writers must check or compute.
_CHECKED: Final = frozenset(
    {"delta.invariants", "delta.generationExpression", "delta.columnMapping.physicalName"}
)
#: Commits in which that of a job is looked for.
_HISTORY: Final = 1000
#: Numbers of which Delta has another text than Python.
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
#: Characters up to which a text is kept as a bound of a column, as Delta's own writers do.
_LONGEST_BOUND: Final = 32
#: A longer text is less than its beginning with it, unless it comes next in the text.
_LAST_CHARACTER: Final = "\U0010ffff"


def application_of(names: OutputNames) -> str:
    """The application id of a sink in the table's log."""
    return f"millstream-{names.job_id}-{names.tag}"


@dataclass(frozen=True, slots=True)
class DeltaLakeTable(LakehouseTable):
    """A table by the directory that has its ``_delta_log``."""

    path: Path

    @property
    def target(self) -> str:
        return f"Delta table {self.path}"

    def load_layout(self) -> TableLayout:
        opened = self.open()
        found = opened.metadata()
        needed = [key for key in found.configuration if key.startswith("delta.constraints.")]
        needed += [
            f"{key} of column {field.name!r}"
            for field in opened.schema().fields
            for key in field.metadata
            if key in _CHECKED
        ]
        if needed:
            message = (
                f"{self.target} has {', '.join(needed)}, which this sink does not check; take it"
                " away, or write with Spark"
            )
            raise PermanentSinkError(message)
        schema: pa.Schema = pa.schema(opened.schema())
        return _DeltaLayout(self.path, schema, tuple(found.partition_columns))

    def look(self) -> TableSnapshot:
        return _DeltaSnapshot(self.open(), self.path)

    def open(self, version: int | None = None) -> DeltaTable:
        """A version of the table; None: the newest."""
        from deltalake import DeltaTable

        return DeltaTable(str(self.path), version)

    def reader(self) -> TableReader:
        return _DeltaReader(self)

    def exists(self) -> bool:
        from deltalake import DeltaTable

        return DeltaTable.is_deltatable(str(self.path))

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        from deltalake import DeltaTable

        DeltaTable.create(
            str(self.path), schema, mode="ignore", partition_by=list(partition_by) or None
        )


@dataclass(frozen=True)
class _DeltaLayout(TableLayout):
    directory: Path
    schema: pa.Schema
    partition_columns: tuple[str, ...]

    def partitions(self, rows: pa.Table) -> Iterator[tuple[dict[str, Any], pa.Table]]:
        for values, part in by_columns(rows, rows.select(self.partition_columns)):
            yield {name: partition_text(value) for name, value in values.items()}, part

    def details(
        self, partition: dict[str, Any], metadata: pq.FileMetaData, path: str, *, has_nan: bool
    ) -> dict[str, Any]:
        del path
        return {"partition": partition, "statistics": statistics_of(metadata, has_nan=has_nan)}


class _DeltaSnapshot(TableSnapshot):
    def __init__(self, table: DeltaTable, path: Path) -> None:
        self._table = table
        self._path = path

    def last_commit(self, names: OutputNames) -> LastCommit | None:
        application = application_of(names)
        version = self._table.transaction_version(application)
        if version is None:
            return None
        for commit in self._table.history(_HISTORY):
            found: dict[str, object] = commit
            if found.get(_APPLICATION) == application and found.get(_CHECKPOINT) == str(version):
                return LastCommit(version, str(found[_OUTPUT]))
        return LastCommit(version, None)

    def append(
        self, files: Sequence[DataFile], names: OutputNames, checkpoint: int, output: str
    ) -> None:
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, CommitProperties, Transaction

        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                file["path"],
                file["size"],
                file["details"]["partition"],
                now,
                True,  # noqa: FBT003 - data_change, by position
                json.dumps(file["details"]["statistics"]),
            )
            for file in files
        ]
        application = application_of(names)
        properties = CommitProperties(
            custom_metadata={
                _APPLICATION: application,
                _CHECKPOINT: str(checkpoint),
                _OUTPUT: output,
            },
            max_commit_retries=0,
            app_transactions=[Transaction(application, checkpoint, now)],
        )
        try:
            self._table.create_write_transaction(
                actions,
                mode="append",
                schema=self._table.schema(),
                partition_by=self._table.metadata().partition_columns or None,
                commit_properties=properties,
            )
        except CommitFailedError as error:
            raise CommitConflictError(str(error)) from error

    def paths(self) -> set[str]:
        found = set(self._table.file_uris())
        for log in (self._path / _LOG).glob("*.json"):
            found |= {unquote(each["add"]["path"]) for each in _actions(log) if "add" in each}
        return found


def _actions(log: Path) -> Iterator[dict[str, Any]]:
    """The actions of a version, by its file in the log."""
    return map(json.loads, log.read_text().splitlines())


#: What a reader of a table must know; others are not known here.
_FEATURES: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})


class _DeltaReader(TableReader):
    def __init__(self, table: DeltaLakeTable) -> None:
        self._table = table

    def schema(self, version: int | None) -> pa.Schema:
        opened = self._table.open(version)
        needed = set(opened.protocol().reader_features or ()) - _FEATURES
        mapping = opened.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mapping != "none":
            needed.add("columnMapping")
        if needed:
            message = (
                f"{self._table.target} uses {', '.join(sorted(needed))}, which cannot be read in"
                " this release; read it with from_spark, or rewrite it without"
            )
            raise SourceError(message)
        return pa.schema(opened.schema())

    def newest(self) -> int | None:
        return self._table.open().version()

    def files(self, version: int) -> list[dict[str, object]]:
        opened = self._table.open(version)
        by = opened.metadata().partition_columns
        actions = pa.table(opened.get_add_actions()).to_pylist()
        return [
            self._file(
                unquote(each["path"]),
                each["num_records"],
                {name: partition_text((each["partition"] or {}).get(name)) for name in by},
            )
            for each in actions
        ]

    def before(self, version: int) -> int | None:
        return version - 1 if self._log(version).exists() and version > 0 else None

    def added(self, version: int) -> list[dict[str, object]]:
        found = []
        for action in _actions(self._log(version)):
            if action.get("remove", {}).get("dataChange"):
                message = (
                    f"{self._table.target}: version {version} has changed or deleted rows; a table"
                    " that is read continuously may only be appended to. Start the job from scratch"
                )
                raise SourceError(message)
            add = action.get("add", {})
            if add.get("dataChange"):
                statistics = json.loads(add.get("stats") or "{}")
                values = add["partitionValues"]
                found.append(self._file(unquote(add["path"]), statistics.get("numRecords"), values))
        return found

    def _log(self, version: int) -> Path:
        return self._table.path / _LOG / f"{version:020d}.json"

    def _file(
        self, path: str, count: int | None, partition: Mapping[str, str | None]
    ) -> dict[str, object]:
        if count is None:
            count = pq.read_metadata(self._table.path / path).num_rows
        return {"path": path, "end": count, "partition": dict(partition)}

    def rows(self, file: Mapping[str, object], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        path = self._table.path / str(file["path"])
        partition = cast("dict[str, str | None]", file["partition"])
        with pq.ParquetFile(path) as opened:
            there = [name for name in schema.names if name in opened.schema_arrow.names]
            for batch in opened.iter_batches(BATCH_SIZE, columns=there, use_threads=False):
                whole = batch
                for name, text in partition.items():
                    if name in schema.names:
                        kind = schema.field(name).type
                        value = partition_value(text, kind)
                        whole = whole.append_column(name, pa.repeat(value, batch.num_rows))
                yield as_columns(whole, schema, self._table.target)


class DeltaSource(LakehouseSource):
    """Rows of a Delta table in a directory that driver and workers share.

    Args:
        path: the directory of the table.
        schema: the columns to read; None: all.
        version: which one to read, or to begin with; None: the newest when the job starts.
        discovery_interval: look for new versions this often, and never end; None: read one.

    Raises:
        SinkError: ``deltalake`` is not installed, or the path is on another file system.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        schema: pa.Schema | None = None,
        version: int | None = None,
        discovery_interval: Duration | None = None,
    ) -> None:
        super().__init__(
            delta_table(path, "DeltaSource"),
            schema=schema,
            version=version,
            discovery_interval=discovery_interval,
        )


def delta_table(path: str | Path, who: str) -> DeltaLakeTable:
    """The table of a directory; raises SinkError."""
    require_library("deltalake", who, "delta")
    directory = local_directory(str(path))
    if "%" in str(directory):
        message = f"{who}: deltalake takes % in {str(directory)!r} for an escape; rename it"
        raise SinkError(message)
    return DeltaLakeTable(directory)


class DeltaSink(LakehouseSink):
    """Appends to a Delta table in a directory that driver and workers share, exactly once.

    Args:
        path: the directory of the table.
        create_with: columns with which the table is created if it is missing.
        partition_by: the columns of its partitions then.
        columns: columns of the table in the order of the records' fields; None: found by name.
        target_file_size: bytes after which a task begins another file.
        fsync: False trades survival of a machine crash for speed.

    Raises:
        SinkError: ``deltalake`` is not installed, or the path is on another file system.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        create_with: pa.Schema | None = None,
        partition_by: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        target_file_size: int = 128 << 20,
        fsync: bool = True,
    ) -> None:
        super().__init__(
            delta_table(path, "DeltaSink"),
            create_with=create_with,
            partition_by=partition_by,
            columns=columns,
            target_file_size=target_file_size,
            fsync=fsync,
        )


def partition_text(value: object) -> str | None:
    """The value of a partition as the log has it.

    Source: Delta's protocol, "Partition Value Serialization".

    Raises:
        SinkError: values of this type cannot be those of a partition.
    """
    match value:
        case None | "":
            return None
        case bool():
            return str(value).lower()
        case dt.datetime():
            return _moment(value, " ", "microseconds")
        case float():
            return _NOT_FINITE.get(str(value), str(value))
        case decimal.Decimal():
            return f"{value:f}"
        case str() | int() | dt.date():
            return str(value)
        case _:
            message = f"a column of a partition cannot have the value {value!r:.100}"
            raise PermanentSinkError(message)


def partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """The value that ``partition_text`` or another writer has made a text of."""
    if not text:
        return pa.scalar(None, kind)
    if not pa.types.is_timestamp(kind):
        return pa.scalar(text, pa.string()).cast(kind)
    value = dt.datetime.fromisoformat(text)
    if kind.tz is not None and value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    return pa.scalar(value, kind)


def statistics_of(metadata: pq.FileMetaData, *, has_nan: bool) -> dict[str, Any]:
    """The statistics of a file as the log has them.

    Bounds are of all columns that Delta keeps bounds of, or of none: ``deltalake`` takes a bound
    that one column lacks for NULL, and finds no rows by that column then.

    Source: Delta's protocol, "Per-file Statistics".

    Args:
        metadata: of the file.
        has_nan: a column has NaN, which is in no bound of Parquet and more than all numbers here.
    """
    bounds: dict[str, tuple[object, object]] = {}
    nulls: dict[str, int] = {}
    schema = metadata.schema.to_arrow_schema()
    is_complete = not has_nan and not any(pa.types.is_struct(field.type) for field in schema)
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        if name not in schema.names:
            continue  # a part of a nested column
        found = [
            metadata.row_group(at).column(index).statistics for at in range(metadata.num_row_groups)
        ]
        if any(each is None or each.null_count is None for each in found):
            is_complete = False
            continue
        nulls[name] = sum(each.null_count for each in found)
        if nulls[name] == metadata.num_rows or pa.types.is_binary(schema.field(name).type):
            continue
        between = _bounds([each for each in found if each.num_values])
        if between is None:
            is_complete = False
        else:
            bounds[name] = between
    statistics: dict[str, Any] = {"numRecords": metadata.num_rows, "nullCount": nulls}
    if is_complete:
        statistics["minValues"] = {name: low for name, (low, _) in bounds.items()}
        statistics["maxValues"] = {name: high for name, (_, high) in bounds.items()}
    return statistics


def _bounds(found: Sequence[pq.Statistics]) -> tuple[object, object] | None:
    """The bounds of a column as JSON has them; None: they cannot be told."""
    if not all(each.has_min_max for each in found):
        return None
    try:
        low = _bound(min(each.min for each in found), is_upper=False)
        high = _bound(max(each.max for each in found), is_upper=True)
    except (ValueError, OverflowError):
        return None  # a point in time that Python does not have
    return None if low is None or high is None else (low, high)


def _bound(value: object, *, is_upper: bool) -> object | None:
    match value:
        case str() if len(value) > _LONGEST_BOUND:
            cut = value[:_LONGEST_BOUND] + (_LAST_CHARACTER if is_upper else "")
            return None if value[_LONGEST_BOUND] == _LAST_CHARACTER else cut
        case float():
            return value if math.isfinite(value) else None
        case decimal.Decimal():
            # JSON's numbers are written from those of Python, and only without exponent.
            text = repr(float(value))
            return float(value) if "e" not in text and decimal.Decimal(text) == value else None
        case dt.datetime():
            if is_upper:
                value += dt.timedelta(microseconds=-value.microsecond % 1000)
            return _moment(value, "T", "milliseconds")
    known = value.isoformat() if isinstance(value, dt.date) else value
    return known if isinstance(known, str | int) else None


def _moment(value: dt.datetime, between: str, unit: str) -> str:
    """A point in time with its zone: Spark takes a text without for one of its session's zone."""
    if value.tzinfo is None:
        return value.isoformat(between, unit)
    return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat("T", unit) + "Z"
