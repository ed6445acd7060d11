"""SHOW PARTITIONS, ALTER TABLE ADD and DROP PARTITION.

What it is: the partitions of a table of a catalog are what the catalog says; those of a temporary
table are its directories.
What it is not: the directories (``sql/catalog/partition_directories.py``), or what catalogs keep
(``sql/catalog/table_facts.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.connectors.files.partition_names import directory_of, shown_value, value_text
from millstream.errors import CatalogError
from millstream.sql.binder.partitions import static_partition
from millstream.sql.catalog import connectors
from millstream.sql.catalog.identifiers import CatalogPartitionSpec
from millstream.sql.catalog.objects import CatalogPartition, CatalogTable
from millstream.sql.catalog.partition_directories import PartitionDirectories
from millstream.sql.parser import nodes
from millstream.sql.statements.results import OK, texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.catalog.manager import FoundTable
    from millstream.sql.parser.nodes import PartitionValue
    from millstream.sql.statements.results import RowsResult
    from millstream.sql.statements.session import Session

__all__ = ["alter_partitions", "show_partitions"]

_DEFAULT = "__DEFAULT_PARTITION__"


class _Partitions:
    """The partitions of a table."""

    def __init__(self, session: Session, found: FoundTable, text: str | None) -> None:
        self._context = session.context(text)
        self._name = found.identifier.as_summary_string()
        table = found.table
        if not isinstance(table, CatalogTable) or not table.partition_keys:
            message = f"Table {self._name} is not partitioned."
            raise CatalogError(message)
        connectors.table_source(found.identifier, table, session.configuration)
        self.table = table
        self._path = found.identifier.path
        #: None: of a temporary table, which no catalog knows.
        self._catalog = (
            None if found.is_temporary else session.catalogs.catalog(found.identifier.catalog_name)
        )

    def spec(self, values: Sequence[PartitionValue]) -> dict[str, str]:
        """Columns with their texts, as far as a statement says them."""
        said = static_partition(self._context, self.table, self._name, values)
        default = self.table.options.get("partition.default-name", _DEFAULT)
        schema = self.table.schema
        return {
            name: value_text(shown_value(each.value, schema.column(name).type), default)
            for name, each in said.items()
        }

    def full(self, values: Sequence[PartitionValue]) -> CatalogPartitionSpec:
        """One partition, of which all columns are said."""
        spec = self.spec(values)
        if len(spec) < len(self.table.partition_keys):
            keys = ", ".join(self.table.partition_keys)
            message = (
                f"PartitionSpec {spec} does not match partition keys [{keys}] of table "
                f"{self._name}."
            )
            raise CatalogError(message)
        return CatalogPartitionSpec(spec)

    def name_of(self, spec: CatalogPartitionSpec) -> str:
        """``column=value/column=value``."""
        return directory_of((key, spec.values[key]) for key in self.table.partition_keys)

    def there(self, wanted: CatalogPartitionSpec) -> list[CatalogPartitionSpec]:
        """The partitions that there are of which a statement says nothing else."""
        if self._catalog is not None:
            return self._catalog.list_partitions(self._path, wanted)
        said = set(wanted.values.items())
        found = PartitionDirectories(self.table).specs()
        return [each for each in found if said <= set(each.values.items())]

    def has(self, spec: CatalogPartitionSpec) -> bool:
        """Whether there is a partition."""
        if self._catalog is not None:
            return self._catalog.partition_exists(self._path, spec)
        return PartitionDirectories(self.table).has(spec)

    def add(self, spec: CatalogPartitionSpec, said: CatalogPartition) -> None:
        """Make a partition, unless it is there."""
        if self._catalog is not None:
            self._catalog.create_partition(self._path, spec, said, ignore_if_exists=True)
        else:
            PartitionDirectories(self.table).make(spec)

    def drop(self, spec: CatalogPartitionSpec) -> None:
        """Drop a partition, unless it is gone."""
        if self._catalog is not None:
            self._catalog.drop_partition(self._path, spec, ignore_if_not_exists=True)
        else:
            PartitionDirectories(self.table).drop(spec)


def show_partitions(session: Session, node: Any, text: str | None) -> RowsResult:
    """SHOW PARTITIONS: those of which the statement says nothing else."""
    found = session.catalogs.find_table(node.table.names)
    if found is None:
        hint = session.catalogs.suggest_table(node.table.names)
        raise session.context(text).error(node.table, f"Table '{node.table}' not found.{hint}")
    partitions = _Partitions(session, found, text)
    shown = partitions.there(CatalogPartitionSpec(partitions.spec(node.partition)))
    return texts(["partition name"], [[partitions.name_of(each)] for each in shown])


def alter_partitions(
    session: Session, found: FoundTable, action: Any, text: str | None
) -> RowsResult:
    """ALTER TABLE ADD and DROP PARTITION: all of them, or none if one cannot be."""
    partitions = _Partitions(session, found, text)
    name = found.identifier.as_summary_string()
    if isinstance(action, nodes.AddPartitions):
        if found.is_temporary and any(each.options for each in action.partitions):
            message = (
                "PARTITION (...) WITH options is for tables of a catalog, which keeps them; "
                f"'{name}' is temporary."
            )
            raise session.context(text).error(action, message)
        added = [
            (partitions.full(each.values), {option.key: option.value for option in each.options})
            for each in action.partitions
        ]
        for spec, _ in added:
            if partitions.has(spec) and not action.if_not_exists:
                message = f"Partition {partitions.name_of(spec)} of table {name} exists."
                raise CatalogError(message)
        for spec, options in added:
            partitions.add(spec, CatalogPartition(properties=options))
        return OK
    dropped = [partitions.full(each) for each in action.partitions]
    for spec in dropped:
        if not partitions.has(spec) and not action.if_exists:
            message = f"Partition {partitions.name_of(spec)} of table {name} does not exist."
            raise CatalogError(message)
    for spec in dropped:
        partitions.drop(spec)
    return OK
