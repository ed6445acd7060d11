"""Parquet in PyFlink's way: ``pyflink.datastream.formats.parquet``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.formats.avro_format import AvroParquetFormat, AvroParquetWriterFactory
from millstream.connectors.formats.file_format import BATCH_SIZE, BulkWriterFactory
from millstream.connectors.formats.parquet_format import ParquetFormat, ParquetWriterFactory

if TYPE_CHECKING:
    from millstream.connectors.formats.avro_format import AvroSchema
    from millstream.connectors.formats.file_format import SchemaLike, StreamFormat

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
]


class AvroParquetReaders:
    """Makes formats that read Parquet files by an Avro schema."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> StreamFormat:
        """A format for ``FileSource.for_record_stream_format``; records are dicts."""
        return AvroParquetFormat(schema)


class AvroParquetWriters:
    """Makes writers of Parquet files by an Avro schema."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """A factory for ``FileSink.for_bulk_format``; records are dicts, or rows with names."""
        return AvroParquetWriterFactory(schema)


class ParquetColumnarRowInputFormat(ParquetFormat):
    """The bulk format that reads columns of Parquet files.

    Args:
        row_type: the columns, found by name; None takes all.
        hadoop_config: accepted for PyFlink's sake.
        batch_size: records per batch.
        is_utc_timestamp: accepted for PyFlink's sake; a column's own time zone counts.
        is_case_sensitive: accepted for PyFlink's sake; names are compared exactly.
    """

    def __init__(
        self,
        row_type: SchemaLike | None = None,
        hadoop_config: object = None,
        batch_size: int = BATCH_SIZE,
        is_utc_timestamp: bool = True,  # noqa: FBT001, FBT002 - PyFlink's signature
        is_case_sensitive: bool = True,  # noqa: FBT001, FBT002 - PyFlink's signature
    ) -> None:
        del hadoop_config, is_utc_timestamp, is_case_sensitive
        super().__init__(row_type, batch_size)


class ParquetBulkWriters:
    """Makes writers of Parquet files."""

    @staticmethod
    def for_row_type(
        row_type: SchemaLike | None = None,
        hadoop_config: object = None,
        utc_timestamp: bool = False,  # noqa: FBT001, FBT002 - PyFlink's signature
        *,
        compression: str = "snappy",
    ) -> BulkWriterFactory:
        """A factory for ``FileSink.for_bulk_format``; the columns are the stream's."""
        del row_type, hadoop_config, utc_timestamp
        return ParquetWriterFactory(compression)
