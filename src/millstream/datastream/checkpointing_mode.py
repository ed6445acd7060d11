"""Checkpointing modes under PyFlink's import path."""

from millstream.configuration.options import CheckpointingMode as CheckpointingMode
