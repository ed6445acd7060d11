"""``ResolvedExpression`` under PyFlink's path.

What it is: a facade over ``sql/catalog/schema.py``.
"""

from __future__ import annotations

from millstream.sql.catalog.schema import ResolvedExpression

__all__ = ["ResolvedExpression"]
