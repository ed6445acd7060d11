"""Windows of SQL (TUMBLE, HOP, CUMULATE) and their slices, for whole columns of times.

All times are milliseconds of the clock of the windows: that of the column, or of a time zone
(``LocalClock``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class WindowKind(Enum):
    """How windows lie."""

    TUMBLE = "TUMBLE"
    HOP = "HOP"
    CUMULATE = "CUMULATE"
    SESSION = "SESSION"


@dataclass(frozen=True)
class TableWindow:
    """Windows of a query, all lengths in milliseconds.

    Raises:
        ProgramError: the size of CUMULATE is not a multiple of the step.
    """

    kind: WindowKind
    #: Of a SESSION the gap, of CUMULATE the largest size.
    size: int
    #: The slide of HOP, the step of CUMULATE.
    step: int | None = None
    offset: int = 0

    def __post_init__(self) -> None:
        if self.step is None:
            return
        if self.step <= 0 or (self.kind is WindowKind.CUMULATE and self.size % self.step):
            message = (
                f"{self.kind.value}: the size of {self.size} ms must be a multiple of"
                f" {self.step} ms"
            )
            raise ProgramError(message)

    @property
    def has_slices(self) -> bool:
        """Return whether several windows are made of slices that they share."""
        return self.step is not None and self.size % self.step == 0

    @property
    def shares_slices(self) -> bool:
        """Return whether a row is in one slice and in several windows."""
        return self.kind in (WindowKind.HOP, WindowKind.CUMULATE) and self.has_slices

    @property
    def is_tumbling(self) -> bool:
        """Return whether each row is in one window."""
        return self.kind is WindowKind.TUMBLE

    @property
    def slice(self) -> int:
        """The length of the slices that windows are made of."""
        return self.size if self.step is None else self.step

    @property
    def slices(self) -> int:
        """Return how many slices the largest window begins in."""
        return -(-self.size // self.slice)


@dataclass(frozen=True)
class Windows:
    """Pairs of rows and their windows, in the order of rows."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def some(self, chosen: NDArray[np.bool_]) -> Windows:
        """Return some of the pairs."""
        return Windows(self.rows[chosen], self.starts[chosen], self.ends[chosen])

    def distinct(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return one pair of each window, and the number of each pair's window."""
        ends = pa.array(self.ends).dictionary_encode()
        numbers = ends.indices.to_numpy().astype(np.int64)
        count = len(ends.dictionary)
        lengths = self.ends - self.starts
        if len(lengths) and (lengths != lengths[0]).any():
            starts = pa.array(self.starts).dictionary_encode()
            both = numbers * len(starts.dictionary) + starts.indices.to_numpy()
            found = pa.array(both).dictionary_encode()
            numbers, count = found.indices.to_numpy().astype(np.int64), len(found.dictionary)
        one = np.empty(count, dtype=np.int64)
        one[numbers] = np.arange(len(numbers))
        return one, numbers

    @classmethod
    def of(cls, times: NDArray[np.int64], spec: TableWindow) -> Windows:
        """The windows of rows at these times; not for sessions."""
        rows = np.arange(len(times))
        if spec.kind is WindowKind.TUMBLE:
            starts = _floor(times, spec.size, spec.offset)
            return cls(rows, starts, starts + spec.size)
        slices = _floor(times, spec.slice, spec.offset)
        if spec.kind is WindowKind.HOP:
            repeated = np.repeat(rows, spec.slices)
            back = np.tile(np.arange(spec.slices) * spec.slice, len(times))
            starts = slices[repeated] - back
            if spec.size % spec.slice:
                inside = starts + spec.size > times[repeated]
                repeated, starts = repeated[inside], starts[inside]
            return cls(repeated, starts, starts + spec.size)
        first_starts = _floor(times, spec.size, spec.offset)
        counts = (first_starts + spec.size - slices) // spec.slice
        repeated = np.repeat(rows, counts)
        within = np.arange(len(repeated)) - np.repeat(np.cumsum(counts) - counts, counts)
        ends = slices[repeated] + (within + 1) * spec.slice
        return cls(repeated, first_starts[repeated], ends)

    @classmethod
    def slices_of(cls, times: NDArray[np.int64], spec: TableWindow) -> Windows:
        """The slice of each row."""
        starts = _floor(times, spec.slice, spec.offset)
        return cls(np.arange(len(times)), starts, starts + spec.slice)


def attached_windows(arrow: pa.RecordBatch, columns: tuple[int, int]) -> Windows:
    """Return the windows that rows have in columns already: of their starts and of their ends."""
    starts, ends = (
        arrow.column(index).cast(pa.timestamp("ms")).view(pa.int64()).to_numpy()
        for index in columns
    )
    return Windows(np.arange(arrow.num_rows), starts, ends)


def _floor(times: NDArray[np.int64], length: int, offset: int) -> NDArray[np.int64]:
    """The beginning of the interval of that length that each time is in."""
    floored: NDArray[np.int64] = times - np.mod(times - offset, length)
    return floored


class LocalClock:
    """The clock of a time zone: what windows over TIMESTAMP_LTZ go by."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        self._is_utc = zone in ("UTC", "Etc/UTC", "Z", "GMT")

    def local(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what the clock shows, as milliseconds since 1970 shown by it."""
        if self._is_utc:
            return times
        column = pa.array(times, pa.int64()).view(pa.timestamp("ms", self.zone))
        shown: NDArray[np.int64] = pc.local_timestamp(column).view(pa.int64()).to_numpy()
        return shown

    def absolute(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when the clock shows these times; the later of two, as Flink."""
        if self._is_utc:
            return times
        column = pa.array(times, pa.int64()).view(pa.timestamp("ms"))
        found = pc.assume_timezone(column, self.zone, ambiguous="latest", nonexistent="latest")
        absolute: NDArray[np.int64] = found.view(pa.int64()).to_numpy()
        return absolute
