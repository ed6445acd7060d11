"""The batch that flows between chained operators: records of one stream with their timestamps.

It is held as Python values or as one Arrow record batch, and converted between the two at most
once, on demand.  A scalar stream is one column; a ROW, TUPLE or dataclass stream has one column per
field.

A changelog carries the kind of each record (+I, -U, +U, -D) beside it.  In a ROW stream, typed or
not, the kinds are those of the rows, as in PyFlink; records of other types have them beside them,
where operators of changelogs see them and Python functions do not.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError, TypeMismatchError, located
from millstream.types.composite_types import RowTypeInfo
from millstream.types.row import kinds_of, set_kinds, with_kinds, without_kind_column
from millstream.types.type_information import PickledBytesTypeInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.types.types import TypeInformation


#: Milliseconds.  As in Flink: a record without a timestamp has the minimum, the watermark that
#: ends a bounded input is the maximum.
MIN_TIMESTAMP: Final = -(2**63)
MAX_TIMESTAMP: Final = 2**63 - 1
_ALL: Final = slice(None)


class Batch:
    """Records of one stream, in order, with their timestamps.

    Values that a program gave are checked when they become columns, if they ever do: then by every
    record.  ``check`` looks at some of them before.

    Invariant: ``_values`` or ``_arrow`` is set, and where both are they say the same.
    Invariant: ``_timestamps`` is None (no record has a timestamp) or as long as the batch.
    Invariant: ``_given`` is set where ``_values`` came from a program, not from the columns.
    Invariant: ``_kinds`` is None (inserts only, or what rows say that a program gave and that are
    not columns yet) or as long as the batch; rows among the values have the same kinds.  The
    columns hold no kinds.
    A batch is never changed once emitted: an operator makes a new one.
    """

    __slots__ = (
        "_arrow",
        "_given",
        "_kinds",
        "_maker",
        "_timestamps",
        "_values",
        "type_info",
    )

    def __init__(
        self,
        type_info: TypeInformation,
        *,
        values: list[object] | None = None,
        arrow: pa.RecordBatch | None = None,
        timestamps: list[int] | NDArray[np.int64] | None = None,
        row_kinds: NDArray[np.int8] | None = None,
    ) -> None:
        """Take the records.

        Args:
            type_info: their type.
            values: the records as Python values.
            arrow: the records as columns; a column ``$row_kind`` among them is taken for kinds.
            timestamps: one per record, in milliseconds; None: they have none.
            row_kinds: one value of ``RowKind`` per record; None: what the column or rows say,
                else inserts.  Given beside rows that say otherwise, these are copied.
        """
        self.type_info = type_info
        self._timestamps = timestamps
        self._given = values is not None
        #: Who made the values, for errors; None as long as nobody has looked at them.
        self._maker: str | None = None
        if arrow is not None:
            arrow, found = without_kind_column(arrow)
            row_kinds = found if row_kinds is None else row_kinds
        if row_kinds is not None:
            values = None if values is None else with_kinds(values, row_kinds)
            row_kinds = row_kinds if row_kinds.any() else None
        self._values = values
        self._arrow = arrow
        self._kinds = row_kinds

    def __len__(self) -> int:
        if self._values is not None:
            return len(self._values)
        return int(self._arrow.num_rows) if self._arrow is not None else 0

    @property
    def is_columnar(self) -> bool:
        """Return whether the records are already available as Arrow columns."""
        return self._arrow is not None

    @property
    def values(self) -> list[object]:
        """The records as Python values (converted once)."""
        if self._values is None:
            self._values = self.type_info.from_arrow(self._arrow)
            if self._kinds is not None:
                set_kinds(self._values, self._kinds)
        return self._values

    @property
    def arrow(self) -> pa.RecordBatch:
        """The records as an Arrow record batch (converted once).

        Raises:
            TypeMismatchError: a value does not fit the declared type.
            ProgramError: the stream is untyped (pickled), so there are no columns.
        """
        if self._arrow is None:
            if self.type_info.arrow_schema is None:
                message = "an untyped stream has no Arrow columns; give the operator an output_type"
                raise ProgramError(message)
            self._make_columns()
        return self._arrow

    def _make_columns(self) -> None:
        try:
            columns = self.type_info.to_arrow(self._values or [])
        except TypeMismatchError as error:
            if self._maker is None:
                raise
            raise located(TypeMismatchError(f"{self._maker}: {error}")) from error
        self._arrow, found = without_kind_column(columns)
        if found is not None:
            self._kinds = found

    @property
    def is_unchecked(self) -> bool:
        """Return whether a program gave the values and nobody has held them against the type."""
        return self._given and self._arrow is None and self._maker is None

    def made_by(self, maker: str) -> None:
        """Say who made the values, for errors of later conversions."""
        self._maker = maker

    def check(self, maker: str, which: slice = _ALL) -> None:
        """Hold values against the declared type, if it has columns; none are kept.

        Args:
            maker: who made the values; errors name it, those of later conversions too.
            which: the positions of the values to look at.

        Raises:
            TypeMismatchError: one of these values does not fit the declared type.
        """
        self._maker = maker
        values = self._values or []
        try:
            if not isinstance(self.type_info, PickledBytesTypeInfo):
                self.type_info.to_arrow(values[which])
        except TypeMismatchError:
            self._make_columns()  # raises for the first of all that does not fit
            raise

    @property
    def conformed(self) -> Batch:
        """The records as they are downstream of an exchange, where 1 for a DOUBLE is 1.0."""
        if not self._given or self.type_info.arrow_schema is None:
            return self
        arrow = self.arrow  # finds kinds that rows have
        return self._like(None, arrow, self._timestamps, self._kinds)

    @property
    def row_kinds(self) -> NDArray[np.int8] | None:
        """The value of ``RowKind`` of each record; None if all are inserts."""
        if self._kinds is None and self._given and self._arrow is None:
            schema = self.type_info.arrow_schema
            if schema is None or isinstance(self.type_info, RowTypeInfo):
                return kinds_of(self._values or [])
        return self._kinds

    @property
    def raw_row_kinds(self) -> NDArray[np.int8] | None:
        """The kinds as they are held (None: inserts only, or the rows say what they are)."""
        return self._kinds

    @property
    def timestamp_list(self) -> list[int]:
        """The timestamps as Python integers, in milliseconds."""
        if self._timestamps is None:
            return [MIN_TIMESTAMP] * len(self)
        if isinstance(self._timestamps, np.ndarray):
            as_list: list[int] = self._timestamps.tolist()
            return as_list
        return self._timestamps

    @property
    def timestamp_array(self) -> NDArray[np.int64]:
        """The timestamps as an int64 array, in milliseconds."""
        if self._timestamps is None:
            return np.full(len(self), MIN_TIMESTAMP, dtype=np.int64)
        if not isinstance(self._timestamps, np.ndarray):
            self._timestamps = np.asarray(self._timestamps, dtype=np.int64)
        return self._timestamps

    @property
    def raw_timestamps(self) -> list[int] | NDArray[np.int64] | None:
        """The timestamps as they are held (None: the records have none)."""
        return self._timestamps

    def with_timestamps(self, timestamps: list[int] | NDArray[np.int64] | None) -> Batch:
        """The same records with other timestamps."""
        return self._like(self._values, self._arrow, timestamps, self._kinds)

    def with_row_kinds(self, row_kinds: NDArray[np.int8] | None) -> Batch:
        """The same records with other kinds (None: all of them inserts)."""
        if row_kinds is None:
            row_kinds = np.zeros(len(self), dtype=np.int8)
        if self._arrow is not None and not self._given:
            return Batch(
                self.type_info,
                arrow=self._arrow,
                timestamps=self._timestamps,
                row_kinds=row_kinds,
            )
        return Batch(
            self.type_info,
            values=self.values,
            arrow=self._arrow,
            timestamps=self._timestamps,
            row_kinds=row_kinds,
        )

    def filter(self, mask: list[bool]) -> Batch:
        """The records for which ``mask`` is true, in order."""
        timestamps = self._timestamps
        if isinstance(timestamps, np.ndarray):
            timestamps = timestamps[np.array(mask)]
        elif timestamps is not None:
            timestamps = list(compress(timestamps, mask))
        values = None if self._values is None else list(compress(self._values, mask))
        arrow = None if self._arrow is None else self._arrow.filter(pa.array(mask, pa.bool_()))
        kinds = None if self._kinds is None else self._kinds[np.array(mask)]
        return self._like(values, arrow, timestamps, kinds)

    def _like(
        self,
        values: list[object] | None,
        arrow: pa.RecordBatch | None,
        timestamps: list[int] | NDArray[np.int64] | None,
        kinds: NDArray[np.int8] | None,
    ) -> Batch:
        """Records out of this batch, which are checked if these are."""
        made = Batch(self.type_info, values=values, timestamps=timestamps)
        made._maker = self._maker
        made._arrow = arrow
        made._kinds = kinds if kinds is None or kinds.any() else None
        made._given = self._given and values is not None
        return made

    def slice(self, start: int, stop: int) -> Batch:
        """The records ``[start, stop)``; itself if these are all."""
        if start <= 0 and stop >= len(self):
            return self
        stamps = self._timestamps
        timestamps = None if stamps is None else stamps[start:stop]
        values = None if self._values is None else self._values[start:stop]
        part = None if self._arrow is None else self._arrow.slice(start, stop - start)
        kinds = None if self._kinds is None else self._kinds[start:stop]
        return self._like(values, part, timestamps, kinds)

    def take(self, indices: NDArray[np.int64] | Sequence[int]) -> Batch:
        """The records at ``indices``, in that order."""
        positions = np.asarray(indices, dtype=np.int64)
        timestamps: list[int] | NDArray[np.int64] | None = None
        if self._timestamps is not None:
            timestamps = self.timestamp_array[positions]
        kinds = None if self._kinds is None else self._kinds[positions]
        if self._arrow is not None:
            taken = self._arrow.take(pa.array(positions))
            return self._like(None, taken, timestamps, kinds)
        values = self.values
        picked = [values[i] for i in positions.tolist()]
        return self._like(picked, None, timestamps, kinds)
