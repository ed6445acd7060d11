"""The contract of metric reporters: where a running job sends its metrics.

Reporters are found by their entry points.  None is built in, and no job starts one yet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from millstream.entry_points import Extensions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.contracts.metrics import MetricValue


class MetricReporter(ABC):
    """Sends the metrics of a job somewhere.

    Contract:
      1. ``open`` is called once, then ``report`` any number of times, then ``close``, all in one
         thread of the driver.  (the runtime)
      2. A report that fails raises; the job goes on without it.  (the runtime)
    """

    @abstractmethod
    def open(self, properties: Mapping[str, str]) -> None:
        """Take the options ``metrics.reporter.NAME.*``, by the keys without that prefix."""

    @abstractmethod
    def report(self, values: Mapping[str, MetricValue]) -> None:
        """Send the metrics of the job, by operator and metric, as they are now."""

    @abstractmethod
    def close(self) -> None:
        """Send what is left and release what is held."""


#: By the names that configuration has for them: callables that make a reporter.
METRIC_REPORTERS: Final[Extensions[Callable[[], MetricReporter]]] = Extensions(
    "millstream.metric_reporters", "metric reporter", {}, ("__call__",)
)
