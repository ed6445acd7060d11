"""Types and values as Flink's ``ResultInfoSerializer`` writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.sql_gateway.serialization import described_type, type_as_json
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from tests.sql_gateway.conftest import Client

INT = {"type": "INTEGER", "nullable": True}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (lt.NullType(), {"type": "NULL"}),
        (lt.IntType(nullable=False), {"type": "INTEGER", "nullable": False}),
        (lt.DoubleType(), {"type": "DOUBLE", "nullable": True}),
        (lt.CharType(3), {"type": "CHAR", "nullable": True, "length": 3}),
        (lt.VarCharType(), {"type": "VARCHAR", "nullable": True, "length": 2147483647}),
        (lt.VarBinaryType(5), {"type": "VARBINARY", "nullable": True, "length": 5}),
        (lt.DecimalType(9, 2), {"type": "DECIMAL", "nullable": True, "precision": 9, "scale": 2}),
        (lt.TimeType(0), {"type": "TIME_WITHOUT_TIME_ZONE", "nullable": True, "precision": 0}),
        (
            lt.LocalZonedTimestampType(3),
            {"type": "TIMESTAMP_WITH_LOCAL_TIME_ZONE", "nullable": True, "precision": 3},
        ),
        (lt.ArrayType(lt.IntType()), {"type": "ARRAY", "nullable": True, "elementType": INT}),
        (lt.MultisetType(lt.IntType()), {"type": "MULTISET", "nullable": True, "elementType": INT}),
        (
            lt.MapType(lt.IntType(), lt.IntType()),
            {"type": "MAP", "nullable": True, "keyType": INT, "valueType": INT},
        ),
        (
            lt.RowType((lt.RowField("a", lt.IntType()), lt.RowField("b", lt.IntType(), "why"))),
            {
                "type": "ROW",
                "nullable": True,
                "fields": [
                    {"name": "a", "fieldType": INT},
                    {"name": "b", "fieldType": INT, "description": "why"},
                ],
            },
        ),
    ],
)
def test_types(kind: lt.LogicalType, expected: object) -> None:
    assert type_as_json(kind) == expected
    assert described_type(kind) == kind


def test_types_that_the_protocol_does_not_have_are_text() -> None:
    interval = lt.DayTimeIntervalType(nullable=False)
    assert type_as_json(described_type(interval)) == {
        "type": "VARCHAR",
        "nullable": False,
        "length": 2147483647,
    }
    assert described_type(lt.ArrayType(interval)) == lt.VarCharType()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("CAST(1.5 AS DECIMAL(5, 2))", 1.5),
        ("CAST(1E300 AS DOUBLE)", 1e300),
        ("x'0102'", "AQI="),
        ("DATE '2024-02-03'", "2024-02-03"),
        ("TIME '01:02:03'", "01:02:03"),
        ("TIMESTAMP '2024-02-03 04:05:06.700'", "2024-02-03T04:05:06.7"),
        ("TO_TIMESTAMP_LTZ(0, 3)", "1970-01-01T00:00:00Z"),
        ("ARRAY[1, 2]", [1, 2]),
        ("MAP['a', 1]", {"a": 1}),
        ("CAST(ROW(1, 'x') AS ROW<f INT, g STRING>)", {"f": 1, "g": "x"}),
        ("INTERVAL '2' HOUR", "+0 02:00:00.000"),
        ("'ä\"\\'", 'ä"\\'),
    ],
)
def test_values(client: Client, expression: str, expected: object) -> None:
    session = client.open(**{"table.local-time-zone": "UTC"})
    assert client.rows(session, f"SELECT {expression}") == [["INSERT", expected]]
