"""Nodes of the physical plan: what all of them have in common.

The module of an operator has its node and the rule that makes it.  A node's fields say what it
does, and their types what they are: columns of its input, an order, aggregates, a condition.  From
the fields follow the columns that it reads, the node over fewer columns, the uid of its operator,
what is recorded of its state, its form in compiled plans and the parameters of its operator.  A
node declares what differs from that, and its traits: keys, change types, time attributes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Protocol,
    TypeAlias,
    TypeVar,
    dataclass_transform,
)

from millstream.errors import ValidationError
from millstream.expressions.context import AsyncCalls
from millstream.expressions.nodes import InputReference, transform, walk
from millstream.runtime.operators.table.specs import AggregateCall
from millstream.sql.planner.formatting import expression_text, right_name
from millstream.sql.planner.logical import JoinType, OverCall, SortKey
from millstream.types.logical_types import RowType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.expressions.context import EvaluationContext
    from millstream.expressions.nodes import Expression
    from millstream.graph.transformation import Transformation
    from millstream.sql.planner.window_columns import WindowColumns
    from millstream.types.types import TypeInformation

    #: Types of fields that name columns of a node's input; a field whose name begins with
    #: ``right`` those of its second one.  Expressions are over the columns of all inputs.
    Column: TypeAlias = int
    Columns: TypeAlias = tuple[int, ...]
    ColumnPair: TypeAlias = tuple[int, int]
    Order: TypeAlias = tuple[SortKey, ...]
    Calls: TypeAlias = tuple[AggregateCall, ...]
    OverCalls: TypeAlias = tuple[OverCall, ...]
    Computed: TypeAlias = Expression
    Condition: TypeAlias = Expression | None

    Narrowed: TypeAlias = tuple["PhysicalNode", list[int]]
    Parts: TypeAlias = Mapping[str, str | tuple[str, ...]]
    Plan = TypeVar("Plan", bound="PhysicalNode")
    _T = TypeVar("_T")

#: Which operator of a node: its own, or what stands before a sink.
OPERATOR: Final = "operator"
MATERIALIZER: Final = "materializer"
#: Sets of columns, each of which is unique.
Keys = frozenset[frozenset[int]]
NO_KEYS: Final[Keys] = frozenset()
#: Change types: inserts, updates and deletes.
INSERTS: Final = frozenset("I")
ALL_CHANGES: Final = frozenset("IUD")
#: What updates look like: with the row before, the row after alone, or there are none.
BOTH: Final = "both"
AFTER: Final = "after"
NO_UPDATES: Final = "none"
#: Of a node of which nobody reads a column: rows are counted all the same.
SOME: Final = frozenset({0})
#: Stands among columns where it is not sure that there is the row at all.
ROW: Final = -1

_COMPUTED: Final = frozenset({"Computed", "Condition"})
_OF_COLUMNS: Final = _COMPUTED | {"Column", "Columns", "ColumnPair", "Order", "Calls", "OverCalls"}
_WORDS: Final = {"U": "update", "D": "delete"}


@dataclass(frozen=True)
class LoweringOptions:
    """Options of the session that operators are made with; times in milliseconds."""

    time_zone: str = "UTC"
    state_ttl: int = 0
    mini_batch: bool = False
    idle_timeout: int | None = None
    drop_nulls: bool = False
    #: Whether what is written is brought to the length of its column.
    trim_pad: bool = False
    query_start: int = 0
    job_parameters: dict[str, str] = field(default_factory=dict)
    async_calls: AsyncCalls = field(default_factory=AsyncCalls)


class Lowers(Protocol):
    """The part of the lowering that nodes use to make their operators."""

    options: LoweringOptions
    evaluation: EvaluationContext

    def stream(self, node: PhysicalNode) -> Transformation:
        """The transformation of a node."""

    def factory(self, kind: Callable[..., _T], node: PhysicalNode, **more: Any) -> _T:
        """The factory of an operator, whose parameters are fields of the node and options."""

    def order(self, order: Sequence[SortKey]) -> tuple[Any, ...]:
        """An order as the runtime takes it."""

    def aggregates(
        self, calls: Sequence[AggregateCall], *, retracts: bool = False, merges: bool = False
    ) -> tuple[Any, ...]:
        """Aggregates as the runtime takes them."""

    def source(self, node: PhysicalNode | None, name: str, source: Any) -> Transformation:
        """A source, of a table or without one of its statement."""

    def one(
        self,
        name: str,
        factory: Any,
        below: Transformation,
        output: RowType | TypeInformation,
        *,
        of: PhysicalNode | None = None,
        operator: str = OPERATOR,
        single: bool | None = None,
        ticks: bool = False,
    ) -> Transformation:
        """An operator; ``single`` None: as parallel as what it reads, so that order is kept."""

    def two(
        self, node: PhysicalNode, factory: Any, *, single: bool, ticks: bool = False
    ) -> Transformation:
        """The operator of a node with two inputs."""

    def stateful(
        self,
        node: PhysicalNode,
        factory: Any,
        *,
        single: bool,
        ticks: bool = False,
        below: Transformation | None = None,
    ) -> Transformation:
        """The operator of a node, with a uid of what that does."""

    def union(self, node: PhysicalNode, members: Sequence[Transformation]) -> Transformation:
        """The rows of several streams."""

    def keyed(self, keys: Sequence[int], below: Transformation) -> Transformation:
        """The rows of one key in one task; without keys all rows in one."""

    def are_times_read(self, node: PhysicalNode) -> bool:
        """Return whether anybody who reads a node's rows may read the timestamps beside them."""


class Origins(Protocol):
    """The origins of columns, down to the columns of tables."""

    def columns(self, node: PhysicalNode) -> list[str]:
        """The columns of a node."""

    def sides(self, node: PhysicalNode) -> list[str]:
        """The columns of all inputs of a node, with the number of the input in front."""

    def text(self, expression: Expression | None, below: Sequence[str]) -> str:
        """An expression over such columns."""

    def call(self, node: PhysicalNode, call: AggregateCall) -> str:
        """An aggregate over the input of a node."""

    def short(self, text: str) -> str:
        """A text, or its hash if it is long."""


class PlansChanges(Protocol):
    """The part of the pass that plans updates that nodes use."""

    def visit(self, node: PhysicalNode, required: str) -> PhysicalNode | None:
        """The node with its change types; None if it cannot give updates that way."""

    def made(
        self,
        node: PhysicalNode,
        inputs: Sequence[PhysicalNode | None],
        required: str,
        **more: Any,
    ) -> PhysicalNode | None:
        """The node over planned inputs; None if one of them is."""


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
class _Relation:
    """Makes dataclasses of the classes below it, and knows them by their names."""

    types: ClassVar[dict[str, Any]] = {}
    kind: ClassVar[str] = ""
    #: The types of fields, without their module and None, and the fields that name columns.
    field_types: ClassVar[dict[str, str]] = {}
    column_fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__dict__.get("kind", cls.__name__)
        made = cls.types[cls.__name__] = dataclass(eq=False, kw_only=True)(cls)
        types = ((each.name, str(each.type).removesuffix(" | None")) for each in fields(made))
        cls.field_types = {name: each.rpartition(".")[2] for name, each in types}
        named = (name for name, each in cls.field_types.items() if each in _OF_COLUMNS)
        cls.column_fields = tuple(named)


class PhysicalNode(_Relation):
    """A node of the physical plan."""

    row: RowType
    inputs: tuple[PhysicalNode, ...] = ()
    #: Which kinds of changes it gives: I, UB, UA, D; set by the planner.
    changes: frozenset[str] = field(default=INSERTS)
    #: Which of I, U, D it gives, once somebody has asked.
    kinds: frozenset[str] | None = field(default=None, repr=False)

    #: What its operator is, for the uid: fields between braces are what they are made of, down to
    #: columns of tables, and ``inputs`` all columns of the inputs.  Empty: it only filters,
    #: computes or deals out rows.
    place: ClassVar[str] = ""
    #: What is recorded of its state, in the same form; a field behind a star is its parts.
    state: ClassVar[Parts] = {}
    #: Whether it takes inserts alone.
    takes_inserts: ClassVar[bool] = False
    #: Whether its rows have the keys of its input.
    passes_keys: ClassVar[bool] = False
    #: Whether changes come through it as they are, so that another node makes them.
    passes_changes: ClassVar[bool] = False
    #: Whether updates of its input have the row before; otherwise as it is asked for its own.
    needs_before: ClassVar[bool] = False
    #: Whether columns that differ when a row is retracted are in its rows as well.
    passes_unsure: ClassVar[bool] = False
    #: Whether it can be in compiled plans.
    is_written: ClassVar[bool] = True
    #: Whether equal nodes of several queries become one.
    is_shared: ClassVar[bool] = False
    #: Whether it reads the columns alone that its fields name and that are read of it.
    is_pruned: ClassVar[bool] = False
    #: Whether it also reads the keys of its inputs, by which it tells changes apart.
    reads_keys: ClassVar[bool] = True
    #: Whether it reads no timestamps of rows, and passes none on.
    goes_by_columns: ClassVar[bool] = False

    @property
    def input(self) -> PhysicalNode:
        """The only input."""
        return self.inputs[0]

    @property
    def is_insert_only(self) -> bool:
        """Whether it gives inserts alone."""
        return self.changes <= {"I"}

    @property
    def update_before(self) -> bool:
        """Whether it gives -U before each +U."""
        return "UB" in self.changes

    # -- EXPLAIN ---------------------------------------------------------------------------------

    def details(self) -> str:
        """Return what EXPLAIN shows between the parentheses."""
        return ""

    @property
    def shown_kind(self) -> str:
        """What EXPLAIN calls it."""
        return self.kind

    @property
    def shown_inputs(self) -> tuple[PhysicalNode, ...]:
        """What EXPLAIN shows below it."""
        return self.inputs

    def fields_text(self) -> str:
        """The names of its columns."""
        return ", ".join(self.row.names)

    # -- columns ---------------------------------------------------------------------------------

    def needed(self, wanted: set[int]) -> list[set[int]]:
        """The columns of its inputs that it reads if some of its own are wanted."""
        read, first = set(wanted), 0
        for name in self.column_fields:
            shift = len(self.inputs[0].row) if name.startswith("right") else 0
            read |= {each + shift for each in named_columns(getattr(self, name))}
        found = []
        for each in self.inputs:
            width = len(each.row)
            own = {column - first for column in read if first <= column < first + width}
            if self.reads_keys:
                own.update(*each.unique_keys())
            found.append((own or {*SOME}) if self.is_pruned else set(range(width)))
            first += width
        return found

    def narrowed(self, wanted: set[int], narrow: Callable[[PhysicalNode], Narrowed]) -> Narrowed:
        """The node over narrower inputs, and which of its columns it has then.

        Args:
            wanted: columns of its own that are read.
            narrow: gives the same of an input.
        """
        del wanted
        every, first = list(range(len(self.row))), 0
        made = [narrow(each) for each in self.inputs]
        inputs = tuple(node for node, _ in made)
        if all(new is old for new, old in zip(inputs, self.inputs, strict=True)):
            return self, every
        if not self.is_pruned:
            return replace(self, inputs=inputs, kinds=None), every
        both: list[int] = []
        for (_, kept), old in zip(made, self.inputs, strict=True):
            both += [column + first for column in kept]
            first += len(old.row)
        changed = {}
        for name in self.column_fields:
            is_computed = self.field_types[name] in _COMPUTED
            side = both if is_computed else made[name.startswith("right")][1]
            changed[name] = with_columns(getattr(self, name), side.index)
        shown = [column for column in (*both, *every[first:]) if column < len(self.row)]
        row = some_fields(self.row, shown)
        return replace(self, row=row, inputs=inputs, kinds=None, **changed), shown

    def keeps_time(self, column: int) -> bool:
        """Return whether a column, which was a time attribute when it was bound, is one still."""
        del column
        return True

    def windows(self) -> WindowColumns | None:
        """The windows of its rows; None if they are in none."""
        return None

    @property
    def goes_by_clock(self) -> bool:
        """Whether what it gives depends on processing time."""
        return False

    # -- changes ---------------------------------------------------------------------------------

    def unique_keys(self) -> Keys:
        """The keys of its rows."""
        return self.input.unique_keys() if self.passes_keys else NO_KEYS

    def change_types(self) -> frozenset[str]:
        """Which of I (inserts), U (updates) and D (deletes) it gives.

        Raises:
            ValidationError: it does not take what an input gives.
        """
        below = [kinds_of(each) for each in self.inputs]
        for each in self.inputs if self.takes_inserts else ():
            check_takes(self.kind, each, INSERTS)
        return frozenset().union(*below) if below else INSERTS

    def planned(self, planner: PlansChanges, required: str) -> PhysicalNode | None:
        """The node with change types on it and below; None if it cannot give updates that way.

        Args:
            planner: plans the inputs.
            required: what its updates must look like.
        """
        wanted = BOTH if self.needs_before else required
        return planner.made(self, [planner.visit(each, wanted) for each in self.inputs], required)

    def kept_by(self, side: int) -> Iterable[int]:
        """The columns of an input by which it finds the rows that it keeps."""
        del side
        return ()

    def unsure(
        self, below: Sequence[frozenset[int]], is_unsure: Callable[[Expression, Any], bool]
    ) -> frozenset[int]:
        """The columns that may be others when a row is retracted.

        Args:
            below: those of its inputs, one of which may give retractions.
            is_unsure: whether an expression over such columns gives others then.
        """
        del is_unsure
        return frozenset().union(*below) if self.passes_unsure else frozenset()

    # -- operators -------------------------------------------------------------------------------

    def words(self, origins: Origins) -> str:
        """Return what its operator is, of which the uid is made; empty: nothing of its own."""
        return f"{self.kind} {self.place.format_map(Said(self, origins))}" if self.place else ""

    def all_words(self, origins: Origins) -> str:
        """The same with what does not belong to its state."""
        return self.words(origins)

    def recorded(self, origins: Origins) -> dict[str, tuple[str, ...]]:
        """Return what its state is made of, part by part."""
        said = Said(self, origins, is_state=True)
        found = {}
        for name, parts in self.state.items():
            texts: list[str] = []
            for part in (parts,) if isinstance(parts, str) else parts:
                texts += said.parts(part[1:]) if part[0] == "*" else [part.format_map(said)]
            found[name] = tuple(texts)
        return found

    def made_of(self, origins: Origins) -> list[str]:
        """Return what its columns are made of, as far as it does not add them itself."""
        if self.inputs:
            return [*origins.columns(self.input)]
        return [f"{each.name} {type_text(each.type)}" for each in self.row.fields]

    def operator(self, lowering: Lowers) -> Transformation:
        """Its operator."""
        raise NotImplementedError


class Said:
    """The fields of a node in words: columns as what they are made of."""

    def __init__(self, node: PhysicalNode, origins: Origins, *, is_state: bool = False) -> None:
        self._node = node
        self._origins = origins
        self._is_state = is_state

    def __getitem__(self, name: str) -> Any:
        is_columns = name in self._node.column_fields
        if name == "inputs":
            columns = map(self._origins.columns, self._node.inputs)
            return "; ".join(", ".join(each) for each in columns)
        return ", ".join(self.parts(name)) if is_columns else getattr(self._node, name)

    def parts(self, name: str) -> list[str]:
        """The parts of a field: texts of columns, of what is ordered by, of aggregates."""
        node, origins = self._node, self._origins
        if name == "inputs":
            return [text for each in node.inputs for text in origins.columns(each)]
        value = getattr(node, name)
        if value is None:
            return []
        if node.field_types.get(name, "") in _COMPUTED:
            read = node.inputs[0] if node.inputs else node
            below = origins.sides(node) if len(node.inputs) > 1 else origins.columns(read)
            return [origins.text(value, below)]
        names = origins.columns(node.inputs[name.startswith("right")])
        values = value if isinstance(value, tuple) else (value,)
        return [self._part(each, names) for each in values]

    def _part(self, value: Any, names: Sequence[str]) -> str:
        if isinstance(value, SortKey) and self._is_state:
            return f"{names[value.column]} {'DESC' if value.descending else 'ASC'}"
        if isinstance(value, SortKey):
            return f"{names[value.column]} {value.descending} {value.nulls_first}"
        if isinstance(value, OverCall):
            text = self._origins.call(self._node, value.call)
            return f"{text} over {_frame(value)}" if self._is_state else text
        if isinstance(value, AggregateCall):
            return self._origins.call(self._node, value)
        return str(names[value])


def _frame(call: OverCall) -> str:
    start = "UNBOUNDED" if call.preceding is None else call.preceding
    end = "" if call.following == 0 else f" to {call.following}"
    return f"{'ROWS' if call.is_rows else 'RANGE'} {start}{end}"


def type_text(kind: Any) -> str:
    """A type without whether it is nullable, which a filter may change."""
    return str(kind.with_nullability(True).as_summary_string())  # noqa: FBT003


# -- fields --------------------------------------------------------------------------------------


def named_columns(value: Any) -> set[int]:  # noqa: PLR0911 - a table
    """The columns that the value of a field names."""
    match value:
        case None:
            return set()
        case int():
            return {value}
        case SortKey():
            return {value.column}
        case OverCall():
            return named_columns(value.call)
        case AggregateCall():
            return {*value.arguments} | named_columns(value.filter)
        case tuple():
            return {column for each in value for column in named_columns(each)}
        case _:
            return columns_of(value)


def with_columns(value: Any, place: Callable[[int], int]) -> Any:  # noqa: PLR0911 - a table
    """The value of a field with its columns at other places."""
    match value:
        case None:
            return None
        case int():
            return place(value)
        case SortKey():
            return replace(value, column=place(value.column))
        case OverCall():
            return replace(value, call=with_columns(value.call, place))
        case AggregateCall():
            arguments = tuple(map(place, value.arguments))
            return replace(value, arguments=arguments, filter=with_columns(value.filter, place))
        case tuple():
            return tuple(with_columns(each, place) for each in value)

    def change(each: Any) -> Any:
        return replace(each, index=place(each.index)) if isinstance(each, InputReference) else each

    return transform(value, change)


def columns_of(expression: Expression) -> set[int]:
    """The columns that an expression reads."""
    return {each.index for each in walk(expression) if isinstance(each, InputReference)}


def some_fields(row: RowType, kept: Sequence[int]) -> RowType:
    """A row with some of its columns."""
    return RowType(tuple(row.fields[each] for each in kept), nullable=row.is_nullable)


# -- plans ---------------------------------------------------------------------------------------


def nodes_of(plans: Sequence[PhysicalNode]) -> list[PhysicalNode]:
    """Return every node of some plans once, each after the nodes that read it."""
    found: list[PhysicalNode] = []
    seen: set[int] = set()

    def visit(node: PhysicalNode) -> None:
        if id(node) not in seen:
            seen.add(id(node))
            for below in reversed(node.inputs):
                visit(below)
            found.append(node)

    for plan in reversed(plans):
        visit(plan)
    return found[::-1]


def key_of(columns: Iterable[int]) -> Keys:
    """The keys of rows with one key."""
    return frozenset({frozenset(columns)})


def smallest(keys: Keys) -> tuple[int, ...] | None:
    """The key with the fewest columns; None if there is none."""
    return min((tuple(sorted(key)) for key in keys), key=lambda key: (len(key), key), default=None)


def kinds_of(node: PhysicalNode) -> frozenset[str]:
    """Which of I (inserts), U (updates) and D (deletes) a node gives.

    Raises:
        ValidationError: it does not take what an input gives.
    """
    if node.kinds is None:
        node.kinds = node.change_types()
    return node.kinds


def given_changes(kinds: frozenset[str], updates: str) -> frozenset[str]:
    """Change types as a changelog has them."""
    found = set(kinds - {"U"})
    if "U" in kinds:
        found |= {"UB", "UA"} if updates == BOTH else {"UA"}
    return frozenset(found)


def only_adds(node: PhysicalNode) -> bool:
    """Return whether all inputs of a node give inserts alone."""
    return all(kinds_of(each) == INSERTS for each in node.inputs)


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
    culprit = maker_of(node, unwanted)
    message = (
        f"{reader} doesn't support consuming {words} changes which is produced by node "
        f"{culprit.kind}({culprit.details()}){remedy and '; '}{remedy}"
    )
    raise ValidationError(message)


def maker_of(node: PhysicalNode, unwanted: frozenset[str]) -> PhysicalNode:
    """The node furthest from the sink by which the changes come in."""
    while node.passes_changes:
        node = next(each for each in node.inputs if kinds_of(each) & unwanted)
    return node


# -- joins ---------------------------------------------------------------------------------------


class TwoInputs(PhysicalNode):
    """Base of joins of two streams."""

    join: JoinType
    left_keys: Columns
    right_keys: Columns
    #: Over both sides, beside the keys.
    condition: Condition
    #: For each pair of keys whether NULL equals nothing.
    filter_nulls: tuple[bool, ...]

    place = "{join.name} [{left_keys}] [{right_keys}] {filter_nulls} [{condition}] [{inputs}]"
    state: ClassVar[Parts] = {
        "kind": "{join.value}",
        "left keys": "*left_keys",
        "right keys": "*right_keys",
        "condition": "*condition",
        "left columns": "*left_columns",
        "right columns": "*right_columns",
    }

    @property
    def left_columns(self) -> Columns:
        """All columns of the left."""
        return tuple(range(len(self.inputs[0].row)))

    @property
    def right_columns(self) -> Columns:
        """All columns of the right."""
        return tuple(range(len(self.inputs[1].row)))

    def where(self, *more: str) -> str:
        """The condition, and what else belongs to it."""
        left, right = (each.row for each in self.inputs)
        parts = [
            f"({left.names[one]} = {right_name(left, right, other)})"
            for one, other in zip(self.left_keys, self.right_keys, strict=True)
        ]
        if self.condition is not None:
            parts.append(expression_text(self.condition))
        parts += more
        if not parts:
            return "true"
        return parts[0] if len(parts) == 1 else f"({' AND '.join(parts)})"

    def made_of(self, origins: Origins) -> list[str]:
        made = origins.sides(self)
        return made[: len(self.row)] if self.join.left_only else made

    def joined_keys(self, left_keys: Iterable[int], right_keys: Iterable[int]) -> Keys:
        """The keys of pairs of rows that are equal in these columns."""
        left, right = (each.unique_keys() for each in self.inputs)
        if self.join.left_only:
            return left
        shift = len(self.inputs[0].row)
        moved = frozenset(frozenset(column + shift for column in key) for key in right)
        found: Keys = frozenset(one | other for one in left for other in moved)
        if self.join is JoinType.FULL:
            # A row whose key is NULL, beside nothing, is told from nothing beside such a row by a
            # column that is never NULL in a row.
            columns = [column for each in self.inputs for column in each.row.fields]
            real = {at for at, each in enumerate(columns) if not each.type.is_nullable}
            found = frozenset(key for key in found if key & real)
        left_is_unique = any(key <= set(left_keys) for key in left)
        right_is_unique = any(key <= set(right_keys) for key in right)
        if right_is_unique and self.join in {JoinType.INNER, JoinType.LEFT}:
            found |= left
        if left_is_unique and self.join in {JoinType.INNER, JoinType.RIGHT}:
            found |= moved
        return found

    def unique_keys(self) -> Keys:
        return self.joined_keys(self.left_keys, self.right_keys)
