"""Nodes of CREATE, ALTER and DROP of tables and views, and the actions of every ALTER.

Read next: ``statement_nodes.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from millstream.sql.parser.syntax import Expression, Identifier, Name, Node, Query, Statement

if TYPE_CHECKING:
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
