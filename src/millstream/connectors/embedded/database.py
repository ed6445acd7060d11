"""Databases in one file: exactly-once sinks by one transaction, bounded sources, and lookups.

SQLite and DuckDB share this.  A task writes an epoch's rows to a pending Parquet
file beside the database (``connectors/files/pending_files.py``) and tries them: they are inserted
and rolled back, so that a row the table refuses fails the epoch, not the commit.  The committer
inserts the rows of all subtasks and enters them in one transaction
(``connectors/commit_protocols/commit_table.py``).  A reader sees an epoch whole or not at all.
With a key, rows are changes.

A source reads the rows that exist when the job starts.  The offset is the row id, so that a task
reads ``rowid >= start AND rowid < stop``: at every reading the same, as long as nobody changes the
table.  Tables without row ids (views, SQLite's WITHOUT ROWID) cannot be read.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.connectors.commit_protocols.commit_table import (
    REFUSED,
    CommitTable,
    CommitTableCommitter,
    dot_advice,
    first_refused,
    identifier,
    match_columns,
    quoted_parts,
    record_text,
    refuse_changes,
    table_parts,
)
from millstream.connectors.files.pending_files import (
    PendingFile,
    PendingFileCommitter,
    local_directory,
    locked_by,
)
from millstream.connectors.formats.file_format import BulkWriter, rows_of_columns
from millstream.connectors.formats.parquet_format import ParquetWriterFactory
from millstream.contracts.batch import Batch
from millstream.contracts.lookup import LookupSource, some_fields
from millstream.contracts.sink import Sink, SinkWriter
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split
from millstream.errors import PermanentSinkError, SinkError, SourceError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from millstream.connectors.commit_protocols.commit_table import OutputPart
    from millstream.contracts.sink import Committable, Committer, WriterContext
    from millstream.contracts.source import KnownSplits
    from millstream.types.types import TypeInformation


#: The staged column that says whether a row is taken away.
GONE: Final = "millstream_gone"


class ChangesWriter(BulkWriter):
    """Writes changes to a Parquet file: the columns, and whether the row is gone.

    Args:
        stream: of the file.
        type_info: of the records; it must have columns.
    """

    def __init__(self, stream: IO[bytes], type_info: TypeInformation) -> None:
        schema = type_info.arrow_schema
        if schema is None:
            message = (
                "changes by key need a stream with types; give the operator before the sink an"
                " output_type"
            )
            raise PermanentSinkError(message)
        self._type = rows_of_columns(schema.append(pa.field(GONE, pa.bool_())))
        self._writer = ParquetWriterFactory("none").create(stream, self._type)

    def write(self, batch: Batch) -> None:
        arrow, kinds = batch.arrow, batch.row_kinds
        gone = np.zeros(len(batch), np.bool_) if kinds is None else (kinds & 1).astype(np.bool_)
        columns = [*arrow.columns, pa.array(gone)]
        staged = pa.RecordBatch.from_arrays(columns, names=[*arrow.schema.names, GONE])
        self._writer.write(Batch(self._type, arrow=staged))

    def finish(self) -> None:
        self._writer.finish()

    def abandon(self) -> None:
        self._writer.abandon()


def refuse_null_keys(rows: pa.Table, key: Sequence[str], target: str) -> None:
    """Refuse rows without a key, which no constraint would find again.

    Args:
        rows: columns with the names of the table's.
        key: columns of the table.
        target: for messages.

    Raises:
        PermanentSinkError: there is one.
    """
    for name in key:
        if rows.column(name).null_count:
            message = f"{target}: a row has no value in {name!r}, a column of its key"
            raise PermanentSinkError(message)


def last_rows(
    rows: Iterable[tuple[Any, ...]], places: Sequence[int]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return what counts of rows whose last value says whether they are gone.

    Args:
        rows: in order.
        places: of the values that are the key.

    Returns:
        The keys that are gone, and the rows to merge, without their last value.
    """
    last: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        key = tuple(row[place] for place in places)
        last.pop(key, None)  # in the order of their last changes
        last[key] = row
    gone = [key for key, row in last.items() if row[-1]]
    return gone, [row[:-1] for row in last.values() if not row[-1]]


def merge_text(table: str, columns: Sequence[str], key: Sequence[str], rows: str) -> str:
    """The statement that inserts rows, or replaces those of the same key.

    Args:
        table: in SQL.
        columns: of the table.
        key: columns with a unique constraint.
        rows: ``VALUES ...``, or a query.
    """
    names, keys = ", ".join(map(identifier, columns)), ", ".join(map(identifier, key))
    others = [identifier(name) for name in columns if name not in key]
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    action = f"UPDATE SET {changes}" if changes else "NOTHING"
    return f"INSERT INTO {table} ({names}) {rows} ON CONFLICT ({keys}) DO {action}"


def delete_text(table: str, key: Sequence[str]) -> str:
    """The statement that deletes the row of a key, given as parameters."""
    wanted = " AND ".join(f"{identifier(name)} = ?" for name in key)
    return f"DELETE FROM {table} WHERE {wanted}"


#: What to do when the table refuses rows that cannot be changed any more.
_IN_THE_WAY = "Change the table, or the row in it that is in the way"


class EmbeddedSession(ABC):
    """A connection with an open transaction that excludes other writers."""

    @abstractmethod
    def execute(self, statement: str, parameters: Sequence[object] = ()) -> Any:
        """Run a statement."""

    @abstractmethod
    def columns(self, table: Sequence[str]) -> list[str]:
        """The columns of a table, given the parts of its name; empty if there is none."""

    @abstractmethod
    def insert(self, table: str, columns: Sequence[str], rows: pa.Table) -> None:
        """Insert rows, whose columns are in the order of ``columns``."""

    @abstractmethod
    def merge(self, table: str, columns: Sequence[str], key: Sequence[str], rows: pa.Table) -> None:
        """Merge and delete rows by key; the last column of ``rows`` says which are gone."""

    @abstractmethod
    def close(self) -> None:
        """Roll back what is not committed and close."""


class EmbeddedDatabase(ABC):
    """How a kind of database is opened; pickled to the workers."""

    def __init__(self, path: Path, timeout: float, *, fsync: bool) -> None:
        self.path = path
        self.timeout = timeout
        self.fsync = fsync

    def parts(self, table: str) -> list[str]:
        """The parts of a table's name, as users write it."""
        return table_parts(table)

    @property
    def locked_files(self) -> list[Path]:
        """The files whose locks keep writers out of each other's way."""
        return [self.path]

    @property
    @abstractmethod
    def errors(self) -> tuple[type[Exception], ...]:
        """What its driver raises."""

    @abstractmethod
    def refuses(self, error: Exception) -> bool:
        """Return whether the database would raise this error again."""

    @abstractmethod
    def open(self) -> EmbeddedSession:
        """Open the file and begin a transaction, waiting up to ``timeout`` s for other writers."""


class EmbeddedSink(Sink):
    """Inserts into a table of an embedded database, or merges changes by key, exactly once.

    Args:
        path: the database file, on a local file system that driver and workers share.
        table: an existing table.
        columns: its columns in the order of the records' fields; None: found by name.
        key: columns with a primary key or unique index: records are changes, which are merged and
            deleted by them; None: records are inserted.
        type_info: the type of the records, so that columns are compared at submit already.
        check_rows: try the rows in the tasks.  False saves half of the work; a row that the table
            refuses then fails the commit; the job ends after three tries, and continues when the
            table takes it.
        timeout: seconds to wait for other writers.
        fsync: False trades survival of a machine crash for speed.
    """

    kind_of_database: ClassVar[type[EmbeddedDatabase]]

    def __init__(
        self,
        path: str | Path,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        key: Sequence[str] | None = None,
        type_info: TypeInformation | None = None,
        check_rows: bool = True,
        timeout: float = 60.0,
        fsync: bool = True,
    ) -> None:
        self.database = self.kind_of_database(database_path(path), timeout, fsync=fsync)
        self.table = table
        self.columns = None if columns is None else list(columns)
        self.key = list(key or ())
        self.type_info = type_info
        self.check_rows = check_rows
        self.fsync = fsync

    @property
    def target(self) -> str:
        """Table and file, for messages."""
        return f"table {self.table!r} of {self.database.path}"

    def describe(self) -> str:
        """The kind of sink, and its table."""
        return f"{type(self).__name__} {self.table}"

    def validate(self) -> None:
        """Check file, table and columns, and make the commit table.

        Raises:
            SinkError: the file or table is missing, or a column.
        """
        if not self.database.path.is_file():
            message = f"there is no database {self.database.path}; create it, with its table"
            raise SinkError(message)
        with self.session("at submit") as session:
            schema = None if self.type_info is None else self.type_info.arrow_schema
            if schema is not None:
                self.matched(session, schema.names)
            elif not session.columns(self.database.parts(self.table)):
                self.matched(session, [])
            if self.key:
                self._require_unique_key(session)
            session.execute(CommitTable.CREATE)
            session.execute("COMMIT")

    def _require_unique_key(self, session: EmbeddedSession) -> None:
        """Let the database check that a unique constraint fits the key; raises SinkError if not."""
        table = quoted_parts(self.database.parts(self.table))
        rows = f"SELECT {', '.join(map(identifier, self.key))} FROM {table} WHERE TRUE"
        try:
            session.execute(f"EXPLAIN {merge_text(table, self.key, self.key, rows)}")
        except self.database.errors as error:
            message = (
                f"{self.target} has no primary key or unique index that fits key={self.key}:"
                f" {error}. Make one, or correct the key"
            )
            raise SinkError(message) from error

    def validate_input(self, type_info: TypeInformation) -> None:
        """Check that the table has the columns of the records; raises SinkError if not."""
        schema = type_info.arrow_schema
        if schema is not None:
            with self.session("at submit") as session:
                self.matched(session, schema.names)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer to a pending file."""
        return _StagedFileWriter(self, context)

    def create_committer(self) -> Committer:
        return _StagedFileCommitter(self)

    def matched(self, session: EmbeddedSession, given: Sequence[str]) -> list[str]:
        """The columns of the table for those of the records; raises SinkError."""
        known = session.columns(self.database.parts(self.table))
        if not known:
            message = f"there is no {self.target}; create it before the job runs"
            message += dot_advice(self.table)
            raise SinkError(message)
        columns = match_columns(given, known, self.columns, self.target)
        missing = [name for name in self.key if given and name not in columns]
        if missing:
            message = (
                f"{self.target}: column {missing[0]!r} of key={self.key} is not among those that"
                f" are written: {columns}"
            )
            raise PermanentSinkError(message)
        return columns

    def insert(self, session: EmbeddedSession, rows: pa.Table) -> None:
        """Insert, or merge, rows within the session's transaction."""
        table = quoted_parts(self.database.parts(self.table))
        if not self.key:
            session.insert(table, self.matched(session, rows.column_names), rows)
            return
        if rows.column_names[-1] != GONE:  # staged before the sink had a key
            rows = rows.append_column(GONE, pa.array([False] * rows.num_rows, pa.bool_()))
        columns = self.matched(session, rows.column_names[:-1])
        named = rows.rename_columns([*columns, GONE])
        refuse_null_keys(named, self.key, self.target)
        session.merge(table, columns, self.key, named)

    @contextlib.contextmanager
    def session(self, location: str) -> Iterator[EmbeddedSession]:
        """A session that is closed at the end; errors of the database become SinkError."""
        try:
            session = self.database.open()
        except self.database.errors as error:
            message = f"{location}: cannot open {self.database.path} for writing: {error}"
            holders = locked_by(self.database.locked_files)
            if holders:
                message += f". {holders}"
            permanent = self.database.refuses(error)
            raise (PermanentSinkError if permanent else SinkError)(message) from error
        try:
            yield session
        except self.database.errors as error:
            message = f"{location}: {self.target}: {error}"
            if self.database.refuses(error):
                message += f". {_IN_THE_WAY}"
                raise PermanentSinkError(message) from error
            raise SinkError(message) from error
        finally:
            session.close()

    def try_rows(self, rows: pa.Table, location: str) -> None:
        """Insert rows and roll back.

        Raises:
            SinkError: a row is refused; names it.
        """
        refusal = self._refusal(rows, location)
        if refusal is None:
            return
        index = first_refused(
            rows.num_rows, lambda count: self._refusal(rows.slice(0, count), location) is None
        )
        message = (
            f"{location}: {self.target} refuses record {record_text(rows, index)}: {refusal}."
            f" Nothing of the checkpoint is visible. {REFUSED}"
        )
        permanent = self.database.refuses(refusal)
        raise (PermanentSinkError if permanent else SinkError)(message) from refusal

    def _refusal(self, rows: pa.Table, location: str) -> Exception | None:
        with self.session(location) as session:
            try:
                self.insert(session, rows)
            except self.database.errors as error:
                return error
        return None


class _StagedFileWriter(SinkWriter):
    def __init__(self, sink: EmbeddedSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._pending: PendingFile | None = None
        self._writer: BulkWriter | None = None

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        if not self._sink.key:
            refuse_changes(batch)
        if self._writer is None:
            base = self._sink.database.path.parent
            self._pending = PendingFile(base, self._context, "", fsync=self._sink.fsync)
            self._writer = self._made(self._pending, batch.type_info)
        self._writer.write(batch)

    def _made(self, pending: PendingFile, type_info: TypeInformation) -> BulkWriter:
        if self._sink.key:
            return ChangesWriter(pending.stream, type_info)
        return ParquetWriterFactory("none").create(pending.stream, type_info)

    def prepare_commit(self) -> Sequence[Committable]:
        if self._pending is None or self._writer is None:
            return []
        self._writer.finish()
        self._pending.stream.flush()
        context, path = self._context, self._pending.path
        if self._sink.check_rows:
            self._sink.try_rows(pq.read_table(path, memory_map=True), context.location)
        committable = cast("dict[str, str]", self._pending.seal())
        self._pending.sync_directory()
        names = {"job": context.job_id, "sink": context.sink_uid, "part": path.name}
        return [committable | names]

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
        if self._pending is not None:
            self._pending.discard()


class _Transaction:
    """A session of the committer, with what it reads."""

    def __init__(self, sink: EmbeddedSink, session: EmbeddedSession) -> None:
        self._sink = sink
        self._session = session
        self.commits = CommitTable(session.execute)

    def insert(self, part: OutputPart) -> None:
        path = _pending_path(self._sink, part)
        try:
            rows = pq.read_table(path, memory_map=True)
        except FileNotFoundError:
            message = (
                f"sink {part['sink']}: output of a published checkpoint is lost: {path} is"
                " missing and"
                f" {self._sink.target} does not hold it; nothing but this sink may delete files"
                " there"
            )
            raise PermanentSinkError(message) from None
        self._sink.insert(self._session, rows)


class _StagedFileCommitter(CommitTableCommitter):
    def __init__(self, sink: EmbeddedSink) -> None:
        self.target = sink.target
        self._sink = sink
        self._files = PendingFileCommitter(sink.database.path.parent, fsync=sink.fsync)

    @contextlib.contextmanager
    def transaction(self, sink_uid: str) -> Iterator[_Transaction]:
        with self._sink.session(f"sink {sink_uid}, in the commit") as session:
            session.execute(CommitTable.CREATE)
            yield _Transaction(self._sink, session)
            session.execute("COMMIT")

    def drop(self, parts: Sequence[OutputPart]) -> None:
        for part in parts:
            _pending_path(self._sink, part).unlink(missing_ok=True)

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        """Delete the pending files of this sink and job that ``keep`` does not name."""
        self._files.abort_orphans(job_id, sink_uid, keep, generation)


def _pending_path(sink: EmbeddedSink, part: OutputPart) -> Path:
    return sink.database.path.parent / str(cast("dict[str, object]", part)["pending"])


def database_path(path: str | Path) -> Path:
    """The absolute path of a database file.

    Raises:
        SinkError: it is on another file system, or in memory.
    """
    if str(path) in {"", ":memory:"}:
        message = "a sink needs a database file: one in memory is seen by its own process only"
        raise SinkError(message)
    return local_directory(str(path))


# -- reading ---------------------------------------------------------------------------------------


class EmbeddedSource(Source):
    """Rows of a table, in the order of their ids.

    Args:
        path: of the file.
        table: its name.
        schema: the columns to read.
    """

    def __init__(self, path: str, table: str, schema: pa.Schema) -> None:
        self.path = str(Path(path).absolute())
        self.table = table
        self.schema = schema

    def __str__(self) -> str:
        return f"table {self.table!r} of {self.path}"

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return rows_of_columns(self.schema)

    @property
    def quoted(self) -> str:
        """The table in SQL."""
        return quoted_parts(table_parts(self.table))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query; raises SourceError."""
        raise NotImplementedError

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """The columns of a query; raises SourceError."""
        raise NotImplementedError

    def failed(self, error: Exception) -> SourceError:
        """An error of the database."""
        return SourceError(f"{self}: {error}. Check the file, the table, and its columns")

    def validate(self) -> None:
        """Check file, table and columns; raises SourceError."""
        if not Path(self.path).is_file():
            message = f"{self}: there is no such file; correct the path"
            raise SourceError(message)
        self.rows(f"{self._selected()} WHERE 1 = 0")

    def _selected(self) -> str:
        columns = ", ".join(map(identifier, self.schema.names))
        return f"SELECT {columns} FROM {self.quoted}"

    def discover(self, known: KnownSplits) -> list[Split]:
        """All rows, whose ids are looked up once in the life of the job."""
        if known:
            return []
        ((first, last),) = self.rows(f"SELECT min(rowid), max(rowid) FROM {self.quoted}")
        return [] if first is None else [Split("rows", {"first": first, "end": last + 1})]

    def start_offset(self, split: Split) -> int:
        """The first row id."""
        return int(str(split.properties["first"]))

    def end_offset(self, split: Split) -> int:
        return int(str(split.properties["end"]))

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        """The rows with these ids, in their order."""
        stop = min(stop, self.end_offset(split))
        if start >= stop:
            return
        wanted = f"rowid >= {start} AND rowid <= {stop - 1}"
        for batch in self.batches(f"{self._selected()} WHERE {wanted} ORDER BY rowid"):
            yield SourceBatch(arrow=batch)


@dataclass(frozen=True)
class EmbeddedLookup(LookupSource):
    """A table or view of a database file.

    Args:
        path: of the file.
        table: its name.
        schema: the columns to read.
        keys: names of those that rows are found by.
    """

    path: str
    table: str
    schema: pa.Schema
    keys: tuple[str, ...]

    def with_columns(self, names: Collection[str]) -> LookupSource:
        return replace(self, schema=some_fields(self.schema, names))

    def failed(self, error: Exception) -> SourceError:
        """An error of the database."""
        return SourceError(f"table {self.table} of {self.path}: {error}")
