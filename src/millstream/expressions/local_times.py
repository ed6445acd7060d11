"""Columns of instants on the clocks of a time zone, where Arrow knows them as Java does.

What it is: what kernels of casts and of temporal functions share.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.java.calendars import zone_of

#: 2037-01-01: from then on Arrow (26.0) leaves out daylight saving time.
_LAST_RULES: Final = 2_114_380_800
#: 0001-01-01 and the day after 9999-12-31, in days since 1970.
_FIRST_DAY: Final = -719_162
_BEHIND_DAYS: Final = 2_932_897
_PER_SECOND: Final = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def local_column(column: Any, zone: str) -> Any:
    """A column of instants as the session's clock shows them; None if Arrow cannot tell."""
    if is_utc(zone):
        plain = pa.timestamp(column.type.unit)
        if isinstance(column, pa.Array):
            return column.view(plain)
        return pc.cast(column, pa.timestamp(column.type.unit, "UTC")).cast(plain)
    if isinstance(column, pa.Array):
        latest = pc.max(column.cast(pa.int64())).as_py()
        if latest is not None and latest >= _LAST_RULES * _PER_SECOND[column.type.unit]:
            return None
    try:
        return pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, zone)))
    except (pa.ArrowInvalid, OSError):
        return None


def has_plain_years(column: Any) -> bool:
    """Whether all years of dates or timestamps are from 1 to 9999; Arrow errs beyond some."""
    if isinstance(column, pa.Scalar):
        column = pa.repeat(column, 1)
    is_date = pa.types.is_date(column.type)
    per_day = 1 if is_date else 86_400 * _PER_SECOND[column.type.unit]
    ends = pc.min_max(column.cast(pa.int32() if is_date else pa.int64())).as_py()
    if ends["min"] is None:
        return True
    return bool(_FIRST_DAY * per_day <= ends["min"] and ends["max"] < _BEHIND_DAYS * per_day)


def is_utc(zone: str) -> bool:
    """Whether a time zone is UTC by whatever name."""
    found = zone_of(zone)
    return found.rules is None and found.offset == 0
