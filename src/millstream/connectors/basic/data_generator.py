"""Flink's ``DataGeneratorSource``: generated records, at a rate if wanted.

Record number i is ``function(i)``; a function that depends on nothing but i makes the source
replayable.  The rate holds over the whole source and is kept by wall time: a split can be read up
to where it should be by now, so a job that was down catches up, as it would on a real source.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.contracts.source import Boundedness, FollowingCursor, Source, SourceBatch, Split
from millstream.errors import ConfigurationError
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from millstream.contracts.source import KnownSplits, SplitCursor
    from millstream.types.types import TypeInformation


UNLIMITED = 1 << 62


class GeneratorFunction(ABC):
    """Makes a record from its number.

    Contract:
      1. ``map`` depends on nothing but its argument.  (``millstream.testing``)
      2. ``map_batch``, where overridden, makes the same records as ``map``.  (nobody)
    """

    @abstractmethod
    def map(self, value: int) -> object:
        """Record number ``value``."""

    def map_batch(self, indices: NDArray[np.int64]) -> pa.RecordBatch | None:
        """The records of ``indices`` as columns, much faster; None falls back to ``map``."""
        del indices
        return None


#: What may be given as a generator function.
GeneratorLike: TypeAlias = "GeneratorFunction | Callable[[int], object]"


@dataclass(frozen=True, slots=True)
class RateLimiterStrategy:
    """How many records per second the source makes; None: as many as are read."""

    records_per_second: float | None = None

    @staticmethod
    def per_second(records_per_second: float) -> RateLimiterStrategy:
        """That many records per second, over all splits."""
        if records_per_second <= 0:
            message = f"a rate of {records_per_second} records per second makes no sense"
            raise ConfigurationError(message)
        return RateLimiterStrategy(records_per_second)

    @staticmethod
    def no_op() -> RateLimiterStrategy:
        """No limit."""
        return RateLimiterStrategy()


class DataGeneratorSource(Source):
    """Records made by a function of their number.

    Args:
        generator_function: a GeneratorFunction or a callable of the record's number.
        count: how many records there are; None for ever.
        rate_limiter_strategy: records per second, or a number of them.
        type_info: the type of the records; None leaves the stream untyped.
        splits: how many parts can be read side by side; part k makes k, k + splits, ...
        clock: seconds since 1970; replaced in tests.
    """

    #: Each part has one record of so many in a row.
    side_by_side = True

    offsets_are_records = True

    def __init__(
        self,
        generator_function: GeneratorLike,
        count: int | None = None,
        rate_limiter_strategy: RateLimiterStrategy | float | None = None,
        type_info: TypeInformation | None = None,
        *,
        splits: int = 4,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if splits < 1 or (count is not None and count < 0):
            message = f"splits={splits} must be at least 1 and count={count} at least 0"
            raise ConfigurationError(message)
        if isinstance(rate_limiter_strategy, int | float):
            rate_limiter_strategy = RateLimiterStrategy.per_second(rate_limiter_strategy)
        self.function = generator_function
        self.count = count
        self.rate = (rate_limiter_strategy or RateLimiterStrategy()).records_per_second
        self.splits = splits
        self._type = type_info or Types.PICKLED_BYTE_ARRAY()
        self._clock = clock
        #: Split id -> the largest end offset told so far: clocks can be set back.
        self._told: dict[str, int] = {}

    #: They look at the clock themselves.
    cursors_follow = True

    @property
    def boundedness(self) -> Boundedness:
        """It ends if there is a count."""
        bounded = self.count is not None
        return Boundedness.BOUNDED if bounded else Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    def discover(self, known: KnownSplits) -> list[Split]:
        """The parts, with the time at which the first record is due."""
        started = self._clock()
        found = []
        for part in range(self.splits):
            if f"generated-{part}" not in known and self._records(part, self.splits) > 0:
                properties: dict[str, object] = {
                    "part": part,
                    "parts": self.splits,
                    "started": started,
                }
                found.append(Split(f"generated-{part}", properties))
        return found

    def _records(self, part: int, parts: int) -> int:
        if self.count is None:
            return UNLIMITED
        return max((self.count - part + parts - 1) // parts, 0)

    def end_offset(self, split: Split) -> int:
        """All records, or those that are due by now."""
        part, parts = _part(split)
        end = self._records(part, parts)
        if self.rate is not None:
            elapsed = self._clock() - cast("float", split.properties["started"])
            due = int(elapsed * self.rate)  # records of the whole source
            end = min(end, max((due - part + parts - 1) // parts, 0))
        end = max(end, self._told.get(split.id, 0))
        self._told[split.id] = end
        return end

    def is_final(self, split: Split) -> bool:
        if self.count is None:
            return False
        part, parts = _part(split)
        return self.end_offset(split) >= self._records(part, parts)

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        """Call the function for the numbers of ``[start, stop)``."""
        part, parts = _part(split)
        function: Callable[[int], object]
        batched: Callable[[NDArray[np.int64]], pa.RecordBatch | None] | None = None
        if isinstance(self.function, GeneratorFunction):
            function, batched = self.function.map, self.function.map_batch
        else:
            function = self.function
        for at in range(start, stop, BATCH_SIZE):
            end = min(at + BATCH_SIZE, stop)
            numbers = range(part + at * parts, part + end * parts, parts)
            if batched is not None:
                arrow = batched(np.arange(numbers.start, numbers.stop, parts, dtype=np.int64))
                if arrow is not None:
                    yield SourceBatch(arrow=arrow)
                    continue
                batched = None
            values = [function(number) for number in numbers]
            if self._type.arrow_schema is None:
                yield SourceBatch(values=values)
            else:
                yield SourceBatch(arrow=self._type.to_arrow(values))

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        """Make the records when they are due."""
        return FollowingCursor(self, split, position)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_told": {}}


def _part(split: Split) -> tuple[int, int]:
    return cast("int", split.properties["part"]), cast("int", split.properties["parts"])


class NumberSequenceSource(Source):
    """The integers ``start`` to ``end``, both included.

    Args:
        start: the first.
        end: the last; less than ``start`` makes an empty sequence.
        splits: how many contiguous parts can be read side by side.
    """

    offsets_are_records = True

    def __init__(self, start: int, end: int, *, splits: int = 4) -> None:
        if splits < 1:
            message = f"splits={splits} must be at least 1"
            raise ConfigurationError(message)
        self.start_value = start
        self.end_value = end
        self.splits = splits

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return Types.LONG()

    def discover(self, known: KnownSplits) -> list[Split]:
        """The parts of the range, none of them empty."""
        count = max(self.end_value - self.start_value + 1, 0)
        cuts = [self.start_value + count * i // self.splits for i in range(self.splits + 1)]
        parts = [
            Split(f"numbers-{i}", {"first": cuts[i], "count": cuts[i + 1] - cuts[i]})
            for i in range(self.splits)
            if cuts[i + 1] > cuts[i]
        ]
        return [split for split in parts if split.id not in known]

    def end_offset(self, split: Split) -> int:
        """How many numbers the part has."""
        return cast("int", split.properties["count"])

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        """The numbers at ``[start, stop)`` of the part."""
        first = cast("int", split.properties["first"])
        stop = min(stop, self.end_offset(split))
        for at in range(start, stop, BATCH_SIZE):
            end = min(at + BATCH_SIZE, stop)
            numbers = np.arange(first + at, first + end, dtype=np.int64)
            yield SourceBatch(arrow=pa.RecordBatch.from_arrays([pa.array(numbers)], names=["f0"]))
