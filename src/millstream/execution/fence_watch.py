"""Noticing that a newer run has taken the job over, also where nothing is published."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from millstream.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.checkpoint.coordinator import Coordinator

__all__ = ["FenceWatch"]

#: Between two looks at the manifest log, which costs a listing.
_SECONDS: Final = 2.0


class FenceWatch:
    """Looks at the fence now and then.

    A run meets the fence when it publishes.  One that is idle, or in a long epoch, would stay
    beside the newer one, and on Spark write into its logs.

    Args:
        coordinator: of the run; another thread may publish meanwhile.
        seconds: a clock.
    """

    def __init__(
        self, coordinator: Coordinator, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._coordinator = coordinator
        self._seconds = seconds
        self._next = seconds() + _SECONDS

    def look(self) -> None:
        """Look, if it is time to.

        Raises:
            FencedError: a newer run has the job.
        """
        now = self._seconds()
        if now < self._next:
            return
        self._next = now + _SECONDS
        if self._coordinator.is_fenced():
            message = "a newer run has taken the job over, so this one ends"
            raise FencedError(message)
