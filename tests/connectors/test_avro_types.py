"""Avro records without a type of the user's: rows where a row type can say it, else dicts."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from millstream.common import Row, Types
from millstream.datastream.formats.avro import AvroRowDeserializationSchema

NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)
INNER = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
#: The type of a field, a value, and what comes of it where that is something else.
FIELDS: list[tuple[Any, object, object]] = [
    ("boolean", True, None),
    ("int", -3, None),
    ("long", 1 << 40, None),
    ("float", 0.5, None),
    ("double", 0.1, None),
    ("string", "é", None),
    ("bytes", b"\x00\xff", None),
    (["null", "string"], None, None),
    (["long", "null"], 7, None),
    (INNER, {"city": "Ulm"}, Row(city="Ulm")),
    (["null", "Place"], {"city": "Bonn"}, Row(city="Bonn")),
    ({"type": "array", "items": "long"}, [1, 2], None),
    ({"type": "map", "values": "string"}, {"a": "b"}, None),
    ({"type": "enum", "name": "Colour", "symbols": ["RED"]}, "RED", None),
    ({"type": "fixed", "name": "Two", "size": 2}, b"ab", None),
    ({"type": "int", "logicalType": "date"}, NOON.date(), None),
    ({"type": "int", "logicalType": "time-millis"}, dt.time(1, 2), None),
    ({"type": "long", "logicalType": "timestamp-millis"}, NOON, None),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, NOON.replace(tzinfo=None), None),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        Decimal("1.25"),
        None,
    ),
]
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}


def schema(fields: list[Any]) -> str:
    named = [{"name": f"f{i:02}", "type": each} for i, each in enumerate(fields)]
    return json.dumps({"type": "record", "name": "R", "fields": named})


def message(text: str, record: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(text)), record)
    return stream.getvalue()


def test_a_record_is_a_row_with_the_fields_of_its_schema() -> None:
    text = schema([each for each, _, _ in FIELDS])
    record = {f"f{i:02}": value for i, (_, value, _) in enumerate(FIELDS)}
    made = {
        f"f{i:02}": value if other is None else other for i, (_, value, other) in enumerate(FIELDS)
    }
    expected = Row(**made)
    avro = AvroRowDeserializationSchema(avro_schema_string=text)
    content = message(text, record)
    assert avro.deserialize(content) == expected
    columns = avro.deserialize_columns([content, content])
    assert columns is not None
    assert avro.produced_type.from_arrow(columns) == [expected, expected]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (["long", "string"], "x"),
        (NODE, {"next": {"next": None}}),
    ],
)
def test_what_no_row_type_says_stays_a_dict(field: object, value: object) -> None:
    text = schema([field, "long"])
    avro = AvroRowDeserializationSchema(avro_schema_string=text)
    assert avro.produced_type == Types.PICKLED_BYTE_ARRAY()
    assert avro.deserialize(message(text, {"f00": value, "f01": 1})) == {"f00": value, "f01": 1}
