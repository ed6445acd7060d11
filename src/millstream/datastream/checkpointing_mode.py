"""Checkpointing modes under PyFlink's import path."""

from __future__ import annotations

from millstream.configuration.options import CheckpointingMode

__all__ = ["CheckpointingMode"]
