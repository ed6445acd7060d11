"""Parts of the texts of logical types: names in backticks, and the units of intervals.

What it is: the two tables say how an interval of each resolution is written; the places are for
the digits of its first unit and of the fraction of a second.

What it is not: the texts themselves; types write theirs (``types/logical_types.py``).

Read next: ``types/logical_types.py``.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DAY_TIME_FORMATS", "YEAR_MONTH_FORMATS", "escape_identifier"]

YEAR_MONTH_FORMATS: Final = {
    "YEAR": "YEAR({0})",
    "YEAR TO MONTH": "YEAR({0}) TO MONTH",
    "MONTH": "MONTH",
}
DAY_TIME_FORMATS: Final = {
    "DAY": "DAY({0})",
    "DAY TO HOUR": "DAY({0}) TO HOUR",
    "DAY TO MINUTE": "DAY({0}) TO MINUTE",
    "DAY TO SECOND": "DAY({0}) TO SECOND({1})",
    "HOUR": "HOUR",
    "HOUR TO MINUTE": "HOUR TO MINUTE",
    "HOUR TO SECOND": "HOUR TO SECOND({1})",
    "MINUTE": "MINUTE",
    "MINUTE TO SECOND": "MINUTE TO SECOND({1})",
    "SECOND": "SECOND({1})",
}


def escape_identifier(name: str) -> str:
    """Put a name into backticks, those in it doubled."""
    return "`" + name.replace("`", "``") + "`"
