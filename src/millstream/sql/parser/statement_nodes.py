"""Nodes of all other statements that are no queries.

Read next: ``nodes.py``, which has all nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from millstream.sql.parser.syntax import Expression, Identifier, Name, Node, Query, Statement

if TYPE_CHECKING:
    from millstream.sql.parser.expression_nodes import FunctionCall
    from millstream.sql.parser.query_nodes import Hint
    from millstream.sql.parser.table_nodes import AlterAction, Option, PartitionValue

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
