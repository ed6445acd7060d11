"""PyFlink's catalog methods for partitions and statistics, on top of two hooks.

A partition of a ``filesystem`` table exists if its directory does: creating or dropping one makes
or deletes the directory, and the catalog keeps only its properties and comment.  For other
connectors the catalog keeps the partitions themselves.  Statistics are not measured, but set by
users.
"""

from __future__ import annotations

import errno
import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.connectors.files.partition_names import directory_of, values_of
from millstream.connectors.files.pending_files import local_directory
from millstream.errors import (
    CatalogError,
    PartitionAlreadyExistsError,
    PartitionNotExistError,
    PartitionSpecInvalidError,
    TableNotPartitionedError,
)
from millstream.sql.catalog.identifiers import CatalogPartitionSpec
from millstream.sql.catalog.objects import CatalogBaseTable, CatalogPartition, CatalogTable
from millstream.sql.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from millstream.sql.catalog.identifiers import ObjectPath


class PartitionDirectories:
    """The directories of a partitioned table.

    Args:
        table: of files; see ``are_of``.

    Raises:
        CatalogError: it does not say where its files are.
    """

    def __init__(self, table: CatalogTable) -> None:
        if "path" not in table.options:
            message = "The location of the table's files is missing: set the option 'path'."
            raise CatalogError(message)
        self._keys = table.partition_keys
        self.base: Path = local_directory(table.options["path"])

    @staticmethod
    def are_of(table: CatalogTable) -> bool:
        """Return whether the partitions of a table are directories."""
        return table.options.get("connector") == "filesystem"

    def name_of(self, spec: CatalogPartitionSpec) -> str:
        """The directory of a partition of which all columns are said, below the table's."""
        return directory_of((key, spec.values[key]) for key in self._keys)

    def names(self) -> list[str]:
        """The partitions that there are, by their directories below the table's, sorted."""
        levels = [self.base]
        for key in self._keys:
            below = (each for level in levels if level.is_dir() for each in level.iterdir())
            levels = [
                each
                for each in below
                if each.is_dir() and list(values_of(each.name)) == [key] and "=" in each.name
            ]
        return sorted(str(each.relative_to(self.base)) for each in levels)

    def specs(self) -> list[CatalogPartitionSpec]:
        """The partitions that there are, in the order of ``names``."""
        return [CatalogPartitionSpec(values_of(each)) for each in self.names()]

    def has(self, spec: CatalogPartitionSpec) -> bool:
        """Return whether there is a partition.

        Of a name that no directory can have there is none.
        """
        try:
            return (self.base / self.name_of(spec)).is_dir()
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return False
            raise self._failed(spec, "looked for", error) from error

    def make(self, spec: CatalogPartitionSpec) -> None:
        """Make a partition, unless it is there; CatalogError if it cannot be."""
        try:
            (self.base / self.name_of(spec)).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._failed(spec, "made", error) from error

    def drop(self, spec: CatalogPartitionSpec) -> None:
        """Delete a partition and its files, unless it is gone.

        Of a directory that is a link the link alone goes: what it leads to is not the table's.

        Raises:
            CatalogError: it is outside of the table's directory, by a link above it, or cannot be
                deleted.
        """
        directory = self.base / self.name_of(spec)
        above = directory.parent.resolve()
        if not above.is_relative_to(self.base.resolve()):
            message = (
                f"Partition {self.name_of(spec)} is a link out of {self.base}, to {above}: its "
                "files are not deleted. Take the link away."
            )
            raise CatalogError(message)
        try:
            if directory.is_symlink():
                directory.unlink()
            elif directory.is_dir():
                shutil.rmtree(directory)
        except OSError as error:
            raise self._failed(spec, "dropped", error) from error

    def _failed(self, spec: CatalogPartitionSpec, what: str, error: OSError) -> CatalogError:
        name, reason = self.name_of(spec), error.strerror
        return CatalogError(f"Partition {name} in {self.base} cannot be {what}: {reason}.")


_UNKNOWN: Final = -1
#: What can be said of a column.
_FIGURES: Final = (
    "min",
    "max",
    "ndv",
    "null_count",
    "avg_length",
    "max_length",
    "true_count",
    "false_count",
)


@dataclass(frozen=True, slots=True)
class CatalogTableStatistics:
    """How large a table, or a partition of one, is; None: nobody knows."""

    row_count: int | None = None
    #: Of files; the name is PyFlink's.
    field_count: int | None = None
    #: Bytes, as they are kept.
    total_size: int | None = None
    #: Bytes, before they are compressed.
    raw_data_size: int | None = None
    properties: Mapping[str, str] | None = None

    def get_row_count(self) -> int:
        """How many rows there are; -1 if nobody knows."""
        return _known(self.row_count)

    def get_field_count(self) -> int:
        """How many files there are; -1 if nobody knows."""
        return _known(self.field_count)

    def get_total_size(self) -> int:
        """How many bytes are kept; -1 if nobody knows."""
        return _known(self.total_size)

    def get_raw_data_size(self) -> int:
        """How many bytes there are before they are compressed; -1 if nobody knows."""
        return _known(self.raw_data_size)

    def get_properties(self) -> dict[str, str]:
        """Return what else was said."""
        return dict(self.properties or {})

    def copy(self) -> CatalogTableStatistics:
        """The same again."""
        return replace(self)


def _known(value: int | None) -> int:
    return _UNKNOWN if value is None else value


@dataclass(frozen=True, slots=True)
class CatalogColumnStatistics:
    """Statistics of the columns of a table, or of a partition of one.

    Args:
        column_statistics_data: by column, figures by name: ``min``, ``max``, ``ndv`` (different
            values), ``null_count``, ``avg_length``, ``max_length``, ``true_count``,
            ``false_count``; as many of them as are known.
        properties: what else is to be kept.

    Raises:
        CatalogError: a figure has another name.
    """

    column_statistics_data: Mapping[str, Mapping[str, object]] | None = None
    properties: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Check the names of the figures."""
        for column, figures in self.get_column_statistics_data().items():
            for name in figures:
                if name not in _FIGURES:
                    hint = did_you_mean(name, _FIGURES)
                    message = (
                        f"Statistics of column '{column}' have no '{name}'.{hint} There are: "
                        f"{listed(_FIGURES)}."
                    )
                    raise CatalogError(message)

    def get_column_statistics_data(self) -> dict[str, dict[str, object]]:
        """The figures of each column of which something is known."""
        return {name: dict(each) for name, each in (self.column_statistics_data or {}).items()}

    def get_properties(self) -> dict[str, str]:
        """Return what else was said."""
        return dict(self.properties or {})

    def copy(self) -> CatalogColumnStatistics:
        """The same again."""
        return replace(self)


_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The partitions and statistics kept of one table."""

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
        """Return whether there is a table or view."""

    def facts_of(self, table_path: ObjectPath) -> TableFacts:
        """Return what is kept of a table that is there.

        Nothing, if the catalog keeps no such things.
        """
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
            f"Catalog '{self.name}' keeps neither statistics nor details of partitions; "
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
        """Return whether a table has a partition; of what cannot be its partition it has none."""
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
        """Return what is said of a partition; CatalogError if there is none."""
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
            self._keep(table_path, "partitions", partition_spec, partition)
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
            self._keep(table_path, "partitions", partition_spec, new_partition)

    def _keep(self, path: ObjectPath, what: str, spec: CatalogPartitionSpec, value: object) -> None:
        """Keep something of a partition, in a field of ``TableFacts``."""

        def change(facts: TableFacts) -> TableFacts:
            changed: Any = {**getattr(facts, what), spec: value}
            return replace(facts, **{what: changed})

        self.change_facts(path, change)

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
        """Return what the columns of a table hold; of no column anything if nobody has said it."""
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
        """Return what the columns of a partition hold, as ``get_table_column_statistics``."""
        self._is_there(table_path, partition_spec, ignore=False)
        kept = self.facts_of(table_path).partition_columns
        return kept.get(partition_spec, CatalogColumnStatistics())

    def bulk_get_partition_column_statistics(
        self, table_path: ObjectPath, partition_specs: Sequence[CatalogPartitionSpec]
    ) -> list[CatalogColumnStatistics]:
        """Return what the columns of several partitions hold."""
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
            self._keep(table_path, "partition_statistics", partition_spec, partition_statistics)

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
            self._keep(table_path, "partition_columns", partition_spec, column_statistics)

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
