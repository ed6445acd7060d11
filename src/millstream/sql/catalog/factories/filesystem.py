"""Tables in files: ``'connector' = 'filesystem'`` with avro, csv, json, parquet and others.

What it is: FileSource and FileSink behind a table; a line is a message where the format is one of
messages.
What it is not: the formats (``sql/catalog/formats.py``, ``connectors/formats/``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.files.file_columns import FileColumns
from millstream.connectors.files.file_writers import ParquetWriterFactory
from millstream.connectors.files.partitions import PartitionSplitter
from millstream.connectors.files.sink import FileSink
from millstream.connectors.files.source import FileSource
from millstream.connectors.formats.csv_format import CsvFormat, CsvOptions
from millstream.connectors.formats.csv_writer import CsvWriterFactory
from millstream.connectors.formats.json_format import JsonLinesFormat
from millstream.connectors.formats.parquet_format import ParquetFormat
from millstream.connectors.formats.tables.avro_table import (
    AvroTableFormat,
    AvroTableWriterFactory,
)
from millstream.connectors.formats.tables.codec import arrow_schema
from millstream.connectors.formats.tables.lines import MessageLines, MessageLinesWriterFactory
from millstream.connectors.formats.tables.texts import text_parser
from millstream.connectors.lookups.whole_source import WholeSourceLookup
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import (
    INSERT_ONLY,
    METADATA_PREFIX,
    FactoryContext,
    TableLookup,
    TableSink,
    TableSource,
)
from millstream.sql.catalog.formats import chosen_format
from millstream.sql.catalog.options import Option, Options, boolean, choice, duration, integer, text
from millstream.sql.lowering.stream_types import stream_type
from millstream.sql.suggestions import did_you_mean
from millstream.types.logical_types import (
    BigIntType,
    BooleanType,
    CharType,
    DateType,
    IntType,
    LocalZonedTimestampType,
    RowField,
    RowType,
    SmallIntType,
    TinyIntType,
    VarCharType,
)
from millstream.types.time import Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.connectors.files.file_writers import BulkWriterFactory
    from millstream.connectors.formats.file_format import FileFormat
    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source
    from millstream.sql.catalog.formats import ChosenFormat
    from millstream.types.logical_types import LogicalType
    from millstream.types.typeinfo import TypeInformation

__all__ = ["sink", "source"]

_OWN: Final = (
    text("path", required=True),
    text("format", required=True),
    duration("source.monitor-interval"),
    integer("sink.parallelism"),
    text("partition.default-name", "__DEFAULT_PARTITION__"),
    choice("lookup.cache", ("full",), "full"),
    choice("lookup.full-cache.reload-strategy", ("periodic",), "periodic"),
    duration("lookup.full-cache.periodic-reload.interval"),
)
_CSV: Final = (
    text("csv.field-delimiter", ","),
    text("csv.quote-character", '"'),
    boolean("csv.disable-quote-character", default=False),
    text("csv.escape-character"),
    text("csv.null-literal"),
    text("csv.array-element-delimiter", ";"),
    boolean("csv.allow-comments", default=False),
    boolean("csv.ignore-parse-errors", default=False),
)
_PARQUET: Final = (choice("parquet.compression", ("snappy", "gzip", "zstd", "none"), "snappy"),)
_AVRO: Final = (
    text("avro.codec", "deflate"),
    boolean("avro.timestamp_mapping.legacy", default=True),
)
_FORMATS: Final[dict[str, tuple[Option, ...]]] = {
    "avro": _AVRO,
    "csv": _CSV,
    "parquet": _PARQUET,
}


#: Types of columns of partitions.
_IN_NAMES: Final = (
    CharType,
    VarCharType,
    TinyIntType,
    SmallIntType,
    IntType,
    BigIntType,
    BooleanType,
    DateType,
)
#: Formats of messages: a line is one.
_MESSAGES: Final = ("json", "debezium-json", "canal-json", "maxwell-json", "raw")
_METADATA: Final[dict[str, LogicalType]] = {
    "file.path": VarCharType(nullable=False),
    "file.name": VarCharType(nullable=False),
    "file.size": BigIntType(nullable=False),
    "file.modification-time": LocalZonedTimestampType(nullable=False, precision=3),
}


def _options(context: FactoryContext) -> Options:
    name = context.options.get("format", "")
    known = sorted((*_FORMATS, *_MESSAGES))
    if name and name not in known:
        hint = did_you_mean(name, known)
        message = f"{context.owner} has no format '{name}'.{hint} It has {', '.join(known)}."
        raise ValidationError(message)
    lines = chosen_format(context.owner, context.options, among=_MESSAGES)
    more = _FORMATS.get(name, ()) if lines is None else lines.known
    return Options(context.owner, context.options, (*_OWN, *more))


def _schema(context: FactoryContext) -> pa.Schema:
    """The columns that files hold."""
    return arrow_schema(_row(context))


def _malformed(options: Options, key: str) -> str:
    return "dead-letter" if options[key] else "fail"


def _csv_format(schema: pa.Schema, options: Options) -> FileFormat:
    quote = None if options["csv.disable-quote-character"] else options["csv.quote-character"]
    null = options["csv.null-literal"]
    lists = [each.name for each in schema if pa.types.is_list(each.type)]
    chosen = CsvOptions(
        delimiter=options["csv.field-delimiter"],
        quote=quote,
        escape=options["csv.escape-character"],
        header=False,
        null_values=None if null is None else (null,),
        comments=options["csv.allow-comments"],
        array_separators=dict.fromkeys(lists, options["csv.array-element-delimiter"]),
    )
    return CsvFormat(schema, _malformed(options, "csv.ignore-parse-errors"), chosen)


def _csv_writer(options: Options) -> BulkWriterFactory:
    quote = None if options["csv.disable-quote-character"] else options["csv.quote-character"]
    return CsvWriterFactory(
        header=False,
        delimiter=options["csv.field-delimiter"],
        quote=quote,
        escape=options["csv.escape-character"],
        null_text=options["csv.null-literal"] or "",
        array_separator=options["csv.array-element-delimiter"],
    )


def _avro_format(row: RowType, options: Options) -> FileFormat:
    return AvroTableFormat(row, legacy=options["avro.timestamp_mapping.legacy"])


def _avro_writer(row: RowType, options: Options) -> BulkWriterFactory:
    legacy = options["avro.timestamp_mapping.legacy"]
    return AvroTableWriterFactory(row, options["avro.codec"], legacy=legacy)


_READERS: Final[dict[str, Callable[[RowType, Options], FileFormat]]] = {
    "avro": _avro_format,
    "csv": lambda row, options: _csv_format(arrow_schema(row), options),
    "json": lambda row, _: JsonLinesFormat(arrow_schema(row)),
    "parquet": lambda row, _: ParquetFormat(arrow_schema(row)),
}
_WRITERS: Final[dict[str, Callable[[RowType, Options], BulkWriterFactory]]] = {
    "avro": _avro_writer,
    "csv": lambda _, options: _csv_writer(options),
    "parquet": lambda _, options: ParquetWriterFactory(options["parquet.compression"]),
}


class _FilesSource(TableSource):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        self._context = context
        self._options = options
        self._schema = _schema(context)
        self._partition = _partition(context)
        self._lines = _lines(context, options)
        if self._lines is not None:
            self.changes = self._lines.changes
            self._lines.decoder(_row(context), options)

    def metadata(self) -> Mapping[str, LogicalType]:
        return _METADATA

    def _format(self) -> FileFormat:
        if self._lines is not None:
            return MessageLines(self._lines.decoder(_row(self._context), self._options))
        return _READERS[self._options["format"]](_row(self._context), self._options)

    def create(self) -> Source:
        options, made = self._options, self._format()
        columns = self._context.table.schema.columns
        said = {METADATA_PREFIX + each.key: each.key for each in columns if each.is_metadata}
        if said or self._partition:
            made = FileColumns(
                made,
                said,
                {name: _parser(kind) for name, kind in self._partition.items()},
                [kind.to_arrow() for kind in self._partition.values()],
                options["partition.default-name"],
                _base(options),
            )
        interval = options["source.monitor-interval"]
        every = None if interval is None else Duration.of_millis(interval)
        return FileSource(made, (_path(options),), every)

    def lookup(self, keys: Sequence[str]) -> TableLookup | None:
        columns = self._context.table.schema.columns
        if self.changes != INSERT_ONLY or any(each.is_metadata for each in columns):
            return None
        if self._partition:
            return None
        source = FileSource(self._format(), (_path(self._options),), None)
        reload_after = self._options["lookup.full-cache.periodic-reload.interval"]
        return TableLookup(WholeSourceLookup(source, self._schema, tuple(keys), reload_after))


class _FilesSink(TableSink):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        self._context = context
        self._options = options
        self.parallelism = options["sink.parallelism"]
        self._partition = _partition(context)
        self._format = chosen_format(context.owner, context.options, among=_MESSAGES)
        if self._format is not None:
            self._format.encoder(_row(context), options)

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        del given
        return INSERT_ONLY if self._format is None else self._format.changes

    def stream_type(self, declared: TypeInformation) -> TypeInformation:
        if self._format is None and self._options["format"] != "avro":
            return declared
        fields = (RowField(each.name, each.type) for each in self._context.physical)
        return stream_type(RowType(tuple(fields), nullable=False))

    def create(self) -> Sink:
        writer: Any
        if self._format is not None:
            encoder = self._format.encoder(_row(self._context), self._options)
            extension = ".jsonl" if self._format.name.endswith("json") else ".txt"
            writer = MessageLinesWriterFactory(encoder, extension)
        else:
            writer = _WRITERS[self._options["format"]](_row(self._context), self._options)
        splitter = None
        if self._partition:
            name = self._options["partition.default-name"]
            splitter = PartitionSplitter(tuple(self._partition), name)
        return FileSink(_path(self._options), writer, bucket_assigner=splitter)


def _lines(context: FactoryContext, options: Options) -> ChosenFormat | None:
    """The format of the lines; None: files are read as a whole by a format of their own.

    Plain JSON is read by pyarrow, which takes timestamps of both standards.
    """
    found = chosen_format(context.owner, context.options, among=_MESSAGES)
    if found is None or found.name != "json":
        return found
    is_strict = options["json.fail-on-missing-field"] or options["json.ignore-parse-errors"]
    is_said = "json.timestamp-format.standard" in options.given
    return found if is_strict or is_said else None


def _row(context: FactoryContext) -> RowType:
    """The row that files hold: without the columns of the partition."""
    keys = context.table.partition_keys
    fields = tuple(
        RowField(each.name, each.type) for each in context.physical if each.name not in keys
    )
    if not fields:
        message = f"{context.owner} needs a column that is not among those of PARTITIONED BY."
        raise ValidationError(message)
    return RowType(fields, nullable=False)


def _partition(context: FactoryContext) -> dict[str, LogicalType]:
    """The columns of the partition.

    Raises:
        ValidationError: one is of a type that names of directories do not say, or would be hidden.
    """
    by_name = {each.name: each.type for each in context.physical}
    found: dict[str, LogicalType] = {}
    for key in context.table.partition_keys:
        kind = by_name.get(key)
        if kind is None:
            message = f"{context.owner}: '{key}' of PARTITIONED BY is no physical column."
            raise ValidationError(message)
        if not isinstance(kind, _IN_NAMES):
            shown = kind.as_summary_string()
            message = (
                f"{context.owner}: PARTITIONED BY '{key}' of type {shown} is not in this release; "
                "it may be a text, a whole number, a BOOLEAN or a DATE."
            )
            raise ValidationError(message)
        if key.startswith((".", "_")):
            message = f"{context.owner}: directories of '{key}' would be hidden; rename the column."
            raise ValidationError(message)
        found[key] = kind
    return found


def _path(options: Options) -> str:
    path: str = options["path"]
    return path.removeprefix("file://") if path.startswith("file:///") else path


def _base(options: Options) -> str:
    """The path as the source has it."""
    path = _path(options)
    return path if "://" in path else str(Path(path).absolute())


def _parser(kind: LogicalType) -> Callable[[str], Any]:
    parse = text_parser(kind)
    assert parse is not None  # noqa: S101 - one of _IN_NAMES
    return parse


def source(context: FactoryContext) -> TableSource:
    """Files of a directory, or one file."""
    return _FilesSource(context, _options(context))


def sink(context: FactoryContext) -> TableSink:
    """Files in a directory."""
    _schema(context)
    return _FilesSink(context, _options(context))
