"""Built-in aggregates for ``WindowedStream.aggregate``.

What it is: re-exports.  What it is not: where they are written: ``runtime/columnar/aggregates.py``.

Read next: ``runtime/columnar/aggregates.py``.
"""

from __future__ import annotations

from millstream.runtime.columnar.aggregates import (
    Avg,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Min,
    Quantile,
    Quantiles,
    Sum,
)

__all__ = [
    "Avg",
    "Collect",
    "Count",
    "CountDistinct",
    "First",
    "Last",
    "Max",
    "Min",
    "Quantile",
    "Quantiles",
    "Sum",
]
