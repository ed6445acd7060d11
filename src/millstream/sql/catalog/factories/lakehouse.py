"""The connectors ``delta`` and ``iceberg``: appends to tables of a lakehouse, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import INSERT_ONLY, FactoryContext, TableSink, TableSource
from millstream.sql.catalog.options import Options, integer, text
from millstream.sql.stream_types import stream_type
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.contracts.sink import Sink
    from millstream.types.types import TypeInformation

#: Connector -> its options, under the names of Delta's and Iceberg's connectors for Flink.
OPTIONS: Final = {
    "delta": (text("table-path", required=True), integer("sink.parallelism")),
    "iceberg": (
        text("catalog-name", required=True),
        text("catalog-type"),
        text("uri"),
        text("warehouse"),
        text("catalog-database"),
        text("catalog-table"),
        text("credential"),
        text("token"),
        integer("sink.parallelism"),
    ),
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

        database = options["catalog-database"] or context.identifier.database_name
        table = options["catalog-table"] or context.identifier.object_name
        catalog = _catalog_of(options)
        return IcebergSink(f"{database}.{table}", catalog, create_with=schema, partition_by=by)


def _catalog_of(options: Options) -> Mapping[str, str]:
    """The options of a catalog as ``pyiceberg`` has them."""
    found = {"name": options["catalog-name"]}
    named = {"catalog-type": "type", "uri": "uri", "warehouse": "warehouse"}
    for key, name in (*named.items(), ("credential", "credential"), ("token", "token")):
        if options[key] is not None:
            found[name] = options[key]
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
    """Refuse to read: these connectors only write in this release; raises ValidationError."""
    _options(context)
    message = (
        f"{context.owner}: '{context.identifier.as_summary_string()}' cannot be read in this"
        " release; read the table with from_pandas, from_arrow or from_spark."
    )
    raise ValidationError(message)


def sink(context: FactoryContext) -> TableSink:
    """Rows that are appended to a table, which is created if it is missing."""
    return _LakehouseSink(context, _options(context))
