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

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ValidationError
from millstream.expressions.functions.registry import find_function
from millstream.expressions.nodes import Call, InputReference, walk
from millstream.sql.planner import physical
from millstream.sql.planner.calcs import columns_of
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
from millstream.types.logical_types import CharType, VarCharType
from millstream.types.type_derivation import needs_no_cast
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.logical import AggregateCall
    from millstream.sql.planner.physical import PhysicalNode, SinkNode
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
    if isinstance(node, physical.WindowTableFunction) and node.window == "SESSION":
        # A row that is retracted later may be of a session that was given.
        check_takes("SESSION", node.input, _INSERTS)
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
                f"Table sink '{sink.name}' takes upserts, and the query has no key to identify its "
                f"rows: {culprit.kind}({culprit.details()}). Take ChangelogMode.all()."
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
                f"{node.shown_kind} keeps rows by columns that are computed again when a row is "
                f"updated or deleted: {names}. The rows to retract would not be found. Leave them "
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
                f"{node.shown_kind} finds the pairs of a retracted row by a condition "
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
