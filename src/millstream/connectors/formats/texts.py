"""Text as values of logical types, and times as text, by the rules of Flink's formats.

A number may have a sign and blanks around it, not underscores; dates and times have all digits.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.formats.json_format import wide
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


INTEGER_BITS: Final[dict[type, int]] = {
    lt.TinyIntType: 8,
    lt.SmallIntType: 16,
    lt.IntType: 32,
    lt.BigIntType: 64,
    lt.YearMonthIntervalType: 32,
    lt.DayTimeIntervalType: 64,
}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_REAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[+-]?(?:NaN|Infinity)")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{0,9}))?")
_ISO_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{0,9}))?)?")
_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
_DAY: Final = 86_400_000_000_000
#: Nanoseconds.
_UNITS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DATE_DIGITS: Final = 10
#: The least number of 64 bits is none of a time to Arrow.
_LEAST: Final = 1 - (1 << 63)
#: Arithmetic on decimals of any type; the default has 28 digits.
EXACT: Final = Context(prec=200, rounding=ROUND_HALF_UP)


def integer(text: str, bits: int) -> int:
    """A whole number of so many bits; ValueError if it is none."""
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped):
        found = int(stripped)
        if -(1 << bits - 1) <= found < 1 << bits - 1:
            return found
    message = f"{text!r} is no whole number of {bits} bits"
    raise ValueError(message)


def _real(text: str) -> float:
    stripped = text.strip()
    if _REAL.fullmatch(stripped):
        return float(stripped.rstrip("fFdD"))
    if _NOT_FINITE.fullmatch(stripped):
        return float(stripped)
    message = f"{text!r} is no number"
    raise ValueError(message)


def rounded(value: Decimal, kind: lt.DecimalType) -> Decimal | None:
    """A number with the digits of a type; None if it does not fit."""
    found = value.quantize(Decimal(1).scaleb(-kind.scale), context=EXACT)
    return None if len(found.as_tuple().digits) > kind.precision and found else found


def _decimal(text: str, kind: lt.DecimalType) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        message = f"{text!r} is no decimal number"
        raise ValueError(message)
    return rounded(Decimal(text), kind)


def _days(text: str) -> int:
    if not _DATE.fullmatch(text):
        message = f"{text!r} is no date as 2024-12-31"
        raise ValueError(message)
    return dt.date.fromisoformat(text).toordinal() - _EPOCH


def _nanoseconds(text: str, pattern: re.Pattern[str]) -> int:
    """The time of day."""
    found = pattern.fullmatch(text)
    if found is None:
        message = f"{text!r} is no time as 23:59:59"
        raise ValueError(message)
    hour, minute, second, fraction = (each or "0" for each in found.groups())
    clock = dt.time(int(hour), int(minute), int(second))
    seconds = clock.hour * 3600 + clock.minute * 60 + clock.second
    return seconds * 10**9 + int(fraction.ljust(9, "0"))


def _instant(text: str, unit: str, *, iso: bool | None, zoned: bool) -> int:
    separators = " T" if iso is None else "T" if iso else " "
    day, between, clock = text[:_DATE_DIGITS], text[_DATE_DIGITS:][:1], text[_DATE_DIGITS + 1 :]
    if not between or between not in separators or zoned != clock.endswith("Z"):
        example = f"2024-12-31{separators[0]}23:59:59.999{'Z' if zoned else ''}"
        message = f"{text!r} is no timestamp as {example}"
        raise ValueError(message)
    pattern = _ISO_TIME if between == "T" else _TIME
    found = (_days(day) * _DAY + _nanoseconds(clock.removesuffix("Z"), pattern)) // _UNITS[unit]
    if not _LEAST <= found <= -_LEAST:
        message = f"{text!r} is too far away for nanoseconds"
        raise ValueError(message)
    return found


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        message = f"{text!r:.100} is not base64: {error}"
        raise ValueError(message) from error


def text_parser(  # noqa: C901, PLR0911 - a table
    kind: lt.LogicalType, *, iso: bool | None = False
) -> Callable[[str], Any] | None:
    """Return what makes values of texts; None for types that no text holds.

    Args:
        kind: the type.
        iso: whether timestamps are ISO 8601 (``T`` between date and time) or SQL; None: either.
    """
    bits = INTEGER_BITS.get(type(kind))
    if bits is not None:
        return lambda text: integer(text, bits)
    if isinstance(kind, lt.CharType | lt.VarCharType):
        return str
    if isinstance(kind, lt.BooleanType):
        return lambda text: text.strip().lower() == "true"
    if isinstance(kind, lt.FloatType | lt.DoubleType):
        return _real
    if isinstance(kind, lt.DecimalType):
        return lambda text: _decimal(text, kind)
    if isinstance(kind, lt.DateType):
        return _days
    if isinstance(kind, lt.TimeType):
        unit = _UNITS[kind.to_arrow().unit]
        return lambda text: _nanoseconds(text, _TIME) // unit
    if isinstance(kind, lt.TimestampType):
        return lambda text: _instant(text, kind.unit, iso=iso, zoned=False)
    if isinstance(kind, lt.LocalZonedTimestampType):
        return lambda text: _instant(text, kind.unit, iso=iso, zoned=True)
    if isinstance(kind, lt.BinaryType | lt.VarBinaryType):
        return _base64
    return None


def time_text(value: dt.time) -> str:
    """A time of day without zeros at the end of its fraction."""
    text = value.isoformat()
    return text.rstrip("0") if "." in text else text


def timestamp_text(value: dt.datetime, *, iso: bool, zoned: bool) -> str:
    """A timestamp as Flink's JSON has it, in UTC if it is zoned."""
    nanoseconds = value.microsecond * 1000 + int(getattr(value, "nanosecond", 0))
    text = value.strftime("%Y-%m-%dT%H:%M:%S" if iso else "%Y-%m-%d %H:%M:%S")
    if value.year < 1000:  # noqa: PLR2004 - strftime leaves zeros away
        text = f"{value.year:04d}{text[text.index('-') :]}"
    if nanoseconds:
        text += f".{nanoseconds:09d}".rstrip("0")
    return text + "Z" if zoned else text


#: Types of which the empty text is a value.
EMPTY_TEXTS: Final = (lt.CharType, lt.VarCharType, lt.BinaryType, lt.VarBinaryType)

_PLAIN_REAL: Final = r"^-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?$"
#: Python has no year 0.
_PLAIN_DATE: Final = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
#: In seconds since 1970.
_YEAR_1: Final = -62_135_596_800
_WITH_SECONDS: Final = len("2020-01-01 00:00:00")
#: Types whose columns Arrow reads after a look at all bytes.
_CHECKED: Final = (
    lt.TinyIntType,
    lt.SmallIntType,
    lt.IntType,
    lt.BigIntType,
    lt.YearMonthIntervalType,
    lt.TimestampType,
)
_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def array_of_texts(
    texts: pa.Array,
    kind: lt.LogicalType,
    *,
    iso: bool | None = False,
    lenient: bool = False,
    empty_is_null: bool = False,
) -> pa.Array:
    """A column of a logical type.

    Args:
        texts: the column, of texts, or of lists of them where the type is an array.
        kind: the type; ``text_parser`` knows it, or its elements.
        iso: whether timestamps are ISO 8601; None: that or SQL's.
        lenient: whether what does not parse is NULL.
        empty_is_null: whether the empty text is NULL where it is no value (``EMPTY_TEXTS``).

    Raises:
        ValueError: a text does not parse.
    """
    if isinstance(kind, lt.ArrayType):
        elements = array_of_texts(
            texts.flatten(), kind.element, iso=iso, lenient=lenient, empty_is_null=empty_is_null
        )
        return _lists(texts, elements).cast(kind.to_arrow())
    if isinstance(kind, lt.CharType | lt.VarCharType):
        return texts
    if empty_is_null and not isinstance(kind, EMPTY_TEXTS):
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    fast = _fast(texts, kind, iso=iso)
    if fast is not None:
        return fast
    parse: Any = text_parser(kind, iso=iso)
    values = [_value(text, parse, lenient=lenient) for text in texts.to_pylist()]
    return pa.array(values, kind.to_arrow())


def _lists(texts: pa.Array, elements: pa.Array) -> pa.Array:
    """The lists of ``texts`` with other elements; those that are null have none."""
    lengths = pc.fill_null(pc.list_value_length(texts), 0)
    offsets = pa.array([0, *pc.cumulative_sum(lengths).to_pylist()], pa.int32())
    missing = texts.is_null() if texts.null_count else None
    return pa.ListArray.from_arrays(offsets, elements, mask=missing)


def _value(text: str | None, parse: Callable[[str], Any], *, lenient: bool) -> Any:
    if text is None:
        return None
    try:
        return parse(text)
    except (ValueError, ArithmeticError):
        if lenient:
            return None
        raise


def _fast(texts: pa.Array, kind: lt.LogicalType, *, iso: bool | None) -> pa.Array | None:
    """The column, made by Arrow; None: some text is not what it takes."""
    if isinstance(kind, lt.BooleanType):
        return pc.equal(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), "true")
    if isinstance(kind, _CHECKED):
        return _checked_cast(texts, kind, iso=iso)
    pattern = _pattern(kind, iso=iso)
    if pattern is None or pc.any(pc.invert(pc.match_substring_regex(texts, pattern))).as_py():
        return None
    target = kind.to_arrow()
    try:
        for step in _steps(kind, target):
            texts = step(texts) if callable(step) else texts.cast(step)
    except pa.ArrowException:
        return None
    return texts


def _checked_cast(texts: pa.Array, kind: lt.LogicalType, *, iso: bool | None) -> pa.Array | None:
    """A column of whole numbers or times, where looks at all bytes tell more than a pattern.

    Arrow's casts take what Java does, and besides hexadecimal numbers, times of the other standard
    or without seconds, and the year 0, which Python does not have.
    """
    data = _bytes_of(texts)
    wrong = [b"x", b"X"]
    if isinstance(kind, lt.TimestampType):
        wrong = [] if iso is None else [b" " if iso else b"T"]
    if any(each in data for each in wrong):
        return None
    try:
        found = texts.cast(kind.to_arrow())
    except pa.ArrowException:
        return None
    if not isinstance(kind, lt.TimestampType) or found.null_count == len(found):
        return found
    has_seconds = pc.min(pc.binary_length(texts)).as_py() >= _WITH_SECONDS
    first = pc.min(found).cast(pa.timestamp("s"), safe=False).cast(pa.int64()).as_py()
    return found if has_seconds and first >= _YEAR_1 else None


def _bytes_of(texts: pa.Array) -> bytes:
    """The characters of all texts."""
    offsets, data = texts.buffers()[1:]
    if data is None or offsets is None:
        return b""
    ends = np.frombuffer(offsets, np.int32)
    start, stop = int(ends[texts.offset]), int(ends[texts.offset + len(texts)])
    return bytes(data.slice(start, stop - start))


def _pattern(  # noqa: PLR0911 - a table
    kind: lt.LogicalType, *, iso: bool | None
) -> str | None:
    """Return what all texts must match so that Arrow may read them."""
    if isinstance(kind, lt.FloatType | lt.DoubleType):
        return _PLAIN_REAL
    if isinstance(kind, lt.DecimalType):
        whole = kind.precision - kind.scale
        if not whole:
            return None
        fraction = rf"(\.[0-9]{{1,{kind.scale}}})?" if kind.scale else ""
        return rf"^-?[0-9]{{1,{whole}}}{fraction}$"
    if isinstance(kind, lt.DateType):
        return f"^{_PLAIN_DATE}$"
    if isinstance(kind, lt.TimeType):
        return f"^{_CLOCK}$"
    if isinstance(kind, lt.LocalZonedTimestampType):
        between = "[ T]" if iso is None else "T" if iso else " "
        digits = _DIGITS[kind.to_arrow().unit]
        return rf"^{_PLAIN_DATE}{between}{_CLOCK}(\.[0-9]{{1,{digits}}})?Z$"
    return None


def _steps(
    kind: lt.LogicalType, target: pa.DataType
) -> Sequence[pa.DataType | Callable[[pa.Array], pa.Array]]:
    """Casts, and what goes between them."""
    if isinstance(kind, lt.FloatType):
        return (pa.float64(), target)  # as the values that are read one by one
    if isinstance(kind, lt.DecimalType):
        return (wide(target), target)
    if isinstance(kind, lt.TimeType):
        return (_on_a_day, pa.timestamp(target.unit), target)
    if isinstance(kind, lt.LocalZonedTimestampType):
        return (lambda texts: pc.utf8_rtrim(texts, "Z"), pa.timestamp(target.unit), target)
    return (target,)


def _on_a_day(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise("1970-01-01", texts, " ")
