"""Configuration under PyFlink's import path."""

from __future__ import annotations

from millstream.configuration.configuration import CONFIGURATION_VARIABLE, Configuration

__all__ = ["CONFIGURATION_VARIABLE", "Configuration"]
