"""Columns of texts as columns of logical types: many values at once where Arrow agrees with Java.

What it is: what ``texts.py`` makes of each text, for a column.  A pattern, or a look at all bytes,
says whether Arrow's casts read the texts as Java does; a column that has others is read text by
text.
What it is not: about lines or objects (``csv_rows.py``, ``json_rows.py``).

Read next: ``connectors/formats/tables/texts.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.formats.exact_decimals import wide
from millstream.connectors.formats.tables.texts import text_parser
from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.types.logical_types import LogicalType

__all__ = ["EMPTY_TEXTS", "array_of_texts"]

#: Types of which the empty text is a value.
EMPTY_TEXTS: Final = (CharType, VarCharType, BinaryType, VarBinaryType)

_REAL: Final = r"^-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?$"
#: Python has no year 0.
_DATE: Final = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
#: In seconds since 1970.
_YEAR_1: Final = -62_135_596_800
_WITH_SECONDS: Final = len("2020-01-01 00:00:00")
#: Types whose columns Arrow reads after a look at all bytes.
_CHECKED: Final = (
    TinyIntType,
    SmallIntType,
    IntType,
    BigIntType,
    YearMonthIntervalType,
    TimestampType,
)
_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def array_of_texts(
    texts: pa.Array,
    kind: LogicalType,
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
    if isinstance(kind, ArrayType):
        elements = array_of_texts(
            texts.flatten(), kind.element, iso=iso, lenient=lenient, empty_is_null=empty_is_null
        )
        return _lists(texts, elements).cast(kind.to_arrow())
    if isinstance(kind, CharType | VarCharType):
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


def _fast(texts: pa.Array, kind: LogicalType, *, iso: bool | None) -> pa.Array | None:
    """The column, made by Arrow; None: some text is not what it takes."""
    if isinstance(kind, BooleanType):
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


def _checked_cast(texts: pa.Array, kind: LogicalType, *, iso: bool | None) -> pa.Array | None:
    """A column of whole numbers or times, where looks at all bytes tell more than a pattern.

    Arrow's casts take what Java does, and besides hexadecimal numbers, times of the other standard
    or without seconds, and the year 0, which Python does not have.
    """
    data = _bytes_of(texts)
    wrong = [b"x", b"X"]
    if isinstance(kind, TimestampType):
        wrong = [] if iso is None else [b" " if iso else b"T"]
    if any(each in data for each in wrong):
        return None
    try:
        found = texts.cast(kind.to_arrow())
    except pa.ArrowException:
        return None
    if not isinstance(kind, TimestampType) or found.null_count == len(found):
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
    kind: LogicalType, *, iso: bool | None
) -> str | None:
    """What all texts must match so that Arrow may read them."""
    if isinstance(kind, FloatType | DoubleType):
        return _REAL
    if isinstance(kind, DecimalType):
        whole = kind.precision - kind.scale
        if not whole:
            return None
        fraction = rf"(\.[0-9]{{1,{kind.scale}}})?" if kind.scale else ""
        return rf"^-?[0-9]{{1,{whole}}}{fraction}$"
    if isinstance(kind, DateType):
        return f"^{_DATE}$"
    if isinstance(kind, TimeType):
        return f"^{_CLOCK}$"
    if isinstance(kind, LocalZonedTimestampType):
        between = "[ T]" if iso is None else "T" if iso else " "
        digits = _DIGITS[kind.to_arrow().unit]
        return rf"^{_DATE}{between}{_CLOCK}(\.[0-9]{{1,{digits}}})?Z$"
    return None


def _steps(
    kind: LogicalType, target: pa.DataType
) -> Sequence[pa.DataType | Callable[[pa.Array], pa.Array]]:
    """Casts, and what goes between them."""
    if isinstance(kind, FloatType):
        return (pa.float64(), target)  # as the values that are read one by one
    if isinstance(kind, DecimalType):
        return (wide(target), target)
    if isinstance(kind, TimeType):
        return (_on_a_day, pa.timestamp(target.unit), target)
    if isinstance(kind, LocalZonedTimestampType):
        return (lambda texts: pc.utf8_rtrim(texts, "Z"), pa.timestamp(target.unit), target)
    return (target,)


def _on_a_day(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise("1970-01-01", texts, " ")
