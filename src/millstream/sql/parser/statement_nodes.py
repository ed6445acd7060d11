"""Nodes of statements other than queries."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from millstream.sql.parser.nodes import (
    Expression,
    Identifier,
    Name,
    Node,
    Query,
    Statement,
)

if TYPE_CHECKING:
    from millstream.sql.parser.nodes import FunctionCall, Hint
    from millstream.types.logical_types import LogicalType


# --- parts of tables


@dataclass(frozen=True, slots=True)
class Option(Node):
    """``'key' = 'value'``."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Column(Node):
    """A column of CREATE TABLE: one of the three kinds below."""

    name: Name


@dataclass(frozen=True, slots=True)
class PhysicalColumn(Column):
    """``name type``: kept where the table is."""

    type: LogicalType
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class ComputedColumn(Column):
    """``name AS expression``."""

    expression: Expression
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class MetadataColumn(Column):
    """``name type METADATA [FROM 'key'] [VIRTUAL]``."""

    type: LogicalType
    #: None: the column's name.
    key: str | None = None
    #: Whether it is left out when the table is written.
    virtual: bool = False
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Watermark(Node):
    """``WATERMARK FOR column AS expression``; the column may be a field of a row."""

    column: Identifier
    expression: Expression


@dataclass(frozen=True, slots=True)
class PrimaryKey(Node):
    """``[CONSTRAINT name] PRIMARY KEY (columns) NOT ENFORCED``, or behind a column."""

    columns: tuple[Name, ...]
    name: Name | None = None
    #: Only NOT ENFORCED is possible; the parser refuses the rest.
    enforced: bool = False


@dataclass(frozen=True, slots=True)
class Distribution(Node):
    """``DISTRIBUTED BY HASH (columns) INTO n BUCKETS``."""

    #: HASH or RANGE; None: not said.
    kind: str | None = None
    columns: tuple[Name, ...] = ()
    buckets: int | None = None


class MergingStrategy(StrEnum):
    """What LIKE does with a feature of the other table."""

    INCLUDING = "INCLUDING"
    EXCLUDING = "EXCLUDING"
    OVERWRITING = "OVERWRITING"


@dataclass(frozen=True, slots=True)
class LikeOption(Node):
    """``INCLUDING ALL``, ``OVERWRITING OPTIONS``."""

    strategy: MergingStrategy
    #: ALL, CONSTRAINTS, DISTRIBUTION, GENERATED, METADATA, OPTIONS, PARTITIONS or WATERMARKS.
    feature: str


@dataclass(frozen=True, slots=True)
class LikeClause(Node):
    """``LIKE table (options)``."""

    table: Identifier
    options: tuple[LikeOption, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionValue(Node):
    """``day = '2024-01-31'``; without a value the partition is dynamic."""

    column: Name
    value: Expression | None = None


# --- tables


@dataclass(frozen=True, slots=True)
class CreateTable(Statement):
    """``CREATE [TEMPORARY] TABLE``, with LIKE or AS; [CREATE OR] REPLACE TABLE ... AS."""

    name: Identifier
    columns: tuple[Column, ...] = ()
    watermark: Watermark | None = None
    primary_key: PrimaryKey | None = None
    comment: str | None = None
    partitioned_by: tuple[Name, ...] = ()
    distribution: Distribution | None = None
    options: tuple[Option, ...] = ()
    like: LikeClause | None = None
    #: AS SELECT.
    query: Query | None = None
    #: Columns of AS SELECT by name alone: their order in the table.
    query_columns: tuple[Name, ...] = ()
    temporary: bool = False
    if_not_exists: bool = False
    #: REPLACE TABLE, and CREATE OR REPLACE TABLE.
    replace: bool = False
    #: Whether there may be no such table yet (CREATE OR REPLACE), where ``replace`` is.
    create: bool = True


@dataclass(frozen=True, slots=True)
class DropTable(Statement):
    """``DROP [TEMPORARY] TABLE [IF EXISTS]``."""

    name: Identifier
    temporary: bool = False
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterAction(Node):
    """What ALTER does: one of the actions below."""


@dataclass(frozen=True, slots=True)
class Rename(AlterAction):
    """``RENAME TO name``."""

    to: Identifier


@dataclass(frozen=True, slots=True)
class SetOptions(AlterAction):
    """``SET ('key' = 'value')``."""

    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class ResetOptions(AlterAction):
    """``RESET ('key')``."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetComment(AlterAction):
    """``COMMENT '...'``, of a catalog."""

    comment: str


@dataclass(frozen=True, slots=True)
class ColumnChange(Node):
    """A column that is added or modified, and where it goes."""

    column: Column
    #: FIRST: before all others.
    first: bool = False
    #: AFTER: behind this one.
    after: Name | None = None


@dataclass(frozen=True, slots=True)
class ChangeSchema(AlterAction):
    """``ADD (...)`` or ``MODIFY (...)``: columns, a primary key, a watermark; or a distribution."""

    #: Whether it is MODIFY.
    modify: bool
    columns: tuple[ColumnChange, ...] = ()
    watermark: Watermark | None = None
    primary_key: PrimaryKey | None = None
    distribution: Distribution | None = None


@dataclass(frozen=True, slots=True)
class RenameColumn(AlterAction):
    """``RENAME old TO new``."""

    column: Identifier
    to: Name


@dataclass(frozen=True, slots=True)
class DropColumns(AlterAction):
    """``DROP column``, ``DROP (a, b)``."""

    columns: tuple[Identifier, ...]


@dataclass(frozen=True, slots=True)
class DropPrimaryKey(AlterAction):
    """``DROP PRIMARY KEY``."""


@dataclass(frozen=True, slots=True)
class DropConstraint(AlterAction):
    """``DROP CONSTRAINT name``."""

    name: Name


@dataclass(frozen=True, slots=True)
class DropWatermark(AlterAction):
    """``DROP WATERMARK``."""


@dataclass(frozen=True, slots=True)
class DropDistribution(AlterAction):
    """``DROP DISTRIBUTION``."""


@dataclass(frozen=True, slots=True)
class AddedPartition(Node):
    """``PARTITION (day = '2024-01-31') WITH ('key' = 'value')``."""

    values: tuple[PartitionValue, ...]
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class AddPartitions(AlterAction):
    """``ADD [IF NOT EXISTS] PARTITION (...) PARTITION (...)``."""

    partitions: tuple[AddedPartition, ...]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropPartitions(AlterAction):
    """``DROP [IF EXISTS] PARTITION (...), PARTITION (...)``."""

    partitions: tuple[tuple[PartitionValue, ...], ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterTable(Statement):
    """``ALTER TABLE [IF EXISTS] name ...``."""

    name: Identifier
    action: AlterAction
    if_exists: bool = False


# --- views


@dataclass(frozen=True, slots=True)
class ViewColumn(Node):
    """A column of a view, whose name is not its query's."""

    name: Name


@dataclass(frozen=True, slots=True)
class CreateView(Statement):
    """``CREATE [TEMPORARY] VIEW [IF NOT EXISTS] name (columns) COMMENT '...' AS query``."""

    name: Identifier
    query: Query
    columns: tuple[ViewColumn, ...] = ()
    comment: str | None = None
    temporary: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterViewQuery(AlterAction):
    """``AS query``."""

    query: Query


@dataclass(frozen=True, slots=True)
class AlterView(Statement):
    """``ALTER VIEW name RENAME TO ...`` or ``AS query``."""

    name: Identifier
    action: AlterAction


@dataclass(frozen=True, slots=True)
class DropView(Statement):
    """``DROP [TEMPORARY] VIEW [IF EXISTS]``."""

    name: Identifier
    temporary: bool = False
    if_exists: bool = False


# --- functions


@dataclass(frozen=True, slots=True)
class CreateFunction(Statement):
    """``CREATE [TEMPORARY [SYSTEM]] FUNCTION name AS 'module.name' LANGUAGE PYTHON``."""

    name: Identifier
    #: What stands behind AS: for Python, ``module.name``.
    path: str
    #: JAVA, SCALA, SQL or PYTHON; None: not said, which is JAVA in Flink.
    language: str | None = None
    options: tuple[Option, ...] = ()
    temporary: bool = False
    system: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterFunction(Statement):
    """``ALTER [TEMPORARY [SYSTEM]] FUNCTION [IF EXISTS] name AS 'module.name' LANGUAGE PYTHON``."""

    name: Identifier
    path: str
    language: str | None = None
    temporary: bool = False
    system: bool = False
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropFunction(Statement):
    """``DROP [TEMPORARY [SYSTEM]] FUNCTION [IF EXISTS] name``."""

    name: Identifier
    temporary: bool = False
    system: bool = False
    if_exists: bool = False


# --- catalogs, databases, modules


@dataclass(frozen=True, slots=True)
class CreateCatalog(Statement):
    """``CREATE CATALOG [IF NOT EXISTS] name COMMENT '...' WITH (...)``."""

    name: Name
    comment: str | None = None
    options: tuple[Option, ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterCatalog(Statement):
    """``ALTER CATALOG name SET (...) | RESET (...) | COMMENT '...'``."""

    name: Name
    action: AlterAction


@dataclass(frozen=True, slots=True)
class DropCatalog(Statement):
    """``DROP CATALOG [IF EXISTS] name``."""

    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateDatabase(Statement):
    """``CREATE DATABASE [IF NOT EXISTS] name COMMENT '...' WITH (...)``."""

    name: Identifier
    comment: str | None = None
    options: tuple[Option, ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterDatabase(Statement):
    """``ALTER DATABASE name SET (...)``."""

    name: Identifier
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class DropDatabase(Statement):
    """``DROP DATABASE [IF EXISTS] name [RESTRICT | CASCADE]``."""

    name: Identifier
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class UseCatalog(Statement):
    """``USE CATALOG name``."""

    name: Name


@dataclass(frozen=True, slots=True)
class UseDatabase(Statement):
    """``USE [catalog.]database``."""

    name: Identifier


@dataclass(frozen=True, slots=True)
class UseModules(Statement):
    """``USE MODULES a, b``."""

    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class LoadModule(Statement):
    """``LOAD MODULE name WITH (...)``."""

    name: Name
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class UnloadModule(Statement):
    """``UNLOAD MODULE name``."""

    name: Name


# --- writing


@dataclass(frozen=True, slots=True)
class Insert(Statement):
    """``INSERT INTO | OVERWRITE table PARTITION (...) (columns) query``."""

    table: Identifier
    query: Query
    #: In the order of the query's columns; a column may be a field of a row.
    columns: tuple[Identifier, ...] = ()
    partition: tuple[PartitionValue, ...] = ()
    overwrite: bool = False
    hints: tuple[Hint, ...] = ()
    #: ``ON CONFLICT DO``: ERROR, NOTHING or DEDUPLICATE; None: not said.
    on_conflict: str | None = None


@dataclass(frozen=True, slots=True)
class StatementSet(Statement):
    """``EXECUTE STATEMENT SET BEGIN ... END``, ``BEGIN STATEMENT SET; ... END``: one job."""

    statements: tuple[Insert, ...]


@dataclass(frozen=True, slots=True)
class Execute(Statement):
    """``EXECUTE statement``: the same as the statement."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class CompilePlan(Statement):
    """``COMPILE PLAN 'path' [IF NOT EXISTS] FOR statement``."""

    path: str
    statement: Statement
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class ExecutePlan(Statement):
    """``EXECUTE PLAN 'path'``."""

    path: str


@dataclass(frozen=True, slots=True)
class CompileAndExecutePlan(Statement):
    """``COMPILE AND EXECUTE PLAN 'path' FOR statement``."""

    path: str
    statement: Statement


@dataclass(frozen=True, slots=True)
class Delete(Statement):
    """``DELETE FROM table AS alias WHERE ...``."""

    table: Identifier
    where: Expression | None = None
    alias: Name | None = None


@dataclass(frozen=True, slots=True)
class Assignment(Node):
    """``column = value`` of UPDATE."""

    column: Name
    value: Expression


@dataclass(frozen=True, slots=True)
class Update(Statement):
    """``UPDATE table AS alias SET ... WHERE ...``."""

    table: Identifier
    assignments: tuple[Assignment, ...]
    where: Expression | None = None
    alias: Name | None = None


@dataclass(frozen=True, slots=True)
class TruncateTable(Statement):
    """``TRUNCATE TABLE name``."""

    name: Identifier


@dataclass(frozen=True, slots=True)
class AnalyzeTable(Statement):
    """``ANALYZE TABLE t PARTITION (...) COMPUTE STATISTICS FOR COLUMNS a, b | FOR ALL COLUMNS``."""

    name: Identifier
    partition: tuple[PartitionValue, ...] = ()
    columns: tuple[Name, ...] = ()
    all_columns: bool = False


@dataclass(frozen=True, slots=True)
class Call(Statement):
    """``CALL procedure(...)``."""

    call: FunctionCall


# --- looking


@dataclass(frozen=True, slots=True)
class NamePattern(Node):
    """``[NOT] LIKE | ILIKE 'pattern'`` of SHOW."""

    pattern: str
    negated: bool = False
    ignore_case: bool = False


class ShowKind(StrEnum):
    """What SHOW lists."""

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


@dataclass(frozen=True, slots=True)
class Show(Statement):
    """``SHOW TABLES [FROM database] [LIKE 'pattern']`` and its sisters."""

    kind: ShowKind
    #: What stands behind FROM or IN: a catalog or database; the table of COLUMNS.
    scope: Identifier | None = None
    pattern: NamePattern | None = None


@dataclass(frozen=True, slots=True)
class ShowPartitions(Statement):
    """``SHOW PARTITIONS table [PARTITION (...)]``."""

    table: Identifier
    partition: tuple[PartitionValue, ...] = ()


@dataclass(frozen=True, slots=True)
class ShowCreate(Statement):
    """``SHOW CREATE TABLE name``."""

    #: TABLE, VIEW, CATALOG, MODEL, MATERIALIZED TABLE or CONNECTION.
    kind: str
    name: Identifier


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """``DESCRIBE [EXTENDED] name``, ``DESCRIBE CATALOG | DATABASE | FUNCTION ...``."""

    #: TABLE (a view too), CATALOG, DATABASE, FUNCTION, MODEL, CONNECTION or JOB.
    kind: str
    name: Identifier
    extended: bool = False


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """``EXPLAIN [details | PLAN FOR] statement``."""

    statement: Statement
    #: ESTIMATED_COST, CHANGELOG_MODE, JSON_EXECUTION_PLAN, PLAN_ADVICE.
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetOption(Statement):
    """``SET 'key' = 'value'``; SET alone lists what is set."""

    key: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class ResetOption(Statement):
    """``RESET 'key'``; RESET alone resets all."""

    key: str | None = None


@dataclass(frozen=True, slots=True)
class StopJob(Statement):
    """``STOP JOB 'id' [WITH SAVEPOINT] [WITH DRAIN]``."""

    job_id: str
    with_savepoint: bool = False
    with_drain: bool = False
