"""How a program is executed: as a stream, or as a batch."""

from __future__ import annotations

from enum import Enum

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """How bounded programs run."""

    #: Results as they come.
    STREAMING = 0
    #: Final results only; every source must be bounded.
    BATCH = 1
    #: BATCH if every source is bounded.
    AUTOMATIC = 2
