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
from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.nodes import Call, InputReference
from millstream.graph.transformation import MadeUid
from millstream.sql.planner.calcs import Union
from millstream.sql.planner.physical import MATERIALIZER, OPERATOR, type_text
from millstream.sql.planner.sinks import SinkNode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from millstream.expressions.nodes import Expression
    from millstream.runtime.operators.table.specs import AggregateCall
    from millstream.sql.planner.physical import PhysicalNode


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
        if isinstance(node, SinkNode) and operator == MATERIALIZER:
            words = node.materializer_words(self)
            uid = _digest(uid, self._place(node.input), words)
        readers = self._above(node, self._words, ways=False)
        above = self._above(node, lambda node: node.all_words(self), ways=True)
        return MadeUid(uid, (readers, self._whole(node), above))

    def uids(self) -> dict[int, dict[str, str]]:
        """The uids of all operators that have one, by ``id`` of their node."""
        found: dict[int, dict[str, str]] = {}
        for number, node in self._nodes.items():
            if number in self._uids:
                found[number] = {OPERATOR: str(self.uid(node))}
            if isinstance(node, SinkNode) and node.materialize:
                found[number][MATERIALIZER] = str(self.uid(node, MATERIALIZER))
        return found

    def details(self, node: PhysicalNode, operator: str = OPERATOR) -> dict[str, tuple[str, ...]]:
        """What a node's operator does, part by part, with columns as what they are made of."""
        if isinstance(node, SinkNode) and operator == MATERIALIZER:
            return node.materializer_recorded(self)
        found = node.recorded(self)
        found["reads"] = tuple(each for below in node.inputs for each in self._nearest(below))
        return {name: parts for name, parts in found.items() if parts}

    def _nearest(self, node: PhysicalNode) -> list[str]:
        """The nodes with words that are next below."""
        if not self._words(node):
            return [each for below in node.inputs for each in self._nearest(below)]
        table = getattr(node, "identifier", None)
        return [node.kind if table is None else f"{node.kind} {table}"]

    def are_times_read(self, node: PhysicalNode, timeless: Collection[int]) -> bool:
        """Return whether anybody who reads a node's rows may look at the timestamps beside them.

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
                if number not in above and not reader.goes_by_columns
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
            lambda node: self._above(node, lambda node: node.all_words(self), ways=True),
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
            if isinstance(node, SinkNode):
                # What waits for its commit is the table's, whatever query comes to write it.
                return _digest(self._words(node))
            below = [self._place(each) for each in node.inputs]
            if isinstance(node, Union):
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
            return _digest(node.all_words(self), *map(self._whole, node.inputs))

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

    # -- texts -----------------------------------------------------------------------------------

    def _words(self, node: PhysicalNode) -> str:
        """Return what a node is; nothing for one that only filters, computes or deals out rows."""
        return str(self._once("words", node, lambda node: node.words(self)))

    def columns(self, node: PhysicalNode) -> list[str]:
        """Return what the columns of a node are made of."""

        def make(node: PhysicalNode) -> list[str]:
            made = node.made_of(self)[: len(node.row)]
            # What the node adds of its own is named by what it is and where it stands.
            return [*made, *(f"{node.kind}.{i}" for i in range(len(made), len(node.row)))]

        found: list[str] = self._once("columns", node, make)
        return found

    def sides(self, node: PhysicalNode) -> list[str]:
        """The columns of all inputs of a node, with the number of the input in front."""
        sides = enumerate(node.inputs)
        return [f"{side}.{text}" for side, below in sides for text in self.columns(below)]

    def call(self, node: PhysicalNode, call: AggregateCall) -> str:
        """An aggregate over the input of a node."""
        below = self.columns(node.input)
        distinct = "DISTINCT " if call.distinct else ""
        inside = ", ".join(below[each] for each in call.arguments)
        where = "" if call.filter is None else f" FILTER {below[call.filter]}"
        text = f"{call.function}({distinct}{inside}){where} {type_text(call.type)}"
        return self.short(text)

    def text(self, expression: Expression | None, below: Sequence[str]) -> str:
        """An expression over such columns."""
        if expression is None:
            return ""
        if isinstance(expression, InputReference):
            return below[expression.index]
        if isinstance(expression, Call):
            inside = ", ".join(self.text(each, below) for each in expression.arguments)
            return self.short(f"{expression.function}({inside}) {type_text(expression.type)}")
        return f"{expression.value!r} {type_text(expression.type)}"

    @staticmethod
    def short(text: str) -> str:
        """A text, or its hash if it is long."""
        return text if len(text) <= _LONGEST else f"#{_digest(text)}"


def _digest(*parts: str) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(f"{len(part)}:{part}".encode())
    return found.hexdigest()[:_UID_LENGTH]
