"""Table factories: from ``'connector' = '...'`` to the sources and sinks of the runtime.

A factory validates the options of a table, describes the table to the planner (change types,
metadata, lookups) and creates the source or sink that DataStream programs use as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from millstream.entry_points import Extensions
from millstream.errors import ValidationError
from millstream.sql.suggestions import did_you_mean, listed
from millstream.types.bitmaps import has_extension
from millstream.types.type_derivation import supports_explicit_cast
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.contracts.lookup import LookupCaching, LookupSource
    from millstream.contracts.sink import Sink
    from millstream.contracts.source import Source
    from millstream.expressions.nodes import Expression
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.sql.catalog.options import Option
    from millstream.sql.catalog.schema import Column
    from millstream.types.logical_types import LogicalType
    from millstream.types.types import TypeInformation


#: Kinds of changes: inserts, -U, +U, deletes.
INSERT_ONLY: Final = frozenset({"I"})
UPSERTS: Final = frozenset({"I", "UA", "D"})
ALL_CHANGES: Final = frozenset({"I", "UB", "UA", "D"})
#: Before the keys of metadata among the columns of a source: a column may have the same name.
METADATA_PREFIX: Final = "$metadata$"


@dataclass(frozen=True)
class FactoryContext:
    """The argument of a factory: name, schema and options of a table."""

    identifier: ObjectIdentifier
    table: CatalogTable
    configuration: Configuration

    @property
    def options(self) -> Mapping[str, str]:
        """The table's options, without its connector."""
        return {key: value for key, value in self.table.options.items() if key != "connector"}

    @property
    def owner(self) -> str:
        """How errors name the connector of the table."""
        return f"connector '{self.table.options['connector']}'"

    @property
    def physical(self) -> Sequence[Column]:
        """The columns that records hold."""
        return self.table.schema.stored


@dataclass(frozen=True)
class TableLookup:
    """A table that is asked for rows by keys."""

    source: LookupSource
    #: None: every key is asked for every time.
    caching: LookupCaching | None = None
    #: How often a question that fails is asked again.
    max_retries: int = 3
    #: Whether several connections answer sooner than one.
    has_connections: bool = True

    def with_columns(self, names: Collection[str]) -> TableLookup:
        """The same that gives some columns, those of the keys among them."""
        return replace(self, source=self.source.with_columns(names))


class TableSource(ABC):
    """A table as a source."""

    #: Which kinds of changes it gives.
    changes: frozenset[str] = INSERT_ONLY

    @abstractmethod
    def create(self) -> Source:
        """The source.  Its columns are found by name: physical ones, and ``$metadata$`` + key."""

    def metadata(self) -> Mapping[str, LogicalType]:
        """Return what it can say of each record, by key."""
        return {}

    def lookup(self, keys: Sequence[str]) -> TableLookup | None:
        """How its rows are found by the values of some physical columns; None: they are not."""
        del keys
        return None

    def with_columns(self, names: Collection[str]) -> TableSource | None:
        """The source that need not give more than some columns; None: it gives all that it has.

        Args:
            names: of columns of the table, those of metadata among them.
        """
        del names
        return None

    def with_partitions(self, condition: Expression) -> TableSource | None:
        """The source without partitions in which a condition is not true; None: it has none.

        Args:
            condition: over the columns that are read, of which it names those of the partition.
        """
        del condition
        return None

    def describe(self) -> str:
        """A word for plans; empty if the table's name says it all."""
        return ""


class TableSink(ABC):
    """A table as a sink."""

    @abstractmethod
    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        """Which of the kinds of changes that a query gives it takes; or what it takes instead."""

    @abstractmethod
    def create(self) -> Sink:
        """The sink."""

    def stream_type(self, declared: TypeInformation) -> TypeInformation:
        """The type of the stream that the sink wants; ``declared`` has the table's columns."""
        return declared

    def overwriting(self, static: Mapping[str, object]) -> TableSink | None:
        """The sink that replaces what is in the table; None: the connector has none.

        Args:
            static: the columns of the partition that the statement says, with their values as
                ``expressions/nodes.py`` has them.
        """
        del static
        return None

    #: Operators to put before the sink are as parallel as this; None: not said.
    parallelism: int | None = None
    #: Whether rows that come without those before them must have a key to be told apart by.
    needs_key: bool = True
    #: What would have it take changes that it does not, if something would.
    remedy: str = ""

    def metadata(self) -> Mapping[str, LogicalType]:
        """Return what it can write of each record beside its columns, by key."""
        return {}


class TableFactory(Protocol):
    """Makes sources and sinks of tables; a module with these members is one."""

    @property
    def OPTIONS(self) -> Mapping[str, Sequence[Option]]:  # noqa: N802 - a constant of a module
        """Connector -> the options of its tables, without those of formats."""

    def source(self, context: FactoryContext) -> TableSource:
        """The table as a source; ValidationError if it cannot be one."""

    def sink(self, context: FactoryContext) -> TableSink:
        """The table as a sink; ValidationError if it cannot be one."""


class KeyedTableSink(TableSink):
    """A table that rows are added to, or that changes by its key if it has one.

    Args:
        context: of the table.
    """

    def __init__(self, context: FactoryContext) -> None:
        self.key = context.table.schema.key_columns
        if not self.key:
            self.remedy = "please declare a PRIMARY KEY for the table, by which its rows change"

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        """Take inserts, and what a key tells apart."""
        del given
        return UPSERTS if self.key else INSERT_ONLY


_HERE: Final = "millstream.sql.catalog.factories."
#: By the names of connectors.
FACTORIES: Final[Extensions[TableFactory]] = Extensions(
    "millstream.connectors",
    "connector",
    {
        "filesystem": _HERE + "filesystem",
        "datagen": _HERE + "datagen",
        "nexmark": _HERE + "nexmark",
        "kafka": _HERE + "kafka",
        "upsert-kafka": _HERE + "kafka",
        "jdbc": _HERE + "databases",
        "sqlite": _HERE + "databases",
        "duckdb": _HERE + "databases",
        "postgres-cdc": _HERE + "postgres_cdc",
        "delta": _HERE + "lakehouse",
        "iceberg": _HERE + "lakehouse",
        "print": _HERE + "print_and_blackhole",
        "blackhole": _HERE + "print_and_blackhole",
    },
    ("OPTIONS", "source", "sink"),
)

#: Those whose tables may have columns that no format has.
_OF_ANY_COLUMNS: Final = frozenset({"print", "blackhole"})
#: What to do with bitmaps, and with variants.
_INSTEAD: Final = (
    "Declare it BYTES, and use BITMAP_TO_BYTES and BITMAP_FROM_BYTES.",
    "Declare it STRING, and use JSON_STRING and PARSE_JSON.",
)
#: Those whose tables may be PARTITIONED BY columns.
_PARTITIONED: Final = frozenset({"filesystem", "delta", "iceberg"})


def _factory(context: FactoryContext) -> TableFactory:
    name = context.table.options.get("connector")
    shown = context.identifier.as_summary_string()
    if name is None:
        message = (
            f"Table '{shown}' has no option 'connector'; it is one of {listed(sorted(FACTORIES))}."
        )
        raise ValidationError(message)
    if name not in FACTORIES:
        hint = did_you_mean(name, FACTORIES)
        message = (
            f"Table '{shown}': there is no connector '{name}'.{hint} "
            f"There are: {listed(sorted(FACTORIES))}."
        )
        raise ValidationError(message)
    if context.table.partition_keys and name not in _PARTITIONED:
        message = f"{context.owner}: PARTITIONED BY is not in this release."
        raise ValidationError(message)
    if name not in _OF_ANY_COLUMNS:
        _check_columns(context)
    return FACTORIES[name]


#: Options of CSV files before Flink 1.11, and those of today; None: of no consequence.
_FORMER: Final[Mapping[str, str | None]] = {
    "connector.path": "path",
    "connector.property-version": None,
    "format.property-version": None,
    "format.field-delimiter": "csv.field-delimiter",
    "format.quote-character": "csv.quote-character",
    "format.ignore-parse-errors": "csv.ignore-parse-errors",
    "format.ignore-first-line": None,
    "update-mode": None,
}


def _with_current_options(identifier: ObjectIdentifier, table: CatalogTable) -> CatalogTable:
    """The table with the options of today if it has ``connector.type``, which was before them.

    Flink still reads CSV files that are declared so, and no others.

    Raises:
        ValidationError: they are of something else.
    """
    given = dict(table.options)
    kind = given.pop("connector.type", None)
    if kind is None:
        return table
    shown, format_ = identifier.as_summary_string(), given.pop("format.type", None)
    others = sorted({*given} - {*_FORMER})
    header = given.get("format.ignore-first-line", "false").lower() != "false"
    what = (
        f"'connector.type' = '{kind}' with 'format.type' = '{format_}'"
        if (kind, format_) != ("filesystem", "csv")
        else "'format.ignore-first-line' = 'true'"
        if header
        else f"'{others[0]}' together with 'connector.type'"
        if others
        else None
    )
    if what is not None:
        message = (
            f"Could not find a suitable table factory for table '{shown}': {what} is not "
            "supported. Use 'connector' = '...' and 'format' = '...', with the options of today."
        )
        raise ValidationError(message)
    if "connector.path" not in given:
        message = f"Table '{shown}': Could not find required property 'connector.path'."
        raise ValidationError(message)
    renamed = {new: given[old] for old, new in _FORMER.items() if new and old in given}
    # As they did, surplus values of a line are passed over.
    always = {"format": "csv", "csv.ignore-trailing-unmappable": "true"}
    return table.copy({"connector": "filesystem", **always, **renamed})


def _check_columns(context: FactoryContext) -> None:
    """Refuse columns whose bytes would leave their type behind.

    Raises:
        ValidationError: names the column.
    """
    for column in context.physical:
        if has_extension(column.type):
            shown = column.type.as_summary_string()
            message = (
                f"{context.owner}: column '{column.name}' is {shown}, which it neither reads nor "
                f"writes.  {_INSTEAD[column.type.root is TypeRoot.VARIANT]}"
            )
            raise ValidationError(message)


def table_source(
    identifier: ObjectIdentifier, table: CatalogTable, configuration: Configuration
) -> TableSource:
    """A table as a source.

    Raises:
        ValidationError: there is no such connector, or it refuses the options or columns.
    """
    table = _with_current_options(identifier, table)
    context = FactoryContext(identifier, table, configuration)
    found = _factory(context).source(context)
    _check_metadata(context, table.schema.columns, found.metadata(), "")
    return found


def _check_metadata(
    context: FactoryContext,
    columns: Sequence[Column],
    known: Mapping[str, LogicalType],
    doing: str,
) -> None:
    """Refuse metadata that a connector does not have, or of a type that it cannot be.

    Raises:
        ValidationError: names the column.
    """
    for column in columns:
        if not column.is_metadata():
            continue
        if column.key not in known:
            hint = did_you_mean(column.key, known)
            there = f"it has {listed(known)}" if known else "it has none"
            only = " If it is only read, declare it VIRTUAL." if doing else ""
            message = (
                f"{context.owner} has no metadata '{column.key}'{doing} for column "
                f"'{column.name}'; {there}.{hint}{only}"
            )
            raise ValidationError(message)
        kinds = known[column.key], column.type
        if not supports_explicit_cast(*(reversed(kinds) if doing else kinds)):
            message = (
                f"{context.owner}: metadata '{column.key}' is "
                f"{kinds[0].as_summary_string()} and cannot be cast for column '{column.name}' "
                f"{kinds[1].as_summary_string()}."
            )
            raise ValidationError(message)


def table_sink(
    identifier: ObjectIdentifier,
    table: CatalogTable,
    configuration: Configuration,
    overwrite: Sequence[tuple[str, object]] | None = None,
) -> TableSink:
    """A table as a sink.

    Args:
        identifier: the table's name.
        table: the table.
        configuration: of the session.
        overwrite: the partition that is replaced, as far as it is said; None: rows are added.

    Raises:
        ValidationError: there is no such connector, or it refuses the options or columns.
    """
    context = FactoryContext(identifier, table, configuration)
    found = _factory(context).sink(context)
    _check_metadata(context, table.schema.persisted, found.metadata(), " to write")
    if overwrite is None:
        return found
    replacing = found.overwriting(dict(overwrite))
    if replacing is None:
        message = (
            "INSERT OVERWRITE requires that the underlying DynamicTableSink of table "
            f"'{identifier.as_summary_string()}' implements the SupportsOverwrite interface: "
            f"{context.owner} cannot replace rows."
        )
        raise ValidationError(message)
    return replacing
