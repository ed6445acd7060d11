"""Restart strategies under PyFlink's import path."""

from millstream.configuration.restart_strategies import RestartStrategies as RestartStrategies
from millstream.configuration.restart_strategies import (
    RestartStrategyConfiguration as RestartStrategyConfiguration,
)
