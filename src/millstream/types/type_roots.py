"""Roots and families of logical types, as Flink names them."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class TypeFamily(Enum):
    """A family of types."""

    PREDEFINED = auto()
    CONSTRUCTED = auto()
    CHARACTER_STRING = auto()
    BINARY_STRING = auto()
    NUMERIC = auto()
    INTEGER_NUMERIC = auto()
    EXACT_NUMERIC = auto()
    APPROXIMATE_NUMERIC = auto()
    DATETIME = auto()
    TIME = auto()
    TIMESTAMP = auto()
    INTERVAL = auto()
    COLLECTION = auto()
    EXTENSION = auto()


class TypeRoot(Enum):
    """Which type it is, whatever its arguments."""

    CHAR = auto()
    VARCHAR = auto()
    BOOLEAN = auto()
    BINARY = auto()
    VARBINARY = auto()
    DECIMAL = auto()
    TINYINT = auto()
    SMALLINT = auto()
    INTEGER = auto()
    BIGINT = auto()
    FLOAT = auto()
    DOUBLE = auto()
    DATE = auto()
    TIME_WITHOUT_TIME_ZONE = auto()
    TIMESTAMP_WITHOUT_TIME_ZONE = auto()
    TIMESTAMP_WITH_LOCAL_TIME_ZONE = auto()
    INTERVAL_YEAR_MONTH = auto()
    INTERVAL_DAY_TIME = auto()
    ARRAY = auto()
    MULTISET = auto()
    MAP = auto()
    ROW = auto()
    RAW = auto()
    BITMAP = auto()
    VARIANT = auto()
    NULL = auto()
    SYMBOL = auto()

    @property
    def families(self) -> frozenset[TypeFamily]:
        """The families that it belongs to."""
        return _FAMILIES[self]


_F: Final = TypeFamily
_EXACT: Final = frozenset({_F.PREDEFINED, _F.NUMERIC, _F.EXACT_NUMERIC})
_INTEGER: Final = _EXACT | {_F.INTEGER_NUMERIC}
_APPROXIMATE: Final = frozenset({_F.PREDEFINED, _F.NUMERIC, _F.APPROXIMATE_NUMERIC})
_CHARACTER: Final = frozenset({_F.PREDEFINED, _F.CHARACTER_STRING})
_BINARY: Final = frozenset({_F.PREDEFINED, _F.BINARY_STRING})
_TIMESTAMP: Final = frozenset({_F.PREDEFINED, _F.DATETIME, _F.TIMESTAMP})
_INTERVAL: Final = frozenset({_F.PREDEFINED, _F.INTERVAL})

_FAMILIES: Final[dict[TypeRoot, frozenset[TypeFamily]]] = {
    TypeRoot.CHAR: _CHARACTER,
    TypeRoot.VARCHAR: _CHARACTER,
    TypeRoot.BOOLEAN: frozenset({_F.PREDEFINED}),
    TypeRoot.BINARY: _BINARY,
    TypeRoot.VARBINARY: _BINARY,
    TypeRoot.DECIMAL: _EXACT,
    TypeRoot.TINYINT: _INTEGER,
    TypeRoot.SMALLINT: _INTEGER,
    TypeRoot.INTEGER: _INTEGER,
    TypeRoot.BIGINT: _INTEGER,
    TypeRoot.FLOAT: _APPROXIMATE,
    TypeRoot.DOUBLE: _APPROXIMATE,
    TypeRoot.DATE: frozenset({_F.PREDEFINED, _F.DATETIME}),
    TypeRoot.TIME_WITHOUT_TIME_ZONE: frozenset({_F.PREDEFINED, _F.DATETIME, _F.TIME}),
    TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE: _TIMESTAMP,
    TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE: _TIMESTAMP | {_F.EXTENSION},
    TypeRoot.INTERVAL_YEAR_MONTH: _INTERVAL,
    TypeRoot.INTERVAL_DAY_TIME: _INTERVAL,
    TypeRoot.ARRAY: frozenset({_F.CONSTRUCTED, _F.COLLECTION}),
    TypeRoot.MULTISET: frozenset({_F.CONSTRUCTED, _F.COLLECTION}),
    TypeRoot.MAP: frozenset({_F.CONSTRUCTED, _F.EXTENSION}),
    TypeRoot.ROW: frozenset({_F.CONSTRUCTED}),
    TypeRoot.RAW: frozenset({_F.EXTENSION}),
    TypeRoot.BITMAP: frozenset({_F.EXTENSION}),
    TypeRoot.VARIANT: frozenset({_F.EXTENSION}),
    TypeRoot.NULL: frozenset({_F.EXTENSION}),
    TypeRoot.SYMBOL: frozenset({_F.EXTENSION}),
}


#: The width of the integers.
INTEGER_BITS: Final = {
    TypeRoot.TINYINT: 8,
    TypeRoot.SMALLINT: 16,
    TypeRoot.INTEGER: 32,
    TypeRoot.BIGINT: 64,
}
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
