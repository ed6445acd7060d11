"""When the last checkpoint may follow the end of all sources: at once, or when links are empty.

What it is: the last checkpoint is aligned, so it waits for all that was read and is not processed.
Where barriers do not overtake, so would any other, and it follows at once.  Where they do,
checkpoints go on as before until one has nothing in flight that was triggered behind the end of the
sources: then nothing is left to wait for.

What it is not: a part of a stop with draining, whose last checkpoint follows at once.

Read next: ``engines/pipelined/run_loop.py``.
"""

from __future__ import annotations

__all__ = ["Draining"]


class Draining:
    """What is on its way behind the end of all sources.

    Args:
        overtakes: whether barriers overtake records.
    """

    def __init__(self, *, overtakes: bool) -> None:
        self._overtakes = overtakes
        #: The first checkpoint that was triggered behind the end of the sources.
        self._first: int | None = None
        self._is_empty = False

    @property
    def is_done(self) -> bool:
        """Whether the sources are over, and the last checkpoint may be triggered."""
        return self._first is not None and (self._is_empty or not self._overtakes)

    def look(self, coming: int, *, is_over: bool) -> bool:
        """Take whether the sources are over; they are not again where a region begins anew.

        Args:
            coming: the number of the next checkpoint.
            is_over: whether all that is to be read was.

        Returns:
            Whether that has begun now.
        """
        begins = is_over and self._first is None
        if not is_over:
            self._first, self._is_empty = None, False
        elif begins:
            self._first = coming
        return begins

    def committed(self, epoch: int, *, in_flight: bool) -> None:
        """Take a checkpoint, and whether something was in flight in it."""
        if self._first is not None and epoch >= self._first:
            self._is_empty = not in_flight
