"""Checkpoint storages, under PyFlink's import path."""

from millstream.configuration.state_backends import CheckpointStorage as CheckpointStorage
from millstream.configuration.state_backends import (
    FileSystemCheckpointStorage as FileSystemCheckpointStorage,
)
from millstream.configuration.state_backends import (
    JobManagerCheckpointStorage as JobManagerCheckpointStorage,
)
