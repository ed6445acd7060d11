"""Metrics of user functions under PyFlink's import path."""

from __future__ import annotations

from millstream.functions.metric_group import (
    Counter,
    Distribution,
    Meter,
    Metric,
    MetricGroup,
)

__all__ = [
    "Counter",
    "Distribution",
    "Meter",
    "Metric",
    "MetricGroup",
]
