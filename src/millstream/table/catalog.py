"""Catalogs and what stands in them, under PyFlink's path.

What it is: a facade over ``sql/catalog/``; what stands in a catalog has plain attributes.
"""

from __future__ import annotations

from millstream.sql.catalog.catalog import Catalog, GenericInMemoryCatalog
from millstream.sql.catalog.identifiers import ObjectIdentifier, ObjectPath
from millstream.sql.catalog.objects import (
    CatalogBaseTable,
    CatalogDatabase,
    CatalogFunction,
    CatalogTable,
    CatalogView,
)
from millstream.sql.catalog.schema import Column, ResolvedSchema, WatermarkSpec

__all__ = [
    "Catalog",
    "CatalogBaseTable",
    "CatalogDatabase",
    "CatalogFunction",
    "CatalogTable",
    "CatalogView",
    "Column",
    "GenericInMemoryCatalog",
    "ObjectIdentifier",
    "ObjectPath",
    "ResolvedSchema",
    "WatermarkSpec",
]
