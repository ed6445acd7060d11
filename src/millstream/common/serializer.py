"""Serializers under PyFlink's import path."""

from __future__ import annotations

from millstream.contracts.serialization import TypeSerializer

__all__ = ["TypeSerializer"]
