"""The built-in aggregates of ``runtime/columnar/aggregates.py`` for users."""

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
