"""Metrics of a running job, and PyFlink's import path of metrics.

Read next: ``functions/metric_group.py``, ``metrics/progress.py``.
"""

from millstream import facade
from millstream.functions.metric_group import Counter as Counter
from millstream.functions.metric_group import Distribution as Distribution
from millstream.functions.metric_group import Meter as Meter
from millstream.functions.metric_group import Metric as Metric
from millstream.functions.metric_group import MetricGroup as MetricGroup
from millstream.metrics.progress import ProgressReporter as ProgressReporter
from millstream.metrics.progress import create_progress_reporter as create_progress_reporter

facade.complete(__name__)
