"""Builders of message formats: what each option means, and that what is written can be read."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.job_runs import examples

from millstream.connectors.formats.file_format import MalformedPolicy
from millstream.connectors.kafka.source import ValueOnly
from millstream.contracts.serialization import NO_RECORD, ByteArraySchema, SimpleStringSchema
from millstream.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from millstream.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from millstream.errors import ConfigurationError
from millstream.types.row import Row
from millstream.types.types import Types

ROW = Types.ROW_NAMED(
    ["text", "n", "words", "yes"],
    [Types.STRING(), Types.LONG(), Types.OBJECT_ARRAY(Types.STRING()), Types.BOOLEAN()],
)
TEXT = st.text(st.sampled_from("\"'|;,\\#- \t1aN\nbé"), max_size=6)


def csv_reader(row: Any = ROW) -> CsvRowDeserializationSchema.Builder:
    return CsvRowDeserializationSchema.Builder(row)


def csv_writer() -> CsvRowSerializationSchema.Builder:
    return CsvRowSerializationSchema.Builder(ROW)


# -- CSV -----------------------------------------------------------------------------------------


@examples(150)
@given(
    st.lists(
        st.tuples(
            st.none() | TEXT,
            st.none() | st.integers(-(2**63), 2**63 - 1),
            # The one empty word and no words are the same text.
            st.lists(st.text("ab1 é", min_size=1, max_size=3), max_size=3),
            st.booleans(),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(",|\t;"),
    st.sampled_from("\"'"),
    st.sampled_from([None, "\\", "^"]),
    st.sampled_from(["NULL", "na", "\\N"]),
    st.sampled_from(["", "\n", "\r\n"]),
    st.booleans(),
)
def test_csv_that_is_written_is_read(
    records: list[Any],
    delimiter: str,
    quote: str,
    escape: str | None,
    null: str,
    line: str,
    comments: bool,
) -> None:
    null = null if escape is None else null.replace("\\", "")
    reader = csv_reader().set_field_delimiter(delimiter).set_quote_character(quote)
    writer = csv_writer().set_field_delimiter(delimiter).set_quote_character(quote)
    reader.set_null_literal(null).set_array_element_delimiter("/").set_allow_comments(comments)
    writer.set_null_literal(null).set_array_element_delimiter("/").set_line_delimiter(line)
    if escape is not None:
        reader.set_escape_character(escape)
        writer.set_escape_character(escape)
    rows = ROW.from_arrow(ROW.to_arrow(records))
    schema = writer.build()
    messages = [schema.serialize(row) for row in rows]
    assert schema.serialize_columns(ROW.to_arrow(rows)) == messages
    assert all(message.endswith(line.encode()) for message in messages)
    read = reader.build()
    assert [read.deserialize(message) for message in messages] == rows
    columns = read.deserialize_columns(messages)
    assert columns is None or ROW.from_arrow(columns) == rows


def test_csv_lists_and_nulls_unless_set() -> None:
    row = Row(text=None, n=1, words=["a", "b"], yes=True)
    assert csv_writer().build().serialize(row) == b",1,a;b,true"
    read = csv_reader().build().deserialize(b"x,,a;b,false")
    assert read == ROW.from_arrow(ROW.to_arrow([("x", None, ["a", "b"], False)]))[0]


def test_csv_without_quotes() -> None:
    builder = csv_writer().disable_quote_character()
    assert builder.build().serialize(("a", 1, [], None)) == b"a,1,,"
    with pytest.raises(ValueError, match="needs quotes, which are disabled"):
        builder.build().serialize(("a,b", 1, [], None))
    escaped = builder.set_escape_character("\\").build().serialize(("a,b\\", 1, [], None))
    assert escaped == b"a\\,b\\\\,1,,"


def test_csv_comments_and_what_does_not_parse_are_passed_over() -> None:
    builder = csv_reader(Types.ROW_NAMED(["n"], [Types.LONG()])).set_allow_comments(True)
    schema = builder.build()
    assert schema.deserialize(b"# a comment") is NO_RECORD
    assert schema.deserialize_columns([b"1", b"# a comment"]) is None
    with pytest.raises(ValueError, match="invalid value"):
        schema.deserialize(b"x")
    assert builder.set_ignore_parse_errors(True).build().deserialize(b"x") is NO_RECORD


@pytest.mark.parametrize("characters", ["", "ab", "\n", "é"])
def test_csv_characters_that_are_refused(characters: str) -> None:
    with pytest.raises(ConfigurationError, match="must be a single ASCII character"):
        csv_reader().set_escape_character(characters)
    with pytest.raises(ConfigurationError, match="must be a single ASCII character"):
        csv_writer().set_quote_character(characters)
    with pytest.raises(ConfigurationError, match="must be a line break or nothing"):
        csv_writer().set_line_delimiter(";")
    with pytest.raises(ConfigurationError, match="the characters of CSV must differ"):
        csv_writer().set_quote_character(",").build()


# -- JSON ----------------------------------------------------------------------------------------


def test_json_names_are_those_of_the_type_given() -> None:
    inner = Types.ROW_NAMED(["x", "y"], [Types.LONG(), Types.LONG()])
    kind = Types.ROW_NAMED(["id", "points"], [Types.STRING(), Types.LIST(inner)])
    schema = JsonRowSerializationSchema.Builder().with_type_info(kind).build()
    expected = b'{"id": "a", "points": [{"x": 1, "y": 2}, null]}'
    assert schema.serialize(("a", [(1, 2), None])) == expected
    assert schema.serialize(Row("a", [Row(1, 2), None])) == expected
    assert schema.serialize({"id": "a", "points": [{"x": 1, "y": 2}, None]}) == expected
    # A stream of that type goes by columns, one of other names does not.
    columns = kind.to_arrow([Row(id="a", points=[])])
    (line,) = schema.serialize_columns(columns) or []
    assert json.loads(line) == {"id": "a", "points": []}
    assert schema.serialize_columns(columns.rename_columns(["a", "b"])) is None
    read = JsonRowDeserializationSchema.builder().type_info(kind).build()
    assert read.deserialize(expected) == Row(id="a", points=[Row(x=1, y=2), None])


def test_json_that_does_not_parse_is_passed_over() -> None:
    kind = Types.ROW_NAMED(["n"], [Types.LONG()])
    builder = JsonRowDeserializationSchema.Builder().type_info(kind).ignore_parse_errors()
    schema = builder.build()
    assert schema.deserialize(b'{"n": 1}') == Row(n=1)
    for broken in (b"{", b'{"n": "x"}', b"", b"\xff"):
        assert schema.deserialize(broken) is NO_RECORD
    assert schema.deserialize_columns([b'{"n": 1}', b"{"]) is None
    with pytest.raises(ConfigurationError, match="not both"):
        builder.fail_on_missing_field().build()
    with pytest.raises(ConfigurationError, match=r"call type_info\(\.\.\.\)"):
        JsonRowDeserializationSchema.builder().build()


@pytest.mark.parametrize(
    "messages",
    [
        [b'{"n":1}', b'{"n":2}'],
        [b' {"n":1}', b'{"n":2}\n'],
        [b'{"n":\n1}'],
        [b'{"n":1}\n{"n":2}', b""],
        [b'{"n":1}\n{"n":2}', b'{"n":3}'],
        [b"", b'{"n":1}\n{"n":2}'],
        [b'{"n":1}{"n":2}', b'{"n":3}'],
        [b"1", b'{"n":1}'],
    ],
)
def test_agree_json_messages_in_one_block_with_one_by_one(messages: list[bytes]) -> None:
    kind = Types.ROW_NAMED(["n"], [Types.LONG()])
    schema = JsonRowDeserializationSchema.builder().type_info(kind).build()
    try:
        wanted = [schema.deserialize(message) for message in messages]
    except ValueError:
        assert schema.deserialize_columns(messages) is None
    else:
        columns = schema.deserialize_columns(messages)
        assert columns is not None
        assert kind.from_arrow(columns) == wanted


SCHEMA = {
    "type": "object",
    "definitions": {"point": {"type": "object", "properties": {"x": {"type": "integer"}}}},
    "properties": {
        "name": {"type": ["string", "null"]},
        "price": {"type": "number"},
        "day": {"type": "string", "format": "date"},
        "ok": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        "points": {"type": "array", "items": {"$ref": "#/definitions/point"}},
    },
}


def test_json_schemas_are_types() -> None:
    schema = JsonRowDeserializationSchema.builder().json_schema(json.dumps(SCHEMA)).build()
    assert schema.produced_type == Types.ROW_NAMED(
        ["name", "price", "day", "ok", "points"],
        [
            *(Types.STRING(), Types.BIG_DEC(), Types.SQL_DATE(), Types.BOOLEAN()),
            Types.OBJECT_ARRAY(Types.ROW_NAMED(["x"], [Types.BIG_DEC()])),
        ],
    )
    message = b'{"name": null, "price": 1.5, "day": "2026-02-03", "ok": true, "points": [{"x": 7}]}'
    row = schema.deserialize(message)
    assert (
        row
        == schema.produced_type.from_arrow(
            schema.produced_type.to_arrow(
                [(None, Decimal("1.5"), dt.date(2026, 2, 3), True, [(Decimal(7),)])]
            )
        )[0]
    )


def test_decimals_are_numbers_or_texts() -> None:
    kind = Types.ROW_NAMED(["n"], [Types.BIG_DEC()])
    schema = JsonRowDeserializationSchema.builder().type_info(kind).build()
    long = "1" * 60
    texts = ["1.50", "100", "-2e3", "1e-10", '"2.50"', f'"{long}"', "null", "0", "0.0"]
    found = [schema.deserialize(f'{{"n": {text}}}'.encode())[0] for text in texts]  # type: ignore[index]
    assert [str(value) for value in found] == [
        *("1.5", "100", "-2000", "1E-10", "2.5", long, "None", "0", "0")
    ]
    columns = schema.deserialize_columns([b'{"n": 1}', b'{"n": 2.5}'])
    assert columns == kind.to_arrow([(Decimal(1),), (Decimal("2.5"),)])


def test_what_is_written_as_json_is_read() -> None:
    inner = Types.ROW_NAMED(["at", "n"], [Types.SQL_TIME(), Types.BIG_DEC()])
    kind = Types.ROW_NAMED(
        ["day", "time", "instant", "parts", "price"],
        [
            *(Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP()),
            *(Types.LIST(inner), Types.BIG_DEC()),
        ],
    )
    moment = dt.datetime(2026, 2, 3, 4, 5, 6, 789000)  # noqa: DTZ001 - as SQL's
    rows = kind.from_arrow(
        kind.to_arrow(
            [
                (moment.date(), moment.time(), moment, [(dt.time(1), Decimal(2)), None], None),
                (None, None, None, None, Decimal("0.25")),
                (None, None, None, [], Decimal(-3)),
            ]
        )
    )
    written = JsonRowSerializationSchema.builder().with_type_info(kind).build()
    schema = JsonRowDeserializationSchema.builder().type_info(kind).build()
    assert [schema.deserialize(written.serialize(row)) for row in rows] == rows
    columns = schema.deserialize_columns(written.serialize_columns(kind.to_arrow(rows)) or [])
    assert columns is not None
    assert kind.from_arrow(columns) == rows
    with pytest.raises(ValueError, match="tomorrow"):
        schema.deserialize(b'{"day": "tomorrow"}')


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("[", "this is no JSON schema"),
        ('{"type": "string"}', "must be of type 'object'"),
        ({"a": {"type": "object"}}, "a is an object without properties"),
        ({"a": {"type": ["string", "integer"]}}, "a may be of several types"),
        ({"a": {"type": "array", "items": [{}]}}, "a is an array of more than one type"),
        ({"a": {"$ref": "#"}}, "refers to '#'"),
        ({"a": {"$ref": "http://x"}}, "refers to 'http://x'"),
        ({"a": {"type": "thing"}}, "a is of type 'thing'"),
        ({"a": {"type": "string", "contentEncoding": "base64"}}, "a is base64"),
    ],
)
def test_json_schemas_that_are_refused(schema: Any, reason: str) -> None:
    text = schema
    if isinstance(schema, dict):
        text = json.dumps({"type": "object", "properties": schema})
    with pytest.raises(ConfigurationError, match=reason):
        JsonRowDeserializationSchema.builder().json_schema(text)


class Message:
    """A message as confluent-kafka gives it."""

    def __init__(self, offset: int, value: bytes) -> None:
        self._offset, self._value = offset, value

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000 + self._offset


def test_messages_that_are_passed_over_are_no_records_of_a_topic() -> None:
    kind = Types.ROW_NAMED(["n"], [Types.LONG()])
    schema = JsonRowDeserializationSchema.builder().type_info(kind).ignore_parse_errors().build()
    messages = [Message(0, b'{"n": 1}'), Message(1, b"{"), Message(2, b'{"n": 3}')]
    batch = ValueOnly(schema).batch(messages, MalformedPolicy.FAIL)
    assert batch.arrow == kind.to_arrow([(1,), (3,)])
    assert batch.timestamps == [1000, 1002]
    assert not batch.dead_letters


# -- text and bytes --------------------------------------------------------------------------------


class _Shouting(SimpleStringSchema):
    def deserialize(self, message: bytes) -> str:
        return super().deserialize(message).upper()


@pytest.mark.parametrize(
    "schema", [SimpleStringSchema(), SimpleStringSchema("utf8")], ids=["default", "utf8"]
)
def test_agree_columns_of_text_with_messages_one_by_one(schema: SimpleStringSchema) -> None:
    messages = ["", "a", "é\x00\n", "🙂" * 50]
    columns = schema.deserialize_columns([each.encode() for each in messages])
    assert columns is not None
    assert columns.schema == Types.STRING().arrow_schema
    assert schema.produced_type.from_arrow(columns) == messages


def test_text_that_is_not_utf_8_is_read_one_by_one() -> None:
    assert SimpleStringSchema().deserialize_columns([b"a", b"\xff"]) is None
    assert SimpleStringSchema("latin-1").deserialize_columns([b"a"]) is None
    assert _Shouting().deserialize_columns([b"a"]) is None  # its own way is taken


def test_columns_of_bytes() -> None:
    schema = ByteArraySchema()
    columns = schema.deserialize_columns([b"", b"\xff\x00"])
    assert columns is not None
    assert schema.produced_type.from_arrow(columns) == [b"", b"\xff\x00"]
