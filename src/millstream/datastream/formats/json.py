"""JSON lines in files, and JSON messages, under PyFlink's import path."""

from __future__ import annotations

from millstream.connectors.formats.file_writers import BulkWriterFactory, JsonLinesWriterFactory
from millstream.connectors.formats.json_format import JsonLinesFormat
from millstream.connectors.formats.message_formats import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

__all__ = [
    "JsonBulkWriters",
    "JsonLinesFormat",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
]


class JsonBulkWriters:
    """Makes writers of JSON lines."""

    @staticmethod
    def json_lines() -> BulkWriterFactory:
        """A factory for ``FileSink.for_bulk_format``."""
        return JsonLinesWriterFactory()
