"""Formats whose schemas are in a schema registry, and Protobuf: options, what reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.json_messages import JsonRowDecoder
from millstream.connectors.formats.protobuf_messages import (
    ProtobufOptions,
    ProtobufRowDecoder,
    ProtobufRowEncoder,
)
from millstream.connectors.formats.registry_avro import (
    DebeziumAvroDecoder,
    DebeziumAvroEncoder,
    RegistryAvroDecoder,
    RegistryAvroEncoder,
)
from millstream.connectors.formats.registry_json import RegistryJsonDecoder, RegistryJsonEncoder
from millstream.connectors.formats.schema_registry import SchemaRegistryClient
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import ALL_CHANGES
from millstream.sql.catalog.formats import (
    IGNORE_ERRORS,
    JSON,
    SUBJECT,
    SUBJECTS,
    TOPIC_NAME,
    Format,
    avro_legacy,
    json_options,
)
from millstream.sql.catalog.options import Option, boolean, choice, mapping, text

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Options of a registry -> Confluent's names of them.
REGISTRY_PROPERTIES: Final = {
    "ssl.keystore.location": "schema.registry.ssl.keystore.location",
    "ssl.keystore.password": "schema.registry.ssl.keystore.password",
    "ssl.truststore.location": "schema.registry.ssl.truststore.location",
    "ssl.truststore.password": "schema.registry.ssl.truststore.password",
    "basic-auth.credentials-source": "basic.auth.credentials.source",
    "basic-auth.user-info": "basic.auth.user.info",
    "bearer-auth.credentials-source": "bearer.auth.credentials.source",
    "bearer-auth.token": "bearer.auth.token",
}


def _registry_options(*, url_required: bool = True) -> tuple[Option, ...]:
    """The options of a registry, as Flink's; the strategy of subjects is Confluent's."""
    return (
        text("url", required=url_required),
        text(SUBJECT),
        choice("subject-name-strategy", tuple(SUBJECTS), TOPIC_NAME),
        text("schema"),
        *map(text, REGISTRY_PROPERTIES),
        mapping("properties"),
    )


def _registry(options: Mapping[str, Any]) -> SchemaRegistryClient:
    properties = dict(options["properties"])
    for key, name in REGISTRY_PROPERTIES.items():
        if options[key] is not None:
            properties[name] = options[key]
    return SchemaRegistryClient(options["url"], properties)


def _subject(options: Mapping[str, Any]) -> str:
    subject: str | None = options[SUBJECT]
    if subject is None:
        message = (
            "the option 'subject' is required to write; only a Kafka table with a single topic has "
            "a default"
        )
        raise ValidationError(message)
    return subject


def _registry_avro(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"subject": _subject(options), "legacy": avro_legacy(options)}


def _protobuf_options(options: Mapping[str, Any]) -> ProtobufOptions:
    return ProtobufOptions(
        message_class=options["message-class-name"],
        ignore_parse_errors=options["ignore-parse-errors"],
        read_default_values=options["read-default-values"],
        null_string=options["write-null-string-literal"],
    )


_AVRO_CONFLUENT: Final = (*_registry_options(), boolean("timestamp_mapping.legacy", default=True))
AVRO_CONFLUENT: Final = Format(
    _AVRO_CONFLUENT,
    lambda row, options, _: RegistryAvroDecoder(row, _registry(options), options["schema"]),
    lambda row, options: RegistryAvroEncoder(
        row, _registry(options), schema=options["schema"], **_registry_avro(options)
    ),
)
DEBEZIUM_AVRO_CONFLUENT: Final = Format(
    _AVRO_CONFLUENT,
    lambda row, options, _: DebeziumAvroDecoder(row, _registry(options), options["schema"]),
    lambda row, options: DebeziumAvroEncoder(
        row, _registry(options), schema=options["schema"], **_registry_avro(options)
    ),
    ALL_CHANGES,
)
JSON_SCHEMA: Final = Format(
    (*_registry_options(), *JSON.options),
    lambda row, options, _: RegistryJsonDecoder(
        JsonRowDecoder(row, json_options(options)), _registry(options)
    ),
    lambda row, options: RegistryJsonEncoder(
        row, json_options(options), _registry(options), _subject(options), options["schema"]
    ),
)
PROTOBUF: Final = Format(
    (
        text("message-class-name"),
        IGNORE_ERRORS,
        boolean("read-default-values", default=False),
        text("write-null-string-literal", ""),
        *(each for each in _registry_options(url_required=False) if each.key != "schema"),
    ),
    lambda row, options, _: ProtobufRowDecoder(
        row, _protobuf_options(options), _registry(options) if options["url"] else None
    ),
    lambda row, options: ProtobufRowEncoder(
        row,
        _protobuf_options(options),
        *((_registry(options), _subject(options)) if options["url"] else ()),
    ),
)
