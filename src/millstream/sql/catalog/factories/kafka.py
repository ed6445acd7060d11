"""The ``kafka`` and ``upsert-kafka`` connectors.

A ``kafka`` table has the change types of its format.  An ``upsert-kafka`` table has one row per
key: a message replaces it, and a message without a value deletes it.
"""

from __future__ import annotations

import re
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.row_format import row_of_columns
from millstream.connectors.kafka.client import KafkaTopicPartition
from millstream.connectors.kafka.serialization import TableMessages, TableRecords, TableRecordsPlan
from millstream.connectors.kafka.sink import KafkaSink
from millstream.connectors.kafka.source import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSource,
)
from millstream.contracts.sink import DeliveryGuarantee
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import (
    INSERT_ONLY,
    METADATA_PREFIX,
    UPSERTS,
    FactoryContext,
    TableSink,
    TableSource,
)
from millstream.sql.catalog.formats import chosen_format
from millstream.sql.catalog.options import IDLE_TIMEOUT, Options, choice, duration, integer, text
from millstream.sql.stream_types import stream_type
from millstream.sql.suggestions import listed
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from millstream.connectors.formats.row_format import RowDecoder
    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source
    from millstream.sql.catalog.formats import ChosenFormat
    from millstream.types.types import TypeInformation


STARTUP: Final = (
    choice(
        "scan.startup.mode",
        ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets"),
        "group-offsets",
    ),
    integer("scan.startup.timestamp-millis"),
    text("scan.startup.specific-offsets"),
)
BOUNDED: Final = (
    choice(
        "scan.bounded.mode",
        ("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets"),
        "unbounded",
    ),
    integer("scan.bounded.timestamp-millis"),
    text("scan.bounded.specific-offsets"),
)
_PLACE: Final = re.compile(r"partition:([0-9]+),offset:([0-9]+)")


def topics(options: Options) -> list[str]:
    """The topics of the option ``topic``."""
    return [each.strip() for each in (options["topic"] or "").split(";") if each.strip()]


def _check(options: Options, word: str) -> None:
    """The options of each mode go with it alone."""
    mode = options[f"scan.{word}.mode"]
    for wanted, key in (
        ("timestamp", "timestamp-millis"),
        ("specific-offsets", "specific-offsets"),
    ):
        option = f"scan.{word}.{key}"
        if (mode == wanted) != (options[option] is not None):
            message = f"{options.owner}: '{option}' goes with 'scan.{word}.mode' = '{wanted}'."
            raise ValidationError(message)


def _given(options: Options, key: str) -> dict[KafkaTopicPartition, int]:
    named = topics(options)
    if len(named) != 1:
        message = f"{options.owner}: '{key}' is of a single topic."
        raise ValidationError(message)
    found = {}
    for part in str(options[key]).strip(";").split(";"):
        place = _PLACE.fullmatch(part.strip())
        if place is None:
            message = (
                f"{options.owner}: '{key}' should follow the format "
                f"'partition:0,offset:42;partition:1,offset:300', but is '{options[key]}'."
            )
            raise ValidationError(message)
        found[KafkaTopicPartition(named[0], int(place[1]))] = int(place[2])
    return found


def begin(options: Options) -> KafkaOffsetsInitializer:
    """Where reading begins."""
    _check(options, "startup")
    mode = options["scan.startup.mode"]
    if mode == "timestamp":
        return KafkaOffsetsInitializer.timestamp(options["scan.startup.timestamp-millis"])
    if mode == "specific-offsets":
        return KafkaOffsetsInitializer.offsets(_given(options, "scan.startup.specific-offsets"))
    if mode == "group-offsets":
        return KafkaOffsetsInitializer.committed_offsets(_reset(options))
    made: dict[str, Any] = {
        "earliest-offset": KafkaOffsetsInitializer.earliest,
        "latest-offset": KafkaOffsetsInitializer.latest,
    }
    found: KafkaOffsetsInitializer = made[mode]()
    return found


def _reset(options: Options) -> KafkaOffsetResetStrategy:
    given = options.given.get("properties.auto.offset.reset", "none").lower()
    by_name = {each.name.lower(): each for each in KafkaOffsetResetStrategy}
    if given not in by_name:
        message = (
            f"{options.owner}: 'properties.auto.offset.reset' is one of "
            f"{', '.join(sorted(by_name))}, not '{given}'."
        )
        raise ValidationError(message)
    return by_name[given]


def end(options: Options) -> KafkaOffsetsInitializer | None:
    """Where reading ends; None: it does not."""
    _check(options, "bounded")
    mode = options["scan.bounded.mode"]
    if mode == "timestamp":
        return KafkaOffsetsInitializer.timestamp(options["scan.bounded.timestamp-millis"])
    if mode == "specific-offsets":
        return KafkaOffsetsInitializer.offsets(_given(options, "scan.bounded.specific-offsets"))
    if mode == "group-offsets":
        return KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.LATEST)
    return KafkaOffsetsInitializer.latest() if mode == "latest-offset" else None


_BOTH: Final = (
    text("topic"),
    text("topic-pattern"),
    text("properties.bootstrap.servers", required=True),
    text("key.format"),
    text("value.format"),
    text("key.fields-prefix", ""),
    choice("value.fields-include", ("all", "except_key"), "all"),
    *BOUNDED,
    IDLE_TIMEOUT,
    duration("scan.topic-partition-discovery.interval"),
    choice("sink.delivery-guarantee", ("exactly-once", "at-least-once", "none"), "at-least-once"),
    text("sink.transactional-id-prefix"),
    integer("sink.parallelism"),
)
_PLAIN: Final = (
    *_BOTH,
    text("format"),
    text("key.fields"),
    *STARTUP,
    choice("sink.partitioner", ("default",), "default"),
)
_UPSERT: Final = (
    *_BOTH,
    integer("sink.buffer-flush.max-rows", 0),
    duration("sink.buffer-flush.interval", 0),
)
#: Connector -> its options, without those of formats and of Kafka's clients.
OPTIONS: Final = {"kafka": _PLAIN, "upsert-kafka": _UPSERT}
_STRING: Final = lt.VarCharType()
_BYTES: Final = lt.VarBinaryType()
_HEADERS: Final = lt.MapType(_STRING, _BYTES)
_TIME: Final = lt.LocalZonedTimestampType(precision=3)
_READABLE: Final[dict[str, lt.LogicalType]] = {
    "topic": _STRING.not_null(),
    "partition": lt.IntType(nullable=False),
    "headers": _HEADERS.not_null(),
    "header-list": lt.ArrayType(
        lt.RowType(
            (lt.RowField("key", _STRING.not_null()), lt.RowField("value", _BYTES)), nullable=False
        ),
        nullable=False,
    ),
    "leader-epoch": lt.IntType(),
    "offset": lt.BigIntType(nullable=False),
    "timestamp": _TIME.not_null(),
    "timestamp-type": _STRING.not_null(),
}
_WRITABLE: Final[dict[str, lt.LogicalType]] = {
    "topic": _STRING.not_null(),
    "headers": _HEADERS,
    "timestamp": _TIME,
}
#: Before the keys of metadata of the value's format.
_VALUE: Final = "value."


@dataclass(frozen=True)
class _Layout:
    """A table's options, formats, and which columns the parts of a message hold."""

    context: FactoryContext
    options: Options
    key: ChosenFormat | None
    value: ChosenFormat
    key_columns: tuple[int, ...]
    value_columns: tuple[int, ...]
    upsert: bool

    def part(self, columns: tuple[int, ...], prefix: str = "") -> lt.RowType:
        """The row that a part of the message is."""
        physical = self.context.physical
        chosen = [physical[each] for each in columns]
        return lt.RowType(
            tuple(lt.RowField(each.name.removeprefix(prefix), each.type) for each in chosen),
            nullable=False,
        )

    @property
    def key_row(self) -> lt.RowType:
        """The row of the key, without the prefix of its columns."""
        return self.part(self.key_columns, self.options["key.fields-prefix"])

    @property
    def value_row(self) -> lt.RowType:
        """The row of the value."""
        return self.part(self.value_columns)


def _layout(context: FactoryContext) -> _Layout:
    upsert = context.table.options["connector"] == "upsert-kafka"
    owner, given = context.owner, context.options
    named = given.get("topic", "").strip("; ")
    topic = named if named and ";" not in named else None
    whole = None if upsert else chosen_format(owner, given, topic=topic)
    value = chosen_format(owner, given, "value", topic=topic)
    key = chosen_format(owner, given, "key", topic=topic)
    if whole is not None and value is not None:
        message = f"{owner} takes either 'format' or 'value.format'."
        raise ValidationError(message)
    found = whole or value
    formats = [each for each in (found, key) if each is not None]
    known = _UPSERT if upsert else _PLAIN
    options = Options(
        owner, given, (*known, *(one for each in formats for one in each.known)), ("properties.",)
    )
    if found is None or (upsert and key is None):
        missing = "value.format" if upsert and found is None else "format"
        missing = "key.format" if found is not None else missing
        from millstream.sql.catalog.formats import FORMATS

        message = f"{owner} needs the option '{missing}'. It has {listed(sorted(FORMATS))}."
        raise ValidationError(message)
    _check_key(context, options, key, found, upsert=upsert)
    names = [each.name for each in context.physical]
    key_columns = _key_columns(context, options, names, upsert=upsert)
    if options["value.fields-include"] == "all":
        value_columns = tuple(range(len(names)))
        if options["key.fields-prefix"]:
            message = (
                f"{owner}: A key prefix is not allowed when option 'value.fields-include' is set "
                "to 'ALL'. Set it to 'EXCEPT_KEY' instead to avoid field overlaps."
            )
            raise ValidationError(message)
    else:
        value_columns = tuple(each for each in range(len(names)) if each not in key_columns)
    return _Layout(context, options, key, found, key_columns, value_columns, upsert)


def _check_key(
    context: FactoryContext,
    options: Options,
    key: ChosenFormat | None,
    value: ChosenFormat,
    *,
    upsert: bool,
) -> None:
    """What a primary key and the formats have to do with each other.

    Raises:
        ValidationError: they do not go together.
    """
    has_key = bool(context.table.schema.key_columns)
    if upsert and not has_key:
        message = (
            "'upsert-kafka' tables require to define a PRIMARY KEY constraint. The PRIMARY KEY "
            "specifies which columns should be read from or write to the Kafka message key. The "
            "PRIMARY KEY also defines records in the 'upsert-kafka' table should update or delete "
            "on which keys."
        )
        raise ValidationError(message)
    for part, each in (("key", key), ("value", value)):
        if each is not None and each.changes != INSERT_ONLY and (upsert or part == "key"):
            message = (
                f"'{context.table.options['connector']}' connector doesn't support '{each.name}' "
                f"as {part} format, because '{each.name}' is not in insert-only mode."
            )
            raise ValidationError(message)
    if not upsert and has_key and value.changes == INSERT_ONLY:
        message = (
            f"The Kafka table '{context.identifier.as_summary_string()}' with '{value.name}' "
            "format doesn't support defining PRIMARY KEY constraint on the table, because it "
            "can't guarantee the semantic of primary key."
        )
        raise ValidationError(message)
    if upsert:
        flush = options["sink.buffer-flush.max-rows"] > 0, options["sink.buffer-flush.interval"] > 0
        if any(flush) != all(flush):
            message = (
                "'sink.buffer-flush.max-rows' and 'sink.buffer-flush.interval' must be set to be "
                "greater than zero together to enable sink buffer flushing."
            )
            raise ValidationError(message)
        return
    if (key is None) != (options["key.fields"] is None):
        message = f"{context.owner}: 'key.format' and 'key.fields' go together."
        raise ValidationError(message)


def _key_columns(
    context: FactoryContext, options: Options, names: list[str], *, upsert: bool
) -> tuple[int, ...]:
    if upsert:
        fields = list(context.table.schema.key_columns)
    else:
        given = options["key.fields"] or ""
        fields = [each.strip() for each in given.split(";") if each.strip()]
    prefix = options["key.fields-prefix"]
    for each in fields:
        if each not in names:
            message = (
                f"{context.owner}: Could not find the field '{each}' in the table schema for usage "
                "in the key format. A key field must be a regular, physical column. The following "
                f"columns can be selected in the 'key.fields' option: {names}"
            )
            raise ValidationError(message)
        if not each.startswith(prefix):
            message = (
                f"{context.owner}: All fields in 'key.fields' must be prefixed with '{prefix}' "
                f"when option 'key.fields-prefix' is set but field '{each}' is not prefixed."
            )
            raise ValidationError(message)
    return tuple(names.index(each) for each in fields)


class _KafkaTable(TableSource):
    def __init__(self, layout: _Layout) -> None:
        self._layout = layout
        self.changes = UPSERTS if layout.upsert else layout.value.changes
        options = self._options = layout.options
        if (options["topic"] is None) == (options["topic-pattern"] is None):
            message = f"{options.owner} needs either 'topic' or 'topic-pattern' to be read."
            raise ValidationError(message)
        #: Names of the columns that somebody reads; None: all.
        self._read: frozenset[str] | None = None
        self._end = end(options)
        self._begin = None if layout.upsert else begin(options)
        layout.value.decoder(layout.value_row, options)
        if layout.key is not None:
            layout.key.decoder(layout.key_row, options)

    def metadata(self) -> Mapping[str, lt.LogicalType]:
        more = {f"{_VALUE}{key}": kind for key, kind in self._layout.value.metadata.items()}
        return {**_READABLE, **more}

    def with_columns(self, names: Collection[str]) -> TableSource:
        made = copy(self)
        made._read = frozenset(names)  # noqa: SLF001 - of the same class
        return made

    def create(self) -> Source:
        options = self._options
        builder = KafkaSource.builder().set_properties(options.under("properties."))
        interval = options["scan.topic-partition-discovery.interval"]
        if interval is not None:
            builder.set_property("partition.discovery.interval.ms", str(interval))
        if options["topic"] is not None:
            builder.set_topics(*topics(options))
        else:
            builder.set_topic_pattern(options["topic-pattern"])
        # All of an upsert table is read: what is there is known by what was before.
        builder.set_starting_offsets(self._begin or KafkaOffsetsInitializer.earliest())
        if self._end is not None:
            builder.set_bounded(self._end)
        return builder.set_deserializer(self._records()).build()

    def _records(self) -> TableRecords:
        layout, read = self._layout, self._read
        keys = [
            each.key
            for each in layout.context.table.schema.columns
            if each.is_metadata() and (read is None or each.name in read)
        ]
        wanted = list(dict.fromkeys(keys))
        known = self.metadata()
        of_value = [key for key in wanted if key.startswith(_VALUE)]
        said = [key.removeprefix(_VALUE) for key in of_value]
        value, value_columns = self._value(said)
        # All of a key: one that is not there has no row.
        kept = sorted({*value_columns, *layout.key_columns})
        physical = layout.context.physical
        fields = [lt.RowField(each.name, each.type) for each in (physical[at] for at in kept)]
        fields += [lt.RowField(METADATA_PREFIX + key, known[key]) for key in wanted]
        places = {key: len(kept) + place for place, key in enumerate(wanted)}
        key = layout.key
        plan = TableRecordsPlan(
            row=lt.RowType(tuple(fields), nullable=False),
            value=value,
            value_columns=(
                *map(kept.index, value_columns),
                *(places[each] for each in of_value),
            ),
            key=None if key is None else key.decoder(layout.key_row, layout.options),
            key_columns=tuple(map(kept.index, layout.key_columns)),
            metadata=tuple((place, each) for each, place in places.items() if each not in of_value),
            upsert=layout.upsert,
            advice=layout.value.advice,
        )
        return TableRecords(plan)

    def _value(self, said: Sequence[str]) -> tuple[RowDecoder, tuple[int, ...]]:
        """Return what reads values, and the columns that these have of those that are wanted."""
        layout, columns = self._layout, self._layout.value_columns
        row = layout.value_row
        whole = layout.value.decoder(row, layout.options, said)
        if self._read is None or not row.fields:
            return whole, columns
        wanted = row_of_columns(row, self._read)
        made = whole.narrowed(wanted) if len(wanted) < len(row) else None
        if made is None:
            return whole, columns
        return made, tuple(columns[row.index_of(name)] for name in wanted.names)


class _KafkaTableSink(TableSink):
    def __init__(self, layout: _Layout) -> None:
        self._layout = layout
        self._options = options = layout.options
        self.parallelism = options["sink.parallelism"]
        said = {each.key for each in layout.context.table.schema.persisted if each.is_metadata()}
        one = len(topics(options)) == 1 and options["topic-pattern"] is None
        if not one and "topic" not in said:
            message = f"{options.owner} needs one 'topic' to be written, or the metadata 'topic'."
            raise ValidationError(message)
        layout.value.encoder(layout.value_row, options)
        if layout.key is not None:
            layout.key.encoder(layout.key_row, options)

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        if self._layout.upsert:
            return UPSERTS
        return INSERT_ONLY if given == INSERT_ONLY else self._layout.value.changes

    def metadata(self) -> Mapping[str, lt.LogicalType]:
        return _WRITABLE

    def stream_type(self, declared: TypeInformation) -> TypeInformation:
        del declared
        persisted = self._layout.context.table.schema.persisted
        kinds = [_WRITABLE[each.key] if each.is_metadata() else each.type for each in persisted]
        fields = (lt.RowField(each.name, kind) for each, kind in zip(persisted, kinds, strict=True))
        return stream_type(lt.RowType(tuple(fields), nullable=False))

    def create(self) -> Sink:
        options = self._options
        builder = KafkaSink.builder()
        builder.set_bootstrap_servers(options["properties.bootstrap.servers"])
        for key, each in options.under("properties.").items():
            if key not in {"bootstrap.servers", "group.id", "auto.offset.reset"}:
                builder.set_property(key, each)
        if options["sink.transactional-id-prefix"] is not None:
            builder.set_transactional_id_prefix(options["sink.transactional-id-prefix"])
        builder.set_delivery_guarantee(DeliveryGuarantee(options["sink.delivery-guarantee"]))
        builder.set_record_serializer(self._messages())
        return builder.build()

    def _messages(self) -> TableMessages:
        layout, options = self._layout, self._options
        persisted = layout.context.table.schema.persisted
        physical = [at for at, each in enumerate(persisted) if each.is_physical()]
        metadata = {each.key: at for at, each in enumerate(persisted) if each.is_metadata()}
        named = topics(options)
        key = layout.key
        return TableMessages(
            None if "topic" in metadata else named[0],
            layout.value.encoder(layout.value_row, options),
            tuple(physical[each] for each in layout.value_columns),
            key=None if key is None else key.encoder(layout.key_row, options),
            key_columns=tuple(physical[each] for each in layout.key_columns),
            metadata=metadata,
            upsert=layout.upsert,
            compact=layout.upsert and options["sink.buffer-flush.max-rows"] > 0,
            allowed=options["topic-pattern"] or frozenset(named),
        )


def source(context: FactoryContext) -> TableSource:
    """Messages of topics as changes of rows."""
    return _KafkaTable(_layout(context))


def sink(context: FactoryContext) -> TableSink:
    """Changes of rows as messages of a topic."""
    return _KafkaTableSink(_layout(context))
