"""Nodes of statements other than queries."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from millstream.sql.parser import nodes as n

if TYPE_CHECKING:
    from millstream.types.logical_types import LogicalType


# --- parts of tables


class Option(n.Node):
    """``'key' = 'value'``."""

    key: str
    value: str


class Column(n.Node):
    """A column of CREATE TABLE: one of the three kinds below."""

    name: n.Name


class PhysicalColumn(Column):
    """``name type``: kept where the table is."""

    type: LogicalType
    comment: str | None = None


class ComputedColumn(Column):
    """``name AS expression``."""

    expression: n.Expression
    comment: str | None = None


class MetadataColumn(Column):
    """``name type METADATA [FROM 'key'] [VIRTUAL]``."""

    type: LogicalType
    #: None: the column's name.
    key: str | None = None
    #: Whether it is left out when the table is written.
    virtual: bool = False
    comment: str | None = None


class Watermark(n.Node):
    """``WATERMARK FOR column AS expression``; the column may be a field of a row."""

    column: n.Identifier
    expression: n.Expression


class PrimaryKey(n.Node):
    """``[CONSTRAINT name] PRIMARY KEY (columns) NOT ENFORCED``, or behind a column."""

    columns: tuple[n.Name, ...]
    name: n.Name | None = None
    #: Only NOT ENFORCED is possible; the parser refuses the rest.
    enforced: bool = False


class Distribution(n.Node):
    """``DISTRIBUTED BY HASH (columns) INTO n BUCKETS``."""

    #: HASH or RANGE; None: not said.
    kind: str | None = None
    columns: tuple[n.Name, ...] = ()
    buckets: int | None = None


class MergingStrategy(StrEnum):
    """The treatment by LIKE of a feature of the other table."""

    INCLUDING = "INCLUDING"
    EXCLUDING = "EXCLUDING"
    OVERWRITING = "OVERWRITING"


class LikeOption(n.Node):
    """``INCLUDING ALL``, ``OVERWRITING OPTIONS``."""

    strategy: MergingStrategy
    #: ALL, CONSTRAINTS, DISTRIBUTION, GENERATED, METADATA, OPTIONS, PARTITIONS or WATERMARKS.
    feature: str


class LikeClause(n.Node):
    """``LIKE table (options)``."""

    table: n.Identifier
    options: tuple[LikeOption, ...] = ()


class PartitionValue(n.Node):
    """``day = '2024-01-31'``; without a value the partition is dynamic."""

    column: n.Name
    value: n.Expression | None = None


# --- tables


class CreateTable(n.Statement):
    """``CREATE [TEMPORARY] TABLE``, with LIKE or AS; [CREATE OR] REPLACE TABLE ... AS."""

    name: n.Identifier
    columns: tuple[Column, ...] = ()
    watermark: Watermark | None = None
    primary_key: PrimaryKey | None = None
    comment: str | None = None
    partitioned_by: tuple[n.Name, ...] = ()
    distribution: Distribution | None = None
    options: tuple[Option, ...] = ()
    like: LikeClause | None = None
    #: AS SELECT.
    query: n.Query | None = None
    #: Columns of AS SELECT by name alone: their order in the table.
    query_columns: tuple[n.Name, ...] = ()
    temporary: bool = False
    if_not_exists: bool = False
    #: REPLACE TABLE, and CREATE OR REPLACE TABLE.
    replace: bool = False
    #: Whether there may be no such table yet (CREATE OR REPLACE), where ``replace`` is.
    create: bool = True


class DropTable(n.Statement):
    """``DROP [TEMPORARY] TABLE [IF EXISTS]``."""

    name: n.Identifier
    temporary: bool = False
    if_exists: bool = False


class AlterAction(n.Node):
    """The change that ALTER makes: one of the actions below."""


class Rename(AlterAction):
    """``RENAME TO name``."""

    to: n.Identifier


class SetOptions(AlterAction):
    """``SET ('key' = 'value')``."""

    options: tuple[Option, ...]


class ResetOptions(AlterAction):
    """``RESET ('key')``."""

    keys: tuple[str, ...]


class SetComment(AlterAction):
    """``COMMENT '...'``, of a catalog."""

    comment: str


class ColumnChange(n.Node):
    """A column that is added or modified, and where it goes."""

    column: Column
    #: FIRST: before all others.
    first: bool = False
    #: AFTER: behind this one.
    after: n.Name | None = None


class ChangeSchema(AlterAction):
    """``ADD (...)`` or ``MODIFY (...)``: columns, a primary key, a watermark; or a distribution."""

    #: Whether it is MODIFY.
    modify: bool
    columns: tuple[ColumnChange, ...] = ()
    watermark: Watermark | None = None
    primary_key: PrimaryKey | None = None
    distribution: Distribution | None = None


class RenameColumn(AlterAction):
    """``RENAME old TO new``."""

    column: n.Identifier
    to: n.Name


class DropColumns(AlterAction):
    """``DROP column``, ``DROP (a, b)``."""

    columns: tuple[n.Identifier, ...]


class DropPrimaryKey(AlterAction):
    """``DROP PRIMARY KEY``."""


class DropConstraint(AlterAction):
    """``DROP CONSTRAINT name``."""

    name: n.Name


class DropWatermark(AlterAction):
    """``DROP WATERMARK``."""


class DropDistribution(AlterAction):
    """``DROP DISTRIBUTION``."""


class AddedPartition(n.Node):
    """``PARTITION (day = '2024-01-31') WITH ('key' = 'value')``."""

    values: tuple[PartitionValue, ...]
    options: tuple[Option, ...] = ()


class AddPartitions(AlterAction):
    """``ADD [IF NOT EXISTS] PARTITION (...) PARTITION (...)``."""

    partitions: tuple[AddedPartition, ...]
    if_not_exists: bool = False


class DropPartitions(AlterAction):
    """``DROP [IF EXISTS] PARTITION (...), PARTITION (...)``."""

    partitions: tuple[tuple[PartitionValue, ...], ...]
    if_exists: bool = False


class AlterTable(n.Statement):
    """``ALTER TABLE [IF EXISTS] name ...``."""

    name: n.Identifier
    action: AlterAction
    if_exists: bool = False


# --- views


class ViewColumn(n.Node):
    """A column of a view, whose name is not its query's."""

    name: n.Name


class CreateView(n.Statement):
    """``CREATE [TEMPORARY] VIEW [IF NOT EXISTS] name (columns) COMMENT '...' AS query``."""

    name: n.Identifier
    query: n.Query
    columns: tuple[ViewColumn, ...] = ()
    comment: str | None = None
    temporary: bool = False
    if_not_exists: bool = False


class AlterViewQuery(AlterAction):
    """``AS query``."""

    query: n.Query


class AlterView(n.Statement):
    """``ALTER VIEW name RENAME TO ...`` or ``AS query``."""

    name: n.Identifier
    action: AlterAction


class DropView(n.Statement):
    """``DROP [TEMPORARY] VIEW [IF EXISTS]``."""

    name: n.Identifier
    temporary: bool = False
    if_exists: bool = False


# --- functions


class CreateFunction(n.Statement):
    """``CREATE [TEMPORARY [SYSTEM]] FUNCTION name AS 'module.name' LANGUAGE PYTHON``."""

    name: n.Identifier
    #: What stands behind AS: for Python, ``module.name``.
    path: str
    #: JAVA, SCALA, SQL or PYTHON; None: not said, which is JAVA in Flink.
    language: str | None = None
    options: tuple[Option, ...] = ()
    temporary: bool = False
    system: bool = False
    if_not_exists: bool = False


class AlterFunction(n.Statement):
    """``ALTER [TEMPORARY [SYSTEM]] FUNCTION [IF EXISTS] name AS 'module.name' LANGUAGE PYTHON``."""

    name: n.Identifier
    path: str
    language: str | None = None
    temporary: bool = False
    system: bool = False
    if_exists: bool = False


class DropFunction(n.Statement):
    """``DROP [TEMPORARY [SYSTEM]] FUNCTION [IF EXISTS] name``."""

    name: n.Identifier
    temporary: bool = False
    system: bool = False
    if_exists: bool = False


# --- catalogs, databases, modules


class CreateCatalog(n.Statement):
    """``CREATE CATALOG [IF NOT EXISTS] name COMMENT '...' WITH (...)``."""

    name: n.Name
    comment: str | None = None
    options: tuple[Option, ...] = ()
    if_not_exists: bool = False


class AlterCatalog(n.Statement):
    """``ALTER CATALOG name SET (...) | RESET (...) | COMMENT '...'``."""

    name: n.Name
    action: AlterAction


class DropCatalog(n.Statement):
    """``DROP CATALOG [IF EXISTS] name``."""

    name: n.Name
    if_exists: bool = False


class CreateDatabase(n.Statement):
    """``CREATE DATABASE [IF NOT EXISTS] name COMMENT '...' WITH (...)``."""

    name: n.Identifier
    comment: str | None = None
    options: tuple[Option, ...] = ()
    if_not_exists: bool = False


class AlterDatabase(n.Statement):
    """``ALTER DATABASE name SET (...)``."""

    name: n.Identifier
    options: tuple[Option, ...]


class DropDatabase(n.Statement):
    """``DROP DATABASE [IF EXISTS] name [RESTRICT | CASCADE]``."""

    name: n.Identifier
    if_exists: bool = False
    cascade: bool = False


class UseCatalog(n.Statement):
    """``USE CATALOG name``."""

    name: n.Name


class UseDatabase(n.Statement):
    """``USE [catalog.]database``."""

    name: n.Identifier


class UseModules(n.Statement):
    """``USE MODULES a, b``."""

    names: tuple[n.Name, ...]


class LoadModule(n.Statement):
    """``LOAD MODULE name WITH (...)``."""

    name: n.Name
    options: tuple[Option, ...] = ()


class UnloadModule(n.Statement):
    """``UNLOAD MODULE name``."""

    name: n.Name


# --- writing


class Insert(n.Statement):
    """``INSERT INTO | OVERWRITE table PARTITION (...) (columns) query``."""

    table: n.Identifier
    query: n.Query
    #: In the order of the query's columns; a column may be a field of a row.
    columns: tuple[n.Identifier, ...] = ()
    partition: tuple[PartitionValue, ...] = ()
    overwrite: bool = False
    hints: tuple[n.Hint, ...] = ()
    #: ``ON CONFLICT DO``: ERROR, NOTHING or DEDUPLICATE; None: not said.
    on_conflict: str | None = None


class StatementSet(n.Statement):
    """``EXECUTE STATEMENT SET BEGIN ... END``, ``BEGIN STATEMENT SET; ... END``: one job."""

    statements: tuple[Insert, ...]


class Execute(n.Statement):
    """``EXECUTE statement``: the same as the statement."""

    statement: n.Statement


class CompilePlan(n.Statement):
    """``COMPILE PLAN 'path' [IF NOT EXISTS] FOR statement``."""

    path: str
    statement: n.Statement
    if_not_exists: bool = False


class ExecutePlan(n.Statement):
    """``EXECUTE PLAN 'path'``."""

    path: str


class CompileAndExecutePlan(n.Statement):
    """``COMPILE AND EXECUTE PLAN 'path' FOR statement``."""

    path: str
    statement: n.Statement


class Delete(n.Statement):
    """``DELETE FROM table AS alias WHERE ...``."""

    table: n.Identifier
    where: n.Expression | None = None
    alias: n.Name | None = None


class Assignment(n.Node):
    """``column = value`` of UPDATE."""

    column: n.Name
    value: n.Expression


class Update(n.Statement):
    """``UPDATE table AS alias SET ... WHERE ...``."""

    table: n.Identifier
    assignments: tuple[Assignment, ...]
    where: n.Expression | None = None
    alias: n.Name | None = None


class TruncateTable(n.Statement):
    """``TRUNCATE TABLE name``."""

    name: n.Identifier


class AnalyzeTable(n.Statement):
    """``ANALYZE TABLE t PARTITION (...) COMPUTE STATISTICS FOR COLUMNS a, b | FOR ALL COLUMNS``."""

    name: n.Identifier
    partition: tuple[PartitionValue, ...] = ()
    columns: tuple[n.Name, ...] = ()
    all_columns: bool = False


class Call(n.Statement):
    """``CALL procedure(...)``."""

    call: n.FunctionCall


# --- looking


class NamePattern(n.Node):
    """``[NOT] LIKE | ILIKE 'pattern'`` of SHOW."""

    pattern: str
    negated: bool = False
    ignore_case: bool = False


class ShowKind(StrEnum):
    """The things that SHOW lists."""

    CATALOGS = "CATALOGS"
    CURRENT_CATALOG = "CURRENT CATALOG"
    DATABASES = "DATABASES"
    CURRENT_DATABASE = "CURRENT DATABASE"
    TABLES = "TABLES"
    VIEWS = "VIEWS"
    MATERIALIZED_TABLES = "MATERIALIZED TABLES"
    MODELS = "MODELS"
    CONNECTIONS = "CONNECTIONS"
    FUNCTIONS = "FUNCTIONS"
    USER_FUNCTIONS = "USER FUNCTIONS"
    PROCEDURES = "PROCEDURES"
    MODULES = "MODULES"
    FULL_MODULES = "FULL MODULES"
    JARS = "JARS"
    JOBS = "JOBS"
    COLUMNS = "COLUMNS"


class Show(n.Statement):
    """``SHOW TABLES [FROM database] [LIKE 'pattern']`` and its sisters."""

    kind: ShowKind
    #: What stands behind FROM or IN: a catalog or database; the table of COLUMNS.
    scope: n.Identifier | None = None
    pattern: NamePattern | None = None


class ShowPartitions(n.Statement):
    """``SHOW PARTITIONS table [PARTITION (...)]``."""

    table: n.Identifier
    partition: tuple[PartitionValue, ...] = ()


class ShowCreate(n.Statement):
    """``SHOW CREATE TABLE name``."""

    #: TABLE, VIEW, CATALOG, MODEL, MATERIALIZED TABLE or CONNECTION.
    kind: str
    name: n.Identifier


class Describe(n.Statement):
    """``DESCRIBE [EXTENDED] name``, ``DESCRIBE CATALOG | DATABASE | FUNCTION ...``."""

    #: TABLE (a view too), CATALOG, DATABASE, FUNCTION, MODEL, CONNECTION or JOB.
    kind: str
    name: n.Identifier
    extended: bool = False


class Explain(n.Statement):
    """``EXPLAIN [details | PLAN FOR] statement``."""

    statement: n.Statement
    #: ESTIMATED_COST, CHANGELOG_MODE, JSON_EXECUTION_PLAN, PLAN_ADVICE.
    details: tuple[str, ...] = ()


class SetOption(n.Statement):
    """``SET 'key' = 'value'``; SET alone lists what is set."""

    key: str | None = None
    value: str | None = None


class ResetOption(n.Statement):
    """``RESET 'key'``; RESET alone resets all."""

    key: str | None = None


class StopJob(n.Statement):
    """``STOP JOB 'id' [WITH SAVEPOINT] [WITH DRAIN]``."""

    job_id: str
    with_savepoint: bool = False
    with_drain: bool = False
