"""Avro records in messages whose schemas are in a schema registry.

A record is read by the schema that it was written with, which the registry has under the id in the
message; its fields become columns by their names.  Written records have the schema of the table,
which is registered when the job is submitted.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.formats.avro_format import (
    avro_json_of,
    avro_records,
    misfit,
    parsed_avro_schema,
    value_reader,
)
from millstream.connectors.formats.avro_messages import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    MessageBlocks,
    decoded,
)
from millstream.connectors.formats.row_format import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    RowDecoder,
    RowEncoder,
    arrow_schema,
)
from millstream.connectors.formats.schema_registry import (
    HEADER_SIZE,
    RegisteredSchema,
    SchemaRegistryClient,
    header_of,
    schema_id,
)
from millstream.errors import ConfigurationError, ValidationError
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from millstream.connectors.formats.avro_format import AvroSchema
    from millstream.connectors.formats.file_format import SchemaLike


#: The name that Flink gives the record of a table.
_RECORD: Final = "org.apache.flink.avro.generated.record"
#: Schemas that a decoder keeps parsed at most.
_MOST_PARSED: Final = 1000


def writer_schema(client: SchemaRegistryClient, identifier: int) -> Any:
    """Return the schema of an id as fastavro wants it, with the schemas that it refers to.

    Raises:
        ValueError: there is none, or it is not one of Avro records.
    """
    import fastavro

    found = client.schema(identifier)
    if found.kind != "AVRO":
        reason = f"schema id {identifier} is a schema of {found.kind}, not of AVRO"
        raise ValueError(reason)
    named: dict[str, Any] = {}
    left, order = [found], [found]
    while left:
        each = left.pop()
        more = [client.referenced(reference) for reference in each.references]
        left += more
        order += more
    try:
        for each in order[:0:-1]:
            fastavro.parse_schema(json.loads(each.text), named_schemas=named)
        if found.references:
            return fastavro.parse_schema(json.loads(found.text), named_schemas=named, expand=True)
        return parsed_avro_schema(found.text)
    except (ValueError, fastavro.schema.SchemaParseException, ConfigurationError) as error:
        reason = f"the schema registry's schema id {identifier}: {error}"
        raise ValueError(reason) from error


@dataclass(frozen=True)
class _Writer:
    """A schema that records were written with, and how rows of the table are read of them."""

    schema: Any
    #: What reads many messages at once, and the places of the table's columns in what it reads.
    blocks: MessageBlocks | None
    places: tuple[int | None, ...]


class _RecordReader:
    """Reads records by the schemas of their writers; pickled to the workers.

    Args:
        row: the fields that are wanted.
        client: of the registry.
        text: the reader's schema; None: fields are found by their names.

    Raises:
        ValidationError: the reader's schema is none of such rows.
    """

    def __init__(
        self, row: lt.RowType, client: SchemaRegistryClient, text: str | None = None
    ) -> None:
        self.row, self._client = row, client
        self._reader: Any = None if text is None else parsed_avro_schema(text)
        if self._reader is not None:
            wrong = misfit(self._reader, row)
            if wrong is not None:
                message = f"the option 'schema' does not match the table schema: {wrong}"
                raise ValidationError(message)
        avro_json_of(_without_precision(row), legacy=False, name=_RECORD)
        self._writers: dict[int, _Writer] = {}
        self._fields: list[tuple[str, Callable[[Any], Any], bool]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made of closures, and without schemas."""
        return self.__dict__ | {"_fields": None, "_writers": {}}

    def writer(self, identifier: int) -> _Writer:
        """Return the schema of an id; raises ValueError if its records are no such rows."""
        found = self._writers.get(identifier)
        if found is None:
            schema = writer_schema(self._client, identifier)
            wrong = None if self._reader is not None else misfit(schema, self.row)
            if wrong is not None:
                reason = f"schema id {identifier} does not fit the table: {wrong}"
                raise ValueError(reason)
            plain = None if self._reader is not None else _plain_row(schema, self.row)
            names = [] if plain is None else plain.names
            places = tuple(
                names.index(each.name) if each.name in names else None for each in self.row.fields
            )
            if len(self._writers) >= _MOST_PARSED:
                self._writers.clear()
            blocks = None if plain is None else MessageBlocks(plain)
            found = self._writers[identifier] = _Writer(schema, blocks, places)
        return found

    def values(self, message: bytes) -> list[Any]:
        """Return the fields of a message's record; raises ValueError."""
        if self._fields is None:
            self._fields = [
                (each.name, value_reader(each.type), each.type.is_nullable)
                for each in self.row.fields
            ]
        schema = self.writer(schema_id(message)).schema
        reader = None if self._reader is None else named_as(self._reader, schema)
        record = decoded(message[HEADER_SIZE:], schema, "schema in the registry", reader)
        made = []
        for name, read, nullable in self._fields:
            value = record.get(name)
            if value is None and not nullable:
                reason = f"NULL in column '{name}', which is NOT NULL"
                raise ValueError(reason)
            made.append(read(value))
        return made

    def columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """Return a row per message, all at once; None: they are to be read one by one."""
        headers = {each[:HEADER_SIZE] for each in messages}
        if len(headers) != 1:
            return None
        try:
            writer = self.writer(schema_id(headers.pop()))
        except ValueError:
            return None
        if writer.blocks is None:
            return None
        read = writer.blocks.read([each[HEADER_SIZE:] for each in messages])
        if read is None:
            return None
        schema = arrow_schema(self.row)
        arrays = [
            pa.nulls(len(messages), field.type) if place is None else read.column(place)
            for place, field in zip(writer.places, schema, strict=True)
        ]
        for each, array in zip(self.row.fields, arrays, strict=True):
            if array.null_count and not each.type.is_nullable:
                return None
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _without_precision(row: lt.RowType) -> lt.RowType:
    """Return a row whose times have a precision that each schema can have: any is read."""

    def plain(kind: lt.LogicalType) -> lt.LogicalType:
        if isinstance(kind, lt.TimestampType | lt.LocalZonedTimestampType | lt.TimeType):
            return type(kind)(precision=3, nullable=kind.is_nullable)
        return kind

    fields = tuple(lt.RowField(each.name, plain(each.type)) for each in row.fields)
    return lt.RowType(fields, nullable=row.is_nullable)


def named_as(reader: Any, writer: Any) -> Any:
    """Return the reader's schema with the name of the writer's record: Flink compares none."""
    if not isinstance(writer, dict) or reader.get("name") == writer.get("name"):
        return reader
    return {**reader, "name": writer["name"]}


#: Types of Avro for columns that the table lacks.
_UNREAD: Final[dict[str, type[lt.LogicalType]]] = {
    "boolean": lt.BooleanType,
    "int": lt.IntType,
    "long": lt.BigIntType,
    "float": lt.FloatType,
    "double": lt.DoubleType,
    "string": lt.VarCharType,
    "bytes": lt.VarBinaryType,
}
_MILLIS: Final = 3
_MICROS: Final = 6


def _plain_row(schema: Any, row: lt.RowType) -> lt.RowType | None:
    """Return the row that blocks of a writer's records are read as; None: they are not."""
    wanted = {each.name: each.type for each in row.fields}
    fields = []
    for each in schema["fields"]:
        avro = each["type"]
        is_union = isinstance(avro, list)
        if is_union and (len(avro) != 2 or avro[0] != "null"):  # noqa: PLR2004 - null or a value
            return None
        kind = _plain_type(avro[1] if is_union else avro, wanted.get(each["name"]))
        if kind is None:
            return None
        fields.append(lt.RowField(each["name"], kind.with_nullability(is_union)))
    return lt.RowType(tuple(fields), nullable=False)


def _plain_type(avro: Any, wanted: lt.LogicalType | None) -> lt.LogicalType | None:  # noqa: C901, PLR0911 - a table
    """Return the type that a field is read as; its bytes are those of the column's type."""
    named = avro if isinstance(avro, dict) else {"type": avro}
    name, logical = named["type"], named.get("logicalType")
    if not isinstance(name, str):
        return None
    if wanted is None:
        return _UNREAD[name]() if name in _UNREAD else None
    if isinstance(wanted, lt.DecimalType):
        sizes = named.get("precision"), named.get("scale", 0)
        same = name == "bytes" and logical == "decimal"
        return wanted if same and sizes == (wanted.precision, wanted.scale) else None
    if isinstance(wanted, lt.TimestampType | lt.LocalZonedTimestampType):
        unit = "millis" if wanted.precision <= _MILLIS else "micros"
        taken = (None, f"timestamp-{unit}", f"local-timestamp-{unit}")
        fits = wanted.precision <= _MICROS and name == "long" and logical in taken
        return wanted if fits else None
    if isinstance(wanted, lt.TimeType):
        fits = wanted.precision <= _MILLIS and name == "int" and logical in (None, "time-millis")
        return wanted if fits else None
    if isinstance(wanted, lt.DateType):
        return wanted if name == "int" and logical in (None, "date") else None
    if logical is not None:
        return None
    if isinstance(wanted, lt.TinyIntType | lt.SmallIntType | lt.IntType):
        return wanted if name == "int" else None
    if isinstance(wanted, lt.BigIntType):
        return wanted if name in {"int", "long"} else None
    if isinstance(wanted, lt.CharType | lt.VarCharType):
        return wanted if name == "string" else None
    if isinstance(wanted, lt.BinaryType | lt.VarBinaryType):
        return wanted if name == "bytes" else None
    plain: dict[type, str] = {
        lt.BooleanType: "boolean",
        lt.FloatType: "float",
        lt.DoubleType: "double",
    }
    return wanted if plain.get(type(wanted)) == name else None


class RegistryAvroDecoder(RowDecoder):
    """One record per message.

    Args:
        row: the table.
        client: of the registry.
        schema: the reader's schema as JSON; None: fields are found by the names of columns.

    Raises:
        ValidationError: Avro holds no values of a column's type, or the schema is another one.
    """

    def __init__(
        self, row: lt.RowType, client: SchemaRegistryClient, schema: str | None = None
    ) -> None:
        super().__init__(row)
        self._client, self._text = client, schema
        self._records = _RecordReader(row, client, schema)

    def decode(self, message: bytes | None) -> list[tuple[int, Sequence[Any]]]:
        return [] if message is None else [(INSERT, self._records.values(message))]

    def columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        return self._records.columns(messages)

    def narrowed(self, row: lt.RowType) -> RowDecoder | None:
        """Those fields alone; a reader's schema stays whole."""
        return RegistryAvroDecoder(row, self._client, self._text)


class _RecordWriter:
    """Writes records of one schema, which is registered first; pickled to the workers.

    Args:
        row: the fields.
        client: of the registry.
        subject: where the schema is registered; ``{record}`` in it is the record's name.
        text: the schema; None: that of the row.
        legacy: whether TIMESTAMP is written as instants in milliseconds alone.
        nullable: whether the schema is a union of null and the record.

    Raises:
        ValidationError: Avro holds no such values, or the schema is not that of such rows.
    """

    def __init__(
        self,
        row: lt.RowType,
        client: SchemaRegistryClient,
        subject: str,
        text: str | None,
        *,
        legacy: bool,
    ) -> None:
        self.row, self._client = row, client
        own = avro_json_of(row, legacy=legacy, name=_RECORD)
        self._text = json.dumps(own) if text is None else text
        self._parsed: Any = parsed_avro_schema(self._text)
        if text is not None and _shape(json.loads(text)) != _shape(own):
            message = (
                "the option 'schema' does not match the table schema, which is in Avro: "
                f"{json.dumps(own)}"
            )
            raise ValidationError(message)
        self._subject = subject.replace("{record}", self._parsed["name"])

    def identifier(self) -> int:
        """Register the schema, once per process, and return its id; raises as the registry."""
        return self._client.register(self._subject, RegisteredSchema(self._text))

    def messages(self, records: Any) -> list[bytes | None]:
        """Return a message per record."""
        import fastavro

        header = header_of(self.identifier())
        made: list[bytes | None] = []
        for record in records:
            stream = io.BytesIO()
            stream.write(header)
            fastavro.schemaless_writer(stream, self._parsed, record)
            made.append(stream.getvalue())
        return made


def _shape(schema: Any) -> Any:
    """Return what of a schema decides how values are written."""
    if isinstance(schema, list):
        return [_shape(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema["type"], dict | list):
        return _shape(schema["type"])
    kept = ("type", "logicalType", "precision", "scale")
    found: dict[str, Any] = {key: schema[key] for key in kept if key in schema}
    if "fields" in schema:
        found["fields"] = [(each["name"], _shape(each["type"])) for each in schema["fields"]]
    for part in ("items", "values"):
        if part in schema:
            found[part] = _shape(schema[part])
    return found["type"] if list(found) == ["type"] else found


class RegistryAvroEncoder(RowEncoder):
    """One record per row; arguments as of the decoder.

    Args:
        subject: where the schema is registered; ``{record}`` in it is the record's name.
        legacy: whether TIMESTAMP is written as instants in milliseconds alone.
    """

    def __init__(
        self,
        row: lt.RowType,
        client: SchemaRegistryClient,
        subject: str,
        schema: str | None = None,
        *,
        legacy: bool = True,
    ) -> None:
        super().__init__(row)
        record = self._record_of(row)
        self._records = _RecordWriter(record, client, subject, schema, legacy=legacy)

    @staticmethod
    def _record_of(row: lt.RowType) -> lt.RowType:
        """Return the type of the record that a row is written as."""
        return row

    def validate(self) -> None:
        self._records.identifier()

    def encode(
        self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None
    ) -> Sequence[bytes | None]:
        del kinds
        return self._records.messages(avro_records(self.row, columns))


# -- changelogs of databases -----------------------------------------------------------------------


def _envelope(row: lt.RowType) -> lt.RowType:
    """Return Debezium's message of a row, as Flink has it."""
    part = lt.RowType(row.fields, nullable=True)
    fields = (
        lt.RowField("before", part),
        lt.RowField("after", part),
        lt.RowField("op", lt.VarCharType()),
    )
    return lt.RowType(fields, nullable=False)


class DebeziumAvroDecoder(RowDecoder):
    """Envelopes of Debezium as Avro records; arguments as of ``RegistryAvroDecoder``."""

    def __init__(
        self, row: lt.RowType, client: SchemaRegistryClient, schema: str | None = None
    ) -> None:
        super().__init__(row)
        self._client, self._text = client, schema
        self._records = _RecordReader(_envelope(row), client, schema)

    def decode(self, message: bytes | None) -> list[tuple[int, Sequence[Any]]]:
        if not message:
            return []  # a tombstone follows a deletion
        before, after, kind = self._records.values(message)
        if kind in {"c", "r"}:
            return [(INSERT, self._row(after, "after", kind))]
        if kind == "u":
            return [
                (UPDATE_BEFORE, self._row(before, "before", kind)),
                (UPDATE_AFTER, self._row(after, "after", kind)),
            ]
        if kind == "d":
            return [(DELETE, self._row(before, "before", kind))]
        reason = f'unknown "op" value {kind!r}'
        raise ValueError(reason)

    def narrowed(self, row: lt.RowType) -> RowDecoder | None:
        """Those fields alone."""
        return DebeziumAvroDecoder(row, self._client, self._text)

    def _row(self, part: dict[str, Any] | None, name: str, kind: str) -> list[Any]:
        if part is None:
            reason = f'the "{name}" field of a message with the op {kind!r} is null' + (
                "; for PostgreSQL set the table's REPLICA IDENTITY to FULL"
                if name == "before"
                else ""
            )
            raise ValueError(reason)
        for each in self.row.fields:
            if part[each.name] is None and not each.type.is_nullable:
                reason = f"NULL in column '{each.name}', which is NOT NULL"
                raise ValueError(reason)
        return [part[each.name] for each in self.row.fields]


class DebeziumAvroEncoder(RegistryAvroEncoder):
    """Rows as envelopes of Debezium, an update as a deletion and an insertion, as Flink.

    Arguments as of ``RegistryAvroEncoder``.
    """

    _record_of = staticmethod(_envelope)

    def encode(
        self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None
    ) -> Sequence[bytes | None]:
        rows = list(avro_records(self.row, columns))
        gone = [False] * len(rows) if kinds is None else [bool(each & 1) for each in kinds.tolist()]
        return self._records.messages(
            {
                "before": row if is_gone else None,
                "after": None if is_gone else row,
                "op": "d" if is_gone else "c",
            }
            for row, is_gone in zip(rows, gone, strict=True)
        )


# -- records of the DataStream API -----------------------------------------------------------------


class ConfluentRegistryAvroDeserializationSchema(AvroRowDeserializationSchema):
    """Messages that hold one Avro record each, with the id of its schema; by ``for_generic``.

    Args:
        avro_schema_string: the reader's schema, as JSON.
        client: of the registry.
        type_info: the row type; None takes that of the schema.
    """

    def __init__(
        self,
        avro_schema_string: str,
        client: SchemaRegistryClient,
        type_info: SchemaLike | None = None,
    ) -> None:
        super().__init__(avro_schema_string, type_info)
        self._client = client
        self._writers: dict[int, Any] = {}

    @staticmethod
    def for_generic(
        schema: str | AvroSchema, url: str, registry_configs: Mapping[str, str] | None = None
    ) -> ConfluentRegistryAvroDeserializationSchema:
        """Read records of a schema.

        Args:
            schema: the reader's schema; records of older and newer writers are converted to it.
            url: of the registry.
            registry_configs: by Confluent's names, such as ``basic.auth.user.info``.

        Raises:
            ConfigurationError: the schema, the url or a setting makes no sense.
        """
        client = SchemaRegistryClient(url, registry_configs)
        return ConfluentRegistryAvroDeserializationSchema(str(schema), client)

    def __getstate__(self) -> dict[str, Any]:
        """Without schemas of writers."""
        return self.__dict__ | {"_writers": {}}

    def _decode(self, message: bytes) -> dict[str, Any]:
        identifier = schema_id(message)
        if identifier not in self._writers:
            if len(self._writers) >= _MOST_PARSED:
                self._writers.clear()
            self._writers[identifier] = writer_schema(self._client, identifier)
        writer = self._writers[identifier]
        reader = named_as(self._parsed, writer)
        return decoded(message[HEADER_SIZE:], writer, "schema in the registry", reader)


class ConfluentRegistryAvroSerializationSchema(AvroRowSerializationSchema):
    """Records in Avro's binary form, after the id of their schema; by ``for_generic``.

    Args:
        avro_schema_string: the schema, as JSON.
        client: of the registry.
        subject: where the schema is registered.
    """

    def __init__(self, avro_schema_string: str, client: SchemaRegistryClient, subject: str) -> None:
        super().__init__(avro_schema_string)
        self._text, self._client, self._subject = avro_schema_string, client, subject

    @staticmethod
    def for_generic(
        subject: str,
        schema: str | AvroSchema,
        url: str,
        registry_configs: Mapping[str, str] | None = None,
    ) -> ConfluentRegistryAvroSerializationSchema:
        """Write records of a schema, which is registered when the job is submitted.

        Args:
            subject: where, such as ``topic-value``.
            schema: of the records.
            url: of the registry.
            registry_configs: by Confluent's names, such as ``basic.auth.user.info``.

        Raises:
            ConfigurationError: the schema, the url or a setting makes no sense.
        """
        client = SchemaRegistryClient(url, registry_configs)
        return ConfluentRegistryAvroSerializationSchema(str(schema), client, subject)

    def validate(self) -> None:
        self._identifier()

    def serialize(self, element: object) -> bytes:
        return header_of(self._identifier()) + super().serialize(element)

    def _identifier(self) -> int:
        return self._client.register(self._subject, RegisteredSchema(self._text))
