"""What packages that extend Millstream import: contracts of connectors, formats, catalogs, stores.

An extension is found by its entry point: ``docs/how-to/extensions.md``.
"""

from __future__ import annotations

from millstream.connectors.formats.tables.codec import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Changes,
    RowDecoder,
    RowEncoder,
)
from millstream.contracts.key_value_store import KeyValueStore, PendingSnapshot, StateHandle
from millstream.contracts.metrics import MetricReporter
from millstream.sql.catalog.catalog import CreatedCatalog
from millstream.sql.catalog.connectors import (
    ALL_CHANGES,
    INSERT_ONLY,
    UPSERTS,
    FactoryContext,
    KeyedTableSink,
    TableFactory,
    TableLookup,
    TableSink,
    TableSource,
)
from millstream.sql.catalog.formats import ChosenFormat, Format, chosen_format
from millstream.sql.catalog.options import (
    Option,
    Options,
    boolean,
    choice,
    duration,
    integer,
    number,
    text,
)
from millstream.state.backends.place import StorePlace

__all__ = [
    "ALL_CHANGES",
    "DELETE",
    "INSERT",
    "INSERT_ONLY",
    "UPDATE_AFTER",
    "UPDATE_BEFORE",
    "UPSERTS",
    "Changes",
    "ChosenFormat",
    "CreatedCatalog",
    "FactoryContext",
    "Format",
    "KeyValueStore",
    "KeyedTableSink",
    "MetricReporter",
    "Option",
    "Options",
    "PendingSnapshot",
    "RowDecoder",
    "RowEncoder",
    "StateHandle",
    "StorePlace",
    "TableFactory",
    "TableLookup",
    "TableSink",
    "TableSource",
    "boolean",
    "choice",
    "chosen_format",
    "duration",
    "integer",
    "number",
    "text",
]
