"""The source contract: splits, offsets, and reading the same records every time.

What it is: what a connector implements to be read by Millstream.  A source is split into parts
that are read side by side; a position in a split is one integer.  Spark logs ``[start, stop)``
of each split and epoch, and a task reads exactly that, again if the epoch is replayed.

What it is not: a place to keep state.  Watermark generators, offsets and the list of splits are
kept by the runtime.

Read next: ``connectors/files/source.py``; the 30-line example is in ``docs/connectors.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from millstream.types.typeinfo import TypeInformation

__all__ = ["Boundedness", "KnownSplits", "Source", "SourceBatch", "Split"]


class Boundedness(Enum):
    """Whether a source ends by itself."""

    BOUNDED = "bounded"
    CONTINUOUS_UNBOUNDED = "continuous_unbounded"


@dataclass(frozen=True)
class Split:
    """One part of a source that is read in order, by one task at a time."""

    #: Unique in its source, stable over restarts ("part-0.csv", "topic-3").
    id: str
    #: What the connector needs to read it (picklable and JSON: strings, numbers, lists, dicts).
    properties: dict[str, object] = field(default_factory=dict)


class KnownSplits(Protocol):
    """The ids of all splits that a source has found so far; they can be asked for, not listed."""

    def __contains__(self, split_id: object, /) -> bool:
        """Whether the split was found before."""

    def __len__(self) -> int:
        """How many there are."""


@dataclass(slots=True)
class SourceBatch:
    """Records read from a split: exactly one of ``arrow`` and ``values`` is set."""

    arrow: pa.RecordBatch | None = None
    values: list[object] | None = None
    #: Timestamps that the source itself knows, in milliseconds, if it does.
    timestamps: list[int] | None = None
    #: What the source itself knows of time behind these records: none with a timestamp of up to
    #: so many milliseconds will follow in the split.  ``WatermarkStrategy.preserve`` takes it.
    watermark: int | None = None
    #: Dead letters: what could not be parsed, as (place such as ``file:line``, raw text, error).
    dead_letters: list[tuple[str, str, str]] = field(default_factory=list)

    def cut(self, most: int) -> Iterator[SourceBatch]:
        """The same in batches of at most ``most`` records."""
        arrow, values, stamps = self.arrow, self.values, self.timestamps
        count = len(values or ()) if arrow is None else arrow.num_rows
        if count <= most:
            yield self
            return
        for start in range(0, count, most):
            stop = min(start + most, count)
            yield SourceBatch(
                arrow=None if arrow is None else arrow.slice(start, stop - start),
                values=None if values is None else values[start:stop],
                timestamps=None if stamps is None else stamps[start:stop],
                watermark=self.watermark if stop == count else None,
                dead_letters=[] if start else self.dead_letters,
            )


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

    def committed(self, offsets: dict[str, int]) -> None:
        """The epoch that read up to ``offsets`` (by split id) is committed.  For monitoring."""
        del offsets
