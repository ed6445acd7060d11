"""SqlDialect: the dialects that ``TableConfig`` names."""

from __future__ import annotations

from enum import Enum


class SqlDialect(Enum):
    """Dialects of SQL; only the default one is here."""

    DEFAULT = 0
    HIVE = 1
