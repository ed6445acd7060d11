"""Options under PyFlink's import path."""

from __future__ import annotations

from millstream.configuration.config_options import (
    ConfigOption,
    ConfigOptions,
)

__all__ = [
    "ConfigOption",
    "ConfigOptions",
]
