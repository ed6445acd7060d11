"""Literals: values of the text as bound expressions have them.

What it is: dates, times, timestamps and intervals as numbers (``expressions/nodes.py`` says which).
What it is not: CAST of texts that are columns.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Final

from millstream.expressions.nodes import Literal
from millstream.types.logical_types import (
    DateType,
    DayTimeIntervalType,
    TimeType,
    YearMonthIntervalType,
)

if TYPE_CHECKING:
    from millstream.sql.parser.expression_nodes import IntervalLiteral, TemporalLiteral

__all__ = ["interval_literal", "temporal_literal"]

_TEMPORAL: Final = re.compile(
    r"(?:(?P<date>\d{1,4}-\d{1,2}-\d{1,2}))?[ T]?"
    r"(?:(?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})(?:\.(?P<fraction>\d{0,9}))?)?"
)
_EPOCH: Final = dt.date(1970, 1, 1)
_SECOND: Final = 1_000_000_000
_DIGITS: Final = 9


def temporal_literal(node: TemporalLiteral) -> Literal:
    """DATE, TIME or TIMESTAMP.

    Raises:
        ValueError: there is no such day or time.
    """
    found = _TEMPORAL.fullmatch(node.text.strip())
    if found is None:
        message = f"'{node.text}' is no {node.type.as_summary_string()}"
        raise ValueError(message)
    days = 0
    if found["date"]:
        year, month, day = map(int, found["date"].split("-"))
        days = (dt.date(year, month, day) - _EPOCH).days
    nanos = 0
    if found["hour"]:
        clock = dt.time(int(found["hour"]), int(found["minute"]), int(found["second"]))
        seconds = clock.hour * 3600 + clock.minute * 60 + clock.second
        nanos = seconds * _SECOND + int((found["fraction"] or "").ljust(_DIGITS, "0")[:_DIGITS])
    if isinstance(node.type, DateType):
        return Literal(days, node.type)
    if isinstance(node.type, TimeType):
        return Literal(nanos, node.type)
    return Literal(days * 86_400 * _SECOND + nanos, node.type)


def interval_literal(node: IntervalLiteral) -> Literal:
    """INTERVAL: months, or milliseconds."""
    qualifier = node.qualifier
    units = [qualifier.start.value, *([qualifier.end.value] if qualifier.end else [])]
    if qualifier.is_year_month:
        units = ["MONTH" if unit == "QUARTER" else unit for unit in units]
        months = YearMonthIntervalType(" TO ".join(units), qualifier.precision or 4, nullable=False)
        return Literal(node.value, months)
    units = ["DAY" if unit == "WEEK" else unit for unit in units]
    fraction = 3 if qualifier.fraction is None else qualifier.fraction
    kind = DayTimeIntervalType(
        " TO ".join(units), min(qualifier.precision or 6, 6), fraction, nullable=False
    )
    return Literal(node.value, kind)
