"""Tables in files: ``'connector' = 'filesystem'`` with csv, json, parquet, avro or raw.

What it is: FileSource and FileSink behind a table.
What it is not: formats of messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.files.file_writers import JsonLinesWriterFactory, ParquetWriterFactory
from millstream.connectors.files.sink import FileSink
from millstream.connectors.files.source import FileSource
from millstream.connectors.formats.csv_format import CsvFormat, CsvOptions
from millstream.connectors.formats.csv_writer import CsvWriterFactory
from millstream.connectors.formats.json_format import JsonLinesFormat
from millstream.connectors.formats.parquet_format import ParquetFormat
from millstream.connectors.lookups.whole_source import WholeSourceLookup
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import (
    INSERT_ONLY,
    FactoryContext,
    TableLookup,
    TableSink,
    TableSource,
)
from millstream.sql.catalog.options import Option, Options, boolean, choice, duration, integer, text
from millstream.sql.suggestions import did_you_mean
from millstream.types.time import Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.connectors.files.file_writers import BulkWriterFactory
    from millstream.connectors.formats.file_format import FileFormat
    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source

__all__ = ["sink", "source"]

_OWN: Final = (
    text("path", required=True),
    text("format", required=True),
    duration("source.monitor-interval"),
    integer("sink.parallelism"),
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
_JSON: Final = (
    boolean("json.ignore-parse-errors", default=False),
    boolean("json.fail-on-missing-field", default=False),
    choice("json.timestamp-format.standard", ("sql", "iso-8601"), "sql"),
)
_PARQUET: Final = (choice("parquet.compression", ("snappy", "gzip", "zstd", "none"), "snappy"),)
_FORMATS: Final[dict[str, tuple[Option, ...]]] = {
    "csv": _CSV,
    "json": _JSON,
    "parquet": _PARQUET,
}


def _options(context: FactoryContext) -> Options:
    name = context.options.get("format", "")
    if name and name not in _FORMATS:
        hint = did_you_mean(name, _FORMATS)
        there = ", ".join(sorted(_FORMATS))
        message = f"{context.owner} has no format '{name}'.{hint} It has {there}."
        raise ValidationError(message)
    return Options(context.owner, context.options, (*_OWN, *_FORMATS.get(name, ())))


def _schema(context: FactoryContext) -> pa.Schema:
    return pa.schema([(each.name, each.type.to_arrow()) for each in context.physical])


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


_READERS: Final[dict[str, Callable[[pa.Schema, Options], FileFormat]]] = {
    "csv": _csv_format,
    "json": lambda schema, options: JsonLinesFormat(
        schema, _malformed(options, "json.ignore-parse-errors")
    ),
    "parquet": lambda schema, _: ParquetFormat(schema),
}
_WRITERS: Final[dict[str, Callable[[Options], BulkWriterFactory]]] = {
    "csv": _csv_writer,
    "json": lambda _: JsonLinesWriterFactory(),
    "parquet": lambda options: ParquetWriterFactory(options["parquet.compression"]),
}


class _FilesSource(TableSource):
    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def create(self) -> Source:
        made = _READERS[self._options["format"]](self._schema, self._options)
        interval = self._options["source.monitor-interval"]
        every = None if interval is None else Duration.of_millis(interval)
        return FileSource(made, (_path(self._options),), every)

    def lookup(self, keys: Sequence[str]) -> TableLookup:
        made = _READERS[self._options["format"]](self._schema, self._options)
        source = FileSource(made, (_path(self._options),), None)
        reload_after = self._options["lookup.full-cache.periodic-reload.interval"]
        return TableLookup(WholeSourceLookup(source, self._schema, tuple(keys), reload_after))


class _FilesSink(TableSink):
    def __init__(self, options: Options) -> None:
        self._options = options
        self.parallelism = options["sink.parallelism"]

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        del given
        return INSERT_ONLY

    def create(self) -> Sink:
        writer: Any = _WRITERS[self._options["format"]](self._options)
        return FileSink(_path(self._options), writer)


def _path(options: Options) -> str:
    path: str = options["path"]
    return path.removeprefix("file://") if path.startswith("file:///") else path


def source(context: FactoryContext) -> TableSource:
    """Files of a directory, or one file."""
    return _FilesSource(_options(context), _schema(context))


def sink(context: FactoryContext) -> TableSink:
    """Files in a directory."""
    _schema(context)
    return _FilesSink(_options(context))
