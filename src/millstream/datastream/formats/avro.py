"""AVRO messages, under PyFlink's import path.

What it is: a facade.  What it is not: the code (``connectors/formats/message_formats.py``).

Read next: ``connectors/formats/message_formats.py``.
"""

from __future__ import annotations

from millstream.connectors.formats.message_formats import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)

__all__ = ["AvroRowDeserializationSchema", "AvroRowSerializationSchema"]
