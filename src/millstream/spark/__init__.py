"""Sinks of DataFrames, for programs.

What it is not: the engine (``millstream.engines.spark``).
"""

from typing import TYPE_CHECKING

from millstream import facade

if TYPE_CHECKING:
    from millstream.engines.spark.dataframe_sink import DataFrameSink as DataFrameSink
    from millstream.engines.spark.dataframe_sink import EpochNumber as EpochNumber

# Late, since they import pyspark.
facade.complete(
    __name__, late={"millstream.engines.spark.dataframe_sink": "DataFrameSink EpochNumber"}
)
