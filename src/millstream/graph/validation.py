"""Ask all sources and sinks, at submit, whether they can be used.

Each error names the source or sink by its name and the line of the program that made it.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.configuration import options
from millstream.configuration.options import CheckpointingMode
from millstream.contracts.operator import waits_for_watermarks
from millstream.contracts.source import Boundedness
from millstream.errors import ConfigurationError, SinkError, SourceError, TypeMismatchError
from millstream.functions.watermark_strategy import NoWatermarks, TimeOrigin, WatermarkStrategy
from millstream.graph.model import Partitioning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.configuration.configuration import Configuration
    from millstream.graph.model import JobGraph, StreamEdge, StreamNode


def validate_connectors(graph: JobGraph) -> None:
    """Check every source and sink of a job.

    Raises:
        SourceError, SinkError, ConfigurationError, TypeMismatchError: one cannot be used; names it.
    """
    for node in graph.nodes.values():
        with error_context(connector_label(node)):
            if node.source is not None:
                node.source.validate()
            if node.sink is not None:
                node.sink.validate()
                for edge in graph.inputs(node.id):
                    node.sink.validate_input(edge.type_info)
                node.sink.validate_configuration(graph.configuration)
                node.sink.validate_parallelism(node.parallelism)


def connector_label(node: StreamNode) -> str:
    """The name of a source or sink, and where in the program it was made; its uid if it has one."""
    uid = f", uid {node.uid}" if node.has_own_uid else ""
    return f"{node.kind} {node.name!r} ({node.location}{uid})"


@contextlib.contextmanager
def error_context(label: str) -> Iterator[None]:
    """Let errors of a source or sink begin with ``connector_label``."""
    try:
        yield
    except (SourceError, SinkError, ConfigurationError, TypeMismatchError) as error:
        message = f"{label}: {error}"
        raise type(error)(message) from error


_ALIGNED: Final = frozenset({Partitioning.FORWARD, Partitioning.RESCALE, Partitioning.BROADCAST})


class EdgeName(NamedTuple):
    """The name of an edge in checkpoints: the same in every run of a program."""

    #: Uids of the operators at its ends.
    source: str
    target: str
    #: Which input of the target.
    input_index: int
    #: Of the side output; None: the main one.
    tag: str | None
    #: Tells edges apart that are alike in all this.
    number: int


def edge_names(graph: JobGraph) -> dict[int, EdgeName]:
    """The names of all edges, by id."""
    names: dict[int, EdgeName] = {}
    alike: Counter[EdgeName] = Counter()
    for edge in graph.edges:
        source, target = graph.nodes[edge.source].uid, graph.nodes[edge.target].uid
        name = EdgeName(source, target, edge.input_index, edge.tag, 0)
        names[edge.id] = name._replace(number=alike[name])
        alike[name] += 1
    return names


def aligned_edges(graph: JobGraph) -> frozenset[int]:
    """Ids of the edges between tasks on which no barrier overtakes records."""
    crossing = [edge for edge in graph.edges if _crosses(graph, edge)]
    waiting = {edge.target for edge in crossing if edge.partitioning in _ALIGNED}
    return frozenset(edge.id for edge in crossing if edge.target in waiting)


def _crosses(graph: JobGraph, edge: StreamEdge) -> bool:
    return graph.level(edge.source) != graph.level(edge.target)


def is_unaligned(configuration: Configuration) -> bool:
    """Return whether barriers may overtake records: if set, and in mode EXACTLY_ONCE."""
    mode = CheckpointingMode[configuration.get(options.CHECKPOINTING_MODE)]
    asked = configuration.get(options.UNALIGNED_CHECKPOINTS)
    return asked and mode is CheckpointingMode.EXACTLY_ONCE


def why_not_unaligned(graph: JobGraph) -> str | None:
    """Why a job cannot have unaligned checkpoints that asks for them; None if it can, or does not.

    As in Flink, which refuses the same when a job is submitted.
    """
    configuration = graph.configuration
    if not is_unaligned(configuration):
        return None
    unaligned = options.UNALIGNED_CHECKPOINTS.key
    most = configuration.get(options.MAX_CONCURRENT_CHECKPOINTS)
    if most > 1:
        return (
            f"{unaligned} goes with one checkpoint at a time, but"
            f" {options.MAX_CONCURRENT_CHECKPOINTS.key} is {most}: records in flight would be kept"
            " by several. Set it to 1; unaligned checkpoints are short"
        )
    if configuration.get(options.FORCE_UNALIGNED_CHECKPOINTS):
        return None
    for edge in graph.edges:
        if edge.partitioning is Partitioning.CUSTOM:
            target = graph.nodes[edge.target]
            return (
                f"{unaligned} does not go with partition_custom() in front of"
                f" {target.name!r} ({target.location}): records in flight could not be given to the"
                " right subtasks at another parallelism, unless the partitioner says the same of"
                f" them at each restart. If it does, set {options.FORCE_UNALIGNED_CHECKPOINTS.key}"
            )
    return None


_LOG: Final = logging.getLogger("millstream")


def warn_of_missing_watermarks(graph: JobGraph) -> None:
    """Warn of each operator that waits for the watermark of an unbounded source without one.

    A bounded source ends with the maximum watermark, which fires everything.
    """
    for node in graph.nodes.values():
        if graph.batch_mode or not waits_for_watermarks(node.factory):
            continue
        for source in _silent_sources(graph, node):
            _LOG.warning(
                "operator %r (%s) never emits: it fires by event time, and source %r (%s), which"
                " has no end, makes no watermarks (WatermarkStrategy.no_watermarks()). Give"
                " from_source() another strategy, such as"
                " for_bounded_out_of_orderness(...).with_timestamp_assigner(...), or use windows of"
                " processing time",
                *(node.name, node.location, source.name, source.location),
            )


def _silent_sources(graph: JobGraph, node: StreamNode) -> Iterator[StreamNode]:
    """The unbounded sources from which no watermark ever reaches an operator."""
    for each in graph.upstream(graph.inputs(node.id), _makes_watermarks):
        is_endless = (
            each.source is not None and each.source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
        )
        if is_endless and not _makes_watermarks(each):
            yield each


def _makes_watermarks(node: StreamNode) -> bool:
    strategy = node.watermark_strategy or getattr(node.factory, "strategy", None)
    if not isinstance(strategy, WatermarkStrategy):
        return False
    if strategy.origin is TimeOrigin.PRESERVED:
        return node.kind == "source"  # the source itself says
    # An idle input holds nobody up.
    has_any = strategy.supplier is not NoWatermarks or strategy.idle_timeout is not None
    return strategy.origin is TimeOrigin.INGESTED or has_any
