"""Splits and the batches that are read from them.

What it is: the data of the source contract.

What it is not: how they are read, which is ``contracts/source.py`` for ranges and
``contracts/split_cursor.py`` for tasks that live on.

Read next: ``contracts/source.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["SourceBatch", "Split"]


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
    #: What the source itself knows of time behind these records: none with a timestamp of up to
    #: so many milliseconds will follow in the split.  ``WatermarkStrategy.preserve`` takes it.
    watermark: int | None = None
    #: Dead letters: what could not be parsed, as (place such as ``file:line``, raw text, error).
    dead_letters: list[tuple[str, str, str]] = field(default_factory=list)
    #: The offset behind these records, if the source knows it: reading from there gives the rest.
    position: int | None = None
    #: The same behind each record, where that is known; the last is ``position``.
    positions: Sequence[int] | None = None

    def __len__(self) -> int:
        """How many records."""
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
        """Whether ``joined`` can put the two together: both are of the same kind."""
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
