"""Checkpoint storages, under PyFlink's import path."""

from __future__ import annotations

from millstream.configuration.state_backends import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)

__all__ = ["CheckpointStorage", "FileSystemCheckpointStorage", "JobManagerCheckpointStorage"]
