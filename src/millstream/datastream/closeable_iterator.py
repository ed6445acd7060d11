"""CloseableIterator: records of a running job, to be closed after use.

What it is: an iterator that is also a context manager.  What it is not: the collecting, which is
in ``datastream/collecting.py``.

Read next: ``datastream/collecting.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

__all__ = ["CloseableIterator"]


class CloseableIterator:
    """Gives records one by one; ``close`` ends the job behind it if it still runs."""

    def __init__(self, records: Iterator[object], on_close: Callable[[], None]) -> None:
        """Take the records and what to do at the end."""
        self._records = records
        self._on_close = on_close
        self._closed = False

    def __iter__(self) -> Self:
        """The iterator itself."""
        return self

    def __next__(self) -> object:
        """The next record; waits for it."""
        if self._closed:
            raise StopIteration
        return next(self._records)

    def next(self) -> object:
        """The next record; waits for it."""
        return next(self)

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
