"""The modes of running and checkpointing a job, with Flink's names.

What it is: two enums.  What it is not: where they are kept: the configuration holds them by name.

Read next: ``datastream/environment.py``.
"""

from __future__ import annotations

from enum import Enum

from millstream.common.checkpointing_mode import CheckpointingMode

__all__ = ["CheckpointingMode", "RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """How bounded programs run."""

    #: Results as they come.
    STREAMING = 0
    #: Final results only; every source must be bounded.
    BATCH = 1
    #: BATCH if every source is bounded.
    AUTOMATIC = 2
