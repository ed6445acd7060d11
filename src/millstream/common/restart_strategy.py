"""Restart strategies under PyFlink's import path."""

from __future__ import annotations

from millstream.configuration.restart_strategies import (
    RestartStrategies,
    RestartStrategyConfiguration,
)

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]
