"""Catalogs, databases, tables and descriptors of new catalogs, under PyFlink's path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.sql.catalog.catalog import Catalog, GenericInMemoryCatalog
from millstream.sql.catalog.identifiers import (
    CatalogPartitionSpec,
    ObjectIdentifier,
    ObjectPath,
    quoted,
)
from millstream.sql.catalog.objects import (
    CatalogBaseTable,
    CatalogDatabase,
    CatalogFunction,
    CatalogPartition,
    CatalogTable,
    CatalogView,
)
from millstream.sql.catalog.partitions_and_statistics import (
    CatalogColumnStatistics,
    CatalogTableStatistics,
)
from millstream.sql.catalog.schema import (
    Column,
    ComputedColumn,
    Constraint,
    MetadataColumn,
    PhysicalColumn,
    ResolvedSchema,
    UniqueConstraint,
    WatermarkSpec,
)

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration

__all__ = [
    "Catalog",
    "CatalogBaseTable",
    "CatalogColumnStatistics",
    "CatalogDatabase",
    "CatalogDescriptor",
    "CatalogFunction",
    "CatalogPartition",
    "CatalogPartitionSpec",
    "CatalogTable",
    "CatalogTableStatistics",
    "CatalogView",
    "Column",
    "ComputedColumn",
    "Constraint",
    "GenericInMemoryCatalog",
    "MetadataColumn",
    "ObjectIdentifier",
    "ObjectPath",
    "PhysicalColumn",
    "ResolvedSchema",
    "UniqueConstraint",
    "WatermarkSpec",
]


@dataclass(frozen=True)
class CatalogDescriptor:
    """A catalog that is to be made; see ``of``."""

    catalog_name: str
    configuration: Configuration
    comment: str | None = None

    @staticmethod
    def of(
        catalog_name: str, configuration: Configuration, comment: str | None = None
    ) -> CatalogDescriptor:
        """What ``CREATE CATALOG`` says.

        Args:
            catalog_name: its name.
            configuration: ``type``, and the options of that type.
            comment: what it is for.
        """
        return CatalogDescriptor(catalog_name, configuration, comment)

    def statement(self, name: str) -> str:
        """``CREATE CATALOG``, with a name of its own in the session."""
        options = self.configuration.to_dict().items()
        pairs = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in options)
        comment = "" if self.comment is None else f" COMMENT {_text(self.comment)}"
        return f"CREATE CATALOG {quoted(name)}{comment}{f' WITH ({pairs})' if pairs else ''}"


def _text(value: str) -> str:
    """A value as statements have it."""
    return "'" + value.replace("'", "''") + "'"
