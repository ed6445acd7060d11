"""The data generator (Flink's ``org.apache.flink.connector.datagen``).

What it is: names only.  What it is not: where they are written.

Read next: ``millstream/connectors/basic/data_generator.py``.
"""

from __future__ import annotations

from millstream.connectors.basic.data_generator import (
    DataGeneratorSource,
    GeneratorFunction,
    RateLimiterStrategy,
)

__all__ = ["DataGeneratorSource", "GeneratorFunction", "RateLimiterStrategy"]
