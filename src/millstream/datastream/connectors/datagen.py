"""The data generator of ``connectors/basic/data_generator.py`` under PyFlink's import path."""

from __future__ import annotations

from millstream.connectors.basic.data_generator import (
    DataGeneratorSource,
    GeneratorFunction,
    RateLimiterStrategy,
)

__all__ = ["DataGeneratorSource", "GeneratorFunction", "RateLimiterStrategy"]
