"""The ``postgres-cdc`` connector: the rows of a PostgreSQL table, then its changes.

Options have the names of Flink CDC.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import ConfigurationError, SourceError, ValidationError
from millstream.sql.catalog.connectors import (
    ALL_CHANGES,
    INSERT_ONLY,
    METADATA_PREFIX,
    UPSERTS,
    FactoryContext,
    TableSink,
    TableSource,
)
from millstream.sql.catalog.options import IDLE_TIMEOUT, Options, choice, duration, integer, text
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from millstream.contracts.source import Source

OPTIONS: Final = {
    "postgres-cdc": (
        text("hostname", required=True),
        integer("port", 5432),
        text("username", required=True),
        text("password", required=True),
        text("database-name", required=True),
        text("schema-name", required=True),
        text("table-name", required=True),
        text("slot.name", required=True),
        choice("decoding.plugin.name", ("pgoutput",), "pgoutput"),
        choice(
            "scan.startup.mode",
            ("initial", "snapshot", "latest-offset", "committed-offset"),
            "initial",
        ),
        choice("changelog-mode", ("all", "upsert"), "all"),
        duration("heartbeat.interval.ms", 30_000),
        text("debezium.publication.name"),
        choice("debezium.publication.autocreate.mode", ("filtered", "disabled"), "filtered"),
        choice("debezium.skipped.operations", ("none", "t"), "none"),
        IDLE_TIMEOUT,
    )
}
_TEXT: Final = lt.VarCharType(nullable=False)
_METADATA: Final[Mapping[str, lt.LogicalType]] = {
    "database_name": _TEXT,
    "schema_name": _TEXT,
    "table_name": _TEXT,
    "op_ts": lt.LocalZonedTimestampType(precision=3, nullable=False),
}


class _ChangesTable(TableSource):
    def __init__(self, context: FactoryContext, options: Options) -> None:
        from millstream.connectors.postgres.pgoutput import readable

        self._context = context
        self._options = options
        self._key = tuple(context.table.schema.key_columns)
        self._upsert = options["changelog-mode"] == "upsert"
        #: Names of the columns that somebody reads; None: all.
        self._read: frozenset[str] | None = None
        if self._upsert and not self._key:
            message = (
                f"{context.owner}: 'changelog-mode' = 'upsert' needs a PRIMARY KEY ... NOT ENFORCED"
                " in the table, by which its rows change."
            )
            raise ValidationError(message)
        self.changes = UPSERTS if self._upsert else ALL_CHANGES
        if options["scan.startup.mode"] == "snapshot":
            self.changes = INSERT_ONLY
        for each in context.physical:
            if not readable(each.type.to_arrow()):
                message = (
                    f"{context.owner}: column '{each.name}' is {each.type.as_summary_string()}, "
                    "which cannot be read; declare it STRING to read the text of its values."
                )
                raise ValidationError(message)

    def metadata(self) -> Mapping[str, lt.LogicalType]:
        return _METADATA

    def with_columns(self, names: Collection[str]) -> TableSource:
        made = copy(self)
        made._read = frozenset(names)  # noqa: SLF001 - of the same class
        return made

    def create(self) -> Source:
        from millstream.connectors.postgres.cdc import (
            CdcSettings,
            PostgresCdcSource,
            StartupMode,
        )
        from millstream.connectors.postgres.changes import ChangelogLayout

        context, options, read = self._context, self._options, self._read
        physical = context.physical
        # All of a key: an update that changes it is a deletion and an insert.
        kept = [
            each for each in physical if read is None or each.name in read or each.name in self._key
        ]
        keys = [
            each.key
            for each in context.table.schema.columns
            if each.is_metadata() and (read is None or each.name in read)
        ]
        settings = CdcSettings(
            hostname=options["hostname"],
            port=options["port"],
            username=options["username"],
            password=options["password"],
            database=options["database-name"],
            schema=options["schema-name"],
            table=options["table-name"],
            slot=options["slot.name"],
            publication=options["debezium.publication.name"] or "",
            creates_publication=options["debezium.publication.autocreate.mode"] == "filtered",
        )
        layout = ChangelogLayout(
            schema=pa.schema([(each.name, each.type.to_arrow()) for each in kept or physical[:1]]),
            metadata={key: METADATA_PREFIX + key for key in keys},
            key=self._key,
            upsert=self._upsert,
            database=options["database-name"],
            skips_truncate=options["debezium.skipped.operations"] == "t",
        )
        try:
            table = settings.replicated()
        except (ConfigurationError, SourceError) as error:
            message = f"{context.owner}: {error}"
            raise ValidationError(message) from error
        return PostgresCdcSource(
            table,
            layout,
            mode=StartupMode(options["scan.startup.mode"]),
            heartbeat=options["heartbeat.interval.ms"] / 1000,
        )


def source(context: FactoryContext) -> TableSource:
    """The rows of a table, and their changes."""
    return _ChangesTable(context, Options(context.owner, context.options, OPTIONS["postgres-cdc"]))


def sink(context: FactoryContext) -> TableSink:
    """Refuse: changes are read; raises ValidationError."""
    message = f"{context.owner} reads tables. To write one, use 'connector' = 'jdbc'."
    raise ValidationError(message)
