"""The sources of a run, and their splits: finding them, numbering them, forgetting them.

What it is: what the driver knows of each source whichever way it is read, by epochs
(``execution/planner.py``) or by tasks that live on (``execution/split_enumerator.py``).

What it is not: the choice of what is read.

Read next: ``execution/split_log.py``, ``execution/planner.py``.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.contracts.source import Boundedness
from millstream.errors import CheckpointError
from millstream.execution.offsets import Position
from millstream.execution.split_log import SplitTable
from millstream.graph.model import sources_before
from millstream.graph.validation import connector_label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.checkpoint.model import SplitState
    from millstream.contracts.source import KnownSplits, Source, Split
    from millstream.execution.offsets import Offset
    from millstream.execution.rate import EpochSizer
    from millstream.execution.split_log import SplitLog
    from millstream.functions.watermark_strategy import WatermarkAlignment
    from millstream.graph.model import JobGraph

__all__ = ["PlannedSource", "SourceSplits", "choose_subtask", "new_splits", "plan_sources"]


@dataclass(slots=True)
class PlannedSource:
    """One source node as the driver sees it."""

    uid: str
    #: None for a Spark DataFrame: Spark keeps its offsets, and it has one split per subtask.
    source: Source | None
    parallelism: int
    #: Name and location in the program, for errors.
    label: str = "source"
    #: Milliseconds without data after which a split is idle; None: never.
    idleness: int | None = None
    #: With which other sources it keeps step; None: with none.
    alignment: WatermarkAlignment | None = None
    #: Uids of the sources that are read to their end before it.
    after: frozenset[str] = frozenset()
    table: SplitTable = field(default_factory=SplitTable)
    #: ``time.monotonic`` from which on to look for splits.
    next_discovery: float = -math.inf
    #: None until the first splits are found.
    sizer: EpochSizer | None = None
    #: Split number -> (position, milliseconds of the clock when it was reached).
    last_data: dict[int, tuple[int, float]] = field(default_factory=dict)
    #: Numbers of the splits that had more to read than the last planned epoch takes, because
    #: they are ahead of their group or because the epoch is full: they are not idle.
    waiting: set[int] = field(default_factory=set)


def plan_sources(graph: JobGraph) -> list[PlannedSource]:
    """The sources of a job, as the driver sees them."""
    planned = []
    before = sources_before(graph)
    for node in graph.nodes.values():
        if node.kind == "source":
            strategy = node.watermark_strategy
            idleness = None if strategy is None else strategy.idle_timeout
            alignment = None if strategy is None else strategy.alignment
            planned.append(
                PlannedSource(
                    node.uid,
                    node.source,
                    node.parallelism,
                    connector_label(node),
                    idleness,
                    alignment,
                    before[node.uid],
                )
            )
    return planned


class SourceSplits:
    """Finds the splits of all sources of a run, and logs them.

    Args:
        sources: the source nodes; their tables are kept here.
        log: where discovered splits are kept.
        retained: how many checkpoints are kept, of which the splits must be known.
    """

    def __init__(self, sources: list[PlannedSource], log: SplitLog, retained: int = 2) -> None:
        self._sources = sources
        self._log = log
        #: Where the last epochs began.
        self._starts: deque[Offset] = deque(maxlen=retained)
        for planned in sources:
            if planned.source is not None:
                planned.table = log.load(planned.uid)

    def begin_at(self, start: Offset) -> None:
        """Go on from a checkpoint: let go of the splits that were read to their end before it.

        Raises:
            CheckpointError: the log does not have the splits that it speaks of.
        """
        if self._starts and self._starts[-1] is start:
            return
        self._starts.append(start)
        for planned in self._sources:
            position = Position.of(start, planned.uid)
            self.require(planned, position)
            planned.table.forget(position.is_over)

    def discover(self, planned: PlannedSource, source: Source) -> list[Split]:
        """Look for new splits of a source, if it is time.

        Returns:
            Those that were found; the table has them, or what another driver has logged.
        """
        if not self.is_due(planned, source):
            return []
        found = new_splits(source, planned.table.seen)
        self.take_in(planned, found)
        return found

    @staticmethod
    def is_due(planned: PlannedSource, source: Source) -> bool:
        """Whether it is time to look for new splits; then it is not for some time."""
        now = time.monotonic()
        if planned.table.count and source.boundedness is Boundedness.BOUNDED:
            return False
        if now < planned.next_discovery:
            return False
        planned.next_discovery = now + source.discovery_interval / 1000
        return True

    def take_in(self, planned: PlannedSource, found: list[Split]) -> None:
        """Log new splits of a source; the table has them, or what another driver has logged."""
        if found:
            planned.table = self._log.append(planned.uid, planned.table, found)
            self._compact(planned)

    def _compact(self, planned: PlannedSource) -> None:
        """Let the log drop splits that are finished at every checkpoint that is kept."""
        oldest = Position()
        if len(self._starts) == self._starts.maxlen:
            oldest = Position.of(self._starts[0], planned.uid)
        self._log.compact(planned.uid, oldest.is_over)

    def require(self, planned: PlannedSource, position: Position) -> None:
        """Have all splits that a position speaks of; another driver may have logged some.

        Raises:
            CheckpointError: the log does not have them.
        """
        if planned.source is None or _has(planned.table, position):
            return
        planned.table = self._log.load(planned.uid)
        if _has(planned.table, position):
            return
        message = (
            f"{planned.label}: the list of its splits does not go with the checkpoint; the "
            "directory was put back in part, or from copies of different times"
        )
        raise CheckpointError(message)

    def committed(self, splits: Mapping[str, Mapping[str, SplitState]]) -> None:
        """Tell the sources how far they are read by committed epochs, for their monitoring.

        Args:
            splits: source uid -> split id -> state, as in the manifest.
        """
        for planned in self._sources:
            if planned.source is not None:
                states = splits.get(planned.uid, {})
                planned.source.committed({name: each.position for name, each in states.items()})


def new_splits(source: Source, known: KnownSplits) -> list[Split]:
    """Ask a source for the splits that are not known; takes as long as its system does."""
    return [split for split in source.discover(known) if split.id not in known]


def choose_subtask(number: int, load: list[int], *, final: bool) -> int:
    """A complete split goes to the subtask with least to do, a growing one stays put."""
    if not final:
        return number % len(load)
    return load.index(min(load))


def _has(table: SplitTable, position: Position) -> bool:
    """Whether a table has the splits that a position speaks of."""
    return table.count >= position.known and table.splits.keys() >= position.at.keys()
