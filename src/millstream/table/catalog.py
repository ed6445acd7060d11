"""Catalogs, databases, tables and descriptors of new catalogs, under PyFlink's path."""

from millstream.sql.catalog.catalog import Catalog as Catalog
from millstream.sql.catalog.catalog import GenericInMemoryCatalog as GenericInMemoryCatalog
from millstream.sql.catalog.identifiers import CatalogPartitionSpec as CatalogPartitionSpec
from millstream.sql.catalog.identifiers import ObjectIdentifier as ObjectIdentifier
from millstream.sql.catalog.identifiers import ObjectPath as ObjectPath
from millstream.sql.catalog.objects import CatalogBaseTable as CatalogBaseTable
from millstream.sql.catalog.objects import CatalogDatabase as CatalogDatabase
from millstream.sql.catalog.objects import CatalogFunction as CatalogFunction
from millstream.sql.catalog.objects import CatalogPartition as CatalogPartition
from millstream.sql.catalog.objects import CatalogTable as CatalogTable
from millstream.sql.catalog.objects import CatalogView as CatalogView
from millstream.sql.catalog.partitions_and_statistics import (
    CatalogColumnStatistics as CatalogColumnStatistics,
)
from millstream.sql.catalog.partitions_and_statistics import (
    CatalogTableStatistics as CatalogTableStatistics,
)
from millstream.sql.catalog.schema import Column as Column
from millstream.sql.catalog.schema import ComputedColumn as ComputedColumn
from millstream.sql.catalog.schema import Constraint as Constraint
from millstream.sql.catalog.schema import MetadataColumn as MetadataColumn
from millstream.sql.catalog.schema import PhysicalColumn as PhysicalColumn
from millstream.sql.catalog.schema import ResolvedSchema as ResolvedSchema
from millstream.sql.catalog.schema import UniqueConstraint as UniqueConstraint
from millstream.sql.catalog.schema import WatermarkSpec as WatermarkSpec
from millstream.table.table_descriptor import CatalogDescriptor as CatalogDescriptor
