"""Formats of a schema registry: against a server of the protocol, and Confluent's serializers."""

from __future__ import annotations

import json
import pickle
import ssl
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient as ConfluentClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.connectors.tables.test_message_formats import encoded, row_of, rows
from tests.kafka.secure_front import SECURE, certificate
from tests.support.registry_server import RegistryServer, basic

from millstream.common import Row
from millstream.connectors.formats import schema_registry
from millstream.datastream.formats.avro import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)
from millstream.errors import ConfigurationError, SchemaRegistryError, ValidationError
from millstream.sql.catalog.formats import chosen_format
from millstream.sql.catalog.options import Options, text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS = (
    "a INT, b BIGINT NOT NULL, c STRING, d DOUBLE, e DECIMAL(10, 3), f BOOLEAN, g TIMESTAMP(3), "
    "h DATE, i BYTES"
)
VALUE = SerializationContext("t", MessageField.VALUE)
QUICK = {"properties.max.retries": "1", "properties.retries.wait.ms": "1"}


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_KNOWN", {})


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def codec(
    registry: RegistryServer | str,
    columns: str,
    kind: str = "avro-confluent",
    *,
    read: bool = True,
    **more: str,
) -> Any:
    """A decoder or encoder; ``__`` in an option's name is a dot, ``_`` a dash."""
    url = registry if isinstance(registry, str) else registry.url
    given = {"format": kind, f"{kind}.url": url}
    given |= {
        f"{kind}.{key.replace('__', '.').replace('_', '-')}": each for key, each in more.items()
    }
    given |= {f"{kind}.{key}": each for key, each in QUICK.items()}
    found = chosen_format("connector 'x'", given, topic="t")
    assert found is not None
    checked = Options("connector 'x'", given, (text("format"), *found.known))
    row = row_of(columns)
    made = found.decoder(row, checked, ()) if read else found.encoder(row, checked)
    return pickle.loads(pickle.dumps(made))


def record(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    listed = [{"name": name, "type": kind} for name, kind in fields]
    for name, (kind, default) in more.items():
        listed.append({"name": name, "type": kind, "default": default})
    return {"type": "record", "name": "User", "namespace": "shop", "fields": listed}


def serializer(registry: RegistryServer, schema: Any) -> Any:
    client = ConfluentClient({"url": registry.url})
    return AvroSerializer(client, json.dumps(schema))


def test_what_confluents_serializer_writes_is_read(registry: RegistryServer) -> None:
    import datetime as dt

    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 3}
    instant = {"type": "long", "logicalType": "timestamp-millis"}
    schema = record(
        ("a", ["null", "int"]),
        ("b", "long"),
        ("c", ["null", "string"]),
        ("d", "double"),
        ("e", decimal),
        ("f", "boolean"),
        ("g", instant),
        ("h", {"type": "int", "logicalType": "date"}),
        ("i", ["null", "bytes"]),
    )
    write = serializer(registry, schema)
    written: list[dict[str, Any]] = [
        {
            "a": number if number % 3 else None,
            "b": number,
            "c": f"name {number}" if number % 2 else None,
            "d": number / 4,
            "e": Decimal(number).scaleb(-3),
            "f": number % 2 == 0,
            "g": dt.datetime(2024, 1, 1, 0, 0, number % 60, 250000, tzinfo=dt.UTC),
            "h": dt.date(2024, 1, 1 + number % 28),
            "i": b"\0\x01" if number % 5 else None,
        }
        for number in range(100)
    ]
    messages = [write(each, VALUE) for each in written]
    expected = [
        (0, tuple(v.replace(tzinfo=None) if k == "g" else v for k, v in each.items()))
        for each in written
    ]
    decoder = codec(registry, COLUMNS)
    assert rows(decoder, *messages) == expected
    at_once = decoder.columns(messages)
    assert at_once is not None
    assert [tuple(each.values()) for each in at_once.to_pylist()] == [each for _, each in expected]
    # Some of the columns, in the order of the table.
    narrowed = decoder.narrowed(row_of("b BIGINT NOT NULL, e DECIMAL(10, 3)"))
    assert narrowed is not None
    assert narrowed.columns(messages).equals(at_once.select(["b", "e"]))


def test_what_is_written_is_read_by_confluents_deserializer(registry: RegistryServer) -> None:
    import datetime as dt

    encoder = codec(registry, COLUMNS, read=False)
    instant = dt.datetime(2024, 1, 2, 3, 4, 5, 250000)  # noqa: DTZ001 - of the column
    row = (1, 2, "x", 0.5, Decimal("1.250"), True, instant, dt.date(2024, 5, 6), b"\0")
    none = (None, 3, *[None] * 7)
    messages = encoded(encoder, row, none)
    read = AvroDeserializer(ConfluentClient({"url": registry.url}))
    first, second = (read(each, VALUE) for each in messages)
    assert first["g"] == instant.replace(tzinfo=dt.UTC)
    assert tuple(first.values())[:6] == row[:6]
    assert tuple(second.values()) == none
    (identifier,) = registry.subjects["t-value"]
    schema = json.loads(registry.schemas[identifier]["schema"])
    # As Flink names and derives it.
    assert schema["name"] == "org.apache.flink.avro.generated.record"
    assert schema["fields"][0] == {"name": "a", "type": ["null", "int"], "default": None}
    assert schema["fields"][1] == {"name": "b", "type": "long"}
    assert rows(codec(registry, COLUMNS), *messages) == [(0, row), (0, none)]


def test_older_and_newer_writers_are_read_side_by_side(registry: RegistryServer) -> None:
    first = record(("id", "int"), ("gone", "string"))
    second = record(("id", "long"), email=(["null", "string"], None), gone=("string", ""))
    writer = serializer(registry, first)
    messages = [writer({"id": n, "gone": "x"}, VALUE) for n in range(70)]
    writer = serializer(registry, second)
    messages += [writer({"id": n, "email": f"e{n}", "gone": ""}, VALUE) for n in range(70, 140)]
    decoder = codec(registry, "email STRING, id BIGINT")
    expected = [(0, (None if n < 70 else f"e{n}", n)) for n in range(140)]
    assert rows(decoder, *messages) == expected
    assert decoder.columns(messages) is None
    for part in (slice(0, 70), slice(70, 140)):
        columns = decoder.columns(messages[part])
        assert [(0, tuple(each.values())) for each in columns.to_pylist()] == expected[part]
    # Each schema is asked for once per process.
    paths = [each for each in registry.requests if each.startswith("GET /schemas/ids/")]
    assert sorted(paths) == ["GET /schemas/ids/1", "GET /schemas/ids/2"]
    assert {registry.requests[each] for each in paths} == {1}
    pickle.loads(pickle.dumps(decoder)).decode(messages[0])
    assert registry.requests["GET /schemas/ids/1"] == 1


def test_a_readers_schema_has_defaults(registry: RegistryServer) -> None:
    message = serializer(registry, record(("id", "int")))({"id": 5}, VALUE)
    reader = record(("id", "long"), city=("string", "Bern"))
    reader["name"] = "Other"
    decoder = codec(registry, "id BIGINT NOT NULL, city STRING NOT NULL", schema=json.dumps(reader))
    assert rows(decoder, message) == [(0, (5, "Bern"))]
    with pytest.raises(ValidationError, match=r"does not match the table schema: column 'id'"):
        codec(registry, "id STRING", schema=json.dumps(reader))
    with pytest.raises(ValidationError, match="does not match the table schema, which is in Avro"):
        codec(registry, "id STRING", read=False, schema=json.dumps(reader))


def test_messages_that_are_none(registry: RegistryServer) -> None:
    message = serializer(registry, record(("id", "int")))({"id": 5}, VALUE)
    decoder = codec(registry, "id INT")
    assert decoder.decode(None) == []
    for wrong, reason in (
        (b"\x01" + message[1:], "0x01, not with the magic byte 0x00"),
        (b"{}", "has 2 bytes"),
        (b"\0\0\0\0\x63\x02", r"does not have schema id 99: 404 \(40403: Schema 99 not found\)"),
        (message + b"\0", "bytes after"),
        (message[:5], "is not an Avro record"),
    ):
        for _ in range(3):
            with pytest.raises(ValueError, match=reason):
                decoder.decode(wrong)
    assert registry.requests["GET /schemas/ids/99"] == 1
    with pytest.raises(ValueError, match=r"schema id 1 does not fit the table: column 'id' STRING"):
        codec(registry, "id STRING").decode(message)
    registry.add("j-value", {"type": "object"}, "JSON")
    with pytest.raises(ValueError, match="schema of JSON, not of AVRO"):
        decoder.decode(b"\0\0\0\0\x02\x02")


def test_an_incompatible_schema_is_refused(registry: RegistryServer) -> None:
    codec(registry, "id INT NOT NULL", read=False).validate()
    with pytest.raises(ConfigurationError, match=r"subject 't-value': 409 \(409: Schema being"):
        codec(registry, "id STRING NOT NULL", read=False).validate()
    codec(registry, "id INT NOT NULL, more STRING", read=False).validate()
    assert len(registry.subjects["t-value"]) == 2
    never: Any = {"properties__auto.register.schemas": "false"}
    with pytest.raises(ConfigurationError, match=r"auto\.register\.schemas is false"):
        codec(registry, "other INT", read=False, **never).validate()
    codec(registry, "id INT NOT NULL", read=False, **never).validate()


def test_subjects(registry: RegistryServer) -> None:
    for strategy in ("record-name", "topic-record-name"):
        codec(registry, "a INT", read=False, subject_name_strategy=strategy).validate()
    codec(registry, "a INT", read=False, subject="s/1").validate()
    name = "org.apache.flink.avro.generated.record"
    assert list(registry.subjects) == [name, f"t-{name}", "s/1"]


def test_outages_are_retried_and_then_named(registry: RegistryServer) -> None:
    message = serializer(registry, record(("id", "int")))({"id": 5}, VALUE)
    decoder = codec(registry, "id INT")
    registry.faults += [503]
    assert rows(decoder, message) == [(0, (5,))]
    registry.faults += [503, 500]
    with pytest.raises(SchemaRegistryError, match=r"after 2 attempts: it answers 500 \(500: a fau"):
        codec(registry, "a INT", read=False, subject="s").validate()
    codec(registry, "a INT", read=False, subject="s").validate()  # errors are not kept
    # The second address answers.
    both = f"http://127.0.0.1:1, {registry.url}"
    assert rows(codec(both, "id INT"), message) == [(0, (5,))]
    with pytest.raises(SchemaRegistryError, match="ConnectionRefusedError"):
        codec("http://127.0.0.1:1", "id INT").decode(message)


def test_credentials() -> None:
    with RegistryServer(credentials=basic("me", "s3cret:x")) as server:
        right: Any = {"basic_auth__credentials_source": "USER_INFO"}
        codec(server, "a INT", read=False, basic_auth__user_info="me:s3cret:x", **right).validate()
        url = server.url.replace("//", "//me:s3cret%3Ax@")
        codec(url, "a INT", read=False).validate()
        wrong: dict[str, Any] = {"basic_auth__user_info": "me:wrong"}
        for options in (dict[str, Any](), wrong):
            with pytest.raises(ConfigurationError, match="refuses the credentials") as caught:
                codec(server, "b INT", read=False, **options).validate()
            assert "wrong" not in str(caught.value)
        with pytest.raises(ValidationError, match="user-info is missing"):
            codec(server, "a INT", **right)
        with pytest.raises(ValidationError, match="must be USER_INFO or URL, not 'SASL_INHERIT'"):
            codec(server, "a INT", basic_auth__credentials_source="SASL_INHERIT")
    with RegistryServer(credentials="Bearer abc") as server:
        codec(server, "a INT", read=False, bearer_auth__token="abc").validate()
        whole: Any = {"properties": "bearer.auth.token:abc"}
        made = codec(server, "c INT", read=False, **whole)
        made.validate()
        assert "abc" not in repr(made._records._client)


def test_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    made, key = certificate(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text(made.read_text() + key.read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    context.load_verify_locations(made)
    context.verify_mode = ssl.CERT_REQUIRED
    with RegistryServer(tls=context, host=SECURE.decode()) as server:
        right: Any = {"ssl__truststore__location": str(made)}
        client: Any = {"ssl__keystore__location": str(both)}
        codec(server, "a INT", read=False, **right, **client).validate()
        with pytest.raises(SchemaRegistryError, match="CERTIFICATE_VERIFY_FAILED"):
            codec(server, "b INT", read=False, **client).validate()
        for options in (right, {"ssl__truststore__location": str(tmp_path / "none.pem")}):
            with pytest.raises((SchemaRegistryError, ConfigurationError)):
                codec(server, "c INT", read=False, **options).validate()
        store = tmp_path / "store.jks"
        store.write_bytes(b"\xfe\xed")
        wrong: Any = {"ssl__truststore__location": str(store)}
        with pytest.raises(ConfigurationError, match="Java key stores are not read"):
            codec(server, "d INT", read=False, **wrong).validate()


def test_options_that_make_no_sense() -> None:
    with pytest.raises(ValidationError, match="must be such as 'http://host:8081'"):
        codec("localhost:8081", "a INT")
    with pytest.raises(ValidationError, match=r"property 'proxy\.host' is not supported"):
        codec("http://h", "a INT", properties="proxy.host:x")
    with pytest.raises(ValidationError, match="non-string as key type of map"):
        codec("http://h", "a MAP<INT, INT>")


_PRODUCT = "id BIGINT NOT NULL, name STRING"


def test_debezium_reads_what_its_connectors_write(registry: RegistryServer) -> None:
    value = {**record(("id", "long"), ("name", ["null", "string"])), "name": "Value"}
    source = {"type": "record", "name": "Source", "fields": [{"name": "db", "type": "string"}]}
    envelope = {
        **record(
            ("before", ["null", value]),
            ("after", ["null", "shop.Value"]),
            ("source", source),
            ("op", "string"),
            ("ts_ms", ["null", "long"]),
        ),
        "name": "Envelope",
    }
    write = serializer(registry, envelope)
    old, new = {"id": 1, "name": "a"}, {"id": 1, "name": None}

    def message(op: str, before: Any, after: Any) -> Any:
        said = {"source": {"db": "shop"}, "ts_ms": 5}
        return write({"before": before, "after": after, "op": op, **said}, VALUE)

    decoder = codec(registry, _PRODUCT, "debezium-avro-confluent")
    found = rows(
        decoder, message("r", None, old), message("u", old, new), message("d", new, None), None
    )
    assert found == [(0, (1, "a")), (1, (1, "a")), (2, (1, None)), (3, (1, None))]
    with pytest.raises(ValueError, match="REPLICA IDENTITY to FULL"):
        decoder.decode(message("d", None, None))
    with pytest.raises(ValueError, match="unknown \"op\" value 'x'"):
        decoder.decode(message("x", None, None))


def test_changes_are_written_as_debezium(registry: RegistryServer) -> None:
    encoder = codec(registry, _PRODUCT, "debezium-avro-confluent", read=False)
    changes = [(0, (1, "a")), (1, (1, "a")), (2, (1, "b")), (3, (1, "b"))]
    messages = encoded(encoder, *(row for _, row in changes), kinds=[kind for kind, _ in changes])
    read = AvroDeserializer(ConfluentClient({"url": registry.url}))
    assert [read(each, VALUE)["op"] for each in messages] == ["c", "d", "c", "d"]
    found = rows(codec(registry, _PRODUCT, "debezium-avro-confluent"), *messages)
    assert found == [(0 if kind in (0, 2) else 3, row) for kind, row in changes]


def test_schemas_of_streams(registry: RegistryServer) -> None:
    old, new = record(("id", "int")), record(("id", "long"), city=("string", "Bern"))
    new["name"] = "Other"
    write = ConfluentRegistryAvroSerializationSchema.for_generic(
        "s", json.dumps(old), registry.url, {"max.retries": "0"}
    )
    pickle.loads(pickle.dumps(write)).validate()
    assert list(registry.subjects) == ["s"]
    messages = [write.serialize({"id": 1}), write.serialize(Row(2))]
    read = ConfluentRegistryAvroDeserializationSchema.for_generic(json.dumps(new), registry.url)
    read = pickle.loads(pickle.dumps(read))
    assert [tuple(read.deserialize(each)) for each in messages] == [(1, "Bern"), (2, "Bern")]
    columns = read.deserialize_columns(messages)
    assert columns is not None
    assert columns.to_pylist() == [{"id": 1, "city": "Bern"}, {"id": 2, "city": "Bern"}]
    assert read.deserialize_columns([*messages, b"x"]) is None
    with pytest.raises(ValueError, match="has 1 bytes"):
        read.deserialize(b"x")
    other = json.dumps(record(("id", "string")))
    strict = ConfluentRegistryAvroDeserializationSchema.for_generic(other, registry.url)
    with pytest.raises(ValueError, match="does not fit the reader's schema"):
        strict.deserialize(messages[0])
