"""Who reads which split: the slots are told what the split enumerator has found.

What it is: the run loop's way to tell slots of splits, and what it remembers of it.

What it is not: the choice of a reader (``execution/split_enumerator.py``).

Read next: ``engines/pipelined/run_loop.py``, ``execution/split_enumerator.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.runtime.pipelined.control import (
    Assigned,
    Ceilings,
    Drain,
    Grown,
    Held,
    Retired,
    SourceEnded,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from millstream.checkpoint.model import Manifest
    from millstream.engines.pipelined.control_server import ControlServer
    from millstream.execution.offsets import Offset
    from millstream.execution.split_enumerator import SplitEnumerator
    from millstream.runtime.pipelined.control import SplitProgress
    from millstream.runtime.plan import SplitAssignment

__all__ = ["Readers"]


class Readers:
    """The readers of all splits of a run.

    Args:
        sources: finds splits and readers.
        server: tells the slots.
    """

    def __init__(self, sources: SplitEnumerator, server: ControlServer) -> None:
        self._sources = sources
        self._server = server
        #: Channel -> the slot that reads its split.
        self._slots: dict[int, int] = {}
        #: Those of its keys that are not read to their ends.
        self._open: set[int] = set()

    @property
    def all_is_read(self) -> bool:
        """Whether all splits that were assigned are read to their ends."""
        return not self._open

    def note(self, assignments: Iterable[SplitAssignment]) -> None:
        """Take that slots are told, by a plan or a message, to read splits."""
        for each in assignments:
            self._slots[each.channel] = each.subtask
            self._open.add(each.channel)

    def restart(
        self, uids: AbstractSet[str], position: Offset, last: Manifest | None
    ) -> list[SplitAssignment]:
        """Go back to a checkpoint with some sources, whose tasks have stopped.

        Args:
            uids: of the sources.
            position: where the checkpoint stands.
            last: the checkpoint; None: the beginning.

        Returns:
            What their tasks read from then on.
        """
        gone, assignments = self._sources.restart(uids, position, last)
        self._open.difference_update(gone)
        self.note(assignments)
        return assignments

    def progress(self, splits: Mapping[int, SplitProgress]) -> None:
        """Take how far splits are, by channel."""
        self._sources.progress(splits)
        self._open.difference_update(c for c, split in splits.items() if split.over)

    def look(self, now: int) -> None:
        """Tell the slots what has changed.

        Args:
            now: milliseconds since 1970.
        """
        update = self._sources.look(now)
        if not update:
            return
        tell = self._server.tell
        for slot, splits in update.assigned.items():
            self.note(splits)
            tell(slot, Assigned(tuple(splits)))
        for slot in {self._slots[channel] for channel in update.grown.keys() | update.final}:
            ends = {c: end for c, end in update.grown.items() if self._slots[c] == slot}
            final = frozenset(c for c in update.final if self._slots[c] == slot)
            tell(slot, Grown(ends, final))
        for slot, channels in update.retired.items():
            tell(slot, Retired(frozenset(channels)))
        if update.held is not None:
            self._server.tell_all(Held(update.held))
        if update.ceilings is not None:
            self._server.tell_all(Ceilings(update.ceilings))
        for uid in update.ended:
            self._server.tell_all(SourceEnded(uid))

    def stop(self, *, drains: bool) -> None:
        """Have all slots read nothing more: it would not be committed.

        Args:
            drains: every split is read to its end where it is; else it waits.
        """
        self._server.tell_all(Drain() if drains else Held(frozenset(self._slots)))
