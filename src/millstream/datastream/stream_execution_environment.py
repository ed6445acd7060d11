"""PyFlink's import path of the environment; read ``datastream/environment.py``."""

from __future__ import annotations

from millstream.datastream.environment import StreamExecutionEnvironment

__all__ = ["StreamExecutionEnvironment"]
