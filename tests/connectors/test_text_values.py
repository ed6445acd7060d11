"""Records of typed streams as Flink prints them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from millstream.connectors.formats.text_values import text_function
from millstream.types.row import Row, RowKind
from millstream.types.time import Instant
from millstream.types.types import Types

if TYPE_CHECKING:
    from millstream.types.types import TypeInformation

NOON = dt.datetime(2021, 1, 9, 12)  # noqa: DTZ001 - without a zone, as SQL_TIMESTAMP is
FLOAT_1_1 = 1.100000023841858
ROW = Types.ROW([Types.FLOAT(), Types.DOUBLE(), Types.BOOLEAN(), Types.STRING()])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Types.FLOAT(), FLOAT_1_1, "1.1"),
        (Types.DOUBLE(), FLOAT_1_1, "1.100000023841858"),
        (Types.DOUBLE(), 1e7, "1.0E7"),
        (Types.DOUBLE(), float("nan"), "NaN"),
        (Types.FLOAT(), None, "null"),
        (Types.LONG(), 7, "7"),
        (Types.BOOLEAN(), True, "true"),
        (ROW, Row(FLOAT_1_1, 2.0, None, "a"), "+I[1.1, 2.0, null, a]"),
        (Types.TUPLE([Types.FLOAT(), Types.INT()]), (FLOAT_1_1, 1), "(1.1,1)"),
        (Types.LIST(Types.FLOAT()), [FLOAT_1_1, None], "[1.1, null]"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x01\xff", "[1, -1]"),
        (Types.MAP(Types.STRING(), Types.FLOAT()), {"a": FLOAT_1_1}, "{a=1.1}"),
        (Types.MAP(Types.STRING(), Types.FLOAT()), None, "null"),
        (Types.SQL_TIME(), dt.time(12, 0, 0, 5000), "12:00:00"),
        (Types.SQL_DATE(), dt.date(2021, 1, 9), "2021-01-09"),
        (
            Types.SQL_TIMESTAMP(),
            NOON.replace(microsecond=11000),
            "2021-01-09 12:00:00.011",
        ),
        (Types.SQL_TIMESTAMP(), NOON, "2021-01-09 12:00:00.0"),
        (Types.INSTANT(), Instant(1, 0), "1970-01-01T00:00:01Z"),
        (Types.INSTANT(), Instant(-1, 500_000), "1969-12-31T23:59:59.000500Z"),
        (Types.INSTANT(), Instant(0, 1), "1970-01-01T00:00:00.000000001Z"),
    ],
)
def test_text(kind: TypeInformation, value: object, expected: str) -> None:
    assert text_function(kind)(value) == expected


def test_rows_within_rows_keep_their_types() -> None:
    kind = Types.ROW([Types.INT(), Types.LIST(Types.ROW([Types.FLOAT()]))])
    row = Row(1, [Row(FLOAT_1_1)])
    row.set_row_kind(RowKind.DELETE)
    assert text_function(kind)(row) == "-D[1, [+I[1.1]]]"
