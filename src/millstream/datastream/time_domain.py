"""Event time or processing time, under PyFlink's import path."""

from __future__ import annotations

from millstream.functions.functions import TimeDomain

__all__ = ["TimeDomain"]
