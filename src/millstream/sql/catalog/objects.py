"""What a catalog holds: tables, views, functions, databases.

What it is: plain descriptions; nothing here reads or writes a table.
What it is not: the catalog (``sql/catalog/catalog.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.sql.catalog.schema import ResolvedSchema

__all__ = [
    "CatalogBaseTable",
    "CatalogDatabase",
    "CatalogFunction",
    "CatalogTable",
    "CatalogView",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogBaseTable:
    """What tables and views share."""

    schema: ResolvedSchema
    comment: str | None = None

    @property
    def is_view(self) -> bool:
        """Whether it is a query."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTable(CatalogBaseTable):
    """A table that a connector reads or writes."""

    options: Mapping[str, str] = field(default_factory=dict)
    partition_keys: tuple[str, ...] = ()

    def copy(self, options: Mapping[str, str]) -> CatalogTable:
        """The same table with other options."""
        return replace(self, options=dict(options))


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogView(CatalogBaseTable):
    """A query under a name."""

    #: As the statement had it.
    original_query: str
    #: With all names in full, so that it means the same from any database.
    expanded_query: str

    @property
    def is_view(self) -> bool:
        """It is."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogFunction:
    """A function of a user."""

    #: ``module.name`` of a Python object, or the object itself.
    implementation: object
    language: str = "PYTHON"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogDatabase:
    """A database: properties and a comment."""

    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
