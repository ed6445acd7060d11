"""JSON lines: a reader format and a bulk writer.

What it is: what ``pyflink.datastream.formats.json`` is to Kafka, for files.
What it is not: the (de)serialization schemas of message queues.

Read next: ``connectors/json_format.py``.
"""

from __future__ import annotations

from millstream.connectors.file_writers import BulkWriterFactory, JsonLinesWriterFactory
from millstream.connectors.json_format import JsonLinesFormat

__all__ = ["JsonBulkWriters", "JsonLinesFormat"]


class JsonBulkWriters:
    """Makes writers of JSON lines."""

    @staticmethod
    def json_lines() -> BulkWriterFactory:
        """A factory for ``FileSink.for_bulk_format``."""
        return JsonLinesWriterFactory()
