"""Names of objects: ``ObjectPath`` in a catalog, ``ObjectIdentifier`` in a session."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering
from typing import TYPE_CHECKING, Protocol

from millstream.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Mapping


_PARTS = 2


def quoted(name: str) -> str:
    """A name between backticks, as it can be written in any statement."""
    return "`" + name.replace("`", "``") + "`"


@total_ordering
@dataclass(frozen=True, slots=True)
class ObjectPath:
    """Database and name of a table, view or function."""

    database_name: str = ""
    object_name: str = ""

    def __post_init__(self) -> None:
        """Check that there are two names.

        Raises:
            CatalogError: one is missing.
        """
        if not self.database_name or not self.object_name:
            message = "The path of an object has the name of a database and its own."
            raise CatalogError(message)

    def get_database_name(self) -> str:
        """The database."""
        return self.database_name

    def get_object_name(self) -> str:
        """The name within the database."""
        return self.object_name

    def compare_to(self, other: ObjectPath) -> int:
        """Below, equal to or above 0 where the full name is before, the same, or behind.

        Raises:
            TypeError: the other is no path.
        """
        given: object = other
        if not isinstance(given, ObjectPath):
            message = f"An ObjectPath can be compared with another one, not with {given!r:.100}."
            raise TypeError(message)
        one, two = self.get_full_name(), given.get_full_name()
        return (one > two) - (one < two)

    def __lt__(self, other: ObjectPath) -> bool:
        """Return whether the full name is before another."""
        return self.compare_to(other) < 0

    def get_full_name(self) -> str:
        """``database.name``."""
        return f"{self.database_name}.{self.object_name}"

    @staticmethod
    def from_string(full_name: str) -> ObjectPath:
        """The path written as ``database.name``.

        Raises:
            CatalogError: it has not two parts.
        """
        parts = full_name.split(".")
        if len(parts) != _PARTS or not all(parts):
            message = f"Cannot get split '{full_name}' to get databaseName and objectName"
            raise CatalogError(message)
        return ObjectPath(*parts)

    def __str__(self) -> str:
        """As ``get_full_name``."""
        return self.get_full_name()


@dataclass(frozen=True, slots=True)
class ObjectIdentifier:
    """Catalog, database and name."""

    catalog_name: str
    database_name: str
    object_name: str

    @staticmethod
    def of(catalog_name: str, database_name: str, object_name: str) -> ObjectIdentifier:
        """The identifier of three names."""
        return ObjectIdentifier(catalog_name, database_name, object_name)

    def get_catalog_name(self) -> str:
        """The catalog."""
        return self.catalog_name

    def get_database_name(self) -> str:
        """The database."""
        return self.database_name

    def get_object_name(self) -> str:
        """The name within the database."""
        return self.object_name

    def to_object_path(self) -> ObjectPath:
        """Without the catalog."""
        return self.path

    def to_list(self) -> list[str]:
        """The three names."""
        return list(self.parts)

    @property
    def path(self) -> ObjectPath:
        """Without the catalog."""
        return ObjectPath(self.database_name, self.object_name)

    @property
    def parts(self) -> tuple[str, str, str]:
        """The three names."""
        return self.catalog_name, self.database_name, self.object_name

    def as_summary_string(self) -> str:
        """``catalog.database.name``."""
        return ".".join(self.parts)

    def as_serializable_string(self) -> str:
        """The three names between backticks."""
        return ".".join(map(quoted, self.parts))

    def __str__(self) -> str:
        """As ``as_serializable_string``, which is how Flink's messages show it."""
        return self.as_serializable_string()


class _Partitioned(Protocol):
    @property
    def partition_keys(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, init=False)
class CatalogPartitionSpec:
    """A partition of a table: columns of PARTITIONED BY, with their values as texts.

    The order in which they are said means nothing.
    """

    values: Mapping[str, str]

    def __init__(self, partition_spec: Mapping[str, str]) -> None:
        """Take the values of some columns, or of all.

        Raises:
            CatalogError: a value is no text.
        """
        given: Mapping[str, object] = partition_spec
        for name, value in given.items():
            if not isinstance(value, str):
                message = (
                    f"The value of partition column {name!r} is a text, as SHOW PARTITIONS shows "
                    f"it; it is {value!r}."
                )
                raise CatalogError(message)
        object.__setattr__(self, "values", dict(partition_spec))

    def __hash__(self) -> int:
        """Of the values, in any order."""
        return hash(frozenset(self.values.items()))

    def __str__(self) -> str:
        """As Flink's messages show it."""
        inner = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return f"CatalogPartitionSpec{{{{{inner}}}}}"

    def get_partition_spec(self) -> dict[str, str]:
        """The values by the columns."""
        return dict(self.values)

    def is_full(self, table: _Partitioned) -> bool:
        """Whether it says a value of each column by which a table is partitioned, and no other."""
        return bool(self.values) and set(self.values) == set(table.partition_keys)
