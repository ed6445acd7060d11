"""What programs take from Spark's side: sinks of DataFrames.

What it is not: the engine (``millstream.engines.spark``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.engines.spark.dataframe_sink import DataFrameSink, EpochNumber

__all__ = ["DataFrameSink", "EpochNumber"]


def __getattr__(name: str) -> object:
    """Import pyspark only for those who ask for something that needs it."""
    if name in __all__:
        from millstream.engines.spark import dataframe_sink

        found: object = getattr(dataframe_sink, name)
        return found
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
