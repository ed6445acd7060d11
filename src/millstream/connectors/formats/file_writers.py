"""Writers of files: JSON lines, Parquet, ORC, and one record at a time by an encoder.

Records of an untyped stream become columns by their own names: the keys of a dict, the fields of a
Row or dataclass, ``f0``, ``f1``, ... of a tuple, ``f0`` of anything else.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import IO, TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.connectors.formats.json_format import json_lines, json_text
from millstream.connectors.formats.text_values import texts_of_batch
from millstream.contracts.serialization import Encoder, SimpleStringEncoder
from millstream.errors import MillstreamError, PermanentSinkError
from millstream.types.row import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.batch import Batch
    from millstream.types.types import TypeInformation


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
        PermanentSinkError: the values of a column have no common type.
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


# -- ORC -----------------------------------------------------------------------------------------


class OrcWriterFactory(BulkWriterFactory):
    """ORC files.

    Records of an untyped stream are kept in memory until the file is finished, as for Parquet.

    Args:
        compression: "uncompressed", "zlib", "snappy", "lz4" or "zstd".
    """

    extension = ".orc"

    def __init__(self, compression: str = "zlib") -> None:
        self.compression = compression

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        return _OrcWriter(stream, self.compression, type_info.arrow_schema)


class _OrcWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], compression: str, schema: pa.Schema | None) -> None:
        from pyarrow import orc  # loaded where it is used: 10 ms

        self._writer = orc.ORCWriter(stream, compression=compression)
        self._schema = schema
        self._values: list[object] = []
        self._wrote = False

    def write(self, batch: Batch) -> None:
        if self._schema is None:
            self._values.extend(batch.values)
            return
        self._append(pa.Table.from_batches([batch.arrow.cast(self._schema)]))

    def _append(self, table: pa.Table) -> None:
        try:
            self._writer.write(table)
        except pa.ArrowException as error:
            message = f"ORC cannot hold columns {table.schema}: {error}"
            raise PermanentSinkError(message) from error
        self._wrote = True

    def finish(self) -> None:
        if self._values:
            self._append(table_of_values(self._values))
        elif not self._wrote and self._schema is not None:
            self._append(self._schema.empty_table())
        self._writer.close()

    def abandon(self) -> None:
        self._writer.close()
