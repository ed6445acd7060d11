"""Appends to tables of a lakehouse: tasks write data files, one commit per checkpoint names them.

A data file is durable and in its final place when it is pre-committed, and nobody sees it: readers
take files from the table's log.  The committer adds the files of all subtasks in *one* commit of
the table, which also keeps job, sink, checkpoint and output.  It finds one of:

1. The table's last commit of this job and sink is of this checkpoint, with the same output: an
   earlier try succeeded and could not report it.  Nothing is to be done.
2. It is of a later checkpoint, or of this one with other output: this run is fenced, or the
   checkpoint directory was restored from an older copy.  SinkError: continuing would repeat or lose
   rows.  (In mode AT_LEAST_ONCE other output of this checkpoint is of runs that died before they
   published: case 3.)
3. It is of an earlier checkpoint, or there is none: the files are added.  If somebody else has
   committed meanwhile, the table refuses, and the committer looks again.

What can never happen: files without their entry or the entry without them, for one commit adds
both; the same output twice, for a commit is refused unless the table is as it was looked at.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.connectors.commit_protocols.commit_table import match_columns, refuse_changes
from millstream.connectors.formats.parquet_format import RowGroupWriter
from millstream.connectors.lakehouse.table import CommitConflictError, DataFile
from millstream.connectors.output_names import OutputNames
from millstream.contracts.sink import Committer, Sink, SinkWriter
from millstream.crash_points import crash_point
from millstream.directories import make_directories, sync_directory
from millstream.errors import PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from millstream.connectors.lakehouse.table import LakehouseTable, LastCommit, TableLayout
    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import CommitRequest, Committable, WriterContext
    from millstream.types.types import TypeInformation

#: How often a commit is tried again that others were ahead of.
_ATTEMPTS: Final = 20


class LakehouseSink(Sink):
    """Appends to a table of a lakehouse, exactly once.

    Args:
        table: the table.
        create_with: columns with which it is created if it is missing; None: it must be there.
        partition_by: columns that it is created with as those of its partitions.
        columns: its columns in the order of the records' fields; None: found by name.
        target_file_size: bytes after which a task begins another file.
        fsync: False trades survival of a machine crash for speed.
    """

    def __init__(
        self,
        table: LakehouseTable,
        *,
        create_with: pa.Schema | None = None,
        partition_by: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        target_file_size: int = 128 << 20,
        fsync: bool = True,
    ) -> None:
        self.table = table
        self.create_with = create_with
        self.partition_by = tuple(partition_by)
        self.columns = None if columns is None else list(columns)
        self.target_file_size = target_file_size
        self.fsync = fsync

    def describe(self) -> str:
        return f"{type(self).__name__} {self.table.target}"

    def validate(self) -> None:
        """Look for the table, and create it if it may be created; raises SinkError."""
        with self.table.explained("at submit"):
            if not self.table.exists():
                if self.create_with is None:
                    message = f"there is no {self.table.target}; create it before the job runs"
                    raise SinkError(message)
                self.table.create(self.create_with, self.partition_by)

    def validate_input(self, type_info: TypeInformation) -> None:
        """Check that the table has the columns of the records; raises SinkError if not."""
        schema = type_info.arrow_schema
        with self.table.explained("at submit"):
            if schema is None:
                message = (
                    f"{self.table.target} takes rows with columns: give the operator before the"
                    " sink an output_type, a row of named fields"
                )
                raise PermanentSinkError(message)
            self.fitted(pa.Table.from_batches([], schema), self.table.renew_layout())

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _DataFileWriter(self, context)

    def create_committer(self) -> Committer:
        return _AppendCommitter(self)

    def fitted(self, rows: pa.Table, layout: TableLayout) -> pa.Table:
        """Rows as columns of the table.

        Raises:
            SinkError: a column is missing or of a type that does not fit, or a value is none of
                the table's.
        """
        schema = layout.schema
        names = match_columns(rows.column_names, schema.names, self.columns, self.table.target)
        columns = []
        for field in schema:
            if field.name not in names:
                if not field.nullable:
                    message = (
                        f"{self.table.target}: the records have no column {field.name!r}, which is"
                        " NOT NULL"
                    )
                    raise PermanentSinkError(message)
                columns.append(pa.nulls(rows.num_rows, field.type))
                continue
            column = rows.column(names.index(field.name))
            try:
                columns.append(column.cast(field.type))
            except (pa.ArrowException, ValueError) as error:
                message = (
                    f"{self.table.target}: column {field.name!r} is {field.type}, the records have"
                    f" {column.type}: {error}. Cast it before the sink, or change the table"
                )
                raise PermanentSinkError(message) from error
            if not field.nullable and column.null_count:
                message = (
                    f"{self.table.target}: column {field.name!r} is NOT NULL, a record has NULL"
                )
                raise PermanentSinkError(message)
        return pa.Table.from_arrays(columns, schema=schema)


def directory_of(layout: TableLayout, names: OutputNames) -> Path:
    """Where the data files of a job and sink are.

    The log of a table keeps paths as URIs, so names have no character that those would escape.
    """
    owner = names.directory.replace("/", "-").replace("%", "_")
    return layout.directory / "data" / f"millstream-{owner}-{names.tag}"


class _OpenFile:
    """A data file being written, of one partition."""

    def __init__(
        self,
        sink: LakehouseSink,
        context: WriterContext,
        layout: TableLayout,
        partition: dict[str, Any],
    ) -> None:
        self._sink = sink
        self._layout = layout
        self._partition = partition
        directory = directory_of(self._layout, OutputNames.of(context))
        make_directories(directory, fsync=sink.fsync)
        self.path = directory / OutputNames.of_file(context, "parquet").replace("%", "_")
        self.stream: IO[bytes] = self.path.open("xb")
        kept = [f for f in self._layout.schema if f.name not in self._layout.partition_columns]
        self._schema = pa.schema(kept, self._layout.schema.metadata)
        self._writer = RowGroupWriter(self.stream, "snappy", self._schema)
        self._rows = 0
        self._has_nan = False

    @property
    def size(self) -> int:
        """Bytes written so far, and those of the rows that wait."""
        return self.stream.tell() + self._writer.waiting_bytes

    def write(self, rows: pa.Table) -> None:
        kept = rows.select(self._schema.names)
        for batch in kept.to_batches():
            self._writer.write(batch)
        self._has_nan = self._has_nan or any(
            pc.any(pc.is_nan(column)).as_py()
            for column in kept.columns
            if pa.types.is_floating(column.type)
        )
        self._rows += rows.num_rows

    def seal(self, context: WriterContext) -> DataFile:
        """Make the file durable and describe it."""
        self._writer.finish()
        self.stream.flush()
        if self._sink.fsync:
            os.fsync(self.stream.fileno())
        size = self.stream.tell()
        self.stream.close()
        path = str(self.path.relative_to(self._layout.directory))
        metadata = pq.read_metadata(self.path)
        return DataFile(
            job=context.job_id,
            sink=context.sink_uid,
            name=self.path.name,
            path=path,
            size=size,
            rows=self._rows,
            details=self._layout.details(self._partition, metadata, path, has_nan=self._has_nan),
        )

    def discard(self) -> None:
        """Delete the file; nothing names it."""
        with suppress(OSError, pa.ArrowException):
            self._writer.abandon()
        self.stream.close()
        self.path.unlink(missing_ok=True)


class _DataFileWriter(SinkWriter):
    def __init__(self, sink: LakehouseSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        #: Partition, as a text -> its open file.
        self._open: dict[str, _OpenFile] = {}
        self._full: list[_OpenFile] = []

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        refuse_changes(batch)
        with self._sink.table.explained(self._context.location):
            layout = self._sink.table.layout()
            rows = self._sink.fitted(pa.Table.from_batches([batch.arrow]), layout)
            for partition, part in layout.partitions(rows):
                self._write(layout, partition, part)

    def _write(self, layout: TableLayout, partition: dict[str, Any], rows: pa.Table) -> None:
        key = repr(sorted(partition.items()))
        file = self._open.get(key)
        if file is None:
            file = self._open[key] = _OpenFile(self._sink, self._context, layout, partition)
        file.write(rows)
        if file.size >= self._sink.target_file_size:
            self._full.append(self._open.pop(key))

    def prepare_commit(self) -> Sequence[Committable]:
        with self._sink.table.explained(self._context.location):
            files = [*self._full, *self._open.values()]
            sealed = [file.seal(self._context) for file in files]
            if files and self._sink.fsync:
                sync_directory(files[0].path.parent)
        return sealed

    def abort(self) -> None:
        for file in (*self._full, *self._open.values()):
            file.discard()


class _AppendCommitter(Committer):
    def __init__(self, sink: LakehouseSink) -> None:
        self.target = sink.table.target
        self._sink = sink
        #: Files of earlier checkpoints are not looked at: they were when this one began.
        self._first = 0
        self._committed = -1

    def resume_from(self, epoch: int) -> None:
        self._first = epoch

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Add the files of a checkpoint that the table does not have yet; raises SinkError."""
        if not requests:
            return
        files = [data_file(request.committable) for request in requests]
        names = OutputNames(files[0]["job"], files[0]["sink"])
        checkpoint = max(request.epoch for request in requests)
        repeats = not all(request.published for request in requests)
        location = f"sink {names.sink_uid}, checkpoint {checkpoint}, in the commit"
        output = output_of(files)
        for attempt in range(_ATTEMPTS):
            with self._sink.table.explained(location):
                table = self._sink.table.look()
                last = table.last_commit(names)
                if self._holds(last, checkpoint, output, location, repeats=repeats):
                    break
                crash_point("lakehouse.commit.before")
                try:
                    table.append(files, names, checkpoint, output)
                except CommitConflictError:
                    if attempt == _ATTEMPTS - 1:
                        raise
                else:
                    crash_point("lakehouse.commit.after")
                    break
        self._committed = checkpoint

    def _holds(
        self, last: LastCommit | None, checkpoint: int, output: str, location: str, *, repeats: bool
    ) -> bool:
        """Return whether the table holds the output; the cases of the module's docstring."""
        if last is None or last.checkpoint < checkpoint:
            return False
        same = last.checkpoint == checkpoint
        if same and last.output in {output, None}:
            return True
        if same and repeats:
            return False
        held = "other output of this checkpoint" if same else f"checkpoint {last.checkpoint}"
        message = (
            f"{location}: {self.target} holds {held} of this job: a newer run has taken over, or"
            " the checkpoint directory is older than the table. Put back both from one copy, or let"
            " the job write to another table"
        )
        raise PermanentSinkError(message)

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        """Delete data files of this sink and job that neither ``keep`` nor the table names."""
        kept = {data_file(committable)["name"] for committable in keep}
        with self._sink.table.explained(f"sink {sink_uid}, after recovery"):
            layout = self._sink.table.layout()
            directory = directory_of(layout, OutputNames(job_id, sink_uid))
            orphans = [
                name
                for name in OutputNames.orphans(_names_in(directory), kept, generation)
                if (OutputNames.epoch_of(name) or 0) >= self._first
            ]
            if orphans:
                # Those that a run has committed which this checkpoint directory does not know of.
                named = {path.rpartition("/")[2] for path in self._sink.table.look().paths()}
                for name in orphans:
                    if name not in named:
                        (directory / name).unlink(missing_ok=True)
        # Where tasks end with each checkpoint this is called after each: the log is not read again
        # for what this run has committed.
        self._first = max(self._first, self._committed + 1)


def _names_in(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []


def data_file(committable: object) -> DataFile:
    """The committable of a sink of a lakehouse; raises SinkError if it is none."""
    if (
        not isinstance(committable, dict)
        or not {"job", "sink", "name", "path"} <= committable.keys()
    ):
        message = f"not a committable of a sink of a lakehouse: {committable!r:.200}"
        raise PermanentSinkError(message)
    return cast("DataFile", committable)


def output_of(files: Sequence[DataFile]) -> str:
    """What tells the output of one attempt at a checkpoint from that of another."""
    names = "\n".join(sorted(file["name"] for file in files))
    return hashlib.sha256(names.encode()).hexdigest()[:16]


def by_columns(rows: pa.Table, columns: pa.Table) -> Iterator[tuple[dict[str, object], pa.Table]]:
    """Rows by the values of as many rows of other columns, those of each in their order.

    By position and not by comparison with the values: NaN equals none, and 0.0 equals -0.0.
    """
    if not columns.num_columns:
        yield {}, rows
        return
    names = columns.column_names
    positions = pa.array(range(rows.num_rows), pa.int64())
    numbered = pa.table([*columns.columns, positions], names=[*map(str, range(len(names))), "at"])
    groups = numbered.group_by(numbered.column_names[:-1], use_threads=False).aggregate(
        [("at", "list")]
    )
    for at in groups["at_list"]:
        chosen = at.values
        first = columns.slice(chosen[0].as_py(), 1).to_pylist()[0]
        yield first, rows.take(chosen)
