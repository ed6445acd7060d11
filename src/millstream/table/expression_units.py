"""Words that methods of expressions take: units of time, and what JSON functions do.

What it is: PyFlink's enumerations, with its values.
"""

from __future__ import annotations

from enum import Enum

__all__ = [
    "JsonExistsOnError",
    "JsonOnNull",
    "JsonQueryOnEmptyOrError",
    "JsonQueryWrapper",
    "JsonType",
    "JsonValueOnEmptyOrError",
    "TimeIntervalUnit",
    "TimePointUnit",
]


class TimeIntervalUnit(Enum):
    """Units of lengths of time, and of parts of points in time."""

    YEAR = (0,)
    YEAR_TO_MONTH = (1,)
    QUARTER = (2,)
    MONTH = (3,)
    WEEK = (4,)
    DAY = (5,)
    DAY_TO_HOUR = (6,)
    DAY_TO_MINUTE = (7,)
    DAY_TO_SECOND = (8,)
    HOUR = (9,)
    SECOND = (10,)
    HOUR_TO_MINUTE = (11,)
    HOUR_TO_SECOND = (12,)
    MINUTE = (13,)
    MINUTE_TO_SECOND = 14


class TimePointUnit(Enum):
    """Units of points in time."""

    YEAR = (0,)
    MONTH = (1,)
    DAY = (2,)
    HOUR = (3,)
    MINUTE = (4,)
    SECOND = (5,)
    QUARTER = (6,)
    WEEK = (7,)
    MILLISECOND = (8,)
    MICROSECOND = 9


class JsonType(Enum):
    """Kinds of JSON that ``is_json`` tells apart."""

    VALUE = (0,)
    SCALAR = (1,)
    ARRAY = (2,)
    OBJECT = 3


class JsonExistsOnError(Enum):
    """What ``json_exists`` gives where the text is no JSON."""

    TRUE = (0,)
    FALSE = (1,)
    UNKNOWN = (2,)
    ERROR = 3


class JsonValueOnEmptyOrError(Enum):
    """What ``json_value`` gives where there is nothing."""

    NULL = (0,)
    ERROR = (1,)
    DEFAULT = 2


class JsonQueryWrapper(Enum):
    """When ``json_query`` puts an array around what it finds."""

    WITHOUT_ARRAY = (0,)
    CONDITIONAL_ARRAY = (1,)
    UNCONDITIONAL_ARRAY = 2


class JsonQueryOnEmptyOrError(Enum):
    """What ``json_query`` gives where there is nothing."""

    NULL = (0,)
    EMPTY_ARRAY = (1,)
    EMPTY_OBJECT = (2,)
    ERROR = 3


class JsonOnNull(Enum):
    """What objects and arrays of JSON do with NULL."""

    NULL = (0,)
    ABSENT = 1
