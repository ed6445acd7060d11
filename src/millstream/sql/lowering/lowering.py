"""Translate the physical plan to transformations; a node that is read twice becomes one."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import UnsupportedSqlError
from millstream.expressions.context import EvaluationContext
from millstream.graph.model import Partitioning
from millstream.graph.transformation import (
    OneInputTransformation,
    PartitionTransformation,
    PhysicalTransformation,
    SideOutputTransformation,
    SinkTransformation,
    SourceTransformation,
    TwoInputTransformation,
    UnionTransformation,
)
from millstream.runtime.columnar.aggregate_kernels import check_user_aggregate
from millstream.runtime.columnar.array_utils import limited
from millstream.runtime.operators.sink import SinkFactory
from millstream.runtime.operators.table.calc import ConformFactory
from millstream.runtime.operators.table.specs import JoinKind, JoinSide, SortColumn
from millstream.sql.lowering.operator_uids import Places
from millstream.sql.planner import physical as pp
from millstream.sql.planner.physical import OPERATOR
from millstream.sql.stream_types import stream_type
from millstream.types.field_access import KeyColumns
from millstream.types.logical_types import RowType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeVar

    from millstream.contracts.sink import Sink
    from millstream.graph.transformation import Transformation
    from millstream.runtime.operators.table.specs import AggregateCall
    from millstream.sql.planner.logical import SortKey
    from millstream.sql.planner.physical import LoweringOptions, PhysicalNode
    from millstream.sql.planner.sinks import SinkNode
    from millstream.types.types import TypeInformation

    _T = TypeVar("_T")


#: Parameters of operators that nodes have by other names.
_PARAMETERS: Final[dict[str, Callable[[Any], Any]]] = {
    "input_type": lambda node: node.input.row,
    "left_type": lambda node: node.inputs[0].row,
    "right_type": lambda node: node.inputs[1].row,
    "kind": lambda node: JoinKind[node.join.name],
    "left": lambda node: JoinSide(node.left_keys),
    "right": lambda node: JoinSide(node.right_keys),
    "keys": lambda node: node.keys if hasattr(node, "keys") else node.partition,
    "order": lambda node: sort_columns(node.order),
    "output_rank": lambda node: node.outputs_rank,
}
#: Fields of nodes with expressions, which are evaluated as the options of the session say.
_EXPRESSIONS: Final = ("condition", "conditions", "projections")


def parallelism_of(below: Transformation) -> tuple[int | None, bool]:
    """How parallel what is read is: a number (None: as the job), and whether it is alone.

    Rows that are dealt out anew lose their order, and changes of one row with it.
    """
    if isinstance(below, PhysicalTransformation):
        return below.parallelism, below.non_parallel
    if isinstance(below, UnionTransformation):
        members = [parallelism_of(each) for each in below.members]
        if any(alone for _, alone in members):
            return None, True
        found = {parallelism for parallelism, _ in members}
        return (found.pop(), False) if len(found) == 1 else (1, False)
    if isinstance(below, SideOutputTransformation):
        return parallelism_of(below.input)
    return None, False


def _sink_parallelism(node: SinkNode, below: Transformation) -> tuple[int | None, bool]:
    """How parallel a sink is, as ``parallelism_of`` says it.

    Raises:
        UnsupportedSqlError: its option says it, and changes would lose their order.
    """
    wanted = None if node.sink is None else node.sink.parallelism
    parallelism, alone = parallelism_of(below)
    if wanted is None:
        return parallelism, alone
    if not node.input.is_insert_only and wanted != (1 if alone else parallelism) != 1:
        message = (
            f"'sink.parallelism' of table sink '{node.name}' is not in this release for "
            "queries that update or delete rows; it would lose their order."
        )
        raise UnsupportedSqlError(message)
    return wanted, False


def sort_columns(order: Sequence[SortKey]) -> tuple[SortColumn, ...]:
    """An order as the runtime takes it."""
    return tuple(SortColumn(each.column, each.descending, each.nulls_first) for each in order)


class Lowering(pp.Lowers):
    """Makes the transformations of one job."""

    def __init__(
        self,
        next_id: Callable[[], int],
        location: str,
        options: LoweringOptions,
        uids: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        """Take how transformations are numbered, where the statement is, and known uids."""
        self._next_id = next_id
        self._location = location
        self.options = options
        self._done: dict[int, Transformation] = {}
        #: By ``id``: the ends of plans that do not read the timestamps of rows.
        self._timeless: set[int] = set()
        self._places = Places(uids)
        self.evaluation = EvaluationContext(
            time_zone=options.time_zone,
            query_start_time=options.query_start or None,
            job_parameters=options.job_parameters,
            async_calls=options.async_calls,
        )

    # -- what is asked for -----------------------------------------------------------------------

    def take(self, plans: Iterable[PhysicalNode]) -> None:
        """Take all plans of the job, so that operators that are alike can be told apart."""
        self._places.add(plans)

    def stream(self, node: PhysicalNode) -> Transformation:
        if id(node) not in self._done:
            self._places.add([node])
            self._done[id(node)] = node.operator(self)
        return self._done[id(node)]

    def sink(
        self, node: SinkNode, sink: Sink, declared: TypeInformation, table: RowType
    ) -> Transformation:
        """The end of a plan.

        Args:
            node: the plan's root.
            sink: of the runtime.
            declared: the type of the stream that it wants.
            table: the sink's own columns, whose NOT NULL is checked.
        """
        self._places.add([node])
        if not sink.reads_timestamps:
            self._timeless.add(id(node))
        below = self.stream(node.input)
        if node.materialize:
            below = node.materialized(self, below)
        pairs = zip(table.fields, node.input.row.fields, strict=True)
        not_null = [
            i
            for i, (want, have) in enumerate(pairs)
            if not want.type.is_nullable and have.type.is_nullable
        ]
        conform = ConformFactory(
            None,
            tuple(not_null),
            self.options.drop_nulls,
            f"'{node.name}'",
            lengths=limited(table) if self.options.trim_pad else (),
        )
        below = self.one("SinkConversion", conform, below, declared)
        parallelism, alone = _sink_parallelism(node, below)
        if node.overwrite is not None:
            node.refuse_unbounded(below)
        return SinkTransformation(
            **self._common(f"Sink: {node.name}", declared, node)
            | {"kind_name": f"Sink: {type(sink).__name__}"},
            input=below,
            sink=sink,
            factory=SinkFactory(sink),
            needs_processing_time=sink.wants_ticks is not None,
            parallelism=parallelism,
            non_parallel=alone,
        )

    # -- what nodes need -------------------------------------------------------------------------

    def factory(self, kind: Callable[..., _T], node: PhysicalNode, **more: Any) -> _T:
        """The factory of an operator.

        Args:
            kind: its class, whose fields are the operator's parameters.
            node: has the values of those that are called as fields of it.
            more: parameters that the node has not, or otherwise.
        """
        given: dict[str, Any] = {}
        for each in fields(kind):  # type: ignore[arg-type]
            name = each.name
            if name in more:
                given[name] = more[name]
            elif name in _PARAMETERS:
                given[name] = _PARAMETERS[name](node)
            elif getattr(node, name, None) is not None:
                given[name] = getattr(node, name)
            elif name in {"state_ttl", "mini_batch", "time_zone"}:
                given[name] = getattr(self.options, name)
            elif name == "evaluation" and any(hasattr(node, each) for each in _EXPRESSIONS):
                given[name] = self.evaluation
            elif hasattr(node, name):
                given[name] = None
        return kind(**given, **{name: more[name] for name in more.keys() - given.keys()})

    def aggregates(
        self, calls: Sequence[AggregateCall], *, retracts: bool = False, merges: bool = False
    ) -> tuple[AggregateCall, ...]:
        """Aggregates as the runtime takes them.

        Args:
            calls: of the plan.
            retracts: whether rows may be taken back.
            merges: whether accumulators are put together.

        Raises:
            ProgramError: a function of a user lacks what that needs.
        """
        found = []
        for call in calls:
            user = call.user
            if user is not None:
                check_user_aggregate(user, retracts=retracts, merges=merges)
                parameters = dict(self.options.job_parameters)
                call = replace(call, user=replace(user, job_parameters=parameters))  # noqa: PLW2901
            found.append(call)
        return tuple(found)

    @staticmethod
    def order(order: Sequence[SortKey]) -> tuple[SortColumn, ...]:
        return sort_columns(order)

    def are_times_read(self, node: PhysicalNode) -> bool:
        return self._places.are_times_read(node, self._timeless)

    def source(self, node: PhysicalNode | None, name: str, source: Any) -> Transformation:
        return SourceTransformation(
            **self._common(name, source.produced_type, node),
            source=source,
            non_parallel=node is None,
        )

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
        """An operator; ``single`` None: as parallel as what it reads, so that order is kept.

        One ``of`` a node has a uid of what that does.
        """
        parallelism, alone = parallelism_of(below) if single is None else (None, single)
        return OneInputTransformation(
            **self._common(name, output, of, operator),
            input=below,
            factory=factory,
            parallelism=parallelism,
            non_parallel=alone,
            needs_processing_time=ticks,
        )

    def stateful(
        self,
        node: PhysicalNode,
        factory: Any,
        *,
        single: bool,
        ticks: bool = False,
        below: Transformation | None = None,
    ) -> Transformation:
        below = self.stream(node.input) if below is None else below
        return self.one(node.kind, factory, below, node.row, of=node, single=single, ticks=ticks)

    def two(
        self, node: PhysicalNode, factory: Any, *, single: bool, ticks: bool = False
    ) -> Transformation:
        left, right = (self.stream(each) for each in node.inputs)
        return TwoInputTransformation(
            **self._common(node.kind, node.row, node),
            input1=left,
            input2=right,
            factory=factory,
            non_parallel=single,
            needs_processing_time=ticks,
        )

    def union(self, node: PhysicalNode, members: Sequence[Transformation]) -> Transformation:
        return UnionTransformation(
            id=self._next_id(),
            location=self._location,
            output_type=stream_type(node.row),
            members=list(members),
        )

    def keyed(self, keys: Sequence[int], below: Transformation) -> Transformation:
        return PartitionTransformation(
            id=self._next_id(),
            location=self._location,
            output_type=below.output_type,
            input=below,
            partitioning=Partitioning.HASH if keys else Partitioning.GLOBAL,
            key_selector=KeyColumns(tuple(keys)),
        )

    def _common(
        self,
        name: str,
        output: RowType | TypeInformation,
        of: PhysicalNode | None,
        operator: str = OPERATOR,
    ) -> dict[str, Any]:
        """Return what all transformations have; with a uid if they are of a node."""
        kind = stream_type(output) if isinstance(output, RowType) else output
        found = {
            "id": self._next_id(),
            "location": self._location,
            "output_type": kind,
            "name": name,
            "kind_name": name,
        }
        if of is not None:
            found["uid"] = self._places.uid(of, operator)
            found["details"] = self._places.details(of, operator)
        return found
