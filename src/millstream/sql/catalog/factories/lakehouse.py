"""The connectors ``delta`` and ``iceberg``: appends to tables of a lakehouse, and their rows."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import INSERT_ONLY, FactoryContext, TableSink, TableSource
from millstream.sql.catalog.options import Options, boolean, choice, duration, integer, text
from millstream.sql.stream_types import stream_type
from millstream.types import logical_types as lt
from millstream.types.time import Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source
    from millstream.types.types import TypeInformation

#: Connector -> its options, under the names of Delta's and Iceberg's connectors for Flink.
OPTIONS: Final = {
    "delta": (
        text("table-path", required=True),
        choice("mode", ("batch", "streaming"), "batch"),
        integer("versionAsOf"),
        integer("startingVersion"),
        integer("updateCheckIntervalMillis", 5000),
        integer("sink.parallelism"),
    ),
    "iceberg": (
        text("catalog-name", required=True),
        text("catalog-type"),
        text("uri"),
        text("warehouse"),
        text("catalog-database"),
        text("catalog-table"),
        text("credential"),
        text("token"),
        boolean("streaming", default=False),
        duration("monitor-interval", 60_000),
        integer("snapshot-id"),
        integer("start-snapshot-id"),
        integer("sink.parallelism"),
    ),
}
#: Connector -> its options: reads on and on, which version is read, with which it begins, and how
#: often it looks for others.
_READING: Final = {
    "delta": ("mode", "versionAsOf", "startingVersion", "updateCheckIntervalMillis"),
    "iceberg": ("streaming", "snapshot-id", "start-snapshot-id", "monitor-interval"),
}
#: Options that go to the catalog as they are.
_OF_CATALOG: Final = ("s3.", "gcs.", "adls.", "rest.", "header.", "oauth2")


class _LakehouseSink(TableSink):
    remedy = "please aggregate in windows, whose results do not change"

    def __init__(self, context: FactoryContext, options: Options) -> None:
        self._context = context
        self._options = options
        self.parallelism = options["sink.parallelism"]

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        """Take inserts."""
        del given
        return INSERT_ONLY

    def stream_type(self, declared: TypeInformation) -> TypeInformation:
        del declared
        fields = (lt.RowField(each.name, each.type) for each in self._context.physical)
        return stream_type(lt.RowType(tuple(fields), nullable=False))

    def create(self) -> Sink:
        context, options = self._context, self._options
        columns = [
            pa.field(each.name, each.type.to_arrow(), each.type.nullable)
            for each in context.physical
        ]
        schema, by = pa.schema(columns), context.table.partition_keys
        if context.table.options["connector"] == "delta":
            from millstream.connectors.lakehouse.delta import DeltaSink

            return DeltaSink(options["table-path"], create_with=schema, partition_by=by)
        from millstream.connectors.lakehouse.iceberg import IcebergSink

        table, catalog = _iceberg_name(context, options), _catalog_of(options)
        return IcebergSink(table, catalog, create_with=schema, partition_by=by)


def _iceberg_name(context: FactoryContext, options: Options) -> str:
    database = options["catalog-database"] or context.identifier.database_name
    return f"{database}.{options['catalog-table'] or context.identifier.object_name}"


class _LakehouseRows(TableSource):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        self._context = context
        self._options = options
        self._columns = [each.name for each in context.physical]
        streaming, at, first, every = _READING[context.table.options["connector"]]
        is_streaming = options[streaming] in {True, "streaming"}
        if options[at] is not None and is_streaming:
            message = f"{context.owner}: '{at}' is for reading one version; use '{first}'."
            raise ValidationError(message)
        if options[first] is not None and not is_streaming:
            message = f"{context.owner}: '{first}' is for reading on and on; use '{at}'."
            raise ValidationError(message)
        self._version: int | None = options[first] if is_streaming else options[at]
        self._interval = Duration.of_millis(options[every]) if is_streaming else None

    def with_columns(self, names: Collection[str]) -> TableSource:
        made = copy(self)
        chosen = [name for name in self._columns if name in names]
        made._columns = chosen or self._columns[:1]  # noqa: SLF001 - of the copy
        return made

    def create(self) -> Source:
        context, options = self._context, self._options
        schema = pa.schema(
            [
                pa.field(each.name, each.type.to_arrow())
                for each in context.physical
                if each.name in self._columns
            ]
        )
        made: Callable[..., Source]
        if context.table.options["connector"] == "delta":
            from millstream.connectors.lakehouse.delta import DeltaSource

            made = partial(DeltaSource, options["table-path"])
        else:
            from millstream.connectors.lakehouse.iceberg import IcebergSource

            made = partial(IcebergSource, _iceberg_name(context, options), _catalog_of(options))
        return made(schema=schema, version=self._version, discovery_interval=self._interval)


def _catalog_of(options: Options) -> Mapping[str, str]:
    """The options of a catalog as ``pyiceberg`` has them."""
    found = {"name": options["catalog-name"]}
    for key in ("catalog-type", "uri", "warehouse", "credential", "token"):
        if options[key] is not None:
            found[key.removeprefix("catalog-")] = options[key]
    if found.get("type") in {"hadoop", "custom"}:
        message = (
            f"{options.owner}: 'catalog-type' is 'rest', 'hive', 'glue' or 'sql': catalogs of type"
            f" '{found['type']}' need Java."
        )
        raise ValidationError(message)
    passed = {key: each for key, each in options.given.items() if key.startswith(_OF_CATALOG)}
    return found | passed


def _options(context: FactoryContext) -> Options:
    connector = context.table.options["connector"]
    prefixes = _OF_CATALOG if connector == "iceberg" else ()
    return Options(context.owner, context.options, OPTIONS[connector], prefixes)


def source(context: FactoryContext) -> TableSource:
    """The rows of a version, or those of each further one as well."""
    return _LakehouseRows(context, _options(context))


def sink(context: FactoryContext) -> TableSink:
    """Rows that are appended to a table, which is created if it is missing."""
    return _LakehouseSink(context, _options(context))
