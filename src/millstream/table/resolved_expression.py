"""``ResolvedExpression`` under PyFlink's path.

What it is: a facade over ``sql/catalog/columns.py``.
"""

from __future__ import annotations

from millstream.sql.catalog.columns import ResolvedExpression

__all__ = ["ResolvedExpression"]
