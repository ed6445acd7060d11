"""The file source: finds files and reads them with a format.

What it is: Flink's ``FileSource``.  A file is a split.  Directories are searched recursively;
files and directories whose name begins with ``.`` or ``_`` are passed over; files are read in
the order of their paths.  ``process_static_file_set`` (the default) reads what is there when the
job starts and ends; ``monitor_continuously`` looks for new files again and again and never ends.

What it is not: a tail.  As in Flink, a file is taken to be complete when it is discovered: its
size then is its size for ever, and what is appended later is not read.  Write files under a
hidden name or elsewhere, and move them in when they are complete.

Read next: ``connectors/formats/file_format.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow import fs

from millstream.configuration.redaction import redacted_text
from millstream.connectors.formats.csv_format import CsvFormat, CsvOptions
from millstream.connectors.formats.file_format import FileFormat, resolve
from millstream.connectors.formats.json_format import JsonLinesFormat
from millstream.connectors.formats.parquet_format import ParquetFormat
from millstream.connectors.formats.text_format import TextLineFormat
from millstream.contracts.source import Boundedness, Source, Split
from millstream.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.connectors.formats.file_format import BulkFormat, MalformedPolicy, StreamFormat
    from millstream.connectors.formats.schema import SchemaLike
    from millstream.contracts.source import KnownSplits, SourceBatch, SplitCursor
    from millstream.types.time import Duration
    from millstream.types.types import TypeInformation

__all__ = [
    "FileEnumeratorProvider",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
]


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
        return self.file_format.produced_type

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
            filesystem, inner = resolve(path)
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
