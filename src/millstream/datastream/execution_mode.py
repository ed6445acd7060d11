"""Execution modes under PyFlink's import path."""

from __future__ import annotations

from millstream.configuration.execution_config import RuntimeExecutionMode

__all__ = ["RuntimeExecutionMode"]
