"""What is taken back must be what was given: a check of plans over updates.

What it is: columns that are computed of updated rows by PROCTIME, UUID and the like may be others
when a row is taken back than when it came.  Nodes that find kept rows by them would not find them,
and be wrong from then on; they are refused.  Flink checks the same where
``table.optimizer.non-deterministic-update.strategy`` is ``TRY_RESOLVE``.
What it is not: about tables that are looked up, which may change, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import ValidationError
from millstream.expressions.functions.registry import find_function
from millstream.expressions.nodes import Call, walk
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import columns_of
from millstream.sql.planner.changelog import kinds_of
from millstream.sql.planner.keys import upsert_keys
from millstream.sql.planner.physical import FinalRows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.logical import AggregateCall
    from millstream.sql.planner.physical import PhysicalNode


#: Stands among the columns where it is not sure that there is the row at all.
_ROW: Final = -1
_PASSING: Final = (
    physical.Exchange,
    physical.WatermarkAssigner,
    physical.DropUpdateBefore,
    physical.Union,
    physical.Correlate,
    physical.WindowTableFunction,
    physical.Limit,
    physical.OverAggregate,
)
#: What is of each row in batch mode, too.
_OF_ROWS: Final = frozenset({"PROCTIME", "CURRENT_ROW_TIMESTAMP"})


def check_determinism(plans: Iterable[PhysicalNode], *, is_batch: bool = False) -> None:
    """Refuse plans that would look for kept rows by what is computed anew.

    Args:
        plans: with their changes.
        is_batch: whether CURRENT_TIMESTAMP and its like are that of the query's start.

    Raises:
        ValidationError: names the node and the columns.
    """
    check = _Check(is_batch=is_batch)
    for plan in plans:
        check.unsure(plan)


class _Check:
    def __init__(self, *, is_batch: bool) -> None:
        self._is_batch = is_batch
        self._done: dict[int, frozenset[int]] = {}
        self._kept: list[PhysicalNode] = []

    def unsure(self, node: PhysicalNode) -> frozenset[int]:
        """The columns of a node that may be others when a row is taken back.

        Raises:
            ValidationError: it, or one below, keeps rows by such columns.
        """
        if id(node) not in self._done:
            self._kept.append(node)
            below = [self.unsure(each) for each in node.inputs]
            self._look(node, below)
            self._done[id(node)] = self._given(node, below)
        return self._done[id(node)]

    def _look(self, node: PhysicalNode, below: list[frozenset[int]]) -> None:
        self._look_at_condition(node)
        for side, columns in enumerate(below):
            used = _used(node, side) & columns
            if not used:
                continue
            row = node.inputs[side].row
            names = ", ".join(row.names[each] for each in sorted(used - {_ROW}))
            if _ROW in used:
                names = "all, by a filter"
            message = (
                f"{node.shown_kind} keeps rows by columns that are computed anew when a row is "
                f"updated or deleted: {names}. What is taken back would not be found. Leave them "
                "out, compute them above or where rows are only added, or SET "
                "'table.optimizer.non-deterministic-update.strategy' = 'IGNORE'."
            )
            raise ValidationError(message)

    def _look_at_condition(self, node: PhysicalNode) -> None:
        """Refuse a join that asks its condition again when a row is taken back, with any answer."""
        condition = getattr(node, "condition", None)
        if not isinstance(node, physical.Join) or condition is None or _only_adds(node):
            return
        if self._is_unsure(condition, frozenset()):
            message = (
                f"{node.shown_kind} finds the pairs of a row that is taken back by a condition "
                f"that may come out otherwise then: {condition}. Filter above the join, or SET "
                "'table.optimizer.non-deterministic-update.strategy' = 'IGNORE'."
            )
            raise ValidationError(message)

    def _given(self, node: PhysicalNode, below: list[frozenset[int]]) -> frozenset[int]:
        if not node.inputs or _only_adds(node):
            return frozenset()
        if isinstance(node, physical.Calc):
            return self._computed(node, below[0])
        if isinstance(node, physical.Join):
            width = len(node.inputs[0].row)
            right = () if node.join.left_only else (each + width for each in below[1] - {_ROW})
            return below[0] | frozenset(right)
        found = frozenset().union(*below) if isinstance(node, _PASSING) else frozenset()
        width = len(node.inputs[0].row)
        if isinstance(node, physical.WindowTableFunction) and node.time in found:
            found |= frozenset(range(width, len(node.row)))
        if isinstance(node, physical.Correlate):
            arguments = node.arguments
            if any(self._is_unsure(each, below[0]) for each in arguments):
                found |= frozenset((_ROW, *range(width, len(node.row))))
        return found

    def _computed(self, node: physical.Calc, below: frozenset[int]) -> frozenset[int]:
        by_filter = node.condition is not None and self._is_unsure(node.condition, below)
        if by_filter or _ROW in below:
            return frozenset((_ROW, *range(len(node.projections))))
        pairs = enumerate(node.projections)
        return frozenset(position for position, each in pairs if self._is_unsure(each, below))

    def _is_unsure(self, expression: Expression, below: frozenset[int]) -> bool:
        if columns_of(expression) & below:
            return True
        return any(self._differs(each) for each in walk(expression) if isinstance(each, Call))

    def _differs(self, call: Call) -> bool:
        """Whether a function gives something else at another time."""
        definition = call.definition or find_function(call.function)
        if definition is None:
            return False
        by_clock = definition.dynamic and not (self._is_batch and call.function not in _OF_ROWS)
        return by_clock or not definition.deterministic


def _only_adds(node: PhysicalNode) -> bool:
    return all(kinds_of(each) == frozenset("I") for each in node.inputs)


def _used(node: PhysicalNode, side: int) -> frozenset[int]:
    """The columns of an input by which a node finds what it keeps."""
    every = frozenset((_ROW, *range(len(node.inputs[side].row))))
    if isinstance(node, physical.GroupAggregate):
        return frozenset((_ROW, *node.keys)).union(*map(_of_call, node.calls))
    if isinstance(node, physical.Join):
        return _of_join(node, side) if upsert_keys(node.inputs[side]) else every
    if isinstance(node, physical.Rank):
        fast = node.strategy == "update fast"
        own = (*node.partition, *(each.column for each in node.order), *(node.row_key or ()))
        return frozenset((_ROW, *own)) if fast else every
    if isinstance(node, physical.OverAggregate | physical.Limit | FinalRows):
        return every
    if isinstance(node, physical.SinkNode) and node.materialize:
        return every if node.upsert_key is None else frozenset(node.upsert_key)
    return frozenset()


def _of_call(call: AggregateCall) -> frozenset[int]:
    return frozenset(call.arguments if call.filter is None else (*call.arguments, call.filter))


def _of_join(node: physical.Join, side: int) -> frozenset[int]:
    width = len(node.inputs[0].row)
    keys = node.right_keys if side else node.left_keys
    of_condition = set() if node.condition is None else columns_of(node.condition)
    if side:
        return frozenset((_ROW, *keys, *(each - width for each in of_condition if each >= width)))
    return frozenset((_ROW, *keys, *(each for each in of_condition if each < width)))
