"""Options under PyFlink's import path."""

from __future__ import annotations

from millstream.configuration.options import (
    ConfigOption,
)

__all__ = [
    "ConfigOption",
]
