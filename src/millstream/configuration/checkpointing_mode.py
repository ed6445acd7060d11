"""The modes of checkpointing a job, with Flink's names and one more.

Read next: ``checkpoint/coordinator.py``, where a mode is an order of the same steps.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["CheckpointingMode"]


class CheckpointingMode(Enum):
    """What a record counts for after a failure."""

    #: An epoch is published, then its output is committed: once.
    EXACTLY_ONCE = 0
    #: Its output is committed, then it is published: once, or more often if a run dies in between.
    AT_LEAST_ONCE = 1
    #: It is published with no state before it runs: once, or not at all if it fails.
    NONE = 2
