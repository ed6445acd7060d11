"""TableSchema under PyFlink's path."""

from __future__ import annotations

from millstream.sql.catalog.schema import TableSchema

__all__ = ["TableSchema"]
