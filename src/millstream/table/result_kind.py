"""ResultKind, under PyFlink's path."""

from __future__ import annotations

from millstream.table.table_result import ResultKind

__all__ = ["ResultKind"]
