"""The source contract: splits, offsets, and reading the same records every time.

A source is divided into splits that are read in parallel; a position in a split is one integer.  In
micro-batch execution tasks get ``[start, stop)`` of each split and read exactly that, again if the
epoch is replayed.  Long-running tasks poll a cursor per split.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from millstream.object_stores import OpensStores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.types.types import TypeInformation


@dataclass(frozen=True)
class Split:
    """One part of a source that is read in order, by one task at a time."""

    #: Unique in its source, stable over restarts ("part-0.csv", "topic-3").
    id: str
    #: What the connector needs to read it (picklable and JSON: strings, numbers, lists, dicts).
    properties: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class SourceBatch:
    """Records read from a split: exactly one of ``arrow`` and ``values`` is set."""

    arrow: pa.RecordBatch | None = None
    values: list[object] | None = None
    #: Timestamps that the source itself knows, in milliseconds, if it does.
    timestamps: list[int] | None = None
    #: What the source itself knows of time after these records: none with a timestamp of up to
    #: so many milliseconds will follow in the split.  ``WatermarkStrategy.preserve`` takes it.
    watermark: int | None = None
    #: Dead letters: what could not be parsed, as (place such as ``file:line``, raw text, error).
    dead_letters: list[tuple[str, str, str]] = field(default_factory=list)
    #: The offset after these records, if the source knows it: reading from there gives the rest.
    position: int | None = None
    #: The same after each record, where that is known; the last is ``position``.
    positions: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.values or ()) if self.arrow is None else int(self.arrow.num_rows)

    def cut(self, most: int) -> Iterator[SourceBatch]:
        """The same in batches of at most ``most`` records."""
        count = len(self)
        if count <= most:
            yield self
            return
        for start in range(0, count, most):
            yield self.slice(start, min(start + most, count))

    def slice(self, start: int, stop: int) -> SourceBatch:
        """The records from one index to another."""
        arrow, values, stamps = self.arrow, self.values, self.timestamps
        positions = self.positions
        behind = None if positions is None else positions[stop - 1]
        is_last = stop == len(self)
        return SourceBatch(
            arrow=None if arrow is None else arrow.slice(start, stop - start),
            values=None if values is None else values[start:stop],
            timestamps=None if stamps is None else stamps[start:stop],
            watermark=self.watermark if is_last else None,
            dead_letters=[] if start else self.dead_letters,
            position=self.position if is_last else behind,
            positions=None if positions is None else positions[start:stop],
        )

    def is_followed_by(self, other: SourceBatch) -> bool:
        """Return whether ``joined`` can put the two together: both are of the same kind."""
        if self.watermark is not None or other.dead_letters:
            return False  # what is between two records stays there
        if self.arrow is None or other.arrow is None:
            is_alike = self.arrow is other.arrow
        else:
            is_alike = self.arrow.schema.equals(other.arrow.schema)
        return is_alike and (self.timestamps is None) == (other.timestamps is None)

    @staticmethod
    def joined(parts: Sequence[SourceBatch]) -> SourceBatch:
        """Several in a row as one, each of which ``is_followed_by`` the next."""
        first, last = parts[0], parts[-1]
        if len(parts) == 1:
            return first
        arrow = values = stamps = positions = None
        if first.arrow is None:
            values = [value for each in parts for value in each.values or ()]
        else:
            arrow = pa.concat_batches([each.arrow for each in parts])
        if first.timestamps is not None:
            stamps = [stamp for each in parts for stamp in each.timestamps or ()]
        if all(each.positions is not None for each in parts):
            positions = [position for each in parts for position in each.positions or ()]
        return SourceBatch(
            arrow=arrow,
            values=values,
            timestamps=stamps,
            watermark=last.watermark,
            dead_letters=first.dead_letters,
            position=last.position,
            positions=positions,
        )


#: Seconds that reading a piece should take.
_PIECE_SECONDS: Final = 0.01
#: One piece changes the size of the next by at most these factors.
_GROW: Final = 8
_SHRINK: Final = 4


class SplitCursor(ABC):
    """Reads one split from a position on.  Used by one thread.

    Contract:
      1. ``poll`` never waits for data; what it has available it gives within some milliseconds.
         The first may take longer, to open what it reads.  (``millstream.testing``)
      2. While ``settled``, ``Source.read`` and a new cursor from ``position`` on give exactly
         what this one has not given yet.  (``millstream.testing``)
      3. If it is not settled, it is so again after a few more polls that find something, whatever
         else arrives meanwhile.  (``millstream.testing``)
      4. ``close`` leaves no file, connection or thread of the cursor's own, after errors too.
         (``millstream.testing``)
    """

    #: Everything before it was handed out.
    position: int

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Return whether ``position`` is exact now."""

    @abstractmethod
    def poll(self, most: int) -> SourceBatch | None:
        """The next records, about ``most`` of them at most; None: there are none now.

        Raises:
            SourceError: the split cannot be read.
        """

    @abstractmethod
    def extend(self, end: int, *, final: bool) -> None:
        """Take how far the split can be read.  A cursor begins with an end at its position.

        Args:
            end: the offset.  A cursor that asks the system itself may read on, unless it is final.
            final: the split will not grow any more.
        """

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Return whether all up to the final end was handed out."""

    def committed(self, position: int) -> None:
        """A checkpoint with this position is completed: no restart goes back to before it.

        For systems that keep what was not confirmed to them by the connection that reads.
        """
        del position

    @abstractmethod
    def close(self) -> None:
        """Let go of everything.  Called once, also after ``poll`` has raised."""


class RangeReader(Protocol):
    """The part of a source that reads ranges."""

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        """A good place to stop that is about ``limit`` units after ``start``."""

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        """The records of ``[start, stop)``."""


class GrowingReader(RangeReader, Protocol):
    """The part of a source that says how far a split can be read."""

    def end_offset(self, split: Split) -> int:
        """Up to where it can be read now."""

    def is_final(self, split: Split) -> bool:
        """Return whether that will not change."""


class PieceSizer:
    """How many units of offset take about the time that a piece should take.

    It begins with one unit.  The fastest piece so far tells what beginning a piece costs, and that
    is at most half of one: a source to which it is dear is read in longer ones.
    """

    def __init__(self) -> None:
        self.limit = 1
        self._fixed = math.inf

    def read(self, units: int, seconds: float, records: int, most: int) -> None:
        """Take what a piece was.

        Args:
            units: of offset.
            seconds: that the source was at work on it.
            records: in it.
            most: records in a piece, so that a barrier waits for few batches.
        """
        self._fixed = min(self._fixed, seconds)
        target = max(_PIECE_SECONDS, 2 * self._fixed)
        if 2 * units >= self.limit or seconds > target:
            work = max(seconds - self._fixed, 1e-6)
            wanted = int(min(units, self.limit) * min((target - self._fixed) / work, _GROW))
            self.limit = max(1, self.limit // _SHRINK, min(wanted, self.limit * _GROW))
        if records:
            self.limit = max(1, min(self.limit, units * most // records))


class RangeCursor(SplitCursor):
    """Reads a split by ``Source.read``, piece by piece.

    Args:
        source: reads the ranges.
        split: the split.
        position: where to begin.
        whole: read up to the end that is known in one piece; for a source that opens a file for
            each range, and whose batches have their ``position``.
    """

    def __init__(
        self, source: RangeReader, split: Split, position: int, *, whole: bool = False
    ) -> None:
        self.position = position
        self._source = source
        self._split = split
        self._whole = whole
        self._end = position
        self._final = False
        self._sizer = PieceSizer()
        #: The piece available; None between two.
        self._reading: Iterator[SourceBatch] | None = None
        self._start = self._stop = position
        self._seconds = 0.0
        self._records = 0
        #: Read and not handed out.
        self._parts: deque[SourceBatch] = deque()
        self._settled = True
        #: What was read before it is handed out first; then nothing more is.
        self._failure: Exception | None = None

    @property
    def settled(self) -> bool:
        return self._settled

    @property
    def is_over(self) -> bool:
        return self._final and self._reading is None and self.position >= self._end

    def extend(self, end: int, *, final: bool) -> None:
        self._end, self._final = end, final

    def poll(self, most: int) -> SourceBatch | None:
        if not self._parts and not self._fill(most):
            return None
        part = self._parts.popleft()
        if len(part) > most:
            self._parts.appendleft(part.slice(most, len(part)))
            part = part.slice(0, most)
        self._settled = False
        if part.position is not None:
            self._reach(part.position, most)
        elif not self._parts:
            # Whether the piece ends here; if not, this is work done in advance.
            self._look_ahead(most)
        return part

    def _fill(self, most: int) -> bool:
        """Read until there is something to hand out; False if there is nothing now."""
        deadline = time.perf_counter() + _PIECE_SECONDS
        while not self._parts:
            if self._failure is not None:
                raise self._failure
            if self._reading is None:
                # A piece may be without records, where a source has gaps.
                if self.position >= self._end and not self._has_grown():
                    return False
                if time.perf_counter() > deadline or not self._begin():
                    return False
            self._look_ahead(most)
        return True

    def _has_grown(self) -> bool:
        """Return whether there is more now than was told."""
        return False

    def _begin(self) -> bool:
        """Begin a piece; False if nothing can be read yet, although the split goes further."""
        begun = time.perf_counter()
        start, stop = self.position, self._end
        if not self._whole:
            stop = self._source.next_stop(self._split, start, self._sizer.limit, stop)
            if stop <= start:
                return False
        self._start, self._stop = start, stop
        self._reading = iter(self._source.read(self._split, start, stop))
        self._seconds, self._records = time.perf_counter() - begun, 0
        return True

    def _look_ahead(self, most: int) -> None:
        """Have the source take one step in the piece available."""
        if self._reading is None:
            return
        begun = time.perf_counter()
        try:
            found = next(self._reading, None)
        except Exception as error:  # noqa: BLE001 - raised when all before it is handed out
            self._failure = error
            self._settled = False
            return
        self._seconds += time.perf_counter() - begun
        if found is None:
            self._finish(most)
        else:
            self._records += len(found)
            self._parts.append(found)

    def _reach(self, position: int, most: int) -> None:
        """Take the position that the source says."""
        if position >= self._stop:
            self._finish(most)
        else:
            self.position = position
            self._settled = True

    def _finish(self, most: int) -> None:
        """All of the piece is read, and handed out but for what is being so now."""
        self._sizer.read(self._stop - self._start, self._seconds, self._records, most)
        self.position = self._stop
        self._settled = True
        self._drop()

    def _drop(self) -> None:
        close = getattr(self._reading, "close", None)
        self._reading = None
        if close is not None:
            close()

    def close(self) -> None:
        self._parts.clear()
        self._drop()


class FollowingCursor(RangeCursor):
    """Asks in its task how far the split goes, whenever all is read that was known.

    For what can be asked there within microseconds: a clock, a file.  ``Source.cursors_follow``
    says that a source has such cursors.

    Args:
        source: reads the ranges, and knows the ends.
        split: the split.
        position: where to begin.
    """

    def __init__(self, source: GrowingReader, split: Split, position: int) -> None:
        super().__init__(source, split, position)
        self._growing = source

    def extend(self, end: int, *, final: bool) -> None:
        """Take what the driver says, which may be late."""
        super().extend(max(end, self._end), final=final or self._final)

    def _has_grown(self) -> bool:
        if not self._final:
            # In this order: the end of a split that is final already is its last.
            final = self._growing.is_final(self._split)
            self.extend(self._growing.end_offset(self._split), final=final)
        return self.position < self._end


class Boundedness(Enum):
    """The boundedness of a source: it ends by itself or not."""

    BOUNDED = "bounded"
    CONTINUOUS_UNBOUNDED = "continuous_unbounded"


@dataclass(frozen=True, slots=True)
class OffsetCommits:
    """The offsets that a source has committed to the system behind it, for monitoring."""

    succeeded: int = 0
    failed: int = 0
    #: By split id.
    offsets: Mapping[str, int] = field(default_factory=dict)


class KnownSplits(Protocol):
    """The ids of all splits that a source has found so far; they can be asked for, not listed."""

    def __contains__(self, split_id: object, /) -> bool:
        """Return whether the split was found before."""

    def __len__(self) -> int:
        """How many there are."""


class Source(OpensStores, ABC):
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
      6. In the driver it is asked one thing at a time.  While a job of long-running tasks runs,
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
        """Return whether the source ends by itself."""

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

        0, the default: at every look for data, some 20 ms apart.  Whether a source that has found
        splits is asked again is for ``finds_more`` to answer.
        """
        return 0

    @property
    def has_all_splits(self) -> bool:
        """Whether ``discover`` will find no more: the source is over when its splits are read.

        What has an end is asked once.  A source without one may come to its end nevertheless (its
        server has closed the connection), and says so when all its splits are known.
        """
        return self.boundedness is Boundedness.BOUNDED

    #: Whether it has no end from the beginning although it is bounded: it finds splits in stages.
    in_stages: bool = False

    def finds_more(self, known: KnownSplits, *, all_read: bool) -> bool:
        """Return whether ``discover`` is to be asked again, now that some splits are known.

        By default a source without an end is.  Called in the driver, also while another thread asks
        the source something.

        Args:
            known: the splits that were found.
            all_read: they are all complete, and read to their ends.
        """
        del known, all_read
        return self.boundedness is not Boundedness.BOUNDED

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
        """Return whether ``end_offset`` will never grow (a file that is complete).

        Always the same.
        """
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

    #: Whether offsets count records, so that differences of them are records that are not read.
    offsets_are_records: bool = False

    def metric_groups(self, split_id: str) -> Mapping[str, str]:
        """Return the groups, with values, that Flink gives to metrics of a split: topic, partition.

        Returns:
            Empty: its splits have no metrics.
        """
        del split_id
        return {}

    @property
    def commits(self) -> OffsetCommits | None:
        """What became of ``committed``, in this process; None: it does not commit offsets."""
        return None

    def committed(self, offsets: dict[str, int]) -> None:
        """The epoch that read up to ``offsets`` (by split id) is committed.  For monitoring."""
        del offsets
