"""CloseableIterator: records of a running job, to be closed after use.

What it is: an iterator that is also a context manager.  What it is not: the collecting, which is
in ``datastream/collecting.py``.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    import pandas as pd

    from millstream.types.types import TypeInformation


class CloseableIterator:
    """Gives records one by one; ``close`` ends the job behind it if it still runs."""

    def __init__(
        self,
        records: Iterator[object],
        on_close: Callable[[], None],
        type_info: TypeInformation | None = None,
    ) -> None:
        """Take the records, what to do at the end, and the type of the records if it is known."""
        self._type = type_info
        self._records = records
        self._on_close = on_close
        self._closed = False

    def __iter__(self) -> Self:
        """The iterator itself."""
        return self

    def __next__(self) -> object:
        """The next record; waits for it.  An interrupt closes: nobody else could end the job."""
        if self._closed:
            raise StopIteration
        try:
            return next(self._records)
        except KeyboardInterrupt:
            self.close()
            raise

    def next(self) -> object:
        """The next record; waits for it."""
        return next(self)

    def to_pandas(self, limit: int | None = None) -> pd.DataFrame:
        """The records that are left as a DataFrame, one column per field; then close.

        Args:
            limit: take so many records at most, and end the job.

        Raises:
            ProgramError: pandas is not installed.
        """
        from millstream.datastream.pandas_frame import frame_of

        with self:
            # Not zip(): it would wait for one record more than wanted.
            return frame_of(list(itertools.islice(self, limit)), self._type)

    def close(self) -> None:
        """End the job and remove what it collected.  Nothing happens the second time."""
        if not self._closed:
            self._closed = True
            self._on_close()

    def __enter__(self) -> Self:
        """The iterator itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()
