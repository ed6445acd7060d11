"""The planning of changes: which kinds each node gives, and who needs -U.

What it is: Flink's two passes.  From the leaves up: which kinds of changes (inserts, updates,
deletes) a node gives, and whether what reads it takes them.  From the sinks down: whether updates
are to come with the row before (-U, +U) or as the row after alone.  A sink whose key is the query's
does without -U; so does all below it that can.
What it is not: a choice between plans; it refuses what cannot be computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ValidationError
from millstream.expressions.nodes import InputReference
from millstream.sql.planner import physical
from millstream.sql.planner.keys import smallest, upsert_keys
from millstream.sql.planner.logical import JoinType
from millstream.sql.planner.matches import Match
from millstream.sql.planner.physical import (
    ChangelogFunction,
    FinalRows,
    IntervalJoin,
    LookupJoin,
    TemporalJoin,
    TemporalSort,
    WindowAggregate,
    WindowJoin,
    WindowRank,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.sql.planner.keys import Keys
    from millstream.sql.planner.physical import PhysicalNode, SinkNode


#: What updates look like: with the row before, the row after alone, or there are none.
_BOTH: Final = "both"
_AFTER: Final = "after"
_NO_UPDATES: Final = "none"

_INSERTS: Final = frozenset("I")
_ALL: Final = frozenset("IUD")
_WORDS: Final = {"U": "update", "D": "delete"}
_INSERT_ONLY_INPUT: Final = (
    physical.Deduplicate,
    WindowAggregate,
    IntervalJoin,
    Match,
    TemporalSort,
    WindowJoin,
    WindowRank,
)


def kinds_of(node: PhysicalNode) -> frozenset[str]:
    """Which of I (inserts), U (updates) and D (deletes) a node gives.

    Raises:
        ValidationError: it does not take what an input gives.
    """
    if node.kinds is None:
        node.kinds = _kinds_of(node)
    return node.kinds


def _kinds_of(node: PhysicalNode) -> frozenset[str]:  # noqa: C901, PLR0911, PLR0912 - a table
    if isinstance(node, physical.TableSourceScan | physical.DataStreamScan):
        return frozenset("U" if each in {"UB", "UA"} else each for each in _leaf(node))
    if not node.inputs or isinstance(node, FinalRows):
        return _INSERTS
    below = [kinds_of(each) for each in node.inputs]
    if isinstance(node, _INSERT_ONLY_INPUT):
        for each in node.inputs:
            reader = "Match Recognize" if isinstance(node, Match) else node.kind
            check_takes(reader, each, _INSERTS)
            if isinstance(node, Match):
                return _INSERTS
    if isinstance(node, TemporalJoin):
        # What is taken back later would meet another version than it did when it came.
        check_takes("The left of TemporalJoin", node.inputs[0], _INSERTS)
    if isinstance(node, ChangelogFunction):
        if node.column is None:
            return _INSERTS
        check_takes(node.function, node.input, _INSERTS)
        return frozenset(kind[0] for kind, _ in node.codes)
    if isinstance(node, physical.OverAggregate):
        if node.batch:
            return _INSERTS
        if not node.updating:
            check_takes(node.kind, node.input, _INSERTS)
            return _INSERTS
        return frozenset("IU") if below[0] == _INSERTS else _ALL
    if isinstance(node, physical.GroupAggregate):
        if not node.calls:
            return _INSERTS if below[0] == _INSERTS else frozenset("IUD")
        return frozenset("IU") if below[0] == _INSERTS else _ALL
    if isinstance(node, physical.Deduplicate):
        first_by_arrival = not node.keep_last and node.rowtime is None
        return _INSERTS if first_by_arrival else _ALL
    if isinstance(node, physical.ChangelogNormalize | physical.Rank):
        return _ALL
    if isinstance(node, physical.Limit):
        return _INSERTS if below[0] == _INSERTS else _ALL
    if isinstance(node, physical.Join):
        if node.join in {JoinType.INNER, JoinType.SEMI}:
            return frozenset().union(*below)
        return _ALL
    if isinstance(node, _INSERT_ONLY_INPUT):
        return _INSERTS
    if isinstance(node, TemporalJoin):
        return below[0]
    return frozenset().union(*below)


def _leaf(node: Any) -> frozenset[str]:
    if isinstance(node, physical.DataStreamScan):
        return node.given
    found: frozenset[str] = node.source.changes
    return found


def check_takes(reader: str, node: PhysicalNode, taken: Iterable[str], remedy: str = "") -> None:
    """Refuse a plan in which ``reader`` would get changes that it does not take.

    Args:
        reader: what people call it.
        node: what it reads.
        taken: the kinds of changes that it takes.
        remedy: what would have it take others.

    Raises:
        ValidationError: names the node that makes the changes.
    """
    unwanted = kinds_of(node) - set(taken)
    if not unwanted:
        return
    words = " and ".join(sorted((_WORDS[each] for each in unwanted), reverse=True))
    culprit = _maker(node, unwanted)
    message = (
        f"{reader} doesn't support consuming {words} changes which is produced by node "
        f"{culprit.kind}({culprit.details()}){remedy and '; '}{remedy}"
    )
    raise ValidationError(message)


def _maker(node: PhysicalNode, unwanted: frozenset[str]) -> PhysicalNode:
    """The node furthest from the sink by which the changes come in."""
    passes_on = (
        physical.Calc,
        physical.Exchange,
        physical.Union,
        physical.Correlate,
        physical.Expand,
        physical.WatermarkAssigner,
        physical.WindowTableFunction,
        LookupJoin,
    )
    while isinstance(node, passes_on):
        node = next(each for each in node.inputs if kinds_of(each) & unwanted)
    return node


# -- the pass down -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SinkRules:
    """What the options say of sinks.

    Args:
        materialize: AUTO: rows are kept where the sink's key is not the query's; FORCE: for each
            sink with a key that takes updates; NONE: for none.
        require_on_conflict: whether a statement must say what happens then.
    """

    materialize: str = "AUTO"
    require_on_conflict: bool = False


def plan_changes(*sinks: SinkNode, rules: SinkRules | None = None) -> list[SinkNode]:
    """Plans with the kinds of changes on each node; what they share stays shared.

    Args:
        sinks: the ends of the plans.
        rules: what the options say of sinks; None: nothing.

    Raises:
        ValidationError: a sink does not take the changes; names the node that makes them.
    """
    planner = _Planner(rules or SinkRules())
    return [planner.sink(sink) for sink in sinks]


def _given(kinds: frozenset[str], updates: str) -> frozenset[str]:
    """Kinds as a changelog has them."""
    found = set(kinds - {"U"})
    if "U" in kinds:
        found |= {"UB", "UA"} if updates == _BOTH else {"UA"}
    return frozenset(found)


def _takes_updates(sink: SinkNode) -> bool:
    every = _given(frozenset("IUD"), _BOTH)
    return sink.sink is not None and "UA" in sink.sink.accepts(every)


def materializes(sink: SinkNode, keys: Keys, rules: SinkRules) -> bool:
    """Check whether rows are kept by the key of a sink, because it is not the query's.

    Args:
        sink: with what its statement says.
        keys: of the query.
        rules: what the options say.

    Raises:
        ValidationError: ``ON CONFLICT`` is missing, or cannot be carried out.
    """
    if sink.sink is None:
        return False
    kinds = kinds_of(sink.input)
    # A sink that takes what it is given is asked for what it does without -U.
    taken = sink.sink.accepts(_given(kinds, _AFTER))
    is_append, is_retract = taken == _INSERTS, "UB" in taken
    if sink.conflict is not None:
        _check_conflict(sink, is_append=is_append, is_retract=is_retract)
    if rules.materialize == "NONE" or not sink.key or is_append or is_retract:
        return False
    if kinds == _INSERTS and sink.conflict == "DEDUPLICATE":
        return False  # each row replaces the one before it
    if any(key <= set(sink.key) for key in keys):
        return False
    if rules.require_on_conflict and rules.materialize == "AUTO" and sink.conflict is None:
        own = ", ".join(sink.row.names[each] for each in sink.key)
        key = smallest(keys)
        given = "none" if key is None else ", ".join(sink.row.names[each] for each in key)
        message = (
            f"The query has an upsert key that differs from the primary key of the sink table "
            f"'{sink.name}'. Primary key: [{own}], upsert key: [{given}]. Rows with different "
            "upsert keys may have one primary key, and the result then depends on their order. "
            "Add what happens to them to the INSERT: ON CONFLICT DO DEDUPLICATE (the last row "
            "stays; keeps all rows in state), ON CONFLICT DO ERROR (the job fails), or ON CONFLICT "
            "DO NOTHING (the first row stays). 'table.exec.sink.require-on-conflict' = 'false' "
            "takes DEDUPLICATE without the clause."
        )
        raise ValidationError(message)
    return kinds != _INSERTS or sink.conflict is not None


def _check_conflict(sink: SinkNode, *, is_append: bool, is_retract: bool) -> None:
    """Check what ``ON CONFLICT`` needs.

    Raises:
        ValidationError: the sink takes no upserts, or a source has no watermark.
    """
    if is_append or is_retract:
        reason = (
            "it only accepts INSERT (append-only) changes"
            if is_append
            else "it requires UPDATE_BEFORE (retract mode)"
        )
        message = (
            "ON CONFLICT clause is only allowed for upsert sinks. The sink "
            f"'{sink.name}' is not an upsert sink because {reason}."
        )
        raise ValidationError(message)
    if sink.conflict == "DEDUPLICATE":
        return
    without = dict.fromkeys(_without_watermarks(sink.input))
    if without:
        message = (
            f"ON CONFLICT DO {sink.conflict} requires all source tables to define watermarks, but "
            f"the following source(s) do not: {', '.join(without)}. Add a WATERMARK declaration to "
            "these tables."
        )
        raise ValidationError(message)


def _without_watermarks(node: PhysicalNode) -> list[str]:
    """The tables below a node that have no watermark."""
    if isinstance(node, physical.TableSourceScan):
        has_one = node.table.schema.watermark is not None
        return [] if has_one else [node.identifier.as_summary_string()]
    return [name for each in node.inputs for name in _without_watermarks(each)]


class _Planner:
    def __init__(self, rules: SinkRules) -> None:
        self._rules = rules
        self._done: dict[tuple[int, str], PhysicalNode | None] = {}
        self._kept: list[PhysicalNode] = []

    def sink(self, sink: SinkNode) -> SinkNode:
        kinds = kinds_of(sink.input)
        taken = (
            _given(kinds, _BOTH) if sink.sink is None else sink.sink.accepts(_given(kinds, _BOTH))
        )
        plain = {"U" if each in {"UA", "UB"} else each for each in taken}
        remedy = "" if sink.sink is None else sink.sink.remedy
        check_takes(f"Table sink '{sink.name}'", sink.input, plain, remedy)
        keys = upsert_keys(sink.input)
        has_updates = "U" in kinds
        only_after = "UA" in taken and "UB" not in taken
        needs_key = sink.sink is not None and sink.sink.needs_key
        if only_after and needs_key and kinds != _INSERTS and not sink.key and not keys:
            culprit = _maker(sink.input, kinds - _INSERTS)
            message = (
                f"Table sink '{sink.name}' takes upserts, and the query has no key to tell its "
                f"rows apart by: {culprit.kind}({culprit.details()}). Take ChangelogMode.all()."
            )
            raise ValidationError(message)
        forced = self._rules.materialize == "FORCE" and bool(sink.key) and _takes_updates(sink)
        materialize = forced or materializes(sink, keys, self._rules)
        wanted = [_NO_UPDATES]
        if has_updates:
            exact = not forced and (not sink.key or frozenset(sink.key) in keys)
            wanted = [_AFTER, _BOTH] if only_after and exact else [_BOTH]
        for each in wanted:
            below = self.visit(sink.input, each)
            if below is not None:
                return replace(
                    sink,
                    inputs=(below,),
                    materialize=materialize,
                    upsert_key=smallest(keys),
                    changes=frozenset(),
                )
        message = f"Can't generate a valid execution plan for table sink '{sink.name}'."
        raise ValidationError(message)

    def visit(self, node: PhysicalNode, required: str) -> PhysicalNode | None:
        """The node with its kinds of changes; None if it cannot give updates that way."""
        kinds = kinds_of(node)
        if "U" not in kinds:
            required = _NO_UPDATES
        elif required == _NO_UPDATES:
            required = _AFTER
        known = (id(node), required)
        if known not in self._done:
            self._done[known] = self._visit(node, kinds, required)
            self._kept.append(node)
        return self._done[known]

    def _visit(  # noqa: PLR0911 - a table
        self, node: PhysicalNode, kinds: frozenset[str], required: str
    ) -> PhysicalNode | None:
        if isinstance(node, physical.TableSourceScan | physical.DataStreamScan):
            return self._scan(node, required)
        if isinstance(node, physical.Rank):
            return self._rank(node, kinds, required)
        if isinstance(node, physical.Join):
            return self._join(node, kinds, required)
        if isinstance(node, TemporalJoin):
            # A version ends when the next begins: the row before it has nothing to say.
            sides = zip(node.inputs, (_NO_UPDATES, _AFTER), strict=True)
            inputs = [self.visit(each, wanted) for each, wanted in sides]
            return self._made(node, inputs, kinds, required)
        if isinstance(node, physical.ChangelogNormalize):
            return self._made(node, [self.visit(node.input, _AFTER)], kinds, required)
        if isinstance(node, physical.Calc) and node.condition is not None and required == _AFTER:
            # A row may leave by its update: without -U nobody would know.
            return None
        if isinstance(node, LookupJoin) and required == _AFTER and not _keeps_each(node):
            return None
        if isinstance(node, ChangelogFunction) and required == _AFTER:
            return None
        takes_both = (
            ChangelogFunction,
            physical.GroupAggregate,
            physical.Limit,
            physical.OverAggregate,
            FinalRows,
        )
        if isinstance(node, takes_both):
            return self._made(node, [self.visit(node.input, _BOTH)], kinds, required)
        below = [self.visit(each, required) for each in node.inputs]
        return self._made(node, below, kinds, required)

    def _made(
        self,
        node: PhysicalNode,
        inputs: list[PhysicalNode | None],
        kinds: frozenset[str],
        required: str,
        **more: Any,
    ) -> PhysicalNode | None:
        found = tuple(each for each in inputs if each is not None)
        if len(found) < len(inputs):
            return None
        return replace(node, inputs=found, changes=_given(kinds, required), **more)

    def _scan(self, node: Any, required: str) -> PhysicalNode:
        given = _leaf(node)
        made = replace(node, changes=given)
        if required == _AFTER and "UB" in given:
            return physical.DropUpdateBefore(row=node.row, inputs=(made,), changes=given - {"UB"})
        return made  # type: ignore[no-any-return]

    def _rank(
        self, node: physical.Rank, kinds: frozenset[str], required: str
    ) -> PhysicalNode | None:
        if kinds_of(node.input) == _INSERTS:
            below = self.visit(node.input, _NO_UPDATES)
            return self._made(node, [below], kinds, required, strategy="append")
        key = smallest(
            frozenset(each for each in upsert_keys(node.input) if set(node.partition) <= each)
        )
        if key is not None and _moves_up(node):
            below = self.visit(node.input, _AFTER)
            made = self._made(node, [below], kinds, required, strategy="update fast", row_key=key)
            if made is not None:
                return made
        return self._made(
            node, [self.visit(node.input, _BOTH)], kinds, required, strategy="retract"
        )

    @staticmethod
    def _may_leave(node: physical.Join, side: int) -> bool:
        """Whether an update of a side may end a pair: without -U nobody would know."""
        if node.condition is None:
            return False
        is_one_row = node.join is JoinType.LEFT and any(
            key <= set(node.right_keys) for key in upsert_keys(node.inputs[1])
        )
        return side == 1 or not is_one_row

    def _join(
        self, node: physical.Join, kinds: frozenset[str], required: str
    ) -> PhysicalNode | None:
        inputs: list[PhysicalNode | None] = []
        texts = []
        for each, join_keys in zip(node.inputs, (node.left_keys, node.right_keys), strict=True):
            keys = upsert_keys(each)
            contains = any(set(join_keys) <= key for key in keys)
            texts.append(_side_text(keys, join_keys))
            has_updates = "U" in kinds_of(each)
            if required == _AFTER:
                if has_updates and (not contains or self._may_leave(node, len(inputs))):
                    return None
                inputs.append(self.visit(each, _AFTER if has_updates else _NO_UPDATES))
            else:
                inputs.append(self.visit(each, _BOTH if has_updates else _NO_UPDATES))
        return self._made(node, inputs, kinds, required, side_texts=tuple(texts))


def _keeps_each(node: LookupJoin) -> bool:
    """Whether each row comes out as one, so that an update replaces the row before it."""
    return node.join is JoinType.LEFT and node.is_one_row


def _side_text(keys: Any, join_keys: tuple[int, ...]) -> str:
    if any(key <= set(join_keys) for key in keys):
        return "JoinKeyContainsUniqueKey"
    return "HasUniqueKey" if keys else "NoUniqueKey"


def _moves_up(rank: physical.Rank) -> bool:
    """Whether updates of a row only ever move it forward in the order."""
    return bool(rank.order) and all(
        _direction(rank.input, each.column, nulls_first=each.nulls_first)
        == ("down" if not each.descending else "up")
        for each in rank.order
    )


def _direction(node: PhysicalNode, column: int, *, nulls_first: bool) -> str | None:
    """Whether the values of a column of a key only grow or only shrink.

    MIN and MAX of nothing are NULL, and become values later: that is only a way forward if NULL
    stands behind all values.
    """
    while True:
        if isinstance(node, physical.Calc):
            each = node.projections[column]
            if not isinstance(each, InputReference) or node.condition is not None:
                return None
            column, node = each.index, node.input
        elif isinstance(node, physical.Exchange):
            node = node.input
        else:
            break
    if not isinstance(node, physical.GroupAggregate) or kinds_of(node.input) != _INSERTS:
        return None
    if column < len(node.keys):
        return None
    call = node.calls[column - len(node.keys)]
    if call.user is not None or (call.type.is_nullable and nulls_first):
        return None
    return {"COUNT": "up", "MAX": "up", "MIN": "down"}.get(call.function)
