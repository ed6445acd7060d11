"""Tables in Kafka: ``'connector' = 'kafka'`` with json or csv in the values of messages.

What it is: KafkaSource and KafkaSink behind a table whose rows are only added.
What it is not: ``upsert-kafka``; keys and metadata of messages are not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.csv_messages import (
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
)
from millstream.connectors.formats.message_formats import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from millstream.connectors.kafka.offsets import KafkaOffsetsInitializer
from millstream.connectors.kafka.serialization import KafkaRecordSerializationSchema
from millstream.connectors.kafka.sink import KafkaSink
from millstream.connectors.kafka.source import KafkaSource
from millstream.contracts.sink import DeliveryGuarantee
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import INSERT_ONLY, FactoryContext, TableSink, TableSource
from millstream.sql.catalog.options import Option, Options, boolean, choice, integer, text
from millstream.sql.lowering.conversion import external_type
from millstream.sql.suggestions import did_you_mean
from millstream.types.logical_types import RowField, RowType

if TYPE_CHECKING:
    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source

__all__ = ["sink", "source"]

_OWN: Final = (
    text("topic"),
    text("topic-pattern"),
    text("properties.bootstrap.servers", required=True),
    text("format"),
    text("value.format"),
    choice(
        "scan.startup.mode",
        ("earliest-offset", "latest-offset", "group-offsets", "timestamp"),
        "group-offsets",
    ),
    integer("scan.startup.timestamp-millis"),
    choice("scan.bounded.mode", ("unbounded", "latest-offset"), "unbounded"),
    choice("sink.delivery-guarantee", ("exactly-once", "at-least-once", "none"), "at-least-once"),
    text("sink.transactional-id-prefix"),
    integer("sink.parallelism"),
)
_FORMATS: Final[dict[str, tuple[Option, ...]]] = {
    "json": (
        boolean("json.ignore-parse-errors", default=False),
        boolean("json.fail-on-missing-field", default=False),
    ),
    "csv": (
        text("csv.field-delimiter", ","),
        text("csv.null-literal"),
        boolean("csv.ignore-parse-errors", default=False),
    ),
}


def _options(context: FactoryContext) -> Options:
    given = context.options
    name = given.get("format", given.get("value.format", ""))
    if name not in _FORMATS:
        hint = did_you_mean(name, _FORMATS)
        shown = f"has no format '{name}'" if name else "needs the option 'format'"
        message = f"{context.owner} {shown}.{hint} It has {', '.join(sorted(_FORMATS))}."
        raise ValidationError(message)
    return Options(context.owner, given, (*_OWN, *_FORMATS[name]), ("properties.",))


def _format(options: Options) -> str:
    found: str = options["format"] or options["value.format"]
    return found


def _row(context: FactoryContext) -> RowType:
    fields = tuple(RowField(each.name, each.type) for each in context.physical)
    return RowType(fields, nullable=False)


class _KafkaTable(TableSource):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        self._row = _row(context)
        self._options = options
        if (options["topic"] is None) == (options["topic-pattern"] is None):
            message = f"{context.owner} needs either 'topic' or 'topic-pattern' to be read."
            raise ValidationError(message)
        mode, time = options["scan.startup.mode"], options["scan.startup.timestamp-millis"]
        if (mode == "timestamp") != (time is not None):
            message = (
                f"{context.owner}: 'scan.startup.timestamp-millis' goes with "
                "'scan.startup.mode' = 'timestamp'."
            )
            raise ValidationError(message)

    def create(self) -> Source:
        options = self._options
        builder = KafkaSource.builder().set_properties(options.under("properties."))
        if options["topic"] is not None:
            builder.set_topics(*(each.strip() for each in options["topic"].split(";")))
        else:
            builder.set_topic_pattern(options["topic-pattern"])
        builder.set_starting_offsets(self._start())
        if options["scan.bounded.mode"] == "latest-offset":
            builder.set_bounded(KafkaOffsetsInitializer.latest())
        return builder.set_value_only_deserializer(self._deserializer()).build()

    def _start(self) -> KafkaOffsetsInitializer:
        mode = self._options["scan.startup.mode"]
        if mode == "timestamp":
            return KafkaOffsetsInitializer.timestamp(self._options["scan.startup.timestamp-millis"])
        made = {
            "earliest-offset": KafkaOffsetsInitializer.earliest,
            "latest-offset": KafkaOffsetsInitializer.latest,
            "group-offsets": KafkaOffsetsInitializer.committed_offsets,
        }
        return made[mode]()

    def _deserializer(self) -> Any:
        kind, options = external_type(self._row), self._options
        if _format(options) == "json":
            json = JsonRowDeserializationSchema.builder().type_info(kind)
            if options["json.ignore-parse-errors"]:
                json.ignore_parse_errors()
            if options["json.fail-on-missing-field"]:
                json.fail_on_missing_field()
            return json.build()
        csv = CsvRowDeserializationSchema.Builder(kind)
        csv.set_field_delimiter(options["csv.field-delimiter"])
        if options["csv.null-literal"] is not None:
            csv.set_null_literal(options["csv.null-literal"])
        csv.set_ignore_parse_errors(options["csv.ignore-parse-errors"])
        return csv.build()


class _KafkaTableSink(TableSink):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        self._row = _row(context)
        self._options = options
        self.parallelism = options["sink.parallelism"]
        if options["topic"] is None or ";" in options["topic"]:
            message = f"{context.owner} needs one 'topic' to be written."
            raise ValidationError(message)

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        del given
        return INSERT_ONLY

    def create(self) -> Sink:
        options, kind = self._options, external_type(self._row)
        value: Any
        if _format(options) == "json":
            value = JsonRowSerializationSchema.builder().with_type_info(kind).build()
        else:
            csv = CsvRowSerializationSchema.Builder(kind)
            csv.set_field_delimiter(options["csv.field-delimiter"])
            if options["csv.null-literal"] is not None:
                csv.set_null_literal(options["csv.null-literal"])
            value = csv.build()
        record = KafkaRecordSerializationSchema.builder().set_topic(options["topic"])
        builder = KafkaSink.builder()
        builder.set_bootstrap_servers(options["properties.bootstrap.servers"])
        for key, each in options.under("properties.").items():
            if key not in {"bootstrap.servers", "group.id"}:
                builder.set_property(key, each)
        if options["sink.transactional-id-prefix"] is not None:
            builder.set_transactional_id_prefix(options["sink.transactional-id-prefix"])
        builder.set_delivery_guarantee(DeliveryGuarantee(options["sink.delivery-guarantee"]))
        builder.set_record_serializer(record.set_value_serialization_schema(value).build())
        return builder.build()


def source(context: FactoryContext) -> TableSource:
    """Messages of topics as rows that are added."""
    return _KafkaTable(context, _options(context))


def sink(context: FactoryContext) -> TableSink:
    """Rows that are added as messages of a topic."""
    return _KafkaTableSink(context, _options(context))
