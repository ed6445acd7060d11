"""Avro files and messages under PyFlink's import path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.files.source import FileSource
from millstream.connectors.formats.avro_format import (
    AvroFormat,
    AvroSchema,
    AvroWriterFactory,
    GenericRecordAvroTypeInfo,
)
from millstream.connectors.formats.avro_messages import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)
from millstream.connectors.formats.registry_avro import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)

if TYPE_CHECKING:
    from millstream.connectors.formats.file_format import BulkWriterFactory

__all__ = [
    "AvroBulkWriters",
    "AvroFormat",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "ConfluentRegistryAvroDeserializationSchema",
    "ConfluentRegistryAvroSerializationSchema",
    "GenericRecordAvroTypeInfo",
]


class AvroInputFormat:
    """PyFlink's way to read Avro files: ``env.create_input(AvroInputFormat(path, schema))``.

    Args:
        path: a file or directory.
        schema: of its records.
    """

    def __init__(self, path: str, schema: AvroSchema) -> None:
        self._path = str(path)
        self._schema = schema

    def get_produced_type(self) -> GenericRecordAvroTypeInfo:
        """Dicts of the schema."""
        return GenericRecordAvroTypeInfo(self._schema)

    def create_source(self) -> FileSource:
        """The source that reads the files."""
        return FileSource(AvroFormat(self._schema), (self._path,))


class AvroBulkWriters:
    """Makes writers of Avro's container files."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """A factory for ``FileSink.for_bulk_format``; records are dicts, or rows with names."""
        return AvroWriterFactory(schema)
