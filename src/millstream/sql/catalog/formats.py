"""Formats of message connectors: from ``'format' = '...'`` to serialization schemas.

An option is prefixed with the name of its format, and with ``key.`` or ``value.`` for the format of
a part of the message, as in Flink.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats import change_json
from millstream.connectors.formats.avro_messages import AvroRowDecoder, AvroRowEncoder
from millstream.connectors.formats.csv_format import single_character
from millstream.connectors.formats.csv_messages import CsvRowDecoder, CsvRowEncoder, CsvTableOptions
from millstream.connectors.formats.json_messages import JsonOptions, JsonRowDecoder, JsonRowEncoder
from millstream.connectors.formats.row_format import RawDecoder, RawEncoder
from millstream.entry_points import Extensions
from millstream.errors import MillstreamError, ValidationError
from millstream.sql.catalog.connectors import ALL_CHANGES, FACTORIES, INSERT_ONLY
from millstream.sql.catalog.options import Option, boolean, choice, text
from millstream.sql.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.connectors.formats.row_format import RowDecoder, RowEncoder
    from millstream.sql.catalog.options import Options
    from millstream.types.logical_types import LogicalType, RowType


IGNORE_ERRORS: Final = boolean("ignore-parse-errors", default=False)
_STANDARD: Final = choice("timestamp-format.standard", ("sql", "iso-8601"), "sql")
_NULL_KEYS: Final = (
    choice("map-null-key.mode", ("fail", "drop", "literal"), "fail"),
    text("map-null-key.literal", "null"),
)
_WRITTEN: Final = (
    boolean("encode.decimal-as-plain-number", default=False),
    boolean("encode.ignore-null-fields", default=False),
)


def json_options(options: Mapping[str, Any]) -> JsonOptions:
    """Return what the options of a format of JSON say; raises ValidationError."""
    missing = bool(options.get("fail-on-missing-field"))
    if missing and options["ignore-parse-errors"]:
        message = "fail-on-missing-field and ignore-parse-errors shouldn't both be true."
        raise ValidationError(message)
    return JsonOptions(
        fail_on_missing_field=missing,
        ignore_parse_errors=options["ignore-parse-errors"],
        iso=options["timestamp-format.standard"] == "iso-8601",
        map_null_key=options["map-null-key.mode"].upper(),
        map_null_literal=options["map-null-key.literal"],
        ignore_null_fields=options["encode.ignore-null-fields"],
    )


def _csv_options(options: Mapping[str, Any]) -> CsvTableOptions:
    quote, escape = options["quote-character"], options["escape-character"]
    if options["disable-quote-character"] and quote is not None:
        message = (
            "Format cannot define a quote character and disabled quote character at the same time."
        )
        raise ValidationError(message)
    delimiter = options["field-delimiter"].encode().decode("unicode_escape")
    return CsvTableOptions(
        delimiter=single_character(delimiter, "field delimiter"),
        quote=None
        if options["disable-quote-character"]
        else single_character(quote or '"', "quote character"),
        escape=None if escape is None else single_character(escape, "escape character"),
        null=options["null-literal"],
        array_delimiter=options["array-element-delimiter"],
        comments=options["allow-comments"],
        ignore_parse_errors=options["ignore-parse-errors"],
        ignore_trailing_unmappable=options["ignore-trailing-unmappable"],
        scientific_decimals=options["write-bigdecimal-in-scientific-notation"],
    )


def csv_table_options(chosen: ChosenFormat, options: Options) -> CsvTableOptions:
    """The options of CSV in files.

    Raises:
        ValidationError: they do not go together.
    """
    found: CsvTableOptions = chosen.made(lambda: _csv_options(chosen.values(options)))
    return found


def _charset(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError as error:
        message = f"Unsupported 'raw.charset' name: {name}."
        raise ValidationError(message) from error


def _raw(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"charset": options["charset"], "little": options["endianness"] == "little-endian"}


def avro_legacy(options: Mapping[str, Any]) -> bool:
    """Return whether TIMESTAMP is an instant in milliseconds, as in Flink before 1.19."""
    legacy: bool = options["timestamp_mapping.legacy"]
    return legacy


def _canal(row: RowType, options: Mapping[str, Any], metadata: Sequence[str]) -> RowDecoder:
    return change_json.CanalDecoder(
        row,
        json_options(options),
        database=options["database.include"],
        table=options["table.include"],
        metadata=metadata,
    )


def _debezium(row: RowType, options: Mapping[str, Any], metadata: Sequence[str]) -> RowDecoder:
    return change_json.DebeziumDecoder(
        row,
        json_options(options),
        schema_include=options["schema-include"],
        metadata=metadata,
    )


def _debezium_encoder(row: RowType, options: Mapping[str, Any]) -> RowEncoder:
    if options["schema-include"]:
        message = (
            "Debezium JSON serialization doesn't support "
            "'debezium-json.schema-include' option been set to true."
        )
        raise ValidationError(message)
    return change_json.DebeziumEncoder(row, json_options(options))


TOPIC_NAME: Final = "topic-name"
#: Where schemas are registered if no subject is given; ``{topic}`` and ``{record}`` are names.
SUBJECTS: Final = {
    TOPIC_NAME: "{topic}-{part}",
    "record-name": "{record}",
    "topic-record-name": "{topic}-{record}",
}
SUBJECT: Final = "subject"


@dataclass(frozen=True)
class Format:
    """A format of messages: its options, what it reads and writes.

    Args:
        options: without the name of the format.
        decoder: makes what reads messages, of the row, the options and the keys of metadata.
        encoder: makes what writes them, of the row and the options.
        changes: the kinds of changes that messages can be.
        metadata: key -> type, and where a decoder finds it.
    """

    options: tuple[Option, ...]
    decoder: Callable[[RowType, Mapping[str, Any], Sequence[str]], RowDecoder]
    encoder: Callable[[RowType, Mapping[str, Any]], RowEncoder]
    changes: frozenset[str] = INSERT_ONLY
    metadata: Mapping[str, tuple[LogicalType, tuple[str, ...]]] | None = None


JSON: Final = Format(
    (
        boolean("fail-on-missing-field", default=False),
        IGNORE_ERRORS,
        _STANDARD,
        *_NULL_KEYS,
        *_WRITTEN,
    ),
    lambda row, options, _: JsonRowDecoder(row, json_options(options)),
    lambda row, options: JsonRowEncoder(row, json_options(options)),
)
CSV: Final = Format(
    (
        text("field-delimiter", ","),
        text("quote-character"),
        boolean("disable-quote-character", default=False),
        boolean("write-bigdecimal-in-scientific-notation", default=True),
        text("escape-character"),
        text("null-literal"),
        text("array-element-delimiter", ";"),
        boolean("allow-comments", default=False),
        boolean("ignore-trailing-unmappable", default=False),
        IGNORE_ERRORS,
    ),
    lambda row, options, _: CsvRowDecoder(row, _csv_options(options)),
    lambda row, options: CsvRowEncoder(row, _csv_options(options)),
)
RAW: Final = Format(
    (
        Option("charset", _charset, "utf-8"),
        choice("endianness", ("big-endian", "little-endian"), "big-endian"),
    ),
    lambda row, options, _: RawDecoder(row, **_raw(options)),
    lambda row, options: RawEncoder(row, **_raw(options)),
)
AVRO: Final = Format(
    (
        choice("encoding", ("binary",), "binary"),
        boolean("timestamp_mapping.legacy", default=True),
    ),
    lambda row, options, _: AvroRowDecoder(row, legacy=avro_legacy(options)),
    lambda row, options: AvroRowEncoder(row, legacy=avro_legacy(options)),
)
DEBEZIUM_JSON: Final = Format(
    (boolean("schema-include", default=False), IGNORE_ERRORS, _STANDARD, *_NULL_KEYS, *_WRITTEN),
    _debezium,
    _debezium_encoder,
    ALL_CHANGES,
    change_json.DebeziumDecoder.known,
)
CANAL_JSON: Final = Format(
    (
        text("database.include"),
        text("table.include"),
        IGNORE_ERRORS,
        _STANDARD,
        *_NULL_KEYS,
        *_WRITTEN,
    ),
    _canal,
    lambda row, options: change_json.CanalEncoder(row, json_options(options)),
    ALL_CHANGES,
    change_json.CanalDecoder.known,
)
MAXWELL_JSON: Final = Format(
    (IGNORE_ERRORS, _STANDARD, *_NULL_KEYS, *_WRITTEN),
    lambda row, options, metadata: change_json.MaxwellDecoder(row, json_options(options), metadata),
    lambda row, options: change_json.MaxwellEncoder(row, json_options(options)),
    ALL_CHANGES,
    change_json.MaxwellDecoder.known,
)
#: Formats whose messages may hold line breaks, so that files of lines cannot hold them.
BINARY_FORMATS: Final = frozenset(
    {"avro-confluent", "debezium-avro-confluent", "json-schema", "protobuf"}
)
#: The module of formats with a schema registry, whose clients a statement without it need not load.
_OF_REGISTRY: Final = "millstream.sql.catalog.registry_formats"
#: By the names that tables have for them.
FORMATS: Final[Extensions[Format]] = Extensions(
    "millstream.formats",
    "format",
    {
        "json": f"{__name__}:JSON",
        "csv": f"{__name__}:CSV",
        "raw": f"{__name__}:RAW",
        "avro": f"{__name__}:AVRO",
        "avro-confluent": f"{_OF_REGISTRY}:AVRO_CONFLUENT",
        "debezium-avro-confluent": f"{_OF_REGISTRY}:DEBEZIUM_AVRO_CONFLUENT",
        "json-schema": f"{_OF_REGISTRY}:JSON_SCHEMA",
        "protobuf": f"{_OF_REGISTRY}:PROTOBUF",
        "debezium-json": f"{__name__}:DEBEZIUM_JSON",
        "canal-json": f"{__name__}:CANAL_JSON",
        "maxwell-json": f"{__name__}:MAXWELL_JSON",
    },
    ("options", "decoder", "encoder", "changes", "metadata"),
)


class ChosenFormat:
    """The format of a table's messages, or of a part of them."""

    def __init__(self, owner: str, name: str, prefix: str, topic: str | None = None) -> None:
        self._owner = owner
        self.name = name
        self._prefix = prefix
        self._topic = topic
        self._format = FORMATS[name]
        #: Its options as a table has them.
        self.known = tuple(
            replace(each, key=f"{prefix}{name}.{each.key}") for each in self._format.options
        )
        self.changes = self._format.changes
        #: What it says of each row, by key.
        self.metadata: dict[str, LogicalType] = {
            key: kind for key, (kind, _) in (self._format.metadata or {}).items()
        }

    def decoder(self, row: RowType, options: Options, metadata: Sequence[str] = ()) -> RowDecoder:
        """Return what reads messages; ValidationError if it does not read such rows."""
        found: RowDecoder = self.made(
            lambda: self._format.decoder(row, self.values(options), metadata)
        )
        return found

    @property
    def advice(self) -> str:
        """What to do about a message that does not parse, by the options of the table."""
        keys = {each.key.removeprefix(f"{self._prefix}{self.name}."): each for each in self.known}
        advice = "correct it"
        if IGNORE_ERRORS.key in keys:
            advice += (
                f", or set '{keys[IGNORE_ERRORS.key].key}' = 'true' in the WITH options of the"
                " table: fields that do not parse are NULL then, and records without any are left"
                " out"
            )
        if _STANDARD.key in keys:
            advice += (
                f"; '{keys[_STANDARD.key].key}' = 'ISO-8601' reads times such as"
                " 2024-12-31T23:59:59Z, 'SQL' such as 2024-12-31 23:59:59"
            )
        return advice

    def encoder(self, row: RowType, options: Options) -> RowEncoder:
        """Return what writes messages; ValidationError if it does not write such rows."""
        found: RowEncoder = self.made(lambda: self._format.encoder(row, self.values(options)))
        return found

    def made(self, make: Callable[[], Any]) -> Any:
        """Return what ``make`` gives; its errors name the format."""
        try:
            return make()
        except MillstreamError as error:
            message = f"{self._owner}: format '{self.name}': {error}"
            raise ValidationError(message) from error

    def values(self, options: Options) -> dict[str, Any]:
        """The values of its options, by the keys without the format's name."""
        found: dict[str, Any] = {
            each.key: options[f"{self._prefix}{self.name}.{each.key}"]
            for each in self._format.options
        }
        if self._topic is not None and found.get(SUBJECT, "") is None:
            named = SUBJECTS[found["subject-name-strategy"]]
            part = "key" if self._prefix == "key." else "value"
            found[SUBJECT] = named.replace("{part}", part).replace("{topic}", self._topic)
        return found


def chosen_format(
    owner: str,
    given: Mapping[str, str],
    part: str = "",
    among: Sequence[str] = (),
    topic: str | None = None,
) -> ChosenFormat | None:
    """The format that a table's options name; None: they name none.

    Args:
        owner: the connector, for errors.
        given: the table's options.
        part: ``key``, ``value``, or empty for ``format``.
        among: those that the connector takes for messages, if it has others; empty: all.
        topic: the only one that the table is written to, of which subjects of schemas are named.

    Raises:
        ValidationError: there is no such format.
    """
    key = f"{part}.format" if part else "format"
    name = given.get(key)
    if name is None or (among and name not in among):
        return None
    if name not in FORMATS:
        there = listed(sorted(FORMATS))
        message = f"{owner} has no format '{name}'.{did_you_mean(name, FORMATS)} It has {there}."
        raise ValidationError(message)
    return ChosenFormat(owner, name, f"{part}." if part else "", topic)


def known_options(given: Mapping[str, str]) -> list[Option]:
    """Return the options that a table may have, by those that it has: connector and formats.

    Args:
        given: the options of the table so far; without a known connector there is only that option.
    """
    name = given.get("connector", "")
    if name not in FACTORIES:
        return [choice("connector", sorted(FACTORIES))]
    found = list(FACTORIES[name].OPTIONS.get(name, ()))
    for part in ("", "key.", "value."):
        format_name = given.get(f"{part}format", "")
        if format_name in FORMATS:
            found += ChosenFormat("", format_name, part).known
    return [
        replace(each, choices=tuple(FORMATS)) if each.key.endswith("format") else each
        for each in found
    ]
