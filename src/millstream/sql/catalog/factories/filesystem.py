"""The ``filesystem`` connector: tables in files, with partitions and partition commit."""

from __future__ import annotations

import importlib
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millstream.configuration.options import LOCAL_TIME_ZONE
from millstream.connectors.basic.whole_source import WholeSourceLookup
from millstream.connectors.files.partition_names import directory_of, shown_value, value_text
from millstream.connectors.files.partitions import (
    Overwrite,
    PartitionCommit,
    PartitionCommitPolicy,
    PartitionContext,
    PartitionFilter,
    PartitionSplitter,
    PartitionTime,
    SuccessFile,
    TableFileSink,
)
from millstream.connectors.files.sink import FileSink
from millstream.connectors.files.source import FileColumns, FileSource
from millstream.connectors.formats.avro_format import AvroTableFormat, AvroTableWriterFactory
from millstream.connectors.formats.csv_messages import CsvTableFormat
from millstream.connectors.formats.json_messages import JsonRowDecoder
from millstream.connectors.formats.line_format import MessageLines, MessageLinesWriterFactory
from millstream.connectors.formats.parquet_format import ParquetFormat, ParquetWriterFactory
from millstream.connectors.formats.row_format import arrow_schema, row_of_columns
from millstream.connectors.formats.texts import text_parser
from millstream.errors import ValidationError
from millstream.expressions.java.date_patterns import formatter_of
from millstream.expressions.nodes import InputReference, transform
from millstream.sql.catalog.connectors import (
    INSERT_ONLY,
    METADATA_PREFIX,
    FactoryContext,
    TableLookup,
    TableSink,
    TableSource,
)
from millstream.sql.catalog.formats import (
    BINARY_FORMATS,
    FORMATS,
    chosen_format,
    csv_table_options,
)
from millstream.sql.catalog.options import (
    IDLE_TIMEOUT,
    Option,
    Options,
    boolean,
    choice,
    duration,
    integer,
    text,
)
from millstream.sql.stream_types import stream_type
from millstream.sql.suggestions import did_you_mean
from millstream.types import logical_types as lt
from millstream.types.time import Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import pyarrow as pa

    from millstream.connectors.formats.file_format import BulkWriterFactory, FileFormat
    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source
    from millstream.expressions.nodes import Expression
    from millstream.sql.catalog.formats import ChosenFormat
    from millstream.types.types import TypeInformation


_COMMIT: Final = "sink.partition-commit."
_KIND: Final = _COMMIT + "policy.kind"
_CLASS: Final = _COMMIT + "policy.class"
_TIME: Final = "partition.time-extractor."
PARTITION_OPTIONS: Final = (
    choice(_COMMIT + "trigger", ("process-time", "partition-time"), "process-time"),
    duration(_COMMIT + "delay", 0),
    text(_COMMIT + "watermark-time-zone", "UTC"),
    text(_KIND),
    text(_CLASS),
    text(_CLASS + ".parameters"),
    text(_COMMIT + "success-file.name", "_SUCCESS"),
    choice(_TIME + "kind", ("default",), "default"),
    text(_TIME + "timestamp-pattern"),
    text(_TIME + "timestamp-formatter"),
)


@dataclass(frozen=True)
class _Custom(PartitionCommitPolicy):
    """A policy of the user: a class, or what makes one, by its place."""

    place: str
    parameters: tuple[str, ...] = ()

    def made(self) -> Any:
        """The user's policy."""
        module, _, name = self.place.rpartition(".")
        return getattr(importlib.import_module(module), name)(*self.parameters)

    def commit(self, context: PartitionContext) -> None:
        self.made().commit(context)


def partition_commit(context: FactoryContext, options: Options) -> PartitionCommit | None:
    """How partitions of a table are committed; None: they are not.

    Raises:
        ValidationError: the options contradict each other, or name what is not there.
    """
    given = [key for key in options.given if key.startswith(_COMMIT)]
    if not given:
        return None
    if not context.table.partition_keys:
        message = f"{context.owner}: '{given[0]}' is for tables PARTITIONED BY columns."
        raise ValidationError(message)
    if options[_KIND] is None:
        message = f"{context.owner}: '{given[0]}' needs '{_KIND}', or nothing is committed."
        raise ValidationError(message)
    zone = options[_COMMIT + "watermark-time-zone"]
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = f"{context.owner}: '{_COMMIT}watermark-time-zone': {error}"
        raise ValidationError(message) from error
    by_time = options[_COMMIT + "trigger"] == "partition-time"
    return PartitionCommit(
        context.identifier.parts,
        _policies(context, options),
        _time(context, options) if by_time else None,
        options[_COMMIT + "delay"],
        zone,
        options["partition.default-name"],
    )


def _policies(context: FactoryContext, options: Options) -> tuple[PartitionCommitPolicy, ...]:
    found: list[PartitionCommitPolicy] = []
    for kind in (each.strip() for each in options[_KIND].split(",")):
        if kind == "success-file":
            found.append(_success_file(context, options))
        elif kind == "custom":
            found.append(_custom(context, options))
        elif kind == "metastore":
            message = (
                "Can not configure a 'metastore' partition commit policy for a file system table. "
                "You can only configure 'metastore' partition commit policy for a hive table."
            )
            raise ValidationError(message)
        else:
            message = (
                f"{context.owner}: '{_KIND}' = '{kind}': it must be of success-file and custom."
            )
            raise ValidationError(message)
    return tuple(found)


def _success_file(context: FactoryContext, options: Options) -> SuccessFile:
    name = options[_COMMIT + "success-file.name"]
    if not name.startswith((".", "_")) or "/" in name:
        message = (
            f"{context.owner}: '{_COMMIT}success-file.name' = '{name}' must begin with '_' or '.', "
            "or it would be read as rows of the table."
        )
        raise ValidationError(message)
    return SuccessFile(name)


def _custom(context: FactoryContext, options: Options) -> _Custom:
    place, parameters = options[_CLASS], options[_CLASS + ".parameters"]
    if place is None:
        message = f"{context.owner}: '{_KIND}' = 'custom' needs '{_CLASS}': 'module.Class'."
        raise ValidationError(message)
    made = _Custom(place, () if parameters is None else tuple(parameters.split(";")))
    try:
        policy = made.made()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        message = f"{context.owner}: '{_CLASS}' = '{place}' cannot be made: {error}."
        raise ValidationError(message) from error
    if not callable(getattr(policy, "commit", None)):
        message = f"{context.owner}: '{_CLASS}' = '{place}' has no method commit(context)."
        raise ValidationError(message)
    return made


def _time(context: FactoryContext, options: Options) -> PartitionTime:
    formatter = options[_TIME + "timestamp-formatter"]
    if formatter is not None:
        try:
            formatter_of(formatter)
        except ValueError as error:
            message = f"{context.owner}: '{_TIME}timestamp-formatter': {error}"
            raise ValidationError(message) from error
    return PartitionTime(options[_TIME + "timestamp-pattern"], formatter)


_OWN: Final = (
    text("path", required=True),
    text("format", required=True),
    duration("source.monitor-interval"),
    IDLE_TIMEOUT,
    integer("sink.parallelism"),
    text("partition.default-name", "__DEFAULT_PARTITION__"),
    choice("lookup.cache", ("full",), "full"),
    choice("lookup.full-cache.reload-strategy", ("periodic",), "periodic"),
    duration("lookup.full-cache.periodic-reload.interval"),
    *PARTITION_OPTIONS,
)
#: Connector -> its options, without those of formats.
OPTIONS: Final = {"filesystem": _OWN}
_PARQUET: Final = (choice("parquet.compression", ("snappy", "gzip", "zstd", "none"), "snappy"),)
_AVRO: Final = (
    text("avro.codec", "deflate"),
    boolean("avro.timestamp_mapping.legacy", default=True),
)
FILE_FORMATS: Final[dict[str, tuple[Option, ...]]] = {
    "avro": _AVRO,
    "parquet": _PARQUET,
}
#: If it is not said, timestamps of either standard are read.
_STANDARD: Final = "json.timestamp-format.standard"
#: Types of columns of partitions.
_IN_NAMES: Final = (
    lt.CharType,
    lt.VarCharType,
    lt.TinyIntType,
    lt.SmallIntType,
    lt.IntType,
    lt.BigIntType,
    lt.BooleanType,
    lt.DateType,
)
_METADATA: Final[dict[str, lt.LogicalType]] = {
    "file.path": lt.VarCharType(nullable=False),
    "file.name": lt.VarCharType(nullable=False),
    "file.size": lt.BigIntType(nullable=False),
    "file.modification-time": lt.LocalZonedTimestampType(nullable=False, precision=3),
}


def _messages() -> list[str]:
    """Formats of messages: a line is one, but of CSV, whose values may have several lines."""
    return [each for each in FORMATS if each not in FILE_FORMATS and each not in BINARY_FORMATS]


def _options(context: FactoryContext) -> Options:
    name = context.options.get("format", "")
    known = sorted((*FILE_FORMATS, *_messages()))
    if name and name not in known:
        hint = did_you_mean(name, known)
        message = f"{context.owner} has no format '{name}'.{hint} It has {', '.join(known)}."
        raise ValidationError(message)
    chosen = chosen_format(context.owner, context.options, among=_messages())
    more = FILE_FORMATS.get(name, ()) if chosen is None else chosen.known
    return Options(context.owner, context.options, (*_OWN, *more))


def _schema(context: FactoryContext) -> pa.Schema:
    """The columns that files hold."""
    return arrow_schema(_row(context))


def _reader(
    whole: lt.RowType,
    chosen: ChosenFormat | None,
    options: Options,
    read: frozenset[str] | None,
) -> FileFormat:
    """Return what reads files with such rows, or some of their columns.

    Raises:
        ValidationError: the format does not read them.
    """
    row = whole if read is None else row_of_columns(whole, read)
    if chosen is None:
        return _READERS[options["format"]](row, options)
    decoder = chosen.decoder(row, options)
    if chosen.name == "csv":
        return CsvTableFormat(whole, csv_table_options(chosen, options), read, chosen.advice)
    if isinstance(decoder, JsonRowDecoder) and _STANDARD not in options.given:
        decoder = JsonRowDecoder(row, replace(decoder.options, iso=None))
    return MessageLines(decoder, chosen.advice)


def _writer(row: lt.RowType, chosen: ChosenFormat | None, options: Options) -> BulkWriterFactory:
    """Return what writes files with such rows.

    Raises:
        ValidationError: the format does not write them.
    """
    if chosen is None:
        return _WRITERS[options["format"]](row, options)
    encoder = chosen.encoder(row, options)
    extension = (
        ".csv" if chosen.name == "csv" else ".jsonl" if chosen.name.endswith("json") else ".txt"
    )
    return MessageLinesWriterFactory(encoder, extension)


def _avro_format(row: lt.RowType, options: Options) -> FileFormat:
    return AvroTableFormat(row, legacy=options["avro.timestamp_mapping.legacy"])


def _avro_writer(row: lt.RowType, options: Options) -> BulkWriterFactory:
    legacy = options["avro.timestamp_mapping.legacy"]
    return AvroTableWriterFactory(row, options["avro.codec"], legacy=legacy)


_READERS: Final[dict[str, Callable[[lt.RowType, Options], FileFormat]]] = {
    "avro": _avro_format,
    "parquet": lambda row, _: ParquetFormat(stream_type(row)),
}
_WRITERS: Final[dict[str, Callable[[lt.RowType, Options], BulkWriterFactory]]] = {
    "avro": _avro_writer,
    "parquet": lambda _, options: ParquetWriterFactory(options["parquet.compression"]),
}


class _FilesSource(TableSource):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        self._context = context
        self._options = options
        self._schema = _schema(context)
        self._partition = _partition(context)
        self._accepts: PartitionFilter | None = None
        #: The columns that are read; None: all.
        self._read: frozenset[str] | None = None
        self._chosen = chosen_format(context.owner, context.options, among=_messages())
        if self._chosen is not None:
            self.changes = self._chosen.changes
        self._format()

    def metadata(self) -> Mapping[str, lt.LogicalType]:
        return _METADATA

    def _format(self) -> FileFormat:
        return _reader(_row(self._context), self._chosen, self._options, self._read)

    def _is_read(self, name: str) -> bool:
        return self._read is None or name in self._read

    def with_columns(self, names: Collection[str]) -> TableSource:
        made = copy(self)
        made._read = frozenset(names)  # noqa: SLF001 - of the same class
        return made

    def create(self) -> Source:
        options, made = self._options, self._format()
        columns = self._context.table.schema.columns
        said = [each for each in columns if each.is_metadata()]
        if said or self._partition:
            partition = {n: kind for n, kind in self._partition.items() if self._is_read(n)}
            made = FileColumns(
                made,
                {METADATA_PREFIX + e.key: e.key for e in said if self._is_read(e.name)},
                {name: _parser(kind) for name, kind in partition.items()},
                [kind.to_arrow() for kind in partition.values()],
                options["partition.default-name"],
                _base(options),
                # Another version of the query may read it of a file that was found by this one.
                notes_time=any(each.key == "file.modification-time" for each in said),
            )
        interval = options["source.monitor-interval"]
        every = None if interval is None else Duration.of_millis(interval)
        return FileSource(made, (_path(options),), every, self._accepts)

    def with_partitions(self, condition: Expression) -> TableSource | None:
        if not self._partition:
            return None
        places = {name: place for place, name in enumerate(self._partition)}

        def moved(each: Expression) -> Expression:
            return (
                replace(each, index=places[each.name]) if isinstance(each, InputReference) else each
            )

        made = copy(self)
        made._accepts = PartitionFilter(  # noqa: SLF001 - of the same class
            _base(self._options),
            {name: _parser(kind) for name, kind in self._partition.items()},
            [kind.to_arrow() for kind in self._partition.values()],
            self._options["partition.default-name"],
            transform(condition, moved),
            self._context.configuration.get(LOCAL_TIME_ZONE),
        )
        return made

    def lookup(self, keys: Sequence[str]) -> TableLookup | None:
        columns = self._context.table.schema.columns
        if self.changes != INSERT_ONLY or any(each.is_metadata() for each in columns):
            return None
        if self._partition:
            return None
        source = FileSource(self._format(), (_path(self._options),), None)
        reload_after = self._options["lookup.full-cache.periodic-reload.interval"]
        found = WholeSourceLookup(source, self._schema, tuple(keys), reload_after)
        return TableLookup(found, has_connections=False)


class _FilesSink(TableSink):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        self._context = context
        self._options = options
        self.parallelism = options["sink.parallelism"]
        self._partition = _partition(context)
        self._commit = partition_commit(context, options)
        self._overwrite: Overwrite | None = None
        self._format = chosen_format(context.owner, context.options, among=_messages())
        _writer(_row(context), self._format, options)

    def overwriting(self, static: Mapping[str, object]) -> TableSink:
        default_name = self._options["partition.default-name"]
        made = copy(self)
        pairs = [
            (name, value_text(shown_value(static[name], kind), default_name))
            for name, kind in self._partition.items()
            if name in static
        ]
        made._overwrite = Overwrite(  # noqa: SLF001 - of the same class
            len(self._partition), directory_of(pairs), len(pairs) == len(self._partition)
        )
        return made

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        del given
        return INSERT_ONLY if self._format is None else self._format.changes

    def stream_type(self, declared: TypeInformation) -> TypeInformation:
        del declared
        fields = (lt.RowField(each.name, each.type) for each in self._context.physical)
        return stream_type(lt.RowType(tuple(fields), nullable=False))

    def create(self) -> Sink:
        writer = _writer(_row(self._context), self._format, self._options)
        splitter = None
        if self._partition:
            name = self._options["partition.default-name"]
            splitter = PartitionSplitter(tuple(self._partition), name)
        path = _path(self._options)
        if self._commit is None and self._overwrite is None:
            return FileSink(path, writer, bucket_assigner=splitter)
        return TableFileSink(path, writer, splitter, commit=self._commit, overwrite=self._overwrite)


def _row(context: FactoryContext) -> lt.RowType:
    """The row that files hold: without the columns of the partition."""
    keys = context.table.partition_keys
    fields = tuple(
        lt.RowField(each.name, each.type) for each in context.physical if each.name not in keys
    )
    if not fields:
        message = f"{context.owner} needs a column that is not among those of PARTITIONED BY."
        raise ValidationError(message)
    return lt.RowType(fields, nullable=False)


def _partition(context: FactoryContext) -> dict[str, lt.LogicalType]:
    """The columns of the partition.

    Raises:
        ValidationError: one is of a type that names of directories do not say, or would be hidden.
    """
    by_name = {each.name: each.type for each in context.physical}
    found: dict[str, lt.LogicalType] = {}
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


def _parser(kind: lt.LogicalType) -> Callable[[str], Any]:
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
