"""Retention of a cancelled job's checkpoints, under PyFlink's import path."""

from __future__ import annotations

from millstream.configuration.state_backends import ExternalizedCheckpointRetention

__all__ = ["ExternalizedCheckpointRetention"]
