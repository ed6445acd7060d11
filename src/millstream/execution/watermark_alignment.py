"""Watermark alignment: which source splits wait, because their group is behind.

What it is: the part of the driver that compares the watermarks of splits within groups
(``WatermarkStrategy.with_watermark_alignment``).  The planner of epochs lets it look at watermarks
of the last checkpoint only, so it goes on after a restart as if there had been none.

Who is compared: splits that have begun, are not read to their end and are not idle.  The slowest of
them is never held, so a group cannot wait for itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.functions.watermark_strategy import WatermarkAlignment


class TimeOfSplit(Protocol):
    """How far a split is in event time: its state in a checkpoint, or what its task says."""

    @property
    def watermark(self) -> int:
        """Milliseconds."""

    @property
    def idle(self) -> bool:
        """Whether nothing comes."""


@dataclass(frozen=True, slots=True)
class AlignedSplit:
    """A split that takes part in a comparison."""

    source_uid: str
    split_id: str
    alignment: WatermarkAlignment


@dataclass(slots=True)
class _Group:
    #: Source uid -> the highest watermark with which a split may be read.
    ceilings: dict[str, int] = field(default_factory=dict)
    #: Milliseconds of processing time after which the ceilings are to be found again.
    valid_until: int = MIN_TIMESTAMP


class Aligner:
    """Knows the watermarks of splits, and holds back those that are ahead."""

    def __init__(self) -> None:
        self._splits: Mapping[str, Mapping[str, TimeOfSplit]] = {}
        self._groups: dict[str, _Group] = {}

    def observe(self, splits: Mapping[str, Mapping[str, TimeOfSplit]]) -> None:
        """Take how far splits are (source uid -> split id -> its time), to be looked at on."""
        self._splits = splits

    def is_idle(self, source_uid: str, split_id: str) -> bool:
        """Whether the split was idle when that was said last."""
        state = self._state(source_uid, split_id)
        return state is not None and state.idle

    def compare(self, splits: Iterable[AlignedSplit], now: int, *, again: bool = False) -> None:
        """Find how far each source may run.

        Args:
            splits: those to compare, of all groups.
            now: milliseconds of processing time.
            again: compare also groups whose update interval is not over.
        """
        members: dict[str, list[AlignedSplit]] = {}
        for split in splits:
            members.setdefault(split.alignment.group, []).append(split)
        for name in self._groups.keys() - members.keys():
            del self._groups[name]  # nobody left to wait for
        for name, those in members.items():
            group = self._groups.setdefault(name, _Group())
            if again or now >= group.valid_until:
                group.ceilings = self._ceilings(those)
                group.valid_until = now + min(each.alignment.update_interval for each in those)

    def _ceilings(self, splits: list[AlignedSplit]) -> dict[str, int]:
        active = [each for each in splits if not self.is_idle(each.source_uid, each.split_id)]
        if not active:
            return {}
        slowest = min(self._watermark(each.source_uid, each.split_id) for each in active)
        return {
            each.source_uid: min(slowest + each.alignment.max_drift, MAX_TIMESTAMP)
            for each in splits
        }

    def holds(self, group: str, source_uid: str, split_id: str) -> bool:
        """Whether the split is too far ahead to be read."""
        if self.is_idle(source_uid, split_id):
            return False
        return self._watermark(source_uid, split_id) > self.ceiling(group, source_uid)

    def ceiling(self, group: str, source_uid: str) -> int:
        """The highest watermark with which a split of the source may be read, as found last."""
        known = self._groups.get(group)
        return MAX_TIMESTAMP if known is None else known.ceilings.get(source_uid, MAX_TIMESTAMP)

    def _state(self, source_uid: str, split_id: str) -> TimeOfSplit | None:
        return self._splits.get(source_uid, {}).get(split_id)

    def _watermark(self, source_uid: str, split_id: str) -> int:
        state = self._state(source_uid, split_id)
        return MIN_TIMESTAMP if state is None else state.watermark
