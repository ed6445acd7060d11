"""The numbers from one to another as a source.

What it is: Flink's ``NumberSequenceSource``: the range is cut into contiguous splits.
What it is not: a clock; for records at a rate see ``connectors/basic/data_generator.py``.

Read next: ``contracts/source.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split
from millstream.errors import ConfigurationError
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.source import KnownSplits
    from millstream.types.types import TypeInformation

__all__ = ["NumberSequenceSource"]


class NumberSequenceSource(Source):
    """The integers ``start`` to ``end``, both included.

    Args:
        start: the first.
        end: the last; less than ``start`` makes an empty sequence.
        splits: how many contiguous parts can be read side by side.
    """

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
