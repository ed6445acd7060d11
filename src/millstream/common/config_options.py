"""Options under PyFlink's import path."""

from __future__ import annotations

from millstream.configuration.option import ConfigOption, ConfigOptions

__all__ = ["ConfigOption", "ConfigOptions"]
