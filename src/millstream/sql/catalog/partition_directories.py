"""The partitions of a table in files: the directories that there are.

What it is: a partition is there if its directory is; to make one makes it, to drop one deletes it
with its files.
What it is not: what a catalog keeps of partitions (``sql/catalog/table_facts.py``).
"""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

from millstream.connectors.files.partition_names import directory_of, values_of
from millstream.connectors.files.pending_files import local_directory
from millstream.errors import CatalogError
from millstream.sql.catalog.identifiers import CatalogPartitionSpec

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.sql.catalog.objects import CatalogTable

__all__ = ["PartitionDirectories"]


class PartitionDirectories:
    """The directories of a partitioned table.

    Args:
        table: of files; see ``are_of``.

    Raises:
        CatalogError: it does not say where its files are.
    """

    def __init__(self, table: CatalogTable) -> None:
        if "path" not in table.options:
            message = "The table does not say where its files are: the option 'path' is missing."
            raise CatalogError(message)
        self._keys = table.partition_keys
        self.base: Path = local_directory(table.options["path"])

    @staticmethod
    def are_of(table: CatalogTable) -> bool:
        """Whether the partitions of a table are directories."""
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
        """Whether there is a partition; of a name that no directory can have there is none."""
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
