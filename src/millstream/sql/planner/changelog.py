"""Changelog planning: upsert keys, change types, and the check for non-deterministic updates.

Two passes, as in Flink.  Bottom-up: the change types (inserts, updates, deletes) of each node, and
whether its reader accepts them.  Top-down: whether updates need UPDATE_BEFORE or are sent as
UPDATE_AFTER alone.  A sink whose key is the query's needs no UPDATE_BEFORE; neither do the nodes
below it that can do without.

Columns computed by PROCTIME, UUID and the like may differ between a row and its retraction.  Nodes
that find rows in state by such columns would not find them, so these plans are refused, as in Flink
where ``table.optimizer.non-deterministic-update.strategy`` is ``TRY_RESOLVE``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ValidationError
from millstream.expressions.functions.registry import find_function
from millstream.expressions.nodes import Call, walk
from millstream.sql.planner import physical as pp
from millstream.sql.planner.joins import Join
from millstream.sql.planner.sinks import materializes, takes_updates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.sinks import SinkNode, SinkRules


def plan_changes(plans: list[SinkNode], rules: SinkRules) -> list[SinkNode]:
    """Plans with the kinds of changes on each node; what they share stays shared.

    Args:
        plans: of all sinks.
        rules: of the options.

    Raises:
        ValidationError: a sink does not take the changes; names the node that makes them.
    """
    planner = _Planner(rules)
    return [planner.sink(sink) for sink in plans]


class _Planner:
    def __init__(self, rules: SinkRules) -> None:
        self._rules = rules
        self._done: dict[tuple[int, str], pp.PhysicalNode | None] = {}
        self._kept: list[pp.PhysicalNode] = []

    def sink(self, sink: SinkNode) -> SinkNode:
        kinds = pp.kinds_of(sink.input)
        given = pp.given_changes(kinds, pp.BOTH)
        taken = given if sink.sink is None else sink.sink.accepts(given)
        plain = {"U" if each in {"UA", "UB"} else each for each in taken}
        remedy = "" if sink.sink is None else sink.sink.remedy
        pp.check_takes(f"Table sink '{sink.name}'", sink.input, plain, remedy)
        keys = sink.input.unique_keys()
        has_updates = "U" in kinds
        only_after = "UA" in taken and "UB" not in taken
        needs_key = sink.sink is not None and sink.sink.needs_key
        if only_after and needs_key and kinds != pp.INSERTS and not sink.key and not keys:
            culprit = pp.maker_of(sink.input, kinds - pp.INSERTS)
            message = (
                f"Table sink '{sink.name}' takes upserts, and the query has no key to identify its "
                f"rows: {culprit.kind}({culprit.details()}). Take ChangelogMode.all()."
            )
            raise ValidationError(message)
        forced = self._rules.materialize == "FORCE" and bool(sink.key) and takes_updates(sink)
        materialize = forced or materializes(sink, keys, self._rules)
        wanted = [pp.NO_UPDATES]
        if has_updates:
            exact = not forced and (not sink.key or frozenset(sink.key) in keys)
            wanted = [pp.AFTER, pp.BOTH] if only_after and exact else [pp.BOTH]
        for each in wanted:
            below = self.visit(sink.input, each)
            if below is not None:
                return replace(
                    sink,
                    inputs=(below,),
                    materialize=materialize,
                    upsert_key=pp.smallest(keys),
                    changes=frozenset(),
                )
        message = f"Can't generate a valid execution plan for table sink '{sink.name}'."
        raise ValidationError(message)

    def visit(self, node: pp.PhysicalNode, required: str) -> pp.PhysicalNode | None:
        """The node with its kinds of changes; None if it cannot give updates that way."""
        if "U" not in pp.kinds_of(node):
            required = pp.NO_UPDATES
        elif required == pp.NO_UPDATES:
            required = pp.AFTER
        known = (id(node), required)
        if known not in self._done:
            self._done[known] = node.planned(self, required)
            self._kept.append(node)
        return self._done[known]

    def made(
        self,
        node: pp.PhysicalNode,
        inputs: Sequence[pp.PhysicalNode | None],
        required: str,
        **more: Any,
    ) -> pp.PhysicalNode | None:
        """The node over planned inputs; None if one of them is."""
        found = tuple(each for each in inputs if each is not None)
        if len(found) < len(inputs):
            return None
        return replace(
            node, inputs=found, changes=pp.given_changes(pp.kinds_of(node), required), **more
        )


#: What is of each row in batch mode, too.
_OFROWS: Final = frozenset({"PROCTIME", "CURRENTROW_TIMESTAMP"})


#: What is of each row in batch mode, too.
_OF_ROWS: Final = frozenset({"PROCTIME", "CURRENT_ROW_TIMESTAMP"})


def check_determinism(plans: list[SinkNode], *, is_batch: bool) -> list[SinkNode]:
    """Refuse plans that would look for kept rows by what is computed anew.

    Args:
        plans: with their changes.
        is_batch: whether CURRENT_TIMESTAMP and its like are that of the query's start.

    Raises:
        ValidationError: names the node and the columns.
    """
    check = _DeterminismCheck(is_batch=is_batch)
    for plan in plans:
        check.unsure(plan)
    return plans


class _DeterminismCheck:
    def __init__(self, *, is_batch: bool) -> None:
        self._is_batch = is_batch
        self._done: dict[int, frozenset[int]] = {}
        self._kept: list[pp.PhysicalNode] = []

    def unsure(self, node: pp.PhysicalNode) -> frozenset[int]:
        """The columns of a node that may be others when a row is taken back.

        Raises:
            ValidationError: it, or one below, keeps rows by such columns.
        """
        if id(node) not in self._done:
            self._kept.append(node)
            below = [self.unsure(each) for each in node.inputs]
            self._look(node, below)
            adds = not node.inputs or pp.only_adds(node)
            found = frozenset() if adds else node.unsure(below, self._is_unsure)
            self._done[id(node)] = found
        return self._done[id(node)]

    def _look(self, node: pp.PhysicalNode, below: list[frozenset[int]]) -> None:
        self._look_at_condition(node)
        for side, columns in enumerate(below):
            used = frozenset(node.kept_by(side)) & columns
            if not used:
                continue
            row = node.inputs[side].row
            names = ", ".join(row.names[each] for each in sorted(used - {pp.ROW}))
            if pp.ROW in used:
                names = "all, by a filter"
            message = (
                f"{node.shown_kind} keeps rows by columns that are computed again when a row is "
                f"updated or deleted: {names}. The rows to retract would not be found. Leave them "
                "out, compute them above or where rows are only added, or SET "
                "'table.optimizer.non-deterministic-update.strategy' = 'IGNORE'."
            )
            raise ValidationError(message)

    def _look_at_condition(self, node: pp.PhysicalNode) -> None:
        """Refuse a join that asks its condition again when a row is taken back, with any answer."""
        condition = getattr(node, "condition", None)
        if not isinstance(node, Join) or condition is None or pp.only_adds(node):
            return
        if self._is_unsure(condition, frozenset()):
            message = (
                f"{node.shown_kind} finds the pairs of a retracted row by a condition "
                f"that may come out otherwise then: {condition}. Filter above the join, or SET "
                "'table.optimizer.non-deterministic-update.strategy' = 'IGNORE'."
            )
            raise ValidationError(message)

    def _is_unsure(self, expression: Expression, below: frozenset[int]) -> bool:
        if pp.columns_of(expression) & below:
            return True
        return any(self._differs(each) for each in walk(expression) if isinstance(each, Call))

    def _differs(self, call: Call) -> bool:
        """Return whether a function gives something else at another time."""
        definition = call.definition or find_function(call.function)
        if definition is None:
            return False
        by_clock = definition.dynamic and not (self._is_batch and call.function not in _OF_ROWS)
        return by_clock or not definition.deterministic
