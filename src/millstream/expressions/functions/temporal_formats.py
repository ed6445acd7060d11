"""Temporal functions between times and text or numbers, by one of Java's two formats each.

``DateTimeFormatter`` formats timestamps; the older ``SimpleDateFormat`` converts text to text or to
seconds.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError
from millstream.expressions.functions.definition import (
    BIGINT,
    STRING,
    FunctionGroup,
    Nullability,
    signature,
)
from millstream.expressions.functions.temporal import local_kernel_column
from millstream.expressions.java.calendars import (
    Zone,
    hybrid_days,
    legacy_zone,
    moment_of,
    zone_of,
)
from millstream.expressions.java.date_patterns import (
    InvalidPatternError,
    formatter_of,
    simple_format_of,
)
from millstream.types.logical_types import DateType, LocalZonedTimestampType, TimestampType
from millstream.types.text_values import days_of_civil, length_of_month
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.functions.definition import CallInfo
    from millstream.types.logical_types import LogicalType


functions = FunctionGroup("temporal")

_ALWAYS: Final = Nullability.ALWAYS
_NANOS: Final = 1_000_000_000
_MILLIS: Final = 1_000_000
_DAY: Final = 86_400 * _NANOS
_UTC: Final = Zone("UTC", 0)
_ISO_PATTERN: Final = "yyyy-MM-dd HH:mm:ss"
_LTZ: Final = TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE
_NOT_PARSED: Final = -(2**63)
_MOST_PRECISION: Final = 9
#: 0000-01-01 to 9999-12-31, in nanoseconds since 1970.
_LEAST_TIME: Final = -62_167_219_200 * _NANOS
_BEHIND_TIME: Final = 253_402_300_800 * _NANOS


# -- DATE_FORMAT ------------------------------------------------------------------------------

_STRFTIME: Final = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_SIMPLE_PARTS: Final = re.compile("yyyy|MM|dd|HH|mm|ss|[-/:. ,_]+")


def _strftime_of(pattern: str) -> str | None:
    parts = _SIMPLE_PARTS.findall(pattern)
    if "".join(parts) != pattern:
        return None
    return "".join(_STRFTIME.get(part, part) for part in parts)


def _date_format_kernel(info: CallInfo, column: Any, pattern: Any) -> Any:
    wanted = info.constants[1]
    local = local_kernel_column(info, column, info.argument_types[0])
    form = _strftime_of(wanted) if isinstance(wanted, str) else None
    if local is NotImplemented or form is None or local.null_count == len(local):
        return NotImplemented
    years = pc.min_max(pc.year(local))
    if years["min"].as_py() < 1000 or years["max"].as_py() > 9999:  # noqa: PLR2004 - four digits
        return NotImplemented
    return pc.strftime(pc.floor_temporal(local, unit="second").cast(pa.timestamp("s")), form)


@functions.scalar(
    "DATE_FORMAT",
    signature("string, string pattern", result=STRING, nullability=_ALWAYS),
    signature("timestamp, string pattern", result=STRING, nullability=_ALWAYS),
    kernel=_date_format_kernel,
    contextual=True,
    examples=(
        (
            "DATE_FORMAT(TIMESTAMP '2024-03-01 13:04:05.678', 'yyyy/MM/dd HH:mm')",
            "2024/03/01 13:04",
        ),
        ("DATE_FORMAT('2024-03-01 13:04:05', 'EEE, d MMM yyyy')", "Fri, 1 Mar 2024"),
    ),
)
def date_format(info: CallInfo, value: int | str, pattern: str) -> str | None:
    """A timestamp as text in a pattern of Java's ``DateTimeFormatter``, with English words.

    A TIMESTAMP_LTZ is shown on the session's clocks.  A string is first read as ``yyyy-MM-dd
    HH:mm:ss``, NULL if it is none, and the pattern is one of ``SimpleDateFormat``.
    """
    if isinstance(value, str):
        nanos = simple_format_of(_ISO_PATTERN).read(value, _UTC)
        return None if nanos is None else simple_format_of(pattern).write(nanos, _UTC)
    if info.argument_types[0].root is _LTZ:
        value = zone_of(info.context.time_zone).to_local(value)
    return formatter_of(pattern).write(moment_of(value))


# -- TO_TIMESTAMP, TO_DATE --------------------------------------------------------------------

_DEFAULT: Final = re.compile(
    r"([0-9]{4}|\+[0-9]{5,9})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?: ([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{0,9}))?)?"
)
_SQL_DATE: Final = re.compile("([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_SQL_TIME: Final = re.compile("([0-9]+):([0-9]+):([0-9]+)(?:[.]([0-9]{1,9}))?")


def _default_timestamp(text: str) -> int | None:
    match = _DEFAULT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    nano = int((match[7] or "").ljust(9, "0"))
    if not (1 <= month <= 12 and 1 <= day <= 31 and year and minute < 60 and second < 60):  # noqa: PLR2004
        return None
    if hour > 24 or (hour == 24 and (minute or second or nano)):  # noqa: PLR2004 - end of a day
        return None
    days = days_of_civil(year, month, min(day, length_of_month(year, month)))
    return days * _DAY + ((hour * 60 + minute) * 60 + second) * _NANOS + nano


def _sql_timestamp(text: str) -> int | None:
    """Return what ``java.sql.Timestamp`` and ``Date`` read, on which Flink falls back."""
    date, blank, time = text.strip("".join(map(chr, range(33)))).partition(" ")
    match = _SQL_DATE.fullmatch(date)
    if match is None:
        return None
    year, month, day = map(int, match.groups())
    if not (1 <= month <= 12 and 1 <= day <= 31):  # noqa: PLR2004 - of a calendar
        return None
    nanos = hybrid_days(year, month, day) * _DAY
    if not blank:
        return nanos
    clock = _SQL_TIME.fullmatch(time)
    if clock is None:
        return None
    hour, minute, second = (int(part) for part in clock.groups()[:3])
    fraction = int((clock[4] or "").ljust(9, "0"))
    return nanos + ((hour * 60 + minute) * 60 + second) * _NANOS + fraction


def _timestamp_of(text: str, pattern: str | None) -> int | None:
    """Nanoseconds of a local time; None if it is none, or the pattern is no pattern of Java's."""
    if pattern is None:
        return _default_timestamp(text)
    try:
        nanos = formatter_of(pattern).read(text)
    except InvalidPatternError:
        return None
    return _sql_timestamp(text) if nanos is None else nanos


@functions.scalar(
    "TO_TIMESTAMP",
    signature("string[, string pattern]", result=TimestampType(3), nullability=_ALWAYS),
    examples=(
        ("TO_TIMESTAMP('2024-03-01 13:04:05')", "2024-03-01 13:04:05.000"),
        ("TO_TIMESTAMP('01/03/2024 13', 'dd/MM/yyyy HH')", "2024-03-01 13:00:00.000"),
        ("TO_TIMESTAMP('yesterday')", "NULL"),
    ),
)
def to_timestamp(text: str, pattern: str | None = None) -> int | None:
    """The TIMESTAMP(3) of a text, by default ``yyyy-MM-dd HH:mm:ss`` with digits of the second.

    The pattern is one of Java's ``DateTimeFormatter``.  NULL if the text is not like that.
    """
    nanos = _timestamp_of(text, pattern)
    return None if nanos is None else nanos // _MILLIS * _MILLIS


def _ltz_type(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    precision = constants[1] if len(types) > 1 and isinstance(constants[1], int) else 3
    if not 0 <= precision <= _MOST_PRECISION:
        message = (
            f"The precision of TO_TIMESTAMP_LTZ must be between 0 and {_MOST_PRECISION} but was "
            f"{precision}."
        )
        raise ProgramError(message)
    return LocalZonedTimestampType(max(precision, 3))


def _ltz_type_of_text(_: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    """As many digits as the pattern has, three at least."""
    pattern, zone = [*constants[1:], None, None][:2]
    try:
        if isinstance(pattern, str):
            formatter_of(pattern)
        if isinstance(zone, str):
            zone_of(zone)
    except ValueError as error:
        message = f"TO_TIMESTAMP_LTZ: {error}"
        raise ProgramError(message) from error
    digits = pattern.count("S") if isinstance(pattern, str) else 0
    return LocalZonedTimestampType(max(digits, 3))


def _of_whole_numbers(info: CallInfo, column: Any, given: Any = None, zone: Any = None) -> Any:
    """The instants of whole numbers of milliseconds, or of what is longer."""
    del zone
    precision = 3 if given is None else info.constants[1]
    if (
        not isinstance(column, pa.Array)
        or not pa.types.is_integer(column.type)
        or not isinstance(precision, int)
        or not 0 <= precision <= 3  # noqa: PLR2004 - digits of milliseconds
    ):
        return NotImplemented
    unit = 10 ** (3 - precision)
    least, behind = (bound // _MILLIS // unit for bound in (_LEAST_TIME, _BEHIND_TIME))
    column = column.cast(pa.int64())
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is not None and not least <= bounds["min"] <= bounds["max"] < behind:
        is_there = pc.and_(pc.greater_equal(column, least), pc.less(column, behind))
        column = pc.if_else(is_there, column, pa.scalar(None, pa.int64()))
    if unit != 1:
        column = pc.multiply(column, unit)
    wanted = info.result_type.to_arrow()
    return column.view(wanted) if wanted.unit == "ms" else column.cast(wanted)


@functions.scalar(
    "TO_TIMESTAMP_LTZ",
    signature(
        "string[, string pattern, string time_zone]", result=_ltz_type_of_text, nullability=_ALWAYS
    ),
    signature("numeric[, integer precision]", result=_ltz_type, nullability=_ALWAYS),
    kernel=_of_whole_numbers,
    contextual=True,
    syntax="TO_TIMESTAMP_LTZ(numeric[, precision]), "
    "TO_TIMESTAMP_LTZ(string[, pattern[, time_zone]])",
    examples=(
        ("TO_TIMESTAMP_LTZ(100, 0)", "1970-01-01 00:01:40.000"),
        ("TO_TIMESTAMP_LTZ(100, 3)", "1970-01-01 00:00:00.100"),
        (
            "TO_TIMESTAMP_LTZ('2023-01-01 08:00:00', 'yyyy-MM-dd HH:mm:ss', 'Asia/Shanghai')",
            "2023-01-01 00:00:00.000",
        ),
    ),
)
def to_timestamp_ltz(
    info: CallInfo, value: Any, given: Any = None, time_zone: str = "UTC"
) -> int | None:
    """The instant so many units after 1970 (a second with precision 0, a millisecond with 3).

    The precision is 3 if not given; instants beyond the years 0 to 9999 are NULL.  A string is read
    as by TO_TIMESTAMP, on the clocks of UTC if no time zone is named, with as many digits of the
    second as the pattern has (three at least).  Without a pattern, a text that is no time fails;
    with one it is NULL, as it is where a column's pattern or time zone is none.
    """
    if isinstance(value, str):
        return _instant_of_text(info, value, given, time_zone)
    precision = 3 if given is None else given
    if not 0 <= precision <= _MOST_PRECISION:
        message = f"TO_TIMESTAMP_LTZ: the precision is 0 to {_MOST_PRECISION}, not {precision}"
        raise ValueError(message)
    unit = 10 ** (_MOST_PRECISION - precision)
    if isinstance(value, Decimal):
        value = int(value)
    if isinstance(value, float):
        if value != value:  # noqa: PLR0124 - NaN, which is 0 as a number of Java's
            return 0
        if abs(value) > _BEHIND_TIME:
            return None
        # Seconds keep their fraction down to milliseconds, other units none.
        nanos = int(value * 1000) * _MILLIS if precision == 0 else int(value) * unit
    else:
        nanos = value * unit
    return nanos if _LEAST_TIME <= nanos < _BEHIND_TIME else None


def _instant_of_text(info: CallInfo, text: str, pattern: str | None, zone: str) -> int | None:
    local = _timestamp_of(text, pattern)
    if local is None and pattern is None:
        message = f"TO_TIMESTAMP_LTZ: no timestamp: {text!r}"
        raise ValueError(message)
    wanted = info.result_type
    assert isinstance(wanted, LocalZonedTimestampType)  # noqa: S101 - of the signature
    clocks = _zone_or_none(zone)
    if local is None or clocks is None:
        return None
    return clocks.from_local(local - local % 10 ** (_MOST_PRECISION - wanted.precision))


def _zone_or_none(name: str) -> Zone | None:
    try:
        return zone_of(name)
    except ValueError:
        return None


_BEFORE_SPACE: Final = re.compile(r" *([0-9]+) *(?:- *([0-9]+) *(?:- *([0-9]+) *)?)?")


def _default_date(text: str) -> int | None:
    blank = text.find(" ")
    match = _BEFORE_SPACE.fullmatch(text[:blank] if blank > 0 else text)
    if match is None:
        return None
    year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
    if year > 9999 or not 1 <= month <= 12:  # noqa: PLR2004 - of a calendar
        return None
    return days_of_civil(year, month, day) if 1 <= day <= length_of_month(year, month) else None


@functions.scalar(
    "TO_DATE",
    signature("string[, string pattern]", result=DateType(), nullability=_ALWAYS),
    examples=(
        ("TO_DATE('2024-02-29')", "2024-02-29"),
        ("TO_DATE('10/02/2024', 'dd/MM/yyyy')", "2024-02-10"),
        ("TO_DATE('2024-02-30')", "NULL"),
    ),
)
def to_date(text: str, pattern: str | None = None) -> int | None:
    """The DATE of a text, by default ``yyyy-MM-dd``; NULL if it is none.

    The pattern is one of Java's ``SimpleDateFormat``, which counts on: 30 February is 1 March.
    """
    if pattern is None:
        return _default_date(text)
    nanos = simple_format_of(pattern).read(text, _UTC)
    return None if nanos is None else nanos // _DAY


# -- seconds since 1970 -----------------------------------------------------------------------


@functions.scalar(
    "UNIX_TIMESTAMP",
    signature(result=BIGINT, nullability=Nullability.NEVER),
    signature("string[, string pattern]", result=BIGINT),
    contextual=True,
    dynamic=True,
    syntax="UNIX_TIMESTAMP(), UNIX_TIMESTAMP(string[, pattern])",
    examples=(
        ("UNIX_TIMESTAMP('1970-01-01 00:00:44')", "44"),
        ("UNIX_TIMESTAMP('1970-01-01 08:00:01 +0800', 'yyyy-MM-dd HH:mm:ss X')", "1"),
        ("UNIX_TIMESTAMP('yesterday')", "-9223372036854775808"),
    ),
)
def unix_timestamp(info: CallInfo, text: str | None = None, pattern: str = _ISO_PATTERN) -> int:
    """Seconds since 1970: now, or of a text on the session's clocks.

    The pattern is one of Java's ``SimpleDateFormat``; a zone in the text counts more than the
    session's.  A text that is not like that gives -9223372036854775808.
    """
    if text is None:
        return info.context.processing_time // 1000
    nanos = simple_format_of(pattern).read(text, zone_of(info.context.time_zone))
    if nanos is None:
        return _NOT_PARSED
    return nanos // _NANOS if nanos >= 0 else -(-nanos // _NANOS)


@functions.scalar(
    "FROM_UNIXTIME",
    signature("integer seconds[, string pattern]", result=STRING, nullability=_ALWAYS),
    contextual=True,
    costly=True,
    examples=(
        ("FROM_UNIXTIME(44)", "1970-01-01 00:00:44"),
        ("FROM_UNIXTIME(44, 'yyyy:MM:dd')", "1970:01:01"),
    ),
)
def from_unixtime(info: CallInfo, seconds: int, pattern: str = _ISO_PATTERN) -> str:
    """The text of so many seconds since 1970 on the session's clocks.

    The pattern is one of Java's ``SimpleDateFormat``.
    """
    zone = zone_of(info.context.time_zone)
    return simple_format_of(pattern).write(seconds * _NANOS, zone)


@functions.scalar(
    "CONVERT_TZ",
    signature(
        "string datetime, string from_zone, string to_zone", result=STRING, nullability=_ALWAYS
    ),
    costly=True,
    examples=(
        ("CONVERT_TZ('1970-01-01 00:00:00', 'UTC', 'America/Los_Angeles')", "1969-12-31 16:00:00"),
    ),
)
def convert_tz(text: str, from_zone: str, to_zone: str) -> str | None:
    """A time as text, ``yyyy-MM-dd HH:mm:ss``, on the clocks of another time zone.

    Zones are names (``Europe/Berlin``), offsets (``GMT-08:00``) or Java's three letters (``PST``);
    as in Java, a zone that is not known is GMT.  NULL if the text is no time.
    """
    form = simple_format_of(_ISO_PATTERN)
    nanos = form.read(text, legacy_zone(from_zone))
    return None if nanos is None else form.write(nanos, legacy_zone(to_zone))
