"""Contracts for packages that extend Millstream: connectors, formats, catalogs, stores.

An extension is found by its entry point: ``docs/how-to/extensions.md``.
"""

from millstream.connectors.formats.row_format import DELETE as DELETE
from millstream.connectors.formats.row_format import INSERT as INSERT
from millstream.connectors.formats.row_format import UPDATE_AFTER as UPDATE_AFTER
from millstream.connectors.formats.row_format import UPDATE_BEFORE as UPDATE_BEFORE
from millstream.connectors.formats.row_format import Changes as Changes
from millstream.connectors.formats.row_format import RowDecoder as RowDecoder
from millstream.connectors.formats.row_format import RowEncoder as RowEncoder
from millstream.contracts.key_value_store import KeyValueStore as KeyValueStore
from millstream.contracts.key_value_store import PendingSnapshot as PendingSnapshot
from millstream.contracts.key_value_store import StateHandle as StateHandle
from millstream.contracts.metrics import MetricKind as MetricKind
from millstream.contracts.metrics import MetricReporter as MetricReporter
from millstream.contracts.metrics import MetricSample as MetricSample
from millstream.sql.catalog.catalog import CreatedCatalog as CreatedCatalog
from millstream.sql.catalog.connectors import ALL_CHANGES as ALL_CHANGES
from millstream.sql.catalog.connectors import INSERT_ONLY as INSERT_ONLY
from millstream.sql.catalog.connectors import UPSERTS as UPSERTS
from millstream.sql.catalog.connectors import FactoryContext as FactoryContext
from millstream.sql.catalog.connectors import KeyedTableSink as KeyedTableSink
from millstream.sql.catalog.connectors import TableFactory as TableFactory
from millstream.sql.catalog.connectors import TableLookup as TableLookup
from millstream.sql.catalog.connectors import TableSink as TableSink
from millstream.sql.catalog.connectors import TableSource as TableSource
from millstream.sql.catalog.formats import ChosenFormat as ChosenFormat
from millstream.sql.catalog.formats import Format as Format
from millstream.sql.catalog.formats import chosen_format as chosen_format
from millstream.sql.catalog.options import Option as Option
from millstream.sql.catalog.options import Options as Options
from millstream.sql.catalog.options import boolean as boolean
from millstream.sql.catalog.options import choice as choice
from millstream.sql.catalog.options import duration as duration
from millstream.sql.catalog.options import integer as integer
from millstream.sql.catalog.options import number as number
from millstream.sql.catalog.options import text as text
from millstream.state.backends.place import StorePlace as StorePlace
