"""The source contract: splits, offsets, and reading the same records every time.

What it is: what a connector implements to be read by Millstream.  A source is split into parts
that are read side by side; a position in a split is one integer.  Where each epoch has tasks of
its own, they are told ``[start, stop)`` of each split and read exactly that, again if the epoch is
replayed.  Tasks that live on poll a cursor per split (``contracts/split_cursor.py``).

What it is not: a place to keep state.  Watermark generators, offsets and the list of splits are
kept by the runtime.

Read next: ``connectors/files/source.py``; the 30-line example is in
``docs/how-to/custom-connectors.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from millstream.contracts.split import SourceBatch, Split
from millstream.contracts.split_cursor import RangeCursor, SplitCursor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.types.typeinfo import TypeInformation

__all__ = ["Boundedness", "KnownSplits", "Source", "SourceBatch", "Split", "SplitCursor"]


class Boundedness(Enum):
    """Whether a source ends by itself."""

    BOUNDED = "bounded"
    CONTINUOUS_UNBOUNDED = "continuous_unbounded"


class KnownSplits(Protocol):
    """The ids of all splits that a source has found so far; they can be asked for, not listed."""

    def __contains__(self, split_id: object, /) -> bool:
        """Whether the split was found before."""

    def __len__(self) -> int:
        """How many there are."""


class Source(ABC):
    """A replayable (or not) origin of records.  Instances are pickled to driver and workers.

    Contract:
      1. ``discover`` returns new splits only, in a stable order; called in the driver.  (runtime
         drops known ids)
      2. Offsets are integers that grow; ``read(split, a, b)`` followed by ``read(split, b, c)``
         gives the same records as ``read(split, a, c)``, in the same order, at every
         reading, if ``replayable``.  (``millstream.testing``)
      3. ``end_offset`` never shrinks, unless records were lost; once ``is_final`` says True it
         never changes.  (runtime, with ``ends_early``)
      4. ``read`` yields batches of at most some ten thousand records, so that watermarks move
         within an epoch.  (nobody)
      5. A record that does not parse is reported as the source's options say: an error naming
         the place, or a dead letter.  (tests of each connector)
      6. In the driver it is asked one thing at a time.  While a job of tasks that live on runs,
         from ``start`` to ``stop`` and in all its runs, one thread asks, for each use in the
         program: what belongs to a thread (a connection of sqlite3's) may be kept.  A source that
         has no answer when its run ends is not told to stop, and has another thread in the next.
         At submit it is asked in the program's thread.  (runtime)
    """

    #: Whether ``read`` can be repeated after a failure with the same result.
    replayable: bool = True

    @property
    @abstractmethod
    def boundedness(self) -> Boundedness:
        """Whether the source ends by itself."""

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation:
        """The type of the records (``Types.PICKLED_BYTE_ARRAY()`` if it is not known)."""

    def validate(self) -> None:
        """Check, in the driver before anything is written, that the source can be read.

        Raises:
            SourceError: it cannot (a path that does not exist, say), saying what to do.
        """

    def start(self) -> None:
        """Called in the driver when a run begins, before ``discover``."""

    def stop(self) -> None:
        """Called in the driver when a run ends, also after failures."""

    @property
    def discovery_interval(self) -> float:
        """Milliseconds between two calls of ``discover`` while the source waits for data.

        0, the default: at every look for data, some 20 ms apart.  A bounded source that has found
        splits is not asked again.
        """
        return 0

    @property
    def has_all_splits(self) -> bool:
        """Whether ``discover`` will find no more: the source is over when its splits are read.

        What has an end is asked once.  A source without one may come to its end nevertheless (its
        server has closed the connection), and says so when all its splits are known.
        """
        return self.boundedness is Boundedness.BOUNDED

    @abstractmethod
    def discover(self, known: KnownSplits) -> list[Split]:
        """Splits whose ids are not in ``known``, in the order in which they should be read."""

    def start_offset(self, split: Split) -> int:
        """Where reading of the split begins."""
        del split
        return 0

    @abstractmethod
    def end_offset(self, split: Split) -> int:
        """Up to where the split can be read now."""

    def ends_early(self, split: Split, position: int) -> None:
        """Told when ``end_offset`` is less than ``position``, up to which the split was read.

        Raises:
            SourceError: records were lost, and what follows ``position`` will not be what
                followed it before.
        """
        del split, position

    def is_final(self, split: Split) -> bool:
        """Whether ``end_offset`` will never grow (a file that is complete); always the same."""
        del split
        return self.boundedness is Boundedness.BOUNDED

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        """A good place to stop an epoch that may read about ``limit`` units from ``start``."""
        del split
        return min(start + limit, end)

    #: Whether all splits are read side by side, also those that are complete, because they hold the
    #: same time (partitions of a log).  Else each subtask reads complete splits (files) one after
    #: the other, and what a later one holds may be late.
    side_by_side: bool = False

    #: Whether cursors find out themselves that a split has grown.  The driver then asks for ends
    #: only now and then, so that records which were lost are noticed.
    cursors_follow: bool = False

    #: How many units of offset the first epoch reads at most, over all splits.  Later epochs
    #: adapt to the target duration.
    initial_limit: int = 1_000_000

    def first_limit(self, splits: Sequence[Split]) -> int:
        """``initial_limit``, for a source whose units depend on the splits that it has found."""
        del splits
        return self.initial_limit

    @abstractmethod
    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        """The records of ``[start, stop)``; called in the task."""

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        """Read the split from ``position`` on; called in a task that lives on.

        The cursor is told how far it can go (``SplitCursor.extend``) as soon as that is known.  A
        source that can do better than to read range after range makes a cursor of its own: keeps a
        connection or a file open, and finds new records without the driver.
        """
        return RangeCursor(self, split, position)

    def committed(self, offsets: dict[str, int]) -> None:
        """The epoch that read up to ``offsets`` (by split id) is committed.  For monitoring."""
        del offsets
