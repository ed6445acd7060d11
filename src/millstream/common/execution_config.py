"""Settings of a program under PyFlink's import path."""

from __future__ import annotations

from millstream.configuration.execution_config import ExecutionConfig

__all__ = ["ExecutionConfig"]
