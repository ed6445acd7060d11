"""Event time of a running job: how far each operator is, and which split holds it back.

What it is: read off the last manifest and the job graph, once per epoch; costs a look at each
operator and split.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.runtime.stage import is_per_channel, time_origins

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.checkpoint.model import Manifest
    from millstream.graph.model import JobGraph, StreamNode


_LATE: Final = "numLateRecordsDropped"
_SHOWN_IDLE: Final = 3
#: Milliseconds: 40 years.  A longer one is that of a program with timestamps such as 1000, which
#: is behind nothing.
_LONGEST_LAG: Final = 40 * 365 * 86_400_000
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """The event time of one operator, at the last checkpoint."""

    uid: str
    name: str
    #: Milliseconds; the lowest of its subtasks.
    watermark: int
    #: Milliseconds from the watermark to the processing time of the epoch; None if there is no
    #: watermark yet, or the input is over.
    lag: int | None
    #: (source uid, split id) of the slowest split that is not idle; (operator uid, "subtask 2")
    #: where watermarks are made in mid-stream; None if nothing holds it back.
    held_back_by: tuple[str, str] | None = None
    #: (source uid, split id) of the splits before it that are idle.
    idle_splits: list[tuple[str, str]] = field(default_factory=list)
    #: Records that came too late and were dropped, since the job began.
    late_records_dropped: int = 0


class EventTimeReader:
    """Reads the event time of all operators off a manifest."""

    def __init__(self, graph: JobGraph) -> None:
        """Find out, once, where each operator has its watermarks from."""
        self._graph = graph
        self._nodes = list(graph.nodes.values())
        self._origins = {node.id: self._origins_of(node) for node in self._nodes}
        sources = {node.uid for node in self._nodes if node.kind == "source"}
        made = list(time_origins(graph).values())
        #: Stage-0 nodes whose time is that of the source splits.  Their acks know only the splits
        #: that their subtask has read.
        self._of_splits = {number for reached in made for number in reached} - {
            number for reached in made for number, uids in reached.items() if uids - sources
        }

    def _origins_of(self, node: StreamNode) -> set[str]:
        """Uids of the sources and mid-stream assigners that a node's time comes from."""
        if self._makes_time(node):
            return {node.uid}
        upstream = self._graph.upstream(self._graph.inputs(node.id), self._makes_time)
        return {each.uid for each in upstream if self._makes_time(each)}

    def _makes_time(self, node: StreamNode) -> bool:
        """Whether a node is a source, or an assigner of watermarks in mid-stream."""
        is_assigner = is_per_channel(node) and self._graph.level(node.id) > 0
        return node.kind == "source" or is_assigner

    def read(self, manifest: Manifest) -> list[OperatorTime]:
        """The event time of every operator, in the order of the graph."""
        now = cast("int", manifest.offsets.get("time", 0))
        slowest: dict[str, tuple[int, str]] = {}
        idle: dict[str, list[tuple[str, str]]] = {}
        for uid in set().union(*self._origins.values()):
            if uid in manifest.splits:
                states = manifest.splits[uid].values()
                active = [(s.watermark, s.split_id) for s in states if not s.idle]
                idle[uid] = [(uid, s.split_id) for s in states if s.idle]
            else:
                acks = manifest.operators.get(uid, [])
                active = [(a.watermark, f"subtask {a.subtask}") for a in acks if not a.idle]
            if active:
                slowest[uid] = min(active)
        return [self._of(node, manifest, now, slowest, idle) for node in self._nodes]

    def _of(
        self,
        node: StreamNode,
        manifest: Manifest,
        now: int,
        slowest: dict[str, tuple[int, str]],
        idle: dict[str, list[tuple[str, str]]],
    ) -> OperatorTime:
        acks = manifest.operators.get(node.uid, [])
        watermark = min((ack.watermark for ack in acks), default=MIN_TIMESTAMP)
        origins = self._origins[node.id]
        holding = min(((*slowest[uid], uid) for uid in origins if uid in slowest), default=None)
        if holding is not None and node.id in self._of_splits:
            watermark = max(watermark, holding[0])
        known = MIN_TIMESTAMP < watermark < MAX_TIMESTAMP
        over = watermark == MAX_TIMESTAMP or holding is None or holding[0] == MAX_TIMESTAMP
        return OperatorTime(
            uid=node.uid,
            name=node.name,
            watermark=watermark,
            lag=now - watermark if known else None,
            held_back_by=None if over or holding is None else (holding[2], holding[1]),
            idle_splits=[split for uid in sorted(origins) for split in idle.get(uid, [])],
            late_records_dropped=manifest.totals.get(f"{node.uid}.{_LATE}", 0),
        )


def describe(times: list[OperatorTime], labels: Mapping[str, str]) -> str:
    """The slowest operator's lag and who holds it back, idle splits and late records, in a line.

    Args:
        times: of all operators.
        labels: what to call them, by uid.
    """

    def called(split: tuple[str, str]) -> str:
        return f"{labels.get(split[0], split[0])}/{split[1]}"

    parts = []
    late = sum(time.late_records_dropped for time in times)
    known = [time for time in times if time.lag is not None]
    behind = min(known, key=lambda time: time.watermark, default=None)
    if behind is not None and behind.lag is not None and behind.lag < _LONGEST_LAG:
        text = f"lag {format_lag(behind.lag)}"
        if behind.held_back_by is not None:
            text += f" by {called(behind.held_back_by)}"
        parts.append(text)
    idle = sorted({called(split) for time in times for split in time.idle_splits})
    if idle:
        more = f" and {len(idle) - _SHOWN_IDLE} more" if len(idle) > _SHOWN_IDLE else ""
        parts.append(f"idle {', '.join(idle[:_SHOWN_IDLE])}{more}")
    if late:
        parts.append(f"{late:,} late")
    return " | ".join(parts)


def format_lag(milliseconds: int) -> str:
    """A length of time in its largest unit: "3.2 s", "12.0 d"."""
    for size, unit in _UNITS:
        if abs(milliseconds) >= size:
            return f"{milliseconds / size:.1f} {unit}"
    return f"{milliseconds} ms"
