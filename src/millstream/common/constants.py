"""The bounds of a long integer under PyFlink's import path."""

from __future__ import annotations

from millstream.types.time import MAX_TIMESTAMP as MAX_LONG_VALUE
from millstream.types.time import MIN_TIMESTAMP as MIN_LONG_VALUE

__all__ = ["MAX_LONG_VALUE", "MIN_LONG_VALUE"]
