"""What sinks and sources of a lakehouse need of a table, whatever its format."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from millstream.connectors.error_classification import sink_error
from millstream.errors import MillstreamError, SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.parquet as pq

    from millstream.connectors.output_names import OutputNames


def require_library(name: str, who: str, extra: str) -> None:
    """Check that the library of a format can be imported.

    Args:
        name: of the library.
        who: needs it, for the message.
        extra: of Millstream that brings it.

    Raises:
        SinkError: it cannot.
    """
    try:
        importlib.import_module(name)
    except ImportError as error:
        message = f"{who} needs the package {name}: pip install 'millstream[{extra}]'"
        raise SinkError(message) from error


class DataFile(TypedDict):
    """The committable: a file that is durable, and not in the table."""

    job: str
    sink: str
    #: Unique in its job and sink, for every attempt.
    name: str
    #: The file in the table's directory.
    path: str
    size: int
    rows: int
    #: What the table's log keeps of the file; of plain values.
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LastCommit:
    """What a table's log says of the last commit of a job and sink."""

    checkpoint: int
    #: See ``output_of``; None: the log does not tell any more.
    output: str | None


class CommitConflictError(SinkError):
    """Somebody else has committed since the table was looked at."""


class TableSnapshot(ABC):
    """A table as the driver has looked at it."""

    @abstractmethod
    def last_commit(self, names: OutputNames) -> LastCommit | None:
        """What the table holds of a job and sink."""

    @abstractmethod
    def append(
        self, files: Sequence[DataFile], names: OutputNames, checkpoint: int, output: str
    ) -> None:
        """Add files, in one commit that is refused if the table has changed.

        Raises:
            CommitConflictError: it has; nothing was added.
        """

    @abstractmethod
    def paths(self) -> set[str]:
        """The data files of all versions that the table keeps, by names that end as their paths."""


class TableLayout(ABC):
    """What a task knows of a table: where data files go, and their columns."""

    #: Where the table's files are.
    directory: Path
    #: Columns of the table, in its order.
    schema: pa.Schema
    #: Columns that data files do not have, since their values are the same in all of a file.
    partition_columns: tuple[str, ...]

    @abstractmethod
    def partitions(self, rows: pa.Table) -> Iterator[tuple[dict[str, Any], pa.Table]]:
        """Rows by partition, with what ``details`` is to know of it."""

    @abstractmethod
    def details(
        self, partition: dict[str, Any], metadata: pq.FileMetaData, path: str, *, has_nan: bool
    ) -> dict[str, Any]:
        """What the log keeps of a file beside path, size and rows.

        Args:
            partition: from ``partitions``.
            metadata: of the file.
            path: of the file, as ``DataFile.path``.
            has_nan: a column has NaN, of which Parquet's statistics say nothing.
        """


class TableReader(ABC):
    """How the files of a table are found and read."""

    @abstractmethod
    def schema(self, version: int | None) -> pa.Schema:
        """The columns of a version; None: of the newest.

        Raises:
            SourceError: the table needs what cannot be read here.
        """

    @abstractmethod
    def newest(self) -> int | None:
        """The newest version; None: the table has none."""

    @abstractmethod
    def files(self, version: int) -> list[dict[str, object]]:
        """All files of a version: ``path``, ``end`` (rows), and what ``rows`` needs of them."""

    @abstractmethod
    def before(self, version: int) -> int | None:
        """The version that came before; None: there is none, or nothing is known of it any more."""

    @abstractmethod
    def added(self, version: int) -> list[dict[str, object]]:
        """The files whose rows a version has added, as ``files``.

        Raises:
            SourceError: it has changed or taken away rows.
        """

    @abstractmethod
    def rows(self, file: Mapping[str, object], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All rows of a file in their order; called in a task."""


class LakehouseTable(ABC):
    """A table by name or path; pickled to the workers, hashable."""

    @property
    @abstractmethod
    def target(self) -> str:
        """The table, for messages."""

    def layout(self) -> TableLayout:
        """What tasks know of it; from the last submit or the first use in a process."""
        return _layouts.get(self) or self.renew_layout()

    def renew_layout(self) -> TableLayout:
        """Look it up for this process and those that are forked of it.

        ``deltalake`` does not run in a process that was forked of one in which it ran.
        """
        found = _layouts[self] = self.load_layout()
        return found

    @abstractmethod
    def load_layout(self) -> TableLayout:
        """Look it up.

        Raises:
            PermanentSinkError: the table needs what its writers here do not do.
        """

    @abstractmethod
    def look(self) -> TableSnapshot:
        """Look at the table as it is now."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether there is such a table."""

    @abstractmethod
    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Create it; no error if somebody else does at the same time."""

    @abstractmethod
    def reader(self) -> TableReader:
        """How its files are read."""

    @contextmanager
    def explained(
        self, location: str, made: Callable[[str], MillstreamError] | None = None
    ) -> Iterator[None]:
        """Turn errors of the table's library into those of a sink, or what ``made`` makes."""
        try:
            yield
        except MillstreamError:
            raise
        except Exception as error:
            message = f"{location}: {self.target}: {type(error).__name__}: {error}"
            raise (sink_error(message, error) if made is None else made(message)) from error


_layouts: dict[LakehouseTable, TableLayout] = {}
