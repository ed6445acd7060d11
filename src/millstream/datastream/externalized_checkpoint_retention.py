"""Retention of a cancelled job's checkpoints, under PyFlink's import path."""

from millstream.configuration.state_backends import (
    ExternalizedCheckpointRetention as ExternalizedCheckpointRetention,
)
