"""The contract of file formats: how one file becomes records, addressed by offsets."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import IO, TYPE_CHECKING, Any, Final, Self, TypeAlias

import pyarrow as pa
from pyarrow import fs

from millstream.configuration.redaction import redacted_text
from millstream.connectors.formats.object_file_system import object_file_system
from millstream.connectors.formats.text_values import texts_of_batch
from millstream.contracts.serialization import SimpleStringEncoder
from millstream.contracts.source import RangeCursor
from millstream.errors import (
    ConfigurationError,
    MillstreamError,
    PermanentSinkError,
    ProgramError,
    SourceError,
)
from millstream.object_stores import OpensStores, is_object_store
from millstream.types.types import (
    ArrowTypeInfo,
    RowTypeInfo,
    TypeInformation,
    Types,
    from_arrow_schema,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.batch import Batch
    from millstream.contracts.serialization import Encoder
    from millstream.contracts.source import SourceBatch, Split, SplitCursor
    from millstream.object_stores import StoreAccess


#: Records per batch: small enough that watermarks move within an epoch.
BATCH_SIZE: Final = 16_384


class MalformedPolicy(Enum):
    """The treatment of records that do not parse."""

    FAIL = "fail"
    DEAD_LETTER = "dead-letter"

    @classmethod
    def of(cls, value: str | MalformedPolicy) -> MalformedPolicy:
        """The policy called ``value``; raises ConfigurationError if there is none."""
        try:
            return cls(value)
        except ValueError:
            message = f"malformed={value!r} is unknown; use 'fail' or 'dead-letter'"
            raise ConfigurationError(message) from None


class FileFormat(OpensStores, ABC):
    """How one file is cut and read.

    Contract:
      1. ``properties`` is called once per file, in the driver; what it returns is logged with the
         split and is all that ``read`` knows of the file.  (runtime)
      2. Cuts come from ``next_stop``, or are 0 or ``end``; for these, reading ``[a, b)`` and then
         ``[b, c)`` gives the records of ``[a, c)``.  (``millstream.testing.conformance``)
      3. Instances are picklable and never changed after ``prepare``.  (nobody)
    """

    def opened_with(self, stores: StoreAccess) -> Self:
        return self._copy_with(stores)

    #: Offset units (bytes or rows) that the first epoch reads at most.
    initial_limit: int = 1_000_000

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation:
        """The type of the records."""

    @property
    def needs_a_file(self) -> bool:
        """Whether ``prepare`` must look into a file, because no schema was given."""
        return False

    def prepare(self, path: str) -> None:
        """Look into the first file, in the driver: infer the schema, detect options."""
        del path

    @abstractmethod
    def properties(self, path: str, size: int) -> dict[str, object]:
        """The properties of the split for the file: ``path``, ``size`` (bytes), ``end``."""

    @abstractmethod
    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        """A cut near ``start + limit``, more than ``start`` and at most ``end``."""

    @abstractmethod
    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        """The records of ``[start, stop)`` as Arrow batches."""

    #: Whether the batches of ``read`` say where they end, so that long-running tasks can keep the
    #: file open, and read it to its end in one go.
    tells_positions: bool = False

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        """Read the file from ``position`` on; it is kept open where batches have positions."""
        return RangeCursor(self, split, position, whole=self.tells_positions)


class SchemaFormat(FileFormat):
    """A format whose records are rows of a schema: one that was given, or that of a file."""

    #: None: not known before ``prepare`` has looked into a file.
    type_info: TypeInformation | None = None

    @property
    def produced_type(self) -> TypeInformation:
        """A ROW with a field per column; raises SourceError if it is not known yet."""
        if self.type_info is None:
            message = f"{type(self).__name__}: the schema is not known before a file was read"
            raise SourceError(message)
        return self.type_info

    @property
    def needs_a_file(self) -> bool:
        return self.type_info is None


class StreamFormat(FileFormat):
    """A format whose records follow each other in a stream of bytes (CSV, JSON lines, text)."""


class BulkFormat(FileFormat):
    """A format that is read many records at a time (Parquet)."""


def split_path(split: Split) -> str:
    """The path of the split's file."""
    return str(split.properties["path"])


def is_local(path: str) -> bool:
    """Return whether a path or URI is on a file system of this machine's."""
    return "://" not in path or path.startswith("file:/")


def resolve(path: str, stores: StoreAccess) -> tuple[Any, str]:
    """The file system of a path or URI, and the path within it.

    Plain paths and ``file://`` are local, object stores are those of checkpoints; other schemes
    (``hdfs``) go to pyarrow.
    """
    if "://" not in path and not path.startswith("file:/"):
        return fs.LocalFileSystem(), path
    if is_object_store(path):
        return object_file_system(path, stores)
    try:
        filesystem, inner = fs.FileSystem.from_uri(path)
    except Exception as error:  # pyarrow raises ArrowInvalid, OSError, ImportError by scheme
        message = redacted_text(f"cannot reach {path!r}: {error}")
        raise SourceError(message) from error
    return filesystem, inner


def open_file(path: str, stores: StoreAccess) -> Any:
    """Open a file for random access.

    Raises:
        SourceError: it cannot be opened.
    """
    filesystem, inner = resolve(path, stores)
    try:
        return filesystem.open_input_file(inner)
    except OSError as error:
        message = f"cannot open {path!r}: {error}; a file must stay in place until it is read"
        raise SourceError(message) from error


#: A ROW or DATACLASS type, an Arrow schema, a dataclass, or names with types.
SchemaLike: TypeAlias = "TypeInformation | pa.Schema | type | Mapping[str, TypeInformation]"


def type_of_schema(schema: SchemaLike) -> TypeInformation:
    """The record type that a schema describes.

    Raises:
        ProgramError: it is not a schema, or has no columns.
    """
    if isinstance(schema, pa.Schema):
        return row_type_of(schema)
    if isinstance(schema, Mapping):
        return Types.ROW_NAMED(list(schema), list(schema.values()))
    if isinstance(schema, type) and dataclasses.is_dataclass(schema):
        return Types.DATACLASS(schema)
    if isinstance(schema, TypeInformation):
        columns_of(schema)
        return schema
    message = (
        f"{schema!r} is not a schema; give Types.ROW_NAMED(names, types), a dataclass, "
        "a pyarrow.Schema or a mapping of names to types"
    )
    raise ProgramError(message)


def row_type_of(schema: pa.Schema) -> TypeInformation:
    """The ROW type of an Arrow schema; columns that hold nothing but nulls become strings."""
    fields = [
        field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema
    ]
    return from_arrow_schema(pa.schema(fields), list(schema.names))


def rows_of_columns(schema: pa.Schema) -> RowTypeInfo:
    """The ROW type whose fields are exactly the columns of an Arrow schema."""
    return RowTypeInfo([ArrowTypeInfo(field.type) for field in schema], list(schema.names))


def columns_of(type_info: TypeInformation) -> pa.Schema:
    """The Arrow columns of a record type.

    Raises:
        ProgramError: it has none.
    """
    schema = type_info.arrow_schema
    if schema is None:
        message = f"{type_info} has no columns: a schema needs types that Arrow can hold"
        raise ProgramError(message)
    return schema


# -- writing ---------------------------------------------------------------------------------------


class BulkWriter(ABC):
    """Writes the records of one file."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Append records."""

    @abstractmethod
    def finish(self) -> None:
        """Write what is left; the stream is closed by the caller."""

    def abandon(self) -> None:
        """The file is not wanted any more: let go of what is held, before the stream is closed."""


class BulkWriterFactory(ABC):
    """Makes writers; pickled to the workers."""

    #: Suffix of the files, with its dot.
    extension: str = ""

    @abstractmethod
    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        """A writer of records of ``type_info`` to an empty, seekable stream."""


class EncoderWriterFactory(BulkWriterFactory):
    """Writes record by record with an encoder (Flink's row format)."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        del type_info
        return _EncoderWriter(stream, self.encoder)


class _EncoderWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], encoder: Encoder) -> None:
        self._stream = stream
        self._encoder = encoder

    def write(self, batch: Batch) -> None:
        plain = isinstance(self._encoder, SimpleStringEncoder)
        values = texts_of_batch(batch) if plain else batch.values
        value: object = None
        try:
            for value in values:
                self._encoder.encode(value, self._stream)
        except (OSError, MillstreamError):
            raise  # of the file, not of the encoder
        except Exception as error:
            message = f"record {value!r:.200} cannot be encoded: {type(error).__name__}: {error}"
            raise PermanentSinkError(message) from error

    def finish(self) -> None:
        pass
