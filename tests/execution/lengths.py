"""A source whose splits have lengths and nothing else, and the enumerator of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.checkpoint.local_storage import LocalStorage
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split
from millstream.execution.planned_source import Offset, PlannedSource, SplitLog, initial_offset
from millstream.execution.split_enumerator import SplitEnumerator
from millstream.runtime.plan import SplitProgress
from millstream.types.types import Types

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.contracts.source import KnownSplits
    from millstream.runtime.plan import SplitAssignment
    from millstream.types.types import TypeInformation


class Lengths(Source):
    """Splits of given lengths, each of which may still grow to its full one."""

    initial_limit = 10

    def __init__(
        self, lengths: list[int], *, bounded: bool = True, grows: bool = False, first: int = 0
    ) -> None:
        self.full = lengths
        self.bounded = bounded
        self.grows = grows
        #: So long is each now.
        self.now = [0 if grows else length for length in lengths]
        self.first = first
        self.early: list[tuple[str, int]] = []
        self.asked = 0
        self.told: list[dict[str, int]] = []

    def grow(self, chance: random.Random) -> None:
        for number, length in enumerate(self.full):
            self.now[number] = min(length, self.now[number] + chance.randrange(5))

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED if self.bounded else Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return Types.LONG()

    def discover(self, known: KnownSplits) -> list[Split]:
        return [Split(str(n)) for n in range(len(self.now)) if str(n) not in known]

    def start_offset(self, split: Split) -> int:
        return self.first

    def end_offset(self, split: Split) -> int:
        self.asked += 1
        return self.first + self.now[int(split.id)]

    def ends_early(self, split: Split, position: int) -> None:
        self.early.append((split.id, position))

    def is_final(self, split: Split) -> bool:
        number = int(split.id)
        if not self.grows:
            return True
        return self.bounded and self.now[number] == self.full[number]

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        raise NotImplementedError

    def committed(self, offsets: dict[str, int]) -> None:
        self.told.append(offsets)


def enumerator_of(
    directory: Path, source: Source, parallelism: int = 2, offset: Offset | None = None
) -> SplitEnumerator:
    planned = [PlannedSource("s", source, parallelism, label="source 's' (job.py:3)")]
    log = SplitLog(LocalStorage(directory, fsync=False))
    return SplitEnumerator(planned, log, offset or initial_offset(), clock=lambda: 0)


def done(assignment: SplitAssignment) -> dict[int, SplitProgress]:
    return {assignment.channel: SplitProgress(assignment.stop, 0, idle=False, over=True)}
