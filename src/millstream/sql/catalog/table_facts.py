"""What a catalog knows of a table beside its description: partitions and statistics.

What it is: PyFlink's methods of catalogs for both, upon two hooks.  A partition of a table in files
is there if its directory is: whoever writes the table makes it, and to create or drop one makes and
deletes it; the catalog keeps properties and comment alone.  Of a table of any other connector the
catalog keeps the partitions themselves.
What it is not: measured: statistics are what somebody has said.

Read next: ``sql/catalog/catalog.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from millstream.errors import (
    CatalogError,
    PartitionAlreadyExistsError,
    PartitionNotExistError,
    PartitionSpecInvalidError,
    TableNotPartitionedError,
)
from millstream.sql.catalog.objects import CatalogBaseTable, CatalogPartition, CatalogTable
from millstream.sql.catalog.partition_directories import PartitionDirectories
from millstream.sql.catalog.statistics import CatalogColumnStatistics, CatalogTableStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.sql.catalog.identifiers import CatalogPartitionSpec, ObjectPath

__all__ = ["FactsOfTables", "TableFacts"]

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What is kept of one table; of what is not there nothing is known."""

    statistics: CatalogTableStatistics | None = None
    columns: CatalogColumnStatistics | None = None
    partitions: Mapping[CatalogPartitionSpec, CatalogPartition] = field(default_factory=dict)
    partition_statistics: Mapping[CatalogPartitionSpec, CatalogTableStatistics] = field(
        default_factory=dict
    )
    partition_columns: Mapping[CatalogPartitionSpec, CatalogColumnStatistics] = field(
        default_factory=dict
    )

    def without(self, spec: CatalogPartitionSpec) -> TableFacts:
        """Without a partition and all that is known of it."""
        return replace(
            self,
            partitions=_but(self.partitions, spec),
            partition_statistics=_but(self.partition_statistics, spec),
            partition_columns=_but(self.partition_columns, spec),
        )


def _but(
    kept: Mapping[CatalogPartitionSpec, _V], spec: CatalogPartitionSpec
) -> dict[CatalogPartitionSpec, _V]:
    return {each: value for each, value in kept.items() if each != spec}


class FactsOfTables(ABC):
    """The part of a catalog that is about partitions and statistics."""

    name: str

    @abstractmethod
    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        """A table or view; CatalogError if there is none."""

    @abstractmethod
    def table_exists(self, table_path: ObjectPath) -> bool:
        """Whether there is a table or view."""

    def facts_of(self, table_path: ObjectPath) -> TableFacts:
        """What is kept of a table that is there; nothing, if the catalog keeps no such things."""
        del table_path
        return TableFacts()

    def change_facts(
        self, table_path: ObjectPath, change: Callable[[TableFacts], TableFacts]
    ) -> None:
        """Keep something else of a table that is there.

        Raises:
            CatalogError: the catalog keeps nothing of the kind.
        """
        del table_path, change
        message = (
            f"Catalog '{self.name}' keeps neither statistics nor what is said of partitions; "
            "catalogs of type 'generic_in_memory' and 'filesystem' do."
        )
        raise CatalogError(message)

    # -- partitions ------------------------------------------------------------------------------

    def list_partitions(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec | None = None
    ) -> list[CatalogPartitionSpec]:
        """The partitions of a table.

        Args:
            table_path: of a partitioned table.
            partition_spec: values of some columns, which those that are listed have; None: all.

        Raises:
            CatalogError: there is no such table, or it is not partitioned.
        """
        table = self._partitioned(table_path)
        wanted = set() if partition_spec is None else set(partition_spec.values.items())
        directories = self._directories(table)
        found = (
            [each for each in self.facts_of(table_path).partitions if each.is_full(table)]
            if directories is None
            else directories.specs()
        )
        return [each for each in found if wanted <= set(each.values.items())]

    def partition_exists(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec
    ) -> bool:
        """Whether a table has a partition; of what cannot be its partition it has none."""
        if not self.table_exists(table_path):
            return False
        table = self.get_table(table_path)
        if not isinstance(table, CatalogTable) or not partition_spec.is_full(table):
            return False
        directories = self._directories(table)
        if directories is None:
            return partition_spec in self.facts_of(table_path).partitions
        return directories.has(partition_spec)

    def get_partition(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec
    ) -> CatalogPartition:
        """What is said of a partition; CatalogError if there is none."""
        self._is_there(table_path, partition_spec, ignore=False)
        kept = self.facts_of(table_path).partitions
        return kept.get(partition_spec, CatalogPartition())

    def create_partition(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        partition: CatalogPartition,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Make a partition; of a table in files that makes its directory.

        Raises:
            CatalogError: it exists and that is not to be ignored, or it is none of the table's.
        """
        table = self._partitioned(table_path)
        self._check_full(table_path, table, partition_spec)
        if self.partition_exists(table_path, partition_spec):
            if ignore_if_exists:
                return
            message = self._partition_text(table_path, partition_spec, "already exists.")
            raise PartitionAlreadyExistsError(message)
        directories = self._directories(table)
        if directories is None or partition != CatalogPartition():
            self.change_facts(
                table_path,
                lambda facts: replace(
                    facts, partitions={**facts.partitions, partition_spec: partition}
                ),
            )
        if directories is not None:
            directories.make(partition_spec)

    def drop_partition(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Drop a partition; of a table in files with all files in it.

        Raises:
            PartitionNotExistError: there is none, and that is not to be ignored.
        """
        if not self._is_there(table_path, partition_spec, ignore=ignore_if_not_exists):
            return
        directories = self._directories(self._partitioned(table_path))
        if directories is not None:
            directories.drop(partition_spec)
        facts = self.facts_of(table_path)
        if facts.without(partition_spec) != facts:
            self.change_facts(table_path, lambda facts: facts.without(partition_spec))

    def alter_partition(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        new_partition: CatalogPartition,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Say something else of a partition; CatalogError if there is none to be found."""
        if self._is_there(table_path, partition_spec, ignore=ignore_if_not_exists):
            self.change_facts(
                table_path,
                lambda facts: replace(
                    facts, partitions={**facts.partitions, partition_spec: new_partition}
                ),
            )

    def _partitioned(self, table_path: ObjectPath) -> CatalogTable:
        table = self.get_table(table_path)
        if not isinstance(table, CatalogTable) or not table.partition_keys:
            message = f"Table {table_path} in catalog {self.name} is not partitioned."
            raise TableNotPartitionedError(message)
        return table

    @staticmethod
    def _directories(table: CatalogTable) -> PartitionDirectories | None:
        return PartitionDirectories(table) if PartitionDirectories.are_of(table) else None

    def _check_full(
        self, path: ObjectPath, table: CatalogTable, spec: CatalogPartitionSpec
    ) -> None:
        if not spec.is_full(table):
            keys = ", ".join(table.partition_keys)
            message = (
                f"PartitionSpec {spec} does not match partition keys [{keys}] of table {path} in "
                f"catalog {self.name}."
            )
            raise PartitionSpecInvalidError(message)

    def _partition_text(self, path: ObjectPath, spec: CatalogPartitionSpec, what: str) -> str:
        return f"Partition {spec} of table {path} in catalog {self.name} {what}"

    def _is_there(self, path: ObjectPath, spec: CatalogPartitionSpec, *, ignore: bool) -> bool:
        found = self.partition_exists(path, spec)
        if not found and not ignore:
            raise PartitionNotExistError(self._partition_text(path, spec, "does not exist."))
        return found

    # -- statistics ------------------------------------------------------------------------------

    def get_table_statistics(self, table_path: ObjectPath) -> CatalogTableStatistics:
        """How large a table is; nothing is known of it if nobody has said it."""
        self.get_table(table_path)
        return self.facts_of(table_path).statistics or CatalogTableStatistics()

    def get_table_column_statistics(self, table_path: ObjectPath) -> CatalogColumnStatistics:
        """What the columns of a table hold; of no column anything if nobody has said it."""
        self.get_table(table_path)
        return self.facts_of(table_path).columns or CatalogColumnStatistics()

    def get_partition_statistics(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec
    ) -> CatalogTableStatistics:
        """How large a partition is, as ``get_table_statistics``."""
        self._is_there(table_path, partition_spec, ignore=False)
        kept = self.facts_of(table_path).partition_statistics
        return kept.get(partition_spec, CatalogTableStatistics())

    def bulk_get_partition_statistics(
        self, table_path: ObjectPath, partition_specs: Sequence[CatalogPartitionSpec]
    ) -> list[CatalogTableStatistics]:
        """How large several partitions are."""
        return [self.get_partition_statistics(table_path, each) for each in partition_specs]

    def get_partition_column_statistics(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec
    ) -> CatalogColumnStatistics:
        """What the columns of a partition hold, as ``get_table_column_statistics``."""
        self._is_there(table_path, partition_spec, ignore=False)
        kept = self.facts_of(table_path).partition_columns
        return kept.get(partition_spec, CatalogColumnStatistics())

    def bulk_get_partition_column_statistics(
        self, table_path: ObjectPath, partition_specs: Sequence[CatalogPartitionSpec]
    ) -> list[CatalogColumnStatistics]:
        """What the columns of several partitions hold."""
        return [self.get_partition_column_statistics(table_path, each) for each in partition_specs]

    def alter_table_statistics(
        self,
        table_path: ObjectPath,
        table_statistics: CatalogTableStatistics,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Say how large a table is; CatalogError if there is none."""
        if self._has_table(table_path, ignore=ignore_if_not_exists):
            self.change_facts(table_path, lambda facts: replace(facts, statistics=table_statistics))

    def alter_table_column_statistics(
        self,
        table_path: ObjectPath,
        column_statistics: CatalogColumnStatistics,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Say what the columns of a table hold; CatalogError if there is none of them."""
        if self._has_table(table_path, ignore=ignore_if_not_exists):
            self._check_columns(table_path, column_statistics)
            self.change_facts(table_path, lambda facts: replace(facts, columns=column_statistics))

    def alter_partition_statistics(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        partition_statistics: CatalogTableStatistics,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Say how large a partition is; CatalogError if there is none."""
        if self._is_there(table_path, partition_spec, ignore=ignore_if_not_exists):
            self.change_facts(
                table_path,
                lambda facts: replace(
                    facts,
                    partition_statistics={
                        **facts.partition_statistics,
                        partition_spec: partition_statistics,
                    },
                ),
            )

    def alter_partition_column_statistics(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        column_statistics: CatalogColumnStatistics,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Say what the columns of a partition hold; CatalogError if there is none of them."""
        if self._is_there(table_path, partition_spec, ignore=ignore_if_not_exists):
            self._check_columns(table_path, column_statistics)
            self.change_facts(
                table_path,
                lambda facts: replace(
                    facts,
                    partition_columns={
                        **facts.partition_columns,
                        partition_spec: column_statistics,
                    },
                ),
            )

    def _has_table(self, table_path: ObjectPath, *, ignore: bool) -> bool:
        if self.table_exists(table_path):
            return True
        if not ignore:
            self.get_table(table_path)
        return False

    def _check_columns(self, table_path: ObjectPath, said: CatalogColumnStatistics) -> None:
        names = self.get_table(table_path).schema.names
        for name in said.get_column_statistics_data():
            if name not in names:
                message = f"Table {table_path} in catalog {self.name} has no column '{name}'."
                raise CatalogError(message)
