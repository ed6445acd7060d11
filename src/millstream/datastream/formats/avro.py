"""AVRO messages, under PyFlink's import path.

What it is: a facade.  What it is not: the code (``connectors/message_formats.py``).

Read next: ``connectors/message_formats.py``.
"""

from __future__ import annotations

from millstream.connectors.message_formats import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)

__all__ = ["AvroRowDeserializationSchema", "AvroRowSerializationSchema"]
