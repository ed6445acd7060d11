"""``ResolvedExpression`` under PyFlink's path."""

from __future__ import annotations

from millstream.sql.catalog.schema import ResolvedExpression

__all__ = ["ResolvedExpression"]
