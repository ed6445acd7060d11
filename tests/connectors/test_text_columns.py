"""Columns of texts are what each text is by itself."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from millstream.connectors.formats.texts import array_of_texts, text_parser
from millstream.types.logical_types import (
    BigIntType,
    IntType,
    LogicalType,
    SmallIntType,
    TimestampType,
    TinyIntType,
)

_NUMBERS = (
    *("5", "-7", "00012", "127", "128", "-129", "32768", "2147483648", "9223372036854775808"),
    *("0x1F", "0X1f", "+5", " 5", "1e2", "1_0", "", "٣"),
)
_TIMES = (
    *("2020-01-01 00:00:00", "2020-12-31T23:59:59", "1970-01-01 12:30:15.123"),
    *("0001-01-01 00:00:00", "0000-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    *("2019-02-29 00:00:00", "2020-01-01 10:00", "2020-01-01", "2020-01-01 10:00:00Z"),
)
_CHARACTERS = "0123456789-:T .xX+Z /"


def _changed(text: str, drawn: random.Random) -> str:
    for _ in range(drawn.choice((0, 1, 2))):
        at = drawn.randint(0, len(text))
        text = text[:at] + drawn.choice(("", drawn.choice(_CHARACTERS))) + text[at + 1 :]
    return text


@pytest.mark.parametrize(
    "kind",
    [
        *(TinyIntType(), SmallIntType(), IntType(), BigIntType()),
        *(TimestampType(precision=digits) for digits in (0, 3, 6, 9)),
    ],
    ids=LogicalType.as_summary_string,
)
def test_a_column_is_what_its_texts_are(kind: LogicalType) -> None:
    is_time = isinstance(kind, TimestampType)
    drawn = random.Random(1)
    for iso in (False, True, None) if is_time else (False,):
        parse = text_parser(kind, iso=iso)
        assert parse is not None
        for _ in range(400):
            text = _changed(drawn.choice(_TIMES if is_time else _NUMBERS), drawn)
            try:
                wanted = pa.array([None, parse(text)], kind.to_arrow())
            except (ValueError, ArithmeticError):
                wanted = pa.nulls(2, kind.to_arrow())
            # A slice, so that bytes of its neighbours do not count.
            texts = pa.array(["x T", None, text, "x T"]).slice(1, 2)
            assert array_of_texts(texts, kind, iso=iso, lenient=True).equals(wanted), text
