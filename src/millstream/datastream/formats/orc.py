"""ORC writers under PyFlink's import path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.formats.parquet_format import OrcWriterFactory

if TYPE_CHECKING:
    from millstream.connectors.formats.file_format import BulkWriterFactory, SchemaLike

__all__ = ["OrcBulkWriters"]


class OrcBulkWriters:
    """Makes writers of ORC files."""

    @staticmethod
    def for_row_type(
        row_type: SchemaLike | None = None,
        writer_properties: object = None,
        hadoop_config: object = None,
        *,
        compression: str = "zlib",
    ) -> BulkWriterFactory:
        """A factory for ``FileSink.for_bulk_format``; the columns are the stream's."""
        del row_type, writer_properties, hadoop_config
        return OrcWriterFactory(compression)
