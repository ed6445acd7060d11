"""SHOW PARTITIONS, ALTER TABLE ADD and DROP PARTITION: directories of tables in files.

What it is: a partition is there if its directory is; to add one makes it, to drop one deletes it
with its files.
What it is not: a register of partitions: no catalog keeps any.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from millstream.connectors.files.partition_commit import values_of
from millstream.connectors.files.partitions import directory_of, shown_value, value_text
from millstream.connectors.files.pending_files import local_directory
from millstream.errors import CatalogError
from millstream.sql.binder.partitions import static_partition
from millstream.sql.catalog import connectors
from millstream.sql.catalog.objects import CatalogTable
from millstream.sql.parser import nodes
from millstream.sql.statements.results import OK, texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

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
        self.base: Path = local_directory(table.options["path"])

    def spec(self, values: Sequence[PartitionValue]) -> list[tuple[str, str]]:
        """Columns with their texts, as far as a statement says them."""
        said = static_partition(self._context, self.table, self._name, values)
        default = self.table.options.get("partition.default-name", _DEFAULT)
        schema = self.table.schema
        return [
            (name, value_text(shown_value(each.value, schema.column(name).type), default))
            for name, each in said.items()
        ]

    def directory(self, values: Sequence[PartitionValue]) -> Path:
        """The directory of one partition, of which all columns are said."""
        spec = self.spec(values)
        if len(spec) < len(self.table.partition_keys):
            keys = ", ".join(self.table.partition_keys)
            message = (
                f"PartitionSpec {dict(spec)} does not match partition keys [{keys}] of table "
                f"{self._name}."
            )
            raise CatalogError(message)
        return self.base / directory_of(spec)

    def there(self) -> Iterator[str]:
        """The partitions that there are, by their directories below the table's."""
        levels = [self.base]
        for key in self.table.partition_keys:
            below = (each for level in levels if level.is_dir() for each in level.iterdir())
            levels = [
                each
                for each in below
                if each.is_dir() and list(values_of(each.name)) == [key] and "=" in each.name
            ]
        yield from sorted(str(each.relative_to(self.base)) for each in levels)


def show_partitions(session: Session, node: Any, text: str | None) -> RowsResult:
    """SHOW PARTITIONS: those of which the statement says nothing else."""
    found = session.catalogs.find_table(node.table.names)
    if found is None:
        hint = session.catalogs.suggest_table(node.table.names)
        raise session.context(text).error(node.table, f"Table '{node.table}' not found.{hint}")
    partitions = _Partitions(session, found, text)
    wanted = set(partitions.spec(node.partition))
    shown = [each for each in partitions.there() if wanted <= set(values_of(each).items())]
    return texts(["partition name"], [[each] for each in shown])


def alter_partitions(
    session: Session, found: FoundTable, action: Any, text: str | None
) -> RowsResult:
    """ALTER TABLE ADD and DROP PARTITION: all of them, or none if one cannot be."""
    partitions = _Partitions(session, found, text)
    name = found.identifier.as_summary_string()
    if isinstance(action, nodes.AddPartitions):
        if any(each.options for each in action.partitions):
            message = "PARTITION (...) WITH options is not in this release."
            raise session.context(text).error(action, message)
        added = [partitions.directory(each.values) for each in action.partitions]
        for each in added:
            if each.exists() and not action.if_not_exists:
                message = f"Partition {each.relative_to(partitions.base)} of table {name} exists."
                raise CatalogError(message)
        for each in added:
            each.mkdir(parents=True, exist_ok=True)
        return OK
    dropped = [partitions.directory(each) for each in action.partitions]
    for each in dropped:
        if not each.is_dir() and not action.if_exists:
            message = (
                f"Partition {each.relative_to(partitions.base)} of table {name} does not exist."
            )
            raise CatalogError(message)
    for each in dropped:
        if each.is_dir():
            shutil.rmtree(each)
    return OK
