"""Tables in files: partitions, their commit when they are complete, and tables that are replaced.

Partitions are ``column=value`` directories, as Hive's and Flink's.  The columns of the partition
are in the names alone, not in the files.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa

from millstream.connectors.error_classification import directory_refusal
from millstream.connectors.files.object_files import ObjectFileCommitter
from millstream.connectors.files.object_files import explained as explained_by_store
from millstream.connectors.files.partition_names import directory_of, value_text, values_of
from millstream.connectors.files.pending_files import PendingFileCommitter, sync_directory
from millstream.connectors.files.sink import BatchSplitter, FileSink
from millstream.connectors.files.source import partition_of
from millstream.connectors.output_names import OutputNames
from millstream.contracts.batch import Batch
from millstream.contracts.sink import PROGRESS, CommitRequest, Committer, says_progress
from millstream.crash_points import crash_point
from millstream.errors import ExpressionError, PermanentSinkError, SinkError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_filter
from millstream.expressions.java.date_patterns import formatter_of
from millstream.object_stores import is_object_store
from millstream.types.types import RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from millstream.connectors.formats.file_format import BulkWriterFactory
    from millstream.contracts.sink import Committable, CommitterContext
    from millstream.expressions.nodes import Expression
    from millstream.object_stores import ObjectStore


class PartitionSplitter(BatchSplitter):
    """Deals rows out to the directories of their partitions.

    Args:
        columns: of the partition, from the top directory down.
        default_name: stands for NULL and for the empty text.
    """

    def __init__(self, columns: tuple[str, ...], default_name: str) -> None:
        self._columns = columns
        self._default_name = default_name

    def split(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        arrow, kind = batch.arrow, batch.type_info
        names = arrow.schema.names
        texts = [self._texts(arrow.column(names.index(name))) for name in self._columns]
        places: dict[tuple[str, ...], list[int]] = {}
        for at, place in enumerate(zip(*texts, strict=True)):
            places.setdefault(place, []).append(at)
        kept = [at for at, name in enumerate(names) if name not in self._columns]
        rest = batch
        if isinstance(kind, RowTypeInfo):
            types = kind.get_field_types()
            rest = Batch(
                RowTypeInfo([types[at] for at in kept], [names[at] for at in kept]),
                arrow=arrow.select(kept),
                timestamps=batch.raw_timestamps,
                row_kinds=batch.row_kinds,
            )
        for values, indices in places.items():
            directory = directory_of(zip(self._columns, values, strict=True))
            yield directory, rest if len(places) == 1 else rest.take(indices)

    def _texts(self, column: pa.Array) -> list[str]:
        return [value_text(value, self._default_name) for value in column.to_pylist()]


class PartitionFilter:
    """Whether a file is read, by its path.

    Args:
        base: the path below which directories are partitions.
        columns: name of a column of the partition -> what makes its value of the text in the path.
        types: of these columns.
        default_name: the text that stands for NULL.
        condition: over these columns, in their order.
        time_zone: of the session.
    """

    def __init__(
        self,
        base: str,
        columns: Mapping[str, Callable[[str], Any]],
        types: Sequence[pa.DataType],
        default_name: str,
        condition: Expression,
        time_zone: str,
    ) -> None:
        self._base = base
        self._columns = dict(columns)
        self._types = list(types)
        self._default_name = default_name
        self._condition = condition
        self._time_zone = time_zone
        self._known: dict[tuple[str, ...], bool] = {}

    def __call__(self, path: str) -> bool:
        found = partition_of(path.removeprefix(self._base))
        if not self._columns.keys() <= found.keys():
            return True  # reading it says what is wrong
        texts = tuple(found[name] for name in self._columns)
        if texts not in self._known:
            self._known[texts] = self._holds(texts)
        return self._known[texts]

    def _holds(self, texts: tuple[str, ...]) -> bool:
        try:
            values = [
                None if text == self._default_name else parse(text)
                for text, parse in zip(texts, self._columns.values(), strict=True)
            ]
        except (ValueError, ArithmeticError):
            return True
        arrays = [pa.array([v], kind) for v, kind in zip(values, self._types, strict=True)]
        row = pa.RecordBatch.from_arrays(arrays, names=list(self._columns))
        context = EvaluationContext(time_zone=self._time_zone)
        try:
            return bool(compile_filter(self._condition).evaluate(row, context)[0].as_py())
        except ExpressionError:
            return True  # what stands beside it may keep the filter from being asked of any row


_PLAIN: Final = re.compile(
    r"(\d+)-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?"
)
_MILLI: Final = 1_000_000


class TableFiles(ABC):
    """The files of a table, by their paths below its base."""

    #: Files that are committed before the next crash point, so that a store works on some at once.
    at_once: int = 1

    def __init__(self, location: str, committer: Committer) -> None:
        self.location = location
        self.committer = committer

    @staticmethod
    def at(sink: FileSink) -> TableFiles:
        """Return those of a sink."""
        if is_object_store(sink.location):
            return _FilesOfStore(sink.stores.open(sink.location))
        return _FilesOfDirectory(sink.directory)

    @abstractmethod
    def explained(self, what: str) -> AbstractContextManager[None]:
        """Turn errors of what is done into SinkError, which says what that is."""

    @abstractmethod
    def path_of(self, directory: str) -> Path | str:
        """A directory: a path, or a URI of an object store."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file, all of it or nothing."""

    @abstractmethod
    def names(self, directory: str, *, hidden: bool = False) -> list[str]:
        """The files below a directory, sorted.

        Args:
            directory: empty: all.
            hidden: also those whose names, or parts of whose paths, begin with ``.`` or ``_``.
        """

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that do not exist are passed over."""

    @abstractmethod
    def make_directory(self, directory: str) -> None:
        """Make a directory that readers see even if no file is in it."""


class _FilesOfDirectory(TableFiles):
    def __init__(self, base: Path) -> None:
        super().__init__(str(base), PendingFileCommitter(base))
        self._base = base

    @contextlib.contextmanager
    def explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise directory_refusal(what, self._base, error) from error

    def path_of(self, directory: str) -> Path:
        return self._base / directory

    def read(self, name: str) -> bytes | None:
        try:
            return (self._base / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        path = self._base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.next")
        with beside.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
        for each in (path.parent, path.parent.parent, self._base):
            sync_directory(each)

    def names(self, directory: str, *, hidden: bool = False) -> list[str]:
        found = (self._base / directory).rglob("*")
        names = [each.relative_to(self._base).as_posix() for each in found if each.is_file()]
        return sorted(name for name in names if hidden or not _is_hidden(name))

    def delete(self, names: Iterable[str]) -> None:
        changed = set()
        for name in names:
            path = self._base / name
            path.unlink(missing_ok=True)
            changed.add(path.parent)
        for directory in changed:
            if directory.is_dir():
                sync_directory(directory)

    def make_directory(self, directory: str) -> None:
        (self._base / directory).mkdir(parents=True, exist_ok=True)


class _FilesOfStore(TableFiles):
    at_once = 16

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store.location, ObjectFileCommitter(store))
        self._store = store

    def explained(self, what: str) -> AbstractContextManager[None]:
        return explained_by_store(self._store, what)

    def path_of(self, directory: str) -> str:
        return f"{self.location}/{directory}" if directory else self.location

    def read(self, name: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return self._store.get(name)
        return None

    def write(self, name: str, content: bytes) -> None:
        self._store.put(name, content)

    def names(self, directory: str, *, hidden: bool = False) -> list[str]:
        found = self._store.list_keys(directory)
        return sorted(name for name in found if hidden or not _is_hidden(name))

    def delete(self, names: Iterable[str]) -> None:
        self._store.delete(names)

    def make_directory(self, directory: str) -> None:
        """Do nothing: an object store has no directories."""


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))


@dataclass(frozen=True)
class PartitionContext:
    """What a policy is told: the names are those of Flink's ``PartitionCommitPolicy.Context``."""

    table: tuple[str, str, str]
    files: TableFiles
    directory: str
    #: The texts of the columns, from the top directory down.
    spec: dict[str, str]

    def catalog_name(self) -> str:
        """The catalog of the table."""
        return self.table[0]

    def database_name(self) -> str:
        """The database of the table."""
        return self.table[1]

    def table_name(self) -> str:
        """The table."""
        return self.table[2]

    def partition_keys(self) -> list[str]:
        """The columns."""
        return list(self.spec)

    def partition_values(self) -> list[str]:
        """Their texts."""
        return list(self.spec.values())

    def partition_path(self) -> Path | str:
        """The directory: a path, or a URI of an object store."""
        return self.files.path_of(self.directory)

    def partition_spec(self) -> dict[str, str]:
        """The texts by the columns."""
        return dict(self.spec)


class PartitionCommitPolicy(ABC):
    """What is done when a partition is complete; called in the driver, after its files' commit.

    It may be called again for the same partition: after a crash, and when late rows came.
    """

    @abstractmethod
    def commit(self, context: PartitionContext) -> None:
        """Do it; an exception fails the commit, which is tried again."""


@dataclass(frozen=True)
class SuccessFile(PartitionCommitPolicy):
    """An empty file that says that a partition is complete."""

    name: str = "_SUCCESS"

    def commit(self, context: PartitionContext) -> None:
        """Make it, or make it newer."""
        context.files.write(f"{context.directory}/{self.name}", b"")


@dataclass(frozen=True)
class PartitionTime:
    """The time that the values of a partition say.

    Args:
        pattern: a text with ``$column`` for values; None: the first value.
        formatter: Java's pattern of that text; None: ``yyyy-MM-dd[ HH:mm:ss]``.
    """

    pattern: str | None = None
    formatter: str | None = None

    def millis(self, values: dict[str, str], zone: str) -> int:
        """Milliseconds since 1970, of a clock in a time zone.

        Raises:
            PermanentSinkError: the values say no time.
        """
        text = self.pattern
        if text is None:
            text = next(iter(values.values()))
        else:
            text = self._named(values).sub(lambda found: values[found[1]], text)
        try:
            local = self._local(text)
            return round(local.replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)
        except (ValueError, ArithmeticError) as error:
            wanted = self.formatter or "yyyy-MM-dd HH:mm:ss"
            message = (
                f"partition {values} has no time: {text!r} does not match {wanted!r} ({error}); "
                "'partition.time-extractor.timestamp-pattern' defines how columns make one"
            )
            raise PermanentSinkError(message) from error

    def columns(self, names: Sequence[str]) -> list[str]:
        """The columns of a partition that say its time."""
        return list(names[:1]) if self.pattern is None else self._named(names).findall(self.pattern)

    @staticmethod
    def _named(names: Iterable[str]) -> re.Pattern[str]:
        """``$`` and a column, the longest that fits."""
        longest = sorted(names, key=len, reverse=True)
        return re.compile(rf"\$({'|'.join(map(re.escape, longest))})")

    def _local(self, text: str) -> dt.datetime:
        if self.formatter is not None:
            nanos = formatter_of(self.formatter).read(text)
            if nanos is None:
                message = "it does not match"
                raise ValueError(message)
            return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=nanos // _MILLI)  # noqa: DTZ001
        found = _PLAIN.fullmatch(text)
        if found is None:
            message = "no date"
            raise ValueError(message)
        *parts, fraction = found.groups()
        micros = int((fraction or "").ljust(6, "0")[:6])
        year, month, day, hour, minute, second = (int(each or 0) for each in parts)
        return dt.datetime(year, month, day, hour, minute, second, micros // 1000 * 1000)  # noqa: DTZ001


@dataclass(frozen=True)
class PartitionCommit:
    """How partitions of a table are committed.

    Args:
        table: catalog, database, name.
        policies: what is done.
        time: the time of partitions; None: they are complete by the clock.
        delay: milliseconds after that time, or after the first file.
        zone: the time zone of the watermark's clock.
        default_name: stands for NULL; a partition whose time would be made of it has none.
    """

    table: tuple[str, str, str]
    policies: tuple[PartitionCommitPolicy, ...]
    time: PartitionTime | None = None
    delay: int = 0
    zone: str = "UTC"
    default_name: str = ""

    def time_of(self, directory: str) -> int | None:
        """The time of a partition; None if it has none.

        Raises:
            PermanentSinkError: its values say no time.
        """
        values = values_of(directory)
        if self.time is None:
            return None
        if self.default_name in (values[each] for each in self.time.columns(list(values))):
            return None
        return self.time.millis(values, self.zone)

    def is_complete(self, directory: str, first: int, watermark: int | None, now: int) -> bool:
        """Whether a partition is complete.

        Args:
            directory: of the partition.
            first: when its first file came, in milliseconds.
            watermark: how far event time has got everywhere; None: nobody knows.
            now: the time of the clock.
        """
        if self.time is None:
            return self.delay == 0 or now > first + self.delay
        due = self.time_of(directory)
        return due is not None and watermark is not None and watermark > due + self.delay

    def run(self, files: TableFiles, directory: str) -> None:
        """Do what is to be done with a partition that is complete."""
        context = PartitionContext(self.table, files, directory, values_of(directory))
        for policy in self.policies:
            policy.commit(context)


# -- the sink of a table ---------------------------------------------------------------------------


_NAME: Final = "progress.json"
_KEPT: Final = "kept-"
_VERSION: Final = 2


@dataclass
class Progress:
    """What all subtasks have said up to an epoch."""

    epoch: int = -1
    parallelism: int = 0
    #: The run that the subtasks belong to: in another one they may read other splits.
    run: int = -1
    #: How far event time has got in all subtasks, in this run or one before; None: nobody knows.
    watermark: int | None = None
    #: Subtask -> watermark; those that have none are left out.
    watermarks: dict[str, int] = field(default_factory=dict)
    idle: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    #: Directories of partitions that are not complete -> when their first file came.
    open: dict[str, int] = field(default_factory=dict)
    #: Of an overwriting sink: what is deleted before the new files are committed; None: it is not
    #: decided, for more may come.
    deletes: list[str] | None = None
    is_deleted: bool = False
    is_done: bool = False

    def take(self, reports: Iterable[dict[str, Any]]) -> None:
        """Take what subtasks say."""
        for each in reports:
            if (each["parallelism"], each["run"]) != (self.parallelism, self.run):
                self.parallelism, self.run = each["parallelism"], each["run"]
                self.watermarks, self.idle, self.ended = {}, [], []
            subtask = str(each["subtask"])
            if each["watermark"] is not None:
                self.watermarks[subtask] = each["watermark"]
            self.idle = [one for one in self.idle if one != subtask]
            self.idle += [subtask] if each["idle"] else []
            self.ended += [subtask] if each["ended"] and subtask not in self.ended else []
        awake = [each for each in map(str, range(self.parallelism)) if each not in self.idle]
        known = [self.watermarks[each] for each in awake if each in self.watermarks]
        if known and len(known) == len(awake):
            self.watermark = (
                min(known) if self.watermark is None else max(self.watermark, min(known))
            )

    @property
    def all_ended(self) -> bool:
        """Whether nothing can come any more."""
        return self.parallelism > 0 and len(self.ended) == self.parallelism


class ProgressFile:
    """The record of a sink's progress, and of the files that it has not committed yet."""

    def __init__(self, files: TableFiles, job_id: str, sink_uid: str) -> None:
        self._files = files
        self._directory = f".progress-{OutputNames(job_id, sink_uid).directory}"

    def read(self) -> Progress:
        """What was written last; nothing at first.

        Raises:
            PermanentSinkError: it is of another version.
        """
        name = f"{self._directory}/{_NAME}"
        found = self._files.read(name)
        if found is None:
            return Progress()
        content = json.loads(found)
        if content.pop("version") != _VERSION:
            message = f"{name} in {self._files.location} is of another release"
            raise PermanentSinkError(message)
        return Progress(**content)

    def write(self, progress: Progress) -> None:
        """Replace it, all of it or nothing."""
        content = json.dumps({"version": _VERSION, **asdict(progress)})
        self._files.write(f"{self._directory}/{_NAME}", content.encode())

    def keep(self, epoch: int, committables: Sequence[Committable]) -> None:
        """Keep what an epoch has pre-committed, until everything is committed together."""
        if committables:
            content = json.dumps(list(committables)).encode()
            self._files.write(f"{self._directory}/{_KEPT}{epoch:012d}.json", content)

    def kept(self) -> list[Any]:
        """What is kept of all epochs."""
        found = [self._files.read(name) for name in self._kept_names()]
        return [each for content in found if content is not None for each in json.loads(content)]

    def drop_kept(self) -> None:
        """Forget it."""
        self._files.delete(self._kept_names())

    def _kept_names(self) -> list[str]:
        names = self._files.names(self._directory, hidden=True)
        return [name for name in names if name.startswith(f"{self._directory}/{_KEPT}")]


def files_and_reports(
    requests: Sequence[CommitRequest],
) -> tuple[list[CommitRequest], list[dict[str, Any]]]:
    """The requests that are about files, and what subtasks say of themselves."""
    files, reports = [], []
    for each in requests:
        committable = each.committable
        if says_progress(committable):
            reports.append(committable[PROGRESS])
        else:
            files.append(each)
    return files, reports


@dataclass(frozen=True)
class Overwrite:
    """What INSERT OVERWRITE replaces.

    Args:
        columns: how many columns partition the table.
        static: the directory that the statement's partition begins with; empty: none is said.
        is_whole: whether the statement says all of the partition, or the table has none: then it
            is replaced even if no rows come.
    """

    columns: int = 0
    static: str = ""
    is_whole: bool = True


class TableFileSink(FileSink):
    """Writes files of a table, exactly once.

    Its committer knows how far all writers are.  A partition is committed after its files; what
    INSERT OVERWRITE writes stays pre-committed, and is committed in the place of the old files when
    nothing more can come.  Cases, of a crash while a table is replaced:

    1. Nothing is decided: the next run commits the last epoch again, and decides.
    2. What is deleted stands in the record: whoever comes next completes it.
    3. That it is deleted stands there: nothing is deleted any more, what is kept is committed.
    4. All is done, and stands in the record: a repeated commit changes nothing.

    Readers may see a table between the deletion of the old files and the last commit, as in Flink.

    Args:
        path: the base directory.
        writer_factory: the format.
        splitter: deals rows out to partitions; None: there are none.
        commit: how partitions are committed; None: they are not.
        overwrite: what is replaced; None: files are added.
    """

    wants_progress = True

    def __init__(
        self,
        path: str,
        writer_factory: BulkWriterFactory,
        splitter: BatchSplitter | None,
        *,
        commit: PartitionCommit | None = None,
        overwrite: Overwrite | None = None,
    ) -> None:
        if splitter is not None and commit is not None:
            splitter = _CheckedSplitter(splitter, commit)
        super().__init__(path, writer_factory, bucket_assigner=splitter)
        self.partition_commit = commit
        if commit is not None and commit.time is None and commit.delay:
            self.wants_ticks = commit.delay
        self.overwrite = overwrite

    @property
    def connector(self) -> str:
        """Files that are added are committed alike, with and without a commit of partitions."""
        return "FileSink" if self.overwrite is None else "OverwritingFileSink"

    def create_committer(self) -> Committer:
        files = TableFiles.at(self)
        if self.overwrite is not None:
            return _OverwritingCommitter(files, self.overwrite, self.partition_commit)
        return _PartitionCommitter(files, self.partition_commit)


class _CheckedSplitter(BatchSplitter):
    """Refuses rows of partitions that say no time before they are written, not at their commit."""

    def __init__(self, inner: BatchSplitter, commit: PartitionCommit) -> None:
        self._inner = inner
        self._commit = commit
        self._known: set[str] = set()

    def split(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        for directory, part in self._inner.split(batch):
            if directory not in self._known:
                self._commit.time_of(directory)
                self._known.add(directory)
            yield directory, part


def _now(reports: Iterable[dict[str, Any]]) -> int:
    return max((each["now"] for each in reports), default=int(time.time() * 1000))


class _TableCommitter(Committer):
    """What both committers share."""

    def __init__(self, files: TableFiles, commit: PartitionCommit | None) -> None:
        self.target = f"files in {files.location}"
        self._files = files
        self._commit = commit
        self._record: ProgressFile | None = None

    def open(self, context: CommitterContext) -> None:
        self._record = ProgressFile(self._files, context.job_id, context.sink_uid)

    @property
    def record(self) -> ProgressFile:
        """The record of what is open."""
        assert self._record is not None  # noqa: S101 - open comes first
        return self._record

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        with self._files.explained("cannot commit partitions"):
            self._commit_all(requests)

    def _commit_all(self, requests: Sequence[CommitRequest]) -> None:
        raise NotImplementedError

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        self._files.committer.abort_orphans(job_id, sink_uid, keep, generation)

    def _run(self, directory: str) -> None:
        """Commit a partition."""
        if self._commit is None:
            return
        crash_point("partition.commit.before")
        try:
            self._commit.run(self._files, directory)
        except SinkError:
            raise
        except Exception as error:
            message = (
                f"partition '{directory}' of {self._files.location} is not committed: {error!r}"
            )
            raise SinkError(message) from error
        crash_point("partition.commit.after")


class _PartitionCommitter(_TableCommitter):
    """Renames files, then commits the partitions that are complete."""

    def _commit_all(self, requests: Sequence[CommitRequest]) -> None:
        files, reports = files_and_reports(requests)
        self._files.committer.commit(files)
        if not requests or self._commit is None:
            return
        progress, epoch = self.record.read(), requests[0].epoch
        if progress.epoch == epoch and requests[0].retried:
            return
        now = _now(reports)
        progress.take(reports)
        for each in files:
            progress.open.setdefault(_directory(each), now)
        for directory, first in list(progress.open.items()):
            complete = self._commit.is_complete(directory, first, progress.watermark, now)
            if complete or progress.all_ended:
                self._run(directory)
                del progress.open[directory]
        progress.epoch = epoch
        self.record.write(progress)


class _OverwritingCommitter(_TableCommitter):
    """Keeps files pre-committed, and commits them in the place of the old ones at the end."""

    def __init__(
        self, files: TableFiles, overwrite: Overwrite, commit: PartitionCommit | None
    ) -> None:
        super().__init__(files, commit)
        self._overwrite = overwrite

    def _commit_all(self, requests: Sequence[CommitRequest]) -> None:
        files, reports = files_and_reports(requests)
        progress = self.record.read()
        if not requests or progress.is_done:
            return
        epoch = requests[0].epoch
        if progress.deletes is None:
            self.record.keep(epoch, [each.committable for each in files])
            progress.take(reports)
            progress.epoch = epoch
            if progress.all_ended:
                self._decide(progress)
            self.record.write(progress)
        if progress.deletes is not None:
            self._replace(progress, epoch)

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        """Abort what is neither named by a manifest nor kept."""
        with self._files.explained("cannot read what is kept"):
            kept = ProgressFile(self._files, job_id, sink_uid).kept()
        super().abort_orphans(job_id, sink_uid, [*keep, *kept], generation)

    def _decide(self, progress: Progress) -> None:
        """Say what is deleted, and which partitions there are then."""
        places = {""}
        if self._overwrite.columns:
            places = {str(each["final"]).rpartition("/")[0] for each in self.record.kept()}
            if self._overwrite.is_whole:
                places.add(self._overwrite.static)
        old = {name for place in places for name in self._files.names(place)}
        progress.deletes = sorted(old)
        progress.open = dict.fromkeys(sorted(places - {""}), 0)

    def _replace(self, progress: Progress, epoch: int) -> None:
        """Delete and commit, from wherever it stopped."""
        if not progress.is_deleted:
            crash_point("overwrite.delete.before")
            self._files.delete(progress.deletes or ())
            crash_point("overwrite.delete.after")
            progress.is_deleted = True
            self.record.write(progress)
        kept = [CommitRequest(each, epoch, retried=True) for each in self.record.kept()]
        for first in range(0, len(kept), self._files.at_once):
            self._files.committer.commit(kept[first : first + self._files.at_once])
            crash_point("overwrite.move.after")
        for partition in progress.open:
            self._files.make_directory(partition)
            self._run(partition)
        progress.is_done, progress.deletes, progress.open = True, None, {}
        self.record.write(progress)
        self.record.drop_kept()


def _directory(request: CommitRequest) -> str:
    """The directory of the partition that a file goes to."""
    committable: Any = request.committable
    return str(committable["final"]).rpartition("/")[0]
