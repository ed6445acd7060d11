"""Values of literals: numbers with their types, dates and times, intervals.

Nothing here knows tokens: texts come in, values or what is wrong with them come out.  Read next:
``expression_parser.py``.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Final

from millstream.sql.parser.expression_nodes import IntervalQualifier, Literal, TimeUnit
from millstream.types.logical_types import (
    MAX_DECIMAL_PRECISION,
    BigIntType,
    DateType,
    DecimalType,
    DoubleType,
    IntType,
    LocalZonedTimestampType,
    LogicalType,
    TimestampType,
    TimeType,
)

if TYPE_CHECKING:
    from millstream.sql.parser.syntax import Position

__all__ = ["interval_value", "numeric_literal", "temporal"]

_INT: Final = IntType(nullable=False)
_BIGINT: Final = BigIntType(nullable=False)
_DOUBLE: Final = DoubleType(nullable=False)
_MAX_INT: Final = 2**31 - 1
_MAX_BIGINT: Final = 2**63 - 1
_EXACT: Final = Context(prec=2 * MAX_DECIMAL_PRECISION)


def numeric_literal(text: str, position: Position) -> Literal:
    """The literal that a number is.

    Raises:
        ValueError: It has more digits than the longest decimal, or is no finite double.
    """
    if "e" in text or "E" in text:
        value = float(text)
        if value in {float("inf"), float("-inf")}:
            message = f"the number {text} does not fit into a DOUBLE"
            raise ValueError(message)
        return Literal(value, _DOUBLE, position=position)
    whole, _, fraction = text.partition(".")
    digits = (whole + fraction).lstrip("0")
    precision = max(len(digits), len(fraction), 1)
    if precision > MAX_DECIMAL_PRECISION:
        message = f"a number has at most {MAX_DECIMAL_PRECISION} digits, this one {precision}"
        raise ValueError(message)
    if fraction:
        type_: LogicalType = DecimalType(precision, len(fraction), nullable=False)
        return Literal(_EXACT.create_decimal(text), type_, position=position)
    number = int(whole)
    if number <= _MAX_BIGINT:
        return Literal(number, _INT if number <= _MAX_INT else _BIGINT, position=position)
    type_ = DecimalType(precision, 0, nullable=False)
    return Literal(Decimal(number), type_, position=position)


# --- dates and times

_DATE: Final = r"(\d{4})-(\d{1,2})-(\d{1,2})"
_TIME: Final = r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?"
_PATTERNS: Final = {
    "DATE": re.compile(_DATE, re.ASCII),
    "TIME": re.compile(_TIME, re.ASCII),
    # A day alone is its midnight, as in Flink.
    "TIMESTAMP": re.compile(f"{_DATE}(?:[ T]{_TIME})?", re.ASCII),
    "TIMESTAMP_LTZ": re.compile(f"{_DATE}[ T]{_TIME}", re.ASCII),
}
_FORMATS: Final = {
    "DATE": "'yyyy-mm-dd'",
    "TIME": "'hh:mm:ss', maybe with a fraction of up to 9 digits",
    "TIMESTAMP": "'yyyy-mm-dd' or 'yyyy-mm-dd hh:mm:ss', maybe with a fraction of up to 9 digits",
    "TIMESTAMP_LTZ": "'yyyy-mm-dd hh:mm:ss', maybe with a fraction of up to 9 digits",
}


def temporal(kind: str, text: str) -> tuple[str, LogicalType]:
    """The text and the type of a date, a time or a timestamp.

    Args:
        kind: DATE, TIME, TIMESTAMP or TIMESTAMP_LTZ.
        text: What stands in the quotes.

    Returns:
        The text with all zeros (``2024-01-01``), and the type, NOT NULL.

    Raises:
        ValueError: The text is none, or there is no such day or time.
    """
    match = _PATTERNS[kind].fullmatch(text.strip())
    if match is None:
        message = f"{kind} takes {_FORMATS[kind]}"
        raise ValueError(message)
    groups = list(match.groups())
    date = time = ""
    try:
        if kind != "TIME":
            date = dt.date(*map(int, groups[:3])).isoformat()
        if kind != "DATE":
            hour, minute, second, fraction = groups[-4:]
            time = dt.time(int(hour or 0), int(minute or 0), int(second or 0)).isoformat()
            time += f".{fraction}" if fraction else ""
    except ValueError as error:
        message = f"there is no {kind} '{text}': {error}"
        raise ValueError(message) from None
    digits = len(time.partition(".")[2])
    return f"{date} {time}".strip(), _temporal_type(kind, digits)


def _temporal_type(kind: str, digits: int) -> LogicalType:
    if kind == "DATE":
        return DateType(nullable=False)
    if kind == "TIME":
        return TimeType(digits, nullable=False)
    if kind == "TIMESTAMP":
        return TimestampType(digits, nullable=False)
    return LocalZonedTimestampType(digits, nullable=False)


# --- intervals

_MILLIS: Final = {
    TimeUnit.WEEK: 7 * 86_400_000,
    TimeUnit.DAY: 86_400_000,
    TimeUnit.HOUR: 3_600_000,
    TimeUnit.MINUTE: 60_000,
    TimeUnit.SECOND: 1_000,
}
_MONTHS: Final = {TimeUnit.YEAR: 12, TimeUnit.QUARTER: 3, TimeUnit.MONTH: 1}
#: Units of an interval of several, in order, with what stands before each but the first.
_SERIES: Final = (
    (TimeUnit.YEAR, ""),
    (TimeUnit.MONTH, "-"),
    (TimeUnit.DAY, ""),
    (TimeUnit.HOUR, " "),
    (TimeUnit.MINUTE, ":"),
    (TimeUnit.SECOND, ":"),
)
_LARGEST: Final = {
    TimeUnit.MONTH: 11,
    TimeUnit.HOUR: 23,
    TimeUnit.MINUTE: 59,
    TimeUnit.SECOND: 59,
}
_EXAMPLES: Final = {
    "YEAR TO MONTH": "'1-6'",
    "DAY TO HOUR": "'1 12'",
    "DAY TO MINUTE": "'1 12:30'",
    "DAY TO SECOND": "'1 12:30:00.000'",
    "HOUR TO MINUTE": "'12:30'",
    "HOUR TO SECOND": "'12:30:00.000'",
    "MINUTE TO SECOND": "'30:00.000'",
    "SECOND": "'5' or '5.250'",
}


def interval_value(text: str, qualifier: IntervalQualifier) -> int:
    """Months or milliseconds of an interval.

    Args:
        text: What stands in the quotes.
        qualifier: The units behind it.

    Raises:
        ValueError: The text does not fit the units.
    """
    units = _units(qualifier)
    pattern = "".join(
        (sign if index else "") + (r"(\d+(?:\.\d{0,9})?)" if unit is TimeUnit.SECOND else r"(\d+)")
        for index, (unit, sign) in enumerate(units)
    )
    match = re.fullmatch(r"\s*([+-]?)" + pattern + r"\s*", text, re.ASCII)
    name = qualifier.start.value
    name += f" TO {qualifier.end}" if qualifier.end is not None else ""
    if match is None:
        example = _EXAMPLES.get(name, "'5'")
        message = f"an interval of {name} takes {example}, not '{text}'"
        raise ValueError(message)
    total = 0
    for index, (unit, _) in enumerate(units):
        amount = Decimal(match[index + 2])
        if index and int(amount) > _LARGEST[unit]:
            message = f"an interval of {name} has at most {_LARGEST[unit]} {unit}S, not {amount}"
            raise ValueError(message)
        total += int(amount * (_MILLIS.get(unit) or _MONTHS[unit]))
    return -total if match[1] == "-" else total


def _units(qualifier: IntervalQualifier) -> list[tuple[TimeUnit, str]]:
    if qualifier.end is None:
        return [(qualifier.start, "")]
    order = [unit for unit, _ in _SERIES]
    return list(_SERIES[order.index(qualifier.start) : order.index(qualifier.end) + 1])
