"""Metrics of a running job, and PyFlink's import path of metrics.

Read next: ``functions/metric_group.py``, ``metrics/progress.py``.
"""

from __future__ import annotations

from millstream.functions.metric_group import Counter, Distribution, Meter, Metric, MetricGroup
from millstream.metrics.progress import ProgressReporter, create_progress_reporter

__all__ = [
    "Counter",
    "Distribution",
    "Meter",
    "Metric",
    "MetricGroup",
    "ProgressReporter",
    "create_progress_reporter",
]
