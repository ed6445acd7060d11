"""PyFlink's import path of RuntimeExecutionMode; read ``datastream/checkpointing_mode.py``."""

from __future__ import annotations

from millstream.datastream.checkpointing_mode import RuntimeExecutionMode

__all__ = ["RuntimeExecutionMode"]
