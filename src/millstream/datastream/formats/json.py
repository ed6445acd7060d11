"""JSON lines in files, and JSON messages, under PyFlink's import path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.formats.json_format import JsonLinesFormat, JsonLinesWriterFactory
from millstream.connectors.formats.json_messages import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

if TYPE_CHECKING:
    from millstream.connectors.formats.file_format import BulkWriterFactory

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
