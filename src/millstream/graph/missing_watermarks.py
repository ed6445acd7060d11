"""Finding, when a job is submitted, windows that can never fire because no watermark comes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from millstream.contracts.operator import waits_for_watermarks
from millstream.contracts.source import Boundedness
from millstream.functions.watermark_strategy import NoWatermarks, TimeOrigin, WatermarkStrategy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.graph.model import JobGraph, StreamNode

__all__ = ["warn_of_missing_watermarks"]

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
