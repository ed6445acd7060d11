"""Options of the format ``json``, and of formats of changes as JSON.

What it is: what reading and writing share.
What it is not: the names of the options in tables (``sql/catalog/formats.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["JsonOptions"]


@dataclass(frozen=True)
class JsonOptions:
    """Options of the format."""

    fail_on_missing_field: bool = False
    ignore_parse_errors: bool = False
    #: Whether timestamps are ISO 8601; None: they are written as SQL's, and either is read.
    iso: bool | None = False
    #: FAIL, DROP or LITERAL, of keys of maps that are NULL.
    map_null_key: str = "FAIL"
    map_null_literal: str = "null"
    ignore_null_fields: bool = False
