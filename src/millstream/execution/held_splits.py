"""Which of the splits that tasks read must wait for others, where tasks live on.

What it is: the part of the split enumerator that keeps the times of splits of aligned sources, as
tasks tell them, and says by channel which are held and how far each may run until it is, too.

What it is not: the comparison within a group (``execution/alignment.py``, to be read next).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.execution.alignment import AlignedSplit, Aligner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.checkpoint.model import Manifest
    from millstream.contracts.source import Split
    from millstream.execution.alignment import TimeOfSplit
    from millstream.execution.open_splits import OpenSplit, Reading
    from millstream.execution.planned_source import PlannedSource

__all__ = ["HeldSplits"]


class HeldSplits:
    """Compares the times of splits, and remembers who was told to wait.

    Args:
        planned: the sources of the run.
        last: the checkpoint that it goes on from; None: the job begins.
        first_of: asks a source that is not busy where a split begins.
    """

    def __init__(
        self,
        planned: Sequence[PlannedSource],
        last: Manifest | None,
        first_of: Callable[[Reading, Split], int],
    ) -> None:
        self._first_of = first_of
        #: Source uid -> split id -> its time; of aligned sources only.
        self._times: dict[str, dict[str, TimeOfSplit]] = {
            each.uid: {} for each in planned if each.alignment is not None
        }
        for uid in self._times:
            self.go_back(uid, last)
        self._aligner = Aligner()
        self._aligner.observe(self._times)
        #: The channels that wait, as was told last.
        self._held: frozenset[int] = frozenset()
        #: Channel -> its ceiling, as was told last.
        self._ceilings: dict[int, int] = {}

    def go_back(self, uid: str, last: Manifest | None) -> None:
        """A source is read on from a checkpoint; None: from its beginning."""
        if uid in self._times:
            self._times[uid] = dict(last.splits.get(uid, {}) if last else {})

    def observe(self, uid: str, split_id: str, told: TimeOfSplit) -> None:
        """Take how far a split is."""
        if uid in self._times:
            self._times[uid][split_id] = told

    def forget(self, uid: str, split_id: str) -> None:
        """A split is read to its end: nobody waits for it."""
        self._times.get(uid, {}).pop(split_id, None)

    def compare(
        self, readings: Sequence[Reading], now: int
    ) -> tuple[frozenset[int] | None, dict[int, int] | None]:
        """The channels that wait, and how far each may run; each None if it is as before.

        Args:
            readings: all sources.
            now: milliseconds of processing time.
        """
        if not self._times:
            return None, None
        splits = list(self._aligned_splits(readings))
        aligned = [each for _, each in splits]
        self._aligner.compare(aligned, now)
        held = self._found(splits)
        if held and not _can_read(readings, held):
            # Nobody moves until the next comparison: do not wait for it.
            self._aligner.compare(aligned, now, again=True)
            held = self._found(splits)
        ceilings = {
            each.channel: self._aligner.ceiling(split.alignment.group, split.source_uid)
            for each, split in splits
        }
        told = self._held, self._ceilings
        self._held, self._ceilings = held, ceilings
        return None if held == told[0] else held, None if ceilings == told[1] else ceilings

    def _aligned_splits(
        self, readings: Sequence[Reading]
    ) -> Iterator[tuple[OpenSplit, AlignedSplit]]:
        for reading in readings:
            planned = reading.planned
            if planned.alignment is not None:
                for each in reading.open.values():
                    # Of one that had no record nothing is known: it does not hold the others, as in
                    # Flink.
                    if each.first is None:
                        if reading.is_busy:
                            continue
                        each.first = self._first_of(reading, each.split)
                    if max(each.position, each.end) > each.first:
                        yield each, AlignedSplit(planned.uid, each.split.id, planned.alignment)

    def _found(self, splits: Sequence[tuple[OpenSplit, AlignedSplit]]) -> frozenset[int]:
        holds = self._aligner.holds
        return frozenset(
            each.channel
            for each, aligned in splits
            if holds(aligned.alignment.group, aligned.source_uid, aligned.split_id)
        )


def _can_read(readings: Sequence[Reading], held: frozenset[int]) -> bool:
    """Whether some split has something to read that does not wait."""
    return any(
        channel not in held and each.position < each.end
        for reading in readings
        for channel, each in reading.open.items()
    )
