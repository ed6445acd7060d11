"""The Table API and SQL with PyFlink's names: tables, statements, expressions, types.

Read next: ``table/table_environment.py``; ``docs/reference/pyflink.md`` lists what is left out.
"""

from __future__ import annotations

from millstream.sql.catalog.catalog import Catalog, GenericInMemoryCatalog
from millstream.sql.catalog.identifiers import ObjectPath
from millstream.sql.catalog.objects import CatalogDatabase, CatalogFunction
from millstream.sql.catalog.schema import ResolvedSchema
from millstream.table.aggregate_functions import AggregateFunction, TableAggregateFunction
from millstream.table.changelog_mode import ChangelogMode
from millstream.table.compiled_plan import CompiledPlan
from millstream.table.data_view import DataView, ListView, MapView
from millstream.table.environment_settings import EnvironmentSettings
from millstream.table.explain_detail import ExplainDetail
from millstream.table.expression import Expression
from millstream.table.module import Module, ModuleEntry
from millstream.table.plan_reference import PlanReference
from millstream.table.schema import Schema
from millstream.table.sql_dialect import SqlDialect
from millstream.table.statement_set import StatementSet
from millstream.table.table import (
    GroupedTable,
    GroupWindowedTable,
    OverWindowedTable,
    Table,
    WindowGroupedTable,
)
from millstream.table.table_config import TableConfig
from millstream.table.table_descriptor import FormatDescriptor, TableDescriptor
from millstream.table.table_environment import StreamTableEnvironment, TableEnvironment
from millstream.table.table_pipeline import TablePipeline
from millstream.table.table_result import ResultKind, TableResult
from millstream.table.table_schema import TableSchema
from millstream.table.types import DataTypes, UserDefinedType
from millstream.table.udf import AsyncScalarFunction, FunctionContext, ScalarFunction, TableFunction
from millstream.types.row import Row, RowKind

__all__ = [
    "AggregateFunction",
    "AsyncScalarFunction",
    "Catalog",
    "CatalogDatabase",
    "CatalogFunction",
    "ChangelogMode",
    "CompiledPlan",
    "DataTypes",
    "DataView",
    "EnvironmentSettings",
    "ExplainDetail",
    "Expression",
    "FormatDescriptor",
    "FunctionContext",
    "GenericInMemoryCatalog",
    "GroupWindowedTable",
    "GroupedTable",
    "ListView",
    "MapView",
    "Module",
    "ModuleEntry",
    "ObjectPath",
    "OverWindowedTable",
    "PlanReference",
    "ResolvedSchema",
    "ResultKind",
    "Row",
    "RowKind",
    "ScalarFunction",
    "Schema",
    "SqlDialect",
    "StatementSet",
    "StreamTableEnvironment",
    "Table",
    "TableAggregateFunction",
    "TableConfig",
    "TableDescriptor",
    "TableEnvironment",
    "TableFunction",
    "TablePipeline",
    "TableResult",
    "TableSchema",
    "UserDefinedType",
    "WindowGroupedTable",
]
