"""Upsert keys: columns by which the rows that are there can be told apart, and updated.

What it is: for each physical node the sets of columns that are unique among its rows, as far as
changes of one such key also come in their order.
What it is not: the primary keys of tables, which are only promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.nodes import Call, InputReference
from millstream.sql.planner import physical
from millstream.sql.planner.logical import JoinType
from millstream.sql.planner.physical import (
    FinalRows,
    IntervalJoin,
    LookupJoin,
    TemporalJoin,
    TemporalSort,
    WindowAggregate,
    WindowJoin,
    WindowRank,
)
from millstream.types.logical_types import CharType, VarCharType
from millstream.types.type_derivation import needs_no_cast
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import LogicalType, RowField


#: Sets of columns, each of which is unique.
Keys = frozenset[frozenset[int]]
_NONE: Keys = frozenset()
_INTEGERS: Final = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER, TypeRoot.BIGINT)
#: Types whose values have one text each.
_OF_ONE_TEXT: Final = frozenset(
    {
        *_INTEGERS,
        TypeRoot.BOOLEAN,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DATE,
        TypeRoot.TIME_WITHOUT_TIME_ZONE,
        TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE,
        TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE,
    }
)


def smallest(keys: Keys) -> tuple[int, ...] | None:
    """The key with the fewest columns; None if there is none."""
    return min((tuple(sorted(key)) for key in keys), key=lambda key: (len(key), key), default=None)


def upsert_keys(node: PhysicalNode) -> Keys:  # noqa: C901, PLR0911, PLR0912 - a table
    """The keys of a node's rows."""
    if isinstance(node, physical.TableSourceScan):
        key = [node.row.index_of(name) for name in node.table.schema.key_columns]
        return _one(key) if key and min(key) >= 0 else _NONE
    if isinstance(node, physical.DataStreamScan):
        return _one(node.key) if node.key else _NONE
    if isinstance(node, physical.Calc):
        return _projected(node)
    if isinstance(node, physical.Exchange):
        wanted = set(node.keys or ())
        return frozenset(key for key in upsert_keys(node.input) if wanted <= key)
    if isinstance(node, physical.GroupAggregate):
        return _one(range(len(node.keys)))
    if isinstance(node, WindowAggregate):
        width = len(node.keys) + len(node.calls)
        return _one([*range(len(node.keys)), *range(width, width + len(node.properties))])
    if isinstance(node, physical.Deduplicate | physical.ChangelogNormalize):
        return _one(node.keys)
    if isinstance(node, physical.Rank):
        return _ranked(node)
    if isinstance(node, physical.Join | IntervalJoin | WindowJoin):
        return _joined(node)
    if isinstance(node, WindowRank):
        number = () if node.start == node.end or not node.outputs_rank else (len(node.input.row),)
        is_one = node.start == node.end or node.outputs_rank
        return _one((*node.window, *node.partition, *number)) if is_one else upsert_keys(node.input)
    if isinstance(node, TemporalJoin):
        return upsert_keys(node.inputs[0])
    if isinstance(node, LookupJoin):
        return upsert_keys(node.input) if node.is_one_row else _NONE
    transparent = (
        physical.WatermarkAssigner,
        physical.DropUpdateBefore,
        physical.OverAggregate,
        FinalRows,
        TemporalSort,
    )
    if isinstance(node, physical.Limit):
        return _NONE if node.offset else upsert_keys(node.input)
    return upsert_keys(node.input) if isinstance(node, transparent) else _NONE


def _one(columns: Any) -> Keys:
    return frozenset({frozenset(columns)})


def _projected(node: physical.Calc) -> Keys:
    places: dict[int, int] = {}
    for position, each in enumerate(node.projections):
        column = _column_of(each)
        if column is not None:
            places.setdefault(column, position)
    return frozenset(
        frozenset(places[column] for column in key)
        for key in upsert_keys(node.input)
        if all(column in places for column in key)
    )


def _column_of(expression: Expression) -> int | None:
    """The column of which an expression has one value for each value; None: of none."""
    if isinstance(expression, Call) and expression.function == "CAST":
        (operand,) = expression.arguments
        if isinstance(operand, InputReference) and _keeps_apart(operand.type, expression.type):
            return operand.index
    return expression.index if isinstance(expression, InputReference) else None


def _keeps_apart(source: LogicalType, target: LogicalType) -> bool:
    """Check whether a cast gives other values for other values, as Flink sees it."""
    if source.root in _INTEGERS and target.root in _INTEGERS:
        return _INTEGERS.index(source.root) <= _INTEGERS.index(target.root)
    if isinstance(target, CharType | VarCharType):
        if isinstance(source, CharType | VarCharType):
            return source.length <= target.length
        return target.length == VarCharType().length and source.root in _OF_ONE_TEXT
    return needs_no_cast(source.with_nullability(target.is_nullable), target)


def _ranked(node: physical.Rank) -> Keys:
    if node.start == node.end:
        return _one(node.partition) if node.partition else _one(())
    if node.outputs_rank:
        # A row that leaves is only replaced at its number: nothing tells that its key is gone.
        return _one((*node.partition, len(node.input.row)))
    # Behind an offset rows move from number to number, each by an update of another row: a row may
    # come at its new number before it goes from its old one.
    return _NONE if node.start > 1 else upsert_keys(node.input)


def _columns(node: physical.Join | IntervalJoin | WindowJoin) -> list[RowField]:
    """The columns of both sides, as they are there."""
    return [field for each in node.inputs for field in each.row.fields]


def _joined(node: physical.Join | IntervalJoin | WindowJoin) -> Keys:
    left, right = (upsert_keys(each) for each in node.inputs)
    if node.join.left_only:
        return left
    shift = len(node.inputs[0].row)
    moved = frozenset(frozenset(column + shift for column in key) for key in right)
    found: Keys = frozenset(one | other for one in left for other in moved)
    if node.join is JoinType.FULL:
        # A row whose key is NULL, beside nothing, is told from nothing beside such a row by a
        # column that is never NULL in a row.
        real = {at for at, each in enumerate(_columns(node)) if not each.type.is_nullable}
        found = frozenset(key for key in found if key & real)
    own, other = set(node.left_keys), set(node.right_keys)
    if isinstance(node, WindowJoin):
        own, other = own | set(node.left_window), other | set(node.right_window)
    left_is_unique = any(key <= own for key in left)
    right_is_unique = any(key <= other for key in right)
    if right_is_unique and node.join in {JoinType.INNER, JoinType.LEFT}:
        found |= left
    if left_is_unique and node.join in {JoinType.INNER, JoinType.RIGHT}:
        found |= moved
    return found
