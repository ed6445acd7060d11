"""Protobuf and JSON Schema: with classes, with a registry, and Confluent's serializers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient as ConfluentClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.connectors.tables.test_message_formats import codec as plain_codec
from tests.connectors.tables.test_message_formats import encoded, rows
from tests.connectors.tables.test_registry_formats import codec
from tests.support.registry_server import RegistryServer
from tests.support.shop_messages import Inner, Order

from millstream.connectors.formats import schema_registry
from millstream.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUE = SerializationContext("t", MessageField.VALUE)
ORDER = "tests.support.shop_messages.Order"
COLUMNS = (
    "id BIGINT, name STRING, state STRING, place ROW<city STRING>, tags ARRAY<STRING>, "
    "prices MAP<STRING, DOUBLE>, `at` ROW<seconds BIGINT, nanos INT>, `raw` BYTES, big BIGINT"
)
FULL = (
    7,
    "x",
    "PAID",
    {"city": "Bern"},
    ["a", "b"],
    [("p", 1.5)],
    {"seconds": 5, "nanos": 6},
    b"\0",
    -1,
)
#: Of a message without any field.
EMPTY = (0, None, "OPEN", None, None, None, None, b"", 0)
FORMAT = {"use.deprecated.format": False}


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_KNOWN", {})


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def order() -> Any:
    made = Order(id=7, name="x", state=1, tags=["a", "b"], raw=b"\0", big=2**64 - 1)
    made.place.city = "Bern"
    made.prices["p"] = 1.5
    made.at.seconds, made.at.nanos = 5, 6
    return made


def test_messages_of_a_class() -> None:
    decoder = plain_codec("protobuf", COLUMNS, message_class_name=ORDER)
    messages = [order().SerializeToString(), b""]
    assert rows(decoder, *messages, None) == [(0, FULL), (0, EMPTY)]
    encoder = plain_codec("protobuf", COLUMNS, read=False, message_class_name=ORDER)
    assert [Order.FromString(each) for each in encoded(encoder, FULL, EMPTY)] == [order(), Order()]
    whole = plain_codec("protobuf", COLUMNS, message_class_name=ORDER, read_default_values="true")
    nothing = {"seconds": 0, "nanos": 0}
    assert rows(whole, b"") == [(0, (0, "", "OPEN", {"city": ""}, [], [], nothing, b"", 0))]
    narrowed = decoder.narrowed(plain_codec("json", "id BIGINT").row)
    assert rows(narrowed, messages[0]) == [(0, (7,))]


def test_nulls_in_lists_and_maps_have_a_value() -> None:
    encoder = plain_codec(
        "protobuf",
        "tags ARRAY<STRING>, prices MAP<STRING, DOUBLE>, state INT",
        read=False,
        message_class_name=ORDER,
        write_null_string_literal="none",
    )
    (message,) = encoded(encoder, (["a", None], [("p", None)], 9))
    made = Order.FromString(message)
    assert (list(made.tags), dict(made.prices), made.state) == (["a", "none"], {"p": 0.0}, 0)


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ("id BIGINT", {}, "'message-class-name' or 'url' is required"),
        ("id BIGINT", {"message_class_name": "nowhere.Order"}, "which cannot be imported"),
        ("id BIGINT", {"message_class_name": "json.JSONDecoder"}, "no class of messages"),
        ("nope INT", {"message_class_name": ORDER}, "Order has no field 'nope'"),
        ("id INT", {"message_class_name": ORDER}, "'id' must be BIGINT, not INT"),
        ("`raw` STRING", {"message_class_name": ORDER}, "'raw' must be BINARY or VARBINARY"),
        ("tags STRING", {"message_class_name": ORDER}, "'tags' must be an ARRAY"),
        ("prices MAP<STRING, INT>", {"message_class_name": ORDER}, "'prices' must be DOUBLE"),
        ("place ROW<town STRING>", {"message_class_name": ORDER}, r"no field 'place\.town'"),
    ],
)
def test_columns_that_are_no_fields(columns: str, options: Any, reason: str) -> None:
    for read in (True, False):
        with pytest.raises(ValidationError, match=reason):
            plain_codec("protobuf", columns, read=read, **options)


def test_messages_that_do_not_parse() -> None:
    strict = plain_codec("protobuf", "id BIGINT", message_class_name=ORDER)
    with pytest.raises(ValueError, match=r"is not a message of tests\.shop\.Order"):
        strict.decode(b"\xff\xff")
    lenient = plain_codec(
        "protobuf", "id BIGINT", message_class_name=ORDER, ignore_parse_errors="true"
    )
    assert lenient.decode(b"\xff\xff") == []
    needed = plain_codec("protobuf", "name STRING NOT NULL", message_class_name=ORDER)
    with pytest.raises(ValueError, match="NULL in column 'name'"):
        needed.decode(b"")


@pytest.mark.parametrize("more", [{}, {"message_class_name": ORDER}])
def test_what_confluents_serializer_writes_is_read(registry: RegistryServer, more: Any) -> None:
    client = ConfluentClient({"url": registry.url})
    write = ProtobufSerializer(Order, client, FORMAT)
    decoder = codec(registry, COLUMNS, "protobuf", **more)
    messages = [write(order(), VALUE), write(Order(), VALUE)]
    assert rows(decoder, *messages) == [(0, FULL), (0, EMPTY)]


def test_a_nested_message_has_indexes(registry: RegistryServer) -> None:
    client = ConfluentClient({"url": registry.url})
    message = ProtobufSerializer(Inner, client, FORMAT)(Inner(n=5), VALUE)
    assert rows(codec(registry, "n INT", "protobuf"), message) == [(0, (5,))]
    inner = {"message_class_name": "tests.support.shop_messages.Inner"}
    encoder = codec(registry, "n INT", "protobuf", read=False, **inner)
    assert encoded(encoder, (5,)) == [message]
    decoder = codec(registry, "n INT", "protobuf")
    for wrong, reason in (
        (message[:5] + b"\x02\x0a" + message[8:], r"has no message at \[5\]"),
        (message[:5] + b"\xff", "are cut off"),
        (b"\0\0\0\0\x63\0", "does not have schema id 99"),
    ):
        with pytest.raises(ValueError, match=reason):
            decoder.decode(wrong)
    with pytest.raises(ValueError, match="does not fit the table: column 'n' must be INT"):
        codec(registry, "n STRING", "protobuf").decode(message)
    registry.add("j", {"type": "object"}, "JSON")
    number = max(registry.schemas)
    with pytest.raises(ValueError, match="schema of JSON, not of PROTOBUF"):
        decoder.decode(b"\0\0\0\0" + bytes([number]) + b"\0")


def test_what_is_written_is_read_by_confluents_deserializer(registry: RegistryServer) -> None:
    encoder = codec(registry, COLUMNS, "protobuf", read=False, message_class_name=ORDER)
    encoder.validate()
    assert sorted(registry.subjects) == ["t-value", "tests/place.proto"]
    read = ProtobufDeserializer(Order, FORMAT, ConfluentClient({"url": registry.url}))
    assert [read(each, VALUE) for each in encoded(encoder, FULL, EMPTY)] == [order(), Order()]


def test_a_message_is_derived_from_the_columns(registry: RegistryServer) -> None:
    columns = COLUMNS + ", places ARRAY<ROW<city STRING, n INT>>, by_name MAP<INT, ROW<f FLOAT>>"
    encoder = codec(registry, columns, "protobuf", read=False)
    full = (*FULL, [{"city": "Bern", "n": None}], [(1, {"f": 0.5})])
    none = (None,) * len(full)
    decoder = codec(registry, columns, "protobuf")
    assert rows(decoder, *encoded(encoder, full, none)) == [(0, full), (0, none)]
    with pytest.raises(ValidationError, match="which Protobuf lacks"):
        codec(registry, "a DATE", "protobuf", read=False)


_JSON = "id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>, prices MAP<STRING, DOUBLE>"


def test_json_schema_with_confluents_serializers(registry: RegistryServer) -> None:
    encoder = codec(registry, _JSON, "json-schema", read=False)
    values = [(1, "x", ["a", None], [("p", 1.5)]), (2, None, None, None)]
    messages = encoded(encoder, *values)
    schema = json.loads(registry.schemas[1]["schema"])
    assert schema["required"] == ["id"]
    client = ConfluentClient({"url": registry.url})
    read = JSONDeserializer(None, schema_registry_client=client)
    assert read(messages[0], VALUE)["tags"] == ["a", None]
    decoder = codec(registry, _JSON, "json-schema")
    assert rows(decoder, *messages) == [(0, each) for each in values]
    columns = decoder.columns(messages)
    assert columns is None or columns.num_rows == len(messages)
    write = JSONSerializer(json.dumps(schema), client)
    message = write({"id": 3, "name": "y", "tags": None, "prices": None}, VALUE)
    assert rows(decoder, message) == [(0, (3, "y", None, None))]


def test_json_messages_that_are_none(registry: RegistryServer) -> None:
    registry.add("a", {"type": "record", "name": "R", "fields": []})
    decoder = codec(registry, "id INT", "json-schema")
    for wrong, reason in (
        (b'{"id": 1}', "magic byte"),
        (b'\0\0\0\0\x01{"id": 1}', "schema of AVRO, not of JSON"),
        (b'\0\0\0\0\x02{"id": 1}', "does not have schema id 2"),
    ):
        assert decoder.columns([wrong]) is None
        with pytest.raises(ValueError, match=reason):
            decoder.decode(wrong)
    lenient = codec(registry, "id INT", "json-schema", ignore_parse_errors="true")
    assert lenient.decode(b"{}") == []
