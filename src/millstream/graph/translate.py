"""From transformations to the job graph: edges, parallelism, uids, and what cannot run is refused.

Uids.  State, sources and sinks are matched by uid when a job restarts.  An operator without a
``uid`` of its own gets a hash of its position in the program: what kind of operator it is and, by
way of their uids, what it reads and how.  Operators alike in all that are distinguished by their
order in the program.  Unlike Flink's, the hash has no running number over the whole program, so
an operator added elsewhere changes no other uid.  A new name or parallelism changes none either.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from millstream.configuration import options
from millstream.configuration.resources import default_max_parallelism
from millstream.contracts.source import Boundedness
from millstream.errors import ProgramError
from millstream.graph.job_files import LARGE, JobFiles, check_picklable, warn_of_size
from millstream.graph.model import (
    JobGraph,
    Partitioning,
    StreamEdge,
    StreamNode,
    cut_stages,
    sources_before,
)
from millstream.graph.transformation import (
    MadeUid,
    OneInputTransformation,
    OperatorTransformation,
    PartitionTransformation,
    PhysicalTransformation,
    SideOutputTransformation,
    SinkTransformation,
    SourceTransformation,
    TwoInputTransformation,
    UnionTransformation,
)
from millstream.object_stores import OpensStores, StoreOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.contracts.operator import OperatorFactory
    from millstream.graph.transformation import Transformation
    from millstream.object_stores import StoreAccess
    from millstream.types.types import TypeInformation


_UID_LENGTH: Final = 32
_KINDS: Final = {SourceTransformation: "source", SinkTransformation: "sink"}


@dataclass(frozen=True, slots=True)
class _Route:
    """How one physical operator is reached from a transformation."""

    origin: PhysicalTransformation
    type_info: TypeInformation
    tag: str | None = None
    #: None: the program does not say.
    partitioning: Partitioning | None = None
    key_selector: Callable[[object], object] | None = None
    partitioner: Callable[[object, int], int] | None = None
    #: Which input of the reader it leads to.
    input_index: int = 0


def translate(
    transformations: Iterable[Transformation],
    *,
    job_name: str,
    configuration: Configuration,
    parallelism: int,
    runtime_mode: str = "STREAMING",
) -> JobGraph:
    """Make the job graph of a program.

    Args:
        transformations: at least those nothing else reads; what they read is found from them.
        job_name: the name of the job.
        configuration: goes with the job.
        parallelism: of operators for which the program does not say.
        runtime_mode: STREAMING, BATCH or AUTOMATIC (batch if every source is bounded).

    Raises:
        ProgramError: the program cannot be run as written.
        UnpicklableFunctionError: a user function cannot be shipped to the workers.
    """
    ordered = _reachable(transformations)
    physical = [each for each in ordered if isinstance(each, PhysicalTransformation)]
    _check_has_operator(physical)
    _check_picklable(ordered)
    routes = {each.id: _routes_into(each) for each in physical}
    if not configuration.get(options.AUTO_GENERATE_UIDS):
        _require_uids(physical)
    uids = _uids(physical, routes)
    batch_mode = _is_batch(physical, runtime_mode)
    groups = configuration.get(options.MAX_PARALLELISM)
    configured = groups if groups > 0 else None
    nodes: dict[int, StreamNode] = {}
    number_of: dict[int, int] = {}
    store_options = StoreOptions.of(configuration).for_job()
    for number, each in enumerate(physical, start=1):
        number_of[each.id] = number
        default = parallelism
        if isinstance(each, SinkTransformation) and each.follows_input:
            read = (nodes[number_of[route.origin.id]] for route in routes[each.id])
            default = max(node.parallelism for node in read)
        nodes[number] = _node(number, each, uids[each.id], default, configured)
        _open_with(nodes[number], store_options.access)
        if batch_mode:
            _without_time(nodes[number])
        nodes[number].max_parallelism_is_set = (
            each.max_parallelism is not None or configured is not None
        )
    edges: list[StreamEdge] = []
    for each in physical:
        target = nodes[number_of[each.id]]
        for route in routes[each.id]:
            source = nodes[number_of[route.origin.id]]
            edges.append(_edge(len(edges) + 1, source, target, each, route))
    _note_side_types(nodes, edges)
    graph = JobGraph(
        job_name=job_name,
        nodes=nodes,
        edges=edges,
        stages=cut_stages(nodes, edges),
        configuration=configuration,
        batch_mode=batch_mode,
        files=JobFiles(store_options=store_options),
    )
    sources_before(graph)  # which may refuse it
    return graph


def _reachable(roots: Iterable[Transformation]) -> list[Transformation]:
    """The roots and all that they read, in order of the calls that made them."""
    found: dict[int, Transformation] = {}
    waiting = list(roots)
    while waiting:
        each = waiting.pop()
        if each.id not in found:
            found[each.id] = each
            waiting.extend(each.inputs)
    return [found[key] for key in sorted(found)]


def _check_has_operator(physical: Sequence[PhysicalTransformation]) -> None:
    """Refuse a program of sources only, as Flink does; operators run without a sink, too."""
    if any(not isinstance(each, SourceTransformation) for each in physical):
        return
    message = (
        "No operators defined in streaming topology. Cannot execute. "
        "Make a stream with env.from_source(...) and end it in sink_to(...) or print()."
    )
    raise ProgramError(message)


def _check_picklable(ordered: Sequence[Transformation]) -> None:
    """Check everything of the user's that goes to the workers."""
    code: dict[str, object]
    for each in ordered:
        if isinstance(each, PartitionTransformation):
            after = _after(each)
            code = {"key selector": each.key_selector, "partitioner": each.partitioner}
            name = f"{each.partitioning.value} partitioning after {after}"
        elif isinstance(each, SourceTransformation):
            code = {"source": each.source, "watermark strategy": each.watermark_strategy}
            name = each.name
        elif isinstance(each, SinkTransformation):
            code = {"sink": each.sink}
            name = each.name
        elif isinstance(each, OperatorTransformation):
            code = {**each.user_code, "operator": each.factory}
            name = each.name
        else:
            continue
        large = False
        for what, value in code.items():
            if value is None:
                continue
            size = check_picklable(value, what=what, operator=name, location=each.location)
            if size > LARGE and not large:  # the operator has all that is named before it
                large = True
                warn_of_size(value, size, what=what, operator=name, location=each.location)


def _after(partition: PartitionTransformation) -> str:
    names = [route.origin.name for route in _resolve(partition.input)]
    return ", ".join(f"'{name}'" for name in names)


def _routes_into(each: PhysicalTransformation) -> list[_Route]:
    """All ways into an operator; several may lead to one input (a union)."""
    if not isinstance(each, TwoInputTransformation):
        return [route for transformation in each.inputs for route in _resolve(transformation)]
    return [
        replace(route, input_index=index)
        for index, transformation in enumerate(each.inputs)
        for route in _resolve(transformation)
    ]


def _resolve(each: Transformation) -> list[_Route]:
    """The operators that ``each`` stands for; what was said nearest to the reader holds."""
    if isinstance(each, PhysicalTransformation):
        return [_Route(each, each.output_type)]
    if isinstance(each, UnionTransformation):
        return [route for member in each.members for route in _resolve(member)]
    if isinstance(each, SideOutputTransformation):
        return [
            _Route(route.origin, each.output_type, tag=each.tag) for route in _resolve(each.input)
        ]
    if isinstance(each, PartitionTransformation):
        return [
            replace(
                route,
                partitioning=each.partitioning,
                key_selector=each.key_selector,
                partitioner=each.partitioner,
            )
            for route in _resolve(each.input)
        ]
    message = f"unknown transformation {type(each).__qualname__} ({each.location})"
    raise ProgramError(message)


def _open_with(node: StreamNode, stores: StoreAccess) -> None:
    """Let what a node reads and writes in object stores be opened with the options of the job."""
    if node.source is not None:
        node.source = node.source.opened_with(stores)
    if node.sink is not None:
        node.sink = node.sink.opened_with(stores)
    factory: object = node.factory  # a Protocol, of which mypy does not know that it may be this
    if isinstance(factory, OpensStores):
        node.factory = cast("OperatorFactory", factory.opened_with(stores))


def _node(
    number: int,
    each: PhysicalTransformation,
    uid: str,
    default_parallelism: int,
    configured_max_parallelism: int | None,
) -> StreamNode:
    parallelism = 1 if each.non_parallel else each.parallelism or default_parallelism
    max_parallelism = (
        each.max_parallelism or configured_max_parallelism or default_max_parallelism(parallelism)
    )
    if parallelism > max_parallelism:
        message = (
            f"operator '{each.name}' ({each.location}) has parallelism {parallelism}, more than "
            f"its max parallelism {max_parallelism}; lower the one with set_parallelism or raise "
            "the other with set_max_parallelism"
        )
        raise ProgramError(message)
    node = StreamNode(
        id=number,
        uid=uid,
        name=each.name,
        location=each.location,
        kind=_KINDS.get(type(each), "operator"),
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        output_type=each.output_type,
        side_types=dict(each.side_types),
        has_own_uid=each.uid is not None,
        has_one_subtask=each.non_parallel or max_parallelism == 1,
        details=each.details,
    )
    if isinstance(each, SourceTransformation):
        node.source = each.source
        node.spark_index = each.spark_index
        node.watermark_strategy = each.watermark_strategy
        node.needs_processing_time = _keeps_time(each)
    elif isinstance(each, SinkTransformation):
        node.sink = each.sink
        node.factory = each.factory
        node.needs_processing_time = each.needs_processing_time
    elif isinstance(each, OperatorTransformation):
        node.factory = each.factory
        node.needs_processing_time = each.needs_processing_time
    return node


def _without_time(node: StreamNode) -> None:
    """BATCH mode: event time and processing time stand still until the end of the input."""
    node.needs_processing_time = False
    if node.watermark_strategy is not None:
        node.watermark_strategy = node.watermark_strategy.for_batch()


def _keeps_time(source: SourceTransformation) -> bool:
    """Return whether the watermarks of a source may change while no record comes."""
    strategy = source.watermark_strategy
    return strategy is not None and strategy.needs_ticks


def _edge(
    number: int,
    source: StreamNode,
    target: StreamNode,
    reader: PhysicalTransformation,
    route: _Route,
) -> StreamEdge:
    same = source.parallelism == target.parallelism
    partitioning = route.partitioning
    if partitioning is None:
        partitioning = Partitioning.FORWARD if same else Partitioning.REBALANCE
    elif partitioning is Partitioning.FORWARD and not same:
        message = (
            f"forward() does not allow a change of parallelism, but '{source.name}' "
            f"({source.location}) has {source.parallelism} and '{target.name}' "
            f"({target.location}) has {target.parallelism}; use rebalance() or rescale()"
        )
        raise ProgramError(message)
    combiner = None
    if partitioning is Partitioning.HASH and isinstance(reader, OneInputTransformation):
        combiner = reader.combiner
    return StreamEdge(
        id=number,
        source=source.id,
        target=target.id,
        input_index=route.input_index,
        partitioning=partitioning,
        tag=route.tag,
        type_info=route.type_info,
        key_selector=route.key_selector,
        partitioner=route.partitioner,
        combiner=combiner,
    )


def _note_side_types(nodes: dict[int, StreamNode], edges: Sequence[StreamEdge]) -> None:
    """Tell each operator the types of the side outputs that are read from it."""
    for edge in edges:
        if edge.tag is None:
            continue
        node = nodes[edge.source]
        known = node.side_types.setdefault(edge.tag, edge.type_info)
        if known != edge.type_info:
            message = (
                f"side output '{edge.tag}' of operator '{node.name}' ({node.location}) is read "
                f"with two types, {known} and {edge.type_info}; use one OutputTag"
            )
            raise ProgramError(message)


def _is_batch(physical: Sequence[PhysicalTransformation], runtime_mode: str) -> bool:
    mode = runtime_mode.upper()
    if mode == "STREAMING":
        return False
    for each in physical:
        if not isinstance(each, SourceTransformation):
            continue
        bounded = each.source is not None and each.source.boundedness is Boundedness.BOUNDED
        if bounded:
            continue
        if mode == "AUTOMATIC":
            return False
        message = (
            f"Detected an UNBOUNDED source, '{each.name}' ({each.location}), with the "
            "'execution.runtime-mode' set to 'BATCH'. This combination is not allowed, please "
            "set the 'execution.runtime-mode' to STREAMING or AUTOMATIC."
        )
        raise ProgramError(message)
    return True


def _require_uids(physical: Sequence[PhysicalTransformation]) -> None:
    for each in physical:
        if each.uid is None:
            message = (
                f"operator '{each.name}' ({each.location}) has no uid, and "
                f"{options.AUTO_GENERATE_UIDS.key} is false: give it one by uid()"
            )
            raise ProgramError(message)


def _uids(
    physical: Sequence[PhysicalTransformation], routes: dict[int, list[_Route]]
) -> dict[int, str]:
    """The uid of each transformation, by its id; inputs come first in ``physical``."""
    result: dict[int, str] = {}
    owners: dict[str, PhysicalTransformation] = {}
    alike: Counter[str] = Counter()
    made = [each.uid for each in physical if isinstance(each.uid, MadeUid)]
    told = Counter(uid.told(count) for uid in made for count in range(len(uid.tellers) + 1))
    for each in physical:
        uid = each.uid
        place = None
        if uid is None:
            place = _place(each, routes[each.id], result)
        elif isinstance(uid, MadeUid):
            place = _told_apart(uid, told)
        if place is not None:
            uid = _hash(f"{place}#{alike[place]}")
            alike[place] += 1
        uid = str(uid)
        if uid in owners:
            other = owners[uid]
            message = (
                f"uid '{uid}' is used by two operators, '{other.name}' ({other.location}) and "
                f"'{each.name}' ({each.location}); a uid must be unique in its job"
            )
            raise ProgramError(message)
        owners[uid] = each
        result[each.id] = uid
    return result


def _told_apart(uid: MadeUid, told: Counter[tuple[str, ...]]) -> str | None:
    """The place of an operator of SQL that others are like; None if there are none.

    Queries of one job that were planned one by one may have such operators.
    """
    count = 0
    while told[uid.told(count)] > 1 and count < len(uid.tellers):
        count += 1
    return "\n".join(uid.told(count)) if count else None


def _place(each: PhysicalTransformation, routes: Sequence[_Route], uids: dict[int, str]) -> str:
    parts = [_KINDS.get(type(each), "operator"), each.kind_name]
    for route in routes:
        way = route.partitioning.value if route.partitioning else "default"
        second = "/second" if route.input_index else ""
        parts.append(f"{uids[route.origin.id]}/{route.tag or ''}/{way}{second}")
    return "\n".join(parts)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_UID_LENGTH]
