"""Avro's files and messages, under PyFlink's import path.

What it is: a facade.  What it is not: the code (``connectors/formats/avro_files.py``,
``connectors/formats/message_formats.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.formats.avro_files import (
    AvroFormat,
    AvroInputFormat,
    AvroSchema,
    AvroWriterFactory,
    GenericRecordAvroTypeInfo,
)
from millstream.connectors.formats.message_formats import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)

if TYPE_CHECKING:
    from millstream.connectors.files.file_writers import BulkWriterFactory

__all__ = [
    "AvroBulkWriters",
    "AvroFormat",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]


class AvroBulkWriters:
    """Makes writers of Avro's container files."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """A factory for ``FileSink.for_bulk_format``; records are dicts, or rows with names."""
        return AvroWriterFactory(schema)
