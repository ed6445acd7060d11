"""Avro messages (``connectors/formats/message_formats.py``) under PyFlink's import path."""

from __future__ import annotations

from millstream.connectors.formats.message_formats import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)

__all__ = ["AvroRowDeserializationSchema", "AvroRowSerializationSchema"]
