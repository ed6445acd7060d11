"""Metrics of user functions under PyFlink's import path."""

from millstream.functions.metric_group import Counter as Counter
from millstream.functions.metric_group import Distribution as Distribution
from millstream.functions.metric_group import Meter as Meter
from millstream.functions.metric_group import Metric as Metric
from millstream.functions.metric_group import MetricGroup as MetricGroup
