"""Rows under PyFlink's import path."""

from __future__ import annotations

from millstream.types.row import Row, RowKind
from millstream.types.types import Types

__all__ = ["Row", "RowKind", "Types"]
