"""Checkpoint, commit and recovery: the protocol that makes results exactly-once.

State (``state/``) and sinks (``connectors/``) are known here only by names and committables.

Read next: ``checkpoint/coordinator.py``, whose docstring lists the steps and their files.
"""

from __future__ import annotations

from millstream.checkpoint.coordinator import Coordinator
from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.model import (
    FORMAT_VERSION,
    Manifest,
    OperatorAck,
    SplitState,
    TaskAck,
)
from millstream.contracts.checkpoint_storage import CheckpointStorage

__all__ = [
    "FORMAT_VERSION",
    "CheckpointStorage",
    "Coordinator",
    "JobIdentity",
    "LocalStorage",
    "Manifest",
    "ManifestLog",
    "OperatorAck",
    "SplitState",
    "TaskAck",
]
