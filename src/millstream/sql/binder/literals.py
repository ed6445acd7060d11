"""Literals: values of the text as bound expressions have them.

What it is: dates, times, timestamps and intervals as numbers (``expressions/nodes.py`` says which).
What it is not: CAST of texts that are columns.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from millstream.expressions.decimals import EXACT
from millstream.expressions.nodes import Literal
from millstream.types.logical_types import (
    DateType,
    DayTimeIntervalType,
    DecimalType,
    TimeType,
    YearMonthIntervalType,
)
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from millstream.sql.parser.expression_nodes import IntervalLiteral, TemporalLiteral
    from millstream.types.logical_types import LogicalType

__all__ = ["interval_literal", "temporal_literal", "typed_literal"]

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


def typed_literal(literal: Literal, kind: LogicalType) -> Literal | None:
    """A literal as one of another type, without a cast; None if its value would be another."""
    value, root = literal.value, kind.root
    if value is None:
        return Literal(None, kind)
    wanted = kind.with_nullability(False)  # noqa: FBT003
    families = TypeFamily.CHARACTER_STRING, TypeFamily.TIMESTAMP, TypeFamily.INTEGER_NUMERIC
    same_form = any(literal.type.is_a(each) and kind.is_a(each) for each in families)
    if same_form and root is not TypeRoot.CHAR:
        return Literal(value, wanted)
    if isinstance(kind, DecimalType) and isinstance(value, int | Decimal):
        step = Decimal(1).scaleb(-kind.scale)
        return Literal(Decimal(value).quantize(step, context=EXACT), wanted)
    if root is TypeRoot.DOUBLE and isinstance(value, int | float | Decimal):
        return Literal(float(value), wanted)
    return None


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
