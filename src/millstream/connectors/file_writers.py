"""Writers of files: CSV, JSON lines, Parquet, and one record at a time by an encoder.

What it is: what turns batches into the bytes of one file.  Columnar batches are written without
making Python objects.  Records of an untyped stream become columns by their own names: the
keys of a dict, the fields of a Row or dataclass, ``f0``, ``f1``, ... of a tuple, ``f0`` of
anything else.

What it is not: about names, durability or commits; that is ``connectors/file_sink.py``.

Read next: ``connectors/file_sink.py``.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from abc import ABC, abstractmethod
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from millstream.common.row import Row
from millstream.common.serialization import Encoder, SimpleStringEncoder
from millstream.connectors.json_text import json_column, json_lines, json_text
from millstream.connectors.text_values import texts_of_batch
from millstream.errors import MillstreamError, PermanentSinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.common.typeinfo import TypeInformation
    from millstream.runtime.batch import Batch

__all__ = [
    "BulkWriter",
    "BulkWriterFactory",
    "CsvWriterFactory",
    "EncoderWriterFactory",
    "JsonLinesWriterFactory",
    "ParquetWriterFactory",
    "named_values",
    "table_of_values",
]

#: Rows that a Parquet row group has at least, except for the last.
ROW_GROUP_ROWS: Final = 131_072


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


# -- untyped values ------------------------------------------------------------------------------


def named_values(value: object) -> dict[str, object]:  # noqa: PLR0911 - one per kind of value
    """The columns of a record of an untyped stream."""
    if isinstance(value, dict):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, Row):
        names = value.get_field_names()
        if names:
            return dict(zip(names, value, strict=True))
        return {f"f{index}": item for index, item in enumerate(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)  # a named tuple
        if names:
            return dict(zip(names, value, strict=True))
        return {f"f{index}": item for index, item in enumerate(value)}
    return {"f0": value}


def table_of_values(values: Sequence[object]) -> pa.Table:
    """The records of an untyped stream as columns.

    Raises:
        SinkError: the values of a column have no common type.
    """
    rows = [named_values(value) for value in values]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = []
    for name in names:
        try:
            columns.append(pa.array([row.get(name) for row in rows]))
        except (pa.ArrowException, ValueError, TypeError) as error:
            message = (
                f"the values of column {name!r} have no common type: {error}; "
                "give the operator before the sink an output_type"
            )
            raise PermanentSinkError(message) from error
    return pa.Table.from_arrays(columns, names=names)


# -- JSON lines ----------------------------------------------------------------------------------


class JsonLinesWriterFactory(BulkWriterFactory):
    """One JSON object per line."""

    extension = ".jsonl"

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        """A writer of JSON lines."""
        return _JsonLinesWriter(stream, columnar=type_info.arrow_schema is not None)


class _JsonLinesWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], *, columnar: bool) -> None:
        self._stream = stream
        self._columnar = columnar

    def write(self, batch: Batch) -> None:
        if self._columnar:
            self._stream.write(json_lines(batch.arrow))
            return
        lines = [json_text(named_values(value)) for value in batch.values]
        lines.append("")
        self._stream.write("\n".join(lines).encode())

    def finish(self) -> None:
        pass


# -- CSV -----------------------------------------------------------------------------------------


class CsvWriterFactory(BulkWriterFactory):
    """Comma separated values.

    Nested columns are written as JSON text (lists joined by ``array_separator`` if that is set).

    Args:
        header: whether every file begins with the names of the columns.
        delimiter: between values.
        null_text: what is written for null; only the empty text keeps batches columnar.
        array_separator: between the elements of a list column.
        quoted: False never quotes (and fails on values that need it).
    """

    extension = ".csv"

    def __init__(
        self,
        *,
        header: bool = True,
        delimiter: str = ",",
        null_text: str = "",
        array_separator: str | None = None,
        quoted: bool = True,
    ) -> None:
        self.header = header
        self.delimiter = delimiter
        self.null_text = null_text
        self.array_separator = array_separator
        self.quoted = quoted

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        """A writer of CSV."""
        schema = type_info.arrow_schema
        if schema is None:
            return _CsvRowWriter(stream, self)
        return _CsvColumnWriter(stream, self, schema)


class _CsvColumnWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], options: CsvWriterFactory, schema: pa.Schema) -> None:
        self._options = options
        self._flat = pa.schema([_flat_field(field, options.null_text) for field in schema])
        writing = pacsv.WriteOptions(
            include_header=options.header,
            delimiter=options.delimiter,
            quoting_style="needed" if options.quoted else "none",
        )
        self._writer = pacsv.CSVWriter(stream, self._flat, write_options=writing)

    def write(self, batch: Batch) -> None:
        arrow = batch.arrow
        columns = [
            self._flatten(column, field) for column, field in zip(arrow, self._flat, strict=True)
        ]
        try:
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._flat))
        except (pa.ArrowException, ValueError) as error:
            message = f"cannot write the records as CSV: {error}"
            raise PermanentSinkError(message) from error

    def _flatten(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if column.type != field.type:
            column = self._as_text(column)
        if self._options.null_text and column.null_count:
            column = pc.fill_null(column, self._options.null_text)
        return column

    def _as_text(self, column: pa.Array) -> pa.Array:
        if not _is_nested(column.type):
            return column.cast(pa.string())
        separator = self._options.array_separator
        if separator is not None and pa.types.is_list(column.type):
            return pc.binary_join(column.cast(pa.list_(pa.string())), separator)
        return json_column(column).cast(pa.string())

    def finish(self) -> None:
        self._writer.close()


class _CsvRowWriter(BulkWriter):
    """For untyped streams; the first record of a file names its columns."""

    def __init__(self, stream: IO[bytes], options: CsvWriterFactory) -> None:
        self._stream = stream
        self._options = options
        self._names: list[str] | None = None

    def write(self, batch: Batch) -> None:
        text = io.StringIO(newline="")
        writer = csv.writer(
            text,
            delimiter=self._options.delimiter,
            quoting=csv.QUOTE_MINIMAL if self._options.quoted else csv.QUOTE_NONE,
            lineterminator="\n",
        )
        for value in batch.values:
            row = named_values(value)
            if self._names is None:
                self._names = list(row)
                if self._options.header:
                    writer.writerow(self._names)
            if not row.keys() <= set(self._names):
                unknown = ", ".join(sorted(row.keys() - set(self._names)))
                message = (
                    f"record {value!r:.200} has columns that the file's first record lacks: "
                    f"{unknown}; give the operator before the sink an output_type"
                )
                raise PermanentSinkError(message)
            writer.writerow([self._cell(row.get(name)) for name in self._names])
        self._stream.write(text.getvalue().encode())

    def _cell(self, value: object) -> object:
        if value is None:
            return self._options.null_text
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, dict | list | tuple | set | bytes):
            return json_text(value)
        return value

    def finish(self) -> None:
        pass


def _is_nested(kind: Any) -> bool:  # noqa: ANN401 - pyarrow is untyped
    return bool(
        pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    )


def _flat_field(field: pa.Field, null_text: str) -> pa.Field:
    text = bool(null_text) or _is_nested(field.type) or pa.types.is_decimal(field.type)
    return field.with_type(pa.string()) if text else field


# -- Parquet -------------------------------------------------------------------------------------


class ParquetWriterFactory(BulkWriterFactory):
    """Parquet files.

    Records of an untyped stream are kept in memory until the file is finished, since the columns
    and their types are those of all values together.

    Args:
        compression: "snappy", "zstd", "gzip", "lz4" or "none".
    """

    extension = ".parquet"

    def __init__(self, compression: str = "snappy") -> None:
        self.compression = compression

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        """A writer of Parquet."""
        schema = type_info.arrow_schema
        if schema is None:
            return _ParquetRowWriter(stream, self.compression)
        return _ParquetColumnWriter(stream, self.compression, schema)


class _ParquetColumnWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], compression: str, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(stream, schema, compression=compression)
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: Batch) -> None:
        arrow = batch.arrow
        self._waiting.append(
            arrow if arrow.schema.equals(self._schema) else arrow.cast(self._schema)
        )
        self._rows += arrow.num_rows
        if self._rows >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._rows = [], 0

    def finish(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        self._writer.close()  # else it writes its footer when it is collected


class _ParquetRowWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], compression: str) -> None:
        self._stream = stream
        self._compression = compression
        self._values: list[object] = []

    def write(self, batch: Batch) -> None:
        self._values.extend(batch.values)

    def finish(self) -> None:
        table = table_of_values(self._values)
        pq.write_table(table, self._stream, compression=self._compression)


# -- one record at a time ------------------------------------------------------------------------


class EncoderWriterFactory(BulkWriterFactory):
    """Writes record by record with an encoder (Flink's row format)."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        """A writer that encodes records."""
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
