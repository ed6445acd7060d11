"""Flink's ``FileSource``: finds files and reads them with a format.

A file is a split.  Directories are searched recursively; files and directories whose name begins
with ``.`` or ``_`` are skipped; files are read in the order of their paths.
``process_static_file_set`` (the default) reads the files that exist when the job starts and ends;
``monitor_continuously`` looks for new files again and again and never ends.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from millstream.configuration.redaction import redacted_text
from millstream.connectors.formats.csv_format import CsvFormat, CsvOptions
from millstream.connectors.formats.file_format import (
    FileFormat,
    resolve,
    rows_of_columns,
    split_path,
)
from millstream.connectors.formats.json_format import JsonLinesFormat
from millstream.connectors.formats.line_format import TextLineFormat
from millstream.connectors.formats.parquet_format import ParquetFormat
from millstream.contracts.source import Boundedness, Source, Split
from millstream.errors import SourceError
from millstream.object_stores import is_object_store
from millstream.types.row import with_kind_column, without_kind_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from millstream.connectors.formats.file_format import (
        BulkFormat,
        MalformedPolicy,
        SchemaLike,
        StreamFormat,
    )
    from millstream.contracts.source import KnownSplits, SourceBatch, SplitCursor
    from millstream.object_stores import StoreAccess
    from millstream.types.time import Duration
    from millstream.types.types import TypeInformation


class FileSource(Source):
    """Reads files; make one with a simple constructor or a builder.

    ::

        FileSource.csv("flights/")                              # schema from the first file
        FileSource.parquet("events/", schema=Event)             # a dataclass
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), "logs/")
            .monitor_continuously(Duration.of_seconds(5)).build()

    Args:
        file_format: how a file is read.
        paths: files and directories, local or as URI.
        discovery_interval: how often new files are looked for; None reads a static set.
        accepts: says of a path whether it is read; None: all are.
    """

    def __init__(
        self,
        file_format: FileFormat,
        paths: tuple[str, ...],
        discovery_interval: Duration | None = None,
        accepts: Callable[[str], bool] | None = None,
    ) -> None:
        if not paths:
            message = "a file source needs at least one path"
            raise SourceError(message)
        self.file_format = file_format
        self._accepts = accepts
        # Absolute, so that workers in other directories find the files and split ids are stable.
        self.paths = tuple(p if _is_uri(p) else str(Path(p).absolute()) for p in map(str, paths))
        self.interval = None if discovery_interval is None else discovery_interval.to_milliseconds()
        self.initial_limit = file_format.initial_limit
        #: An object store may refuse whoever has not the options of the job.
        self._is_prepared = not any(is_object_store(path) for path in self.paths)
        if self._is_prepared:
            self._prepare()

    # -- constructors ----------------------------------------------------------------------------

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str) -> FileSourceBuilder:
        """Start building a source of text, CSV or JSON lines."""
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: str) -> FileSourceBuilder:
        """Start building a source of Parquet files."""
        return FileSourceBuilder(bulk_format, paths)

    @staticmethod
    def csv(
        *paths: str,
        schema: SchemaLike | None = None,
        malformed: str | MalformedPolicy = "fail",
        delimiter: str = ",",
        header: bool = True,
        quote: str | None = '"',
        escape: str | None = None,
        multi_line: bool | None = None,
        null_values: tuple[str, ...] | None = None,
        discovery_interval: Duration | None = None,
    ) -> FileSource:
        """CSV files as rows.

        Args:
            paths: files and directories.
            schema: the columns; None infers them from the head of the first file.
            malformed: "fail", or "dead-letter" to set malformed records aside.
            delimiter: between values.
            header: whether the first record of each file names the columns.
            quote: None if quotes have no meaning.
            escape: None if quotes within quotes are doubled.
            multi_line: whether quoted values may contain line breaks; None looks at the head of
                the first file.
            null_values: texts that mean null in columns of any type.
            discovery_interval: monitor continuously, this often; None reads a static set.
        """
        options = CsvOptions(
            delimiter=delimiter,
            header=header,
            quote=quote,
            escape=escape,
            multi_line=multi_line,
            null_values=None if null_values is None else tuple(null_values),
        )
        return FileSource(CsvFormat(schema, malformed, options), paths, discovery_interval)

    @staticmethod
    def json_lines(
        *paths: str,
        schema: SchemaLike | None = None,
        malformed: str | MalformedPolicy = "fail",
        discovery_interval: Duration | None = None,
    ) -> FileSource:
        """Files with a JSON object per line, as rows; arguments as in ``csv``."""
        return FileSource(JsonLinesFormat(schema, malformed), paths, discovery_interval)

    @staticmethod
    def parquet(
        *paths: str,
        schema: SchemaLike | None = None,
        discovery_interval: Duration | None = None,
    ) -> FileSource:
        """Parquet files as rows; ``schema`` chooses columns by name."""
        return FileSource(ParquetFormat(schema), paths, discovery_interval)

    @staticmethod
    def text(
        *paths: str,
        charset_name: str = "UTF-8",
        malformed: str | MalformedPolicy = "fail",
        discovery_interval: Duration | None = None,
    ) -> FileSource:
        """Lines of text as strings."""
        return FileSource(TextLineFormat(charset_name, malformed), paths, discovery_interval)

    def _prepare(self) -> None:
        """Let the format look into the first file, if there is one."""
        try:
            first = next(iter(self._list()), None)
        except SourceError:
            if self.file_format.needs_a_file:
                raise
            return  # validate() reports it when the job is submitted
        if first is not None:
            self.file_format.prepare(first[0])
        elif self.file_format.needs_a_file:
            message = f"no file to infer a schema from in {', '.join(self.paths)}; give schema=..."
            raise SourceError(message)

    # -- the contract ----------------------------------------------------------------------------

    @property
    def boundedness(self) -> Boundedness:
        if self.interval is None:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        if self.file_format.needs_a_file:
            self._prepare()
        return self.file_format.produced_type

    def opened_with(self, stores: StoreAccess) -> FileSource:
        made = self._copy_with(stores)
        made.file_format = self.file_format.opened_with(stores)
        if not self._is_prepared:
            made._is_prepared = True  # noqa: SLF001 - of the copy
            made._prepare()  # noqa: SLF001 - likewise
        return made

    def validate(self) -> None:
        """Check that every path exists; raises SourceError."""
        for _ in self._list():
            pass

    @property
    def discovery_interval(self) -> float:
        return self.interval or 0

    def discover(self, known: KnownSplits) -> list[Split]:
        """Files not seen yet, by path."""
        if known and self.interval is None:
            return []  # the static set was logged when the job first started
        return [
            Split(path, self.file_format.properties(path, size))
            for path, size in self._list()
            if path not in known
        ]

    def end_offset(self, split: Split) -> int:
        """The end of the file as it was when it was discovered."""
        return int(str(split.properties["end"]))

    def is_final(self, split: Split) -> bool:
        del split
        return True

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        """A cut that suits the format."""
        return self.file_format.next_stop(split, start, limit, end)

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        return self.file_format.read(split, start, stop)

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        """Read a file on and on with the format."""
        return self.file_format.open_cursor(split, position)

    # -- listing ---------------------------------------------------------------------------------

    def _list(self) -> list[tuple[str, int]]:
        """Path and size of every file, sorted by path."""
        found: dict[str, int] = {}
        for path in self.paths:
            filesystem, inner = resolve(path, self.stores)
            prefix = (
                path[: len(path) - len(inner)] if path.endswith(inner) and "://" in path else ""
            )
            info = filesystem.get_file_info(inner)
            if info.type == fs.FileType.NotFound:
                shown = redacted_text(path)
                message = f"there is no file or directory {shown!r}; correct the path of the source"
                raise SourceError(message)
            if info.type == fs.FileType.File:
                found[prefix + info.path] = info.size
                continue
            base = info.path.rstrip("/")
            for entry in filesystem.get_file_info(fs.FileSelector(base, recursive=True)):
                below = entry.path[len(base) :].strip("/")
                if entry.type != fs.FileType.File or _hidden(below):
                    continue
                if self._accepts is None or self._accepts(prefix + entry.path):
                    found[prefix + entry.path] = entry.size
        return sorted(found.items())


def _is_uri(path: str) -> bool:
    return "://" in path or path.startswith("file:/")


def _hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))


class FileEnumeratorProvider:
    """How files are found.  A file is always one split, which is cut between epochs."""

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Recursive, without hidden files."""
        return FileEnumeratorProvider()

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """The same here."""
        return FileEnumeratorProvider()


class FileSplitAssignerProvider:
    """Which task reads which file: Spark decides."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        """Left to Spark."""
        return FileSplitAssignerProvider()


class FileSourceBuilder:
    """Builds a FileSource in Flink's style."""

    def __init__(self, file_format: FileFormat, paths: tuple[str, ...]) -> None:
        self._format = file_format
        self._paths = paths
        self._interval: Duration | None = None

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Look for new files this often, and never end."""
        self._interval = discovery_interval
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files that are there when the job starts, and end."""
        self._interval = None
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        """Accepted for PyFlink's sake; there is one way to find files."""
        del file_enumerator
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        """Accepted for PyFlink's sake; Spark assigns splits."""
        del split_assigner
        return self

    def build(self) -> FileSource:
        """The source.

        Raises:
            SourceError: a schema has to be inferred and there is no file.
        """
        return FileSource(self._format, self._paths, self._interval)


_MODIFIED: Final = "modified"


def _name(split: Split) -> str:
    return split_path(split).rstrip("/").rpartition("/")[2]


def _modified(split: Split) -> int:
    return int(str(split.properties[_MODIFIED]))


#: What the place of a file says, by Flink's key of metadata: its type, and its value.
FILE_COLUMNS: Final[dict[str, tuple[pa.DataType, Callable[[Split], Any]]]] = {
    "file.path": (pa.string(), split_path),
    "file.name": (pa.string(), _name),
    "file.size": (pa.int64(), lambda split: int(str(split.properties["size"]))),
    "file.modification-time": (pa.timestamp("ms", "UTC"), _modified),
}


def partition_of(path: str) -> dict[str, str]:
    """The values of the partition that a file lies in, by column, as texts."""
    parts = (each.partition("=") for each in path.split("/")[:-1])
    return {unquote(name): unquote(value) for name, found, value in parts if found}


class FileColumns(FileFormat):
    """Another format with more columns after its own.

    Args:
        inner: reads the files.
        said: name of a column -> key of ``FILE_COLUMNS``.
        partition: name of a column -> what makes its value of the text in the path.
        types: of the columns of the partition.
        default_name: the text that stands for NULL in paths.
        base: the path below which directories are partitions.
        notes_time: whether the time of files is noted although it is not among ``said``.
    """

    def __init__(
        self,
        inner: FileFormat,
        said: Mapping[str, str],
        partition: Mapping[str, Callable[[str], Any]] | None = None,
        types: Sequence[pa.DataType] = (),
        default_name: str = "",
        base: str = "",
        *,
        notes_time: bool = False,
    ) -> None:
        self._inner = inner
        self._said = dict(said)
        self._partition = dict(partition or {})
        self._types = list(types)
        self._default_name = default_name
        self._base = base
        self._notes_time = notes_time or "file.modification-time" in self._said.values()
        self.initial_limit = inner.initial_limit
        self.tells_positions = inner.tells_positions

    @property
    def produced_type(self) -> TypeInformation:
        inner = self._inner.produced_type.arrow_schema
        assert inner is not None  # noqa: S101 - formats of tables have columns
        fields = [(field.name, field.type) for field in inner]
        fields += list(zip(self._partition, self._types, strict=True))
        fields += [(name, FILE_COLUMNS[key][0]) for name, key in self._said.items()]
        return rows_of_columns(pa.schema(fields))

    @property
    def needs_a_file(self) -> bool:
        return self._inner.needs_a_file

    def opened_with(self, stores: StoreAccess) -> Self:
        made = super().opened_with(stores)
        made._inner = self._inner.opened_with(stores)  # noqa: SLF001 - of the copy
        return made

    def prepare(self, path: str) -> None:
        self._inner.prepare(path)

    def properties(self, path: str, size: int) -> dict[str, object]:
        found = self._inner.properties(path, size)
        if self._notes_time:
            filesystem, inside = resolve(path, self.stores)
            nanoseconds = filesystem.get_file_info(inside).mtime_ns
            found[_MODIFIED] = 0 if nanoseconds is None else nanoseconds // 1_000_000
        return found

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        return self._inner.next_stop(split, start, limit, end)

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        schema = self.produced_type.arrow_schema
        assert schema is not None  # noqa: S101 - made above
        values = [*self._place(split), *(FILE_COLUMNS[k][1](split) for k in self._said.values())]
        for batch in self._inner.read(split, start, stop):
            if batch.arrow is None:
                yield batch
                continue
            columns, kinds = without_kind_column(batch.arrow)
            width = columns.num_columns
            more = [
                pa.repeat(pa.scalar(value, field.type), columns.num_rows)
                for value, field in zip(values, list(schema)[width:], strict=True)
            ]
            arrays = [*columns.columns, *more]
            made = pa.RecordBatch.from_arrays(arrays, schema=schema)
            if kinds is not None:
                made = with_kind_column(made, kinds)
            yield replace(batch, arrow=made)

    def _place(self, split: Split) -> list[Any]:
        if not self._partition:
            return []
        path = split_path(split)
        found = partition_of(path.removeprefix(self._base))
        made = []
        for name, parse in self._partition.items():
            if name not in found:
                message = (
                    f"{path!r} is in no partition by {name!r}; the directories of a partitioned "
                    f"table are as '{name}=value'"
                )
                raise SourceError(message)
            text = found[name]
            try:
                made.append(None if text == self._default_name else parse(text))
            except (ValueError, ArithmeticError) as error:
                message = f"{path!r}: the partition's {name!r} cannot be read: {error}"
                raise SourceError(message) from error
        return made
