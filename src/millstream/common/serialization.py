"""Schemas of messages under PyFlink's import path."""

from __future__ import annotations

from millstream.contracts.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringEncoder,
    SimpleStringSchema,
)

__all__ = [
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "SerializationSchema",
    "SimpleStringEncoder",
    "SimpleStringSchema",
]
