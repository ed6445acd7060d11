"""The only package that imports pyspark: session, split source, exchange, epoch driver.

What it is: how a job graph runs on Spark.  One Structured Streaming query logs the offsets; each
of its micro-batches is one epoch, run as one Spark job.
What it is not: operators, state or the commit protocol; these know nothing of Spark.

Read next: ``spark/driver.py``, then ``spark/epoch_driver.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.spark.dataframe_sink import DataFrameSink, EpochNumber

__all__ = ["DataFrameSink", "EpochNumber"]


def __getattr__(name: str) -> object:
    """Import pyspark only for those who ask for something that needs it."""
    if name in __all__:
        from millstream.spark import dataframe_sink

        found: object = getattr(dataframe_sink, name)
        return found
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
