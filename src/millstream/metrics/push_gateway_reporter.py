"""Metrics to a Prometheus push gateway, for jobs that nobody can scrape."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, delete_from_gateway, push_to_gateway

from millstream.configuration.option import parse_boolean
from millstream.contracts.metrics import MetricReporter
from millstream.errors import ConfigurationError
from millstream.metrics.prometheus_reporter import Samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.contracts.metrics import MetricSample

#: Seconds that a request may take.
_TIMEOUT: Final = 10.0


class PushGatewayReporter(MetricReporter):
    """Replaces the metrics of a job at the gateway; deletes them at its end."""

    def __init__(self) -> None:
        self._samples: Sequence[MetricSample] = ()
        self._url = self._job = ""
        self._grouping: dict[str, str] = {}
        self._deletes = True
        self._registry = CollectorRegistry()

    def open(self, properties: Mapping[str, str]) -> None:
        """Take the address and the name of the group.

        Raises:
            ConfigurationError: there is none, or the group has no name.
        """
        self._url = properties.get("hostUrl", "")
        if not self._url:
            message = "the reporter needs the option 'hostUrl', such as http://localhost:9091"
            raise ConfigurationError(message)
        self._job = properties.get("jobName", "")
        if parse_boolean(properties.get("randomJobNameSuffix", "true")):
            self._job += secrets.token_hex(8)
        if not self._job:
            message = "the reporter needs the option 'jobName', or 'randomJobNameSuffix: true'"
            raise ConfigurationError(message)
        self._grouping = _grouping_of(properties.get("groupingKey", ""))
        self._deletes = parse_boolean(properties.get("deleteOnShutdown", "true"))
        self._registry.register(Samples(lambda: self._samples, properties))

    def report(self, samples: Sequence[MetricSample]) -> None:
        """Push the metrics.

        Raises:
            OSError: the gateway cannot be reached, or refuses them.
        """
        self._samples = samples
        push_to_gateway(self._url, self._job, self._registry, self._grouping, _TIMEOUT)

    def close(self) -> None:
        """Delete what was pushed, unless ``deleteOnShutdown`` is false."""
        if self._deletes:
            delete_from_gateway(self._url, self._job, self._grouping, _TIMEOUT)


def _grouping_of(text: str) -> dict[str, str]:
    """Labels of ``k1=v1;k2=v2``.

    Raises:
        ConfigurationError: an entry is no such pair.
    """
    found = {}
    for entry in filter(None, text.split(";")):
        key, sign, value = (each.strip() for each in entry.partition("="))
        if not (sign and key and value):
            message = f"groupingKey must have entries such as 'k1=v1;k2=v2', but one is {entry!r}"
            raise ConfigurationError(message)
        found[key] = value
    return found
