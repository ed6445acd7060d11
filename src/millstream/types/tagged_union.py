"""TaggedUnion: a record of one of two streams, and of which.

What it is: what the windows of a window join or co-group hold; custom triggers, evictors and gap
extractors of such windows are given it.

What it is not: what join functions get; they are given the records.

Read next: ``datastream/paired_windows.py``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["TaggedUnion"]


class TaggedUnion(NamedTuple):
    """A record and the number of its input."""

    #: 0 for the first stream, 1 for the second.
    input_index: int
    value: Any

    def is_one(self) -> bool:
        """Whether it is a record of the first stream."""
        return self.input_index == 0

    def is_two(self) -> bool:
        """Whether it is a record of the second stream."""
        return self.input_index == 1

    def get_one(self) -> Any:
        """Return the record if it is of the first stream, else None."""
        return self.value if self.input_index == 0 else None

    def get_two(self) -> Any:
        """Return the record if it is of the second stream, else None."""
        return self.value if self.input_index == 1 else None
