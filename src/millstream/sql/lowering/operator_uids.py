"""Places: what the operators with state of a job are, of which their uids are made.

What it is: for each node of a physical plan its own words (keys, aggregates, kinds, conditions), in
which every column is the expression that it is made of, down to the columns of tables; and those of
the nodes that it reads.  A sink is its table alone.  Calcs have no words: a filter may come and go,
an alias may change, and state is found again.  Another expression in a key, an argument or a row
that is kept is another place.
What it is not: the layout of state, which an operator's sections say.

Two nodes with one place are told apart by what reads them; then by all that lies between, filters
too; and only where that is equal as well, by which input they are, and by a number.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.nodes import Call, InputReference
from millstream.graph.transformation import MadeUid
from millstream.sql.lowering.operators import slot_texts
from millstream.sql.planner import physical
from millstream.sql.planner.formatting import length_text
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
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.sql.planner.logical import AggregateCall
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.types.logical_types import LogicalType

    Details = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Texts:
    """How columns, expressions and aggregates are said."""

    columns_of: Callable[[PhysicalNode], list[str]]
    text: Callable[[Expression | None, Sequence[str]], str]
    call: Callable[[PhysicalNode, AggregateCall], str]

    def columns(self, node: PhysicalNode, which: Iterable[int]) -> tuple[str, ...]:
        """Some columns of a node."""
        found = self.columns_of(node)
        return tuple(found[each] for each in which)

    def order(self, node: Any) -> tuple[str, ...]:
        """What rows are in the order of."""
        names = self.columns_of(node.input)
        return tuple(
            f"{names[each.column]} {'DESC' if each.descending else 'ASC'}" for each in node.order
        )

    def kept(self, node: PhysicalNode) -> tuple[str, ...]:
        """The columns that a node reads."""
        return tuple(each for below in node.inputs for each in self.columns_of(below))

    def condition(self, node: Any) -> tuple[str, ...]:
        """The condition of a join."""
        if node.condition is None:
            return ()
        sides = enumerate(node.inputs)
        names = [f"{side}.{name}" for side, below in sides for name in self.columns_of(below)]
        return (self.text(node.condition, names),)


def described(node: PhysicalNode, texts: Texts, reads: Iterable[str]) -> Details:
    """What a node's operator does.

    Args:
        node: of the plan.
        texts: how columns are said.
        reads: the operators that it reads.
    """
    make = _KINDS.get(type(node))
    found = make(node, texts) if make is not None else {}
    found["reads"] = tuple(reads)
    return {name: parts for name, parts in found.items() if parts}


def described_materializer(
    node: PhysicalNode, columns_of: Callable[[PhysicalNode], list[str]]
) -> Details:
    """What the operator before a sink does whose key is not the query's."""
    assert isinstance(node, physical.SinkNode)  # noqa: S101 - no other node has one
    names = columns_of(node.input)
    return {
        "keys": tuple(names[each] for each in node.key),
        "columns": tuple(names),
    }


def _group(node: Any, texts: Texts) -> Details:
    return {
        "keys": texts.columns(node.input, node.keys),
        "aggregates": tuple(texts.call(node, each) for each in node.calls),
    }


def _window(node: Any, texts: Texts) -> Details:
    return {"window": (_window_text(node, texts),), **_group(node, texts)}


def _window_text(node: Any, texts: Texts) -> str:
    lengths = [length_text(each) for each in (node.size, node.step, node.offset) if each]
    time = texts.columns(node.input, [node.time])
    return f"{node.window}({', '.join([*time, *lengths])})"


def _window_function(node: Any, texts: Texts) -> Details:
    return {
        "window": (_window_text(node, texts),),
        "keys": texts.columns(node.input, node.partition),
        "columns": texts.kept(node),
    }


def _over(node: Any, texts: Texts) -> Details:
    frames = (
        f"{texts.call(node, each.call)} over {'ROWS' if each.is_rows else 'RANGE'} "
        f"{'UNBOUNDED' if each.preceding is None else each.preceding}"
        f"{'' if each.following == 0 else f' to {each.following}'}"
        for each in node.calls
    )
    return {
        "keys": texts.columns(node.input, node.partition),
        "order": texts.order(node),
        "aggregates": tuple(frames),
        "columns": texts.kept(node),
    }


def _match(node: Any, texts: Texts) -> Details:
    slots = slot_texts(node, texts.columns_of(node.input), texts.text)
    within = "" if node.pattern.within is None else f" WITHIN {length_text(node.pattern.within)}"
    return {
        "keys": texts.columns(node.input, node.partition),
        "order": texts.order(node),
        "pattern": (f"{node.pattern} {node.pattern.skip_text}{within}",),
        "conditions": tuple(texts.text(each, slots) for each in node.conditions),
        "columns": texts.kept(node),
    }


def _deduplicate(node: Any, texts: Texts) -> Details:
    time = () if node.rowtime is None else texts.columns(node.input, [node.rowtime])
    return {
        "keeps": ("the last row" if node.keep_last else "the first row",),
        "keys": texts.columns(node.input, node.keys),
        "order": time,
        "columns": texts.kept(node),
    }


def _rank(node: Any, texts: Texts) -> Details:
    found: Details = {
        "keeps": (f"{node.function} {node.start} to {node.end}",),
        "keys": texts.columns(node.input, node.partition),
        "order": texts.order(node),
        "columns": texts.kept(node),
    }
    if isinstance(node, physical.Rank):
        found["strategy"] = (node.strategy,)
    else:
        found["window"] = (str(node.spec), *texts.columns(node.input, node.window))
    return found


def _join(node: Any, texts: Texts) -> Details:
    left, right = node.inputs
    found: Details = {
        "kind": (node.join.value,),
        "left keys": texts.columns(left, node.left_keys),
        "right keys": texts.columns(right, node.right_keys),
        "condition": texts.condition(node),
        "left columns": tuple(texts.columns_of(left)),
        "right columns": tuple(texts.columns_of(right)),
    }
    if isinstance(node, WindowJoin):
        found["window"] = (str(node.spec),)
    elif not isinstance(node, physical.Join):
        times = texts.columns(left, [node.left_time]) + texts.columns(right, [node.right_time])
        found["times"] = times
    if isinstance(node, IntervalJoin):
        found["bounds"] = (f"{node.lower} ms to {node.upper} ms",)
    return found


_KINDS: Final[dict[type, Callable[[Any, Texts], Details]]] = {
    physical.TableSourceScan: lambda node, texts: {
        "table": (str(node.identifier),),
        "partitions": ()
        if node.partitions is None
        else (texts.text(node.partitions, texts.columns_of(node)),),
    },
    physical.SinkNode: lambda node, _: {"table": (node.name,)},
    physical.WatermarkAssigner: lambda node, texts: {"time": texts.columns(node, [node.rowtime])},
    physical.GroupAggregate: _group,
    physical.WindowTableFunction: _window_function,
    WindowAggregate: _window,
    physical.OverAggregate: _over,
    Match: _match,
    physical.Deduplicate: _deduplicate,
    physical.Rank: _rank,
    WindowRank: _rank,
    TemporalSort: lambda node, texts: {"order": texts.order(node), "columns": texts.kept(node)},
    physical.Limit: lambda node, texts: {
        "keeps": (f"{node.limit} rows behind {node.offset}",),
        "columns": texts.kept(node),
    },
    physical.ChangelogNormalize: lambda node, texts: {
        "keys": texts.columns(node, node.keys),
        "columns": texts.kept(node),
    },
    physical.Join: _join,
    IntervalJoin: _join,
    TemporalJoin: _join,
    WindowJoin: _join,
}


#: Which operator of a node: its own, or what stands before a sink.
OPERATOR: Final = "operator"
MATERIALIZER: Final = "materializer"

#: What does not look at the timestamps of the rows that it reads, and passes none on.
_BY_COLUMNS: Final = (
    physical.WatermarkAssigner,
    physical.GroupAggregate,
    physical.Deduplicate,
    physical.Rank,
    physical.Join,
    WindowAggregate,
)
_UID_LENGTH: Final = 32
#: Longer texts are hashed: an expression may be in itself more often than memory can hold.
_LONGEST: Final = 300


class Places:
    """The places of the nodes of one job."""

    def __init__(self, recorded: Mapping[int, Mapping[str, str]] | None = None) -> None:
        """Take the uids that a compiled plan says, by ``id`` of the node and by operator."""
        self._recorded = recorded or {}
        self._nodes: dict[int, PhysicalNode] = {}
        #: Who reads a node, and as which input.
        self._readers: dict[int, list[tuple[PhysicalNode, int]]] = defaultdict(list)
        self._uids: dict[int, str] = {}
        self._known: dict[tuple[str, int], Any] = {}

    def add(self, roots: Iterable[PhysicalNode]) -> None:
        """Take the plans of a job, all before the first uid is asked for.

        Args:
            roots: the ends of the plans; those that are known stay as they are.
        """
        roots = [root for root in roots if id(root) not in self._nodes]
        if not roots:
            return
        for root in roots:
            self._walk(root)
        self._known.clear()
        self._uids = self._told_apart(list(self._nodes.values()))

    def uid(self, node: PhysicalNode, operator: str = OPERATOR) -> str:
        """The uid of a node's operator.

        Args:
            node: with words of its own, in a plan that was taken.
            operator: which of its operators.
        """
        recorded = self._recorded.get(id(node), {}).get(operator)
        if recorded is not None:
            return recorded
        uid = self._uids[id(node)]
        if operator == MATERIALIZER:
            uid = _digest(uid, self._place(node.input), self._materializer(node))
        readers = self._above(node, self._words, ways=False)
        above = self._above(node, self._all_words, ways=True)
        return MadeUid(uid, (readers, self._whole(node), above))

    def _materializer(self, node: Any) -> str:
        """What the operator before a sink is whose key is not the query's."""
        name = "SinkConflicts" if node.conflict in {"ERROR", "NOTHING"} else "SinkMaterializer"
        return f"{name} {node.key} {node.upsert_key} [{self.columns(node.input)}]"

    def uids(self) -> dict[int, dict[str, str]]:
        """The uids of all operators that have one, by ``id`` of their node."""
        found: dict[int, dict[str, str]] = {}
        for number, node in self._nodes.items():
            if number in self._uids:
                found[number] = {OPERATOR: str(self.uid(node))}
            if isinstance(node, physical.SinkNode) and node.materialize:
                found[number][MATERIALIZER] = str(self.uid(node, MATERIALIZER))
        return found

    def details(self, node: PhysicalNode, operator: str = OPERATOR) -> dict[str, tuple[str, ...]]:
        """What a node's operator does, part by part, with columns as what they are made of."""
        if operator == MATERIALIZER:
            return described_materializer(node, self._columns)
        texts = Texts(self._columns, self._text, self._call)
        reads = [each for below in node.inputs for each in self._nearest(below)]
        return described(node, texts, reads)

    def _nearest(self, node: PhysicalNode) -> list[str]:
        """The nodes with words that are next below."""
        if not self._words(node):
            return [each for below in node.inputs for each in self._nearest(below)]
        table = getattr(node, "identifier", None)
        return [node.kind if table is None else f"{node.kind} {table}"]

    def columns(self, node: PhysicalNode, which: Iterable[int] | None = None) -> str:
        """What some columns of a node are made of; None: all."""
        found = self._columns(node)
        return ", ".join(found if which is None else [found[each] for each in which])

    def are_times_read(self, node: PhysicalNode, timeless: Collection[int]) -> bool:
        """Whether anybody who reads a node's rows may look at the timestamps beside them.

        Operators with state go by columns, and what they give has no timestamps.  A stream of a
        program and some sinks do look.

        Args:
            node: in a plan that was taken.
            timeless: by ``id``: ends of plans that do not look.
        """
        # Each node once: of what is read several times over, there are far more ways than nodes.
        above = {id(node)}
        found = [node]
        while found:
            each = found.pop()
            readers = {id(reader): reader for reader, _ in self._readers.get(id(each), ())}
            if not readers and id(each) not in timeless:
                return True
            new = [
                reader
                for number, reader in readers.items()
                if number not in above and not isinstance(reader, _BY_COLUMNS)
            ]
            above.update(map(id, new))
            found += new
        return False

    def _walk(self, node: PhysicalNode) -> None:
        if id(node) in self._nodes:
            return
        self._nodes[id(node)] = node
        for number, below in enumerate(node.inputs):
            self._walk(below)
            self._readers[id(below)].append((node, number))

    def _told_apart(self, nodes: list[PhysicalNode]) -> dict[int, str]:
        uids: dict[int, str] = {}
        tellers: tuple[Callable[[PhysicalNode], str], ...] = (
            self._place,
            lambda node: self._above(node, self._words, ways=False),
            self._whole,
            lambda node: self._above(node, self._all_words, ways=True),
        )

        def tell(group: list[PhysicalNode], level: int, so_far: str) -> None:
            if level > 0 and len(group) == 1:
                uids[id(group[0])] = so_far
            elif level == len(tellers):
                for number, node in enumerate(group):
                    uids[id(node)] = _digest(so_far, str(number)) if number else so_far
            else:
                parts: dict[str, list[PhysicalNode]] = defaultdict(list)
                for node in group:
                    parts[tellers[level](node)].append(node)
                for key, part in parts.items():
                    tell(part, level + 1, _digest(so_far, key) if so_far else key)

        tell([node for node in nodes if self._words(node)], 0, "")
        return uids

    def _once(self, what: str, node: PhysicalNode, make: Callable[[PhysicalNode], Any]) -> Any:
        key = (what, id(node))
        if key not in self._known:
            self._known[key] = make(node)
        return self._known[key]

    def _place(self, node: PhysicalNode) -> str:
        """A hash of what a node is and reads; nodes without words are what they read."""

        def make(node: PhysicalNode) -> str:
            if isinstance(node, physical.SinkNode):
                # What waits for its commit is the table's, whatever query comes to write it.
                return _digest(self._words(node))
            below = [self._place(each) for each in node.inputs]
            if isinstance(node, physical.Union):
                below.sort()
            elif len(set(below)) < len(below):
                # Sides that are alike: which of them is which, their filters say.
                below += map(self._whole, node.inputs)
            words = self._words(node)
            return below[0] if not words and len(below) == 1 else _digest(words, *below)

        return str(self._once("place", node, make))

    def _whole(self, node: PhysicalNode) -> str:
        """A hash of what a node is and reads, with all that lies between."""

        def make(node: PhysicalNode) -> str:
            return _digest(self._all_words(node), *map(self._whole, node.inputs))

        return str(self._once("whole", node, make))

    def _above(
        self, node: PhysicalNode, words: Callable[[PhysicalNode], str], *, ways: bool
    ) -> str:
        """A hash of what lies between a node and the ends of the job.

        Args:
            node: where to begin.
            words: of a node in between; those without words do not count.
            ways: whether it counts as which input a node is read.
        """
        name = f"above {ways}"

        def make(node: PhysicalNode) -> list[str]:
            found = []
            for reader, number in self._readers[id(node)]:
                above = self._once(name, reader, make)
                if words(reader):
                    way = str(number) if ways else ""
                    found.append(_digest(words(reader), way, *sorted(above)))
                else:
                    # Whether two readers share a filter makes no difference.
                    found += above
            return found

        return _digest(*sorted(self._once(name, node, make)))

    # -- words -----------------------------------------------------------------------------------

    def _words(self, node: PhysicalNode) -> str:
        """What a node is; nothing for one that only filters, computes or deals out rows."""
        if isinstance(node, physical.Calc | physical.Exchange | physical.DropUpdateBefore):
            return ""
        make = _WORDS.get(type(node), Places._any_words)
        return str(self._once("words", node, lambda node: f"{node.kind} {make(self, node)}"))

    def _all_words(self, node: PhysicalNode) -> str:
        if isinstance(node, physical.Calc):
            condition = self._text(node.condition, self._columns(node.input))
            return f"Calc [{self.columns(node)}] [{condition}]"
        if isinstance(node, physical.TableSourceScan):
            return f"{self._words(node)} {sorted(node.table.options.items())}"
        if isinstance(node, physical.ValuesScan):
            return f"{self._words(node)} {node.details()}"
        return self._words(node)

    def _any_words(self, node: Any) -> str:
        return f"{node.details()} [{self._inputs(node)}]"

    def _inputs(self, node: PhysicalNode) -> str:
        return "; ".join(map(self.columns, node.inputs))

    def _scan(self, node: Any) -> str:
        if node.partitions is None:
            return str(node.identifier)
        # Another choice of files is another source: some would never be read.
        return f"{node.identifier} {self._text(node.partitions, self._columns(node))}"

    def _stream(self, node: Any) -> str:
        return str(node.name)

    def _values(self, node: Any) -> str:
        return self.columns(node)

    def _sink(self, node: Any) -> str:
        return str(node.name)

    def _watermark(self, node: Any) -> str:
        return self.columns(node, [node.rowtime])

    def _union(self, node: Any) -> str:
        return str(len(node.inputs))

    def _group_aggregate(self, node: Any) -> str:
        return f"[{self.columns(node.input, node.keys)}] [{self._calls(node, node.calls)}]"

    def _window_aggregate(self, node: Any) -> str:
        attached = "attached" if node.attached else ""
        return f"{self._window(node)} {attached} {self._group_aggregate(node)}"

    def _window_function(self, node: Any) -> str:
        keys = f" by [{self.columns(node.input, node.partition)}]" if node.partition else ""
        return f"{self._window(node)}{keys}"

    def _window(self, node: Any) -> str:
        time = self.columns(node.input, [node.time])
        return f"{node.window} {time} {node.size} {node.step} {node.offset}"

    def _over(self, node: Any) -> str:
        calls = self._calls(node, [each.call for each in node.calls])
        frames = [(each.is_rows, each.preceding) for each in node.calls]
        frames_text = f"updating {frames}" if node.updating else str(frames)
        if node.batch:
            frames_text += f" batch {[each.following for each in node.calls]}"
        return (
            f"[{self.columns(node.input, node.partition)}] [{self._order(node)}] [{calls}] "
            f"{frames_text} [{self._inputs(node)}]"
        )

    def _match(self, node: Any) -> str:
        slots = slot_texts(node, self._columns(node.input), self._text)
        conditions = "; ".join(self._text(each, slots) for each in node.conditions)
        return (
            f"[{self.columns(node.input, node.partition)}] [{self._order(node)}] {node.pattern} "
            f"{node.pattern.skip_text} {node.pattern.within} [{conditions}] [{self._inputs(node)}]"
        )

    def _deduplicate(self, node: Any) -> str:
        time = "" if node.rowtime is None else self.columns(node, [node.rowtime])
        keep = "last" if node.keep_last else "first"
        return f"{keep} [{self.columns(node, node.keys)}] [{time}] [{self._inputs(node)}]"

    def _rank(self, node: Any) -> str:
        return (
            f"{node.function} {node.start} {node.end} {node.strategy} "
            f"[{self.columns(node.input, node.partition)}] [{self._order(node)}] "
            f"[{self._inputs(node)}]"
        )

    def _final_rows(self, node: Any) -> str:
        return f"[{self._order(node)}] [{self._inputs(node)}]"

    def _limit(self, node: Any) -> str:
        return f"{node.offset} {node.limit} [{self._inputs(node)}]"

    def _normalize(self, node: Any) -> str:
        return f"[{self.columns(node, node.keys)}] [{self._inputs(node)}]"

    def _join(self, node: Any) -> str:
        left, right = node.inputs
        condition = self._text(node.condition, self._sides(node))
        return (
            f"{node.join.name} [{self.columns(left, node.left_keys)}] "
            f"[{self.columns(right, node.right_keys)}] {node.filter_nulls} [{condition}] "
            f"[{self._inputs(node)}]"
        )

    def _join_by_time(self, node: Any) -> str:
        left, right = node.inputs
        condition = self._text(node.condition, self._sides(node))
        times = self.columns(left, [node.left_time]), self.columns(right, [node.right_time])
        bounds = "" if isinstance(node, TemporalJoin) else f"{node.lower} {node.upper} "
        return (
            f"{node.join.name} [{self.columns(left, node.left_keys)}] "
            f"[{self.columns(right, node.right_keys)}] {node.filter_nulls} {times} {bounds}"
            f"[{condition}] [{self._inputs(node)}]"
        )

    def _window_join(self, node: Any) -> str:
        sides = zip(node.inputs, (node.left_window, node.right_window), strict=True)
        windows = "; ".join(self.columns(below, window) for below, window in sides)
        return f"{node.spec} [{windows}] {self._join(node)}"

    def _window_rank(self, node: Any) -> str:
        window = self.columns(node.input, node.window)
        return (
            f"{node.spec} [{window}] {node.function} {node.start} {node.end} "
            f"[{self.columns(node.input, node.partition)}] [{self._order(node)}] "
            f"[{self._inputs(node)}]"
        )

    def _lookup_join(self, node: Any) -> str:
        below, table = self._columns(node.input), self._table_columns(node)
        names = [field.name for field in node.table_row.fields]
        inside = [f"{node.identifier}.{name}" for name in names]
        condition = self._text(node.table_condition, inside)
        both = self._text(node.condition, [*below, *table])
        return (
            f"{node.join.name} {node.identifier} {node.names} "
            f"[{self.columns(node.input, node.keys)}] [{condition}] [{both}]"
        )

    def _table_columns(self, node: Any) -> list[str]:
        inside = [f"{node.identifier}.{field.name}" for field in node.table_row.fields]
        return [self._text(each, inside) for each in node.projections]

    def _correlate(self, node: Any) -> str:
        below = self._columns(node.input)
        inside = ", ".join(self._text(each, below) for each in node.arguments)
        return f"{node.join.name} {node.function}({inside}) {node.with_ordinality}"

    def _expand(self, node: Any) -> str:
        return "; ".join(self.columns(node.input, part) for part in node.sets)

    def _calls(self, node: PhysicalNode, calls: Sequence[AggregateCall]) -> str:
        return ", ".join(self._call(node, call) for call in calls)

    def _call(self, node: PhysicalNode, call: AggregateCall) -> str:
        distinct = "DISTINCT " if call.distinct else ""
        inside = self.columns(node.input, call.arguments)
        where = "" if call.filter is None else f" FILTER {self.columns(node.input, [call.filter])}"
        return _short(f"{call.function}({distinct}{inside}){where} {_type(call.type)}")

    def _order(self, node: Any) -> str:
        keys = (
            f"{self.columns(node.input, [each.column])} {each.descending} {each.nulls_first}"
            for each in node.order
        )
        return ", ".join(keys)

    # -- columns ---------------------------------------------------------------------------------

    def _columns(self, node: PhysicalNode) -> list[str]:
        found: list[str] = self._once("columns", node, self._made_columns)
        return found

    def _made_columns(self, node: Any) -> list[str]:
        if isinstance(node, physical.Calc):
            below = self._columns(node.input)
            return [self._text(each, below) for each in node.projections]
        if not node.inputs:
            named = not isinstance(node, physical.ValuesScan)
            fields = enumerate(node.row.fields)
            return [f"{each.name if named else i} {_type(each.type)}" for i, each in fields]
        if isinstance(node, physical.GroupAggregate | WindowAggregate):
            below = self._columns(node.input)
            made = [below[key] for key in node.keys]
            made += [self._call(node, call) for call in node.calls]
        elif isinstance(node, physical.OverAggregate):
            made = [*self._columns(node.input)]
            made += [self._call(node, each.call) for each in node.calls]
        elif isinstance(node, Match):
            below = self._columns(node.input)
            slots = slot_texts(node, below, self._text)
            made = [below[key] for key in node.partition]
            made += [self._text(each, slots) for each in node.measures]
        elif isinstance(node, physical.TwoInputs):
            made = self._sides(node)
            if node.join in {JoinType.SEMI, JoinType.ANTI}:
                made = made[: len(node.row)]
        elif isinstance(node, LookupJoin):
            made = [*self._columns(node.input), *self._table_columns(node)]
        elif isinstance(node, physical.Union):
            members = zip(*map(self._columns, node.inputs), strict=True)
            made = [
                each[0] if len(set(each)) == 1 else _short(" | ".join(each)) for each in members
            ]
        else:
            made = [*self._columns(node.input)]
        made = made[: len(node.row)]
        # What the node adds of its own is named by what it is and where it stands.
        return [*made, *(f"{node.kind}.{i}" for i in range(len(made), len(node.row)))]

    def _sides(self, node: PhysicalNode) -> list[str]:
        sides = enumerate(node.inputs)
        return [f"{side}.{text}" for side, below in sides for text in self._columns(below)]

    def _text(self, expression: Expression | None, below: Sequence[str]) -> str:
        if expression is None:
            return ""
        if isinstance(expression, InputReference):
            return below[expression.index]
        if isinstance(expression, Call):
            inside = ", ".join(self._text(each, below) for each in expression.arguments)
            return _short(f"{expression.function}({inside}) {_type(expression.type)}")
        return f"{expression.value!r} {_type(expression.type)}"


def _type(kind: LogicalType) -> str:
    """A type without whether it is nullable, which a filter may change."""
    return kind.with_nullability(True).as_summary_string()  # noqa: FBT003


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"#{_digest(text)}"


def _digest(*parts: str) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(f"{len(part)}:{part}".encode())
    return found.hexdigest()[:_UID_LENGTH]


_WORDS: Final[dict[type, Callable[[Places, Any], str]]] = {
    physical.TableSourceScan: Places._scan,  # noqa: SLF001 - the table of this class
    physical.DataStreamScan: Places._stream,  # noqa: SLF001
    physical.ValuesScan: Places._values,  # noqa: SLF001
    physical.SinkNode: Places._sink,  # noqa: SLF001
    physical.WatermarkAssigner: Places._watermark,  # noqa: SLF001
    physical.Union: Places._union,  # noqa: SLF001
    physical.GroupAggregate: Places._group_aggregate,  # noqa: SLF001
    WindowAggregate: Places._window_aggregate,  # noqa: SLF001
    physical.WindowTableFunction: Places._window_function,  # noqa: SLF001
    physical.OverAggregate: Places._over,  # noqa: SLF001
    Match: Places._match,  # noqa: SLF001
    physical.Deduplicate: Places._deduplicate,  # noqa: SLF001
    physical.Rank: Places._rank,  # noqa: SLF001
    physical.Limit: Places._limit,  # noqa: SLF001
    physical.ChangelogNormalize: Places._normalize,  # noqa: SLF001
    physical.Join: Places._join,  # noqa: SLF001
    IntervalJoin: Places._join_by_time,  # noqa: SLF001
    TemporalJoin: Places._join_by_time,  # noqa: SLF001
    WindowJoin: Places._window_join,  # noqa: SLF001
    WindowRank: Places._window_rank,  # noqa: SLF001
    FinalRows: Places._final_rows,  # noqa: SLF001
    TemporalSort: Places._final_rows,  # noqa: SLF001
    LookupJoin: Places._lookup_join,  # noqa: SLF001
    physical.Correlate: Places._correlate,  # noqa: SLF001
    physical.Expand: Places._expand,  # noqa: SLF001
    ChangelogFunction: lambda places, node: (
        f"{node.function} {node.column} {node.codes} [{places._inputs(node)}]"  # noqa: SLF001
    ),
}
