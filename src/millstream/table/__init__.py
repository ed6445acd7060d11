"""The Table API and SQL with PyFlink's names: tables, statements, expressions, types.

Read next: ``table/table_environment.py``; ``docs/reference/pyflink.md`` lists what is left out.
"""

from millstream import facade
from millstream.sql.catalog.catalog import Catalog as Catalog
from millstream.sql.catalog.catalog import GenericInMemoryCatalog as GenericInMemoryCatalog
from millstream.sql.catalog.identifiers import ObjectPath as ObjectPath
from millstream.sql.catalog.objects import CatalogDatabase as CatalogDatabase
from millstream.sql.catalog.objects import CatalogFunction as CatalogFunction
from millstream.sql.catalog.schema import ResolvedSchema as ResolvedSchema
from millstream.table.aggregate_functions import AggregateFunction as AggregateFunction
from millstream.table.aggregate_functions import TableAggregateFunction as TableAggregateFunction
from millstream.table.changelog_mode import ChangelogMode as ChangelogMode
from millstream.table.compiled_plan import CompiledPlan as CompiledPlan
from millstream.table.data_view import DataView as DataView
from millstream.table.data_view import ListView as ListView
from millstream.table.data_view import MapView as MapView
from millstream.table.environment_settings import EnvironmentSettings as EnvironmentSettings
from millstream.table.explain_detail import ExplainDetail as ExplainDetail
from millstream.table.expression import Expression as Expression
from millstream.table.module import Module as Module
from millstream.table.module import ModuleEntry as ModuleEntry
from millstream.table.plan_reference import PlanReference as PlanReference
from millstream.table.schema import Schema as Schema
from millstream.table.sql_dialect import SqlDialect as SqlDialect
from millstream.table.statement_set import StatementSet as StatementSet
from millstream.table.table import GroupedTable as GroupedTable
from millstream.table.table import GroupWindowedTable as GroupWindowedTable
from millstream.table.table import OverWindowedTable as OverWindowedTable
from millstream.table.table import Table as Table
from millstream.table.table import WindowGroupedTable as WindowGroupedTable
from millstream.table.table_config import TableConfig as TableConfig
from millstream.table.table_descriptor import FormatDescriptor as FormatDescriptor
from millstream.table.table_descriptor import TableDescriptor as TableDescriptor
from millstream.table.table_environment import StreamTableEnvironment as StreamTableEnvironment
from millstream.table.table_environment import TableEnvironment as TableEnvironment
from millstream.table.table_pipeline import TablePipeline as TablePipeline
from millstream.table.table_result import ResultKind as ResultKind
from millstream.table.table_result import TableResult as TableResult
from millstream.table.table_schema import TableSchema as TableSchema
from millstream.table.types import DataTypes as DataTypes
from millstream.table.types import UserDefinedType as UserDefinedType
from millstream.table.udf import AsyncScalarFunction as AsyncScalarFunction
from millstream.table.udf import FunctionContext as FunctionContext
from millstream.table.udf import ScalarFunction as ScalarFunction
from millstream.table.udf import TableFunction as TableFunction
from millstream.types.row import Row as Row
from millstream.types.row import RowKind as RowKind

facade.complete(__name__)
